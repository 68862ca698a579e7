"""Which runs a question about history is about: one predicate, for the database's rows and for what is in memory.

SQL narrows the rows beforehand (dbd/queries/jobs.py); what it cannot say, and what never was in a table, is decided
here, so that a job does not appear or vanish as it moves from memory into the database.
"""

from __future__ import annotations

from muster import hostlist
from muster.errors import InvalidInput
from muster.idset import IdSet, parse_array
from muster.records import HistoryFilter, RunRecord

PENDING_WORD, RUNNING_WORD, SUSPENDED_WORD = "PENDING", "RUNNING", "SUSPENDED"
OPEN_WORDS = frozenset((PENDING_WORD, RUNNING_WORD, SUSPENDED_WORD))
_MAX_TASK_ID = 1 << 26


class Matcher:
    """A filter made ready to be asked often.

    Args:
        asked: the filter.
        now: what an open end of the window and of a run stands for.

    Raises:
        InvalidInput: `nodelist` is no list of hosts.
    """

    def __init__(self, asked: HistoryFilter, now: int) -> None:
        self.asked = asked
        self.start = asked.start
        self.end = min(asked.end, now) if asked.end else now
        self._now = now
        self._users = frozenset(asked.users)
        self._accounts = frozenset(asked.accounts)
        self._partitions = frozenset(asked.partitions)
        self._qos = frozenset(asked.qos)
        self._names = frozenset(asked.names)
        self._nodes = frozenset(hostlist.expand(asked.nodelist)) if asked.nodelist else frozenset()
        self._whole = frozenset(one.job_id for one in asked.jobs if one.task_id < 0)
        self._members = frozenset((one.job_id, one.task_id) for one in asked.jobs if one.task_id >= 0)
        self._listed: dict[str, bool] = {}

    def names_job(self, job_id: int, array_job_id: int, task_id: int, array_tasks: str) -> bool:
        """Tell whether `jobs` names this run: by its own number, its array's, or as a member."""
        if not self.asked.jobs or job_id in self._whole or array_job_id in self._whole:
            return True
        if not self._members:
            return False
        if task_id >= 0:
            return (array_job_id, task_id) in self._members
        if not array_tasks:
            return False
        tasks = tasks_of(array_tasks)
        return any(array == array_job_id and (tasks is None or wanted in tasks) for array, wanted in self._members)

    def passes(self, run: RunRecord) -> bool:
        """Tell whether the filter lets this run through."""
        if self._users and run.uid not in self._users:
            return False
        if self._accounts and run.account not in self._accounts:
            return False
        if self._qos and run.qos not in self._qos:
            return False
        if self._names and run.name not in self._names:
            return False
        if self._partitions and self._partitions.isdisjoint(run.partition.split(",")):
            return False
        if self.asked.jobs and not self.names_job(run.job_id, run.array_job_id, run.array_task_id, run.array_tasks):
            return False
        return self._in_window(run) and (not self._nodes or self._ran_on(run.nodelist))

    def _in_window(self, run: RunRecord) -> bool:
        waited_from = run.eligible_at
        if not 0 < waited_from <= self._now:
            waited_from = run.submitted_at  # held, dependent, or not to begin yet
        if not self.asked.states:
            return waited_from <= self.end and (not run.ended_at or run.ended_at >= self.start)
        for word in self.asked.states:
            if word == PENDING_WORD:
                since, until = waited_from, run.started_at or run.ended_at
            elif word == RUNNING_WORD:
                since, until = run.started_at, run.ended_at
            elif word == run.state:
                since, until = (run.started_at, 0) if word == SUSPENDED_WORD else (run.ended_at, run.ended_at)
            else:
                continue
            if 0 < since <= self.end and (not until or until >= self.start):
                return True
        return False

    def _ran_on(self, nodelist: str) -> bool:
        known = self._listed.get(nodelist)
        if known is None:
            known = bool(nodelist) and not self._nodes.isdisjoint(hostlist.expand(nodelist))
            self._listed[nodelist] = known
        return known


def tasks_of(array_tasks: str) -> IdSet | None:
    """Read the members that a record's `array_tasks` names; None where the text was cut (`...`): it may be any."""
    try:
        return parse_array(array_tasks.partition("%")[0], _MAX_TASK_ID)[0]
    except InvalidInput:
        return None


def newest_only(runs: list[RunRecord]) -> list[RunRecord]:
    """Drop all but the newest run of each job; members cancelled out of an array's rest are jobs of their own."""
    newest: dict[tuple[int, str], RunRecord] = {}
    kept: list[RunRecord] = []
    for run in runs:
        if run.array_tasks and run.ended_at:
            kept.append(run)
            continue
        key = (run.job_id, run.array_tasks)
        known = newest.get(key)
        if known is None or (run.submitted_at, run.run) >= (known.submitted_at, known.run):
            newest[key] = run
    return kept + list(newest.values())

"""Which jobs a question is about: ids, owners, states, partitions, names, accounts, QOS, nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ctld.core import ranges
from ctld.core.jobids import Selector, parse_selectors
from ctld.core.model import Job
from ctld.core.state import State
from ctld.services.door import Call
from ctld.services.views.jobs import SUSPENDED, is_current, partitions_of, reservation_of, shown_flags
from muster import errors, hostlist
from muster.ids import NO_TASK
from muster.slurm_errors import slurm_text
from muster.states import (
    COMPACT,
    COMPLETING,
    CONFIGURING,
    REQUEUE_HOLD,
    REQUEUED,
    RESV_DEL_HOLD,
    SPECIAL_EXIT,
    STOPPED,
    JobState,
)

_FLAGS = {
    "COMPLETING": COMPLETING,
    "CG": COMPLETING,
    "CONFIGURING": CONFIGURING,
    "CF": CONFIGURING,
    "REQUEUED": REQUEUED,
    "RQ": REQUEUED,
    "REQUEUE_HOLD": REQUEUE_HOLD,
    "RH": REQUEUE_HOLD,
    "SPECIAL_EXIT": SPECIAL_EXIT,
    "SE": SPECIAL_EXIT,
    "STOPPED": STOPPED,
    "ST": STOPPED,
    "RESV_DEL_HOLD": RESV_DEL_HOLD,
    "RD": RESV_DEL_HOLD,
}
# Known words of states that no job of ours can have: they match nothing.
_NEVER = frozenset(
    (
        *("EXPEDITING", "RESIZING", "RS", "REQUEUE_FED", "RF", "REVOKED", "RV"),
        *("SIGNALING", "SI", "STAGE_OUT", "SO"),
    )
)
_STATES = {state.name: int(state) for state in JobState} | {word: state for state, word in enumerate(COMPACT)}
MAX_QUERY_BYTES = 1 << 20
"""Of a query that comes in a body."""


def query_of(call: Call) -> Mapping[str, str]:
    """Give the query; one that is too long for a request line comes in the body, as a JSON object of texts."""
    if not call.body:
        return call.query
    if len(call.body) > MAX_QUERY_BYTES:
        raise errors.TooLarge(f"the query is {len(call.body)} bytes, more than the {MAX_QUERY_BYTES} that are taken")
    return {**call.query, **call.json(dict[str, str])}


class Selection:
    """What a query asks for; an absent part lets every job pass.

    Args:
        query: `ids`, `users` (uids), `states` (words, or all), `partitions`, `names`, `accounts`, `qos`,
            `reservations`, `nodes` (a host list), each a comma list; `all=1` shows hidden partitions, `expand=1` gives
            each member of a pending array by itself.

    Raises:
        InvalidInput: a state, id or number that cannot be read.
        NotFound: a node that is not known; the only id asked for was never given out.
    """

    def __init__(self, state: State, query: Mapping[str, str]) -> None:
        self._state = state
        self._users = _numbers(query.get("users"))
        self._names = _set(query.get("names"))
        self._accounts = _set(query.get("accounts"))
        self._qos = _set(query.get("qos"))
        self._partitions = _set(query.get("partitions"))
        self._reservations = _set(query.get("reservations"))
        self._nodes = _nodes(state, query.get("nodes"))
        self._all_states, self._bases, self._flags = _states(query.get("states"))
        hidden = [] if query.get("all") == "1" else [each.name for each in state.partitions.values() if each.hidden]
        self._hidden = frozenset(hidden)
        self._expand = query.get("expand") == "1"
        ids = query.get("ids")
        self._selectors = parse_selectors(ids) if ids else None
        if self._selectors is not None:
            check_known(state, self._selectors)

    def jobs(self) -> list[Job]:
        """Give the records to look at, in order of submission; a copy, since the question is answered in slices."""
        if self._selectors is None:
            return list(self._state.jobs.values())
        return select(self._state, self._selectors)

    def passes(self, job: Job) -> bool:
        """Tell whether a record is asked for."""
        if not self._passes_state(job):
            return False
        spec = job.spec
        if self._users is not None and spec.uid not in self._users:
            return False
        if self._names is not None and spec.name not in self._names:
            return False
        if self._accounts is not None and spec.account not in self._accounts:
            return False
        if self._qos is not None and spec.qos not in self._qos:
            return False
        if self._reservations is not None and self._reservations.isdisjoint(reservation_of(job).split(",")):
            return False
        if self._partitions is not None or self._hidden:
            names = partitions_of(job)
            if self._partitions is not None and self._partitions.isdisjoint(names):
                return False
            if self._hidden and self._hidden.issuperset(names):
                return False
        if self._nodes is not None:
            alloc = job.alloc
            return (
                alloc is not None
                and 0 < job.state <= SUSPENDED
                and any(share.node in self._nodes for share in alloc.shares)
            ) or any(node in self._nodes for node in job.completing)
        return True

    def members(self, job: Job) -> Iterator[Job]:
        """Give the record, or with `expand` one record for each member of an array that has not started."""
        if not self._expand or not job.array_pending or job.array_task_id != NO_TASK:
            yield job
            return
        for task in ranges.numbers(job.array_pending):
            yield replace(job, array_task_id=task)

    def _passes_state(self, job: Job) -> bool:
        if self._all_states:
            return True
        if self._bases is None:
            return is_current(job)
        # As in Slurm, a base state means a job without any flag.
        flags = shown_flags(job)
        return (not flags and job.state in self._bases) or bool(flags & self._flags)


def check_known(state: State, selectors: Sequence[Selector]) -> None:
    """Refuse the only id asked for when it was never given out; one that was purged is a job that is over."""
    if len(selectors) == 1 and selectors[0].job_id >= state.next_job_id and selectors[0].job_id not in state.jobs:
        raise unknown_job(selectors[0].job_id)


def unknown_job(job_id: int) -> errors.NotFound:
    """Give the refusal of an id that no job in memory has."""
    return errors.NotFound(slurm_text(2017), f"job {job_id}", slurm_code=2017)


def select(state: State, selectors: Sequence[Selector]) -> list[Job]:
    """Give the records that ids name, each once: an array's id names all of its records, `A_3` the member.

    A member that has not started comes as its array's record with only the members asked for left in it.
    """
    found: dict[int, Job] = {}
    for selector in selectors:
        job_id, tasks = int(selector.job_id), selector.tasks
        for each in sorted(state.by_array.get(job_id, ())) or [job_id]:
            job = state.jobs.get(each)
            if job is None:
                continue
            if tasks is None:
                found[each] = job
            elif job.array_task_id != NO_TASK:
                if job.array_job_id == job_id and ranges.contains(tasks, job.array_task_id):
                    found[each] = job
            elif job.array_job_id == job_id and job.array_pending:
                asked = ranges.intersection(job.array_pending, tasks)
                before = found.get(each)
                if before is not None:
                    asked = ranges.union(asked, before.array_pending)
                if asked:
                    found[each] = replace(job, array_pending=asked)
    return list(found.values())


def _set(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(text.split(","))


def _numbers(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    try:
        return frozenset(int(word) for word in text.split(",") if word)
    except ValueError:
        raise errors.InvalidInput(f"users={text[:60]} is no list of uids") from None


def _nodes(state: State, text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    found = set()
    for name in hostlist.expand(text):
        index = state.node_index.get(name)
        if index is None:
            raise errors.NotFound(f"Invalid node name {name}", slurm_code=2018)
        found.add(index)
    return frozenset(found)


def _states(text: str | None) -> tuple[bool, frozenset[int] | None, int]:
    """Read state words: (all of them, base states or None for the usual ones, flags)."""
    if text is None:
        return False, None, 0
    bases, flags = set(), 0
    for word in text.upper().split(","):
        if word == "ALL":
            return True, None, 0
        if word in _STATES:
            bases.add(_STATES[word])
        elif word in _FLAGS:
            flags |= _FLAGS[word]
        elif word not in _NEVER:
            raise errors.InvalidInput(f"Invalid job state specified: {word[:60]}", slurm_code=2181)
    return False, frozenset(bases), flags

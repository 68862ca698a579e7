"""The steps of this node as a state machine: events in, instructions out, no input or output.

A step goes ordered -> running -> ended -> (reported) -> forgotten. Everything is idempotent by its key (job, run,
step): the controller repeats what it wants until it sees it done. A key that was begun is never begun again; a run
whose end was ordered begins nothing any more.

The batch step's end is the job's: the other steps of the run are ended here first, and its result is reported once
nothing of the run is left, so that one message tells both.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.ids import BATCH_STEP

Key = tuple[int, int, int]
"""(job, run, step)."""
Run = tuple[int, int]
Result = dict[str, Any]
"""What a stepd leaves; see noded/launch/stepd.py."""
Order = tuple[Any, ...]
"""A datagram for a stepd; see noded/launch/stepd.py."""

MOST_REMEMBERED = 16384
"""Runs that ended, keys that were forgotten, serials that were carried out: so many of each are remembered."""


class Phase(StrEnum):
    """Where a step is."""

    ORDERED = "ordered"
    """Its folder is written and the zygote asked; no stepd is known yet."""
    RUNNING = "running"
    ENDED = "ended"
    """Its result is there; not yet known to be durable at the controller."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Write the step's folder and have it begun."""

    key: Key


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Say that the step is here."""

    key: Key


@dataclass(frozen=True, slots=True)
class Tell:
    """Give the step's stepd an order."""

    key: Key
    order: Order


@dataclass(frozen=True, slots=True)
class ReportEnded:
    """Say how the step ended."""

    key: Key
    result: Result
    job_gone: bool


@dataclass(frozen=True, slots=True)
class ReportGone:
    """Say that nothing of the run is left here."""

    run: Run


@dataclass(frozen=True, slots=True)
class ReportSignalled:
    """Say that a signal order was carried out."""

    serial: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove what there is of the step."""

    key: Key


Instruction = Begin | Acknowledge | Tell | ReportEnded | ReportGone | ReportSignalled | Remove


@dataclass(slots=True)
class Step:
    """One step."""

    key: Key
    phase: Phase = Phase.ORDERED
    pending: list[Order] = field(default_factory=list)
    """Orders that came before its stepd was known."""
    killing: bool = False
    killing_now: bool = False
    result: Result | None = None
    unwanted: bool = False
    """The controller knows nothing of it: it is removed when it ends, and not reported."""


class Steps:
    """All steps of this node that are not forgotten."""

    def __init__(self) -> None:
        self._steps: dict[Key, Step] = {}
        self._runs: dict[Run, dict[Key, Step]] = {}
        self._owed: dict[Run, None] = {}
        """Runs whose end was ordered, and of which something is left."""
        self._ended_runs: OrderedDict[Run, None] = OrderedDict()
        self._cancelled: OrderedDict[Key, None] = OrderedDict()
        """Keys whose end was ordered before they came."""
        self._forgotten: OrderedDict[Key, None] = OrderedDict()
        self._serials: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._steps

    def phase(self, key: Key) -> Phase | None:
        """Give where a step is; None: it is not known."""
        step = self._steps.get(key)
        return step.phase if step is not None else None

    def here(self) -> list[tuple[Key, bool]]:
        """Give all steps for the registration: (key, running)."""
        return [(step.key, step.phase is not Phase.ENDED) for step in self._steps.values() if not step.unwanted]

    # What the controller says.

    def launch(self, key: Key) -> list[Instruction]:
        """Begin a step, once."""
        run = key[:2]
        if key in self._steps or key in self._forgotten:
            return [Acknowledge(key)]
        if run in self._ended_runs:
            return [] if self._alive(run) else [ReportGone(run)]
        step = self._add(key)
        if key in self._cancelled:
            return self.ended(step.key, cancelled_result())
        return [Begin(key)]

    def end_run(self, run: Run, *, why: str, now: bool, at: int) -> list[Instruction]:
        """End all steps of a run; ReportGone follows when none is left (at once when none is)."""
        _remember(self._ended_runs, run)
        alive = self._alive(run)
        if not alive:
            return [ReportGone(run)]
        self._owed[run] = None
        return [told for step in alive for told in self._end(step, why=why, now=now, at=at)]

    def end_all(self, *, why: str, at: int) -> list[Instruction]:
        """End everything at once: the node is none of the cluster's any more."""
        living = [step for step in self._steps.values() if step.phase is not Phase.ENDED]
        return [told for step in living for told in self._end(step, why=why, now=True, at=at)]

    def end_step(self, key: Key, *, why: str, now: bool, at: int) -> list[Instruction]:
        """End one step; one that is not here yet will not be begun."""
        step = self._steps.get(key)
        if step is not None:
            return self._end(step, why=why, now=now, at=at) if step.phase is not Phase.ENDED else []
        if key in self._forgotten:
            return []
        _remember(self._cancelled, key)
        self._add(key)
        return self.ended(key, cancelled_result())

    def suspend(self, serial: int, run: Run, *, go_on: bool, seconds: int) -> list[Instruction]:
        """Let all steps of a run stand still, or go on, once for each serial.

        Args:
            serial: of the order.
            run: whose steps.
            go_on: they go on.
            seconds: how long they have between SIGTSTP and SIGSTOP.
        """
        if serial in self._serials:
            return [ReportSignalled(serial)]
        _remember(self._serials, serial)
        order: Order = ("resume",) if go_on else ("suspend", seconds)
        told = [tell for step in self._alive(run) for tell in self._tell(step, order)]
        return [*told, ReportSignalled(serial)]

    def signal(self, serial: int, run: Run, signo: int, scope: str, step_id: int) -> list[Instruction]:
        """Send a signal, once for each serial.

        Args:
            serial: of the order.
            run: whose steps.
            signo: the signal.
            scope: steps (all but the batch script), batch (the script's own process), all, or step.
            step_id: for scope step.
        """
        if serial in self._serials:
            return [ReportSignalled(serial)]
        _remember(self._serials, serial)
        told: list[Instruction] = []
        for step in self._alive(run):
            is_batch = step.key[2] == BATCH_STEP
            if scope == "batch":
                if is_batch:
                    told += self._tell(step, ("signal", signo, "shell"))
            elif (scope == "steps" and not is_batch) or scope == "all" or (scope == "step" and step.key[2] == step_id):
                told += self._tell(step, ("signal", signo, "all"))
        return [*told, ReportSignalled(serial)]

    def forget(self, key: Key) -> list[Instruction]:
        """Drop a result that the controller has; a step that still lives is dropped when it ends."""
        step = self._steps.get(key)
        if step is None:
            return []
        if step.phase is not Phase.ENDED:
            step.unwanted = True
            return []
        return self._drop(step)

    # What happens here.

    def begun(self, key: Key) -> list[Instruction]:
        """Note that a step's stepd lives."""
        step = self._steps[key]
        if step.phase is not Phase.ORDERED:
            return []
        step.phase = Phase.RUNNING
        told: list[Instruction] = [Tell(key, order) for order in step.pending]
        step.pending.clear()
        return [Acknowledge(key), *told]

    def ended(self, key: Key, result: Result) -> list[Instruction]:
        """Note how a step ended; report it, and what follows from it."""
        step = self._steps[key]
        step.phase, step.result = Phase.ENDED, result
        step.pending.clear()
        run = key[:2]
        told: list[Instruction] = []
        if key[2] == BATCH_STEP:
            _remember(self._ended_runs, run)
            for other in self._alive(run):
                told += self._end(other, why="", now=True, at=0)
        elif not step.unwanted:
            told.append(ReportEnded(key, result, job_gone=False))
        if not self._alive(run):
            told += self._run_is_gone(run)
        if step.unwanted:
            told += self._drop(step)
        return told

    def recovered(self, key: Key, result: Result | None, *, began: bool) -> list[Instruction]:
        """Take over what a former agent left: nothing is reported before `connected`.

        Args:
            key: the step.
            result: how it ended; None: it lives, or was never begun.
            began: it has (or had) a stepd. Without one it is begun now.
        """
        step = self._add(key)
        if result is not None:
            step.phase, step.result = Phase.ENDED, result
            if key[2] == BATCH_STEP:
                _remember(self._ended_runs, key[:2])
            return []
        if began:
            step.phase = Phase.RUNNING
            return []
        return [Begin(key)]

    def all_recovered(self) -> list[Instruction]:
        """End what was left behind by batch scripts that ended while there was no agent."""
        told: list[Instruction] = []
        for step in tuple(self._steps.values()):
            if step.key[2] == BATCH_STEP and step.phase is Phase.ENDED:
                for other in self._alive(step.key[:2]):
                    told += self._end(other, why="", now=True, at=0)
        return told

    def connected(self) -> list[Instruction]:
        """Report anew, on a fresh stream, all results that are not known to be durable."""
        told: list[Instruction] = []
        batches: list[Instruction] = []
        for step in self._steps.values():
            if step.phase is not Phase.ENDED or step.unwanted or step.result is None:
                continue
            if step.key[2] != BATCH_STEP:
                told.append(ReportEnded(step.key, step.result, job_gone=False))
            elif not self._alive(step.key[:2]):
                batches.append(ReportEnded(step.key, step.result, job_gone=True))
        return told + batches

    # Private things.

    def _add(self, key: Key) -> Step:
        step = self._steps[key] = Step(key)
        self._runs.setdefault(key[:2], {})[key] = step
        return step

    def _drop(self, step: Step) -> list[Instruction]:
        key, run = step.key, step.key[:2]
        del self._steps[key]
        steps = self._runs[run]
        del steps[key]
        if not steps:
            del self._runs[run]
        self._cancelled.pop(key, None)
        _remember(self._forgotten, key)
        return [Remove(key)]

    def _alive(self, run: Run) -> list[Step]:
        return [step for step in self._runs.get(run, {}).values() if step.phase is not Phase.ENDED]

    def _run_is_gone(self, run: Run) -> list[Instruction]:
        """Nothing of the run lives: give the batch result that waited for this, and the answer to EndRun."""
        told: list[Instruction] = []
        batch = self._runs[run].get((*run, int(BATCH_STEP)))
        if batch is not None and batch.result is not None and not batch.unwanted:
            told.append(ReportEnded(batch.key, batch.result, job_gone=True))
        if run in self._owed:
            del self._owed[run]
            told.append(ReportGone(run))
        return told

    def _end(self, step: Step, *, why: str, now: bool, at: int) -> list[Instruction]:
        if step.killing_now or (step.killing and not now):
            return []
        step.killing, step.killing_now = True, now
        return self._tell(step, ("end", why, now, at))

    def _tell(self, step: Step, order: Order) -> list[Instruction]:
        if step.phase is Phase.ORDERED:
            step.pending.append(order)
            return []
        return [Tell(step.key, order)]


def failed_result(
    error: str, *, at: int, statuses: list[tuple[int, int]] | None = None, node_at_fault: bool = False
) -> Result:
    """Give the result of a step that has no stepd to say it.

    Args:
        error: one sentence.
        at: when this was noticed.
        statuses: (rank, wait status) of tasks that had begun; None: nothing had.
        node_at_fault: no step can be begun here, whoever's it is.
    """
    return {
        "tasks": statuses or [],
        "started_at": at,
        "ended_at": at,
        "user_ms": 0,
        "system_ms": 0,
        "max_rss_bytes": 0,
        "oom": False,
        "error": error,
        "node_at_fault": node_at_fault,
    }


def cancelled_result() -> Result:
    """Give the result of a step that was cancelled before it could begin."""
    return failed_result("the step was cancelled before it began", at=0)


def _remember(kept: OrderedDict[Any, None], value: Any) -> None:
    kept[value] = None
    if len(kept) > MOST_REMEMBERED:
        kept.popitem(last=False)

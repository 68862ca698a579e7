"""Dependencies against a plain oracle: it remembers all that ever happened, and looks at everything after each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ctld.core.commands import Cancel
from ctld.core.model import Job
from muster.ids import NO_TASK
from muster.states import JobState, Reason
from tests.builders import USER
from tests.deciding import Desk

Unit = tuple[int, int]
"""(job or array id, member or NO_TASK)."""
KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr")
LIVE = ("pending", "running")


@dataclass
class Plain:
    """What the oracle knows of one job or member."""

    state: str = "pending"
    """pending, running, ended (nodes not yet released) or done."""
    well: bool = False
    clauses: list[tuple[str, int, int]] = field(default_factory=list)
    any_suffices: bool = False
    kill: bool = False
    name: str = ""
    met: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    seen_failure: set[int] = field(default_factory=set)
    ran: bool = False
    submitted: int = 0
    """Number of the submission."""
    forgotten: int = 0
    """A member that was cancelled before it had a record: submissions behind this one know nothing of it."""

    @property
    def free(self) -> bool:
        if not self.clauses:
            return True
        return bool(self.met) if self.any_suffices else len(self.met) == len(self.clauses)

    @property
    def never(self) -> bool:
        if self.free:
            return False
        return len(self.failed) == len(self.clauses) if self.any_suffices else bool(self.failed)


class Oracle:
    """Judges every clause of every waiting unit from the full history."""

    def __init__(self) -> None:
        self.units: dict[Unit, Plain] = {}

    def of(self, job_id: int) -> list[Unit]:
        return [unit for unit in self.units if unit[0] == job_id]

    def settle(self) -> None:
        """Judge until nothing changes any more."""
        moved = True
        while moved:
            moved = False
            for unit, plain in self.units.items():
                if plain.state != "pending" or plain.free:
                    continue
                before = (len(plain.met), len(plain.failed))
                for number, clause in enumerate(plain.clauses):
                    if number in plain.met or number in plain.failed:
                        continue
                    fate = self.judge(unit, plain, number, clause)
                    if fate is not None:
                        (plain.met if fate else plain.failed).add(number)
                moved = moved or before != (len(plain.met), len(plain.failed))
                if plain.never and plain.kill:
                    plain.state, plain.well, moved = "done", False, True

    def judge(self, unit: Unit, plain: Plain, number: int, clause: tuple[str, int, int]) -> bool | None:
        kind, job_id, task = clause
        if kind == "singleton":
            return None if self.line_is_busy(unit, plain) else True
        targets = [one for one in self.of(job_id) if not 0 < self.units[one].forgotten < plain.submitted]
        is_array = self.of(job_id)[0][1] != NO_TASK
        if kind == "aftercorr" and is_array and unit[1] != NO_TASK:
            targets = [one for one in targets if one[1] == unit[1]]
            if not targets:
                return True
        elif task != NO_TASK:
            targets = [(job_id, task)]
        whole = is_array and task == NO_TASK and not (kind == "aftercorr" and unit[1] != NO_TASK)
        found = [self.units[one] for one in targets]
        ended = [one for one in found if one.state in ("ended", "done")]
        all_done = all(one.state == "done" for one in found)
        bad = any(not one.well for one in ended)
        if kind == "after":
            return True if all(one.state != "pending" for one in found) else None
        if kind == "afterany":
            return True if all_done else None
        if kind in ("afterok", "aftercorr"):
            return False if bad else True if all_done else None
        if bad and whole:
            plain.seen_failure.add(number)
        if number in plain.seen_failure or bad:
            return True if all_done else None
        return False if all_done or (ended and not whole) else None

    def line_is_busy(self, unit: Unit, plain: Plain) -> bool:
        return any(
            other.name == plain.name and (other.state == "running" or (other.state == "pending" and one[0] < unit[0]))
            for one, other in self.units.items()
            if one[0] != unit[0]
        )


def record(desk: Desk, unit: Unit) -> Job:
    return desk.job(unit[0]) if unit[1] == NO_TASK else desk.member(*unit)


def submit(desk: Desk, oracle: Oracle, data: st.DataObject) -> None:
    known = sorted({unit[0] for unit in oracle.units})
    size = data.draw(st.integers(0, 3), "members (0: a plain job)")
    any_suffices = data.draw(st.booleans(), "any")
    kill = data.draw(st.booleans(), "kill_invalid_depend")
    name = data.draw(st.sampled_from("ab"), "name")
    clauses: list[tuple[str, int, int]] = []
    texts: list[str] = []
    for _ in range(data.draw(st.integers(0, 3), "clauses") if known else 0):
        kind = data.draw(st.sampled_from((*KINDS, "singleton")), "kind")
        if kind == "singleton":
            clause, text = (kind, 0, NO_TASK), kind
        else:
            target = data.draw(st.sampled_from(known), "target")
            tasks = [unit[1] for unit in oracle.of(target) if not oracle.units[unit].forgotten]
            task = data.draw(st.sampled_from([NO_TASK, *tasks]), "task") if kind != "aftercorr" else NO_TASK
            clause = (kind, target, task)
            text = f"{kind}:{target}" + (f"_{task}" if task != NO_TASK else "")
        if clause not in clauses:
            clauses.append(clause)
            texts.append(text)
    fields: dict[str, object] = {"array": (0, size - 1)} if size else {}
    job_id = desk.submit(
        ("?" if any_suffices else ",").join(texts),
        name=name,
        kill_invalid_depend=kill,
        **fields,  # type: ignore[arg-type]
    )
    for task in range(size) if size else [NO_TASK]:
        oracle.units[job_id, task] = Plain(
            clauses=list(clauses),
            any_suffices=any_suffices and len(clauses) > 1,
            kill=kill,
            name=name,
            submitted=job_id,
        )


def step(desk: Desk, oracle: Oracle, data: st.DataObject) -> None:
    units = oracle.units
    startable = [unit for unit, plain in units.items() if plain.state == "pending" and plain.free]
    running = [unit for unit, plain in units.items() if plain.state == "running"]
    cleaning = [unit for unit, plain in units.items() if plain.state == "ended"]
    waiting = [unit for unit, plain in units.items() if plain.state == "pending"]
    done = [unit for unit, plain in units.items() if plain.state == "done" and plain.ran]
    acts = {"submit": [(0, 0)], "start": startable, "end": running, "clean": cleaning, "cancel": waiting, "again": done}
    act = data.draw(st.sampled_from([name for name, choices in acts.items() if choices]), "act")
    if act == "submit":
        submit(desk, oracle, data)
        return
    unit = data.draw(st.sampled_from(acts[act]), "unit")
    plain, job = units[unit], record(desk, unit)
    if act == "start":
        desk.start(job.id, unit[1] if job.array_pending else NO_TASK)
        plain.state, plain.ran = "running", True
    elif act == "end":
        plain.well = data.draw(st.booleans(), "well")
        completing = (0,) if data.draw(st.booleans(), "completing") else ()
        end = JobState.COMPLETED if plain.well else JobState.FAILED
        desk.end(job.id, end, status=0 if plain.well else 256, completing=completing)
        plain.state = "ended" if completing else "done"
    elif act == "clean":
        desk.clean(job.id)
        plain.state = "done"
    elif act == "cancel":
        desk.do(Cancel(job.id, USER) if unit[1] == NO_TASK else Cancel(job.array_job_id, USER, (unit[1], unit[1])))  # type: ignore[arg-type]
        plain.state, plain.well = "done", False
        if job.array_pending and job.array_pending != (unit[1], unit[1]):
            plain.forgotten = max(desk.state.jobs)
    else:
        desk.requeue_run(job.id)
        plain.state, plain.clauses = "pending", []


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_follower_of_events_agrees_with_a_look_at_everything(data: st.DataObject) -> None:
    desk, oracle = Desk(), Oracle()
    submit(desk, oracle, data)
    for _ in range(data.draw(st.integers(1, 14), "steps")):
        step(desk, oracle, data)
        oracle.settle()
        for unit, plain in oracle.units.items():
            if plain.state == "pending":
                job = record(desk, unit)
                assert job.state == JobState.PENDING, unit
                assert desk.can_start(job.id) == plain.free, unit
                assert (job.reason == Reason.DEPENDENCY_NEVER) == plain.never, unit

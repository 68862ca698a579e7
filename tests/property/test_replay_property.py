"""Random commands against a small cluster: replay gives the live state, and nothing contradicts itself on the way."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctld.core import invariants, ranges
from ctld.core.accounts import Association, Limits, Qos
from ctld.core.apply import apply
from ctld.core.apply.sections import SECTION_TYPES, dump, load
from ctld.core.cluster import NodeFacts, Settings
from ctld.core.commands import (
    ApplyAccounts,
    ApplyConfig,
    ApplyPlan,
    Cancel,
    CancelStep,
    Command,
    CreateReservation,
    CreateStep,
    DeleteReservation,
    FinishBatch,
    FinishStep,
    GrantAccrual,
    Hold,
    LoseBatch,
    LoseNodes,
    RegisterNode,
    Release,
    ReleaseNode,
    Requeue,
    ReservationAsk,
    ResetUsage,
    Resume,
    StepRequest,
    Submit,
    Suspend,
    Tick,
    UpdateJob,
    UpdateNode,
    UpdateReservation,
)
from ctld.core.decide import decide
from ctld.core.events import Event, decode, encode
from ctld.core.model import Job, NodeShare, StepResult, TaskResult
from ctld.core.plan import Plan, Preempt, Start, Victim
from ctld.core.record import requested_size
from ctld.core.reservations import Access
from ctld.core.state import State
from muster.errors import MusterError
from muster.ids import NO_TASK, JobId, StepId, UnixTime
from tests.builders import ADMIN, NOON, OTHER, USER, a_node_spec, a_partition, a_spec

CPUS, GPUS, MEMORY = 8, 4, 16_000
SETTINGS = Settings(
    require_registration=False,
    max_job_count=200,
    min_job_age_seconds=60,
    requeue_delay_seconds=20,
    return_to_service=1,
)


class World:
    """A live state, the events that made it, and a source of commands that mostly make sense."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state = State()
        self.journal: list[bytes] = []
        self.at = int(NOON)
        self.seen: Counter[str] = Counter()
        self.nodes = tuple(a_node_spec(f"n{n}", cpus=CPUS, gpus=GPUS, memory_mib=MEMORY) for n in range(1, 5))
        self.do(self.a_config())

    def do(self, command: Command) -> None:
        """Decide and apply, checking what each event touched."""
        try:
            events = decide(self.state, command, UnixTime(self.at))
        except MusterError:
            self.seen["refused"] += 1
            return
        for event in events:
            apply(self.state, event)
            self.journal.append(encode(event))
            self.seen[type(event).__name__] += 1
            invariants.check_touched(self.state, event)

    def step(self) -> None:
        """Do one random thing."""
        self.at += self.rng.choice([0, 0, 1, 5, 30])
        kinds = [
            (self.a_submission, 6),
            (self.a_plan, 8),
            (self.an_end, 5),
            (self.a_release, 5),
            (self.a_tick, 3),
            (self.a_step, 3),
            (self.a_step_end, 3),
            (self.a_step_cancel, 1),
            (self.a_cancel, 2),
            (self.a_hold, 1),
            (self.an_unhold, 1),
            (self.a_requeue, 2),
            (self.an_update, 2),
            (self.a_node_update, 1),
            (self.a_loss, 0.5),
            (self.a_registration, 1),
            (self.a_lost_batch, 0.3),
            (self.a_config, 0.3),
            (self.a_tree, 0.3),
            (ResetUsage, 0.1),
            (self.some_slots, 0.5),
            (self.a_reservation, 1),
            (self.a_reservation_update, 0.5),
            (self.a_reservation_delete, 0.3),
            (self.a_preemption, 1.5),
            (self.a_suspension, 0.7),
            (self.a_resumption, 0.7),
        ]
        make = self.rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        command = make()
        if command is not None:
            self.do(command)

    # What is asked.

    def a_config(self) -> Command:
        rng = self.rng
        count = rng.choice([3, 4, 4, 4]) if self.state.nodes else 4
        nodes = self.nodes[-count:] if rng.random() < 0.5 else self.nodes[:count]
        partitions = (
            a_partition(nodes=count),
            a_partition("small", nodes=2, max_minutes=2, exclusive=rng.choice(["NO", "NO", "USER"])),
        )
        return ApplyConfig(settings=SETTINGS, nodes=nodes, partitions=partitions)

    def a_tree(self) -> Command:
        rng = self.rng
        accounts = rng.sample(["red", "green", "blue"], rng.choice([1, 2, 3]))
        tree = [Association(1, "root")]
        for name in accounts:
            parent = rng.choice([one.id for one in tree if not one.user])
            tree.append(Association(len(tree) + 1, name, parent_id=parent, shares=rng.choice([1, 5])))
            user = Association(len(tree) + 1, name, parent_id=len(tree), user="ada", limits=Limits(max_jobs=50))
            tree.append(user)
        qos = (Qos(1, "normal"), Qos(2, "high", priority=9, usage_factor=rng.choice([0.0, 1.0, 2.5])))
        return ApplyAccounts(tuple(tree), qos[: rng.choice([1, 2])])

    def some_slots(self) -> Command:
        jobs = list(self.state.jobs)
        return GrantAccrual(tuple(jobs[: self.rng.randrange(3)]), tuple(jobs[len(jobs) - self.rng.randrange(3) :]))

    def a_submission(self) -> Command:
        rng = self.rng
        by = rng.choice([USER, OTHER])
        fields: dict[str, object] = {
            "uid": by.uid,
            "name": rng.choice(["a", "b"]),
            "account": rng.choice(["", "red", "blue"]),
        }
        shape: dict[str, object] = rng.choice(
            [
                {},
                {"ntasks": 3},
                {"nodes_min": 2, "nodes_max": 2},
                {"ntasks": 2, "cpus_per_task": 3},
                {"exclusive": "user"},
                {"exclusive": "node"},
                {"memory_per_node_mib": 6000},
            ]
        )
        if rng.random() < 0.3:
            fields["array"] = rng.choice([(0, 3), (1, 2, 5, 6), (4, 4)])
        elif rng.random() < 0.2:
            fields["batch"] = False
        if rng.random() < 0.2:
            fields["begin_at"] = UnixTime(self.at + 20)
        if self.state.reservations and rng.random() < 0.5:
            shape["reservations"] = (rng.choice(list(self.state.reservations)),)
        if rng.random() < 0.2:
            fields["kill_invalid_depend"] = True
        dependency = ""
        if self.state.jobs and rng.random() < 0.4:
            kind = rng.choice(["after", "afterany", "afterok", "afternotok", "aftercorr", "singleton", "minutes"])
            target = rng.choice(list(self.state.jobs))
            dependency = kind if kind == "singleton" else f"{kind}:{target}"
            if kind == "minutes":
                dependency = f"after:{target}+1"
        return Submit(
            spec=a_spec(
                partitions=rng.choice([("main",), ("main",), ("small",), ("main", "small")]),
                time_limit_minutes=rng.choice([0, 1, 2]),
                requeue=rng.random() < 0.7,
                **shape,  # type: ignore[arg-type]
                **fields,  # type: ignore[arg-type]
            ),
            by=by,
            dependency=dependency,
            hold=rng.random() < 0.1,
            array_limit=rng.choice([0, 0, 2]),
        )

    def a_reservation(self) -> Command:
        rng = self.rng
        flags = rng.choice(
            [(), ("MAINT",), ("OVERLAP", "IGNORE_JOBS"), ("FLEX",), ("PURGE_COMP",), ("HOURLY", "NO_HOLD_JOBS_AFTER")]
        )
        size: dict[str, Any] = rng.choice(
            [{"node_count": 1}, {"nodes": "n1"}, {"node_count": 1, "core_counts": (2,)}, {"nodes": "ALL"}]
        )
        ask = ReservationAsk(
            name=rng.choice(["", "r1", "r2"]),
            start_at=UnixTime(self.at + rng.choice([0, 0, 20, 60])),
            duration_seconds=rng.choice([30, 120, 600]),
            users=Access(("ada", "bob"), ids=(USER.uid, OTHER.uid)),
            purge_seconds=20,
            flags=(*flags, *rng.choice([(), ("MAGNETIC",)])),
            **size,
        )
        return CreateReservation(ask, ADMIN)

    def a_reservation_update(self) -> Command | None:
        if not self.state.reservations:
            return None
        rng = self.rng
        name = rng.choice(list(self.state.reservations))
        change: dict[str, Any] = rng.choice(
            [{"duration_seconds": 60}, {"skip": True}, {"node_count": 2}, {"flags": ("OVERLAP",)}]
        )
        return UpdateReservation(ReservationAsk(name=name, **change), ADMIN)

    def a_reservation_delete(self) -> Command | None:
        if not self.state.reservations:
            return None
        return DeleteReservation(self.rng.choice(list(self.state.reservations)), ADMIN)

    def a_plan(self) -> Command | None:
        """Place the queued jobs plainly on a copy of what is free; some starts are wrong on purpose."""
        state = self.state
        free = state.free
        cores, gpus = list(free.cores), list(free.gpus)
        memory = free.memory.tolist()
        starts: list[Start] = []
        for job_id in list(state.queue):
            job = state.jobs[job_id]
            for task in list(ranges.numbers(job.array_pending))[:3] or [NO_TASK]:
                start = self._placed(job, task, cores, gpus, memory)
                if start is not None:
                    starts.append(start)
        if starts and self.rng.random() < 0.3:
            starts.append(self.rng.choice(starts))
        if starts and self.rng.random() < 0.2:
            starts[0] = structs_replace(starts[0], shares=starts[-1].shares)
        return ApplyPlan(Plan(made_at=UnixTime(self.at), starts=tuple(starts)))

    def a_preemption(self) -> Command | None:
        """Take the place of a running job for one that waits, now and then wrongly."""
        state, rng = self.state, self.rng
        waiting, running = self.some(state.queue), self.some(state.running)
        if waiting is None or running is None or running.alloc is None:
            return None
        cores, gpus, memory = list(state.free.cores), list(state.free.gpus), state.free.memory.tolist()
        for share in running.alloc.shares:
            cores[share.node] |= ranges.to_bitmap(share.cores)
            gpus[share.node] |= ranges.to_bitmap(share.gpus)
            memory[share.node] += share.memory_mib
        task = next(ranges.numbers(waiting.array_pending), NO_TASK)
        start = self._placed(waiting, task, cores, gpus, memory)
        if start is None:
            return None
        victim = Victim(
            running.id, running.restarts, rng.choice(["CANCEL", "REQUEUE", "SUSPEND"]), rng.choice([0, 0, 20])
        )
        one = Preempt(start.job_id, start.partition, start.shares, (victim,), task)
        return ApplyPlan(Plan(made_at=UnixTime(self.at), preemptions=(one,)))

    def a_suspension(self) -> Command | None:
        named = self._named()
        return Suspend(named[0], ADMIN, named[1]) if named else None

    def a_resumption(self) -> Command | None:
        job = self.some(self.state.suspended)
        return Resume(job.id, ADMIN) if job else None

    def _placed(self, job: Job, task: int, cores: list[int], gpus: list[int], memory: list[int]) -> Start | None:
        state, request = self.state, job.spec.request
        partition = state.partitions[self.rng.choice(job.spec.partitions)]
        tasks, count = requested_size(request)
        shares: list[NodeShare] = []
        left = tasks
        for node in partition.nodes:
            if len(shares) == count or node >= len(state.nodes):
                break
            mine = -(-left // (count - len(shares)))
            wanted = CPUS if request.exclusive == "node" else max(mine * request.cpus_per_task, 1)
            mem = max(0, request.memory_per_node_mib)
            taken = ranges.lowest_bits(cores[node], wanted)
            if taken.bit_count() < wanted or memory[node] < mem:
                continue
            gpu = ranges.lowest_bits(gpus[node], self.rng.choice([0, 1]))
            cores[node] &= ~taken
            gpus[node] &= ~gpu
            memory[node] -= mem
            left -= mine
            shares.append(
                NodeShare(
                    node=node,
                    cpus=wanted,
                    cores=ranges.from_bitmap(taken),
                    memory_mib=mem,
                    gpus=ranges.from_bitmap(gpu),
                    tasks=mine,
                )
            )
        if len(shares) < count:
            return None
        asked = request.reservations
        return Start(JobId(job.id), partition.name, tuple(shares), task, reservation=asked[0] if asked else "")

    def some(self, ids: object) -> Job | None:
        known = [self.state.jobs[job_id] for job_id in ids]  # type: ignore[attr-defined]
        return self.rng.choice(known) if known else None

    def a_result(self, node: int, ranks: list[int]) -> StepResult:
        rng = self.rng
        status = rng.choice([0, 0, 0, 256, 9, 15])
        error = "no such script" if rng.random() < 0.1 else ""
        return StepResult(
            node=node,
            tasks=() if error else tuple(TaskResult(rank, status) for rank in ranks),
            started_at=UnixTime(self.at - 1),
            ended_at=UnixTime(self.at),
            oom=rng.random() < 0.05,
            error=error,
        )

    def an_end(self) -> Command | None:
        job = self.some(self.state.running)
        if job is None or job.alloc is None or not job.spec.batch:
            return None
        run = job.restarts - (self.rng.random() < 0.1)
        return FinishBatch(job.id, run, self.a_result(job.alloc.shares[0].node, [0]))

    def a_release(self) -> Command | None:
        job = self.some(self.state.completing)
        if job is None:
            return None
        run = job.restarts - (job.state == 0)
        return ReleaseNode(job.id, run, self.rng.choice(job.completing))

    def a_tick(self) -> Command:
        self.at += self.rng.choice([1, 10, 60])
        return Tick()

    def a_step(self) -> Command | None:
        job = self.some(self.state.running)
        if job is None:
            return None
        rng = self.rng
        return CreateStep(
            job.id,
            ADMIN,
            StepRequest(
                name="s",
                argv=("true",),
                ntasks=rng.choice([0, 1, 2]),
                cpus_per_task=rng.choice([0, 1]),
                overlap=rng.random() < 0.3,
                gpus_per_node=rng.choice([-1, 0]),
                limit_minutes=rng.choice([0, 1]),
                kill_on_bad_exit=rng.random() < 0.3,
            ),
        )

    def a_step_end(self) -> Command | None:
        if not self.state.steps:
            return None
        job = self.state.jobs[self.rng.choice(list(self.state.steps))]
        step = self.rng.choice(list(self.state.steps[job.id].values()))
        place = self.rng.randrange(len(step.shares))
        result = self.a_result(step.shares[place].node, list(ranges.numbers(step.ranks[place])))
        return FinishStep(job.id, job.restarts, step.step_id, result)

    def a_step_cancel(self) -> Command | None:
        job = self.some(self.state.running)
        return CancelStep(job.id, StepId(0), USER) if job else None

    def _named(self) -> tuple[JobId, tuple[int, ...] | None] | None:
        job = self.some(self.state.jobs)
        if job is None:
            return None
        if job.array_job_id and self.rng.random() < 0.6:
            task = self.rng.randrange(6)
            return JobId(job.array_job_id), (task, task)
        return job.id, None

    def a_cancel(self) -> Command | None:
        named = self._named()
        return Cancel(named[0], ADMIN, named[1]) if named else None

    def a_hold(self) -> Command | None:
        named = self._named()
        return Hold(named[0], self.rng.choice([USER, ADMIN]), named[1]) if named else None

    def an_unhold(self) -> Command | None:
        named = self._named()
        return Release(named[0], ADMIN, named[1]) if named else None

    def a_requeue(self) -> Command | None:
        named = self._named()
        return Requeue(named[0], ADMIN, named[1], hold=self.rng.random() < 0.3) if named else None

    def an_update(self) -> Command | None:
        named = self._named()
        if named is None:
            return None
        rng = self.rng
        change: dict[str, object] = rng.choice(
            [
                {"time_limit_minutes": 3},
                {"nice": 5},
                {"name": "c"},
                {"begin_at": UnixTime(self.at + 15)},
                {"array_limit": 1},
                {"partition": "small"},
                {"dependency": ""},
                {"dependency": "singleton"},
                {"priority": 7},
            ]
        )
        return UpdateJob(named[0], ADMIN, named[1], **change)  # type: ignore[arg-type]

    def a_node_update(self) -> Command:
        word = self.rng.choice(["DRAIN", "DOWN", "RESUME", "RESUME", "RESUME", "UNDRAIN"])
        return UpdateNode((self.rng.randrange(len(self.state.nodes)),), ADMIN, state=word, reason="test")

    def a_loss(self) -> Command:
        return LoseNodes((self.rng.randrange(len(self.state.nodes)),))

    def a_lost_batch(self) -> Command | None:
        job = self.some(self.state.running)
        return LoseBatch(job.id, job.restarts, "not known there") if job else None

    def a_registration(self) -> Command:
        rng = self.rng
        node = rng.choice(self.state.nodes)
        runs = {(job_id, self.state.jobs[job_id].restarts) for job_id in self.state.node_jobs[node.index]}
        facts = NodeFacts(
            boot_at=UnixTime(rng.choice([100, self.at])),
            cpus=CPUS,
            sockets=1,
            cores_per_socket=CPUS,
            threads_per_core=1,
            memory_mib=rng.choice([MEMORY, MEMORY, MEMORY - 1]),
            gpus=("",) * GPUS,
        )
        return RegisterNode(node.spec.name, facts, frozenset(run for run in runs if rng.random() < 0.8))


def structs_replace(start: Start, **fields: object) -> Start:
    """A changed copy of a start."""
    given = {name: getattr(start, name) for name in Start.__slots__} | fields
    return Start(**given)


def assert_same(one: State, other: State) -> None:
    """Compare records and derived parts by name, so that a difference is easy to find."""
    for parts in (invariants.records, invariants.derived):
        left, right = parts(one), parts(other)
        for name in left:
            assert left[name] == right[name], name


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_replay_gives_the_live_state_and_nothing_contradicts_itself(seed: int) -> None:
    world = World(seed)
    for turn in range(150):
        world.step()
        if turn % 25 == 0:
            invariants.check(world.state)
    invariants.check(world.state)
    replayed = State()
    for payload in world.journal:
        apply(replayed, decode(payload))
    assert_same(replayed, world.state)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_a_checkpoint_gives_the_same_state_back(seed: int) -> None:
    world = World(seed)
    for _ in range(100):
        world.step()
    written = [(name, [msgspec.msgpack.encode(record) for record in records]) for name, records in dump(world.state)]
    read = [
        (name, [msgspec.msgpack.decode(blob, type=SECTION_TYPES[name]) for blob in blobs]) for name, blobs in written
    ]
    loaded = load(read)
    invariants.check(loaded)
    assert_same(loaded, world.state)


def test_deciding_changes_nothing() -> None:
    world = World(11)
    for _ in range(200):
        world.step()
        before = (invariants.records(world.state), invariants.derived(world.state))
        kept = msgspec.msgpack.encode([list(world.state.jobs.values()), world.state.nodes])
        command = world.a_plan()
        assert command is not None
        decide(world.state, command, UnixTime(world.at))
        assert kept == msgspec.msgpack.encode([list(world.state.jobs.values()), world.state.nodes])
        assert before == (invariants.records(world.state), invariants.derived(world.state))


def test_the_random_world_reaches_every_kind_of_event() -> None:
    seen: Counter[str] = Counter()
    for seed in range(20):
        world = World(seed)
        for _ in range(250):
            world.step()
        seen += world.seen
    wanted = {kind.__name__ for kind in Event.__args__} - {"JobStopped", "JobWarned"}
    missing = wanted - seen.keys()
    assert not missing, missing


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_everything_comes_to_an_end(seed: int) -> None:
    world = World(seed)
    for _ in range(100):
        world.step()
    for job_id in list(world.state.jobs):
        world.do(Cancel(JobId(job_id), ADMIN))
    for _ in range(200):
        for make in (world.an_end, world.a_step_end, world.a_release, world.a_tick):
            command = make()
            if command is not None:
                world.do(command)
    assert not world.state.jobs
    assert not world.state.steps
    assert world.state.members == 0

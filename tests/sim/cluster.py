"""A whole cluster in one process and in virtual time, from a seed."""

from __future__ import annotations

import logging
import random
from collections import deque
from dataclasses import dataclass

from ctld.core import invariants
from ctld.core.apply import apply
from ctld.core.cluster import Settings
from ctld.core.commands import ApplyConfig, Cancel, Release, UpdateNode
from ctld.core.events import decode
from ctld.core.model import Job
from ctld.core.state import State
from muster.ids import BATCH_STEP, JobId
from muster.states import JobState, Reason
from muster.v1 import node_pb2
from noded.core.steps import Key
from tests.builders import ADMIN, NOON, a_node_spec, a_partition
from tests.sim import truth
from tests.sim.controller import Controller
from tests.sim.disk import Disk
from tests.sim.faults import Faults
from tests.sim.network import Stream
from tests.sim.node import Node
from tests.sim.plans import JobPlan
from tests.sim.timeline import SimClock, Timeline
from tests.sim.users import Users

MOST_SECONDS = 40_000.0
"""Virtual time after which a simulation that has not come to its end is stuck."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    nodes: int = 20
    jobs: int = 150
    span: float = 300.0
    """Seconds over which jobs come, people act and things break."""
    longest: float = 75.0
    """Seconds of the longest jobs."""
    fault_every: float = 6.0
    act_every: float = 2.5
    pass_gap: float = 0.05
    """Longest pause between a change and the scheduling pass for it."""


class Cluster:
    """Nodes, users, faults, and the controller of the moment."""

    def __init__(self, seed: int, size: Size = Size()) -> None:
        self.seed = seed
        self.size = size
        rng = random.Random(seed)
        self.timeline = Timeline()
        self.clock = SimClock(self.timeline)
        self.disk = Disk()
        self.truth = truth.Truth()
        self.events = 0
        self.heard: deque[tuple[int, node_pb2.Report]] = deque(maxlen=200)
        """What agents said lately."""
        self._doubling = rng.choice([0.0, 0.02, 0.1])
        self._network = random.Random(f"{seed}/network")
        self._controllers = random.Random(f"{seed}/controller")
        self._config = _config(size.nodes, rng)
        self.nodes = [
            Node(self, index, spec, random.Random(f"{seed}/{spec.name}"))
            for index, spec in enumerate(self._config.nodes)
        ]
        self.users = Users(self, random.Random(f"{seed}/users"), longest=size.longest)
        self.faults = Faults(self, random.Random(f"{seed}/faults"), every=size.fault_every)
        self.controller: Controller | None = None
        self.crashes = 0

    # What nodes and users ask of the world.

    def wall(self) -> float:
        """Give what the nodes' clocks show: the true time."""
        return NOON + self.timeline.seconds

    def dial(self, node: Node) -> Stream | None:
        """Connect a node with the controller; None: nobody answers."""
        if self.controller is None or not node.reachable:
            return None
        stream = Stream(self.timeline, self._network, self._doubling, self.faults.sending)
        self.controller.accept(stream)
        return stream

    def plan_of(self, key: Key, launch: node_pb2.Launch, script: bytes) -> _Behaviour | JobPlan | None:
        """Say what a step will do; None: it cannot be begun."""
        if key[2] != BATCH_STEP:
            seconds, status, on_term = launch.step.name.split()
            return _Behaviour(float(seconds), int(status), on_term)
        plan = self.users.plans[int(script.split()[-1])]
        return None if key[1] < plan.fails_to_launch else plan

    def script_lives(self, run: tuple[int, int]) -> bool:
        """Tell whether a run's batch script lives somewhere."""
        key = (*run, int(BATCH_STEP))
        return any(key in node.processes for node in self.nodes)

    # The controller's lives.

    def start_controller(self) -> None:
        """Start the controller on what its disk holds."""
        if self.controller is None:
            self.controller = Controller(self, self._config, self._controllers)

    def crash_controller(self, back_in: float) -> None:
        """Kill the controller, and start it again after a while."""
        controller = self.controller
        if controller is None:
            return
        self.crashes += 1
        live, unwritten = controller.state, controller.journal.unwritten()
        durable = len(self.disk.events)
        self.controller = None
        controller.crash()
        # Replay must give the live state: of all that was queued, whatever of it the disk kept.
        kept = len(self.disk.events) - durable
        restored = self.disk.restored()
        invariants.check(restored)
        for payload in unwritten[kept:]:
            apply(restored, decode(payload))
        _assert_same(restored, live)
        self.timeline.after(back_in, self.start_controller)

    def checkpoint(self) -> None:
        """Keep a checkpoint of all that is durable, as the controller does now and then."""
        controller = self.controller
        if controller is not None and controller.journal.last_durable == controller.journal.last_queued:
            self.disk.write_checkpoint(controller.state, controller.journal.last_queued)

    # The whole story.

    def live(self) -> None:
        """Run everything to its end, and check it.

        Raises:
            AssertionError: something is wrong; the message begins with the seed.
        """
        logging.disable(logging.CRITICAL)
        try:
            self._live()
        except Exception as error:
            error.add_note(f"MUSTER_SIM_SEED={self.seed} at {self.timeline.seconds:.3f} s, event {self.events}")
            raise
        finally:
            logging.disable(logging.NOTSET)

    def _live(self) -> None:
        size, after = self.size, self.timeline.after
        rng = random.Random(f"{self.seed}/arrivals")
        self.start_controller()
        for node in self.nodes:
            after(rng.uniform(0, 2), node.start_agent)
        for _ in range(size.jobs):
            after(rng.uniform(0, size.span), self.users.submit)
        for _ in range(int(size.span / size.act_every)):
            after(rng.uniform(0, size.span), self.users.act)
        self.faults.begin()
        self.timeline.run(size.span, lambda: False)
        self._calm_down()
        assert self.timeline.run(MOST_SECONDS, self._is_quiet), self._stuck()
        self._cancel_the_hopeless()
        assert self.timeline.run(MOST_SECONDS, self._is_empty), self._stuck()
        self.timeline.run(self.timeline.seconds + 30, lambda: False)
        self._check_the_end()

    def _calm_down(self) -> None:
        """No more faults: everything comes back, and administrators put right what is not."""
        self.faults.stopped = True
        for node in self.nodes:
            node.reachable = True
            node.boot()
            node.start_agent()
        self._put_right()

    def _put_right(self) -> None:
        controller = self.controller
        if controller is not None:
            for node in controller.state.nodes:
                if node.down or node.drain:
                    self.users.tell(UpdateNode((node.index,), ADMIN, state="RESUME"))
            for job in tuple(controller.state.jobs.values()):
                if job.hold and job.state == JobState.PENDING:
                    self.users.tell(Release(job.id, ADMIN))
        self.timeline.after(20.0, self._put_right)

    def _is_quiet(self) -> bool:
        """Nothing runs, and who waits does so for a good reason."""
        controller = self.controller
        if controller is None or len(controller.links.up) < len(self.nodes):
            return False
        state = controller.state
        if state.running or state.completing:
            return False
        return all(job.state != JobState.PENDING or self._waits_rightly(controller, job) for job in state.jobs.values())

    def _waits_rightly(self, controller: Controller, job: Job) -> bool:
        if job.clauses:
            return any(clause.failed for clause in job.clauses) or any(
                self._waits_rightly(controller, other) for other in _holding_up(controller.state, job)
            )
        members = controller.state.queue.class_of(job.id)
        wait = controller.scheduler.overlay.waits.get(job.id)
        if wait is None and members is not None:
            wait = controller.scheduler.overlay.class_waits.get(members.id)
        return wait is not None and wait.reason in (
            Reason.PARTITION_TIME_LIMIT,
            Reason.PARTITION_NODE_LIMIT,
            Reason.PARTITION_CONFIG,
            Reason.BAD_CONSTRAINTS,
        )

    def _cancel_the_hopeless(self) -> None:
        controller = self.controller
        assert controller is not None
        for job in tuple(controller.state.jobs.values()):
            if job.state == JobState.PENDING:
                self.users.tell(Cancel(JobId(job.id), ADMIN))

    def _is_empty(self) -> bool:
        controller = self.controller
        if controller is None:
            return False
        state = controller.state
        return not state.running and not state.completing and all(job.state > 2 for job in state.jobs.values())

    def _stuck(self) -> str:
        controller = self.controller
        if controller is None:
            return "there is no controller"
        state = controller.state
        left = [
            f"{job.id}.{job.restarts} {JobState(job.state).name} kill={job.kill} completing={job.completing} "
            f"hold={job.hold} clauses={job.clauses} wait={controller.scheduler.overlay.waits.get(job.id)} "
            f"nodes={[share.node for share in job.alloc.shares] if job.alloc else []}"
            for job in state.jobs.values()
            if job.state <= JobState.SUSPENDED or job.completing
        ]
        return f"stuck, {len(controller.links.up)} nodes connected:\n" + "\n".join(left)

    def _check_the_end(self) -> None:
        controller = self.controller
        assert controller is not None
        invariants.check(controller.state)
        journal = controller.journal
        assert self.timeline.run(MOST_SECONDS, lambda: journal.last_durable == journal.last_queued)
        _assert_same(self.disk.restored(use_checkpoint=False), controller.state)
        _assert_same(self.disk.restored(), controller.state)
        for node in self.nodes:
            assert not node.processes, f"{node.spec.name} still runs {list(node.processes)}"
            assert not node.folders, f"{node.spec.name} still keeps {list(node.folders)}"
        truth.compare(self.truth, truth.read(self.disk.events))


@dataclass(frozen=True, slots=True)
class _Behaviour:
    """What the process of a numbered step does."""

    seconds: float
    status: int
    on_term: str
    waits: bool = False


def _assert_same(one: object, other: object) -> None:
    for parts in (invariants.records, invariants.derived):
        left, right = parts(one), parts(other)  # type: ignore[arg-type]
        for name in left:
            assert left[name] == right[name], (
                f"replay gives other {name}: {left[name]!r:.2000} != {right[name]!r:.2000}"
            )


def _holding_up(state: State, job: Job) -> list[Job]:
    """Give the pending jobs that a job waits for."""
    wanted = {clause.job_id for clause in job.clauses}
    alone = (job.spec.name, job.spec.uid) if 0 in wanted else None
    return [
        other
        for other in state.jobs.values()
        if other.state == JobState.PENDING
        and other.id != job.id
        and (
            other.id in wanted
            or (other.array_job_id and other.array_job_id in wanted)
            or ((other.spec.name, other.spec.uid) == alone and other.id < job.id)
        )
    ]


def _config(nodes: int, rng: random.Random) -> ApplyConfig:
    settings = Settings(
        max_job_count=100_000,
        min_job_age_seconds=rng.choice([60, 300]),
        kill_wait_seconds=rng.choice([3, 10]),
        node_timeout_seconds=60,
        batch_start_timeout_seconds=10,
        requeue_delay_seconds=rng.choice([2, 20]),
        return_to_service=rng.choice([0, 1, 2]),
    )
    specs = tuple(
        a_node_spec(f"n{number:03}", cpus=8, gpus=4 if number % 2 else 0, memory_mib=16_000)
        for number in range(1, nodes + 1)
    )
    every = range(nodes)
    partitions = (
        a_partition(nodes=nodes),
        a_partition("short", nodes=max(2, nodes // 4), max_minutes=2, priority_tier=2),
        a_partition("gpu", nodes=tuple(every[::2]), exclusive=rng.choice(["NO", "NO", "USER"])),
    )
    return ApplyConfig(settings=settings, nodes=specs, partitions=partitions)

"""The people of the simulated cluster: they submit, cancel, hold, requeue, change, and wait for what they run."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ctld.core.commands import (
    Cancel,
    CancelStep,
    Command,
    CreateStep,
    Hold,
    Release,
    Requeue,
    StepRequest,
    Submit,
    UpdateJob,
    UpdateNode,
)
from ctld.core.events import JobSubmitted, StepCreated
from ctld.core.model import Caller, GpuRequest, Ranges, SignalSpec
from muster.errors import MusterError, Refused
from muster.ids import JobId, StepId, UnixTime
from muster.states import JobState
from noded.core.steps import Key
from tests.builders import ADMIN, a_spec
from tests.sim.controller import Controller
from tests.sim.plans import JobPlan, StepPlan, draw_job

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

USERS = tuple(Caller(uid=1000 + number, gid=1000) for number in range(4))
_BUSY = 2016
_SRUN_PATIENCE = 30
ENVIRONMENTS = tuple(b"PATH=/bin\0N=%d\0" % number for number in range(5))


class Users:
    """All of them."""

    def __init__(self, cluster: Cluster, rng: random.Random, *, longest: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._longest = longest
        self.plans: dict[int, JobPlan] = {}
        self.step_plans: dict[Key, StepPlan] = {}
        self._open: dict[tuple[int, int], set[int]] = {}
        """Run -> places of its sruns that have not ended."""
        self.known: list[int] = []
        """Ids that were answered."""
        self.refused = 0
        self.submissions = 0

    # Submitting.

    def submit(self) -> None:
        """Submit something, as soon as there is a controller; unanswered if that dies meanwhile."""
        controller = self._cluster.controller
        if controller is not None:
            self.submissions += 1
            controller.tasks.start(self._submit(controller))
        else:
            self._cluster.timeline.after(1.0, self.submit)

    async def _submit(self, controller: Controller) -> None:
        rng = self._rng
        by = rng.choice(USERS)
        batch = rng.random() < 0.88
        plan = draw_job(rng, len(self.plans) + 1, longest=self._longest, batch=batch)
        self.plans[plan.number] = plan
        fields = self._fields(by, plan, batch=batch)
        blobs = []
        for name, data in (("script", plan.script if batch else b""), ("environment", rng.choice(ENVIRONMENTS))):
            if data:
                digest, record = controller.journal.put_blob(data)
                fields[name] = digest
                if record is not None:
                    blobs.append(record)
        command = Submit(
            spec=a_spec(**fields),  # type: ignore[arg-type]
            by=by,
            dependency=self._dependency() if rng.random() < 0.25 else "",
            nice=rng.choice([0, 0, 0, 100]),
            hold=rng.random() < 0.05,
            array_limit=rng.choice([0, 0, 1, 2]),
        )
        try:
            events = await controller.store.commit(command, at=controller.clock.now(), blobs=blobs)
        except MusterError:
            self.refused += 1
            return
        submitted = events[0]
        assert isinstance(submitted, JobSubmitted)
        job = submitted.job
        self._cluster.truth.acknowledged[job.id] = job.spec.array.size if job.spec.array is not None else 1
        self.known.append(job.id)
        if rng.random() < 0.25:
            # In the middle of its start, its launch, its first seconds.
            delay = rng.choice([0.0, rng.uniform(0, 0.1), rng.uniform(0, 1), rng.uniform(0, 20)])
            self._cluster.timeline.after(delay, self.act, job.id)
        if not batch and plan.steps:
            await self._srun_direct(controller, job.id, plan)

    def _fields(self, by: Caller, plan: JobPlan, *, batch: bool) -> dict[str, object]:
        rng = self._rng
        nodes = len(self._cluster.nodes)
        shapes: list[dict[str, object]] = [
            {},
            {"ntasks": rng.randint(1, 6)},
            {"cpus_per_task": rng.randint(1, 4)},
            {"memory_per_node_mib": rng.choice([1000, 8000])},
            {"nodes_min": rng.randint(2, min(6, nodes)), "ntasks_per_node": rng.choice([0, 2])},
            {"gpus_per_node": (GpuRequest("", rng.randint(1, 4)),)},
            {"gpus": (GpuRequest("", rng.randint(1, 6)),)},
            {"exclusive": rng.choice(["node", "user"])},
            {"nodes_min": 2, "exclusive": "node"},
        ]
        fields: dict[str, object] = {
            "uid": by.uid,
            "gid": by.gid,
            "name": rng.choice(["train", "sweep", "eval"]),
            "batch": batch,
            "partitions": rng.choice([("main",), ("main",), ("main",), ("short",), ("short", "main"), ("gpu",)]),
            "time_limit_minutes": rng.choice([0, 1, 1, 2, 5]),
            "requeue": rng.random() < 0.8,
            "kill_invalid_depend": rng.random() < 0.4,
            **rng.choices(shapes, [4, 3, 3, 3, 2, 2, 1, 1, 0.5])[0],
        }
        if batch and rng.random() < 0.08:
            low = rng.randint(0, 3)
            fields["array"] = (low, low + rng.randint(0, 5))
        if rng.random() < 0.07:
            fields["begin_at"] = UnixTime(int(self._cluster.clock.now()) + rng.randint(1, 90))
        if rng.random() < 0.1:
            fields["signal"] = SignalSpec(signo=10, seconds=30, shell_only=rng.random() < 0.5)
        return fields

    def _dependency(self) -> str:
        rng = self._rng
        if not self.known:
            return ""
        target = rng.choice(self.known[-30:])
        kinds = ["after", "afterany", "afterok", "afternotok", "aftercorr"]
        return rng.choice([*(f"{kind}:{target}" for kind in kinds), f"after:{target}+1", "singleton"])

    # sruns.

    def script_begun(self, key: Key, plan: object) -> None:
        """A batch script began: its sruns follow, from wherever a controller answers."""
        assert isinstance(plan, JobPlan)
        if not plan.steps:
            return
        run = (key[0], key[1])
        self._open[run] = set(range(len(plan.steps)))
        for place, step in enumerate(plan.steps):
            self._cluster.timeline.after(step.begins, self._srun, run, place, step, 0)

    def has_open_steps(self, key: Key) -> bool:
        """Tell whether a run's sruns have not all ended."""
        return bool(self._open.get((key[0], key[1])))

    def _srun(self, run: tuple[int, int], place: int, step: StepPlan, tries: int) -> None:
        controller = self._cluster.controller
        if tries > _SRUN_PATIENCE or not self._cluster.script_lives(run):
            self._open[run].discard(place)
        elif controller is None:
            self._cluster.timeline.after(2.0, self._srun, run, place, step, tries + 1)
        else:
            controller.tasks.start(self._create(controller, run, place, step, tries))

    async def _create(
        self, controller: Controller, run: tuple[int, int], place: int, step: StepPlan, tries: int
    ) -> None:
        again = self._cluster.timeline.after(2.5, self._srun, run, place, step, tries + 1)
        try:
            events = await controller.store.commit(
                CreateStep(JobId(run[0]), ADMIN, _request(step)), at=controller.clock.now()
            )
        except MusterError as refusal:
            if not (isinstance(refusal, Refused) and refusal.slurm_code == _BUSY):
                again.cancel()
                self._open[run].discard(place)
            return
        again.cancel()
        made = events[0]
        assert isinstance(made, StepCreated)
        step_id = int(made.step.step_id)
        self._cluster.timeline.after(1.0, self._wait_for_step, run, place, step_id)

    def _wait_for_step(self, run: tuple[int, int], place: int, step_id: int) -> None:
        controller = self._cluster.controller
        if controller is not None and step_id not in controller.state.steps.get(run[0], {}):
            self._open[run].discard(place)
        elif self._cluster.script_lives(run):
            self._cluster.timeline.after(1.0, self._wait_for_step, run, place, step_id)

    async def _srun_direct(self, controller: Controller, job_id: JobId, plan: JobPlan) -> None:
        """srun outside of a job: waits for its allocation, then makes its one step."""
        while True:
            job = controller.state.jobs.get(job_id)
            if job is None or job.state > JobState.SUSPENDED:
                return
            if job.state == JobState.RUNNING:
                break
            await controller.pause(0.5)
        await controller.pause(plan.steps[0].begins)
        try:
            await controller.store.commit(CreateStep(job_id, ADMIN, _request(plan.steps[0])), at=controller.clock.now())
        except MusterError:
            return

    # Everything else that people do.

    def act(self, job_id: int = 0) -> None:
        """Do one thing to some job or node; `job_id`: to this job."""
        controller = self._cluster.controller
        command = self._command(job_id) if controller is not None and self.known else None
        if controller is not None and command is not None:
            controller.tasks.start(self._tell(controller, command))

    def tell(self, command: Command) -> None:
        """Ask for something, if the controller is there."""
        controller = self._cluster.controller
        if controller is not None:
            controller.tasks.start(self._tell(controller, command))

    async def _tell(self, controller: Controller, command: Command) -> None:
        try:
            await controller.store.commit(command, at=controller.clock.now())
        except MusterError:
            self.refused += 1

    def _command(self, wanted: int) -> Command:
        rng = self._rng
        by = rng.choice([ADMIN, ADMIN, *USERS]) if not wanted else ADMIN
        job_id = JobId(wanted or rng.choice(self.known[-40:]))
        tasks: Ranges | None = None
        if rng.random() < 0.25:
            task = rng.randint(0, 5)
            tasks = (task, task)
        kind = rng.choices(
            ["cancel", "hold", "release", "requeue", "update", "step", "drain", "resume", "down"],
            [5, 3, 4, 4, 4, 2, 1, 4, 0.5] if not wanted else [5, 1, 1, 4, 1, 3, 0, 0, 0],
        )[0]
        node = (rng.randrange(len(self._cluster.nodes)),)
        match kind:
            case "cancel":
                return Cancel(job_id, by, tasks)
            case "hold":
                return Hold(job_id, by, tasks)
            case "release":
                return Release(job_id, by, tasks)
            case "requeue":
                return Requeue(job_id, by, tasks, hold=rng.random() < 0.3)
            case "update":
                return self._update(job_id, by, tasks)
            case "step":
                return CancelStep(job_id, StepId(rng.randint(0, 1)), by)
            case "drain":
                return UpdateNode(node, ADMIN, state="DRAIN", reason="a test")
            case "down":
                self._cluster.truth.note_trouble(node[0])
                return UpdateNode(node, ADMIN, state="DOWN", reason="a test")
            case _:
                return UpdateNode(node, ADMIN, state="RESUME")

    def _update(self, job_id: JobId, by: Caller, tasks: Ranges | None) -> UpdateJob:
        rng = self._rng
        changes: list[dict[str, Any]] = [
            {"time_limit_minutes": rng.choice([1, 3])},
            {"nice": rng.randint(0, 50)},
            {"name": "renamed"},
            {"begin_at": UnixTime(int(self._cluster.clock.now()) + rng.randint(0, 60))},
            {"array_limit": rng.randint(1, 3)},
            {"partition": rng.choice(["main", "short"])},
            {"dependency": rng.choice(["", "singleton", self._dependency()])},
            {"priority": rng.randint(0, 1000)},
            {"requeue": rng.random() < 0.5},
        ]
        return UpdateJob(job_id, by, tasks, **rng.choice(changes))

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something in the controller's process, if there is one."""
        controller = self._cluster.controller
        if controller is not None:
            controller.tasks.start(coroutine)


def _request(step: StepPlan) -> StepRequest:
    # The name carries what it will do to the machine that runs it.
    return StepRequest(
        name=f"{step.seconds!r} {step.status} {step.on_term}",
        argv=("srun",),
        ntasks=step.ntasks,
        overlap=step.overlap,
        limit_minutes=step.limit_minutes,
        gpus_per_node=0,
    )

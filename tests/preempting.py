"""A small cluster on which jobs preempt each other: passes are made and carried out, nodes answer by hand."""

from __future__ import annotations

from typing import Any

from ctld.core.accounts import Association, Qos
from ctld.core.cluster import PartitionSpec, Preemption, Settings
from ctld.core.commands import ApplyAccounts, ApplyPlan, FinishBatch, ReleaseNode, Tick
from ctld.core.events import Event
from ctld.core.model import Job
from ctld.core.plan import Plan, Preempt
from ctld.sched.cycle import plan
from ctld.sched.memory import PlanMemory
from muster.ids import JobId, UnixTime
from muster.states import JobState
from tests.builders import a_partition, a_state
from tests.placing import everywhere
from tests.stage import Stage, a_result

TIERS = ("low", "high")


class Cluster(Stage):
    """`nodes` nodes of `cpus` cores; partitions `low` (tier 1) and `high` (tier 2) over all of them."""

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpus: int = 8,
        gpus: int = 0,
        low: dict[str, Any] | None = None,
        qos: tuple[Qos, ...] = (),
        partitions: tuple[PartitionSpec, ...] | None = None,
        **rules: Any,
    ) -> None:
        rules.setdefault("rule", "qos" if qos else "partition_prio")
        rules.setdefault("mode", "CANCEL")
        settings = Settings(
            require_registration=False,
            requeue_delay_seconds=0,
            preemption=Preemption(**rules),
        )
        found = partitions or (
            a_partition("low", nodes=nodes, default=True, **(low or {})),
            a_partition("high", nodes=nodes, priority_tier=2),
        )
        super().__init__(a_state(nodes, cpus=cpus, gpus=gpus, settings=settings, partitions=found))
        if qos:
            self.do(ApplyAccounts((Association(1, "root"),), qos))
        self._memory = PlanMemory()

    def pass_(self) -> Plan:
        """Make a scheduling pass and carry it out."""
        made = plan(self.state, UnixTime(self.at), reachable=everywhere(self.state), memory=self._memory)
        self.events: list[Event] = self.do(ApplyPlan(made))
        return made

    def put(self, partition: str = "low", **fields: Any) -> int:
        """Submit a job to a partition and make a pass; the job runs unless there is no place."""
        fields.setdefault("memory_per_node_mib", 100)
        job_id = self.submit(partitions=(partition,), **fields)
        self.pass_()
        return job_id

    def wants(self, partition: str = "high", **fields: Any) -> Preempt | None:
        """Submit a job and give the preemption that the next pass makes for it."""
        fields.setdefault("memory_per_node_mib", 100)
        self.wanting = self.submit(partitions=(partition,), **fields)
        made = self.pass_()
        return next((one for one in made.preemptions if one.job_id == self.wanting), None)

    def victims(self, partition: str = "high", **fields: Any) -> list[int]:
        """Submit a job and give whom it preempts."""
        made = self.wants(partition, **fields)
        return sorted(victim.job_id for victim in made.victims) if made is not None else []

    def wait(self, seconds: int) -> list[Event]:
        """Let time pass."""
        self.at += seconds
        return self.do(Tick())

    def leave(self, job_id: int, status: int = 15) -> None:
        """Let a job's script end, and all its nodes say that nothing is left."""
        job = self.job(job_id)
        assert job.alloc is not None
        shares, run = job.alloc.shares, job.restarts
        self.do(FinishBatch(JobId(job_id), run, a_result(shares[0].node, status, ended_at=UnixTime(self.at))))
        for share in shares[1:]:
            self.do(ReleaseNode(JobId(job_id), run, share.node))

    def runs(self, job_id: int) -> bool:
        """Tell whether a job runs."""
        return self.job(job_id).state == JobState.RUNNING

    def of(self, job_id: int) -> Job:
        """The record of a job."""
        return self.job(job_id)

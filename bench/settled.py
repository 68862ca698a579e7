"""A controller with a large cluster that it believes to be there: the mix, written as a state directory.

Nobody could run ten thousand agents on one machine. So the nodes count as reachable (`python -m bench.settled ARGS...`
is `python -m ctld ARGS...` with that one change), and what is started on them stands in the state and nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import structs

from bench import mix
from cli.cluster import Cluster, Plan
from ctld import configure, daemon
from ctld.__main__ import main
from ctld.core.apply.indexes import rebuild
from ctld.core.cluster import NodeFacts, NodeSpec
from ctld.core.model import Job
from ctld.core.state import State
from ctld.loops.links import Links
from ctld.store.opening import open_directory
from muster.config.load import load
from muster.ids import JobId, UnixTime
from tests.builders import NOON

ONE = Plan(nodes=1, cpus=1, gpus="", accounting=False)


class Settled(Cluster):
    """A cluster whose controller has the mix of so many nodes and pending jobs from its start on."""

    def __init__(self, folder: Path, nodes: int, pending: int) -> None:
        super().__init__(folder)
        self._mix = mix.made(nodes, pending)

    def command(self, daemon: str, plan: Plan) -> list[str]:
        """Give the command line of the daemon."""
        return ["bench.settled" if word == daemon else word for word in super().command(daemon, plan)]

    def make(self, plan: Plan) -> Plan:
        """Write configuration, certificates and state."""
        made = super().make(plan)
        asyncio.run(self._write_state())
        return made

    def _configuration(self, plan: Plan) -> str:
        head = super()._configuration(plan).splitlines()
        lines = [line for line in head if not line.startswith(("NodeName=", "PartitionName=", "DefMemPerCPU="))]
        # Nobody answers for the nodes, and that is to have no consequences.
        lines += [
            "GresTypes=gpu",
            "SlurmdTimeout=60000",
            *_node_lines(self._mix.state),
            *_partition_lines(self._mix.state),
        ]
        return "\n".join(lines) + "\n"

    async def _write_state(self) -> None:
        """Write what a controller would have written that has had all this for a while."""
        directory = self.folder / "state"
        now = UnixTime(int(time.time()))
        opened = open_directory(directory)
        state = opened.store.state
        await opened.store.commit(configure.command(load(self.config)), at=now)
        state.nodes = [structs.replace(node, facts=_facts(node.spec)) for node in state.nodes]
        moved = {int(job.id): _moved(job, now - NOON) for job in self._mix.state.jobs.values()}
        state.jobs.update(moved)
        state.next_job_id = JobId(max(moved) + 1)
        rebuild(state)
        await opened.checkpoint(lambda: opened.journal.last_queued + 1)
        await opened.close()


def _facts(spec: NodeSpec) -> NodeFacts:
    return NodeFacts(
        cpus=spec.cpus, sockets=spec.sockets, cores_per_socket=spec.cores_per_socket,
        threads_per_core=spec.threads_per_core, memory_mib=spec.memory_mib, gpus=spec.gpus,
    )  # fmt: skip


def _moved(job: Job, seconds: int) -> Job:
    """Give a job as it would be so much later."""
    return structs.replace(
        job,
        submitted_at=UnixTime(job.submitted_at + seconds),
        eligible_at=UnixTime(job.eligible_at + seconds),
        started_at=UnixTime(job.started_at + seconds if job.started_at else 0),
    )


def _node_lines(state: State) -> Iterator[str]:
    """Describe the nodes, as many as are alike and stand side by side in one line."""
    for spec, alike in groupby((node.spec for node in state.nodes), lambda spec: structs.replace(spec, name="")):
        names = [one.name for one in alike]
        text = names[0] if len(names) == 1 else f"n[{names[0][1:]}-{names[-1][1:]}]"
        gres = f" Gres=gpu:{spec.gpus[0]}:{len(spec.gpus)}" if spec.gpus else ""
        yield (
            f"NodeName={text} CPUs={spec.cpus} Sockets=1 CoresPerSocket={spec.cpus} RealMemory={spec.memory_mib} "
            f"Feature={','.join(spec.features)}{gres}"
        )


def _partition_lines(state: State) -> Iterator[str]:
    for name, partition in state.partitions.items():
        first, last = state.nodes[partition.nodes[0]].spec.name, state.nodes[partition.nodes[-1]].spec.name
        default = " Default=YES" if partition.default else ""
        yield f"PartitionName={name} Nodes=n[{first[1:]}-{last[1:]}] MaxTime=UNLIMITED State=UP{default}"


class _Reachable(Links):
    """Links of nodes that all seem to answer."""

    def reachable(self, nodes: int) -> npt.NDArray[np.bool_]:
        """All do."""
        return np.ones(nodes, np.bool_)


if __name__ == "__main__":
    setattr(daemon, "Links", _Reachable)  # noqa: B010  # the composition root has no door for another kind of links
    main()

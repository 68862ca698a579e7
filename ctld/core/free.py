"""What is free on each node: CPUs, cores, memory, GPUs, and whom a node belongs to.

Structure of arrays: the scheduler compares whole columns (numpy) and looks at bitmaps of single nodes only
when it really places a job. Kept by `apply`, never stored. Whether a node may be used at all (down, drained)
is not said here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ctld.core import ranges
from ctld.core.model import Node, NodeShare, NodeSpec, PartitionSpec

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def core_count(spec: NodeSpec) -> int:
    """Count the cores of a node; where no geometry is given (CPUs= alone) each CPU is a core."""
    cores = spec.sockets * spec.cores_per_socket
    if cores * spec.threads_per_core < spec.cpus:
        cores = max(1, spec.cpus // spec.threads_per_core)
    return cores


def cpus_per_core(spec: NodeSpec) -> int:
    """CPUs that come with one core: its threads, or 1 where CPUs= counts cores (fewer CPUs than threads)."""
    return max(1, spec.cpus // core_count(spec))


def exclusive_mode(asked: str, partition: PartitionSpec | None) -> str:
    """Tell how a job keeps its nodes: "" (shared), node, or user; the partition's Exclusive= adds to what was
    asked."""
    if asked == "node" or (partition is not None and partition.exclusive == "NODE"):
        return "node"
    if asked == "user" or (partition is not None and partition.exclusive == "USER"):
        return "user"
    return ""


class FreeTable:
    """Free resources by node index; every change bumps `version`."""

    def __init__(self) -> None:
        self.version = 0
        self.cpus: Int32 = np.zeros(0, np.int32)
        """Free CPUs."""
        self.cores: list[int] = []
        """Bitmap of free cores."""
        self.memory: Int64 = np.zeros(0, np.int64)
        """Free memory, MiB."""
        self.gpus: list[int] = []
        """Bitmap of free GPU indexes."""
        self.gpu_count: Int32 = np.zeros(0, np.int32)
        """Free GPUs of any type."""
        self.jobs: Int32 = np.zeros(0, np.int32)
        """Jobs that hold something of the node."""
        self.owner: list[int] = []
        """uid that an exclusive=user job keeps the node for; -1: nobody's; -2: several users', so nobody else
        may come."""
        self._all_cores: list[int] = []
        self._all_gpus: list[int] = []
        # A node may be configured smaller under a running job: what never was comes not back with the job.
        self._keepers: list[dict[int, int]] = []
        """For each node uid -> number of exclusive=user jobs; more than one uid only where the partition
        became exclusive under them."""

    def __len__(self) -> int:
        return len(self.cores)

    def reset(self, nodes: Sequence[Node]) -> None:
        """Make the table of these nodes with nothing taken; capacity is what is configured."""
        size = len(nodes)
        self.cpus = np.fromiter((node.spec.cpus for node in nodes), np.int32, size)
        self.cores = [(1 << core_count(node.spec)) - 1 for node in nodes]
        self._all_cores = list(self.cores)
        self.memory = np.fromiter((node.spec.memory_mib for node in nodes), np.int64, size)
        self.gpus = [(1 << len(node.spec.gpus)) - 1 for node in nodes]
        self._all_gpus = list(self.gpus)
        self.gpu_count = np.fromiter((len(node.spec.gpus) for node in nodes), np.int32, size)
        self.jobs = np.zeros(size, np.int32)
        self.owner = [-1] * size
        self._keepers = [{} for _ in range(size)]
        self.version += 1

    def take(self, share: NodeShare, uid: int, exclusive: str = "") -> None:
        """Take a job's share of one node. An exclusive=node share names all that it takes (all CPUs, all
        GPUs)."""
        node = share.node
        self.cpus[node] -= share.cpus
        self.memory[node] -= share.memory_mib
        self.cores[node] &= ~ranges.to_bitmap(share.cores)
        if share.gpus:
            self.gpus[node] &= ~ranges.to_bitmap(share.gpus)
            self.gpu_count[node] = self.gpus[node].bit_count()
        self.jobs[node] += 1
        if exclusive == "user":
            keepers = self._keepers[node]
            keepers[uid] = keepers.get(uid, 0) + 1
            self.owner[node] = _owner(keepers)
        self.version += 1

    def give(self, share: NodeShare, uid: int, exclusive: str = "") -> None:
        """Give back what `take` took with the same arguments."""
        node = share.node
        self.cpus[node] += share.cpus
        self.memory[node] += share.memory_mib
        self.cores[node] |= ranges.to_bitmap(share.cores) & self._all_cores[node]
        if share.gpus:
            self.gpus[node] |= ranges.to_bitmap(share.gpus) & self._all_gpus[node]
            self.gpu_count[node] = self.gpus[node].bit_count()
        self.jobs[node] -= 1
        if exclusive == "user":
            keepers = self._keepers[node]
            keepers[uid] -= 1
            if not keepers[uid]:
                del keepers[uid]
            self.owner[node] = _owner(keepers)
        self.version += 1

    def as_lists(self) -> dict[str, list[int]]:
        """Give every column as a plain list, for comparing two tables."""
        return {
            "cpus": self.cpus.tolist(),
            "cores": list(self.cores),
            "memory": self.memory.tolist(),
            "gpus": list(self.gpus),
            "gpu_count": self.gpu_count.tolist(),
            "jobs": self.jobs.tolist(),
            "owner": list(self.owner),
        }


def _owner(keepers: dict[int, int]) -> int:
    if len(keepers) == 1:
        return next(iter(keepers))
    return -2 if keepers else -1

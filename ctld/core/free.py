"""What is free on each node: CPUs, cores, memory, GPUs, and whom a node belongs to.

Structure of arrays: the scheduler compares whole columns (numpy) and looks at bitmaps of single nodes only
when it really places a job. Kept by `apply`, never stored. Whether a node may be used at all (down, drained)
is not said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ctld.core import devices, ranges
from ctld.core.changes import ChangeLog
from ctld.core.cluster import Node, NodeSpec, PartitionSpec
from ctld.core.devices import Amounts
from ctld.core.model import UNLIMITED, NodeShare

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


def reserved_cores(spec: NodeSpec) -> int:
    """Give the bitmap of the cores kept for the system: those of CpuSpecList=, or CoreSpecCount= of them, the
    highest of the highest socket first, then one of each socket below, and so on (slurm.conf(5))."""
    threads = cpus_per_core(spec)
    if spec.cpu_spec_list:
        return ranges.to_bitmap(ranges.from_ints(cpu // threads for cpu in ranges.numbers(spec.cpu_spec_list)))
    if not spec.core_spec_count:
        return 0
    cores = core_count(spec)
    each = cores // spec.sockets if spec.sockets and cores % spec.sockets == 0 else cores
    order = [first + each - 1 - step for step in range(each) for first in range(cores - each, -1, -each)]
    return sum(1 << core for core in order[: spec.core_spec_count])


def selectable_cores(spec: NodeSpec) -> int:
    """Give the bitmap of the cores that jobs may have."""
    every = (1 << core_count(spec)) - 1
    if not spec.core_spec_count and not spec.cpu_spec_list:
        return every
    return every & ~reserved_cores(spec)


def selectable_cpus(spec: NodeSpec) -> int:
    """Count the CPUs that jobs may have."""
    if not spec.core_spec_count and not spec.cpu_spec_list:
        return spec.cpus
    return max(0, spec.cpus - reserved_cores(spec).bit_count() * cpus_per_core(spec))


def selectable_memory(spec: NodeSpec) -> int:
    """Give the MiB that jobs may have."""
    return max(0, spec.memory_mib - spec.memory_spec_mib)


def watched(partitions: Iterable[PartitionSpec]) -> frozenset[str]:
    """Name the partitions whose jobs are counted node by node: they share cores, or have no more than a part of a
    node's CPUs."""
    return frozenset(
        one.name
        for one in partitions
        if one.oversubscribe_jobs > 1 or one.max_cpus_per_node != UNLIMITED or one.max_cpus_per_socket != UNLIMITED
    )


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
        self.log = ChangeLog()
        """Nodes whose row changed."""
        self.owned: set[int] = set()
        """Nodes that are kept for users."""
        self.cpus: Int32 = np.zeros(0, np.int32)
        """Free CPUs."""
        self.cores: list[int] = []
        """Bitmap of free cores."""
        self.memory: Int64 = np.zeros(0, np.int64)
        """Free memory, MiB."""
        self.gpus: list[int] = []
        """Bitmap of the indexes of GPUs of which nobody has anything."""
        self.gpu_count: Int32 = np.zeros(0, np.int32)
        """Free GPUs of any type."""
        self.jobs: Int32 = np.zeros(0, np.int32)
        """Jobs that hold something of the node."""
        self.owner: list[int] = []
        """uid that an exclusive=user job keeps the node for; -1: nobody's; -2: several users', so nobody else
        may come."""
        self.more: list[Amounts] = []
        """What is free of other generic resources (see `ctld.core.devices`)."""
        self.rows: list[dict[str, list[int]]] = []
        """For each watched partition with jobs on the node: [0] the cores of all its jobs, [n] those of row n of
        jobs that share cores."""
        self.licenses: dict[str, int] = {}
        """Licences that running jobs hold."""
        self.whole: list[Amounts] = []
        """What `more` is on an empty node."""
        self.watched: frozenset[str] = frozenset()
        self._all_cores: list[int] = []
        self._all_gpus: list[int] = []
        # A node may be configured smaller under a running job: what never was comes not back with the job.
        self._threads: list[int] = []
        self._keepers: list[dict[int, int]] = []
        """For each node uid -> number of exclusive=user jobs; more than one uid only where the partition
        became exclusive under them."""

    def __len__(self) -> int:
        return len(self.cores)

    def reset(self, nodes: Sequence[Node], watched: frozenset[str] = frozenset()) -> None:
        """Make the table of these nodes with nothing taken; capacity is what is configured."""
        size = len(nodes)
        self.cpus = np.fromiter((selectable_cpus(node.spec) for node in nodes), np.int32, size)
        self.cores = [selectable_cores(node.spec) for node in nodes]
        self._all_cores = list(self.cores)
        self._threads = [cpus_per_core(node.spec) for node in nodes]
        self.memory = np.fromiter((selectable_memory(node.spec) for node in nodes), np.int64, size)
        self.gpus = [(1 << len(node.spec.gpus)) - 1 for node in nodes]
        self._all_gpus = list(self.gpus)
        self.gpu_count = np.fromiter((len(node.spec.gpus) for node in nodes), np.int32, size)
        self.jobs = np.zeros(size, np.int32)
        self.owner = [-1] * size
        self.whole = [devices.capacity(node.spec) for node in nodes]
        self.more = [dict(table) if table else devices.NOTHING for table in self.whole]
        self.rows = [{} for _ in nodes] if watched else []
        self.watched = watched
        self.licenses = {}
        self._keepers = [{} for _ in range(size)]
        self.owned = set()
        self.log.forget()
        self.version += 1

    def take(self, share: NodeShare, uid: int, exclusive: str = "", partition: str = "") -> None:
        """Take a job's share of one node. An exclusive=node share names all that it takes (all CPUs, all
        GPUs)."""
        node = share.node
        if share.cores and (share.row or partition in self.watched):
            self._take_row(share, partition)
        if not share.row:
            self.cpus[node] -= share.cpus
            self.cores[node] &= ~ranges.to_bitmap(share.cores)
        self.memory[node] -= share.memory_mib
        if share.gpus or share.gres:
            if share.gres:
                devices.take(self.more[node], share.gres)
            self.gpus[node] &= ~(ranges.to_bitmap(share.gpus) | devices.shared_gpus(share.gres))
            self.gpu_count[node] = self.gpus[node].bit_count()
        self.jobs[node] += 1
        if exclusive == "user":
            keepers = self._keepers[node]
            keepers[uid] = keepers.get(uid, 0) + 1
            self.owner[node] = _owner(keepers)
            self.owned.add(node)
        self.log.note(node)
        self.version += 1

    def give(self, share: NodeShare, uid: int, exclusive: str = "", partition: str = "") -> None:
        """Give back what `take` took with the same arguments."""
        node = share.node
        if share.cores and (share.row or partition in self.watched):
            self._give_row(share, partition)
        if not share.row:
            self.cpus[node] += share.cpus
            self.cores[node] |= ranges.to_bitmap(share.cores) & self._all_cores[node]
        self.memory[node] += share.memory_mib
        if share.gpus or share.gres:
            back = ranges.to_bitmap(share.gpus)
            if share.gres:
                devices.give(self.more[node], share.gres, self.whole[node])
                for gpu in ranges.numbers(ranges.from_bitmap(devices.shared_gpus(share.gres))):
                    if not devices.in_parts(self.more[node], self.whole[node], gpu):
                        back |= 1 << gpu
            self.gpus[node] |= back & self._all_gpus[node]
            self.gpu_count[node] = self.gpus[node].bit_count()
        self.jobs[node] -= 1
        if exclusive == "user":
            keepers = self._keepers[node]
            keepers[uid] -= 1
            if not keepers[uid]:
                del keepers[uid]
            self.owner[node] = _owner(keepers)
            if not keepers:
                self.owned.discard(node)
        self.log.note(node)
        self.version += 1

    def _take_row(self, share: NodeShare, partition: str) -> None:
        """Note the cores of a job of a watched partition; cores that nobody had before are taken."""
        node, cores = share.node, ranges.to_bitmap(share.cores)
        if not self.rows:  # Shares of a partition that is not known any more.
            self.rows = [{} for _ in self.cores]
        rows = self.rows[node].setdefault(partition, [0])
        if share.row:
            rows.extend([0] * (share.row + 1 - len(rows)))
            rows[share.row] |= cores
            fresh = self.cores[node] & cores
            self.cores[node] &= ~fresh
            self.cpus[node] -= fresh.bit_count() * self._threads[node]
        rows[0] |= cores

    def _give_row(self, share: NodeShare, partition: str) -> None:
        node, cores = share.node, ranges.to_bitmap(share.cores)
        rows = self.rows[node][partition]
        if share.row:
            rows[share.row] &= ~cores
            still = 0
            for row in rows[1:]:
                still |= row
            freed = cores & ~still & self._all_cores[node]
            rows[0] &= ~(cores & ~still)
            self.cores[node] |= freed
            self.cpus[node] += freed.bit_count() * self._threads[node]
            while len(rows) > 1 and not rows[-1]:
                rows.pop()
        else:
            rows[0] &= ~cores
        if rows == [0]:
            del self.rows[node][partition]

    def as_lists(self) -> dict[str, object]:
        """Give every column as a plain list, for comparing two tables."""
        return {
            "cpus": self.cpus.tolist(),
            "cores": list(self.cores),
            "memory": self.memory.tolist(),
            "gpus": list(self.gpus),
            "gpu_count": self.gpu_count.tolist(),
            "jobs": self.jobs.tolist(),
            "owner": list(self.owner),
            "more": [dict(table) for table in self.more],
            "rows": {node: dict(table) for node, table in enumerate(self.rows) if table},
            "licenses": dict(self.licenses),
        }


def _owner(keepers: dict[int, int]) -> int:
    if len(keepers) == 1:
        return next(iter(keepers))
    return -2 if keepers else -1

from __future__ import annotations

from ctld.core.cluster import Node, NodeSpec
from ctld.core.free import FreeTable, core_count, cpus_per_core
from ctld.core.model import NodeShare
from tests.builders import a_node_spec

SHARE = NodeShare(node=1, cpus=4, cores=(0, 1), memory_mib=1000, gpus=(2, 3))


def a_table() -> FreeTable:
    table = FreeTable()
    table.reset(
        [Node(index=n, spec=a_node_spec(f"n{n}", cpus=16, threads=2, memory_mib=8000, gpus=4)) for n in range(2)]
    )
    return table


def test_take_and_give_are_inverse() -> None:
    table = a_table()
    before = table.as_lists()
    table.take(SHARE, 7, "user")
    assert table.cpus.tolist() == [16, 12]
    assert table.cores == [0xFF, 0xFC]
    assert table.memory.tolist() == [8000, 7000]
    assert table.gpus == [0xF, 0x3]
    assert table.gpu_count.tolist() == [4, 2]
    assert table.jobs.tolist() == [0, 1]
    assert table.owner == [-1, 7]
    table.give(SHARE, 7, "user")
    assert table.as_lists() == before


def test_a_node_stays_with_its_owner_until_the_last_exclusive_job_leaves() -> None:
    table = a_table()
    other = NodeShare(node=1, cpus=2, cores=(4, 4))
    table.take(SHARE, 7, "user")
    table.take(other, 7, "user")
    table.give(SHARE, 7, "user")
    assert table.owner[1] == 7
    table.give(other, 7, "user")
    assert table.owner[1] == -1


def test_every_change_bumps_the_version() -> None:
    table = a_table()
    seen = {table.version}
    table.take(SHARE, 7)
    seen.add(table.version)
    table.give(SHARE, 7)
    seen.add(table.version)
    assert len(seen) == 3


def test_cpus_without_geometry_are_cores() -> None:
    assert core_count(NodeSpec(name="n", cpus=64)) == 64
    assert cpus_per_core(NodeSpec(name="n", cpus=64)) == 1
    hyper = NodeSpec(name="n", cpus=64, sockets=2, cores_per_socket=16, threads_per_core=2)
    assert (core_count(hyper), cpus_per_core(hyper)) == (32, 2)
    as_cores = NodeSpec(name="n", cpus=32, sockets=2, cores_per_socket=16, threads_per_core=2)
    assert (core_count(as_cores), cpus_per_core(as_cores)) == (32, 1)

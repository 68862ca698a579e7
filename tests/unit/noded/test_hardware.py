"""What a machine is, and what a command line makes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from noded import hardware
from noded.hardware import Sizes


def a_machine(folder: Path, *, packages: int, cores: int, threads: int) -> str:
    """Write the topology of the CPUs that this process may use, as if they were those of another machine."""
    usable = sorted(os.sched_getaffinity(0))
    layout = [(package, core) for package in range(packages) for core in range(cores) for _ in range(threads)]
    for place, cpu in enumerate(usable):
        package, core = layout[place % len(layout)]
        topology = folder / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
    return str(folder)


def shape(found: hardware.Hardware) -> tuple[int, int, int, int]:
    return found.cpus, found.sockets, found.cores_per_socket, found.threads_per_core


def test_finds_this_machine() -> None:
    found = hardware.detect()
    assert found.cpus == len(os.sched_getaffinity(0))
    assert found.sockets * found.cores_per_socket * found.threads_per_core == found.cpus
    assert found.memory_mib > 0
    assert found.tmp_mib > 0
    assert hardware.boot_at() > 1_000_000_000
    assert 0 < hardware.free_memory_mib() <= found.memory_mib
    assert hardware.system().startswith("Linux ")


def test_reads_the_threads_of_a_core(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    folder = a_machine(tmp_path, packages=1, cores=1, threads=cpus)
    assert shape(hardware.detect(cpu_folder=folder)) == (cpus, 1, 1, cpus)


def test_reads_sockets(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    folder = a_machine(tmp_path, packages=cpus, cores=1, threads=1)
    assert shape(hardware.detect(cpu_folder=folder)) == (cpus, cpus, 1, 1)


def test_a_hidden_topology_is_one_socket_of_single_threads(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    assert shape(hardware.detect(cpu_folder=str(tmp_path))) == (cpus, 1, cpus, 1)


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        (Sizes(cpus=8), (8, 1, 8, 1)),
        (Sizes(cpus=8, threads=2), (8, 1, 4, 2)),
        (Sizes(cpus=8, sockets=2, threads=2), (8, 2, 2, 2)),
        (Sizes(sockets=2, cores=3, threads=2), (12, 2, 3, 2)),
        (Sizes(cpus=6, sockets=2, cores=3, threads=2), (6, 2, 3, 2)),
    ],
)
def test_given_sizes_take_the_place_of_found_ones(sizes: Sizes, wanted: tuple[int, int, int, int]) -> None:
    assert shape(hardware.detect(sizes)) == wanted


def test_memory_and_disk_may_be_given() -> None:
    found = hardware.detect(Sizes(memory_mib=123, tmp_mib=45))
    assert (found.memory_mib, found.tmp_mib) == (123, 45)


def test_sizes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match="--cpus=7 does not fit 2 sockets of 2 cores with 1 threads"):
        hardware.detect(Sizes(cpus=7, sockets=2, cores=2))

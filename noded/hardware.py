"""What this machine is, found by itself: no configuration line says it.

Sizes given on the command line (virtual nodes) take the place of what was found.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from muster.errors import InvalidInput

_CPUS = "/sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Hardware:
    """Sizes of a node."""

    cpus: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    tmp_mib: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that the command line gives; 0: as found."""

    cpus: int = 0
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    memory_mib: int = 0
    tmp_mib: int = 0


def detect(sizes: Sizes = Sizes(), *, cpu_folder: str = _CPUS, tmp: str = "/tmp") -> Hardware:
    """Find the sizes of this machine, those given put in place.

    Raises:
        InvalidInput: the sizes given contradict each other.
    """
    cpus, sockets, cores, threads = _layout(sizes, cpu_folder)
    return Hardware(
        cpus=cpus,
        sockets=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        memory_mib=sizes.memory_mib or meminfo("MemTotal") >> 10,
        tmp_mib=sizes.tmp_mib or _tmp_mib(tmp),
    )


def _layout(sizes: Sizes, cpu_folder: str) -> tuple[int, int, int, int]:
    """Give (CPUs, sockets, cores a socket, threads a core)."""
    if not (sizes.cpus or sizes.sockets or sizes.cores or sizes.threads):
        return _found_layout(cpu_folder)
    threads = sizes.threads or 1
    sockets = sizes.sockets or 1
    if sizes.cores:
        cores = sizes.cores
    elif sizes.cpus:
        cores = max(1, sizes.cpus // (sockets * threads))
    else:
        cores = max(1, _found_layout(cpu_folder)[0] // (sockets * threads))
    product = sockets * cores * threads
    cpus = sizes.cpus or product
    # Slurm takes the number of cores too: then threads are not counted.
    if cpus not in (product, sockets * cores):
        raise InvalidInput(
            f"--cpus={cpus} does not fit {sockets} sockets of {cores} cores with {threads} threads ({product} CPUs)",
            "leave --cpus out, or make the product fit",
        )
    return cpus, sockets, cores, threads


def _found_layout(cpu_folder: str) -> tuple[int, int, int, int]:
    """Read the topology of the CPUs that this process may use; a machine that hides it has one thread a core."""
    usable = os.sched_getaffinity(0)
    cores: dict[tuple[str, str], int] = {}
    for cpu in sorted(usable):
        topology = f"{cpu_folder}/cpu{cpu}/topology"
        package, core = _read(f"{topology}/physical_package_id"), _read(f"{topology}/core_id")
        if not package or not core:
            return len(usable), 1, len(usable), 1
        cores[package, core] = cores.get((package, core), 0) + 1
    sockets = len({package for package, _ in cores})
    threads = max(cores.values())
    if len(cores) % sockets or any(count != threads for count in cores.values()):
        # Uneven (part of the CPUs is off, or not ours): what is true is their number.
        return len(usable), 1, len(usable), 1
    return len(usable), sockets, len(cores) // sockets, threads


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def meminfo(name: str) -> int:
    """Give a line of /proc/meminfo in KiB; 0 when it is not there."""
    with open("/proc/meminfo") as file:
        for line in file:
            key, _, rest = line.partition(":")
            if key == name:
                return int(rest.split()[0])
    return 0


def free_memory_mib() -> int:
    """Give the memory that is free now, MiB."""
    return meminfo("MemFree") >> 10


def load_x100() -> int:
    """Give the load average of the last minute, times 100."""
    return int(os.getloadavg()[0] * 100)


def boot_at() -> int:
    """Give when the machine was booted, seconds since the epoch."""
    with open("/proc/stat") as file:
        for line in file:
            if line.startswith("btime "):
                return int(line.split()[1])
    return 0


def boot_id() -> str:
    """Give the kernel's id of this boot (random(4)): unlike the time of the boot, setting a clock does not move it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def architecture() -> str:
    """Give the machine's architecture: x86_64."""
    return os.uname().machine


def system() -> str:
    """Give the system as `scontrol show node` prints it: name, release, version."""
    names = os.uname()
    return f"{names.sysname} {names.release} {names.version}"


def _tmp_mib(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_frsize * found.f_blocks >> 20

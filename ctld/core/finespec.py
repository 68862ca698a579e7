"""The rare rules of a request, as the client sent them to the record: sockets, cores and threads, devices of any name,
what each task takes."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from ctld.core.cluster import Settings
from ctld.core.model import FineRequest, GpuRequest, GresRequest
from muster.api import JobRequest
from muster.errors import InvalidInput, Refused
from muster.gres_text import parse_tres_per_task
from muster.slurm_errors import slurm_text

GRES_FLAGS = (
    "allow-task-sharing", "disable-binding", "enforce-binding", "multiple-tasks-per-sharing", "one-task-per-sharing",
)  # fmt: skip
_NONE = FineRequest()


@dataclass(frozen=True, slots=True)
class PerTask:
    """What --tres-per-task says."""

    cpus: int = 0
    """0: not given."""
    gpus: tuple[GpuRequest, ...] = ()
    gres: tuple[GresRequest, ...] = ()
    licenses: tuple[tuple[str, int], ...] = ()


def tres_per_task(request: JobRequest, settings: Settings) -> PerTask:
    """Read --tres-per-task.

    Raises:
        InvalidInput: no such list, an unknown resource, or GPUs of a task asked for otherwise.
    """
    if not request.tres_per_task:
        return PerTask()
    cpus = 0
    gpus: dict[str, int] = {}
    gres: dict[str, dict[str, int]] = {}
    licences: list[tuple[str, int]] = []
    for name, kind, count in parse_tres_per_task(request.tres_per_task):
        family, _, what = name.partition("/")
        if name == "cpu":
            cpus = count
        elif name == "gres/gpu":
            gpus[kind] = count
        elif family == "gres":
            known_gres(what, settings)
            gres.setdefault(what, {})[kind] = count
        else:
            licences.append((what, count))
    found = tuple(GpuRequest(kind, count) for kind, count in sorted(gpus.items()))
    # A client may repeat what --tres-per-task means as the options of that name.
    if found and request.gpus_per_task not in (None, ",".join(_gpu_text(one) for one in found)):
        hint = "give --gpus-per-task or --tres-per-task=gres/gpu, not both"
        raise InvalidInput(slurm_text(2072), hint, slurm_code=2072)
    if cpus and request.cpus_per_task not in (None, cpus):
        raise InvalidInput(
            "You can not have --tres-per-task=cpu= and --cpus-per-task please use one or the other", slurm_code=2115
        )
    return PerTask(cpus, found, gres_requests(gres), tuple(licences))


def _gpu_text(one: GpuRequest) -> str:
    return f"{one.type}:{one.count}" if one.type else str(one.count)


def known_gres(name: str, settings: Settings) -> None:
    """Refuse a resource that the configuration does not name."""
    if name not in settings.gres_names:
        names = f"there are: {', '.join(settings.gres_names)}" if settings.gres_names else "there are none"
        hint = f"`{name[:60]}` is no generic resource here; {names}"
        raise InvalidInput(slurm_text(2072), hint, slurm_code=2072)


def gres_requests(found: dict[str, dict[str, int]]) -> tuple[GresRequest, ...]:
    """Make records of counts by name and type."""
    return tuple(
        GresRequest(name, count, kind)
        for name, by_type in sorted(found.items())
        for kind, count in sorted(by_type.items())
        if count
    )


def fine_request(
    request: JobRequest,
    settings: Settings,
    *,
    gres: tuple[GresRequest, ...],
    by_task: PerTask,
    per_socket: tuple[GpuRequest, ...],
    cpus: int | None,
) -> FineRequest | None:
    """Give the rare rules of a request; None when it has none.

    Args:
        gres: of each node, without GPUs.
        cpus: CPUs of a task, None when not given.

    Raises:
        InvalidInput: a flag or hint that is not known.
        Refused: cores for the system, where the configuration does not let jobs say so.
    """
    sockets, cores, threads = sockets_cores_threads(request)
    flags = _flags(request.gres_flags or "")
    found = FineRequest(
        gres=gres,
        gres_per_task=by_task.gres,
        gpus_per_socket=per_socket,
        gres_flags=flags,
        sockets_per_node=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        ntasks_per_core=_at_least_one(request.ntasks_per_core, "--ntasks-per-core"),
        ntasks_per_socket=_at_least_one(request.ntasks_per_socket, "--ntasks-per-socket"),
        core_spec=-1 if request.core_spec is None else request.core_spec,
        thread_spec=-1 if request.thread_spec is None else request.thread_spec,
        one_cpu=cpus == 1,
    )
    if (found.core_spec >= 0 or found.thread_spec >= 0) and not settings.allow_spec_resources:
        option = "--core-spec" if found.core_spec >= 0 else "--thread-spec"
        raise Refused(slurm_text(2036), f"{option} needs AllowSpecResourcesUsage=YES in muster.conf", slurm_code=2036)
    found = _hinted(found, request.hint or "")
    return None if found == _NONE else found


def sockets_cores_threads(request: JobRequest) -> tuple[int, int, int]:
    """Give what --extra-node-info or the three single options say; 0: any."""
    given = (request.sockets_per_node, request.cores_per_socket, request.threads_per_core)
    both = [one or 0 for one in given]
    for at, number in enumerate(request.extra_node_info or ()):
        both[at] = both[at] or number
    return both[0], both[1], both[2]


def _hinted(found: FineRequest, hint: str) -> FineRequest:
    """Apply --hint; what was said about cores and threads by other options wins."""
    if not hint:
        return found
    if hint not in ("compute_bound", "memory_bound", "multithread", "nomultithread"):
        raise InvalidInput(f'unrecognized --hint argument "{hint[:40]}", see --hint=help')
    said = (found.sockets_per_node, found.cores_per_socket, found.threads_per_core, found.ntasks_per_core)
    if any(said) or hint == "multithread":
        return found
    return replace(found, threads_per_core=1, cores_in_socket=1 if hint == "memory_bound" else 0)


def _flags(text: str) -> tuple[str, ...]:
    flags = tuple(sorted({word.strip().lower() for word in text.split(",") if word.strip()}))
    for flag in flags:
        if flag not in GRES_FLAGS:
            raise InvalidInput(f"Invalid --gres-flags specification: {flag[:60]}")
    if {"disable-binding", "enforce-binding"} <= set(flags):
        raise InvalidInput("--gres-flags: disable-binding and enforce-binding exclude each other")
    return flags


def _at_least_one(number: int | None, option: str) -> int:
    if number is None:
        return 0
    if number < 1:
        raise InvalidInput(slurm_text(2025), f"{option} must be at least 1", slurm_code=2025)
    return number

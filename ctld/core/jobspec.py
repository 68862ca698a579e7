"""From what a client sent to the job as the controller keeps it: counts made consistent, texts read, bounds
held.

Counts of nodes, tasks and GPUs are brought to one form, so that requests that mean the same are one
scheduling class: `-N2 -n2` and `-N2`, `-G8 --gpus-per-node=4` and `-N2 --gpus-per-node=4`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ctld.core import licenses, ranges
from ctld.core.cluster import Settings
from ctld.core.commands import Submit
from ctld.core.decide.numbering import LARGEST_PRIORITY
from ctld.core.finespec import PerTask, fine_request, gres_requests, known_gres, sockets_cores_threads, tres_per_task
from ctld.core.model import UNLIMITED, ArraySpec, Caller, GpuRequest, GresRequest, JobSpec, Ranges, Request, SignalSpec
from ctld.core.placement import topology_text
from muster import hostlist, idset
from muster.api import JobRequest, NodeSizes
from muster.errors import InvalidInput, Refused, TooLarge
from muster.ids import UnixTime
from muster.placement import parse_segment, parse_switches
from muster.signals import parse_signal_option
from muster.slurm_errors import slurm_text
from muster.units import parse_count

MAX_GPU_KINDS = 16
"""Most types in one GPU request."""
_MIG_PROFILE = re.compile(r"[0-9]+g\.")
MAX_PARTITIONS = 64
"""Most partitions in one request."""
MAX_RESERVATIONS = 64
"""Most reservations in one request."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the numbers of the caller are called (looked up at the door, for the core asks nobody)."""

    user: str
    group: str
    groups: tuple[str, ...] = ()
    """All groups of the user, the primary one included."""


def from_request(
    request: JobRequest,
    caller: Caller,
    names: Names,
    settings: Settings,
    *,
    script_hash: bytes = b"",
    environment_hash: bytes = b"",
) -> Submit:
    """Make the Submit command of a request. Which partition, and whether it takes the job, `decide` says.

    Args:
        script_hash: hash of the script's blob; empty for an allocation.
        environment_hash: hash of the environment's blob.

    Raises:
        InvalidInput: counts that contradict each other, or a text that cannot be read, in Slurm's words.
        TooLarge: a script over its bound (an environment is looked at where its bytes are, in `ctld.services.parts`).
        Refused: something that is not supported, named.
    """
    _check_sizes(request, settings)
    array, array_limit = _array(request, settings)
    requeue = request.batch and (settings.job_requeue if request.requeue is None else bool(request.requeue))
    if request.requeue == "expedite":
        raise _unsupported("--requeue=expedite")
    spec = JobSpec(
        name=request.job_name or _default_name(request),
        uid=caller.uid,
        gid=caller.gid,
        user=names.user,
        group=names.group,
        work_dir=_work_dir(request),
        request=shape(request, settings),
        partitions=_partitions(request.partition),
        account=request.account or "",
        qos=request.qos or "normal",
        batch=request.batch,
        script=script_hash,
        environment=environment_hash,
        script_args=tuple(request.script_args),
        std_in=request.input or "",
        std_out=request.output or "",
        std_err=request.error or "",
        open_mode=request.open_mode or "",
        command=request.command,
        submit_line=request.submit_line,
        submit_host=request.submit_host or caller.host,
        sid=request.sid,
        comment=request.comment or "",
        wckey=request.wckey or "",
        time_limit_minutes=_time_limit(request.time_limit),
        begin_at=UnixTime(request.begin or 0),
        deadline_at=UnixTime(request.deadline or 0),
        signal=_signal(request.signal),
        requeue=requeue,
        kill_invalid_depend=bool(request.kill_on_invalid_dep),
        array=array,
        umask=request.umask,
        rlimits=dict(request.rlimits),
        export=request.export if request.export.upper() != "ALL" else "",
        get_user_env=request.get_user_env,
        echo=dict(request.echo),
        tasks_given=_tasks_given(request),
    )
    priority = LARGEST_PRIORITY if request.priority == "TOP" else request.priority
    return Submit(
        spec=spec,
        by=caller,
        dependency=request.dependency or "",
        nice=request.nice or 0,
        hold=bool(request.hold),
        priority=priority,
        array_limit=array_limit,
        qos_given=bool(request.qos),
    )


def _tasks_given(request: JobRequest) -> bool:
    """Tell whether the request says how many tasks there are; `shape` fills in what it does not say."""
    by_gpus = request.gpus and request.gpus_per_task
    return bool(request.ntasks or request.ntasks_per_node or request.ntasks_per_gpu or by_gpus)


# ---- the shape -------------------------------------------------------------------------------------------------


def shape(request: JobRequest, settings: Settings) -> Request:
    """Give the resources that a request asks for, its counts made consistent."""
    least, most = _nodes(request)
    per_node, gres = _gpus_per_node(request, settings)
    by_task = tres_per_task(request, settings)
    total = parse_gpus(request.gpus or "")
    per_task = by_task.gpus or parse_gpus(request.gpus_per_task or "")
    per_socket = parse_gpus(request.gpus_per_socket or "")
    cpus = by_task.cpus or request.cpus_per_task
    if per_socket:
        per_node = _of_sockets(per_socket, per_node, request)
    ntasks = _at_least_one(request.ntasks, 2025, "--ntasks")
    cap = _at_least_one(request.ntasks_per_node, 2025, "--ntasks-per-node")
    per_gpu = _at_least_one(request.ntasks_per_gpu, 2025, "--ntasks-per-gpu")
    nodelist = _hosts(request.nodelist, "--nodelist")

    total_count, each, task = _count(total), _count(per_node), _count(per_task)
    if total_count and each:
        # All nodes have the same number, so the job's total is a number of nodes.
        wanted = _quotient(total_count, each, "--gpus", "--gpus-per-node")
        if most and not least <= wanted <= most:
            raise _gres(
                f"--gpus={total_count} with --gpus-per-node={each} needs {wanted} nodes, {least}-{most} are asked for"
            )
        least = most = wanted
        total, total_count = (), 0
    if total_count and task:
        wanted = _quotient(total_count, task, "--gpus", "--gpus-per-task")
        ntasks = _same(ntasks, wanted, f"--gpus={total_count} with --gpus-per-task={task}")
        total, total_count = (), 0
    if task and not ntasks and not each and not cap:
        raise InvalidInput(
            slurm_text(2072), "--gpus-per-task needs a number of tasks: give --ntasks, or --gpus", slurm_code=2072
        )
    if each and task:
        fit = _quotient(each, task, "--gpus-per-node", "--gpus-per-task")
        cap = min(cap, fit) if cap else fit
    if per_gpu and total_count:
        ntasks = _same(ntasks, total_count * per_gpu, f"--ntasks-per-gpu={per_gpu} with --gpus={total_count}")
    if per_gpu and each:
        cap = min(cap, each * per_gpu) if cap else each * per_gpu
    if per_gpu and not total_count and not each and not task:
        if not ntasks:
            raise _gres("--ntasks-per-gpu needs a number of GPUs or of tasks")
        if ntasks % per_gpu:
            raise _gres(f"--ntasks={ntasks} is no multiple of --ntasks-per-gpu={per_gpu}")

    if ntasks and cap and most and ntasks > cap * most:
        raise InvalidInput(
            slurm_text(2025),
            f"{ntasks} tasks with at most {cap} on a node do not fit on {most} node{'s' if most > 1 else ''}",
            slurm_code=2025,
        )
    least = max(least, len(nodelist))
    if most and most < least:
        raise _node_count(f"--nodelist names {len(nodelist)} nodes, --nodes allows {most}")
    if ntasks:
        if cap:
            least = max(least, -(-ntasks // cap))
        if ntasks < least:
            # "can't run 2 processes on 4 nodes, setting nnodes to 2"; named nodes stay.
            least = max(ntasks, len(nodelist))
            most = least if most else 0
        if most:
            most = max(min(most, ntasks), least)
        if ntasks == 1 and least == 1 and not total_count:
            most = 1
    elif most == least and not total_count:
        ntasks = least * (cap or 1)
    elif not most and least == 1 and not total_count and not nodelist:
        ntasks, most = cap or 1, 1
    memory = _memory(request)
    if by_task.gres and not ntasks and not cap and not (most == least and not total_count):
        ntasks = 1
    if cpus and request.cpus_per_gpu:
        raise InvalidInput("--cpus-per-task, --tres-per-task=cpu:#, and --cpus-per-gpu are mutually exclusive")
    switches, switches_wait = parse_switches(request.switches) if request.switches else (0, -1)
    segment, segment_level = parse_segment(str(request.segment)) if request.segment is not None else (0, "")
    return Request(
        nodes_min=least,
        nodes_max=most,
        ntasks=ntasks,
        ntasks_per_node=cap,
        cpus_per_task=max(1, cpus or 1),
        min_cpus=request.mincpus or 0,
        memory_per_node_mib=memory,
        memory_per_cpu_mib=request.mem_per_cpu or 0,
        memory_per_gpu_mib=request.mem_per_gpu or 0,
        tmp_mib=request.tmp or 0,
        time_min_minutes=max(0, request.time_min or 0),
        gpus_per_node=per_node,
        gpus=total,
        gpus_per_task=per_task,
        cpus_per_gpu=request.cpus_per_gpu or 0,
        ntasks_per_gpu=per_gpu,
        constraint=(request.constraint or "").strip(),
        nodelist=nodelist,
        exclude=_hosts(request.exclude, "--exclude"),
        exclusive=_exclusive(request.exclusive),
        oversubscribe=bool(request.oversubscribe),
        overcommit=bool(request.overcommit),
        reservations=reservation_names(request.reservation),
        prefer=(request.prefer or "").strip(),
        topology=topology_text(request.topology),
        switches=switches,
        switches_wait_seconds=switches_wait,
        segment=segment,
        segment_level=segment_level,
        spread_segments=bool(request.spread_segments),
        consolidate_segments=bool(request.consolidate_segments),
        contiguous=bool(request.contiguous),
        spread_job=bool(request.spread_job),
        use_min_nodes=bool(request.use_min_nodes),
        licenses=_licenses(request, by_task, ntasks or least, settings),
        fine=fine_request(request, settings, gres=gres, by_task=by_task, per_socket=per_socket, cpus=cpus),
    )


def parse_gpus(text: str) -> tuple[GpuRequest, ...]:
    """Read `4`, `a100:2` or `a100:2,h100:1`; zero counts fall away.

    Raises:
        InvalidInput: no such list, or counts with and without a type in one.
    """
    found: dict[str, int] = {}
    for item in text.split(",") if text.strip() else ():
        kind, colon, number = item.strip().rpartition(":")
        if colon and not kind:
            raise _gres(f"`{item[:60]}` names no type before the colon")
        _add_gpus(found, kind, number, item)
    return _requests(found)


def _gpus_per_node(request: JobRequest, settings: Settings) -> tuple[tuple[GpuRequest, ...], tuple[GresRequest, ...]]:
    from_gres, others = parse_gres(request.gres or "", settings)
    if request.gpus_per_node is None:
        return from_gres, others
    if from_gres:
        raise InvalidInput("--gpus-per-node and --gres=gpu are mutually exclusive.")
    return parse_gpus(request.gpus_per_node), others


def parse_gres(text: str, settings: Settings) -> tuple[tuple[GpuRequest, ...], tuple[GresRequest, ...]]:
    """Read `gpu`, `gpu:2`, `gpu:a100:2,nic:1`; `none` is nothing. Gives GPUs, and all others.

    Raises:
        InvalidInput: an unknown name, or a count that is none; naming the known ones.
    """
    found: dict[str, dict[str, int]] = {}
    if text.strip().lower() in ("", "none"):
        return (), ()
    for item in text.split(","):
        name, *parts = item.strip().removeprefix("gres/").replace("=", ":").split(":")
        known_gres(name, settings)
        number = parts.pop() if parts and _is_count(parts[-1]) else "1"
        if len(parts) > 1:
            raise _gres(f"`{item[:60]}` is not name[:type][:count]")
        _add_gres(found.setdefault(name, {}), parts[0] if parts else "", number, item, name)
    gpus = _requests(found.pop("gpu", {}))
    return gpus, gres_requests(found)


def _is_count(text: str) -> bool:
    """A last part that begins with a digit is a count, but for the 1g.10gb of a MIG slice, which is a type."""
    return text[:1].isdigit() and _MIG_PROFILE.match(text) is None


def _add_gpus(found: dict[str, int], kind: str, number: str, item: str) -> None:
    _add_gres(found, kind, number, item, "gpu")


def _add_gres(found: dict[str, int], kind: str, number: str, item: str, name: str) -> None:
    try:
        count = parse_count(number, "KMGTP")
    except InvalidInput:
        raise _gres(f"`{item[:60]}` has no count; write for example 2 or a100:2") from None
    if kind in found:
        raise InvalidInput(slurm_text(2102), f"`{kind or name}` is given twice", slurm_code=2102)
    if count > (1_000_000 if name == "gpu" else 1 << 60):
        raise _gres(f"`{item[:60]}` asks for more than a million")
    found[kind] = count
    if "" in found and len(found) > 1:
        raise InvalidInput(slurm_text(2119), f"in `{item[:60]}`", slurm_code=2119)
    if len(found) > MAX_GPU_KINDS:
        raise _gres(f"more than {MAX_GPU_KINDS} types")


def _requests(found: dict[str, int]) -> tuple[GpuRequest, ...]:
    return tuple(GpuRequest(kind, count) for kind, count in sorted(found.items()) if count)


def _count(gpus: tuple[GpuRequest, ...]) -> int:
    return sum(one.count for one in gpus)


def _nodes(request: JobRequest) -> tuple[int, int]:
    """Give the fewest and most nodes; most is 0 when not given."""
    if request.nodes is None:
        return 1, 0
    if isinstance(request.nodes, NodeSizes):
        sizes = sorted(set(request.nodes.sizes))
        if len(sizes) > 1 and sizes != list(range(sizes[0], sizes[-1] + 1)):
            raise _unsupported("a list of node counts with gaps in --nodes")
        least, most = sizes[0], sizes[-1]
    else:
        least, most = request.nodes
    if least < 1:
        raise _node_count("at least one node must be asked for")
    if most < least:
        raise _node_count(f"the most, {most}, is less than the least, {least}")
    return least, most


def _at_least_one(number: int | None, code: int, option: str) -> int:
    if number is None:
        return 0
    if number < 1:
        raise InvalidInput(slurm_text(code), f"{option} must be at least 1", slurm_code=code)
    return number


def _quotient(whole: int, part: int, whole_name: str, part_name: str) -> int:
    if whole % part:
        raise _gres(f"{whole_name}={whole} is no multiple of {part_name}={part}")
    return whole // part


def _same(given: int, derived: int, source: str) -> int:
    if given and given != derived:
        raise _gres(f"{source} means {derived} tasks, --ntasks says {given}")
    return derived


def _memory(request: JobRequest) -> int:
    given = [option for option in (request.mem, request.mem_per_cpu, request.mem_per_gpu) if option is not None]
    if len(given) > 1:
        raise InvalidInput("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    if given == [0]:
        return 0
    return -1 if request.mem is None else request.mem


def _exclusive(word: str | None) -> str:
    if word in (None, ""):
        return ""
    if word in ("node", "user"):
        return word
    raise _unsupported(f"--exclusive={word}")


def _of_sockets(
    per_socket: tuple[GpuRequest, ...], per_node: tuple[GpuRequest, ...], request: JobRequest
) -> tuple[GpuRequest, ...]:
    """Give the GPUs of a node that --gpus-per-socket means."""
    sockets = sockets_cores_threads(request)[0]
    if not sockets:
        raise _gres("--gpus-per-socket needs a number of sockets: give --sockets-per-node")
    meant = tuple(GpuRequest(one.type, one.count * sockets) for one in per_socket)
    if per_node and per_node != meant:
        raise _gres(f"--gpus-per-socket on {sockets} sockets means other GPUs of a node than were asked for")
    return meant


def _licenses(request: JobRequest, by_task: PerTask, tasks: int, settings: Settings) -> str:
    wanted = licenses.parse(request.licenses or "", settings)
    for name, count in by_task.licenses:
        wanted = licenses.with_more(wanted, name, count * max(1, tasks), settings)
    return licenses.text_of(wanted)


def _hosts(text: str | None, option: str) -> tuple[str, ...]:
    """Expand a host list, each host once, in natural order: equal sets are equal texts."""
    if not text or not text.strip():
        return ()
    try:
        return tuple(hostlist.Hostlist.parse(text).uniq())
    except InvalidInput as error:
        raise InvalidInput(slurm_text(2018), f"{option}: {error}", slurm_code=2018) from None


# ---- the rest --------------------------------------------------------------------------------------------------


def _array(request: JobRequest, settings: Settings) -> tuple[ArraySpec | None, int]:
    if request.array is None:
        return None, 0
    if not request.batch:
        raise InvalidInput(slurm_text(2039), "only batch jobs can be arrays", slurm_code=2039)
    try:
        indices, limit = idset.parse_array(request.array, settings.max_array_size)
    except InvalidInput as error:
        over = "over the limit" in error.hint
        hint = f"{error.hint} (MaxArraySize={settings.max_array_size} in the configuration)" if over else error.hint
        raise InvalidInput(slurm_text(2081), hint, slurm_code=2081) from None
    runs = indices.to_tuple()
    tasks: Ranges = ()
    for first, last, step in runs:
        tasks = (
            ranges.union(tasks, ranges.from_step(first, last, step)) if tasks else ranges.from_step(first, last, step)
        )
    step = runs[0][2] if len(runs) == 1 and runs[0][0] != runs[0][1] else 1
    if len(runs) == 2 and all(first == last for first, last, _ in runs):
        step = runs[1][0] - runs[0][0]
    return ArraySpec(tasks=tasks, size=len(indices), step=step), limit


def _check_sizes(request: JobRequest, settings: Settings) -> None:
    size = len(request.script.encode("utf-8", "surrogateescape"))
    if size > settings.max_script_bytes:
        raise TooLarge(
            slurm_text(2012),
            f"the script has {size} bytes, the bound is {settings.max_script_bytes} (max_script_size)",
            slurm_code=2012,
        )
    if request.batch and not request.script:
        raise InvalidInput(slurm_text(2009), slurm_code=2009)
    if "\0" in request.script:
        raise InvalidInput("The Slurm controller does not allow scripts that contain a NULL character '\\0'.")
    if not _work_dir(request):
        raise InvalidInput(slurm_text(2063), slurm_code=2063)


def _work_dir(request: JobRequest) -> str:
    return request.chdir or request.work_dir


def _default_name(request: JobRequest) -> str:
    if not request.batch:
        return "interactive"
    return request.command.rpartition("/")[2] or "sbatch"


def _partitions(text: str | None) -> tuple[str, ...]:
    """Give the names in the order asked for, each once; none: the default partition."""
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if len(names) > MAX_PARTITIONS:
        raise TooLarge(slurm_text(2000), f"--partition takes {MAX_PARTITIONS} names", slurm_code=2000)
    return names


def reservation_names(text: str | None) -> tuple[str, ...]:
    """Give the names of a list of reservations in its order, each once.

    Raises:
        TooLarge: more than MAX_RESERVATIONS.
    """
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if len(names) > MAX_RESERVATIONS:
        raise TooLarge(slurm_text(2053), f"--reservation takes {MAX_RESERVATIONS} names", slurm_code=2053)
    return names


def _time_limit(minutes: int | None) -> int:
    """Give the limit as stored: 0 is not given, so that unlimited (0 or -1 on the wire) is -1."""
    if minutes is None:
        return 0
    return minutes if minutes > 0 else UNLIMITED


def _signal(text: str | None) -> SignalSpec | None:
    if not text:
        return None
    shell_only, _, signo, seconds = parse_signal_option(text)
    return SignalSpec(signo=signo, seconds=seconds, shell_only=shell_only)


def _gres(hint: str) -> InvalidInput:
    return InvalidInput(slurm_text(2072), hint, slurm_code=2072)


def _node_count(hint: str) -> InvalidInput:
    return InvalidInput(slurm_text(2006), hint, slurm_code=2006)


def _unsupported(what: str) -> Refused:
    return Refused(slurm_text(2036), f"{what} is not supported", slurm_code=2036)

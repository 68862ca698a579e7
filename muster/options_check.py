"""Judge merged options: what contradicts itself, what is only warned about, what this release does not do yet."""

from __future__ import annotations

from muster.options import OptionError, Values, rows_of
from muster.options_table import ACTED, WITHOUT_EFFECT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY_KEYS = ("mem", "mem_per_cpu", "mem_per_gpu")
GPU_KEYS = ("gpus", "gpus_per_node", "gpus_per_socket", "gpus_per_task")
_HINT_HELP = (
    "Application hint options:",
    "    --hint=                     Bind tasks according to application hints",
    "        compute_bound           use all cores in each socket",
    "        memory_bound            use only one core in each socket",
    "        [no]multithread         [don't] use extra threads with in-core multi-threading",
    "        help                    show this help message",
)
MPI_KINDS = ("cray_shasta", "pmi2", "pmix")


def check(command: str, values: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Judge the merged values of a command.

    Args:
        command: sbatch, srun or salloc.
        values: what `muster.options.merge` gave, or a plain dict.

    Returns:
        The values to send (a plain dict; sizes that contradict are settled as the reference does), and warnings,
        each one sentence to print behind `<command>: warning: `.

    Raises:
        OptionError: exit code 1; options exclude each other, or one is not supported by this release.
    """
    checked = dict(values)
    warnings: list[str] = []
    _exclusive_options(command, checked, values)
    _resource_texts(command, checked)
    _placed(command, checked)
    _sizes(command, checked, warnings)
    _refuse_unsupported(command, checked, values, warnings)
    _keep_in_step(checked)
    if command == "srun":
        _exactness(checked)
    return checked, warnings


def _fatal(command: str, text: str) -> OptionError:
    return OptionError([f"{command}: fatal: {text}"], 1)


def _error(command: str, text: str) -> OptionError:
    return OptionError([f"{command}: error: {text}"], 1, is_verification=True)


def _exclusive_options(command: str, values: dict[str, object], given: Mapping[str, object]) -> None:
    if values.get("quiet") and values.get("verbose"):
        raise _error(command, "don't specify both --verbose (-v) and --quiet (-Q)")
    memory = [key for key in MEMORY_KEYS if key in values]
    if len(memory) > 1:
        sources = given.sources if isinstance(given, Values) else {}
        if all(sources.get(key, "argv") not in ("argv", "script") for key in memory):
            raise _fatal(
                command, "SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive."
            )
        raise _fatal(command, "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    per_task = _per_task_names(command, values)
    if "cpu" in per_task and "cpus_per_task" in values:
        raise _fatal(
            command,
            "You can not have --tres-per-task=cpu= and --cpus-per-task please use one or the other",
        )
    if "cpus_per_gpu" in values and ("cpus_per_task" in values or "cpu" in per_task):
        raise _fatal(command, "--cpus-per-task, --tres-per-task=cpu:#, and --cpus-per-gpu are mutually exclusive")
    if "ntasks_per_gpu" in values:
        for other in ("gpus-per-task", "gpus-per-socket", "ntasks-per-node", "tres-per-task"):
            if other.replace("-", "_") in values:
                raise _fatal(command, f"--{other} is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU")
    if "exclusive" in values and values.get("oversubscribe"):
        raise _fatal(command, "--exclusive and --oversubscribe options are mutually exclusive")
    if "core_spec" in values and "thread_spec" in values:
        # The odd spelling is the reference's.
        raise _fatal(command, "-S/--core-spec and --thred-spec options are mutually exclusive")
    begin, deadline = values.get("begin"), values.get("deadline")
    if isinstance(begin, int) and isinstance(deadline, int) and begin > deadline:
        raise _error(command, "Incompatible begin and deadline time specification")


def _per_task_names(command: str, values: Mapping[str, object]) -> list[str]:
    text = values.get("tres_per_task")
    if text is None:
        return []
    from muster.errors import InvalidInput
    from muster.gres_text import parse_tres_per_task

    try:
        return [name for name, _, _ in parse_tres_per_task(str(text))]
    except InvalidInput as exc:
        raise _fatal(command, exc.sentence) from None


def _resource_texts(command: str, values: Mapping[str, object]) -> None:
    """Read the resource texts once, so that the user hears of a mistake here and not from the controller."""
    if not any(key in values for key in ("gres", *GPU_KEYS)):
        return
    from muster.errors import InvalidInput
    from muster.gres_text import parse_gpus, parse_gres

    try:
        gres = values.get("gres")
        if gres is not None and str(gres).lower() not in ("help", "list"):
            names = [name for name, _, _ in parse_gres(str(gres))]
            if "gpu" in names and "gpus_per_node" in values:
                raise _fatal(command, "--gpus-per-node and --gres=gpu are mutually exclusive.")
        for key in GPU_KEYS:
            if key in values:
                parse_gpus(str(values[key]))
    except OptionError:
        raise
    except InvalidInput as exc:
        raise _error(command, exc.sentence) from None


def _placed(command: str, values: dict[str, object]) -> None:
    """Say --place and --bundle by the options that mean the same, and the wait for switches where their number is."""
    wait = values.pop("switches_wait", None)
    if wait is not None and "@" not in str(values.get("switches", "@")):
        values["switches"] = f"{values['switches']}@{wait}"
    if "bundle" in values or "place" in values:
        from muster.errors import InvalidInput
        from muster.placement_options import as_options

        try:
            as_options(values)
        except InvalidInput as exc:
            raise _fatal(command, exc.sentence) from None


def _sizes(command: str, values: dict[str, object], warnings: list[str]) -> None:
    distribution = str(values.get("distribution", "")).lower()
    nodes, ntasks = values.get("nodes"), values.get("ntasks")
    least, most = (nodes[0], nodes[1]) if isinstance(nodes, list) else (0, 0)
    if distribution.startswith("arbitrary"):
        if "nodelist" not in values:
            raise _error(
                command,
                "With Arbitrary distribution you need to specify a nodelist or hostfile with the -w option",
            )
        if "nodes" in values:
            raise _error(command, "--nodes is incompatible with --distribution=arbitrary")
    per_core, threads = values.get("ntasks_per_core"), values.get("threads_per_core")
    if isinstance(per_core, int) and isinstance(threads, int) and per_core > threads:
        raise _error(
            command,
            f"--ntasks-per-core ({per_core}) can not be bigger than --threads-per-core ({threads})",
        )
    if not isinstance(ntasks, int):
        return
    if distribution.startswith("plane=") and least and ntasks < least:
        raise _error(command, "Too few processes for the requested {plane,node} distribution")
    if least > ntasks:
        warnings.append(f"can't run {ntasks} processes on {least} nodes, setting nnodes to {ntasks}")
        least = ntasks
        most = min(most, ntasks) if most else ntasks
        values["nodes"] = [least, most]
    per_node = values.get("ntasks_per_node")
    if command == "srun" and isinstance(per_node, int) and most and per_node != -(-ntasks // most):
        warnings.append(
            f"can't honor --ntasks-per-node set to {per_node} which doesn't match the requested tasks {ntasks} "
            f"with the maximum number of requested nodes {most}. Ignoring --ntasks-per-node."
        )
        del values["ntasks_per_node"]


def _refuse_unsupported(
    command: str, checked: dict[str, object], given: Mapping[str, object], warnings: list[str]
) -> None:
    """Refuse by name what is in the table and not acted on; nothing is accepted and forgotten.

    A SLURM_ variable only warns and is left out: a surrounding job, not the user, may have set it.
    """
    sources = given.sources if isinstance(given, Values) else {}
    options = given.options if isinstance(given, Values) else {}
    lines: list[str] = []
    for key in list(checked):
        option = options.get(key) or _option_of(command, key)
        named = f"--{option}"
        if option in WITHOUT_EFFECT:
            del checked[key]
            continue
        if option in ACTED[command]:
            bad = _unsupported_value(command, key, checked[key])
            if not bad:
                continue
            if isinstance(bad, list):
                raise OptionError([f"{command}: error: {text}" for text in bad], 1, is_verification=True)
            named = bad
        source = sources.get(key, "argv")
        if source.startswith("SLURM_"):
            warnings.append(f"{source} is ignored: {named} is not supported by this release of Muster")
            del checked[key]
            continue
        if source not in ("argv", "script"):
            named = f"{source} ({named})"
        lines.append(f"{command}: error: {named} is not supported by this release of Muster")
    if lines:
        raise OptionError(lines, 1)


def _option_of(command: str, key: str) -> str:
    for long, row in rows_of(command)[0].items():
        if (row[5] or long.replace("-", "_")) == key:
            return long
    return key.replace("_", "-")


def _unsupported_value(command: str, key: str, value: object) -> str | list[str]:
    """Give the option with its value when only this value is not acted on, or the reference's lines, or ""."""
    if key == "distribution":
        first, *levels = str(value).lower().partition(",")[0].split(":")
        # Sockets and cores are not bound to tasks yet, and a host file is not read.
        return f"--distribution={value}" if first == "arbitrary" or any(level != "*" for level in levels) else ""
    if key == "hint" and value == "help":
        raise OptionError(list(_HINT_HELP), 0)
    if key == "requeue" and value == "expedite":
        return "--requeue=expedite"
    if key == "exclusive" and value == "allocation" and command != "srun":
        raise OptionError([f"{command}: error: Invalid --exclusive specification"], 255)
    if key == "mpi" and value not in ("none", "list"):
        kind = str(value)
        if kind.partition("_v")[0] in MPI_KINDS:
            return f"--mpi={kind}"
        return [
            f"MPI: Cannot create context for mpi/{kind}",
            "MPI: Unable to load any plugin",
            f"Invalid MPI type '{kind}', --mpi=list for acceptable types",
        ]
    return ""


def _keep_in_step(values: dict[str, object]) -> None:
    """Say what --tres-per-task means for CPUs and GPUs by the options of that name, too."""
    text = values.get("tres_per_task")
    if text is None:
        return
    from muster.gres_text import parse_tres_per_task

    entries = parse_tres_per_task(str(text))
    gpus = [f"{kind}:{count}" if kind else str(count) for name, kind, count in entries if name == "gres/gpu"]
    if gpus:
        values.setdefault("gpus_per_task", ",".join(sorted(gpus)))
    for name, _, count in entries:
        if name == "cpu":
            values.setdefault("cpus_per_task", count)


def _exactness(values: dict[str, object]) -> None:
    """Say outright what implies `--exact` in srun: -c, --cpus-per-gpu, and a plain --exclusive."""
    if values.get("exclusive") == "allocation":
        values["exclusive"] = "node"
    elif values.get("exclusive") == "node":
        values["exact"] = True
    if "cpus_per_task" in values or "cpus_per_gpu" in values:
        values["exact"] = True

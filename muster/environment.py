"""What of the caller's surroundings goes with a job: environment variables, resource limits, umask."""

from __future__ import annotations

from muster.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# A credential of the caller: it is not for the job, and not to be stored with it.
SECRET = "SLURM_JWT"
_SYSTEM = ("SLURM_", "SPANK_", "_SPANK_")
LARGEST_EXPORT_FILE_BYTES = 64 * 1024 * 1024


def exported(
    environ: Mapping[str, str], export_option: str | None, command: str
) -> tuple[dict[str, str], str | None, bool, list[str]]:
    """Select the variables that `--export` lets through.

    sbatch applies a list from left to right, and a list, like NONE, brings the login environment in on the node.
    srun takes the caller's own value before a value of the list when the list has ALL, and knows no login
    environment: with NONE or NIL nothing goes but what the launcher sets itself.

    Args:
        environ: the caller's environment.
        export_option: the text of `--export`, or None.
        command: sbatch or srun.

    Returns:
        The variables (for sbatch with SLURM_EXPORT_ENV and SLURM_GET_USER_ENV where they apply); the text for
        SLURM_EXPORT_ENV, or None for everything; whether the login environment is added on the node; warnings.
    """
    if export_option is None or export_option.upper() == "ALL":
        variables = _everything(environ, command)
        if export_option is not None:
            variables.pop("SLURM_EXPORT_ENV", None)
        return variables, None, False, []
    word = export_option.upper()
    is_batch = command != "srun"
    get_user_env = is_batch and word != "NIL"
    warnings: list[str] = []
    if word in ("NONE", "NIL"):
        variables = _system_ones(environ) if is_batch else {}
    else:
        variables, warnings = _apply_list(environ, export_option, command)
    if is_batch:
        variables["SLURM_EXPORT_ENV"] = export_option
        if get_user_env:
            variables["SLURM_GET_USER_ENV"] = "1"
    return variables, export_option, get_user_env, warnings


def _everything(environ: Mapping[str, str], command: str) -> dict[str, str]:
    variables = dict(environ)
    if command != "srun":
        variables.pop(SECRET, None)
    return variables


def _system_ones(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if name.startswith(_SYSTEM) and name != SECRET}


def _apply_list(environ: Mapping[str, str], text: str, command: str) -> tuple[dict[str, str], list[str]]:
    items = split_items(text)
    has_all = any(item.upper() == "ALL" for item in items)
    variables = _system_ones(environ)
    for item in items:
        name, equals, value = item.partition("=")
        if item.upper() == "ALL":
            variables.update(_everything(environ, command))
        elif equals:
            if not (command == "srun" and has_all and name in environ):
                variables[name] = value
        elif name in environ and name != SECRET:
            variables[name] = environ[name]
    warnings: list[str] = []
    if not has_all and "PATH" in environ and "PATH" not in variables:
        where = "the program" if command == "srun" else "programs that srun starts in the job"
        warnings.append(
            f"--export={text} leaves PATH out, so {where} may not be found by name; "
            f"write --export=ALL,{text} to keep the rest"
        )
    return variables, warnings


def split_items(text: str) -> list[str]:
    """Split the text of `--export` at the commas outside quotes; the quotes stay part of the value."""
    items: list[str] = []
    quote = ""
    start = 0
    for index, letter in enumerate(text):
        if quote:
            if letter == quote:
                quote = ""
        elif letter in "\"'":
            quote = letter
        elif letter == ",":
            items.append(text[start:index])
            start = index + 1
    items.append(text[start:])
    return [item for item in items if item]


def read_export_file(source: str) -> dict[str, str]:
    """Read `--export-file`: NUL-separated `NAME=value` texts of a file, or of a descriptor given as a number.

    Raises:
        InvalidInput: it cannot be read, is larger than 64 MiB, or holds a text without a name.
    """
    import os

    is_descriptor = source.isascii() and source.isdigit()
    try:
        with open(int(source) if is_descriptor else source, "rb", closefd=not is_descriptor) as file:
            data = file.read(LARGEST_EXPORT_FILE_BYTES + 1)
    except (OSError, OverflowError):
        raise InvalidInput(f"Could not open user environment file {source}") from None
    if len(data) > LARGEST_EXPORT_FILE_BYTES:
        raise InvalidInput(f"User environment file {source} is larger than {LARGEST_EXPORT_FILE_BYTES >> 20} MiB")
    variables: dict[str, str] = {}
    for text in data.split(b"\0"):
        if not text.strip():
            continue
        name, equals, value = os.fsdecode(text).partition("=")
        if not name or not equals:
            raise InvalidInput(
                f"User environment file {source} has {os.fsdecode(text)[:60]!r}, which is not NAME=value",
                "separate the entries with NUL bytes, as `env -0` does",
            )
        variables[name] = value
    return variables


def user_rlimits() -> dict[str, int]:
    """Give the caller's soft resource limits by lower-case name without `RLIMIT_`; -1 is unlimited."""
    import resource

    limits: dict[str, int] = {}
    for name in ("as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack"):
        soft = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0]
        limits[name] = -1 if soft == resource.RLIM_INFINITY else soft
    return limits


def propagated_rlimits(propagate: str | None) -> dict[str, int]:
    """Give the limits that go with a job: those named, all for ALL or None, nothing for NONE.

    Args:
        propagate: the value of `--propagate`, names in capitals joined by commas, or None.
    """
    if propagate == "NONE":
        return {}
    limits = user_rlimits()
    if propagate is None or propagate == "ALL":
        return limits
    return {name: limit for name, limit in limits.items() if name.upper() in propagate.split(",")}


def current_umask() -> int:
    """Give the caller's umask."""
    import os

    # There is no call that only reads it. Commands have one thread, so nobody sees the moment between.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Options whose text a job sees again in its environment. Node, task and memory sizes are missing here where the
# controller knows them better (what was allocated, not what was asked).
_ECHOED = (
    ("acctg_freq", "SLURM_ACCTG_FREQ"),
    ("cpus_per_gpu", "SLURM_CPUS_PER_GPU"),
    ("cpus_per_task", "SLURM_CPUS_PER_TASK"),
    ("dependency", "SLURM_JOB_DEPENDENCY"),
    ("distribution", "SLURM_DISTRIBUTION"),
    ("gpu_bind", "SLURM_GPU_BIND"),
    ("gpu_freq", "SLURM_GPU_FREQ"),
    ("gpus", "SLURM_GPUS"),
    ("gpus_per_node", "SLURM_GPUS_PER_NODE"),
    ("gpus_per_socket", "SLURM_GPUS_PER_SOCKET"),
    ("gpus_per_task", "SLURM_GPUS_PER_TASK"),
    ("mem_per_gpu", "SLURM_MEM_PER_GPU"),
    ("network", "SLURM_NETWORK"),
    ("ntasks_per_core", "SLURM_NTASKS_PER_CORE"),
    ("ntasks_per_gpu", "SLURM_NTASKS_PER_GPU"),
    ("ntasks_per_node", "SLURM_NTASKS_PER_NODE"),
    ("ntasks_per_socket", "SLURM_NTASKS_PER_SOCKET"),
    ("open_mode", "SLURM_OPEN_MODE"),
    ("profile", "SLURM_PROFILE"),
    ("threads_per_core", "SLURM_THREADS_PER_CORE"),
    ("tres_bind", "SLURM_TRES_BIND"),
    ("tres_per_task", "SLURM_TRES_PER_TASK"),
)


def echoed(values: Mapping[str, object]) -> dict[str, str]:
    """Give the SLURM_ variables that repeat options inside the job, each only if its option was given.

    Args:
        values: the checked values (`muster.options_check.check`).
    """
    echo = {variable: str(values[key]) for key, variable in _ECHOED if key in values}
    distribution = echo.get("SLURM_DISTRIBUTION", "")
    if distribution.lower().startswith("plane="):
        echo["SLURM_DISTRIBUTION"] = "plane"
        echo["SLURM_DIST_PLANESIZE"] = distribution[6:].partition(",")[0]
    if values.get("overcommit"):
        echo["SLURM_OVERCOMMIT"] = "1"
    if "segment" in values:
        echo["SLURM_JOB_SEGMENT_SIZE"] = str(values["segment"]).partition(":")[0]
    return echo

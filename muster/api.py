"""The user API's types: what clients send to the controller.

For daemons only; commands write their JSON by hand. Unknown fields are errors, so that no option is accepted and
forgotten, and every text and list has a bound. `decode` turns what does not fit into one sentence that names the
field and the bound.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from muster.errors import InvalidInput, MusterError, TooLarge

MAX_SCRIPT_CHARACTERS = 64 * 1024 * 1024
"""Hard bound of a script; `Settings.max_script_bytes` is the bound that an administrator sets below it."""
MAX_ENVIRONMENT_BYTES = 16 * 1024 * 1024
"""Most bytes of an environment in all."""

Word = Annotated[str, Meta(max_length=1024)]
"""A name, a count, a list of a few names."""
Text = Annotated[str, Meta(max_length=65536)]
"""Free text, a path, a host list."""
Entry = Annotated[str, Meta(max_length=131072)]
"""One argument or NAME=value: the kernel takes no longer one (MAX_ARG_STRLEN)."""
Ids = Annotated[str, Meta(max_length=1048576)]
"""A list of job ids."""
Count = Annotated[int, Meta(ge=0, le=2147483647)]
Limit = Annotated[int, Meta(ge=-1, le=2147483647)]
"""Minutes; -1 is unlimited."""
Mib = Annotated[int, Meta(ge=0, le=2**50)]
Epoch = Annotated[int, Meta(ge=0, le=2**40)]
"""Seconds since the epoch; 0 is not set."""
Priority = Annotated[int, Meta(ge=0, le=4294967293)]
Nice = Annotated[int, Meta(ge=-2147483645, le=2147483645)]
Arguments = Annotated[list[Entry], Meta(max_length=65536)]
Environment = Annotated[list[Entry], Meta(max_length=65536)]
Names = Annotated[list[Word], Meta(max_length=10000)]
Rlimits = Annotated[dict[Word, Annotated[int, Meta(ge=-1)]], Meta(max_length=32)]
Echo = Annotated[dict[Word, Text], Meta(max_length=64)]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what a client may send."""


class NodeSizes(Message, frozen=True):
    """`--nodes=1,2,4`: one of these node counts."""

    sizes: Annotated[list[Count], Meta(min_length=1, max_length=65536)]


class JobRequest(Message, frozen=True):
    """Body of POST /v1/jobs: the options that were given, and what the client knows of the place of submission.

    The first group are values of job options as `muster.options` makes them; None is not given.
    """

    account: Word | None = None
    array: Text | None = None
    begin: Epoch | None = None
    chdir: Text | None = None
    comment: Text | None = None
    consolidate_segments: bool | None = None
    constraint: Text | None = None
    contiguous: bool | None = None
    core_spec: Count | None = None
    cores_per_socket: Count | None = None
    cpus_per_gpu: Count | None = None
    cpus_per_task: Count | None = None
    deadline: Epoch | None = None
    dependency: Text | None = None
    error: Text | None = None
    exclude: Text | None = None
    exclusive: Word | None = None
    """node, user; mcs and topo are refused by name."""
    extra_node_info: Annotated[list[Count], Meta(min_length=3, max_length=3)] | None = None
    """Sockets, cores of a socket, threads of a core; 0 is any."""
    gpus: Text | None = None
    gpus_per_node: Text | None = None
    gpus_per_socket: Text | None = None
    gpus_per_task: Text | None = None
    gres: Text | None = None
    gres_flags: Word | None = None
    hint: Word | None = None
    hold: bool | None = None
    input: Text | None = None
    job_name: Word | None = None
    kill_on_invalid_dep: bool | None = None
    licenses: Text | None = None
    mem: Mib | None = None
    mem_per_cpu: Mib | None = None
    mem_per_gpu: Mib | None = None
    mincpus: Count | None = None
    nice: Nice | None = None
    nodelist: Text | None = None
    nodes: Annotated[list[Count], Meta(min_length=2, max_length=2)] | NodeSizes | None = None
    """[least, most]."""
    ntasks: Count | None = None
    ntasks_per_core: Count | None = None
    ntasks_per_gpu: Count | None = None
    ntasks_per_node: Count | None = None
    ntasks_per_socket: Count | None = None
    open_mode: Literal["a", "t"] | None = None
    output: Text | None = None
    overcommit: bool | None = None
    oversubscribe: bool | None = None
    partition: Word | None = None
    prefer: Text | None = None
    priority: Priority | Literal["TOP"] | None = None
    qos: Word | None = None
    requeue: bool | Literal["expedite"] | None = None
    reservation: Word | None = None
    """Names, separated by commas, in the order in which they are tried."""
    segment: Count | Word | None = None
    """Nodes of a segment; a text where a level follows: `8:required:rack`."""
    signal: Word | None = None
    sockets_per_node: Count | None = None
    spread_job: bool | None = None
    spread_segments: bool | None = None
    switches: Word | None = None
    """`2`, or with the time to wait for so few `2@10:00`."""
    thread_spec: Count | None = None
    threads_per_core: Count | None = None
    time_limit: Limit | None = None
    """Minutes; 0 and -1 are unlimited."""
    topology: Word | None = None
    """`required:LEVEL`, `preferred:LEVEL` or `unconstrained`."""
    tres_per_task: Text | None = None
    time_min: Limit | None = None
    tmp: Mib | None = None
    use_min_nodes: bool | None = None
    wckey: Word | None = None

    batch: bool = True
    """False: an allocation for a waiting srun or salloc."""
    script: Annotated[str, Meta(max_length=MAX_SCRIPT_CHARACTERS)] = ""
    script_args: Arguments = []
    environment: Environment = []
    """NAME=value entries."""
    work_dir: Text = ""
    """Where the client ran; `chdir` wins over it."""
    submit_line: Annotated[str, Meta(max_length=1048576)] = ""
    command: Text = ""
    """Path of the script; empty for --wrap and standard input."""
    umask: Annotated[int, Meta(ge=0, le=0o777)] = 0o022
    rlimits: Rlimits = {}
    """Soft limits by lower-case name without RLIMIT_; -1 is infinity."""
    submit_host: Word = ""
    sid: Count = 0
    export: Text = ""
    get_user_env: bool = False
    echo: Echo = {}
    """SLURM_* variables that repeat given options inside the job."""
    test_only: bool = False
    """Judge and estimate, submit nothing."""


class CancelRequest(Message, frozen=True):
    """Body of POST /v1/jobs/cancel: these ids, and of them (or of all jobs) those that pass every filter."""

    ids: Annotated[list[Ids], Meta(max_length=10000)] = []
    """`5`, `5_3`, `5_[1-3,7]`, `5.0`."""
    user: Word | None = None
    """Name or number."""
    name: Word | None = None
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    reservation: Word | None = None
    state: Word | None = None
    """PENDING, RUNNING or SUSPENDED."""
    nodelist: Text | None = None
    wckey: Word | None = None
    signal: Word | None = None
    """Name or number; None: end the job."""
    batch: bool = False
    """Only the batch shell."""
    full: bool = False
    """The batch shell, its children and all steps."""


class HoldRequest(Message, frozen=True):
    """Body of POST /v1/jobs/hold: ids, or `name=<job name>`."""

    ids: Ids
    as_user: bool = False
    """uhold: the owner may release it."""


class ReleaseRequest(Message, frozen=True):
    """Body of POST /v1/jobs/release: ids, or `name=<job name>`."""

    ids: Ids


class RequeueRequest(Message, frozen=True):
    """Body of POST /v1/jobs/requeue."""

    ids: Ids
    hold: bool = False
    """requeuehold."""


class SuspendRequest(Message, frozen=True):
    """Body of POST /v1/jobs/suspend and /v1/jobs/resume."""

    ids: Ids


class UpdateJobRequest(Message, frozen=True):
    """Body of POST /v1/jobs/update; None: unchanged."""

    ids: Ids | None = None
    job_name: Word | None = None
    """Select by name in place of ids."""
    time_limit_minutes: Limit | None = None
    time_limit_change_minutes: Annotated[int, Meta(ge=-2147483647, le=2147483647)] | None = None
    """`+t` or `-t`: added to the limit in force."""
    nice: Nice | None = None
    priority: Annotated[int, Meta(ge=0, le=4294967295)] | None = None
    """4294967295 (INFINITE): as computed again."""
    site_factor: Nice | None = None
    name: Word | None = None
    comment: Text | None = None
    begin: Epoch | None = None
    dependency: Text | None = None
    """Empty: none."""
    array_limit: Count | None = None
    """0: no limit."""
    partition: Word | None = None
    requeue: bool | None = None
    deadline: Epoch | None = None
    time_min_minutes: Limit | None = None
    reservation: Word | None = None
    """Empty: none. The same holds for the next four."""
    prefer: Text | None = None
    segment: Word | None = None
    switches: Word | None = None
    topology: Word | None = None
    contiguous: bool | None = None


class UpdateNodeRequest(Message, frozen=True):
    """Body of POST /v1/nodes/update."""

    nodes: Text
    """Host list."""
    state: Word | None = None
    """DRAIN, DOWN, FAIL, RESUME, UNDRAIN or IDLE."""
    reason: Text | None = None
    weight: Annotated[int, Meta(ge=0, le=4294967295)] | None = None
    features: Text | None = None
    """Comma separated; empty: none."""


class ReservationRequest(Message, frozen=True):
    """Body of POST /v1/reservations/create and /update; None: not given."""

    name: Word | None = None
    start: Epoch | None = None
    start_in: Count | None = None
    """Seconds from now: the start of one that floats (TIME_FLOAT)."""
    end: Epoch | None = None
    duration: Annotated[int, Meta(ge=-1, le=2**31)] | None = None
    """Seconds; -1 is unlimited."""
    nodes: Text | None = None
    """A host list, or ALL."""
    node_count: Count | None = None
    core_counts: Annotated[list[Count], Meta(max_length=65536)] | None = None
    tres: Text | None = None
    """`node=4,cpu=16,gres/gpu:a100=8,license/matlab=2`."""
    tres_per_node: Text | None = None
    """`gres/gpu:4`."""
    partition: Word | None = None
    features: Text | None = None
    licenses: Text | None = None
    users: Text | None = None
    """Names, separated by commas; with `-` in front of each: all but these."""
    groups: Text | None = None
    accounts: Text | None = None
    qos: Text | None = None
    allowed_partitions: Text | None = None
    flags: Text | None = None
    comment: Text | None = None
    skip: bool = False
    """Move a recurring one on to its next time."""
    add: Names = []
    """Fields (users, accounts, flags) whose values are added to what is there (`+=`)."""
    remove: Names = []
    """Fields whose values are taken from what is there (`-=`)."""


class DeleteReservationRequest(Message, frozen=True):
    """Body of POST /v1/reservations/delete."""

    name: Word


class StepCreateRequest(Message, frozen=True):
    """Body of POST /v1/jobs/{job_id}/steps: what srun asks for inside an allocation; None: inherited from the job."""

    name: Word
    argv: Arguments
    nodes: Annotated[list[Count], Meta(min_length=2, max_length=2)] | None = None
    ntasks: Count | None = None
    ntasks_per_node: Count | None = None
    cpus_per_task: Count | None = None
    nodelist: Text | None = None
    exclude: Text | None = None
    relative: Count | None = None
    exact: bool = False
    overlap: bool = False
    gpus_per_node: Text | None = None
    gres: Text | None = None
    mem: Mib | None = None
    time_limit: Limit | None = None
    kill_on_bad_exit: bool | None = None
    distribution: Word | None = None
    environment: Environment = []
    work_dir: Text = ""
    umask: Annotated[int, Meta(ge=0, le=0o777)] = 0o022
    rlimits: Rlimits = {}
    input: Text | None = None
    """Pattern that the nodes open; None: srun streams it. The same holds for the two below."""
    output: Text | None = None
    error: Text | None = None
    input_mode: Annotated[str, Meta(pattern=r"^(stream|none|file|[0-9]{1,9})$")] = "stream"
    """Who gets srun's input: all (stream), none, one task by its rank; file: `input` is opened by the nodes."""
    launch_host: Word = ""
    """Address of the host where srun runs, for SLURM_LAUNCH_NODE_IPADDR."""
    open_mode: Literal["a", "t"] | None = None
    label: bool = False
    unbuffered: bool = False
    submit_line: Annotated[str, Meta(max_length=1048576)] = ""
    token: Word = ""
    """Made up by srun for one step: a request whose answer was lost is repeated with it and makes no second step."""


Body = TypeVar("Body", bound=Message)
_DECODERS: dict[type[Message], msgspec.json.Decoder[Message]] = {}


def decode(body: bytes, kind: type[Body]) -> Body:
    """Read a request's JSON body.

    Raises:
        InvalidInput: no JSON, a missing or unknown field, a value of the wrong kind, or a text with a NUL character.
        TooLarge: a text or list over its bound.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        found = decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the request's body is no JSON: {error}") from None
    assert isinstance(found, kind)
    if b"\\u0000" in body:  # the one way in which JSON writes it
        _refuse_nul(found)
    if b"\\n" in body or b"\\r" in body:
        _refuse_line_breaks(found)
    return found


_ONE_LINE = (
    "job_name", "name", "account", "partition", "qos", "wckey", "comment", "reason", "features", "reservation", "users",
    "groups", "accounts", "allowed_partitions",
)  # fmt: skip
"""Fields that stand in tables: a line break in them would forge a row."""


def _refuse_line_breaks(found: Message) -> None:
    for field in _ONE_LINE:
        value = getattr(found, field, None)
        if isinstance(value, str) and ("\n" in value or "\r" in value):
            raise InvalidInput(f"field {field} holds a line break", "it is shown in tables, a row a job")


def _refuse_nul(found: Message) -> None:
    """Refuse texts with a NUL character: as path, argument or variable the kernel takes none.

    Scripts and environments are looked at elsewhere, where their bytes are.
    """
    for field in found.__struct_fields__:
        value = getattr(found, field)
        texts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if field not in ("script", "environment") and any(isinstance(text, str) and "\0" in text for text in texts):
            raise InvalidInput(f"field {field} holds a NUL character", "no path, name or argument can have one")


def _explained(text: str) -> MusterError:
    """Turn msgspec's `Expected `str` of length <= 1024 - at `$.comment`` into a sentence of ours."""
    what, at, place = text.partition(" - at `$")
    field = place.rstrip("`").removeprefix(".")
    where = f"field {field}" if at and field else "the request"
    kind, bounded, bound = what.partition(" of length <= ")
    if bounded:
        unit = "characters" if "str" in kind else "entries"
        return TooLarge(f"{where} is over its bound of {bound} {unit}")
    if what.startswith("Object contains unknown field"):
        name = what.rpartition("field ")[2].strip("`")
        return InvalidInput(f"{where} has no field {name}", "client and controller may differ in version")
    return InvalidInput(f"{where} cannot be read: {what[:1].lower()}{what[1:].replace('`', '')}")

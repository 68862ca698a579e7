"""The fields of sacct: name, default width (negative: left aligned), and the text of a row.

A row is a run, or one of its steps; the wire leaves out what is 0, empty or unset. Fields that this release keeps
nothing for print what the reference prints where nothing was sampled or set: nothing, or 0.
"""

from __future__ import annotations

from muster.timepoints import format_time_point
from muster.units import format_bytes_sacct, format_cpu_time, format_duration, format_memory_mib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Record = Mapping[str, Any]
    Text = Callable[["Row"], str]

_STEP_WORDS = {0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern", 0xFFFFFFFA: "interactive", 0xFFFFFFFD: "TBD"}
_UNITS = "KMGTP"


class Context:
    """What the whole table is printed with."""

    __slots__ = ("cluster", "end", "noconvert", "now", "start", "truncate", "units")

    def __init__(self) -> None:
        self.cluster = ""
        self.now = 0
        self.start = 0
        self.end = 0
        """The window that --truncate clips to."""
        self.truncate = False
        self.noconvert = False
        self.units = ""
        """K, M, G, T, P; empty: as each field has it."""


class Row:
    """One line: a run, or with `step` one of its steps."""

    __slots__ = ("context", "run", "step", "steps")

    def __init__(self, context: Context, run: Record, steps: list[Any], step: Record | None = None) -> None:
        self.context = context
        self.run = run
        self.steps = steps
        self.step = step

    @property
    def own(self) -> Record:
        """The record of the line itself."""
        return self.run if self.step is None else self.step

    def times(self) -> tuple[int, int]:
        """Start and end as shown (0: none), clipped where that is wanted."""
        start, end = int(self.own.get("started_at", 0)), int(self.own.get("ended_at", 0))
        context = self.context
        if context.truncate and start:
            start = max(start, context.start)
            end = min(end or context.now, context.end)
        return start, end

    def elapsed(self) -> int:
        """Seconds from start to end, or until now."""
        start, end = self.times()
        return max(0, (end or self.context.now) - start - self.suspended()) if start else 0

    def suspended(self) -> int:
        """Seconds that the run stood still, and its steps with it."""
        seconds, since = int(self.run.get("suspended_seconds", 0)), int(self.run.get("suspended_at", 0))
        return seconds + (max(0, self.context.now - since) if since else 0)

    def cpus(self) -> int:
        """CPUs of the line."""
        return int(self.run.get("allocated_cpus", 0) if self.step is None else self.step.get("cpus", 1))

    def planned(self) -> int:
        """Seconds that a run waited since it could have started."""
        run = self.run
        eligible = run.get("eligible_at", 0)
        until = run.get("started_at", 0) or run.get("ended_at", 0) or self.context.now
        return max(0, until - eligible) if eligible else 0

    def cpu_ms(self, *kinds: str) -> int:
        """Measured processor time of the step, or of all steps of the run."""
        records = self.steps if self.step is None else [self.step]
        return int(sum(record.get(kind, 0) for record in records for kind in kinds))


# ---- texts ---------------------------------------------------------------------------------------------


def job_id_text(run: Record) -> str:
    """Give the id as users write it: `5`, `100_3`, `100_[4-9%2]`."""
    array = run.get("array_job_id", 0)
    if array and run.get("array_task_id", -1) >= 0:
        return f"{array}_{run['array_task_id']}"
    if run.get("array_tasks"):
        return f"{array or run['job_id']}_[{run['array_tasks']}]"
    return str(run["job_id"])


def step_text(step: Record) -> str:
    """Give the part behind the dot: `0`, `batch`."""
    return _STEP_WORDS.get(step["step_id"]) or str(step["step_id"])


def exit_text(status: int) -> str:
    """Give a wait status word as `code:signal`."""
    return f"{status >> 8 & 0xFF}:{status & 0x7F}"


def memory_text(mib: int, context: Context) -> str:
    """Give memory in MiB: `4G`, or in the unit asked for."""
    if context.units and mib:
        amount = mib / 1024 ** (_UNITS.index(context.units) - 1)
        return f"{int(amount) if amount == int(amount) else format(amount, '.2f')}{context.units}"
    return format_memory_mib(mib, context.noconvert)


def tres_text(amounts: Mapping[str, int], context: Context) -> str:
    """Give amounts by name in alphabetical order, as sacct does: `billing=4,cpu=4,mem=2G,node=2`."""
    return ",".join(
        f"{name}={memory_text(amounts[name], context) if name == 'mem' else amounts[name]}"
        for name in sorted(amounts)
        if amounts[name]
    )


def bytes_text(nbytes: int, context: Context) -> str:
    """Give measured bytes; nothing where nothing was measured."""
    return format_bytes_sacct(nbytes, context.units or None, context.noconvert) if nbytes else ""


def _job_id(row: Row) -> str:
    text = job_id_text(row.run)
    return text if row.step is None else f"{text}.{step_text(row.step)}"


def _raw_id(row: Row) -> str:
    array_rest = row.run.get("array_tasks") and row.run.get("array_job_id", 0)
    text = str(array_rest or row.run["job_id"])
    return text if row.step is None else f"{text}.{step_text(row.step)}"


def _state(row: Row) -> str:
    state = str(row.own["state"])
    by = row.run.get("cancelled_by", -1)
    return f"CANCELLED by {by}" if row.step is None and state == "CANCELLED" and by >= 0 else state


def _exit_code(row: Row) -> str:
    status = row.own.get("exit_status", 0)
    if row.step is not None and not status and row.step["state"] == "CANCELLED" and row.run.get("failed_node"):
        return ""  # its node was lost: nobody can say how it ended
    return exit_text(status)


def _start(row: Row) -> str:
    return format_time_point(row.times()[0], unset="None" if row.own.get("ended_at") else "Unknown")


def _end(row: Row) -> str:
    return format_time_point(row.times()[1])


def _submit(row: Row) -> str:
    return format_time_point(row.run.get("submitted_at", 0) if row.step is None else row.step.get("started_at", 0))


def _eligible(row: Row) -> str:
    return format_time_point(row.run.get("eligible_at", 0) if row.step is None else row.step.get("started_at", 0))


def _node_list(row: Row) -> str:
    return str(row.own.get("nodelist") or ("None assigned" if row.step is None else ""))


def _alloc_tres(row: Row) -> str:
    return tres_text(row.own.get("allocated_tres") or {}, row.context)


def _nodes(row: Row) -> str:
    if row.step is not None:
        return str(row.step.get("nodes", 1))
    return str(row.run.get("allocated_nodes", 0))


def _nnodes(row: Row) -> str:
    if row.step is None and not row.run.get("allocated_nodes"):
        return str(row.run.get("requested_nodes", 0))  # of a pending job: what it will have at least
    return _nodes(row)


def _limit(row: Row) -> str:
    minutes = row.run.get("time_limit_minutes", -1)
    return format_duration(None if minutes < 0 else minutes * 60)


def _limit_raw(row: Row) -> str:
    minutes = row.run.get("time_limit_minutes", -1)
    return "UNLIMITED" if minutes < 0 else str(minutes)


def _flags(row: Row) -> str:
    if not row.run.get("started_at"):
        return ""
    return f"Sched{row.run.get('scheduler', 'Main')},StartReceived"


# Of the ones over tasks only that of a step of a single task is known: the node says the largest of all its tasks.


def _cpu_of_task(row: Row) -> str:
    step = row.step
    if step is None or step.get("tasks", 1) != 1:
        return ""
    return format_duration(row.cpu_ms("user_ms", "system_ms") // 1000)


def _average_cpu(row: Row) -> str:
    assert row.step is not None, "asked of steps only"
    return format_duration(row.cpu_ms("user_ms", "system_ms") // max(1, row.step.get("tasks", 1)) // 1000)


def _rss_of_task(row: Row) -> str:
    step = row.step
    if step is None or step.get("tasks", 1) != 1:
        return ""
    return bytes_text(step.get("max_rss_bytes", 0), row.context)


def _max_rss(row: Row) -> str:
    assert row.step is not None, "asked of steps only"
    return bytes_text(row.step.get("max_rss_bytes", 0), row.context)


def _measured(cpu: str, memory: str) -> str:
    parts = [f"cpu={cpu}" if cpu else "", f"mem={memory}" if memory else ""]
    return ",".join(part for part in parts if part)


def _usage_max(row: Row) -> str:
    return _measured(_cpu_of_task(row), _max_rss(row))


def _usage_of_task(row: Row) -> str:
    return _measured(_cpu_of_task(row), _rss_of_task(row))


def _usage_average(row: Row) -> str:
    return _measured(_average_cpu(row), _rss_of_task(row))


def _usage_total(row: Row) -> str:
    return _measured(format_duration(row.cpu_ms("user_ms", "system_ms") // 1000), _rss_of_task(row))


# ---- makers of columns ---------------------------------------------------------------------------------


def _job(name: str, default: object = "") -> Text:
    """A field of the run, empty for steps."""
    return lambda row: "" if row.step is not None else str(row.run.get(name, default))


def _both(name: str, default: object = "") -> Text:
    """A field that run and step both have."""
    return lambda row: str(row.own.get(name, default))


def _run(name: str, default: object = "") -> Text:
    """A field of the run, shown for its steps too."""
    return lambda row: str(row.run.get(name, default))


def _step(text: Text) -> Text:
    """A text of steps, empty for runs."""
    return lambda row: "" if row.step is None else text(row)


def _of_job(text: Text) -> Text:
    """A text of runs, empty for steps."""
    return lambda row: "" if row.step is not None else text(row)


def _always(text: str) -> Text:
    return lambda row: text


def _measured_where(name: str) -> Text:
    """Where the largest memory was: known where some was measured."""
    return lambda row: str(row.step.get(name, 0)) if row.step is not None and row.step.get("max_rss_bytes") else ""


def _in_tres(text: Text) -> Text:
    return lambda row: f"mem={found}" if (found := text(row)) else ""


_NOTHING = _always("")
_ZERO = _always("0")
_JOB_ZERO = _of_job(_ZERO)
_STEP_ZERO = _step(_ZERO)
_MAX_NODE, _MAX_TASK = _measured_where("max_rss_node"), _measured_where("max_rss_task")
_FREQUENCY: Text = lambda row: "Unknown" if row.step is None else "0"  # noqa: E731 (a row of the table)

FIELDS: dict[str, tuple[int, Text]] = {
    "Account": (10, _run("account")),
    "AdminComment": (15, _NOTHING),
    "AllocCPUS": (10, lambda row: str(row.cpus())),
    "AllocNodes": (10, _nodes),
    "AllocTRES": (10, _alloc_tres),
    "AssocID": (7, _JOB_ZERO),
    "AveCPU": (10, _step(_average_cpu)),
    "AveCPUFreq": (10, _STEP_ZERO),
    "AveDiskRead": (14, _NOTHING),
    "AveDiskWrite": (14, _NOTHING),
    "AvePages": (10, _NOTHING),
    "AveRSS": (10, _rss_of_task),
    "AveVMSize": (10, _NOTHING),
    "BlockID": (16, _NOTHING),
    "Cluster": (10, lambda row: row.context.cluster),
    "Comment": (14, _job("comment")),
    "Constraints": (19, _job("constraints")),
    "ConsumedEnergy": (14, _ZERO),
    "ConsumedEnergyRaw": (17, _ZERO),
    "Container": (19, _NOTHING),
    "CPUTime": (10, lambda row: format_duration(row.elapsed() * row.cpus())),
    "CPUTimeRAW": (10, lambda row: str(row.elapsed() * row.cpus())),
    "DBIndex": (-21, _JOB_ZERO),
    "DerivedExitCode": (15, _of_job(lambda row: exit_text(row.run.get("derived_status", 0)))),
    "Elapsed": (10, lambda row: format_duration(row.elapsed())),
    "ElapsedRaw": (10, lambda row: str(row.elapsed())),
    "Eligible": (19, _eligible),
    "End": (19, _end),
    "Exclusive": (14, _job("exclusive")),
    "ExitCode": (8, _exit_code),
    "Extra": (14, _NOTHING),
    "FailedNode": (8, _job("failed_node")),
    "Flags": (19, _of_job(_flags)),
    "GID": (6, _job("gid")),
    "Group": (9, _job("group")),
    "JobID": (-12, _job_id),
    "JobIDRaw": (-12, _raw_id),
    "JobName": (10, _both("name")),
    "Layout": (9, _step(_both("layout"))),
    "Licenses": (10, _NOTHING),
    "MaxDiskRead": (12, _NOTHING),
    "MaxDiskReadNode": (15, _NOTHING),
    "MaxDiskReadTask": (15, _NOTHING),
    "MaxDiskWrite": (12, _NOTHING),
    "MaxDiskWriteNode": (16, _NOTHING),
    "MaxDiskWriteTask": (16, _NOTHING),
    "MaxPages": (8, _NOTHING),
    "MaxPagesNode": (12, _NOTHING),
    "MaxPagesTask": (14, _NOTHING),
    "MaxRSS": (10, _step(_max_rss)),
    "MaxRSSNode": (10, _MAX_NODE),
    "MaxRSSTask": (10, _MAX_TASK),
    "MaxVMSize": (10, _NOTHING),
    "MaxVMSizeNode": (14, _NOTHING),
    "MaxVMSizeTask": (14, _NOTHING),
    "McsLabel": (12, _NOTHING),
    "MinCPU": (10, _cpu_of_task),
    "MinCPUNode": (10, _NOTHING),
    "MinCPUTask": (10, _NOTHING),
    "NCPUS": (10, lambda row: str(row.cpus())),
    "NNodes": (8, _nnodes),
    "NodeList": (15, _node_list),
    "NTasks": (8, _step(_both("tasks", 1))),
    "OriginalSLUID": (14, _NOTHING),
    "OverSubscribe": (14, _job("oversubscribe")),
    "Partition": (10, _job("partition")),
    "Planned": (10, _of_job(lambda row: format_duration(row.planned()))),
    "PlannedCPU": (
        10,
        _of_job(lambda row: format_duration(row.planned() * row.run.get("requested_cpus", 0))),
    ),
    "PlannedCPURAW": (13, _of_job(lambda row: str(row.planned() * row.run.get("requested_cpus", 0)))),
    "Priority": (10, _job("priority", 0)),
    "QOS": (10, _job("qos")),
    "QOSRAW": (6, _JOB_ZERO),
    "QOSREQ": (10, _NOTHING),
    "Reason": (22, _of_job(lambda row: str(row.run.get("state_text") or row.run.get("reason", "None")))),
    "ReqCPUFreq": (10, _FREQUENCY),
    "ReqCPUFreqGov": (13, _FREQUENCY),
    "ReqCPUFreqMax": (13, _FREQUENCY),
    "ReqCPUFreqMin": (13, _FREQUENCY),
    "ReqCPUS": (8, lambda row: str(row.run.get("requested_cpus", 0) if row.step is None else row.cpus())),
    "ReqMem": (10, _of_job(lambda row: memory_text(row.run.get("requested_memory_mib", 0), row.context))),
    "ReqNodes": (8, _job("requested_nodes", 0)),
    "ReqTRES": (10, _of_job(lambda row: tres_text(row.run.get("requested_tres") or {}, row.context))),
    "Reservation": (20, _NOTHING),
    "ReservationId": (8, _NOTHING),
    "ReqReservation": (20, _NOTHING),
    "Restarts": (8, _job("run", 0)),
    "SegmentSize": (11, _NOTHING),
    "SLUID": (14, _NOTHING),
    "Start": (19, _start),
    "State": (10, _state),
    "StdErr": (20, _job("std_err")),
    "StdIn": (20, _job("std_in")),
    "StdOut": (20, _job("std_out")),
    "Submit": (19, _submit),
    "SubmitLine": (20, _both("submit_line")),
    "Suspended": (10, lambda row: format_duration(row.suspended())),
    "SystemComment": (15, _NOTHING),
    "SystemCPU": (10, lambda row: format_cpu_time(row.cpu_ms("system_ms"))),
    "Timelimit": (10, _of_job(_limit)),
    "TimelimitRaw": (10, _of_job(_limit_raw)),
    "TotalCPU": (10, lambda row: format_cpu_time(row.cpu_ms("user_ms", "system_ms"))),
    "TRESUsageInAve": (14, _step(_usage_average)),
    "TRESUsageInMax": (14, _step(_usage_max)),
    "TRESUsageInMaxNode": (18, _in_tres(_MAX_NODE)),
    "TRESUsageInMaxTask": (18, _in_tres(_MAX_TASK)),
    "TRESUsageInMin": (14, _usage_of_task),
    "TRESUsageInMinNode": (18, _NOTHING),
    "TRESUsageInMinTask": (18, _NOTHING),
    "TRESUsageInTot": (14, _step(_usage_total)),
    "TRESUsageOutAve": (15, _NOTHING),
    "TRESUsageOutMax": (15, _NOTHING),
    "TRESUsageOutMaxNode": (19, _NOTHING),
    "TRESUsageOutMaxTask": (19, _NOTHING),
    "TRESUsageOutMin": (15, _NOTHING),
    "TRESUsageOutMinNode": (19, _NOTHING),
    "TRESUsageOutMinTask": (19, _NOTHING),
    "TRESUsageOutTot": (15, _NOTHING),
    "UID": (6, _job("uid")),
    "User": (9, _job("user")),
    "UserCPU": (10, lambda row: format_cpu_time(row.cpu_ms("user_ms"))),
    "WCKey": (10, _job("wckey")),
    "WCKeyID": (10, _JOB_ZERO),
    "WorkDir": (20, _job("work_dir")),
}  # fmt: skip
"""Name as the reference spells it -> (default width, text), in the reference's order."""

DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,"
    "alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,"
    "tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,"
    "tresusageouttot"
)


def canonical(name: str) -> str:
    """Give the field of a name in any case, or of its beginning (the first one in order); empty: there is none."""
    wanted = name.lower()
    beginning = ""
    for field in FIELDS:
        low = field.lower()
        if low == wanted:
            return field
        if not beginning and low.startswith(wanted):
            beginning = field
    return beginning


def help_page() -> str:
    """Give the names in columns, four a line, as `-e` prints them."""
    names = [f"{name:<19}" for name in FIELDS]
    return "".join(" ".join(names[place : place + 4]) + "\n" for place in range(0, len(names), 4))

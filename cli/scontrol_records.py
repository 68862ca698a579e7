"""The records of `scontrol show`: lines of KEY=VALUE in Slurm's order."""

from __future__ import annotations

from cli.base import user_name
from muster.timepoints import format_time_point
from muster.units import format_duration, format_memory_mib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]

JOB_FIELDS = (
    *("account", "allocated_tres", "array_job_id", "array_limit", "array_task", "batch", "batch_host", "command"),
    *("core_spec", "cores_per_socket", "gres_flags", "licenses", "licenses_alloc", "sockets_per_node"),
    *("tasks_per_core", "tasks_per_socket", "threads_per_core", "tres_per_socket"),
    *("comment", "cpus", "cpus_per_task", "cpus_per_tres", "dependency", "derived_exit_code", "eligible_at", "end_at"),
    *("evaluated_at", "exclude", "exclusive", "exit_code", "failed_node", "features", "gid", "gres_detail", "group"),
    *("job_gres", "job_id", "kill_invalid_depend", "least_cpus", "limit", "memory", "memory_by", "memory_per_tres"),
    *("name", "nice", "node_range", "nodelist", "oversubscribe", "partition", "planned_nodes", "priority", "qos"),
    *("reason", "requested_nodes", "requested_tres", "requeue", "reservation", "restarts", "scheduler", "sid"),
    *("deadline", "time_min", "consolidate_segments", "contiguous", "prefer", "spread_job"),
    *("segment_level", "segment_size", "spread_segments", "switch_wait", "switches", "topology", "use_min_nodes"),
    *("preempt_at", "preempt_eligible_at", "seconds_before_suspension", "start_at", "state", "suspended_at"),
    *("std_err_path", "std_in_path", "std_out_path", "submit_host", "submit_line", "submitted_at", "tasks"),
    *("tasks_per_node", "tmp", "tres_per_job", "tres_per_node", "tres_per_task", "uid", "used", "user", "wckey"),
    "work_dir",
)
NODE_FIELDS = (
    *("address", "agent_started_at", "allocated_cpus", "allocated_memory", "allocated_tres", "arch", "boards"),
    *("boot_at", "configured_tres", "core_spec", "cores", "cpu_spec_list", "cpus", "effective_cpus", "features"),
    *("free_memory", "gres", "gres_used", "host", "last_busy_at", "load", "memory", "memory_spec", "name"),
    *("os", "owner", "partitions", "port", "reason", "reason_at"),
    *("reason_uid", "reservation", "sockets", "state_complete", "threads", "tmp", "version", "weight"),
)
PARTITION_FIELDS = (
    *("allow_accounts", "allow_groups", "allow_qos", "cpus", "default", "default_memory_per_cpu"),
    *("default_memory_per_node", "default_minutes", "deny_accounts", "deny_qos", "disable_root_jobs", "exclusive"),
    *("hidden", "max_memory_per_cpu", "max_memory_per_node", "max_minutes", "max_nodes", "min_nodes", "name"),
    *("grace_seconds", "max_cpus_per_node", "max_cpus_per_socket", "node_count", "nodes", "oversubscribe"),
    *("preempt_mode", "priority_job_factor", "priority_tier", "root_only", "state", "tres"),
    *("default_topology", "lln", "topology"),
)
STEP_FIELDS = (
    *("cpus", "id", "id_sort", "is_batch", "limit", "name", "nodelist", "nodes", "partition", "started_at", "state"),
    *("submit_host", "tasks", "tres", "uid"),
)
NULL = "(null)"
_GRES_FLAGS = (
    ("allow-task-sharing", "GresAllowTaskSharing=Yes"),
    ("enforce-binding", "GresEnforceBind=Yes"),
    ("disable-binding", "GresEnforceBind=No"),
    ("one-task-per-sharing", "GresOneTaskPerSharing=Yes"),
    ("multiple-tasks-per-sharing", "GresOneTaskPerSharing=No"),
)


def job(one: Record, oneliner: bool, details: bool) -> str:
    """Give the record of a job, with -d its devices and CPUs node by node."""
    has = one["allocated_tres"] is not None
    head = f"JobId={one['job_id']}"
    if one["array_job_id"]:
        head += f" ArrayJobId={one['array_job_id']} ArrayTaskId={one['array_task']}"
        if one["array_limit"]:
            head += f" ArrayTaskThrottle={one['array_limit']}"
    failed = f" FailedNode={one['failed_node']}" if one["failed_node"] else ""
    wckey = f" WCKey={one['wckey']}" if one["wckey"] else ""
    planned = f" SchedNodeList={one['planned_nodes']}" if one["planned_nodes"] else ""
    sockets, cores, threads = one["sockets_per_node"], one["cores_per_socket"], one["threads_per_core"]
    lines = [
        f"{head} JobName={one['name']}",
        f"UserId={one['user']}({one['uid']}) GroupId={one['group']}({one['gid']}) MCS_label=N/A",
        f"Priority={one['priority']} Nice={one['nice']} Account={_null(one['account'])} QOS={_null(one['qos'])}{wckey}",
        f"JobState={one['state']} Reason={'_'.join(one['reason'].split())}{failed}"
        f" Dependency={_null(one['dependency'])}",
        f"Requeue={one['requeue']} Restarts={one['restarts']} BatchFlag={one['batch']} Reboot=0"
        f" ExitCode={one['exit_code']}",
    ]
    if details:
        lines.append(f"DerivedExitCode={one['derived_exit_code']}")
    lines += [
        f"RunTime={format_duration(one['used'])} TimeLimit={_limit(one['limit'])}"
        f" TimeMin={format_duration(one['time_min']) if one['time_min'] else 'N/A'}",
        f"SubmitTime={_time(one['submitted_at'])} EligibleTime={_time(one['eligible_at'])}",
        f"AccrueTime={_time(one['eligible_at'])}",
        f"StartTime={_time(one['start_at'])} EndTime={_time(one['end_at'])} Deadline={_time(one['deadline'], 'N/A')}",
        *_preempted(one),
        f"SuspendTime={_time(one['suspended_at'], 'None')} SecsPreSuspend={one['seconds_before_suspension']}"
        f" LastSchedEval={_time(one['evaluated_at'])} Scheduler={one['scheduler']}",
        f"Partition={one['partition']} AllocNode:Sid={_null(one['submit_host'])}:{one['sid']}",
        f"ReqNodeList={_null(one['requested_nodes'])} ExcNodeList={_null(one['exclude'])}",
        f"NodeList={one['nodelist']}{planned}",
    ]
    if one["batch_host"]:
        lines.append(f"BatchHost={one['batch_host']}")
    lines += [
        f"NumNodes={one['node_range']} NumCPUs={one['cpus']} NumTasks={one['tasks']}"
        f" CPUs/Task={one['cpus_per_task']} ReqB:S:C:T=0:{sockets or 0}:{_any(cores)}:{_any(threads)}",
        f"ReqTRES={one['requested_tres']}",
        f"AllocTRES={_null(one['allocated_tres'])}",
        f"Socks/Node={_any(sockets)} NtasksPerN:B:S:C={one['tasks_per_node']}:0:{_any(one['tasks_per_socket'])}"
        f":{_any(one['tasks_per_core'])} {_core_spec(one['core_spec'])}",
    ]
    if details and has:
        lines.append(f"JOB_GRES={_null(one['job_gres'])}")
        lines += [f"  {line}" for line in one["gres_detail"].split("\n")]
    lines += [
        f"MinCPUsNode={one['least_cpus']} MinMemory{one['memory_by']}={format_memory_mib(one['memory'])}"
        f" MinTmpDiskNode={format_memory_mib(one['tmp'])}",
        f"Features={_null(one['features'])} DelayBoot=00:00:00",
        *([f"Prefer={one['prefer']}"] if one["prefer"] else ()),
        *([f"Reservation={one['reservation']}"] if one["reservation"] else ()),
        f"OverSubscribe={one['oversubscribe']} Exclusive={one['exclusive']} Contiguous={one['contiguous']}"
        f" Licenses={_null(one['licenses'])} LicensesAlloc={_null(one['licenses_alloc'])} Network={NULL}",
        f"Command={_null(one['command'])}",
        f"SubmitLine={one['submit_line']}",
        f"WorkDir={one['work_dir']}",
    ]
    if one["comment"]:
        lines.append(f"Comment={one['comment']}")
    if one["batch"]:
        lines += [f"StdErr={one['std_err_path']}", f"StdIn={one['std_in_path']}", f"StdOut={one['std_out_path']}"]
    lines += _placement(one)
    flags = (one["gres_flags"] or "").split(",")
    lines += [text for flag, text in _GRES_FLAGS if flag in flags]
    if one["kill_invalid_depend"]:
        lines.append("KillOnInvalidDependent=Yes")
    if one["spread_job"]:
        lines.append("SpreadJob=Yes")
    if one["use_min_nodes"]:
        lines.append("UseMinNodes=Yes")
    for key, name in (
        ("cpus_per_tres", "CpusPerTres"),
        ("memory_per_tres", "MemPerTres"),
        ("tres_per_job", "TresPerJob"),
        ("tres_per_node", "TresPerNode"),
        ("tres_per_socket", "TresPerSocket"),
        ("tres_per_task", "TresPerTask"),
    ):
        if one[key]:
            lines.append(f"{name}={one[key]}")
    return _record(lines, oneliner)


def _placement(one: Record) -> list[str]:
    """Where its nodes have to lie: the lines of segments and switches, and Muster's own of a level."""
    lines = []
    if one["segment_size"]:
        level = f" SegmentLevel={one['segment_level']}" if one["segment_level"] else ""
        spread = " SpreadSegments=Yes" if one["spread_segments"] else ""
        together = " ConsolidateSegments=Yes" if one["consolidate_segments"] else ""
        lines.append(f"SegmentSize={one['segment_size']}{level}{spread}{together}")
    if one["switches"]:
        lines.append(f"Switches={one['switches']}@{format_duration(one['switch_wait'])}")
    if one["topology"]:
        lines.append(f"Topology={one['topology']}")
    return lines


def _any(number: int | None) -> str:
    return str(number or "*")


def _core_spec(asked: str | None) -> str:
    count, _, threads = (asked or "*").partition(" ")
    return f"ThreadSpec={count}" if threads else f"CoreSpec={count}"


def _preempted(one: Record) -> list[str]:
    if not one["preempt_eligible_at"] and not one["preempt_at"]:
        return []
    return [f"PreemptEligibleTime={_time(one['preempt_eligible_at'])} PreemptTime={_time(one['preempt_at'], 'None')}"]


def node(one: Record, oneliner: bool, details: bool) -> str:
    """Give the record of a node, with -d the devices in use."""
    load = "N/A" if one["load"] is None else f"{one['load'] / 100:.2f}"
    free = "N/A" if one["free_memory"] is None else str(one["free_memory"])
    owner = "N/A" if one["owner"] is None else f"{user_name(one['owner'])}({one['owner']})"
    port = f"Port={one['port']} " if one["port"] else ""
    lines = [
        f"NodeName={one['name']} Arch={one['arch'] or NULL} CoresPerSocket={one['cores']} ",
        f"CPUAlloc={one['allocated_cpus']} CPUEfctv={one['effective_cpus']} CPUTot={one['cpus']} CPULoad={load}",
        f"AvailableFeatures={_null(one['features'])}",
        f"ActiveFeatures={_null(one['features'])}",
        f"Gres={_null(one['gres'])}",
    ]
    if details:
        lines += ["GresDrain=N/A", f"GresUsed={_null(one['gres_used'])}"]
    lines += [
        f"NodeAddr={one['address']} NodeHostName={one['host']} {port}Version={_null(one['version'])}",
        f"OS={one['os'] or NULL} ",
        f"RealMemory={one['memory']} AllocMem={one['allocated_memory']} FreeMem={free} Sockets={one['sockets']}"
        f" Boards={one['boards']}",
        *_system_share(one),
        f"State={one['state_complete']} ThreadsPerCore={one['threads']} TmpDisk={one['tmp']} Weight={one['weight']}"
        f" Owner={owner} MCS_label=N/A",
    ]
    if one["partitions"]:
        lines.append(f"Partitions={one['partitions']} ")
    lines += [
        f"BootTime={_time(one['boot_at'], 'None')} SlurmdStartTime={_time(one['agent_started_at'], 'None')}",
        f"LastBusyTime={_time(one['last_busy_at'])} ResumeAfterTime=None SuspendTime=INFINITE",
        f"CfgTRES={one['configured_tres']}",
        f"AllocTRES={one['allocated_tres']}",
        "CurrentWatts=0 AveWatts=0",
    ]
    if one["reason"]:
        who = f"[{user_name(one['reason_uid'])}@{_time(one['reason_at'])}]"
        lines += f"Reason={one['reason']} {who}".split("\n")
    if one["reservation"]:
        lines.append(f"ReservationName={one['reservation']}")
    return _record(lines, oneliner)


def _system_share(one: Record) -> list[str]:
    """What the node keeps for itself; no line where that is nothing."""
    words = [f"CoreSpecCount={one['core_spec']} CPUSpecList={one['cpu_spec_list']}"] if one["core_spec"] else []
    words += [f"MemSpecLimit={one['memory_spec']}"] if one["memory_spec"] else []
    return [" ".join(words)] if words else []


def partition(one: Record, oneliner: bool) -> str:
    """Give the record of a partition."""
    accounts = (
        f"DenyAccounts={one['deny_accounts']}"
        if one["deny_accounts"]
        else f"AllowAccounts={one['allow_accounts'] or 'ALL'}"
    )
    qos = f"DenyQos={one['deny_qos']}" if one["deny_qos"] else f"AllowQos={one['allow_qos'] or 'ALL'}"
    minutes = one["default_minutes"]
    default = "NONE" if not minutes else "UNLIMITED" if minutes < 0 else format_duration(minutes * 60)
    most = "UNLIMITED" if one["max_minutes"] < 0 else format_duration(one["max_minutes"] * 60)
    lines = [
        f"PartitionName={one['name']}",
        f"AllowGroups={one['allow_groups'] or 'ALL'} {accounts} {qos}",
        f"AllocNodes=ALL Default={_yes(one['default'])} QoS=N/A",
        f"DefaultTime={default} DisableRootJobs={_yes(one['disable_root_jobs'])} Exclusive={one['exclusive']}"
        f" GraceTime={one['grace_seconds']} Hidden={_yes(one['hidden'])}",
        f"MaxNodes={_unlimited(one['max_nodes'])} MaxTime={most} MinNodes={one['min_nodes']} LLN={_yes(one['lln'])}"
        f" MaxCPUsPerNode={_bound(one['max_cpus_per_node'])} MaxCPUsPerSocket={_bound(one['max_cpus_per_socket'])}",
        f"Nodes={one['nodes'] or NULL}",
        f"PriorityJobFactor={one['priority_job_factor']} PriorityTier={one['priority_tier']}"
        f" RootOnly={_yes(one['root_only'])} ReqResv=NO OverSubscribe={one['oversubscribe']}",
        f"OverTimeLimit=NONE PreemptMode={one['preempt_mode']}",
        *([f"Topology={one['topology']}"] if one["topology"] else ()),
        *([f"DefaultTopology={one['default_topology']}"] if one["default_topology"] else ()),
        f"State={one['state']} TotalCPUs={one['cpus']} TotalNodes={one['node_count']} SelectTypeParameters=NONE",
        f"JobDefaults={NULL}",
        f"{_memory('Def', one['default_memory_per_cpu'], one['default_memory_per_node'])}"
        f" {_memory('Max', one['max_memory_per_cpu'], one['max_memory_per_node'])}",
        f"TRES={_null(one['tres'])}",
    ]
    return _record(lines, oneliner)


def _bound(number: int) -> str:
    return "UNLIMITED" if number < 0 else str(number)


def licence(one: Record, oneliner: bool) -> str:
    """Give the record of a licence; unlike other records its second line is not indented."""
    numbers = f"Total={one['total']} Used={one['used']} Free={one['free']} Reserved={one['reserved']} Remote=no"
    head = f"LicenseName={one['name']}"
    return f"{head} {numbers}\n" if oneliner else f"{head}\n    {numbers}\n"


def step(one: Record, oneliner: bool) -> str:
    """Give the record of a step."""
    host = NULL if one["is_batch"] else _null(one["submit_host"])
    frequency = "CPUFreqReq=Default" + ("" if one["is_batch"] else " Dist=Block")
    lines = [
        f"StepId={one['id']} UserId={one['uid']} StartTime={_time(one['started_at'])} TimeLimit={_limit(one['limit'])}",
        f"State={one['state']} Partition={one['partition']} NodeList={one['nodelist']}",
        f"Nodes={one['nodes']} CPUs={one['cpus']} Tasks={one['tasks']} Name={one['name']} Network={NULL}",
        f"TRES={_null(one['tres'])}",
        f"ResvPorts={NULL}",
        frequency,
        f"SrunHost:Pid={host}:0",
    ]
    return _record(lines, oneliner)


def _record(lines: list[str], oneliner: bool) -> str:
    if oneliner:
        return " ".join(line.lstrip(" ") for line in lines).rstrip(" ") + "\n"
    return "\n   ".join(lines) + "\n\n"


def _null(value: Any) -> str:
    return str(value) if value not in (None, "") else NULL


def _time(when: int, unset: str = "Unknown") -> str:
    return format_time_point(when, unset=unset)


def _limit(seconds: int) -> str:
    return format_duration(None if seconds < 0 else seconds)


def _yes(flag: int) -> str:
    return "YES" if flag else "NO"


def _unlimited(number: int) -> str:
    return "UNLIMITED" if number < 0 else str(number)


def _memory(which: str, per_cpu: int, per_node: int) -> str:
    if per_cpu:
        return f"{which}MemPerCPU={per_cpu}"
    return f"{which}MemPerNode={per_node or 'UNLIMITED'}"

"""scontrol show ..., scontrol ping: records in the form that scripts read as KEY=VALUE."""

from __future__ import annotations

import os

from cli import base
from muster import client, errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_FILE_BYTES = 1 << 20
"""Largest file or input of `show hostlist`."""

# Entity -> least letters that name it.
ENTITIES = (
    ("config", 2),
    ("daemons", 1),
    ("hostnames", 5),
    ("hostlist", 5),
    ("hostlistsorted", 9),
    ("jobs", 1),
    ("jobid", 4),
    ("licenses", 3),
    ("nodes", 3),
    ("partitions", 3),
    ("reservations", 3),
    ("slurmd", 6),
    ("steps", 3),
    ("topology", 5),
    ("aliases", 2),
    ("assoc_mgr", 5),
    ("bbstat", 2),
    ("burstbuffer", 2),
    ("dwstat", 2),
    ("federation", 3),
    ("topoconf", 5),
)
ABSENT = ("aliases", "assoc_mgr", "bbstat", "burstbuffer", "dwstat", "federation", "slurmd", "topoconf")


class Options:
    """How to show: -o, -d, -a, -M."""

    __slots__ = ("all", "cluster", "details", "oneliner")

    def __init__(self, *, oneliner: bool, details: bool, all: bool, cluster: str | None) -> None:
        self.oneliner = oneliner
        self.details = details
        self.all = all
        self.cluster = cluster


def show(arguments: list[str], options: Options) -> int:
    """Carry out `show ENTITY [ID]`, `show ENTITY=ID`."""
    word, equals, value = arguments[0].partition("=")
    if equals:
        arguments = [word, value, *arguments[1:]]
    entity = _entity(word.lower())
    if not entity or entity in ABSENT:
        raise base.Quit(1, f"invalid entity:{arguments[0]} for keyword:show")
    if entity == "topology":
        from cli import scontrol_topology

        return scontrol_topology.show(arguments[1:])
    if len(arguments) > 2:
        raise base.Quit(1, "too many arguments for keyword:show")
    name = arguments[1] if len(arguments) == 2 else None
    if entity.startswith("host"):
        return _hosts(entity, name)
    if entity == "daemons":
        return _daemons()
    if entity == "licenses":
        return _licenses(name, options)
    if entity == "reservations":
        return _reservations(name, options)
    if entity in ("jobs", "jobid"):
        return _jobs(name, options)
    if entity == "steps":
        return _steps(name, options)
    if entity == "nodes":
        return _nodes(name, options)
    if entity == "partitions":
        return _partitions(name, options)
    return _config(options)


def _licenses(name: str | None, options: Options) -> int:
    """Show the cluster's licences, or one of them."""
    found = _ask("/v1/licenses", "slurm_load_licenses", options)["licenses"]
    if not found:
        base.write("No licenses configured in Slurm.\n")
        return 0
    chosen = [one for one in found if name in (None, one["name"])]
    if not chosen:
        base.write(f"License name {name} not found.\n")
        return 1
    from cli import scontrol_records

    base.write("".join(scontrol_records.licence(one, options.oneliner) for one in chosen))
    return 0


def ping() -> int:
    """Say whether the controller answers; 1 if it does not."""
    try:
        answer = client.call("GET", "/v1/ping", patience_seconds=0.0)
    except errors.Unavailable:
        stars = "*" * 41
        host = os.uname().nodename.partition(".")[0]
        base.write(
            f"Slurmctld(primary) at {host} is DOWN\n{stars}\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{stars}\n"
        )
        return 1
    base.write(f"Slurmctld(primary) at {answer['host']} is UP\n")
    return 0


def _entity(word: str) -> str:
    for name, least in ENTITIES:
        if word == name or (len(word) >= least and name.startswith(word)):
            return name
    return ""


def _ask(target: str, what: str, options: Options) -> Any:
    try:
        answer = client.call("GET", target)
    except errors.MusterError as problem:
        if isinstance(problem, errors.NotFound) and problem.slurm_code != 2017:
            raise
        raise base.refused(what, problem) from None
    name = answer["cluster"]
    if options.cluster and options.cluster not in (name, "all"):
        raise base.Quit(
            1,
            f"scontrol: error: No cluster '{options.cluster}' known by database.",
            f"scontrol: this controller speaks for the cluster '{name}' only",
        )
    return answer


def _records(answer: Any) -> list[dict[str, Any]]:
    return [dict(zip(answer["fields"], row, strict=True)) for row in answer["rows"]]


# ---- host lists ------------------------------------------------------------------------------------------------


def _hosts(entity: str, text: str | None) -> int:
    """Expand or compress a host list; no daemon is asked."""
    from muster import hostlist

    if text is None:
        if entity != "hostnames":
            from cli.scontrol import HELP

            base.write(HELP)
            raise base.Quit(1, "invalid encode argument")
        text = os.environ.get("SLURM_NODELIST")
        if not text:
            base.error("scontrol", "host list is empty")
            return 0
    elif not text and entity == "hostnames":
        return 0
    try:
        if entity == "hostnames":
            made = "\n".join(hostlist.expand(text))
        else:
            hosts = hostlist.Hostlist.parse(_list_text(text))
            made = str(hosts.sorted() if entity == "hostlistsorted" else hosts)
    except hostlist.HostlistError as problem:
        if problem.range_message:
            base.error("scontrol", problem.range_message)
        base.say(f"Invalid hostlist: {text}")
        # As in the reference, a list that cannot be expanded is no failure of the command.
        return 0 if entity == "hostnames" and not problem.fatal else 1
    base.write(made + "\n")
    return 0


def _list_text(text: str) -> str:
    """Give the list itself, from a file (`/path`) or standard input (`-`) if that is named."""
    if text != "-" and not text.startswith("/"):
        return text
    try:
        with open(0 if text == "-" else text, "rb", closefd=text != "-") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        what = "Error reading" if isinstance(problem, IsADirectoryError) else "Can not open"
        raise base.Quit(1, f"{what} {text}") from None
    if len(data) > MAX_FILE_BYTES:
        raise base.Quit(1, f"File {text} is too large")
    return data.decode("utf-8", "surrogateescape")


# ---- records ---------------------------------------------------------------------------------------------------


def _jobs(name: str | None, options: Options) -> int:
    from cli import scontrol_records

    if name is None:
        fields = ",".join(scontrol_records.JOB_FIELDS)
        answer = _ask(f"/v1/jobs?states=all&all={int(options.all)}&fields={fields}", "slurm_load_jobs", options)
        found = _records(answer)
        if not found:
            base.write("No jobs in the system\n")
            return 0
    else:
        head = name.partition("_")[0]
        if not (head.isascii() and head.isdigit() and int(head[:12])) or "," in name or "." in name:
            raise base.Quit(1, "scontrol_print_job error: Invalid job id specified")
        try:
            found = _ask(f"/v1/jobs/{client.quote(name)}", "slurm_load_jobs", options)["jobs"]
        except errors.NotFound as problem:
            raise base.Quit(1, problem.sentence) from None
    base.write("".join([scontrol_records.job(one, options.oneliner, options.details) for one in found]))
    return 0


def _nodes(name: str | None, options: Options) -> int:
    from cli import scontrol_records

    fields = ",".join(scontrol_records.NODE_FIELDS)
    target = f"/v1/nodes?fields={fields}"
    missing: list[str] = []
    if name is not None:
        from muster import hostlist

        try:
            names = hostlist.expand(name)
        except hostlist.HostlistError:
            names = [name]
        answer = _ask(target, "slurm_load_node", options)
        known = {record["name"]: record for record in _records(answer)}
        found = [known[each] for each in names if each in known]
        missing = [each for each in names if each not in known]
    else:
        found = _records(_ask(target, "slurm_load_node", options))
    texts = [scontrol_records.node(one, options.oneliner, options.details) for one in found]
    if name is None and not texts:
        texts = ["No nodes in the system\n"]
    base.write("".join(texts + [f"Node {each} not found\n" for each in missing]))
    return 1 if missing else 0


def _partitions(name: str | None, options: Options) -> int:
    from cli import scontrol_records

    target = f"/v1/partitions?fields={','.join(scontrol_records.PARTITION_FIELDS)}"
    if name is not None:
        target += f"&name={client.quote(name)}"
    try:
        found = _records(_ask(target, "slurm_load_partitions", options))
    except errors.NotFound:
        base.write(f"Partition {name} not found\n")
        return 1
    if name is None and not options.all:
        found = [one for one in found if not one["hidden"]]
    if not found:
        base.write("No partitions in the system\n")
        return 0
    base.write("".join([scontrol_records.partition(one, options.oneliner) for one in found]))
    return 0


def _steps(name: str | None, options: Options) -> int:
    from cli import scontrol_records

    target = f"/v1/steps?states=all&fields={','.join(scontrol_records.STEP_FIELDS)}"
    job = ""
    if name is not None:
        job = name.partition(".")[0]
        target += f"&ids={client.quote(job)}&steps={client.quote(name)}"
    try:
        found = _records(_ask(target, "slurm_get_job_steps", options))
    except base.Quit as end:
        if job and "Invalid job id specified" in end.lines[0]:
            text = f"scontrol_print_step: slurm_get_job_steps({job}) failed: Invalid job id specified"
            raise base.Quit(1, f"scontrol: error: {text}") from None
        raise
    if not found:
        if name is None:
            base.write("No job steps in the system\n")
            return 0
        base.write(f"Job step {name if '.' in name else name + '.'} not found\n")
        return 1
    found.sort(key=lambda one: one["id_sort"])
    base.write("".join([scontrol_records.step(one, options.oneliner) for one in found]))
    return 0


def _config(options: Options) -> int:
    from muster.timepoints import format_time_point

    answer = _ask("/v1/config", "slurm_load_ctl_conf", options)
    lines = [f"Configuration data as of {format_time_point(answer['now'])}"]
    lines += [f"{name:<23} = {value}" for name, value in answer["pairs"]]
    lines += ["", f"Slurmctld(primary) at {answer['host']} is UP"]
    base.write("\n".join(lines) + "\n")
    return 0


def _reservations(name: str | None, options: Options) -> int:
    from cli import scontrol_reservations

    found = _ask("/v1/reservations", "slurm_load_reservations", options)["reservations"]
    if name is not None:
        found = [one for one in found if one["name"] == name]
        if not found:
            base.write(f"Reservation {name} not found\n")
            return 1
    if not found:
        base.write("No reservations in the system\n")
        return 0
    base.write("".join([scontrol_reservations.record(one, options.oneliner) for one in found]))
    return 0


def _daemons() -> int:
    """Name the daemons of this host by what its socket says: the controller answers only where one is."""
    try:
        answer = client.call("GET", "/v1/ping", patience_seconds=0.0)
    except errors.Unavailable:
        base.write("\n")
        return 0
    here = os.uname().nodename.partition(".")[0]
    base.write("slurmctld slurmd\n" if answer["host"] == here else "slurmd\n")
    return 0

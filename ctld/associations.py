"""AssociationFile= to associations and QOS: the tree that `sacctmgr dump` writes, as the core's records.

Account, user and QOS names are in lower case, as in accounting. A file that defines no QOS (those written before Slurm
25.05) makes every QOS that it names, without limits; else a name that no line defines is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ctld.core.accounts import NORMAL, PARENT_SHARES, UNSET, Association, Limits, Qos, Share
from ctld.core.commands import ApplyAccounts
from muster.config.problems import Place, Problems, nearest
from muster.config.records import ClusterConfig
from muster.config.syntax import read_text
from muster.dumpfile import Entry, parse
from muster.errors import InvalidInput
from muster.tres import parse_tres
from muster.units import parse_duration, parse_limit_minutes


def command(config: ClusterConfig) -> tuple[ApplyAccounts, tuple[str, ...]]:
    """Give the command that makes the configured file's tree the one in force, and what is to be told of it; without
    a file the command for no tree at all.

    Raises:
        ConfigError: with every mistake found, each line `file:line: sentence`.
    """
    if not config.association_file:
        idle = [f"PartitionName={one.name}: QOS={one.qos}" for one in config.partitions if one.qos]
        enforced = {"associations", "limits", "qos", "safe"}.intersection(config.accounting_enforce)
        if enforced:
            idle.append(f"AccountingStorageEnforce={','.join(sorted(enforced))}")
        return ApplyAccounts((), ()), tuple(f"{what} has no effect without AssociationFile" for what in idle)
    path = Path(config.association_file)
    problems = Problems()
    text = read_text(path, problems, Place(config.path), "AssociationFile: ")
    made = read(text or "", str(path), problems)
    if text is not None and not made.associations and not problems.errors:
        # A file that was cut off must not let everybody in without a limit.
        sentence = "there is no Cluster, Account or User line: everybody would be let in, without limits"
        problems.error(Place(str(path)), sentence, "restore the file, or take AssociationFile= out")
    _warn_of_unknown_gres(made, set(config.gres_types), path, problems)
    for one in made.qos:
        modes = one.preempt_mode.split(",")
        if "SUSPEND" in modes and "GANG" not in (*modes, *config.preempt_mode):
            sentence = f"QOS {one.name}: PreemptMode=SUSPEND requires GANG too"
            problems.error(Place(str(path)), sentence, "add GANG to the cluster's PreemptMode")
    known = {one.name for one in made.qos}
    for partition in config.partitions:
        qos = partition.qos.lower()
        if qos and qos not in known:
            problems.error(
                Place(config.path), f"PartitionName={partition.name}: QOS={qos} is not defined", nearest(qos, known)
            )
    problems.raise_if_any()
    return made, tuple(problems.warnings)


def _warn_of_unknown_gres(made: ApplyAccounts, known: set[str], path: Path, problems: Problems) -> None:
    """A limit of what no node has keeps nobody back: a word with a slip in it, or a resource of former times."""
    records: list[Limits | Share] = [one.limits for one in made.associations]
    for qos in made.qos:
        records += (qos.limits, qos.per_user, qos.per_account)
    fields = [getattr(one, name) for one in records for name in one.__struct_fields__]
    fields += [one.min_tres_per_job for one in made.qos]
    names = {name.partition(":")[0] for one in fields if isinstance(one, dict) for name in one}
    for name in sorted(names):
        kind, _, what = name.partition("/")
        if kind == "gres" and what not in known:
            problems.warning(Place(str(path)), f"limits of {name} have no effect: GresTypes does not name {what}")


def read(text: str, file: str, problems: Problems) -> ApplyAccounts:
    """Read the tree; mistakes go to `problems`."""
    reader = _Reader(problems, Place(file))
    for entry in parse(text, file, problems):
        reader.take(entry)
    return reader.finish()


@dataclass(slots=True)
class _Reader:
    problems: Problems
    file: Place
    associations: list[Association] = field(default_factory=list)
    qos: dict[str, Qos] = field(default_factory=dict)
    accounts: dict[str, int] = field(default_factory=dict)
    parent: str = "root"
    default_accounts: dict[str, str] = field(default_factory=dict)
    seen: set[tuple[str, str, str]] = field(default_factory=set)
    named: list[tuple[str, Place]] = field(default_factory=list)
    """QOS that something names, and where."""

    def take(self, entry: Entry) -> None:
        name = entry.name.lower()
        if entry.kind == "QOS":
            if name in self.qos:
                self.problems.error(entry.place, f"QOS {name} is defined twice")
            self.qos[name] = self._qos(entry, Qos(len(self.qos) + 1, name))
        elif entry.kind == "Cluster":
            if self.associations:
                self.problems.error(entry.place, "the Cluster line is not the first of the tree, or is there twice")
                return
            self._root(entry)
        elif entry.kind == "Parent":
            self._needs_root()
            if name not in self.accounts:
                hint = nearest(name, self.accounts) or "an account is defined before it is a parent"
                self.problems.error(entry.place, f"Parent {name} is no account", hint)
            self.parent = name
        elif entry.kind == "Account":
            self._needs_root()
            self._add(entry, Association(len(self.associations) + 1, name, parent_id=self.accounts.get(self.parent, 1)))
            self.accounts[name] = len(self.associations)
        else:
            self._needs_root()
            self._user(entry, name)

    def finish(self) -> ApplyAccounts:
        made = bool(self.qos)
        for name, place in self.named:
            if name not in self.qos and made and name != NORMAL:
                self.problems.error(place, f"QOS {name} is not defined", nearest(name, self.qos) or "add a QOS line")
            self.qos.setdefault(name, Qos(len(self.qos) + 1, name))
        self.qos.setdefault(NORMAL, Qos(len(self.qos) + 1, NORMAL))
        if not made and len(self.qos) > 1:
            names = ", ".join(name for name in self.qos if name != NORMAL)
            self.problems.warning(self.file, f"no QOS line defines {names}: they have priority 0 and no limits")
        return ApplyAccounts(tuple(self.associations), tuple(self.qos.values()))

    # ---- lines -------------------------------------------------------------------------------------------------

    def _needs_root(self) -> None:
        if not self.associations:
            self._root(Entry("Cluster", "", {}, self.file))

    def _root(self, entry: Entry) -> None:
        self._add(entry, Association(1, "root"))
        self.accounts["root"] = 1

    def _user(self, entry: Entry, name: str) -> None:
        account = self.parent
        default = entry.options.get("defaultaccount", "").lower()
        known = self.default_accounts.setdefault(name, default) or default
        if default and known != default:
            self.problems.error(entry.place, f"user {name} has two default accounts, {known} and {default}")
        self.default_accounts[name] = known
        one = Association(
            len(self.associations) + 1,
            account,
            parent_id=self.accounts.get(account, 1),
            user=name,
            partition=entry.options.get("partition", ""),
            default=known == account,
        )
        self._add(entry, one)

    def _add(self, entry: Entry, one: Association) -> None:
        key = (one.user, one.account, one.partition)
        if key in self.seen:
            what = f"user {one.user} of account {one.account}" if one.user else f"account {one.account}"
            self.problems.error(entry.place, f"{what} is there twice")
        self.seen.add(key)
        values = self._values(entry, _ASSOCIATION, _PASSED_OVER[entry.kind])
        limits = {name: values.pop(name) for name in Limits.__struct_fields__ if name in values}
        self.named += [(name.lstrip("+-"), entry.place) for name in values.get("qos", ())]
        if values.get("default_qos"):
            self.named.append((values["default_qos"], entry.place))
        self.associations.append(msgspec.structs.replace(one, limits=Limits(**limits), **values))

    def _qos(self, entry: Entry, one: Qos) -> Qos:
        values = self._values(entry, _QOS, ())
        parts: dict[str, dict[str, Any]] = {"limits": {}, "per_user": {}, "per_account": {}}
        for name in list(values):
            part, dot, inner = name.partition(".")
            if dot:
                parts[part][inner] = values.pop(name)
            elif name in Limits.__struct_fields__:
                parts["limits"][name] = values.pop(name)
        self.named += [(name, entry.place) for name in values.get("preempt", ())]
        idle = [f"Flags={flag}" for flag in values.get("flags", ()) if flag in _IDLE_FLAGS]
        for what in idle:
            self.problems.warning(entry.place, f"{what} of QOS {one.name} has no effect in this release")
        return msgspec.structs.replace(
            one,
            limits=Limits(**parts["limits"]),
            per_user=Share(**parts["per_user"]),
            per_account=Share(**parts["per_account"]),
            **values,
        )

    def _values(self, entry: Entry, table: dict[str, _Option], passed_over: tuple[str, ...]) -> dict[str, Any]:
        # Any: the values are as varied as the fields of the records that they fill.
        values: dict[str, Any] = {}
        for key, text in entry.options.items():
            option = table.get(key)
            if option is None:
                if key not in passed_over:
                    self.problems.error(entry.place, f"{entry.kind} takes no {key}=", nearest(key, table))
                continue
            try:
                value = option.read(text)
            except InvalidInput as error:
                sentence = f'{key}="{text[:60]}" cannot be read: {error.sentence}'
                self.problems.error(entry.place, sentence, error.hint)
                continue
            except ValueError as error:
                self.problems.error(entry.place, f'{key}="{text[:60]}" cannot be read: {error}')
                continue
            if option.tres:
                value = {**values.get(option.field, {}), **({} if value == UNSET else {option.tres: value})}
            elif isinstance(value, dict):
                value = {**values.get(option.field, {}), **{name: n for name, n in value.items() if n != UNSET}}
            values[option.field] = value
        return values


# ---- what options mean -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    read: Callable[[str], Any]
    tres: str = ""
    """Old options name one TRES (GrpCPUs): the value is its amount."""


def _number(text: str) -> int:
    if text.lower() in ("", "-1", "none", "infinite", "unlimited"):
        return UNSET
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError("write a whole number, or -1 for none")
    return int(text)


def _float(text: str) -> float:
    if text in ("", "-1"):
        return -1.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e12:
        raise ValueError("write a number that is not negative, or -1 for none")
    return number


def _minutes(text: str) -> int:
    minutes = parse_limit_minutes(text) if text else None
    return UNSET if minutes is None else minutes


def _seconds(text: str) -> int:
    seconds = parse_duration(text) if text else None
    return UNSET if seconds is None else seconds


def _grace(text: str) -> int:
    # GraceTime is in seconds where it is a plain number.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else max(0, _seconds(text))


def _shares(text: str) -> int:
    if text.lower() == "parent":
        return PARENT_SHARES
    shares = _number(text)
    return 1 if shares == UNSET else shares


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip("+- \t")))


def _flags(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word.lower() not in _QOS_FLAGS:
            hint = nearest(word, _QOS_FLAGS.values())
            raise ValueError(f"{word} is no flag of a QOS" + (f", {hint}" if hint else ""))
    return tuple(dict.fromkeys(_QOS_FLAGS[word.lower()] for word in words))


def _mode(text: str) -> str:
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in ("CLUSTER", "OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "WITHIN"):
            raise ValueError("the modes are OFF, CANCEL, REQUEUE, SUSPEND, GANG and WITHIN")
    if len({"OFF", "CANCEL", "REQUEUE", "SUSPEND"}.intersection(words)) > 1:
        raise ValueError("write only one of OFF, CANCEL, REQUEUE and SUSPEND")
    if "GANG" in words and not {"CANCEL", "REQUEUE", "SUSPEND"}.intersection(words):
        raise ValueError("GANG alone would be time slices, which are not in this release")
    return ",".join(word for word in words if word != "CLUSTER")


_QOS_FLAGS = {
    name.lower(): name
    for name in (
        "DenyOnLimit", "EnforceUsageThreshold", "NoDecay", "NoReserve", "OverPartQOS", "PartitionMaxNodes",
        "PartitionMinNodes", "PartitionTimeLimit", "Relative", "RequiresReservation", "UsageFactorSafe",
    )
}  # fmt: skip
_IDLE_FLAGS = ("NoReserve", "Relative")
"""Of these nothing is done yet."""

_COMMON = {
    "priority": _Option("priority", _number),
    "grpjobs": _Option("grp_jobs", _number),
    "grpjobsaccrue": _Option("grp_jobs_accrue", _number),
    "grpsubmit": _Option("grp_submit_jobs", _number),
    "grpsubmitjobs": _Option("grp_submit_jobs", _number),
    "grptres": _Option("grp_tres", parse_tres),
    "grptresmins": _Option("grp_tres_minutes", parse_tres),
    "grptresrunmins": _Option("grp_tres_run_minutes", parse_tres),
    "grpwall": _Option("grp_wall_minutes", _minutes),
    "grpcpus": _Option("grp_tres", _number, "cpu"),
    "grpnodes": _Option("grp_tres", _number, "node"),
    "grpmem": _Option("grp_tres", _number, "mem"),
    "grpcpumins": _Option("grp_tres_minutes", _number, "cpu"),
    "grpcpurunmins": _Option("grp_tres_run_minutes", _number, "cpu"),
    "maxcpus": _Option("max_tres_per_job", _number, "cpu"),
    "maxnodes": _Option("max_tres_per_job", _number, "node"),
    "maxcpumins": _Option("max_tres_minutes_per_job", _number, "cpu"),
    **dict.fromkeys(("maxtres", "maxtresperjob", "maxtrespj"), _Option("max_tres_per_job", parse_tres)),
    **dict.fromkeys(("maxtrespernode", "maxtrespn"), _Option("max_tres_per_node", parse_tres)),
    **dict.fromkeys(
        ("maxtresmins", "maxtresminsperjob", "maxtresminspj"), _Option("max_tres_minutes_per_job", parse_tres)
    ),
    **dict.fromkeys(("maxwall", "maxwalldurationperjob", "maxwallpj"), _Option("max_wall_minutes_per_job", _minutes)),
    **dict.fromkeys(("minpriothresh", "minpriothreshold"), _Option("min_prio_threshold", _number)),
    "description": _Option("description", str),
}
_ASSOCIATION = {
    **_COMMON,
    "fairshare": _Option("shares", _shares),
    "share": _Option("shares", _shares),
    "defaultqos": _Option("default_qos", str.lower),
    "qos": _Option("qos", _names),
    "qoslevel": _Option("qos", _names),
    "maxjobs": _Option("max_jobs", _number),
    "maxjobsaccrue": _Option("max_jobs_accrue", _number),
    "maxsubmit": _Option("max_submit_jobs", _number),
    "maxsubmitjobs": _Option("max_submit_jobs", _number),
    "comment": _Option("comment", str),
    "organization": _Option("organization", str),
}
_QOS = {
    **_COMMON,
    "flags": _Option("flags", _flags),
    "gracetime": _Option("grace_seconds", _grace),
    "preempt": _Option("preempt", _names),
    "preemptmode": _Option("preempt_mode", _mode),
    "preemptexempttime": _Option("preempt_exempt_seconds", _seconds),
    "usagefactor": _Option("usage_factor", _float),
    **dict.fromkeys(("usagethres", "usagethreshold"), _Option("usage_threshold", _float)),
    "limitfactor": _Option("limit_factor", _float),
    "maxqueuewait": _Option("max_queue_wait_seconds", _seconds),
    **dict.fromkeys(("mintres", "mintresperjob", "mintrespj"), _Option("min_tres_per_job", parse_tres)),
    **dict.fromkeys(("maxjobs", "maxjobsperuser", "maxjobspu"), _Option("per_user.jobs", _number)),
    **dict.fromkeys(("maxjobsperaccount", "maxjobspa"), _Option("per_account.jobs", _number)),
    **dict.fromkeys(("maxjobsaccrueperuser", "maxjobsaccruepu"), _Option("per_user.jobs_accrue", _number)),
    **dict.fromkeys(("maxjobsaccrueperaccount", "maxjobsaccruepa"), _Option("per_account.jobs_accrue", _number)),
    **dict.fromkeys(
        ("maxsubmit", "maxsubmitjobs", "maxsubmitjobsperuser", "maxsubmitjobspu", "maxsubmitpu"),
        _Option("per_user.submit_jobs", _number),
    ),
    **dict.fromkeys(
        ("maxsubmitjobsperaccount", "maxsubmitjobspa", "maxsubmitpa"), _Option("per_account.submit_jobs", _number)
    ),
    **dict.fromkeys(("maxtresperuser", "maxtrespu"), _Option("per_user.tres", parse_tres)),
    **dict.fromkeys(("maxtresperaccount", "maxtrespa"), _Option("per_account.tres", parse_tres)),
    **dict.fromkeys(("maxtresrunminsperuser", "maxtresrunminspu"), _Option("per_user.tres_run_minutes", parse_tres)),
    **dict.fromkeys(
        ("maxtresrunminsperaccount", "maxtresrunminspa"), _Option("per_account.tres_run_minutes", parse_tres)
    ),
}
_PASSED_OVER = {
    "Cluster": ("classification", "features", "federation", "fedstate", "id"),
    "Account": ("flags", "coordinator"),
    "User": ("adminlevel", "coordinator", "defaultaccount", "defaultwckey", "partition", "wckeys"),
}
"""Options of a dump that say nothing about priority, limits or access to the queue."""

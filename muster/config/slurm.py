"""The global keys of slurm.conf: repeated and obsolete ones, what values imply, and combinations that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from muster.config import effects
from muster.config.keys import Given, field_values, note_unused
from muster.config.optionlists import BOUNDS, mistakes
from muster.config.problems import Place, Problems
from muster.config.records import Controller
from muster.config.slurmkeys import GLOBALS, OBSOLETE, OLD_CONTROLLERS, OLD_SELECT, SECRET
from muster.config.syntax import Pair
from muster.config.values import is_digits

ACCUMULATING = ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld", "SlurmctldHost")
DEFAULT_TRES = ("billing", "cpu", "energy", "mem", "node", "fs/disk", "pages", "vmem")
_ENFORCE = ("associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys")
_ENFORCE_IMPLIES = {
    "limits": ("associations",),
    "qos": ("associations",),
    "safe": ("limits", "associations"),
    "wckeys": ("associations",),
    "nojobs": ("nosteps",),
}
_GATHER = ("task", "energy", "network", "filesystem")
_HOST = re.compile(r"([^\s()]+)(?:\(([^\s()]+)\))?")


class Globals:
    """Collects the global pairs in order of reading, then gives the fields of ClusterConfig that they set."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._given: dict[str, Given] = {}
        self._several: dict[str, list[Given]] = {name: [] for name in ACCUMULATING}
        self._controllers: list[Controller] = []

    def add(self, pair: Pair, place: Place) -> None:
        """Take one pair; a key given again replaces the earlier one, except those that accumulate."""
        row = GLOBALS.written(pair.key)
        if row is not None and self._obsolete(row.name, pair, place):
            return
        given = GLOBALS.read(pair, place, self._problems)
        if given is None:
            return
        name = given.key.name
        acted_on = given.key.field in effects.GLOBALS or name in OLD_CONTROLLERS
        note_unused(given, self._problems, acted_on=acted_on)
        if name in self._several:
            if given.text:
                self._several[name].append(given)
            return
        if name in self._given:
            self._problems.warning(place, f"{name} specified more than once, latest value used")
        self._given[name] = given

    def _obsolete(self, name: str, pair: Pair, place: Place) -> bool:
        """Whether the key is one of older releases that goes no further."""
        if name == "FastSchedule":
            if pair.value == "1":
                self._problems.warning(place, "FastSchedule is obsolete and ignored")
            else:
                self._problems.error(
                    place,
                    f"FastSchedule={pair.value} is no longer supported",
                    "remove it; 2 is now SlurmdParameters=config_overrides",
                )
            return True
        if name == "AccountingStoreJobComment":
            self._problems.error(
                place, "AccountingStoreJobComment is no longer supported", "use AccountingStoreFlags=job_comment"
            )
            return True
        if name in OBSOLETE:
            self._problems.warning(place, f"{name} is obsolete and ignored")
            return True
        return False

    def raw(self) -> dict[str, str]:
        """Every key that was given, by canonical name, as written; a password is only said to be set."""
        raw = {name: given.text for name, given in self._given.items()}
        raw.update({name: "(set)" for name in SECRET if raw.get(name)})
        for name, several in self._several.items():
            if several:
                raw[name] = ",".join(given.text for given in several)
        return dict(sorted(raw.items(), key=lambda item: item[0].lower()))

    def fields(self, main: Place) -> dict[str, Any]:
        """The fields of ClusterConfig that global keys fill; `main` is the place of what is missing altogether.

        Any: the values are as varied as the fields; a test converts a whole record back through its types.
        """
        values: dict[str, Any] = GLOBALS.defaults()
        values.update(field_values(self._given))
        values["cluster_name"] = self._cluster_name(main)
        values["controllers"] = self._controller_list(main)
        values["accounting_storage_type"] = self._storage_type()
        values["accounting_enforce"] = self._enforce(values)
        values["accounting_tres"] = self._tres(values)
        values["job_acct_gather_frequency"] = self._gather_frequency()
        values["task_plugins"] = self._task_plugins()
        values["mpi_default"] = self._mpi_default()
        values["licenses"] = self._licenses(values["licenses"])
        for name in ACCUMULATING[:-1]:
            values[_field(name)] = tuple(given.text for given in self._several[name])
        if values["unkillable_step_timeout_seconds"] is None:
            values["unkillable_step_timeout_seconds"] = max(60, 5 * values["message_timeout_seconds"])
        for which in ("prolog", "epilog"):
            if values[f"{which}_timeout_seconds"] is None:
                values[f"{which}_timeout_seconds"] = values["prolog_epilog_timeout_seconds"]
        if values["enforce_part_limits"] == "YES":
            values["enforce_part_limits"] = "ALL"
        values["inactive_limit_seconds"] = values["inactive_limit_seconds"] or 0
        for name in BOUNDS:
            for sentence in mistakes(name, values[_field(name)]):
                self._error(name, sentence)
        self._memory(values)
        self._prolog_flags(values)
        self._select(values)
        self._refuse_combinations(values)
        return values

    def place_of(self, name: str, main: Place) -> Place:
        """Where a key was given last, or the file as a whole."""
        given = self._given.get(name)
        return given.place if given is not None else main

    def given(self, name: str) -> bool:
        """Whether a key was given a value."""
        item = self._given.get(name)
        return item is not None and bool(item.text)

    def _text(self, name: str) -> str:
        given = self._given.get(name)
        return given.text if given is not None else ""

    def _error(self, name: str, sentence: str, hint: str = "") -> None:
        self._problems.error(self._given[name].place, sentence, hint)

    def _cluster_name(self, main: Place) -> str:
        name = self._text("ClusterName").lower()
        if not name:
            self._problems.error(main, "ClusterName needs to be specified", "add a line such as ClusterName=mycluster")
        elif len(name) > 40:
            self._error("ClusterName", f"ClusterName={name[:50]} is longer than 40 characters")
        elif re.fullmatch(r"[a-z0-9_.\-]+", name) is None:
            self._error("ClusterName", f"ClusterName={name} may hold letters, digits, - _ and . only")
        return name

    def _controller_list(self, main: Place) -> tuple[Controller, ...]:
        found: list[Controller] = []
        for given in self._several["SlurmctldHost"]:
            matched = _HOST.fullmatch(given.text)
            if matched is None:
                hint = "write SlurmctldHost=name or SlurmctldHost=name(address)"
                self._problems.error(given.place, f'SlurmctldHost="{given.text}" is not a host', hint)
                continue
            if any(other.host == matched[1] for other in found):
                self._problems.warning(given.place, f"SlurmctldHost={matched[1]} specified more than once")
                continue
            found.append(Controller(matched[1], matched[2] or matched[1]))
        old = [(name, self._text(name)) for name in ("ControlMachine", "BackupController") if self._text(name)]
        if found or self._several["SlurmctldHost"]:
            for name, _ in old:
                self._problems.warning(self._given[name].place, f"Ignoring {name} since SlurmctldHost is set.")
            return tuple(found)
        addresses = {"ControlMachine": "ControlAddr", "BackupController": "BackupAddr"}
        for name, written in old:
            for index, host in enumerate(written.split(",")):
                addr = self._text(addresses[name]) if index == 0 else ""
                if host.strip():
                    found.append(Controller(host.strip(), addr or host.strip()))
        if not found:
            self._problems.error(main, "No SlurmctldHost defined.", "add a line such as SlurmctldHost=head1")
        return tuple(found)

    def _storage_type(self) -> str:
        written = self._text("AccountingStorageType")
        name = written.rpartition("/")[2].lower()
        if name in ("", "none"):
            return ""
        if name.endswith("slurmdbd") or name == "dbd":
            return "accounting_storage/slurmdbd"
        self._error(
            "AccountingStorageType",
            f"AccountingStorageType={written} is not supported",
            "use accounting_storage/slurmdbd; the database is named in dbd.conf",
        )
        return ""

    def _enforce(self, values: dict[str, Any]) -> tuple[str, ...]:
        found: set[str] = set()
        for item in self._text("AccountingStorageEnforce").lower().split(","):
            item = item.strip()
            if item in ("1", "associations"):
                found.add("associations")
            elif item == "all":
                found |= {word for word in _ENFORCE if word not in ("nojobs", "nosteps")}
            elif item in _ENFORCE:
                found.add(item)
            elif item not in ("", "0", "none"):
                self._error(
                    "AccountingStorageEnforce",
                    f"AccountingStorageEnforce invalid: {item}",
                    f"use {', '.join(_ENFORCE)} or all",
                )
        for word, implied in _ENFORCE_IMPLIES.items():
            if word in found:
                found.update(implied)
        if "wckeys" in found:
            values["track_wckey"] = True
        return tuple(word for word in _ENFORCE if word in found)

    def _tres(self, values: dict[str, Any]) -> tuple[str, ...]:
        found = list(DEFAULT_TRES)
        for written in values["accounting_tres"]:
            name = written.lower() if ":" not in written else written
            wanted = [name]
            if name.partition(":")[0] == "gres/gpu":
                wanted += ["gres/gpumem", "gres/gpuutil"]
            kind, slash, rest = name.partition("/")
            if kind == "gres" and slash and rest.partition(":")[0] not in values["gres_types"]:
                self._problems.warning(
                    self._given["AccountingStorageTRES"].place,
                    f"AccountingStorageTRES names {written}, and GresTypes does not",
                )
            found += [each for each in wanted if each not in found]
        return tuple(found)

    def _gather_frequency(self) -> dict[str, int]:
        found = {"task": 30, "energy": 0, "network": 0, "filesystem": 0}
        for item in self._text("JobAcctGatherFrequency").split(","):
            name, equals, written = item.strip().partition("=")
            if not equals:
                name, written = "task", name
            if not written and not equals:
                continue
            if name.lower() not in _GATHER or not is_digits(written) or len(written) > 9:
                hint = "write seconds, or task=30,energy=0,network=0,filesystem=0"
                self._error(
                    "JobAcctGatherFrequency", f'JobAcctGatherFrequency: "{item.strip()}" is not a frequency', hint
                )
                continue
            found[name.lower()] = int(written)
        return found

    def _task_plugins(self) -> tuple[str, ...]:
        found: list[str] = []
        for item in self._text("TaskPlugin").lower().split(","):
            name = item.strip().rpartition("/")[2]
            if name in ("affinity", "cgroup"):
                found.append(name)
            elif name not in ("", "none"):
                self._error(
                    "TaskPlugin", f"TaskPlugin={item.strip()} is not known", "use task/affinity and task/cgroup"
                )
        return tuple(dict.fromkeys(found))

    def _mpi_default(self) -> str:
        word = self._text("MpiDefault").lower() or "none"
        if re.fullmatch(r"pmix(_v[0-9]+)?", word) is not None:
            return "pmix"
        if word not in ("none", "pmi2"):
            self._error("MpiDefault", f"MpiDefault={word} is not known", "use none, pmi2 or pmix")
        return word

    def _licenses(self, written: Iterable[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for item in written:
            name, colon, amount = item.partition(":")
            if not colon:
                name, colon, amount = item.partition("*")
            if not name or set("|;=:* \t").intersection(name) or (colon and (not is_digits(amount) or len(amount) > 9)):
                self._error("Licenses", f'Licenses: "{item}" is not name or name:count')
                continue
            if name in found:
                self._error("Licenses", f"Licenses names {name} twice")
                continue
            found[name] = int(amount) if colon else 1
        return found

    def _memory(self, values: dict[str, Any]) -> None:
        for which in ("Def", "Max"):
            fields = [
                f"{which.lower()}_mem_per_{unit}_mib"
                for unit in ("node", "cpu", "gpu")
                if (which, unit) != ("Max", "gpu")
            ]
            for name in fields:
                values[name] = values[name] or 0
            for unit, short in (("CPU", "cpu"), ("GPU", "gpu")):
                name = f"{which.lower()}_mem_per_{short}_mib"
                if name in fields and values[fields[0]] and values[name]:
                    self._problems.warning(
                        self._given[f"{which}MemPer{unit}"].place,
                        f"{which}MemPer{unit} ignored, since it's mutually exclusive with {which}MemPerNode",
                    )
                    values[name] = 0

    def _prolog_flags(self, values: dict[str, Any]) -> None:
        flags = list(values["prolog_flags"])
        if not flags:
            return
        if "NoHold" in flags and ("Contain" in flags or "X11" in flags):
            self._error("PrologFlags", "PrologFlags=NoHold does not go with Contain or X11", "leave out NoHold")
        if "X11" in flags or "RunInJob" in flags:
            flags.append("Contain")
        flags.append("Alloc")
        values["prolog_flags"] = tuple(dict.fromkeys(flags))

    def _select(self, values: dict[str, Any]) -> None:
        """Options of allocation alone leave the kind of resource at its default; cons_tres replaced cons_res."""
        if values["select_type"] == OLD_SELECT:
            values["select_type"] = "select/cons_tres"
            self._problems.warning(
                self._given["SelectType"].place, "select/cons_res is obsolete, select/cons_tres is used"
            )
        kinds = ("CR_CPU", "CR_CPU_Memory", "CR_Core", "CR_Core_Memory", "CR_Socket", "CR_Socket_Memory", "CR_Memory")
        chosen = [word for word in values["select_type_parameters"] if word in kinds]
        if len(chosen) > 1:
            self._error(
                "SelectTypeParameters", f"SelectTypeParameters invalid: {chosen[0]} and {chosen[1]} exclude each other"
            )
        if not chosen:
            values["select_type_parameters"] = ("CR_Core_Memory", *values["select_type_parameters"])

    def _refuse_combinations(self, values: dict[str, Any]) -> None:
        """The rows that the specification marks fatal."""
        for name, field in (
            ("PriorityCalcPeriod", "priority_calc_period_seconds"),
            ("PriorityMaxAge", "priority_max_age_seconds"),
            ("PriorityDecayHalfLife", "priority_decay_half_life_seconds"),
        ):
            if values[field] is None or (values[field] == 0 and name != "PriorityDecayHalfLife"):
                self._error(name, f"{name}={self._text(name)} must be a time above zero")
                values[field] = 1
        if values["priority_decay_half_life_seconds"] == 0 and values["priority_usage_reset_period"] == "NONE":
            self._error(
                "PriorityDecayHalfLife",
                "PriorityDecayHalfLife=0 needs a PriorityUsageResetPeriod",
                "usage would grow for ever; set PriorityUsageResetPeriod, for example to MONTHLY",
            )
        modes = set(values["preempt_mode"])
        if "OFF" in modes and len(modes) > 1:
            self._error("PreemptMode", f"PreemptMode={self._text('PreemptMode')} names OFF with another mode")
        if values["preempt_type"] and (not modes or "OFF" in modes):
            self._error(
                "PreemptType", "PreemptType and PreemptMode values incompatible", "set PreemptMode to CANCEL or REQUEUE"
            )
        if "SUSPEND" in modes and "GANG" not in modes:
            self._error("PreemptMode", "PreemptMode=SUSPEND requires GANG too", "write PreemptMode=SUSPEND,GANG")
        if "GANG" in modes and not modes & {"CANCEL", "REQUEUE", "SUSPEND"}:
            self._error(
                "PreemptMode",
                f"PreemptMode={self._text('PreemptMode')} asks for time slices alone, which this release does not have",
                "write PreemptMode=SUSPEND,GANG with a PreemptType, or leave GANG out",
            )
        if not values["preempt_type"] and modes & {"CANCEL", "REQUEUE", "SUSPEND"}:
            self._error(
                "PreemptMode",
                "PreemptType and PreemptMode values incompatible",
                "set PreemptType to preempt/partition_prio or preempt/qos",
            )
        if len(modes & {"CANCEL", "REQUEUE", "SUSPEND"}) > 1:
            self._error("PreemptMode", f"PreemptMode={self._text('PreemptMode')} names more than one way to preempt")
        gather = {word.lower() for word in values["job_acct_gather_parameters"]}
        if {"usepss", "noshared"} <= gather:
            self._error("JobAcctGatherParams", "JobAcctGatherParams=UsePss and NoShared exclude each other")
        launch = {word.lower() for word in values["launch_parameters"]}
        if {"enable_nss_slurm", "disable_send_gids"} <= launch:
            self._error(
                "LaunchParameters", "LaunchParameters=enable_nss_slurm and disable_send_gids exclude each other"
            )
        health = values["health_check_node_state"]
        if len(health) > 1 and any(word.endswith("_ONLY") for word in health):
            self._error("HealthCheckNodeState", "HealthCheckNodeState=START_ONLY or REBOOT_ONLY must stand alone")
        if self.given("PropagateResourceLimits") and self.given("PropagateResourceLimitsExcept"):
            self._error(
                "PropagateResourceLimitsExcept",
                "PropagateResourceLimits and PropagateResourceLimitsExcept exclude each other",
                "keep one of the two",
            )
        elif self.given("PropagateResourceLimitsExcept"):
            values["propagate_limits"] = ()
        words = {word.strip().lower() for word in self._text("CommunicationParameters").split(",")}
        if "disableipv4" in words and "enableipv6" not in words:
            self._error(
                "CommunicationParameters", "CommunicationParameters turns off both IPv4 and IPv6", "add EnableIPv6"
            )
        namespace = self._text("NamespaceType").rpartition("/")[2].lower()
        if namespace not in ("", "none") and "Contain" not in values["prolog_flags"]:
            self._error("NamespaceType", "NamespaceType needs PrologFlags=Contain", "add Contain to PrologFlags")
        if values["first_job_id"] > values["max_job_id"]:
            name = "FirstJobId" if self.given("FirstJobId") else "MaxJobId"
            self._error(name, f"FirstJobId={values['first_job_id']} is above MaxJobId={values['max_job_id']}")
        first, last = values["controller_ports"]
        if first != last:
            self._problems.warning(
                self._given["SlurmctldPort"].place,
                f"SlurmctldPort={first}-{last}: one connection a node needs one port, {first} is used",
            )


def _field(name: str) -> str:
    row = GLOBALS.written(name)
    assert row is not None
    return row.field

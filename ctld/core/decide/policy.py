"""Limits of associations and QOS at the door: what is refused outright, and the time limit of who asks for none."""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core.cluster import PartitionSpec
from ctld.core.decide.admission import limit_seconds
from ctld.core.decide.refusals import invalid, refused
from ctld.core.limits.asked import least
from ctld.core.limits.book import Rule, Ruleset
from ctld.core.limits.check import Check, static
from ctld.core.limits.gate import NOTHING_USED
from ctld.core.limits.kinds import SUBMITTED_JOBS
from ctld.core.model import UNLIMITED, Job, JobSpec
from ctld.core.plan import LimitNumbers
from ctld.core.state import State
from muster.errors import MusterError
from muster.ids import JobId, UnixTime


def check_policy(state: State, spec: JobSpec, partitions: Sequence[PartitionSpec], at: UnixTime, *, new: int) -> None:
    """Check a job against the limits of its associations and QOS: with several partitions one has to take it, or all
    of them where EnforcePartLimits=ALL.

    What only has to wait for others to end is let in; what exceeds a limit by itself too, unless its QOS says
    DenyOnLimit or it has none.

    Args:
        new: jobs that are added to those in the queue; 0: it is there already.

    Raises:
        Refused: `Job violates accounting/QOS policy (...)`; the hint begins with the reason that Slurm shows.
    """
    if not state.limits.enforced:
        return
    problems = [found for one in partitions if (found := _problem(state, spec, one, at, new)) is not None]
    if problems and (state.settings.enforce_part_limits.upper() == "ALL" or len(problems) == len(partitions)):
        raise problems[0]


def check_reservation(state: State, spec: JobSpec) -> None:
    """Check that a job whose QOS says RequiresReservation names an advance reservation.

    Raises:
        InvalidInput: `Invalid qos specification`.
    """
    qos = state.accounts.qos.get(spec.qos.partition(",")[0])
    if qos is None or spec.request.reservations or not state.settings.accounting_enforce:
        return
    if any(flag.lower() == "requiresreservation" for flag in qos.flags):
        raise invalid(2066, f"QOS {qos.name} is for jobs in an advance reservation: name one with --reservation")


def over_wall(state: State, spec: JobSpec) -> bool:
    """Tell whether a job's own time limit is over the MaxWall of one of its partitions' limits."""
    asked = spec.time_limit_minutes
    found = [_rules(state, spec, one).wall_minutes for one in (state.partitions.get(n) for n in spec.partitions) if one]
    return bool(asked) and any(most != UNLIMITED and not 0 < asked <= most for most in found)


def default_limit_seconds(state: State, spec: JobSpec, partition: PartitionSpec) -> int:
    """Give the time limit that a job has: as asked, else the partition's default within MaxWall; -1 is none."""
    seconds = limit_seconds(spec, partition)
    if spec.time_limit_minutes or not state.limits.enforced:
        return seconds
    most = _rules(state, spec, partition).wall_minutes
    if most == UNLIMITED:
        return seconds
    return min(seconds, most * 60) if seconds != UNLIMITED else most * 60


def _problem(state: State, spec: JobSpec, partition: PartitionSpec, at: UnixTime, new: int) -> MusterError | None:
    rules = _rules(state, spec, partition)
    seconds = default_limit_seconds(state, spec, partition)
    job = Job(JobId(0), spec, at, 0)
    asked = least(state, job, partition.name, seconds, size=new)
    check = Check(state.load, NOTHING_USED, at, safe=False)
    for rule in rules.at_submit:
        if rule.kind in SUBMITTED_JOBS:
            found = check.first((rule,), asked) if new else None
        else:
            found = static((rule,), asked, rules.usage_factor) if rules.deny else None
        if found is not None:
            return _refusal(*found)
    return None


def _rules(state: State, spec: JobSpec, partition: PartitionSpec) -> Ruleset:
    return state.limits.ruleset(spec.user, spec.account, spec.qos, partition.name)


def _refusal(rule: Rule, numbers: LimitNumbers) -> MusterError:
    return refused(2050, f"{rule.reason}: {numbers.sentence()}")

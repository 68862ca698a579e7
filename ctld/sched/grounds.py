"""One sentence for each reason why a job waits, with the number that failed."""

from __future__ import annotations

from ctld.core import licenses
from ctld.core.cluster import PartitionSpec
from ctld.core.decide.clauses import SINGLETON, clause_text
from ctld.core.limits.book import Ruleset
from ctld.core.model import UNLIMITED, Clause, Job
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.core.times import latest_start
from ctld.sched.explanation import Stage
from muster.hostlist import sort_compress
from muster.states import JobState, Reason

_MOST_CLAUSES = 8
_GONE = "is no longer known"


def lasting(state: State, job: Job, wait: Wait, at: int) -> list[Stage]:
    """Give the stages that hang on no partition: holds, dependencies, times, the array's limit, cleaning up."""
    held = bool(job.hold or not job.priority)
    stages = [Stage("hold", not held, _hold(state, job, wait) if held else "it is not held")]
    if job.clauses:
        stages.append(Stage("dependency", False, _dependency(state, job, wait)))
    if job.begin_at > at:
        stages.append(Stage("begin time", False, f"it may begin in {job.begin_at - at} seconds (BeginTime)"))
    if job.spec.deadline_at:
        left = latest_start(job) - at
        text = f"to end by its deadline it has to start within {left} seconds"
        stages.append(Stage("deadline", left >= 0, text))
    if job.array_limit:
        running = state.array_running.get(job.array_job_id or job.id, 0)
        text = f"{running} of at most {job.array_limit} members of its array run (ArrayTaskThrottle)"
        stages.append(Stage("array", running < job.array_limit, text))
    if job.completing:
        nodes = sort_compress([state.nodes[node].spec.name for node in job.completing])
        text = f"its last run is being cleaned up on {len(job.completing)} nodes: {nodes}"
        stages.append(Stage("cleaning", False, text))
    return stages


def _hold(state: State, job: Job, wait: Wait) -> str:
    who = "its owner" if job.hold == "user" else "an administrator"
    if wait.reason is Reason.MAX_REQUEUE:
        most = state.settings.max_batch_requeue
        return (
            f"it was requeued {job.restarts} times, MaxBatchRequeue is {most}; `scontrol release {job.id}` tries again"
        )
    if wait.reason is Reason.RESERVATION_DELETED:
        return f"its reservation is gone and 0 are left to it; `scontrol release {job.id}` lets it run without one"
    why = f" ({wait.text})" if wait.text else ""
    return f"its priority is 0: it was held by {who}{why}; `scontrol release {job.id}` lets it go"


def _dependency(state: State, job: Job, wait: Wait) -> str:
    said = [_clause(state, clause) for clause in job.clauses[:_MOST_CLAUSES]]
    more = len(job.clauses) - len(said)
    how = "one of" if job.clauses_any and len(job.clauses) > 1 else "all of" if len(job.clauses) > 1 else ""
    head = f"{how} {len(job.clauses)} dependencies".strip() if how else "1 dependency"
    if wait.reason is Reason.DEPENDENCY_NEVER:
        failed = sum(clause.failed for clause in job.clauses)
        head = f"{failed or len(job.clauses)} of {len(job.clauses)} dependencies can never be met"
    else:
        head += " to be met"
    return f"{head}: {'; '.join(said)}{f'; and {more} more' if more else ''}"


def _clause(state: State, clause: Clause) -> str:
    text = clause_text(clause, clause.job_id in state.by_array)
    if clause.kind == SINGLETON:
        return f"{text}: another job of this name and owner runs, or waits and came before"
    target = state.jobs.get(clause.job_id)
    if target is None:
        return f"{text}: job {clause.job_id} {_GONE}"
    word = JobState(target.state).name
    ended = target.state > JobState.SUSPENDED
    code = f" with exit code {target.exit_status >> 8}:{target.exit_status & 127}" if ended else ""
    return f"{text}: job {clause.job_id} is {word}{code}"


def barred(state: State, job: Job, partition: PartitionSpec, wait: Wait, asked: int) -> tuple[str, str]:
    """Give the name of the stage and the sentence for why a job can never start in a partition as things are.

    Args:
        asked: seconds of a run there; -1: no limit.
    """
    name, spec, reason = partition.name, job.spec, wait.reason
    if wait.limit is not None:
        return "limits", wait.limit.sentence()
    if reason is Reason.PARTITION_DOWN and name not in state.partitions:
        return "partition", f"there is no partition {name} (any more); there are {len(state.partitions)}"
    if reason in (Reason.PARTITION_DOWN, Reason.PARTITION_INACTIVE):
        return "partition", f"partition {name} is {partition.state}: 0 jobs start there"
    if reason is Reason.PARTITION_TIME_LIMIT:
        minutes = "no limit" if asked == UNLIMITED else f"{-(-asked // 60)} minutes"
        return "time limit", f"{minutes} asked for, MaxTime of partition {name} is {partition.max_minutes} minutes"
    if reason is Reason.INVALID_ACCOUNT:
        count = len(state.accounts.associations)
        return "access", f"none of {count} associations is user {spec.user} in account {spec.account or '(none)'}"
    if reason is Reason.INVALID_QOS:
        found = state.limits.ruleset(spec.user, spec.account, spec.qos, name).association
        allowed = sorted(state.accounts.allowed_qos(found.id)) if found is not None else sorted(state.accounts.qos)
        return "access", f"QOS {spec.qos} is none of the {len(allowed)} that it may use: {', '.join(allowed)}"
    if reason is Reason.ACCOUNT_NOT_ALLOWED:
        lists = partition.allow_accounts, partition.deny_accounts
        return "access", _not_let_in("account", _placed(state, spec.account, lists[1]), name, *lists)
    if reason is Reason.QOS_NOT_ALLOWED:
        return "access", _not_let_in("QOS", spec.qos, name, partition.allow_qos, partition.deny_qos)
    return "request", wait.text or str(reason)


def _placed(state: State, account: str, listed: tuple[str, ...]) -> str:
    """Name an account with the one above it for which it is meant where only that is listed."""
    found = next((name for name in state.accounts.with_above(account) if name in listed), account)
    return account if found == account else f"{account} (below {found})"


def admitted(state: State, job: Job, partition: PartitionSpec, asked: int) -> list[Stage]:
    """Give the stages of a partition that takes a job: its state, and the lists and the time that it passed.

    Args:
        asked: seconds of a run there; -1: no limit.
    """
    stages = [Stage("partition", True, f"partition {partition.name} is {partition.state}")]
    account = _placed(state, job.spec.account, partition.allow_accounts)
    lists = (
        ("account", account, partition.allow_accounts, partition.deny_accounts),
        ("QOS", job.spec.qos, partition.allow_qos, partition.deny_qos),
    )
    said = []
    for kind, name, allowed, denied in lists:
        if allowed:
            said.append(f"{kind} {name} is one of the {len(allowed)} that it takes")
        elif denied:
            said.append(f"{kind} {name} is none of the {len(denied)} that it does not take")
    if said:
        stages.append(Stage("access", True, "; ".join(said)))
    if partition.max_minutes != UNLIMITED:
        text = f"{-(-asked // 60)} minutes asked for, MaxTime of partition {partition.name} is {partition.max_minutes}"
        stages.append(Stage("time limit", True, text + " minutes"))
    return stages


def _not_let_in(kind: str, name: str, partition: str, allowed: tuple[str, ...], denied: tuple[str, ...]) -> str:
    if allowed:
        return f"{kind} {name} is none of the {len(allowed)} that partition {partition} takes: {', '.join(allowed)}"
    return f"{kind} {name} is one of the {len(denied)} that partition {partition} does not take: {', '.join(denied)}"


def licensing(state: State, job: Job) -> Stage | None:
    """Give the stage of licences; None where the job asks for none."""
    wanted = licenses.wanted_of(job.spec.request.licenses)
    if not wanted:
        return None
    there, used = state.settings.licenses, state.free.licenses
    found, passed = [], False
    for one in wanted:
        passed = passed or all(used.get(name, 0) + count <= there.get(name, 0) for name, count in one)
        found += [
            f"{count} of {name} asked for, {used.get(name, 0)} of {there.get(name, 0)} in use" for name, count in one
        ]
    return Stage("licenses", passed, (" or " if len(wanted) > 1 else "; ").join(found))


def threshold(rules: Ruleset, factor: float) -> str:
    """Give the sentence for a fairshare factor under UsageThreshold."""
    names = ", ".join(one.name for one in rules.qos if one.usage_threshold >= 0)
    return f"the fairshare factor is {factor:.4f}, UsageThreshold of QOS {names} is {rules.threshold:.4f}"

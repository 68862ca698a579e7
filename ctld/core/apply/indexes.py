"""Keeps everything that State derives from its records, in one function that exchanges one job record for
another.

What a job means for each index is a function of its record (and of the settings), so that `rebuild` is the
same code run over all records, and live and rebuilt state cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ctld.core import licenses, ranges
from ctld.core.apply.charging import charge
from ctld.core.changes import ChangeLog
from ctld.core.cluster import PartitionSpec
from ctld.core.deadlines import Deadlines
from ctld.core.free import FreeTable, exclusive_mode, watched
from ctld.core.limits.book import Book
from ctld.core.limits.holding import holding
from ctld.core.limits.load import Load
from ctld.core.model import Job, NodeShare
from ctld.core.patience import Patience
from ctld.core.queue import Queue
from ctld.core.state import State
from ctld.core.times import grace_end, latest_start, limit_end
from muster.ids import NO_TASK
from muster.states import JobState

PENDING = int(JobState.PENDING)
SUSPENDED = int(JobState.SUSPENDED)

_QUEUED, _DEFERRED, _RUNNING, _ENDED = range(4)


def startable(job: Job) -> bool:
    """Tell whether nothing but resources keeps a pending job from starting."""
    return bool(job.eligible_at and job.priority and not job.hold and not job.clauses and not job.completing)


def size(job: Job) -> int:
    """Count the jobs that a record stands for: an array's pending rest counts each member."""
    if job.array_pending and job.state == PENDING:
        return ranges.count(job.array_pending)
    return 1


def held_shares(job: Job) -> tuple[NodeShare, ...]:
    """Give what the job holds now: all of its allocation while it runs (without CPUs while it stands still), then what
    its nodes have not released."""
    alloc = job.alloc
    if alloc is None:
        return ()
    if job.state == SUSPENDED or job.cpus_gone:
        return tuple(structs.replace(share, cpus=0, cores=()) for share in _standing(job, alloc.shares))
    if PENDING < job.state < SUSPENDED:
        return alloc.shares
    if not job.completing:
        return ()
    return tuple(share for share in alloc.shares if share.node in job.completing)


def _standing(job: Job, shares: tuple[NodeShare, ...]) -> tuple[NodeShare, ...]:
    if job.state == SUSPENDED:
        return shares
    return tuple(share for share in shares if share.node in job.completing)


def mode(state: State, job: Job) -> str:
    """Tell how the job keeps its nodes (see `exclusive_mode`)."""
    partition = state.partitions.get(job.alloc.partition) if job.alloc else None
    return exclusive_mode(job.spec.request.exclusive, partition)


def due_at(state: State, job: Job) -> int:
    """Give the time at which a tick has something to do for this job; 0: never."""
    settings = state.settings
    if job.completing:
        # A node that never says that it is done holds the job up; one that is DOWN is given up after a while.
        since = job.submitted_at if job.state == PENDING else job.ended_at
        return since + (settings.node_timeout_seconds or 300)
    if job.state == PENDING:
        removed = max(1, latest_start(job) + 1) if job.spec.deadline_at else 0
        if job.eligible_at or job.clauses or job.hold or not job.priority:
            return removed
        return min(max(1, job.begin_at), removed or job.begin_at + 1)
    if job.state > SUSPENDED:
        if not settings.min_job_age_seconds:
            return 0
        return job.ended_at + settings.min_job_age_seconds
    if job.kill is not None:
        # Its end is ordered, and repeated until it is reported; nobody reports an allocation that never had a
        # step.
        return 0 if job.spec.batch or job.next_step else max(1, job.kill.at)
    if job.state == SUSPENDED:
        return 0
    times = [
        step.created_at + step.limit_seconds
        for step in state.steps.get(job.id, {}).values()
        if step.limit_seconds >= 0 and step.kill is None
    ]
    if job.limit_seconds >= 0:
        ends_at = limit_end(job)
        if settings.over_time_minutes >= 0:
            times.append(ends_at + 60 * settings.over_time_minutes)
        if job.spec.signal is not None and not job.warned:
            times.append(ends_at - job.spec.signal.seconds)
    if job.spec.deadline_at:
        times.append(job.spec.deadline_at)
    if job.preempted is not None:
        times.append(grace_end(job))
    if not job.spec.batch and not job.next_step:
        times.append(job.started_at + settings.batch_start_timeout_seconds)
    return max(1, min(times)) if times else 0


def put(state: State, old: Job | None, new: Job | None, *, live: bool = True) -> None:
    """Exchange a record: `old` leaves (None: there was none), `new` comes (None: it leaves memory).

    `live`: it happens now; else what is derived from a record that is there already is made anew.
    """
    job = new or old
    assert job is not None, "there is a record to exchange"
    job_id = job.id
    if new is None:
        del state.jobs[job_id]
    else:
        state.jobs[job_id] = new
    if (old is not None and old.alloc is not None) or (new is not None and new.alloc is not None):
        state.run_log.note(job_id)
    _place(state, job_id, old, new)
    _hold(state, old, new)
    _note(state.booked, job_id, new is not None and new.booking is not None)
    _note(state.suspended, job_id, new is not None and new.state == SUSPENDED)
    if (old.completing if old else ()) != (new.completing if new else ()):
        if new and new.completing:
            state.completing[job_id] = None
        else:
            state.completing.pop(job_id, None)
    old_clauses = old.clauses if old and old.state == PENDING else ()
    new_clauses = new.clauses if new and new.state == PENDING else ()
    if old_clauses != new_clauses:
        _depend(state, job_id, old, new)
    _count(state, old, new)
    _rate(state, old, new, live=live)
    charge(state, old, new, live=live)
    if state.limits.enforced and not _weighs_the_same(old, new):
        state.load.put(
            holding(state, old, size(old)) if old else None,
            holding(state, new, size(new)) if new else None,
        )
    if (old and _reservations_of(old)) or (new and _reservations_of(new)):
        _reserve(state, job_id, old, new)
    state.due.set(job_id, due_at(state, new) if new else 0)


def _kind(job: Job | None) -> int:
    if job is None:
        return -1
    if job.state == PENDING:
        return _QUEUED if startable(job) else _DEFERRED
    return _RUNNING if job.state <= SUSPENDED else _ENDED


def _place(state: State, job_id: int, old: Job | None, new: Job | None) -> None:
    """Move the job between the queue and the ordered sets; a job that stays keeps its place there."""
    before, after = _kind(old), _kind(new)
    if before == after:
        if after == _QUEUED and old is not None and new is not None and _moved(old, new):
            state.queue.add(new)
        return
    if before == _QUEUED:
        state.queue.discard(job_id)
    elif before == _DEFERRED:
        del state.deferred[job_id]
    elif before == _RUNNING:
        del state.running[job_id]
    elif before == _ENDED:
        del state.ended[job_id]
    if after == _QUEUED:
        assert new is not None, "a queued job has a record"
        state.queue.add(new)
    elif after == _DEFERRED:
        state.deferred[job_id] = None
    elif after == _RUNNING:
        state.running[job_id] = None
    elif after == _ENDED:
        state.ended[job_id] = None


def _moved(old: Job, new: Job) -> bool:
    return (
        old.priority != new.priority
        or old.priority_set != new.priority_set
        or old.limit_seconds != new.limit_seconds
        or old.eligible_at != new.eligible_at
        or old.accrues_at != new.accrues_at
        or old.array_limit != new.array_limit
        or (
            old.spec is not new.spec
            and (
                old.spec.request != new.spec.request
                or old.spec.partitions != new.spec.partitions
                or old.spec.account != new.spec.account
                or old.spec.qos != new.spec.qos
                or old.spec.exempt != new.spec.exempt
            )
        )
    )


def _hold(state: State, old: Job | None, new: Job | None) -> None:
    """Give back and take resources as the difference of what the two records hold."""
    before = held_shares(old) if old else ()
    after = held_shares(new) if new else ()
    if before is after or before == after:
        return
    keep = {share.node for share in set(after).intersection(before)} if before and after else ()
    if old is not None and before:
        kept_how, uid = mode(state, old), old.spec.uid
        where = old.alloc.partition if old.alloc else ""
        for share in before:
            if share.node not in keep:
                state.free.give(share, uid, kept_how, where)
                del state.node_jobs[share.node][old.id]
    if new is not None and after:
        kept_how, uid = mode(state, new), new.spec.uid
        where = new.alloc.partition if new.alloc else ""
        for share in after:
            if share.node not in keep:
                state.free.take(share, uid, kept_how, where)
                state.node_jobs[share.node][new.id] = None


def _note(ids: dict[int, None], job_id: int, there: bool) -> None:
    if there:
        ids[job_id] = None
    else:
        ids.pop(job_id, None)


def _depend(state: State, job_id: int, old: Job | None, new: Job | None) -> None:
    if old is not None and old.state == PENDING:
        for clause in old.clauses:
            waiting = state.dependants.get(clause.job_id)
            if waiting is not None:
                waiting.discard(job_id)
                if not waiting:
                    del state.dependants[clause.job_id]
    timed = False
    if new is not None and new.state == PENDING:
        for clause in new.clauses:
            state.dependants.setdefault(clause.job_id, set()).add(job_id)
            timed = timed or clause.minutes > 0
    if timed:
        state.timed[job_id] = None
    else:
        state.timed.pop(job_id, None)


def _count(state: State, old: Job | None, new: Job | None) -> None:
    _license(state, old, new)
    old_size = size(old) if old else 0
    new_size = size(new) if new else 0
    if old_size != new_size:
        state.members += new_size - old_size
    old_alive = old_size if old and old.state <= SUSPENDED else 0
    new_alive = new_size if new and new.state <= SUSPENDED else 0
    if old_alive != new_alive:
        job = new or old
        assert job is not None, "there is a record to exchange"
        _add(state.users, job.spec.uid, new_alive - old_alive)
    array = (new.array_job_id if new else 0) or (old.array_job_id if old else 0)
    if not array:
        return
    if old is None and new is not None:
        state.by_array.setdefault(array, set()).add(new.id)
    elif new is None and old is not None:
        members = state.by_array[array]
        members.discard(old.id)
        if not members:
            del state.by_array[array]
    ran = old is not None and PENDING < old.state <= SUSPENDED
    runs = new is not None and PENDING < new.state <= SUSPENDED
    if ran != runs:
        _add(state.array_running, array, 1 if runs else -1)


def _reservations_of(job: Job) -> tuple[str, ...]:
    """Give the reservations that a job keeps from being deleted: those that it waits for, or the one it runs in."""
    if job.state == PENDING:
        return job.spec.request.reservations
    if job.state <= SUSPENDED and job.alloc is not None and job.alloc.reservation:
        return (job.alloc.reservation,)
    return ()


def _reserve(state: State, job_id: int, old: Job | None, new: Job | None) -> None:
    for name in _reservations_of(old) if old else ():
        jobs = state.in_reservation.get(name)
        if jobs is not None:
            jobs.pop(job_id, None)
            if not jobs:
                del state.in_reservation[name]
    for name in _reservations_of(new) if new else ():
        state.in_reservation.setdefault(name, {})[job_id] = None


def _rate(state: State, old: Job | None, new: Job | None, *, live: bool) -> None:
    """Note whose priority is to be computed: what came to wait, and what changed in a way that counts."""
    queue = state.queue
    if new is None or new.state > SUSPENDED:
        job = new or old
        assert job is not None, "there is a record to exchange"
        queue.forget_priority(job.id)
        return
    if live and old is None and new.array_task_id != NO_TASK and new.id not in queue.priorities:
        # A member that was split off waits and runs with its array's priority.
        known = queue.priorities.get(new.array_job_id)
        if known is not None:
            queue.reprioritise({new.id: known})
    if queue.unrated is None or new.state != PENDING:
        return
    if (
        old is None
        or old.state != PENDING
        or old.spec is not new.spec
        or old.nice != new.nice
        or old.site_factor != new.site_factor
        or old.limit_seconds != new.limit_seconds
        or old.eligible_at != new.eligible_at
        or old.accrues_at != new.accrues_at
        or old.priority_set != new.priority_set
        or bool(old.priority) != bool(new.priority)
    ):
        queue.unrated[new.id] = None


def _weighs_the_same(old: Job | None, new: Job | None) -> bool:
    return (
        old is not None
        and new is not None
        and old.state == new.state
        and old.spec is new.spec
        and old.alloc is new.alloc
        and old.kill is new.kill
        and old.limit_seconds == new.limit_seconds
        and old.array_pending == new.array_pending
    )


def _license(state: State, old: Job | None, new: Job | None) -> None:
    """Count what running jobs hold of licences; they keep them while they are suspended."""
    before = old.alloc.licenses if old and old.alloc and PENDING < old.state <= SUSPENDED else ""
    after = new.alloc.licenses if new and new.alloc and PENDING < new.state <= SUSPENDED else ""
    if before == after:
        return
    used = state.free.licenses
    for text, sign in ((before, -1), (after, 1)):
        for name, count in licenses.held(text).items():
            used[name] = used.get(name, 0) + sign * count
            if not used[name]:
                del used[name]


def _add(counts: dict[int, int], key: int, amount: int) -> None:
    total = counts.get(key, 0) + amount
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


def rebuild(state: State) -> None:
    """Make all derived parts anew from the records (after a checkpoint or a new configuration)."""
    queue, table = state.queue, state.free
    # The scheduler compares versions and class numbers: neither may ever come back with another meaning.
    state.queue = Queue(first_id=queue.next_id, version=queue.version + 1)
    state.queue.follow(queue)
    state.queue.patience = patience(state)
    state.queue.kept_by_user = frozenset(
        partition.name for partition in state.partitions.values() if partition.exclusive == "USER"
    )
    state.partition_nodes = {partition.name: frozenset(partition.nodes) for partition in state.partitions.values()}
    state.free = FreeTable()
    state.free.version = table.version
    state.free.reset(state.nodes, watched(state.partitions.values()))
    state.fitting = set()
    state.node_index = {node.spec.name: node.index for node in state.nodes}
    state.node_jobs = [{} for _ in state.nodes]
    state.by_array = {}
    state.dependants = {}
    state.running = {}
    state.run_log = ChangeLog()
    state.completing = {}
    state.deferred = {}
    state.ended = {}
    state.users = {}
    state.members = 0
    state.array_running = {}
    state.in_reservation = {}
    state.due = Deadlines()
    state.timed = {}
    state.booked = {}
    state.suspended = {}
    _open_book(state)
    state.queue.apart = (
        state.limits.enforced
        or state.settings.preemption.rule == "qos"
        or any(_by_account(one) for one in state.partitions.values())
    )
    state.usage.configure(state.settings.priority.half_life_seconds, state.accounts)
    state.usage.still()
    for job in _in_order(list(state.jobs.values())):
        put(state, None, job, live=False)


def patience(state: State) -> Patience:
    """Give how long jobs may wait by the settings and the QOS; who is past that stays known."""
    by_qos = {
        one.name: one.max_queue_wait_seconds for one in state.accounts.qos.values() if one.max_queue_wait_seconds >= 0
    }
    return Patience(state.settings.max_queue_wait_seconds, by_qos, state.queue.patience.late)


def recount(state: State) -> None:
    """Count anew what limits look at, and how long jobs may wait (after a new feed of associations)."""
    waits = patience(state)
    if waits.bounds != state.queue.patience.bounds:
        state.queue.patience = waits
        for job_id in list(state.queue):
            state.queue.add(state.jobs[job_id])
    _open_book(state)
    if not state.limits.enforced:
        return
    for job in state.jobs.values():
        state.load.put(None, holding(state, job, size(job)))


def _by_account(partition: PartitionSpec) -> bool:
    """Tell whether a partition takes only some accounts or QOS."""
    return bool(partition.allow_accounts or partition.deny_accounts or partition.allow_qos or partition.deny_qos)


def _open_book(state: State) -> None:
    specs = [node.spec for node in state.nodes]
    state.limits = Book(state.settings, state.accounts, state.partitions, specs)
    state.load = Load()


def _in_order(jobs: Sequence[Job]) -> list[Job]:
    """Order in which the ordered sets were filled: running by start, ended by end."""
    return sorted(
        jobs,
        key=lambda job: (
            job.ended_at if job.state > SUSPENDED else job.started_at if job.state > PENDING else job.submitted_at,
            job.id,
        ),
    )

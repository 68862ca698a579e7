"""Outcome records: what accounting keeps of each run of a job and of each step.

ctld puts them into the events that end a run or a step, so that a follower needs no other state to write history,
and builds the same records from live jobs when sacct asks. dbd stores them; both sides print from the same fields.
Times are Unix seconds, 0 when unset; memory is MiB unless the name says otherwise.
"""

from __future__ import annotations

import msgspec


class RunRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One run of one job (a requeued job has several, told apart by `run`)."""

    job_id: int
    run: int
    """Number of restarts before this run: 0, 1, ..."""
    name: str
    uid: int
    gid: int
    user: str
    group: str
    account: str
    partition: str
    qos: str
    state: str
    """Long base state word; `REQUEUED` for a run that ended because its job was requeued."""
    array_job_id: int = 0
    array_task_id: int = -1
    array_tasks: str = ""
    """`5-9%2` for an array's pending or cancelled rest, else empty."""
    exit_status: int = 0
    """Wait status word: code << 8 | signal."""
    derived_status: int = 0
    cancelled_by: int = -1
    """uid of who cancelled it, or -1."""
    submitted_at: int = 0
    eligible_at: int = 0
    started_at: int = 0
    ended_at: int = 0
    suspended_seconds: int = 0
    """How long of it the run stood still (up to `suspended_at` of one that does)."""
    suspended_at: int = 0
    """Since when a run that has not ended stands still; 0: it does not."""
    time_limit_minutes: int = -1
    """-1: unlimited."""
    requested_cpus: int = 0
    requested_nodes: int = 0
    requested_memory_mib: int = 0
    requested_tres: dict[str, int] = {}
    allocated_cpus: int = 0
    allocated_nodes: int = 0
    allocated_tres: dict[str, int] = {}
    nodelist: str = ""
    work_dir: str = ""
    submit_line: str = ""
    comment: str = ""
    std_out: str = ""
    std_err: str = ""
    std_in: str = ""
    reason: str = "None"
    state_text: str = ""
    priority: int = 0
    failed_node: str = ""
    constraints: str = ""
    exclusive: str = ""
    oversubscribe: str = ""
    scheduler: str = "Main"
    wckey: str = ""


class StepRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One step of one run."""

    job_id: int
    run: int
    step_id: int
    """0, 1, ... or a special number of `muster.ids`."""
    name: str
    state: str
    exit_status: int = 0
    started_at: int = 0
    ended_at: int = 0
    nodes: int = 1
    nodelist: str = ""
    tasks: int = 1
    cpus: int = 1
    allocated_tres: dict[str, int] = {}
    user_ms: int = 0
    system_ms: int = 0
    max_rss_bytes: int = 0
    max_rss_node: str = ""
    max_rss_task: int = 0
    cancelled_by: int = -1
    layout: str = ""
    submit_line: str = ""
    array_job_id: int = 0
    array_task_id: int = -1


class JobSelector(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What `sacct -j` names: a job or array, a member of an array, a step."""

    job_id: int
    """A job's own number, or the number of an array: all its members then."""
    task_id: int = -1
    """-1: no member in particular."""
    step_id: int = -1
    """-1: the job and all its steps. Only the command looks at it: the answer holds whole jobs."""


class HistoryFilter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which runs sacct asks for. Empty lists do not restrict; `muster.history` says what a filter lets through."""

    jobs: tuple[JobSelector, ...] = ()
    own: bool = False
    """Only the caller's jobs, all for root: the controller puts the caller's uid into `users`."""
    users: tuple[int, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    """Long state words: the run was in one of them at some time of the window."""
    nodelist: str = ""
    start: int = 0
    end: int = 0
    """Window of time, both ends inside; end 0: now."""
    allocations_only: bool = False
    """No steps."""
    duplicates: bool = False
    """All runs of a job, else the newest that passes."""
    cluster: str = ""
    log_id: str = ""
    """Set by the controller: whose history, and in which log `open_runs` and the cursor are."""
    open_runs: tuple[tuple[int, int], ...] = ()
    """Set by the controller: (job id, run) of live runs whose ended steps are wanted."""

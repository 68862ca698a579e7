"""The tables, the same for SQLite and Postgres.

`logs` holds the cursor: for each log of a cluster the last event that is in the tables. It is moved in the same
transaction as the rows, so that both survive or both do not. A state directory made anew begins a new log, whose job
numbers begin at 1 again: rows are keyed by log, so the history of the former one stays.

All whole numbers are 64 bits. Amounts by TRES are JSON objects as text. A change of these tables is a new step in
`dbd/migrations`; a test compares what the steps make with what stands here.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text, UniqueConstraint

METADATA = MetaData()

LOGS = Table(
    "logs",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("cluster", Text, nullable=False),
    Column("log_id", String(32), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("cluster", "log_id", name="logs_of_cluster"),
)


def _key(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _int(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _count(name: str) -> Column[int]:
    """A number that came with a later version: rows of earlier ones have 0."""
    return Column(name, BigInteger, nullable=False, server_default="0")


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


RUNS = Table(
    "runs",
    METADATA,
    Column("log", Integer, ForeignKey("logs.id"), primary_key=True, autoincrement=False),
    _key("job_id"),
    _key("run"),
    # 0 for a run of a job; for members cancelled out of an array's pending rest, which have no numbers of their own,
    # the number of the event that says so: the last member has the array's number too.
    _key("part"),
    _int("number"),
    _text("name"),
    _int("uid"),
    _int("gid"),
    Column("user", Text, nullable=False, quote=True),
    Column("group", Text, nullable=False, quote=True),
    _text("account"),
    _text("partition"),
    _text("qos"),
    _text("state"),
    _int("array_job_id"),
    _int("array_task_id"),
    _text("array_tasks"),
    _int("exit_status"),
    _int("derived_status"),
    _int("cancelled_by"),
    _int("submitted_at"),
    _int("eligible_at"),
    _int("started_at"),
    _int("ended_at"),
    _int("time_limit_minutes"),
    _int("requested_cpus"),
    _int("requested_nodes"),
    _int("requested_memory_mib"),
    _text("requested_tres"),
    _int("allocated_cpus"),
    _int("allocated_nodes"),
    _text("allocated_tres"),
    _text("nodelist"),
    _text("work_dir"),
    _text("submit_line"),
    _text("comment"),
    _text("std_out"),
    _text("std_err"),
    _text("std_in"),
    _text("reason"),
    _text("state_text"),
    _int("priority"),
    _text("failed_node"),
    _text("constraints"),
    _text("exclusive"),
    _text("oversubscribe"),
    _text("scheduler"),
    _text("wckey"),
    _count("suspended_seconds"),
    _count("suspended_at"),
    # What sacct asks: these jobs, this array; who ran what in a window; a window of the whole cluster.
    Index("runs_by_job", "job_id"),
    Index("runs_by_array", "array_job_id"),
    Index("runs_by_end", "ended_at"),
    Index("runs_by_user", "uid", "ended_at"),
    Index("runs_by_account", "account", "ended_at"),
)

STEPS = Table(
    "steps",
    METADATA,
    Column("log", Integer, ForeignKey("logs.id"), primary_key=True, autoincrement=False),
    _key("job_id"),
    _key("run"),
    _key("step_id"),
    _int("number"),
    _text("name"),
    _text("state"),
    _int("exit_status"),
    _int("started_at"),
    _int("ended_at"),
    _int("nodes"),
    _text("nodelist"),
    _int("tasks"),
    _int("cpus"),
    _text("allocated_tres"),
    _int("user_ms"),
    _int("system_ms"),
    _int("max_rss_bytes"),
    _text("max_rss_node"),
    _int("max_rss_task"),
    _int("cancelled_by"),
    _text("layout"),
    _text("submit_line"),
    _int("array_job_id"),
    _int("array_task_id"),
)

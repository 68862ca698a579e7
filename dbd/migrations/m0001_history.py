"""Version 1: the cursor of each log, runs of jobs, steps."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

_RUN_NUMBERS = (
    "number uid gid array_job_id array_task_id exit_status derived_status cancelled_by submitted_at eligible_at"
    " started_at ended_at time_limit_minutes requested_cpus requested_nodes requested_memory_mib allocated_cpus"
    " allocated_nodes priority"
)
_RUN_TEXTS = (
    "name user group account partition qos state array_tasks requested_tres allocated_tres nodelist work_dir"
    " submit_line comment std_out std_err std_in reason state_text failed_node constraints exclusive oversubscribe"
    " scheduler wckey"
)
_STEP_NUMBERS = (
    "number exit_status started_at ended_at nodes tasks cpus user_ms system_ms max_rss_bytes max_rss_task"
    " cancelled_by array_job_id array_task_id"
)
_STEP_TEXTS = "name state nodelist allocated_tres max_rss_node layout submit_line"


def forward(connection: Connection) -> None:
    """Make the three tables and their indexes."""
    metadata = MetaData()
    Table(
        "logs",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=True),
        Column("cluster", Text, nullable=False),
        Column("log_id", String(32), nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        UniqueConstraint("cluster", "log_id", name="logs_of_cluster"),
    )
    Table(
        "runs",
        metadata,
        *_keys("job_id run part"),
        *_columns(_RUN_NUMBERS, _RUN_TEXTS),
        Index("runs_by_job", "job_id"),
        Index("runs_by_array", "array_job_id"),
        Index("runs_by_end", "ended_at"),
        Index("runs_by_user", "uid", "ended_at"),
        Index("runs_by_account", "account", "ended_at"),
    )
    Table("steps", metadata, *_keys("job_id run step_id"), *_columns(_STEP_NUMBERS, _STEP_TEXTS))
    metadata.create_all(connection, checkfirst=False)


def _keys(names: str) -> list[Column[int]]:
    log: Column[int] = Column("log", Integer, ForeignKey("logs.id"), primary_key=True, autoincrement=False)
    return [log, *(Column(name, BigInteger, primary_key=True, autoincrement=False) for name in names.split())]


def _columns(numbers: str, texts: str) -> list[Column[int] | Column[str]]:
    found: list[Column[int] | Column[str]] = [Column(name, BigInteger, nullable=False) for name in numbers.split()]
    return found + [Column(name, Text, nullable=False) for name in texts.split()]

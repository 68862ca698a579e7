"""Builders of outcomes."""

from __future__ import annotations

from typing import Any

from muster.ids import BATCH_STEP
from muster.records import RunRecord, StepRecord

NOON = 1_750_000_000


def a_run(job_id: int = 1, **fields: Any) -> RunRecord:
    """A completed run of `ada` that waited 10 s, ran 60 s and ended at NOON + job_id."""
    ended = fields.pop("ended_at", NOON + job_id)
    given: dict[str, Any] = {
        "run": 0,
        "name": "train",
        "uid": 1000,
        "gid": 1000,
        "user": "ada",
        "group": "ada",
        "account": "physics",
        "partition": "gpu",
        "qos": "normal",
        "state": "COMPLETED",
        "submitted_at": ended - 70,
        "eligible_at": ended - 70,
        "started_at": ended - 60,
        "allocated_tres": {"cpu": 4, "mem": 2048, "node": 1, "billing": 4, "gres/gpu": 4},
        "nodelist": "n1",
        "scheduler": "Main",
        **fields,
    }
    return RunRecord(job_id=job_id, ended_at=ended, **given)


def a_step(job_id: int = 1, step_id: int = int(BATCH_STEP), **fields: Any) -> StepRecord:
    """A completed step."""
    given: dict[str, Any] = {
        "run": 0,
        "name": "batch" if step_id == BATCH_STEP else "sh",
        "state": "COMPLETED",
        "started_at": NOON + job_id - 60,
        "ended_at": NOON + job_id,
        "nodelist": "n1",
        "user_ms": 1234,
        **fields,
    }
    return StepRecord(job_id=job_id, step_id=step_id, **given)

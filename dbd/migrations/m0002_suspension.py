"""Version 2: how long runs stood still."""

from __future__ import annotations

from sqlalchemy import Connection, text


def forward(connection: Connection) -> None:
    """Give runs the time of their suspension; those that are there had none."""
    for name in ("suspended_seconds", "suspended_at"):
        connection.execute(text(f"ALTER TABLE runs ADD COLUMN {name} BIGINT DEFAULT 0 NOT NULL"))

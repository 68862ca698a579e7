"""Logs of the daemons: one line an event, local time with milliseconds, level, daemon, text; to stderr or a file.

Records that belong to a job or node carry it in the text in Slurm's form (JobId=5, NodeName=n1), so that grep works.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path


class _Format(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
        return f"{text}.{int(record.msecs):03d}"


def set_up(daemon: str, *, file: Path | None = None, level: str = "INFO") -> logging.Logger:
    """Configure the root logger for a daemon and give the daemon's own logger.

    Args:
        daemon: ctld, noded or dbd; stands in each line.
        file: where to write; None: standard error (systemd's journal takes it from there).
        level: a name of `logging`.
    """
    handler: logging.Handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format(f"[%(asctime)s] {daemon} %(levelname)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    return logging.getLogger(daemon)

"""The lock that keeps two daemons out of one state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from muster.errors import Refused


class DirectoryLock:
    """Holds `<directory>/lock` exclusively until `release`; the kernel releases it when the process dies.

    Raises:
        Refused: another process (named) has it.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise Refused(
                f"the state directory {directory} is in use by process {owner}",
                "stop that daemon first, or give this one another StateSaveLocation",
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

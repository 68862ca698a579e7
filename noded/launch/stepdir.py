"""A step's folder on disk: the one truth about it that survives the agent, the zygote and the stepd.

`<spool>/steps/<job>.<run>.<step>/` holds
    launch   what is to be run (marshal), written by the agent before anything is started
    slurm_script   the batch script, owned by the user
    pid      pid of the stepd, which holds a lock on it while it lives
    result   how it ended (marshal), renamed into place; written before anybody is told
    ctl      the stepd's control socket

A folder without `pid` was never begun, once the zygote that might have begun it is gone. One with `pid`, unlocked, and
without `result` lost its stepd.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Key = tuple[int, int, int]
"""(job, run, step)."""

SCRIPT = "slurm_script"
"""The reference's own name: users know it from `$0`."""
_LEAVING = ".gone"
_RESERVE = "reserve"
RESERVE_BYTES = 4 << 20
"""Room for the results of a thousand steps."""
_PIECE_BYTES = 64 << 10


def name_of(key: Key) -> str:
    """Give the folder's name."""
    return f"{key[0]}.{key[1]}.{key[2]}"


def key_of(name: str) -> Key | None:
    """Read a folder's name; None when it is no step's."""
    parts = name.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def write(folder: str, name: str, value: Any, *, from_reserve: bool = False) -> None:
    """Write a marshalled value whole or not at all, readable by nobody else: environments hold secrets.

    Args:
        folder: the step's.
        name: of the file.
        value: what marshal takes.
        from_reserve: on a disk that is full, take room from the spool's reserve (for results, not for new steps).
    """
    data = marshal.dumps(value)
    while True:
        try:
            _write(folder, name, data)
            return
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not from_reserve or not _draw(folder):
                raise


def _write(folder: str, name: str, data: bytes) -> None:
    temporary = f"{folder}/{name}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)
    os.rename(temporary, f"{folder}/{name}")


def make_reserve(spool: str) -> None:
    """Take room on the disk in the agent's spool, for the results of steps that end when it is full.

    One for all: room taken for each step, and given back, cost more than all its other files together.

    Raises:
        OSError: there is no room.
    """
    descriptor = os.open(f"{spool}/{_RESERVE}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
    finally:
        os.close(descriptor)


def _draw(folder: str) -> bool:
    """Give a piece of the reserve back to the disk; False when nothing is left of it."""
    reserve = f"{os.path.dirname(os.path.dirname(folder))}/{_RESERVE}"
    try:
        left = os.stat(reserve).st_size
        if left == 0:
            return False
        os.truncate(reserve, max(0, left - _PIECE_BYTES))
    except OSError:
        return False
    return True


def read(folder: str, name: str) -> Any | None:
    """Read a marshalled value; None when it is not there (or was torn by a power loss)."""
    try:
        with open(f"{folder}/{name}", "rb", buffering=0) as file:
            return marshal.loads(file.read())
    except (FileNotFoundError, EOFError, ValueError, TypeError):
        return None


def claim(folder: str) -> int:
    """Write this process's pid and hold the lock on it; give the descriptor, which must stay open."""
    descriptor = os.open(f"{folder}/pid", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(descriptor, b"%d" % os.getpid())
    return descriptor


def stepd_of(folder: str) -> tuple[int, bool]:
    """Give (pid, alive) of the step's stepd; pid 0 when none was begun."""
    try:
        descriptor = os.open(f"{folder}/pid", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, False
    try:
        text = os.read(descriptor, 32)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(text or b"0"), True
        return int(text or b"0"), False
    finally:
        os.close(descriptor)


def remove(folder: str) -> None:
    """Remove the folder and what the agent and the stepd put there; one that is not there is no error.

    Renamed first: a folder that is half gone must never look like a step that lost its result.
    """
    leaving = folder if folder.endswith(_LEAVING) else folder + _LEAVING
    try:
        if leaving != folder:
            os.rename(folder, leaving)
        for entry in os.listdir(leaving):
            os.unlink(f"{leaving}/{entry}")
        os.rmdir(leaving)
    except FileNotFoundError:
        return


def is_leaving(name: str) -> bool:
    """Tell whether a folder of this name is one that an agent was about to remove."""
    return name.endswith(_LEAVING)

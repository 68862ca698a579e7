"""Control groups, version 2: a folder for each step, so that nothing that it begins can leave it.

`<mount>/muster/<node>-<mark of its spool>/` has `stepds`, where the stepds live, and `job_<J>/step_<S>` with the
processes of users only. The mount is a pure tree at /sys/fs/cgroup, or the unified one of a hybrid host. This release
uses them to find and to end processes; it sets no limits (said in `limits_off`).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

log = logging.getLogger("noded.cgroup")

MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class CgroupsV2:
    """The tree of one node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        """`<mount>/muster/<node>-<mark>`."""
        (root / "stepds").mkdir(parents=True, exist_ok=True)

    def create(self, job_id: int, step_id: int) -> str:
        """Make the step's group and give its folder."""
        folder = f"{self.root}/job_{job_id}/step_{step_id}"
        os.makedirs(folder, exist_ok=True)
        return folder

    def remove(self, job_id: int, step_id: int) -> None:
        """Remove the step's group, and the job's when it was the last of it."""
        job = f"{self.root}/job_{job_id}"
        # A group that still has a process (one that SIGKILL does not end) stays, and with it the trace of it.
        with contextlib.suppress(FileNotFoundError, OSError):
            os.rmdir(f"{job}/step_{step_id}")
        with contextlib.suppress(FileNotFoundError, OSError):
            os.rmdir(job)

    def kill(self, job_id: int, step_id: int) -> None:
        """End at once whatever is left in the step's group."""
        with contextlib.suppress(FileNotFoundError):
            Path(f"{self.root}/job_{job_id}/step_{step_id}/cgroup.kill").write_text("1")

    def limits_off(self) -> Sequence[str]:
        """Say what does not hold."""
        return (
            "memory is not limited (control groups only hold the processes of a step together)",
            "cores are not limited",
            "GPUs are not fenced: CUDA_VISIBLE_DEVICES only advises",
        )

    def adopt_stepds_home(self, pid: int) -> None:
        """Move the zygote to `stepds`: the stepds that it forks are born there."""
        try:
            (self.root / "stepds" / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            log.warning("cannot move process %d to %s/stepds: %s", pid, self.root, error.strerror)

    def close(self) -> None:
        """Remove the tree if nothing lives in it."""
        for folder in (self.root / "stepds", self.root, self.root.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()


def find(name: str, spool: Path, asked: str) -> CgroupsV2 | str:
    """Find a version 2 tree that this process can write, and make the node's part of it.

    Args:
        name: of the node.
        spool: its spool, which no other node of this host has: two clusters may have a node of the same name, and jobs
            of the same number.
        asked: `auto`, `off`, or the folder to use in place of a mount (one that was delegated).

    Returns:
        The tree, or a few words on why there is none.
    """
    if asked == "off":
        return "switched off by --cgroup=off"
    if os.geteuid() != 0 and asked == "auto":
        return "noded does not run as root"
    for mount in MOUNTS if asked == "auto" else (asked,):
        if not os.path.exists(f"{mount}/cgroup.procs") or not _is_v2(mount):
            continue
        try:
            return CgroupsV2(Path(mount, "muster", f"{name}-{_mark(spool)}"))
        except OSError as error:
            return f"{mount} cannot be written: {error.strerror}"
    return "no control group tree of version 2 was found" + (f" at {asked}" if asked != "auto" else "")


def _mark(spool: Path) -> str:
    return blake2b(os.fsencode(spool), digest_size=4).hexdigest()


def _is_v2(folder: str) -> bool:
    # Only version 2 has this file in every group but its root, where cgroup.controllers tells.
    return os.path.exists(f"{folder}/cgroup.controllers")

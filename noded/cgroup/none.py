"""No cgroups: the stepds follow the process tree below them."""

from __future__ import annotations

from collections.abc import Sequence


class NoCgroups:
    """Does nothing, and says what that means."""

    def __init__(self, why: str) -> None:
        self._why = why

    def create(self, job_id: int, step_id: int) -> str:
        """Give no folder."""
        return ""

    def remove(self, job_id: int, step_id: int) -> None:
        """Have nothing to remove."""

    def kill(self, job_id: int, step_id: int) -> None:
        """Have nothing to end."""

    def limits_off(self) -> Sequence[str]:
        """Say what does not hold."""
        return (
            f"there are no control groups ({self._why}): the processes of a step are tracked by its process tree",
            "memory is not limited",
            "cores are not limited",
            "GPUs are not fenced: CUDA_VISIBLE_DEVICES only advises",
        )

"""What the agent asks of the machine: a Protocol for each thing that has more than one form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Cgroups(Protocol):
    """Holds together what a step has begun."""

    def create(self, job_id: int, step_id: int) -> str:
        """Make the step's group and give its folder; empty: there are none here."""
        ...

    def remove(self, job_id: int, step_id: int) -> None:
        """Remove the step's group, and the job's when it was the last of it."""
        ...

    def kill(self, job_id: int, step_id: int) -> None:
        """End at once whatever is left in the step's group."""
        ...

    def limits_off(self) -> Sequence[str]:
        """Give a sentence for each limit that does not hold here."""
        ...


class Gpus(Protocol):
    """The GPUs of this machine, in the order of their indexes."""

    def types(self) -> Sequence[str]:
        """Give the type of each, as users write it in `--gpus=TYPE:COUNT`."""
        ...

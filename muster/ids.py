"""Identifiers and units as types, so that a node index is never taken for a job id."""

from __future__ import annotations

# For type checkers these are types of their own. At run time they are int itself: NewType would cost the import of
# typing in every supervisor of a step, and a Python call for each conversion in the controller.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NewType

    JobId = NewType("JobId", int)
    """A job's number, 1 to 67,043,328; each member of an array has one of its own once it starts."""
    StepId = NewType("StepId", int)
    """A step's number: 0, 1, ... or one of the special numbers below."""
    NodeIndex = NewType("NodeIndex", int)
    """Place of a node in the controller's node table (sorted by natural name order)."""
    UnixTime = NewType("UnixTime", int)
    """Seconds since the epoch."""
    Seconds = NewType("Seconds", int)
else:
    JobId = StepId = NodeIndex = UnixTime = Seconds = int

# Special step numbers, as Slurm's clients know them.
PENDING_STEP = StepId(0xFFFFFFFD)
EXTERN_STEP = StepId(0xFFFFFFFC)
BATCH_STEP = StepId(0xFFFFFFFB)
INTERACTIVE_STEP = StepId(0xFFFFFFFA)

NO_TASK = -1
"""`array_task_id` of a job that is no member of an array (or is an array's pending rest)."""

_STEP_WORDS = {BATCH_STEP: "batch", EXTERN_STEP: "extern", INTERACTIVE_STEP: "interactive", PENDING_STEP: "TBD"}


def step_word(step: int) -> str:
    """Print a step number as users see it: `0`, `batch`, `extern`, `interactive`, `TBD`."""
    return _STEP_WORDS.get(StepId(step)) or str(step)

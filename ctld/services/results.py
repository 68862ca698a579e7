"""What became of each of several things that one call asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from muster.errors import MusterError


@dataclass(slots=True)
class Result:
    """One thing as the caller named it, and why it was refused (None: done)."""

    text: str
    problem: MusterError | None = None


def answer(results: Sequence[Result], *, alone: bool = True) -> dict[str, Any]:
    """Give {"results": [{"id"} or {"id", "error"}]}; where a single thing was named by itself (`alone`) and refused,
    the refusal is raised, so that its status says so to clients that look at nothing else."""
    if alone and len(results) == 1 and results[0].problem is not None:
        raise results[0].problem
    return {"results": [_one(result) for result in results]}


def _one(result: Result) -> dict[str, Any]:
    problem = result.problem
    if problem is None:
        return {"id": result.text}
    return {"id": result.text, "error": problem.parts()}

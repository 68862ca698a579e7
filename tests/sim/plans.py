"""What simulated jobs do once they run."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One srun."""

    begins: float
    """Seconds after the script's start."""
    seconds: float
    status: int
    """Wait status of one of its tasks on each node; the others exit 0."""
    on_term: str
    """die | trap | ignore."""
    ntasks: int = 0
    limit_minutes: int = 0
    overlap: bool = False


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A batch script, or (without a script) one srun as a job."""

    number: int
    seconds: float
    status: int
    on_term: str
    steps: tuple[StepPlan, ...] = ()
    waits: bool = False
    """The script ends only when its steps have."""
    fails_to_launch: int = 0
    """So many runs cannot be begun."""

    @property
    def script(self) -> bytes:
        """The batch script: it says which plan it is."""
        return b"#!/bin/sh\nexec plan %d\n" % self.number


def draw_step(rng: random.Random, *, begins: float) -> StepPlan:
    """Draw what a step does."""
    return StepPlan(
        begins=begins,
        seconds=rng.uniform(0.2, 25),
        status=rng.choice([0, 0, 0, 1 << 8, 9]),
        on_term=rng.choice(["die", "die", "trap", "ignore"]),
        ntasks=rng.choice([0, 0, 1, 2]),
        limit_minutes=rng.choice([0, 0, 0, 1]),
        overlap=rng.random() < 0.5,
    )


def draw_job(rng: random.Random, number: int, *, longest: float, batch: bool = True) -> JobPlan:
    """Draw what a job does."""
    seconds = rng.choice([rng.uniform(0.01, 2), rng.uniform(1, longest / 3), rng.uniform(1, longest)])
    steps: tuple[StepPlan, ...] = ()
    if not batch:
        steps = () if rng.random() < 0.15 else (draw_step(rng, begins=rng.uniform(0, 2)),)
    elif rng.random() < 0.3:
        steps = tuple(draw_step(rng, begins=rng.uniform(0, seconds)) for _ in range(rng.randint(1, 3)))
    return JobPlan(
        number=number,
        seconds=seconds,
        status=rng.choice([0, 0, 0, 0, 1 << 8, 2 << 8, 11, 15]),
        on_term=rng.choice(["die", "die", "trap", "ignore"]),
        steps=steps,
        waits=rng.random() < 0.5,
        fails_to_launch=rng.choice([1, 2, 7]) if rng.random() < 0.03 else 0,
    )

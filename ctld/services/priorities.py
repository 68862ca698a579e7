"""The route of sprio: what the shown priority of each waiting job is made of.

`GET /v1/priorities` takes the filters of `/v1/jobs` and answers `{"cluster", "type", "weights", "fields", "rows"}`, a
row for each pair of partition and QOS that a job may use. The terms of the pair with the largest sum add up to the
priority that squeue and scontrol show; a priority set by hand, and one of a configuration without weights, has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.core.state import State
from ctld.sched.priority import Terms
from ctld.services.door import Call, Right, Route
from ctld.services.views.jobs import FIELDS, JobView
from ctld.services.views.selection import Selection, query_of
from ctld.store.store import Store
from muster import errors
from muster.clock import Clock
from muster.states import JobState, Reason

ROW = (
    *("id", "id_sort", "partition", "user", "account", "qos", "nice", "site", "priority"),
    *("age", "assoc", "fairshare", "job_size", "of_partition", "of_qos", "tres"),
    *("norm_age", "norm_assoc", "norm_fairshare", "norm_job_size", "norm_partition", "norm_qos", "norm_tres"),
)
"""Fields of a row; terms are weighted, `norm_` ones are the factors; tres are lists of [name, value]."""
SLICE_SECONDS = 0.0015
LOOK_EVERY = 32


class HasTerms(Protocol):
    """What keeps priorities up, as far as this view needs it."""

    def all_terms(self, job: Job) -> Sequence[Terms]:
        """Give the terms of each pair; none where the priority is not computed."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What the route reads from."""

    store: Store
    priorities: HasTerms
    clock: Clock
    seconds: Callable[[], float] = field(default=time.perf_counter)
    """The stopwatch that slices are measured by."""


def routes(context: Context) -> list[Route]:
    """Give the route; every user may read it, as with Slurm."""
    return [Route("GET", "/v1/priorities", Right.ANYONE, "job", _Reader(context).priorities)]


class _Reader:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def priorities(self, call: Call) -> dict[str, Any]:
        """Give the rows of the waiting jobs that are not held and pass every filter."""
        context = self._context
        state = context.store.state
        query = {**query_of(call), "states": "PENDING"}
        rows: list[list[Any]] = []
        try:
            selection = Selection(state, query)
        except errors.NotFound:
            selection = None
        began = context.seconds()
        for looked_at, found in enumerate(self._rows(state, selection) if selection is not None else (), 1):
            rows += found
            if not looked_at % LOOK_EVERY and context.seconds() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = context.seconds()
        await context.store.settled()
        settings = state.settings.priority
        return {
            "cluster": state.settings.cluster,
            "type": f"priority/{'multifactor' if settings.multifactor else 'basic'}",
            "weights": {
                "age": settings.age,
                "assoc": settings.assoc,
                "fairshare": settings.fairshare,
                "job_size": settings.job_size,
                "of_partition": settings.partition,
                "of_qos": settings.qos,
                "tres": [[name, weight] for name, weight in settings.tres.items()],
            },
            "fields": list(ROW),
            "rows": rows,
        }

    def _rows(self, state: State, selection: Selection) -> Iterator[list[list[Any]]]:
        view = JobView(state, self._context.clock.now(), lambda job: Wait(Reason.NONE))
        for job in selection.jobs():
            if job.state != JobState.PENDING or not job.priority or not selection.passes(job):
                yield []
                continue
            yield [self._row(view, state, job, terms) for terms in self._context.priorities.all_terms(job) or (None,)]

    def _row(self, view: JobView, state: State, job: Job, terms: Terms | None) -> list[Any]:
        spec = job.spec
        head = [FIELDS["id"](view, job), job.id]
        shown = state.queue.priority(job)
        if terms is None:
            given = [",".join(spec.partitions), spec.user, spec.account, spec.qos, job.nice, job.site_factor, shown]
            nothing: list[Any] = [0, 0, 0, 0, 0, 0, []]
            return [*head, *given, *nothing, *nothing]
        several = len(spec.partitions) > 1 or "," in spec.qos
        priority = terms.total() if several else shown
        factors = terms.factors
        return [
            *head, terms.partition, spec.user, spec.account, terms.qos, job.nice, job.site_factor, priority,
            terms.age, terms.assoc, terms.fairshare, terms.job_size, terms.of_partition, terms.of_qos, terms.tres,
            factors.age, factors.assoc, factors.fairshare, factors.job_size, factors.partition, factors.qos,
            factors.tres,
        ]  # fmt: skip

"""The routes that read: jobs, steps, nodes, partitions, configuration, and whether the controller is there.

Commands name the fields that they print, so an answer holds nothing else: `GET /v1/jobs?fields=id,name&users=1000`
gives `{"now": ..., "cluster": "...", "fields": [...], "rows": [[...], ...]}`. A large answer is made in slices of at
most 2 ms, each in its own turn of the loop; records are frozen, so a row is whole although the state moves on.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from ctld.core.cluster import Node
from ctld.core.jobids import Selector, parse_selectors
from ctld.core.model import Job
from ctld.core.plan import Wait
from ctld.sched.explain import reason_of
from ctld.sched.foreseen import with_planned
from ctld.services import reservations
from ctld.services.door import Call, Handler, Right, Route
from ctld.services.views import explanations
from ctld.services.views import partitions as partition_views
from ctld.services.views.explanations import HasForeseen, HasPlans
from ctld.services.views.jobs import FIELDS as JOB_FIELDS
from ctld.services.views.jobs import JobView
from ctld.services.views.nodes import FIELDS as NODE_FIELDS
from ctld.services.views.nodes import Field as NodeField
from ctld.services.views.nodes import NodeView
from ctld.services.views.selection import Selection, check_known, query_of, select, unknown_job
from ctld.services.views.steps import FIELDS as STEP_FIELDS
from ctld.services.views.steps import StepView, only_these
from ctld.services.views.topology import topologies
from ctld.store.store import Store
from muster import errors, hostlist
from muster.clock import Clock
from muster.ids import UnixTime
from muster.idset import TASK_LIST_BYTES, task_list_bytes
from muster.slurm_errors import slurm_text
from muster.version import SLURM_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctld.loops.links import Links

SLICE_SECONDS = 0.0015
"""Work of one turn of the loop on a listing; the clock is looked at every `LOOK_EVERY` records."""
LOOK_EVERY = 32
MAX_FIELDS = 128

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes read from."""

    store: Store
    scheduler: HasPlans
    planner: HasForeseen
    links: Links
    clock: Clock
    config: Sequence[tuple[str, str]] | Callable[[], Sequence[tuple[str, str]]]
    """Names and values of `show config`, sorted; a function where they may change (reconfigure)."""
    version: str
    """Muster's own."""
    host: str = field(default_factory=lambda: os.uname().nodename.partition(".")[0])
    """What `ping` calls this controller."""
    started_at: UnixTime = field(default_factory=lambda: UnixTime(int(time.time())))
    seconds: Callable[[], float] = time.perf_counter
    """The stopwatch that slices are measured by."""


def routes(context: Context) -> list[Route]:
    """Give the routes that read from this controller. Every user may read all of them, as with Slurm."""
    reader = _Reader(context)
    table: tuple[tuple[str, str, Handler], ...] = (
        ("/v1/jobs", "job", reader.jobs),
        ("/v1/jobs/{job}", "job", reader.job),
        ("/v1/steps", "step", reader.steps),
        ("/v1/nodes", "node", reader.nodes),
        ("/v1/partitions", "partition", reader.partitions),
        ("/v1/licenses", "cluster", reader.licenses),
        ("/v1/topology", "cluster", reader.topology),
        ("/v1/overview", "cluster", reader.overview),
        ("/v1/config", "cluster", reader.config),
        ("/v1/ping", "cluster", reader.ping),
    )
    return [
        *(Route("GET", pattern, Right.ANYONE, subject, handler) for pattern, subject, handler in table),
        *reservations.listing(context.store, context.clock),
        *explanations.routes(context.store, context.scheduler, context.planner, context.clock),
    ]


class _Reader:
    """Answers the calls."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state = context.store.state

    async def jobs(self, call: Call) -> bytes:
        """Rows of the jobs that pass every filter."""
        query = query_of(call)
        names, asked = _fields(query, JOB_FIELDS)
        selection = Selection(self._state, query)
        view = self._job_view(query)

        def wanted() -> Iterator[Sequence[object] | None]:
            for job in selection.jobs():
                if not selection.passes(job):
                    yield None
                    continue
                for member in selection.members(job):
                    yield [give(view, member) for give in asked]

        return await self._answer(names, wanted())

    async def job(self, call: Call) -> bytes:
        """All that is known of one job, or of each record of an array."""
        text = call.parts["job"]
        selectors = [_selector(text)]
        found = select(self._state, selectors)
        if not found:
            check_known(self._state, selectors)
            known = any(select(self._state, [_selector(text.partition("_")[0])])) and "_" in text
            if known:
                raise errors.NotFound(f"Job {text} not found")
            raise unknown_job(selectors[0].job_id)
        view = self._job_view(call.query)
        records = [{name: give(view, job) for name, give in JOB_FIELDS.items()} for job in found]
        return await self._one({"jobs": records})

    async def steps(self, call: Call) -> bytes:
        """Rows of the steps that run, the batch script's among them."""
        query = query_of(call)
        names, asked = _fields(query, STEP_FIELDS)
        selection = Selection(self._state, query)
        view = StepView(self._state, self._now())
        only = only_these(query.get("steps"))

        def wanted() -> Iterator[Sequence[object] | None]:
            for job in selection.jobs():
                if selection.passes(job):
                    for step in view.steps(job):
                        if only is None or only(step):
                            yield [give(view, step) for give in asked]
                yield None

        return await self._answer(names, wanted())

    async def nodes(self, call: Call) -> bytes:
        """Rows of the nodes named (`nodes=`, a host list), or of all."""
        query = query_of(call)
        names, asked = _fields(query, NODE_FIELDS)
        return await self._answer(names, self._node_rows(asked, self._named_nodes(query.get("nodes"))))

    async def partitions(self, call: Call) -> bytes:
        """Rows of the partition named (`name=`), or of all."""
        query = query_of(call)
        names, asked = _fields(query, partition_views.FIELDS)
        name = query.get("name")
        table = self._state.partitions
        if name is not None and name not in table:
            raise errors.NotFound(f"Partition {name} not found", slurm_code=2000)
        found = [table[name]] if name is not None else list(table.values())
        return await self._answer(names, ([give(self._state, each) for give in asked] for each in found))

    async def overview(self, call: Call) -> bytes:
        """Nodes and partitions in one answer, for sinfo: `node_fields=...&partition_fields=...`."""
        query = query_of(call)
        node_names, node_asked = _fields(query, NODE_FIELDS, "node_fields")
        partition_names, partition_asked = _fields(query, partition_views.FIELDS, "partition_fields")
        table = [
            [give(self._state, each) for give in partition_asked] for each in list(self._state.partitions.values())
        ]
        more = b',"partition_fields":%b,"partitions":%b' % (_json(partition_names), _json(table))
        return await self._answer(node_names, self._node_rows(node_asked, list(self._state.nodes)), more)

    async def config(self, call: Call) -> bytes:
        """The configuration as pairs of name and value."""
        given = self._context.config
        pairs = dict(given() if callable(given) else given)
        started = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self._context.started_at))
        pairs.setdefault("BOOT_TIME", started)
        pairs["NEXT_JOB_ID"] = str(self._state.next_job_id)
        pairs["MUSTER_VERSION"] = self._context.version
        pairs["SLURM_VERSION"] = SLURM_VERSION
        ordered = sorted(pairs.items(), key=lambda pair: (pair[0].lower(), pair[0]))
        return await self._one({"host": self._context.host, "pairs": ordered})

    async def licenses(self, call: Call) -> bytes:
        """Count the licences: in all, in use, free, and reserved."""
        used = self._state.free.licenses
        rows = [
            {"name": name, "total": total, "used": used.get(name, 0), "free": max(0, total - used.get(name, 0)),
             "reserved": 0}
            for name, total in self._state.settings.licenses.items()
        ]  # fmt: skip
        return await self._one({"licenses": rows})

    async def topology(self, call: Call) -> bytes:
        """Give the topologies with their switches or blocks."""
        return await self._one({"topologies": topologies(self._state)})

    async def ping(self, call: Call) -> bytes:
        """Say that the controller is there, and what it is called."""
        return await self._one({"host": self._context.host, "version": self._context.version})

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _now(self) -> UnixTime:
        return self._context.clock.now()

    def _job_view(self, query: Mapping[str, str]) -> JobView:
        state, overlay, at = self._state, self._context.scheduler.overlay, self._now()
        foreseen = self._context.planner.foreseen

        def wait_of(job: Job) -> Wait:
            return with_planned(reason_of(state, overlay, job, at), foreseen.of(state, job.id), at)

        asked = query.get("task_list_bytes")
        size = TASK_LIST_BYTES if asked is None else task_list_bytes({"SLURM_BITSTR_LEN": asked})
        return JobView(state, at, wait_of, task_list_bytes=size, planned_at=foreseen.made_at)

    def _named_nodes(self, text: str | None) -> list[Node]:
        if text is None:
            return list(self._state.nodes)
        found = []
        for name in hostlist.expand(text):
            index = self._state.node_index.get(name)
            if index is None:
                raise errors.NotFound(f"Node {name} not found", slurm_code=2018)
            found.append(self._state.nodes[index])
        return found

    def _node_rows(self, asked: Sequence[NodeField], found: Iterable[Node]) -> Iterator[Sequence[object]]:
        planned = {node for wait in self._context.scheduler.overlay.waits.values() for node in wait.nodes}
        view = NodeView(self._state, self._context.links, self._now(), planned)
        for node in found:
            yield [give(view, node) for give in asked]

    async def _answer(self, names: Sequence[str], rows: Iterable[Sequence[object] | None], more: bytes = b"") -> bytes:
        """Encode the rows in slices; None stands for a record that was looked at and has no row."""
        parts: list[bytes] = [b""]
        batch: list[Sequence[object]] = []
        seconds = self._context.seconds
        until = seconds() + SLICE_SECONDS
        for count, row in enumerate(rows):
            if row is not None:
                batch.append(row)
            if count % LOOK_EVERY == 0 and seconds() >= until:
                if batch:
                    parts += (_json(batch)[1:-1], b",")
                    batch = []
                await asyncio.sleep(0)
                until = seconds() + SLICE_SECONDS
        if batch:
            parts.append(_json(batch)[1:-1])
        elif len(parts) > 1:
            parts.pop()
        # Last: what was shown above is durable once this returns.
        await self._context.store.settled()
        parts[0] = b'{"now":%d,"cluster":%b,"fields":%b%b,"rows":[' % (
            self._now(),
            _json(self._state.settings.cluster),
            _json(names),
            more,
        )
        parts.append(b"]}")
        return b"".join(parts)  # megabytes: copied once, in its own turn

    async def _one(self, value: dict[str, Any]) -> bytes:
        """Encode one small answer."""
        body = _json({"now": self._now(), "cluster": self._state.settings.cluster, **value})
        await self._context.store.settled()
        return body


_json = msgspec.json.encode


def _fields(
    query: Mapping[str, str], known: Mapping[str, Item], parameter: str = "fields"
) -> tuple[list[str], list[Item]]:
    """Read the fields asked for; without any, all of them."""
    text = query.get(parameter)
    names = list(known) if text is None else text.split(",") if text else []
    if len(names) > MAX_FIELDS:
        raise errors.TooLarge(f"{parameter} names {len(names)} fields, more than the {MAX_FIELDS} that are taken")
    for name in names:
        if name not in known:
            raise errors.InvalidInput(
                f"{parameter}: there is no field {name[:60]}", f"the fields are {', '.join(known)}"
            )
    return names, [known[name] for name in names]


def _selector(text: str) -> Selector:
    found = parse_selectors(text)
    if len(found) != 1 or found[0].step_id is not None:
        raise errors.InvalidInput(slurm_text(2017), f"`{text[:60]}` does not name one job", slurm_code=2017)
    return found[0]

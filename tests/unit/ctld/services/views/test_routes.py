"""The reading routes: lean rows, filters, slices, and answers that show only what is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import count
from typing import Any

import msgspec
import pytest

from ctld.core.apply.indexes import put
from ctld.core.model import Job
from ctld.core.plan import Plan, Wait
from ctld.core.state import State
from ctld.services.door import Door, Right
from ctld.services.views import jobs as job_views
from ctld.services.views import routes as views
from ctld.services.views.routes import Context, routes
from ctld.store.memory import MemoryJournal
from ctld.store.store import Store
from muster.ids import JobId
from muster.states import Reason
from tests.builders import NOON, USER, a_job, a_partition, a_spec, a_state
from tests.served import FixedOverlay, StandingClock, door_to, links_to

DEFAULT_FIELDS = "id,partition,name,user,state_compact,used,nodes,nodelist_reason,state_sort,priority"


def many_pending(jobs: int) -> State:
    state = a_state()
    specs = [a_spec(name=f"job{number}", ntasks=number + 1) for number in range(8)]
    for number in range(1, jobs + 1):
        put(state, None, a_job(number, spec=specs[number % 8]))
    state.next_job_id = JobId(jobs + 1)
    return state


async def ask(door: Door, target: str, body: bytes = b"") -> Any:
    answer = await door.answer(USER, "GET", target, body)
    return {"status": answer.status, **msgspec.json.decode(answer.body)}


async def test_rows_hold_the_fields_asked_for_and_nothing_else() -> None:
    state = many_pending(3)
    overlay = Plan(made_at=NOON, waits={2: Wait(Reason.RESOURCES)})
    found = await ask(door_to(state, links_to(state), overlay=overlay), "/v1/jobs?fields=id,reason,used")
    assert found["fields"] == ["id", "reason", "used"]
    assert found["rows"] == [[1, "Priority", 0], [2, "Resources", 0], [3, "Priority", 0]]
    assert (found["now"], found["cluster"]) == (NOON, "cluster")


async def test_every_field_can_be_asked_of_every_job() -> None:
    state = many_pending(1)
    put(state, None, a_job(2, spec=a_spec(array=(0, 9), batch=True)))
    found = await ask(door_to(state, links_to(state)), "/v1/jobs")
    assert found["fields"] == list(job_views.FIELDS)
    assert all(len(row) == len(found["fields"]) for row in found["rows"])
    assert len(found["fields"]) <= views.MAX_FIELDS


async def test_an_unknown_field_is_refused_by_name() -> None:
    state = many_pending(1)
    found = await ask(door_to(state, links_to(state)), "/v1/jobs?fields=id,colour")
    assert found["status"] == 400
    assert "colour" in found["error"]["sentence"]


async def test_a_long_listing_gives_way_to_the_loop_many_times() -> None:
    # A stopwatch that goes 0.1 ms each time it is looked at: what is counted is how often the listing looks and
    # yields, not how fast this machine is.
    ticks = count(0, 1e-4)
    state = many_pending(20_000)
    door = door_to(state, links_to(state), seconds=ticks.__next__)
    turns = 0
    done = False

    async def count_turns() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    found = await ask(door, f"/v1/jobs?fields={DEFAULT_FIELDS}")
    done = True
    await counting
    assert len(found["rows"]) == 20_000
    looks = 20_000 // views.LOOK_EVERY
    assert turns >= looks // (int(views.SLICE_SECONDS / 1e-4) + 3)


async def test_jobs_that_a_filter_drops_give_way_to_the_loop_too() -> None:
    state = many_pending(1000)
    door = door_to(state, links_to(state), seconds=count(0, 1e-2).__next__)
    answering = asyncio.create_task(ask(door, "/v1/jobs?fields=id&users=77"))
    turns = 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert answering.result()["rows"] == []
    assert turns >= 1000 // views.LOOK_EVERY


async def test_a_reason_is_looked_for_once_for_each_row() -> None:
    state = many_pending(50)
    asked: list[int] = []

    def wait_of(job: Job) -> Wait:
        asked.append(job.id)
        return Wait(Reason.PRIORITY)

    view = job_views.JobView(state, NOON, wait_of)
    for job in state.jobs.values():
        for name in ("reason", "nodelist_reason", "start_at", "end_at", "planned_nodes"):
            job_views.FIELDS[name](view, job)
    assert asked == list(range(1, 51))


class _SlowJournal(MemoryJournal):
    """A journal whose newest event is not durable until told."""

    def __init__(self) -> None:
        super().__init__()
        self.durable = asyncio.Event()

    def append(
        self, payloads: Sequence[bytes], blobs: Sequence[tuple[bytes, bytes]] = ()
    ) -> Awaitable[int]:  # pragma: no cover - nothing is appended here
        raise AssertionError("a read appends nothing")

    @property
    def last_queued(self) -> int:
        return 1

    @property
    def last_durable(self) -> int:
        return 1 if self.durable.is_set() else 0

    async def wait_durable(self, number: int) -> None:
        await self.durable.wait()


@pytest.mark.parametrize("target", ["/v1/jobs", "/v1/jobs/1", "/v1/nodes", "/v1/overview", "/v1/config", "/v1/steps"])
async def test_nothing_is_answered_before_what_it_shows_is_durable(target: str) -> None:
    state = many_pending(1)
    journal = _SlowJournal()
    door = Door()
    planned = FixedOverlay(Plan(made_at=NOON))
    context = Context(Store(state, journal), planned, planned, links_to(state), StandingClock(), (), "1", host="h")
    door.add(routes(context))
    answering = asyncio.create_task(door.answer(USER, "GET", target, b""))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not answering.done()
    journal.durable.set()
    assert (await answering).status == 200


async def test_every_user_may_read_and_only_read() -> None:
    state = a_state()
    table = door_to(state, links_to(state)).routes()
    rights = {(route.method, route.right) for route in table if route.pattern != "/v1/statistics/reset"}
    assert rights == {("GET", Right.ANYONE)}
    assert {route.pattern for route in table} >= {"/v1/jobs", "/v1/jobs/{job}", "/v1/nodes", "/v1/ping"}


async def test_a_query_may_come_in_the_body() -> None:
    state = many_pending(5)
    body = msgspec.json.encode({"fields": "id", "ids": "2,4"})
    found = await ask(door_to(state, links_to(state)), "/v1/jobs", body)
    assert found["rows"] == [[2], [4]]


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/v1/jobs?ids=999", 404, 2017),
        ("/v1/jobs?nodes=zz", 404, 2018),
        ("/v1/jobs?states=foo", 400, 2181),
        ("/v1/jobs?ids=x", 400, 2140),
        ("/v1/jobs/5_7", 404, 2017),
        ("/v1/jobs/2.0", 400, 2017),
        ("/v1/partitions?name=zz", 404, 2000),
        ("/v1/nodes?nodes=zz", 404, 2018),
    ],
)
async def test_what_is_not_there_is_refused_with_slurms_number(target: str, status: int, code: int) -> None:
    state = many_pending(2)
    found = await ask(door_to(state, links_to(state)), target)
    assert (found["status"], found["error"]["slurm_code"]) == (status, code)


async def test_a_partition_gives_its_memory_defaults_or_the_clusters() -> None:
    state = a_state(
        partitions=(a_partition(nodes=2), a_partition("own", nodes=2, def_memory_per_node_mib=500)),
    )
    state.settings = msgspec.structs.replace(state.settings, def_memory_per_cpu_mib=100)
    found = await ask(
        door_to(state, links_to(state)), "/v1/partitions?fields=name,default_memory_per_cpu,default_memory_per_node"
    )
    assert found["rows"] == [["main", 100, 0], ["own", 0, 500]]

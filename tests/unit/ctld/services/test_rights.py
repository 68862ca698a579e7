"""Who may call what on whose object: every route of the controller, three callers, three objects.

The table of expectations is written by hand; a route without a row in it fails, and so does a row without a route.
"""

from __future__ import annotations

import inspect
import tempfile
from functools import cache
from pathlib import Path

import msgspec
import pytest

import ctld.daemon
from ctld.core.cluster import Settings
from ctld.core.commands import ApplyPlan, CreateStep, StepRequest, Submit
from ctld.core.model import Caller, NodeShare
from ctld.core.plan import Plan, Start
from ctld.core.reservations import Access, Reservation
from ctld.loops.links import Links
from ctld.loops.planner import Planner
from ctld.loops.priority import Priorities
from ctld.loops.schedule import Scheduler
from ctld.loops.statistics import Statistics
from ctld.services import actions, history, priorities, statistics, status, steps
from ctld.services.door import Door, Route
from ctld.services.followers import FollowersService
from ctld.services.views import routes as views
from ctld.store.memory import MemoryBlobs, MemoryJournal
from ctld.store.store import Store
from muster.auth import Identity
from muster.clock import SystemClock
from muster.config.load import load
from muster.config.records import ClusterConfig
from muster.ids import JobId, UnixTime
from tests.builders import NOON, a_spec, a_state
from tests.serving import RecordedSignals

ADA = Caller(uid=1000, gid=1000)
BOB = Caller(uid=1001, gid=1001)
ROOT = Caller(uid=0, gid=0, admin=True)
CALLERS = {"ada": ADA, "bob": BOB, "root": ROOT}
ADAS_JOB, BOBS_JOB, NO_JOB = 1, 2, 99

EVERYONE = "ok ok ok | ok ok ok | ok ok ok"
OWNER = "ok denied absent | denied ok absent | ok ok absent"
ADMIN = "denied denied denied | denied denied denied | ok ok ok"
ADMIN_OF_JOB = "denied denied denied | denied denied denied | ok ok absent"

EXPECTED: dict[tuple[str, str], tuple[str, str]] = {
    # (method, pattern): (body, or "" ; what ada | bob | root hear about ada's job, bob's job, and none at all)
    ("POST", "/v1/jobs"): ('{"script": "#!/bin/sh\\n", "work_dir": "/"}', EVERYONE),
    ("POST", "/v1/jobs/cancel"): ('{"ids": ["JOB"]}', OWNER),
    ("POST", "/v1/jobs/hold"): ('{"ids": "JOB"}', OWNER),
    ("POST", "/v1/jobs/release"): ('{"ids": "JOB"}', OWNER),
    ("POST", "/v1/jobs/requeue"): ('{"ids": "JOB"}', OWNER),
    ("POST", "/v1/jobs/suspend"): ('{"ids": "JOB"}', ADMIN_OF_JOB),
    ("POST", "/v1/jobs/resume"): ('{"ids": "JOB"}', ADMIN_OF_JOB.replace("ok ok", "refused refused")),
    ("POST", "/v1/jobs/update"): ('{"ids": "JOB", "comment": "x"}', OWNER),
    ("GET", "/v1/jobs/{job}/script"): ("", OWNER),
    ("GET", "/v1/jobs/{job}/wait"): ("", "ok ok absent | ok ok absent | ok ok absent"),
    ("POST", "/v1/nodes/update"): ('{"nodes": "n4", "state": "DRAIN", "reason": "x"}', ADMIN),
    ("POST", "/v1/shutdown"): ("", ADMIN),
    ("POST", "/v1/reservations/create"): ('{"nodes": "n4", "start": 4000000000, "duration": 60, "users": "0"}', ADMIN),
    ("POST", "/v1/reservations/update"): ('{"name": "kept", "comment": "x"}', ADMIN),
    ("POST", "/v1/reservations/delete"): ('{"name": "kept"}', ADMIN),
    ("GET", "/v1/reservations"): ("", EVERYONE),
    ("POST", "/v1/jobs/{job}/steps"): ('{"name": "x", "argv": ["x"], "overlap": true}', OWNER),
    ("POST", "/v1/jobs/{job}/steps/{step}/signal"): ("", OWNER),
    ("POST", "/v1/jobs/{job}/steps/{step}/cancel"): ("", OWNER),
    ("GET", "/v1/jobs/{job}/steps/{step}"): ("", OWNER),
    ("GET", "/v1/jobs"): ("", EVERYONE),
    ("GET", "/v1/jobs/{job}"): ("", "ok ok absent | ok ok absent | ok ok absent"),
    ("GET", "/v1/jobs/{job}/explanation"): ("", "ok ok absent | ok ok absent | ok ok absent"),
    ("GET", "/v1/steps"): ("", EVERYONE),
    ("GET", "/v1/nodes"): ("", EVERYONE),
    ("GET", "/v1/partitions"): ("", EVERYONE),
    ("GET", "/v1/licenses"): ("", EVERYONE),
    ("GET", "/v1/topology"): ("", EVERYONE),
    ("GET", "/v1/overview"): ("", EVERYONE),
    ("GET", "/v1/config"): ("", EVERYONE),
    ("GET", "/v1/ping"): ("", EVERYONE),
    ("GET", "/v1/status"): ("", EVERYONE),
    ("GET", "/v1/priorities"): ("", EVERYONE),
    ("GET", "/v1/statistics"): ("", EVERYONE),
    ("POST", "/v1/statistics/reset"): ("", ADMIN),
    # Accounting is not configured here, which is said to all alike.
    ("POST", "/v1/history"): ("{}", "refused refused refused | refused refused refused | refused refused refused"),
}
QUERIES = {
    ("POST", "/v1/jobs/{job}/steps/{step}/signal"): "?signal=USR1",
    ("GET", "/v1/jobs"): "?fields=id",
    ("GET", "/v1/steps"): "?fields=id",
    ("GET", "/v1/nodes"): "?fields=name",
    ("GET", "/v1/partitions"): "?fields=name",
}
WORDS = {200: "ok", 400: "wrong", 403: "denied", 404: "absent", 409: "refused", 500: "broken"}


def a_store() -> tuple[Store, MemoryBlobs]:
    """A running job of ada's and one of bob's, each with a step."""
    state = a_state(settings=Settings(require_registration=False, job_requeue=True))
    state.reservations["kept"] = Reservation(
        "kept", 1, UnixTime(3_999_000_000), UnixTime(3_999_000_060), NOON, users=Access(("ada",), ids=(ADA.uid,))
    )
    state.next_reservation = 2
    journal = MemoryJournal()
    blobs = MemoryBlobs(journal)
    store = Store(state, journal)
    digest, record = blobs.put(b"#!/bin/sh\n")
    assert record is not None
    for caller in (ADA, BOB):
        spec = a_spec(uid=caller.uid, gid=caller.gid, script=digest)
        store.post(Submit(spec, caller), at=NOON, blobs=[record])
    shares = [(NodeShare(node=node, cpus=4, cores=(0, 3)),) for node in (0, 1)]
    starts = tuple(Start(JobId(job), "main", share) for job, share in zip((ADAS_JOB, BOBS_JOB), shares, strict=True))
    store.post(ApplyPlan(Plan(NOON, starts)), at=NOON)
    for job, caller in ((ADAS_JOB, ADA), (BOBS_JOB, BOB)):
        store.post(CreateStep(JobId(job), caller, StepRequest(name="x", argv=("x",), overlap=True)), at=NOON)
    return store, blobs


@cache
def a_configuration() -> ClusterConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "muster.conf"
        path.write_text(
            "ClusterName=here\nSlurmctldHost=here\nNodeName=n[1-4] CPUs=64\nPartitionName=main Nodes=ALL Default=YES\n"
        )
        return load(path)


def a_door() -> Door:
    """Every module of routes that `ctld.daemon` adds, as it adds them."""
    store, blobs = a_store()
    clock, links, signals = SystemClock(), Links(), RecordedSignals()
    scheduler, planner = Scheduler(store, links, clock), Planner(store, links, clock)
    followers = FollowersService(store, "here", expected=False)
    none = Path("none")
    past = history.History(store, followers, Identity(none, none, none), "", clock)
    door = Door()
    door.add(actions.routes(actions.Context(store, signals, clock, blobs, lambda: None)))
    door.add(steps.routes(steps.Context(store, links, signals, blobs, clock)))  # type: ignore[arg-type]
    door.add(views.routes(views.Context(store, scheduler, planner, links, clock, (), "0")))
    door.add(priorities.routes(priorities.Context(store, Priorities(store, clock), clock)))
    door.add(statistics.routes(statistics.Context(store, links, Statistics(clock), clock, lambda: 0)))
    door.add(past.routes())
    door.add(status.routes(status.Context(store, links, scheduler, planner, a_configuration(), lambda: False)))
    return door


def the_routes() -> list[Route]:
    return a_door().routes()


def test_every_module_of_routes_that_the_daemon_adds_is_walked() -> None:
    added = inspect.getsource(ctld.daemon).count("door.add(")
    assert added == inspect.getsource(a_door).count("door.add("), "a_door() lacks a module, or has one too many"


def test_every_route_has_its_expectation_and_every_expectation_its_route() -> None:
    there = {(route.method, route.pattern) for route in the_routes()}
    assert there == set(EXPECTED)


@pytest.mark.parametrize("which", list(EXPECTED), ids=" ".join)
@pytest.mark.parametrize("who", list(CALLERS))
async def test_a_caller_may_do_what_the_table_says_and_nothing_else(which: tuple[str, str], who: str) -> None:
    method, pattern = which
    body, expected = EXPECTED[which]
    row = expected.split(" | ")[list(CALLERS).index(who)].split()
    heard = []
    for job in (ADAS_JOB, BOBS_JOB, NO_JOB):
        target = pattern.replace("{job}", str(job)).replace("{step}", "0") + QUERIES.get(which, "")
        answer = await a_door().answer(CALLERS[who], method, target, body.replace("JOB", str(job)).encode())
        word = WORDS.get(answer.status, str(answer.status))
        heard.append(word)
        if word == "denied":
            assert msgspec.json.decode(answer.body)["error"]["slurm_code"] in (2002, 2010)
    assert heard == row


async def test_a_refused_caller_changes_nothing() -> None:
    for (method, pattern), (body, _) in EXPECTED.items():
        if method != "POST" or "{job}" in pattern or pattern in ("/v1/jobs", "/v1/history"):
            continue
        if pattern.startswith("/v1/statistics"):  # No fact: nothing of it is journaled.
            continue
        store, blobs = a_store()
        door = Door()
        door.add(actions.routes(actions.Context(store, RecordedSignals(), SystemClock(), blobs, pytest.fail)))
        before = store.journal.last_queued
        answer = await door.answer(BOB, method, pattern, body.replace("JOB", str(ADAS_JOB)).encode())
        assert (answer.status, store.journal.last_queued) == (403, before), pattern


async def test_a_name_selects_only_the_callers_own_jobs() -> None:
    store, blobs = a_store()
    door = Door()
    door.add(actions.routes(actions.Context(store, RecordedSignals(), SystemClock(), blobs, pytest.fail)))
    answer = await door.answer(BOB, "POST", "/v1/jobs/hold", b'{"ids": "name=job"}')
    assert msgspec.json.decode(answer.body) == {"results": [{"id": str(BOBS_JOB)}]}
    assert (store.state.jobs[ADAS_JOB].hold, store.state.jobs[BOBS_JOB].hold) == ("", "user")


async def test_filters_without_ids_end_only_the_callers_own_jobs() -> None:
    store, blobs = a_store()
    door = Door()
    door.add(actions.routes(actions.Context(store, RecordedSignals(), SystemClock(), blobs, pytest.fail)))
    answer = await door.answer(BOB, "POST", "/v1/jobs/cancel", b'{"partition": "main"}')
    assert msgspec.json.decode(answer.body) == {"results": [{"id": str(BOBS_JOB)}]}
    assert store.state.jobs[ADAS_JOB].kill is None


async def test_while_the_controller_stops_it_takes_no_changes() -> None:
    door = a_door()
    door.closing = True
    assert (await door.answer(ROOT, "POST", "/v1/jobs/hold", b'{"ids": "1"}')).status == 503
    assert (await door.answer(ROOT, "GET", "/v1/ping", b"")).status == 200


def test_the_calls_of_every_route_have_a_name_in_sdiag() -> None:
    assert {(route.method, route.pattern) for route in the_routes()} == set(statistics.MESSAGES)
    names: dict[int, str] = {}
    for name, number in statistics.MESSAGES.values():
        assert names.setdefault(number, name) == name

"""The priority loop: every period, when something changed, and in slices."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest

from ctld.core.accounts import Association, Limits, Qos
from ctld.core.apply.indexes import put
from ctld.core.cluster import PrioritySettings, Settings
from ctld.core.commands import ApplyAccounts, ApplyConfig, Submit
from ctld.core.events import UsageReset, decode
from ctld.loops import priority
from ctld.loops.priority import Priorities, period_start
from muster.ids import UnixTime
from tests.builders import NOON, USER, a_job, a_spec
from tests.nodestream import Desk

TREE = ApplyAccounts(
    (
        Association(1, "root"),
        Association(2, "physics", parent_id=1),
        Association(3, "physics", parent_id=2, user="ada"),
    ),
    (Qos(1, "normal"), Qos(2, "high", priority=5)),
)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def configure(desk: Desk, **fields: object) -> None:
    settings = Settings(require_registration=False, priority=PrioritySettings(**fields))  # type: ignore[arg-type]
    nodes = tuple(node.spec for node in desk.state.nodes)
    desk.store.post(ApplyConfig(settings, nodes, tuple(desk.state.partitions.values())), at=desk.clock.now())


def submit(desk: Desk, **fields: object) -> int:
    events, _ = desk.store.post(Submit(a_spec(**fields), USER), at=desk.clock.now())  # type: ignore[arg-type]
    return events[0].job.id  # type: ignore[union-attr]


def shown(desk: Desk, job: int) -> int:
    return desk.state.queue.priority(desk.state.jobs[job])


async def test_a_job_has_its_priority_before_anybody_else_looks() -> None:
    desk = Desk()
    configure(desk, qos=1000)
    desk.store.post(TREE, at=desk.clock.now())
    priorities = Priorities(desk.store, desk.clock)
    priorities.prime()
    assert shown(desk, submit(desk, qos="high", account="physics")) == 1000
    assert shown(desk, submit(desk, account="physics")) == 1
    (terms,) = priorities.all_terms(desk.state.jobs[1])
    assert (terms.of_qos, terms.total()) == (1000, 1000)


async def test_a_new_configuration_and_a_new_tree_wake_it() -> None:
    desk = Desk()
    priorities = Priorities(desk.store, desk.clock)
    priorities.prime()
    loop = asyncio.create_task(priorities.run())
    job = submit(desk, qos="high", account="physics")
    configure(desk, qos=1000)
    await until(lambda: shown(desk, job) == 1)
    desk.store.post(TREE, at=desk.clock.now())
    await until(lambda: shown(desk, job) == 1000)
    assert priorities.shares == {}
    configure(desk, fairshare=300)
    await until(lambda: shown(desk, job) == 300)
    assert priorities.shares[3].factor == 1.0
    configure(desk)
    await until(lambda: shown(desk, job) > 10**9)
    await stopped(loop)


async def test_fairshare_of_many_associations_is_computed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "MANY_ASSOCIATIONS", 1)
    desk = Desk()
    desk.store.post(TREE, at=desk.clock.now())
    priorities = Priorities(desk.store, desk.clock)
    priorities.prime()
    loop = asyncio.create_task(priorities.run())
    job = submit(desk, account="physics")
    configure(desk, fairshare=300)
    await until(lambda: shown(desk, job) == 300)
    await stopped(loop)


async def test_a_pass_is_cut_into_slices_of_the_loop() -> None:
    desk = Desk()
    configure(desk, age=1000, max_age_seconds=1000)
    for number in range(1, 2001):
        put(desk.state, None, a_job(number, eligible_at=UnixTime(NOON - 500)))
    ticks: Iterator[float] = itertools.count(0, 0.002)
    priorities = Priorities(desk.store, desk.clock, lambda: next(ticks))
    priorities.prime()
    desk.clock.at = UnixTime(desk.clock.now() + 400)
    loop = asyncio.create_task(priorities.run())
    turns = 0
    configure(desk, age=1000, max_age_seconds=1000, qos=1)
    before = priorities.passes
    while priorities.passes == before:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 3
    await stopped(loop)


async def test_a_period_that_began_has_usage_forgotten_once() -> None:
    desk = Desk()
    desk.store.post(TREE, at=desk.clock.now())
    configure(desk, fairshare=1, usage_reset="DAILY")
    priorities = Priorities(desk.store, desk.clock)
    priorities.prime()

    def resets() -> int:
        return sum(isinstance(decode(payload), UsageReset) for payload in desk.journal.events)

    loop = asyncio.create_task(priorities.run())
    configure(desk, fairshare=2, usage_reset="DAILY")
    await until(lambda: priorities.passes == 2)
    assert resets() == 0
    desk.clock.at = UnixTime(desk.clock.now() + 86400)
    for _ in range(2):
        before = priorities.passes
        configure(desk, fairshare=before + 3, usage_reset="DAILY")
        await until(lambda before=before: priorities.passes > before)  # type: ignore[misc]
    assert resets() == 1
    configure(desk, fairshare=2, usage_reset="NOW")
    priorities.prime()
    assert resets() == 2
    await stopped(loop)


@pytest.mark.parametrize(
    ("period", "began"),
    [
        ("NONE", None),
        ("NOW", None),
        ("DAILY", "2026-08-19"),
        ("WEEKLY", "2026-08-16"),
        ("MONTHLY", "2026-08-01"),
        ("QUARTERLY", "2026-07-01"),
        ("YEARLY", "2026-01-01"),
    ],
)
def test_periods_begin_at_local_midnight(period: str, began: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", "Europe/Berlin")
    time.tzset()
    try:
        now = int(time.mktime((2026, 8, 19, 13, 45, 0, 0, 0, -1)))
        found = period_start(period, UnixTime(now))
        assert (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found)) if found else None) == (
            f"{began} 00:00:00" if began else None
        )
        sunday = int(time.mktime((2026, 8, 16, 0, 0, 0, 0, 0, -1)))
        assert period_start("WEEKLY", UnixTime(sunday)) == sunday
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_slots_of_accrue_limits_are_given_with_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "SLOTS_AT_ONCE", 1)
    desk = Desk()
    limited = Association(2, "physics", parent_id=1, limits=Limits(grp_jobs_accrue=1))
    desk.store.post(ApplyAccounts((TREE.associations[0], limited, TREE.associations[2]), TREE.qos), at=NOON)
    priorities = Priorities(desk.store, desk.clock)
    priorities.prime()
    jobs = [submit(desk, account="physics") for _ in range(3)]
    loop = asyncio.create_task(priorities.run())
    settings = Settings(
        require_registration=False,
        accounting_enforce=("associations", "limits"),
        priority=PrioritySettings(age=100, max_age_seconds=100),
    )
    nodes = tuple(node.spec for node in desk.state.nodes)
    desk.clock.at = UnixTime(NOON + 50)
    desk.store.post(ApplyConfig(settings, nodes, tuple(desk.state.partitions.values())), at=desk.clock.now())
    await until(lambda: [shown(desk, job) for job in jobs] == [50, 1, 1])
    await stopped(loop)

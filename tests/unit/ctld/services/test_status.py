"""What `muster status` and `muster doctor` are told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from ctld.core.model import Caller
from ctld.loops.planner import Planner
from ctld.loops.schedule import Scheduler
from ctld.services import status
from ctld.services.door import Door
from muster.config.load import load
from tests.nodestream import Desk

CONFIG = "ClusterName=c\nSlurmctldHost=h\nMailProg=/bin/mail\nNodeName=n[1-2] CPUs=1\nPartitionName=p Nodes=ALL\n"
ANYBODY = Caller(uid=4711, gid=4711)


def a_door(desk: Desk, folder: Path) -> Door:
    file = folder / "muster.conf"
    file.write_text(CONFIG)
    config = load(file)
    door = Door()
    scheduler = Scheduler(desk.store, desk.links, desk.clock)
    planner = Planner(desk.store, desk.links, desk.clock)
    door.add(status.routes(status.Context(desk.store, desk.links, scheduler, planner, config, lambda: True)))
    return door


async def asked(door: Door) -> dict[str, Any]:
    answer = await door.answer(ANYBODY, "GET", "/v1/status", b"")
    assert answer.status == 200
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return found


async def test_nodes_jobs_and_followers_are_counted(tmp_path: Path) -> None:
    desk = Desk()
    desk.link(0)
    desk.running(0)
    desk.submit()
    desk.now = 12.0
    desk.links.pulse(0).limits_off = ("memory is not enforced",)
    found = await asked(a_door(desk, tmp_path))
    assert [(node["name"], node["connected"], node["silent_seconds"]) for node in found["nodes"]] == [
        ("n1", True, 12),
        ("n2", False, 12),
    ]
    assert found["nodes"][0]["limits_off"] == ["memory is not enforced"]
    assert (found["running"], found["pending"], found["accounting"]) == (1, 1, True)
    assert [line.rpartition("/")[2] for line in found["without_effect"]] == ["muster.conf:3: MailProg"]


async def test_what_is_shown_is_durable(tmp_path: Path) -> None:
    desk = Desk()
    door = a_door(desk, tmp_path)
    desk.journal.holding = True
    desk.submit()
    asking = asyncio.create_task(asked(door))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asking.done()
    desk.journal.release()
    assert (await asking)["pending"] == 1

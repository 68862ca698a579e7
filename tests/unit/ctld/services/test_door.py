"""The door: which route, whose right, and what a handler's troubles become."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from ctld.core.model import Caller
from ctld.services.door import Call, Door, Right, Route
from muster import errors

ADA = Caller(uid=1000, gid=1000)
ROOT = Caller(uid=0, gid=0, admin=True)


async def echo(call: Call) -> dict[str, Any]:
    return {"uid": call.caller.uid, "parts": dict(call.parts), "query": dict(call.query), "size": len(call.body)}


def a_door(*routes: tuple[str, str, Right], handler: Any = echo) -> Door:
    door = Door()
    door.add(Route(method, pattern, right, "job", handler) for method, pattern, right in routes)
    return door


async def asked(
    door: Door, method: str, target: str, body: bytes = b"", *, caller: Caller = ADA
) -> tuple[int, dict[str, Any]]:
    answer = await door.answer(caller, method, target, body)
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return answer.status, found


async def test_a_pattern_gives_its_parts_decoded() -> None:
    door = a_door(("GET", "/v1/jobs/{job}/steps/{step}", Right.ANYONE))
    status, found = await asked(door, "GET", "/v1/jobs/5%5F3/steps/ba%20tch")
    assert (status, found["parts"]) == (200, {"job": "5_3", "step": "ba tch"})


async def test_a_fixed_route_wins_over_a_pattern() -> None:
    async def fixed(call: Call) -> str:
        return "fixed"

    door = a_door(("POST", "/v1/jobs/{job}", Right.ANYONE))
    door.add([Route("POST", "/v1/jobs/cancel", Right.ANYONE, "job", fixed)])
    assert (await door.answer(ADA, "POST", "/v1/jobs/cancel", b"")).body == b'"fixed"'
    assert (await asked(door, "POST", "/v1/jobs/7"))[1]["parts"] == {"job": "7"}


async def test_the_last_of_a_querys_values_counts_and_blanks_are_kept() -> None:
    door = a_door(("GET", "/v1/x", Right.ANYONE))
    _, found = await asked(door, "GET", "/v1/x?a=1&a=2&b=&c=%C3%BC+%26")
    assert found["query"] == {"a": "2", "b": "", "c": "ü &"}


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/v1/none"), ("PUT", "/v1/x"), ("GET", "/v1/jobs/1/2"), ("GET", "/"), ("GET", ""), ("GET", "?a=b")],
)
async def test_an_unknown_route_is_not_found(method: str, target: str) -> None:
    door = a_door(("GET", "/v1/x", Right.ANYONE), ("GET", "/v1/jobs/{job}", Right.ANYONE))
    status, found = await asked(door, method, target)
    assert (status, found["error"]["code"]) == (404, "NOT_FOUND")
    assert "there is no route" in found["error"]["sentence"]


async def test_a_query_of_too_many_fields_is_refused() -> None:
    status, found = await asked(a_door(("GET", "/v1/x", Right.ANYONE)), "GET", "/v1/x?" + "a=1&" * 100)
    assert (status, found["error"]["code"]) == (400, "INVALID_INPUT")


async def test_an_administrators_route_is_closed_to_others() -> None:
    door = a_door(("POST", "/v1/stop", Right.ADMIN))
    status, found = await asked(door, "POST", "/v1/stop")
    assert (status, found["error"]["slurm_code"]) == (403, 2002)
    assert (await asked(door, "POST", "/v1/stop", caller=ROOT))[0] == 200


async def test_a_closing_door_lets_reads_through_and_no_changes() -> None:
    door = a_door(("GET", "/v1/x", Right.ANYONE), ("POST", "/v1/x", Right.ANYONE))
    door.closing = True
    assert (await asked(door, "GET", "/v1/x"))[0] == 200
    status, found = await asked(door, "POST", "/v1/x")
    assert (status, found["error"]["slurm_code"]) == (503, 1800)


@pytest.mark.parametrize("kind", errors.KINDS.values(), ids=lambda kind: kind.__name__)
async def test_an_error_of_the_house_crosses_as_its_class(kind: type[errors.MusterError]) -> None:
    async def refuse(call: Call) -> None:
        raise kind("the sentence", "the hint", slurm_code=2017)

    status, found = await asked(a_door(("GET", "/x", Right.ANYONE), handler=refuse), "GET", "/x")
    said = found["error"]
    heard = errors.from_wire(said["code"], said["sentence"], said["hint"], said["slurm_code"])
    assert status == kind.http_status
    assert (type(heard), heard.sentence, heard.hint, heard.slurm_code) == (kind, "the sentence", "the hint", 2017)


@pytest.mark.parametrize("answer", ["raise", "unencodable"])
async def test_a_bug_in_a_handler_answers_2090_and_the_door_goes_on(
    answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(call: Call) -> object:
        if answer == "raise":
            raise KeyError("the bug")
        return object()

    door = a_door(("GET", "/x", Right.ANYONE), handler=broken)
    door.add([Route("GET", "/y", Right.ANYONE, "job", echo)])
    status, found = await asked(door, "GET", "/x?" + "z" * 10_000)
    assert (status, found["error"]["code"], found["error"]["slurm_code"]) == (500, "INTERNAL", 2090)
    assert "the bug" not in found["error"]["sentence"]
    assert "a bug in GET /x" in caplog.text
    assert "Traceback" in caplog.text
    assert len(caplog.records[0].message) < 300
    assert (await asked(door, "GET", "/y"))[0] == 200


async def test_who_is_cancelled_is_not_answered_with_a_bug() -> None:
    async def waits(call: Call) -> None:
        await asyncio.Event().wait()

    answering = asyncio.create_task(a_door(("GET", "/x", Right.ANYONE), handler=waits).answer(ADA, "GET", "/x", b""))
    await asyncio.sleep(0)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


async def test_bytes_are_passed_on_as_they_are() -> None:
    async def raw(call: Call) -> bytes:
        return b"[1,  2]"

    assert (await a_door(("GET", "/x", Right.ANYONE), handler=raw).answer(ADA, "GET", "/x", b"")).body == b"[1,  2]"


@pytest.mark.parametrize("second", [("GET", "/v1/jobs/{id}"), ("GET", "/v1/x")])
def test_two_routes_of_one_shape_are_a_programmers_error(second: tuple[str, str]) -> None:
    door = a_door(("GET", "/v1/jobs/{job}", Right.ANYONE), ("GET", "/v1/x", Right.ANYONE))
    with pytest.raises(AssertionError):
        door.add([Route(*second, Right.ANYONE, "job", echo)])


def test_all_routes_can_be_listed() -> None:
    door = a_door(("GET", "/v1/jobs/{job}", Right.OWNER), ("GET", "/v1/x", Right.ANYONE))
    assert {(route.method, route.pattern) for route in door.routes()} == {("GET", "/v1/jobs/{job}"), ("GET", "/v1/x")}


class Wanted(msgspec.Struct):
    number: int = 0


def a_call(body: bytes = b"", **query: str) -> Call:
    return Call(ADA, {}, query, body)


def test_a_body_is_read_as_its_type() -> None:
    assert a_call(b'{"number": 5}').json(Wanted).number == 5
    assert a_call().json(Wanted).number == 0


@pytest.mark.parametrize("body", [b"{", b'{"number": "x"}', b"\xff", b'{"number":' + b"[" * 100_000])
def test_a_body_that_is_wrong_is_refused(body: bytes) -> None:
    with pytest.raises(errors.InvalidInput, match="the request's body is wrong"):
        a_call(body).json(Wanted)


def test_a_body_nested_too_deep_is_refused() -> None:
    with pytest.raises(errors.InvalidInput, match="the request's body is wrong"):
        a_call(b"[" * 200_000).json(object)


@pytest.mark.parametrize(("text", "seconds"), [("", 0.0), ("0", 0.0), ("1.5", 1.5), ("59", 59.0), ("99999", 60.0)])
def test_seconds_are_read_up_to_the_most(text: str, seconds: float) -> None:
    assert a_call(wait=text).seconds("wait", most=60.0) == seconds
    assert a_call().seconds("wait", most=60.0) == 0.0


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e5", "1.2.3", ".", "x", "٣", "0" * 12])
def test_seconds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidInput, match="is no number of seconds"):
        a_call(wait=text).seconds("wait", most=60.0)

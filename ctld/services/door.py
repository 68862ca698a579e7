"""The one door for people: routes, rights, and answers in JSON, whichever way a call comes.

A call comes over this host's own Unix socket (`muster.local_socket`) or relayed by a node agent (`nodes.py`), both with
the caller that a kernel named. Each route says who may call it on whose object; `tests/unit/ctld/services` walks that
table. Handlers answer with a value that msgspec turns into JSON, or with JSON bytes of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, unquote

import msgspec

from ctld.core.model import Caller
from muster import errors
from muster.local_socket import refusal_body

log = logging.getLogger("ctld.door")

Body = TypeVar("Body")


class Right(StrEnum):
    """Who may call a route."""

    ANYONE = "anyone"
    """Every user of the host; the answer holds nothing that users may not see."""
    SELF = "self"
    """Every user, for an object that becomes or is the caller's own by construction (submit)."""
    OWNER = "owner"
    """The owner of the object named, or an administrator; decided with the object at hand (`decide`)."""
    ADMIN = "admin"
    """root or the controller's own user."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a handler sees it."""

    caller: Caller
    parts: Mapping[str, str]
    """The parts of the path that the pattern names: {"job": "5"}."""
    query: Mapping[str, str]
    body: bytes

    def json(self, kind: type[Body]) -> Body:
        """Read the body as this type; InvalidInput names the field that is wrong."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.InvalidInput(f"the request's body is wrong: {error}") from error

    def seconds(self, name: str, *, most: float) -> float:
        """Read a query's number of seconds, 0 where it is not given, `most` where it is more.

        Raises:
            InvalidInput: it is no plain number.
        """
        text = self.query.get(name) or "0"
        if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 10):
            raise errors.InvalidInput(f"{name}={text[:40]!r} is no number of seconds", f"0 to {int(most)}")
        return min(most, float(text))


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table: `pattern` has `{name}` for a variable part."""

    method: str
    pattern: str
    right: Right
    subject: str
    """What the route is about: job, step, node, partition, cluster, history."""
    handler: Handler


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and JSON."""

    status: int
    body: bytes


class CountsCalls(Protocol):
    """Who keeps the statistics, as far as the door needs it."""

    open_calls: int
    """Calls that have no answer yet."""

    def called(self, method: str, pattern: str, uid: int, seconds: float) -> None:
        """Count a call that has been answered."""
        ...


@dataclass(slots=True)
class Door:
    """All routes; `answer` never raises for what a caller did."""

    _fixed: dict[tuple[str, str], Route] = field(default_factory=dict)
    _patterns: list[tuple[str, list[str], Route]] = field(default_factory=list)
    closing: bool = False
    """Set while the daemon stops: changes are refused, reads go on."""
    statistics: CountsCalls | None = None
    """Who counts the calls that found their route."""

    def add(self, routes: Iterable[Route]) -> None:
        """Take more routes; two of one method and pattern are a programmer's error."""
        for route in routes:
            segments = route.pattern.strip("/").split("/")
            if any(segment.startswith("{") for segment in segments):
                shape = _shape(segments)
                assert all((known, _shape(parts)) != (route.method, shape) for known, parts, _ in self._patterns)
                self._patterns.append((route.method, segments, route))
            else:
                assert (route.method, route.pattern) not in self._fixed
                self._fixed[route.method, route.pattern] = route

    def routes(self) -> list[Route]:
        """Give all routes, for the table of rights and its test."""
        return [*self._fixed.values(), *(route for _, _, route in self._patterns)]

    async def answer(self, caller: Caller, method: str, target: str, body: bytes) -> Answer:
        """Carry one call out.

        Args:
            caller: who asks, as the kernel or the channel said.
            method: GET or POST.
            target: path and query, percent-encoded.
            body: as it came.
        """
        try:
            path, _, query = target.partition("?")
            route, parts = self._find(method, path)
            if route.right is Right.ADMIN and not caller.admin:
                raise errors.Denied(
                    "Access/permission denied", f"{method} {path[:200]} needs an administrator", slurm_code=2002
                )
            if self.closing and method == "POST":
                raise errors.Unavailable(
                    "Unable to contact slurm controller (connect failure)", "it is stopping", slurm_code=1800
                )
            call = Call(caller, parts, _query(query), body)
            found = await (self._counted(route, call) if self.statistics is not None else route.handler(call))
            return Answer(200, found if isinstance(found, bytes) else msgspec.json.encode(found))
        except errors.MusterError as error:
            return refusal(error)
        except Exception:
            # A bug, not the caller's doing: one request fails, the daemon and everybody else go on.
            log.exception("a bug in %s %.200s", method, target)
            return refusal(errors.MusterError("Slurm internal error, contact system administrator", slurm_code=2090))

    async def _counted(self, route: Route, call: Call) -> Any:
        statistics = self.statistics
        assert statistics is not None
        began = time.perf_counter()
        statistics.open_calls += 1
        try:
            return await route.handler(call)
        finally:
            statistics.open_calls -= 1
            statistics.called(route.method, route.pattern, call.caller.uid, time.perf_counter() - began)

    def _find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        route = self._fixed.get((method, path))
        if route is not None:
            return route, {}
        asked = path.strip("/").split("/")
        for known_method, segments, candidate in self._patterns:
            if known_method == method and len(segments) == len(asked):
                parts = _match(segments, asked)
                if parts is not None:
                    return candidate, parts
        raise errors.NotFound(f"there is no route {method[:20]} {path[:200]}", "is the command of another version?")


def refusal(error: errors.MusterError) -> Answer:
    """Give the answer that carries an error of the house."""
    return Answer(error.http_status, refusal_body(error))


def _shape(segments: list[str]) -> list[str]:
    """Give a pattern without the names of its variable parts: two of one shape are one route."""
    return ["{}" if segment.startswith("{") else segment for segment in segments]


def _match(segments: list[str], asked: list[str]) -> dict[str, str] | None:
    parts: dict[str, str] = {}
    for segment, text in zip(segments, asked, strict=True):
        if segment.startswith("{"):
            parts[segment[1:-1]] = unquote(text)
        elif segment != text:
            return None
    return parts


def _query(text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        return {name: values[-1] for name, values in parse_qs(text, keep_blank_values=True, max_num_fields=64).items()}
    except ValueError as error:
        raise errors.InvalidInput(f"the request's query is wrong: {error}") from error

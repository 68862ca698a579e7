"""Routes of advance reservations: make, change, delete, and list them.

Texts become numbers here: users and groups are looked up off the loop, TRES, flags and counts are read. What may be
asked for, and of what there is room, `decide` says.
"""

from __future__ import annotations

import asyncio
import grp
import pwd
from collections.abc import Callable
from typing import Any

from ctld.core import ranges
from ctld.core.commands import CreateReservation, DeleteReservation, ReservationAsk, UpdateReservation
from ctld.core.events import ReservationCreated
from ctld.core.free import cpus_per_core
from ctld.core.jobids import range_text
from ctld.core.jobspec import parse_gpus
from ctld.core.model import GpuRequest
from ctld.core.reservations import FLAGS, REFUSED_FLAGS, Access, Reservation
from ctld.core.state import State
from ctld.services.door import Call, Right, Route
from ctld.store.store import Store
from muster import hostlist
from muster.api import DeleteReservationRequest, ReservationRequest, decode
from muster.clock import Clock
from muster.errors import InvalidInput, Refused
from muster.ids import UnixTime
from muster.slurm_errors import slurm_text
from muster.tres import format_tres
from muster.units import format_duration, parse_count, parse_duration

MAX_NAMES = 1000
"""Most users, groups or accounts of one reservation."""


def changing(store: Store, clock: Clock) -> list[Route]:
    """Give the routes that change something."""
    desk = _Desk(store, clock)
    return [
        Route("POST", "/v1/reservations/create", Right.ADMIN, "reservation", desk.create),
        Route("POST", "/v1/reservations/update", Right.ADMIN, "reservation", desk.update),
        Route("POST", "/v1/reservations/delete", Right.OWNER, "reservation", desk.delete),
    ]


def listing(store: Store, clock: Clock) -> list[Route]:
    """Give the route that lists; it is for all, since whoever may use a reservation has to find it."""
    return [Route("GET", "/v1/reservations", Right.ANYONE, "reservation", _Desk(store, clock).listed)]


class _Desk:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, call: Call) -> dict[str, Any]:
        """Make a reservation and answer with its name."""
        ask = await read_ask(decode(call.body, ReservationRequest))
        events = await self._store.commit(CreateReservation(ask, call.caller), at=self._clock.now())
        event = events[0]
        assert isinstance(event, ReservationCreated), "a new reservation begins with its record"
        return {"name": event.reservation.name}

    async def update(self, call: Call) -> dict[str, Any]:
        """Change a reservation."""
        ask = await read_ask(decode(call.body, ReservationRequest))
        await self._store.commit(UpdateReservation(ask, call.caller), at=self._clock.now())
        return {}

    async def delete(self, call: Call) -> dict[str, Any]:
        """Delete a reservation."""
        request = decode(call.body, DeleteReservationRequest)
        await self._store.commit(DeleteReservation(request.name, call.caller), at=self._clock.now())
        return {}

    async def listed(self, call: Call) -> dict[str, Any]:
        """Give all reservations."""
        state, at = self._store.state, self._clock.now()
        found = [record(state, one, at) for one in state.reservations.values()]
        await self._store.settled()
        return {"now": at, "cluster": state.settings.cluster, "reservations": found}


# ---- texts to numbers ------------------------------------------------------------------------------------------


async def read_ask(request: ReservationRequest) -> ReservationAsk:
    """Read what a client sent.

    Raises:
        InvalidInput, Refused: a text that cannot be read, a flag or user that is not known.
    """
    flags, purge_seconds = _flags(request.flags)
    amounts = _tres(request.tres)
    per_node = _gpus_of(request.tres_per_node)
    core_counts = None if request.core_counts is None else tuple(request.core_counts)
    return ReservationAsk(
        name=_name(request.name),
        start_at=None if request.start is None else UnixTime(request.start),
        end_at=None if request.end is None else UnixTime(request.end),
        duration_seconds=request.duration,
        float_seconds=request.start_in,
        nodes=request.nodes,
        node_count=amounts.nodes if request.node_count is None else request.node_count,
        core_counts=core_counts,
        cpus=amounts.cpus,
        gpus=amounts.gpus or None,
        gpus_per_node=per_node or None,
        partition=_given(request.partition),
        features=_given(request.features),
        licenses=_licenses(request.licenses) if request.licenses is not None else amounts.licenses or None,
        users=await _resolved(request.users, _uid),
        groups=await _resolved(request.groups, _group),
        accounts=_access(request.accounts),
        qos=_access(request.qos),
        partitions=_access(request.allowed_partitions),
        flags=flags,
        purge_seconds=purge_seconds,
        comment=request.comment,
        skip=request.skip,
        add=frozenset(request.add),
        remove=frozenset(request.remove),
    )


def _name(text: str | None) -> str:
    name = (text or "").strip()
    if any(sign in name for sign in ", \t\n=") or name.startswith("-"):
        raise InvalidInput(
            slurm_text(2053), f"{name[:60]!r} is no name: no blank, comma or equals sign, and no - in front"
        )
    return name


def _given(text: str | None) -> str | None:
    return None if text is None else text.strip()


def _flags(text: str | None) -> tuple[tuple[str, ...] | None, int | None]:
    if text is None:
        return None, None
    found: list[str] = []
    purge_seconds: int | None = None
    for word in text.split(","):
        name, equals, value = word.strip().partition("=")
        flag = name.upper()
        if not flag:
            continue
        if flag in REFUSED_FLAGS:
            raise Refused(slurm_text(2036), f"the flag {flag} is not supported", slurm_code=2036)
        flag = {"IGNORE_RUNNING": "IGNORE_JOBS", "STATIC": "STATIC_ALLOC"}.get(flag, flag)
        if flag not in FLAGS or (equals and flag != "PURGE_COMP"):
            raise InvalidInput(slurm_text(2053), f"{word[:60]!r} is no flag; there are: {', '.join(FLAGS)}")
        if equals:
            try:
                purge_seconds = parse_duration(value)
            except InvalidInput:
                purge_seconds = None
            if not purge_seconds:
                raise InvalidInput(slurm_text(2054), f"{word[:60]!r}: write a time, PURGE_COMP=10 or =00:10:00")
        found.append(flag)
    return tuple(found), purge_seconds


class _Amounts:
    """What TRES= asks for."""

    def __init__(self) -> None:
        self.nodes: int | None = None
        self.cpus: int | None = None
        self.gpus: tuple[GpuRequest, ...] = ()
        self.licenses: tuple[tuple[str, int], ...] = ()


def _tres(text: str | None) -> _Amounts:
    found = _Amounts()
    gpus: list[str] = []
    licenses: list[tuple[str, int]] = []
    for word in text.split(",") if text else ():
        name, equals, number = word.strip().rpartition("=")
        if not equals:
            name, _, number = word.strip().rpartition(":")
        count = _count(number, word)
        kind, _, rest = name.partition("/")
        if kind == "node" and not rest:
            found.nodes = count
        elif kind == "cpu" and not rest:
            found.cpus = count
        elif kind == "license" and rest:
            licenses.append((rest, count))
        elif name == "gres/gpu" or name.startswith("gres/gpu:"):
            gpus.append(f"{name[9:]}:{count}" if name[9:] else str(count))
        else:
            raise InvalidInput(
                slurm_text(2115),
                f"{word[:60]!r}: a reservation is made of node=, cpu=, gres/gpu[:type]= and license/name=",
                slurm_code=2115,
            )
    found.gpus = parse_gpus(",".join(gpus))
    found.licenses = tuple(licenses)
    return found


def _gpus_of(text: str | None) -> tuple[GpuRequest, ...]:
    """Read TRESPerNode=gres/gpu:4, gres/gpu:a100=4."""
    found = _tres(text)
    if found.nodes is not None or found.cpus is not None or found.licenses:
        raise InvalidInput(slurm_text(2115), "TRESPerNode takes gres/gpu[:type]:number", slurm_code=2115)
    return found.gpus


def _licenses(text: str) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for word in text.split(","):
        name, _, number = word.strip().replace("=", ":").partition(":")
        if name:
            found[name] = found.get(name, 0) + (_count(number, word) if number else 1)
    return tuple(found.items())


def _count(text: str, word: str) -> int:
    try:
        return parse_count(text)
    except InvalidInput:
        raise InvalidInput(slurm_text(2115), f"{word[:60]!r} has no number", slurm_code=2115) from None


def _access(text: str | None) -> Access | None:
    """Read names: `a,b`, or `-a,-b` for all but these."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > MAX_NAMES:
        raise InvalidInput(slurm_text(2053), f"a reservation takes {MAX_NAMES} names")
    denied = [name for name in names if name.startswith("-")]
    if denied and len(denied) < len(names):
        raise InvalidInput(
            slurm_text(2053), f"{denied[0][:60]} stands beside names without a minus: name either those who may, or not"
        )
    return Access(tuple(dict.fromkeys(name.lstrip("-") for name in names)), deny=bool(denied))


async def _resolved(
    text: str | None, look_up: Callable[[str], tuple[tuple[int, ...], tuple[int, ...]]]
) -> Access | None:
    """Read names of users or groups, with the uids and gids behind them."""
    access = _access(text)
    if access is None or not access.names:
        return access
    names = access.names

    def all_of_them() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        return [look_up(name) for name in names]

    found = await asyncio.to_thread(all_of_them)
    ids = tuple(dict.fromkeys(uid for uids, _ in found for uid in uids))
    gids = tuple(dict.fromkeys(gid for _, gids in found for gid in gids))
    return Access(names, access.deny, ids, gids)


def _uid(name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if name.isascii() and name.isdigit() and len(name) <= 10:
        return (int(name),), ()
    try:
        return (pwd.getpwnam(name).pw_uid,), ()
    except (KeyError, ValueError):
        raise InvalidInput(slurm_text(0), f"there is no user {name[:60]!r}") from None


def _group(name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        group = grp.getgrnam(name)
    except (KeyError, ValueError):
        raise InvalidInput(slurm_text(2113), f"there is no group {name[:60]!r}", slurm_code=2113) from None
    uids = []
    for member in group.gr_mem:
        try:
            uids.append(pwd.getpwnam(member).pw_uid)
        except KeyError:
            continue  # a member that the host does not know can run nothing
    return tuple(uids), (group.gr_gid,)


# ---- records ---------------------------------------------------------------------------------------------------


def record(state: State, one: Reservation, at: int) -> dict[str, Any]:
    """Give a reservation as commands print it."""
    start, end = one.times(at)
    names = [state.nodes[part.node].spec.name for part in one.parts]
    return {
        "name": one.name,
        "start_at": start,
        "end_at": end,
        "duration": end - start,
        "nodes": hostlist.compress(names),
        "node_count": len(names),
        "core_count": sum(_cores(state, one, place) for place in range(len(one.parts))),
        "core_ids": [[name, range_text(part.cores)] for name, part in zip(names, one.parts, strict=True) if part.cores],
        "features": one.features or None,
        "partition": one.partition or None,
        "flags": ",".join(_flag_text(one, flag) for flag in one.flags),
        "tres": _tres_text(state, one),
        "allowed_partitions": one.partitions.text() or None,
        "qos": one.qos.text() or None,
        "users": one.users.text() or None,
        "groups": one.groups.text() or None,
        "accounts": one.accounts.text() or None,
        "licenses": ",".join(f"{name}:{count}" for name, count in one.licenses) or None,
        "state": "ACTIVE" if one.is_active(at) else "INACTIVE",
        "comment": one.comment or None,
    }


def _flag_text(one: Reservation, flag: str) -> str:
    return f"{flag}={format_duration(one.purge_seconds)}" if flag == "PURGE_COMP" else flag


def _cores(state: State, one: Reservation, place: int) -> int:
    part = one.parts[place]
    spec = state.nodes[part.node].spec
    return ranges.count(part.cores) if part.cores else spec.cpus // cpus_per_core(spec)


def _tres_text(state: State, one: Reservation) -> str:
    amounts: dict[str, int] = {}
    for place, part in enumerate(one.parts):
        spec = state.nodes[part.node].spec
        amounts["cpu"] = amounts.get("cpu", 0) + _cores(state, one, place) * cpus_per_core(spec)
        for gpu in ranges.numbers(part.gpus):
            amounts["gres/gpu"] = amounts.get("gres/gpu", 0) + 1
            if spec.gpus[gpu]:
                name = f"gres/gpu:{spec.gpus[gpu]}"
                amounts[name] = amounts.get(name, 0) + 1
    for name, count in one.licenses:
        amounts[f"license/{name}"] = count
    return format_tres(amounts)

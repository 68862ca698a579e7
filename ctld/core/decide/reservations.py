"""`scontrol create|update|delete ReservationName=`: what makes a reservation, and what may be changed of one."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from ctld.core.commands import CreateReservation, DeleteReservation, ReservationAsk, UpdateReservation
from ctld.core.decide.refusals import denied, invalid, refused
from ctld.core.decide.reservation_nodes import Wanted, named, parts_for, still_there
from ctld.core.events import Event, ReservationChanged, ReservationCreated, ReservationDeleted
from ctld.core.free import cpus_per_core
from ctld.core.holds import may_use
from ctld.core.model import Caller, JobSpec
from ctld.core.reservations import (
    LONGEST_SECONDS,
    PURGE_SECONDS,
    RECURRENCES,
    Access,
    Part,
    Reservation,
    advanced,
    ordered_flags,
)
from ctld.core.state import State
from muster.errors import NotFound
from muster.ids import UnixTime
from muster.slurm_errors import slurm_text

_LATE_SECONDS = 600
"""A start may lie so far back: `StartTime=now` takes its time to arrive."""
_LONGEST_PERIOD = {"HOURLY": 3600, "DAILY": 86_400, "WEEKDAY": 86_400, "WEEKEND": 86_400, "WEEKLY": 604_800}


def create(state: State, command: CreateReservation, at: UnixTime) -> list[Event]:
    """Make a reservation.

    Raises:
        Denied: `Invalid user id`, from anyone but an administrator.
        InvalidInput, Refused: in Slurm's words.
    """
    ask = command.ask
    if not command.by.admin:
        raise denied(2010, "only administrators make reservations")
    if ask.skip:
        raise invalid(2128, "Skip=yes is for `scontrol update`: give the first start that there is to be")
    if ask.name in state.reservations:
        raise refused(2082, f"there is a reservation {ask.name} already")
    flags = _flags(set(ask.flags or ()))
    times = _times(ask, flags, at)
    one = Reservation(
        name="",
        number=state.next_reservation,
        start_at=times.start,
        end_at=times.end,
        created_at=at,
        created_by=command.by.uid,
        float_seconds=times.float_seconds,
        flags=ordered_flags(flags),
        partition=ask.partition or "",
        features=ask.features or "",
        users=ask.users or Access(),
        groups=ask.groups or Access(),
        accounts=ask.accounts or Access(),
        qos=ask.qos or Access(),
        partitions=ask.partitions or Access(),
        licenses=ask.licenses or (),
        comment=ask.comment or "",
        purge_seconds=(ask.purge_seconds or PURGE_SECONDS) if "PURGE_COMP" in flags else 0,
    )
    _check_access(state, one)
    _check_licences(one)
    one = _with_nodes(state, one, ask, at)
    return [ReservationCreated(at, structs.replace(one, name=ask.name or _name(state, one)))]


def update(state: State, command: UpdateReservation, at: UnixTime) -> list[Event]:
    """Change a reservation; nothing changes where anything of it is refused."""
    ask = command.ask
    one = _known(state, ask.name)
    if not command.by.admin:
        raise denied(2010, "only administrators change reservations")
    if ask.skip:
        if ask != ReservationAsk(name=ask.name, skip=True):
            raise invalid(2053, "Skip=yes leaves out one time and changes nothing else: ask for the rest by itself")
        return [ReservationChanged(at, _skipped(state, one, at))]
    new = _access(one, ask)
    flags = set(one.flags)
    if ask.flags is not None:
        asked = set(ask.flags)
        if "flags" in ask.remove:
            flags -= asked
        else:
            flags |= asked  # as with Slurm, Flags= adds to those that are there
        flags = _flags(flags) | {"SPEC_NODES"}.intersection(one.flags)
        if "PURGE_COMP" in flags:
            new = structs.replace(new, purge_seconds=ask.purge_seconds or one.purge_seconds or PURGE_SECONDS)
        else:
            new = structs.replace(new, purge_seconds=0, idle_since=UnixTime(0))
    new = structs.replace(
        new,
        flags=ordered_flags(flags),
        partition=one.partition if ask.partition is None else ask.partition,
        features=one.features if ask.features is None else ask.features,
        licenses=one.licenses if ask.licenses is None else ask.licenses,
        comment=one.comment if ask.comment is None else ask.comment,
    )
    new = _retimed(one, new, ask, at)
    _check_access(state, new)
    _check_licences(new)
    new = _changed_nodes(state, one, new, ask, at)
    return [ReservationChanged(at, new)] if new != one else []


def delete(state: State, command: DeleteReservation, at: UnixTime) -> list[Event]:
    """Delete a reservation; one that jobs run in, or wait for, stays."""
    one = _known(state, command.name)
    if not command.by.admin and not _may_delete(one, command.by):
        raise denied(2010, "only administrators delete reservations")
    users = state.in_reservation.get(one.name)
    if users:
        job_id = next(iter(users))
        raise refused(2055, f"job {job_id} runs in it or waits for it")
    return [ReservationDeleted(at, one.name)]


def check_use(state: State, spec: JobSpec, by: Caller) -> None:
    """Check that a job may name the reservations that it names.

    Raises:
        InvalidInput: one of them is not there.
        Denied: one is not for this user, account, QOS or partition.
    """
    for name in spec.request.reservations:
        one = state.reservations.get(name)
        if one is None:
            raise invalid(2053, f"there is no reservation {name[:60]!r}")
        if one.has("TIME_FLOAT"):
            raise denied(2052, f"{name} floats ahead of time: no job may use it")
        if not (by.admin or may_use(state, one, spec, by.groups)):
            raise denied(2052, f"{name} is for {who(one)}")


def who(one: Reservation) -> str:
    """Say in words whom a reservation is for."""
    texts = []
    for what, access in (
        ("users", one.users),
        ("groups", one.groups),
        ("accounts", one.accounts),
        ("QOS", one.qos),
        ("partitions", one.partitions),
    ):
        if access.names:
            names = ", ".join(access.names[:20])
            texts.append(f"all {what} but {names}" if access.deny else f"the {what} {names}")
    return " and ".join(texts)


def _known(state: State, name: str) -> Reservation:
    one = state.reservations.get(name)
    if one is None:
        raise NotFound(slurm_text(2053), f"there is no reservation {name[:60]!r}", slurm_code=2053)
    return one


def _may_delete(one: Reservation, by: Caller) -> bool:
    """Tell whether USER_DELETE lets a user who is named (by himself or a group) delete it."""
    if not one.has("USER_DELETE") or not (one.users.names or one.groups.names):
        return False
    in_groups = by.uid in one.groups.ids or by.gid in one.groups.gids
    return one.users.admits(by.uid in one.users.ids) and one.groups.admits(in_groups)


def _name(state: State, one: Reservation) -> str:
    """Make a name of the first account or user, and a number."""
    for access in (one.accounts, one.users, one.groups, one.qos, one.partitions):
        if access.names:
            return f"{access.names[0]}_{one.number}"
    return f"resv_{one.number}"


# ---- flags and times -------------------------------------------------------------------------------------------


def _flags(flags: set[str]) -> set[str]:
    """Check that flags go together; SPEC_NODES is never asked for."""
    flags = flags - {"SPEC_NODES"}
    found = [flag for flag in RECURRENCES if flag in flags]
    if len(found) > 1:
        raise invalid(2036, f"{' and '.join(found)} exclude each other")
    if "TIME_FLOAT" in flags and found:
        raise invalid(2036, f"TIME_FLOAT never starts, so that it cannot come again ({found[0]})")
    if "REPLACE" in flags and "STATIC_ALLOC" in flags:
        raise invalid(2036, "REPLACE and STATIC_ALLOC exclude each other")
    return flags


class _Times(NamedTuple):
    start: UnixTime
    end: UnixTime
    float_seconds: int


def _times(ask: ReservationAsk, flags: set[str], at: UnixTime) -> _Times:
    floating = 0
    if "TIME_FLOAT" in flags:
        floating = max(0, ask.float_seconds if ask.float_seconds is not None else (ask.start_at or at) - at)
        start = UnixTime(at + floating)
    elif ask.start_at is None:
        raise invalid(2054, "a start time must be given")
    else:
        start = ask.start_at
    if ask.end_at is not None:
        end = ask.end_at
    elif ask.duration_seconds is not None:
        end = _after(start, ask.duration_seconds)
    else:
        raise invalid(2054, "an end time or a duration must be given")
    _check_times(start, end, flags, at)
    return _Times(start, end, floating)


def _after(start: UnixTime, seconds: int) -> UnixTime:
    return UnixTime(start + (LONGEST_SECONDS if seconds < 0 else seconds))


def _check_times(start: int, end: int, flags: set[str], at: UnixTime) -> None:
    if start < at - _LATE_SECONDS:
        raise invalid(2054, "the start lies in the past")
    if end <= start or end <= at:
        raise invalid(2054, "the end does not lie behind the start" if end <= start else "the end lies in the past")
    for flag in RECURRENCES:
        if flag in flags and end - start > _LONGEST_PERIOD[flag]:
            raise invalid(2054, f"it is longer than the time from one to the next ({flag})")


def _retimed(one: Reservation, new: Reservation, ask: ReservationAsk, at: UnixTime) -> Reservation:
    """Take new times over; an end that is not given keeps the length where the start moves."""
    length = one.end_at - one.start_at
    start, end = one.start_at, one.end_at
    given = ask.start_at is not None or ask.end_at is not None or ask.duration_seconds is not None
    if ask.start_at is not None and ask.start_at != one.start_at:
        if one.start_at <= at and not one.has("TIME_FLOAT"):
            raise refused(2104, "its end can still be changed")
        start = ask.start_at
        end = UnixTime(start + length)
    if ask.end_at is not None:
        end = ask.end_at
    elif ask.duration_seconds is not None:
        end = _after(start, ask.duration_seconds)
    if not given and new.flags == one.flags:
        return new
    _check_times(max(start, at), end, set(new.flags), at)
    floating = new.float_seconds
    if ask.float_seconds is not None and new.has("TIME_FLOAT"):
        floating = ask.float_seconds
    return structs.replace(
        new,
        start_at=start,
        end_at=end,
        float_seconds=floating,
        first_start_at=UnixTime(0),
        first_end_at=UnixTime(0),
        days=0,
    )


def _skipped(state: State, one: Reservation, at: UnixTime) -> Reservation:
    if not one.recurs:
        raise refused(2128, "it does not recur")
    users = [job_id for job_id in state.in_reservation.get(one.name, ()) if state.jobs[job_id].state]
    if users:
        raise refused(2055, f"job {users[0]} runs in it")
    return advanced(one, state.settings.clock_changes)


# ---- who -------------------------------------------------------------------------------------------------------


def _access(one: Reservation, ask: ReservationAsk) -> Reservation:
    """Give the reservation with the conditions that were given, added to or taken from those that are there."""
    fields: dict[str, Access] = {}
    for name in ("users", "groups", "accounts", "qos", "partitions"):
        given: Access | None = getattr(ask, name)
        if given is None:
            continue
        before: Access = getattr(one, name)
        fields[name] = _merged(before, given, add=name in ask.add, remove=name in ask.remove)
    return structs.replace(one, **fields) if fields else one


def _merged(before: Access, given: Access, *, add: bool, remove: bool) -> Access:
    if add:
        if before.names and before.deny != given.deny:
            raise invalid(2053, "names that may and names that may not cannot stand together")
        return Access(
            tuple(dict.fromkeys((*before.names, *given.names))),
            given.deny,
            tuple(dict.fromkeys((*before.ids, *given.ids))),
            tuple(dict.fromkeys((*before.gids, *given.gids))),
        )
    if remove:
        return Access(
            tuple(name for name in before.names if name not in given.names),
            before.deny,
            tuple(uid for uid in before.ids if uid not in given.ids),
            tuple(gid for gid in before.gids if gid not in given.gids),
        )
    return given


def _check_access(state: State, one: Reservation) -> None:
    if one.users.names and one.groups.names:
        raise invalid(2129)
    if not any(access.names for access in (one.users, one.groups, one.accounts, one.qos, one.partitions)):
        raise invalid(2080, "give Users, Groups, Accounts, QOS or AllowedPartitions")
    for name in one.accounts.names if state.accounts else ():
        if state.accounts.account(name) is None:
            raise invalid(2045, f"there is no account {name[:60]!r}")
    for name in one.qos.names if state.accounts.qos else ():
        if name not in state.accounts.qos:
            raise invalid(2066, f"there is no QOS {name[:60]!r}")
    for name in (*one.partitions.names, *((one.partition,) if one.partition else ())):
        if name not in state.partitions:
            raise invalid(2000, f"there is no partition {name[:60]!r}")


def _check_licences(one: Reservation) -> None:
    # Nothing would keep them from jobs that hold them when its time comes.
    if one.licenses or one.anywhere:
        what = "licences" if one.licenses else "ANY_NODES and LICENSE_ONLY, which are for licences,"
        raise invalid(2048, f"{what} cannot be reserved in this release: reserve nodes, cores or GPUs")


# ---- nodes -----------------------------------------------------------------------------------------------------


def _with_nodes(state: State, one: Reservation, ask: ReservationAsk, at: UnixTime) -> Reservation:
    if one.anywhere:
        return one
    wanted = _wanted(state, one, ask)
    if wanted.nodes is None and not (wanted.node_count or wanted.core_counts or wanted.gpus):
        raise invalid(2006, "give Nodes, NodeCnt, CoreCnt or TRES")
    parts = parts_for(state, one, wanted, at)
    if not parts:
        raise invalid(2018, "no node is named")
    if wanted.nodes is not None:
        one = structs.replace(one, flags=ordered_flags({*one.flags, "SPEC_NODES"}))
    one = structs.replace(one, parts=parts)
    still_there(state, one, at)
    return one


def _wanted(state: State, one: Reservation, ask: ReservationAsk) -> Wanted:
    nodes: tuple[int, ...] | None = None
    if ask.nodes is not None:
        nodes = _named(state, ask, one.partition)
    if one.has("PART_NODES") and not ((ask.nodes or "").strip().upper() == "ALL" and one.partition):
        raise invalid(2053, "PART_NODES needs Nodes=ALL and a PartitionName")
    return Wanted(
        nodes,
        ask.node_count or 0,
        ask.core_counts or ((_cores_for(state, ask.cpus),) if ask.cpus else ()),
        ask.gpus or (),
        ask.gpus_per_node or (),
        one.partition,
        one.features,
    )


def _named(state: State, ask: ReservationAsk, partition: str) -> tuple[int, ...]:
    nodes = named(state, ask.nodes or "", partition)
    if ask.node_count is not None and ask.node_count != len(nodes):
        raise invalid(2006, f"Nodes names {len(nodes)}, NodeCnt={ask.node_count}: leave NodeCnt out")
    return nodes


def _cores_for(state: State, cpus: int) -> int:
    """Give the cores that so many CPUs need on the nodes with the fewest CPUs a core."""
    return -(-cpus // min((cpus_per_core(node.spec) for node in state.nodes), default=1))


def _changed_nodes(state: State, one: Reservation, new: Reservation, ask: ReservationAsk, at: UnixTime) -> Reservation:
    """Give the changed reservation its nodes: other ones named, more or fewer, or the same at another time."""
    of_nodes = (ask.core_counts, ask.cpus, ask.gpus, ask.gpus_per_node)
    asked = any(each is not None for each in (ask.nodes, ask.node_count, *of_nodes))
    if asked and (one.by_cores or any(of_nodes)):
        raise refused(2109, "delete it and make a new one")
    if ask.nodes is not None:
        nodes = _named(state, ask, new.partition)
        new = structs.replace(
            new, parts=tuple(Part(node) for node in nodes), flags=ordered_flags({*new.flags, "SPEC_NODES"})
        )
    elif ask.node_count is not None:
        new = structs.replace(new, parts=_resized(state, new, ask.node_count, at))
    if not new.parts and one.parts:
        raise invalid(2006, "a reservation without nodes keeps nothing")
    if (new.parts, new.start_at, new.end_at, new.flags) != (one.parts, one.start_at, one.end_at, one.flags):
        still_there(state, new, at)
    return new


def _resized(state: State, one: Reservation, count: int, at: UnixTime) -> tuple[Part, ...]:
    """Leave nodes without jobs out, or add idle ones."""
    if count <= len(one.parts):
        used = sorted(one.parts, key=lambda part: (not state.node_jobs[part.node], part.node))
        return tuple(sorted(used[:count], key=lambda part: part.node))
    own = set(one.nodes)
    without = structs.replace(one, parts=())
    wanted = Wanted(node_count=count, partition=one.partition, features=one.features)
    found = [part for part in parts_for(state, without, wanted, at) if part.node not in own]
    return tuple(sorted((*one.parts, *found[: count - len(own)]), key=lambda part: part.node))

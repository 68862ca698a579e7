"""Which cores of a node: as many as are needed, from the sockets in turn or socket by socket, within what a job or its
partition may have of one socket."""

from __future__ import annotations

from collections.abc import Sequence

from ctld.core import ranges
from ctld.core.model import Ranges
from ctld.sched.fleet import Kind
from ctld.sched.needs import Need, cores_of_tasks


def take_cores(kind: Kind, free: int, count: int, *, block: bool = False) -> Ranges:
    """Give `count` free cores, lowest numbers first; empty when there are not so many.

    From all sockets in turn (slurm.conf(5), CR_CORE_DEFAULT_DIST_BLOCK); with `block` from one socket where they fit
    (the fullest such), else from as few as can be.
    """
    if count == 1 and (not block or len(kind.sockets) == 1):
        if not free:
            return ()
        low = (free & -free).bit_length() - 1
        return (low, low)
    have = free.bit_count()
    if have <= count:
        return ranges.from_bitmap(free) if have == count else ()
    if len(kind.sockets) == 1:
        return ranges.first(ranges.from_bitmap(free), count)
    return ranges.from_bitmap(_from_sockets(kind, free, count, block=block))


def spread(room: Sequence[int], count: int, *, block: bool = False) -> list[int]:
    """Share `count` out over sockets (or tasks over nodes) with so much room, which suffices for it: as evenly as the
    room allows, the odd ones to the first; or, as a `block`, in as few as can be."""
    given = [0] * len(room)
    if block:
        enough = [at for at, size in enumerate(room) if size >= count]
        if enough:
            given[min(enough, key=lambda at: room[at])] = count
            return given
        for at in sorted(range(len(room)), key=lambda at: -room[at]):
            given[at] = min(room[at], count)
            count -= given[at]
        return given
    alive = [at for at, size in enumerate(room) if size]
    while count:
        level, odd = divmod(count, len(alive))
        tight = [at for at in alive if room[at] - given[at] <= level]
        if not tight:
            for rank, at in enumerate(alive):
                given[at] += level + (1 if rank < odd else 0)
            return given
        for at in tight:
            count -= room[at] - given[at]
            given[at] = room[at]
        alive = [at for at in alive if room[at] > given[at]]
    return given


def fine_cores(kind: Kind, need: Need, free: int, count: int, tasks: int, *, block: bool, used: int = 0) -> int:
    """Give the bitmap of `count` free cores that keep the rules of a job about sockets; 0 when there are none.

    Args:
        tasks: the job's tasks on the node.
        used: cores that jobs of the same partition have.
    """
    fine = need.fine
    assert fine is not None
    if fine.whole_sockets:
        return _whole_sockets(kind, free, count)
    rooms = [(free & socket).bit_count() for socket in kind.sockets]
    if fine.cores_in_socket:
        rooms = [min(room, fine.cores_in_socket) for room in rooms]
    if fine.socket_cpus:
        most = fine.socket_cpus // kind.threads
        rooms = [
            max(0, min(room, most - (used & socket).bit_count()))
            for room, socket in zip(rooms, kind.sockets, strict=True)
        ]
    if sum(rooms) < count:
        return 0
    given = spread(rooms, count, block=block)
    if fine.per_socket and not need.overcommit:
        given = _by_tasks(kind, need, rooms, given, tasks)
    bits = 0
    for amount, socket in zip(given, kind.sockets, strict=True):
        bits |= ranges.lowest_bits(free & socket, amount)
    return bits if bits.bit_count() == count else 0


def _by_tasks(kind: Kind, need: Need, rooms: list[int], given: list[int], tasks: int) -> list[int]:
    """Change what is taken of each socket so that no socket has to take more than `per_socket` tasks: so many
    on each in turn, then the cores beyond what they need. All zero when it cannot be."""
    fine = need.fine
    assert fine is not None

    def cores_for(number: int) -> int:
        return cores_of_tasks(need, kind, number)

    placed = [0] * len(rooms)
    left = tasks
    for at, room in enumerate(rooms):
        while left and placed[at] < fine.per_socket and cores_for(placed[at] + 1) <= room:
            placed[at] += 1
            left -= 1
    if left:
        return [0] * len(rooms)
    needed = [cores_for(number) for number in placed]
    count = sum(given)
    if sum(needed) > count:
        return [0] * len(rooms)
    more = spread([room - have for room, have in zip(rooms, needed, strict=True)], count - sum(needed))
    return [have + extra for have, extra in zip(needed, more, strict=True)]


def _from_sockets(kind: Kind, free: int, count: int, *, block: bool) -> int:
    rooms = [(free & socket).bit_count() for socket in kind.sockets]
    bits = 0
    for amount, socket in zip(spread(rooms, count, block=block), kind.sockets, strict=True):
        if amount:
            bits |= ranges.lowest_bits(free & socket, amount)
    return bits


def _whole_sockets(kind: Kind, free: int, count: int) -> int:
    """Give sockets that are free as a whole with at least `count` cores together, the lowest first."""
    bits = 0
    for socket in kind.sockets:
        if bits.bit_count() >= count:
            break
        if socket and socket & free == socket:
            bits |= socket
    return bits if bits.bit_count() >= count else 0

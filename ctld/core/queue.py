"""Pending jobs that could start, grouped in classes of equal shape.

Real workloads have a hundred times fewer shapes than jobs, so a scheduling pass looks at the heads of
classes. A class keeps its members sorted by (-priority, job id) in blocks, so that adding and removing cost
microseconds and walking costs nothing extra, also with a hundred thousand members.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from ctld.core.changes import ChangeLog
from ctld.core.model import Job, Request
from ctld.core.patience import Patience

_BLOCK = 512
"""Most order keys in one block; a block at the bound is cut into two."""
_EMPTY_CLASSES = 4096
"""Most classes without members that keep their number for when the shape comes back."""
_GROUPS = 4096
"""Most groups that are kept to be shared; at the bound the table starts anew."""
_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1
_TOP = 1 << 40
"""Above every priority, so that order keys are positive."""

Group = tuple[str, ...]
"""Account, QOS, and what an administrator exempts the job from."""
ClassKey = tuple[Request, tuple[str, ...], int, int, Group | None]


def order_key(priority: int, job_id: int) -> int:
    """Give an integer that sorts by (-priority, job id)."""
    return (_TOP - priority) << _ID_BITS | job_id


class SortedKeys:
    """A sorted set of integers in blocks: adding and removing move at most one block. Most sets are so small that there
    is only the first."""

    __slots__ = ("_first", "_rest", "_size")

    def __init__(self) -> None:
        self._first: list[int] = []
        """Empty only when the set is."""
        self._rest: list[list[int]] | None = None
        """The other blocks, of which none is empty."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        """Walk in ascending order. The set must not change meanwhile."""
        yield from self._first
        for block in self._rest or ():
            yield from block

    @property
    def least(self) -> int:
        """The first key; IndexError when empty."""
        return self._first[0]

    def below(self, key: int) -> tuple[int, int]:
        """Count the keys less than `key`, and give the greatest of them (-1 where there is none)."""
        count, greatest = 0, -1
        for block in (self._first, *(self._rest or ())):
            if not block or block[0] >= key:
                break
            place = bisect_left(block, key)
            count, greatest = count + place, block[place - 1]
        return count, greatest

    def insert(self, key: int) -> None:
        """Add a key that is not there yet."""
        self._size += 1
        if self._size == 1:
            self._first = [key]  # Takes no more than one place, where an insertion makes room for four.
            return
        block, behind = self._find(key)
        insort(block, key)
        if len(block) > _BLOCK:
            if self._rest is None:
                self._rest = []
            # A queue grows at its end: leave the full block whole and open a new one behind it.
            cut = _BLOCK if block[-1] == key and behind == len(self._rest) else _BLOCK // 2
            self._rest.insert(behind, block[cut:])
            del block[cut:]

    def remove(self, key: int) -> None:
        """Take a key out, which must be there."""
        block, behind = self._find(key)
        at = bisect_left(block, key)
        if at == len(block) or block[at] != key:
            raise KeyError(key)
        del block[at]
        if not block and self._rest:
            if behind:
                del self._rest[behind - 1]
            else:
                self._first = self._rest.pop(0)
        self._size -= 1

    def _find(self, key: int) -> tuple[list[int], int]:
        """Give the first block that ends at or behind `key` (the last block when none does), and how many of the others
        stand up to its end."""
        first, rest = self._first, self._rest
        if not rest or key <= first[-1]:
            return first, 0
        low, high = 0, len(rest) - 1
        while low < high:
            middle = (low + high) // 2
            if rest[middle][-1] < key:
                low = middle + 1
            else:
                high = middle
        return rest[low], low + 1


class JobClass:
    """Pending jobs of one shape, walked in the order (-priority, job id)."""

    __slots__ = ("group", "id", "limit_seconds", "order", "partitions", "request", "uid")

    def __init__(self, number: int, key: ClassKey) -> None:
        self.id = number
        self.request, self.partitions, self.limit_seconds, self.uid, self.group = key
        """`uid` is the owner's where nodes are kept for one user, or where limits hold, else -1; `group` is None where
        none hold."""
        self.order = SortedKeys()
        """Order keys of the members (`order_key`): comparable between classes, least first."""

    def __len__(self) -> int:
        return len(self.order)

    @property
    def key(self) -> ClassKey:
        """What its members have in common."""
        return self.request, self.partitions, self.limit_seconds, self.uid, self.group

    def __iter__(self) -> Iterator[int]:
        """Walk the job ids in order. The class must not change meanwhile."""
        for key in self.order:
            yield key & _ID_MASK

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Walk (priority, job id) in order; a job past its longest wait has its standing for a priority."""
        for key in self.order:
            yield _TOP - (key >> _ID_BITS), key & _ID_MASK

    @property
    def head(self) -> int:
        """Job id of the first member; IndexError when empty."""
        return self.order.least & _ID_MASK

    @property
    def head_key(self) -> int:
        """Order key of the first member, to compare heads of classes; IndexError when empty."""
        return self.order.least


class Queue:
    """All pending startable jobs by class; an array's pending rest is one entry. Every change bumps
    `version`."""

    def __init__(self, *, first_id: int = 1, version: int = 0) -> None:
        self.version = version
        self.log = ChangeLog()
        """Ids of classes whose members, or the order of these, changed."""
        self.next_id = first_id
        """Number of the next new class; never given out twice."""
        self.classes: dict[int, JobClass] = {}
        """Class id -> class with at least one member."""
        self._by_key: dict[ClassKey, JobClass] = {}
        self._groups: dict[Group | None, Group | None] = {}
        """Equal groups are kept once."""
        self._empty: dict[int, ClassKey] = {}
        """Ids of classes without members, oldest first."""
        self._places: dict[int, tuple[JobClass, int]] = {}
        """Job id -> its class and order key."""
        self.kept_by_user: frozenset[str] = frozenset()
        """Partitions whose nodes are kept for one user at a time (Exclusive=USER)."""
        self.apart = False
        """Limits hold: jobs of several users, accounts or QOS are no longer alike."""
        self.priorities: dict[int, int] = {}
        """Job id -> computed priority, of jobs that wait or run. An overlay: neither journaled nor in checkpoints."""
        self.unrated: dict[int, None] | None = None
        """Ids of pending jobs whose priority is to be computed anew; None while nobody computes any."""
        self.changed: dict[int, int] | None = None
        """Computed priorities that a follower of the events has not been told yet; None while there is none."""
        self._fixed: set[int] = set()
        """Queued jobs whose priority was set by hand."""
        self.patience = Patience()
        """How long jobs may wait, and which are past that."""

    def __len__(self) -> int:
        return len(self._places)

    def follow(self, other: Queue) -> None:
        """Take over what is no part of the records: computed priorities, who waits for one, and who waits too long."""
        self.priorities, self.unrated, self.changed = other.priorities, other.unrated, other.changed
        self.patience = Patience(late=other.patience.late)

    def priority(self, job: Job) -> int:
        """Give the priority that orders the job and is shown: 0 while it is held, one set by hand as it is, else the
        computed one, or its place in order of submission where none is computed."""
        if job.priority_set or not job.priority:
            return job.priority
        return self.priorities.get(job.id, job.priority)

    def reprioritise(self, values: Mapping[int, int]) -> int:
        """Set computed priorities by job id and move the queued jobs whose value changed; give how many moved."""
        moved, changed = 0, self.changed
        for job_id, value in values.items():
            if self.priorities.get(job_id) == value:
                continue
            self.priorities[job_id] = value
            if changed is not None:
                changed[job_id] = value
            place = self._places.get(job_id)
            if place is None or job_id in self._fixed or job_id in self.patience.late:
                continue
            moved += self._move(job_id, value)
        if moved:
            self.version += 1
        return moved

    def hasten(self, at: int) -> int:
        """Put the jobs that have waited longer than they may in front of all others of their tier; give how many moved.
        To be called before a pass; costs nothing while nobody is late."""
        moved = sum(self._move(job_id, self.patience.standing(job_id, 0)) for job_id in self.patience.overdue(at))
        if moved:
            self.version += 1
        return moved

    def _move(self, job_id: int, priority: int) -> bool:
        members, before = self._places[job_id]
        after = order_key(priority, job_id)
        if after == before:
            return False
        members.order.remove(before)
        members.order.insert(after)
        self._places[job_id] = (members, after)
        self.log.note(members.id)
        return True

    def forget_priority(self, job_id: int) -> None:
        """Drop what was computed for a job that has ended."""
        self.priorities.pop(job_id, None)
        if self.changed is not None:
            self.changed.pop(job_id, None)
        if self.unrated is not None:
            self.unrated.pop(job_id, None)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._places

    def __iter__(self) -> Iterator[int]:
        """Walk the ids of all queued jobs, in no particular order."""
        return iter(self._places)

    def class_key(self, job: Job) -> ClassKey:
        """Give what makes jobs interchangeable for the scheduler."""
        spec = job.spec
        uid = -1
        if spec.request.exclusive == "user" or not self.kept_by_user.isdisjoint(spec.partitions):
            uid = spec.uid
        if self.apart:
            return spec.request, spec.partitions, job.limit_seconds, spec.uid, (spec.account, spec.qos, *spec.exempt)
        return spec.request, spec.partitions, job.limit_seconds, uid, None

    def _group(self, group: Group | None) -> Group | None:
        if len(self._groups) > _GROUPS:
            self._groups.clear()
        return self._groups.setdefault(group, group)

    def add(self, job: Job) -> None:
        """Queue a job; one that is queued already moves to its new class and place."""
        if job.id in self._places:
            self.discard(job.id)
        key = self.class_key(job)
        members = self._by_key.get(key)
        if members is None:
            key = (*key[:4], self._group(key[4]))
            members = self._by_key[key] = JobClass(self.next_id, key)
            self.next_id += 1
        if not members:
            self._empty.pop(members.id, None)
            self.classes[members.id] = members
        self.patience.watch(job)
        order = order_key(self.patience.standing(job.id, self.priority(job)), job.id)
        members.order.insert(order)
        if job.priority_set:
            self._fixed.add(job.id)
        self._places[job.id] = (members, order)
        self.log.note(members.id)
        self.version += 1

    def discard(self, job_id: int) -> None:
        """Take a job out; nothing happens when it is not queued."""
        place = self._places.pop(job_id, None)
        if place is None:
            return
        members, order = place
        self._fixed.discard(job_id)
        self.patience.forget(job_id)
        members.order.remove(order)
        if not members:
            del self.classes[members.id]
            self._empty[members.id] = members.key
            if len(self._empty) > _EMPTY_CLASSES:
                oldest = next(iter(self._empty))
                del self._by_key[self._empty.pop(oldest)]
        self.log.note(members.id)
        self.version += 1

    def class_of(self, job_id: int) -> JobClass | None:
        """Give the class of a queued job, None when it is not queued."""
        place = self._places.get(job_id)
        return place[0] if place else None

    def key_of(self, job_id: int) -> int:
        """Give the order key of a queued job; 0 when it is not queued."""
        place = self._places.get(job_id)
        return place[1] if place else 0

    def contents(self) -> dict[ClassKey, list[tuple[int, int]]]:
        """Give (priority, job id) in order by class, for comparing two queues (class ids differ after a
        restart)."""
        return {members.key: list(members.pairs()) for members in self.classes.values()}

"""Compact sets of numbers: the members of a job array, and their two notations.

An array of a million members is one record until its members start, so a set is kept as runs (first, last, step) in
one normal form: equal sets have equal runs. The common case, taking the smallest member away again and again, costs
no more than copying the tuple of runs.

Imported by short-lived commands: nothing but builtins here.
"""

from __future__ import annotations

from muster.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Run = tuple[int, int, int]
    """(first, last, step): step 1 for a block or a lone member, 2 or more for at least three lone members."""

INVALID_ARRAY = "Invalid job array specification"
INVALID_ARRAY_CODE = 2081

TASK_LIST_BYTES = 64
MAX_TASK_LIST_BYTES = 4096

_LEFT, _RIGHT = 1, 2


class IdSet:
    """An immutable, ordered set of non-negative integers.

    `len`, `in`, iteration (ascending), equality and hash work as for a frozenset; `min` and `max` are properties.
    Costs below are in runs, not members: `range(100_000)` is one run.
    """

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """Take ascending runs that share no member; use the `from_` methods for anything else."""
        self._runs: tuple[Run, ...] = _normal(runs)
        self._count = sum([(last - first) // step + 1 for first, last, step in self._runs])

    @staticmethod
    def from_iterable(numbers: Iterable[int]) -> IdSet:
        """Make a set of any non-negative numbers; order and duplicates do not matter."""
        if isinstance(numbers, range) and numbers:
            ascending = numbers if numbers.step > 0 else numbers[::-1]
            _check_first(ascending[0])
            return IdSet(((ascending[0], ascending[-1], ascending.step),))
        ordered = sorted(set(numbers))
        if ordered:
            _check_first(ordered[0])
        return IdSet([(number, number, 1) for number in ordered])

    @staticmethod
    def from_tuple(runs: Iterable[Iterable[int]]) -> IdSet:
        """Make a set of what `to_tuple` gave; lists serve as well, as decoders give them.

        Raises InvalidInput if the runs are not ascending, overlap or are no runs.
        """
        read: list[Run] = []
        end = -1
        for one in runs:
            parts = tuple(one)
            if len(parts) != 3 or not end < parts[0] <= parts[1] or parts[2] < 1:
                raise InvalidInput(f"Not a set of numbers: the run {parts} after {end}")
            first, last, step = parts
            last -= (last - first) % step
            read.append((first, last, step))
            end = last
        return IdSet(read)

    def to_tuple(self) -> tuple[Run, ...]:
        """Give the runs as plain tuples, to be stored or sent."""
        return self._runs

    def ranges(self) -> tuple[Run, ...]:
        """Give the runs (first, last, step), ascending and disjoint; step is 1 for a block or a lone member."""
        return self._runs

    @property
    def min(self) -> int:
        """The smallest member; ValueError when the set is empty."""
        if not self._runs:
            raise ValueError("an empty set has no smallest member")
        return self._runs[0][0]

    @property
    def max(self) -> int:
        """The largest member; ValueError when the set is empty."""
        if not self._runs:
            raise ValueError("an empty set has no largest member")
        # Runs do not interleave, so the last run ends with the largest member.
        return self._runs[-1][1]

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> Iterator[int]:
        for first, last, step in self._runs:
            yield from range(first, last + 1, step)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = self._place(number)
        if place < 0:
            return False
        first, last, step = self._runs[place]
        return number <= last and (number - first) % step == 0

    def __eq__(self, other: object) -> bool:
        return self._runs == other._runs if isinstance(other, IdSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._runs)

    def __repr__(self) -> str:
        return f"IdSet({format_task_list(self, 0, 200)})"

    def without(self, number: int) -> IdSet:
        """Give the set less one number (itself if that is no member); cheapest for the smallest member."""
        if number not in self:
            return self
        place = self._place(number)
        first, last, step = self._runs[place]
        rest = self._runs[place + 1 :]
        size = (last - first) // step + 1
        # Where the run that shrinks keeps its kind, and where a lone member before all others goes, the rest is
        # in normal form already.
        if place == 0 and number == first and (size == 1 or size > 3 or (size == 3 and step == 1)):
            return _trusted(((first + step, last, step), *rest) if size > 1 else rest, self._count - 1)
        pieces: list[Run] = []
        if number > first:
            pieces.append((first, number - step, step))
        if number < last:
            pieces.append((number + step, last, step))
        return IdSet((*self._runs[:place], *pieces, *rest))

    def remove_many(self, numbers: Iterable[int]) -> IdSet:
        """Give the set less all these numbers; those that are no members do not matter."""
        gone = numbers if isinstance(numbers, IdSet) else IdSet.from_iterable(numbers)
        if not gone:
            return self
        return IdSet(_pieces(self._runs, gone._runs, (_LEFT,)))

    def first(self, count: int) -> IdSet:
        """Give the `count` smallest members, or all if there are fewer."""
        if count >= self._count:
            return self
        taken: list[Run] = []
        for first, last, step in self._runs:
            if count <= 0:
                break
            end = min(last, first + (count - 1) * step)
            taken.append((first, end, step))
            count -= (end - first) // step + 1
        return IdSet(taken)

    def union(self, other: IdSet) -> IdSet:
        """Give the members of either set."""
        if not other:
            return self
        return IdSet(_pieces(self._runs, other._runs, (_LEFT, _RIGHT, _LEFT | _RIGHT))) if self else other

    def intersect(self, other: IdSet) -> IdSet:
        """Give the members of both sets."""
        return IdSet(_pieces(self._runs, other._runs, (_LEFT | _RIGHT,)))

    def _place(self, number: int) -> int:
        """Give the place of the last run that begins at or before the number, or -1."""
        low, high = 0, len(self._runs)
        while low < high:
            middle = (low + high) // 2
            if self._runs[middle][0] <= number:
                low = middle + 1
            else:
                high = middle
        return low - 1


def parse_array(text: str, max_array_size: int) -> tuple[IdSet, int]:
    """Read the text of `--array`: (indices, how many tasks may run at once, 0 for no limit).

    Raises InvalidInput for an index outside 0 ... max_array_size-1, a step outside 1 ... max_array_size-1, a range
    that runs backwards and everything that is no number. As in Slurm, repeated indices and empty parts pass, and
    what follows `%` counts only if it begins with a positive number.
    """
    listed, percent, after = text.partition("%")
    if listed.startswith("["):
        # Brackets around the whole are taken off, as people copy `[0-9%2]` from squeue.
        listed = listed[1:].removesuffix("]")
    runs = [_parse_part(part, text, max_array_size) for part in listed.split(",") if part]
    if not runs:
        raise _bad_array(f"{_shown(text)} names no index; write for example --array=0-9 or --array=1,3,5-7%2")
    return _joined(runs), _leading_number(after) if percent else 0


def task_list_bytes(environ: Mapping[str, str]) -> int:
    """Give the `max_bytes` that SLURM_BITSTR_LEN asks for: 0 prints all, at most 4096, 64 if unset or no number."""
    asked = environ.get("SLURM_BITSTR_LEN", "")
    return min(int(asked), MAX_TASK_LIST_BYTES) if _is_number(asked) else TASK_LIST_BYTES


def format_task_list(tasks: IdSet, limit: int, max_bytes: int = TASK_LIST_BYTES) -> str:
    """Give the text between the brackets of `A_[...]`: `0-3,7%2`.

    More than 5 evenly spaced tasks that span more than 10 read `first-last:step`. As Slurm writes into a buffer of
    `max_bytes` that ends with a zero byte, a list longer than max_bytes - 3 is cut to max_bytes - 4 bytes and `...`.
    `max_bytes` 0 prints all; `%limit` comes after the cut.
    """
    runs = tasks.ranges()
    limited = f"%{limit}" if limit else ""
    if len(runs) == 1 and runs[0][2] > 1 and len(tasks) > 5 and runs[0][1] - runs[0][0] > 10:
        first, last, step = runs[0]
        return f"{first}-{last}:{step}{limited}"
    parts: list[str] = []
    length = 0
    for first, last in _blocks(runs):
        part = str(first) if first == last else f"{first}-{last}"
        parts.append(part)
        length += len(part) + 1
        if 0 < max_bytes < length:
            break  # the cut is certain; a long list is not spelled out
    listed = ",".join(parts)
    if max_bytes and len(listed) > max_bytes - 3:
        listed = listed[: max(0, max_bytes - 4)] + "..."
    return listed + limited


# ---- reading -------------------------------------------------------------------------------------------


def _parse_part(part: str, text: str, max_array_size: int) -> Run:
    numbers, colon, step_text = part.partition(":")
    first_text, dash, last_text = numbers.partition("-")
    if not dash:
        last_text = first_text
    fields = [first_text, last_text, step_text if colon else "1"]
    if not all(_is_number(field) for field in fields) or (colon and not dash):
        raise _bad_array(f"{_shown(part)} in {_shown(text)} is not N, N-M or N-M:STEP")
    first, last, step = [int(field) for field in fields]
    if last >= max_array_size:
        worst = first if first >= max_array_size else last
        raise _bad_array(f"index {worst} is over the limit: the largest index is {max_array_size - 1}")
    if last < first:
        raise _bad_array(f"{_shown(part)} runs backwards: {first} is greater than {last}")
    if not 0 < step < max_array_size:
        raise _bad_array(f"step {step} in {_shown(part)} is not between 1 and {max_array_size - 1}")
    return first, last - (last - first) % step, step


def _bad_array(hint: str) -> InvalidInput:
    return InvalidInput(INVALID_ARRAY, hint, slurm_code=INVALID_ARRAY_CODE)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _leading_number(text: str) -> int:
    digits = 0
    while digits < min(len(text), 10) and text[digits] in "0123456789":
        digits += 1
    return min(int(text[:digits] or 0), 0xFFFFFFFF)


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 60 else f"'{text[:60]}...'"


def _check_first(number: int) -> None:
    if number < 0:
        raise InvalidInput(f"Not a set of numbers: {number} is negative")


# ---- runs ----------------------------------------------------------------------------------------------


def _trusted(runs: tuple[Run, ...], count: int) -> IdSet:
    """Make a set of runs that are known to be in normal form."""
    made = IdSet()
    made._runs = runs
    made._count = count
    return made


def _joined(runs: list[Run]) -> IdSet:
    """Make a set of runs in any order that may overlap; the members are bounded by the caller."""
    runs.sort()
    if all(runs[place][1] < runs[place + 1][0] for place in range(len(runs) - 1)):
        return IdSet(runs)
    # A map of bytes: slices and searches work at the speed of C, whatever the overlaps look like.
    marks = bytearray(max([run[1] for run in runs]) + 1)
    for first, last, step in runs:
        marks[first : last + 1 : step] = b"\1" * ((last - first) // step + 1)
    blocks: list[Run] = []
    start = marks.find(1)
    while start >= 0:
        end = marks.find(0, start)
        if end < 0:
            end = len(marks)
        blocks.append((start, end - 1, 1))
        start = marks.find(1, end)
    return IdSet(blocks)


def _blocks(runs: Iterable[Run]) -> Iterator[tuple[int, int]]:
    """Give the (first, last) of each block of neighbours."""
    for first, last, step in runs:
        if step == 1:
            yield first, last
        else:
            for number in range(first, last + 1, step):
                yield number, number


def _normal(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Bring ascending, disjoint runs to the normal form, in time linear in the runs.

    The form depends on the members only: blocks of neighbours stand as blocks; the lone members between two blocks
    are gathered from left to right into evenly spaced runs of three or more.
    """
    done: list[Run] = []
    first = last = step = 0
    size = 0  # lone members gathered in (first, last, step)
    for new_first, new_last, new_step in _separate(runs):
        if new_step == 1 and new_first < new_last:
            if size:
                _flush(done, first, last, step, size)
                size = 0
            done.append((new_first, new_last, 1))
            continue
        number = new_first
        while number <= new_last:
            if size and number - last == step:
                # From here on this run's spacing is the gathered one's, or it has this one member only.
                end = new_last if new_step == step else number
                size += (end - last) // step
                last, number = end, end + new_step
                continue
            if size == 1:
                step = number - last
                last, size = number, 2
            elif size == 2:
                done.append((first, first, 1))
                first, step = last, number - last
                last = number
            else:
                if size:
                    done.append((first, last, step))
                first = last = number
                step, size = 0, 1
            number += new_step
    if size:
        _flush(done, first, last, step, size)
    return tuple(done)


def _flush(done: list[Run], first: int, last: int, step: int, size: int) -> None:
    if size >= 3:
        done.append((first, last, step))
    else:
        done.append((first, first, 1))
        if size == 2:
            done.append((last, last, 1))


def _separate(runs: Iterable[Run]) -> Iterator[Run]:
    """Give whole blocks of neighbours (step 1) and runs of lone members (step 2 and more, or one member)."""
    block_first, block_last = 0, -2
    for first, last, step in runs:
        if first == last:
            step = 1
        if first == block_last + 1:
            # Joins the block before it: all of a block, or the first of a spaced run.
            if step == 1:
                block_last = last
                continue
            block_last = first
            first += step
        if block_last >= 0:
            yield block_first, block_last, 1
        if step > 1 and first < last:
            # The last member stays back, as a block that begins next to it would take it in.
            yield first, last - step, 1 if first == last - step else step
        block_first, block_last = (first, last) if step == 1 else (last, last)
    if block_last >= 0:
        yield block_first, block_last, 1


def _pieces(left: tuple[Run, ...], right: tuple[Run, ...], wanted: tuple[int, ...]) -> Iterator[Run]:
    """Cut two sets into runs that lie in the left one, the right one or both, and give those wanted, ascending.

    Linear in the runs, except where differently spaced runs interleave: there it goes member by member.
    """
    end = (1 << 80, 1 << 80, 1)
    lefts, rights = iter(left), iter(right)
    a, b = next(lefts, end), next(rights, end)
    while a is not end or b is not end:
        if a[0] == b[0]:
            shared = _shared(a, b)
            if _LEFT | _RIGHT in wanted:
                yield shared
            a, b = _after(a, shared, lefts, end), _after(b, shared, rights, end)
        elif a[0] < b[0]:
            piece = _before(a, b[0])
            if _LEFT in wanted:
                yield piece
            a = _after(a, piece, lefts, end)
        else:
            piece = _before(b, a[0])
            if _RIGHT in wanted:
                yield piece
            b = _after(b, piece, rights, end)


def _shared(a: Run, b: Run) -> Run:
    """Give a run that both begin with: all up to the nearer end if the spacing agrees, else one member."""
    if a[2] == b[2]:
        return a[0], min(a[1], b[1]), a[2]
    return a[0], a[0], 1


def _before(run: Run, bound: int) -> Run:
    first, last, step = run
    if last < bound:
        return run
    return first, bound - 1 - (bound - 1 - first) % step, step


def _after(run: Run, taken: Run, others: Iterator[Run], end: Run) -> Run:
    """Give what is left of a run once its beginning is taken, or else the next run."""
    if taken[1] < run[1]:
        return taken[1] + run[2], run[1], run[2]
    return next(others, end)

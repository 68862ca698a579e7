"""Points in time: every form that `--begin`, `--deadline`, sacct and reservations take, and how commands print them.

Texts are local time, values are epoch seconds. All arithmetic on dates goes through the C library's mktime with
"daylight saving unknown", so that `tomorrow` is the same clock time also on a night that has 23 or 25 hours.

Imported by short-lived commands: nothing but `os` and `time` here.
"""

from __future__ import annotations

import os
import time

from muster.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Date = tuple[int, int, int]
    """(year, month, day); year 0 where none was written."""
    Clock = tuple[int, int, int]

_CLOCK_WORDS: dict[str, tuple[int, int, int]] = {
    "midnight": (0, 0, 0),
    "elevenses": (11, 0, 0),
    "noon": (12, 0, 0),
    "fika": (15, 0, 0),
    "teatime": (16, 0, 0),
}
_DAY_WORDS = {"today": 0, "tomorrow": 1}
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LATEST = 253_402_300_799  # the end of the year 9999 (UTC): no printed year has five digits
_FIRST_UTS = 1_000_000
_MAX_FORMAT_BYTES = 32
_FORMS = (
    "write for example 2026-05-01T13:00, 05/01/26-13:00, 13:00, tomorrow, noon or now+2hours; "
    "the position counts characters from 0"
)


def parse_time_point(text: str, now: int, *, past: bool = False) -> int:
    """Read a point in time as epoch seconds.

    Args:
        text: one of the forms of Slurm's manual; words in any case, a day and a time of day in either order.
        now: epoch seconds that `now`, `today` and missing parts refer to.
        past: the point is looked for behind `now` (queries): a time of day alone is always today's, a date
            without a year is the last one. Otherwise a time of day that is over is tomorrow's, and a date
            without a year is the next one (today counts as today, whatever the time).

    Raises:
        InvalidInput: `Invalid time specification (pos=<n>): <text>`.
    """
    return _Reader(text, now, past).read()


def format_time_point(
    when: int | None,
    *,
    unset: str = "Unknown",
    now: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Give a point in time as local `YYYY-MM-DDTHH:MM:SS`, or as SLURM_TIME_FORMAT of the environment asks.

    Args:
        when: epoch seconds; 0 and None print `unset` (`Unknown`, `None` or `N/A`, as the column has it).
        unset: the word for no time.
        now: what `relative` refers to; the clock if None.
        environ: where SLURM_TIME_FORMAT is looked up; the process's environment if None.
    """
    if not when:
        return unset
    local = time.localtime(when)
    asked = (os.environ if environ is None else environ).get("SLURM_TIME_FORMAT", "")
    if asked == "relative":
        return _relative(local, time.localtime(time.time() if now is None else now))
    if "%" in asked and len(asked.encode()) < _MAX_FORMAT_BYTES:
        return time.strftime(asked, local)
    # Faster than strftime, and this is printed for every row.
    return (
        f"{local.tm_year:04d}-{local.tm_mon:02d}-{local.tm_mday:02d}"
        f"T{local.tm_hour:02d}:{local.tm_min:02d}:{local.tm_sec:02d}"
    )


def _relative(local: time.struct_time, today: time.struct_time) -> str:
    distance = _day_number(local) - _day_number(today)
    if distance == -1:
        return time.strftime("Ystday %H:%M", local)
    if distance == 0:
        return time.strftime("%H:%M:%S", local)
    if distance == 1:
        return time.strftime("Tomorr %H:%M", local)
    if 1 < distance <= 6:
        # Days to come only: last Saturday would read like the next one.
        return time.strftime("%a %H:%M", local)
    if abs(distance) <= 365:
        return f"{local.tm_mday} {time.strftime('%b %H:%M', local)}"
    return f"{local.tm_mday} {time.strftime('%b %Y', local)}"


def _day_number(local: time.struct_time) -> int:
    """Count the days from a fixed one to this (Gregorian calendar)."""
    year = local.tm_year - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + local.tm_yday


class _Reader:
    """Reads one text from left to right; `_at` is the position that an error names."""

    def __init__(self, text: str, now: int, past: bool) -> None:
        self._text = text
        self._low = text.lower()
        self._now = now
        self._past = past
        self._at = 0
        self._date: Date | None = None
        self._clock: Clock | None = None

    def read(self) -> int:
        if len(self._text) > 256:
            raise self._error()
        self._skip_blanks()
        if self._low.startswith("now", self._at):
            return self._relative_to_now()
        if self._low.startswith("uts", self._at):
            return self._epoch()
        while self._at < len(self._text):
            self._part()
            self._skip_blanks()
        if self._date is None and self._clock is None:
            raise self._error()
        return self._resolve()

    def _part(self) -> None:
        for word, clock in _CLOCK_WORDS.items():
            if self._low.startswith(word, self._at):
                self._set_clock(clock, self._at + len(word))
                return
        for word, days in _DAY_WORDS.items():
            if self._low.startswith(word, self._at):
                today = time.localtime(self._now)
                day = time.localtime(self._local(today.tm_year, today.tm_mon, today.tm_mday + days, (12, 0, 0)))
                self._set_date((day.tm_year, day.tm_mon, day.tm_mday), self._at + len(word))
                return
        digits = self._digits_from(self._at)
        if 1 <= digits <= 2 and self._peek(digits) == ":":
            self._read_clock()
        elif digits == 4 and self._peek(4) == "-":
            self._read_iso_date()
        elif digits:
            self._read_date()
        else:
            raise self._error()

    # ---- parts -----------------------------------------------------------------------------------------

    def _read_clock(self) -> None:
        began = self._at
        hour = self._number(1, 2, 23)
        self._expect(":")
        minute = self._number(2, 2, 59)
        second = 0
        if self._peek() == ":":
            self._at += 1
            second = self._number(2, 2, 59)
        after = self._at
        self._skip_blanks()
        half = self._low[self._at : self._at + 2]
        if half in ("am", "pm"):
            if not 1 <= hour <= 12:
                self._at = began
                raise self._error()
            hour = hour % 12 + (12 if half == "pm" else 0)
            after = self._at + 2
        self._at = began
        self._set_clock((hour, minute, second), after)

    def _read_iso_date(self) -> None:
        began = self._at
        year = self._number(4, 4, 9999)
        self._expect("-")
        month = self._number(2, 2, 12, lowest=1)
        self._expect("-")
        day = self._day(year, month, 2)
        after = self._at
        self._at = began
        self._set_date((year, month, day), after)
        if self._peek() in ("T", "t"):
            self._at += 1
            if not self._digits_from(self._at):
                raise self._error()
            self._read_clock()

    def _read_date(self) -> None:
        """Read MMDD[YY], MM/DD[/YY] or MM.DD[.YY]."""
        began = self._at
        digits = self._digits_from(began)
        year = 0
        if digits <= 2:
            month = self._number(1, 2, 12, lowest=1)
            separator = self._peek()
            if separator not in ("/", "."):
                raise self._error()
            self._at += 1
            day_at = self._at
            day = self._day(0, month, 1)
            if self._peek() == separator:
                self._at += 1
                year = 2000 + self._number(2, 2, 99)
        else:
            if digits not in (4, 6):
                raise self._error()
            month = self._number(2, 4, 12, lowest=1, take=2)
            day_at = self._at
            day = self._day(0, month, 2, take=2)
            if digits == 6:
                year = 2000 + self._number(2, 2, 99)
        after = self._at
        if year and not _is_day(year, month, day):
            self._at = day_at
            raise self._error()
        self._at = began
        self._set_date((year, month, day), after)
        if self._peek() == "-":
            # MM/DD/YY-HH:MM
            self._at += 1
            if not self._digits_from(self._at):
                raise self._error()
            self._read_clock()

    def _relative_to_now(self) -> int:
        self._at += 3
        self._skip_blanks()
        if self._at == len(self._text):
            return self._now
        sign = {"+": 1, "-": -1}.get(self._peek())
        if sign is None:
            raise self._error()
        self._at += 1
        self._skip_blanks()
        began = self._at
        amount = self._number(1, 12, 10**12)
        self._skip_blanks()
        word = self._low[self._at :].rstrip()
        unit = _UNIT_SECONDS.get(word.removesuffix("s")) if word else 1
        if not unit:
            raise self._error()
        when = self._now + sign * amount * unit
        if not 0 <= when <= _LATEST:
            self._at = began
            raise self._error()
        return when

    def _epoch(self) -> int:
        self._at += 3
        when = self._number(1, 12, _LATEST, lowest=_FIRST_UTS)
        self._skip_blanks()
        if self._at < len(self._text):
            raise self._error()
        return when

    # ---- what was read, as a time ----------------------------------------------------------------------

    def _resolve(self) -> int:
        today = time.localtime(self._now)
        clock = self._clock or (0, 0, 0)
        if self._date is None:
            when = self._local(today.tm_year, today.tm_mon, today.tm_mday, clock)
            if when < self._now and not self._past:
                when = self._local(today.tm_year, today.tm_mon, today.tm_mday + 1, clock)
            return when
        year, month, day = self._date
        if not year:
            year = self._year_of(month, day, today)
        return self._local(year, month, day, clock)

    def _year_of(self, month: int, day: int, today: time.struct_time) -> int:
        """Find the year of the next such day, or of the last one; 29 February may be years away."""
        this_day = (today.tm_mon, today.tm_mday)
        year, step = today.tm_year, 1
        if self._past:
            step = -1
            if (month, day) > this_day:
                year -= 1
        elif (month, day) < this_day:
            year += 1
        while not _is_day(year, month, day):
            year += step
        return year

    def _local(self, year: int, month: int, day: int, clock: Clock) -> int:
        try:
            return int(time.mktime((year, month, day, *clock, 0, 0, -1)))
        except (OverflowError, ValueError) as error:
            raise self._error() from error

    # ---- characters ------------------------------------------------------------------------------------

    def _set_clock(self, clock: Clock, after: int) -> None:
        if self._clock is not None:
            raise self._error()
        self._clock, self._at = clock, after

    def _set_date(self, date: Date, after: int) -> None:
        if self._date is not None:
            raise self._error()
        self._date, self._at = date, after

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _expect(self, char: str) -> None:
        if self._peek() != char:
            raise self._error()
        self._at += 1

    def _skip_blanks(self) -> None:
        while self._peek() in (" ", "\t", "\n"):
            self._at += 1

    def _digits_from(self, at: int) -> int:
        end = at
        while end < len(self._text) and self._text[end] in "0123456789":
            end += 1
        return end - at

    def _number(self, fewest: int, most: int, highest: int, *, lowest: int = 0, take: int = 0) -> int:
        """Take a run of digits (or the first `take` of it) as a number within bounds."""
        digits = self._digits_from(self._at)
        if not fewest <= digits <= max(most, 6 if take else 0):
            raise self._error()
        digits = take or digits
        number = int(self._text[self._at : self._at + digits])
        if not lowest <= number <= highest:
            raise self._error()
        self._at += digits
        return number

    def _day(self, year: int, month: int, fewest: int, *, take: int = 0) -> int:
        began = self._at
        day = self._number(fewest, 2, 31, lowest=1, take=take)
        if not _is_day(year or 2000, month, day):
            self._at = began
            raise self._error()
        return day

    def _error(self) -> InvalidInput:
        text = self._text if len(self._text) <= 256 else self._text[:256] + "..."
        return InvalidInput(f"Invalid time specification (pos={self._at}): {text}", _FORMS)


def _is_day(year: int, month: int, day: int) -> bool:
    if (month, day) == (2, 29):
        return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= _DAYS_OF_MONTH[month - 1]

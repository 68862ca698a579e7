"""What associations and QOS have used: decayed usage in closed form.

Every association and QOS has a meter: values as of a moment, and the rate at which its running jobs add to them. A
start or an end brings the meters on its path to that moment and changes their rates; in between, everything is a
formula of time (`muster.usage`). So the state is the same whoever replays it, nothing has to be swept, and a reading
costs the same however many jobs run. Rates are integers in fractions of 2^20 of a unit: their sums are exact in any
order.

What the reference does every PriorityCalcPeriod (scheduling.md 3.2) is thus true at every moment: a run counts from its
start for its association and all above it, for its job's QOS and its partition's, times UsageFactor; while it is
suspended its wall time stands still and the rest goes on; QOS with NoDecay do not decay. What running jobs may yet use
is counted where limits need it (`ctld.core.limits.load`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import field

from ctld.core.accounts import Accounts
from ctld.core.model import Record
from muster.usage import accrued, remaining

_SCALE = 1 << 20


class UsageRecord(Record, frozen=True):
    """A meter as stored, without the rates, which follow from the running jobs."""

    kind: str
    """assoc | qos."""
    id: int
    since: int
    raw: float = 0.0
    """Billing-seconds."""
    wall: float = 0.0
    """Seconds."""
    tres: dict[str, float] = field(default_factory=dict)
    """TRES-seconds."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A reading."""

    raw: float
    """Decayed billing-seconds (RawUsage)."""
    wall: float
    """Decayed seconds of wall time (GrpWall looks at it)."""
    tres: Mapping[str, float]
    """Decayed TRES-seconds (GrpTRESMins looks at it)."""
    jobs: int
    """Jobs that run."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a running job adds to its meters each second."""

    associations: tuple[int, ...]
    """Ids, from the job's own to the root."""
    qos: tuple[int, ...]
    """Ids: the job's, the partition's."""
    raw: int
    """This and the following in fractions of 2^20, times UsageFactor."""
    wall: int
    """0 while the job is suspended."""
    tres: tuple[tuple[str, int], ...]


class Meter:
    """The usage of one association or QOS."""

    __slots__ = ("decays", "jobs", "rates", "raw", "raw_rate", "since", "tres", "wall", "wall_rate")

    def __init__(self, since: int = 0, *, decays: bool = True) -> None:
        self.since = since
        self.decays = decays
        self.raw = self.wall = 0.0
        self.tres: dict[str, float] = {}
        self.jobs = 0
        self.raw_rate = self.wall_rate = 0
        self.rates: dict[str, int] = {}
        """TRES -> rate."""

    def roll(self, at: int, half_life: int) -> None:
        """Bring the values to this moment; one that is past changes nothing."""
        seconds = at - self.since
        if seconds <= 0:
            return
        self.since = at
        life = half_life if self.decays else 0
        left, added = remaining(seconds, life), accrued(seconds, life) / _SCALE
        self.raw = self.raw * left + self.raw_rate * added
        self.wall = self.wall * left + self.wall_rate * added
        tres, rates = self.tres, self.rates
        for name in tres:
            tres[name] *= left
        for name, rate in rates.items():
            tres[name] = tres.get(name, 0.0) + rate * added

    def add(self, charge: Charge, sign: int) -> None:
        """Count a running job in (1) or out (-1)."""
        self.jobs += sign
        self.raw_rate += sign * charge.raw
        self.wall_rate += sign * charge.wall
        for name, rate in charge.tres:
            _count(self.rates, name, sign * rate)

    def still(self) -> None:
        """Take all running jobs out."""
        self.jobs = self.raw_rate = self.wall_rate = 0
        self.rates = {}

    def at(self, at: int, half_life: int) -> Spent:
        """Read the meter at a moment (its own last one, if that is later)."""
        seconds = max(0, at - self.since)
        life = half_life if self.decays else 0
        left, added = remaining(seconds, life), accrued(seconds, life) / _SCALE
        tres = {name: amount * left for name, amount in self.tres.items()}
        for name, rate in self.rates.items():
            tres[name] = tres.get(name, 0.0) + rate * added
        return Spent(
            self.raw * left + self.raw_rate * added, self.wall * left + self.wall_rate * added, tres, self.jobs
        )

    def raw_at(self, at: int, half_life: int) -> float:
        """Give the billing-seconds alone, which is what fairshare reads of every association."""
        seconds = max(0, at - self.since)
        life = half_life if self.decays else 0
        return self.raw * remaining(seconds, life) + self.raw_rate * accrued(seconds, life) / _SCALE

    def record(self, kind: str, number: int) -> UsageRecord:
        """Give what is stored."""
        return UsageRecord(kind, number, self.since, self.raw, self.wall, dict(self.tres))


class Usage:
    """All meters of a state, and which running job charges which."""

    def __init__(self) -> None:
        self.associations: dict[int, Meter] = {}
        self.qos: dict[int, Meter] = {}
        self.reset_at = 0
        """When usage was last set to nothing (PriorityUsageResetPeriod), or counting began; 0: it has not."""
        self.half_life = 0
        """Of the settings in force."""
        self._lasting: frozenset[int] = frozenset()
        """QOS whose usage does not decay."""
        self.charges: dict[int, Charge] = {}
        """Running job -> its charge."""
        self._same: dict[Charge, Charge] = {}
        """Equal charges are kept once."""

    # ---- readings ----------------------------------------------------------------------------------------------

    def of_association(self, number: int, at: int) -> Spent:
        """Read an association's meter."""
        return self.associations.get(number, _NONE).at(at, self.half_life)

    def of_qos(self, number: int, at: int) -> Spent:
        """Read a QOS's meter."""
        return self.qos.get(number, _NONE).at(at, self.half_life)

    def raw(self, association: int, at: int) -> float:
        """Give an association's decayed billing-seconds."""
        return self.associations.get(association, _NONE).raw_at(at, self.half_life)

    # ---- changes -----------------------------------------------------------------------------------------------

    def exchange(self, job_id: int, new: Charge | None, at: int, *, rolls: bool = True) -> None:
        """Put a running job's charge in the place of the one that it had (None: it does not run).

        Args:
            at: now.
            rolls: the job starts or ends now; else it was running already when the meters were last brought up.
        """
        old = self.charges.get(job_id)
        if old == new:
            return
        if old is not None:
            del self.charges[job_id]
            self._add(old, -1, at, rolls)
        if new is not None:
            new = self._same.setdefault(new, new)
            self.charges[job_id] = new
            self._add(new, 1, at, rolls)

    def _add(self, charge: Charge, sign: int, at: int, rolls: bool) -> None:
        for meters, numbers in ((self.associations, charge.associations), (self.qos, charge.qos)):
            for number in numbers:
                meter = meters.get(number)
                if meter is None:
                    meter = meters[number] = Meter(at, decays=number not in self._lasting or meters is not self.qos)
                elif rolls:
                    meter.roll(at, self.half_life)
                meter.add(charge, sign)

    def settle(self, at: int) -> None:
        """Bring all meters to this moment, before what they hang on changes."""
        for meter in self._meters():
            meter.roll(at, self.half_life)

    def configure(self, half_life: int, accounts: Accounts) -> None:
        """Take the half-life and who there is; the meters of others are forgotten."""
        self.half_life = half_life
        known = {one.id for one in accounts.qos.values()}
        self._lasting = frozenset(one.id for one in accounts.qos.values() if "NoDecay" in one.flags)
        for number in [number for number in self.associations if number not in accounts.associations]:
            del self.associations[number]
        for number in [number for number in self.qos if number not in known]:
            del self.qos[number]
        for number, meter in self.qos.items():
            meter.decays = number not in self._lasting

    def still(self) -> None:
        """Take all running jobs out; who calls this puts them in again."""
        self.charges, self._same = {}, {}
        for meter in self._meters():
            meter.still()

    def reset(self, at: int) -> None:
        """Set usage to nothing, except that of QOS with NoDecay (scheduling.md 3.3)."""
        self.settle(at)
        for meter in self._meters():
            if meter.decays:
                meter.raw = meter.wall = 0.0
                meter.tres = {}
        self.reset_at = at

    def records(self) -> list[UsageRecord]:
        """Give what is stored."""
        return [
            *(meter.record("assoc", number) for number, meter in self.associations.items()),
            *(meter.record("qos", number) for number, meter in self.qos.items()),
        ]

    def take(self, record: UsageRecord) -> None:
        """Take a stored meter in."""
        meters = self.associations if record.kind == "assoc" else self.qos
        meter = meters[record.id] = Meter(record.since)
        meter.raw, meter.wall, meter.tres = record.raw, record.wall, dict(record.tres)

    def rates(self) -> dict[str, object]:
        """Give all that follows from the running jobs, as plain values for comparing."""
        return {
            "charges": self.charges,
            **{
                f"{kind} {number}": (meter.jobs, meter.raw_rate, meter.wall_rate, meter.rates, meter.decays)
                for kind, meters in (("assoc", self.associations), ("qos", self.qos))
                for number, meter in meters.items()
            },
        }

    def _meters(self) -> Iterator[Meter]:
        yield from self.associations.values()
        yield from self.qos.values()


_NONE = Meter()
"""The meter of what nobody has used."""


def scaled(amount: float) -> int:
    """Give a rate in fractions of 2^20, to the nearest."""
    return round(amount * _SCALE)


def _count(counts: dict[str, int], name: str, amount: int) -> None:
    total = counts.get(name, 0) + amount
    if total:
        counts[name] = total
    else:
        counts.pop(name, None)

"""The figures of one or two replays as a table for people, and each job as a row of csv."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TextIO

from ctld.sim.figures import Figures, Waits
from ctld.sim.machine import Machine
from ctld.sim.replay import Outcome
from muster.hostlist import compress
from muster.units import format_duration

_MOST_GROUPS = 10
"""Accounts and users shown, those with the most jobs; JSON has all."""
_MOST_COMPARED = 5
_MOST_REFUSALS = 5


def table(found: Figures, *, name: str, machine: str) -> str:
    """Give the figures as text."""
    lines = [f"workload   {name}", f"cluster    {machine}", ""]
    lines += _aligned([(label, text) for label, text, _ in _rows(found) if text != "-"])
    for title, groups in _groups(found):
        lines += ["", *_waits_table(title, groups)]
    if found.refusals:
        lines += ["", *_refusals(found)]
    if found.stale_starts:
        lines += ["", f"{found.stale_starts} planned starts were refused by the core: please report this as a fault"]
    return "\n".join(lines)


def comparison(one: Figures, other: Figures, *, name: str, machines: Sequence[str]) -> str:
    """Put two replays side by side, with the differences."""
    lines = [f"workload   {name}", f"A          {machines[0]}", f"B          {machines[1]}", ""]
    rows = [("", "A", "B", "B - A")]
    for (label, a_text, a_value), (_, b_text, b_value) in zip(_rows(one), _rows(other), strict=True):
        if a_text != "-" or b_text != "-":
            rows.append((label, a_text, b_text, _difference(a_text, a_value, b_value)))
    for title, a_groups, b_groups in (
        ("account", one.by_account, other.by_account),
        ("user", one.by_user, other.by_user),
        ("size", one.by_size, other.by_size),
    ):
        names = list(dict.fromkeys([*a_groups, *b_groups]))
        shown = names if title == "size" else names[:_MOST_COMPARED]
        for group in shown:
            a, b = (groups[group].wait_mean if group in groups else None for groups in (a_groups, b_groups))
            rows.append((f"mean wait, {title} {group}", _time(a), _time(b), _difference(_time(a), a, b)))
    lines += _aligned(rows)
    if one.refusals or other.refusals:
        lines += ["", "A:", *_refusals(one), "B:", *_refusals(other)]
    return "\n".join(lines)


def write_jobs(file: TextIO, outcome: Outcome, machine: Machine) -> None:
    """Write a row for each job, in order of submission; times are UTC."""
    names = [node.name for node in machine.command.nodes]
    writer = csv.writer(file)
    writer.writerow(
        ("job", "user", "account", "submit", "start", "end", "wait_s", "run_s", "limit_s", "cpus", "gpus", "nodes",
         "nodelist", "backfilled", "first_planned_start", "planned_at")
    )  # fmt: skip
    for place, job in enumerate(outcome.jobs):
        start, end = outcome.start[place], outcome.end[place]
        ready = max(job.submitted_at, job.begin_at)
        shares = outcome.shares[place]
        writer.writerow(
            (
                job.label,
                job.user,
                job.ask.account or "",
                _stamp(job.submitted_at),
                _stamp(start),
                _stamp(end),
                start - ready if start >= 0 else "",
                end - start if end >= 0 else "",
                "" if job.limit_seconds is None else job.limit_seconds,
                outcome.cpus[place],
                outcome.gpus[place],
                len(shares),
                compress([names[share.node] for share in shares]) if shares else "",
                int(outcome.backfilled[place]),
                _stamp(outcome.promised[place]),
                _stamp(outcome.promised_at[place]),
            )
        )


def _rows(found: Figures) -> Iterator[tuple[str, str, float | None]]:
    """Give label, text and value of each line."""
    waits = found.waits
    yield "jobs", str(found.jobs), found.jobs
    yield "ran", str(found.ran), found.ran
    yield "refused at submission", str(found.refused), found.refused
    yield "never started", str(found.never_started), found.never_started
    yield "cancelled to make room", str(found.cancelled), found.cancelled
    yield "first to last submission", _time(found.span), found.span
    yield "first submission to last end", _time(found.makespan), found.makespan
    yield "CPU utilisation", _percent(found.utilisation_cpu), found.utilisation_cpu
    yield "GPU utilisation", _percent(found.utilisation_gpu), found.utilisation_gpu
    yield "efficiency (eta)", _percent(found.efficiency), found.efficiency
    yield "wait, mean", _time(waits.wait_mean), waits.wait_mean
    yield "wait, median", _time(waits.wait_median), waits.wait_median
    yield "wait, 95th percentile", _time(waits.wait_p95), waits.wait_p95
    yield "wait, longest", _time(waits.wait_max), waits.wait_max
    yield "wait as recorded, mean", _time(found.recorded_wait_mean), found.recorded_wait_mean
    yield "over max_queue_wait", _count(found.over_max_queue_wait), found.over_max_queue_wait
    yield "bounded slowdown, mean", f"{waits.slowdown_mean:.2f}", waits.slowdown_mean
    yield "bounded slowdown, 95th percentile", f"{waits.slowdown_p95:.2f}", waits.slowdown_p95
    yield "started by backfill", _percent(found.backfilled), found.backfilled
    yield "jobs with a planned start", str(found.promised), found.promised
    yield "... started by then", _percent(found.promise_kept), found.promise_kept
    yield "... started close to it", _percent(found.promise_close), found.promise_close
    yield "... mean distance", _time(found.promise_error_mean), found.promise_error_mean
    yield "scheduling passes", str(found.passes), found.passes
    yield "CPU time of the replay", f"{found.cpu_seconds:.2f} s", found.cpu_seconds
    yield "... of its passes", f"{found.plan_seconds:.2f} s", found.plan_seconds


def _groups(found: Figures) -> Iterator[tuple[str, dict[str, Waits]]]:
    for title, groups in (("account", found.by_account), ("user", found.by_user), ("size", found.by_size)):
        if len(groups) > 1 or (groups and title == "size"):
            shown = dict(list(groups.items())[:_MOST_GROUPS]) if title != "size" else groups
            more = len(groups) - len(shown)
            yield f"{title} ({more} more)" if more else title, shown


def _waits_table(title: str, groups: dict[str, Waits]) -> list[str]:
    rows = [(title, "jobs", "wait mean", "median", "p95", "longest", "slowdown", "p95")]
    rows += [
        (
            name,
            str(one.jobs),
            _time(one.wait_mean),
            _time(one.wait_median),
            _time(one.wait_p95),
            _time(one.wait_max),
            f"{one.slowdown_mean:.2f}",
            f"{one.slowdown_p95:.2f}",
        )
        for name, one in groups.items()
    ]
    return _aligned(rows)


def _refusals(found: Figures) -> list[str]:
    most = sorted(found.refusals.items(), key=lambda one: -one[1])[:_MOST_REFUSALS]
    return [f"refused    {count} x {sentence}" for sentence, count in most]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            text.ljust(width) if not place else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _difference(text: str, before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "-"
    change = after - before
    sign = "+" if change > 0 else "-" if change < 0 else ""
    if text.endswith("%"):
        return f"{sign}{abs(change) * 100:.2f} %"
    if ":" in text:
        return sign + format_duration(round(abs(change)))
    if isinstance(before, int):
        return f"{sign}{abs(change)}"
    return f"{sign}{abs(change):.2f}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(round(seconds))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.2f} %"


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _stamp(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S") if at >= 0 else ""

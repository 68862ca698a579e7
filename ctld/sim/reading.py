"""Reads a workload, whatever its form: what a file is shows in its first lines, not in its name."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from ctld.sim.gputables import OPENB, PHILLY, read_openb, read_philly
from ctld.sim.sacctlines import is_header, read_sacct
from ctld.sim.sbatchlines import read_sbatch_lines
from ctld.sim.swf import read_swf
from ctld.sim.workload import Trace
from muster.config.nodes import MAX_GPUS
from muster.errors import InvalidInput, NotFound

FORMS = (
    "the Standard Workload Format (.swf), `sacct -P` text, sbatch lines of the UB simulator, and the csv files of "
    "the Philly and Alibaba openb traces; each also as .gz"
)
_MAGIC = b"\x1f\x8b"
_HEAD_LINES = 200
_MOST_SECONDS = 1 << 40
_MOST_CPUS = 1 << 30
_MOST_MIB = 1 << 52


def read_trace(path: Path) -> Trace:
    """Read a workload file.

    Raises:
        NotFound, InvalidInput: one sentence with file and line, and what would help.
    """
    try:
        with _text(path) as file:
            reader = _reader(_head(file))
        if reader is None:
            raise InvalidInput(f"{path} is no workload that can be read", f"there are: {FORMS}")
        with _text(path) as file:
            return _within_bounds(reader(file, path), path)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"there is no file {path}", "name a workload file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read: {error}", "is the file whole, and yours to read?") from error
    except csv.Error as error:
        raise InvalidInput(
            f"{path} is no table: {error}", "write it with commas, and a quotation mark at both ends"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is no text: {error.reason}", f"there are: {FORMS}") from error


def _within_bounds(trace: Trace, path: Path) -> Trace:
    """Refuse times that no clock reaches, and nodes that nobody has: they would not fit into the columns."""
    for node in trace.nodes:
        for what, amount, most in (
            ("CPUs", node.cpus, _MOST_CPUS),
            ("MiB", node.memory_mib, _MOST_MIB),
            ("GPUs", node.gpus, MAX_GPUS),
        ):
            if not 0 <= amount <= most:
                raise InvalidInput(
                    f"{path}: node {node.names[:40]} has {amount} {what}, not 0 to {most}",
                    "correct what the trace says of its nodes, or say --nodes and --cpus",
                )
    for job in trace.jobs:
        for what, seconds in (
            ("time of submission", job.submitted_at),
            ("run time", job.runtime),
            ("time limit", job.limit_seconds or 0),
            ("first time to start", job.begin_at),
            ("wait", job.waited),
        ):
            if not -_MOST_SECONDS <= seconds <= _MOST_SECONDS:
                raise InvalidInput(
                    f"{path}: the {what} of job {job.label[:40]} is over {_MOST_SECONDS} seconds",
                    "correct the line, or leave it out",
                )
    return trace


def _text(path: Path) -> TextIO:
    with path.open("rb") as file:
        packed = file.read(2) == _MAGIC
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", newline=None)
    return path.open(encoding="utf-8")


def _head(file: Iterator[str]) -> list[str]:
    """Give the first lines that say what the file is; a header of comments is skipped."""
    head: list[str] = []
    for number, line in enumerate(file):
        if line.strip() and not line.startswith((";", "#")):
            head.append(line)
        if len(head) == 1 or number > _HEAD_LINES:
            break
    return head


def _reader(head: list[str]) -> Callable[[Iterator[str], Path], Trace] | None:
    if not head:
        return None
    first = head[0]
    names = set(first.strip().split(","))
    if "|" in first and is_header(first):
        return read_sacct
    if "submit_batch_job" in first:
        return read_sbatch_lines
    if names >= PHILLY:
        return read_philly
    if names >= OPENB:
        return read_openb
    words = first.split()
    if len(words) >= 5 and all(_is_number(word) for word in words[:5]):
        return read_swf
    return None


def _is_number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdigit()

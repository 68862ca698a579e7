"""dbd.conf (slurmdbd.conf): the accounting daemon's own configuration (slurmdbd.conf(5))."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

from muster.config.keys import Given, field_values, read_line
from muster.config.linekeys import DBD, PURGED
from muster.config.problems import Place, Problems
from muster.config.records import DbdConfig
from muster.config.syntax import Source

POSTGRESQL = "accounting_storage/postgresql"
SQLITE = "accounting_storage/sqlite"
_PURGE = re.compile(r"(\d{1,6})(?:(hours?)|(days?)|(months?))?", re.ASCII | re.IGNORECASE)
_ARCHIVE_FIELDS = {
    "archive_events": "event", "archive_jobs": "job", "archive_resvs": "resv", "archive_steps": "step",
    "archive_suspend": "suspend", "archive_txn": "txn", "archive_usage": "usage", "archive_jobscript": "jobscript",
    "archive_jobenv": "jobenv",
}  # fmt: skip


def dbd_config(source: Source, main: Path, problems: Problems) -> DbdConfig:
    """The record of the lines read; raises ConfigError with every mistake."""
    place = Place(str(main))
    given: dict[str, Given] = {}
    for line in source.lines:
        for name, item in read_line(DBD, line.pairs, line.place, problems).items():
            if name in given:
                problems.warning(line.place, f"{name} specified more than once, latest value used")
            given[name] = item
    values = field_values(given)
    if not values.get("host"):
        problems.error(place, "DbdHost needs to be specified", "add DbdHost=localhost or the name of this host")
    values.setdefault("addr", values.get("host", ""))
    _storage(values, given, place, problems)
    values["purge_after"] = _purges(values, given, problems)
    archived = [record for field, record in _ARCHIVE_FIELDS.items() if values.pop(field, False)]
    problems.raise_if_any()
    return DbdConfig(
        **values,
        archive=tuple(archived),
        path=str(main),
        without_effect=tuple(problems.without_effect),
        warnings=tuple(problems.warnings),
    )


def check_mode(main: Path, source: Source, problems: Problems) -> None:
    """Refuse a file that holds a password and that others may read, or that belongs to somebody else.

    Slurm demands mode 0600 of the file at all times; without a password in it there is nothing to hide, and the
    commented example can lie in a repository.
    """
    held = [line for line in source.lines for pair in line.pairs if pair.key.lower() == "storagepass" and pair.value]
    if not held:
        return
    try:
        status = main.stat()
    except OSError:
        return  # Reading has said so already.
    if status.st_uid not in (os.geteuid(), 0):
        problems.error(Place(str(main)), f"{main.name} not owned by SlurmUser", "chown it to the user that runs dbd")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o137:
        sentence = f"{main.name} permissions should be 600 is {mode:o} accessible for group or others"
        problems.error(Place(str(main)), sentence, f"chmod 600 {main}")


def _storage(values: dict[str, Any], given: dict[str, Given], place: Place, problems: Problems) -> None:
    written = values.get("storage_type", "")
    name = written.rpartition("/")[2].lower()
    where = given["StorageType"].place if written else place
    if not written:
        problems.error(where, "StorageType needs to be specified", f"use {POSTGRESQL} or {SQLITE}")
    elif name in ("postgresql", "pgsql", "postgres"):
        values["storage_type"] = POSTGRESQL
    elif name == "sqlite":
        values["storage_type"] = SQLITE
        if not values.get("storage_database", "").startswith("/"):
            problems.error(where, "StorageType=sqlite needs StorageLoc to be the absolute path of its file")
    elif name == "mysql":
        problems.error(
            where,
            "StorageType=accounting_storage/mysql is not supported",
            f"write StorageType={POSTGRESQL} or {SQLITE}",
        )
    else:
        problems.error(where, f"StorageType={written} is not known", f"use {POSTGRESQL} or {SQLITE}")
    if values.get("storage_password") and values.get("storage_password_script"):
        problems.error(
            given["StoragePassScript"].place,
            "StoragePass and StoragePassScript exclude each other",
            "keep one of the two",
        )


def _purges(values: dict[str, Any], given: dict[str, Given], problems: Problems) -> dict[str, tuple[int, str]]:
    """`N[hours|days|months]` by record; months where the unit is left out."""
    found: dict[str, tuple[int, str]] = {}
    for record in PURGED:
        text = values.pop(f"purge_{record.lower()}", None)
        if text is None:
            continue
        matched = _PURGE.fullmatch(text)
        if matched is None or int(matched[1]) == 0:
            problems.error(
                given[f"Purge{record}After"].place,
                f'Bad value "{text[:40]}" for Purge{record}After',
                "write a number above zero, then hours, days or months",
            )
            continue
        unit = "hours" if matched[2] else "days" if matched[3] else "months"
        found[record.lower()] = (int(matched[1]), unit)
    return found

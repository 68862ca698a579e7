"""Names of users and groups, looked up off the loop and remembered for a minute.

A lookup may ask a directory server and take seconds, so it runs in a thread; what is remembered costs a microsecond.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import time
from collections.abc import Callable

from ctld.core.jobspec import Names

KEPT_SECONDS = 60.0
MOST_KEPT = 10_000
"""At the bound everything is forgotten and looked up anew."""


class NameCache:
    """(uid, gid) -> names; a number that has no name is its own."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: dict[tuple[int, int], tuple[float, Names]] = {}

    def known(self, uid: int, gid: int) -> Names | None:
        """Give the names if they were looked up lately."""
        found = self._known.get((uid, gid))
        return found[1] if found is not None and self._monotonic() < found[0] else None

    async def of(self, uid: int, gid: int) -> Names:
        """Give the names, remembered or looked up."""
        return self.known(uid, gid) or await self.find(uid, gid)

    async def find(self, uid: int, gid: int) -> Names:
        """Look the names up."""
        names = await asyncio.to_thread(look_up, uid, gid)
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[uid, gid] = (self._monotonic() + KEPT_SECONDS, names)
        return names


def look_up(uid: int, gid: int) -> Names:
    """Ask the host's databases."""
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    try:
        group = grp.getgrgid(gid).gr_name
    except KeyError:
        group = str(gid)
    return Names(user, group, _groups(user, gid))


def _groups(user: str, gid: int) -> tuple[str, ...]:
    names = []
    for number in os.getgrouplist(user, gid):
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            continue  # a group without a name is in no list of names
    return tuple(names)


async def uid_of(text: str) -> int | None:
    """Give the uid of a name or number; None for a name that the host does not know."""
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return int(text)
    try:
        return (await asyncio.to_thread(pwd.getpwnam, text)).pw_uid
    except (KeyError, ValueError):
        return None

"""The framed body of requests that carry a script or an environment.

`MSTR1 <json bytes> <script bytes> <environment bytes>\\n`, then the three parts. Scripts and environments are bytes
that need not be UTF-8, are copied unescaped, and go into the journal as they came. A body that begins otherwise is
JSON alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.api import MAX_ENVIRONMENT_BYTES
from muster.errors import InvalidInput, TooLarge
from muster.slurm_errors import slurm_text

MAX_ENTRIES = 65536
MAX_ENTRY_BYTES = 131072
"""What the kernel takes of one variable (MAX_ARG_STRLEN)."""
_CHECKED_EACH_BYTES = 16384
"""From this size on the longest entry is looked for; a smaller environment cannot hold one that is too long."""
_MAGIC = b"MSTR1 "
_LONGEST_HEADER = 64


def split(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Give (JSON, script, environment); the last two are empty for a body of JSON alone.

    Raises:
        InvalidInput: the header is torn, or its lengths are not those of the body.
    """
    if not body.startswith(_MAGIC):
        return body, b"", b""
    end = body.find(b"\n", 0, _LONGEST_HEADER)
    words = body[len(_MAGIC) : end].split(b" ") if end > 0 else []
    if len(words) != 3 or not all(word.isdigit() for word in words):
        raise InvalidInput("the request's header line is torn", "it must read: MSTR1 <bytes> <bytes> <bytes>")
    json, script, environment = (int(word) for word in words)
    start = end + 1
    if start + json + script + environment != len(body):
        raise InvalidInput(
            f"the request announces {json}+{script}+{environment} bytes and brings {len(body) - start}",
            "was it cut on the way?",
        )
    middle = start + json
    return body[start:middle], body[middle : middle + script], body[middle + script :]


def joined(entries: Sequence[str]) -> bytes:
    """Join NAME=value entries as the nodes read them, each ended by NUL."""
    for entry in entries:
        if "\0" in entry:
            raise InvalidInput(f"the environment's entry {entry[:40]!r} holds a NUL byte", "no variable can hold one")
    return b"".join([entry.encode() + b"\0" for entry in entries])


def check_environment(environment: bytes) -> None:
    """Check that it is NAME=value entries, each ended by NUL, within the bounds.

    Raises:
        InvalidInput: an entry is none. TooLarge: more or longer entries than a program can be given.
    """
    if not environment:
        return
    if len(environment) > MAX_ENVIRONMENT_BYTES:
        raise TooLarge(
            slurm_text(2012),
            f"the environment has {len(environment)} bytes, the bound is {MAX_ENVIRONMENT_BYTES}",
            slurm_code=2012,
        )
    if environment[-1]:
        raise InvalidInput("the environment's last entry has no NUL behind it", "was the request cut on the way?")
    entries = environment[:-1].split(b"\0")
    if len(entries) > MAX_ENTRIES:
        raise TooLarge(
            slurm_text(2012), f"the environment has {len(entries)} entries, the bound is {MAX_ENTRIES}", slurm_code=2012
        )
    for entry in entries:
        if entry.find(b"=") < 1:
            raise InvalidInput(f"the environment's entry {_shown(entry)} is not NAME=value")
    if len(environment) > _CHECKED_EACH_BYTES:
        longest = max(entries, key=len)
        if len(longest) >= MAX_ENTRY_BYTES:
            raise TooLarge(
                slurm_text(2012),
                f"the environment's entry {_shown(longest)} has {len(longest)} bytes, "
                f"a program can be given {MAX_ENTRY_BYTES - 1}",
                slurm_code=2012,
            )


def _shown(entry: bytes) -> str:
    return repr(entry[:40].decode("utf-8", "replace"))

"""The framed body of requests that carry a script or an environment.

`MSTR1 <json bytes> <script bytes> <environment bytes>\\n`, then the three parts. Scripts and environments are bytes
that need not be UTF-8, are copied unescaped, and go into the journal as they came. A body that begins otherwise is
JSON alone.
"""

from __future__ import annotations

from muster.errors import InvalidInput

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

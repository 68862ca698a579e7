"""JSON for short-lived commands, from CPython's own accelerator.

`import json` compiles regular expressions and loads enum: 7 ms, as much as Python's whole start. The scanner and the
encoder themselves are C (`_json`), need none of that, and give the same results. Where an interpreter lacks them the
standard module serves. Only compact JSON is read (no blanks around the document's first value), which is what the
daemons send.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_fast: Any
try:
    import _json

    _fast = _json  # untyped on purpose: these names are CPython's own business
except ImportError:  # another implementation of Python
    _fast = None


class _Context:
    """What the C scanner asks for; the values are those of json.JSONDecoder()."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    memo: dict[str, str] = {}  # noqa: RUF012 (the C scanner wants an attribute)

    @staticmethod
    def parse_constant(name: str) -> float:
        return float({"Infinity": "inf", "-Infinity": "-inf"}.get(name, "nan"))


def loads(text: str) -> Any:
    """Read one JSON document; raises ValueError when it is none."""
    if _fast is None:
        import json

        return json.loads(text)
    try:
        value, end = _fast.make_scanner(_Context)(text, 0)
    except StopIteration:
        raise ValueError("no JSON document") from None
    if text[end:].strip():
        raise ValueError("text after the JSON document")
    return value


def dumps(value: Any) -> str:
    """Print a value of dicts, lists, strings, numbers, booleans and None as compact JSON."""
    if _fast is None:
        import json

        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    encoder = _fast.make_encoder(None, _refuse, _fast.encode_basestring, None, ":", ",", False, False, True)
    return "".join(encoder(value, 0))


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not JSON")

"""A strict reader of the YAML that topology.yaml needs: block mappings and lists, flow lists, plain and quoted scalars.

Everything else (anchors, tags, flow mappings, multi-line text, several documents) is refused with its line, so that
nothing is read as something else than the writer meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_DEPTH = 32
_KEY = re.compile(r"""("[^"\\]*"|'[^']*'|[A-Za-z0-9_][A-Za-z0-9_.\-]*)[ ]*:(?:[ ]+(.*))?$""")
_REFUSED = {
    "&": "anchors", "*": "aliases", "!": "tags", "|": "block text", ">": "folded text", "{": "flow mappings",
    "%": "directives", "@": "reserved characters", "`": "reserved characters", "?": "complex keys",
}  # fmt: skip


class YamlError(ValueError):
    """What is not in the subset, with its line."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


@dataclass(frozen=True, slots=True)
class Node:
    """A value with the line where it begins: text, list of nodes, mapping of nodes, or None when left empty."""

    line: int
    value: str | list[Node] | dict[str, Node] | None


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    indent: int
    text: str


def parse_yaml(text: str) -> Node:
    """The document; an empty one has value None. Raises YamlError."""
    rows = _rows(text)
    if not rows:
        return Node(1, None)
    node, rest = _block(rows, 0, rows[0].indent, 0)
    if rest < len(rows):
        raise YamlError(rows[rest].line, "the indentation fits no line above")
    return node


def _rows(text: str) -> list[_Row]:
    rows: list[_Row] = []
    for number, physical in enumerate(text.split("\n"), 1):
        bare = _without_comment(physical.rstrip("\r"), number).rstrip()
        content = bare.lstrip(" ")
        if not content:
            continue
        if content[0] == "\t":
            raise YamlError(number, "a tab stands where indentation takes blanks only")
        if content in ("---", "...") or content.startswith("--- "):
            if rows or content != "---":
                raise YamlError(number, "more than one document")
            continue
        rows.append(_Row(number, len(bare) - len(content), content))
    return rows


def _without_comment(text: str, line: int) -> str:
    quote = ""
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and (index == 0 or text[index - 1] in " [,:-"):
            quote = char
        elif char == "#" and (index == 0 or text[index - 1] in " \t"):
            return text[:index]
    if quote:
        raise YamlError(line, "a quote is not closed on its line")
    return text


def _block(rows: list[_Row], at: int, indent: int, depth: int) -> tuple[Node, int]:
    if depth > MAX_DEPTH:
        raise YamlError(rows[at].line, f"nested more than {MAX_DEPTH} deep")
    first = rows[at]
    if first.text == "-" or first.text.startswith("- "):
        return _list(rows, at, indent, depth)
    if _KEY.match(first.text) is not None:
        return _mapping(rows, at, indent, depth)
    return Node(first.line, _scalar(first.text, first.line, depth)), at + 1


def _list(rows: list[_Row], at: int, indent: int, depth: int) -> tuple[Node, int]:
    start = rows[at].line
    items: list[Node] = []
    while at < len(rows) and rows[at].indent == indent and (rows[at].text == "-" or rows[at].text.startswith("- ")):
        row = rows[at]
        content = row.text[1:].lstrip(" ")
        if content:
            # The item's own first line goes on as a line of its block, further in by the dash.
            rows[at] = _Row(row.line, indent + len(row.text) - len(content), content)
            node, at = _block(rows, at, rows[at].indent, depth + 1)
        elif at + 1 < len(rows) and rows[at + 1].indent > indent:
            node, at = _block(rows, at + 1, rows[at + 1].indent, depth + 1)
        else:
            node, at = Node(row.line, None), at + 1
        items.append(node)
        _fits(rows, at, indent)
    return Node(start, items), at


def _mapping(rows: list[_Row], at: int, indent: int, depth: int) -> tuple[Node, int]:
    start = rows[at].line
    found: dict[str, Node] = {}
    while at < len(rows) and rows[at].indent == indent:
        row = rows[at]
        matched = _KEY.match(row.text)
        if matched is None:
            if row.text == "-" or row.text.startswith("- "):
                break
            raise YamlError(row.line, f'"{row.text[:60]}" is not "key: value"')
        key = matched[1].strip("\"'")
        if key in found:
            raise YamlError(row.line, f"the key {key} stands twice")
        written = matched[2]
        if written:
            found[key], at = Node(row.line, _scalar(written, row.line, depth)), at + 1
        elif at + 1 < len(rows) and (
            rows[at + 1].indent > indent
            or (rows[at + 1].indent == indent and (rows[at + 1].text == "-" or rows[at + 1].text.startswith("- ")))
        ):
            inner, at = _block(rows, at + 1, rows[at + 1].indent, depth + 1)
            # Errors about a value name the line of its key.
            found[key] = Node(row.line, inner.value)
        else:
            found[key], at = Node(row.line, None), at + 1
        _fits(rows, at, indent)
    return Node(start, found), at


def _fits(rows: list[_Row], at: int, indent: int) -> None:
    if at < len(rows) and rows[at].indent > indent:
        raise YamlError(rows[at].line, "the indentation fits no line above")


def _scalar(text: str, line: int, depth: int) -> str | list[Node] | None:
    if text.startswith("["):
        return _flow_list(text, line, depth)
    if text[0] in "\"'":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1]:
            raise YamlError(line, f"{text[:60]} is not one quoted text")
        if text[0] == '"' and "\\" in text:
            raise YamlError(line, "escapes in quoted text are not supported")
        return text[1:-1]
    if text[0] in _REFUSED:
        raise YamlError(line, f"{_REFUSED[text[0]]} are not supported")
    if ": " in text or text.endswith(":"):
        raise YamlError(line, f'"{text[:60]}" holds a colon; quote it')
    return None if text in ("~", "null") else text


def _flow_list(text: str, line: int, depth: int) -> list[Node]:
    if not text.endswith("]"):
        raise YamlError(line, "a list in brackets must end on its line")
    inner = text[1:-1].strip()
    if not inner:
        return []
    items: list[Node] = []
    for item in re.findall(r"""\s*("[^"]*"|'[^']*'|[^,\[\]{}"']+)\s*(?:,|$)|(.)""", inner):
        if item[1]:
            raise YamlError(line, f"{text[:60]} is not a plain list; quote host lists that hold brackets")
        items.append(Node(line, _scalar(item[0].strip() or "~", line, depth)))
    return items

"""`--constraint`: parse an expression over node features, and say which sets of nodes satisfy it.

An expression means one or more **alternatives**, tried in order. Each is a set in which every node of the job
must lie, and counts: so many of the nodes must have this or that. `a|b` is one alternative (nodes may
differ), `[a|b]` two (all nodes share one of them), `a*4` one with a count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.errors import InvalidInput

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-=:")
MAX_ALTERNATIVES = 64
"""Most alternatives that one expression may unfold to; past it the expression is refused."""
MAX_COUNT = 65536
"""Most nodes that one count may ask for."""
MAX_DEPTH = 32
"""Deepest nesting of parentheses."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One alternative over node bitmaps (bit = node index)."""

    nodes: int
    """Every node of the job is one of these."""
    counts: tuple[tuple[int, int], ...] = ()
    """(bitmap, how many nodes of the job must be in it)."""


def names(text: str) -> set[str]:
    """Give the feature names in an expression; raises InvalidInput on one that cannot be read."""
    seen: set[str] = set()

    def note(name: str) -> int:
        seen.add(name)
        return 0

    choices(text, note, 0)
    return seen


def choices(text: str, nodes_with: Callable[[str], int], everything: int) -> tuple[Choice, ...]:
    """Give the alternatives of an expression.

    Args:
        text: the expression; empty means no constraint.
        nodes_with: gives the bitmap of the nodes that have a feature (0 for an unknown one).
        everything: bitmap of all nodes.

    Raises:
        InvalidInput: the text is no expression; the sentence names the place.
    """
    if not text.strip():
        return (Choice(everything),)
    return _Parser(text, nodes_with, everything).parse()


class _Parser:
    """Recursive descent, evaluated as it reads. A value is a list of alternatives."""

    def __init__(self, text: str, nodes_with: Callable[[str], int], everything: int) -> None:
        self.text = text
        self.at = 0
        self.nodes_with = nodes_with
        self.everything = everything
        self.brackets = 0

    def parse(self) -> tuple[Choice, ...]:
        value = self.expression(matching=False, depth=0)
        if self.peek():
            raise self.wrong(f"'{self.peek()}' is not expected here")
        return tuple(value)

    def expression(self, *, matching: bool, depth: int) -> list[Choice]:
        """Terms joined by & and |, strictly from left to right."""
        if depth > MAX_DEPTH:
            raise self.wrong(f"more than {MAX_DEPTH} levels of parentheses")
        value = self.term(matching=matching, depth=depth)
        while (sign := self.peek()) in ("&", "|") and sign:
            self.at += 1
            right = self.term(matching=matching, depth=depth)
            value = self.both(value, right) if sign == "&" else _either(value, right, matching=matching)
            if len(value) > MAX_ALTERNATIVES:
                raise self.wrong(f"more than {MAX_ALTERNATIVES} alternatives")
        return value

    def term(self, *, matching: bool, depth: int) -> list[Choice]:
        sign = self.peek()
        if sign == "(":
            self.at += 1
            value = self.expression(matching=False, depth=depth + 1)
            self.close(")")
            return self.counted(value)
        if sign == "[":
            if matching or self.brackets:
                raise self.wrong("only one group in square brackets may be given")
            self.brackets += 1
            self.at += 1
            value = self.expression(matching=True, depth=depth + 1)
            self.close("]")
            return value
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in _NAME:
            self.at += 1
        if start == self.at:
            raise self.wrong(f"'{sign}' stands where a feature name is expected" if sign else "it ends too early")
        return self.counted([Choice(self.nodes_with(self.text[start : self.at]))])

    def counted(self, value: list[Choice]) -> list[Choice]:
        """Read an optional `*count` behind a name or a parenthesis."""
        if self.peek() != "*":
            return value
        self.at += 1
        self.peek()
        start = self.at
        while self.at < len(self.text) and self.text[self.at].isascii() and self.text[self.at].isdigit():
            self.at += 1
        digits = self.text[start : self.at]
        if not digits or len(digits) > 6 or not 1 <= int(digits) <= MAX_COUNT:
            raise self.wrong(f"a count is a number from 1 to {MAX_COUNT}")
        if any(choice.counts for choice in value):
            raise self.wrong("a group with counts cannot be counted again")
        return [Choice(self.everything, ((choice.nodes, int(digits)),)) for choice in value]

    def both(self, left: list[Choice], right: list[Choice]) -> list[Choice]:
        if len(left) * len(right) > MAX_ALTERNATIVES:
            raise self.wrong(f"more than {MAX_ALTERNATIVES} alternatives")
        return [Choice(a.nodes & b.nodes, a.counts + b.counts) for a in left for b in right]

    def close(self, sign: str) -> None:
        if self.peek() != sign:
            raise self.wrong(f"'{sign}' is missing")
        self.at += 1

    def peek(self) -> str:
        """Skip blanks and give the next character, "" at the end."""
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1
        return self.text[self.at : self.at + 1]

    def wrong(self, what: str) -> InvalidInput:
        return InvalidInput(
            f"Invalid feature specification '{self.text}': {what} (character {self.at + 1})",
            "write features joined by & and |, for example --constraint='(a|b)&c' or '[rack1|rack2]'",
        )


def _either(left: list[Choice], right: list[Choice], *, matching: bool) -> list[Choice]:
    plain = len(left) == len(right) == 1 and not left[0].counts and not right[0].counts
    if plain and not matching:
        return [Choice(left[0].nodes | right[0].nodes)]
    return left + right

"""Expressions over node features."""

from __future__ import annotations

import pytest

from ctld.core.features import MAX_ALTERNATIVES, Choice, choices, names
from muster.errors import InvalidInput

ALL = 0b1111
SETS = {"a": 0b0011, "b": 0b0110, "c": 0b1000}


def read(text: str) -> tuple[Choice, ...]:
    return choices(text, lambda name: SETS.get(name, 0), ALL)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", ALL),
        ("a", 0b0011),
        ("a&b", 0b0010),
        ("a|b", 0b0111),
        ("a|b&c", 0b0000),  # Strictly from left to right: (a|b)&c.
        ("a|(b&c)", 0b0011),
        ("(a|b)&a", 0b0011),
        (" a & b ", 0b0010),
        ("unknown", 0),
    ],
)
def test_a_plain_expression_is_one_set_of_nodes(text: str, nodes: int) -> None:
    assert read(text) == (Choice(nodes),)


def test_square_brackets_make_all_nodes_share_one_alternative() -> None:
    assert read("[a|b|c]") == (Choice(0b0011), Choice(0b0110), Choice(0b1000))
    assert read("c|a&[a|b]") == (Choice(0b0011), Choice(0b0010))


def test_counts_ask_for_so_many_nodes_among_all() -> None:
    assert read("a*4") == (Choice(ALL, ((0b0011, 4),)),)
    assert read("[a*2&b*4]") == (Choice(ALL, ((0b0011, 2), (0b0110, 4))),)
    assert read("[(a|b)*1&c*2]") == (Choice(ALL, ((0b0111, 1), (0b1000, 2))),)
    assert read("[(a&b)*2|c*4]") == (Choice(ALL, ((0b0010, 2),)), Choice(ALL, ((0b1000, 4),)))
    assert read("a&b*1") == (Choice(0b0011, ((0b0110, 1),)),)


@pytest.mark.parametrize(
    "text",
    [
        "a&",
        "&a",
        "(a",
        "a)",
        "[a",
        "a]",
        "a b",
        "a,b",
        "a*",
        "a*0",
        "a*x",
        "a*9999999",
        "[a]|[b]",
        "[[a]]",
        "()",
        "!a",
        "(a*2)*3",
    ],
)
def test_what_is_no_expression_is_refused_naming_the_place(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"Invalid feature specification .* \(character \d+\)"):
        read(text)


def test_alternatives_and_nesting_have_bounds() -> None:
    with pytest.raises(InvalidInput, match="alternatives"):
        read("[" + "|".join(["a"] * (MAX_ALTERNATIVES + 1)) + "]")
    with pytest.raises(InvalidInput, match="levels"):
        read("(" * 100 + "a" + ")" * 100)


def test_names_lists_what_an_expression_mentions() -> None:
    assert names("[(a|x.1)*2&c-3*4]") == {"a", "x.1", "c-3"}

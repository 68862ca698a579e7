"""scontrol's keywords: names, beginnings, counts of arguments."""

from __future__ import annotations

import pytest

from cli import scontrol


@pytest.mark.parametrize(
    ("word", "keyword"),
    [
        ("show", "show"),
        ("sho", "show"),
        ("u", "update"),
        ("uhold", "uhold"),
        ("hold", "hold"),
        ("holdu", "holdu"),
        ("requeue", "requeue"),
        ("requeueh", "requeuehold"),
        ("rel", "release"),
        ("pi", "ping"),
        ("reco", "reconfigure"),
        ("write", "write"),
    ],
)
def test_a_keyword_may_be_shortened_as_far_as_slurm_allows(word: str, keyword: str) -> None:
    row = scontrol.find(word)
    assert row is not None
    assert row[0] == keyword


@pytest.mark.parametrize("word", ["sh", "hol", "frob", "", "shows"])
def test_too_short_or_unknown_words_name_no_keyword(word: str) -> None:
    assert scontrol.find(word) is None


def test_names_are_unique() -> None:
    names = [row[0] for row in scontrol.KEYWORDS]
    assert len(names) == len(set(names))

from __future__ import annotations

from muster.slurm_errors import SLURM_TEXTS, slurm_text


def test_numbers_give_the_texts_that_clients_match() -> None:
    assert slurm_text(2017) == "Invalid job id specified"
    assert slurm_text(2014) == "Requested node configuration is not available"


def test_an_unknown_number_gives_the_general_text() -> None:
    assert slurm_text(31337) == "Unspecified error"


def test_no_text_stands_twice_except_where_slurm_repeats_itself() -> None:
    texts = [text.lower() for text in SLURM_TEXTS.values()]
    assert {text for text in texts if texts.count(text) > 1} == {"invalid user id", "invalid group id"}

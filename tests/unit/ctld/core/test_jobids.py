from __future__ import annotations

import pytest

from ctld.core.jobids import Selector, parse_selector, parse_selectors, selector_text, split_list
from muster.errors import InvalidInput, MusterError, Refused
from muster.ids import BATCH_STEP, EXTERN_STEP, JobId, StepId


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", Selector(JobId(5))),
        ("5_3", Selector(JobId(5), (3, 3))),
        ("5_*", Selector(JobId(5))),
        ("5_[1-3,7]", Selector(JobId(5), (1, 3, 7, 7))),
        ("5_[7,1-3,4]", Selector(JobId(5), (1, 4, 7, 7))),
        ("5_[0-6:3]", Selector(JobId(5), (0, 0, 3, 3, 6, 6))),
        ("5.0", Selector(JobId(5), None, StepId(0))),
        ("5.batch", Selector(JobId(5), None, BATCH_STEP)),
        ("5_2.EXTERN", Selector(JobId(5), (2, 2), EXTERN_STEP)),
    ],
)
def test_reads_every_form(text: str, expected: Selector) -> None:
    assert parse_selector(text) == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 2136),
        ("0", 2137),
        ("-4", 2138),
        ("99999999999", 2139),
        ("12x", 2140),
        ("5_", 2141),
        ("5_-1", 2142),
        ("5_99999999", 2143),
        ("5_x", 2144),
        ("5_[1-3", 2144),
        ("5_[3-1]", 2144),
        ("5_[0-4:0]", 2144),
        ("5.", 2150),
        ("5.-1", 2151),
        ("5.4294967295", 2152),
        ("5.x", 2153),
        ("\N{ARABIC-INDIC DIGIT FIVE}", 2140),
    ],
)
def test_says_which_part_is_wrong(text: str, code: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_selector(text)
    assert caught.value.slurm_code == code


def test_components_of_heterogeneous_jobs_are_refused_by_name() -> None:
    with pytest.raises(Refused, match="heterogeneous"):
        parse_selector("5+1")


def test_a_list_is_cut_outside_of_brackets() -> None:
    assert split_list("5,6_[1,2] 7,,") == ["5", "6_[1,2]", "7"]
    assert [one.job_id for one in parse_selectors("5,6_[1,2]")] == [5, 6]


def test_an_empty_list_is_an_error() -> None:
    with pytest.raises(MusterError, match="empty"):
        parse_selectors(" , ")


def test_a_huge_set_of_single_members_is_refused_and_not_built() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_selector("5_[" + ",".join(["0-4000000:2"] * 50) + "]")
    assert caught.value.slurm_code == 2143


@pytest.mark.parametrize("text", ["5", "5_3", "5_[1-3,7]"])
def test_prints_what_it_reads(text: str) -> None:
    selector = parse_selector(text)
    assert selector_text(selector.job_id, selector.tasks) == text

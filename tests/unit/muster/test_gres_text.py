"""Texts of generic resources."""

from __future__ import annotations

import pytest

from muster.errors import InvalidInput
from muster.gres_text import gres_count, parse_gpus, parse_gres, parse_tres_per_task, split_outside_parentheses

INVALID = r"^Invalid generic resource \(gres\) specification$"
MIXED = r"^Invalid GRES specification \(with and without type identification\)$"


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("gpu:a100:2,gpu:h100", [("gpu", "a100", 2), ("gpu", "h100", 1)]),
        ("gpu", [("gpu", "", 1)]),
        ("gpu:2", [("gpu", "", 2)]),
        ("gres/gpu:2", [("gpu", "", 2)]),
        ("gpu:a100=2", [("gpu", "a100", 2)]),
        ("gpu:0", [("gpu", "", 0)]),
        ("disk:4K,bw:1m", [("disk", "", 4096), ("bw", "", 1048576)]),
        ("gpu:3g.20gb:1", [("gpu", "3g.20gb", 1)]),
        ("none", []),
        ("NONE", []),
        ("", []),
    ],
)
def test_gres_lists(text: str, entries: list[tuple[str, str, int]]) -> None:
    assert parse_gres(text) == entries


@pytest.mark.parametrize(
    "text", ["gpu:a:b:1", ":2", "gpu:", "gpu::2", "gpu:-1", "gpu:a:-1", "gpu,,x", "gpu: 2", "gpu:9999999999999999999"]
)
def test_bad_gres_lists(text: str) -> None:
    with pytest.raises(InvalidInput, match=INVALID):
        parse_gres(text)


def test_a_name_with_and_without_type_is_refused() -> None:
    with pytest.raises(InvalidInput, match=MIXED):
        parse_gres("gpu:1,gpu:a100:1")
    with pytest.raises(InvalidInput, match=MIXED):
        parse_gpus("a100:1,2")
    assert parse_gres("gpu:a:1,disk:1") == [("gpu", "a", 1), ("disk", "", 1)]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("2", [("", 2)]),
        ("a100:2", [("a100", 2)]),
        ("a100", [("a100", 1)]),
        ("a100:2,h100:1", [("a100", 2), ("h100", 1)]),
    ],
)
def test_gpu_lists(text: str, entries: list[tuple[str, int]]) -> None:
    assert parse_gpus(text) == entries


@pytest.mark.parametrize("text", ["", "a:b:1", "-1", "a:", ":1", "a100:-2"])
def test_bad_gpu_lists(text: str) -> None:
    with pytest.raises(InvalidInput, match=INVALID):
        parse_gpus(text)


def test_resources_of_each_task() -> None:
    assert parse_tres_per_task("cpu=2,gres/gpu:a100=1,license/x=3") == [
        ("cpu", "", 2),
        ("gres/gpu", "a100", 1),
        ("license/x", "", 3),
    ]
    assert parse_tres_per_task("cpu:2,gres/gpu:1") == [("cpu", "", 2), ("gres/gpu", "", 1)]


@pytest.mark.parametrize("name", ["mem", "energy", "node", "billing", "fs/disk", "vmem", "pages", "bb/x", "xyz"])
def test_resources_that_are_not_for_tasks(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"^Invalid TRES for --tres-per-task: {name}$"):
        parse_tres_per_task(f"{name}=1")


@pytest.mark.parametrize("text", ["cpu", "cpu=0", "cpu=x", "gres/=1", "gres/gpu::1", "cpu=1=2", "license/=1"])
def test_bad_resources_of_each_task(text: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid TRES for --tres-per-task"):
        parse_tres_per_task(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("cpu=8,mem=32G,node=1,gres/gpu=2,gres/gpu:h200=2", 2),
        ("gpu:h200:4(S:0-1)", 4),
        ("gpu:h200:3(IDX:0-2)", 3),
        ("gpu:a:1,gpu:b:2", 3),
        ("gpu:a:2(IDX:0,3),gpu:b:1(IDX:5),mps:100", 3),
        ("gpu:0(IDX:N/A)", 0),
        ("gpu", 1),
        ("", 0),
        ("(null)", 0),
        ("N/A", 0),
        ("cpu=8,mem=32G", 0),
    ],
)
def test_n12_counting_typed_gpus(text: str, count: int) -> None:
    assert gres_count(text) == count


def test_counting_one_type_or_another_resource() -> None:
    text = "gres/gpu=3,gres/gpu:a=1,gres/gpu:b=2,gres/disk=7"
    assert gres_count(text, kind="b") == 2
    assert gres_count(text, kind="c") == 0
    assert gres_count(text, name="disk") == 7


def test_commas_in_parentheses_do_not_split() -> None:
    assert split_outside_parentheses("gpu:2(IDX:0,3),x:1") == ["gpu:2(IDX:0,3)", "x:1"]

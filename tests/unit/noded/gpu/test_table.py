"""GPUs as written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from noded.gpu import nvml, table


@pytest.mark.parametrize(
    ("text", "types"), [("h200:2", ["h200", "h200"]), ("3", ["gpu"] * 3), ("a100:0", []), ("0", [])]
)
def test_reads_a_type_and_a_count(text: str, types: list[str]) -> None:
    assert list(table.read(text).types()) == types


def test_reads_a_file_with_a_type_a_line(tmp_path: Path) -> None:
    file = tmp_path / "gpus"
    file.write_text("# two of one kind\nh200\nh200  # second\n\na100\n")
    assert list(table.read(str(file)).types()) == ["h200", "h200", "a100"]


def test_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "gpus"
    file.write_text("h200\nh 200\n")
    with pytest.raises(InvalidInput, match=f"{file}:2: 'h 200' is no type of a GPU"):
        table.read(str(file))
    with pytest.raises(InvalidInput, match="cannot read the file: No such file"):
        table.read(str(tmp_path / "gone"))
    with pytest.raises(InvalidInput, match="more than 1024 GPUs"):
        table.read("x:1025")
    with pytest.raises(InvalidInput, match="is no type of a GPU"):
        table.read("a b:2")


@pytest.mark.parametrize(
    ("product", "word"),
    [
        ("NVIDIA H200", "nvidia_h200"),
        ("Tesla T4", "nvidia_tesla_t4"),
        ("NVIDIA A100-SXM4-40GB", "nvidia_a100-sxm4-40gb"),
    ],
)
def test_a_products_name_becomes_a_type_as_slurm_has_it(product: str, word: str) -> None:
    assert nvml.type_name(product) == word

"""The files of a step's folder: whole or not at all, and room for the result on a disk that fills up."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from noded.launch import stepdir


def test_what_is_written_is_read_and_readable_by_nobody_else(tmp_path: Path) -> None:
    stepdir.write(str(tmp_path), "launch", {"a": [1, b"x"]})
    assert stepdir.read(str(tmp_path), "launch") == {"a": [1, b"x"]}
    assert os.stat(tmp_path / "launch").st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["launch"]


def test_a_full_disk_takes_room_from_the_spools_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "steps" / "1.0.0"
    folder.mkdir(parents=True)
    stepdir.make_reserve(str(tmp_path))
    reserve = tmp_path / "reserve"
    assert (reserve.stat().st_size, reserve.stat().st_mode & 0o777) == (stepdir.RESERVE_BYTES, 0o600)
    whole = os.write

    def full(descriptor: int, data: bytes) -> int:
        """A disk that has room only once the reserve has given some back twice."""
        short = reserve.stat().st_size > stepdir.RESERVE_BYTES - 100_000
        return whole(descriptor, data[:3] if short else data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        stepdir.write(str(folder), "launch", {"work_dir": "/somewhere"})
    stepdir.write(str(folder), "result", {"tasks": [(0, 768)]}, from_reserve=True)
    assert stepdir.read(str(folder), "result") == {"tasks": [(0, 768)]}
    assert reserve.stat().st_size < stepdir.RESERVE_BYTES


def test_a_value_that_does_not_fit_on_the_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepdir.write(str(tmp_path), "result", {"first": 1})
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:3]))
    with pytest.raises(OSError, match="No space left") as caught:
        stepdir.write(str(tmp_path), "result", {"second": 2})
    assert caught.value.errno == errno.ENOSPC
    assert stepdir.read(str(tmp_path), "result") == {"first": 1}

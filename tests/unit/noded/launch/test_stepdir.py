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


def test_reserved_room_is_used_and_what_is_not_needed_given_back(tmp_path: Path) -> None:
    stepdir.reserve(str(tmp_path), "result", 4096)
    reserved = os.stat(tmp_path / "result.new")
    assert (reserved.st_size, reserved.st_mode & 0o777) == (4096, 0o600)
    assert stepdir.read(str(tmp_path), "result") is None
    stepdir.write(str(tmp_path), "result", {"tasks": [(0, 768)]})
    assert os.stat(tmp_path / "result").st_ino == reserved.st_ino
    assert os.stat(tmp_path / "result").st_size < 100
    assert stepdir.read(str(tmp_path), "result") == {"tasks": [(0, 768)]}


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

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctld.store.checkpoint import Checkpoint, checkpoint_numbers, checkpoint_path, load, read, write, write_sliced
from ctld.store.recovery import create_log
from ctld.store.segments import segment_path
from muster.errors import Damaged, InvalidInput

LOG_ID = "0123456789abcdef"


def content(checkpoint: Checkpoint | None) -> dict[str, list[bytes]]:
    assert checkpoint is not None
    return {name: list(records) for name, records in checkpoint.sections()}


def some(tag: bytes = b"") -> dict[str, list[bytes]]:
    return {"jobs": [tag + b"job %d" % n for n in range(50)], "empty": [], "nodes": [b"", tag, bytes(3000)]}


def test_gives_back_what_was_written(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    assert write(tmp_path, 7, some().items(), log_id=LOG_ID) == 0
    found = load(tmp_path)
    assert found is not None
    assert (found.number, found.log_id) == (7, LOG_ID)
    assert content(found) == some()
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint_path(tmp_path, 7).name]


def test_a_section_that_is_not_read_is_stepped_over(tmp_path: Path) -> None:
    write(tmp_path, 7, some().items(), log_id=LOG_ID)
    found = load(tmp_path)
    assert found is not None
    assert [name for name, _records in found.sections()] == ["jobs", "empty", "nodes"]


def test_keeps_the_newest_two_and_says_how_far_the_journal_may_go(tmp_path: Path) -> None:
    covered = [write(tmp_path, number, some().items(), log_id=LOG_ID) for number in (3, 9, 12, 20)]
    assert covered == [0, 3, 9, 12]
    assert checkpoint_numbers(tmp_path) == [12, 20]


async def test_sliced_writes_the_same_and_leaves_the_loop_to_others(tmp_path: Path) -> None:
    def slow() -> Iterator[bytes]:
        for n in range(300):
            end = time.perf_counter() + 0.0003
            while time.perf_counter() < end:
                pass
            yield b"%d" % n

    turns = 0
    over = False

    async def other() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.ensure_future(other())
    assert await write_sliced(tmp_path, 4, [("slow", slow()), *some().items()], log_id=LOG_ID) == 0
    over = True
    await others
    assert turns > 300 * 0.0003 / 0.002 / 2
    assert content(load(tmp_path)) == {"slow": [b"%d" % n for n in range(300)], **some()}


async def test_sliced_writes_much_in_pieces(tmp_path: Path) -> None:
    records = [bytes([n % 256]) * 100_000 for n in range(100)]
    await write_sliced(tmp_path, 4, [("big", iter(records))], log_id=LOG_ID)
    assert content(load(tmp_path)) == {"big": records}


@pytest.mark.parametrize("sliced", [False, True])
async def test_an_error_while_encoding_leaves_the_old_one_alone(tmp_path: Path, sliced: bool) -> None:
    write(tmp_path, 1, some().items(), log_id=LOG_ID)

    def failing() -> Iterator[bytes]:
        yield b"one"
        raise ValueError("cannot encode")

    async def attempt() -> int:
        if sliced:
            return await write_sliced(tmp_path, 2, [("jobs", failing())], log_id=LOG_ID)
        return write(tmp_path, 2, [("jobs", failing())], log_id=LOG_ID)

    with pytest.raises(ValueError, match="cannot encode"):
        await attempt()
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint_path(tmp_path, 1).name]


def test_every_flip_and_every_cut_is_damage_named(tmp_path: Path) -> None:
    write(tmp_path, 7, [("jobs", [b"job one", b"job two"]), ("nodes", [b"n1"])], log_id=LOG_ID)
    path = checkpoint_path(tmp_path, 7)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(Damaged, match=rf"{path}: .*at offset \d+"):
            read(path)
        path.write_bytes(whole[:at])
        with pytest.raises(Damaged, match=rf"{path}: .*at offset \d+"):
            read(path)


def test_names_the_record_and_its_section(tmp_path: Path) -> None:
    write(tmp_path, 7, [("jobs", [b"job one", b"job two"])], log_id=LOG_ID)
    path = checkpoint_path(tmp_path, 7)
    path.write_bytes(path.read_bytes().replace(b"job two", b"job twx"))
    with pytest.raises(Damaged, match=r"record 2 at offset \d+ \(section jobs\) is damaged"):
        read(path)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_falls_back_to_the_older_one_where_the_journal_reaches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_log(tmp_path, first=3)
    write(tmp_path, 3, some(b"old").items(), log_id=LOG_ID)
    write(tmp_path, 9, some(b"new").items(), log_id=LOG_ID)
    damage(checkpoint_path(tmp_path, 9))
    with caplog.at_level(logging.ERROR):
        found = load(tmp_path)
    assert content(found) == some(b"old")
    assert f"{checkpoint_path(tmp_path, 9)}: record" in caplog.text
    # Set aside: the next one must not keep a damaged one as its fallback, and drop the good one.
    assert write(tmp_path, 12, some().items(), log_id=LOG_ID) == 3


def test_refuses_where_the_journal_does_not_reach_back(tmp_path: Path) -> None:
    create_log(tmp_path, first=8)
    write(tmp_path, 3, some().items(), log_id=LOG_ID)
    write(tmp_path, 9, some().items(), log_id=LOG_ID)
    damage(checkpoint_path(tmp_path, 9))
    with pytest.raises(Damaged, match=r"no longer reaches back to the older checkpoint of event 3"):
        load(tmp_path)
    damage(checkpoint_path(tmp_path, 3))
    with pytest.raises(Damaged, match=str(checkpoint_path(tmp_path, 9))):
        load(tmp_path)


def test_the_whole_journal_does_without_a_checkpoint(tmp_path: Path) -> None:
    create_log(tmp_path)
    write(tmp_path, 9, some().items(), log_id=LOG_ID)
    damage(checkpoint_path(tmp_path, 9))
    assert load(tmp_path) is None
    segment_path(tmp_path, 1).unlink()
    write(tmp_path, 9, some().items(), log_id=LOG_ID)
    damage(checkpoint_path(tmp_path, 9))
    with pytest.raises(Damaged):
        load(tmp_path)


def test_a_newer_format_is_refused_by_its_version(tmp_path: Path) -> None:
    write(tmp_path, 9, some().items(), log_id=LOG_ID)
    path = checkpoint_path(tmp_path, 9)
    data = bytearray(path.read_bytes())
    data[8] = 9
    data[28:32] = zlib.crc32(data[:28]).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match="checkpoint format 9"):
        load(tmp_path)


async def test_a_cancelled_write_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path, 1, some().items(), log_id=LOG_ID)
    for turns in range(8):
        records = (bytes(300_000) for _ in range(100))
        writing = asyncio.ensure_future(write_sliced(tmp_path, 2, [("big", records)], log_id=LOG_ID))
        for _ in range(turns):
            await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert [path.name for path in tmp_path.iterdir()] == [checkpoint_path(tmp_path, 1).name]

"""What the collector of garbage looks at."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ctld.collector import keep_pauses_short, not_collecting, put_aside


@pytest.fixture
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.callbacks.remove(put_aside)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
def test_what_survives_a_full_collection_is_not_looked_at_again() -> None:
    keep_pauses_short()
    kept = [[number] for number in range(1000)]
    assert any(one is kept[0] for one in gc.get_objects())
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert not any(one is kept[0] for one in gc.get_objects())


@pytest.mark.usefixtures("collector")
def test_it_is_asked_for_once_however_often_a_daemon_starts() -> None:
    keep_pauses_short()
    keep_pauses_short()
    assert gc.callbacks.count(put_aside) == 1


@pytest.mark.usefixtures("collector")
def test_garbage_in_cycles_is_still_collected() -> None:
    keep_pauses_short()
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() >= 1


def test_nothing_is_collected_meanwhile_and_everything_afterwards() -> None:
    with not_collecting():
        assert not gc.isenabled()
        with not_collecting():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()

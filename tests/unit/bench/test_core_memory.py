"""The memory of the state is measured in a process of its own, which has all jobs that were asked for."""

from __future__ import annotations

from bench.core_memory import core_memory


def test_the_state_of_a_small_mix_is_measured() -> None:
    taken = core_memory(40, 200)
    assert isinstance(taken.value, float)
    assert 0.1 < taken.value < 30
    assert taken.detail["pending"] == 200
    assert taken.detail["running"] > 100
    assert taken.detail["bytes_a_job"] > 100

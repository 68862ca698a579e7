"""What srun says of its tasks' ends, and its exit code."""

from __future__ import annotations

import pytest

from cli.srun_report import Ends


def ends(ntasks: int, statuses: dict[int, int], **nodes: str) -> tuple[Ends, list[str]]:
    said: list[str] = []
    found = Ends("42.0", ntasks, say_line=said.append)
    for rank, status in statuses.items():
        found.add(nodes.get(f"r{rank}", "n1"), rank, status)
    return found, said


@pytest.mark.parametrize(
    ("ntasks", "statuses", "code"),
    [
        (2, {0: 0, 1: 0}, 0),
        (2, {0: 3 << 8, 1: 5 << 8}, 5),
        (2, {0: 9, 1: 5 << 8}, 137),
        (2, {0: 9, 1: 15}, 143),
        (2, {0: 0x80 | 11, 1: 0}, 139),
        (2, {0: 0}, 1),
        (2, {0: 7 << 8}, 7),
        (2, {}, 1),
    ],
)
def test_the_exit_code_follows_the_worst_end(ntasks: int, statuses: dict[int, int], code: int) -> None:
    assert ends(ntasks, statuses)[0].code == code


def test_a_failed_launch_is_never_a_success() -> None:
    found, _ = ends(1, {0: 0})
    found.failed_launch = True
    assert found.code == 1


def test_ends_of_one_kind_are_one_line_and_said_once() -> None:
    found, said = ends(5, {0: 256, 1: 256, 3: 256, 4: 0, 2: 512}, r2="n3", r3="n2")
    found.report()
    found.report()
    assert said == [
        "srun: error: n[1-2]: tasks 0-1,3: Exited with exit code 1",
        "srun: error: n3: task 2: Exited with exit code 2",
    ]


def test_a_kill_is_said_with_the_step_once() -> None:
    found, said = ends(2, {0: 9, 1: 0x80 | 11})
    found.report()
    found.add("n1", 2, 15)
    found.report()
    assert said == [
        "srun: error: n1: task 0: Killed",
        "srun: Force Terminated StepId=42.0",
        "srun: error: n1: task 1: Segmentation fault (core dumped)",
        "srun: error: n1: task 2: Terminated",
    ]


def test_the_states_name_who_still_runs() -> None:
    found, _ = ends(4, {1: 0, 2: 256})
    assert found.states() == [
        "srun: StepId=42.0 tasks 0,3: running",
        "srun: StepId=42.0 task 2: exited abnormally",
        "srun: StepId=42.0 task 1: exited",
    ]
    assert (found.running([0, 1]), found.any_ended) == ([0], True)

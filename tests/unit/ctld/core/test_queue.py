from __future__ import annotations

import random

import pytest

from ctld.core.model import Job
from ctld.core.queue import Queue, SortedKeys
from tests.builders import a_job


def test_walks_by_priority_and_then_by_job_id() -> None:
    queue = Queue()
    for job in (a_job(1, priority=5), a_job(2, priority=9), a_job(3, priority=5), a_job(4, priority=9)):
        queue.add(job)
    (members,) = queue.classes.values()
    assert list(members) == [2, 4, 1, 3]
    assert (members.head, len(members)) == (2, 4)


def test_keeps_the_order_of_thousands_through_adds_and_discards() -> None:
    rng = random.Random(7)
    queue = Queue()
    kept: dict[int, Job] = {}
    for job_id in range(1, 5001):
        kept[job_id] = a_job(job_id, priority=rng.choice([1, 5, 9, 2**32 - 1]))
        queue.add(kept[job_id])
        if rng.random() < 0.4:
            gone = rng.choice(list(kept))
            del kept[gone]
            queue.discard(gone)
    (members,) = queue.classes.values()
    assert list(members) == [job.id for job in sorted(kept.values(), key=lambda job: (-job.priority, job.id))]


def test_shapes_are_classes_and_users_only_matter_when_nodes_are_kept_for_one() -> None:
    queue = Queue()
    queue.add(a_job(1, uid=1000))
    queue.add(a_job(2, uid=1001))
    queue.add(a_job(3, uid=1000, ntasks=2))
    queue.add(a_job(4, uid=1000, exclusive="user"))
    queue.add(a_job(5, uid=1001, exclusive="user"))
    assert sorted(list(members) for members in queue.classes.values()) == [[1, 2], [3], [4], [5]]


def test_a_class_keeps_its_number_when_its_shape_comes_back() -> None:
    queue = Queue()
    queue.add(a_job(1))
    (number,) = queue.classes
    queue.discard(1)
    assert not queue.classes
    queue.add(a_job(2))
    assert list(queue.classes) == [number]


def test_adding_again_moves_a_job_to_its_new_place() -> None:
    queue = Queue()
    queue.add(a_job(1, priority=5))
    queue.add(a_job(2, priority=6))
    queue.add(a_job(1, priority=7))
    (members,) = queue.classes.values()
    assert list(members) == [1, 2]
    assert len(queue) == 2


def test_computed_priorities_order_what_nobody_set_by_hand() -> None:
    queue = Queue()
    jobs = [a_job(1, priority=10), a_job(2, priority=9), a_job(3, priority=50, priority_set=True)]
    for job in jobs:
        queue.add(job)
    version = queue.version
    assert queue.reprioritise({1: 20, 2: 70, 3: 99}) == 2
    assert queue.version > version
    (members,) = queue.classes.values()
    assert list(members.pairs()) == [(70, 2), (50, 3), (20, 1)]
    assert [queue.priority(job) for job in jobs] == [20, 70, 50]
    assert queue.reprioritise({1: 20, 2: 70}) == 0


def test_a_job_comes_back_at_its_computed_priority_and_ends_with_it() -> None:
    queue = Queue()
    queue.reprioritise({5: 33})
    queue.add(a_job(5, priority=10))
    assert [list(members.pairs()) for members in queue.classes.values()] == [[(33, 5)]]
    queue.discard(5)
    queue.forget_priority(5)
    queue.add(a_job(5, priority=10))
    assert [list(members.pairs()) for members in queue.classes.values()] == [[(10, 5)]]
    assert queue.priority(a_job(6, priority=0)) == 0


def test_sorted_keys_are_a_sorted_set_in_one_block_and_in_many() -> None:
    dice = random.Random(11)
    for most in (1, 3, 600, 3000):
        keys, kept = SortedKeys(), set[int]()
        for _ in range(3 * most):
            key = dice.randrange(4 * most)
            if key in kept:
                keys.remove(key)
                kept.remove(key)
            elif len(kept) < most:
                keys.insert(key)
                kept.add(key)
            assert len(keys) == len(kept)
            if kept:
                assert keys.least == min(kept)
        assert list(keys) == sorted(kept)
        for key in range(0, 4 * most, 1 + most // 50):
            less = [one for one in kept if one < key]
            assert keys.below(key) == (len(less), max(less, default=-1))
        for absent in (-1, 4 * most):
            with pytest.raises(KeyError):
                keys.remove(absent)
        assert len(keys) == len(kept)
        for key in sorted(kept, key=lambda _: dice.random()):
            keys.remove(key)
        assert (len(keys), list(keys)) == (0, [])
        with pytest.raises(IndexError):
            keys.least  # noqa: B018


def test_classes_of_one_account_share_its_name() -> None:
    queue = Queue()
    queue.apart = True
    queue.add(a_job(1, account="phys"))
    queue.add(a_job(2, account="phys", ntasks=2))
    one, other = queue.classes.values()
    assert one.group is other.group

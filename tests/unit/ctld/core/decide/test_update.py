from __future__ import annotations

import pytest

from ctld.core.cluster import Settings
from ctld.core.commands import COMPUTED, UpdateJob
from ctld.core.model import UNLIMITED, Placement
from muster.errors import Denied, InvalidInput, MusterError, NotFound, Refused
from muster.ids import NO_TASK, JobId, UnixTime
from muster.states import JobState
from tests.builders import ADMIN, OTHER, USER, a_partition
from tests.deciding import Desk
from tests.topologies import a_tree


def test_b13_updating_one_member_splits_it_off_and_leaves_its_siblings() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 4))
    desk.do(UpdateJob(array, USER, tasks=(2, 2), comment="mine", time_limit_minutes=7))
    member = desk.member(array, 2)
    assert (member.id, member.array_job_id, member.array_task_id) == (JobId(2), array, 2)
    assert (member.spec.comment, member.limit_seconds) == ("mine", 420)
    rest = desk.job(array)
    assert (rest.spec.comment, rest.limit_seconds, rest.array_pending) == ("", UNLIMITED, (0, 1, 3, 4))
    # It answers to both ids.
    desk.do(UpdateJob(array, USER, tasks=(2, 2), comment="again"))
    assert desk.job(member.id).spec.comment == "again"
    desk.do(UpdateJob(member.id, USER, comment="and again"))
    assert desk.member(array, 2).spec.comment == "and again"
    assert desk.state.members == 5


def test_b13_the_last_waiting_member_keeps_the_arrays_id() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 1))
    desk.start(array, 0)
    desk.do(UpdateJob(array, USER, tasks=(1, 1), comment="last"))
    assert desk.job(array).spec.comment == "last"
    assert desk.job(array).array_task_id == NO_TASK


def test_a_refused_update_splits_nothing() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 4))
    with pytest.raises(InvalidInput):
        desk.do(UpdateJob(array, USER, tasks=(2, 2), partition="none"))
    assert desk.job(array).array_pending == (0, 4)


def test_an_update_of_the_whole_array_reaches_every_record() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 4))
    running, done = desk.start(array, 0), desk.run(array, task=1)
    desk.do(UpdateJob(array, USER, name="new"))
    assert [desk.job(one).spec.name for one in (array, running, done)] == ["new", "new", "job"]


def test_the_limit_of_running_members_changes_for_all_of_the_array() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 4), array_limit=1)
    running = desk.start(array, 0)
    desk.do(UpdateJob(array, USER, array_limit=3))
    assert desk.job(array).array_limit == desk.job(running).array_limit == 3
    desk.do(UpdateJob(array, USER, array_limit=0))
    assert desk.job(array).array_limit == 0


def test_only_an_array_has_a_limit_of_running_members() -> None:
    desk = Desk()
    job = desk.submit()
    with pytest.raises(Refused, match="no array"):
        desk.do(UpdateJob(job, USER, array_limit=3))


def test_the_owner_changes_the_limit_of_a_waiting_job_both_ways() -> None:
    desk = Desk()
    job = desk.submit(time_limit_minutes=10)
    for minutes, seconds in ((5, 300), (50, 3000), (-1, UNLIMITED)):
        desk.do(UpdateJob(job, USER, time_limit_minutes=minutes))
        assert desk.job(job).limit_seconds == seconds


def test_the_owner_only_lowers_the_limit_of_a_running_job() -> None:
    desk = Desk()
    job = desk.start(desk.submit(time_limit_minutes=10))
    for minutes in (61, -1):
        with pytest.raises(Denied, match="Access/permission denied"):
            desk.do(UpdateJob(job, USER, time_limit_minutes=minutes))
    desk.do(UpdateJob(job, USER, time_limit_minutes=30))
    assert desk.job(job).limit_seconds == 1800
    desk.do(UpdateJob(job, ADMIN, time_limit_minutes=90))
    assert desk.job(job).limit_seconds == 5400


def test_an_enforced_partition_limit_holds_for_the_owner_and_not_for_administrators() -> None:
    desk = Desk(
        settings=Settings(require_registration=False, enforce_part_limits="ALL"),
        partitions=(a_partition(max_minutes=60),),
    )
    job = desk.submit(time_limit_minutes=10)
    with pytest.raises(InvalidInput) as caught:
        desk.do(UpdateJob(job, USER, time_limit_minutes=61))
    assert caught.value.slurm_code == 2051
    desk.do(UpdateJob(job, ADMIN, time_limit_minutes=61))
    assert desk.job(job).limit_seconds == 3660


def test_nice_lowers_the_priority_by_the_difference() -> None:
    desk = Desk()
    job = desk.submit(nice=50)
    before = desk.job(job).priority
    desk.do(UpdateJob(job, USER, nice=150))
    assert desk.job(job).priority == before - 100
    assert desk.job(job).nice == 150
    with pytest.raises(Denied, match="Access/permission denied"):
        desk.do(UpdateJob(job, USER, nice=-1))
    desk.do(UpdateJob(job, ADMIN, nice=-50))
    assert desk.job(job).priority == before + 100


def test_priority_zero_holds_and_only_administrators_give_another() -> None:
    desk = Desk()
    job = desk.submit()
    with pytest.raises(Refused, match="Changes to job priority are not persistent, change nice instead"):
        desk.do(UpdateJob(job, USER, priority=5))
    desk.do(UpdateJob(job, USER, priority=0))
    assert (desk.job(job).hold, desk.job(job).priority) == ("user", 0)
    with pytest.raises(Refused, match="Job is in held state, pending scheduler release"):
        desk.do(UpdateJob(job, USER, priority=5))
    desk.do(UpdateJob(job, ADMIN, priority=5))
    assert (desk.job(job).hold, desk.job(job).priority) == ("", 5)
    assert desk.can_start(job)
    desk.do(UpdateJob(job, ADMIN, priority=9))
    assert desk.job(job).priority == 9


def test_a_begin_time_takes_a_job_out_of_the_queue_and_puts_it_back() -> None:
    desk = Desk()
    job = desk.submit()
    desk.do(UpdateJob(job, USER, begin_at=UnixTime(desk.at + 60)))
    assert not desk.can_start(job)
    desk.do(UpdateJob(job, USER, begin_at=desk.at))
    assert desk.can_start(job)


def test_a_waiting_job_moves_to_another_partition_and_takes_its_default_limit() -> None:
    desk = Desk(partitions=(a_partition(), a_partition("short", default_minutes=5, max_minutes=10)))
    job, asked = desk.submit(), desk.submit(time_limit_minutes=7)
    for one, seconds in ((job, 300), (asked, 420)):
        desk.do(UpdateJob(one, USER, partition="short"))
        assert desk.job(one).spec.partitions == ("short",)
        assert desk.job(one).limit_seconds == seconds


@pytest.mark.parametrize(("name", "code"), [("none", 2000), ("", 2000), ("closed", 2070), ("tiny", 2014)])
def test_a_partition_that_would_not_take_the_job_is_refused(name: str, code: int) -> None:
    desk = Desk(
        partitions=(
            a_partition(),
            a_partition("closed", state="INACTIVE"),
            a_partition("tiny", nodes=()),
        )
    )
    job = desk.submit()
    with pytest.raises(MusterError) as caught:
        desk.do(UpdateJob(job, USER, partition=name))
    assert caught.value.slurm_code == code


@pytest.mark.parametrize("fields", [{"partition": "main"}, {"begin_at": UnixTime(5)}, {"dependency": ""}])
def test_a_running_job_keeps_what_belongs_to_the_queue(fields: dict[str, object]) -> None:
    desk = Desk()
    job = desk.start(desk.submit())
    with pytest.raises(Refused, match="Job is no longer pending execution"):
        desk.do(UpdateJob(job, USER, **fields))  # type: ignore[arg-type]


def test_an_ended_job_keeps_all() -> None:
    desk = Desk()
    job = desk.run(desk.submit())
    with pytest.raises(Refused, match="Job has already finished"):
        desk.do(UpdateJob(job, ADMIN, comment="late"))


def test_unknown_ids_and_others_are_refused() -> None:
    desk = Desk()
    job = desk.submit()
    with pytest.raises(NotFound):
        desk.do(UpdateJob(JobId(9), USER, comment="x"))
    with pytest.raises(Denied) as caught:
        desk.do(UpdateJob(job, OTHER, comment="x"))
    assert caught.value.sentence == "Invalid user id"


def test_requeue_and_texts_change_and_the_same_again_is_no_event() -> None:
    desk = Desk()
    job = desk.submit()
    desk.do(UpdateJob(job, USER, name="n", comment="c", requeue=False))
    spec = desk.job(job).spec
    assert (spec.name, spec.comment, spec.requeue) == ("n", "c", False)
    assert desk.do(UpdateJob(job, USER, name="n", comment="c")) == []
    assert desk.job(job).state == JobState.PENDING


def test_infinite_has_the_priority_computed_again() -> None:
    desk = Desk()
    job = desk.submit()
    before = desk.job(job).priority
    desk.do(UpdateJob(job, ADMIN, priority=9))
    assert (desk.job(job).priority, desk.job(job).priority_set) == (9, True)
    desk.do(UpdateJob(job, ADMIN, priority=COMPUTED))
    assert (desk.job(job).priority, desk.job(job).priority_set) == (before, False)
    with pytest.raises(InvalidInput, match="INFINITE"):
        desk.do(UpdateJob(job, ADMIN, priority=COMPUTED - 1))


def test_only_administrators_set_the_site_factor() -> None:
    desk = Desk()
    job = desk.submit()
    with pytest.raises(Denied, match="Access/permission denied"):
        desk.do(UpdateJob(job, USER, site_factor=5))
    desk.do(UpdateJob(job, ADMIN, site_factor=-5))
    assert desk.job(job).site_factor == -5


def test_where_the_nodes_of_a_waiting_job_lie_can_be_changed() -> None:
    racks = a_tree((2, 2), levels=("spine", "rack"))
    desk = Desk(settings=Settings(require_registration=False, topologies=(racks,)))
    job = desk.submit(nodes_min=2, nodes_max=2, topology="required:rack", prefer="")
    desk.do(
        UpdateJob(job, USER, placement=Placement(topology="", switches=1, switches_wait_seconds=60, contiguous=True))
    )
    request = desk.job(job).spec.request
    assert (request.topology, request.switches, request.switches_wait_seconds) == ("", 1, 60)
    assert (request.contiguous, request.segment, request.nodes_max) == (True, 0, 2)
    with pytest.raises(InvalidInput, match="Requested topology configuration is not available"):
        desk.do(UpdateJob(job, USER, placement=Placement(topology="required:shelf")))
    with pytest.raises(InvalidInput, match="Invalid preferred feature specification"):
        desk.do(UpdateJob(job, USER, placement=Placement(prefer="fast")))
    assert desk.job(job).spec.request == request
    desk.start(job)
    with pytest.raises(Refused, match="no longer pending"):
        desk.do(UpdateJob(job, USER, placement=Placement(switches=2)))

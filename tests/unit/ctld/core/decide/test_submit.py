from __future__ import annotations

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Accounts, Association
from ctld.core.cluster import Node, Settings
from ctld.core.decide.numbering import JobIds, first_priority
from ctld.core.model import GpuRequest
from muster.errors import Denied, InvalidInput, MusterError, Refused
from muster.ids import UnixTime
from muster.states import JobState
from tests.builders import ADMIN, NOON, USER, a_partition, a_state
from tests.deciding import Desk
from tests.topologies import a_tree


def _with(desk: Desk, index: int, **fields: object) -> Node:
    """Give a node of the desk with other configured fields."""
    node = desk.state.nodes[index]
    return replace(node, spec=replace(node.spec, **fields))


def refusal(desk: Desk, **fields: object) -> MusterError:
    before = dict(desk.state.jobs)
    with pytest.raises(MusterError) as caught:
        desk.submit(**fields)  # type: ignore[arg-type]
    assert desk.state.jobs == before
    return caught.value


# What a job starts as.


def test_jobs_wait_in_order_of_submission_unless_they_are_nice() -> None:
    desk = Desk()
    first, second, nice = desk.submit(), desk.submit(), desk.submit(nice=100)
    assert desk.job(first).priority == 4294901759
    assert desk.job(first).priority > desk.job(second).priority > desk.job(nice).priority
    assert desk.job(second).priority - desk.job(nice).priority == 101
    assert (desk.job(first).state, desk.job(first).eligible_at) == (JobState.PENDING, NOON)
    assert desk.can_start(first)


def test_a_job_without_a_partition_gets_the_default_one() -> None:
    desk = Desk(partitions=(a_partition("other"), a_partition("main")))
    assert desk.job(desk.submit(partitions=())).spec.partitions == ("main",)


@pytest.mark.parametrize(
    ("fields", "minutes", "seconds"),
    [
        ({}, 0, -1),
        ({"default_minutes": 5}, 0, 300),
        ({"max_minutes": 60}, 0, 3600),
        ({"default_minutes": 5, "max_minutes": 60}, 0, 300),
        ({"default_minutes": 5}, 7, 420),
        ({"default_minutes": 5}, -1, -1),
    ],
)
def test_the_limit_is_the_jobs_own_or_the_partitions(fields: dict[str, object], minutes: int, seconds: int) -> None:
    desk = Desk(partitions=(a_partition(**fields),))  # type: ignore[arg-type]
    assert desk.job(desk.submit(time_limit_minutes=minutes)).limit_seconds == seconds


def test_a_held_job_has_priority_zero() -> None:
    desk = Desk()
    job = desk.job(desk.submit(hold=True))
    assert (job.priority, job.hold, job.eligible_at) == (0, "user", 0)
    assert desk.job(desk.submit(priority=0)).hold == "user"
    assert desk.job(desk.submit(by=ADMIN, priority=0)).hold == "user"
    assert desk.job(desk.submit(by=ADMIN, priority=0, uid=1000)).hold == "admin"


def test_a_job_with_a_begin_time_is_not_yet_eligible() -> None:
    desk = Desk()
    later = desk.submit(begin_at=UnixTime(NOON + 60))
    assert not desk.can_start(later)
    assert desk.can_start(desk.submit(begin_at=NOON))


def test_an_array_is_one_record() -> None:
    desk = Desk()
    array = desk.submit(array=(0, 999), array_limit=7)
    job = desk.job(array)
    assert (job.array_job_id, job.array_pending, job.array_limit) == (array, (0, 999), 7)
    assert desk.state.members == 1000
    assert desk.submit() == array + 1


# Rights.


@pytest.mark.parametrize(("fields", "code"), [({"priority": 5}, 2002), ({"nice": -1}, 2123)])
def test_only_administrators_push_jobs_ahead(fields: dict[str, int], code: int) -> None:
    desk = Desk()
    with pytest.raises(Denied) as caught:
        desk.submit(**fields)  # type: ignore[arg-type]
    assert caught.value.slurm_code == code
    job = desk.job(desk.submit(by=ADMIN, **fields))  # type: ignore[arg-type]
    assert job.priority == fields.get("priority", first_priority(job.id, -1))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"root_only": True}, 2002),
        ({"allow_groups": ("staff",)}, 2003),
        ({"allow_accounts": ("lab",)}, 2045),
        ({"deny_accounts": ("own",)}, 2045),
        ({"allow_qos": ("high",)}, 2066),
        ({"deny_qos": ("normal",)}, 2066),
    ],
)
def test_a_partition_is_closed_to_those_it_does_not_name(fields: dict[str, object], code: int) -> None:
    desk = Desk(partitions=(a_partition(**fields),))  # type: ignore[arg-type]
    error = refusal(desk, account="own")
    assert error.slurm_code == code
    assert "partition main" in error.hint


def test_a_partition_is_open_to_those_it_names() -> None:
    desk = Desk(
        partitions=(
            a_partition(allow_groups=("ada",), allow_accounts=("lab",), deny_accounts=("lab",), allow_qos=("normal",)),
        )
    )
    assert desk.can_start(desk.submit(account="lab"))


def test_a_list_of_accounts_is_meant_for_those_below_them_too() -> None:
    tree = (Association(1, "root"), Association(2, "lab", parent_id=1), Association(3, "own", parent_id=2))
    desk = Desk(partitions=(a_partition(allow_accounts=("lab",)), a_partition("shut", deny_accounts=("lab",))))
    desk.state.accounts = Accounts((*tree, Association(4, "own", parent_id=3, user="ada")))
    assert desk.can_start(desk.submit(account="own"))
    assert refusal(desk, account="own", partitions=("shut",)).slurm_code == 2045


def test_a_second_group_of_the_owner_opens_a_partition() -> None:
    desk = Desk(partitions=(a_partition(allow_groups=("staff",)),))
    assert desk.can_start(desk.submit(by=replace(USER, groups=("users", "staff"))))


def test_jobs_of_root_are_taken_unless_the_partition_says_otherwise() -> None:
    desk = Desk(partitions=(a_partition(), a_partition("users", disable_root_jobs=True)))
    assert desk.can_start(desk.submit(by=ADMIN))
    assert refusal(desk, by=ADMIN, partitions=("users",)).slurm_code == 2002
    assert desk.can_start(desk.submit(partitions=("users",)))


# Partitions.


def test_an_unknown_partition_is_named_with_those_that_exist() -> None:
    desk = Desk(partitions=(a_partition(), a_partition("debug"), a_partition("secret", hidden=True)))
    error = refusal(desk, partitions=("gpuu",))
    assert (error.sentence, error.slurm_code) == ("Invalid partition name specified", 2000)
    assert error.hint == "invalid partition specified: gpuu (there are: debug, main)"


def test_without_a_default_partition_one_must_be_named() -> None:
    desk = Desk(partitions=(a_partition("debug"),))
    error = refusal(desk, partitions=())
    assert error.sentence == "No partition specified or system default partition"
    assert "debug" in error.hint


@pytest.mark.parametrize(("state", "taken"), [("UP", True), ("DOWN", True), ("DRAIN", False), ("INACTIVE", False)])
def test_a_partition_takes_jobs_by_its_state(state: str, taken: bool) -> None:
    desk = Desk(partitions=(a_partition(state=state),))
    if taken:
        assert desk.submit()
    else:
        error = refusal(desk)
        assert error.sentence == "Required partition not available (inactive or drain)"


def test_of_several_partitions_one_that_takes_jobs_is_enough() -> None:
    desk = Desk(partitions=(a_partition(state="DRAIN"), a_partition("other")))
    assert desk.submit(partitions=("main", "other"))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"time_limit_minutes": 61}, 2051),
        ({"time_limit_minutes": -1}, 2051),
        ({"nodes_min": 3}, 2006),
        ({"nodes_max": 1}, 2006),
        ({"memory_per_node_mib": 2000}, 2044),
        ({"memory_per_cpu_mib": 500, "cpus_per_task": 4}, 2044),
    ],
)
def test_limits_of_a_partition_refuse_only_where_they_are_enforced(fields: dict[str, int], code: int) -> None:
    tight = a_partition(max_minutes=60, min_nodes=2, max_nodes=2, max_memory_per_node_mib=1000)
    fields = {"nodes_min": 2, **fields}
    for mode in ("ALL", "ANY"):
        settings = Settings(require_registration=False, enforce_part_limits=mode)
        assert refusal(Desk(settings=settings, partitions=(tight,)), **fields).slurm_code == code
    loose = Settings(require_registration=False, enforce_part_limits="ANY")
    assert Desk(settings=loose, partitions=(tight, a_partition("other"))).submit(
        partitions=("main", "other"),
        **fields,  # type: ignore[arg-type]
    )
    assert Desk(partitions=(tight,)).submit(**fields)  # type: ignore[arg-type]


# Counts and arrays.


def test_an_array_counts_each_member_against_max_job_count() -> None:
    desk = Desk(settings=Settings(require_registration=False, max_job_count=10))
    desk.submit(array=(0, 5))
    error = refusal(desk, array=(0, 4))
    assert isinstance(error, Refused)
    assert (error.sentence, error.slurm_code) == ("MaxJobCount limit reached", 2007)
    assert "6 jobs are in memory" in error.hint
    desk.submit(array=(0, 3))
    assert refusal(desk).slurm_code == 2007


def test_n11_an_index_over_the_limit_is_refused() -> None:
    desk = Desk(settings=Settings(require_registration=False, max_array_size=10))
    assert desk.submit(array=(0, 9))
    error = refusal(desk, array=(0, 10))
    assert (error.sentence, error.slurm_code) == ("Invalid job array specification", 2081)
    assert "MaxArraySize=10" in error.hint


def test_only_batch_jobs_are_arrays() -> None:
    assert refusal(Desk(), array=(0, 1), batch=False).slurm_code == 2039


# What no node can ever give.


def test_more_cpus_than_any_node_has_names_the_nearest() -> None:
    desk = Desk()
    error = refusal(desk, min_cpus=100_001)
    assert (error.sentence, error.slurm_code) == ("Requested node configuration is not available", 2014)
    assert error.hint == (
        "CPU count per node can not be satisfied: no node of partition main is large enough; "
        "the nearest, n1, has 100000 CPUs of 100001"
    )


def test_more_memory_than_any_node_has() -> None:
    error = refusal(Desk(), memory_per_node_mib=256_001)
    assert error.slurm_code == 2014
    assert error.hint.startswith("Memory specification can not be satisfied: ")


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus_per_node": (GpuRequest("", 9),)},
        {"gpus_per_task": (GpuRequest("", 5),), "ntasks": 2, "nodes_max": 1},
        {"gpus": (GpuRequest("", 9),), "nodes_max": 1},
        {"gpus": (GpuRequest("", 33),)},
        {"gpus_per_node": (GpuRequest("a100", 1),)},
        {"ntasks": 200_001, "nodes_max": 2},
        {"ntasks_per_node": 100_001},
        {"tmp_mib": 1},
        {"memory_per_gpu_mib": 100_000, "gpus_per_node": (GpuRequest("", 4),)},
        {"cpus_per_gpu": 20_000, "gpus_per_node": (GpuRequest("", 8),)},
        {"nodelist": ("n2",), "nodes_max": 1, "min_cpus": 100_001},
    ],
)
def test_what_no_node_can_give_is_refused_at_submission(fields: dict[str, object]) -> None:
    error = refusal(Desk(), **fields)
    assert error.slurm_code == 2014
    assert error.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus_per_node": (GpuRequest("", 8),), "nodes_min": 4},
        {"gpus": (GpuRequest("", 32),)},
        {"ntasks": 400_001},
        {"nodes_min": 5},
        {"min_cpus": 100_000},
        {"ntasks_per_node": 100_001, "overcommit": True},
        {"nodelist": ("n1", "n2"), "nodes_min": 2},
    ],
)
def test_what_may_run_some_day_is_taken(fields: dict[str, object]) -> None:
    assert Desk().submit(**fields)  # type: ignore[arg-type]


def test_too_few_nodes_that_could_serve_are_counted() -> None:
    desk = Desk(partitions=(a_partition(), a_partition("one", nodes=(0,))))
    for index in (2, 3):
        desk.state.nodes[index] = _with(desk, index, gpus=())
    error = refusal(desk, gpus_per_node=(GpuRequest("", 1),), nodes_min=3)
    assert error.hint == "only 2 nodes of partition main could serve, 3 are asked for"


def test_an_unknown_gpu_type_names_those_there_are() -> None:
    desk = Desk()
    desk.state.nodes[1] = _with(desk, 1, gpus=("h100", "h100"))
    error = refusal(desk, gpus_per_node=(GpuRequest("a100", 1),))
    assert error.hint == "no node of partition main has GPUs of type a100; there are h100"


def test_unknown_nodes_and_features_are_named() -> None:
    desk = Desk()
    desk.state.nodes[0] = _with(desk, 0, features=("avx", "ib"))
    assert refusal(desk, nodelist=("n9",)).slurm_code == 2018
    assert "n9" in refusal(desk, exclude=("n9",)).hint
    assert refusal(desk, nodelist=("n1",), exclude=("n1",)).slurm_code == 2018
    error = refusal(desk, constraint="avx&nope")
    assert (error.sentence, error.hint) == (
        "Invalid feature specification",
        "no node has the feature nope; the nodes have avx, ib",
    )
    assert refusal(desk, constraint="avx&&").slurm_code == 2029
    assert desk.submit(constraint="avx&ib")


def test_an_administrator_may_let_jobs_ask_for_features_that_come_later() -> None:
    desk = Desk(settings=Settings(require_registration=False, any_constraint=True, any_prefer=True))
    assert desk.submit(constraint="avx&ib", prefer="fast")
    assert refusal(desk, constraint="avx&&").slurm_code == 2029
    assert refusal(desk, prefer="fast|").slurm_code == 2133


def test_features_that_no_node_has_together_are_refused() -> None:
    desk = Desk()
    desk.state.nodes[0] = _with(desk, 0, features=("avx",))
    desk.state.nodes[1] = _with(desk, 1, features=("ib",))
    error = refusal(desk, constraint="avx&ib")
    assert error.hint == "no node of partition main has the features avx&ib"
    assert desk.submit(constraint="avx|ib")


def test_a_named_node_outside_of_the_partition_is_refused() -> None:
    desk = Desk(partitions=(a_partition(nodes=2),))
    error = refusal(desk, nodelist=("n3",))
    assert (error.sentence, error.slurm_code) == ("Requested nodes not in this partition", 2004)


def test_one_of_several_partitions_that_fits_is_enough() -> None:
    desk = Desk(partitions=(a_partition(), a_partition("small", nodes=(0,))))
    desk.state.nodes[0] = _with(desk, 0, gpus=())
    assert desk.submit(partitions=("small", "main"), gpus_per_node=(GpuRequest("", 1),))
    assert refusal(desk, partitions=("small",), gpus_per_node=(GpuRequest("", 1),)).slurm_code == 2014


# Ids.


def test_ids_wrap_and_skip_those_in_memory() -> None:
    desk = Desk(settings=Settings(require_registration=False, first_job_id=5, max_job_id=7))
    assert [desk.submit() for _ in range(3)] == [5, 6, 7]
    with pytest.raises(Refused, match="MaxJobCount limit reached"):
        desk.submit()
    desk.state.jobs.pop(6)
    assert desk.submit() == 6


def test_ids_taken_at_once_differ() -> None:
    ids = JobIds(a_state())
    ids.note(2)
    assert [ids.take() for _ in range(3)] == [1, 3, 4]


def test_a_dependency_that_is_wrong_is_an_error_of_the_request() -> None:
    assert isinstance(refusal(Desk(), dependency="x:1"), InvalidInput)
    assert refusal(Desk(), by=USER, dependency="afterok:1").slurm_code == 2038


# Where nodes lie.


def _in_racks() -> Desk:
    """Nodes n1 to n4 in one rack, n5 to n8 in another, partitions main and (n1, n2, n5) small."""
    racks = a_tree((4, 4), levels=("spine", "rack"))
    settings = Settings(require_registration=False, topologies=(racks,))
    partitions = (a_partition("main", nodes=8), a_partition("small", nodes=(0, 1, 4)))
    return Desk(8, settings=settings, partitions=partitions)


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        (
            {"topology": "required:shelf"},
            "topology default has no level 'shelf'; its levels are 0 to 1 (0 the finest) or rack, spine",
        ),
        (
            {"topology": "required:rack", "nodes_min": 5},
            "--topology=required:rack cannot have 5 nodes: the largest domain of that level has 4 of partition main",
        ),
        (
            {"topology": "required:rack", "nodes_min": 3, "partitions": ("small",)},
            "--topology=required:rack cannot have 3 nodes: the largest domain of that level has 2 of partition small",
        ),
        (
            {"segment": 3, "nodes_min": 8},
            "--segment=3 does not fit the job size (8): node count must be evenly divisible by segment size",
        ),
        (
            {"segment": 6, "segment_level": "rack", "nodes_min": 6},
            "--segment=6:required:rack cannot have 6 nodes: the largest domain of that level has 4 of partition main",
        ),
    ],
)
def test_what_no_topology_can_give_is_refused(fields: dict[str, object], hint: str) -> None:
    error = refusal(_in_racks(), **fields)
    assert (error.sentence, error.hint) == ("Requested topology configuration is not available", hint)


def test_one_partition_whose_topology_can_give_it_is_enough() -> None:
    desk = _in_racks()
    assert desk.submit(topology="required:rack", nodes_min=3, partitions=("small", "main"))
    assert desk.submit(topology="preferred:rack", nodes_min=5)
    assert desk.submit(topology="required:spine", nodes_min=8)
    assert desk.submit(segment=4, nodes_min=8)
    assert desk.submit(switches=1, nodes_min=8)  # That is waited for, and then not.


def test_without_a_topology_there_are_no_levels_and_no_segments() -> None:
    desk = Desk()
    error = refusal(desk, topology="preferred:rack")
    assert error.hint == "topology default is flat and has no levels, 'rack' is asked for"
    error = refusal(desk, segment=2, nodes_min=2)
    assert error.hint == "partition main has no topology, and so no segments: leave --segment out"
    assert desk.submit(switches=1, nodes_min=4)


def test_liked_features_that_no_node_has_are_refused() -> None:
    desk = Desk()
    desk.state.nodes[0] = _with(desk, 0, features=("avx",))
    error = refusal(desk, prefer="avx|nope")
    assert (error.sentence, error.hint) == (
        "Invalid preferred feature specification",
        "no node has the feature nope; the nodes have avx",
    )
    assert refusal(desk, prefer="avx&&").slurm_code == 2133
    assert desk.submit(prefer="avx")

"""sprio against a served state: layouts, filters, and that the factors add up to what squeue shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ctld.core.accounts import Accounts, Association, Qos
from ctld.core.apply.indexes import put, rebuild
from ctld.core.cluster import PrioritySettings, Settings
from ctld.core.state import State
from muster.ids import UnixTime
from tests.builders import NOON, a_job, a_partition, a_state
from tests.served import Served, StandingClock, run, served

DAY = 86400
WEIGHTS = PrioritySettings(age=1000, job_size=1000, fairshare=500, qos=100, tres={"cpu": 10.0, "gres/gpu": 2.5})
TREE = (
    Association(1, "root"),
    Association(2, "physics", parent_id=1),
    Association(3, "physics", parent_id=2, user="ada"),
)


def a_cluster(settings: PrioritySettings) -> State:
    partitions = (a_partition(), a_partition("gpu", priority_job_factor=1))
    state = a_state(settings=Settings(require_registration=False, priority=settings), partitions=partitions)
    state.accounts = Accounts(TREE, (Qos(1, "normal"), Qos(2, "high", priority=10)))
    rebuild(state)
    week = {"submitted_at": NOON - 7 * DAY, "account": "physics"}
    jobs = [
        a_job(101, **week, qos="high", nodes_min=2, ntasks=64),  # type: ignore[arg-type]
        a_job(102, nice=-5, site_factor=7, uid=1001, user="bob", partitions=("gpu",)),
        a_job(103, array=(0, 9), partitions=("main", "gpu"), account="physics"),
        a_job(104, priority=777, priority_set=True),
        replace(a_job(105, priority=0), hold="user"),
        replace(a_job(106), eligible_at=UnixTime(0), begin_at=UnixTime(NOON + 60)),
    ]
    for job in jobs:
        put(state, None, job)
    return state


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(a_cluster(WEIGHTS), tmp_path_factory.mktemp("sprio"), clock=StandingClock(NOON)) as serving:
        yield serving


def test_the_default_layout_has_a_column_for_each_weight(cluster: Served) -> None:
    assert cluster.out("sprio", "-j", "101,102").splitlines() == [
        "          JOBID PARTITION   PRIORITY       SITE        AGE  "
        "FAIRSHARE    JOBSIZE        QOS TRES                ",
        "            101 main            1977          0       1000  "
        "      500        375        100 cpu=2,gres/gpu=0    ",
        "            102 gpu              138          7          0  "
        "        0        127          0 cpu=0,gres/gpu=0    ",
    ]


def test_the_terms_add_up_to_what_squeue_shows(cluster: Served) -> None:
    shown = dict(line.split() for line in cluster.out("squeue", "-h", "-o", "%A %Q").splitlines())
    for line in cluster.out("sprio", "-h", "-o", "%i %Y %A %F %J %Q %N %S").splitlines():
        number, priority, *terms, nice, site = line.split()
        if number == "104":
            assert (priority, set(terms)) == ("777", {"0"})
            continue
        assert shown[number.partition("_")[0]] == priority
        assert abs(int(priority) - sum(map(int, terms)) + int(nice) - int(site)) <= 3


def test_each_partition_has_a_row_and_held_jobs_have_none(cluster: Served) -> None:
    rows = [line.split() for line in cluster.out("sprio", "-h", "-o", "%i %r %u").splitlines()]
    assert rows == [
        ["101", "main", "ada"],
        ["102", "gpu", "bob"],
        ["103_[0-9]", "main", "ada"],
        ["103_[0-9]", "gpu", "ada"],
        ["104", "main", "ada"],
        ["106", "main", "ada"],
    ]


def test_long_and_normalized_layouts(cluster: Served) -> None:
    assert cluster.out("sprio", "-l", "-j", "101").splitlines() == [
        "          JOBID PARTITION     USER  ACCOUNT   PRIORITY       SITE        AGE      ASSOC  FAIRSHARE    JOBSIZE"
        "  PARTITION    QOSNAME        QOS        NICE                 TRES",
        "            101 main           ada  physics       1977          0       1000          0        500        375"
        "          0       high        100           0     cpu=2,gres/gpu=0",
    ]
    assert cluster.out("sprio", "-n", "-j", "101").splitlines() == [
        "          JOBID PARTITION   PRIORITY       SITE        AGE  "
        "FAIRSHARE    JOBSIZE        QOS TRES                ",
        "            101 main      0.00000046          0  1.0000000  "
        "1.0000000  0.3750000  1.0000000 cpu=0.25,gres/gpu=0.",
    ]


def test_weights_are_one_line(cluster: Served) -> None:
    assert cluster.out("sprio", "-w").splitlines() == [
        "          JOBID PARTITION   PRIORITY       SITE        AGE  "
        "FAIRSHARE    JOBSIZE        QOS TRES                ",
        "        Weights                               1       1000  "
        "      500       1000        100 cpu=10,gres/gpu=2.5 ",
    ]


def test_filters_and_sorting(cluster: Served) -> None:
    def ids(*words: str, **environment: str) -> list[str]:
        return cluster.out("sprio", "-h", "-o", "%i", *words, **environment).split()

    assert ids("-p", "gpu") == ["102", "103_[0-9]", "103_[0-9]"]
    assert ids("-u", "1001") == ["102"]
    assert ids("-S", "-Y")[:2] == ["101", "104"]
    assert ids("-S", "u,-i")[0] == "106"
    assert ids("-j", "9999") == []
    # So many travel in the body of the question.
    assert ids("-j", ",".join(["102", *map(str, range(2000, 5000))])) == ["102"]
    assert cluster.out("sprio", "-j", "9999", "-o", "%i") == "JOBID\n"
    assert cluster.out("sprio", "-h", "-j", "102", SPRIO_FORMAT="%.5i|%c|%s") == "  102|cluster|(null)\n"
    assert cluster.out("sprio", "-M", "cluster", "-h", "-j", "102", "-o", "%i") == "102\n"


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        (["-j", "abc"], 1, ["sprio: error: Invalid job id: abc"]),
        (["-S", "!"], 1, ["sprio: error: Invalid sort specification: !"]),
        (["-u", "nobody-such"], 1, ["sprio: error: Invalid user: nobody-such"]),
        (["--json"], 1, ["sprio: unrecognized option '--json'", 'Try "sprio --help" for more information']),
        (["-l", "-o", "%i"], 1, ["sprio: fatal: Options -o(--format) and -l(--long) are incompatible."]),
        (["--federation"], 1, ["sprio: error: --federation is not supported by this release of Muster"]),
        (["extra"], 1, ["sprio: error: Unrecognized option: extra"]),
    ],
)
def test_wrong_questions_are_told(cluster: Served, words: list[str], code: int, lines: list[str]) -> None:
    done = cluster.run("sprio", *words)
    assert (done.returncode, done.stderr.splitlines()) == (code, lines)


def test_it_tells_of_itself(cluster: Served) -> None:
    assert cluster.out("sprio", "--usage").startswith("Usage: sprio [-j jid[s]]")
    assert "-w, --weights" in cluster.out("sprio", "--help")
    assert cluster.out("sprio", "-V").startswith("slurm 26.05")


def test_without_weights_or_with_basic_priorities(tmp_path: Path) -> None:
    with served(a_cluster(PrioritySettings()), tmp_path, clock=StandingClock(NOON)) as serving:
        shown = dict(line.split() for line in serving.out("squeue", "-h", "-o", "%A %Q").splitlines())
        lines = serving.out("sprio", "-h").splitlines()
        assert [line.split()[2] for line in lines if line.split()[0] == "102"] == [shown["102"]]
    (tmp_path / "basic").mkdir()
    with served(a_cluster(PrioritySettings(multifactor=False)), tmp_path / "basic") as serving:
        done = serving.run("sprio")
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "You are not running a supported priority plugin",
            "(priority/basic).",
            "Only 'priority/multifactor' is supported.",
        ]


def test_without_a_controller(tmp_path: Path) -> None:
    done = run("sprio", socket=tmp_path / "none")
    assert done.returncode == 255
    assert done.stderr.startswith("Couldn't get priority factors from controller: Unable to contact slurm controller")

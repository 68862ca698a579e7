"""scontrol create, update, delete and show reservation, sinfo -T: texts byte for byte, against a served state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctld.core.model import Caller
from ctld.core.reservations import Reservation
from ctld.services import reservations
from tests.builders import a_state
from tests.serving import Ran, Served, serving

UTC = {"TZ": "UTC"}
ROOT = Caller(uid=0, gid=0, admin=True, host="here")
SOMEBODY = Caller(uid=1000, gid=1000, host="here")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, a_state(4, cpus=8, gpus=2)) as found:
        found.door.add(reservations.listing(found.store, found.clock))
        found.caller = ROOT
        yield found


def scontrol(served: Served, *words: str) -> Ran:
    return served.run("scontrol", *words, env=UTC)


def made(served: Served, *words: str) -> Reservation:
    done = scontrol(served, "create", "reservation", *words)
    assert done.code == 0, done
    assert done.out.startswith("Reservation created: ")
    return served.state.reservations[done.out.removeprefix("Reservation created: ").strip()]


FROM = ("StartTime=2096-10-02T16:00:00", "Duration=120")


def test_a_reservation_reads_as_slurms_example(served: Served) -> None:
    made(
        served, "ReservationName=fix", *FROM, "Nodes=ALL", "Users=root", "Flags=maint,ignore_jobs", "Comment=new disks"
    )
    assert scontrol(served, "show", "res", "fix").out == (
        "ReservationName=fix StartTime=2096-10-02T16:00:00 EndTime=2096-10-02T18:00:00 Duration=02:00:00\n"
        "   Nodes=n[1-4] NodeCnt=4 CoreCnt=32 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES\n"
        "   TRES=cpu=32\n"
        "   AllowedPartitions=(null) QOS=(null)\n"
        "   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)\n"
        "   MaxStartDelay=(null)\n"
        "   Comment=new disks\n\n"
    )
    line = scontrol(served, "-o", "show", "reservations").out
    assert line.count("\n") == 1 and " Nodes=n[1-4] NodeCnt=4 " in line


def test_a_core_reservation_has_a_line_for_each_node(served: Served) -> None:
    made(served, "res=c", *FROM, "NodeCnt=2", "CoreCnt=4", "Users=root")
    shown = scontrol(served, "show", "res", "c").out
    assert (
        "CoreCnt=4 Features=(null) PartitionName=(null) Flags=\n"
        "     NodeName=n1 CoreIDs=0-1\n     NodeName=n2 CoreIDs=0-1\n   TRES=cpu=4\n"
    ) in shown


def test_names_are_made_of_who_and_a_number(served: Served) -> None:
    assert made(served, *FROM, "NodeCnt=1", "Users=root").name == "root_1"
    assert made(served, *FROM, "NodeCnt=1", "Users=root").name == "root_2"
    assert made(served, *FROM, "NodeCnt=1", "Accounts=physics,maths").name == "physics_3"


def test_create_in_all_its_forms(served: Served) -> None:
    for words in (("create", "ReservationName=a"), ("create", "res", "ReservationName=b"), ("cre", "res=c")):
        done = scontrol(served, *words, *FROM, "Nodes=n1", "Flags=OVERLAP", "Users=root")
        assert done == (0, f"Reservation created: {words[-1][-1]}\n", "")
    floating = made(served, "StartTime=now+60minutes", "Duration=30", "NodeCnt=1", "Users=root", "Flags=TIME_FLOAT")
    assert floating.float_seconds == 3600
    endless = made(served, "StartTime=2096-10-02T20:00:00", "Duration=UNLIMITED", "Nodes=n4", "Users=root")
    assert "Duration=365-00:00:00" in scontrol(served, "show", "res", endless.name).out
    gpus = made(served, *FROM, "TRES=gres/gpu=2", "Users=root", "Flags=OVERLAP,PURGE_COMP=10")
    assert (gpus.parts[0].gpus, gpus.purge_seconds) == ((0, 1), 600)
    assert "Flags=OVERLAP,PURGE_COMP=00:10:00" in scontrol(served, "show", "res", gpus.name).out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["Duration=1", "Nodes=n1", "Users=root"],
         "scontrol: error: A start time must be given.  No reservation created."),
        (
            ["StartTime=now", "Nodes=n1", "Users=root"],
            "scontrol: error: An end time or duration must be given.  No reservation created.",
        ),
        (
            [*FROM, "Users=root"],
            "scontrol: error: CoreCnt, Nodes, NodeCnt, TRES or Watts must be specified.  No reservation created.",
        ),
        (
            [*FROM, "Nodes=n1"],
            "scontrol: error: Either Users/Groups, AllowedPartitions, QOS and/or Accounts must be specified."
            "  No reservation created.",
        ),
        ([*FROM, "Nodes=n1", "Colour=red"], "scontrol: error: Unknown parameter Colour=red.  No reservation created."),
        (
            [*FROM, "Nodes=n1", "Users=root", "MaxStartDelay=5"],
            "scontrol: error: MaxStartDelay is not supported by this release of Muster.  No reservation created.",
        ),
        ([*FROM, "Nodes=n9", "Users=root"], "Error creating the reservation: Invalid node name specified"),
        ([*FROM, "NodeCnt=5", "Users=root"], "Error creating the reservation: Requested nodes are busy"),
        (
            [*FROM, "NodeCnt=1", "Features=big", "Users=root"],
            "Error creating the reservation: Requested node configuration is not available",
        ),
        ([*FROM, "Nodes=n1", "Users=nosuchuser"], "Error creating the reservation: Unspecified error"),
        ([*FROM, "Nodes=n1", "Users=root,-bin"], "Error creating the reservation: Requested reservation is invalid"),
        (
            [*FROM, "Nodes=n1", "Users=root", "Groups=root"],
            "Error creating the reservation: Reservations can't have users and groups specified, only one or the other",
        ),
        (
            [*FROM, "Nodes=n[1-2]", "CoreCnt=1", "Users=root"],
            "Error creating the reservation: Core count for reservation node list is not consistent!",
        ),
        ([*FROM, "Nodes=n1", "Users=root", "Flags=FORCE_START"],
         "Error creating the reservation: Requested operation not supported on this system"),
        ([*FROM, "Nodes=n1", "Users=root", "Flags=NONSENSE"],
         "Error creating the reservation: Requested reservation is invalid"),
        (["StartTime=2020-01-01", "Duration=5", "Nodes=n1", "Users=root"],
         "Error creating the reservation: Invalid time specified"),
        ([*FROM, "Nodes=n1", "AllowedPartitions=none"],
         "Error creating the reservation: Invalid partition name specified"),
        (
            [*FROM, "Licenses=matlab:2", "Flags=LICENSE_ONLY", "Users=root"],
            "Error creating the reservation: Invalid license specification",
        ),
        ([*FROM, "ReservationName=x", "Nodes=n4", "Users=root"],
         "Error creating the reservation: Duplicate reservation name"),
        (
            [*FROM, "Nodes=n4", "Users=root"],
            "Error creating the reservation: Requested reservation overlaps with another reservation",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_slurms_words(served: Served, words: list[str], error: str) -> None:
    made(served, "ReservationName=x", *FROM, "Nodes=n4", "Users=root", "Flags=OVERLAP")
    done = scontrol(served, "create", "reservation", *words)
    assert (done.code, done.out, done.lines[0]) == (1, "", error)
    assert list(served.state.reservations) == ["x"]


def test_only_administrators_make_change_and_delete(served: Served) -> None:
    made(served, "ReservationName=x", *FROM, "Nodes=n4", "Users=root")
    served.caller = SOMEBODY
    assert scontrol(served, "create", "res", *FROM, "Nodes=n1", "Users=root") == (
        1, "", "Error creating the reservation: Invalid user id\n",
    )  # fmt: skip
    assert scontrol(served, "update", "ReservationName=x", "Duration=5") == (
        1, "", "slurm_update error: Invalid user id\n",
    )  # fmt: skip
    assert scontrol(served, "delete", "reservation", "x") == (
        1, "", "delete_reservation reservation x: Invalid user id\n",
    )  # fmt: skip


def test_update_says_so_and_changes_what_is_named(served: Served) -> None:
    made(served, "ReservationName=x", *FROM, "Nodes=n4", "Users=root")
    done = scontrol(served, "update", "ReservationName=x", "Duration=30", "Users+=1000", "Flags=FLEX", "Comment=later")
    assert done == (0, "Reservation updated.\n", "")
    one = served.state.reservations["x"]
    assert (one.end_at - one.start_at, one.users.names, one.flags, one.comment) == (
        1800, ("root", "1000"), ("FLEX", "SPEC_NODES"), "later",
    )  # fmt: skip
    assert scontrol(served, "update", "res=x", "Users-=root", "Flags-=FLEX", "Nodes=n[1-2]").code == 0
    one = served.state.reservations["x"]
    assert (one.users.names, one.flags, one.nodes) == (("1000",), ("SPEC_NODES",), (0, 1))
    assert scontrol(served, "update", "ReservationName=no", "Duration=5").lines[0] == (
        "slurm_update error: Requested reservation is invalid"
    )
    assert scontrol(served, "update", "ReservationName=x", "Colour=5").lines == [
        "scontrol: error: Unknown parameter Colour=5.  No reservation update."
    ]
    assert scontrol(served, "update", "ReservationName=x", "Skip=yes").lines[0] == (
        "slurm_update error: Reservation given is not skipable, try deleting instead"
    )


def test_delete_in_all_its_forms(served: Served) -> None:
    for number, words in enumerate((["ReservationName=x"], ["reservation=x"], ["reservation", "x"])):
        made(served, "ReservationName=x", *FROM, "Nodes=n4", "Users=root")
        assert scontrol(served, "delete", *words) == (0, "", ""), number
    assert scontrol(served, "delete", "ReservationName=x").lines[0] == (
        "delete_reservation ReservationName=x: Requested reservation is invalid"
    )
    assert scontrol(served, "delete", "colour=x").lines == ["Invalid deletion entity: colour=x"]
    assert scontrol(served, "create", "colour=x").lines == ["scontrol: error: Invalid creation entity: colour=x"]
    assert scontrol(served, "delete").lines == ["too few arguments for delete keyword"]


def test_sinfo_lists_them_in_columns(served: Served) -> None:
    made(served, "ReservationName=a_long_name", *FROM, "Nodes=n[1-2]", "Users=root")
    made(served, "ReservationName=b", "StartTime=now", "Duration=1-00:00:00", "Nodes=n3", "Users=root")
    lines = served.run("sinfo", "-T", env=UTC).out.splitlines()
    assert lines[0] == "RESV_NAME       STATE           START_TIME             END_TIME     DURATION  NODELIST"
    assert lines[1] == "a_long_name  INACTIVE  2096-10-02T16:00:00  2096-10-02T18:00:00     02:00:00  n[1-2]"
    assert lines[2].split()[:2] == ["b", "ACTIVE"] and lines[2].endswith("   1-00:00:00  n3")


def test_a_job_shows_and_changes_its_reservation(served: Served, tmp_path: Path) -> None:
    made(served, "ReservationName=r", *FROM, "Nodes=n4", "Users=root")
    served.caller = SOMEBODY
    done = served.run("sbatch", "--reservation=r", "--wrap", "x", cwd=tmp_path)
    assert done.lines[0] == "sbatch: error: Batch job submission failed: Access denied to requested reservation"
    served.caller = ROOT
    assert served.run("sbatch", "--reservation=r", "--wrap", "x", cwd=tmp_path).code == 0
    assert scontrol(served, "delete", "reservation", "r").lines[0] == (
        "delete_reservation reservation r: Requested reservation is in use"
    )
    assert scontrol(served, "update", "job", "1", "ReservationName=none").lines[0] == (
        "Requested reservation is invalid for job 1"
    )
    assert scontrol(served, "update", "job", "1", "ReservationName=").code == 0
    assert scontrol(served, "delete", "reservation", "r").code == 0
    assert served.run("scancel", "--reservation=r").code == 0
    assert served.job(1).state == 0

"""Cases from the field, distilled from public reports about Slurm and its clients: what must come out, by real
commands.

The numbers N-xx are those of the project's list of cases.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from muster.errors import InvalidInput
from tests.e2e.conftest import User, acting_as, running, until

LIMIT_FORMS = {
    "10": ("10:00", "00:10:00"),
    "4:00": ("4:00", "00:04:00"),
    "1:30:00": ("1:30:00", "01:30:00"),
    "2-12": ("2-12:00:00", "2-12:00:00"),
    "2-12:30": ("2-12:30:00", "2-12:30:00"),
    "1-00:00:00": ("1-00:00:00", "1-00:00:00"),
}
"""As given; as squeue shows it; as scontrol shows it."""

PLAN = Plan(
    nodes=2,
    cpus=8,
    memory_mib=16000,
    gpus="h200:4",
    extra="\n".join(
        [
            "KillWait=2",
            "MaxArraySize=1001",
            "PartitionName=gpu Default=YES Nodes=ALL MaxTime=UNLIMITED State=UP",
            *(f"PartitionName=p{place} Nodes=ALL MaxTime={form}" for place, form in enumerate(LIMIT_FORMS)),
        ]
    ),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes, six partitions with the six forms of a time limit, and the usual largest array index."""
    yield from running(PLAN)


def shown(user: User, job: int | str) -> dict[str, str]:
    """Give the fields of `scontrol -o show job`; a value with blanks is cut at the first."""
    words = user.ok("scontrol", "-o", "show", "job", str(job)).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def cancel(user: User, *jobs: int) -> None:
    """Cancel what a test left behind."""
    user.ok("scancel", *map(str, jobs))


def output(user: User, job: int, name: str = "slurm-%j.out") -> str:
    """Wait until a job has completed and give what it wrote."""
    assert user.ended(job) == "COMPLETED", user.describe()
    return (user.folder / name.replace("%j", str(job))).read_text()


def test_n01_the_command_line_wins_over_environment_and_script(user: User) -> None:
    (user.folder / "job.sh").write_text("#!/bin/sh\n#SBATCH --nodes=4\n#SBATCH -J inner\ntrue\n")
    named = {"SBATCH_JOB_NAME": "env"}
    job = int(user.ok("sbatch", "--parsable", "--hold", "--nodes=2", "job.sh", env=named))
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%D %j") == "2 env\n"
    short = int(user.ok("sbatch", "--parsable", "--hold", "-N1", "-J", "line", "job.sh", env=named))
    assert user.ok("squeue", "-h", "-j", str(short), "-o", "%D %j") == "1 line\n"
    (user.folder / "job.sh").write_text("#!/bin/sh\n#SBATCH -N2\n#SBATCH --job-name=inner\ntrue\n")
    script = int(user.ok("sbatch", "--parsable", "--hold", "job.sh"))
    assert user.ok("squeue", "-h", "-j", str(script), "-o", "%D %j") == "2 inner\n"
    cancel(user, job, short, script)


def test_n02_directives_below_the_first_command_are_ignored_and_told(user: User) -> None:
    (user.folder / "late.sh").write_text("#!/bin/sh\nset -eu\n#SBATCH -t 90\n#SBATCH -A lab\nhostname\n")
    done = user.run("sbatch", "--parsable", "-H", "late.sh")
    assert done.code == 0
    assert done.err == ("sbatch: warning: 2 directives after the first command on line 2 are ignored (lines 3, 4)\n")
    job = int(done.out)
    assert user.ok("squeue", "-h", "-j", str(job), "-o", "%l %a") == "UNLIMITED (null)\n"
    strict = user.run("sbatch", "-H", "late.sh", env={"MUSTER_STRICT_DIRECTIVES": "1"})
    assert (strict.code, strict.out) == (1, "")
    assert "2 directives after the first command on line 2 are refused" in strict.err
    assert "lines 3, 4" in strict.err
    cancel(user, job)


@pytest.mark.parametrize(
    ("line", "limit", "hint"),
    [
        ("#SBATCH -t 5   # short test", "5:00", ""),
        ("# SBATCH -t 5", "UNLIMITED", "# SBATCH"),
        ("#SBATCH: -t 5", "UNLIMITED", "#SBATCH:"),
        ("##SBATCH -t 5", "UNLIMITED", ""),
        ("#sbatch -t 5", "UNLIMITED", "#sbatch"),
    ],
)
def test_n03_remarks_on_a_line_and_near_misses(user: User, line: str, limit: str, hint: str) -> None:
    (user.folder / "job.sh").write_text(f"#!/bin/sh\n{line}\ntrue\n")
    done = user.run("sbatch", "--parsable", "-H", "job.sh")
    assert done.code == 0
    assert user.ok("squeue", "-h", "-j", done.out.strip(), "-o", "%l") == f"{limit}\n"
    if hint:
        assert len(done.err.splitlines()) == 1
        assert "line 2" in done.err and f"'{hint}'" in done.err
    else:
        assert done.err == ""
    cancel(user, int(done.out))


def test_n03_stray_text_is_refused_by_name(user: User) -> None:
    (user.folder / "job.sh").write_text("#!/bin/sh\n#SBATCH -J x   (sets the name)\ntrue\n")
    done = user.run("sbatch", "job.sh")
    assert (done.code, done.out) == (255, "")
    assert done.err.splitlines()[0] == "sbatch: error: Invalid directive found in batch script: (sets"


def test_n04_six_forms_of_a_time_limit_mean_the_same_everywhere(user: User) -> None:
    held = user.submit("-H")
    for place, (given, (short, long)) in enumerate(LIMIT_FORMS.items()):
        job = user.submit("-H", "-t", given)
        assert user.ok("squeue", "-h", "-j", str(job), "-o", "%l") == f"{short}\n", given
        assert shown(user, job)["TimeLimit"] == long
        user.ok("scontrol", "update", f"JobId={held}", f"TimeLimit={given}")
        assert shown(user, held)["TimeLimit"] == long
        assert user.ok("sinfo", "-h", "-p", f"p{place}", "-o", "%l") == f"{short}\n"
        assert f"MaxTime={long} " in user.ok("scontrol", "show", "partition", f"p{place}")
        cancel(user, job)
    cancel(user, held)


@pytest.mark.parametrize("bad", ["5m", "1:2:3:4", "1-2-3", "abc", "", "1:-2", "1.5", "10 minutes"])
def test_n04_a_limit_that_cannot_be_read_is_an_error_everywhere(user: User, bad: str) -> None:
    refused = user.run("sbatch", f"--time={bad}", "--wrap", "true")
    assert (refused.code, refused.out) == (255, "")
    assert refused.err == "sbatch: error: Invalid --time specification\n"
    held = user.submit("-H", "-t", "7")
    update = user.run("scontrol", "update", f"JobId={held}", f"TimeLimit={bad}")
    assert update.code == 1
    assert update.err != ""
    assert shown(user, held)["TimeLimit"] == "00:07:00"
    with pytest.raises(InvalidInput):
        user.cluster.client().call("POST", "/v1/jobs", {"script": "#!/bin/sh\n", "work_dir": "/", "time_limit": bad})
    cancel(user, held)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-002]", "node001 node002"),
        ("b04-[09-10]", "b04-09 b04-10"),
        ("host[001,003-004,006]", "host001 host003 host004 host006"),
        ("c[1-2]", "c1 c2"),
    ],
)
def test_n05_zero_padding_in_host_ranges_is_kept(user: User, text: str, names: str) -> None:
    expanded = user.ok("scontrol", "show", "hostnames", text).split()
    assert expanded == names.split()
    assert "[" not in expanded[0]
    assert user.ok("scontrol", "show", "hostlist", ",".join(expanded)) == f"{text}\n"


def test_n06_the_answer_line_is_all_that_sbatch_prints(user: User) -> None:
    name = PLAN.name
    first = user.ok("sbatch", "-o", "/dev/null", "--wrap", "true")
    number = int(first.split()[-1])
    assert first == f"Submitted batch job {number}\n"
    assert user.ok("sbatch", "-o", "/dev/null", "--parsable", "--wrap", "true") == f"{number + 1}\n"
    assert user.ok("sbatch", "-o", "/dev/null", "-M", name, "--wrap", "true") == (
        f"Submitted batch job {number + 2} on cluster {name}\n"
    )
    assert user.ok("sbatch", "-o", "/dev/null", "-M", name, "--parsable", "--wrap", "true") == f"{number + 3};{name}\n"


def test_n06_script_arguments_comment_and_name_come_back(user: User) -> None:
    (user.folder / "job.sh").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    job = int(user.ok("sbatch", "--parsable", "--comment", "two words", "-J", "named", "job.sh", "-n", "a b", "*"))
    assert output(user, job) == "<-n><a b><*>"
    assert user.ok("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%k") == "two words\n"
    assert user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "comment") == "two words\n"
    sleeping = user.submit("-H", "-J", "wanted")
    assert user.ok("squeue", "-h", "--name", "wanted", "-o", "%A") == f"{sleeping}\n"
    assert user.ok("scancel", "--name", "wanted") == ""
    assert user.wait_for(sleeping, "CANCELLED")


def test_n07_a_job_that_has_just_finished_is_known(user: User) -> None:
    header = user.ok("squeue")
    header = header.splitlines()[0] + "\n"
    job = user.submit("-o", "/dev/null")
    assert user.ended(job) == "COMPLETED"
    assert user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "jobid,state") == f"{job}|COMPLETED\n"
    assert user.ok("squeue", "-j", str(job)) == header
    assert user.ok("squeue", "-j", f"{job},999999") == header
    assert user.ok("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%i %t") == f"{job} CD\n"
    unknown = user.run("squeue", "-j", "999999")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == "slurm_load_jobs error: Invalid job id specified\n"
    assert user.ok("squeue", "-j", "999998,999999") == header


def test_n07_no_gap_between_the_queue_and_the_history(user: User) -> None:
    job = user.submit("-o", "/dev/null")
    deadline = time.monotonic() + 60
    while True:
        found = user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "state").strip()
        assert found in ("PENDING", "RUNNING", "COMPLETING", "COMPLETED"), found
        if found == "COMPLETED":
            break
        assert time.monotonic() < deadline


def test_n08_depending_on_an_array(user: User) -> None:
    gates = [user.folder / f"gate{index}" for index in range(3)]
    wait = f"#!/bin/sh\nwhile ! test -e {user.folder}/gate$SLURM_ARRAY_TASK_ID; do sleep 0.1; done\n"
    parent = user.submit("--array=0-2", "-J", "same", "-o", "/dev/null", script=wait)
    quiet = ("-o", "/dev/null")
    all_ok = user.submit("-d", f"afterok:{parent}", *quiet)
    one_ok = user.submit("-d", f"afterok:{parent}_1", *quiet)
    by_member = user.submit("-d", f"aftercorr:{parent}", "--array=0-2", *quiet)
    minute = user.submit("-d", f"after:{parent}+1", *quiet)
    ended = user.submit("-d", f"afterany:{parent}", *quiet)
    single = user.submit("-d", "singleton", "-J", "same", *quiet)
    user.wait_for(f"{parent}_1", "RUNNING")
    waiting = user.ok("squeue", "-h", "-t", "PD", "-o", "%A %r").splitlines()
    for job in (all_ok, one_ok, by_member, minute, ended, single):
        assert f"{job} Dependency" in waiting
    gates[1].touch()
    assert user.ended(f"{parent}_1") == "COMPLETED"
    assert user.ended(one_ok) == "COMPLETED"
    assert user.ended(f"{by_member}_1") == "COMPLETED"
    for job in (all_ok, minute, ended, single):
        assert user.state(job) == "PENDING"
    assert user.ok("squeue", "-h", "-t", "PD", "-j", str(by_member), "-o", "%K") == "0,2\n"
    gates[0].touch()
    gates[2].touch()
    for one in (all_ok, ended, single, f"{by_member}_0", f"{by_member}_2"):
        assert user.ended(one) == "COMPLETED"
    # One minute after the start, however soon it ended.
    assert user.state(minute) == "PENDING"
    assert shown(user, minute)["Dependency"].startswith(f"after:{parent}")
    assert "+1(unfulfilled)" in shown(user, minute)["Dependency"]
    cancel(user, minute)


def test_n08_unknown_kinds_of_dependency_are_refused(user: User) -> None:
    for text in ("afterwards:1", "afterok:x", "after:1?afterok:2,afterany:3", "singleton:5"):
        done = user.run("sbatch", "-d", text, "--wrap", "true")
        assert (done.code, done.out) == (1, ""), text
        assert done.err.splitlines()[0] == "sbatch: error: Batch job submission failed: Job dependency problem"


@pytest.mark.parametrize(
    ("export", "set_outside", "expected"),
    [
        ("ALL", True, "port=1 editor=vi"),
        ("NONE", True, "port= editor="),
        ("NIL", True, "port= editor="),
        ("ALL,PORT=29999", True, "port=29999 editor=vi"),
        ("ALL,PORT=29999", False, "port=29999 editor=vi"),
        ("PORT=29999,ALL", True, "port=1 editor=vi"),
        ("PORT=29999", True, "port=29999 editor="),
        ("PORT=29999", False, "port=29999 editor="),
        ("EDITOR", True, "port= editor=vi"),
    ],
)
def test_n09_forms_of_export_for_a_batch_job(user: User, export: str, set_outside: bool, expected: str) -> None:
    caller = {"EDITOR": "vi", **({"PORT": "1"} if set_outside else {})}
    script = '#!/bin/bash\necho "port=$PORT editor=$EDITOR"\necho "id=$SLURM_JOB_ID"\n'
    done = user.run("sbatch", "--parsable", f"--export={export}", stdin=script, env=caller)
    assert done.code == 0, done
    job = int(done.out)
    assert output(user, job) == f"{expected}\nid={job}\n"
    if "ALL" in export or export in ("NONE", "NIL"):
        assert done.err == ""
    else:
        assert len(done.err.splitlines()) == 1
        assert "PATH" in done.err and done.err.startswith("sbatch: warning: ")


@pytest.mark.parametrize(
    ("export", "set_outside", "expected"),
    [
        ("ALL", True, "port=1 editor=vi"),
        ("NONE", True, "port= editor="),
        ("NIL", True, "port= editor="),
        ("ALL,PORT=29999", True, "port=1 editor=vi"),
        ("ALL,PORT=29999", False, "port=29999 editor=vi"),
        ("PORT=29999", True, "port=29999 editor="),
        ("EDITOR", True, "port= editor=vi"),
    ],
)
def test_n09_forms_of_export_for_a_step(user: User, export: str, set_outside: bool, expected: str) -> None:
    caller = {"EDITOR": "vi", **({"PORT": "1"} if set_outside else {})}
    script = 'echo "port=$PORT editor=$EDITOR"; test -n "$SLURM_JOB_ID"'
    done = user.run("srun", f"--export={export}", "/bin/bash", "-c", script, env=caller)
    assert (done.code, done.out) == (0, f"{expected}\n"), done


def test_n09_a_list_without_path_is_told_before_the_program_is_not_found(user: User) -> None:
    done = user.run("srun", "--export=X=1", "no-such-program-anywhere")
    assert done.code == 2
    first = done.err.splitlines()[0]
    assert first.startswith("srun: warning: ")
    assert "PATH" in first


def test_n11_the_largest_array_index(user: User) -> None:
    quiet = ("-H", "-o", "/dev/null")
    accepted = {"1-1000": "1-1000", "0-1000:2": "0-1000:2", "5,5,5": "5"}
    for text, kept in accepted.items():
        job = user.submit(*quiet, f"--array={text}")
        assert user.ok("squeue", "-h", "-j", str(job), "-o", "%K") == f"{kept}\n"
        cancel(user, job)
    # Measured on Slurm: a limit of 0 running members means none, it is no error.
    unlimited = user.submit(*quiet, "--array=0-9%0")
    assert user.ok("squeue", "-h", "-j", str(unlimited), "-o", "%K") == "0-9\n"
    cancel(user, unlimited)
    for text in ("1-1001", "1001-1100"):
        done = user.run("sbatch", *quiet, f"--array={text}", "--wrap", "true")
        assert (done.code, done.out) == (1, "")
        first, hint = done.err.splitlines()
        assert first == "sbatch: error: Batch job submission failed: Invalid job array specification"
        assert hint == (
            "sbatch: index 1001 is over the limit: the largest index is 1000 (MaxArraySize=1001 in the configuration)"
        )
    for text in ("3-1", "x", "1-", "-1", "1-5:0"):
        done = user.run("sbatch", *quiet, f"--array={text}", "--wrap", "true")
        assert (done.code, done.out) == (1, ""), text
        assert "Invalid job array specification" in done.err
        assert text in done.err


def test_n12_typed_gpus_are_counted_once(user: User) -> None:
    jobs = [
        user.submit("-n1", "--gres=gpu:h200:2", "--mem=100", "-w", "node1", "-o", "/dev/null", script=SLEEP),
        user.submit("-n1", "--gres=gpu:1", "--mem=100", "-w", "node1", "-o", "/dev/null", script=SLEEP),
    ]
    for job in jobs:
        user.wait_for(job, "RUNNING")
    assert "gres/gpu=2,gres/gpu:h200=2" in shown(user, jobs[0])["AllocTRES"]
    assert "gres/gpu=1,gres/gpu:h200=1" in shown(user, jobs[1])["AllocTRES"]
    # Generic and typed entries are the same devices: the node has four, three of them in use.
    node = user.ok("scontrol", "-d", "show", "node", "node1")
    assert "   Gres=gpu:h200:4" in node
    assert "   GresUsed=gpu:h200:3(IDX:0-2)\n" in node
    assert "gres/gpu=4" in node.split("CfgTRES=")[1].splitlines()[0]
    assert "gres/gpu=3" in node.split("AllocTRES=")[1].splitlines()[0]
    waiting = user.submit("-n1", "--gres=gpu:2", "--mem=100", "-w", "node1", "-o", "/dev/null")
    last = user.submit("-n1", "--gres=gpu:1", "--mem=100", "-w", "node1", "-o", "/dev/null")
    until(lambda: user.ok("squeue", "-h", "-j", str(waiting), "-o", "%r") == "Resources\n", "a reason", user.describe)
    assert user.ended(last) == "COMPLETED"
    assert user.state(waiting) == "PENDING"
    cancel(user, *jobs)
    assert user.ended(waiting) == "COMPLETED"


SLEEP = "#!/bin/sh\nsleep 300\n"


def test_n13_missing_directories_of_output_are_made(user: User) -> None:
    job = user.submit("-o", "missing/dir/%j.out", script="#!/bin/sh\necho made\n")
    assert output(user, job, "missing/dir/%j.out") == "made\n"
    slash = user.submit("-J", "team/run", "-o", "%x-%j.out", script="#!/bin/sh\necho slash\n")
    assert output(user, slash, "team/run-%j.out") == "slash\n"


def test_n13_a_file_that_cannot_be_made_is_warned_of_and_named_in_the_reason(user: User) -> None:
    (user.folder / "file").write_text("in the way")
    done = user.run("sbatch", "--parsable", "-o", "file/%j.out", "--wrap", "hostname")
    assert done.code == 0
    path = f"{user.folder}/file"
    assert done.err == (
        f"sbatch: warning: standard output would go to {path}/%j.out, but {path} is no directory; "
        "where that holds, the job fails\n"
    )
    job = int(done.out)
    assert user.ended(job) == "FAILED"
    reason = f"cannot open the output file {path}/{job}.out: Not a directory"
    assert shown(user, job)["Reason"] == reason.replace(" ", "_")
    assert shown(user, job)["ExitCode"] == "0:53"
    assert user.ok("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%R") == f"({reason})\n"
    history = user.ok("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "state,exitcode,reason")
    assert history == f"FAILED|0:53|{reason}\n"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user, which needs root")
def test_n13_a_directory_of_another_user_is_named_in_the_reason(user: User, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    asked = {"script": "#!/bin/sh\nhostname\n", "work_dir": "/tmp", "output": f"{closed}/%j.out", "job_name": "x"}
    with acting_as(65534):
        job = user.cluster.client().call("POST", "/v1/jobs", asked)["job_id"]
    assert user.ended(job) == "FAILED"
    assert shown(user, job)["Reason"] == f"cannot_open_the_output_file_{closed}/{job}.out:_Permission_denied"
    assert list(closed.iterdir()) == []

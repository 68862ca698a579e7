"""Behaviours that an implementer easily misses, by real commands.

The numbers B-xx are those of the project's list. Not here: B-09 (test_srun), B-12, B-17, B-19, B-29 and B-30, whose
commands come with later capabilities.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster import Cluster, Plan
from tests.e2e.conftest import GOING_ON, User, running, until

PLAN = Plan(
    nodes=2,
    cpus=8,
    memory_mib=16000,
    gpus="h100:4",
    extra="KillWait=2\nSchedulerParameters=requeue_delay=0\n"
    "PartitionName=gpu Default=YES Nodes=ALL MaxTime=UNLIMITED\n"
    "PartitionName=small Nodes=ALL MaxTime=1:00:00 MaxNodes=1 MaxMemPerNode=4000\n",
)
FOREVER = "#!/bin/sh\nsleep 300\n"
QUIET = ("-o", "/dev/null")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes; the second partition has limits."""
    yield from running(PLAN)


@pytest.fixture(scope="module")
def timed(cluster: Cluster, bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[User, dict[str, int]]:
    """Jobs that need their minute to reach a limit: submitted with the first test, looked at by the last ones."""
    user = User(cluster, bin_dir, tmp_path_factory.mktemp("timed"))
    small = ("-n1", "--mem=10", "-t1")
    scripts = {
        "term": "#!/bin/sh\nsleep 300\n",
        "kill": "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n",
        "fails": "#!/bin/sh\nexit 3\n",
        "step": "#!/bin/bash\nsrun -t1 --mem=0 sleep 300\necho went on after $?\n",
    }
    jobs = {
        name: user.submit(
            *(("-n1", "--mem=10", "-t5") if name == "step" else small), "-o", f"{name}.out", script=script
        )
        for name, script in scripts.items()
    }
    return user, jobs


@pytest.fixture(autouse=True)
def started_early(timed: tuple[User, dict[str, int]]) -> None:
    """Have the minute run from the first test on."""


def field(user: User, job: int | str, letter: str) -> str:
    """Give one column of squeue for a job in any state."""
    return user.ok("squeue", "-h", "-t", "all", "-j", str(job), "-o", letter).rstrip("\n")


def shown(user: User, job: int | str) -> dict[str, str]:
    """Give the fields of `scontrol -o show job`; a value with blanks is cut at the first."""
    words = user.ok("scontrol", "-o", "show", "job", str(job)).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def text_of(user: User, job: int, name: str) -> str:
    """Wait until a job has completed and give one of its files."""
    assert user.ended(job) == "COMPLETED", user.describe()
    return (user.folder / name).read_text()


def test_b01_options_are_merged_first_and_judged_afterwards(user: User) -> None:
    script = "#!/bin/sh\n#SBATCH -N 100000\n#SBATCH -w nosuchnode\ntrue\n"
    refused = user.run("sbatch", stdin=script)
    assert refused.code == 1
    assert "Batch job submission failed" in refused.err
    job = user.submit("-N1", "-w", "node1", *QUIET, script=script)
    assert user.ended(job) == "COMPLETED"


def test_b02_none_means_no_file_and_error_follows_output(user: User) -> None:
    script = "#!/bin/sh\necho out\necho err >&2\n"
    for word in ("none", "None", "NONE"):
        assert user.ended(user.submit(f"--output={word}", script=script)) == "COMPLETED"
    assert list(user.folder.iterdir()) == []
    assert text_of(user, user.submit("-o", "both", script=script), "both") == "out\nerr\n"
    named = {"SBATCH_OUTPUT": "env.out", "SBATCH_ERROR": "env.err"}
    job = int(user.ok("sbatch", "--parsable", stdin=script, env=named))
    assert text_of(user, job, "env.out") == "out\n"
    assert text_of(user, job, "env.err") == "err\n"
    winning = int(user.ok("sbatch", "--parsable", "-o", "line.out", "-e", "line.err", stdin=script, env=named))
    assert text_of(user, winning, "line.out") == "out\n"
    assert text_of(user, winning, "line.err") == "err\n"


def test_b03_file_patterns_percent_user_id_blanks_and_input(user: User) -> None:
    script = "#!/bin/sh\ncat\n"
    job = user.submit("-o", "100%%-%u-%j")
    assert text_of(user, job, f"100%-{user.environment['USER']}-{job}") == ""
    assert text_of(user, user.submit("-o", "a b", script="#!/bin/sh\necho blank\n"), "a b") == "blank\n"
    directive = '#!/bin/sh\n#SBATCH --output="c d"\necho quoted\n'
    assert text_of(user, user.submit(script=directive), "c d") == "quoted\n"
    (user.folder / "in-name").write_text("from the input\n")
    job = user.submit("-J", "name", "-i", "in-%x", "-o", "copied", script=script)
    assert text_of(user, job, "copied") == "from the input\n"


def test_b04_wait_returns_when_the_job_is_over_with_its_exit_code(user: User) -> None:
    done = user.run("sbatch", "--wait", *QUIET, "--wrap", "exit 3")
    assert done.code == 3
    job = done.out.split()[-1]
    assert field(user, job, "%T") == "FAILED"
    assert user.run("sbatch", "-W", *QUIET, "--wrap", "kill -9 $$").code == 1
    assert user.run("sbatch", "-W", *QUIET, "--array=0-2", "--wrap", "exit $SLURM_ARRAY_TASK_ID").code == 2
    assert user.run("sbatch", "-W", *QUIET, "--wrap", "true").code == 0


def test_b05_an_unknown_kind_of_dependency_is_refused_at_submission(user: User) -> None:
    before = user.ok("squeue", "-h", "-t", "PD", "-o", "%i")
    done = user.run("sbatch", "-d", "afterwhatever:1", "--wrap", "true")
    assert done.code == 1
    assert "sbatch: error: Batch job submission failed: Job dependency problem" in done.err
    assert user.ok("squeue", "-h", "-t", "PD", "-o", "%i") == before


def test_b06_a_relative_output_is_shown_absolute_with_the_id(user: User) -> None:
    (user.folder / "elsewhere").mkdir()
    job = user.submit("-H", "-o", "sub/%x-%j.out", "-J", "name", "-D", "elsewhere")
    assert shown(user, job)["StdOut"] == f"{user.folder}/elsewhere/sub/name-{job}.out"
    assert shown(user, job)["WorkDir"] == f"{user.folder}/elsewhere"
    user.ok("scancel", str(job))


def test_b07_srun_ends_with_the_highest_code_and_tells_each_once(user: User) -> None:
    done = user.run("srun", "-n4", "--mem=100", "bash", "-c", "exit $((SLURM_PROCID / 2 * 5))")
    assert done.code == 5
    assert done.err == "srun: error: node1: tasks 2-3: Exited with exit code 5\n"


def test_b08_immediate_fails_at_once_or_after_its_seconds(user: User) -> None:
    blocker = user.submit("-w", "node2", "--exclusive", *QUIET, script=FOREVER)
    user.wait_for(blocker, "RUNNING")
    begun = time.monotonic()
    user.ok("squeue")
    command_seconds = time.monotonic() - begun
    for option in ("--immediate", "-I1"):
        begun = time.monotonic()
        done = user.run("srun", option, "-w", "node2", "true")
        assert time.monotonic() - begun - command_seconds < 2
        assert done.code == 1
        assert done.err.splitlines()[-1] == "srun: error: Unable to allocate resources: Requested nodes are busy"
    begun = time.monotonic()
    waiting = user.start("srun", "-I3", "-w", "node2", "-J", "impatient", "true")
    job = until(lambda: user.ok("squeue", "-h", "-n", "impatient", "-o", "%i").strip(), "the job", user.describe)
    assert user.state(job) == "PENDING"
    waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert time.monotonic() - begun > 2.5
    assert user.state(job) == "CANCELLED"
    held = user.run("srun", "-I", "-H", "true")
    assert held.code == 1
    assert "Unable to allocate resources" in held.err
    user.ok("scancel", str(blocker))


def test_b11_export_of_srun_value_all_and_none(user: User) -> None:
    script = 'echo "${MINE-missing} ${SLURM_JOB_ID:+id} ${HOME-nohome}"'
    mine = {"MINE": "mine"}

    def said(*options: str) -> str:
        done = user.run("srun", *options, "/bin/bash", "-c", script, env=mine)
        assert done.code == 0, done
        return done.out

    assert said("--export=MINE=other") == "other id nohome\n"
    assert said("--export=ALL") == f"mine id {user.folder}\n"
    assert said("--export=NONE") == "missing id nohome\n"


def test_b13_updating_one_member_splits_it_off(user: User) -> None:
    array = user.submit("-H", "--array=0-3", "-t", "10", *QUIET)
    user.ok("scontrol", "update", f"JobId={array}_2", "TimeLimit=5")
    own = field(user, f"{array}_2", "%A")
    assert own != str(array)
    assert field(user, own, "%i %l") == f"{array}_2 5:00"
    assert shown(user, own)["ArrayTaskId"] == "2"
    assert field(user, array, "%i %l").splitlines() == [f"{array}_[0-1,3] 10:00", f"{array}_2 5:00"]
    user.ok("scancel", str(array))
    assert field(user, own, "%T") == "CANCELLED"


def test_b14_hold_and_release_of_an_array_and_of_its_members(user: User) -> None:
    array = user.submit("--array=0-2", "-b", "now+1hour", *QUIET)

    def held() -> dict[str, bool]:
        rows = user.ok("squeue", "-h", "-r", "-j", str(array), "-o", "%K %Q").split("\n")[:-1]
        return {row.split()[0]: row.split()[1] == "0" for row in rows}

    assert held() == {"0": False, "1": False, "2": False}
    user.ok("scontrol", "hold", str(array))
    assert held() == {"0": True, "1": True, "2": True}
    user.ok("scontrol", "release", f"{array}_1")
    assert held() == {"0": True, "1": False, "2": True}
    user.ok("scontrol", "release", str(array))
    assert held() == {"0": False, "1": False, "2": False}
    user.ok("scontrol", "hold", f"{array}_2")
    assert held() == {"0": False, "1": False, "2": True}
    user.ok("scontrol", "hold", str(array))
    user.ok("scontrol", "release", str(array))
    assert held() == {"0": False, "1": False, "2": False}
    user.ok("scancel", str(array))


def test_b15_requeue_of_running_and_finished_but_not_of_pending(user: User) -> None:
    script = '#!/bin/sh\necho run ${SLURM_RESTART_COUNT-0}\ntest -n "$SLURM_RESTART_COUNT" || sleep 300\n'
    job = user.submit("--requeue", "-o", "again", "--open-mode=append", script=script)
    user.wait_for(job, "RUNNING")
    until(lambda: (user.folder / "again").exists(), "the first run", user.describe)
    user.ok("scontrol", "requeue", str(job))
    assert user.ended(job) == "COMPLETED"
    assert shown(user, job)["Restarts"] == "1"
    user.ok("scontrol", "requeue", str(job))
    until(lambda: shown(user, job)["Restarts"] == "2", "the second restart", user.describe)
    assert user.ended(job) == "COMPLETED"
    lines = [line for line in (user.folder / "again").read_text().splitlines() if line.startswith("run")]
    assert lines == ["run 0", "run 1", "run 2"]
    pending = user.submit("-H", *QUIET)
    done = user.run("scontrol", "requeue", str(pending))
    assert (done.code, done.err) == (1, f"Job is pending execution for job {pending}\n")
    never = user.submit("--no-requeue", *QUIET, script=FOREVER)
    user.wait_for(never, "RUNNING")
    done = user.run("scontrol", "requeue", str(never))
    assert (done.code, done.err.splitlines()[0]) == (1, f"Requested operation is presently disabled for job {never}")
    user.ok("scancel", str(pending), str(never))


def test_b16_hostnames_multiply_groups_without_a_controller(user: User) -> None:
    alone = {"MUSTER_SOCKET": "/nonexistent/sock"}
    names = user.ok("scontrol", "show", "hostnames", "a[1-2]b[3,05-06],c", env=alone).split()
    assert names == ["a1b3", "a1b05", "a1b06", "a2b3", "a2b05", "a2b06", "c"]
    asked = {**alone, "SLURM_NODELIST": "n[1-2]"}
    assert user.ok("scontrol", "show", "hostnames", env=asked) == "n1\nn2\n"


def test_b18_job_records_stay_readable_as_key_and_value(user: User) -> None:
    held = user.submit("-H", "-n2", "--gres=gpu:1", *QUIET)
    ran = user.submit("-n2", "--gres=gpu:1", *QUIET)
    assert user.ended(ran) == "COMPLETED"
    for job in (held, ran):
        for details in ((), ("-d",)):
            lines = user.ok("scontrol", *details, "-o", "show", "job", str(job)).splitlines()
            assert len(lines) == 1
            # Only the line that was typed may hold blanks.
            before, _, rest = lines[0].partition(" SubmitLine=")
            words = [*before.split(" "), *rest[rest.index("WorkDir=") :].split(" ")]
            assert all("=" in word and word[0].isalpha() for word in words), words
            found = dict(word.split("=", 1) for word in words)
            assert found["Command"] == found["Features"] == found["ReqNodeList"] == found["Dependency"] == "(null)"
            assert ("DerivedExitCode" in found) == bool(details)
    assert shown(user, held)["AllocTRES"] == "(null)"
    assert "CPU_IDs" in user.ok("scontrol", "-d", "-o", "show", "job", str(ran))
    user.ok("scancel", str(held))


def test_b20_users_by_name_or_number_and_unknown_nodes(user: User) -> None:
    job = user.submit("-H", *QUIET)
    uid = os.geteuid()
    for who in (user.environment["USER"], str(uid)):
        assert str(job) in user.ok("squeue", "-h", "-u", who, "-o", "%i").split()
    assert user.ok("squeue", "-h", "-u", "65533") == ""
    done = user.run("squeue", "-w", "nosuch")
    assert (done.code, done.out, done.err) == (1, "", "squeue: error: Invalid node name nosuch\n")
    user.ok("scancel", str(job))


def test_b21_sinfo_joins_and_negates_states(user: User) -> None:
    user.ok("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=looking at it")

    def nodes(states: str) -> list[str]:
        return user.ok("sinfo", "-h", "-N", "-p", "small", "-t", states, "-o", "%N").split()

    until(
        lambda: "idle" in user.ok("sinfo", "-h", "-n", "node2", "-p", "small", "-O", "statecomplete"),
        "node2 to be idle",
        user.describe,
    )
    user_node1 = nodes("mixed,allocated,idle")
    assert user_node1 == ["node1", "node2"], "idle also finds idle nodes that are drained"
    assert nodes("drain") == ["node2"]
    assert nodes("drain,alloc") == ["node2"]
    assert nodes("idle&drain") == nodes("idle+drain") == ["node2"]
    assert nodes("mixed&drain") == []
    assert nodes("~drain") == nodes("!drain") == ["node1"]
    done = user.run("sinfo", "-t", "bogus")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith('sinfo: error: Bad state string: "bogus"\n')
    user.ok("scontrol", "update", "NodeName=node2", "State=RESUME")
    until(lambda: nodes("drain") == [], "node2 to be back", user.describe)


def test_b22_scancel_without_a_match_and_with_bad_ids(user: User) -> None:
    assert user.run("scancel", "-n", "nobody-has-this").err == ""
    assert user.run("scancel", "-n", "nobody-has-this").code == 0
    said = user.run("scancel", "-v", "-n", "nobody-has-this")
    assert said.code == 0
    assert "No active jobs match ALL job filters, including: job_name=nobody-has-this" in said.err
    for bad in ("abc", "12x", "0"):
        done = user.run("scancel", bad)
        assert done.code == 1
        assert done.err.splitlines()[0] == f"scancel: error: Invalid job id {bad}"
    job = user.submit(*QUIET)
    user.ended(job)
    assert user.ok("scancel", "-Q", str(job)) == ""
    loud = user.run("scancel", "-v", str(job))
    assert (loud.code, loud.err.splitlines()[-1]) == (
        0,
        f"scancel: error: Kill job error on job id {job}: Job/step already completing or completed",
    )


def test_b23_a_signal_goes_to_steps_to_the_shell_or_to_both(user: User) -> None:
    script = """#!/bin/bash
trap 'echo shell >> heard' USR1
srun --mem=0 bash -c 'trap "echo step >> heard" USR1; touch ready; while ! test -e stop; do sleep 0.1; done' &
step=$!
while kill -0 $step 2>/dev/null; do wait $step; done
"""
    job = user.submit(*QUIET, script=script)
    heard = user.folder / "heard"
    until((user.folder / "ready").exists, "the step", user.describe)

    def after(*options: str) -> set[str]:
        heard.unlink(missing_ok=True)
        user.ok("scancel", *options, "-s", "USR1", str(job))
        both = 2 if "-f" in options else 1
        until(lambda: heard.exists() and len(set(heard.read_text().split())) >= both, f"{options}", user.describe)
        return set(heard.read_text().split())

    assert after() == {"step"}
    assert after("-b") == {"shell"}
    # The step may hear it twice, from its agent and from srun, which is a child of the shell and passes it on.
    assert after("-f") == {"shell", "step"}
    assert user.state(job) == "RUNNING"
    (user.folder / "stop").touch()
    assert user.ended(job) == "COMPLETED"


def test_b24_any_of_several_dependencies_suffices(user: User) -> None:
    long = user.submit("--mem=10", *QUIET, script=FOREVER)
    short = user.submit("--mem=10", *QUIET)
    either = user.submit("--mem=10", "-d", f"afterok:{long}?afterok:{short}", *QUIET)
    assert user.ended(either) == "COMPLETED"
    assert user.state(long) == "RUNNING"
    user.ok("scancel", str(long))


def test_b25_a_dependency_that_cannot_be_met_leaves_the_job_or_cancels_it(user: User) -> None:
    fails = user.submit(*QUIET, script="#!/bin/sh\nexit 1\n")
    stays = user.submit("-d", f"afterok:{fails}", *QUIET)
    goes = user.submit("-d", f"afterok:{fails}", "--kill-on-invalid-dep=yes", *QUIET)
    assert user.ended(fails) == "FAILED"
    until(lambda: field(user, stays, "%r") == "DependencyNeverSatisfied", "the reason", user.describe)
    assert user.state(stays) == "PENDING"
    assert shown(user, stays)["Dependency"] == f"afterok:{fails}(failed)"
    assert user.ended(goes) == "CANCELLED"
    user.ok("scancel", str(stays))


def test_b25_the_configuration_may_say_to_cancel_it(bin_dir: Path, tmp_path: Path) -> None:
    plan = Plan(nodes=1, cpus=2, gpus="", accounting=False, extra="DependencyParameters=kill_invalid_depend\n")
    for own in running(plan):
        user = User(own, bin_dir, tmp_path)
        fails = user.submit(*QUIET, script="#!/bin/sh\nexit 1\n")
        goes = user.submit("-d", f"afterok:{fails}", *QUIET)
        assert user.ended(goes) == "CANCELLED"
        assert field(user, goes, "%r") == "DependencyNeverSatisfied"


def test_b26_a_dependency_on_an_array_or_on_a_member(user: User) -> None:
    wait = f"#!/bin/sh\nwhile ! test -e {user.folder}/go$SLURM_ARRAY_TASK_ID; do sleep 0.1; done\n"
    array = user.submit("--mem=10", "--array=1-2", *QUIET, script=wait)
    whole = user.submit("--mem=10", "-d", f"afterany:{array}", *QUIET)
    member = user.submit("--mem=10", "-d", f"afterany:{array}_2", *QUIET)
    pairs = user.submit("--mem=10", "-d", f"aftercorr:{array}", "--array=1-2", *QUIET)
    (user.folder / "go2").touch()
    assert user.ended(member) == "COMPLETED"
    assert user.ended(f"{pairs}_2") == "COMPLETED"
    assert user.state(whole) == "PENDING"
    assert user.state(f"{pairs}_1") == "PENDING"
    (user.folder / "go1").touch()
    assert user.ended(whole) == "COMPLETED"
    assert user.ended(f"{pairs}_1") == "COMPLETED"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-t", "61"), "PartitionTimeLimit"),
        (("-N2",), "PartitionNodeLimit"),
        (("--mem=4001",), "MaxMemPerLimit"),
        (("--mem-per-cpu=1001", "-c4"), "MaxMemPerLimit"),
    ],
)
def test_b28_each_limit_has_its_own_reason(user: User, options: tuple[str, ...], reason: str) -> None:
    job = user.submit("-p", "small", *options, *QUIET)
    until(lambda: field(user, job, "%r") not in ("None", "Priority"), "a reason", user.describe)
    assert field(user, job, "%T %r") == f"PENDING {reason}"
    user.ok("scancel", str(job))


def test_b28_memory_by_cpu_within_the_limit_runs(user: User) -> None:
    assert user.ended(user.submit("-p", "small", "--mem-per-cpu=1000", "-c4", *QUIET)) == "COMPLETED"


def test_b27_the_time_limit_is_timeout_however_the_job_dies(timed: tuple[User, dict[str, int]]) -> None:
    user, jobs = timed
    assert user.ended(jobs["fails"]) == "FAILED"
    assert shown(user, jobs["fails"])["Reason"] == "NonZeroExitCode"
    for name in ("term", "kill"):
        assert until_over(user, jobs[name]) == "TIMEOUT"
        assert shown(user, jobs[name])["Reason"] == "TimeLimit"
        assert f"*** JOB {jobs[name]} ON node1 CANCELLED AT " in (user.folder / f"{name}.out").read_text()
        assert "DUE TO TIME LIMIT ***" in (user.folder / f"{name}.out").read_text()


def test_b10_a_limit_of_a_step_ends_the_step_and_the_script_goes_on(timed: tuple[User, dict[str, int]]) -> None:
    user, jobs = timed
    assert until_over(user, jobs["step"]) == "COMPLETED"
    text = (user.folder / "step.out").read_text()
    assert f"*** STEP {jobs['step']}.0 ON node1 CANCELLED AT " in text
    assert "DUE TO TIME LIMIT ***" in text
    assert text.splitlines()[-1].startswith("went on after ")
    assert text.splitlines()[-1] != "went on after 0"


def until_over(user: User, job: int) -> str:
    """Wait for the end of a job that may take a minute and a half."""
    deadline = time.monotonic() + 90
    while (state := user.state(job)) in GOING_ON and time.monotonic() < deadline:
        time.sleep(0.2)
    return state


def test_b09_terminating_a_waiting_srun_leaves_no_job(user: User) -> None:
    blocker = user.submit("-N2", "--exclusive", *QUIET, script=FOREVER)
    user.wait_for(blocker, "RUNNING")
    waiting = user.start("srun", "-J", "interrupted", "true")
    job = until(lambda: user.ok("squeue", "-h", "-n", "interrupted", "-o", "%i").strip(), "the job", user.describe)
    waiting.send_signal(signal.SIGTERM)
    _, err = waiting.communicate(timeout=30)
    assert waiting.returncode != 0
    assert f"srun: Job allocation {job} has been revoked" in err
    assert user.ok("squeue", "-h", "-n", "interrupted") == ""
    user.ok("scancel", str(blocker))

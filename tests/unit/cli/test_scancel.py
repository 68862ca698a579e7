"""scancel against a controller: what ends, what is signalled, and what is said of it."""

from __future__ import annotations

import os
import pwd

import pytest

from ctld.core.commands import CreateStep, StepRequest
from ctld.core.model import Caller
from muster.ids import JobId
from muster.states import STOPPED, JobState
from tests.builders import ADMIN
from tests.serving import Served, ended, started

SILENT = (0, "", "")
SOMEBODY = Caller(uid=4321, gid=4321)


@pytest.fixture
def jobs(served: Served) -> Served:
    """Jobs 1 (one, pending), 2 (two, running with step 0), 3 (three, over), and array 4 (0-3, pending)."""
    for name in ("one", "two", "three"):
        assert served.run("sbatch", "-J", name, "--wrap", "true").code == 0
    assert served.run("sbatch", "-J", "four", "--array=0-3", "--wrap", "true").code == 0
    started(served, 2)
    started(served, 3)
    ended(served, 3)
    owner = Caller(uid=os.getuid(), gid=os.getgid())
    served.post(CreateStep(JobId(2), owner, StepRequest(name="x", argv=("x",), overlap=True)))
    return served


def state(served: Served, job_id: int) -> JobState:
    return JobState(served.job(job_id).state)


def test_success_is_silent(jobs: Served) -> None:
    assert jobs.run("scancel", "1", "2") == SILENT
    assert state(jobs, 1) == JobState.CANCELLED
    kill = jobs.job(2).kill
    assert kill is not None
    assert (kill.state, kill.by, kill.now) == (JobState.CANCELLED, os.getuid(), False)


def test_ids_may_be_comma_separated_and_name_members_of_an_array(jobs: Served) -> None:
    assert jobs.run("scancel", "1,2", "4_[1-2]") == SILENT
    assert state(jobs, 1) == JobState.CANCELLED
    assert jobs.job(4).array_pending == (0, 0, 3, 3)
    assert jobs.run("scancel", "4") == SILENT
    assert state(jobs, 4) == JobState.CANCELLED


@pytest.mark.parametrize("job", ["3", "99", "1_7"])
def test_what_is_over_or_unknown_is_passed_over_without_a_word(jobs: Served, job: str) -> None:
    assert jobs.run("scancel", job) == SILENT
    assert jobs.run("scancel", "-f", job) == SILENT
    assert jobs.run("scancel", "-Q", "-s", "USR1", job) == SILENT
    assert jobs.run("scancel", "--ctld", job, "98") == SILENT


def test_verbose_says_what_is_done_and_what_was_not_there(jobs: Served) -> None:
    done = jobs.run("scancel", "-v", "1", "3", "99")
    assert done == (
        0,
        "",
        "scancel: Terminating job 1\n"
        "scancel: Terminating job 3\n"
        "scancel: error: Kill job error on job id 3: Job/step already completing or completed\n"
        "scancel: Terminating job 99\n"
        "scancel: error: Kill job error on job id 99: Invalid job id specified\n",
    )
    assert jobs.run("scancel", "-v", "-s", "USR1", "2").err == "scancel: Signal 10 to job 2\n"


def test_a_signal_for_an_unknown_job_is_an_error(jobs: Served) -> None:
    text = "scancel: error: Kill job error on job id 99: Invalid job id specified\n"
    assert jobs.run("scancel", "-s", "USR1", "99") == (1, "", text)
    assert jobs.run("scancel", "-b", "99") == (1, "", text)
    assert jobs.run("scancel", "-b", "99", "2") == (1, "", text)
    assert jobs.signals.sent == [(2, 9, "batch", 0)]


@pytest.mark.parametrize("text", ["abc", "12x", "0", "-1", "1.x", "1_x", "1+0"])
def test_what_is_no_id_is_an_error_and_nothing_is_done(jobs: Served, text: str) -> None:
    done = jobs.run("scancel", "--", "1", text)
    assert (done.code, done.out, done.lines[0]) == (1, "", f"scancel: error: Invalid job id {text}")
    assert state(jobs, 1) == JobState.PENDING


def test_nothing_named_is_an_error(jobs: Served) -> None:
    assert jobs.run("scancel") == (1, "", "scancel: error: No job identification provided\n")
    assert jobs.run("scancel", "-v") == (1, "", "scancel: error: No job identification provided\n")


def test_an_unknown_option_ends_with_1(jobs: Served) -> None:
    done = jobs.run("scancel", "--foo", "1")
    assert done == (1, "", "scancel: unrecognized option '--foo'\nTry \"scancel --help\" for more information\n")
    assert jobs.run("scancel", "--hurry", "1").err == (
        "scancel: error: --hurry is not supported by this release of Muster\n"
    )
    assert state(jobs, 1) == JobState.PENDING


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (["-s", "NOPE", "1"], "Unknown job signal: NOPE\n"),
        (["-t", "DONE"], "Invalid job state specified: DONE\nValid job states are PENDING, RUNNING, and SUSPENDED\n"),
        (["-u", "no such user"], "scancel: error: Invalid user name: no such user\n"),
    ],
)
def test_values_that_are_none_are_refused(jobs: Served, words: list[str], err: str) -> None:
    assert jobs.run("scancel", *words) == (1, "", err)
    assert state(jobs, 1) == JobState.PENDING


@pytest.mark.parametrize(
    ("words", "ended_jobs"),
    [
        (["-n", "one"], [1]),
        (["--name=one", "--me"], [1]),
        (["--jobname=nobody"], []),
        (["-t", "PENDING"], [1, 4]),
        (["-t", "r"], [2]),
        (["-t", "pd", "1", "2"], [1]),
        (["-p", "main", "-n", "two"], [2]),
        (["-p", "nosuch"], []),
        (["-q", "normal", "-t", "R"], [2]),
        (["-A", "nobody"], []),
        (["-w", "n1"], [2]),
        (["-w", "n2"], []),
        (["-w", "nosuch"], []),
        (["-u", str(os.getuid()), "-n", "two"], [2]),
        (["-u", pwd.getpwuid(os.getuid()).pw_name, "-n", "two"], [2]),
        (["-u", "4321"], []),
        (["--wckey", "x"], []),
        (["-n", "one", "2"], []),
    ],
)
def test_filters_combine_and_what_matches_nothing_is_silent(
    jobs: Served, words: list[str], ended_jobs: list[int]
) -> None:
    assert jobs.run("scancel", *words) == SILENT
    assert [i for i in (1, 2, 4) if state(jobs, i) == JobState.CANCELLED or jobs.job(i).kill] == ended_jobs


def test_filters_can_come_from_the_environment_and_lose_against_options(jobs: Served) -> None:
    assert jobs.run("scancel", "1", env={"SCANCEL_STATE": "RUNNING"}) == SILENT
    assert state(jobs, 1) == JobState.PENDING
    assert jobs.run("scancel", "-n", "one", env={"SCANCEL_NAME": "two", "SCANCEL_VERBOSE": "1"}).err == (
        "scancel: Terminating job 1\n"
    )
    assert jobs.run("scancel", "2", env={"SCANCEL_BATCH": "true"}) == SILENT
    assert jobs.signals.sent == [(2, 9, "batch", 0)]
    assert jobs.run("scancel", "2", env={"SCANCEL_HURRY": "true"}).err == (
        "scancel: warning: SCANCEL_HURRY is ignored: --hurry is not supported by this release of Muster\n"
    )


def test_a_filter_without_a_match_is_told_only_when_verbose(jobs: Served) -> None:
    done = jobs.run("scancel", "-v", "-u", str(os.getuid()), "-n", "nobody", "-t", "r")
    assert done == (
        0,
        "",
        "scancel: error: No active jobs match ALL job filters, including: "
        f"job_name=nobody state=RUNNING user_name={os.getuid()} \n",
    )


def test_a_signal_goes_to_the_steps_the_shell_or_both(jobs: Served) -> None:
    for words in (["-s", "USR1"], ["-b", "-s", "SIGUSR2"], ["-f", "-s", "15"], ["--signal=stop"], ["--signal=CONT"]):
        assert jobs.run("scancel", *words, "2") == SILENT
    assert jobs.signals.sent == [
        (2, 10, "steps", 0),
        (2, 12, "batch", 0),
        (2, 15, "all", 0),
        (2, 19, "steps", 0),
        (2, 18, "steps", 0),
    ]
    assert (state(jobs, 2), jobs.job(2).kill) == (JobState.RUNNING, None)


def test_stop_and_cont_to_a_whole_job_are_noted(jobs: Served) -> None:
    jobs.run("scancel", "-f", "-s", "STOP", "2")
    assert jobs.job(2).flags & STOPPED
    jobs.run("scancel", "-f", "-s", "CONT", "2")
    assert not jobs.job(2).flags & STOPPED


def test_kill_to_a_whole_job_is_a_cancel(jobs: Served) -> None:
    assert jobs.run("scancel", "-s", "KILL", "2", "1") == SILENT
    assert not jobs.signals.sent
    assert jobs.job(2).kill is not None
    assert state(jobs, 1) == JobState.CANCELLED


def test_a_signal_for_a_job_that_waits_is_refused(jobs: Served) -> None:
    done = jobs.run("scancel", "-s", "USR1", "1")
    assert (done.code, done.err) == (
        1,
        "scancel: error: Kill job error on job id 1: Job can not be altered now, try again later\n",
    )


def test_a_step_is_ended_by_itself(jobs: Served) -> None:
    assert jobs.run("scancel", "2.0") == SILENT
    kill = jobs.state.steps[2][0].kill
    assert kill is not None
    assert kill.now
    assert jobs.job(2).kill is None
    assert jobs.run("scancel", "-s", "USR1", "2.0") == SILENT
    assert jobs.run("scancel", "-s", "USR1", "2.batch") == SILENT
    assert jobs.signals.sent == [(2, 10, "step", 0), (2, 10, "batch", 0)]


def test_a_step_that_is_not_there_is_an_error_but_not_for_a_signal(jobs: Served) -> None:
    for name in ("2.7", "99.0"):
        assert jobs.run("scancel", name) == (
            1,
            "",
            f"scancel: error: Kill job error on job step id {name}: Invalid job id specified\n",
        )
    assert jobs.run("scancel", "-s", "USR1", "2.7") == SILENT
    assert jobs.run("scancel", "-s", "USR1", "99.0").code == 1


def test_the_job_of_somebody_else_is_not_touched(jobs: Served) -> None:
    jobs.caller = SOMEBODY
    text = "scancel: error: Kill job error on job id {}: Access/permission denied\n"
    assert jobs.run("scancel", "1") == (1, "", text.format(1))
    assert jobs.run("scancel", "-Q", "1", "2") == (1, "", text.format(1) + text.format(2))
    assert jobs.run("scancel", "-s", "USR1", "2") == (1, "", text.format(2))
    assert jobs.run("scancel", "-p", "main") == SILENT
    assert jobs.run("scancel", "-u", str(os.getuid()), "-n", "one") == (1, "", text.format(1))
    assert (state(jobs, 1), jobs.job(2).kill) == (JobState.PENDING, None)
    jobs.caller = ADMIN
    assert jobs.run("scancel", "-p", "main", "-t", "PENDING") == SILENT
    assert state(jobs, 1) == JobState.CANCELLED


def test_interactive_asks_before_each_job(jobs: Served) -> None:
    done = jobs.run("scancel", "-i", "1", "3", "99", "4", stdin="what\ny\nn\n")
    assert done.code == 0
    assert done.out == (
        "Cancel job_id=1 name=one partition=main [y/n]? "
        "Cancel job_id=1 name=one partition=main [y/n]? "
        "Cancel job_id=4 name=four partition=main [y/n]? "
    )
    assert (state(jobs, 1), state(jobs, 4)) == (JobState.CANCELLED, JobState.PENDING)
    assert jobs.run("scancel", "-i", "--me", "-t", "R", stdin="").out.endswith("[y/n]? ")
    assert jobs.job(2).kill is None


def test_what_is_no_utf8_is_named(jobs: Served) -> None:
    for words in (["-n", os.fsdecode(b"caf\xe9")], ["-i", "-p", os.fsdecode(b"\xff")]):
        option = {"-n": "name", "-i": "partition"}[words[0]]
        text = f"scancel: error: the value of --{option} is not valid UTF-8 text\n"
        assert jobs.run("scancel", *words) == (1, "", text)


def test_another_cluster_is_refused(jobs: Served) -> None:
    done = jobs.run("scancel", "-M", "elsewhere", "1")
    assert (done.code, done.lines[0]) == (1, "scancel: error: No cluster 'elsewhere' known by database.")
    assert jobs.run("scancel", "-M", "cluster", "1") == SILENT


def test_information_goes_to_standard_output(jobs: Served) -> None:
    assert jobs.run("scancel", "-V").out.startswith("slurm 26.05.0")
    assert jobs.run("scancel", "--help").out.startswith("Usage: scancel [OPTIONS]")
    assert jobs.run("scancel", "--usage").out.startswith("Usage: scancel [-A account]")

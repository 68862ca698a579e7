"""sbatch against a controller: what it prints, how it ends, and what the job is then."""

from __future__ import annotations

import os
import time
from calendar import timegm
from pathlib import Path

import pytest

from ctld.core.model import SignalSpec
from tests.serving import Served, ended, started, until

SCRIPT = "#!/bin/sh\nhostname\n"


def utc(text: str) -> int:
    return timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def script(folder: Path, text: str = SCRIPT, name: str = "job.sh") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_answer_line_is_all_that_is_printed(served: Served) -> None:
    assert served.run("sbatch", "--wrap", "true") == (0, "Submitted batch job 1\n", "")
    assert served.run("sbatch", "--parsable", "--wrap", "true") == (0, "2\n", "")
    named = served.run("sbatch", "-M", "cluster", "--wrap", "true")
    assert named == (0, "Submitted batch job 3 on cluster cluster\n", "")
    assert served.run("sbatch", "-M", "cluster", "--parsable", "--wrap", "true") == (0, "4;cluster\n", "")
    assert served.run("sbatch", "-Q", "--wrap", "true") == (0, "", "")
    assert served.run("sbatch", "-Q", "--parsable", "--wrap", "true") == (0, "", "")


def test_another_cluster_is_refused_by_its_name(served: Served) -> None:
    done = served.run("sbatch", "-M", "elsewhere", "--wrap", "true")
    assert (done.code, done.lines[0]) == (1, "sbatch: error: No cluster 'elsewhere' known by database.")
    assert not served.state.jobs


def test_the_command_line_wins_over_the_environment_and_that_over_the_script(served: Served, tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh\n#SBATCH --nodes=4\n#SBATCH -J inner\n#SBATCH -n 4\nhostname\n")
    done = served.run("sbatch", "--nodes=2", str(path), env={"SBATCH_JOB_NAME": "env"}, cwd=tmp_path)
    assert done == (0, "Submitted batch job 1\n", "")
    job = served.job(1)
    assert (job.spec.name, job.spec.request.nodes_min, job.spec.request.nodes_max) == ("env", 2, 2)
    assert job.spec.request.ntasks == 4


def test_a_directive_that_would_be_refused_does_not_matter_when_it_is_overridden(
    served: Served, tmp_path: Path
) -> None:
    path = script(tmp_path, "#!/bin/sh\n#SBATCH -N 99999999999\n#SBATCH --mem=lots\nhostname\n")
    assert served.run("sbatch", "-N1", "--mem=1G", str(path), cwd=tmp_path).code == 0
    refused = served.run("sbatch", "-N1", str(path), cwd=tmp_path)
    assert (refused.code, refused.lines[0]) == (255, "sbatch: error: Invalid --mem specification")


def test_directives_below_the_first_command_are_named_and_have_no_effect(served: Served, tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh\nset -eu\n#SBATCH -t 90\n#SBATCH -A lab\nhostname\n")
    done = served.run("sbatch", str(path), cwd=tmp_path)
    assert done == (
        0,
        "Submitted batch job 1\n",
        "sbatch: warning: 2 directives after the first command on line 2 are ignored (lines 3, 4)\n",
    )
    assert (served.job(1).spec.account, served.job(1).spec.time_limit_minutes) == ("", 0)
    strict = served.run("sbatch", str(path), cwd=tmp_path, env={"MUSTER_STRICT_DIRECTIVES": "1"})
    assert (strict.code, strict.out) == (1, "")
    assert "refused in strict mode (lines 3, 4)" in strict.err


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("#SBATCH -t 5   # short test", 0, ""),
        ("#SBATCH -J x   (sets the name)", 255, "Invalid directive found in batch script: (sets"),
        ("# SBATCH -t 5", 0, "line 2 is a remark, not a directive"),
        ("#SBATCH: -t 5", 0, "line 2 is a remark, not a directive"),
        ("##SBATCH -t 5", 0, ""),
        ("#sbatch -t 5", 0, "line 2 is a remark, not a directive"),
    ],
)
def test_remarks_and_near_misses_of_directives(served: Served, tmp_path: Path, line: str, code: int, said: str) -> None:
    done = served.run("sbatch", str(script(tmp_path, f"#!/bin/sh\n{line}\nhostname\n")), cwd=tmp_path)
    assert done.code == code
    assert (said in done.err) if said else (done.err == "")
    if code == 0:
        assert served.job(1).spec.time_limit_minutes == (5 if line.startswith("#SBATCH -t") else 0)


def test_what_follows_the_script_reaches_it(served: Served, tmp_path: Path) -> None:
    path = script(tmp_path)
    done = served.run("sbatch", "--comment", "a word", str(path), "--nodes=9", "-x", "two words", cwd=tmp_path)
    assert done.code == 0
    spec = served.job(1).spec
    assert (spec.script_args, spec.comment) == (("--nodes=9", "-x", "two words"), "a word")
    assert served.blobs.get(spec.script) == SCRIPT.encode()
    assert (spec.command, spec.name) == (str(path), "job.sh")
    assert spec.submit_line == f"sbatch --comment a word {path} --nodes=9 -x two words"


def test_a_script_may_come_from_standard_input_or_the_path(served: Served, tmp_path: Path) -> None:
    assert served.run("sbatch", stdin=SCRIPT, cwd=tmp_path).code == 0
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", name="found.sh")
    where = {"PATH": f"/nowhere:{tmp_path}/bin"}
    assert served.run("sbatch", "found.sh", env=where, cwd=tmp_path).code == 0
    assert [(served.job(i).spec.name, served.job(i).spec.command) for i in (1, 2)] == [
        ("sbatch", ""),
        ("found.sh", f"{tmp_path}/bin/found.sh"),
    ]


def test_a_script_and_an_environment_need_not_be_utf8(served: Served, tmp_path: Path) -> None:
    data = b"#!/bin/sh\necho \xff\xfe caf\xe9\n"
    (tmp_path / "job.sh").write_bytes(data)
    process = served.start("sbatch", "job.sh", cwd=tmp_path, env={"WORD": os.fsdecode(b"\xe9\xff"), "TWO": "a\nb=c"})
    assert process.communicate(timeout=30)[0] == b"Submitted batch job 1\n"
    spec = served.job(1).spec
    assert served.blobs.get(spec.script) == data
    entries = served.blobs.get(spec.environment).split(b"\0")
    assert b"WORD=\xe9\xff" in entries
    assert b"TWO=a\nb=c" in entries


def test_options_that_are_no_utf8_are_named(served: Served) -> None:
    done = served.run("sbatch", "--comment", os.fsdecode(b"caf\xe9"), "--wrap", "true")
    assert done == (1, "", "sbatch: error: the value of --comment is not valid UTF-8 text\n")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", ["Batch script is empty!"]),
        (b" \n\t\n", ["Batch script contains only whitespace!"]),
        (
            b"hostname\n",
            [
                "This does not look like a batch script.  The first",
                "line must start with #! followed by the path to an interpreter.",
                "For instance: #!/bin/sh",
            ],
        ),
        (
            b"#!/bin/sh\na\0b\n",
            ["The Slurm controller does not allow scripts that", r"contain a NULL character '\0'."],
        ),
        (
            b"#!/bin/sh\r\nhostname\r\n",
            [r"Batch script contains DOS line breaks (\r\n)", r"instead of expected UNIX line breaks (\n)."],
        ),
    ],
)
def test_what_is_no_batch_script_is_refused_in_slurms_words(
    served: Served, tmp_path: Path, text: bytes, lines: list[str]
) -> None:
    (tmp_path / "job.sh").write_bytes(text)
    done = served.run("sbatch", "job.sh", cwd=tmp_path)
    assert (done.code, done.out, done.lines) == (1, "", [f"sbatch: error: {line}" for line in lines])
    assert served.run("sbatch", stdin=text, cwd=tmp_path).lines == done.lines


def test_a_script_over_the_bounds_is_refused_in_a_sentence(served: Served, tmp_path: Path) -> None:
    script(tmp_path, SCRIPT + "#" * (5 << 20))
    done = served.run("sbatch", "job.sh", cwd=tmp_path)
    assert done.lines[0] == (
        "sbatch: error: Batch job submission failed: Pathname of a file, directory or other parameter too long"
    )
    script(tmp_path, SCRIPT + "#" * (33 << 20))
    done = served.run("sbatch", "job.sh", cwd=tmp_path)
    assert (done.code, "bytes, more than the 33554432 that are taken" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        (["--foo"], 255, ["sbatch: unrecognized option '--foo'", 'Try "sbatch --help" for more information']),
        (["--mem"], 255, ["sbatch: option '--mem' requires an argument", 'Try "sbatch --help" for more information']),
        (["missing.sh"], 1, ["sbatch: error: Unable to open file missing.sh"]),
        (["--wrap", "x", "y.sh"], 1, ["sbatch: error: Script arguments not permitted with --wrap option"]),
        (["-t", "5m", "--wrap", "x"], 255, ["sbatch: error: Invalid --time specification"]),
        (["-n", "0", "--wrap", "x"], 1, ['sbatch: error: Invalid numeric value "0" for --ntasks.']),
        (
            ["-N", "0", "--wrap", "x"],
            1,
            ["sbatch: error: Batch job submission failed: Node count specification invalid"],
        ),
        (
            ["--mem=2G", "--mem-per-cpu=1G", "--wrap", "x"],
            1,
            ["sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."],
        ),
        (["-Q", "-v", "--wrap", "x"], 1, ["sbatch: error: don't specify both --verbose (-v) and --quiet (-Q)"]),
        (
            ["--reservation=r", "--wrap", "x"],
            1,
            [
                "sbatch: error: Batch job submission failed: Requested reservation is invalid",
                "sbatch: there is no reservation 'r'",
            ],
        ),
        (
            ["-p", "nosuch", "--wrap", "x"],
            1,
            [
                "sbatch: error: invalid partition specified: nosuch",
                "sbatch: error: Batch job submission failed: Invalid partition name specified",
            ],
        ),
        (
            ["-c", "65", "--wrap", "x"],
            1,
            [
                "sbatch: error: CPU count per node can not be satisfied",
                "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            ],
        ),
        (
            ["--mem=1T", "--wrap", "x"],
            1,
            [
                "sbatch: error: Memory specification can not be satisfied",
                "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            ],
        ),
        (
            ["-d", "whenever:1", "--wrap", "x"],
            1,
            ["sbatch: error: Batch job submission failed: Job dependency problem"],
        ),
        (
            ["-d", "afterok:77", "--wrap", "x"],
            1,
            ["sbatch: error: Batch job submission failed: Job dependency problem"],
        ),
    ],
)
def test_what_is_refused_is_refused_in_slurms_words_with_its_exit_code(
    served: Served, tmp_path: Path, words: list[str], code: int, lines: list[str]
) -> None:
    done = served.run("sbatch", *words, cwd=tmp_path)
    assert (done.code, done.out) == (code, "")
    # Behind Slurm's lines there may be one of ours that says what would help.
    assert done.lines[: len(lines)] == lines
    assert len(done.lines) <= len(lines) + 1
    assert not served.state.jobs


def test_the_exit_code_of_a_refusal_can_be_chosen(served: Served) -> None:
    words = ("-p", "nosuch", "--wrap", "x")
    assert served.run("sbatch", *words, env={"SLURM_EXIT_ERROR": "9"}).code == 9
    assert served.run("sbatch", "--foo", env={"SLURM_EXIT_ERROR": "9"}).code == 255
    zero = served.run("sbatch", *words, env={"SLURM_EXIT_ERROR": "0"})
    assert (zero.code, zero.lines[0]) == (1, "sbatch: error: SLURM_EXIT_ERROR has zero value")
    assert served.run("sbatch", "--wrap", "x", env={"SLURM_EXIT_ERROR": "no"}).code == 0


def test_an_inherited_memory_variable_never_contradicts_an_option(served: Served) -> None:
    inside = {"SLURM_MEM_PER_CPU": "512", "SLURM_MEM_PER_NODE": "1024", "SBATCH_MEM_PER_CPU": "7"}
    assert served.run("sbatch", "--mem=1G", "--wrap", "true", env=inside) == (0, "Submitted batch job 1\n", "")
    request = served.job(1).spec.request
    assert (request.memory_per_node_mib, request.memory_per_cpu_mib) == (1024, 0)


def test_none_means_no_file_and_the_error_stream_follows_the_output(served: Served, tmp_path: Path) -> None:
    assert served.run("sbatch", "-o", "NONE", "--wrap", "true", cwd=tmp_path).err == ""
    served.run("sbatch", "-o", "out.txt", "--wrap", "true", cwd=tmp_path)
    served.run("sbatch", "--wrap", "true", cwd=tmp_path, env={"SBATCH_OUTPUT": "env.txt", "SBATCH_ERROR": "err.txt"})
    served.run("sbatch", "-o", "own.txt", "--wrap", "true", cwd=tmp_path, env={"SBATCH_OUTPUT": "env.txt"})
    assert [(served.job(i).spec.std_out, served.job(i).spec.std_err) for i in (1, 2, 3, 4)] == [
        ("NONE", ""),
        ("out.txt", ""),
        ("env.txt", "err.txt"),
        ("own.txt", ""),
    ]


def test_a_name_with_blanks_works_on_the_command_line_and_in_a_directive(served: Served, tmp_path: Path) -> None:
    served.run("sbatch", "-o", "a b.%j", "--wrap", "true", cwd=tmp_path)
    path = script(tmp_path, '#!/bin/sh\n#SBATCH -o "a b.%j"\n#SBATCH -i in\\ put.%u%%\nhostname\n')
    assert served.run("sbatch", str(path), cwd=tmp_path).code == 0
    assert [served.job(i).spec.std_out for i in (1, 2)] == ["a b.%j", "a b.%j"]
    assert served.job(2).spec.std_in == "in put.%u%%"


@pytest.mark.parametrize(
    ("export", "there", "missing", "said"),
    [
        ("ALL", ["HOME=/h", "PORT=1"], [], ""),
        ("NONE", [], ["HOME", "PORT"], ""),
        ("NIL", [], ["HOME", "PORT"], ""),
        ("ALL,PORT=29999", ["HOME=/h", "PORT=29999"], [], ""),
        ("PORT=29999", ["PORT=29999", "SLURM_X=1"], ["HOME", "PATH"], "leaves PATH out"),
        ("PORT,PATH", ["PORT=1"], ["HOME"], ""),
    ],
)
def test_forms_of_export(served: Served, export: str, there: list[str], missing: list[str], said: str) -> None:
    surroundings = {"HOME": "/h", "PORT": "1", "SLURM_X": "1", "SLURM_JWT": "secret"}
    done = served.run("sbatch", f"--export={export}", "--wrap", "true", env=surroundings)
    assert done.code == 0
    assert (said in done.err) if said else (done.err == "")
    entries = served.blobs.get(served.job(1).spec.environment).decode().split("\0")
    assert set(there) <= set(entries)
    names = {entry.partition("=")[0] for entry in entries}
    assert names.isdisjoint([*missing, "SLURM_JWT"])
    assert served.job(1).spec.export == ("" if export == "ALL" else export)


def test_an_export_file_gives_variables_under_the_callers_own(served: Served, tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"ONE=1\0HOME=/other\0")
    assert served.run("sbatch", "--export-file=env", "--wrap", "true", cwd=tmp_path, env={"HOME": "/h"}).code == 0
    entries = served.blobs.get(served.job(1).spec.environment).split(b"\0")
    assert b"ONE=1" in entries
    assert b"HOME=/h" in entries
    missing = served.run("sbatch", "--export-file=none", "--wrap", "true", cwd=tmp_path)
    assert (missing.code, missing.err) == (1, "sbatch: error: Could not open user environment file none\n")


def test_what_the_client_knows_goes_with_the_job(served: Served, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    words = ("-D", "sub", "--signal=B:USR1@90", "--ntasks-per-node=2", "-n", "4", "--propagate=NOFILE", "--no-requeue")
    assert served.run("sbatch", *words, "--open-mode=append", "--wrap", "true", cwd=tmp_path).code == 0
    spec = served.job(1).spec
    assert spec.work_dir == str(tmp_path / "sub")
    assert spec.signal == SignalSpec(10, 90, shell_only=True)
    assert (list(spec.rlimits), spec.requeue, spec.open_mode) == (["nofile"], False, "a")
    assert spec.echo["SLURM_NTASKS_PER_NODE"] == "2"
    assert spec.echo["SLURM_SUBMIT_DIR"] == str(tmp_path)
    assert (spec.sid, spec.uid, spec.gid) == (os.getsid(0), os.getuid(), os.getgid())
    assert spec.submit_host == os.uname().nodename.partition(".")[0]


def test_an_output_folder_that_cannot_be_written_is_told_at_submission(served: Served, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = served.run("sbatch", "-o", "file/dir/%j.out", "--wrap", "hostname", cwd=tmp_path)
    assert (done.code, done.out) == (0, "Submitted batch job 1\n")
    assert done.lines == [
        f"sbatch: warning: standard output would go to {tmp_path}/file/dir/%j.out, but {tmp_path}/file is no "
        "directory; where that holds, the job fails"
    ]
    # Missing folders are made on the node, and whether a pattern's folder is there cannot be told.
    assert served.run("sbatch", "-o", "missing/dir/%j.out", "--wrap", "hostname", cwd=tmp_path).err == ""
    assert served.run("sbatch", "-o", "%x/out", "--wrap", "hostname", "-J", "file/x", cwd=tmp_path).err == ""
    assert served.run("sbatch", "-Q", "-o", "file/o", "--wrap", "hostname", cwd=tmp_path).err == ""
    as_folder = served.run("sbatch", "-e", str(tmp_path), "--wrap", "hostname", cwd=tmp_path)
    assert f"standard error would go to {tmp_path}, but {tmp_path} is a directory" in as_folder.err


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_told_at_submission(served: Served, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o555)
    done = served.run("sbatch", "-o", "theirs/%j.out", "--wrap", "hostname", cwd=tmp_path)
    assert f"but you cannot write into {tmp_path}/theirs" in done.err


@pytest.mark.parametrize(
    ("text", "size", "code"),
    [
        ("1-1000", 1000, 0),
        ("1-1001", 0, 1),
        ("1001-1100", 0, 1),
        ("0-1000:2", 501, 0),
        ("5,5,5", 1, 0),
        ("3-1", 0, 1),
        ("0-9%0", 10, 0),
        ("x", 0, 1),
    ],
)
def test_the_limit_of_arrays_is_on_the_index(served: Served, text: str, size: int, code: int) -> None:
    done = served.run("sbatch", f"--array={text}", "--wrap", "true")
    assert done.code == code
    if code:
        assert done.lines[0] == "sbatch: error: Batch job submission failed: Invalid job array specification"
        if text not in ("x", "3-1"):
            assert "1001" in done.lines[1]
    else:
        spec = served.job(1).spec
        assert spec.array is not None
        assert spec.array.size == size


def test_dependencies_on_an_array_are_kept_as_they_are_meant(served: Served) -> None:
    assert served.run("sbatch", "--array=0-2", "--wrap", "true").code == 0
    for text in ("afterok:1", "afterok:1_1", "after:1+1", "afterany:1", "singleton"):
        assert served.run("sbatch", "-d", text, "--wrap", "true").code == 0
    assert served.run("sbatch", "-d", "aftercorr:1", "--array=0-2", "--wrap", "true").code == 0
    kinds = [
        [(clause.kind, clause.job_id, clause.task_id, clause.minutes) for clause in served.job(i).clauses]
        for i in range(2, 8)
    ]
    assert kinds == [
        [("afterok", 1, -1, 0)],
        [("afterok", 1, 1, 0)],
        [("after", 1, -1, 1)],
        [("afterany", 1, -1, 0)],
        [("singleton", 0, -1, 0)],
        [("aftercorr", 1, -1, 0)],
    ]


def test_wait_ends_with_the_job_and_gives_its_exit_code(served: Served) -> None:
    for job_id, (status, code) in enumerate([(0, 0), (3 << 8, 3), (9, 1)], 1):
        process = served.start("sbatch", "--wait", "--wrap", "true")
        assert process.stdout is not None
        assert process.stdout.readline() == f"Submitted batch job {job_id}\n".encode()
        started(served, job_id)
        assert process.poll() is None
        ended(served, job_id, status)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (code, b"", b"")


def test_wait_for_an_array_gives_the_highest_exit_code(served: Served) -> None:
    process = served.start("sbatch", "--wait", "--array=0-1", "--wrap", "true")
    assert process.stdout is not None
    process.stdout.readline()
    assert served.run("scancel", "1_0").code == 0
    assert process.poll() is None
    assert served.run("scancel", "1_1").code == 0
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_the_estimate_submits_nothing(served: Served) -> None:
    now = int(time.time())
    done = served.run("sbatch", "--test-only", "-N2", "-c", "4", "--wrap", "true", env={"TZ": "UTC"})
    assert (done.code, done.out) == (0, "")
    words = done.err.split()
    assert done.err.startswith("sbatch: Job 1 to start at ")
    assert words[7:] == ["a", "using", "8", "processors", "on", "nodes", "n[1-2]", "in", "partition", "main"]
    assert 0 <= utc(words[6]) - now < 60
    assert not served.state.jobs
    named = served.run("sbatch", "--test-only", "-M", "cluster", "--wrap", "true")
    assert " on cluster cluster a using 1 processors on nodes n1 in partition main" in named.err


def test_the_estimate_counts_what_runs(served: Served) -> None:
    assert served.run("sbatch", "-t", "60", "-w", "n1", "--wrap", "true").code == 0
    started(served, 1)
    done = served.run("sbatch", "--test-only", "-w", "n1", "--exclusive", "--wrap", "true", env={"TZ": "UTC"})
    assert "on nodes n1 in partition main" in done.err
    assert utc(done.err.split()[6]) >= served.job(1).started_at + 3600
    assert "using 64 processors" in done.err


def test_an_estimate_that_is_refused_has_slurms_words(served: Served) -> None:
    done = served.run("sbatch", "--test-only", "-p", "nosuch", "--wrap", "true")
    assert done.code == 1
    assert done.lines[:2] == [
        "sbatch: error: invalid partition specified: nosuch",
        "allocation failure: Invalid partition name specified",
    ]


def test_information_goes_to_standard_output(served: Served) -> None:
    assert served.run("sbatch", "-V").out.startswith("slurm 26.05.0 (muster ")
    helped = served.run("sbatch", "--help")
    assert (helped.code, helped.err) == (0, "")
    assert "--wrap=COMMAND" in helped.out
    assert served.run("sbatch", "--usage", "--nonsense").out.startswith("Usage: sbatch [--account=ACCOUNT]")
    assert "gpu[[:type]:count]" in served.run("sbatch", "--gres=help", "--wrap", "x").out


def test_a_controller_that_is_not_there_is_said_in_slurms_words(served: Served, tmp_path: Path) -> None:
    gone = {"MUSTER_SOCKET": str(tmp_path / "nothing")}
    done = served.run("sbatch", "--wrap", "true", env=gone)
    assert (done.code, done.lines[0]) == (
        1,
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    )
    assert f"{tmp_path}/nothing" in done.lines[1]


def test_a_controller_that_restarts_is_waited_for(served: Served) -> None:
    served.door.closing = True
    process = served.start("sbatch", "--wrap", "true", env={"MUSTER_PATIENCE": "20"})
    until(lambda: served.calls > 1)
    assert process.poll() is None
    served.door.closing = False
    assert process.communicate(timeout=30) == (b"Submitted batch job 1\n", b"")


def test_a_controller_that_does_not_come_back_is_given_up(served: Served) -> None:
    served.door.closing = True
    done = served.run("sbatch", "--wrap", "true", env={"MUSTER_PATIENCE": "0.3"})
    assert done.code == 1
    assert "Unable to contact slurm controller (connect failure)" in done.err


def test_a_patience_that_is_no_number_is_named(served: Served) -> None:
    done = served.run("sbatch", "--wrap", "true", env={"MUSTER_PATIENCE": "soon"})
    assert (done.code, done.out) == (1, "")
    assert "MUSTER_PATIENCE=soon is no number of seconds" in done.err

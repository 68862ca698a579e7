"""The options table: getopt's rules, the three sources, and their merge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from muster.options import Given, OptionError, Values, merge, parse_argv, parse_directives, parse_environment
from muster.options_check import check
from muster.options_convert import CONVERTERS
from muster.options_help import help_text, usage_text
from muster.options_table import ACTED, ROWS, WITHOUT_EFFECT

NOON = 1_800_000_000
TRY = 'Try "sbatch --help" for more information'


def argv_of(*words: str, command: str = "sbatch") -> dict[str, object]:
    values, _ = parse_argv(command, words, NOON)
    return dict(values)


def refused(*words: str, command: str = "sbatch") -> tuple[list[str], int]:
    with pytest.raises(OptionError) as caught:
        parse_argv(command, words, NOON)
    return caught.value.lines, caught.value.exit_code


def merged(
    *,
    script: Sequence[tuple[int, list[str]]] = (),
    environ: Mapping[str, str] | None = None,
    argv: Sequence[str] = (),
    command: str = "sbatch",
) -> Values:
    return merge(
        parse_directives(command, script, NOON),
        parse_environment(command, environ or {}, NOON),
        parse_argv(command, argv, NOON)[0],
    )


class TestTheTable:
    def test_every_row_has_a_converter_and_known_commands(self) -> None:
        for row in ROWS:
            assert row[4] in CONVERTERS, row
            assert row[2], row
            assert set(row[2]) <= set("BSA"), row
            assert row[3] == "" or row[3].startswith(("=", "[=")), row
            assert row[7] in (1, 2, 3), row
            assert row[8], row

    @pytest.mark.parametrize("letter", "BSA")
    def test_no_command_has_an_option_twice(self, letter: str) -> None:
        mine = [row for row in ROWS if letter in row[2]]
        longs = [row[1] for row in mine]
        shorts = [row[0] for row in mine if row[0]]
        assert len(longs) == len(set(longs))
        assert len(shorts) == len(set(shorts))

    def test_all_that_is_acted_on_is_in_the_table(self) -> None:
        names = {row[1] for row in ROWS}
        for acted in ACTED.values():
            assert set(acted) <= names
        assert set(WITHOUT_EFFECT) <= names

    def test_a_flag_has_no_argument_and_the_rest_has_one(self) -> None:
        for row in ROWS:
            assert (row[3] == "") == (row[4] in ("flag", "off", "verbose")), row

    def test_each_command_prints_its_help_from_the_table(self) -> None:
        text = help_text("sbatch")
        assert "  -J, --job-name=NAME" in text
        assert "      --wrap=COMMAND" in text
        assert "--mail-type" not in text
        assert "--label" in help_text("srun")
        assert all(len(line) <= 110 for line in text.splitlines())

    def test_usage_names_the_options_in_short_lines(self) -> None:
        lines = usage_text("srun").splitlines()
        assert lines[0].startswith("Usage: srun [--account=ACCOUNT]")
        assert lines[-1].strip() == "PROGRAM [ARGUMENTS...]"
        assert all(len(line) <= 80 for line in lines)


class TestGetoptRules:
    def test_a_required_value_may_follow_or_be_joined(self) -> None:
        assert argv_of("--comment", "a b") == argv_of("--comment=a b") == {"comment": "a b"}

    def test_a_required_value_may_look_like_an_option(self) -> None:
        assert argv_of("--comment", "--hold") == {"comment": "--hold"}
        assert argv_of("-J", "-H") == {"job_name": "-H"}

    def test_a_required_value_may_be_empty_when_joined(self) -> None:
        assert argv_of("--comment=") == {"comment": ""}

    def test_a_value_may_hold_an_equals_sign(self) -> None:
        assert argv_of("--export=A=1,B=2") == {"export": "A=1,B=2"}

    def test_an_optional_value_counts_only_when_joined(self) -> None:
        values, rest = parse_argv("sbatch", ["--nice", "5", "x"], NOON)
        assert values == {"nice": 100}
        assert rest == ["5", "x"]
        assert argv_of("--nice=5") == {"nice": 5}

    def test_an_optional_value_of_a_short_letter_counts_only_when_glued(self) -> None:
        values, rest = parse_argv("srun", ["-I", "60"], NOON)
        assert (values, rest) == ({"immediate": 1}, ["60"])
        assert argv_of("-I60", command="srun") == {"immediate": 60}
        assert argv_of("-K1", command="srun") == {"kill_on_bad_exit": 1}
        assert argv_of("-K0", command="srun") == {"kill_on_bad_exit": 0}
        assert argv_of("-K", command="srun") == {"kill_on_bad_exit": 1}

    def test_short_letters_are_bundled_and_the_last_takes_the_value(self) -> None:
        assert argv_of("-HOn4") == {"hold": True, "overcommit": True, "ntasks": 4}
        assert argv_of("-HJ", "name") == {"hold": True, "job_name": "name"}

    def test_a_unique_beginning_will_do(self) -> None:
        assert argv_of("--job=x") == {"job_name": "x"}
        assert argv_of("--part", "p") == {"partition": "p"}

    def test_an_exact_name_wins_over_longer_ones(self) -> None:
        assert argv_of("--gpus=2") == {"gpus": "2"}
        assert argv_of("--mem=3") == {"mem": 3}
        assert argv_of("--time=3") == {"time_limit": 3}

    def test_an_ambiguous_beginning_is_refused_with_the_candidates(self) -> None:
        lines, code = refused("--exclu=x")
        assert lines == [
            "sbatch: option '--exclu=x' is ambiguous; possibilities: '--exclude' '--exclusive'",
            TRY,
        ]
        assert code == 255

    def test_an_unknown_long_option_is_refused(self) -> None:
        assert refused("--foo") == (["sbatch: unrecognized option '--foo'", TRY], 255)
        assert refused("--foo=3") == (["sbatch: unrecognized option '--foo=3'", TRY], 255)

    def test_names_compare_exactly(self) -> None:
        assert refused("--job_name=x")[0][0] == "sbatch: unrecognized option '--job_name=x'"

    def test_an_unknown_letter_is_refused(self) -> None:
        assert refused("-z") == (["sbatch: invalid option -- 'z'", TRY], 255)
        assert refused("-Hz")[0][0] == "sbatch: invalid option -- 'z'"

    def test_a_missing_value_is_refused(self) -> None:
        assert refused("--nodes") == (["sbatch: option '--nodes' requires an argument", TRY], 255)
        assert refused("--nod")[0][0].startswith("sbatch: option '--nod' is ambiguous")
        assert refused("--ntasks-per-n")[0][0] == "sbatch: option '--ntasks-per-node' requires an argument"
        assert refused("-N") == (["sbatch: option requires an argument -- 'N'", TRY], 255)

    def test_a_value_for_a_flag_is_refused(self) -> None:
        assert refused("--hold=yes") == (["sbatch: option '--hold' doesn't allow an argument", TRY], 255)

    def test_options_end_at_the_first_other_word(self) -> None:
        values, rest = parse_argv("sbatch", ["-N1", "job.sh", "-N2", "--foo"], NOON)
        assert values == {"nodes": [1, 1]}
        assert rest == ["job.sh", "-N2", "--foo"]

    def test_two_dashes_end_the_options(self) -> None:
        assert parse_argv("srun", ["-l", "--", "-x"], NOON) == ({"label": True}, ["-x"])

    def test_a_single_dash_is_a_word(self) -> None:
        assert parse_argv("sbatch", ["-"], NOON) == ({}, ["-"])

    def test_the_texts_name_the_command(self) -> None:
        assert refused("--wrap=x", command="srun") == (
            ["srun: unrecognized option '--wrap=x'", 'Try "srun --help" for more information'],
            255,
        )
        assert refused("--test-only", command="salloc")[1] == 255

    def test_one_letter_means_different_things_to_different_commands(self) -> None:
        assert argv_of("-W") == {"wait": True}
        assert argv_of("-W", "30", command="srun") == {"wait": 30}
        assert argv_of("-K", command="salloc") == {"kill_command": "TERM"}

    @pytest.mark.parametrize("word", ["--help", "-h", "--usage", "--version", "-V", "-vV"])
    def test_help_and_version_end_the_reading_at_once(self, word: str) -> None:
        values, rest = parse_argv("sbatch", [word, "--foo", "x"], NOON)
        assert list(values) in (["help"], ["usage"], ["version"])
        assert rest == []

    def test_an_error_before_help_counts(self) -> None:
        assert refused("--foo", "--help")[1] == 255

    def test_the_last_of_several_wins_and_spellings_count_as_one_option(self) -> None:
        assert argv_of("-J", "a", "--job-name=b") == {"job_name": "b"}
        assert argv_of("--tasks-per-node=2", "--ntasks-per-node=3") == {"ntasks_per_node": 3}
        assert argv_of("--requeue", "--no-requeue") == {"requeue": False}
        assert argv_of("--no-requeue", "--requeue") == {"requeue": True}

    def test_verbose_is_counted(self) -> None:
        assert argv_of("-vv", "--verbose") == {"verbose": 3}


class TestEnvironment:
    def test_each_command_reads_its_own_variables(self) -> None:
        environ = {"SBATCH_PARTITION": "b", "SLURM_PARTITION": "s", "SALLOC_PARTITION": "a", "SLURM_NTASKS": "4"}
        assert merged(environ=environ) == {"partition": "b"}
        assert merged(environ=environ, command="srun") == {"partition": "s", "ntasks": 4}
        assert merged(environ=environ, command="salloc") == {"partition": "a"}

    def test_sbatch_does_not_read_the_sizes_of_a_surrounding_job(self) -> None:
        environ = {
            "SLURM_NTASKS": "4",
            "SLURM_CPUS_PER_TASK": "2",
            "SLURM_TIMELIMIT": "5",
            "SLURM_JOB_NAME": "outer",
            "SLURM_EXPORT_ENV": "NONE",
            "SLURM_DEBUG": "3",
        }
        assert merged(environ=environ) == {}

    def test_some_slurm_variables_act_for_all(self) -> None:
        for command in ("sbatch", "srun", "salloc"):
            assert merged(environ={"SLURM_HINT": "multithread"}, command=command) == {"hint": "multithread"}

    @pytest.mark.parametrize("text", ["", "yes", "YES", "1", "2", "-1"])
    def test_a_flag_is_set(self, text: str) -> None:
        assert merged(environ={"SBATCH_OVERCOMMIT": text}) == {"overcommit": True}

    @pytest.mark.parametrize("text", ["0", "no", "true", "x"])
    def test_any_other_text_takes_a_flag_back(self, text: str) -> None:
        script = [(2, ["--overcommit"])]
        assert merged(script=script) == {"overcommit": True}
        assert merged(script=script, environ={"SBATCH_OVERCOMMIT": text}) == {}

    def test_an_empty_optional_value_is_a_value_left_out(self) -> None:
        assert merged(environ={"SBATCH_EXCLUSIVE": ""}) == {"exclusive": "node"}
        assert merged(environ={"SBATCH_EXCLUSIVE": "user"}) == {"exclusive": "user"}

    def test_requeue_variables(self) -> None:
        assert merged(environ={"SBATCH_REQUEUE": ""}) == {"requeue": True}
        assert merged(environ={"SBATCH_NO_REQUEUE": "1"}) == {"requeue": False}
        with pytest.raises(OptionError) as caught:
            merged(environ={"SBATCH_REQUEUE": "maybe"})
        assert caught.value.lines == ["sbatch: error: Invalid --requeue specification"]
        assert caught.value.exit_code == 255

    def test_the_level_of_verbosity(self) -> None:
        assert merged(environ={"SLURM_DEBUG": "3"}, command="srun") == {"verbose": 3}
        assert merged(environ={"SLURM_DEBUG": "3"}, command="srun", argv=["-v"]) == {"verbose": 1}

    def test_the_later_of_two_variables_wins(self) -> None:
        environ = {"SLURM_NTASKS": "4", "SLURM_NPROCS": "2"}
        assert merged(environ=environ, command="srun") == {"ntasks": 4}

    def test_a_step_does_not_take_the_name_of_its_job(self) -> None:
        environ = {"SLURM_JOB_NAME": "outer"}
        assert merged(environ=environ, command="srun") == {"job_name": "outer"}
        assert merged(environ=environ | {"SLURM_JOB_ID": "7"}, command="srun") == {"jobid": "7"}

    def test_how_long_to_wait_for_switches_has_a_variable_of_its_own(self) -> None:
        assert merged(environ={"SLURM_WAIT4SWITCH": "10"}, command="srun") == {"switches_wait": 10}


class TestMerge:
    def test_n01_the_command_line_wins_over_variable_and_script(self) -> None:
        values = merged(
            script=[(2, ["--nodes=4"]), (3, ["-J", "inner"])],
            environ={"SBATCH_JOB_NAME": "env"},
            argv=["--nodes=2"],
        )
        assert values == {"nodes": [2, 2], "job_name": "env"}
        assert values.sources == {"nodes": "argv", "job_name": "SBATCH_JOB_NAME"}

    def test_b01_a_bad_directive_does_not_matter_when_it_is_overridden(self) -> None:
        script = [(2, ["--nodes=absurd"]), (3, ["-t", "never"])]
        assert merged(script=script, argv=["-N1", "-t5"]) == {"nodes": [1, 1], "time_limit": 5}

    def test_a_bad_directive_that_survives_is_refused_with_its_place(self) -> None:
        with pytest.raises(OptionError) as caught:
            merged(script=[(7, ["--nodes=absurd"])])
        assert caught.value.lines == ['sbatch: error: "absurd" is not a valid node count']
        assert caught.value.exit_code == 255
        assert "line 7 of the script" in str(caught.value)

    def test_a_bad_value_on_the_command_line_is_refused_at_once(self) -> None:
        assert refused("-n", "x", "-n", "2") == (['sbatch: error: Invalid numeric value "x" for --ntasks.'], 1)

    def test_b02_output_and_error_from_all_three_sources(self) -> None:
        script = [(2, ["-o", "script.out"]), (3, ["-e", "script.err"])]
        environ = {"SBATCH_OUTPUT": "env.out"}
        assert merged(script=script, environ=environ) == {"output": "env.out", "error": "script.err"}
        assert merged(script=script, environ=environ, argv=["-onone"]) == {"output": "none", "error": "script.err"}

    def test_n10_an_option_given_replaces_an_inherited_memory_setting(self) -> None:
        environ = {"SLURM_MEM_PER_CPU": "1024"}
        assert merged(environ=environ, command="srun", argv=["--mem=1G"]) == {"mem": 1024}
        assert merged(environ={"SBATCH_MEM_PER_CPU": "7"}, script=[(2, ["--mem=3"])]) == {"mem": 3}
        two = {"SLURM_MEM_PER_CPU": "1024", "SLURM_MEM_PER_NODE": "5"}
        assert merged(environ=two, command="srun", argv=["--mem-per-gpu=1G"]) == {"mem_per_gpu": 1024}

    @pytest.mark.parametrize(
        ("environ", "argv", "left"),
        [
            ({"SLURM_CPUS_PER_TASK": "2"}, ["--cpus-per-gpu=3"], {"cpus_per_gpu": 3}),
            ({"SLURM_CPUS_PER_GPU": "2"}, ["-c3"], {"cpus_per_task": 3}),
            ({"SLURM_GPUS_PER_NODE": "2"}, ["--gres=gpu:1"], {"gres": "gpu:1"}),
            ({"SLURM_GPUS_PER_NODE": "2"}, ["--gres=none"], {"gres": "none"}),
            ({"SLURM_NTASKS_PER_NODE": "2"}, ["--ntasks-per-gpu=1"], {"ntasks_per_gpu": 1}),
            ({"SLURM_NTASKS_PER_GPU": "2"}, ["--gpus-per-task=1"], {"gpus_per_task": "1"}),
            ({"SLURM_EXCLUSIVE": ""}, ["-s"], {"oversubscribe": True}),
            ({"SLURM_DEBUG": "2"}, ["-Q"], {"quiet": True}),
        ],
    )
    def test_an_option_given_drops_a_variable_that_contradicts_it(
        self, environ: dict[str, str], argv: list[str], left: dict[str, object]
    ) -> None:
        assert merged(environ=environ, argv=argv, command="srun") == left

    def test_a_gres_without_gpus_leaves_the_inherited_gpus_alone(self) -> None:
        values = merged(environ={"SLURM_GPUS_PER_NODE": "2"}, argv=["--gres=disk:1"], command="srun")
        assert values == {"gpus_per_node": "2", "gres": "disk:1"}

    def test_what_a_job_with_c_inherits_is_no_contradiction(self) -> None:
        environ = {"SLURM_CPUS_PER_TASK": "2", "SLURM_TRES_PER_TASK": "cpu=2"}
        values = merged(environ=environ, command="srun", argv=["-c1"])
        assert values == {"cpus_per_task": 1}
        assert check("srun", values) == ({"cpus_per_task": 1, "exact": True}, [])

    def test_what_a_job_with_resources_of_each_task_inherits_is_no_contradiction(self) -> None:
        environ = {"SLURM_CPUS_PER_TASK": "2", "SLURM_TRES_PER_TASK": "cpu:2,gres/gpu:1", "SLURM_GPUS_PER_TASK": "1"}
        for argv, cpus in ((), 2), (("-c1",), 1):
            values = merged(environ=environ, command="srun", argv=list(argv))
            assert values == {"cpus_per_task": cpus, "tres_per_task": "gres/gpu:1", "gpus_per_task": "1"}
            assert check("srun", values)[0]["exact"] is True
        alone = merged(environ={"SLURM_TRES_PER_TASK": "cpu:2"}, command="srun", argv=[])
        assert check("srun", alone)[0]["cpus_per_task"] == 2

    def test_the_sources_may_all_be_empty(self) -> None:
        assert merge(Given(), Given(), Given()) == {}


class TestDirectives:
    def test_an_unknown_option_is_refused_at_once_even_when_it_would_be_overridden(self) -> None:
        with pytest.raises(OptionError) as caught:
            merged(script=[(2, ["--foo"])], argv=["-N1"])
        assert caught.value.lines == ["sbatch: unrecognized option '--foo'", TRY]
        assert caught.value.exit_code == 255
        assert caught.value.hint == "line 2 of the script"

    def test_n03_a_stray_word_is_refused_and_named(self) -> None:
        for words, stray in ((["-J", "x", "(sets", "the", "name)"], "(sets"), (["word", "-J", "x"], "word")):
            with pytest.raises(OptionError) as caught:
                parse_directives("sbatch", [(4, words)], NOON)
            assert caught.value.lines == [f"sbatch: error: Invalid directive found in batch script: {stray}"]
            assert caught.value.exit_code == 255

    def test_options_that_come_too_late_are_passed_over(self) -> None:
        words = ["--help", "--usage", "-V", "-v", "-Q", "--wrap=x", "-N2"]
        assert merged(script=[(2, words)]) == {"nodes": [2, 2]}

    def test_the_last_directive_wins(self) -> None:
        assert merged(script=[(2, ["-N2"]), (3, ["-N", "3"])]) == {"nodes": [3, 3]}

    def test_a_value_is_not_taken_from_the_next_line(self) -> None:
        with pytest.raises(OptionError) as caught:
            parse_directives("sbatch", [(2, ["-N"]), (3, ["2"])], NOON)
        assert caught.value.lines[0] == "sbatch: option requires an argument -- 'N'"


FORBIDDEN = [
    "re",
    "enum",
    "dataclasses",
    "typing",
    "json",
    "socket",
    "signal",
    "argparse",
    "asyncio",
    "subprocess",
    "inspect",
    "collections",
    "functools",
    "pathlib",
    "tempfile",
    "shutil",
    "datetime",
    "msgspec",
    "grpc",
    "google",
    "click",
    "numpy",
    "http",
    "logging",
]


def test_commands_import_nothing_costly_with_the_options(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import muster.options, muster.options_check, muster.options_help, muster.batchscript, muster.patterns\n"
        "import muster.environment, muster.gres_text\n"
        "from muster.options import *\n"
        "given, _ = parse_argv('sbatch', ['-N2', '-t5', '--mem=1G', '--signal=USR1@60', '--gres=gpu:1',"
        " '--begin=now+1hour', '-a1-3'], 0)\n"
        "muster.options_check.check('sbatch', merge(Given(), parse_environment('sbatch', {}, 0), given))\n"
        "muster.environment.exported({}, 'NONE', 'sbatch'); muster.environment.user_rlimits()\n"
        f"print([name for name in {FORBIDDEN!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[]"

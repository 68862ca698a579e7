"""What --export lets through, and the limits that go with a job."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from muster.environment import (
    current_umask,
    echoed,
    exported,
    propagated_rlimits,
    read_export_file,
    split_items,
    user_rlimits,
)
from muster.errors import InvalidInput

CALLER = {"PATH": "/bin", "HOME": "/h", "PORT": "1", "SLURM_X": "x", "SPANK_Y": "y", "SLURM_JWT": "secret"}


class TestSbatch:
    @pytest.mark.parametrize("option", [None, "ALL", "all"])
    def test_all_is_everything_but_the_credential(self, option: str | None) -> None:
        variables, export_env, get_user_env, warnings = exported(CALLER, option, "sbatch")
        assert variables == {name: text for name, text in CALLER.items() if name != "SLURM_JWT"}
        assert (export_env, get_user_env, warnings) == (None, False, [])

    def test_all_takes_an_inherited_setting_back(self) -> None:
        inherited = {"SLURM_EXPORT_ENV": "NONE", "A": "1"}
        assert exported(inherited, "ALL", "sbatch")[0] == {"A": "1"}
        assert exported(inherited, None, "sbatch")[0] == inherited

    @pytest.mark.parametrize("option", ["NONE", "none"])
    def test_none_is_the_systems_variables_and_the_login_environment(self, option: str) -> None:
        variables, export_env, get_user_env, warnings = exported(CALLER, option, "sbatch")
        assert variables == {
            "SLURM_X": "x",
            "SPANK_Y": "y",
            "SLURM_EXPORT_ENV": option,
            "SLURM_GET_USER_ENV": "1",
        }
        assert (export_env, get_user_env, warnings) == (option, True, [])

    def test_nil_is_none_without_the_login_environment(self) -> None:
        variables, export_env, get_user_env, _ = exported(CALLER, "NIL", "sbatch")
        assert variables == {"SLURM_X": "x", "SPANK_Y": "y", "SLURM_EXPORT_ENV": "NIL"}
        assert (export_env, get_user_env) == ("NIL", False)

    def test_n09_a_bare_list_passes_only_what_it_names(self) -> None:
        variables, export_env, get_user_env, warnings = exported(CALLER, "PORT=29999", "sbatch")
        assert variables == {
            "SLURM_X": "x",
            "SPANK_Y": "y",
            "PORT": "29999",
            "SLURM_EXPORT_ENV": "PORT=29999",
            "SLURM_GET_USER_ENV": "1",
        }
        assert (export_env, get_user_env) == ("PORT=29999", True)
        assert warnings == [
            "--export=PORT=29999 leaves PATH out, so programs that srun starts in the job may not be found by "
            "name; write --export=ALL,PORT=29999 to keep the rest"
        ]

    def test_a_name_is_copied_if_it_is_set(self) -> None:
        assert exported(CALLER, "HOME,EDITOR,PATH", "sbatch")[0] == {
            "SLURM_X": "x",
            "SPANK_Y": "y",
            "HOME": "/h",
            "PATH": "/bin",
            "SLURM_EXPORT_ENV": "HOME,EDITOR,PATH",
            "SLURM_GET_USER_ENV": "1",
        }
        assert exported(CALLER, "HOME,EDITOR,PATH", "sbatch")[3] == []

    @pytest.mark.parametrize("caller", [CALLER, {"PATH": "/bin"}])
    def test_n09_all_with_a_value_sets_the_value(self, caller: dict[str, str]) -> None:
        variables, _, get_user_env, warnings = exported(caller, "ALL,PORT=29999", "sbatch")
        assert variables["PORT"] == "29999"
        assert variables["PATH"] == "/bin"
        assert get_user_env
        assert warnings == []

    def test_the_items_are_applied_from_left_to_right(self) -> None:
        assert exported(CALLER, "PORT=2,ALL", "sbatch")[0]["PORT"] == "1"
        assert exported(CALLER, "PORT=2,PORT=3", "sbatch")[0]["PORT"] == "3"

    def test_the_credential_cannot_be_named(self) -> None:
        assert "SLURM_JWT" not in exported(CALLER, "ALL,SLURM_JWT", "sbatch")[0]


class TestSrun:
    @pytest.mark.parametrize("option", [None, "ALL"])
    def test_all_is_everything(self, option: str | None) -> None:
        assert exported(CALLER, option, "srun") == (CALLER, None, False, [])

    @pytest.mark.parametrize("option", ["NONE", "NIL", "none"])
    def test_b11_none_is_nothing_at_all(self, option: str) -> None:
        assert exported(CALLER, option, "srun") == ({}, option, False, [])

    def test_b11_a_value_is_set_and_the_rest_left_out(self) -> None:
        variables, _, _, warnings = exported(CALLER, "X=1", "srun")
        assert variables == {"SLURM_X": "x", "SPANK_Y": "y", "X": "1"}
        assert warnings == [
            "--export=X=1 leaves PATH out, so the program may not be found by name; "
            "write --export=ALL,X=1 to keep the rest"
        ]

    @pytest.mark.parametrize("option", ["ALL,PORT=29999", "PORT=29999,ALL"])
    def test_n09_with_all_the_callers_own_value_wins(self, option: str) -> None:
        assert exported(CALLER, option, "srun")[0]["PORT"] == "1"
        assert exported({"A": "b"}, option, "srun")[0] == {"A": "b", "PORT": "29999"}

    def test_without_all_the_value_of_the_list_wins(self) -> None:
        assert exported(CALLER, "PORT=29999", "srun")[0]["PORT"] == "29999"


def test_items_are_split_outside_quotes_and_quotes_stay() -> None:
    assert split_items('ALL,B="a,b",C') == ["ALL", 'B="a,b"', "C"]
    assert split_items("A='x,\"y',B") == ["A='x,\"y'", "B"]
    assert split_items("A,,B,") == ["A", "B"]
    assert exported({}, 'ALL,B="a,b"', "sbatch")[0]["B"] == '"a,b"'


class TestExportFile:
    def test_a_file_of_entries(self, tmp_path: Path) -> None:
        file = tmp_path / "env"
        file.write_bytes(b"A=1\0B=x=y\nz\0C=\0")
        assert read_export_file(str(file)) == {"A": "1", "B": "x=y\nz", "C": ""}

    def test_a_descriptor(self, tmp_path: Path) -> None:
        file = tmp_path / "env"
        file.write_bytes(b"A=1\0")
        descriptor = os.open(file, os.O_RDONLY)
        try:
            assert read_export_file(str(descriptor)) == {"A": "1"}
        finally:
            os.close(descriptor)

    def test_what_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput) as caught:
            read_export_file(str(tmp_path / "none"))
        assert caught.value.sentence == f"Could not open user environment file {tmp_path}/none"
        (tmp_path / "bad").write_bytes(b"A=1\0nonsense\0")
        with pytest.raises(InvalidInput, match="'nonsense', which is not NAME=value"):
            read_export_file(str(tmp_path / "bad"))


class TestLimits:
    def test_soft_limits_are_read_and_unlimited_is_minus_one(self) -> None:
        limits = user_rlimits()
        assert set(limits) == {"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack"}
        assert limits["nofile"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert all(limit >= -1 for limit in limits.values())

    def test_only_those_named_go_with_the_job(self) -> None:
        assert propagated_rlimits("NONE") == {}
        assert propagated_rlimits(None) == propagated_rlimits("ALL") == user_rlimits()
        assert set(propagated_rlimits("CORE,STACK")) == {"core", "stack"}

    def test_the_umask_is_read_and_left_as_it_was(self) -> None:
        before = os.umask(0o027)
        try:
            assert current_umask() == 0o027
            assert current_umask() == 0o027
        finally:
            os.umask(before)


class TestEcho:
    def test_only_options_that_were_given_come_back(self) -> None:
        values = {"cpus_per_task": 2, "gpus_per_node": "a100:2", "overcommit": True, "mem": 5, "job_name": "x"}
        assert echoed(values) == {
            "SLURM_CPUS_PER_TASK": "2",
            "SLURM_GPUS_PER_NODE": "a100:2",
            "SLURM_OVERCOMMIT": "1",
        }
        assert echoed({}) == {}
        assert echoed({"segment": 4}) == {"SLURM_JOB_SEGMENT_SIZE": "4"}
        assert echoed({"segment": "4:required:rack"}) == {"SLURM_JOB_SEGMENT_SIZE": "4"}
        assert echoed({"dependency": "afterok:7"}) == {"SLURM_JOB_DEPENDENCY": "afterok:7"}

    def test_the_size_of_a_plane_has_a_variable_of_its_own(self) -> None:
        assert echoed({"distribution": "plane=4,Pack"}) == {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "4"}
        assert echoed({"distribution": "block:cyclic"}) == {"SLURM_DISTRIBUTION": "block:cyclic"}

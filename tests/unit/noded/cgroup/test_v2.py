"""Finding a control group tree; steps' folders in one (a plain folder stands for the mount)."""

from __future__ import annotations

from pathlib import Path

from noded.cgroup import v2
from noded.cgroup.none import NoCgroups


def a_tree(folder: Path) -> Path:
    """A folder that looks like a mount of version 2."""
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    (folder / "cgroup.controllers").touch()
    return folder


def test_makes_and_removes_the_folders_of_steps(tmp_path: Path) -> None:
    found = v2.find("n1", tmp_path, str(a_tree(tmp_path / "mount")))
    assert isinstance(found, v2.CgroupsV2)
    root = found.root
    assert root.parent == tmp_path / "mount/muster"
    assert root.name.startswith("n1-")
    assert (root / "stepds").is_dir()
    assert found.create(1, 0) == f"{root}/job_1/step_0"
    assert found.create(1, 1) == f"{root}/job_1/step_1"
    found.remove(1, 0)
    assert [path.name for path in (root / "job_1").iterdir()] == ["step_1"]
    found.remove(1, 1)
    assert not (root / "job_1").exists()
    found.remove(1, 1)
    found.close()
    assert not (tmp_path / "mount/muster").exists()


def test_nodes_of_the_same_name_in_two_clusters_share_nothing(tmp_path: Path) -> None:
    mount = str(a_tree(tmp_path / "mount"))
    one, other = (v2.find("n1", tmp_path / spool, mount) for spool in ("one", "other"))
    assert isinstance(one, v2.CgroupsV2)
    assert isinstance(other, v2.CgroupsV2)
    assert one.create(1, 0) != other.create(1, 0)


def test_says_why_there_is_none(tmp_path: Path) -> None:
    assert v2.find("n1", tmp_path, "off") == "switched off by --cgroup=off"
    assert v2.find("n1", tmp_path, str(tmp_path)) == f"no control group tree of version 2 was found at {tmp_path}"


def test_both_forms_say_which_limits_do_not_hold(tmp_path: Path) -> None:
    with_tree = v2.CgroupsV2(tmp_path / "n1").limits_off()
    without = NoCgroups("not root").limits_off()
    for sentences in (with_tree, without):
        assert any(sentence.startswith("memory is not limited") for sentence in sentences)
        assert any(sentence.startswith("cores are not limited") for sentence in sentences)
    assert "not root" in without[0]
    assert NoCgroups("x").create(1, 0) == ""

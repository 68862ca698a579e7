"""The documents hold what they promise: their links lead to files, and CI runs the command that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctld import associations, configure
from muster.config.load import load
from muster.config.problems import Problems

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


def test_the_readme_begins_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("#")[0].strip() for line in lines[2:4]] == ["make demo", "make test"]


def test_every_decision_has_its_four_parts() -> None:
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for path in decisions:
        headings = re.findall(r"^## (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Context", "Decision", "Alternatives", "Consequences"], path.name


def test_ci_runs_the_readmes_own_test_command() -> None:
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", ["README.md", "docs/admins.md"])
def test_configurations_in_the_documents_load(document: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```conf\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "muster.conf").write_text(block, encoding="utf-8")
        cluster = load(tmp_path / "muster.conf", {})
        assert [node.name for node in cluster.nodes] == ["gpu1", "gpu2"]
        assert cluster.partitions[0].name == "gpu"


def test_the_topology_and_the_associations_in_the_documents_are_read(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "admins.md").read_text(encoding="utf-8")
    (yaml,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (line,) = re.findall(r"`(PartitionName=tight .*?)`", text)
    (tmp_path / "topology.yaml").write_text(yaml, encoding="utf-8")
    (tmp_path / "muster.conf").write_text(f"ClusterName=c\nSlurmctldHost=h\nNodeName=node[1-64] CPUs=4\n{line}\n")
    made = configure.command(load(tmp_path / "muster.conf", {}))
    assert (made.settings.topologies[0].levels, made.partitions[0].topology) == (("spine", "rack"), "net")

    (tree,) = re.findall(r"```\n(QOS - .*?)```", text, re.DOTALL)
    problems = Problems()
    found = associations.read(tree, "tree.cfg", problems)
    assert (problems.errors, problems.warnings) == ([], [])
    assert [one.account for one in found.associations] == ["root", "physics", "physics"]

"""scontrol show topology."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from ctld.core.cluster import TopologySpec
from ctld.core.state import State
from tests.builders import a_state
from tests.served import served
from tests.topologies import a_tree, blocks

TREE = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[0-1]
"""
BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2
"""


def under(*topologies: TopologySpec) -> State:
    state = a_state(4)
    state.settings = replace(state.settings, topologies=topologies)
    return state


def test_a_flat_network_prints_nothing(tmp_path: Path) -> None:
    with served(under(), tmp_path) as serving:
        assert serving.out("scontrol", "show", "topology") == ""


def test_switches_stand_from_the_leaves_up_and_blocks_in_order(tmp_path: Path) -> None:
    with served(under(a_tree((2, 2))), tmp_path) as serving:
        assert serving.out("scontrol", "show", "topol") == TREE
    with served(under(blocks(2, 2, (2, 4))), tmp_path) as serving:
        assert serving.out("scontrol", "show", "topology") == BLOCKS


def test_a_topology_a_unit_and_a_node_may_be_asked_for(tmp_path: Path) -> None:
    both = under(replace(a_tree((2, 2)), name="net"), replace(blocks(2, 2, (2,)), name="racks"))
    with served(both, tmp_path) as serving:
        assert serving.out("scontrol", "show", "topology", "racks") == BLOCKS
        assert serving.out("scontrol", "show", "topology", "net", "unit=s1") == TREE.splitlines(keepends=True)[1]
        shown = serving.out("scontrol", "show", "topology", "net", "node=n3")
        assert shown == "".join(TREE.splitlines(keepends=True)[1:])


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with served(under(a_tree((2, 2))), tmp_path) as serving:
        for asked, sentence in (
            ("nosuch", "Topology nosuch not found; configured: default"),
            ("unit=nosuch", "no switch or block of the topology has what was asked for"),
            ("level=1", "unexpected argument for show topology: level=1"),
        ):
            done = serving.run("scontrol", "show", "topology", asked)
            assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{sentence}\n")

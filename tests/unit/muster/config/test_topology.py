"""topology.conf and topology.yaml."""

from __future__ import annotations

import pytest

from muster.config.load import parse
from muster.config.records import ClusterConfig, Topology
from muster.errors import ConfigError

MAIN = "ClusterName=c1\nSlurmctldHost=head\nNodeName=n[1-8]\nPartitionName=p Nodes=ALL\n"
TREE = "SwitchName=s1 Nodes=n[1-4]\nSwitchName=s2 Nodes=n[5-8]\nSwitchName=top Switches=s[1-2]\n"


def from_conf(text: str) -> Topology:
    return parse(MAIN, topology=text).topology


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(MAIN, topology=text)
    return str(caught.value)


def from_yaml(text: str, main: str = MAIN) -> ClusterConfig:
    return parse(main, topology_yaml=text)


def yaml_refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        from_yaml(text)
    return str(caught.value)


def test_without_files_the_topology_is_flat() -> None:
    assert from_conf("") == Topology(name="default", kind="flat")


def test_a_tree_has_levels_and_the_nodes_below() -> None:
    topology = from_conf(TREE)
    assert topology.kind == "tree"
    found = [(each.name, each.level, each.nodes[:1], each.switches, len(each.all_nodes)) for each in topology.switches]
    assert found == [("s1", 0, ("n1",), (), 4), ("s2", 0, ("n5",), (), 4), ("top", 1, (), ("s1", "s2"), 8)]


def test_of_a_switch_only_its_link_speed_has_no_effect() -> None:
    assert parse(MAIN, topology=TREE).without_effect == ()
    slow = parse(MAIN, topology=TREE.replace("Nodes=n[1-4]", "Nodes=n[1-4] LinkSpeed=1"))
    assert [key for key, _, _ in slow.without_effect] == ["LinkSpeed"]


def test_switches_may_be_declared_before_their_children() -> None:
    topology = from_conf("SwitchName=top Switches=s1\nSwitchName=s1 Nodes=n[1-8]\n")
    assert topology.switches[0].all_nodes == tuple(f"n{index}" for index in range(1, 9))


def test_nodes_that_no_leaf_has_are_a_warning() -> None:
    config = parse(MAIN, topology="SwitchName=s1 Nodes=n[1-6]\n")
    assert config.warnings == ("topology.conf: switches lack access to 2 nodes: n7, n8",)


def test_blocks_take_the_smallest_as_base_size() -> None:
    topology = from_conf("BlockName=b1 Nodes=n[1-5]\nBlockName=b2 Nodes=n[6-8]\n")
    assert (topology.kind, topology.block_sizes) == ("block", (3,))


def test_block_sizes_are_multiples_by_powers_of_two() -> None:
    blocks = "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\n"
    assert from_conf(blocks + "BlockSizes=3,6,24\n").block_sizes == (3, 6, 24)


def test_rings() -> None:
    topology = from_conf("RingName=r Nodes=n[1-4]\n")
    assert (topology.kind, topology.rings[0].nodes) == ("ring", ("n1", "n2", "n3", "n4"))


def test_partitions_may_take_the_nodes_of_a_switch_or_block() -> None:
    main = MAIN + "PartitionName=q Nodes=switch{s2}\n"
    assert parse(main, topology=TREE).partitions[1].nodes == ("n5", "n6", "n7", "n8")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "topology.conf:1: the switches a, b contain each other"),
        ("SwitchName=a Switches=a", "topology.conf:1: the switches a contain each other in a cycle"),
        ("SwitchName=a Switches=b", "topology.conf:1: Switch configuration a has invalid child (b)"),
        ("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Nodes=n2", "1: SwitchName=a has both Nodes and Switches"),
        ("SwitchName=a", "topology.conf:1: SwitchName=a has neither Nodes nor Switches"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "topology.conf:2: SwitchName=a is defined twice"),
        ("SwitchName=" + "a" * 65 + " Nodes=n1", "is longer than 64 characters"),
        ("SwitchName=a Nodes=n99", "topology.conf:1: SwitchName=a: no NodeName line defines n99"),
        ("BlockName=a Nodes=n[1-4]\nBlockSizes=4,12", "topology.conf:2: BlockSizes=4,12: 12 is not 4 times a power"),
        ("BlockName=a Nodes=n[1-4]\nBlockSizes=4,6", "topology.conf:2: BlockSizes=4,6: 6 is not 4 times a power"),
        ("BlockName=a Nodes=n[1-3]\nBlockSizes=4", "1: BlockName=a has 3 nodes, fewer than the base size 4"),
        ("BlockName=a Nodes=n[1-4]\nBlockSizes=x", 'topology.conf:2: BlockSizes="x" is not a list of sizes'),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n1", "topology.conf:2: BlockName=b: n1 is already in a"),
        ("BlockSizes=4", "topology.conf:1: BlockSizes is set and no BlockName line is"),
        ("BlockName=a Nodes=n1\nSwitchName=s Nodes=n1", "topology.conf: topology default mixes tree and block"),
        ("Swichname=a Nodes=n1", "1: unrecognized key: Swichname in topology.conf (did you mean SwitchName?)"),
    ],
)
def test_wrong_files_are_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(text + "\n")


def test_a_ring_is_bounded() -> None:
    main = MAIN.replace("n[1-8]", "n[1-20]")
    with pytest.raises(ConfigError, match=r"topology\.conf:1: RingName=r has 17 nodes, more than 16"):
        parse(main, topology="RingName=r Nodes=n[1-17]\n")


YAML = """---
# two ways to see the cluster
- topology: racks
  tree:
    switches:
      - switch: top
        children: s[1-2]
      - switch: s1
        nodes: n[1-4]   # plain text may hold brackets
      - {S2}
- topology: blocks
  cluster_default: true
  block:
    block_sizes: [4, 8]
    blocks:
    - block: b1
      nodes: "n[1-4]"
    - block: b2
      nodes: 'n[5-8]'
- topology: plain
  flat: true
""".replace("- {S2}", "- switch: s2\n        nodes: n[5-8]")


def test_yaml_wins_and_its_default_comes_first() -> None:
    config = parse(MAIN, topology="SwitchName=x Nodes=ALL\n", topology_yaml=YAML)
    assert [(each.name, each.kind) for each in config.topologies] == [
        ("blocks", "block"), ("racks", "tree"), ("plain", "flat"),
    ]  # fmt: skip
    assert config.topology.block_sizes == (4, 8)
    assert [len(each.all_nodes) for each in config.topologies[1].switches] == [8, 4, 4]


def test_partitions_choose_a_topology_of_the_yaml_file() -> None:
    assert from_yaml(YAML, MAIN + "PartitionName=q Nodes=ALL Topology=racks\n").partitions[1].topology == "racks"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- topology: a\n  tree: &x\n", "topology.yaml:2: anchors are not supported (Muster reads block mappings"),
        ("- topology: a\n  flat: {x: 1}\n", "topology.yaml:2: flow mappings are not supported"),
        ("- topology: a\n\tflat: true\n", "topology.yaml:2: a tab stands where indentation takes blanks only"),
        ("- topology: a\n  flat: true\n  flat: true\n", "topology.yaml:3: the key flat stands twice"),
        ("- topology: a\n   flat: true\n", "topology.yaml:2: the indentation fits no line above"),
        ('- topology: "a\n  flat: true\n', "topology.yaml:1: a quote is not closed on its line"),
        ("- topology: a\n  flat: true\n---\n- topology: b\n  flat: true\n", "topology.yaml:3: more than one document"),
        ("- topology: a\n  flat\n", 'topology.yaml:2: "flat" is not "key: value"'),
        ("topology: a\n", "topology.yaml:1: the file is not a list"),
        ("- topology: a\n  tre:\n    switches: []\n", "topology.yaml:2: unrecognized key: tre in a topology (did you"),
        ("- topology: a\n", "topology.yaml:1: topology a needs exactly one of tree, block, flat and ring"),
        ("- topology: a\n  torus3d:\n    x: y\n", "topology.yaml:2: topology a: torus3d is not supported"),
        ("- flat: true\n", "topology.yaml:1: a topology has no name (add topology: name)"),
        ("- topology: a\n  flat: true\n- topology: a\n  flat: true\n", "topology.yaml:3: topology a is defined twice"),
        (
            "- topology: a\n  tree:\n    switches:\n    - switch: s\n      nodes: n9\n",
            "topology.yaml:4: SwitchName=s: no",
        ),
        ("# nothing\n", "topology.yaml: the file defines no topology"),
    ],
)
def test_wrong_yaml_is_refused(text: str, sentence: str) -> None:
    assert sentence in yaml_refusal(text)


@pytest.mark.parametrize(
    ("wish", "hint"),
    [
        ("required:rack", "topology default has no level 'rack'; its levels are 0 to 1 (0 the finest)"),
        ("preferred:2", "topology default has no level '2'; its levels are 0 to 1 (0 the finest)"),
        ("rack", "write required:LEVEL, preferred:LEVEL or unconstrained, not 'rack'"),
        ("required:", "write required:LEVEL, preferred:LEVEL or unconstrained, not 'required:'"),
    ],
)
def test_a_default_topology_that_is_not_there_is_refused_where_it_stands(wish: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{MAIN}PartitionName=q Nodes=ALL DefaultTopology={wish}\n", topology=TREE)
    assert str(caught.value) == f"muster.conf:5: PartitionName=q: DefaultTopology={wish} cannot be had ({hint})"


@pytest.mark.parametrize("wish", ["required:0", "preferred:spine", "unconstrained"])
def test_a_default_topology_names_a_level_of_the_topology_of_its_partition(wish: str) -> None:
    switches = "- switch: s1\n  nodes: n[1-8]\n- switch: top\n  children: s1\n"
    tree = "".join(f"    {line}\n" for line in switches.splitlines())
    named = f"- topology: a\n  flat: true\n- topology: b\n  levels: [spine, rack]\n  tree:\n    switches:\n{tree}"
    line = f"PartitionName=q Nodes=ALL Topology=b DefaultTopology={wish}\n"
    assert from_yaml(named, MAIN + line).partitions[1].default_topology == wish
    if ":" in wish:
        with pytest.raises(ConfigError, match="muster.conf:5: PartitionName=q: DefaultTopology"):
            from_yaml(named, MAIN + line.replace("Topology=b", "Topology=a"))

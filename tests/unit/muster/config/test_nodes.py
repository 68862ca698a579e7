"""NodeName, DownNodes and NodeSet lines."""

from __future__ import annotations

import pytest

from muster.config.load import parse
from muster.config.records import ClusterConfig, Gres, NodeConfig
from muster.errors import ConfigError

HEAD = "ClusterName=c1\nSlurmctldHost=head\nGresTypes=gpu,shard\n"


def cluster(text: str) -> ClusterConfig:
    return parse(HEAD + text)


def node(text: str) -> NodeConfig:
    return cluster(text).nodes[-1]


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(HEAD + text)
    return str(caught.value)


def test_nodes_keep_the_order_of_the_file() -> None:
    config = cluster("NodeName=n[3-4]\nNodeName=a1,n[1-2]\n")
    assert [each.name for each in config.nodes] == ["n3", "n4", "a1", "n1", "n2"]


def test_a_bare_node_has_the_defaults() -> None:
    assert node("NodeName=n1\n") == NodeConfig(name="n1", hostname="n1", addr="n1", port=6818, configured_by_cpus=True)


def test_default_lines_merge_key_by_key_and_hold_for_following_lines_only() -> None:
    config = cluster(
        "NodeName=a RealMemory=5\n"
        "NodeName=DEFAULT RealMemory=1000 Weight=3 Gres=gpu:2\n"
        "NodeName=DEFAULT Weight=4\n"
        "NodeName=b\n"
        'NodeName=c Gres="" RealMemory=2000\n'
        'NodeName=DEFAULT Gres="" Feature=x\n'
        "NodeName=d\n"
    )
    found = [(each.name, each.real_memory_mib, each.weight, len(each.gres), each.features) for each in config.nodes]
    assert found == [("a", 5, 1, 0, ()), ("b", 1000, 4, 1, ()), ("c", 2000, 4, 0, ()), ("d", 1000, 4, 0, ("x",))]


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("", (1, 1, 1, 1, 1)),
        ("CPUs=8", (1, 8, 1, 1, 8)),
        ("Procs=8", (1, 8, 1, 1, 8)),
        ("CPUs=64 CoresPerSocket=16 ThreadsPerCore=2", (1, 2, 16, 2, 64)),
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2", (1, 2, 16, 2, 64)),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=4", (2, 4, 4, 1, 16)),
        ("Boards=2 Sockets=4 CoresPerSocket=4", (2, 4, 4, 1, 16)),
        ("CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2", (1, 2, 16, 2, 32)),
        ("CPUs=2 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2", (1, 2, 16, 2, 2)),
        ("CoresPerSocket=4", (1, 1, 4, 1, 4)),
        ("CPUs=2 CoresPerSocket=4", (1, 1, 4, 1, 4)),
    ],
)
def test_what_is_missing_of_the_layout_is_inferred(text: str, layout: tuple[int, ...]) -> None:
    found = node(f"NodeName=n1 {text}\n")
    assert (found.boards, found.sockets, found.cores_per_socket, found.threads_per_core, found.cpus) == layout


def test_cpus_that_match_no_layout_are_reset_with_the_reference_text() -> None:
    config = cluster("NodeName=n[1-2] CPUs=10 Sockets=2 CoresPerSocket=4\n")
    assert [each.cpus for each in config.nodes] == [8, 8]
    assert config.warnings == (
        "muster.conf:4: NodeNames=n[1-2] CPUs=10 match no Sockets, Sockets*CoresPerSocket or"
        " Sockets*CoresPerSocket*ThreadsPerCore. Resetting CPUs.",
    )


def test_the_own_socket_key_replaces_the_inherited_one() -> None:
    found = node("NodeName=DEFAULT Sockets=2\nNodeName=n1 Boards=1 SocketsPerBoard=4\n")
    assert found.sockets == 4


def test_parallel_lists_go_with_the_names() -> None:
    config = cluster("NodeName=n[1-2] NodeHostname=h[1-2] NodeAddr=10.0.0.[5-6] Port=7001-7002\n")
    assert [(each.name, each.hostname, each.addr, each.port) for each in config.nodes] == [
        ("n1", "h1", "10.0.0.5", 7001),
        ("n2", "h2", "10.0.0.6", 7002),
    ]


def test_one_entry_serves_all_names_and_the_address_follows_the_host_name() -> None:
    config = cluster("NodeName=n[1-3] NodeHostname=box Port=[7001-7003]\n")
    assert [(each.hostname, each.addr, each.port) for each in config.nodes] == [
        ("box", "box", 7001),
        ("box", "box", 7002),
        ("box", "box", 7003),
    ]


def test_down_nodes_set_state_and_reason() -> None:
    config = cluster('NodeName=n[1-3]\nDownNodes=n[2-3] State=DRAIN Reason="bad fan"\nDownNodes=n1\n')
    assert [(each.state, each.reason) for each in config.nodes] == [
        ("DOWN", ""), ("DRAIN", "bad fan"), ("DRAIN", "bad fan"),
    ]  # fmt: skip


def test_node_sets_unite_nodes_and_feature() -> None:
    config = cluster(
        "NodeName=n[1-3] Features=x,y\nNodeName=m[1-2]\nNodeSet=s Nodes=m2 Feature=y\nPartitionName=p Nodes=s,m1\n"
    )
    assert config.partitions[0].nodes == ("n1", "n2", "n3", "m1", "m2")


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:4", (Gres("gpu", "", 4),)),
        ("gpu:a100:4", (Gres("gpu", "a100", 4),)),
        ("gpu:a100", (Gres("gpu", "a100", 1),)),
        ("gpu:1g.10gb:7", (Gres("gpu", "1g.10gb", 7),)),
        ("gpu:a100:2,gpu:h100:1,gpu:a100:2", (Gres("gpu", "a100", 4), Gres("gpu", "h100", 1))),
        ("gpu:2,shard:2K", (Gres("gpu", "", 2), Gres("shard", "", 2048))),
        ("gpu:a100:no_consume:4", (Gres("gpu", "a100", 4),)),
    ],
)
def test_gres_of_a_node(text: str, gres: tuple[Gres, ...]) -> None:
    assert node(f"NodeName=n1 Gres={text}\n").gres == gres


def test_states_of_old_files_have_their_meaning() -> None:
    config = cluster("NodeName=localhost State=idle\nNodeName=n2 State=DRAINED\n")
    assert [each.state for each in config.nodes] == ["UNKNOWN", "DRAIN"]


def test_spool_directory_is_expanded_for_a_node() -> None:
    config = cluster("SlurmdSpoolDir=/s/%h/%n\nNodeName=n1 NodeHostname=box\n")
    assert config.spool_dir_of(config.nodes[0]) == "/s/box/n1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("NodeName=n1\nNodeName=n[1-2]", "muster.conf:5: Duplicated NodeName n1 in the config file"),
        ("NodeName=n1,n1", "muster.conf:4: Duplicated NodeName n1 in the config file"),
        ("NodeName=ALL", "muster.conf:4: 'ALL' is a reserved word disallowed for use with NodeName"),
        ("NodeName=DEFAULT NodeHostname=x", "muster.conf:4: NodeHostname not allowed with NodeName=DEFAULT"),
        ("NodeName=DEFAULT NodeAddr=x", "muster.conf:4: NodeAddr not allowed with NodeName=DEFAULT"),
        ("NodeName=n[1", 'muster.conf:4: NodeName: Invalid hostlist "n[1"'),
        ("NodeName=n[1-3] NodeAddr=a[1-2]", "4: parsing NodeAddr=a[1-2] : count is not coherent with the amount"),
        ("NodeName=n[1-3] Port=1-2", "4: parsing Port=1-2 : count is not coherent with the amount of records"),
        ("NodeName=n1 Port=70000", 'muster.conf:4: Port="70000" is not a port'),
        ("NodeName=n1 Sockets=1 SocketsPerBoard=1", "4: Sockets and SocketsPerBoard exclude each other"),
        ("NodeName=n1 CPU=4", "4: unrecognized key: CPU on a NodeName line (did you mean CPUs?)"),
        ("NodeName=n1 State=BUSY", 'muster.conf:4: Bad value "BUSY" for State (use UNKNOWN, DOWN'),
        ("NodeName=n1 RealMemory=100 MemSpecLimit=100", "4: MemSpecLimit=100 must be less than RealMemory=100"),
        ("NodeName=n1 CPUs=4 CoreSpecCount=4", "4: CoreSpecCount=4 leaves none of 4 cores for jobs"),
        ("NodeName=n1 CPUs=4 CpuSpecList=3-9", "4: CpuSpecList names CPU 9 of a node with 4 CPUs"),
        ("NodeName=n1 CPUs=4 CpuSpecList=3 CoreSpecCount=1", "4: CoreSpecCount and CpuSpecList exclude each other"),
        ("NodeName=n1 Gres=fpga:1", "4: Gres=fpga:1: GresTypes does not name fpga (add GresTypes=gpu,shard,fpga)"),
        ("NodeName=n1 Gres=gpu:1,gpu:a100:1", "4: Gres=gpu:1,gpu:a100:1 gives some gpu a type and others none"),
        ("NodeName=n1 Gres=gpu:-1", '4: Gres="gpu:-1": -1 is neither type nor count'),
        ("NodeName=n1 Gres=gpu:99999999999999999999", "99999999999999999999 is neither type nor count"),
        ("NodeName=n1 Gres=gpu:1.5:2", "1.5 is neither type nor count"),
        ("NodeName=n1 Gres=gpu:a:1000,gpu:b:999999999", "a node has at most 1024 GPUs (correct the count)"),
        ("NodeName=n1 Gres=gpu:a:b:1", '4: Gres="gpu:a:b:1" is not name[:type][:no_consume]:count'),
        ("NodeName=n1\nDownNodes=n2", "muster.conf:5: DownNodes: no NodeName line defines n2"),
        ("NodeName=n1\nNodeSet=n1 Nodes=n1", "muster.conf:5: NodeSet=n1 is also the name of a node"),
        ("NodeName=n1\nNodeSet=s", "muster.conf:5: NodeSet=s has neither Nodes nor Feature"),
        (
            "NodeName=n1\nNodeSet=s Nodes=n7",
            "muster.conf:5: NodeSet=s: no NodeName line defines n7 (add a NodeName line for it)",
        ),
    ],
)
def test_wrong_node_lines_are_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(text + "\n")


def test_fifty_thousand_nodes_are_one_line() -> None:
    config = cluster("NodeName=n[00000-49999] CPUs=64 Gres=gpu:8\nPartitionName=p Nodes=ALL\n")
    assert (len(config.nodes), config.partitions[0].nodes[-1]) == (50000, "n49999")

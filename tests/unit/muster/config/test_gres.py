"""gres.conf."""

from __future__ import annotations

import pytest

from muster.config.load import parse
from muster.config.records import GresConfig, GresLine
from muster.errors import ConfigError

MAIN = "ClusterName=c1\nSlurmctldHost=head\nGresTypes=gpu,shard,fpga\nNodeName=n[1-4]\n"


def gres(text: str) -> GresConfig:
    return parse(MAIN, gres=text).gres


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        gres(text)
    return str(caught.value)


def test_without_the_file_there_is_nothing() -> None:
    assert gres("") == GresConfig()


def test_detection_for_all_and_for_one_node() -> None:
    config = gres("AutoDetect=NVML\nNodeName=n[2-3] AutoDetect=off\n")
    assert config.autodetect == "nvml"
    assert [config.autodetect_on(f"n{index}") for index in (1, 2, 3)] == ["nvml", "off", "off"]
    assert config.for_node("n2") == ()


def test_a_line_of_devices() -> None:
    config = gres("NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0-3,8 Flags=nvidia_gpu_env\n")
    assert config.lines == (
        GresLine(
            nodes=("n1", "n2"), name="gpu", type="a100", files=("/dev/nvidia0", "/dev/nvidia1"),
            cores=(0, 1, 2, 3, 8), flags=("nvidia_gpu_env",),
        ),
    )  # fmt: skip
    assert (len(config.for_node("n2")), len(config.for_node("n3"))) == (1, 0)


def test_a_line_without_nodes_holds_for_all() -> None:
    assert len(gres("Name=fpga Count=2K\n").for_node("n4")) == 1
    assert gres("Name=fpga Count=2K\n").lines[0].count == 2048


def test_links_of_a_device() -> None:
    assert gres("Name=gpu File=/dev/nvidia0 Links=-1,4,4\n").lines[0].links == (-1, 4, 4)


def test_env_flags_are_inherited_from_the_line_before_of_the_same_kind() -> None:
    config = gres(
        "NodeName=n1 Name=gpu Type=a File=/dev/a0 Flags=amd_gpu_env,one_sharing\n"
        "NodeName=n1 Name=gpu Type=b File=/dev/b0\n"
        "NodeName=n1 Name=gpu Type=a File=/dev/a1\n"
        "NodeName=n2 Name=gpu Type=a File=/dev/a0\n"
        "NodeName=n1 Name=gpu Type=a File=/dev/a2 Flags=no_gpu_env\n"
    )
    assert [line.flags for line in config.lines] == [
        ("amd_gpu_env", "one_sharing"), (), ("amd_gpu_env",), (), ("no_gpu_env",),
    ]  # fmt: skip


def test_shards_may_count_more_than_their_files() -> None:
    assert gres("Name=shard Count=32 File=/dev/nvidia[0-1]\n").lines[0].count == 32


def test_a_strange_node_is_a_warning() -> None:
    config = parse(MAIN, gres="NodeName=n9 Name=fpga\n")
    assert config.warnings == ("gres.conf:1: NodeName: n9 is not a node of slurm.conf",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Name=tpu", "gres.conf:1: Name=tpu: GresTypes does not name it (add GresTypes=gpu,shard,fpga,tpu to slurm"),
        ("Type=a", "gres.conf:1: the line names no device (add Name=, for example Name=gpu)"),
        ("Name=gpu Count=3 File=/dev/x[0-1]", "gres.conf:1: Count=3 does not match the 2 devices of File"),
        ("Name=gpu File=/dev/x MultipleFiles=/dev/y", "gres.conf:1: File and MultipleFiles exclude each other"),
        ("Name=gpu File=dev/x", 'gres.conf:1: File="dev/x" must be an absolute path'),
        ("Name=gpu File=/dev/x[0-2000]", "gres.conf:1: File names 2001 devices, more than 1024"),
        ("Name=gpu Cores=a", 'gres.conf:1: Cores="a" is not a list of core numbers'),
        ("Name=gpu File=/dev/x[0-1] Links=-1,0", "gres.conf:1: Links stands on a line of 2 devices"),
        ("Name=gpu Links=4,4", 'gres.conf:1: Links="4,4" must hold -1 once'),
        ("Name=gpu Links=-1,x", 'gres.conf:1: Links="-1,x" is not a list of link counts'),
        ("Name=gpu Count=many", 'gres.conf:1: Count="many" is not a count'),
        ("Name=gpu Flags=fast", "gres.conf:1: Flags invalid: fast"),
        ("AutoDetect=magic", 'gres.conf:1: Bad value "magic" for AutoDetect (use nvml,'),
        ("Nmae=gpu", "gres.conf:1: unrecognized key: Nmae in gres.conf (did you mean Name?)"),
    ],
)
def test_wrong_lines_are_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(text + "\n")

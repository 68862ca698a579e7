"""Gres= of a node and the lines of gres.conf, as devices with indexes."""

from __future__ import annotations

from ctld.core.cluster import Device
from ctld.gresconf import devices_of
from muster.config.load import parse


def devices(gres: str, *lines: str) -> tuple[tuple[str, ...], tuple[Device, ...]]:
    main = f"ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu,shard,nic\nNodeName=n1 CPUs=8 Gres={gres}\n"
    config = parse(main, gres="\n".join(lines))
    return devices_of(config.nodes[0], config.gres.for_node("n1"))


def test_without_gres_conf_gpus_have_the_order_of_the_node_line_and_others_are_counted() -> None:
    assert devices("gpu:a:2,gpu:b:1,nic:4") == (("a", "a", "b"), (Device("nic", 4),))


def test_gpus_are_numbered_as_their_files_sort_and_equal_neighbours_are_one_group() -> None:
    lines = (
        "Name=gpu Type=b File=/dev/nvidia2 Cores=4-7",
        "Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0-3",
    )
    assert devices("gpu:a:2,gpu:b:1", *lines) == (
        ("a", "a", "b"),
        (
            Device("gpu", 2, "a", 0, cores=(0, 3), files=("/dev/nvidia0", "/dev/nvidia1")),
            Device("gpu", 1, "b", 2, cores=(4, 7), files=("/dev/nvidia2",)),
        ),
    )


def test_a_node_line_without_types_takes_those_of_gres_conf_and_no_more_than_it_counts() -> None:
    gpus, found = devices("gpu:2", "Name=gpu Type=a File=/dev/nvidia[0-3]")
    assert (gpus, [one.count for one in found]) == (("a", "a"), [2])


def test_shards_are_split_over_the_gpus_whose_files_are_named() -> None:
    gpus = ("Name=gpu Count=1", "Name=gpu File=/dev/nvidia[0-1]")
    # The GPU without a file is index 0: shards of /dev/nvidia1 lie on index 2.
    found = devices("gpu:3,shard:6", *gpus, "Name=shard Count=6 File=/dev/nvidia1")[1]
    assert [one for one in found if one.name == "shard"] == [Device("shard", 1, first=2, each=6)]
    even = devices("gpu:2,shard:5")[1]
    assert even == (Device("shard", 1, first=0, each=3), Device("shard", 1, first=1, each=2))


def test_a_device_of_several_files_is_one() -> None:
    lines = [f"Name=gpu MultipleFiles=/dev/nvidia{gpu},/dev/caps{gpu}" for gpu in range(2)]
    gpus, found = devices("gpu:2", *lines)
    assert gpus == ("", "")
    assert sum(one.count for one in found) == 2


def test_devices_of_other_names_have_indexes_where_any_has_a_file() -> None:
    found = devices("nic:a:1,nic:b:2", "Name=nic Type=b File=/dev/nic[0-1] Cores=0-3")[1]
    assert found == (
        Device("nic", 1, "a", 0),
        Device("nic", 2, "b", 1, cores=(0, 3), files=("/dev/nic0", "/dev/nic1")),
    )


def test_a_file_is_one_device_also_where_types_share_a_line() -> None:
    found = devices("nic:a:1,nic:b:1", "Name=nic File=/dev/nic[0-1]")[1]
    assert found == (Device("nic", 1, "a", 0, files=("/dev/nic0",)), Device("nic", 1, "b", 1, files=("/dev/nic1",)))


def test_what_is_only_counted_has_no_index() -> None:
    found = devices("nic:2", "Name=nic File=/dev/nic[0-1] Flags=CountOnly")[1]
    assert found == (Device("nic", 2),)

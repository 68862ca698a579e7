"""The host list notation: the worked examples, the errors and the bounds of the format."""

from __future__ import annotations

import time

import pytest

from muster import hostlist
from muster.errors import InvalidInput
from muster.hostlist import Hostlist, HostlistError

SAME = "same"

# input, ranged, sorted, uniq, count, first hosts of the expansion
EXAMPLES = [
    ("n1", "n1", "n1", "n1", 1, "n1"),
    ("n[1-3]", "n[1-3]", "n[1-3]", "n[1-3]", 3, "n1 n2 n3"),
    ("n[1,2,3]", "n[1-3]", "n[1-3]", "n[1-3]", 3, "n1 n2 n3"),
    ("n3,n1,n2", "n[3,1-2]", "n[1-3]", "n[1-3]", 3, "n3 n1 n2"),
    ("n[01-03]", "n[01-03]", "n[01-03]", "n[01-03]", 3, "n01 n02 n03"),
    ("n[1-3],n[5,7-9]", "n[1-3,5,7-9]", SAME, SAME, 7, "n1 n2 n3 n5 n7 n8 n9"),
    ("n[9-11]", "n[9-11]", SAME, SAME, 3, "n9 n10 n11"),
    ("n[09-11]", "n[09-11]", SAME, SAME, 3, "n09 n10 n11"),
    ("n9,n10,n11", "n[9-11]", SAME, SAME, 3, "n9 n10 n11"),
    ("n09,n10", "n[09-10]", SAME, SAME, 2, "n09 n10"),
    ("n9,n010", "n[9,010]", SAME, SAME, 2, "n9 n010"),
    ("n1,n01", "n[1,01]", SAME, SAME, 2, "n1 n01"),
    ("n001,n002,n0003", "n[001-002,0003]", SAME, SAME, 3, "n001 n002 n0003"),
    ("x[001-003,5]", "x[001-003,5]", "x[5,001-003]", "x[5,001-003]", 4, "x001 x002 x003 x5"),
    ("n[1-2],m1,m2,n3", "n[1-2],m[1-2],n3", "m[1-2],n[1-3]", "m[1-2],n[1-3]", 5, "n1 n2 m1 m2 n3"),
    ("rack[0-1]n[0-2]", "rack0n[0-2],rack1n[0-2]", SAME, SAME, 6, "rack0n0 rack0n1 rack0n2 rack1n0"),
    (
        "r[0-1]c[0-1]n[0-1]",
        "r0c0n[0-1],r1c0n[0-1],r0c1n[0-1],r1c1n[0-1]",
        "r0c0n[0-1],r0c1n[0-1],r1c0n[0-1],r1c1n[0-1]",
        "r0c0n[0-1],r0c1n[0-1],r1c0n[0-1],r1c1n[0-1]",
        8,
        "r0c0n0 r0c0n1 r1c0n0 r1c0n1 r0c1n0",
    ),
    ("n[1-2]-ib", "n1-ib,n2-ib", SAME, SAME, 2, "n1-ib n2-ib"),
    ("rack[1-2]n[1-2].x", "rack1n1.x,rack1n2.x,rack2n1.x,rack2n2.x", SAME, SAME, 4, "rack1n1.x"),
    ("n1,n1,n2", "n[1,1-2]", "n[1,1-2]", "n[1-2]", 3, "n1 n1 n2"),
    ("n[1-3],n[2-5]", "n[1-3,2-5]", "n[1-2,2-3,3-5]", "n[1-5]", 7, "n1 n2 n3 n2 n3 n4 n5"),
    (
        "login,gpu1,gpu2,cpu",
        "login,gpu[1-2],cpu",
        "cpu,gpu[1-2],login",
        "cpu,gpu[1-2],login",
        4,
        "login gpu1 gpu2 cpu",
    ),
    ("a2,a10,b1,a1", "a[2,10],b1,a1", "a[1-2,10],b1", "a[1-2,10],b1", 4, "a2 a10 b1 a1"),
    ("1,2,3", "[1-3]", "[1-3]", "[1-3]", 3, "1 2 3"),
    ("n[1,3],n[2]", "n[1,3,2]", "n[1-3]", "n[1-3]", 3, "n1 n3 n2"),
    ("gpu-a[1-2],gpu-b1", "gpu-a[1-2],gpu-b1", SAME, SAME, 3, "gpu-a1 gpu-a2 gpu-b1"),
    ("n[1-2], n3", "n[1-3]", "n[1-3]", "n[1-3]", 3, "n1 n2 n3"),
    ("n[98-102]", "n[98-102]", SAME, SAME, 5, "n98 n99 n100 n101 n102"),
    ("n[0-65535]", "n[0-65535]", SAME, SAME, 65536, "n0 n1"),
    ("n1]", "n1]", "n1]", "n1]", 1, "n1]"),
    ("", "", "", "", 0, ""),
    # Text after the last bracket is a suffix even if it is a number.
    ("n[1-2]3", "n13,n23", SAME, SAME, 2, "n13 n23"),
    ("n[1-]", "n1", "n1", "n1", 1, "n1"),
    ("n[001-3]", "n[001-003]", "n[001-003]", "n[001-003]", 3, "n001 n002 n003"),
    ("nid0000[2-7]", "nid0000[2-7]", SAME, SAME, 6, "nid00002 nid00003"),
    (" ,\tn1\n n2,, ", "n[1-2]", "n[1-2]", "n[1-2]", 2, "n1 n2"),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: repr(example[0]))
def test_the_worked_examples_read_and_print_as_written(example: tuple[str, str, str, str, int, str]) -> None:
    text, ranged, in_order, once, count, first = example
    in_order = ranged if in_order == SAME else in_order
    once = in_order if once == SAME else once
    names = hostlist.expand(text)
    assert str(Hostlist.parse(text)) == ranged
    assert hostlist.sort_compress(text) == in_order
    assert hostlist.uniq(text) == once
    assert hostlist.count(text) == count == len(names)
    assert names[: len(first.split())] == first.split()
    assert hostlist.expand(hostlist.compress(names)) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n[5-3]", "Invalid range: `5-3'"),
        ("n[]", "Invalid range: `'"),
        ("n[-3]", "Invalid range: `-3'"),
        ("n[a-b]", "Invalid range: `a-b'"),
        ("n[1--3]", "Invalid range: `1--3'"),
        ("n[1x2]", "Invalid range: `1x2'"),
        ("n[1-3,]", "Invalid range: `'"),
        ("n[1, 2]", "Invalid range: ` 2'"),
        ("n[1-3:2]", "Invalid range: `1-3:2'"),
        ("n[+1]", "Invalid range: `+1'"),
        ("n[١-٢]", "Invalid range: `١-٢'"),
        ("n[1[2]]", "Invalid range: `1[2'"),
        ("n[0-65536]", "Too many hosts in range `0-65536'"),
        ("n[1-999999999]", "Too many hosts in range `1-999999999'"),
    ],
)
def test_a_bad_range_is_named_in_the_words_of_the_library(text: str, message: str) -> None:
    with pytest.raises(HostlistError) as caught:
        hostlist.expand("ok1," + text)
    assert caught.value.sentence == message
    assert caught.value.range_message == message
    assert isinstance(caught.value, InvalidInput)
    assert not caught.value.fatal


def test_a_bracket_without_end_has_no_library_message() -> None:
    with pytest.raises(HostlistError) as caught:
        hostlist.expand("a,n[1")
    assert caught.value.range_message == ""
    assert caught.value.sentence == "Invalid hostlist: n[1"


def test_too_many_ranges_in_a_bracket_are_fatal() -> None:
    with pytest.raises(HostlistError) as caught:
        hostlist.expand("n[" + "1," * 262_144 + "1]")
    assert caught.value.fatal
    assert caught.value.sentence == "Too many ranges, can't process entire list"


@pytest.mark.parametrize(
    "text",
    [
        "n[1-65536]x[1-65536]",
        "a[1-60000]b[1-60000]c[1-60000]",
        ",".join(f"n{i}x[0-65535]" for i in range(17)),
        "n[1-65536,1-2]x[1]",
        "n[1-99999999999999999999]",
        "n[" + "9" * 5000 + "]",
    ],
)
def test_a_hostile_list_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(HostlistError):
        hostlist.expand(text)
    assert time.process_time() - started < 0.5


def test_a_million_hosts_are_kept_as_few_ranges() -> None:
    listed = Hostlist.parse("n[0-15]x[0-65535]")
    assert len(listed) == hostlist.MAX_HOSTS
    assert len(listed.ranges) == 16
    assert listed[hostlist.MAX_HOSTS - 1] == "n15x65535"


def test_a_name_with_a_very_long_number_is_a_plain_name() -> None:
    name = "n" + "7" * 5000
    assert hostlist.expand(f"{name},{name}") == [name, name]
    assert hostlist.uniq([name, name]) == name


def test_four_brackets_run_from_the_last_but_one_outwards() -> None:
    assert hostlist.expand("a[0-1]b[0-1]c[0-1]d[0-1]")[:5] == [
        "a0b0c0d0", "a0b0c0d1", "a1b0c0d0", "a1b0c0d1", "a0b1c0d0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("n[1-3]", "n2", True),
        ("n[1-3]", "n01", False),
        ("n[1-3]", "n4", False),
        ("n[1-3]", "n", False),
        ("n[01-03]", "n1", False),
        ("n[09-11]", "n10", True),
        ("nid0000[2-7]", "nid00002", True),
        ("nid0000[2-7]", "nid00008", False),
        ("login,n1", "login", True),
        ("login,n1", "log", False),
        ("n[1-3]", "n²", False),
    ],
)
def test_membership_goes_by_exact_text(text: str, name: str, found: bool) -> None:
    assert hostlist.contains(text, name) is found


def test_places_count_from_zero_in_list_order() -> None:
    listed = Hostlist.parse("n[3,1-2],x")
    assert [listed[place] for place in (0, 1, 2, 3, -1)] == ["n3", "n1", "n2", "x", "x"]
    with pytest.raises(IndexError):
        listed[4]


def test_taking_a_host_out_of_a_range_splits_it() -> None:
    assert str(Hostlist.parse("n[1-5],x").without("n3")) == "n[1-2,4-5],x"
    assert str(Hostlist.parse("n[1-5],x").without("x").without("n1").without("n9")) == "n[2-5]"


def test_the_same_host_written_two_ways_is_merged() -> None:
    assert hostlist.uniq("nid0000[2-7],nid00003,nid00008") == "nid[00002-00008]"
    assert hostlist.uniq("n[1-2]3,n13,n14") == "n[13-14,23]"
    assert Hostlist.parse("n0[1-2]") == Hostlist.parse("n[01-02]")


def test_natural_order_sorts_runs_of_digits_by_value() -> None:
    names = ["r10n1", "r2n10", "r2n9", "b", "r2", "r", "r02n1", "a-1", "a1", "r2n09"]
    assert sorted(names, key=hostlist.natural_key) == [
        "a1", "a-1", "b", "r2", "r", "r02n1", "r2n9", "r2n09", "r2n10", "r10n1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-002]", ["node001", "node002"]),
        ("b04-[09-10]", ["b04-09", "b04-10"]),
        ("host[001,003-004,006]", ["host001", "host003", "host004", "host006"]),
        ("c[1-2]", ["c1", "c2"]),
    ],
)
def test_n05_zero_padding_survives_both_ways(text: str, names: list[str]) -> None:
    assert hostlist.expand(text) == names
    assert hostlist.compress(names) == text
    assert Hostlist.parse(text)[0] == names[0]

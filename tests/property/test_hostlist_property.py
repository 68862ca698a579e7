"""The range-level host list against a slow, plain oracle that works on names one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster import hostlist
from muster.hostlist import Hostlist

prefixes = st.sampled_from(["n", "m", "", "n0", "n1", "rack2n", "a-", "x01y"])
numbers = st.builds(lambda n, width: str(n).zfill(width), st.integers(0, 120), st.integers(0, 4))
names = st.one_of(
    st.builds(str.__add__, prefixes, numbers),
    st.sampled_from(["login", "n", "n1-ib", "n2-ib", "gpu.x"]),
)
ranges = st.builds(
    lambda low, more, width: f"{str(low).zfill(width)}-{low + more}",
    st.integers(0, 110),
    st.integers(0, 12),
    st.integers(0, 4),
)
brackets = st.lists(st.one_of(numbers, ranges), min_size=1, max_size=4).map(lambda parts: "[" + ",".join(parts) + "]")
items = st.one_of(
    names,
    st.builds(
        lambda prefix, bracket, tail: prefix + bracket + tail,
        prefixes,
        brackets,
        st.sampled_from(["", "", "-ib", "7"]),
    ),
    st.builds(lambda a, one, b, two: a + one + b + two, prefixes, brackets, prefixes, brackets),
)
texts = st.lists(items, max_size=6).map(",".join)


def plain_bracket(inner: str) -> list[str]:
    """Each number of one bracket, spelled out."""
    spelled: list[str] = []
    for part in inner.split(","):
        first, dash, last = part.partition("-")
        for number in range(int(first), int(last if dash else first) + 1):
            spelled.append(str(number).zfill(len(first)))
    return spelled


def plain_expand(text: str) -> list[str]:
    """Expand by recursion over the text; two brackets at most in one item."""
    hosts: list[str] = []
    inside = False
    item = ""
    parts: list[str] = []
    for char in text:
        inside = char == "[" or (inside and char != "]")
        if char == "," and not inside:
            parts.append(item)
            item = ""
        else:
            item += char
    parts.append(item)
    for part in parts:
        if part:
            hosts += plain_item(part)
    return hosts


def plain_item(item: str) -> list[str]:
    before, opened, rest = item.partition("[")
    if not opened:
        return [item]
    inner, _, tail = rest.partition("]")
    return [before + number + more for number in plain_bracket(inner) for more in plain_item(tail) or [""]]


def plain_uniq(hosts: list[str]) -> list[str]:
    return sorted(set(hosts), key=hostlist.natural_key)


@given(texts)
def test_expansion_and_count_agree_with_the_oracle(text: str) -> None:
    hosts = plain_expand(text)
    assert hostlist.expand(text) == hosts
    assert hostlist.count(text) == len(hosts)


@given(texts)
def test_printing_and_parsing_give_the_same_hosts(text: str) -> None:
    hosts = plain_expand(text)
    assert hostlist.expand(str(Hostlist.parse(text))) == hosts
    assert hostlist.expand(hostlist.compress(hosts)) == hosts


@given(st.lists(names, max_size=30))
def test_compressed_names_expand_to_themselves(hosts: list[str]) -> None:
    text = hostlist.compress(hosts)
    assert hostlist.expand(text) == hosts
    assert str(Hostlist.parse(text)) == text


@given(texts)
def test_uniq_gives_every_host_once(text: str) -> None:
    once = hostlist.expand(hostlist.uniq(text))
    assert len(once) == len(set(once))
    assert set(once) == set(plain_expand(text))


@given(st.lists(names, max_size=30))
def test_uniq_and_sort_of_names_follow_the_natural_order(hosts: list[str]) -> None:
    assert hostlist.expand(hostlist.uniq(hosts)) == plain_uniq(hosts)
    assert hostlist.expand(hostlist.sort_compress(hosts)) == sorted(hosts, key=hostlist.natural_key)
    assert hostlist.sort_compress(hosts) == hostlist.compress(sorted(hosts, key=hostlist.natural_key))


@given(texts)
def test_sorting_keeps_the_hosts_and_their_multiplicity(text: str) -> None:
    assert sorted(hostlist.expand(hostlist.sort_compress(text))) == sorted(plain_expand(text))


@given(texts, names)
def test_finding_and_removing_go_by_exact_text(text: str, name: str) -> None:
    hosts, listed = plain_expand(text), Hostlist.parse(text)
    assert (name in listed) == (name in hosts)
    for place, host in enumerate(hosts[:20]):
        assert listed[place] == host
        assert listed.find(host) == hosts.index(host)
    left = list(hosts)
    if name in left:
        left.remove(name)
    assert list(listed.without(name)) == left

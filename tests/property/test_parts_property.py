"""The framed body: what is put together comes apart the same, and anything else is refused in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cli.submitting import frame
from ctld.services.parts import check_environment, joined, split
from muster.errors import InvalidInput, MusterError

parts = st.binary(max_size=200)


def framed(json: bytes, script: bytes, environment: bytes) -> bytes:
    return b"MSTR1 %d %d %d\n" % (len(json), len(script), len(environment)) + json + script + environment


@given(parts, parts, parts)
@example(b"", b"", b"")
@example(b"\n", b"MSTR1 1 1 1\n", b"\n\n")
def test_three_parts_come_apart_as_they_were_put_together(json: bytes, script: bytes, environment: bytes) -> None:
    assert split(framed(json, script, environment)) == (json, script, environment)


@given(st.binary(max_size=300).filter(lambda body: not body.startswith(b"MSTR1 ")))
def test_a_body_that_begins_otherwise_is_json_alone(body: bytes) -> None:
    assert split(body) == (body, b"", b"")


@given(parts, parts, parts, st.integers(1, 30), st.binary(max_size=3))
def test_a_body_that_was_cut_or_has_more_is_refused(
    json: bytes, script: bytes, environment: bytes, cut: int, more: bytes
) -> None:
    whole = framed(json, script, environment)
    torn = whole[: max(len(b"MSTR1 "), len(whole) - cut)] + more
    if torn == whole:
        return
    try:
        found = split(torn)
    except InvalidInput:
        return
    # What is left may be a whole body of its own, never this one with something missing.
    assert framed(*found) == torn


@given(st.binary(max_size=100))
def test_any_header_is_read_or_refused(rest: bytes) -> None:
    try:
        json, script, environment = split(b"MSTR1 " + rest)
    except InvalidInput:
        return
    assert rest.endswith(json + script + environment)


names = st.text(st.characters(codec="utf-8", exclude_characters="\0="), min_size=1, max_size=20)
values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(st.dictionaries(names, values, max_size=5), st.binary(max_size=50))
def test_what_commands_frame_is_read_here(variables: dict[str, str], script: bytes) -> None:
    json, found, environment = split(frame("sbatch", {"ntasks": 1}, script, variables))
    assert (json, found) == (b'{"ntasks":1}', script)
    check_environment(environment)
    assert sorted(environment.split(b"\0")[:-1]) == sorted(f"{n}={v}".encode() for n, v in variables.items())


@given(st.dictionaries(names, values, max_size=5))
def test_entries_are_joined_as_the_check_wants_them(variables: dict[str, str]) -> None:
    entries = [f"{name}={value}" for name, value in variables.items()]
    environment = joined(entries)
    check_environment(environment)
    assert environment.split(b"\0")[:-1] == [entry.encode() for entry in entries]


@given(st.binary(min_size=1, max_size=40))
def test_an_environment_is_right_or_refused_in_a_sentence(environment: bytes) -> None:
    right = environment.endswith(b"\0") and all(entry.find(b"=") > 0 for entry in environment[:-1].split(b"\0"))
    if right:
        check_environment(environment)
    else:
        with pytest.raises(MusterError):
            check_environment(environment)

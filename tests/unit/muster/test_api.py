from __future__ import annotations

import json

import pytest

from muster.api import (
    CancelRequest,
    JobRequest,
    NodeSizes,
    UpdateJobRequest,
    decode,
)
from muster.errors import InvalidInput, Refused, TooLarge


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_reads_options_and_leaves_the_rest_unset() -> None:
    request = decode(body(nodes=[2, 4], priority="TOP", requeue="expedite", script="#!/bin/sh\n"), JobRequest)
    assert request.nodes == [2, 4]
    assert request.priority == "TOP"
    assert request.requeue == "expedite"
    assert request.ntasks is None
    assert request.batch


def test_reads_a_list_of_node_counts() -> None:
    assert decode(body(nodes={"sizes": [1, 2, 4]}), JobRequest).nodes == NodeSizes([1, 2, 4])


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(InvalidInput, match="has no field gpuz"):
        decode(body(gpuz=1), JobRequest)


def test_a_text_over_its_bound_names_field_and_bound() -> None:
    with pytest.raises(TooLarge, match=r"field comment is over its bound of 65536 characters"):
        decode(body(comment="x" * 65537), JobRequest)


def test_a_list_over_its_bound_names_field_and_bound() -> None:
    with pytest.raises(TooLarge, match=r"field ids is over its bound of 10000 entries"):
        decode(body(ids=["1"] * 10001), CancelRequest)


def test_a_value_of_the_wrong_kind_names_its_field() -> None:
    with pytest.raises(InvalidInput, match=r"field nice cannot be read: expected int"):
        decode(body(nice="low"), UpdateJobRequest)


@pytest.mark.parametrize(
    ("field", "value"),
    [("chdir", "/tmp\0x"), ("script_args", ["a", "b\0"]), ("echo", {"A\0": "1"}), ("echo", {"A": "\0"})],
)
def test_a_nul_character_is_refused_by_its_field(field: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=f"field {field} holds a NUL character"):
        decode(body(**{field: value}), JobRequest)
    # A backslash and the letters are a text like any other; a script has a sentence of its own elsewhere.
    assert decode(body(chdir="\\u0000"), JobRequest).chdir == "\\u0000"
    assert decode(body(script="\0"), JobRequest).script == "\0"


@pytest.mark.parametrize("field", ["job_name", "comment", "account", "partition"])
@pytest.mark.parametrize("text", ["a\nb", "a\r"])
def test_a_line_break_is_refused_where_it_would_forge_a_row(field: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"field {field} holds a line break"):
        decode(body(**{field: text}), JobRequest)
    assert decode(body(script="#!/bin/sh\ntrue\n", job_name="a\\nb"), JobRequest).job_name == "a\\nb"


def test_what_is_no_json_is_said_to_be_none() -> None:
    with pytest.raises(InvalidInput, match="no JSON"):
        decode(b"{", CancelRequest)


def test_an_error_becomes_an_answer_with_its_number() -> None:
    assert Refused("Job has already finished", "ask sacct", slurm_code=2084).parts() == {
        "code": "REFUSED",
        "sentence": "Job has already finished",
        "hint": "ask sacct",
        "slurm_code": 2084,
    }

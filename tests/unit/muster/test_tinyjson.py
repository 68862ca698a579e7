"""The commands' JSON gives what the standard module gives."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import tinyjson

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_prints_what_the_standard_module_reads(value: object) -> None:
    assert json.loads(tinyjson.dumps(value)) == value


@given(values)
def test_reads_what_the_standard_module_prints(value: object) -> None:
    assert tinyjson.loads(json.dumps(value, separators=(",", ":"))) == value


@pytest.mark.parametrize("text", ["", "{", '{"a":1}x', "[1,]", "nul"])
def test_refuses_what_is_no_document(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        tinyjson.loads(text)


def test_refuses_values_that_json_has_no_form_for() -> None:
    with pytest.raises(TypeError, match="set is not JSON"):
        tinyjson.dumps({"a": {1}})

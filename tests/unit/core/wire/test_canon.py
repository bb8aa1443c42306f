from __future__ import annotations

import json
import math

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.wire import canon

texts = st.text(max_size=8)
numbers = st.integers(-(2**53) + 1, 2**53 - 1)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcXYZ019_", max_size=6), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(values)
def test_documents_of_texts_and_safe_integers_are_written_as_the_standard_says(value):
    assert canon.encode(value) == rfc8785.dumps(value)


@settings(max_examples=200, deadline=None)
@given(st.recursive(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | texts,
                    lambda inner: st.dictionaries(texts, inner, max_size=4), max_leaves=8))  # fmt: skip
def test_everything_is_written_as_pythons_json_writes_it(value):
    assert canon.text(value) == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan]])
def test_what_is_no_json_number_is_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canon.text(value)


def test_what_is_no_json_value_is_refused():
    with pytest.raises(TypeError):
        canon.text({"a": object()})


def test_a_lone_surrogate_is_written_as_its_three_bytes():
    assert canon.encode("\ud800") == b'"\xed\xa0\x80"'


def test_without_the_c_encoder_the_text_is_the_same(monkeypatch):
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    assert canon._built_once()({"b": [1, "é"], "a": None}) == canon.text({"b": [1, "é"], "a": None})

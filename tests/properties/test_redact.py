from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.redact import values
from airlock.core.redact.patterns import _SECRET, REDACTED, may_hold_secret, scrub_text, secret_key
from airlock.core.wire import canon

PIECES = st.sampled_from(
    [
        "sk-", "sk" + "-abcd1234", "gh" + "p_", "a" * 20, "AKIA", "A1" * 8, "ey", "J" * 8, ".", "p" * 10,
        "Bearer", "bEARER", " ", "\n", "\\", "n", "r", "t", "\\n", "-", "_", "é", "密", "\x00", "\x01",
        "\x08", "\ud800",
        "token", "disk", '"', "passWord", "api", "key", "1", "\u212a", "\u0130",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=12)
LEAVES = TEXTS | st.integers() | st.floats() | st.booleans() | st.none()
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)

profile = settings(max_examples=120, deadline=None)


@profile
@given(TEXTS)
def test_a_text_cleared_by_the_cheap_test_is_not_changed_by_the_patterns(text: str) -> None:
    assert scrub_text(text) == _SECRET.sub(REDACTED, text)
    encoded = canon.text(text)
    if not may_hold_secret(encoded):
        assert scrub_text(text) == text


@profile
@given(TREES)
def test_arguments_are_written_as_if_always_cleaned_and_scrubbed(tree: object) -> None:
    assert values.args_json(tree) == canon.text(values.scrub(values.clean(tree)))


@profile
@given(TREES)
def test_what_is_written_is_well_formed_and_holds_no_secret(tree: object) -> None:
    def walk(item: object) -> None:
        if isinstance(item, dict):
            for key, child in item.items():
                walk(re.sub(r"#\d+$", "", key))
                assert not secret_key(key) or child == REDACTED
                walk(child)
        elif isinstance(item, list):
            for child in item:
                walk(child)
        elif isinstance(item, str):
            assert "\x00" not in item
            item.encode()

    walk(json.loads(values.args_json(tree)))
    json.loads(values.detail_json(tree))


@profile
@given(st.dictionaries(TEXTS, st.integers(), max_size=8))
def test_no_member_is_lost(tree: dict[str, int]) -> None:
    for changed in (values.clean(tree), values.scrub_detail(tree)):
        assert isinstance(changed, dict)
        assert list(changed.values()) == list(tree.values())
    assert len(json.loads(values.args_json(tree))) == len(tree)


@profile
@given(TREES, st.lists(TEXTS, max_size=4))
def test_no_masked_value_survives_in_a_text_that_repeats_it(tree: object, between: list[str]) -> None:
    masked = values.masked_by_key(tree)
    assert all(len(value) >= 4 for value in masked)
    assert sorted(masked, key=len, reverse=True) == list(masked)
    text = "|".join([*between, *masked, *between])
    for part in values.mask(text, masked).split(REDACTED):
        assert not any(value in part for value in masked)

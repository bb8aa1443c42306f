from __future__ import annotations

import json
import math

import pytest

from airlock.core.redact import values
from airlock.core.redact.patterns import REDACTED
from airlock.core.wire import canon

SK = "sk" + "-" + "abcd1234"
GITHUB = "gh" + "p_" + "a" * 20


def nested(depth: int, leaf: object) -> object:
    for level in range(depth):
        leaf = {"k": leaf} if level % 2 else [leaf]
    return leaf


# clean


def test_nul_and_lone_surrogates_become_replacement_characters_in_texts_and_keys() -> None:
    assert values.clean({"a\x00": ["\ud800x", "é"]}) == {"a\ufffd": ["\ufffdx", "é"]}


def test_numbers_that_json_does_not_have_become_their_names() -> None:
    assert values.clean([math.nan, math.inf, -math.inf, 1.5, 2, True, None]) == [
        "NaN", "Infinity", "-Infinity", 1.5, 2, True, None,
    ]  # fmt: skip


def test_keys_that_become_equal_by_cleaning_stay_apart() -> None:
    dirty = dict(zip(["a\x00", "a\ud800", "a\ufffd", "a\ufffd#2"], [1, 2, 3, 4], strict=True))
    assert values.clean(dirty) == {"a\ufffd": 3, "a\ufffd#2": 4, "a\ufffd#3": 1, "a\ufffd#4": 2}


def test_a_key_that_is_no_text_is_left_to_the_encoder() -> None:
    assert values.clean({1: "x"}) == {1: "x"}


def test_the_value_given_is_never_changed() -> None:
    given = {"password": ["x", {"y": SK}], SK: (1, 2)}
    copy = {"password": ["x", {"y": SK}], SK: (1, 2)}
    values.clean(given)
    values.scrub(given)
    values.scrub_detail(given)
    assert given == copy


# scrub


def test_the_whole_subtree_under_a_secret_key_is_redacted() -> None:
    given = {"db": {"Password": {"old": [1, "x"]}, "port": 5432}, "token": None, "n": 1}
    assert values.scrub(given) == {"db": {"Password": REDACTED, "port": 5432}, "token": REDACTED, "n": 1}


@pytest.mark.case("T51")
def test_credentials_inside_texts_and_keys_are_redacted_and_disk_cleanup_prod_survives() -> None:
    given = {"note": f"use {SK} ok", f"k {GITHUB}": "disk-cleanup-prod", "list": [SK, ("a", SK)]}
    assert values.scrub(given) == {
        "note": f"use {REDACTED} ok",
        f"k {REDACTED}": "disk-cleanup-prod",
        "list": [REDACTED, ["a", REDACTED]],
    }


@pytest.mark.case("T51")
def test_colliding_keys_stay_apart_and_in_order() -> None:
    given = {SK + "a": 1, "plain": 2, SK + "b": 3, SK + "c": 4}
    scrubbed = values.scrub(given)
    assert scrubbed == {REDACTED: 1, "plain": 2, REDACTED + "#2": 3, REDACTED + "#3": 4}
    assert isinstance(scrubbed, dict)
    assert list(scrubbed) == [REDACTED, "plain", REDACTED + "#2", REDACTED + "#3"]


def test_a_key_that_already_has_the_number_keeps_it() -> None:
    given = {SK + "a": 1, SK + "b": 2, REDACTED + "#2": 3, REDACTED: 4}
    assert values.scrub(given) == {REDACTED: 4, REDACTED + "#2": 3, REDACTED + "#3": 1, REDACTED + "#4": 2}


@pytest.mark.case("T51")
def test_very_many_colliding_keys_take_near_linear_time() -> None:
    given = {f"{SK}{n}": n for n in range(20_000)}
    scrubbed = values.scrub(given)
    assert isinstance(scrubbed, dict)
    assert sorted(scrubbed.values()) == list(range(20_000))
    assert scrubbed[REDACTED + "#20000"] == 19_999


def test_a_key_is_judged_as_it_was_sent() -> None:
    assert values.scrub({SK + "token": "x"}) == {REDACTED: REDACTED}
    assert values.scrub({1: "x"}) == {1: "x"}


@pytest.mark.parametrize("function", [values.clean, values.scrub, values.scrub_detail])
def test_depth_is_no_matter(function) -> None:
    assert function(nested(64, "x")) == nested(64, "x")
    deep = function(nested(5_000, "x"))
    for level in reversed(range(5_000)):
        deep = deep["k"] if level % 2 else deep[0]
    assert deep == "x"


# scrub_detail


@pytest.mark.case("T52")
def test_numbers_under_token_like_keys_of_a_detail_stay_and_texts_do_not() -> None:
    given = {
        "est_tokens": 1450,
        "token": "abc",
        "tokens": [1],
        "secret": True,
        "credential": None,
        "api_key": 1.5,
    }
    assert values.scrub_detail(given) == {
        "est_tokens": 1450, "token": REDACTED, "tokens": REDACTED, "secret": True, "credential": None,
        "api_key": 1.5,
    }  # fmt: skip


@pytest.mark.case("T52")
def test_the_keys_and_free_text_of_a_detail_are_scrubbed() -> None:
    assert values.scrub_detail({SK: f"x {GITHUB}"}) == {REDACTED: f"x {REDACTED}"}
    assert values.scrub_detail(f"x {GITHUB}") == f"x {REDACTED}"


def test_what_is_not_json_in_a_detail_is_stringified_then_scrubbed() -> None:
    given = {"error": ValueError(f"bad {SK}\x00"), 7: {1}, ("token",): "x"}
    assert values.scrub_detail(given) == {
        "error": f"bad {REDACTED}\ufffd",
        "7": "{1}",
        "('token',)": REDACTED,
    }


# args_json, detail_json, name


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"node": "n4", "n": [1, 2.5, True, None], "b": {"é": "ü"}},
        {"note": "disk-cleanup-prod", "path": "a.b.c"},
        {"password": "x"},
        {"note": f"use {SK} ok", SK: 1},
        {"a": "\x00", "b": "\ud800", "a\x00": 1},
        {"a": "\x01" + SK, "b": "\x08" + SK, "c": "\n" + SK, "d": "\\n" + SK},
        {"nul": "\\u0000"},
        {"x": math.nan, "y": [math.inf, -math.inf], "token": 1},
        "text",
        [SK],
        None,
    ],
)
def test_the_fast_path_gives_what_the_slow_one_gives(arguments: object) -> None:
    text = values.args_json(arguments)
    assert text == canon.text(values.scrub(values.clean(arguments)))
    assert SK not in text


def test_arguments_nested_as_deep_as_admission_lets_them_are_written() -> None:
    assert values.args_json(nested(64, SK)) == canon.text(nested(64, REDACTED))


def test_a_detail_is_written_clean_and_scrubbed() -> None:
    assert values.detail_json(None) == "null"
    assert values.detail_json(f"no {SK}\x00") == f'"no {REDACTED}\ufffd"'
    assert values.detail_json({"est_tokens": 3, "chars": math.nan}) == '{"chars":"NaN","est_tokens":3}'
    assert values.detail_json({"error": OSError("x\ud800")}) == '{"error":"x\ufffd"}'


@pytest.mark.case("T52")
def test_a_name_is_scrubbed_by_the_value_rule_only() -> None:
    assert values.name(None) is None
    assert values.name("token-service") == "token-service"
    assert values.name(f"tool\x00 {SK}") == f"tool\ufffd {REDACTED}"


# masked_by_key, mask


def test_the_values_hidden_by_a_key_are_listed_longest_first() -> None:
    given = {
        "password": "hunter22",
        "auth": {"credentials": {"name": "carol", "pins": ["1234", "12", 99999, ("longest of all",)]}},
        "plain": ["hunter99", {"x": "hunter33"}],
        "token": "hunter22",
    }
    assert values.masked_by_key(given) == ("longest of all", "hunter22", "carol", "1234")
    assert values.masked_by_key({"plain": "x"}) == ()
    assert values.masked_by_key(nested(5_000, {"token": "abcd"})) == ("abcd",)


def test_a_value_hidden_by_its_key_is_masked_where_the_upstream_echoes_it() -> None:
    masked = values.masked_by_key({"password": "hunter22", "secret": "hunter22!"})
    assert values.mask("set hunter22! then hunter22.", masked) == f"set {REDACTED} then {REDACTED}."
    assert values.mask("nothing here", masked) == "nothing here"
    assert values.mask("", masked) == ""
    assert values.mask("hunter22", ()) == "hunter22"


def test_overlapping_masked_values_leave_nothing_of_either() -> None:
    assert values.mask("xabcdefx", ("abcd", "cdef")) == f"x{REDACTED}x"
    assert values.mask("xabcdefx", ("abcdef", "bcde")) == f"x{REDACTED}x"
    assert values.mask("REDACTED abcd", ("REDACTED", "abcd")) == f"{REDACTED} {REDACTED}"


@pytest.mark.parametrize("value", ['a"b\\c', "line\nbreak", "pässwörd", "x\ud800yz"])
def test_a_masked_value_is_found_in_json_text_and_after_cleaning_too(value: str) -> None:
    masked = values.masked_by_key({"password": value})
    for echo in (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        values.name(value),
    ):
        assert values.mask(f"<{echo}>", masked) == f"<{REDACTED}>"


def test_more_masked_values_than_can_be_looked_for_hide_the_whole_text() -> None:
    many = {"tokens": [f"value{n}" for n in range(129)]}
    assert values.mask("a value7 b", values.masked_by_key(many)) == REDACTED
    many["tokens"].pop()
    assert values.mask("a value7 b", values.masked_by_key(many)) == f"a {REDACTED} b"

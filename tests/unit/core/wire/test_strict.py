"""Strict JSON: each rule, each limit, and the reader that keeps its place in a list."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path

import pytest

from airlock.core.wire import strict
from airlock.core.wire.strict import StrictError, StrictKind, deeper_than, nesting, parse, skeleton
from tests.vectors import make_hostile_json

VECTORS = Path(__file__).resolve().parents[3] / "vectors" / "hostile_json.json"
HOSTILE = [
    pytest.param(base64.b64decode(entry["base64"]), entry["expect"], id=entry["name"])
    for entry in json.loads(VECTORS.read_text(encoding="utf-8"))
]


def refusal(data: bytes, *, unique: bool = True) -> StrictKind:
    with pytest.raises(StrictError) as caught:
        parse(data, unique=unique)
    return caught.value.kind


def depth(value: object) -> int:
    levels = 0
    layer = [value]
    while containers := [item for item in layer if isinstance(item, (dict, list))]:
        levels += 1
        layer = [
            member for item in containers for member in (item.values() if isinstance(item, dict) else item)
        ]
    return levels


@pytest.mark.case("T28", "T29", "T30", "T73")
@pytest.mark.parametrize(("data", "expect"), HOSTILE)
def test_a_hostile_text_gets_the_answer_of_its_class(data, expect):
    if expect == "ok":
        parse(data)
    else:
        assert refusal(data) == expect


def test_the_vectors_are_those_that_the_script_makes():
    assert VECTORS.read_text(encoding="utf-8") == make_hostile_json.document()


def test_a_plain_text_has_the_value_that_json_gives_it():
    text = b' {"a": [1, -2.5e3, "x\\n\\u00e9", true, false, null], "b": {}} \r\n'
    assert parse(text) == {"a": [1, -2500.0, "x\né", True, False, None], "b": {}}


@pytest.mark.case("T28")
def test_integers_keep_every_digit_up_to_the_largest_double():
    largest = 2**1024 - 2**971
    assert parse(str(largest).encode()) == largest
    assert parse(str(-largest).encode()) == -largest
    assert parse(b"18446744073709551617") == 2**64 + 1
    assert type(parse(b"1.0")) is float
    assert refusal(str(-(2**1024)).encode()) is StrictKind.NUMBER


@pytest.mark.case("T28")
def test_an_integer_of_any_length_is_a_refusal_of_ours():
    assert refusal(b"1" * 1_000_000) is StrictKind.NUMBER


@pytest.mark.case("T30")
def test_lone_surrogates_stay_as_they_are():
    assert parse(b'{"\\ud800": "\\udfff"}') == {"\ud800": "\udfff"}


@pytest.mark.case("T73")
def test_the_last_of_equal_keys_wins_only_when_asked_for():
    assert parse(b'{"a":1,"a":{"b":1,"b":2}}', unique=False) == {"a": {"b": 2}}
    assert refusal(b'{"a":NaN,"a":2}', unique=False) is StrictKind.NUMBER
    assert refusal(b'{"a":1,"a":2}') is StrictKind.DUPLICATE


def test_a_refusal_has_words_of_ours_and_none_of_the_text():
    said = set()
    for data in (b"\xff-xyzzy", b"xyzzy", b'{"xyzzy":1,"xyzzy":2}', b"1e400", b"[" * 1001):
        with pytest.raises(StrictError) as caught:
            parse(data)
        assert "xyzzy" not in str(caught.value) + repr(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        said.add(str(caught.value))
    assert len(said) == len(StrictKind)


def test_a_refusal_survives_pickling():
    again = pickle.loads(pickle.dumps(StrictError(StrictKind.DEPTH)))
    assert again.kind is StrictKind.DEPTH
    assert str(again) == str(StrictError(StrictKind.DEPTH))


@pytest.mark.case("T29")
def test_a_thousand_levels_are_read_however_deep_the_stack_already_is():
    text = b'{"a":[' * 500 + b"]}" * 500

    def from_below(frames: int) -> object:
        return from_below(frames - 1) if frames else parse(text)

    for frames in (0, 100, 400, 800):
        assert depth(from_below(frames)) == 1000


@pytest.mark.case("T29")
@pytest.mark.parametrize("levels", [1001, 100_000, 1_000_000])
def test_more_than_a_thousand_levels_are_refused_before_any_parser_sees_them(levels):
    assert refusal(b"[" * levels + b"]" * levels) is StrictKind.DEPTH
    assert refusal(b"[" * levels) is StrictKind.DEPTH


@pytest.mark.parametrize(
    ("data", "levels"),
    [
        (b"1", 0),
        (b'"[[["', 0),
        (b"{}", 1),
        (b'{"a":[{}]}', 3),
        (b"[[],[],[[]]]", 3),
        (b'["\\"[[[[", "]]", "\\\\", []]', 2),
        (b'["\\\\\\"[[[["]', 1),
        (b'["\\\\", [[]], "\\\\\\\\"]', 3),
        (b'{"a[":"]","{":["}"]}', 2),
        (b'["x", "[', 1),
        (b"]]][", 0),
    ],
)
def test_nesting_counts_containers_and_skips_strings(data, levels):
    assert nesting(data) == levels


@pytest.mark.case("T29")
def test_a_limit_is_exact_and_brackets_in_strings_do_not_count_towards_it():
    assert not deeper_than(b"[" * 64 + b"]" * 64, 64)
    assert deeper_than(b"[" * 65 + b"]" * 65, 64)
    assert deeper_than(b'{"a":' * 64 + b"[]" + b"}" * 64, 64)
    assert not deeper_than(b'["' + b"[{" * 500 + b'"]', 64)
    assert not deeper_than(b"[" + b"{}," * 500 + b"[]]", 64)


def test_the_skeleton_is_what_stands_outside_strings():
    assert skeleton(b'{"a:[":{"\\"}":[1,2]}, "b\\\\":"::", "c":""}') == b"{:{:[]}::}"


DEEP = [
    b"1",
    b" [ ] ",
    b'{"a" : 1 , "b":[ {} ,[ ],"x" ]}',
    b'{"a":1,"a":[]}',
    b'[{"a":{"b":[1]}},2]',
    b"[1e400]",
    b"[NaN]",
    b"",
    b" ",
    b"[",
    b"[1",
    b"[1,",
    b"[1,]",
    b"[,]",
    b"[1 2]",
    b"[1}",
    b'{"a":1]',
    b"{",
    b"{]",
    b"{1:2}",
    b'{"a"',
    b'{"a" 1}',
    b'{"a":1,}',
    b'{"a":1,2:3}',
    b"[]]",
    b"[] x",
    b"[]\x0c",
    b":",
    b"]",
    b"[x]",
]


@pytest.mark.parametrize("data", DEEP)
def test_the_reader_for_deep_texts_says_what_the_parser_says(data):
    def outcome(read) -> object:
        try:
            return read(data.decode())
        except StrictError as refused:
            return refused.kind
        except json.JSONDecodeError:
            return StrictKind.SYNTAX

    decoder = strict._unique_decoder
    assert outcome(lambda text: strict._parse_deep(text, decoder)) == outcome(decoder.decode)


@pytest.mark.parametrize("data", [b'"' + b'\\"' * 200_000, b"\\" * 400_001, b'"' * 400_001, b"[]" * 200_000])
def test_a_long_broken_text_is_refused_in_one_pass(data):
    assert refusal(data) is StrictKind.SYNTAX


@pytest.mark.case("T29")
def test_many_brackets_side_by_side_are_not_deep():
    wide = b"[" + b",".join([b"[[]]"] * 200) + b"]"
    assert strict.deeper_than(wide, 3) is False
    assert strict.deeper_than(wide, 2) is True
    late = b"[" + b",".join([b"[]"] * 200 + [b"[" * 70 + b"]" * 70]) + b"]"
    assert strict.deeper_than(late, 64) is True
    assert strict.deeper_than(late, 71) is False

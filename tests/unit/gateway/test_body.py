"""Bodies of the gateway: the fast path says what the strict parser says."""

from __future__ import annotations

import base64
import itertools
import json
from enum import StrEnum
from pathlib import Path

import pytest

from airlock.core.text.safe import safe
from airlock.core.wire import strict
from airlock.core.wire.strict import StrictError, StrictKind
from airlock.gateway import body

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "hostile_json.json"
HOSTILE = [
    pytest.param(base64.b64decode(entry["base64"]), entry["expect"], id=entry["name"])
    for entry in json.loads(VECTORS.read_text(encoding="utf-8"))
]


def leaves(value: object) -> list[tuple[object, ...]]:
    """The value as a flat list, type by type, so that a deep one can be compared without recursion."""
    flat: list[tuple[object, ...]] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            flat.append(("{", *item))
            waiting += item.values()
        elif isinstance(item, list):
            flat.append(("[", len(item)))
            waiting += item
        else:
            flat.append((type(item), repr(item)))
    return flat


def refusal(read, data: bytes, **options: bool) -> StrictKind:
    with pytest.raises(StrictError) as caught:
        read(data, **options)
    return caught.value.kind


@pytest.mark.case("T28", "T29", "T30", "T73")
@pytest.mark.parametrize(("data", "expect"), HOSTILE)
def test_a_request_gets_the_answer_of_its_class_and_the_value_of_the_strict_parser(data, expect):
    if expect == "ok":
        assert leaves(body.decode_request(data)[0]) == leaves(strict.parse(data))
    else:
        assert refusal(body.decode_request, data) == expect


@pytest.mark.case("T28", "T29", "T30", "T73")
@pytest.mark.parametrize(("data", "expect"), HOSTILE)
def test_an_answer_is_as_strict_but_for_depth_and_equal_keys(data, expect):
    if strict.nesting(data) > 64:
        assert refusal(body.decode_answer, data) is StrictKind.DEPTH
        assert refusal(body.decode_answer, data, exact=True) is StrictKind.DEPTH
    elif expect in ("ok", "duplicate"):
        assert leaves(body.decode_answer(data)) == leaves(strict.parse(data, unique=False))
        if expect == "ok":
            assert leaves(body.decode_answer(data, exact=True)) == leaves(strict.parse(data))
        else:
            assert refusal(body.decode_answer, data, exact=True) is StrictKind.DUPLICATE
    else:
        assert refusal(body.decode_answer, data) == expect


@pytest.mark.case("T30")
def test_every_kind_of_escaped_surrogate_is_read_as_the_strict_parser_reads_it():
    units = ["0041", "d7ff", "d800", "D83D", "dbff", "dc00", "DE00", "dfff", "e000"]
    for escapes in itertools.chain.from_iterable(itertools.product(units, repeat=n) for n in (1, 2, 3)):
        for between in ("", "x", "\\n"):
            data = ('{"a":"' + between.join("\\u" + unit for unit in escapes) + '"}').encode()
            assert body.decode_request(data)[0] == body.decode_answer(data) == strict.parse(data), data


@pytest.mark.case("T73")
def test_the_last_of_equal_keys_wins_in_an_answer_with_and_without_a_surrogate():
    assert body.decode_answer(b'{"a":"x","a":1}') == {"a": 1}
    assert body.decode_answer(b'{"a":"\\ud800","a":1}') == {"a": 1}


@pytest.mark.case("T73")
@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"u":"a:b","a":1,"a":2}',
        b'{"u":":","a":1,"a":2}',
        b'{"u":"\\u003a","a":1,"a":2}',
        b'[{"b":{"a":1,"\\u0061":2}}]',
    ],
)
def test_no_colon_in_a_string_hides_a_duplicate_key(data):
    assert refusal(body.decode_request, data) is StrictKind.DUPLICATE


def test_a_good_text_is_not_read_a_second_time(monkeypatch):
    monkeypatch.setattr(strict, "parse", None)
    data = b'{"id":1,"params":{"u":"http://h:1/?q=\\"{}\\"","n":[1,2.5,null],"e":"\\ud83d\\ude00"}}'
    assert body.decode_request(data)[0] == json.loads(data)
    assert body.decode_answer(data) == json.loads(data)
    assert body.decode_request(b'["' + b"1" * 308 + b'"]')[0] == ["1" * 308]
    assert body.decode_request(b'"scalar"')[0] == "scalar"


@pytest.mark.case("T28")
@pytest.mark.parametrize("digits", [309, 310, 369, 370, 371, 400, 1000, 5000])
@pytest.mark.parametrize("before", [0, 1, 30, 59, 60, 61, 62, 121])
def test_an_integer_beyond_a_double_is_found_wherever_it_stands(digits, before):
    data = b"[" + b" " * before + b"9" * digits + b"]"
    assert refusal(body.decode_request, data) is StrictKind.NUMBER
    assert refusal(body.decode_answer, data) is StrictKind.NUMBER


@pytest.mark.case("T29")
def test_the_depth_of_a_request_is_asked_for_apart_and_that_of_an_answer_is_a_refusal():
    at, over = b"[" * 64 + b"]" * 64, b"[" * 65 + b"]" * 65
    assert not body.too_deep(at)
    assert body.too_deep(over)
    assert body.too_deep(b"[[]]", 1)
    assert leaves(body.decode_request(over)[0]) == leaves(strict.parse(over))
    assert leaves(body.decode_answer(at)) == leaves(strict.parse(at))
    assert refusal(body.decode_answer, over) is StrictKind.DEPTH
    assert refusal(body.decode_answer, b"[" * 1_000_000) is StrictKind.DEPTH


@pytest.mark.case("T29")
def test_no_recursion_error_comes_out_of_a_deep_stack():
    text = b"[" * 64 + b"]" * 64

    def from_below(frames: int) -> object:
        return from_below(frames - 1) if frames else body.decode_request(text)[0]

    assert leaves(from_below(900)) == leaves(strict.parse(text))


def test_bodies_are_written_compact_and_in_utf_8():
    assert body.encode({"a": [1, 2.5, True, None, "é", 2**70]}) == (
        b'{"a":[1,2.5,true,null,"\xc3\xa9",1180591620717411303424]}'
    )


@pytest.mark.case("T30")
@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, {"id": "\ud800", "result": ["é", "\udc00"]}])
def test_a_lone_surrogate_is_written_as_its_escape(value):
    written = body.encode(value)
    assert written.isascii()
    assert b" " not in written
    assert body.decode_request(written)[0] == value


def test_texts_of_a_kind_of_their_own_are_written_as_texts():
    class Word(StrEnum):
        YES = "yes"

    assert body.encode([safe("a\x1b"), Word.YES]) == b'["a\\\\u001b","yes"]'
    assert body.encode([safe("a"), Word.YES, "\ud800"]) == b'["a","yes","\\ud800"]'


def test_what_is_no_json_value_is_not_written():
    with pytest.raises(TypeError, match="object"):
        body.encode(object())


@pytest.mark.case("T28", "T29", "T30")
@pytest.mark.parametrize(
    "around",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"x":1e400},"result":%b}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":"\xff"},"result":%b}',
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 70 + b"]" * 70 + b',"result":%b}',
        b'{"jsonrpc":"2.0","id":1e400,"id":1,"result":%b}',
        b'{"jsonrpc":"2.0","id":1,"result":%b,"error":{}}',
        b'{"jsonrpc":"2.0","id":2,"result":%b}',
        b'{"id":1,"result":%b}',
        b'[{"jsonrpc":"2.0","id":1,"result":%b}]',
    ],
)
def test_only_a_plain_response_gives_its_result_unread(around: bytes):
    result = b'{"tools":[{"name":"read"}]}'
    assert body.raw_result(b'{"jsonrpc": "2.0", "id": 1, "result": %b}' % result, 1) == result
    assert body.raw_result(around % result, 1) is None

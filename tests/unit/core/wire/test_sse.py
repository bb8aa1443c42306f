"""Event streams: lines, fields, chunks, and the one event that answers."""

from __future__ import annotations

import json

import pytest

from airlock.core.wire import strict
from airlock.core.wire.sse import Events, reduce


def events(*chunks: bytes) -> list[bytes]:
    reader = Events()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()


def stream(*messages: object) -> bytes:
    return b"".join(
        b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n" for message in messages
    )


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_with_lf_cr_or_both(end):
    text = end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])
    assert events(text) == [b"a\nb", b"c"]
    assert events(*(bytes([byte]) for byte in text)) == [b"a\nb", b"c"]


def test_a_line_end_split_over_two_chunks_is_one_line_end():
    assert events(b"data: a\r", b"", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]
    assert events(b"data: a\r", b"\r", b"data: b\n\n") == [b"a", b"b"]


def test_a_byte_order_mark_is_skipped_at_the_start_only():
    assert events(b"\xef\xbb", b"\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_comments_and_other_fields_are_ignored():
    assert events(b": hi\nevent: x\nid: 7\nretry: 1\ndatum: no\n data: no\nDATA: no\ndata: a\n\n") == [b"a"]


def test_one_space_after_the_colon_is_dropped_and_no_more():
    assert events(b"data:a\ndata:  b\ndata: c:d \n\n") == [b"a\n b\nc:d "]


def test_a_data_line_without_a_value_is_an_empty_line_of_data():
    assert events(b"data\n\n") == [b""]
    assert events(b"data: a\ndata\ndata:\n\n") == [b"a\n\n"]


def test_a_blank_line_without_data_is_no_event():
    assert events(b"\n\nevent: ping\n\n: x\n\n") == []


def test_an_event_that_no_blank_line_ends_is_dropped():
    assert events(b"data: a\n\ndata: b\n") == [b"a"]
    assert events(b"data: a\n\ndata: b") == [b"a"]


def test_only_line_feed_and_carriage_return_end_a_line():
    assert events(b"data: a\x0bb\x0cc\x85d\xe2\x80\xa8e\n\n") == [b"a\x0bb\x0cc\x85d\xe2\x80\xa8e"]


@pytest.mark.case("T27")
def test_the_answer_is_the_response_with_our_id():
    ours = {"jsonrpc": "2.0", "id": 5, "result": {"ok": True}}
    others = [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}},
        {"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {}},
        {"jsonrpc": "2.0", "id": 5, "method": "ping", "result": {}},
        {"jsonrpc": "2.0", "id": 6, "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "x"}},
        {"jsonrpc": "2.0", "result": {}},
        {"jsonrpc": "2.0", "id": 5},
        [ours],
        "ours",
        None,
    ]
    assert reduce(stream(*others), 5) is None
    assert reduce(stream(ours, *others), 5) == ours
    assert reduce(stream(*others, ours), 5) == ours


@pytest.mark.case("T27")
def test_the_last_response_counts_and_an_error_is_a_response():
    first = {"id": "a", "result": {"n": 1}}
    last = {"id": "a", "error": {"code": -32603, "message": "x"}}
    assert reduce(stream(first, last), "a") == last


@pytest.mark.case("T27")
@pytest.mark.parametrize("request_id", [1, 1.0, True, "1", 0, False, None, "", "\ud800"])
def test_an_id_of_another_type_is_a_foreign_id(request_id):
    for other in [1, 1.0, True, "1", 0, False, None, "", "\ud800"]:
        same = type(other) is type(request_id) and other == request_id
        assert (reduce(stream({"id": other, "result": {}}), request_id) is not None) is same


@pytest.mark.case("T28", "T29", "T73")
@pytest.mark.parametrize(
    "bad",
    [
        b'{"id":1,"result":NaN}',
        b'{"id":1,"result":1e400}',
        b'{"id":1,"id":1,"result":{}}',
        b'{"id":1,"result":"\xff"}',
        b'{"id":1,"result":' + b"[" * 1000 + b"]" * 1000 + b"}",
        b'{"id":1,"result":',
        b"",
    ],
)
def test_an_event_that_is_not_strict_json_is_not_the_response(bad):
    good = b'data: {"id":1,"result":{}}\n\n'
    assert reduce(b"data: " + bad + b"\n\n", 1) is None
    assert reduce(good + b"data: " + bad + b"\n\n", 1) == {"id": 1, "result": {}}


@pytest.mark.case("T30")
def test_a_lone_surrogate_in_an_event_stays():
    assert reduce(b'data: {"id":1,"result":"\\ud800"}\n\n', 1) == {"id": 1, "result": "\ud800"}


def test_a_message_may_span_data_lines():
    assert reduce(b'data: {"id":1,\ndata: "result":{}}\n\n', 1) == {"id": 1, "result": {}}


def test_events_are_read_with_the_parser_that_is_given():
    seen: list[bytes] = []

    def parse(data: bytes) -> object:
        seen.append(data)
        return strict.parse(data, unique=False)

    assert reduce(b'data: {"id":2,"id":1,"result":{}}\n\n', 1, parse) == {"id": 1, "result": {}}
    assert seen == [b'{"id":2,"id":1,"result":{}}']

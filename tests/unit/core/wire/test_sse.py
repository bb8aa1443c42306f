"""Event streams: lines, fields, chunks, and the one event that answers."""

from __future__ import annotations

import json

import pytest

from airlock.core.wire import strict
from airlock.core.wire.sse import Event, Events, EventTooLarge, answers, event, reduce


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


# Names, ids, retry


def taken(*chunks: bytes) -> list[Event]:
    reader = Events()
    return [each for chunk in chunks for each in reader.take(chunk)]


def test_an_event_has_a_name_which_is_message_when_none_is_given():
    assert taken(b"data: a\n\nevent: endpoint\ndata: /m?s=1\n\nevent:\ndata: c\n\n") == [
        Event("message", b"a", None),
        Event("endpoint", b"/m?s=1", None),
        Event("message", b"c", None),
    ]


def test_the_last_name_counts_and_ends_with_its_event():
    assert taken(b"event: a\nevent: b\ndata: 1\n\ndata: 2\n\n")[0].name == "b"
    assert taken(b"event: a\n\ndata: 1\n\n")[0].name == "message"
    assert taken(b"event: \xff\ndata: 1\n\n")[0].name == "\ufffd"


def test_an_id_holds_until_the_next_and_an_empty_one_takes_it_back():
    got = taken(b"data: 0\n\nid: s1/7\ndata:\n\ndata: b\n\nid: \xc3\xa4\ndata: c\n\nid\ndata: d\n\n")
    assert [each.id for each in got] == [None, "s1/7", "s1/7", "\xe4", None]
    assert got[1].data == b""


def test_an_id_without_data_is_kept_for_resuming():
    reader = Events()
    assert reader.last_id is None
    assert reader.take(b"id: 7\n\n") == []
    assert reader.last_id == "7"


@pytest.mark.parametrize("bad", [b"a\x00b", b"a\tb", b"\x7f", b"x" * 1025])
def test_an_id_that_no_header_could_hold_is_not_kept(bad):
    reader = Events()
    reader.take(b"id: 1\nid: " + bad + b"\ndata: a\n\n")
    assert reader.last_id == "1"
    reader.take(b"id: " + b"x" * 1024 + b"\n")
    assert reader.last_id == "x" * 1024


def test_retry_is_a_plain_number_of_milliseconds():
    reader = Events()
    for bad in (b"", b"-1", b"1.5", b"1e3", b"x", b" 1", b"\xb2", b"9" * 10):
        reader.take(b"retry: " + bad + b"\n")
        assert reader.retry_ms is None
    reader.take(b"retry: 0500\n")
    assert reader.retry_ms == 500


# Bounds


def fed(reader: Events, chunks: list[bytes]) -> list[bytes]:
    return [data for chunk in chunks for data in reader.feed(chunk)]


@pytest.mark.parametrize("cut", range(30))
def test_a_line_and_the_data_before_it_are_bounded_however_they_come(cut):
    for text, fits in (
        (b"data: 89\n\n", True),
        (b"data: 890\n\n", False),
        (b"data: 3\ndata:9\n\n", True),
        (b"data: 34\ndata:8901\n\n", False),
        (b":2345678\n\n", True),
        (b":23456789\n", False),
        (b"event: 89\n", False),
        (b"data: 89\n\ndata: 89\n\n", True),
    ):
        reader = Events(8)
        chunks = [text[:cut], text[cut:]]
        if fits:
            assert b"".join(fed(reader, chunks)) in (b"89", b"3\n9", b"", b"8989")
        else:
            with pytest.raises(EventTooLarge):
                fed(reader, chunks)


def test_a_comment_without_end_is_bounded():
    reader = Events(1000)
    with pytest.raises(EventTooLarge):
        fed(reader, [b": comment."] * 101)


def test_comments_that_end_are_not_kept():
    reader = Events(10)
    for _ in range(1000):
        assert reader.feed(b": ping\n\n") == []
    assert reader.feed(b"data: a\n\n") == [b"a"]


def test_a_reader_goes_on_where_the_large_event_stood_and_stays_bounded():
    reader = Events(10)
    with pytest.raises(EventTooLarge):
        reader.feed(b"data: a\n\n" + b"x" * 11)
    with pytest.raises(EventTooLarge):
        reader.feed(b"x")


def test_many_data_lines_of_nothing_are_bounded():
    reader = Events(100)
    with pytest.raises(EventTooLarge):
        reader.feed(b"data\n" * 200)


# Writing


def test_an_event_is_written():
    assert event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'
    assert event(b"{}", name=None) == b"data: {}\n\n"
    assert event(b"", name=None, id="s/1") == b"id: s/1\ndata: \n\n"
    assert event(b"/x", name="endpoint", id="2") == b"id: 2\nevent: endpoint\ndata: /x\n\n"


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r\n"])
def test_a_line_break_in_a_text_cannot_begin_another_event(end):
    inner = b'{"id":1,' + end + b'"result":' + end + end + b'{"data":"event: x"}}' + end
    (got,) = taken(event(inner, id="1"))
    assert (got.name, got.id) == ("message", "1")
    assert json.loads(got.data) == json.loads(inner)


@pytest.mark.parametrize("data", [b"", b"a", b" a ", b"data: x", b"\xe2\x80\xa8", b":", b"a" * 100_000])
def test_what_is_written_is_read_back(data):
    assert taken(event(data, name="n", id="i")) == [Event("n", data, "i")]


def test_a_message_answers_only_its_own_request():
    assert answers({"id": 1, "result": {}}, 1)
    assert answers({"id": 1, "error": {}}, 1)
    assert not answers({"id": 1, "result": {}, "error": {}}, 1)
    assert not answers({"id": 1, "result": {}}, "1")

"""What one message of an older era is, before any session or method is looked up."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.edge.headers import Headers
from airlock.gateway.legacy import admission
from airlock.gateway.legacy.admission import Answered, Bad, Call, Notice


def headers(**lines: str) -> Headers:
    return Headers([(name.replace("_", "-").encode(), value.encode()) for name, value in lines.items()])


def call(method: str, **params: Any) -> Call:
    return Call(1, method, params)


def test_a_request_a_notification_and_a_response_are_told_apart_by_their_keys():
    assert admission.classify({"id": 1, "method": "ping"}) == Call(1, "ping", {})
    assert admission.classify({"id": "1", "method": "ping", "params": {"a": 1}}) == Call(
        "1", "ping", {"a": 1}
    )
    assert admission.classify({"method": "notifications/initialized"}) == Notice(
        "notifications/initialized", {}
    )
    assert admission.classify({"method": "x", "params": [1]}) == Notice("x", {})
    assert admission.classify({"id": "p-1", "result": {"a": 1}}) == Answered("p-1", {"a": 1})
    assert admission.classify({"id": "p-1", "result": 5}) == Answered("p-1", None)
    error = {"code": -1, "message": "no"}
    assert admission.classify({"id": "p-1", "error": error}) == Answered("p-1", None, "no")
    assert admission.classify({"id": "p-1", "error": 5}) == Answered("p-1", None, "")


@pytest.mark.parametrize("request_id", [2**63, -(2**63) - 1, 10**30, 0, "", "\ud800"])
def test_any_integer_and_any_string_is_an_id(request_id: Any):
    got = admission.classify({"id": request_id, "method": "ping"})
    assert isinstance(got, Call)
    assert got.id == request_id


@pytest.mark.parametrize("request_id", [None, True, False, 1.5, {}, [], [1]])
def test_what_is_no_id_makes_a_malformed_request_and_never_a_notification(request_id: Any):
    got = admission.classify({"id": request_id, "method": "notifications/cancelled"})
    assert isinstance(got, Bad)
    assert got.code == -32600
    assert got.id == (1.5 if request_id == 1.5 else None)


@pytest.mark.parametrize(
    "message",
    [
        None, 5, "text", [], {}, {"id": 1}, {"method": 5}, {"id": 1, "method": None}, {"id": 1, "method": ["ping"]},
        {"id": 1, "result": {}, "error": {}}, {"result": {}}, {"error": {"code": 1}},
    ],
)  # fmt: skip
def test_what_is_no_message_is_an_invalid_request(message: Any):
    got = admission.classify(message)
    assert isinstance(got, Bad)
    assert got.code == -32600


@pytest.mark.parametrize("params", ["text", [], [1], 5, True, 1.5])
def test_params_that_are_no_object_are_invalid_params(params: Any):
    got = admission.classify({"id": 7, "method": "tools/call", "params": params})
    assert got == Bad(-32602, "params must be an object", 7, "tools/call")


def test_params_that_are_null_are_none():
    assert admission.classify({"id": 7, "method": "ping", "params": None}) == Call(7, "ping", {})


@pytest.mark.parametrize(
    "asked",
    [
        call("tools/call"), call("tools/call", name=5), call("tools/call", name="x", arguments=[]),
        call("tools/call", name="x", arguments="{}"), call("tools/call", name="x", arguments=0),
        call("tools/call", name="x", task={"ttl": 1}), call("tools/list", task={}), call("resources/read"),
        call("resources/read", uri=["a"]), call("prompts/get", name=None), call("tools/list", _meta=5),
        call("tools/list", _meta=None, name=5, task=1), call("tools/list", _meta={"progressToken": None}),
        call("tools/list", _meta={"progressToken": True}), call("tools/list", _meta={"progressToken": 1.5}),
        call("tools/list", _meta={"progressToken": {}}),
    ],
)  # fmt: skip
def test_parameters_of_the_wrong_shape_go_no_further(asked: Call):
    got = admission.faulty_call(asked)
    assert got is not None
    assert (got.code, got.id, got.method) == (-32602, 1, asked.method)


@pytest.mark.parametrize(
    "asked",
    [
        call("tools/call", name="x"), call("tools/call", name="x", arguments=None),
        call("tools/call", name="x", arguments={}), call("tools/list", _meta=None),
        call("tools/list", _meta={"progressToken": 0}), call("tools/list", _meta={"progressToken": ""}),
        call("resources/read", uri=""), call("prompts/get", name="p"), call("completion/complete", anything=1),
    ],
)  # fmt: skip
def test_parameters_of_the_right_shape_pass(asked: Call):
    assert admission.faulty_call(asked) is None


def test_only_the_known_levels_can_be_set():
    assert admission.faulty_level(call("logging/setLevel", level="warning")) is None
    odd: list[Any] = ["Warning", "trace", "", None, 5, ["debug"], {}]
    for level in odd:
        bad = admission.faulty_level(call("logging/setLevel", level=level))
        assert bad is not None
        assert bad.code == -32602


def test_a_uri_to_subscribe_to_is_text_of_bounded_length():
    assert admission.faulty_uri(call("resources/subscribe", uri="a" * 2048)) is None
    for uri in ("a" * 2049, 5, None):
        assert admission.faulty_uri(call("resources/subscribe", uri=uri)) is not None


def test_only_what_is_no_message_has_a_status_of_its_own():
    assert admission.status_of(Bad(-32600, "")) == 400
    assert [admission.status_of(Bad(code, "")) for code in (-32601, -32602, -32603)] == [200, 200, 200]


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25", " 2025-06-18\t"])
def test_every_served_revision_may_be_named(version: str):
    assert not admission.faulty_version(headers(mcp_protocol_version=version))
    assert not admission.faulty_version(headers())


@pytest.mark.parametrize("version", ["2024-11-05", "2000-01-01", "2099-01-01", "2026-07-28", "x", ""])
def test_any_other_revision_is_faulty(version: str):
    assert admission.faulty_version(headers(mcp_protocol_version=version))


def test_a_session_is_named_once_or_not_at_all():
    assert admission.session_id(headers()) is None
    assert admission.session_id(headers(mcp_session_id=" abc ")) == "abc"
    twice = Headers([(b"mcp-session-id", b"abc"), (b"mcp-session-id", b"abc")])
    assert admission.session_id(twice) is None
    assert admission.session_id(Headers([(b"mcp-session-id", b"\xff\x00")])) == "\xff\x00"


@pytest.mark.parametrize(
    ("accept", "json", "stream"),
    [
        ("application/json, text/event-stream", True, True),
        ("text/event-stream;q=0.5 , Application/JSON;q=1", True, True),
        ("*/*", True, True),
        ("application/json", True, False),
        ("text/*", False, True),
        ("application/*", True, False),
        ("text/html", False, False),
        ("", False, False),
    ],
)
def test_the_accept_line_says_which_answers_a_client_takes(accept: str, json: bool, stream: bool):
    lines = headers(accept=accept)
    assert admission.takes(lines, b"application/json") is json
    assert admission.takes(lines, b"text/event-stream") is stream


def test_several_accept_lines_count_together_and_none_allows_everything():
    lines = Headers([(b"accept", b"application/json"), (b"accept", b"text/event-stream")])
    assert admission.takes(lines, b"text/event-stream")
    assert admission.takes(Headers([]), b"text/event-stream")

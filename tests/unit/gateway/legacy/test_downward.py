"""Answers and notifications of revision 2026-07-28 as the older eras say them."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.gateway.legacy import downward

P = "io.modelcontextprotocol/"


def down(result: Any, method: str = "tools/call", version: str = "2025-11-25") -> Any:
    return downward.response({"jsonrpc": "2.0", "id": "inside", "result": result}, 7, method, version)[
        "result"
    ]


def failed(code: Any, method: str = "tools/call", data: Any = None, message: Any = "why") -> Any:
    error = {"code": code, "message": message, "data": data}
    return downward.response({"id": 1, "error": error}, 7, method, "2025-11-25")


def test_a_result_loses_what_only_the_newer_revision_has_and_takes_the_clients_id():
    message: dict[str, object] = {
        "jsonrpc": "2.0", "id": "inside",
        "result": {
            "resultType": "complete", "ttlMs": 5, "cacheScope": "private", "content": [],
            "_meta": {P + "serverInfo": {"name": "k"}, "io.mcp-airlock/verdict": "allow", "x/y": 1},
        },
    }  # fmt: skip
    assert downward.response(message, "7", "tools/call", "2025-11-25") == {
        "jsonrpc": "2.0", "id": "7",
        "result": {"content": [], "_meta": {"io.mcp-airlock/verdict": "allow", "x/y": 1}},
    }  # fmt: skip


def test_meta_goes_when_it_held_nothing_else_and_stays_as_it_is_when_it_is_odd():
    assert down({"_meta": {P + "serverInfo": {}}}) == {}
    assert down({"_meta": 5}) == {"_meta": 5}


@pytest.mark.parametrize("content", [[1], "text", 5, None, True])
def test_structured_content_that_is_no_object_is_left_out(content: Any):
    assert down({"content": [1], "structuredContent": content}) == {"content": [1]}
    assert down({"structuredContent": {"a": 1}}) == {"structuredContent": {"a": 1}}
    assert down({"structuredContent": content}, "resources/read") == {"structuredContent": content}


def test_an_output_schema_that_is_not_of_an_object_does_not_break_the_list():
    tools = [
        {"name": "a", "outputSchema": {"type": "array"}},
        {"name": "b", "outputSchema": {"type": "object", "$defs": {}}},
        {"name": "c", "outputSchema": True}, {"name": "d"}, 5,
    ]  # fmt: skip
    assert down({"tools": tools}, "tools/list") == {
        "tools": [
            {"name": "a"}, {"name": "b", "outputSchema": {"type": "object", "$defs": {}}}, {"name": "c"},
            {"name": "d"}, 5,
        ]
    }  # fmt: skip
    assert down({"tools": 5}, "tools/list") == {"tools": 5}


def test_the_oldest_revision_reads_resource_links_as_words():
    content = [{"type": "resource_link", "name": "a", "uri": "file:///a"}, {"type": "text", "text": "t"}, 5]
    assert down({"content": list(content)}, version="2025-03-26")["content"] == [
        {"type": "text", "text": "a: file:///a"}, {"type": "text", "text": "t"}, 5,
    ]  # fmt: skip
    assert down({"content": list(content)}, version="2025-06-18")["content"] == content
    assert down({"content": 5}, version="2025-03-26") == {"content": 5}


def test_a_resource_that_is_not_found_has_the_older_code():
    got = failed(-32602, "resources/read", {"uri": "file:///a"})
    assert got["error"] == {"code": -32002, "message": "why", "data": {"uri": "file:///a"}}
    odd: list[tuple[str, Any]] = [
        ("resources/read", None),
        ("resources/read", {}),
        ("prompts/get", {"uri": "a"}),
    ]
    for method, data in odd:
        assert failed(-32602, method, data)["error"]["code"] == -32602


@pytest.mark.parametrize("code", [-32020, -32022])
def test_what_the_gateway_did_wrong_is_not_said_of_the_client(code: int):
    error = failed(code, data={"supported": ["x"]})["error"]
    assert error["code"] == -32603
    assert "data" not in error


def test_a_missing_capability_is_named_as_the_era_can_say_it():
    data: dict[str, object] = {"requiredCapabilities": {"sampling": {}, "roots": {}}}
    got = failed(-32021, "tools/call", data)
    assert got["id"] == 7
    assert got["result"]["isError"] is True
    assert "sampling, roots" in got["result"]["content"][0]["text"]
    assert failed(-32021, "prompts/get", data)["error"]["code"] == -32603
    assert "a capability" in failed(-32021, "prompts/get", 5)["error"]["message"]
    assert (
        "\n" not in failed(-32021, "prompts/get", {"requiredCapabilities": {"a\nb": {}}})["error"]["message"]
    )


@pytest.mark.parametrize(
    ("code", "seen"), [(-32601, -32601), (-32042, -32042), (5, 5), ("x", -32603), (None, -32603)]
)
def test_other_errors_keep_code_message_and_data(code: Any, seen: int):
    assert failed(code, data={"a": 1})["error"] == {"code": seen, "message": "why", "data": {"a": 1}}


def test_an_answer_that_is_neither_is_an_internal_error():
    assert downward.response({}, 7, "tools/call", "2025-11-25")["error"] == {
        "code": -32603, "message": "airlock: internal error",
    }  # fmt: skip


def test_what_is_announced_is_told_without_its_tag_and_without_changing_what_others_hear():
    own = {P + "subscriptionId": "l-1", "io.mcp-airlock/x": 1, "v/w": 2}
    message: dict[str, object] = {
        "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "file:///a", "_meta": own},
    }  # fmt: skip
    assert downward.announced(message) == {
        "jsonrpc": "2.0", "method": "notifications/resources/updated",
        "params": {"uri": "file:///a", "_meta": {"v/w": 2}},
    }  # fmt: skip
    assert len(own) == 3
    bare: dict[str, object] = {
        "method": "notifications/tools/list_changed",
        "params": {"_meta": {P + "subscriptionId": 1}},
    }
    assert downward.announced(bare) == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert downward.announced({"method": "notifications/tools/list_changed"}) is not None


@pytest.mark.parametrize(
    "method", ["notifications/message", "elicitation/create", "notifications/cancelled", None, 5, []]
)
def test_nothing_else_is_announced(method: Any):
    assert downward.announced({"method": method}) is None


def test_during_a_call_only_progress_and_log_messages_pass():
    message: dict[str, object] = {
        "method": "notifications/message",
        "params": {"level": "info", "_meta": {"io.mcp-airlock/x": 1}},
    }
    assert downward.during_call(message) == ("notifications/message", {"level": "info"})
    assert downward.during_call({"method": "notifications/progress", "params": {"a": 1}}) == (
        "notifications/progress", {"a": 1},
    )  # fmt: skip
    odd: list[dict[str, object]] = [
        {"method": "notifications/progress"}, {"method": "notifications/progress", "params": [1]},
        {"method": "notifications/tools/list_changed", "params": {}}, {"method": 5, "params": {}}, {},
    ]  # fmt: skip
    for each in odd:
        assert downward.during_call(each) is None

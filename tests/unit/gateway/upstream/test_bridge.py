from __future__ import annotations

from typing import Any

import pytest

from airlock.gateway.upstream import bridge

Message = dict[str, Any]
OURS = "io.modelcontextprotocol/"
ENVELOPE: Message = {
    OURS + "protocolVersion": "2026-07-28",
    OURS + "clientCapabilities": {"roots": {}},
    OURS + "clientInfo": {"name": "a", "version": "1"},
    OURS + "logLevel": "info",
}
INFO: Message = {"name": "old", "version": "3"}
BOTH: Message = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


# Requests.


def test_the_envelope_is_dropped_and_every_other_key_stays():
    kept = {
        "progressToken": 5,
        "io.mcp-airlock/principal": "alice",
        "traceparent": "00-x",
        "com.example/a": {},
    }
    params: Message = {"name": "t", "arguments": {"a": 1}, "_meta": {**ENVELOPE, **kept}}
    assert bridge.request_params(params) == {"name": "t", "arguments": {"a": 1}, "_meta": kept}


def test_an_envelope_with_nothing_else_leaves_no_meta():
    assert bridge.request_params({"cursor": "", "_meta": ENVELOPE}) == {"cursor": ""}
    assert bridge.request_params({}) == {}


def test_states_and_tasks_of_either_family_do_not_reach_a_legacy_server():
    params: Message = {
        "name": "t",
        "requestState": "x",
        "inputResponses": {},
        "task": {"ttl": 1},
        "_meta": ENVELOPE,
    }
    assert bridge.request_params(params) == {"name": "t"}


def test_the_translated_params_share_no_meta_with_the_request():
    params: dict[str, Any] = {"_meta": {"progressToken": 1}}
    own = bridge.request_params(params)
    assert isinstance(own["_meta"], dict)
    own["_meta"].clear()
    assert params["_meta"] == {"progressToken": 1}


def test_declared_capabilities_are_read_from_the_envelope():
    assert bridge.declared({"_meta": ENVELOPE}) == {"roots": {}}
    assert bridge.declared({}) == {}
    assert bridge.declared({"_meta": {OURS + "clientCapabilities": []}}) == {}


@pytest.mark.parametrize(
    ("said", "place"), [("debug", 0), ("info", 1), ("emergency", 7), ("loud", None), (3, None)]
)
def test_a_log_level_is_its_place_in_the_order(said, place):
    assert bridge.level({"_meta": {OURS + "logLevel": said}}) == place


def test_without_a_level_no_logs_are_wanted():
    assert bridge.level({"_meta": {}}) is None


# Capabilities.


@pytest.mark.parametrize(
    ("client", "version", "told"),
    [
        ({}, "2025-11-25", {}),
        ({"elicitation": {}}, "2025-11-25", {"elicitation": {}}),
        ({"elicitation": {"form": {}}}, "2025-11-25", {"elicitation": {}}),
        ({"elicitation": {"url": {}}}, "2025-11-25", {"elicitation": {"url": {}}}),
        (
            {"elicitation": {"form": {"x": 1}, "url": {}}},
            "2025-11-25",
            {"elicitation": {"form": {}, "url": {}}},
        ),
        ({"elicitation": {"other": {}}}, "2025-11-25", {}),
        ({"elicitation": True}, "2025-11-25", {}),
        (BOTH, "2025-06-18", {"elicitation": {}, "sampling": {}, "roots": {}}),
        ({"elicitation": {"url": {}}}, "2025-06-18", {}),
        (BOTH, "2025-03-26", {"sampling": {}, "roots": {}}),
        (BOTH, "2025-11-25", BOTH),
        ({"sampling": {"tools": {"a": 1}, "more": {}}}, "2025-11-25", {"sampling": {"tools": {}}}),
        ({"roots": {"listChanged": True}}, "2025-11-25", {"roots": {}}),
        ({"roots": None, "sampling": 1}, "2025-11-25", {}),
        ({"extensions": {"io.x/tasks": {}}, "experimental": {"a": {}}}, "2025-11-25", {}),
    ],
)
def test_client_capabilities_are_declared_as_the_revision_knows_them(client, version, told):
    assert bridge.capabilities(client, version) == told


# Questions.


def _objection(told, method, params):
    found = bridge.objection(told, method, params)
    return None if found is None else found[0]


FORM = {"message": "which?", "requestedSchema": {"type": "object", "properties": {}}}
PAGE = {"mode": "url", "message": "go", "url": "https://a.example", "elicitationId": "e1"}


@pytest.mark.parametrize(
    ("told", "method", "params", "code"),
    [
        ({}, "elicitation/create", FORM, -32601),
        ({}, "sampling/createMessage", {"messages": []}, -32601),
        ({}, "roots/list", None, -32601),
        (BOTH, "tools/call", {}, -32601),
        ({"elicitation": {}}, "elicitation/create", FORM, None),
        ({"elicitation": {}}, "elicitation/create", {**FORM, "mode": "form"}, None),
        ({"elicitation": {}}, "elicitation/create", PAGE, -32602),
        ({"elicitation": {"url": {}}}, "elicitation/create", PAGE, None),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM, -32602),
        (BOTH, "elicitation/create", PAGE, None),
        (BOTH, "elicitation/create", {**PAGE, "url": 1}, -32602),
        (BOTH, "elicitation/create", {"message": "x"}, -32602),
        (BOTH, "elicitation/create", {**FORM, "mode": []}, -32602),
        (BOTH, "elicitation/create", [], -32602),
        (BOTH, "elicitation/create", None, -32602),
        ({"sampling": {}}, "sampling/createMessage", {"messages": []}, None),
        ({"sampling": {}}, "sampling/createMessage", {"messages": [], "tools": []}, -32602),
        ({"sampling": {}}, "sampling/createMessage", {"messages": [], "toolChoice": {}}, -32602),
        ({"sampling": {"tools": {}}}, "sampling/createMessage", {"messages": [], "tools": []}, None),
        ({"roots": {}}, "roots/list", None, None),
        ({"roots": {}}, "roots/list", {}, None),
        ({"roots": {}}, "roots/list", 3, -32602),
    ],
)
def test_a_question_of_a_kind_or_mode_that_was_not_declared_is_refused(told, method, params, code):
    assert _objection(told, method, params) == code


def test_a_question_loses_what_only_the_older_revisions_know():
    asked = bridge.question("elicitation/create", {**PAGE, "_meta": {"progressToken": 1}, "task": {}})
    assert asked == {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "go", "url": "https://a.example"},
    }


def test_a_question_for_roots_needs_no_params():
    assert bridge.question("roots/list", None) == {"method": "roots/list"}
    assert bridge.question("roots/list", {"a": 1}) == {"method": "roots/list", "params": {"a": 1}}


def test_pages_of_an_error_are_asked_for_like_any_page():
    asked = bridge.pages({"data": {"elicitations": [PAGE]}})
    assert asked == [
        {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "go", "url": "https://a.example"},
        }
    ]


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"elicitations": {}}, {"elicitations": [1]}, {"elicitations": [{"message": "x"}]},
     {"elicitations": [{"url": "x"}]}, {"elicitations": [PAGE] * 17}],
)  # fmt: skip
def test_malformed_pages_are_none(data):
    assert bridge.pages({"data": data}) == []


# Results.


def test_a_result_is_complete_and_names_its_server():
    legacy: Message = {"content": [], "_meta": {"com.example/a": 1}}
    own = bridge.result("tools/call", legacy, INFO)
    assert own == {
        "content": [],
        "resultType": "complete",
        "_meta": {"com.example/a": 1, OURS + "serverInfo": INFO},
    }
    assert legacy == {"content": [], "_meta": {"com.example/a": 1}}


def test_without_server_info_no_meta_is_made():
    assert bridge.result("tools/call", {}, None) == {"resultType": "complete"}


@pytest.mark.parametrize(
    "method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
)
def test_nothing_of_a_legacy_server_may_be_kept_or_shared(method):
    own = bridge.result(method, {"ttlMs": 9, "cacheScope": "public"}, None)
    assert own == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def test_a_legacy_result_cannot_ask_past_the_declared_capabilities():
    sly: Message = {
        "resultType": "input_required",
        "inputRequests": {"a": {}},
        "requestState": "x",
        "content": [],
    }
    assert bridge.result("tools/call", sly, None) == {"resultType": "complete", "content": []}


def test_a_question_keeps_its_keys_and_has_no_cache_hints():
    own = bridge.result("resources/read", {"inputRequests": {}, "requestState": "s"}, None, "input_required")
    assert own == {"inputRequests": {}, "requestState": "s", "resultType": "input_required"}


def test_discovery_tells_what_initialize_told_and_no_more():
    found = bridge.discovered(
        {
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": {"listChanged": True, "other": 1},
                "prompts": {},
                "resources": {"subscribe": True, "listChanged": False},
                "completions": {"x": 1},
                "logging": {},
                "experimental": {"a": {}},
                "tasks": {"list": {}},
                "extensions": {"b": {}},
            },
            "serverInfo": INFO,
            "instructions": "be kind",
        }
    )
    assert found == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {
            "tools": {"listChanged": True},
            "prompts": {},
            "resources": {"subscribe": True},
            "completions": {},
            "logging": {},
            "experimental": {"a": {}},
        },
        "instructions": "be kind",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {OURS + "serverInfo": INFO},
    }


def test_discovery_of_a_server_that_says_little():
    assert bridge.discovered({"capabilities": [], "serverInfo": {"name": "x"}, "instructions": 1}) == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
    }


@pytest.mark.parametrize("info", [None, [], {"name": 1, "version": "1"}, {"name": "x", "version": 2}])
def test_server_info_that_is_none_is_not_shown(info):
    assert bridge.server_info({"serverInfo": info}) is None


# Errors.


def test_resource_not_found_keeps_its_uri_under_the_new_code():
    own = bridge.error({"code": -32002, "message": "gone", "data": {"uri": "file:///a"}, "extra": 1})
    assert own == {"code": -32602, "message": "gone", "data": {"uri": "file:///a"}}


def test_a_page_error_that_cannot_be_read_does_not_keep_its_code():
    assert bridge.error({"code": -32042, "message": "m", "data": {}}) == {"code": -32603, "message": "m"}


def test_other_errors_are_unchanged():
    assert bridge.error({"code": -32001, "message": "m"}) == {"code": -32001, "message": "m"}
    assert bridge.error({"code": 7, "message": "m", "data": None}) == {
        "code": 7,
        "message": "m",
        "data": None,
    }


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-32700, 400), (-32600, 400), (-32602, 400), (-32020, 400), (-32021, 400), (-32022, 400),
        (-32601, 404), (-32603, 200), (-32011, 200), (-32000, 200), (5, 200), (None, 200),
    ],
)  # fmt: skip
def test_the_status_of_an_error_is_the_modern_one(code, status):
    assert bridge.status(code) == status


def test_pages_may_be_shown_only_where_url_was_declared():
    assert bridge.may_show_pages(BOTH)
    assert not bridge.may_show_pages({"elicitation": {}})
    assert not bridge.may_show_pages({})

"""JSON-RPC envelopes, the status of each code, and ids."""

from __future__ import annotations

import pytest

from airlock.core.wire import jsonrpc

IDS = [1, 1.0, True, "1", None, False, 0, "", [1], [True], {"a": 1}, {"a": 1.0}]


def test_an_error_carries_code_and_message_and_data_only_when_there_is_some():
    assert jsonrpc.error(4, jsonrpc.HEADER_MISMATCH, "no") == {
        "jsonrpc": "2.0",
        "id": 4,
        "error": {"code": -32020, "message": "no"},
    }
    answer = jsonrpc.error(None, jsonrpc.UNSUPPORTED_VERSION, "no", {"supported": []})
    assert answer["error"] == {"code": -32022, "message": "no", "data": {"supported": []}}


def test_members_stand_in_the_order_of_the_specification():
    assert list(jsonrpc.error(1, jsonrpc.PARSE, "no")) == ["jsonrpc", "id", "error"]
    assert list(jsonrpc.result(1, {})) == ["jsonrpc", "id", "result"]


def test_a_result_carries_the_value_even_when_it_is_null():
    assert jsonrpc.result("x", None) == {"jsonrpc": "2.0", "id": "x", "result": None}


def test_every_code_has_its_status():
    assert jsonrpc.STATUS == {
        -32700: 400,
        -32600: 400,
        -32602: 400,
        -32020: 400,
        -32022: 400,
        -32601: 404,
        -32011: 401,
        -32603: 500,
    }


@pytest.mark.case("T27")
def test_ids_are_the_same_by_type_and_value():
    for i, one in enumerate(IDS):
        for j, other in enumerate(IDS):
            assert jsonrpc.same_id(one, other) is (i == j), (one, other)


def test_ids_that_are_containers_are_compared_whatever_the_order_of_their_keys():
    assert jsonrpc.same_id({"a": 1, "b": "\ud800"}, {"b": "\ud800", "a": 1})


@pytest.mark.parametrize("value", ["", "x", "\ud800", 0, -1, 2.5, None])
def test_strings_numbers_and_null_are_usable_ids(value):
    assert jsonrpc.usable_id(value)


@pytest.mark.parametrize("value", [True, False, [], {}, [1]])
def test_nothing_else_is_a_usable_id(value):
    assert not jsonrpc.usable_id(value)

"""The legacy front's messages: translated, governed, answered; and everything odd that can be sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airlock.gateway.legacy import dispatch
from airlock.gateway.legacy.front import Plain, Streaming
from airlock.gateway.upstream.port import Era
from tests.fakes.legacyclient import Events, Rig, code, params, text, whole

P = "io.modelcontextprotocol/"


async def test_a_call_is_governed_as_one_of_the_newer_revision_and_answered_as_one_of_the_older():
    rig = Rig()
    client = await rig.session(sampling={})
    rig.inside.handle = lambda request: {
        "content": [{"type": "text", "text": "done"}], "structuredContent": [1],
        "_meta": {P + "serverInfo": {"name": "k"}, "io.mcp-airlock/verdict": "allow"},
    }  # fmt: skip
    got = await client.send("tools/call", params("größe", {"a": 1}), request_id="7")
    assert whole(got) == {
        "jsonrpc": "2.0", "id": "7",
        "result": {"content": [{"type": "text", "text": "done"}], "_meta": {"io.mcp-airlock/verdict": "allow"}},
    }  # fmt: skip
    assert isinstance(got, Plain)
    assert (got.status, got.content_type, got.headers) == (200, b"application/json", ())
    (request,) = rig.inside.requests
    assert (request.name, request.arguments, request.era, request.heard) == (
        "größe",
        {"a": 1},
        Era.LEGACY,
        None,
    )
    assert request.meta[P + "clientCapabilities"] == {"sampling": {}}
    assert set(request.headers.first) == {b"mcp-protocol-version", b"mcp-method", b"mcp-name"}
    await rig.front.close()


@pytest.mark.parametrize("request_id", [0, -1, 1, 2**63, 10**30, "1", "", "p-1", "\ud800"])
async def test_every_usable_id_comes_back_as_it_was(request_id: Any):
    rig = Rig()
    client = await rig.session()
    got = (await client.ask("tools/list", request_id=request_id))["id"]
    assert (type(got), got) == (type(request_id), request_id)
    await rig.front.close()


@pytest.mark.parametrize("request_id", [None, True, 1.5, {}, []])
async def test_no_other_id_is_taken(request_id: Any):
    rig = Rig()
    client = await rig.session()
    assert code(await client.send("tools/call", params("x"), request_id=request_id)) == (400, -32600)
    assert rig.inside.requests == []
    await rig.front.close()


@pytest.mark.parametrize(
    "message", [5, "x", None, {}, {"id": 1}, {"jsonrpc": "2.0", "id": 1, "method": 5}, True]
)
async def test_what_is_no_message_is_refused(message: Any):
    rig = Rig()
    client = await rig.session()
    assert code(await client.post(message)) == (400, -32600)
    await rig.front.close()


@pytest.mark.parametrize("odd", [[], "x", 5, [1, 2], True])
async def test_params_that_are_no_object_are_refused(odd: Any):
    rig = Rig()
    client = await rig.session()
    for method in ("tools/call", "tools/list", "ping", "logging/setLevel", "no/such"):
        assert code(await client.send(method, odd)) == (200, -32602)
    assert rig.inside.requests == []
    await rig.front.close()


@pytest.mark.parametrize(
    "method",
    ["no/such", "server/discover", "subscriptions/listen", "tasks/get", "tasks/list", "tools/call\r\nx: y", "", "initialise"],
)  # fmt: skip
async def test_an_unknown_method_is_an_error_with_200_and_goes_no_further(method: str):
    rig = Rig()
    client = await rig.session()
    assert code(await client.send(method, {"name": "x"})) == (200, -32601)
    assert rig.inside.requests == []
    await rig.front.close()


async def test_a_task_is_refused():
    rig = Rig()
    client = await rig.session()
    assert code(await client.send("tools/call", {"name": "x", "task": {"ttl": 1}})) == (200, -32602)
    await rig.front.close()


async def test_ping_is_answered_at_once_and_by_nobody_else():
    rig = Rig()
    client = await rig.session()
    assert await client.ask("ping", request_id="p") == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert rig.inside.requests == []
    await rig.front.close()


async def test_the_log_level_goes_with_every_later_request_of_this_session():
    rig = Rig()
    client, other = await rig.session(), await rig.session()
    assert code(await client.send("logging/setLevel", {"level": "loud"})) == (200, -32602)
    assert code(await client.send("logging/setLevel")) == (200, -32602)
    await client.ask("tools/list")
    assert (await client.ask("logging/setLevel", {"level": "warning"}))["result"] == {}
    await client.ask("tools/list")
    await other.ask("tools/list")
    assert [request.meta.get(P + "logLevel") for request in rig.inside.requests] == [None, "warning", None]
    assert [request.heard is not None for request in rig.inside.requests] == [False, True, False]
    await rig.front.close()


@pytest.mark.parametrize(
    "method", ["notifications/initialized", "notifications/roots/list_changed", "notifications/progress", "no/such", "x" * 500]
)  # fmt: skip
@pytest.mark.parametrize("odd", [None, {}, [], "x", 5])
async def test_every_notification_is_taken_and_none_is_answered(method: str, odd: Any):
    rig = Rig()
    client = await rig.session()
    message = {"jsonrpc": "2.0", "method": method, **({"params": odd} if odd is not None else {})}
    got = await client.post(message)
    assert (got.status, getattr(got, "body", None)) == (202, b"")
    await rig.front.close()


async def test_a_response_to_nothing_is_taken_counted_and_ignored():
    rig = Rig()
    client = await rig.session()
    odd: list[Any] = ["p-1", "p-999", 5, None, {}, [1], True]
    for push_id in odd:
        got = await client.reply(push_id, {"action": "accept"})
        assert (got.status, getattr(got, "body", None)) == (202, b"")
    assert (await client.reply("p-1", error={"code": 1, "message": "x"})).status == 202
    assert rig.front.counts.strays == 8
    await rig.front.close()


async def test_calls_run_side_by_side_and_each_gets_its_own_answer():
    rig = Rig()
    one, two = await rig.session("alice"), await rig.session("bob")
    gates = {name: asyncio.Event() for name in "abc"}

    async def handle(request: Any) -> Any:
        await gates[request.name].wait()
        return {"content": [{"type": "text", "text": request.name}]}

    rig.inside.handle = handle
    asked = [
        asyncio.ensure_future(one.call("a", request_id=1)), asyncio.ensure_future(two.call("b", request_id=1)),
        asyncio.ensure_future(one.call("c", request_id="1")),
    ]  # fmt: skip
    await rig.inside.until(3)
    for name in "cba":
        gates[name].set()
        await rig.settle()
    answers = await asyncio.gather(*asked)
    assert [text(answer) for answer in answers] == ["a", "b", "c"]
    assert [answer["id"] for answer in answers] == [1, 1, "1"]
    await rig.front.close()


async def test_an_id_that_is_under_way_cannot_be_used_again():
    rig = Rig()
    client = await rig.session()
    gate = asyncio.Event()
    rig.inside.handle = lambda request: gate.wait()
    first = asyncio.ensure_future(client.send("tools/call", params("a")))
    await rig.inside.until(1)
    assert code(await client.send("tools/call", params("b"))) == (400, -32600)
    assert len(rig.inside.requests) == 1
    first.cancel()
    await rig.front.close()


async def test_a_session_has_only_so_many_requests_under_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "MOST_CALLS", 2)
    rig = Rig()
    client = await rig.session()
    gate = asyncio.Event()

    async def handle(request: Any) -> Any:
        await gate.wait()
        return {}

    rig.inside.handle = handle
    calls = [asyncio.ensure_future(client.ask("tools/call", params("a"), request_id=n)) for n in range(2)]
    await rig.inside.until(2)
    assert code(await client.send("tools/call", params("a"), request_id=9)) == (200, -32603)
    other = await rig.session("bob")
    monkeypatch.setattr(dispatch, "MOST_CALLS_IN_ALL", 2)
    assert code(await other.send("tools/call", params("a"), request_id=9)) == (200, -32603)
    assert "result" in await client.ask("ping")
    gate.set()
    await asyncio.gather(*calls)
    assert "result" in await other.call("a")
    await rig.front.close()


async def test_an_error_of_the_inside_is_an_error_with_200():
    rig = Rig()
    client = await rig.session()
    rig.inside.handle = lambda request: {"error": {"code": -32602, "message": "no such tool"}}
    assert code(await client.send("tools/call", params("x"))) == (200, -32602)
    rig.inside.handle = lambda request: {
        "error": {"code": -32602, "message": "gone", "data": {"uri": "file:///a"}}
    }
    assert code(await client.send("resources/read", {"uri": "file:///a"})) == (200, -32002)
    await rig.front.close()


async def test_a_fault_of_the_front_is_recorded_and_told_without_a_word_of_it():
    rig = Rig()
    client = await rig.session()

    def broken(request: Any) -> Any:
        raise ValueError("secret detail")

    rig.inside.handle = broken
    message = await client.call("x", request_id="f")
    assert message == {
        "jsonrpc": "2.0",
        "id": "f",
        "error": {"code": -32603, "message": "airlock: internal error"},
    }
    assert rig.world.last_pair[0]["rule_id"] == "internal.error"
    await rig.front.close()


async def test_a_lone_surrogate_in_an_answer_comes_through_as_its_escape():
    rig = Rig()
    client = await rig.session()
    rig.inside.handle = lambda request: {"content": [{"type": "text", "text": "\ud800"}]}
    got = await client.send("tools/call", params("x"))
    assert isinstance(got, Plain)
    assert rb"\ud800" in got.body
    await rig.front.close()


async def test_a_batch_is_split_governed_one_by_one_and_put_together():
    rig = Rig()
    client = await rig.session(version="2025-03-26")
    rig.inside.handle = lambda request: {"tools": []} if request.method == "tools/list" else {"content": []}
    got = await client.post([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "1", "method": "tools/list"}, {"jsonrpc": "2.0", "id": "p-1", "result": {}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params("x")},
        {"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}},
        {"jsonrpc": "2.0", "id": None, "method": "ping"}, 5, [],
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": []},
    ])  # fmt: skip
    assert isinstance(got, Plain)
    assert got.status == 200
    answers = json.loads(got.body)
    assert [answer["id"] for answer in answers] == [1, "1", 2, 3, None, None, None, 4]
    assert [answer.get("error", {}).get("code") for answer in answers] == [
        None, None, None, -32601, -32600, -32600, -32600, -32602,
    ]  # fmt: skip
    assert sorted(request.method for request in rig.inside.requests) == ["tools/call", "tools/list"]
    assert rig.front.counts == type(rig.front.counts)(1, 0, 0, 1)
    await rig.front.close()


async def test_a_batch_of_what_is_not_answered_is_not_answered():
    rig = Rig()
    client = await rig.session(version="2025-03-26")
    got = await client.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}])
    assert (got.status, getattr(got, "body", None)) == (202, b"")
    await rig.front.close()


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_batch_is_refused_in_every_later_session_whatever_its_header_says(version: str):
    rig = Rig()
    client = await rig.session(version=version)
    batch = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params("x")} for n in range(2)]
    for header in (version, "2025-03-26", None):
        assert code(await client.post(batch, mcp_protocol_version=header)) == (400, -32600)
    assert rig.inside.requests == []
    await rig.front.close()


@pytest.mark.parametrize("count", [0, 65])
async def test_a_batch_is_neither_empty_nor_without_an_end(count: int):
    rig = Rig()
    client = await rig.session(version="2025-03-26")
    batch = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(count)]
    assert code(await client.post(batch)) == (400, -32600)
    await rig.front.close()


async def test_a_batch_without_a_session_is_refused_like_any_message():
    rig = Rig()
    assert code(await rig.client().post([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])) == (400, -32000)


async def test_a_cancelled_request_of_a_batch_has_no_response():
    rig = Rig()
    client = await rig.session(version="2025-03-26")
    gate = asyncio.Event()

    async def handle(request: Any) -> Any:
        if request.name == "slow":
            await gate.wait()
        return {"content": []}

    rig.inside.handle = handle
    posting = asyncio.ensure_future(client.post(
        [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params(n)} for n in ("slow", "fast")]
    ))  # fmt: skip
    await rig.inside.until(2)
    await client.tell("cancelled", {"requestId": "slow"})
    got = await posting
    assert isinstance(got, Plain)
    assert [answer["id"] for answer in json.loads(got.body)] == ["fast"]
    await rig.front.close()


async def test_the_trace_of_a_client_goes_on_and_each_round_is_a_span_of_its_own():
    rig = Rig()
    client = await rig.session()
    header = f"00-{'a' * 32}-{'b' * 16}-01"
    await client.ask("tools/list", traceparent=header)
    await client.ask("tools/list", {"_meta": {"traceparent": header, "tracestate": "v=1"}})
    await client.ask("tools/list")
    traces = [trace for request, _, trace in rig.inside.seen if request.method == "tools/list"]
    assert [trace.trace_id == "a" * 32 for trace in traces] == [True, True, False]
    assert traces[1].state == "v=1"
    await rig.front.close()


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
async def test_a_cancelled_request_gets_no_response(accept: str):
    rig = Rig()
    client = await rig.session()
    gate = asyncio.Event()
    rig.inside.handle = lambda request: gate.wait()
    asking = asyncio.ensure_future(client.send("tools/call", params("x"), request_id=7, accept=accept))
    await rig.inside.until(1)
    odd: list[Any] = ["7", 8, None, True, [7], {}]
    for other in odd:
        await client.tell("cancelled", {"requestId": other})
    await client.tell("cancelled")
    await rig.settle()
    assert rig.inside.cancelled == 0
    assert (await client.tell("cancelled", {"requestId": 7, "reason": "enough"})).status == 202
    got = await asking
    assert rig.inside.cancelled == 1
    if accept == "application/json":
        assert (got.status, getattr(got, "body", None)) == (202, b"")
    else:
        assert isinstance(got, Streaming)
        assert await Events(got).whole() == []
    assert "result" in await client.ask("ping")
    assert rig.front.counts.calls == 0
    await rig.front.close()


async def test_one_session_cannot_cancel_the_request_of_another():
    rig = Rig()
    client, other = await rig.session(), await rig.session()
    gate = asyncio.Event()

    async def handle(request: Any) -> Any:
        await gate.wait()
        return {"content": []}

    rig.inside.handle = handle
    asking = asyncio.ensure_future(client.call("x", request_id=7))
    await rig.inside.until(1)
    await other.tell("cancelled", {"requestId": 7})
    await rig.settle()
    assert rig.inside.cancelled == 0
    gate.set()
    assert "result" in await asking
    await rig.front.close()


async def test_a_client_that_leaves_cancels_nothing():
    rig = Rig()
    client = await rig.session()
    gate = asyncio.Event()
    finished = []

    async def handle(request: Any) -> Any:
        await gate.wait()
        finished.append(request.id)
        return {"content": []}

    rig.inside.handle = handle
    asking = asyncio.ensure_future(client.send("tools/call", params("x"), request_id=7))
    await rig.inside.until(1)
    asking.cancel()
    await rig.settle()
    assert rig.inside.cancelled == 0
    gate.set()
    await rig.settle()
    assert finished == [7]
    await rig.front.close()


async def test_the_end_of_a_session_cancels_its_requests():
    rig = Rig()
    client = await rig.session()
    gate = asyncio.Event()
    rig.inside.handle = lambda request: gate.wait()
    asking = asyncio.ensure_future(client.send("tools/call", params("x")))
    await rig.inside.until(1)
    await client.delete()
    got = await asking
    assert isinstance(got, Streaming)
    assert await Events(got).whole() == []
    assert rig.inside.cancelled == 1
    await rig.front.close()

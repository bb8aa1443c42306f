"""The legacy front's sessions: the handshake, whose they are, what is refused, how they end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from airlock.core.principal import Principal, Source
from airlock.edge.headers import Headers
from airlock.gateway.legacy.front import Counts, Plain, Streaming
from airlock.gateway.upstream.port import Era
from tests.fakes.legacyclient import DISCOVERED, Client, Rig, code, params, whole


async def test_a_session_opens_with_a_discovery_inside():
    rig = Rig()
    client = await rig.session(elicitation={}, version="2025-06-18")
    assert client.info == {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}},
        "serverInfo": {"name": "k8s", "version": "3"},
    }  # fmt: skip
    assert client.session is not None
    assert len(client.session) == 64
    ((request, principal, trace),) = rig.inside.seen
    assert (request.method, request.era, request.id) == ("server/discover", Era.LEGACY, 0)
    assert principal == Principal("alice")
    assert len(trace.trace_id) == 32
    assert request.meta == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1.2"},
    }  # fmt: skip
    assert (await client.tell("initialized")).status == 202
    await rig.front.close()


@pytest.mark.parametrize("version", ["2024-11-05", "2026-07-28", "2030-01-01", "nonsense", ""])
async def test_an_unknown_version_is_answered_with_another_and_never_with_an_error(version: str):
    rig = Rig()
    client = await rig.session(version=version)
    assert client.info["protocolVersion"] == "2025-11-25"
    await rig.front.close()


@pytest.mark.parametrize("offered", [None, 5, ["2025-06-18"], {}])
async def test_a_handshake_without_a_version_is_refused(offered: Any):
    rig = Rig()
    got = await rig.client().send("initialize", {"protocolVersion": offered})
    assert code(got) == (200, -32602)
    assert rig.front.counts.sessions == 0


async def test_a_handshake_may_name_any_version_in_its_header():
    rig = Rig()
    got = await rig.client().send(
        "initialize", {"protocolVersion": "2024-11-05"}, mcp_protocol_version="2024-11-05"
    )
    assert isinstance(got, Plain)
    assert got.status == 200
    await rig.front.close()


async def test_a_failed_discovery_opens_no_session():
    rig = Rig()
    DISCOVERY_FAILS = {"error": {"code": -32603, "message": "airlock: upstream failed"}}

    async def failing(request: Any, principal: Any, trace: Any) -> Any:
        from airlock.gateway.gate import Answer

        return Answer(502, json.dumps({"jsonrpc": "2.0", "id": request.id, **DISCOVERY_FAILS}).encode())

    rig.front._govern = failing
    got = await rig.client().send("initialize", {"protocolVersion": "2025-06-18"}, request_id="i")
    assert whole(got) == {
        "jsonrpc": "2.0",
        "id": "i",
        "error": {"code": -32603, "message": "airlock: upstream failed"},
    }
    assert isinstance(got, Plain)
    assert (got.status, got.headers) == (200, ())
    assert rig.front.counts.sessions == 0
    await rig.front.close()


async def test_a_client_that_leaves_during_the_handshake_leaves_no_session():
    rig = Rig()
    waiting = asyncio.Event()
    rig.inside.handle = lambda request: waiting.wait()

    async def slow(request: Any, principal: Any, trace: Any) -> Any:
        await waiting.wait()

    rig.front._govern = slow
    opening = asyncio.ensure_future(rig.client().send("initialize", {"protocolVersion": "2025-06-18"}))
    await rig.settle()
    assert rig.front.counts.sessions == 1
    opening.cancel()
    await asyncio.wait({opening})
    assert rig.front.counts.sessions == 0
    await rig.front.close()


async def test_a_stolen_session_id_is_worthless_without_its_owners_credential():
    rig = Rig()
    alice = await rig.session("alice")
    thief = Client(rig, Principal("bob"), "2025-11-25")
    thief.session = alice.session
    same_name = Client(rig, Principal("alice", (), Source.HEADER), "2025-11-25")
    same_name.session = alice.session
    for other in (thief, same_name):
        assert code(await other.send("tools/list")) == (404, -32001)
        assert code(await other.send("ping", request_id="x")) == (404, -32001)
        assert code(await other.tell("cancelled", {"requestId": 1})) == (404, -32001)
        assert code(await other.reply("p-1", {"action": "accept"})) == (404, -32001)
        assert code(await other.get()) == (404, -32001)
        assert code(await other.delete()) == (404, -32001)
    assert rig.inside.requests == []
    assert "result" in await alice.ask("ping")
    await rig.front.close()


async def test_a_session_must_be_named_once_and_exist():
    rig = Rig()
    client = await rig.session()
    assert code(await client.send("tools/list", mcp_session_id=None)) == (400, -32000)
    assert code(await client.get(mcp_session_id=None)) == (400, -32000)
    assert code(await client.delete(mcp_session_id=None)) == (400, -32000)
    assert code(await client.send("tools/list", mcp_session_id="0" * 64)) == (404, -32001)
    twice = Headers([(b"mcp-session-id", str(client.session).encode())] * 2)
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert code(await rig.front.post(twice, b"", message, Principal("alice"))) == (400, -32000)
    await rig.front.close()


async def test_an_ended_session_is_not_found_any_more():
    rig = Rig()
    client = await rig.session()
    assert (await client.delete()).status == 200
    assert code(await client.send("tools/list", request_id="a")) == (404, -32001)
    assert whole(await client.send("tools/list", request_id="a"))["id"] == "a"
    assert code(await client.delete()) == (404, -32001)
    assert rig.front.counts.sessions == 0


async def test_a_refusal_is_on_file_without_what_the_client_sent():
    rig = Rig()
    client = await rig.session()
    await client.send("x" * 300, {"secret": "hunter2"})
    intent, outcome = rig.world.last_pair
    assert (intent["rule_id"], intent["verdict"], intent["args"], intent["principal"]) == (
        "protocol.-32601", "deny", None, "alice",
    )  # fmt: skip
    assert len(intent["method"]) == 128
    assert "hunter2" not in json.dumps([intent, outcome])
    await Client(rig, Principal("bob"), "2025-11-25").send("tools/list", mcp_session_id="y")
    assert rig.world.last_pair[0]["rule_id"] == "protocol.-32001"
    await rig.front.close()


async def test_what_cannot_be_recorded_is_not_answered_as_if_it_were():
    rig = Rig()
    client = await rig.session()
    rig.world.sink.failing = True
    got = await client.send("no/such")
    assert code(got) == (500, -32603)
    await rig.front.close()


@pytest.mark.parametrize(
    "version", ["2000-01-01", "2099-01-01", "invalid-protocol-version", "2024-11-05", ""]
)
async def test_a_version_that_is_not_served_is_refused_before_and_in_a_session(version: str):
    rig = Rig()
    client = await rig.session()
    assert code(await client.send("tools/list", mcp_protocol_version=version)) == (400, -32600)
    assert code(await client.send("tools/list", mcp_protocol_version=version, mcp_session_id=None)) == (
        400,
        -32600,
    )
    assert code(await client.get(mcp_protocol_version=version)) == (400, -32600)
    await rig.front.close()


async def test_another_served_version_in_the_header_is_accepted_and_said_once():
    rig = Rig()
    client = await rig.session(version="2025-06-18")
    named: list[str | None] = ["2025-11-25", "2025-03-26", None]
    for version in named:
        assert "result" in await client.ask("ping", mcp_protocol_version=version)
    assert [line for line in rig.world.logged if "names" in line] == [
        "a client of 2025-06-18 names 2025-11-25 in its MCP-Protocol-Version headers"
    ]
    await rig.front.close()


async def test_a_client_must_take_what_it_can_be_answered_with():
    rig = Rig()
    client = await rig.session()
    for other in ("text/html", "image/*", ""):
        assert code(await client.send("tools/list", accept=other)) == (406, -32600)
    assert code(await rig.front.get(client.lines(accept="application/json"), Principal("alice"))) == (
        406,
        -32600,
    )
    taken: list[str | None] = ["*/*", "application/json", "text/event-stream", None]
    for accept in taken:
        assert "result" in await client.ask("ping", accept=accept)
    await rig.front.close()


async def test_too_many_sessions_are_refused_until_one_is_unused():
    rig = Rig(most_sessions_each=2)
    first, second = await rig.session(), await rig.session()
    listening = [await first.listen(), await second.listen()]
    got = await rig.client().send("initialize", {"protocolVersion": "2025-06-18"})
    assert code(got) == (503, -32603)
    assert isinstance(got, Plain)
    assert got.headers == ((b"retry-after", b"30"),)
    await rig.session("bob")
    await listening[0].leave()
    third = await rig.session()
    assert code(await first.send("ping")) == (404, -32001)
    assert "result" in await third.ask("ping")
    await rig.front.close()


async def test_unused_sessions_are_swept_away_and_what_they_kept_with_them():
    rig = Rig(idle_s=100.0)
    client = await rig.session()
    assert rig.front._timer is not None
    rig.world.clock.time += 101
    rig.front._sweep()
    assert rig.front.counts == Counts(0, 0, 0, 0)
    assert rig.front._timer is None
    assert code(await client.send("ping")) == (404, -32001)
    again = await rig.session()
    rig.front._sweep()
    assert rig.front._timer is not None
    assert "result" in await again.ask("ping")
    await rig.front.close()


async def test_the_end_of_the_front_ends_everything():
    rig = Rig()
    client = await rig.session()
    never = asyncio.Event()
    rig.inside.handle = lambda request: never.wait()
    calling = asyncio.ensure_future(client.send("tools/call", params("x")))
    listening = await client.listen()
    await rig.settle()
    assert (rig.front.counts.calls, len(rig.listens.open)) == (1, 1)
    await rig.front.close()
    assert rig.inside.cancelled == 1
    assert rig.listens.open == []
    await listening.whole()
    assert isinstance(await calling, Streaming)
    assert code(await client.send("ping")) == (404, -32001)
    await rig.front.close()


async def test_a_draining_front_ends_its_streams_and_opens_none():
    rig = Rig()
    client = await rig.session()
    listening = await client.listen()
    rig.front.drain()
    await listening.whole()
    assert code(await client.get()) == (503, -32603)
    assert code(await rig.client().send("initialize", {"protocolVersion": "2025-06-18"})) == (503, -32603)
    assert "result" in await client.call("x")  # calls are finished
    await rig.front.close()


async def test_what_a_server_promises_is_only_what_is_served():
    rig = Rig()
    only = frozenset({"tools/list", "tools/call", "server/discover"})
    rig.gate.snapshot = msgspec.structs.replace(rig.gate.snapshot, methods=only)
    client = await rig.session()
    assert client.info["capabilities"] == {"tools": {}, "resources": {}}
    for method in (
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "prompts/list",
        "completion/complete",
    ):
        assert code(await client.send(method, {"uri": "a"})) == (200, -32601)
    assert DISCOVERED["capabilities"]["tools"] == {"listChanged": True}
    await rig.front.close()

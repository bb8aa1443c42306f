"""Both fronts at one endpoint, over real sockets, with clients that mean harm or leave in the middle."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from airlock.core.rules import Rule
from tests.fakes.hostile import Hostile, Peer, Request, http
from tests.fakes.processes import REVISION, Running, gateway
from tests.fakes.wireclient import Door, Got, modern

pytestmark = pytest.mark.asyncio(loop_scope="module")

BIG = 2**63
LEGACY = ("2025-03-26", "2025-06-18", "2025-11-25")
OPEN_S = 15.0
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
POLICY = {
    "version": 1,
    "environment": "prod",
    "tools": {name: {"tiers": {"prod": "L0"}} for name in ("echo", "hang")},
}


class Upstream:
    """A server of revision 2026-07-28. `hang` waits until it is let go or its caller is gone."""

    def __init__(self) -> None:
        self.called: list[Any] = []
        self.left: list[Any] = []
        self.listening = 0
        self.listens = 0
        self.go = asyncio.Event()
        self._changed = asyncio.Event()

    async def serve(self, peer: Peer, request: Request) -> None:
        message = request.json
        params = message.get("params", {})
        match message["method"]:
            case "server/discover":
                capabilities = {"tools": {"listChanged": True}}
                answer: Any = {"supportedVersions": [REVISION], "capabilities": capabilities, "ttlMs": 0}
                self._answer(peer, message, {**answer, "cacheScope": "private"})
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hang")]
                self._answer(peer, message, {"tools": tools, "ttlMs": 0, "cacheScope": "private"})
            case "tools/call":
                await self._call(peer, message, params)
            case "subscriptions/listen":
                await self._listen(peer, message, params)
            case _:
                data = {"supported": [REVISION], "requested": params.get("protocolVersion")}
                error = {"code": -32022, "message": "not spoken here", "data": data}
                told = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
                peer.send(http(json.dumps(told).encode(), status=400))

    def _answer(self, peer: Peer, message: Any, result: Any) -> None:
        told = {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}
        peer.send(http(json.dumps(told).encode()))

    async def _call(self, peer: Peer, message: Any, params: Any) -> None:
        label = params.get("arguments", {}).get("label")
        self.called.append(label)
        self._changed.set()
        if params["name"] == "hang":
            waits = [asyncio.ensure_future(event.wait()) for event in (self.go, peer.gone)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if peer.gone.is_set():
                self.left.append(label)
                self._changed.set()
                return
        self._answer(peer, message, {"content": [{"type": "text", "text": str(label)}]})

    async def _listen(self, peer: Peer, message: Any, params: Any) -> None:
        tag = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        told = {"notifications": params["notifications"], "_meta": tag}
        ack = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": told}
        event = b"data: " + json.dumps(ack).encode() + b"\n\n"
        peer.send(STREAM + b"%x\r\n%s\r\n" % (len(event), event))
        self.listening += 1
        self.listens += 1
        await peer.gone.wait()
        self.listening -= 1
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when something has come to be so."""
        async with asyncio.timeout(OPEN_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class World:
    """The server, a gateway before it, and the door of it for nobody."""

    def __init__(self, upstream: Upstream, gate: Running, folder: Path) -> None:
        self.upstream, self.gate, self._folder = upstream, gate, folder
        self.door = Door(gate.port)

    def outcomes(self, label: str) -> list[dict[str, Any]]:
        """The last records of the calls with this label."""
        rows = [json.loads(line) for line in (self._folder / "audit.jsonl").read_text().splitlines()]
        return [row for row in rows if row["phase"] == "outcome" and label in str(row["args"])]

    async def outcome(self, label: str) -> dict[str, Any]:
        """The record of how the call with this label ended, once it is written."""
        async with asyncio.timeout(OPEN_S):
            while not (rows := self.outcomes(label)):
                await asyncio.sleep(0.02)
        (row,) = rows
        return row

    def descriptors(self) -> int:
        """How many files and sockets the gateway holds."""
        return len(os.listdir(f"/proc/{self.gate.process.pid}/fd"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("dual")
    (folder / "policy.yaml").write_text(json.dumps(POLICY))
    upstream = Upstream()
    unlimited = dict.fromkeys(("AIRLOCK_RATE_PRINCIPAL", "AIRLOCK_RATE_TOOL", "AIRLOCK_RATE_ADDRESS"), "0")
    async with Hostile(default=upstream.serve) as server:
        with gateway(
            folder, server.url, name="airlock", policy=str(folder / "policy.yaml"), **unlimited
        ) as gate:
            yield World(upstream, gate, folder)


def call(label: str, tool: str = "echo", **more: Any) -> dict[str, Any]:
    """A call of the older era."""
    params = {"name": tool, "arguments": {"label": label}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **more}


def said(got: Got) -> Any:
    """What the tool said."""
    assert got.status == 200, got
    return got.json["result"]["content"][0]["text"]


async def test_a_stolen_session_id_is_worthless_without_its_owners_credential(world: World):
    owner = await world.door.as_("alice").open()
    thief, nobody = owner.at(world.door.as_("bob")), owner.at(world.door)
    for method in ("GET", "DELETE"):
        assert (await thief.ask(method)).error == (404, -32001, None)
        assert (await nobody.ask(method)).status == 401
    assert (await thief.post(call("stolen"))).error == (404, -32001, 1)
    assert (await nobody.post(call("stolen"))).status == 401
    answer = {"jsonrpc": "2.0", "id": "p-1", "result": {"action": "accept", "content": {"confirm": True}}}
    assert (await thief.post(answer)).status == 404
    assert "stolen" not in world.upstream.called
    assert said(await owner.post(call("owned"))) == "owned"
    assert (await owner.ask("DELETE")).status == 200
    assert (await owner.post(call("late"))).error == (404, -32001, 1)


@pytest.mark.parametrize("bad", [True, {}, []], ids=["boolean", "object", "array"])
async def test_an_id_that_is_none_is_refused_on_both_fronts(world: World, bad: Any):
    alice = world.door.as_("alice")
    session = await alice.open()
    label = f"id-{bad}"
    request = modern("tools/call", request_id=bad, name="echo", arguments={"label": label})
    assert (await alice.post(request)).error == (400, -32600, None)
    assert (await session.post(call(label, id=bad))).error == (400, -32600, None)
    assert label not in world.upstream.called


async def test_null_is_an_id_to_the_modern_front_alone(world: World):
    # SPEC: gateway.md 2, A4; the older revisions never had it (mcp.md 2).
    alice = world.door.as_("alice")
    session = await alice.open()
    request = modern("tools/call", request_id=None, name="echo", arguments={"label": "of nobody"})
    got = await alice.post(request)
    assert (got.status, got.json["id"], said(got)) == (200, None, "of nobody")
    assert (await session.post(call("of nothing", id=None))).error == (400, -32600, None)
    assert "of nothing" not in world.upstream.called


@pytest.mark.parametrize("good", [BIG, -BIG, 0, "1", "", "ü" * 100])
async def test_an_id_comes_back_as_it_was_on_both_fronts(world: World, good: Any):
    alice = world.door.as_("alice")
    session = await alice.open()
    request = modern("tools/call", request_id=good, name="echo", arguments={"label": "x"})
    for got in (await alice.post(request), await session.post(call("x", id=good))):
        assert (got.status, got.json["id"], type(got.json["id"])) == (200, good, type(good))


async def test_what_has_no_id_runs_nothing_on_either_front(world: World):
    alice = world.door.as_("alice")
    session = await alice.open()
    request = modern("tools/call", name="echo", arguments={"label": "noticed"})
    del request["id"]
    assert (await alice.post(request)).error == (400, -32600, None)
    notice = call("noticed")
    del notice["id"]
    assert (await session.post(notice)).status == 202
    assert said(await session.post(call("after"))) == "after"
    assert "noticed" not in world.upstream.called


@pytest.mark.parametrize(
    "method", ["notifications/cancelled", "notifications/initialized", "notifications/made-up"]
)
async def test_a_notification_is_taken_in_a_session_and_refused_without(world: World, method: str):
    alice = world.door.as_("alice")
    session = await alice.open()
    got = await session.post({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}})
    assert (got.status, got.body) == (202, b"")
    request = modern(method, requestId=1)
    del request["id"]
    assert (await alice.post(request)).status == 400


@pytest.mark.parametrize("params", ["text", ["a"], 1], ids=["string", "array", "number"])
async def test_params_that_are_no_object_are_refused_on_both_fronts(world: World, params: Any):
    alice = world.door.as_("alice")
    session = await alice.open()
    request = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": params}
    routed = {"mcp-protocol-version": REVISION, "mcp-method": "tools/list"}
    assert (await alice.post(request, routed)).error == (400, -32602, 7)
    assert (await session.post(request)).error == (200, -32602, 7)


@pytest.mark.parametrize("version", LEGACY)
async def test_a_batch_is_for_sessions_of_the_revision_that_has_them(world: World, version: str):
    session = await world.door.as_("alice").open(version)
    labels = [f"{version}-{number}" for number in range(3)]
    batch = [call(label, id=number) for number, label in enumerate(labels)]
    batch.append({"jsonrpc": "2.0", "method": "notifications/made-up"})
    got = await session.post(batch)
    if version == "2025-03-26":
        answers = {answer["id"]: answer["result"]["content"][0]["text"] for answer in got.json}
        assert answers == dict(enumerate(labels))
    else:
        assert got.error == (400, -32600, None)
        assert not set(labels) & set(world.upstream.called)


async def test_a_batch_is_never_for_the_modern_front(world: World):
    request = modern("tools/call", name="echo", arguments={"label": "batched"})
    routed = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": "echo"}
    got = await world.door.as_("alice").post([request], routed)
    assert got.error == (400, -32600, None)
    assert "batched" not in world.upstream.called


async def test_an_initialize_is_never_inside_a_batch(world: World):
    session = await world.door.as_("alice").open("2025-03-26")
    params = {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    got = await session.post([{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}])
    assert "result" not in str(got.json)
    assert "mcp-session-id" not in got.headers


async def test_a_modern_client_that_leaves_cancels_its_call(world: World):
    request = modern("tools/call", name="hang", arguments={"label": "left"})
    async with world.door.as_("alice").posting(request):
        await world.upstream.until(lambda: "left" in world.upstream.called)
    await world.upstream.until(lambda: "left" in world.upstream.left)
    assert (await world.outcome("left"))["rule_id"] == Rule.CALL_CANCELLED


async def test_an_older_client_that_leaves_cancels_nothing(world: World):
    session = await world.door.as_("alice").open()
    world.upstream.go.clear()
    async with session.posting(call("stays", "hang")):
        await world.upstream.until(lambda: "stays" in world.upstream.called)
    assert said(await session.post(call("meanwhile", id=2))) == "meanwhile"
    assert world.outcomes("stays") == []
    world.upstream.go.set()
    assert (await world.outcome("stays"))["rule_id"] == Rule.L0_READ
    world.upstream.go.clear()
    assert "stays" not in world.upstream.left


async def test_an_older_client_cancels_by_saying_so(world: World):
    session = await world.door.as_("alice").open()
    async with session.posting(call("said", "hang")):
        await world.upstream.until(lambda: "said" in world.upstream.called)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await session.post(cancelled)).status == 202
        await world.upstream.until(lambda: "said" in world.upstream.left)
    assert (await world.outcome("said"))["rule_id"] == Rule.CALL_CANCELLED


async def test_nobody_cancels_the_call_of_another_session(world: World):
    owner = await world.door.as_("alice").open()
    others = [await world.door.as_("alice").open(), await world.door.as_("bob").open()]
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with owner.posting(call("kept", "hang")) as line:
        await world.upstream.until(lambda: "kept" in world.upstream.called)
        for other in others:
            assert (await other.post(cancelled)).status == 202
            assert said(await other.post(call("by", id=2))) == "by"
        world.upstream.go.set()
        assert said(await line.whole()) == "kept"
        world.upstream.go.clear()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files in /proc")
async def test_a_thousand_listens_that_are_aborted_leave_no_stream(world: World):
    await world.upstream.until(lambda: world.upstream.listening == 0)
    before = world.descriptors()
    doors = [world.door.as_(f"listener-{number}") for number in range(20)]
    request = modern("subscriptions/listen", request_id="sub", notifications={"toolsListChanged": True})

    async def abort(number: int) -> None:
        async with doors[number % len(doors)].posting(request) as line:
            if number % 3:  # the others leave before they hear anything
                assert (await line.head())[0] == 200
                assert (await line.event())["method"] == "notifications/subscriptions/acknowledged"

    for start in range(0, 1000, 50):
        await asyncio.gather(*(abort(number) for number in range(start, start + 50)))
    assert world.upstream.listens >= len(doors)
    await world.upstream.until(lambda: world.upstream.listening == 0)
    async with asyncio.timeout(OPEN_S):
        while world.descriptors() > before + len(doors):  # connections to the upstream are kept for a while
            await asyncio.sleep(0.05)
    assert (
        said(await doors[0].post(modern("tools/call", name="echo", arguments={"label": "still"}))) == "still"
    )


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_other_verbs_have_no_meaning_without_a_session(world: World, method: str):
    got = await world.door.as_("alice").ask(method)
    assert (got.status, got.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize(
    "foreign",
    [
        {"host": "attacker.example"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://attacker.example"},
        {"origin": "null"},
    ],
    ids=["host", "port", "origin", "null origin"],
)
async def test_a_page_of_another_site_is_not_served(world: World, verb: str, foreign: dict[str, str | None]):
    alice = world.door.as_("alice")
    session = await alice.open()
    body = json.dumps(call("foreign")).encode() if verb == "POST" else b""
    assert (await alice.ask(verb, body, {**session.headers, **foreign})).status == 403
    assert "foreign" not in world.upstream.called

"""A legacy front without sockets: a scripted inside, and clients that speak as the older eras do.

`Inside` stands where the governed entry stands; `Rig.real` puts the real one there, with the flows and a scripted
upstream. A client reads event streams as they are written.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from airlock.core.principal import Principal
from airlock.core.wire import sse
from airlock.edge.headers import Headers
from airlock.edge.trace import Trace
from airlock.gateway import methods
from airlock.gateway.advertised import LISTEN
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.legacy.front import LegacyFront, LegacySettings, Plain, Streaming
from airlock.gateway.modern.admission import Request
from tests.fakes.world import World

BOTH = "application/json, text/event-stream"
EVERY = frozenset((
    "tools/list", "tools/call", "server/discover", "resources/list", "resources/templates/list", "resources/read",
    "prompts/list", "prompts/get", "completion/complete", LISTEN,
))  # fmt: skip
DISCOVERED: dict[str, Any] = {
    "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 5, "cacheScope": "private",
    "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "k8s", "version": "3"}},
}  # fmt: skip

Handler = Callable[[Request], Any]


class Inside:
    """The governed entry as a script: what `handle` returns is the result, a `{"error": …}` the error."""

    def __init__(self) -> None:
        self.seen: list[tuple[Request, Principal, Trace]] = []
        self.cancelled = 0
        self.handle: Handler = lambda request: {"content": [{"type": "text", "text": "done"}]}
        self.came = asyncio.Event()

    @property
    def requests(self) -> list[Request]:
        """The requests so far, discoveries left out."""
        return [request for request, _, _ in self.seen if request.method != "server/discover"]

    async def __call__(self, request: Request, principal: Principal, trace: Trace) -> Answer:
        self.seen.append((request, principal, trace))
        self.came.set()
        try:
            made = DISCOVERED if request.method == "server/discover" else self.handle(request)
            if isinstance(made, Awaitable):
                made = await made
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        message = {"jsonrpc": "2.0", "id": request.id}
        kind = {"error": made["error"]} if "error" in made else {"result": {"resultType": "complete", **made}}
        return Answer(200, json.dumps({**message, **kind}).encode())

    async def until(self, count: int) -> None:
        """Return when so many requests came."""
        while len(self.requests) < count:
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 5)


class Listens:
    """The governed entry of listens: acknowledges what `honour` says and stays open until it is cancelled."""

    def __init__(self) -> None:
        self.open: list[Request] = []
        self.seen: list[Request] = []
        self.honour: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda wanted: wanted
        self.refusal: dict[str, Any] | None = None

    async def __call__(self, request: Request, principal: Principal, trace: Trace) -> Answer:
        self.seen.append(request)
        assert request.heard is not None
        if self.refusal is not None:
            return Answer(
                200, json.dumps({"jsonrpc": "2.0", "id": request.id, "error": self.refusal}).encode()
            )
        honoured = self.honour(request.params["notifications"])  # type: ignore[arg-type]
        self.open.append(request)
        try:
            if honoured is not None:
                self.tell("subscriptions/acknowledged", {"notifications": honoured}, request)
            await asyncio.Event().wait()
        finally:
            self.open.remove(request)
        raise AssertionError

    def tell(self, method: str, params: dict[str, Any] | None = None, to: Request | None = None) -> None:
        """Let every open listen hear a notification, tagged."""
        for request in [to] if to is not None else self.open:
            tag = {"io.modelcontextprotocol/subscriptionId": request.id}
            assert request.heard is not None
            request.heard.notify(
                {
                    "jsonrpc": "2.0",
                    "method": f"notifications/{method}",
                    "params": {**(params or {}), "_meta": tag},
                }
            )


class Events:
    """A client that reads an event stream."""

    def __init__(self, streaming: Streaming) -> None:
        self.status = streaming.status
        self.gone = False
        self.chunks: list[bytes] = []
        self._came = asyncio.Event()
        self.task = asyncio.ensure_future(self._read(streaming))

    async def _read(self, streaming: Streaming) -> None:
        try:
            await streaming.run(self._write)
        finally:
            self._came.set()

    async def _write(self, chunk: bytes) -> None:
        if self.gone:
            raise ConnectionResetError
        self.chunks.append(chunk)
        self._came.set()

    @property
    def events(self) -> list[sse.Event]:
        return sse.Events().take(b"".join(self.chunks))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(event.data) for event in self.events if event.data]

    @property
    def last_id(self) -> str:
        return next(event.id for event in reversed(self.events) if event.id is not None)

    async def until(self, count: int) -> list[dict[str, Any]]:
        """Return the messages when there are so many."""
        while len(self.messages) < count:
            assert not self.task.done(), (self.chunks, self.task)
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), 5)
        return self.messages

    async def whole(self) -> list[dict[str, Any]]:
        """Return the messages at the end of the stream."""
        await asyncio.wait_for(self.task, 5)
        return self.messages

    async def leave(self) -> None:
        """Close the connection as the HTTP server tells it: by cancellation."""
        self.task.cancel()
        await asyncio.wait({self.task})


class Client:
    """One client of one principal."""

    def __init__(self, rig: Rig, principal: Principal, version: str) -> None:
        self.rig, self.principal, self.version = rig, principal, version
        self.session: str | None = None
        self.info: dict[str, Any] = {}

    def lines(self, **more: str | None) -> Headers:
        named: dict[str, str | None] = {
            "accept": BOTH, "mcp-session-id": self.session, "mcp-protocol-version": self.version if self.session else None,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }  # fmt: skip
        return Headers(
            [(name.encode(), value.encode()) for name, value in named.items() if value is not None]
        )

    async def initialize(self, **capabilities: Any) -> Client:
        got = await self.post(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": self.version, "capabilities": capabilities,
                "clientInfo": {"name": "agent", "version": "1.2"}}}
        )  # fmt: skip
        assert isinstance(got, Plain)
        assert got.status == 200, got
        self.info = json.loads(got.body)["result"]
        self.session = dict(got.headers)[b"mcp-session-id"].decode()
        return self

    async def post(self, message: Any, **headers: str | None) -> Plain | Streaming:
        raw = json.dumps(message).encode()
        return await self.rig.front.post(self.lines(**headers), raw, message, self.principal)

    async def get(self, **headers: str | None) -> Plain | Streaming:
        return await self.rig.front.get(self.lines(accept="text/event-stream", **headers), self.principal)

    async def delete(self, **headers: str | None) -> Plain | Streaming:
        return await self.rig.front.delete(self.lines(**headers), self.principal)

    async def listen(self, **headers: str | None) -> Events:
        got = await self.get(**headers)
        assert isinstance(got, Streaming), got
        events = Events(got)
        await asyncio.sleep(0)
        return events

    async def send(
        self, method: str, params: Any = None, request_id: Any = 1, **headers: str | None
    ) -> Plain | Streaming:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        return await self.post(message if params is None else {**message, "params": params}, **headers)

    async def ask(
        self, method: str, params: Any = None, request_id: Any = 1, **headers: str | None
    ) -> dict[str, Any]:
        """Send a request and return its response, from whichever form it came in."""
        got = await self.send(method, params, request_id, **headers)
        if isinstance(got, Plain):
            return whole(got)
        messages = await Events(got).whole()
        return messages[-1]

    async def stream(self, method: str, params: Any = None, request_id: Any = 1) -> Events:
        """Send a request that is answered with a stream."""
        got = await self.send(method, params, request_id)
        assert isinstance(got, Streaming), got
        return Events(got)

    async def call(self, tool: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        return await self.ask("tools/call", params(tool, arguments), **more)

    async def tell(self, method: str, params: Any = None) -> Plain | Streaming:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": f"notifications/{method}"}
        return await self.post(message if params is None else {**message, "params": params})

    async def reply(self, push_id: Any, result: Any = None, **more: Any) -> Plain | Streaming:
        return await self.post(
            {"jsonrpc": "2.0", "id": push_id, **({"result": result} if result is not None else {}), **more}
        )


class Rig:
    """A front with everything around it."""

    def __init__(self, *, world: World | None = None, real: bool = False, **settings: Any) -> None:
        self.world = world or World()
        self.gate: Gate = self.world.gate
        self.gate.snapshot = msgspec.structs.replace(self.gate.snapshot, methods=EVERY, wide=True)
        self.inside, self.listens = Inside(), Listens()
        self.front = LegacyFront(
            self._governed if real else self.inside, self.listens, self.gate, LegacySettings(**settings)
        )
        self.pauses: list[float] = []
        self.before_poll: Callable[[], Awaitable[None]] | None = None
        self.front._dispatch._inside.pause = self._pause

    async def _governed(self, request: Request, principal: Principal, trace: Trace) -> Answer:
        self.inside.seen.append((request, principal, trace))
        return await methods.govern(self.gate, request, principal, trace)

    async def _pause(self, seconds: float) -> None:
        """Time passes when the front waits for a person."""
        self.pauses.append(seconds)
        self.world.clock.time += seconds
        if self.before_poll is not None:
            await self.before_poll()
        await asyncio.sleep(0)

    def client(self, name: str = "alice", version: str = "2025-11-25") -> Client:
        return Client(self, Principal(name), version)

    async def session(self, name: str = "alice", version: str = "2025-11-25", **capabilities: Any) -> Client:
        return await self.client(name, version).initialize(**capabilities)

    async def settle(self) -> None:
        """Let everything run that can."""
        for _ in range(20):
            await asyncio.sleep(0)


def params(tool: str, arguments: Any = None, token: Any = None) -> dict[str, Any]:
    made: dict[str, Any] = {"name": tool}
    if arguments is not None:
        made["arguments"] = arguments
    if token is not None:
        made["_meta"] = {"progressToken": token}
    return made


def whole(got: Plain | Streaming) -> dict[str, Any]:
    """The message of a plain answer."""
    assert isinstance(got, Plain), got
    message: dict[str, Any] = json.loads(got.body)
    return message


def code(got: Plain | Streaming) -> tuple[int, int]:
    """Status and error code of a plain answer."""
    assert isinstance(got, Plain), got
    return got.status, whole(got)["error"]["code"]


def text(message: dict[str, Any]) -> str:
    """The text of a tool result."""
    found: str = message["result"]["content"][0]["text"]
    return found

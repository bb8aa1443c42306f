"""A small MCP server of the legacy era over real sockets, by both of its HTTP transports.

    async with LegacyHttp() as server:          # streamable HTTP at server.url
        server.tools["ask"] = server.asking()   # a call that asks its client first
        await server.push(note)                 # on the GET stream, once one is open
        server.forget()                         # every session is unknown from now on

    async with LegacySse() as server:           # HTTP+SSE of 2024-11-05 at server.url

What arrived is in `requests` (see `tests.fakes.hostile`); `posted` holds the notifications and responses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

from tests.fakes.hostile import Hostile, Peer, Request, act, http

__all__ = ["LegacyHttp", "LegacySse", "event"]

Tool = Callable[[dict[str, Any]], AsyncIterator[dict[str, Any]]]
"""Yields what a call sends: messages before the last, then its result under the key `result`."""


def event(
    message: Any, *, name: str | None = None, key: str | None = None, retry: int | None = None
) -> bytes:
    """One event; a message of None stands for empty data."""
    lines = b"" if key is None else b"id: %b\n" % key.encode()
    lines += b"" if name is None else b"event: %b\n" % name.encode()
    lines += b"" if retry is None else b"retry: %d\n" % retry
    data = message if isinstance(message, bytes) else b"" if message is None else json.dumps(message).encode()
    return lines + b"data: " + data + b"\n\n"


class _Streaming(Hostile):
    """Event streams on top of the hostile server."""

    def __init__(self) -> None:
        super().__init__(default=self._answer)
        self.posted: list[dict[str, Any]] = []
        self.tools: dict[str, Tool] = {"add": _add}
        self.version = "2025-11-25"
        self.streams: list[Peer] = []
        self._news = asyncio.Condition()
        self._leaving = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        await super().__aexit__(kind, error, trace)

    def accepted(self, peer: Peer) -> None:
        """A client that keeps a stream open connects again and again."""
        super().accepted(peer)
        if self._leaving:
            peer.transport.abort()

    async def _answer(self, peer: Peer, request: Request) -> None:
        raise NotImplementedError

    async def told(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so: looked at whenever the server learns anything."""
        async with self._news:
            await self._news.wait_for(condition)

    async def learn(self, message: dict[str, Any] | None = None) -> None:
        """Keep what was posted, and wake who waits."""
        async with self._news:
            if message is not None:
                self.posted.append(message)
            self._news.notify_all()

    def answered(self, key: object) -> dict[str, Any] | None:
        """The client's response to the request `key` of the server."""
        return next((each for each in self.posted if each.get("id") == key and "method" not in each), None)

    def asking(self, *, method: str = "elicitation/create", params: Any = None) -> Tool:
        """A tool that asks its client, and tells what it said."""

        async def ask(arguments: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
            form = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
            key = f"q{len(self.posted)}"
            yield {"id": key, "method": method, "params": form if params is None else params}
            await self.told(lambda: self.answered(key) is not None)
            said = self.answered(key)
            assert said is not None
            yield {"result": {"content": [{"type": "text", "text": json.dumps(said.get("result"))}]}}

        return ask

    async def push(self, *messages: Any, raw: bytes = b"") -> None:
        """Send on every open GET stream, of which there is at least one."""
        await self.told(lambda: bool(self.streams))
        for peer in self.streams:
            self.chunk(peer, b"".join(map(event, messages)) + raw)

    async def cut(self) -> None:
        """Break every open GET stream."""
        await self.told(lambda: bool(self.streams))
        for peer in self.streams:
            peer.transport.abort()
        await self.told(lambda: not self.streams)

    def begin(self, peer: Peer, headers: str = "") -> None:
        """The head of an event stream."""
        peer.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + headers.encode("latin-1")
            + b"Transfer-Encoding: chunked\r\n\r\n"
        )  # fmt: skip

    def chunk(self, peer: Peer, data: bytes) -> None:
        """A piece of it; an empty one ends it."""
        peer.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def hold(self, peer: Peer) -> None:
        """Keep a GET stream open until it is gone."""
        self.streams.append(peer)
        await self.learn()
        await peer.gone.wait()
        self.streams.remove(peer)
        await self.learn()

    async def outcome(self, message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """What a request sends, the response last."""
        method, key, params = message["method"], message["id"], message.get("params") or {}
        if method == "initialize":
            yield _result(key, {
                "protocolVersion": self.version, "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            })  # fmt: skip
        elif method == "tools/list":
            names = sorted(self.tools)
            yield _result(
                key, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
            )
        elif method == "tools/call" and params.get("name") in self.tools:
            async for each in self.tools[params["name"]](params.get("arguments") or {}):
                if "result" in each or "error" in each:
                    yield {"jsonrpc": "2.0", "id": key, **each}
                else:
                    yield {"jsonrpc": "2.0", **each}
        else:
            yield {"jsonrpc": "2.0", "id": key, "error": {"code": -32601, "message": "no such method"}}


class LegacyHttp(_Streaming):
    """Streamable HTTP. `as_json` answers in one JSON object, `offers_get` has a stream of its own."""

    def __init__(self, *, as_json: bool = False, offers_get: bool = True, stateless: bool = False) -> None:
        super().__init__()
        self.as_json = as_json
        self.offers_get = offers_get
        self.stateless = stateless
        self.sessions: list[str] = []
        self.ended: list[str] = []

    def forget(self) -> None:
        """Know no session any more."""
        self.sessions.clear()

    async def _answer(self, peer: Peer, request: Request) -> None:
        message = request.json
        session = request.headers.get("mcp-session-id")
        opens = isinstance(message, dict) and message.get("method") == "initialize"
        if not opens and not self.stateless and session not in self.sessions:
            peer.send(_refusal(400 if session is None else 404))
        elif request.method == "DELETE":
            assert session is not None
            self.ended.append(session)
            peer.send(http(b"", status=200))
            await self.learn()
        elif request.method == "GET":
            if self.offers_get:
                self.begin(peer)
                await self.hold(peer)
            else:
                peer.send(http(b"", status=405))
        elif "id" in message and "method" in message:
            await self._respond(peer, message, opens=opens)
        else:
            peer.send(http(b"", status=202, content_type=None))
            await self.learn(message)

    async def _respond(self, peer: Peer, message: dict[str, Any], *, opens: bool) -> None:
        headers = {}
        if opens and not self.stateless:
            self.sessions.append(f"session-{len(self.sessions) + len(self.ended)}")
            headers["Mcp-Session-Id"] = self.sessions[-1]
        if self.as_json:
            answers = [each async for each in self.outcome(message)]
            await act(
                http(json.dumps(answers[-1]).encode(), headers=headers), peer, Request(b"X / H\r\n\r\n", b"")
            )
            return
        self.begin(peer, "".join(f"{name}: {value}\r\n" for name, value in headers.items()))
        async for each in self.outcome(message):
            self.chunk(peer, event(each, name="message"))
        self.chunk(peer, b"")


class LegacySse(_Streaming):
    """HTTP+SSE. `endpoint` is what the first event says; a POST elsewhere is 404."""

    def __init__(self, endpoint: str = "/messages?session=1") -> None:
        super().__init__()
        self.version = "2024-11-05"
        self.endpoint = endpoint
        self._answers: set[asyncio.Task[None]] = set()

    async def _answer(self, peer: Peer, request: Request) -> None:
        if request.method == "GET" and request.path == "/mcp":
            self.begin(peer)
            self.chunk(peer, event(self.endpoint.encode(), name="endpoint"))
            await self.hold(peer)
        elif request.method == "POST" and request.path == "/messages?session=1":
            peer.send(http(b"Accepted", status=202, content_type="text/plain"))
            message = request.json
            if "id" in message and "method" in message:
                task = asyncio.get_running_loop().create_task(self._respond(message))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
            else:
                await self.learn(message)
        else:
            peer.send(
                http(b"Not Found", status=405 if request.path == "/mcp" else 404, content_type="text/plain")
            )

    async def _respond(self, message: dict[str, Any]) -> None:
        async for each in self.outcome(message):
            for peer in self.streams:
                self.chunk(peer, event(each, name="message"))


async def _add(arguments: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    total = arguments.get("a", 0) + arguments.get("b", 0)
    yield {"result": {"content": [{"type": "text", "text": str(total)}]}}


def _result(key: object, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "result": value}


def _refusal(status: int) -> bytes:
    error = {"code": -32600 if status == 400 else -32001, "message": "session not found"}
    return http(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), status=status)

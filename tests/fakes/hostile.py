"""A small HTTP upstream that can misbehave in every way we know of, one scripted behaviour for each request.

    async with Hostile() as server:
        server.script(json_answer({"ok": True}), torn(), b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        ...                                # three requests; after the script, `server.default` answers
        assert len(server.requests) == 3   # what really arrived: side effects are counted here

A behaviour is bytes, a function of the request returning bytes, or a coroutine function of (peer, request).
`on_accept` takes one that runs before any request is read. Everything runs in the event loop of the test.
"""

from __future__ import annotations

import asyncio
import gzip
import inspect
import json
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, cast

__all__ = [
    "Answer",
    "Behaviour",
    "Hostile",
    "Peer",
    "Request",
    "bad_chunk",
    "chunked",
    "close_after",
    "declared",
    "deep",
    "drip",
    "encoded",
    "endless_headers",
    "garbage",
    "gzipped",
    "http",
    "huge",
    "interim",
    "json_answer",
    "nan",
    "no_id",
    "reset",
    "result",
    "silence",
    "sse",
    "status",
    "torn",
    "two_answers",
    "until_close",
    "wrong_id",
]


class Request:
    """One request as it arrived: the raw head (with its blank line) and the body."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body
        line, *lines = head.rstrip(b"\r\n").split(b"\r\n")
        self.method, self.path, self.version = line.decode("latin-1").split(" ", 2)
        self.header_list = [
            (name.decode("latin-1").lower(), value.strip().decode("latin-1"))
            for name, _, value in (each.partition(b":") for each in lines)
        ]
        self.headers: dict[str, str] = dict(self.header_list)

    @property
    def json(self) -> Any:
        """The body decoded, or None when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def id(self) -> Any:
        """The JSON-RPC id, or None."""
        message = self.json
        return message.get("id") if isinstance(message, dict) else None


class Peer(asyncio.Protocol):
    """One accepted connection. `gone` is set when it is closed, by whichever side."""

    def __init__(self, server: Hostile) -> None:
        self.server = server
        self.buffer = bytearray()
        self.gone = asyncio.Event()
        self.ended = False
        self._more = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server.accepted(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._more.set()

    def eof_received(self) -> None:
        self.ended = True
        self._more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._more.set()
        self.gone.set()
        self.server.left(self)

    def send(self, data: bytes) -> None:
        """Write raw bytes."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Close after what was written has left."""
        self.transport.close()

    def reset(self) -> None:
        """Close with a RST instead of a FIN."""
        sock = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    async def read_request(self) -> Request | None:
        """Read one request with its Content-Length body, or None when the other side is done."""
        while True:
            head, blank, rest = self.buffer.partition(b"\r\n\r\n")
            if blank:
                request = Request(bytes(head + blank), b"")
                length = int(request.headers.get("content-length", "0"))
                if len(rest) >= length:
                    self.buffer = rest[length:]
                    request.body = bytes(rest[:length])
                    return request
            if self.ended:
                return None
            self._more.clear()
            await self._more.wait()


Behaviour = Callable[[Peer, Request], Awaitable[None]]
Answer = bytes | Callable[[Request], bytes] | Behaviour


class Hostile:
    """The server. `requests` are those that arrived whole, `connections` counts what was accepted."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, default: Answer | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.peers: list[Peer] = []
        self.default: Answer = json_answer() if default is None else default
        self.on_accept: Callable[[Peer], Awaitable[None]] | None = None
        self.port = 0
        self._tls = tls
        self._steps: deque[Answer] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Hostile:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Peer(self), "127.0.0.1", 0, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.transport.abort()
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._until(lambda: not self.peers)
        await self._server.wait_closed()
        for end in ends:
            if isinstance(end, Exception) and error is None:
                raise end

    @property
    def url(self) -> str:
        """The address of the MCP endpoint."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/mcp"

    def script(self, *answers: Answer, close: bool = False) -> None:
        """Add behaviours for the next requests; with `close` each closes the connection afterwards."""
        self._steps.extend(close_after(answer) if close else answer for answer in answers)

    async def arrived(self, count: int) -> None:
        """Wait until `count` whole requests have arrived in all."""
        await self._until(lambda: len(self.requests) >= count)

    async def empty(self) -> None:
        """Wait until every accepted connection is gone."""
        await self._until(lambda: self.connections > 0 and not self.peers)

    async def open(self, count: int) -> None:
        """Wait until exactly `count` connections are open."""
        await self._until(lambda: len(self.peers) == count)

    def accepted(self, peer: Peer) -> None:
        """Called by a peer that was accepted."""
        self.connections += 1
        self.peers.append(peer)
        self._tasks.append(asyncio.get_running_loop().create_task(self.serve(peer)))
        self._changed.set()

    def left(self, peer: Peer) -> None:
        """Called by a peer whose connection is gone."""
        if peer in self.peers:
            self.peers.remove(peer)
        self._changed.set()

    async def serve(self, peer: Peer) -> None:
        """Answer one connection's requests in turn until it ends."""
        if self.on_accept is not None:
            await self.on_accept(peer)
        while (request := await peer.read_request()) is not None:
            self.requests.append(request)
            self._changed.set()
            await act(self._steps.popleft() if self._steps else self.default, peer, request)
        peer.close()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


async def act(answer: Answer, peer: Peer, request: Request) -> None:
    """Carry out one behaviour of any of the three forms."""
    if isinstance(answer, bytes):
        peer.send(answer)
        return
    if len(inspect.signature(answer).parameters) == 1:
        peer.send(answer(request))  # type: ignore[call-arg, arg-type]
        return
    outcome = answer(peer, request)  # type: ignore[call-arg, arg-type]
    assert isinstance(outcome, Coroutine)
    await outcome


# Bytes


def http(
    body: bytes = b"",
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = "application/json",
    length: int | None = -1,
    version: str = "1.1",
) -> bytes:
    """One raw answer. `length` -1 declares the true length, None none at all, any other number itself."""
    lines = [f"HTTP/{version} {status} Whatever"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length == -1 else length}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def result(request: Request, value: Any = None, *, own_id: Any = ...) -> bytes:
    """The JSON-RPC result for a request, as a body."""
    message = {
        "jsonrpc": "2.0",
        "id": request.id if own_id is ... else own_id,
        "result": {"content": [{"type": "text", "text": "done"}]} if value is None else value,
    }
    return json.dumps(message).encode()


# Well behaved


def json_answer(value: Any = None, **http_options: Any) -> Answer:
    """A JSON-RPC result with the id of the request."""
    return lambda request: http(result(request, value), **http_options)


def chunked(value: Any = None, *, size: int = 7, trailer: bytes = b"", extension: bytes = b"") -> Answer:
    """The same in chunks of `size` bytes."""

    def answer(request: Request) -> bytes:
        body = result(request, value)
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        head = http(length=None, headers={"Transfer-Encoding": "chunked"})
        return head + chunks + b"0\r\n" + trailer + b"\r\n"

    return answer


def until_close(value: Any = None, *, version: str = "1.1") -> Answer:
    """A result whose end is the end of the connection."""
    return close_after(lambda request: http(result(request, value), length=None, version=version))


def sse(*before: Any, own: bool = True, value: Any = None) -> Answer:
    """An event stream: `before` (messages of strangers), then our own result unless `own` is False."""

    def answer(request: Request) -> bytes:
        events = [b"data: " + json.dumps(message).encode() + b"\n\n" for message in before]
        if own:
            events.append(b"event: message\ndata: " + result(request, value) + b"\n\n")
        return http(b"".join(events), content_type="text/event-stream")

    return answer


def interim(answer: Answer | None = None, *, count: int = 1, code: int = 103) -> Answer:
    """Informational answers first."""

    async def behave(peer: Peer, request: Request) -> None:
        peer.send(f"HTTP/1.1 {code} Soon\r\nLink: x\r\n\r\n".encode() * count)
        await act(answer or json_answer(), peer, request)

    return behave


def status(code: int, body: bytes = b"", **http_options: Any) -> bytes:
    """A bare status."""
    return http(body, status=code, **http_options)


# Badly behaved


def wrong_id(value: Any = None) -> Answer:
    """A result that answers another request."""
    return lambda request: http(result(request, value, own_id="somebody-elses"))


def no_id() -> Answer:
    """A result without an id."""
    return lambda request: http(result(request, own_id=None))


def torn(missing: int = 10, value: Any = None) -> Answer:
    """Declares more than it sends, then closes."""

    async def behave(peer: Peer, request: Request) -> None:
        body = result(request, value)
        peer.send(http(body, length=len(body) + missing))
        peer.close()

    return behave


def gzipped(coding: str = "gzip", value: Any = None) -> Answer:
    """A compressed result."""
    return lambda request: http(gzip.compress(result(request, value)), headers={"Content-Encoding": coding})


def encoded(*codings: str) -> Answer:
    """A plain result with one Content-Encoding line for each of `codings`."""

    def answer(request: Request) -> bytes:
        lines = "".join(f"Content-Encoding: {coding}\r\n" for coding in codings).encode("latin-1")
        return http(result(request)).replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n", 1)

    return answer


def nan(number: str = "NaN") -> Answer:
    """A result holding something that JSON has no word for (NaN, Infinity), or a number like 1e400."""
    return lambda request: http(result(request, {"n": "@"}).replace(b'"@"', number.encode()))


def deep(depth: int = 100_000) -> Answer:
    """A result nested too deeply to parse."""
    return lambda request: http(result(request, {"n": "@"}).replace(b'"@"', b"[" * depth + b"]" * depth))


def huge(size: int = 16 * 1024 * 1024) -> Answer:
    """A valid result of about `size` bytes, of undeclared length, ended by closing."""
    return until_close({"content": [{"type": "text", "text": "x" * size}]})


def declared(length: int = 100 * 1024 * 1024, **http_options: Any) -> bytes:
    """Announces a large body and sends one byte of it."""
    return http(b"{", length=length, **http_options)


async def silence(peer: Peer, request: Request) -> None:
    """Never answers."""
    await peer.gone.wait()


async def reset(peer: Peer, request: Request) -> None:
    """Resets the connection instead of answering."""
    peer.reset()


def drip(interval: float = 0.01, *, inside: str = "body") -> Answer:
    """One byte after another for ever, inside the body or the head."""

    async def behave(peer: Peer, request: Request) -> None:
        peer.send(declared(1 << 20) if inside == "body" else b"HTTP/1.1 200 OK\r\nX: ")
        while not peer.gone.is_set():
            peer.send(b"x")
            await asyncio.sleep(interval)

    return behave


def endless_headers(line: bytes = b"X-More: y\r\n", *, start: bytes = b"HTTP/1.1 200 OK\r\n") -> Answer:
    """Header lines without end (or, with a `start` of its own, anything else without end)."""

    async def behave(peer: Peer, request: Request) -> None:
        peer.send(start)
        while not peer.gone.is_set():
            peer.send(line * (4096 // len(line) + 1))
            await asyncio.sleep(0)

    return behave


def garbage(data: bytes = b"SSH-2.0-OpenSSH_9.9\r\n") -> bytes:
    """Not HTTP at all."""
    return data


def bad_chunk(size: bytes = b"zz") -> bytes:
    """A chunked answer whose second chunk has a broken size."""
    return http(b"2\r\n{}\r\n" + size + b"\r\nx\r\n", length=None, headers={"Transfer-Encoding": "chunked"})


def two_answers(second: Answer | None = None) -> Answer:
    """Two answers to one request, in one write."""

    def answer(request: Request) -> bytes:
        if isinstance(second, bytes):
            return http(result(request)) + second
        return http(result(request)) + http(result(request, {"smuggled": True}))

    return answer


def close_after(answer: Answer) -> Answer:
    """The same behaviour, and then the connection is closed without a word about it."""

    async def behave(peer: Peer, request: Request) -> None:
        await act(answer, peer, request)
        peer.close()

    return behave

"""Knows how HTTP/1.1 requests go to one upstream: the connections kept for it, new ones, one answer a call.

Must not know JSON, SSE, MCP, or what is done about a failure.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.httpanswer import ClientLimits, Reply
from airlock.edge.httpconn import Connection
from airlock.edge.httpstream import Stream
from airlock.edge.httpurl import Target, checked_path, header_line, parse_target

__all__ = ["ClientLimits", "HttpClient", "Reply", "Stream", "Target", "header_line", "parse_target"]


class HttpClient:
    """All connections to one origin, the last used first. The caller bounds how many calls run at once.

    No proxy variable of the environment is read, and a redirect is an answer like any other (gateway.md
    11.1). `limits` hold for every call. Belongs to the event loop that makes the first call.
    """

    def __init__(
        self, target: Target, limits: ClientLimits, *, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self.limits = limits
        self._target = target
        self._tls: ssl.SSLContext | None = None
        if target.scheme == "https":
            self._tls = ssl_context or _verifying_context()
        self._prefix = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Length: " % (
            target.path.encode("ascii"),
            target.host_header,
        )
        # INVARIANT: ordered by the time a connection went idle, oldest first; `forget` takes out what closes.
        self._idle: deque[Connection] = deque()
        self._connections: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def idle(self) -> int:
        """How many kept connections wait for a call."""
        return len(self._idle)

    async def post(self, headers: bytes, body: bytes) -> Reply:
        """Send `body` once and return the whole answer, whatever its status.

        `headers` are lines made by `header_line`, without Host and Content-Length. Raises `UpstreamError`
        (kinds and `reached` as in the table of gateway.md 11). A cancelled call closes its connection.
        """
        if self._closed:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "client closed", reached=False)
        loop = asyncio.get_running_loop()
        now = loop.time()
        connection = self._take(now) or self._open(loop)
        waiter = connection.begin(now, b"%b%d\r\n%b\r\n%b" % (self._prefix, len(body), headers, body))
        try:
            outcome = await waiter
        finally:
            connection.leave(waiter)
        if isinstance(outcome, Reply):
            return outcome
        raise outcome

    async def open(
        self,
        method: bytes,
        headers: bytes,
        body: bytes | None = None,
        *,
        path: str | None = None,
        head_s: float = 60.0,
        idle_s: float | None = None,
    ) -> Stream:
        """Send one request and return its answer when the head is read; the body is read from the stream.

        `method` is any that a body may answer (not HEAD or CONNECT); without a `body` no Content-Length is
        sent. `path` is another path and query of the same origin. The head comes within `head_s` seconds; after
        it no `idle_s` seconds pass without a byte, None waits for ever. The whole body is bounded by
        `max_body_bytes`, except an event stream that may wait for ever. Raises `UpstreamError` as `post` does,
        and ValueError on a `path` that would not be one. The caller closes the stream.
        """
        if self._closed:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "client closed", reached=False)
        target = self._target
        where = target.path if path is None else checked_path(path)
        length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
        request = b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b\r\n%b" % (
            method,
            where.encode("ascii"),
            target.host_header,
            length,
            headers,
            b"" if body is None else body,
        )
        loop = asyncio.get_running_loop()
        now = loop.time()
        stream = Stream(loop, self.limits, self._take(now) or self._open(loop), idle_s)
        await stream.begin(now, request, head_s)
        return stream

    async def close(self) -> None:
        """Close every connection; calls under way fail as unreachable. Later calls fail at once."""
        self._closed = True
        for connection in tuple(self._connections):
            connection.fail("client closed")
        if self._connecting:
            await asyncio.wait(self._connecting)
        if self._connections:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def keep(self, connection: Connection, now: float) -> None:
        """Take back a connection whose answer was read completely and cleanly."""
        idle = self._idle
        oldest = now - self.limits.idle_s
        while idle and idle[0].idle_since < oldest:
            idle.popleft().abort()
        if self._closed or len(idle) >= self.limits.max_idle:
            connection.abort()
        else:
            idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is gone, kept or not."""
        self._connections.discard(connection)
        try:
            self._idle.remove(connection)
        except ValueError:
            pass
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)

    def _take(self, now: float) -> Connection | None:
        oldest = now - self.limits.idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since >= oldest and connection.usable():
                return connection
            connection.abort()
        return None

    def _open(self, loop: asyncio.AbstractEventLoop) -> Connection:
        connection = Connection(loop, self)
        self._connections.add(connection)
        task = loop.create_task(self._connect(loop, connection))
        connection.connecting = task
        self._connecting.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._connecting.discard(task)
            # A cancelled attempt closes its transport itself, and uvloop's then never says that it is lost.
            if connection.transport is None or task.cancelled():
                self.forget(connection)

        task.add_done_callback(done)
        return connection

    async def _connect(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        target = self._target
        name = target.host.removesuffix(".") if self._tls else None
        try:
            if target.scheme == "unix":
                await loop.create_unix_connection(lambda: connection, target.host)
            else:
                await loop.create_connection(
                    lambda: connection, target.host, target.port, ssl=self._tls, server_hostname=name
                )
        except (OSError, ValueError, RuntimeError) as error:
            # LIMIT: a name with several addresses that all refuse is an `OSError` without a class of its own.
            connection.connecting = None
            connection.fail(type(error).__name__)


def _verifying_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context

"""The HTTP+SSE of 2024-11-05, client side: one event stream down, POSTs up.

Knows where messages may be posted and that every answer comes on the stream; does not know methods, or who asked.
SPEC: mcp.md 18.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final
from urllib.parse import urljoin

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire.sse import Event, Events
from airlock.edge.httpc import HttpClient, Stream, Target, parse_target
from airlock.gateway import body
from airlock.gateway.upstream.legacywire import (
    LISTENING,
    POSTED,
    Exchanges,
    check_stream,
    drained,
    failed,
    messages,
    next_events,
)
from airlock.gateway.upstream.line import Incoming, Line, Lost

__all__ = ["SseDialer", "posting_path"]

_OPEN_S: Final = 10.0
_POST_S: Final = 60.0
_DRAIN_S: Final = 2.0
_ENDPOINT: Final = re.compile(rb"[\x21-\x7e]{1,2048}")


class SseDialer:
    """Opens event streams at one address. `fixed_headers` are lines that go with every request."""

    __slots__ = ("_client", "_fixed", "_target")

    def __init__(self, client: HttpClient, fixed_headers: bytes, target: Target) -> None:
        """`target` is the address that `client` connects to."""
        self._client = client
        self._fixed = fixed_headers
        self._target = target

    async def dial(self, incoming: Incoming, lost: Lost) -> Line:
        """Open a stream, and return the line when the server has said where to post.

        Raises `UpstreamError` (UNREACHABLE, not reached); its `status` is that of the GET when one was read.
        """
        stream: Stream | None = None
        line: _SseLine | None = None
        try:
            async with asyncio.timeout(_OPEN_S):
                stream = await self._client.open(b"GET", self._fixed + LISTENING, head_s=_OPEN_S)
                check_stream(stream)
                reader = Events(self._client.limits.max_event_bytes)
                found: list[Event] | None = []
                while found is not None and not found:
                    found = await next_events(stream, reader)
                path = posting_path(self._target, found)
            line = _SseLine(self._client, self._fixed + POSTED, path, incoming, lost)
            line.follow(stream, reader, found or [])
            return line
        except TimeoutError:
            raise failed("no endpoint event in time", reached=False) from None
        except UpstreamError as error:
            kind = UpstreamFailure.UNREACHABLE
            raise failed(error.cause, kind=kind, reached=False, status=error.status) from None
        finally:
            if line is None and stream is not None:
                stream.close()


class _SseLine:
    """One event stream, which the task `_follower` reads, and the POSTs that belong to it."""

    tells_streams = False
    alive = True

    _stream: Stream
    _follower: asyncio.Task[None]

    def __init__(self, client: HttpClient, lines: bytes, path: str, incoming: Incoming, lost: Lost) -> None:
        self._client = client
        self._lines = lines
        self._path = path
        self._incoming = incoming
        self._lost = lost
        self._exchanges = Exchanges()

    def follow(self, stream: Stream, reader: Events, came: list[Event]) -> None:
        """Deliver what came behind the endpoint event, and from now on whatever comes."""
        self._stream = stream
        self._follower = asyncio.get_running_loop().create_task(self._follow(stream, reader, came))

    def opened(self, version: str) -> None:
        """Nothing: this transport has no header for the version."""

    async def request(self, message: dict[str, object]) -> None:
        await self._exchanges.run(self._hand_over(message))

    async def post(self, message: dict[str, object]) -> None:
        await self._exchanges.run(self._hand_over(message))

    async def close(self) -> None:
        self._exchanges.end()
        self._follower.cancel()
        await asyncio.wait([self._follower])
        # A task that is cancelled before it began closes nothing.
        self._stream.close()

    async def _hand_over(self, message: dict[str, object]) -> None:
        stream = await self._client.open(
            b"POST", self._lines, body.encode(message), path=self._path, head_s=_POST_S, idle_s=_DRAIN_S
        )
        status = stream.status
        await drained(stream)
        if status not in (200, 202, 204):
            raise failed(f"HTTP {status}", status=status)

    async def _follow(self, stream: Stream, reader: Events, came: list[Event]) -> None:
        cause = "the event stream ended"
        events: list[Event] | None = came
        try:
            while events is not None:
                for message in messages(events):
                    self._incoming(message, None)
                events = await next_events(stream, reader)
        except UpstreamError as error:
            cause = error.cause
        finally:
            stream.close()
        self._lost(cause)


def posting_path(target: Target, events: list[Event] | None) -> str:
    """Return the path that the first of `events` gives to post to. Raises `UpstreamError` when it gives none."""
    if not events or events[0].name != "endpoint":
        raise failed("the event stream does not begin with an endpoint event")
    # SECURITY: checked before it is joined, which drops line breaks: a path must not carry a second request.
    if _ENDPOINT.fullmatch(events[0].data) is None:
        raise failed("the endpoint event holds no address")
    scheme = "http" if target.scheme == "unix" else target.scheme
    base = f"{scheme}://{target.host_header.decode('ascii')}"
    try:
        named = parse_target(urljoin(base + target.path, events[0].data.decode("ascii")))
        own = parse_target(base)
    except ValueError:
        raise failed("the endpoint event holds no address") from None
    # SECURITY: a server that names another origin would have our credential sent there.
    if (named.scheme, named.host, named.port) != (own.scheme, own.host, own.port):
        raise failed("the endpoint event names another origin")
    return named.path

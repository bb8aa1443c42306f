"""The upstream over HTTP: one JSON-RPC exchange, reduced to the response with our id or to a failure.

Knows what counts as an answer (gateway.md 11.2-11.4) and what may be said before it; the pooled client below it
knows bytes and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant
from airlock.core.secret import Secret
from airlock.core.wire import jsonrpc, sse
from airlock.core.wire.strict import StrictError
from airlock.edge.httpc import HttpClient, Reply, Stream, header_line
from airlock.edge.httpstream import EVENT_STREAM
from airlock.gateway import body
from airlock.gateway.upstream.credentials import Credential
from airlock.gateway.upstream.port import Answer, Heard, Outgoing

__all__ = ["MAX_CALL_S", "HttpUpstream", "read"]

MAX_CALL_S: Final = 600.0
"""LIMIT: however much progress a call reports, it has its answer within this time."""

_UNAUTHORIZED: Final = 401
_PROGRESS: Final = "notifications/progress"
# What belongs to one request; everything else is told on a listen stream only (mcp.md 4).
_OF_A_REQUEST: Final = frozenset((_PROGRESS, "notifications/message"))


class HttpUpstream:
    """Sends requests to one MCP endpoint. Failures are `UpstreamError`, by the table of gateway.md 11.

    `authorization` goes with every request; or `credential` gives each its own.
    """

    __slots__ = ("_client", "_credential", "_fixed", "_target")

    def __init__(
        self,
        client: HttpClient,
        authorization: Secret | None,
        target: str = "",
        lines: bytes = b"",
        credential: Credential | None = None,
    ) -> None:
        self._client = client
        self._credential = credential
        self._target = target
        fixed = b"accept: application/json, text/event-stream\r\naccept-encoding: identity\r\n" + lines
        if authorization is not None:
            fixed += header_line(b"authorization", authorization.reveal().encode("utf-8", "surrogateescape"))
        self._fixed = fixed

    def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Awaitable[Answer]:
        """Send a tool call: the one place where a grant is spent.

        `exact` refuses duplicate keys in the answer too, for answers that a decision depends on.
        """
        grant.spend()
        return self.ask(outgoing, exact=exact, heard=heard)

    async def ask(self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None) -> Answer:
        """Send a request that changes nothing: a listing or a discovery.

        With `heard`, what the server says before its answer goes there at once. The answer then has the usual time
        from each progress on, up to `MAX_CALL_S` in all; without, from the start.
        """
        if heard is None:
            return read(await self.send(outgoing), outgoing, exact=exact)
        begun = asyncio.get_running_loop().time()
        stream = await self._open(outgoing, idle_s=self._client.limits.total_s)
        try:
            if stream.content_type != EVENT_STREAM:
                return read(await self._whole(stream, begun), outgoing, exact=exact)
            answer = await self._hear(stream, begun, outgoing, heard, exact=exact)
        finally:
            stream.close()
        if answer is None:
            raise _bad("the event stream holds no response to this request", stream.status)
        return answer

    def send(self, outgoing: Outgoing) -> Awaitable[Reply]:
        """Send a request that changes nothing, and return its answer unread, for `read`."""
        if self._credential is not None:
            return self._send_as(self._credential, outgoing)
        return self._client.post(self._fixed + outgoing.headers, outgoing.body)

    async def listen(self, outgoing: Outgoing, heard: Heard) -> Answer:
        """Send `subscriptions/listen`: every notification goes to `heard`, for as long as the server likes."""

        def take(method: str, message: dict[str, object]) -> None:
            if method.startswith("notifications/"):
                heard.notify(message)

        begun = asyncio.get_running_loop().time()
        stream = await self._open(outgoing, idle_s=None)
        try:
            if stream.content_type != EVENT_STREAM:
                return read(await self._whole(stream, begun), outgoing)
            answer = await self._follow(stream, outgoing, take)
        finally:
            stream.close()
        if answer is None:
            raise UpstreamError(
                UpstreamFailure.UNREACHABLE,
                "the event stream ended without an answer",
                reached=True,
                status=stream.status,
            )
        return answer

    def target(self, name: str | None) -> str:
        """Return the address: every tool is behind it."""
        return self._target

    def abandon(self, state: object) -> None:
        """Nothing is held for a question of the server: it is in its `requestState`."""

    async def close(self) -> None:
        if self._credential is not None:
            await self._credential.close()
        await self._client.close()

    async def _send_as(self, credential: Credential, outgoing: Outgoing) -> Reply:
        headers = self._fixed + await credential.line(outgoing) + outgoing.headers
        reply = await self._client.post(headers, outgoing.body)
        if reply.status == _UNAUTHORIZED:
            credential.refused(outgoing)
        return reply

    async def _open(self, outgoing: Outgoing, *, idle_s: float | None) -> Stream:
        headers = self._fixed + outgoing.headers
        credential = self._credential
        if credential is not None:
            headers += await credential.line(outgoing)
        head_s = self._client.limits.total_s
        stream = await self._client.open(b"POST", headers, outgoing.body, head_s=head_s, idle_s=idle_s)
        if credential is not None and stream.status == _UNAUTHORIZED:
            credential.refused(outgoing)
        return stream

    async def _whole(self, stream: Stream, begun: float) -> Reply:
        try:
            async with asyncio.timeout_at(begun + self._client.limits.total_s):
                return Reply(stream.status, stream.content_type, await stream.whole())
        except TimeoutError:
            raise _late(stream) from None

    async def _hear(
        self, stream: Stream, begun: float, outgoing: Outgoing, heard: Heard, *, exact: bool
    ) -> Answer | None:
        """Follow the answer to a call that began at `begun`, in bounded time."""
        loop = asyncio.get_running_loop()
        patience, end = self._client.limits.total_s, begun + MAX_CALL_S

        def take(method: str, message: dict[str, object]) -> None:
            if method in _OF_A_REQUEST:
                # SPEC: mcp.md 13: progress gives a call new time, with a hard maximum; comments do not.
                if method == _PROGRESS:
                    deadline.reschedule(min(loop.time() + patience, end))
                heard.notify(message)

        try:
            async with asyncio.timeout_at(begun + min(patience, MAX_CALL_S)) as deadline:
                return await self._follow(stream, outgoing, take, exact=exact)
        except TimeoutError:
            raise _late(stream) from None

    async def _follow(
        self,
        stream: Stream,
        outgoing: Outgoing,
        take: Callable[[str, dict[str, object]], None],
        *,
        exact: bool = False,
    ) -> Answer | None:
        """Hand over each notification, its method first, until the response comes; None when none does."""
        events = sse.Events(self._client.limits.max_event_bytes)
        while piece := await stream.read():
            try:
                batch = events.feed(piece)
            except sse.EventTooLarge:
                raise UpstreamError(
                    UpstreamFailure.TOO_LARGE, "event too large", reached=True, status=stream.status
                ) from None
            for data in batch:
                try:
                    message = body.decode_answer(data, exact=exact)
                except StrictError:
                    continue
                if not isinstance(message, dict):
                    continue
                if sse.answers(message, outgoing.id):
                    return _checked(stream.status, message)
                # SECURITY: what has an id is a request of the server or somebody else's answer: nobody here may
                # answer the one, or hear the other.
                method = message.get("method")
                if isinstance(method, str) and "id" not in message:
                    take(method, message)
        return None


def read(reply: Reply, outgoing: Outgoing, *, exact: bool = False) -> Answer:
    """Return the response to `outgoing` in `reply`; raise UpstreamError when it holds none."""
    if reply.content_type == EVENT_STREAM:
        message = sse.reduce(reply.body, outgoing.id, lambda data: body.decode_answer(data, exact=exact))
        if message is None:
            raise _bad("the event stream holds no response to this request", reply.status)
        return _checked(reply.status, message)
    try:
        answer = body.decode_answer(reply.body, exact=exact)
    except StrictError as error:
        raise _bad(f"not a JSON-RPC response: {error}", reply.status) from None
    if not isinstance(answer, dict):
        raise _bad("not a JSON object", reply.status)
    # SPEC: gateway.md 11 [STRICTER]: another id, or neither result nor error, is no answer to this request.
    if "id" not in answer or not jsonrpc.same_id(answer["id"], outgoing.id):
        raise _bad("the response carries another id", reply.status)
    if ("result" in answer) == ("error" in answer):
        raise _bad("the response must hold either result or error", reply.status)
    return _checked(reply.status, answer)


def _checked(status: int, message: dict[str, object]) -> Answer:
    """A result that is no object cannot be filtered or marked: it is no answer."""
    result = message.get("result")
    if result is None and "result" not in message:
        return Answer(status, message, None)
    if not isinstance(result, dict):
        raise _bad("the result is not an object", status)
    return Answer(status, message, result)


def _late(stream: Stream) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, "TimeoutError", reached=True, status=stream.status)


def _bad(cause: str, status: int) -> UpstreamError:
    return UpstreamError(UpstreamFailure.BAD_REPLY, cause, reached=True, status=status)

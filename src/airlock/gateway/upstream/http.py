"""The upstream over HTTP: one JSON-RPC exchange, reduced to the response with our id or to a failure.

Knows what counts as an answer (gateway.md 11.2-11.4); the pooled client below it knows bytes and time.
"""

from __future__ import annotations

from collections.abc import Awaitable

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant
from airlock.core.secret import Secret
from airlock.core.wire import jsonrpc, sse
from airlock.core.wire.strict import StrictError
from airlock.edge.httpc import HttpClient, Reply, header_line
from airlock.gateway import body
from airlock.gateway.upstream.port import Answer, Heard, Outgoing

__all__ = ["HttpUpstream", "read"]


class HttpUpstream:
    """Sends requests to one MCP endpoint. Failures are `UpstreamError`, by the table of gateway.md 11."""

    __slots__ = ("_client", "_fixed", "_target")

    def __init__(self, client: HttpClient, authorization: Secret | None, target: str = "") -> None:
        self._client = client
        self._target = target
        fixed = b"accept: application/json, text/event-stream\r\naccept-encoding: identity\r\n"
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
        """Send a request that changes nothing: a listing or a discovery."""
        return read(await self.send(outgoing), outgoing, exact=exact)

    def send(self, outgoing: Outgoing) -> Awaitable[Reply]:
        """Send a request that changes nothing, and return its answer unread, for `read`."""
        return self._client.post(self._fixed + outgoing.headers, outgoing.body)

    async def listen(self, outgoing: Outgoing, heard: Heard) -> Answer:
        raise NotImplementedError

    def target(self, name: str | None) -> str:
        """Return the address: every tool is behind it."""
        return self._target

    def abandon(self, state: object) -> None:
        """Nothing is held for a question of the server: it is in its `requestState`."""

    async def close(self) -> None:
        await self._client.close()


def read(reply: Reply, outgoing: Outgoing, *, exact: bool = False) -> Answer:
    """Return the response to `outgoing` in `reply`; raise UpstreamError when it holds none."""
    if reply.content_type == "text/event-stream":
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


def _bad(cause: str, status: int) -> UpstreamError:
    return UpstreamError(UpstreamFailure.BAD_REPLY, cause, reached=True, status=status)

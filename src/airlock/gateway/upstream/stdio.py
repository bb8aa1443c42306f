"""The upstream over a spawned process that speaks revision 2026-07-28: many requests on one channel.

Knows messages; the table of requests is `inflight`, the process `edge.stdio`, its restarts `edge.respawn`.
SPEC: mcp.md 13, 17, 20c.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant
from airlock.core.wire import strict
from airlock.core.wire.strict import StrictError
from airlock.edge.child import Command
from airlock.edge.httpanswer import Reply
from airlock.edge.respawn import Respawner
from airlock.edge.stdio import Garbage, StdioProcess
from airlock.edge.tasks import inside_task
from airlock.gateway import body
from airlock.gateway.upstream.inflight import MAX_IN_FLIGHT, InFlight, Open, StdioLimits
from airlock.gateway.upstream.port import Answer, Heard, Outgoing

__all__ = ["StdioLimits", "StdioUpstream"]

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

# How the beginning of a response with one of our ids looks, and that of anything which is no response.
_ITS_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,15})\s*[,}]')
_ITS_METHOD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:')

T = TypeVar("T")


class StdioUpstream:
    """Sends requests to one process, started by `begin` or at the first of them. Failures are `UpstreamError`.

    `say` takes lines for the log. A process that ends takes what is under way with it (the effect is unknown, so
    nothing is sent again); the next request starts another. SECURITY: one process serves everybody, so ids and
    progress tokens are unique in it, and what it says unasked goes to nobody.
    """

    def __init__(
        self,
        command: Command,
        say: Callable[[str], None],
        *,
        limits: StdioLimits | None = None,
        target: str = "",
    ) -> None:
        self._command = command
        self._say = say
        self._limits = limits or StdioLimits()
        self._target = target
        self._process = Respawner(self._make, self._ended)
        self._last_id = 0
        self._waiting = 0
        self._open = InFlight(self._limits, self._expired)
        self._asked_us = False

    def begin(self) -> None:
        """Start the process, so that the first request does not wait for it."""
        self._process.begin()

    def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Awaitable[Answer]:
        """Send a tool call: the one place where a grant is spent.

        `exact` refuses duplicate keys in the answer too, for answers that a decision depends on. To cancel the
        awaiting task sends `notifications/cancelled`.
        """
        grant.spend()
        return self.ask(outgoing, exact=exact, heard=heard)

    def ask(
        self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None
    ) -> Awaitable[Answer]:
        """Send a request that changes nothing."""
        return self._exchange(
            outgoing, heard, lambda message, line: _answer(message, line, outgoing.id, exact=exact)
        )

    def send(self, outgoing: Outgoing) -> Awaitable[Reply]:
        """Send a request that changes nothing, and return its answer for `upstream.http.read`, as if over HTTP.

        The bytes of a plain result are the server's own.
        """
        return self._exchange(outgoing, None, lambda message, line: _reply(message, line, outgoing.id))

    def listen(self, outgoing: Outgoing, heard: Heard) -> Awaitable[Answer]:
        """Send `subscriptions/listen`; returns when the server ends it, by its result or by cancelling it."""

        def read(message: dict[str, object], line: bytes) -> Answer:
            answer = _answer(message, line, outgoing.id, exact=False)
            _tag(answer.result, outgoing.id)
            return answer

        return self._exchange(outgoing, heard, read, listens=True)

    def target(self, name: str | None) -> str:
        """Return the name of this process: every tool is behind it."""
        return self._target

    def abandon(self, state: object) -> None:
        """Nothing is held for a question of the server: it is in its `requestState`."""

    async def close(self) -> None:
        """End the process and its group. What is under way fails as unreachable, later requests fail at once."""
        self._open.fail_all(lambda: _lost("the upstream is closed"))
        await self._process.close()
        self._open.fail_all(lambda: _lost("the upstream is closed"))  # one that had waited for the start

    async def _exchange(
        self,
        outgoing: Outgoing,
        heard: Heard | None,
        read: Callable[[dict[str, object], bytes], T],
        *,
        listens: bool = False,
    ) -> T:
        if len(self._open) + self._waiting >= MAX_IN_FLIGHT:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "too many requests are under way", reached=False)
        process = self._process.current
        if process is None:
            self._waiting += 1
            try:
                await inside_task()
                process = await self._process.running()
            finally:
                self._waiting -= 1
        # SPEC: mcp.md 17: ids are unique across all clients of the process, and over its restarts.
        self._last_id = own = self._last_id + 1
        message = {"jsonrpc": "2.0", "id": own, "method": outgoing.method, "params": outgoing.params}
        process.send(body.encode(message))
        opened = Open(own, outgoing, heard, read, listens=listens)
        self._open.enter(opened)
        try:
            answer: T = await opened.future
        except asyncio.CancelledError:
            if opened.future.cancelled():
                self._cancel(own)
            else:
                opened.future.exception()  # it failed just now, and nobody else will ask
            raise
        finally:
            self._open.leave(opened)
        return answer

    def _expired(self, opened: Open) -> None:
        self._cancel(opened.id)
        self._open.fail(opened, _lost("TimeoutError"))

    def _cancel(self, own: int) -> None:
        process = self._process.current
        if process is None:
            return
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": own}}
        try:
            process.send(body.encode(message))
        except UpstreamError:
            return  # it does not read: it will not hear of anything

    # What the process says.

    def _make(self, on_end: Callable[[str], None]) -> StdioProcess:
        process: StdioProcess = StdioProcess(
            self._command,
            on_message=lambda message: self._take(message, process.line),
            on_end=on_end,
            say=self._say,
            max_line_bytes=self._limits.max_line_bytes,
            on_garbage=lambda garbage: self._garbage(garbage, process.line),
            parse=body.decode_answer,
        )
        return process

    def _take(self, message: dict[str, object], line: bytes) -> None:
        if "method" in message:
            self._notified(message)
            return
        own = message.get("id")
        opened = self._open.with_id(own)
        if opened is not None:
            self._open.settle(opened, message, line)
        elif own is None and "error" in message:
            self._open.fail_only(_bad("the response has no id"))

    def _notified(self, message: dict[str, object]) -> None:
        if "id" in message:
            # SPEC: mcp.md 4: a server of this revision sends no requests, and gets no responses.
            if not self._asked_us:
                self._asked_us = True
                self._say("the server sent a request of its own, which is not answered")
            return
        params = message.get("params")
        if not isinstance(params, dict):
            return
        opened: Open | None
        match message["method"]:
            case "notifications/progress":
                opened = self._open.progressed(params.get("progressToken"))
            case "notifications/message":
                opened = self._open.logging()
            case "notifications/cancelled":
                opened = self._open.listening(params.get("requestId"))
                if opened is not None:
                    result = {"resultType": "complete", "_meta": {_SUBSCRIPTION: opened.id}}
                    self._open.settle(opened, {"jsonrpc": "2.0", "id": opened.id, "result": result}, b"")
                return
            case _:
                meta = params.get("_meta")
                opened = self._open.listening(meta.get(_SUBSCRIPTION)) if isinstance(meta, dict) else None
                if opened is not None:
                    _tag(params, opened.outer)
        if opened is not None:
            opened.notify(message)

    def _garbage(self, garbage: Garbage, line: bytes) -> None:
        """Fail the request that a broken line was the answer to, as far as that can be known.

        LIMIT: a line that is too long and begins with something else than its id fails the oldest request.
        """
        if garbage is Garbage.TOO_LARGE:
            error = UpstreamError(UpstreamFailure.TOO_LARGE, "answer too large", reached=True)
        else:
            error = _bad("not a JSON-RPC response")
        its_id = _ITS_ID.match(line)
        if its_id is not None:
            opened = self._open.with_id(int(its_id[1]))
            if opened is not None:
                self._open.fail(opened, error)
        elif _ITS_METHOD.match(line) is None:
            self._open.fail_only(error, or_oldest=garbage is Garbage.TOO_LARGE)

    def _ended(self, cause: str) -> None:
        self._say(cause)
        # SPEC: mcp.md 17: what was under way is lost, its effect unknown; nothing is sent again.
        self._open.fail_all(lambda: _lost(cause))


def _answer(message: dict[str, object], line: bytes, outer: object, *, exact: bool) -> Answer:
    """Return the response, with the id of the request that it came from. Raises `UpstreamError` for no response."""
    if exact:
        _refuse_equal_keys(line)
    if ("result" in message) == ("error" in message):
        raise _bad("the response must hold either result or error")
    message["id"] = outer
    if "result" not in message:
        return Answer(200, message, None)
    result = message["result"]
    if not isinstance(result, dict):
        raise _bad("the result is not an object")
    return Answer(200, message, result)


def _reply(message: dict[str, object], line: bytes, outer: object) -> Reply:
    """Return the response for a reader of HTTP answers, who may look for equal keys: they are kept, or refused."""
    result = body.raw_result(line, message["id"])
    if result is not None:
        return Reply(200, "application/json", body.with_result(outer, result))
    _refuse_equal_keys(line)
    return Reply(200, "application/json", body.encode(message | {"id": outer}))


def _refuse_equal_keys(line: bytes) -> None:
    try:
        strict.parse(line)
    except StrictError as error:
        raise _bad(f"not a JSON-RPC response: {error}") from None


def _tag(holder: dict[str, object] | None, outer: object) -> None:
    """Put the asker's own id in place of ours."""
    meta = None if holder is None else holder.get("_meta")
    if isinstance(meta, dict) and _SUBSCRIPTION in meta:
        meta[_SUBSCRIPTION] = outer


def _bad(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.BAD_REPLY, cause, reached=True)


def _lost(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=True)

"""One dialogue with a legacy server: the handshake, our requests by id, and whatever the server says by itself.

Knows one connection and the messages on it; does not know who else talks to the server, or what a client sees.
SPEC: mcp.md 11, 13, 18, 20b, 20c.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

import msgspec

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import jsonrpc
from airlock.gateway.upstream import bridge
from airlock.gateway.upstream.call import SILENT, Call, Hearing, Question
from airlock.gateway.upstream.later import Deadline, Later
from airlock.gateway.upstream.line import SESSION_GONE, Dialer, Line
from airlock.gateway.upstream.poster import Poster
from airlock.gateway.upstream.watch import Watch

__all__ = ["Dialogue", "Limits"]

_NOBODYS: Final = (jsonrpc.INVALID_REQUEST, "this belongs to no request that can be asked about")


class Limits(msgspec.Struct, frozen=True):
    """What one request may take, in seconds: `quiet_s` without progress, `hard_s` in all.

    `post_s` is for one notification or response, `settle_s` for a server that asks for roots at once, `roots_s` for
    a call to end that may not have asked for them, `linger_s` for a stream to end after its answer.
    """

    quiet_s: float = 60.0
    hard_s: float = 600.0
    post_s: float = 10.0
    settle_s: float = 5.0
    roots_s: float = 1.0
    linger_s: float = 5.0


class Dialogue:
    """One connection or session with a server, for one principal with one set of capabilities.

    `declared` is what `initialize` says of the client. `rested` is called when nothing is open on it any more, and
    when it is gone; `gone` then says why, and it takes no more requests. After `close` nothing of it runs.
    """

    def __init__(
        self,
        declared: dict[str, object],
        client: dict[str, object],
        limits: Limits,
        later: Later,
        rested: Callable[[Dialogue], None],
    ) -> None:
        self.gone: str | None = None
        self.server: dict[str, object] = {}
        self.watch = Watch(self)
        self._declared = declared
        self._client = client
        self._limits = limits
        self._later = later
        self._rested = rested
        self._line: Line | None = None
        self._poster: Poster | None = None
        self._calls: dict[int, Call] = {}
        self._last_id = 0
        self._level: int | None = None
        self._tuning = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    # The beginning and the end.

    async def open(self, dialer: Dialer, version: str) -> None:
        """Connect and shake hands, offering `version`. Raises UpstreamError; the caller closes it then."""
        line = await dialer.dial(self._incoming, self._lost)
        if self.gone is not None:
            await line.close()
            raise UpstreamError(UpstreamFailure.UNREACHABLE, self.gone, reached=False)
        self._line = line
        self._poster = Poster(line, self._limits.post_s)
        offer: dict[str, object] = {
            "protocolVersion": version,
            "capabilities": self._declared,
            "clientInfo": self._client,
        }
        response = await self.request("initialize", offer)
        opened = response.get("result")
        if not isinstance(opened, dict):
            raise _bad("the server refused initialize")
        agreed = opened.get("protocolVersion")
        # SPEC: mcp.md 18: the server may answer with another version; one that is not served ends it.
        if not isinstance(agreed, str) or agreed not in bridge.VERSIONS:
            raise _bad("the server answered initialize with a version that is not served")
        self.server = opened
        line.opened(agreed)
        await self._poster.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        if "roots" in self._declared:
            # Servers ask for roots as soon as they are told of them. On a line that cannot tell streams that would
            # look like a question of the first call: whoever answers a ping has asked before.
            try:
                await self.request("ping", {}, quiet_s=self._limits.settle_s)
            except UpstreamError:
                if self.gone is not None:
                    raise

    @property
    def busy(self) -> bool:
        """Whether anything is open on it: a request, a parked call, a subscription."""
        return bool(self._calls) or self.watch.busy

    @property
    def takes(self) -> bool:
        """Whether an open dialogue takes one more request."""
        return self.gone is None and self._line is not None and self._line.alive

    def declares(self, capability: str, feature: str) -> bool:
        """Tell whether the server declared `feature` in a capability."""
        told = self.server.get("capabilities")
        said = told.get(capability) if isinstance(told, dict) else None
        return isinstance(said, dict) and said.get(feature) is True

    def may_show_pages(self) -> bool:
        """Tell whether the client of this dialogue can ask a person to open a page."""
        return bridge.may_show_pages(self._declared)

    async def close(self) -> None:
        """End the connection; what is open fails as unreachable."""
        self._ended("the dialogue with the server was closed")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        poster, self._poster = self._poster, None
        line, self._line = self._line, None
        if poster is not None:
            await poster.close()
        if line is not None:
            await line.close()

    def eased(self) -> None:
        """Something is no longer open."""
        if not self.busy:
            self._rested(self)

    def background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work` as a task that ends with the dialogue."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Our requests.

    async def request(
        self, method: str, params: dict[str, object], *, quiet_s: float | None = None
    ) -> dict[str, object]:
        """Send a request that cannot be asked back, and return its response. Raises UpstreamError."""
        call = self._start(method, params, SILENT, quiet_s)
        try:
            response = await call.settled()
        except asyncio.CancelledError:
            self.drop(call)
            raise
        assert response is not None
        return response

    async def begin(self, method: str, params: dict[str, object], hearing: Hearing) -> Call:
        """Send a client's request; wait for it with `Call.settled`, and `drop` it when nobody does any more."""
        if hearing.level is not None and self._logs():
            await self._tune(hearing.level)
        return self._start(method, params, hearing)

    def pause(self, call: Call) -> None:
        """Nobody waits for `call` until its questions are answered."""
        assert call.deadline is not None
        call.deadline.stop()
        call.deadline = None
        call.hearing = SILENT

    def resume(self, call: Call, hearing: Hearing) -> None:
        """Somebody waits for `call` again."""
        if not call.over:
            call.hearing = hearing
            call.deadline = self._deadline(call, self._limits.quiet_s)

    async def answer(self, question: Question, value: dict[str, object]) -> None:
        """Answer a question of a call that is not over. Raises UpstreamError."""
        assert self._poster is not None
        await self._poster.post(jsonrpc.result(question.id, value))

    def drop(self, call: Call) -> None:
        """Cancel `call` at the server; nobody waits for it. What it asked is answered as such."""
        if call.id not in self._calls:
            return
        self._end(call)
        notes = [question.dropped() for question in call.open_questions()]
        if call.method != "initialize":
            # SPEC: mcp.md 13: to stop reading cancels nothing on a legacy server; only this does.
            gone: dict[str, object] = {"requestId": call.id, "reason": "nobody waits for it"}
            notes.append({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone})
        call.questions, call.told = [], {}
        task = call.task
        assert task is not None
        assert self._poster is not None
        if not self._poster.soon(*notes, task.cancel):
            task.cancel()

    def _start(
        self, method: str, params: dict[str, object], hearing: Hearing, quiet_s: float | None = None
    ) -> Call:
        if self.gone is not None:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, self.gone, reached=False)
        assert self._line is not None
        self._last_id += 1
        call = Call(self._last_id, method, hearing)
        meta = params.get("_meta")
        if isinstance(meta, dict):
            # SPEC: mcp.md 13: our own token, for two clients may use the same one.
            meta.pop("progressToken", None)
            if hearing.token is not None:
                meta["progressToken"] = call.id
        call.deadline = self._deadline(call, quiet_s or self._limits.quiet_s)
        message = {"jsonrpc": "2.0", "id": call.id, "method": method, "params": params}
        self._calls[call.id] = call
        call.task = self.background(self._carry(self._line, call, message))
        return call

    async def _carry(self, line: Line, call: Call, message: dict[str, object]) -> None:
        """Keep the stream of one request open until nothing more can come on it."""
        try:
            await line.request(message)
        except UpstreamError as error:
            self._failed(call, error)
        except Exception as error:  # noqa: BLE001 - the boundary of a transport: the call fails, nobody else does
            cause = type(error).__name__
            self._failed(call, UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=True))
        else:
            if line.tells_streams:
                self._failed(
                    call, _bad("the stream ended without the response to this request", reached=True)
                )

    def _deadline(self, call: Call, quiet_s: float) -> Deadline:
        return Deadline(self._later, quiet_s, self._limits.hard_s, lambda: self._late(call))

    def _late(self, call: Call) -> None:
        self.drop(call)
        call.failed(UpstreamError(UpstreamFailure.UNREACHABLE, "no answer in time", reached=True))

    def _failed(self, call: Call, error: UpstreamError) -> None:
        if self._calls.get(call.id) is call:
            self._end(call)
            call.failed(error)

    def _end(self, call: Call) -> None:
        del self._calls[call.id]
        if call.deadline is not None:
            call.deadline.stop()
        for timer, question in call.doubts.items():
            timer.cancel()
            self._reply(jsonrpc.error(question.id, *_NOBODYS))
        call.doubts = {}
        self.eased()

    # Log levels.

    def _logs(self) -> bool:
        told = self.server.get("capabilities")
        return isinstance(told, dict) and isinstance(told.get("logging"), dict)

    async def _tune(self, level: int) -> None:
        """Have the server send what the most curious of all open requests wants to hear."""
        async with self._tuning:
            levels = [call.hearing.level for call in self._calls.values() if call.hearing.level is not None]
            wanted = min([level, *levels])
            if wanted == self._level:
                return
            try:
                response = await self.request("logging/setLevel", {"level": bridge.LEVELS[wanted]})
            except UpstreamError as error:
                raise UpstreamError(error.kind, error.cause, reached=False, status=error.status) from None
            self._level = wanted if "result" in response else None

    # What the server says.

    def _incoming(self, message: dict[str, object], during: object | None) -> None:
        method = message.get("method")
        if isinstance(method, str):
            if "id" not in message:
                self._notified(method, message, during)
            elif isinstance(message["id"], (str, int)) and not isinstance(message["id"], bool):
                self._requested(message["id"], method, message.get("params"), during)
        elif "id" in message:
            self._responded(message)

    def _responded(self, message: dict[str, object]) -> None:
        call = self._call(message["id"])
        if call is None:
            return
        self._end(call)
        failure = message.get("error")
        if ("result" in message) == ("error" in message):
            call.failed(_bad("the response must hold either result or error", reached=True))
        elif "result" in message and not isinstance(message["result"], dict):
            call.failed(_bad("the result is not an object", reached=True))
        elif "error" in message and not _is_error(failure):
            call.failed(_bad("the error is not one", reached=True))
        else:
            call.answered(message)
        assert call.task is not None
        # LIMIT: a stream that stays open after its response is not read for long.
        timer = self._later(self._limits.linger_s, call.task.cancel)
        call.task.add_done_callback(lambda _: timer.cancel())

    def _requested(self, question_id: str | int, method: str, params: object, during: object | None) -> None:
        if method == "ping":
            self._reply(jsonrpc.result(question_id, {}))
            return
        refused = bridge.objection(self._declared, method, params)
        if refused is None:
            call = self._asker(during)
            question = Question(question_id, method, bridge.question(method, params))
            if call is None:
                refused = _NOBODYS
            elif not call.may_ask():
                refused = jsonrpc.INVALID_REQUEST, "too many questions are open"
            elif method == "roots/list" and during is None:
                self._doubt(call, question)
            else:
                call.asked(question)
        if refused is not None:
            self._reply(jsonrpc.error(question_id, *refused))

    def _doubt(self, call: Call, question: Question) -> None:
        """Servers ask for roots on their own account too: only a call that seems to wait for them has asked."""

        def believe() -> None:
            del call.doubts[timer]
            call.asked(question)

        timer = self._later(self._limits.roots_s, believe)
        call.doubts[timer] = question

    def _reply(self, response: dict[str, object]) -> None:
        if self._poster is not None:
            self._poster.soon(response)

    def _asker(self, during: object | None) -> Call | None:
        """Return the call that a question belongs to: by its stream, else the only one it can belong to."""
        if during is not None:
            call = self._call(during)
            return call if call is not None and call.method in bridge.ASKING else None
        able = [call for call in self._calls.values() if call.method in bridge.ASKING]
        # A call whose own questions wait for a person is not likely to ask more. If this is wrong, the question is
        # put to the same client under another call, and the answer goes to whoever asked all the same.
        likely = [call for call in able if not call.told] or able
        return likely[0] if len(likely) == 1 else None

    def _notified(self, method: str, message: dict[str, object], during: object | None) -> None:
        params = message.get("params")
        own: dict[str, object] = params if isinstance(params, dict) else {}
        match method:
            case "notifications/progress":
                call = self._call(own.get("progressToken"))
                if call is not None:
                    if call.deadline is not None:
                        call.deadline.renew()
                    if call.hearing.token is not None:
                        call.notify(
                            {
                                "jsonrpc": "2.0",
                                "method": method,
                                "params": {**own, "progressToken": call.hearing.token},
                            }
                        )
            case "notifications/message":
                call = self._listener(during, own.get("level"))
                if call is not None:
                    call.notify({"jsonrpc": "2.0", "method": method, "params": own})
            case "notifications/cancelled":
                for call in self._calls.values():
                    call.withdrawn(own.get("requestId"))
            case _:
                self.watch.notified(method, own)

    def _listener(self, during: object | None, level: object) -> Call | None:
        """Return the request that a log message goes to: the one on whose stream it came, else the only one that
        wants any, and in either case only at a level it asked for."""
        # LIMIT: of two requests that want log messages neither gets one that came on no stream.
        if during is not None:
            call = self._call(during)
        else:
            curious = [call for call in self._calls.values() if call.hearing.level is not None]
            call = curious[0] if len(curious) == 1 else None
        if call is None or call.hearing.level is None or level not in bridge.LEVELS:
            return None
        return call if bridge.LEVELS.index(str(level)) >= call.hearing.level else None

    def _call(self, request_id: object) -> Call | None:
        return self._calls.get(request_id) if type(request_id) is int else None

    def _lost(self, cause: str) -> None:
        self._ended(cause, streams_live=cause == SESSION_GONE)

    def _ended(self, cause: str, *, streams_live: bool = False) -> None:
        """Take no more requests; those under way fail, but for those whose own streams may still end in order."""
        if self.gone is None:
            self.gone = cause
        self.watch.lost(cause)
        for call in list(self._calls.values()):
            assert call.task is not None
            if not streams_live or call.task.done():
                self._failed(call, UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=True))
        self._rested(self)


def _is_error(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    code = value.get("code")
    return isinstance(code, int) and not isinstance(code, bool) and isinstance(value.get("message"), str)


def _bad(cause: str, *, reached: bool = False) -> UpstreamError:
    return UpstreamError(UpstreamFailure.BAD_REPLY, cause, reached=reached)

"""One request and its answer: the ASGI side of a call, and the short way of a call that needs none of it.

Knows ASGI messages and the bytes of an answer; must not know parsing, limits or what is answered.
"""

from __future__ import annotations

import asyncio
import re
import types
from collections.abc import Callable, Coroutine, Generator, Iterable
from http import HTTPStatus
from typing import Any, Protocol

from airlock.edge.asgi import App, Message, Receive, Responder, Scope, Send
from airlock.edge.frontflow import HIGH_WATER_BYTES, Flow
from airlock.edge.frontlimits import Direct, FrontState, Line

__all__ = ["AsgiCycle", "Connection", "DirectCycle"]

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BROKEN = re.compile(rb"[\r\n\0]")
_FAILED = b"Internal Server Error"


def _status_line(status: int) -> bytes:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    return f"HTTP/1.1 {status} {reason}\r\n".encode("ascii")


_STATUS = {status: _status_line(status) for status in range(100, 600)}
_BROKE = _STATUS[500] + b"content-type: text/plain; charset=utf-8\r\ncontent-length: "
_JSON = {
    status: line + b"content-type: application/json\r\ncontent-length: " for status, line in _STATUS.items()
}


class Connection(Protocol):
    """What a cycle needs of its connection."""

    transport: asyncio.Transport
    flow: Flow

    def on_response_complete(self) -> None:
        """Go on behind an answer that is written."""
        ...

    def hand_over(self, cycle: DirectCycle, onward: AsgiCycle) -> None:
        """Let `onward` stand for the call that began as `cycle`."""
        ...


class DirectCycle:
    """A call whose whole body is read before it begins and whose whole answer is JSON in one write.

    An answer of any other kind is written by an `AsgiCycle` that takes this one's place.
    """

    __slots__ = (
        "_parts", "body", "disconnected", "front", "headers", "keep_alive", "more_body", "response_complete",
        "response_started", "task", "transport",
    )  # fmt: skip

    def __init__(self, front: Connection, headers: list[Line], *, keep_alive: bool) -> None:
        self.front = front
        self.headers = headers
        self.transport = front.transport
        self.keep_alive = keep_alive
        self.body: bytes | bytearray = b""
        self.task: asyncio.Task[None] | None = None
        self.disconnected = self.response_started = self.response_complete = False
        self.more_body = True

    def feed(self, data: bytes) -> None:
        """Take a piece of the body; its declared length bounds it."""
        if not self.body:
            self.body = data
        elif isinstance(self.body, bytearray):
            self.body += data
        else:
            self.body = bytearray(self.body)
            self.body += data

    def whole(self) -> None:
        """The body is whole."""
        self.more_body = False

    def peer(self) -> str:
        """Return the address of the client. Only for who needs it: it is asked of the system each time."""
        name = self.transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    def gone(self) -> None:
        """The client left, or its request was refused: nothing more is written, and the call is cancelled."""
        self.disconnected = True
        if self.task is not None:
            self.task.cancel()

    def start(self, state: FrontState, loop: asyncio.AbstractEventLoop, *, at_once: bool) -> None:
        """Begin the call. `at_once` runs it now, as far as it goes without waiting: most refusals are done then."""
        assert state.direct is not None
        run = self._run(state.direct, state.tasks)
        if at_once:
            try:
                waits_for = run.send(None)
            except StopIteration:
                return
            run = _rest(run, waits_for)
        self.task = task = loop.create_task(run)
        state.tasks.add(task)

    async def _run(self, direct: Direct, tasks: set[asyncio.Task[None]]) -> None:
        """Make the answer and write it; take this call's task out of `tasks` at the end."""
        try:
            front = self.front
            body: bytes | bytearray = self.body
            try:
                whole = body if type(body) is bytes else bytes(body)
                answered = await direct.answer(self.headers, whole, self)
                if not isinstance(answered, tuple):
                    self._hand_over(answered, tasks)
                    return
                status, answer = answered
                head = _JSON[status]
                if status in direct.also:
                    head = b"%b%b: %b\r\ncontent-length: " % (head[:-16], *direct.also[status])
            except Exception:  # noqa: BLE001 - the boundary: what broke told of itself, the client gets no word of it
                self.keep_alive = False
                head, answer = _BROKE, _FAILED
            if front.flow.write_paused and not self.disconnected:
                await front.flow.drain()
            if self.disconnected:
                return
            self.response_started = True
            end = b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n"
            self.transport.write(b"%b%d%b%b" % (head, len(answer), end, answer))
            self.response_complete = True
            if not self.keep_alive:
                self.transport.close()
            front.on_response_complete()
        finally:
            if self.task is not None:
                tasks.discard(self.task)

    def _hand_over(self, responder: Responder, tasks: set[asyncio.Task[None]]) -> None:
        """Let a cycle of the other kind write the answer, in a task: this call may have begun outside one."""
        cycle = AsgiCycle(self.front, {"method": "POST"}, keep_alive=self.keep_alive, expects_100=False)
        cycle.transport, cycle.disconnected, cycle.more_body = self.transport, self.disconnected, False
        self.front.hand_over(self, cycle)

        async def app(_scope: Scope, receive: Receive, send: Send) -> None:
            await responder(receive, send)

        task = asyncio.get_running_loop().create_task(cycle.run(app))
        task.add_done_callback(tasks.discard)
        tasks.add(task)


def _rest(begun: Coroutine[Any, Any, None], waits_for: object) -> Coroutine[Any, Any, None]:
    """Return what a task runs to go on with a coroutine that was begun outside it and waits for something."""

    async def resumed() -> None:
        await _steps(begun, waits_for)

    going = resumed()
    # INVARIANT: it is begun too, so that even a task that is cancelled before its first step tells the call.
    going.send(None)
    return going


@types.coroutine
def _steps(begun: Coroutine[Any, Any, None], waits_for: object) -> Generator[object, Any, None]:
    step: Callable[[Any], object]
    told: Any
    in_task = False
    while True:
        try:
            came = yield waits_for if in_task else None
        except GeneratorExit:
            begun.close()
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the task is told, the coroutine is told
            step, told = begun.throw, error
        else:
            if not in_task:
                in_task = True
                continue
            step, told = begun.send, came
        in_task = True
        try:
            waits_for = step(told)
        except StopIteration:
            return


class AsgiCycle:
    """A call as an ASGI application sees it: `receive` gives the body, `send` writes the answer.

    The head of an answer is held back until its body comes: most answers are one message of each.
    """

    def __init__(self, front: Connection, scope: Scope, *, keep_alive: bool, expects_100: bool) -> None:
        self.front = front
        self.scope = scope
        self.transport = front.transport
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.disconnected = self.response_started = self.response_complete = False
        self.more_body = True
        self._event = asyncio.Event()
        self._expects_100 = expects_100
        self._head: Message | None = None
        self._left: int | None = None  # bytes of the declared length still to write; None: chunked

    def feed(self, data: bytes) -> None:
        """Take a piece of the body; hold the client back when the application does not keep up."""
        self.body += data
        if len(self.body) > HIGH_WATER_BYTES:
            self.front.flow.pause_reading()
        self._event.set()

    def whole(self) -> None:
        """The body is whole."""
        self.more_body = False
        self._event.set()

    def gone(self) -> None:
        """The client left, or its request was refused: nothing more is written."""
        self.disconnected = True
        self._event.set()

    async def run(self, app: App) -> None:
        """Call the application. What breaks in it is for it to tell; the client gets no word of it."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:  # noqa: BLE001 - the boundary of the application
            self._head = None
        if self.disconnected or self.response_complete:
            return
        if self.response_started:
            self.transport.close()  # an answer that was not finished
            return
        self.keep_alive = False
        kind = (b"content-type", b"text/plain; charset=utf-8")
        length = (b"content-length", b"%d" % len(_FAILED))
        self._head = None
        await self.send({"type": "http.response.start", "status": 500, "headers": [kind, length]})
        await self.send({"type": "http.response.body", "body": _FAILED})

    async def receive(self) -> Message:
        """Return the next piece of the body, or that the client left."""
        if self._expects_100 and not self.response_started and not self.transport.is_closing():
            self._expects_100 = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.disconnected and not self.response_complete:
            self.front.flow.resume_reading()
            await self._event.wait()
            self._event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """Take the head of the answer, then its body in one or more pieces. Misuse raises RuntimeError."""
        if self.response_complete:
            raise RuntimeError("the answer was already complete")
        if message["type"] == "http.response.start":
            if self._head is not None or self.response_started:
                raise RuntimeError("the answer has begun already")
            self._head = message
            return
        if message["type"] != "http.response.body" or (self._head is None and not self.response_started):
            raise RuntimeError(f"not the message that belongs here: {message['type']}")
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if self.front.flow.write_paused and not self.disconnected:
            await self.front.flow.drain()
        if self.disconnected:
            return
        # Only now: while it waited, the rest of the request may have come, and with it a reason to stay.
        out = self._body(body, more=more) if self.response_started else self._begun(body, more=more)
        self.response_started = True
        if out:
            self.transport.write(out)
        if not more:
            self.response_complete = True
            self._event.set()
            if not self.keep_alive:
                self.transport.close()
            self.front.on_response_complete()

    def _begun(self, body: bytes, *, more: bool) -> bytes:
        """The head of the answer with the first piece of its body."""
        assert self._head is not None
        status: int = self._head["status"]
        lines, self._left, closes = _lines(self._head.get("headers", ()))
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        bodiless = self.scope["method"] == "HEAD" or status in (204, 304)
        if self._left is None and not bodiless:
            lines.append(b"transfer-encoding: chunked\r\n")
        rest = b"" if bodiless else self._body(body, more=more)
        return b"".join((_STATUS[status], *lines, b"\r\n", rest))

    def _body(self, body: bytes, *, more: bool) -> bytes:
        """A piece of the body as it goes out. Raises RuntimeError when it is not of the declared length."""
        if self.scope["method"] == "HEAD":
            return b""
        if self._left is None:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        self._left -= len(body)
        if self._left < 0 or (self._left and not more):
            raise RuntimeError("the body is longer or shorter than its content-length")
        return body


def _lines(headers: Iterable[Line]) -> tuple[list[bytes], int | None, bool]:
    """The header lines, the declared length, and whether they end the connection."""
    lines: list[bytes] = []
    length: int | None = None
    closes = False
    for name, value in headers:
        # SECURITY: a line break in a header would begin another answer.
        if _NAME.fullmatch(name) is None or _BROKEN.search(value) is not None:
            raise RuntimeError("not a header that can be sent")
        lower = name.lower()
        if lower == b"transfer-encoding":
            raise RuntimeError("the framing of an answer is the server's business")
        if lower == b"content-length":
            length = int(value)
        closes = closes or (lower == b"connection" and b"close" in value.lower())
        lines.append(b"%b: %b\r\n" % (lower, value))
    return lines, length, closes

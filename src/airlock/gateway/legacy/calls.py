"""One request of a legacy client under way: its task, its stream once it needs one, what is asked of the client.

Knows how a request lives and ends (mcp.md 18); knows no method. A client that leaves ends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from airlock.gateway import body
from airlock.gateway.legacy import downward
from airlock.gateway.legacy.admission import Answered
from airlock.gateway.legacy.pushes import Ask
from airlock.gateway.legacy.replies import ACCEPTED, Plain, Reply, Streaming, Write
from airlock.gateway.legacy.sessions import Session, key_of
from airlock.gateway.legacy.streams import Signal, Stream

__all__ = ["Call", "Pushed", "Tasks"]

Tasks = set[asyncio.Task[Any]]
"""The tasks of a front, so that none is lost and all end with it."""

_STREAM_ENDED: Final = b": cancelled\n\n"
_PROGRESS: Final = "notifications/progress"
_CANCELLED: Final = "notifications/cancelled"


class Pushed:
    """A request that was sent to the client. `answer` is the client's response, once it came."""

    __slots__ = ("_id", "_pushes", "_stream", "answer")

    def __init__(self, session: Session, stream: Stream, ask: Ask) -> None:
        self._id = session.new_push()
        self._pushes, self._stream = session.pushes, stream
        self.answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        session.pushes[self._id] = self.answer
        params = {"params": ask.params} if ask.params else {}
        stream.add(body.encode({"jsonrpc": "2.0", "id": self._id, "method": ask.method, **params}))

    def withdraw(self) -> None:
        """Take it back, if it is not answered: a response that comes later is nobody's."""
        if self._pushes.pop(self._id, None) is not None:
            self.answer.cancel()
            self._stream.add(_notification(_CANCELLED, {"requestId": self._id, "reason": "no longer needed"}))


class Call:
    """A request of `session`. `events`: its client takes an event stream for an answer.

    It is a `Heard`: what the server says meanwhile goes to the client, under the client's own progress token.
    `minted` is the token that stands in for it inside, None when the client wants no progress.
    """

    __slots__ = (
        "_base", "_body", "_done", "_events", "_id", "_ready", "_replay_until", "_stream", "_task", "_token",
        "_told", "minted", "session",
    )  # fmt: skip

    def __init__(
        self,
        session: Session,
        request_id: object,
        replay_until: Callable[[], float],
        *,
        events: bool,
        token: object = None,
        minted: str | None = None,
    ) -> None:
        self.session = session
        self.minted = minted
        self._id, self._events, self._token = request_id, events, token
        self._replay_until = replay_until
        self._ready = Signal()
        self._stream: Stream | None = None
        self._task: asyncio.Task[dict[str, object]] | None = None
        self._body: bytes | None = None
        self._done = False
        self._base: int | float = 0
        self._told: int | float | None = None

    def start(self, work: Coroutine[Any, Any, dict[str, object]], tasks: Tasks) -> None:
        """Run `work`, which makes the response; it must raise nothing but CancelledError."""
        self._task = task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        self.session.calls[key_of(self._id)] = self
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Stop it: no response is sent. SPEC: mcp.md 13."""
        if self._task is not None:
            self._task.cancel()

    async def response(self) -> bytes | None:
        """Return the response when it is there; None when the request was cancelled. For one caller."""
        await self._ready.wait(None)
        return self._body

    async def reply(self, stream_after_s: float, keep_alive_s: float) -> Reply:
        """Return the response as one body, or a stream when something must be said before or it takes long."""
        try:
            await self._ready.wait(stream_after_s if self._events else None)
        except asyncio.CancelledError:
            # The client left and has no event id to come back with: what it could be asked goes elsewhere.
            self._events = self._events and self._stream is not None
            raise
        stream = self._outlet() if not self._done else self._stream
        if stream is not None:
            return Streaming(200, (), partial(stream.serve, keep_alive_s=keep_alive_s))
        if self._body is not None:
            return Plain(200, self._body)
        return Streaming(200, (), _cancelled) if self._events else ACCEPTED

    def notify(self, message: dict[str, object]) -> None:
        """Pass on a notification of the server."""
        told = downward.during_call(message)
        if told is None:
            return
        method, params = told
        if method == _PROGRESS:
            if self.minted is None or params.get("progressToken") != self.minted:
                return
            params["progressToken"] = self._token
            self._measure(params)
        self._say(_notification(method, params))

    def again(self) -> None:
        """The inside is asked once more: what it says of its progress now counts on from what was told before."""
        self._base = 0 if self._told is None else self._told + 1

    def waiting(self, text: str) -> None:
        """Tell the client that the call waits: as progress where it asked for that, else by an open stream."""
        if self.minted is None:
            self._outlet()
            return
        self._told = 1 if self._told is None else self._told + 1
        params = {"progressToken": self._token, "progress": self._told, "message": text}
        self._say(_notification(_PROGRESS, params))

    def push(self, ask: Ask) -> Pushed | None:
        """Send a request to the client; None when there is no stream to send it on."""
        stream = self._outlet() or self.session.listening
        return None if stream is None else Pushed(self.session, stream, ask)

    def complete(self, elicitation_id: object) -> None:
        """Tell the client that what a link was opened for is done. SPEC: mcp.md 20a."""
        self._say(_notification("notifications/elicitation/complete", {"elicitationId": elicitation_id}))

    def _measure(self, params: dict[str, object]) -> None:
        """Keep progress growing over several rounds, and remember how far it was told."""
        for member in ("progress", "total"):
            value = params.get(member)
            if isinstance(value, int | float):
                params[member] = value = value + self._base if self._base else value
                if member == "progress":
                    self._told = value if self._told is None else max(self._told, value)

    def _say(self, data: bytes) -> None:
        stream = self._outlet()
        if stream is not None:
            stream.add(data)

    def _outlet(self) -> Stream | None:
        """Return the call's own stream, opened now if need be; None when the client takes none."""
        if self._stream is None and self._events and not self._done:
            self._stream = self.session.new_stream()
            self._ready.tell()
        return self._stream

    def _ended(self, task: asyncio.Task[dict[str, object]]) -> None:
        self._done = True
        self.session.calls.pop(key_of(self._id), None)
        if not task.cancelled():
            self._body = body.encode(task.result())
        if self._stream is not None:
            if self._body is not None:
                self._stream.add(self._body)
            self._stream.end(self._replay_until())
        self._ready.tell()


async def _cancelled(write: Write) -> None:
    """The stream of a request that was cancelled before its first event: it has no response."""
    await write(_STREAM_ENDED)


def _notification(method: str, params: dict[str, object]) -> bytes:
    return body.encode({"jsonrpc": "2.0", "method": method, "params": params})

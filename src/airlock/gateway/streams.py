"""One modern answer that may be an event stream: what the upstream says first goes out as it comes.

Knows the form of the answer (mcp.md 5, 13): plain JSON when nothing comes before it, else server-sent events. Knows
no method and no rule.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from airlock.core.wire import sse
from airlock.edge.asgi import Receive, Responder, Send, left, respond
from airlock.gateway import body, meta
from airlock.gateway.eras import Heard
from airlock.gateway.gate import Answer

__all__ = ["HEADERS", "KEEP_ALIVE", "KEEP_ALIVE_S", "Told", "streamed"]

KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
# SECURITY: one event may be as long as an answer; a client that does not read must not fill the memory with them.
_MOST_WAITING = 1024
_MOST_HELD = 4 * 1024 * 1024  # LIMIT: bytes of the events that wait; the first one always may


class Told:
    """A `Heard` that queues what it takes for one client, under the client's own progress token."""

    __slots__ = ("_minted", "_token", "came", "held", "lost", "waiting")

    def __init__(self, minted: object = None, token: object = None) -> None:
        self.waiting: deque[bytes] = deque()
        self.held = 0
        self.came = asyncio.Event()
        self.lost = 0
        self._minted, self._token = minted, token

    def notify(self, message: dict[str, object]) -> None:
        """Queue one notification, as the event that it will be."""
        # LIMIT: a client that reads slower than its server talks loses notifications, not the answer.
        if len(self.waiting) >= _MOST_WAITING:
            self.lost += 1
            return
        params = message.get("params")
        if isinstance(params, dict):
            if "_meta" in params:
                meta.strip_holder(params)
            if self._minted is not None and params.get("progressToken") == self._minted:
                params = {**params, "progressToken": self._token}
                message = {**message, "params": params}
        event = sse.event(body.encode(message))
        if self.waiting and self.held + len(event) > _MOST_HELD:
            self.lost += 1
            return
        self.waiting.append(event)
        self.held += len(event)
        self.came.set()

    def taken(self) -> bytes:
        """Return the events of all that waits, and forget it."""
        out = b"".join(self.waiting)
        self.waiting.clear()
        self.held = 0
        return out


def streamed(work: Callable[[Heard], Awaitable[Answer]], told: Told) -> Responder:
    """Return what answers with `work`, which is cancelled when the client leaves."""

    async def responder(receive: Receive, send: Send) -> None:
        running = asyncio.ensure_future(work(told))
        leaving = asyncio.ensure_future(left(receive))
        for task in (running, leaving):
            task.add_done_callback(lambda _: told.came.set())
        try:
            await _write(running, leaving, told, send)
        finally:
            leaving.cancel()
            running.cancel()
            await asyncio.wait({running, leaving})

    return responder


async def _write(
    running: asyncio.Future[Answer], leaving: asyncio.Future[None], told: Told, send: Send
) -> None:
    begun = False
    while not running.done() or told.waiting:
        quiet = False
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await told.came.wait()
        except TimeoutError:
            quiet = True
        told.came.clear()
        if leaving.done():
            return
        out = KEEP_ALIVE if quiet else told.taken()
        if out:
            if not begun:
                begun = True
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": out, "more_body": True})
    answer = running.result()
    if begun:
        await send({"type": "http.response.body", "body": sse.event(answer.body)})
    else:
        await respond(send, answer.status, answer.body)

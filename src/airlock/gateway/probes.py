"""The probes: whether the process runs, and whether its store answers. No credentials, no record, no upstream.

Knows the store's ping; nothing else is asked. SPEC: gateway.md 1.5.
"""

from __future__ import annotations

import asyncio

from airlock.edge.asgi import Scope, Send, respond
from airlock.gateway.gate import Gate

__all__ = ["READY_WAIT_S", "Probes"]

READY_WAIT_S = 2.0

_OK = b'{"status":"ok"}'
_UNAVAILABLE = b'{"status":"unavailable"}'


class Probes:
    """Answers `/healthz` and `/readyz`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._ping: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, send: Send) -> None:
        """Answer one probe."""
        if scope["method"] not in {"GET", "HEAD"}:
            await respond(send, 405, b"use GET\n", b"text/plain; charset=utf-8", [(b"allow", b"GET, HEAD")])
        elif scope["path"] == "/healthz" or await self._ready():
            await respond(send, 200, _OK)
        else:
            await respond(send, 503, _UNAVAILABLE)

    async def _ready(self) -> bool:
        """Ask the store, sharing one question among concurrent probes.

        A question that outlasts the wait is abandoned, not cancelled; the next probe asks anew, so one stuck
        connection never pins the answer.
        """
        ping = self._ping
        if ping is None or ping.done():
            ping = asyncio.create_task(self._gate.store.ping())
            ping.add_done_callback(_seen)
            self._ping = ping
        done, _ = await asyncio.wait({ping}, timeout=READY_WAIT_S)
        if not done:
            if self._ping is ping:
                self._ping = None
            return False
        return not ping.cancelled() and ping.exception() is None


def _seen(task: asyncio.Task[None]) -> None:
    """Look at an abandoned ping's exception, so that nothing complains that nobody did."""
    if not task.cancelled():
        task.exception()

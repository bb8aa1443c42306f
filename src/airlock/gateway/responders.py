"""Answers written as ASGI that are no plain JSON: those of older eras, and those that tell a client to wait.

Knows how an answer is written and that its client may leave; knows no method and no rule.
"""

from __future__ import annotations

import asyncio

from airlock.edge.asgi import Receive, Responder, Send, left, respond
from airlock.gateway import streams
from airlock.gateway.gate import Answer
from airlock.gateway.legacy.replies import Plain, Streaming

__all__ = ["later", "older"]


def older(answered: Plain | Streaming, left_s: float | None = None) -> Responder:
    """Return what writes an answer of the older eras. A stream ends after `left_s` seconds, None: by itself."""
    if isinstance(answered, Plain):
        plain = answered

        async def whole(_receive: Receive, send: Send) -> None:
            await respond(send, plain.status, plain.body, plain.content_type, plain.headers)

        return whole
    streaming = answered

    async def stream(receive: Receive, send: Send) -> None:
        headers = [*streams.HEADERS, *streaming.headers]
        await send({"type": "http.response.start", "status": streaming.status, "headers": headers})

        async def write(chunk: bytes) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        running = asyncio.ensure_future(streaming.run(write))
        leaving = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait({running, leaving}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            running.cancel()
            await asyncio.wait({running, leaving})
        await send({"type": "http.response.body", "body": b""})

    return stream


def later(answer: Answer) -> Responder:
    """Return what writes the answer to a client that is to wait first."""
    return older(Plain(answer.status, answer.body, ((b"retry-after", b"%d" % answer.retry_after_s),)))

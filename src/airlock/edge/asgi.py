"""Bare ASGI: the shapes of the three callables, reading a bounded body, sending one whole answer.

Knows ASGI messages; must not know what a request asks for or who asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

__all__ = [
    "App", "BodyTooLarge", "ClientGone", "Message", "Receive", "Responder", "Scope", "Send", "left", "read_body",
    "respond",
]  # fmt: skip

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Responder = Callable[[Receive, Send], Awaitable[None]]
"""Writes one answer whose request is read already: all that `receive` still tells is that the client left."""


class BodyTooLarge(Exception):
    """The body is longer than the limit, by its declared length or by the bytes that came."""


class ClientGone(Exception):
    """The client left before its body had arrived: there is nobody to answer."""


async def read_body(receive: Receive, limit: int, declared: int | None) -> bytes:
    """Read the whole body of at most `limit` bytes; exactly `limit` passes. `declared` is its Content-Length.

    Raises `BodyTooLarge` and `ClientGone`. SPEC: gateway.md 2, A1: a declared length over the limit is
    refused before a byte is read (so no `100 Continue` is sent), else the running total decides.
    """
    if declared is not None and declared > limit:
        raise BodyTooLarge
    message = await receive()
    if message["type"] != "http.request":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if len(body) > limit:
        raise BodyTooLarge
    if not message.get("more_body", False):
        return body
    parts, total = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        part: bytes = message.get("body", b"")
        total += len(part)
        # SECURITY: a body without a declared length would otherwise fill the memory before it is judged.
        if total > limit:
            raise BodyTooLarge
        parts.append(part)
    return b"".join(parts)


async def left(receive: Receive) -> None:
    """Return when the client has left, its body being read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = b"application/json",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Send one whole answer with its length. `headers` follow the two that this function writes."""
    lines = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})

"""What the legacy front hands to whoever writes HTTP: a whole answer, or an event stream still to be written.

Knows shapes and the JSON-RPC errors of this front; knows no session and no method. SPEC: mcp.md 8, 18.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from airlock.core.wire import jsonrpc
from airlock.gateway import body

__all__ = [
    "ACCEPTED",
    "NO_SESSION",
    "SESSION_UNKNOWN",
    "Plain",
    "Reply",
    "Streaming",
    "Write",
    "message",
    "refused",
]

SESSION_UNKNOWN: Final = -32001
"""The code of an unknown, ended or foreign session: the client must open a new one."""

NO_SESSION: Final = -32000
"""The code of a request that names no session and needs one."""

Write = Callable[[bytes], Awaitable[None]]
"""Takes the next bytes of a stream. Returns when there is room for more; ConnectionError: the client left."""


class Plain(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes = b"application/json"


class Streaming(msgspec.Struct, frozen=True):
    """An event stream: `run` writes it and returns at its end. `headers` are beyond those of every event stream.

    To cancel `run` is to say that the client left; what the stream is about goes on.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    run: Callable[[Write], Awaitable[None]]


Reply = Plain | Streaming

ACCEPTED: Final = Plain(202)


def message(value: object) -> Plain:
    """Return a JSON-RPC message as a whole answer. SPEC: mcp.md 18: its errors are 200 like its results."""
    return Plain(200, body.encode(value))


def refused(status: int, code: int, reason: str, request_id: object = None) -> Plain:
    """Return the refusal of a request at `status`."""
    return Plain(status, body.encode(jsonrpc.error(request_id, code, f"airlock: {reason}")))

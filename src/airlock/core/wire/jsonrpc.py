"""The envelopes of JSON-RPC: error codes, the HTTP status of each, answers, and what an id is.

Knows the shapes; does not know HTTP, methods or why a request was refused.
"""

from __future__ import annotations

from typing import Final

from airlock.core.wire import canon

__all__ = [
    "HEADER_MISMATCH",
    "INTERNAL",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE",
    "STATUS",
    "UNAUTHENTICATED",
    "UNSUPPORTED_VERSION",
    "error",
    "result",
    "same_id",
    "usable_id",
]

PARSE: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022
UNAUTHENTICATED: Final = -32011

STATUS: Final[dict[int, int]] = {
    PARSE: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
    UNAUTHENTICATED: 401,
    INTERNAL: 500,
}
"""HTTP status of an error code. SPEC: gateway.md 2.1. 413 (size) and 502 (upstream) are the sender's."""


def error(request_id: object, code: int, message: str, data: object = None) -> dict[str, object]:
    """Return an error answer; `data` is left out when it is None."""
    body: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def result(request_id: object, value: object) -> dict[str, object]:
    """Return a success answer."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def same_id(one: object, other: object) -> bool:
    """Tell whether two ids are equal by type and value: 1, 1.0, True and "1" are four different ids."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, dict)):
        return canon.text(one) == canon.text(other)
    return one == other


def usable_id(value: object) -> bool:
    """Tell whether a refusal may echo this id: a string, number or null. SPEC: gateway.md 2 (A5)."""
    return value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool))

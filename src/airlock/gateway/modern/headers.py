"""The routing headers of revision 2026-07-28: read in one pass, compared with the body, forwarded as sent.

Knows header names and the `=?base64?…?=` form; knows nothing of policy. SPEC: gateway.md 2.1, 3.1; mcp.md 6.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

import msgspec

__all__ = ["Inbound", "decode_name", "read"]

_SENTINEL = "=?base64?"


class Inbound(msgspec.Struct, frozen=True):
    """What the front needs from a request's headers. Values are raw bytes; None means absent.

    `doubled` names a routing header that appeared more than once; `forwarded` are the header lines that go
    upstream as the client sent them.
    """

    protocol_version: bytes | None
    mcp_method: bytes | None
    mcp_name: bytes | None
    traceparent: bytes | None
    tracestate: bytes | None
    content_length: int | None
    doubled: str | None
    forwarded: bytes


_VERSION, _METHOD, _NAME, _TYPE, _LENGTH, _PARENT, _STATE = range(7)
_SLOTS = {
    b"mcp-protocol-version": _VERSION,
    b"mcp-method": _METHOD,
    b"mcp-name": _NAME,
    b"content-type": _TYPE,
    b"content-length": _LENGTH,
    b"traceparent": _PARENT,
    b"tracestate": _STATE,
}
_ROUTING = {_VERSION: "MCP-Protocol-Version", _METHOD: "Mcp-Method", _NAME: "Mcp-Name"}
_SENT_AS = (b"mcp-protocol-version: ", b"mcp-method: ", b"mcp-name: ", b"content-type: ")
_M = ord("m")


def read(headers: Iterable[tuple[bytes, bytes]]) -> Inbound:
    """Collect the headers of one request; names are lower case as the server hands them over."""
    found: list[bytes | None] = [None] * len(_SLOTS)
    doubled = None
    lines: list[bytes] = []
    for name, value in headers:
        slot = _SLOTS.get(name)
        if slot is None:
            if name[0] == _M and name.startswith(b"mcp-param-"):
                lines.append(name + b": " + value + b"\r\n")
        elif found[slot] is None:
            found[slot] = value
            if slot <= _TYPE:
                lines.append(_SENT_AS[slot] + value + b"\r\n")
        elif slot in _ROUTING:
            doubled = _ROUTING[slot]
    version, method, name_, kind, length, parent, state = found
    if kind is None:
        lines.append(b"content-type: application/json\r\n")
    declared = int(length) if length is not None and length.isdigit() and len(length) < 20 else None
    return Inbound(version, method, name_, parent, state, declared, doubled, b"".join(lines))


def decode_name(value: bytes) -> str | None:
    """Decode an `Mcp-Name` value; None when it can match nothing (a malformed sentinel, or not UTF-8)."""
    try:
        text = value.decode("utf-8").strip(" \t")
    except UnicodeDecodeError:
        return None
    if not (text.endswith("?=") and text.startswith(_SENTINEL)):
        return text
    payload = text[len(_SENTINEL) : -2]
    try:
        raw = base64.b64decode(payload, validate=True)
        # SECURITY: two spellings of one name would let header and body readers disagree.
        return raw.decode("utf-8") if base64.b64encode(raw).decode("ascii") == payload else None
    except (binascii.Error, ValueError):
        return None

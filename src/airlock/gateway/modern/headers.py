"""The routing headers of revision 2026-07-28: which of them stand twice, what they say, what goes upstream.

Knows header names and the `=?base64?…?=` form; knows nothing of policy. SPEC: gateway.md 2.1, 3.1; mcp.md 6.
"""

from __future__ import annotations

import base64
import binascii

from airlock.edge.headers import Headers

__all__ = ["decode_name", "doubled", "forwarded"]

_SENTINEL = "=?base64?"


_ROUTING = {
    b"mcp-protocol-version": "MCP-Protocol-Version",
    b"mcp-method": "Mcp-Method",
    b"mcp-name": "Mcp-Name",
}
_PARAM = b"mcp-param-"
_USUAL = frozenset(
    (
        *_ROUTING, b"host", b"content-type", b"content-length", b"accept", b"accept-encoding", b"authorization",
        b"connection", b"user-agent", b"traceparent", b"tracestate",
    )
)  # fmt: skip
_FORWARDED = b"content-type: application/json\r\nmcp-protocol-version: %b\r\nmcp-method: %b\r\n"


def doubled(headers: Headers) -> str | None:
    """Name a routing header that stands more than once, if one does."""
    return next((_ROUTING[name] for name in _ROUTING if name in headers.doubled), None)


def forwarded(headers: Headers) -> bytes:
    """Return the header lines that go upstream: the routing headers as sent, and a content type of our own."""
    first = headers.first
    # SECURITY: the content type is ours, never the client's: another charset would let the upstream read another
    # call out of the same bytes. A request without the first two is refused before anything is sent.
    lines = _FORWARDED % (first.get(b"mcp-protocol-version", b""), first.get(b"mcp-method", b""))
    name = first.get(b"mcp-name")
    if name is not None:
        lines += b"mcp-name: " + name + b"\r\n"
    others = first.keys() - _USUAL
    if others and any(name.startswith(_PARAM) for name in others):
        lines += b"".join(b"%b: %b\r\n" % line for line in headers.lines if line[0].startswith(_PARAM))
    return lines


def decode_name(value: bytes) -> str | None:
    """Decode an `Mcp-Name` value; None when it can match nothing (a malformed sentinel, or not UTF-8)."""
    try:
        text = value.decode("utf-8").strip(" \t")
    except UnicodeDecodeError:
        return None
    if text[:9] != _SENTINEL or text[-2:] != "?=":
        return text
    payload = text[len(_SENTINEL) : -2]
    try:
        raw = base64.b64decode(payload, validate=True)
        # SECURITY: two spellings of one name would let header and body readers disagree.
        return raw.decode("utf-8") if base64.b64encode(raw).decode("ascii") == payload else None
    except (binascii.Error, ValueError):
        return None

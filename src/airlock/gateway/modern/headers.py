"""The routing headers of revision 2026-07-28: read in one pass, compared with the body, forwarded as sent.

Knows header names and the `=?base64?…?=` form; knows nothing of policy. SPEC: gateway.md 2.1, 3.1; mcp.md 6.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from airlock.edge.headers import Headers

__all__ = ["Inbound", "decode_name", "read"]

_SENTINEL = "=?base64?"


class Inbound(msgspec.Struct, frozen=True, gc=False):
    """What the front needs from a request's headers. Values are raw bytes; None means absent.

    `doubled` names a routing header that appeared more than once; `forwarded` are the header lines that go
    upstream: the routing headers as the client sent them, and a content type of our own.
    """

    protocol_version: bytes | None
    mcp_method: bytes | None
    mcp_name: bytes | None
    traceparent: bytes | None
    tracestate: bytes | None
    doubled: str | None
    forwarded: bytes


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


def read(headers: Headers) -> Inbound:
    """Collect what the front needs from the headers of one request."""
    first = headers.first
    doubled = None
    if headers.doubled:
        doubled = next((_ROUTING[name] for name in _ROUTING if name in headers.doubled), None)
    version, method, name = (
        first.get(b"mcp-protocol-version"),
        first.get(b"mcp-method"),
        first.get(b"mcp-name"),
    )
    # SECURITY: the content type is ours, never the client's: another charset would let the upstream read another
    # call out of the same bytes. A request without the first two is refused before anything is sent.
    forwarded = _FORWARDED % (version or b"", method or b"")
    if name is not None:
        forwarded += b"mcp-name: " + name + b"\r\n"
    if any(name.startswith(_PARAM) for name in first.keys() - _USUAL):
        forwarded += b"".join(b"%b: %b\r\n" % line for line in headers.lines if line[0].startswith(_PARAM))
    return Inbound(
        version,
        method,
        name,
        first.get(b"traceparent"),
        first.get(b"tracestate"),
        doubled,
        forwarded,
    )


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

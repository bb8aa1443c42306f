"""The routing headers of revision 2026-07-28: read in one pass, compared with the body, forwarded as sent.

Knows header names and the `=?base64?…?=` form; knows nothing of policy. SPEC: gateway.md 2.1, 3.1; mcp.md 6.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

__all__ = ["Inbound", "decode_name", "read"]

_SENTINEL = "=?base64?"


class Inbound:
    """What the front needs from a request's headers. Values are raw bytes; None means absent."""

    __slots__ = (
        "content_length",
        "content_type",
        "doubled",
        "forwarded",
        "mcp_method",
        "mcp_name",
        "protocol_version",
        "traceparent",
        "tracestate",
    )

    def __init__(self) -> None:
        self.content_length: int | None = None
        self.content_type: bytes | None = None
        self.protocol_version: bytes | None = None
        self.mcp_method: bytes | None = None
        self.mcp_name: bytes | None = None
        self.traceparent: bytes | None = None
        self.tracestate: bytes | None = None
        self.doubled: str | None = None
        self.forwarded = b""


def read(headers: Iterable[tuple[bytes, bytes]]) -> Inbound:
    """Collect the headers of one request; names are lower case as the server hands them over.

    `forwarded` becomes the block of header lines that go upstream as the client sent them.
    """
    found = Inbound()
    lines: list[bytes] = []
    for name, value in headers:
        if name == b"mcp-protocol-version":
            if found.protocol_version is not None:
                found.doubled = "MCP-Protocol-Version"
            found.protocol_version = value
        elif name == b"mcp-method":
            if found.mcp_method is not None:
                found.doubled = "Mcp-Method"
            found.mcp_method = value
        elif name == b"mcp-name":
            if found.mcp_name is not None:
                found.doubled = "Mcp-Name"
            found.mcp_name = value
        elif name == b"content-type":
            if found.content_type is not None:
                continue
            found.content_type = value
        elif name == b"content-length":
            found.content_length = int(value) if value.isdigit() and len(value) < 20 else None
            continue
        elif name == b"traceparent":
            found.traceparent = value
            continue
        elif name == b"tracestate":
            found.tracestate = value
            continue
        elif not name.startswith(b"mcp-param-"):
            continue
        lines.append(name + b": " + value + b"\r\n")
    if found.content_type is None:
        lines.append(b"content-type: application/json\r\n")
    found.forwarded = b"".join(lines)
    return found


def decode_name(value: bytes) -> str | None:
    """Decode an `Mcp-Name` value; None when it can match nothing (a malformed sentinel, or not UTF-8)."""
    try:
        text = value.strip(b" \t").decode("utf-8")
    except UnicodeDecodeError:
        return None
    if not (text.startswith(_SENTINEL) and text.endswith("?=")):
        return text
    payload = text[len(_SENTINEL) : -2]
    try:
        raw = base64.b64decode(payload, validate=True)
        # SECURITY: two spellings of one name would let header and body readers disagree.
        return raw.decode("utf-8") if base64.b64encode(raw).decode("ascii") == payload else None
    except (binascii.Error, ValueError):
        return None

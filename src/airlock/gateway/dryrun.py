"""Forcing `dry_run`: in the arguments, and in the header that mirrors it.

Pure; which value to force is the decision's. SPEC: gateway.md 3.4.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["DryRun", "declared", "forced", "mirrored"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class DryRun(msgspec.Struct, frozen=True):
    """Whether a tool declares `dry_run`, and the `Mcp-Param-*` token that mirrors it (None: no mirror)."""

    declared: bool
    mirror: str | None = None


def declared(tool: dict[str, object]) -> DryRun:
    """Read a listed tool's `inputSchema`. A mirror that is not a header token is ignored.

    SECURITY: the token becomes a header name; anything but a token could split the request.
    """
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or "dry_run" not in properties:
        return DryRun(declared=False)
    prop = properties["dry_run"]
    token = prop.get("x-mcp-header") if isinstance(prop, dict) else None
    usable = isinstance(token, str) and _TOKEN.fullmatch(token) is not None
    return DryRun(declared=True, mirror=token if usable else None)


def forced(arguments: dict[str, object], *, value: bool) -> dict[str, object]:
    """Return a copy of `arguments` with `dry_run` set."""
    return {**arguments, "dry_run": value}


def mirrored(headers: bytes, token: str, *, value: bool) -> bytes:
    """Return the header block with `Mcp-Param-<token>` set to `value`, whatever the client sent there."""
    name = b"mcp-param-" + token.lower().encode("ascii")
    kept = [line for line in headers.split(b"\r\n") if line and line.partition(b":")[0].lower() != name]
    kept.append(b"Mcp-Param-" + token.encode("ascii") + (b": true" if value else b": false"))
    return b"\r\n".join(kept) + b"\r\n"

"""Which requests may come to the endpoint at all: Host, Origin, media types; and which era a request belongs to.

Knows header lines and the rules of mcp.md 5 (steps 2 and 3) and 19; the body is looked at only to tell the era.
"""

from __future__ import annotations

from ipaddress import ip_address

import msgspec

from airlock.core.rules import protocol_rule
from airlock.core.wire import jsonrpc
from airlock.edge.headers import Headers
from airlock.gateway.eras import Era
from airlock.gateway.modern.admission import REVISION, Refusal

__all__ = ["LEGACY_VERSIONS", "Door", "era_of", "is_loopback", "loopback_hosts"]

LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
_VERSION = "io.modelcontextprotocol/protocolVersion"
_MODERN = REVISION.encode("ascii")
_OLD = frozenset(version.encode("ascii") for version in LEGACY_VERSIONS)
_JSON = b"application/json"
_BOTH = frozenset({
    b"application/json, text/event-stream",
    b"text/event-stream, application/json",
    b"application/json,text/event-stream",
    b"*/*",
})  # fmt: skip


def loopback_hosts(port: int) -> frozenset[bytes]:
    """The Host values of a listener on loopback: a name that resolves to it elsewhere is not among them."""
    names = ("localhost", "127.0.0.1", "[::1]")
    return frozenset(text.encode("ascii") for name in names for text in (name, f"{name}:{port}"))


class Door(msgspec.Struct, frozen=True):
    """What is let in. `hosts` and `origins` are exact values in lower case, None: whatever comes.

    `kinds`: refuse a body that is not JSON (415) and a modern client that does not take both answers (406).
    """

    hosts: frozenset[bytes] | None = None
    origins: frozenset[bytes] | None = None
    kinds: bool = False

    def refused(self, lines: Headers) -> Refusal | None:
        """Return why a POST goes no further, or None."""
        first = lines.first
        problem = self.foreign(lines)
        if problem is not None:
            return problem
        if not self.kinds:
            return None
        kind = first.get(b"content-type", b"")
        if kind != _JSON and kind.partition(b";")[0].strip().lower() != _JSON:
            return _refusal(415, "the body must be application/json")
        accept = first.get(b"accept", b"")
        # Clients of the older era may take JSON alone; their front looks at it.
        modern = first.get(b"mcp-protocol-version") == _MODERN
        if modern and accept not in _BOTH and not _takes_both(lines):
            return _refusal(406, "Accept must allow application/json and text/event-stream")
        return None

    def foreign(self, lines: Headers) -> Refusal | None:
        """Return the refusal of a request that a page of another site may have sent, or None."""
        first = lines.first
        # SECURITY: a browser on this machine can be sent here under any name that resolves to loopback; it tells
        # that name in Host and the page in Origin.
        if self.hosts is not None and first.get(b"host", b"").lower() not in self.hosts:
            return _refusal(403, "this Host is not served; AIRLOCK_ALLOWED_HOSTS names those that are")
        if (
            self.origins is not None
            and b"origin" in first
            and not self._known_origin(first[b"origin"].lower())
        ):
            return _refusal(403, "this Origin is not served; AIRLOCK_ALLOWED_ORIGINS names those that are")
        return None

    def _known_origin(self, origin: bytes) -> bool:
        assert self.origins is not None
        if origin in self.origins:
            return True
        # An origin of the listener itself: the same name and port as Host, which was checked.
        return self.hosts is not None and origin.partition(b"://")[2] in self.hosts


def _takes_both(lines: Headers) -> bool:
    """Tell whether the Accept lines allow both media types. A missing Accept allows nothing."""
    ranges = {
        entry.partition(b";")[0].strip().lower()
        for name, value in lines.lines
        if name == b"accept"
        for entry in value.split(b",")
    }
    json = ranges & {b"*/*", b"application/*", _JSON}
    stream = ranges & {b"*/*", b"text/*", b"text/event-stream"}
    return bool(json and stream)


def era_of(lines: Headers, message: object) -> Era:
    """Tell to which era one parsed POST belongs. SPEC: mcp.md 19, front, per request."""
    said = lines.first.get(b"mcp-protocol-version", b"").strip(b" \t")
    method, params, meta = None, None, None
    if isinstance(message, dict):
        method, params = message.get("method"), message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
    # 1: an unknown version of the future is for the modern ladder, which says what is served.
    if said and said not in _OLD and (said >= _MODERN or not _is_date(said)):
        return Era.MODERN
    if (isinstance(meta, dict) and _VERSION in meta) or method == "server/discover":
        return Era.MODERN
    return Era.LEGACY


def _is_date(said: bytes) -> bool:
    return len(said) == 10 and said[4:5] == b"-" == said[7:8] and said.replace(b"-", b"").isdigit()


def is_loopback(host: str) -> bool:
    """Tell whether a listen address is one of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(status: int, reason: str) -> Refusal:
    return Refusal(status, jsonrpc.INVALID_REQUEST, protocol_rule(jsonrpc.INVALID_REQUEST), reason)

"""Requests of the older eras as requests of revision 2026-07-28: envelope, routing headers, nothing forged.

Pure. Knows both forms of a request; decides nothing. SPEC: mcp.md 3, 6, 20a.
"""

from __future__ import annotations

import base64
from typing import Final

from airlock.edge.headers import Headers
from airlock.gateway.eras import Era, Heard
from airlock.gateway.legacy.sessions import Session
from airlock.gateway.modern.admission import REVISION, Request

__all__ = ["TOKEN", "discover", "listen", "modern", "routing"]

TOKEN: Final = "progressToken"  # noqa: S105 - the member's name
_RESERVED: Final = "io.modelcontextprotocol/"
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATE: Final = ("requestState", "inputResponses")
_SENTINEL: Final = "=?base64?"


def modern(
    session: Session,
    request_id: object,
    method: str,
    params: dict[str, object],
    *,
    token: str | None = None,
    heard: Heard | None = None,
    answers: dict[str, object] | None = None,
) -> Request:
    """Return a request of `session` as the inside takes it.

    `token` stands in for the client's progress token. `answers` are `requestState` and `inputResponses` of a
    round of ours: a client of these eras has none.
    """
    meta = _meta(session, params.get("_meta"), token)
    # SECURITY: a state in a legacy client's own parameters was never given to it by us.
    inner = {key: value for key, value in params.items() if key not in _STATE}
    inner["_meta"] = meta
    if answers is not None:
        inner.update(answers)
    called = method == "tools/call"
    arguments = params.get("arguments") if called else None
    return Request(
        request_id,
        method,
        inner,
        meta,
        REVISION,
        str(params["name"]) if called else None,
        arguments if isinstance(arguments, dict) else {},
        routing(method, params.get(_NAMED.get(method, ""))),
        Era.LEGACY,
        heard,
    )


def discover(session: Session, request_id: object, meta: object) -> Request:
    """Return the `server/discover` that answers a session's `initialize`."""
    return modern(session, request_id, "server/discover", {"_meta": meta})


def listen(
    session: Session, request_id: str, kinds: tuple[str, ...], uris: list[str], heard: Heard
) -> Request:
    """Return the `subscriptions/listen` that brings a session its notifications."""
    wanted: dict[str, object] = dict.fromkeys(kinds, True)
    if uris:
        wanted["resourceSubscriptions"] = uris
    return modern(session, request_id, "subscriptions/listen", {"notifications": wanted}, heard=heard)


def routing(method: str, name: object) -> Headers:
    """Return the headers that a client of the revision would send. `method` is one of ours, never a client's."""
    lines = [(b"mcp-protocol-version", REVISION.encode("ascii")), (b"mcp-method", method.encode("ascii"))]
    if isinstance(name, str):
        lines.append((b"mcp-name", _encoded(name)))
    return Headers(lines)


def _meta(session: Session, sent: object, token: str | None) -> dict[str, object]:
    # SECURITY: the envelope is the session's: a client must not declare in passing what its session did not.
    meta: dict[str, object] = {
        key: value
        for key, value in (sent if isinstance(sent, dict) else {}).items()
        if not key.startswith(_RESERVED) and key != TOKEN
    }
    meta[_RESERVED + "protocolVersion"] = REVISION
    meta[_RESERVED + "clientCapabilities"] = session.capabilities
    if session.client_info is not None:
        meta[_RESERVED + "clientInfo"] = session.client_info
    if session.log_level is not None:
        meta[_RESERVED + "logLevel"] = session.log_level
    if token is not None:
        meta[TOKEN] = token
    return meta


def _encoded(name: str) -> bytes:
    """SPEC: mcp.md 6: plain where it can be read back as it is, else the base64 form."""
    shaped = name.startswith(_SENTINEL) and name.endswith("?=")
    if name.isascii() and name.isprintable() and name == name.strip(" ") and not shaped:
        return name.encode("ascii")
    return b"=?base64?" + base64.b64encode(name.encode("utf-8", "surrogatepass")) + b"?="

"""What one message of an older era is: header lines and shapes judged, before any session or method is looked up.

Pure. Knows the rules of mcp.md 2, 5 (step 3) and 18; every refusal is a value. Knows no session.
"""

from __future__ import annotations

from typing import Final

import msgspec

from airlock.core.wire import jsonrpc
from airlock.edge.headers import Headers
from airlock.gateway.door import LEGACY_VERSIONS

__all__ = [
    "MOST_IN_A_BATCH",
    "Answered",
    "Bad",
    "Call",
    "Notice",
    "classify",
    "faulty_call",
    "faulty_level",
    "faulty_uri",
    "faulty_version",
    "session_id",
    "status_of",
    "takes",
]

_LEVELS: Final = frozenset(("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"))

# LIMIT: of one batch. More elements than this are refused together.
MOST_IN_A_BATCH: Final = 64

# LIMIT: of a resource that is subscribed to, since it is kept.
_MOST_URI_CHARS: Final = 2048

_ANYTHING: Final = frozenset(
    (None, b"*/*", b"application/json, text/event-stream", b"text/event-stream, application/json")
)
_VERSIONS: Final = frozenset(version.encode("ascii") for version in LEGACY_VERSIONS)
_TASK: Final = "tasks are not served here: leave out params.task"
_TEXT_PARAM: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Call(msgspec.Struct, frozen=True):
    """A request. `params` is the client's own mapping, empty when it sent none."""

    id: str | int
    method: str
    params: dict[str, object]


class Notice(msgspec.Struct, frozen=True):
    """A notification. `params` is empty when it had none of use."""

    method: str
    params: dict[str, object]


class Answered(msgspec.Struct, frozen=True):
    """The client's response to a request of ours: its result, or None for an error or what is no object."""

    id: object
    result: dict[str, object] | None
    error: str = ""


class Bad(msgspec.Struct, frozen=True):
    """What is no message, or a request that goes no further. `id` is the one to answer with."""

    code: int
    reason: str
    id: object = None
    method: str | None = None


def classify(message: object) -> Call | Notice | Answered | Bad:
    """Tell what a parsed message is. SPEC: mcp.md 2: a request is what has an `id`, whatever the id is."""
    if not isinstance(message, dict):
        return _no_message("the body must be one JSON-RPC message")
    if "method" not in message:
        return _response(message)
    method = message["method"]
    if not isinstance(method, str):
        return _no_message("the method must be a string", message.get("id"))
    params = message.get("params")
    if "id" not in message:
        return Notice(method, params if isinstance(params, dict) else {})
    request_id = message["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        return _no_message("the id must be a string or an integer", request_id, method)
    if params is not None and not isinstance(params, dict):
        return Bad(jsonrpc.INVALID_PARAMS, "params must be an object", request_id, method)
    return Call(request_id, method, params or {})


def faulty_call(call: Call) -> Bad | None:
    """Return what is wrong with the parameters of a request that will be governed, or None."""
    params = call.params
    reason = None
    named = _TEXT_PARAM.get(call.method)
    meta = params.get("_meta")
    if "task" in params:
        reason = _TASK
    elif named is not None and not isinstance(params.get(named), str):
        reason = f"{call.method} needs a string {named}"
    elif call.method == "tools/call" and not isinstance(params.get("arguments"), dict | None):
        reason = "the arguments must be an object"
    elif meta is not None and not isinstance(meta, dict):
        reason = "params._meta must be an object"
    elif isinstance(meta, dict) and "progressToken" in meta and not _usable_token(meta["progressToken"]):
        reason = "the progressToken must be a string or an integer"
    return None if reason is None else Bad(jsonrpc.INVALID_PARAMS, reason, call.id, call.method)


def faulty_level(call: Call) -> Bad | None:
    """Return what is wrong with a `logging/setLevel`, or None."""
    level = call.params.get("level")
    if isinstance(level, str) and level in _LEVELS:
        return None
    return Bad(jsonrpc.INVALID_PARAMS, "this log level is not known", call.id, call.method)


def faulty_uri(call: Call) -> Bad | None:
    """Return what is wrong with a `resources/subscribe` or `resources/unsubscribe`, or None."""
    uri = call.params.get("uri")
    if isinstance(uri, str) and len(uri) <= _MOST_URI_CHARS:
        return None
    return Bad(jsonrpc.INVALID_PARAMS, f"{call.method} needs a string uri", call.id, call.method)


def status_of(bad: Bad) -> int:
    """SPEC: mcp.md 18: errors are 200, but for what is no message at all."""
    return 400 if bad.code == jsonrpc.INVALID_REQUEST else 200


def faulty_version(lines: Headers) -> bool:
    """Tell whether the request names a revision that this front does not serve. None at all is fine.

    SPEC: mcp.md 18: any served one is, even when it is not the session's.
    """
    said = lines.first.get(b"mcp-protocol-version")
    return said is not None and said.strip(b" \t") not in _VERSIONS


def session_id(lines: Headers) -> str | None:
    """Return the session that the request names; None for none, or for several."""
    said = lines.first.get(b"mcp-session-id")
    if said is None or b"mcp-session-id" in lines.doubled:
        return None
    return said.strip(b" \t").decode("latin-1")


def takes(lines: Headers, kind: bytes) -> bool:
    """Tell whether the Accept lines allow a media type. A request without one allows everything."""
    if lines.first.get(b"accept") in _ANYTHING:
        return True
    ranges = {
        part.partition(b";")[0].strip(b" \t").lower()
        for name, value in lines.lines
        if name == b"accept"
        for part in value.split(b",")
    }
    return not ranges.isdisjoint({kind, kind.partition(b"/")[0] + b"/*", b"*/*"})


def _response(message: dict[str, object]) -> Answered | Bad:
    if ("result" in message) == ("error" in message) or "id" not in message:
        return _no_message("the body is no request, no notification and no response")
    result, error = message.get("result"), message.get("error")
    told = error.get("message") if isinstance(error, dict) else None
    return Answered(
        message["id"], result if isinstance(result, dict) else None, told if isinstance(told, str) else ""
    )


def _no_message(reason: str, request_id: object = None, method: str | None = None) -> Bad:
    return Bad(jsonrpc.INVALID_REQUEST, reason, request_id if jsonrpc.usable_id(request_id) else None, method)


def _usable_token(token: object) -> bool:
    return isinstance(token, str | int) and not isinstance(token, bool)

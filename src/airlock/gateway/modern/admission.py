"""Admission of one POST: from bytes and headers to a request, or to a refusal with its code and status.

Pure: it knows the ladder A3-A11 of gateway.md 2; identity (A2, A12) and the size limit (A1) are the caller's.
"""

from __future__ import annotations

import msgspec

from airlock.core.rules import Rule, protocol_rule
from airlock.core.wire import jsonrpc
from airlock.core.wire.strict import StrictError
from airlock.edge.headers import Headers
from airlock.gateway import body
from airlock.gateway.eras import Era, Heard
from airlock.gateway.modern.headers import decode_name, doubled

__all__ = [
    "LEVELS",
    "LOG_LEVEL",
    "METHODS",
    "REVISION",
    "Refusal",
    "Request",
    "admit",
    "faulty_wish",
    "oversized",
    "unauthenticated",
]

REVISION = "2026-07-28"
_REVISION = REVISION.encode("ascii")
_CALL = "tools/call"
_CALL_BYTES = _CALL.encode("ascii")
METHODS = frozenset({"tools/call", "tools/list", "server/discover"})

_VERSION = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
LEVELS = frozenset(("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"))
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Request(msgspec.Struct, frozen=True, gc=False):
    """An admitted request. `params` is the client's own mapping, never changed in place.

    `name` and `arguments` are those of a `tools/call`, else None and empty. `era` is the family that the client
    speaks; `heard` takes what the upstream says before its answer (None: the client asked for nothing of it).
    """

    id: object
    method: str
    params: dict[str, object]
    meta: dict[str, object]
    version: str
    name: str | None
    arguments: dict[str, object]
    headers: Headers
    era: Era = Era.MODERN
    heard: Heard | None = None


class Refusal(msgspec.Struct, frozen=True):
    """A request that goes no further: what the client gets, and what the audit says of it.

    `method` and `tool` are what could be read so far (uncut), None before that.
    """

    status: int
    code: int
    rule: str
    reason: str
    id: object = None
    data: dict[str, object] | None = None
    method: str | None = None
    tool: str | None = None


def oversized(limit: int) -> Refusal:
    """A1: the body is over the limit."""
    return Refusal(
        413, jsonrpc.INVALID_REQUEST, Rule.REQUEST_TOO_LARGE, f"the request body is over {limit} bytes"
    )


def unauthenticated(request_id: object, method: str | None, tool: str | None) -> Refusal:
    """A12: nobody is known to be asking."""
    return Refusal(
        401,
        jsonrpc.UNAUTHENTICATED,
        Rule.PRINCIPAL_MISSING,
        "no principal: send a valid bearer token",
        request_id,
        None,
        method,
        tool,
    )


def admit(raw: bytes, headers: Headers, methods: frozenset[str] = METHODS) -> Request | Refusal:
    """Walk the ladder; the first rule that fails answers. `methods` are those that are served."""
    # A3: strict JSON.
    try:
        message, too_deep = body.decode_request(raw)
    except StrictError as error:
        return _refuse(jsonrpc.PARSE, f"the body is not strict JSON: {error}")
    # A4: one request, not a batch, a notification or a response.
    if not isinstance(message, dict) or "id" not in message or not isinstance(message.get("method"), str):
        return _refuse(
            jsonrpc.INVALID_REQUEST, "the body must be one JSON-RPC request with an id and a method"
        )
    request_id = message["id"]
    if type(request_id) is not int and not jsonrpc.usable_id(request_id):
        return _refuse(jsonrpc.INVALID_REQUEST, "the id must be a string or a number")
    # A5: nesting.
    if too_deep:
        return _refuse(jsonrpc.INVALID_REQUEST, "the body is nested deeper than 64 levels", request_id)
    method: str = message["method"]
    params = message.get("params")
    return _routed(request_id, method, params if isinstance(params, dict) else {}, headers, methods)


def _routed(
    request_id: object, method: str, params: dict[str, object], headers: Headers, methods: frozenset[str]
) -> Request | Refusal:
    """A6-A11: headers, envelope, revision, method, parameters."""
    tool = params.get("name") if method == "tools/call" else None
    seen = tool if isinstance(tool, str) else None
    # A6: a routing header that appears twice.
    twice = doubled(headers) if headers.doubled else None
    if twice is not None:
        reason = f"the {twice} header appears more than once"
        return _refuse(jsonrpc.HEADER_MISMATCH, reason, request_id, method, seen)
    # A7: the envelope.
    meta = params.get("_meta")
    if not isinstance(meta, dict) or _VERSION not in meta or _CAPABILITIES not in meta:
        reason = f"params._meta must hold {_VERSION} and {_CAPABILITIES}"
        return _refuse(jsonrpc.INVALID_PARAMS, reason, request_id, method, seen)
    # A8: headers and body agree.
    version = meta[_VERSION]
    problem = _disagreement(method, params, version, headers.first)
    if problem is not None:
        return _refuse(jsonrpc.HEADER_MISMATCH, problem, request_id, method, seen)
    # A9: the revision.
    if not isinstance(version, str):
        reason = "the protocol version must be a string"
        return _refuse(jsonrpc.INVALID_PARAMS, reason, request_id, method, seen)
    if version != REVISION:
        data: dict[str, object] = {"supported": [REVISION], "requested": version}
        reason = f"this protocol version is not served; {REVISION} is"
        return _refuse(jsonrpc.UNSUPPORTED_VERSION, reason, request_id, method, seen, data)
    # A10: the method.
    if method not in methods:
        return _refuse(jsonrpc.METHOD_NOT_FOUND, "this method is not served", request_id, method, seen)
    if method != "tools/call":
        return Request(request_id, method, params, meta, version, None, {}, headers)
    # A11: the call's parameters.
    arguments = params.get("arguments")
    if seen is None or not (arguments is None or isinstance(arguments, dict)):
        reason = "tools/call needs a string name and an object of arguments"
        return _refuse(jsonrpc.INVALID_PARAMS, reason, request_id, method)
    return Request(request_id, method, params, meta, version, seen, arguments or {}, headers)


def _disagreement(
    method: str, params: dict[str, object], version: object, first: dict[bytes, bytes]
) -> str | None:
    """SPEC: gateway.md 2.1, in its order. Header values are compared without surrounding blanks."""
    # What agrees byte for byte, as with every honest client, is not looked at more closely.
    said = first.get(b"mcp-protocol-version")
    if (said != _REVISION or version != REVISION) and (said is None or _text(said) != version):
        return "the MCP-Protocol-Version header must equal the version in params._meta"
    said = first.get(b"mcp-method")
    if (said != _CALL_BYTES or method != _CALL) and (said is None or _text(said) != method):
        return "the Mcp-Method header must equal the method"
    field = _NAMED.get(method)
    named = params.get(field) if field is not None else None
    if named is not None:
        said = first.get(b"mcp-name")
        if said is None or decode_name(said) != named:
            return f"the Mcp-Name header must equal params.{field}"
    return None


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("latin-1")


def _refuse(
    code: int,
    reason: str,
    request_id: object = None,
    method: str | None = None,
    tool: str | None = None,
    data: dict[str, object] | None = None,
) -> Refusal:
    return Refusal(jsonrpc.STATUS[code], code, protocol_rule(code), reason, request_id, data, method, tool)


def faulty_wish(request: Request) -> Refusal | None:
    """Return the refusal of a request that says wrongly what it wants to hear before its answer. SPEC: mcp.md 3."""
    token, level = request.meta.get("progressToken", ""), request.meta.get(LOG_LEVEL, "info")
    if isinstance(token, bool) or not isinstance(token, str | int):
        reason = "the progressToken must be a string or an integer"
    elif not isinstance(level, str) or level not in LEVELS:
        reason = "this log level is not known"
    else:
        return None
    return _refuse(jsonrpc.INVALID_PARAMS, reason, request.id, request.method, request.name)

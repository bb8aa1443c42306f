"""Answers and notifications of revision 2026-07-28 as the older eras say them.

Pure; changes what it is given in place. Knows both forms; decides nothing. SPEC: mcp.md 7, 8, 13, 20a.
"""

from __future__ import annotations

from typing import Final

from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line
from airlock.core.wire import jsonrpc
from airlock.gateway import meta

__all__ = ["announced", "during_call", "error_of", "response", "tool_error"]

_RESERVED: Final = "io.modelcontextprotocol/"
_ONLY_MODERN: Final = ("resultType", "ttlMs", "cacheScope")
_RESOURCE_NOT_FOUND: Final = -32002
_MISSING_CAPABILITY: Final = -32021
_LINKS_SINCE: Final = "2025-06-18"
_SHOWN_CHARS: Final = 200

_OF_A_CALL: Final = frozenset(("notifications/progress", "notifications/message"))
_CHANGES: Final = frozenset(
    (
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    )
)


def response(message: dict[str, object], request_id: object, method: str, version: str) -> dict[str, object]:
    """Return the response to `request_id` of a client of `version`, given what the inside answered."""
    result = message.get("result")
    if isinstance(result, dict):
        return jsonrpc.result(request_id, _result(result, method, version))
    error = message.get("error")
    return _failure(error if isinstance(error, dict) else {}, request_id, method)


def tool_error(text: str, own: dict[str, object] | None = None) -> dict[str, object]:
    """Return the result of a tool call that says why it did not run. `own` are keys of ours for its `_meta`."""
    result: dict[str, object] = {"content": [{"type": "text", "text": f"airlock: {text}"}], "isError": True}
    if own:
        result["_meta"] = own
    return result


def error_of(method: str, text: str, own: dict[str, object] | None = None) -> dict[str, object]:
    """Return the message that settles a request of `method` without it having run, before its id is set."""
    if method == "tools/call":
        return {"result": tool_error(text, own)}
    return {"error": {"code": jsonrpc.INTERNAL, "message": f"airlock: {text}"}}


def announced(message: dict[str, object]) -> dict[str, object] | None:
    """Return a notification of a subscription as it is pushed unasked, or None for one that is not."""
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str) or method not in _CHANGES:
        return None
    told: dict[str, object] = {"jsonrpc": "2.0", "method": method}
    if isinstance(params, dict) and (rest := _told(params)):
        told["params"] = rest
    return told


def during_call(message: dict[str, object]) -> tuple[str, dict[str, object]] | None:
    """Return method and parameters of a notification that may be passed on during a call, or None for another."""
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str) or method not in _OF_A_CALL or not isinstance(params, dict):
        return None
    return method, _told(params)


def _told(params: dict[str, object]) -> dict[str, object]:
    """Copy the parameters of a notification, without keys of the newer revision or of the gateway in `_meta`.

    A copy, since one notification may be told to many.
    """
    own = params.get("_meta")
    if not isinstance(own, dict):
        return params.copy()
    kept = {key: value for key, value in own.items() if not key.startswith((_RESERVED, meta.PREFIX))}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def _result(result: dict[str, object], method: str, version: str) -> dict[str, object]:
    for member in _ONLY_MODERN:
        result.pop(member, None)
    if "_meta" in result:
        _unmarked(result)
    if method == "tools/call":
        if "structuredContent" in result and not isinstance(result["structuredContent"], dict):
            del result["structuredContent"]
        if version < _LINKS_SINCE:
            _without_links(result.get("content"))
    elif method == "tools/list":
        _object_schemas(result.get("tools"))
    return result


def _unmarked(holder: dict[str, object]) -> None:
    """Take the keys of the newer revision out of `_meta`, and `_meta` with them when it held nothing else."""
    own = holder["_meta"]
    if isinstance(own, dict):
        own.pop(_RESERVED + "serverInfo", None)
        if not own:
            del holder["_meta"]


def _object_schemas(tools: object) -> None:
    """Drop output schemas that are not of an object: a client of these eras refuses the whole list over one."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and "outputSchema" in tool:
            schema = tool["outputSchema"]
            if not (isinstance(schema, dict) and schema.get("type") == "object"):
                del tool["outputSchema"]


def _without_links(content: object) -> None:
    """Say resource links in words: 2025-03-26 has no such block."""
    for place, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict) and block.get("type") == "resource_link":
            name, uri = block.get("name"), block.get("uri")
            content[place] = {"type": "text", "text": f"{name}: {uri}"}  # type: ignore[index]


def _failure(error: dict[str, object], request_id: object, method: str) -> dict[str, object]:
    code, told, data = error.get("code"), error.get("message"), error.get("data")
    text = told if isinstance(told, str) else "airlock: internal error"
    if (
        code == jsonrpc.INVALID_PARAMS
        and method == "resources/read"
        and isinstance(data, dict)
        and "uri" in data
    ):
        return jsonrpc.error(request_id, _RESOURCE_NOT_FOUND, text, data)
    if code == _MISSING_CAPABILITY:
        lacking = error_of(method, f"the server needs what this client did not declare: {_names(data)}")
        return {"jsonrpc": "2.0", "id": request_id, **lacking}
    if code in (jsonrpc.HEADER_MISMATCH, jsonrpc.UNSUPPORTED_VERSION):
        # These say what a client of the newer revision did wrong: here it is between the gateway and the server.
        return jsonrpc.error(request_id, jsonrpc.INTERNAL, f"airlock: the server refused the gateway: {text}")
    return jsonrpc.error(request_id, code if isinstance(code, int) else jsonrpc.INTERNAL, text, data)


def _names(data: object) -> str:
    required = data.get("requiredCapabilities") if isinstance(data, dict) else None
    names = ", ".join(required) if isinstance(required, dict) else ""
    return cut(one_line(names or "a capability"), _SHOWN_CHARS, "...")

"""What a request, an answer, a question or a capability of one family of revisions is in the other.

Pure: knows shapes and versions; does not know connections, ids, time or who asks.
SPEC: mcp.md 1, 3, 4, 7, 8, 11, 20b.
"""

from __future__ import annotations

from typing import Final

from airlock.core.wire import jsonrpc

__all__ = [
    "ASKING",
    "LATEST",
    "LEVELS",
    "METHODS",
    "URL_NEEDED",
    "VERSIONS",
    "capabilities",
    "declared",
    "discovered",
    "error",
    "level",
    "may_show_pages",
    "objection",
    "pages",
    "question",
    "request_params",
    "result",
    "server_info",
    "status",
]

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions that open with `initialize`, the newest first."""

LATEST: Final = VERSIONS[0]

ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose answer may be a question."""

_CACHED: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "resources/read",
    }
)

METHODS: Final = ASKING | (_CACHED - {"server/discover"}) | {"completion/complete"}
"""The methods that are the same request in both families."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_MODERN = "2026-07-28"
_FORMS_SINCE = "2025-06-18"
_MODES_SINCE = "2025-11-25"

_OURS = "io.modelcontextprotocol/"
_CLIENT_CAPABILITIES = _OURS + "clientCapabilities"
_LOG_LEVEL = _OURS + "logLevel"
_SERVER_INFO = _OURS + "serverInfo"
_ENVELOPE = frozenset(
    {_OURS + "protocolVersion", _CLIENT_CAPABILITIES, _OURS + "clientInfo", _LOG_LEVEL},
)
# `task` would start a task of 2025-11-25, which nobody here polls (mcp.md 14: tolerated and ignored).
_NOT_LEGACY = frozenset({"_meta", "inputResponses", "requestState", "task"})

_NOT_FOUND: Final = -32002
URL_NEEDED: Final = -32042
"""2025-11-25: a person must open a page before this request can be served."""

_UNDECLARED: Final = -32021
_NOT_A_STATUS = frozenset({jsonrpc.INTERNAL, jsonrpc.UNAUTHENTICATED})

_ELICIT, _SAMPLE, _ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"

# LIMIT: pages that one error may ask a person to open.
_MAX_PAGES = 16


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


# The client's side: what goes to the server.


def request_params(params: dict[str, object]) -> dict[str, object]:
    """Return the params of a modern request as a legacy server takes them: without the envelope and the states."""
    own = {key: value for key, value in params.items() if key not in _NOT_LEGACY}
    meta = {key: value for key, value in _dict(params.get("_meta")).items() if key not in _ENVELOPE}
    if meta:
        own["_meta"] = meta
    return own


def declared(params: dict[str, object]) -> dict[str, object]:
    """Return the capabilities that the client of a modern request declares on it."""
    return _dict(_dict(params.get("_meta")).get(_CLIENT_CAPABILITIES))


def level(params: dict[str, object]) -> int | None:
    """Return the lowest level of log messages that a modern request asks for, as its place in `LEVELS`."""
    wanted = _dict(params.get("_meta")).get(_LOG_LEVEL)
    return LEVELS.index(wanted) if isinstance(wanted, str) and wanted in LEVELS else None


def capabilities(client: dict[str, object], version: str = LATEST) -> dict[str, object]:
    """Return what `initialize` offering `version` declares for a client of these modern capabilities.

    Only what is bridged: elicitation, sampling and roots, with nothing in them that varies. So two clients of equal
    abilities give equal values.
    """
    own: dict[str, object] = {}
    elicitation = client.get("elicitation")
    if isinstance(elicitation, dict):
        url = isinstance(elicitation.get("url"), dict) and version >= _MODES_SINCE
        # SPEC: mcp.md 4: an empty object means forms only; that is also how 2025-06-18 writes it.
        form = isinstance(elicitation.get("form"), dict) or not elicitation
        if form and version >= _FORMS_SINCE:
            own["elicitation"] = {"form": {}, "url": {}} if url else {}
        elif url:
            own["elicitation"] = {"url": {}}
    sampling = client.get("sampling")
    if isinstance(sampling, dict):
        kinds = ("context", "tools") if version >= _MODES_SINCE else ()
        own["sampling"] = {kind: {} for kind in kinds if isinstance(sampling.get(kind), dict)}
    if isinstance(client.get("roots"), dict):
        # A change of roots cannot be told: `notifications/roots/list_changed` is gone in 2026-07-28.
        own["roots"] = {}
    return own


# The server's side: what it asks.


def objection(told: dict[str, object], method: str, params: object) -> tuple[int, str] | None:
    """Tell why a request of the server is refused: (code, message); None when a client may be asked.

    `told` is what `capabilities` returned for it.
    """
    # SECURITY: a question of a kind that the client did not declare would reach a person or model that never
    # agreed to be asked like that.
    kind = {_ELICIT: "elicitation", _SAMPLE: "sampling", _ROOTS: "roots"}.get(method)
    if kind is None or kind not in told:
        return jsonrpc.METHOD_NOT_FOUND, "the client did not declare this"
    if not isinstance(params, dict):
        return (
            None if method == _ROOTS and params is None else (jsonrpc.INVALID_PARAMS, "params are no object")
        )
    allowed = _dict(told[kind])
    if method == _ELICIT:
        return _objection_to_elicitation(allowed, params)
    if method == _SAMPLE and "tools" not in allowed and ("tools" in params or "toolChoice" in params):
        return jsonrpc.INVALID_PARAMS, "the client did not declare sampling with tools"
    return None


def _objection_to_elicitation(
    allowed: dict[str, object], params: dict[str, object]
) -> tuple[int, str] | None:
    mode = params.get("mode", "form")
    if not (mode == "form" and not allowed) and not (isinstance(mode, str) and mode in allowed):
        return jsonrpc.INVALID_PARAMS, "the client did not declare this mode of elicitation"
    needed: dict[str, type] = (
        {"message": str, "url": str}
        if mode == "url"
        else {
            "message": str,
            "requestedSchema": dict,
        }
    )
    if all(isinstance(params.get(name), kind) for name, kind in needed.items()):
        return None
    return jsonrpc.INVALID_PARAMS, f"an elicitation of mode {mode} needs {' and '.join(needed)}"


def question(method: str, params: object) -> dict[str, object]:
    """Return a request of the server as an entry of `inputRequests`."""
    own = {
        key: value for key, value in _dict(params).items() if key not in ("_meta", "task", "elicitationId")
    }
    return {"method": method, "params": own} if own or method != _ROOTS else {"method": method}


def may_show_pages(told: dict[str, object]) -> bool:
    """Tell whether the client declared that it can ask a person to open a page."""
    return "url" in _dict(told.get("elicitation"))


def pages(failure: dict[str, object]) -> list[dict[str, object]]:
    """Return the pages that an error -32042 wants opened, as entries of `inputRequests`; none when malformed."""
    wanted = _dict(failure.get("data")).get("elicitations")
    if not isinstance(wanted, list) or len(wanted) > _MAX_PAGES:
        return []
    found: list[dict[str, object]] = []
    for entry in wanted:
        if not isinstance(entry, dict):
            return []
        message, url = entry.get("message"), entry.get("url")
        if not isinstance(message, str) or not isinstance(url, str):
            return []
        found.append({"method": _ELICIT, "params": {"mode": "url", "message": message, "url": url}})
    return found


# What comes back to the client.


def server_info(opened: dict[str, object]) -> dict[str, object] | None:
    """Return the `serverInfo` of an initialize result, None when it has none that may be shown as one."""
    info = opened.get("serverInfo")
    if isinstance(info, dict) and isinstance(info.get("name"), str) and isinstance(info.get("version"), str):
        return info
    return None


def discovered(opened: dict[str, object]) -> dict[str, object]:
    """Return an initialize result as the result of `server/discover`."""
    told = _dict(opened.get("capabilities"))
    own: dict[str, object] = {}
    # SPEC: mcp.md 1, 14: `tasks` of 2025-11-25 is another protocol than the extension of that name.
    for kind, kept in (
        ("tools", ("listChanged",)),
        ("prompts", ("listChanged",)),
        ("resources", ("listChanged", "subscribe")),
        ("completions", ()),
        ("logging", ()),
    ):
        said = told.get(kind)
        if isinstance(said, dict):
            own[kind] = {name: True for name in kept if said.get(name) is True}
    if isinstance(told.get("experimental"), dict):
        own["experimental"] = told["experimental"]
    found: dict[str, object] = {"supportedVersions": [_MODERN], "capabilities": own}
    if isinstance(opened.get("instructions"), str):
        found["instructions"] = opened["instructions"]
    return result("server/discover", found, server_info(opened))


def result(
    method: str, legacy: dict[str, object], info: dict[str, object] | None, kind: str = "complete"
) -> dict[str, object]:
    """Return the result of a legacy server as a modern one; `kind` is its `resultType`."""
    own = legacy.copy()
    # SECURITY: a legacy result with these keys of its own would ask past the capabilities that were declared.
    if kind == "complete":
        own.pop("inputRequests", None)
        own.pop("requestState", None)
        if method in _CACHED:
            # SPEC: mcp.md 9: nothing of a legacy server may be kept or shared.
            own["ttlMs"] = 0
            own["cacheScope"] = "private"
    own["resultType"] = kind
    if info is not None:
        own["_meta"] = {**_dict(own.get("_meta")), _SERVER_INFO: info}
    return own


def error(failure: dict[str, object]) -> dict[str, object]:
    """Return the error object of a legacy server as a modern one: codes that are gone get their successors."""
    code = failure["code"]
    own: dict[str, object] = {"code": code, "message": failure["message"]}
    if "data" in failure:
        own["data"] = failure["data"]
    if code == _NOT_FOUND:
        own["code"] = jsonrpc.INVALID_PARAMS
    elif code == URL_NEEDED:
        # Only one that `pages` cannot read comes here.
        own["code"] = jsonrpc.INTERNAL
        own.pop("data", None)
    return own


def status(code: object) -> int:
    """Return the HTTP status of a modern answer with this error code of the server. SPEC: mcp.md 5."""
    if code == _UNDECLARED:
        return 400
    # 401 and 500 are the gateway's own answers: behind a server's code they would mean something else.
    if not isinstance(code, int) or code in _NOT_A_STATUS:
        return 200
    return jsonrpc.STATUS.get(code, 200)

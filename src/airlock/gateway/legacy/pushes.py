"""The questions of a server, or of the gateway, as requests to a legacy client: what it may be asked, and how.

Pure. Knows kinds, modes and revisions; sends nothing. SPEC: mcp.md 10 (rules 6, 7), 11, 20a, 26 (14).
"""

from __future__ import annotations

from typing import Final

import msgspec

from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line
from airlock.gateway import meta
from airlock.gateway.legacy.sessions import Session

__all__ = ["ELICIT", "MOST_IN_A_ROUND", "Ask", "asked", "can_show_forms", "shown"]

ELICIT: Final = "elicitation/create"

# LIMIT: of one round; more at once would bury a person in windows.
MOST_IN_A_ROUND: Final = 16

_MODE_SINCE: Final = "2025-11-25"
_RESERVED: Final = "io.modelcontextprotocol/"
_SHOWN_CHARS: Final = 400


class Ask(msgspec.Struct, frozen=True):
    """A request to the client, without its id. `key` is where its answer belongs in `inputResponses`."""

    key: str
    method: str
    params: dict[str, object]


def can_show_forms(session: Session) -> bool:
    """Tell whether the client declared that it can show a form to a person."""
    return _modes(session, "form")


def asked(session: Session, requests: object, new_id: str) -> list[Ask] | str:
    """Return the requests that put `inputRequests` to the client, or why they cannot be, in one line.

    `new_id` is unique and becomes part of the id of each question by link.
    """
    if not isinstance(requests, dict) or not all(isinstance(one, dict) for one in requests.values()):
        return "the server asks in a form that is not known"
    if len(requests) > MOST_IN_A_ROUND:
        return f"the server asks more than {MOST_IN_A_ROUND} questions at once"
    found: list[Ask] = []
    for place, (key, question) in enumerate(requests.items()):
        method, params = question.get("method"), question.get("params")
        problem = _undeclared(session, method, params if isinstance(params, dict) else {})
        if problem is not None:
            return problem
        put = _params(session, params if isinstance(params, dict) else {}, f"{new_id}-{place}")
        found.append(Ask(key, method, put))
    return found


def _undeclared(session: Session, method: object, params: dict[str, object]) -> str | None:
    """Return what is missing for a question, or None. SPEC: mcp.md 10: nothing is asked that was not declared."""
    declared = session.capabilities
    if method == "roots/list":
        return None if "roots" in declared else _lacks("roots")
    if method == "sampling/createMessage":
        sampling = declared.get("sampling")
        if not isinstance(sampling, dict):
            return _lacks("sampling")
        return _lacks("sampling.tools") if "tools" in params and "tools" not in sampling else None
    if method != ELICIT:
        return "the server asks this client for what is not known"
    if params.get("mode", "form") == "form":
        return None if _modes(session, "form") else _lacks("elicitation")
    if params["mode"] != "url":
        return "the server asks a person in a way that is not known"
    if _modes(session, "url"):
        return None
    link, message = params.get("url"), params.get("message")
    text = f"{_lacks('elicitation.url')}; a person can open the link instead: {shown(link)}"
    return f"{text} ({shown(message)})" if isinstance(message, str) else text


def _modes(session: Session, mode: str) -> bool:
    elicitation = session.capabilities.get("elicitation")
    return isinstance(elicitation, dict) and mode in elicitation


def _params(session: Session, params: dict[str, object], new_id: str) -> dict[str, object]:
    """Copy the parameters of a question for a client of this revision."""
    put = params.copy()
    own = put.pop("_meta", None)
    if isinstance(own, dict):
        kept = {
            key: value
            for key, value in own.items()
            if key != "progressToken" and not key.startswith((_RESERVED, meta.PREFIX))
        }
        if kept:
            put["_meta"] = kept
    if session.version < _MODE_SINCE:
        put.pop("mode", None)
    elif put.get("mode") == "url":
        # SPEC: mcp.md 11, 20a: that revision names each; the newer one has no such member.
        put["elicitationId"] = new_id
    return put


def _lacks(name: str) -> str:
    return f"the server asks through the client, and this client did not declare {name}"


def shown(text: object) -> str:
    """Return a text of the server or the client for one line, cut short."""
    return cut(one_line(text), _SHOWN_CHARS, "...") if isinstance(text, str) else "(none)"

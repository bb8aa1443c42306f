"""A modern client that shows no forms: a question to a person becomes a text that says what can be done.

Knows what the client declared and which confirmations it left open; the flow decides. SPEC: mcp.md 10 (rule 6): a
form is not sent to a client that did not declare it; silence is neither a no nor a yes.
"""

from __future__ import annotations

import msgspec

from airlock.core.action import Action
from airlock.core.approval import ticket
from airlock.core.principal import Principal
from airlock.core.wire import jsonrpc
from airlock.edge.trace import Trace
from airlock.gateway import body, flow, meta
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.legacy import hold
from airlock.gateway.legacy.hold import Confirmations
from airlock.gateway.legacy.sessions import owner_of
from airlock.gateway.modern.admission import Request
from airlock.gateway.questions import CAPABILITIES

__all__ = ["Unable", "shows_forms"]

_QUESTION = b'"input_required"'
_NOBODY_YET = "a person was asked outside of this client and has not answered yet"


def shows_forms(request: Request) -> bool:
    """Tell whether the client declared that it can show a form to a person. An empty declaration means forms."""
    declared = request.meta.get(CAPABILITIES)
    elicitation = declared.get("elicitation") if isinstance(declared, dict) else None
    return isinstance(elicitation, dict) and ("form" in elicitation or "url" not in elicitation)


class Unable:
    """Tool calls of clients that cannot ask their user. The same call again finds the confirmation it left open."""

    def __init__(self, confirmations: Confirmations) -> None:
        self._open = confirmations

    async def call(self, gate: Gate, request: Request, principal: Principal, trace: Trace) -> Answer:
        """Govern one call, and answer a question of ours in words."""
        assert request.name is not None
        digest = Action(request.name, request.arguments, "", "").arguments_digest()
        place = (owner_of(principal), request.name, digest)
        state = None
        # A state of the client's own says which confirmation it means; a dry run of its own needs none.
        if "requestState" not in request.params and request.arguments.get("dry_run") is not True:
            state = self._open.find(*place)
        if state is not None:
            # SECURITY: an answer belongs to a state that the client was given, and this one it never saw.
            params = {name: value for name, value in request.params.items() if name != "inputResponses"}
            again = msgspec.structs.replace(request, params={**params, "requestState": state})
            answer = await flow.tools_call(gate, again, principal, trace)
            message = _message(answer)
            if not hold.is_spent(message):
                return self._told(gate, request, place, answer, message)
            self._open.forget(*place)
        answer = await flow.tools_call(gate, request, principal, trace)
        return self._told(gate, request, place, answer, None)

    def _told(
        self, gate: Gate, request: Request, place: hold.Place, answer: Answer, message: hold.Message | None
    ) -> Answer:
        """Return `answer`, or the words that stand in for a question of ours in it."""
        if _QUESTION not in answer.body:
            if message is not None and hold.is_over(message):
                self._open.forget(*place)
            return answer
        message = message or _message(answer)
        result = message.get("result")
        if not isinstance(result, dict) or not _ours(result):
            return answer
        if hold.out_of_band(gate.confirmations):
            self._open.remember(*place, str(result["requestState"]))
            text, own = hold.not_confirmed(place[1], message, attach=True, why=_NOBODY_YET)
        else:
            text, own = hold.not_asked(message)
        told = {
            "resultType": "complete",
            "isError": True,
            "content": [{"type": "text", "text": f"airlock: {text}"}],
            "_meta": own,
        }
        return Answer(200, body.encode(jsonrpc.result(request.id, told)))


def _message(answer: Answer) -> hold.Message:
    message = body.decode_answer(answer.body)
    assert isinstance(message, dict)
    return message


def _ours(result: dict[str, object]) -> bool:
    """Tell whether it is our confirmation and not a server's question."""
    # SECURITY: a server may use our key or copy our words; the verdict in `_meta` is ours alone.
    own, requests = result.get("_meta"), result.get("inputRequests")
    if not isinstance(own, dict) or own.get(meta.VERDICT) != "confirm":
        return False
    asked = isinstance(requests, dict) and ticket.ANSWER_KEY in requests
    return ticket.is_ours(result.get("requestState")) and (asked or own.get(meta.STATUS) == "pending")

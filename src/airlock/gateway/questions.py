"""What a server may ask of a caller's client: elicitation, sampling, roots. It is told before and held to it after.

Knows the kinds of questions and the policy's sections for them; asks nobody. SPEC: mcp.md 10 (8), 14, 23.
"""

from __future__ import annotations

import msgspec

from airlock.core.policy.model import Policy
from airlock.core.principal import Principal
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line
from airlock.gateway.modern.admission import Request

__all__ = ["CAPABILITIES", "capabilities", "forbidden", "kinds", "narrowed"]

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

_KIND_OF = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_SHOWN_CHARS = 60
_MORE = "..."


def forbidden(policy: Policy, principal: Principal, result: dict[str, object]) -> str | None:
    """Return why a question in `result` may not reach this caller's client, in one line; None when all may.

    Any result may be given; only `input_required` asks. What is asked in a form or of a kind that is not known
    is forbidden.
    """
    if result.get("resultType") != "input_required" or "inputRequests" not in result:
        return None
    requests = result["inputRequests"]
    if not isinstance(requests, dict):
        return "the server asks in a form that is not known"
    for question in requests.values():
        method = question.get("method") if isinstance(question, dict) else None
        kind = _KIND_OF.get(method) if isinstance(method, str) else None
        if kind is None:
            asked = cut(one_line(method), _SHOWN_CHARS, _MORE) if isinstance(method, str) else "nothing"
            return f"the server asks this caller's client for what is not known: {asked}"
        if not _may_ask(policy, principal, kind):
            return f"the policy does not let the server ask this caller's client for {kind}"
    return None


def kinds(result: dict[str, object]) -> list[str]:
    """Return the distinct methods of the questions in a result that `forbidden` let pass, sorted."""
    requests = result.get("inputRequests")
    return (
        sorted({question["method"] for question in requests.values()}) if isinstance(requests, dict) else []
    )


def capabilities(policy: Policy, principal: Principal, declared: dict[str, object]) -> dict[str, object]:
    """Return what a client declared without what the policy forbids; the same object when that is nothing.

    Extensions are taken out too: neither side shall start one that is not governed here.
    """
    out = [
        name
        for name in declared
        if name == "extensions" or (name in _KIND_OF.values() and not _may_ask(policy, principal, name))
    ]
    return {name: value for name, value in declared.items() if name not in out} if out else declared


def narrowed(request: Request, policy: Policy, principal: Principal) -> Request:
    """Return `request` declaring what `capabilities` leaves; the same one when that is all of it.

    Capabilities that are no object declare nothing.
    """
    declared = request.meta.get(CAPABILITIES)
    left = capabilities(policy, principal, declared) if isinstance(declared, dict) else {}
    if left is declared:
        return request
    return msgspec.structs.replace(request, meta={**request.meta, CAPABILITIES: left})


def _may_ask(policy: Policy, principal: Principal, kind: str) -> bool:
    if kind == "elicitation":
        # SPEC: the seed lets tools ask people at L0, L1 and L3; a section restricts it.
        return policy.elicitation is None or policy.grants(policy.elicitation, principal)
    return policy.grants(policy.sampling if kind == "sampling" else policy.roots, principal)

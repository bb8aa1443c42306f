"""Making the question to a person: a fresh ticket, the prompt's text, and the preview that goes with it.

Knows how they are put together; texts are `core.approval.prompt`'s, tickets `core.approval.ticket`'s.
SPEC: gateway.md 7.4, 8.1, 8.2.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from airlock.core.action import Action
from airlock.core.approval import prompt, ticket
from airlock.core.policy.model import Policy
from airlock.core.principal import Principal
from airlock.core.text.safe import one_line
from airlock.gateway import meta, results
from airlock.gateway.gate import Gate

__all__ = ["Asked", "issued", "question"]

_DECISION_KEYS = (meta.VERDICT, meta.RULE_ID, meta.DRY_RUN)


class Asked(msgspec.Struct, frozen=True):
    """A question: what its ticket binds, its text, and the result that carries it to the agent."""

    claims: ticket.Claims
    message: str
    result: dict[str, object]


def question(
    gate: Gate, policy: Policy, action: Action, principal: Principal, preview: dict[str, object] | None
) -> Asked:
    """Issue a ticket for `action` and make the prompt. `preview`: the shaped result of the dry run."""
    claims = issued(gate, action, principal)
    key = claims.k
    content = preview.get("content") if preview is not None else None
    message = prompt.compose(
        environment=action.environment,
        tool=action.name,
        description=policy.tools[action.name].description,
        arguments=action.arguments,
        preview=None if preview is None else prompt.preview_text(content),
        key=key,
        mode=gate.confirmations.mode,
    )
    carried: dict[str, object] = {}
    blocks: list[object] | None = None
    if preview is not None:
        redact = prompt.redactor(action.arguments)
        own = preview.get("_meta")
        if isinstance(own, dict):
            carried = {name: value for name, value in own.items() if name not in _DECISION_KEYS}
        if meta.SUSPICIOUS in carried:
            carried[meta.SUSPICIOUS] = _texts_of(carried[meta.SUSPICIOUS], "excerpt", redact)
        blocks = _texts_of(content, "text", redact)
    title = f"Execute {one_line(action.name)} in {one_line(action.environment)}?"
    result = results.prompted(
        message, title, ticket.mint(gate.confirmations.keys, claims), key, carried, blocks
    )
    return Asked(claims, message, result)


def issued(gate: Gate, action: Action, principal: Principal) -> ticket.Claims:
    """Return the claims of a fresh ticket for `action`, good from now on."""
    return ticket.Claims(
        p=principal.name,
        t=action.name,
        h=action.arguments_digest(),
        e=action.environment,
        u=action.target,
        k=gate.ids.hex(16),
        exp=gate.clock.now() + ticket.LIFETIME_S,
        m=gate.confirmations.mode,
    )


def _texts_of(blocks: object, member: str, redact: Callable[[str], str]) -> list[object]:
    """Return the objects of a list with their text `member` redacted, in an embedded resource too."""
    if not isinstance(blocks, list):
        return []
    return [_redacted(block, member, redact) for block in blocks if isinstance(block, dict)]


def _redacted(block: dict[str, object], member: str, redact: Callable[[str], str]) -> dict[str, object]:
    text, resource = block.get(member), block.get("resource")
    changed: dict[str, object] = {}
    if isinstance(text, str):
        changed[member] = redact(text)
    if isinstance(resource, dict):
        changed["resource"] = _redacted(resource, member, redact)
    return {**block, **changed} if changed else block

"""What an incoming `requestState` is worth: the check of gateway.md 8.3, against the store where it must be.

Knows the order of the check; tickets, answers and strictness are `core.approval.ticket`'s.
"""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from airlock.core.action import Action
from airlock.core.approval import ticket
from airlock.core.ports import Store
from airlock.core.principal import Principal
from airlock.core.rules import Rule

__all__ = ["Settings", "Standing", "State", "check"]


class State(Enum):
    """Where a confirmation stands."""

    ACCEPTED = auto()
    PENDING = auto()
    PENDING_IGNORED = auto()
    REISSUE = auto()
    DISMISSED = auto()  # the client showed nobody the question, or nobody answered it
    DRYRUN = auto()  # the server asked during the dry run; nobody was asked for a yes yet
    CONTINUES = auto()  # the server asked during the real run; the yes is used up


class Standing(msgspec.Struct, frozen=True):
    """A valid ticket and its state."""

    claims: ticket.Claims
    state: State


class Settings(msgspec.Struct, frozen=True):
    """How this process takes confirmations. `mode` is `inband` or `oob`; `notified`: prompts go out by webhook.

    `hold_s`: how long a call that waits for somebody else's answer is held; None: not at all, and to dismiss the
    question is to say no, as the seed has it.
    """

    keys: ticket.Keys
    mode: str = "inband"
    notified: bool = False
    hold_s: float | None = None

    @property
    def elsewhere(self) -> bool:
        """Tell whether somebody outside the client may say yes."""
        return self.mode != ticket.Mode.INBAND or self.notified


async def check(
    settings: Settings,
    store: Store,
    action: Action,
    principal: Principal,
    params: dict[str, object],
    now: float,
) -> Standing | Rule | None:
    """Return None for a plain call, a Rule to deny with, or where the confirmation stands.

    A no burns the ticket here; a yes is burned later, right before the call runs.
    """
    # 1: not ours.
    state = params.get("requestState")
    if not ticket.is_ours(state):
        return None
    # 2-4: signature, time, and the call it was issued for.
    claims = ticket.open_agent(settings.keys, state)
    if not isinstance(claims, ticket.Claims):
        return Rule.MRTR_BAD_SIGNATURE
    refused = ticket.judge(
        claims,
        principal=principal.name,
        tool=action.name,
        digest=action.arguments_digest(),
        environment=action.environment,
        upstream=action.target,
        now=now,
    )
    if refused is not None:
        return refused
    # SECURITY: where a server asks, an answer under our key is no yes and no no: it is not even looked at.
    stage = ticket.stage(claims)
    if stage is ticket.Stage.DRYRUN:
        return Standing(claims, State.DRYRUN)
    if stage is ticket.Stage.UPSTREAM:
        # SPEC: mcp.md 10 (3): it goes on with what a burned yes began, and the store has to know that yes.
        burned, _ = await store.standing(claims.k, now)
        return Standing(claims, State.CONTINUES) if burned else Rule.MRTR_MISMATCH
    # 5-7: the answer, and how strict we are about it.
    answer = ticket.read_answer(params.get("inputResponses"))
    # SPEC: issue 4, 2: silence is never told as denial. A client where nobody sits cancels by itself.
    dismissed = settings.hold_s is not None and _cancelled(params.get("inputResponses"))
    if dismissed:
        answer = ticket.Answer.NONE
    strict = ticket.strict_mode(claims.m, settings.mode)
    # 10: anything but a yes or silence is a no.
    if answer is ticket.Answer.NO:
        return Rule.MRTR_DECLINED if await store.burn(claims.k, claims.exp) else Rule.MRTR_REPLAY
    # 9: a yes that counts here.
    if answer is ticket.Answer.YES and not strict:
        return Standing(claims, State.ACCEPTED)
    # 8: silence, or a yes from where only the link may say it.
    burned, approved = await store.standing(claims.k, now)
    if burned:
        return Rule.MRTR_REPLAY
    if approved:
        return Standing(claims, State.ACCEPTED)
    if answer is ticket.Answer.YES:
        return Standing(claims, State.PENDING_IGNORED)
    if dismissed:
        return Standing(claims, State.DISMISSED)
    if not strict and not settings.notified:
        return Standing(claims, State.REISSUE)
    return Standing(claims, State.PENDING)


def _cancelled(responses: object) -> bool:
    """Tell whether the answer is MCP's "dismissed without a choice", and nothing else."""
    answer = responses.get(ticket.ANSWER_KEY) if isinstance(responses, dict) else None
    return isinstance(answer, dict) and answer.get("action") == "cancel"

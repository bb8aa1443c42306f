"""Calls that wait for a person outside of their client: held for a while, then told that nobody has answered.

Knows what such a call is told; whether an answer counts is `confirm`'s, what may run is the flow's.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from airlock.core.approval import ticket
from airlock.core.ports import Clock, Store
from airlock.core.redact import values
from airlock.core.rules import Rule
from airlock.gateway import results
from airlock.gateway.call import Call
from airlock.gateway.confirm import Settings, Standing, State
from airlock.gateway.eras import Era
from airlock.gateway.gate import Answer

__all__ = ["OPEN", "waiting"]

OPEN: Final = (State.PENDING, State.PENDING_IGNORED, State.DISMISSED)
"""Where a confirmation stands that nobody has answered yet."""

_FIRST_LOOK_S: Final = 1.0
_LOOK_S: Final = 2.0


async def waiting(call: Call, standing: Standing) -> Answer | None:
    """Answer a call whose confirmation is open. None: somebody answered meanwhile, so that it is decided anew.

    SPEC: issue 4, 2: silence is never told as denial, and the ticket stays good for the same call again.
    """
    gate, settings = call.gate, call.gate.confirmations
    # The front of older clients waits for them itself.
    holds = settings.hold_s is not None and settings.elsewhere and call.request.era is Era.MODERN
    if holds and await _answered(settings, gate.store, gate.clock, standing.claims):
        # SECURITY: from here on it is a call without an answer of its own, under the policy of now.
        silent = {name: value for name, value in call.request.params.items() if name != "inputResponses"}
        call.request = msgspec.structs.replace(call.request, params=silent)
        call.snapshot, call.standing = gate.snapshot, None
        return None
    call.entry.rule_id = Rule.MRTR_PENDING
    if standing.state is State.DISMISSED:
        return _settled(call, standing)
    ignored = standing.state is State.PENDING_IGNORED
    call.entry.detail_json = values.detail_json("an in-band accept was ignored" if ignored else None)
    gate.recorder.refusal(call.entry)
    state = results.sent_state(call.request.params)
    assert state is not None
    return call.reply(results.pending(state, standing.claims.k, ignored=ignored))


def _settled(call: Call, standing: Standing) -> Answer:
    """Tell how to resume: a client that dismissed the question does not come back with its state."""
    gate = call.gate
    call.entry.detail_json = values.detail_json("the client dismissed the question")
    gate.recorder.refusal(call.entry)
    elsewhere = gate.confirmations.elsewhere
    why = "nobody has answered yet" if elsewhere else "the client was asked and gave no answer"
    attaches = elsewhere and gate.prompts is not None and gate.prompts.collapses
    return call.reply(results.unconfirmed(call.action.name, standing.claims.k, why, attaches=attaches))


async def _answered(settings: Settings, store: Store, clock: Clock, claims: ticket.Claims) -> bool:
    """Wait, at most `hold_s`, until somebody has said yes or no elsewhere; tell whether somebody has."""
    end, wait = clock.monotonic() + (settings.hold_s or 0.0), _FIRST_LOOK_S
    while (left := min(end - clock.monotonic(), claims.exp - clock.now())) > 0:
        await asyncio.sleep(min(wait, left))
        wait = _LOOK_S
        if any(await store.standing(claims.k, clock.now())):
            return True
    return False

"""Waiting for a person on behalf of a client that cannot wait: the held call, and the confirmations still open.

Knows time, limits and the words for it; asks the inside only through what it is given. SPEC: mcp.md 10 (rule 6).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from airlock.core.approval import ticket
from airlock.core.decision import Verdict
from airlock.core.ports import Clock
from airlock.core.rules import Rule
from airlock.core.text.safe import one_line
from airlock.gateway import meta
from airlock.gateway.confirm import Settings
from airlock.gateway.legacy.sessions import Owner

__all__ = [
    "HOLD_S",
    "Confirmations",
    "Message",
    "Place",
    "Poll",
    "held",
    "is_over",
    "is_pending",
    "is_spent",
    "not_asked",
    "not_confirmed",
    "out_of_band",
    "rule_of",
    "still_open",
]

HOLD_S: Final = 45.0
"""How long a call is held for a person: below the minute that most clients give a call."""

_FIRST_POLL_S: Final = 1.0
_POLL_S: Final = 2.0

# LIMIT: of confirmations a repeated call can attach to; beyond it a repeated call asks anew.
MOST_OPEN: Final = 4096
MOST_OPEN_EACH: Final = 64

Message = dict[str, object]
Poll = Callable[[], Awaitable[Message]]
Place = tuple[Owner, str, str]
"""Whose call of which tool, with arguments of which digest."""

_SPENT: Final = frozenset((Rule.MRTR_EXPIRED, Rule.MRTR_REPLAY, Rule.MRTR_MISMATCH, Rule.MRTR_BAD_SIGNATURE))
_PASSING: Final = frozenset((Rule.STORE_UNAVAILABLE, Rule.CATALOG_UNAVAILABLE))
_Call = tuple[str, str]

_NOTHING: Final = "nothing was executed, and nothing was refused"
_AGAIN: Final = (
    " within 10 minutes: it goes on waiting for the same approval, and runs once a person has said yes"
)


class Confirmations:
    """The confirmations that wait for a person outside of the client, so that the same call again finds its own.

    A call is known by its owner, the tool, and the digest of its arguments.
    """

    __slots__ = ("_by_owner", "_clock", "_held")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_owner: dict[Owner, OrderedDict[_Call, tuple[str, float]]] = {}
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def find(self, owner: Owner, tool: str, digest: str) -> str | None:
        """Return the `requestState` of an open confirmation of this very call, or None."""
        own = self._by_owner.get(owner)
        found = None if own is None else own.get((tool, digest))
        if found is None or found[1] > self._clock.now():
            return None if found is None else found[0]
        self.forget(owner, tool, digest)
        return None

    def remember(self, owner: Owner, tool: str, digest: str, state: str) -> None:
        """Keep the state of an open confirmation for as long as its ticket is good, from now at most."""
        own = self._by_owner.get(owner)
        known = own.get((tool, digest)) if own is not None else None
        if known is not None and known[0] == state:
            return
        self.forget(owner, tool, digest)
        own = self._by_owner.setdefault(owner, OrderedDict())
        if len(own) >= MOST_OPEN_EACH:
            own.popitem(last=False)
            self._held -= 1
        # SECURITY: no principal can push out what another one waits for.
        if self._held >= MOST_OPEN:
            self.expire()
        if self._held >= MOST_OPEN:
            if not own:
                del self._by_owner[owner]
            return
        own[tool, digest] = (state, self._clock.now() + ticket.LIFETIME_S)
        self._by_owner[owner] = own
        self._held += 1

    def forget(self, owner: Owner, tool: str, digest: str) -> None:
        """Drop a confirmation that is over."""
        own = self._by_owner.get(owner)
        if own is not None and own.pop((tool, digest), None) is not None:
            self._held -= 1
            if not own:
                del self._by_owner[owner]

    def expire(self) -> None:
        """Drop what is past its time."""
        now = self._clock.now()
        for owner, own in list(self._by_owner.items()):
            for (tool, digest), (_, until) in list(own.items()):
                if until <= now:
                    self.forget(owner, tool, digest)


def out_of_band(settings: Settings) -> bool:
    """Tell whether somebody outside the client may say yes, so that waiting makes sense."""
    return settings.mode != ticket.Mode.INBAND or settings.notified


async def held(
    poll: Poll,
    waiting: Callable[[], None],
    hold_s: float,
    clock: Clock,
    pause: Callable[[float], Awaitable[object]],
) -> Message | None:
    """Ask again and again until the answer is more than "still waiting"; None when `hold_s` passed first.

    `waiting` is called before each pause, to tell the client.
    """
    end, wait = clock.monotonic() + hold_s, _FIRST_POLL_S
    while (left := end - clock.monotonic()) > 0:
        waiting()
        await pause(min(wait, left))
        wait = _POLL_S
        message = await poll()
        if not is_pending(message):
            return message
    return None


def is_pending(message: Message) -> bool:
    """Tell whether an answer of the inside says that a person has not answered yet."""
    return _own(message).get(meta.STATUS) == "pending"


def is_over(message: Message) -> bool:
    """Tell whether a confirmation is done with: neither open, nor merely kept from being looked at for now."""
    return "result" in message and not is_pending(message) and rule_of(message) not in _PASSING


def is_spent(message: Message) -> bool:
    """Tell whether an answer says that the state it was asked with is good for nothing any more."""
    return rule_of(message) in _SPENT


def rule_of(message: Message) -> object:
    """Return the rule id that an answer of the inside names, None when it names none."""
    return _own(message).get(meta.RULE_ID)


def still_open(message: Message) -> Message:
    """Return a message that says that a person has not answered yet. `message`: the inside's last word on it."""
    return {"result": {"_meta": _still_open(message)}}


def not_confirmed(tool: str, message: Message, *, attach: bool, why: str) -> tuple[str, dict[str, object]]:
    """Return text and `_meta` for a call that nobody confirmed: silence is neither a no nor a yes.

    `message` is the inside's last word on it. `attach`: the same call again finds the same confirmation.
    """
    then = _AGAIN if attach else "; a person is then asked once more"
    resume = f"To resume, call {one_line(tool)} again with the same arguments{then}."
    return f"not confirmed: {why}; {_NOTHING}. {resume}", _still_open(message)


def not_asked(message: Message) -> tuple[str, dict[str, object]]:
    """Return text and `_meta` for a call that needs the yes of a person whom nobody can ask."""
    return (
        f"not confirmed: this call needs a person's yes, and this client cannot ask a person; {_NOTHING}."
        " Use a client that declares elicitation of forms, or let the operator set AIRLOCK_APPROVAL_WEBHOOK,"
        " with which people approve outside of the client."
    ), _still_open(message)


def _still_open(message: Message) -> dict[str, object]:
    own: dict[str, object] = {
        meta.VERDICT: Verdict.CONFIRM,
        meta.RULE_ID: Rule.MRTR_PENDING,
        meta.STATUS: "pending",
    }
    key = _own(message).get(meta.IDEMPOTENCY_KEY)
    return own if key is None else {**own, meta.IDEMPOTENCY_KEY: key}


def _own(message: Message) -> dict[str, object]:
    result = message.get("result")
    found = result.get("_meta") if isinstance(result, dict) else None
    return found if isinstance(found, dict) else {}

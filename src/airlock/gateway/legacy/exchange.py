"""One governed request of a legacy client through all its rounds: asked inside, put to the client, asked again.

Knows the rounds of mcp.md 10, 20a and 25d; what is allowed is decided inside, once more on every round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from airlock.core.action import Action
from airlock.core.approval import ticket
from airlock.core.errors import StoreUnavailable
from airlock.core.principal import Principal
from airlock.core.rules import Rule
from airlock.core.text.safe import one_line
from airlock.core.wire import strict
from airlock.edge import trace as traces
from airlock.edge.headers import Headers
from airlock.edge.trace import Trace
from airlock.gateway import composing, meta
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.legacy import admission, downward, hold, pushes, upward
from airlock.gateway.legacy.calls import Call, Pushed
from airlock.gateway.legacy.hold import Confirmations, Message
from airlock.gateway.legacy.pushes import ELICIT, Ask
from airlock.gateway.legacy.sessions import owner_of
from airlock.gateway.modern.admission import Request

__all__ = ["ANSWER_S", "MOST_ROUNDS", "Exchange", "Govern", "Inside", "begin", "read"]

Govern = Callable[[Request, Principal, Trace], Awaitable[Answer]]

MOST_ROUNDS: Final = 10
ANSWER_S: Final = 600.0
"""How long a question may stay open at the client, in seconds: as long as a confirmation is good."""

_ASKING_POLL_S: Final = 5.0
_FIRST_RETRY_S: Final = 0.05
_LAST_RETRY_S: Final = 0.25


class Inside(msgspec.Struct):
    """What an exchange is handed: the governed entry, the process's ports, and how long it may wait for people."""

    govern: Govern
    gate: Gate
    confirmations: Confirmations
    hold_s: float = hold.HOLD_S
    answer_s: float = ANSWER_S
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep


class Exchange:
    """A request of `call`, asked by `principal`. `run` is its whole life."""

    __slots__ = ("_asked", "_call", "_inside", "_key", "_legs", "_links", "_parent", "_principal")

    def __init__(
        self, inside: Inside, call: Call, asked: admission.Call, principal: Principal, lines: Headers
    ) -> None:
        self._inside, self._call, self._asked, self._principal = inside, call, asked, principal
        self._parent = _parent(lines, asked.params)
        self._key: hold.Place | None = None
        self._legs = 0
        self._links: list[object] = []

    async def run(self) -> Message:
        """Return the response for the client. Raises only what the inside raises."""
        asked = self._asked
        message = await self._first()
        for _ in range(MOST_ROUNDS):
            result = _question(message)
            if result is None:
                break
            message = await (self._confirm(message, result) if _ours(result) else self._questions(result))
        else:
            left = _question(message)
            if left is not None:
                self._abandon(left)
                message = self._settled(f"the server asked more than {MOST_ROUNDS} times")
        self._over(message)
        return downward.response(message, asked.id, asked.method, self._call.session.version)

    async def _first(self) -> Message:
        """Ask for the first time, or go on with a confirmation that this very call left open."""
        open_ones = self._inside.confirmations
        self._key = self._attachable() if len(open_ones) else None
        state = None if self._key is None else open_ones.find(*self._key)
        if self._key is not None and state is not None:
            message = await self._leg({"requestState": state})
            # The state may have been used up, or its time be over, since it was remembered.
            if not hold.is_spent(message):
                return message
            open_ones.forget(*self._key)
        return await self._leg(None)

    async def _leg(self, answers: dict[str, object] | None) -> Message:
        """Ask inside, once. `answers` are `requestState` and `inputResponses` of a later round."""
        inside, asked, call = self._inside, self._asked, self._call
        # SPEC: mcp.md 10: every round is a request of its own, with an id of its own.
        request_id = f"airlock-{inside.gate.ids.hex(8)}" if self._legs else asked.id
        self._legs += 1
        call.again()
        request = upward.modern(
            call.session,
            request_id,
            asked.method,
            asked.params,
            token=call.minted,
            heard=call if call.minted is not None or call.session.log_level is not None else None,
            answers=answers,
        )
        trace = begin(inside.gate, self._parent)
        if trace.parent_id is None:
            self._parent = (trace.traceparent, None)
        return read((await inside.govern(request, self._principal, trace)).body)

    async def _confirm(self, message: Message, result: dict[str, object]) -> Message:
        """Get the answer of a person to the gateway's own question, at the client or outside of it."""
        inside, state = self._inside, result.get("requestState")
        outside = hold.out_of_band(inside.gate.confirmations)
        self._key = self._key or self._attachable()
        if self._key is not None and isinstance(state, str):
            inside.confirmations.remember(*self._key, state)
        poll = self._poll(state, message)
        why = "nobody has answered yet"
        # A form whose yes does not count is not shown: of what is left for an answer, clients where nobody sits
        # (Codex exec, Hermes -z) say `decline` by themselves, which would end the matter before anybody saw it.
        if "inputRequests" in result and inside.gate.confirmations.mode == ticket.Mode.INBAND:
            pushed = self._pushed(result["inputRequests"])
            if pushed is None and not outside:
                return self._settled(*hold.not_asked(message))
            if pushed is not None:
                answer, found = await self._person(pushed, poll if outside else None)
                if found is not None:
                    return self._unless_expired(found, message)
                if answer is not None:
                    return await self._leg({"requestState": state, "inputResponses": answer})
                why = "the client was asked and gave no answer"
        if not outside:
            return self._unconfirmed(message, attach=False, why=why)
        text = f"waiting for a person to approve {one_line(self._tool())}"
        found = await hold.held(
            poll, lambda: self._call.waiting(text), inside.hold_s, inside.gate.clock, inside.pause
        )
        if found is None:
            return self._unconfirmed(message, attach=self._key is not None, why=why)
        return self._unless_expired(found, message)

    async def _person(
        self, pushed: Pushed, poll: hold.Poll | None
    ) -> tuple[dict[str, object] | None, Message | None]:
        """Wait for the client's answer to our question; with `poll` also for a yes from elsewhere.

        Returns the answer as `inputResponses`, or what the inside said, or neither: silence.
        """
        wait = self._inside.answer_s if poll is None else min(_ASKING_POLL_S, self._inside.answer_s)
        try:
            for _ in range(max(1, round(self._inside.answer_s / wait))):
                await asyncio.wait({pushed.answer}, timeout=wait)
                if pushed.answer.done():
                    answer = pushed.answer.result().result
                    # SECURITY: a client answers `cancel` by itself when nobody is there; only a person's yes or no
                    # is passed on, as it came.
                    told = answer is not None and answer.get("action") in ("accept", "decline")
                    return ({ticket.ANSWER_KEY: answer} if told else None), None
                if poll is not None:
                    message = await poll()
                    if not hold.is_pending(message):
                        return None, message
            return None, None
        finally:
            pushed.withdraw()

    async def _questions(self, result: dict[str, object]) -> Message:
        """Put the server's questions to the client and return what the server makes of the answers."""
        answers: dict[str, object] = (
            {"requestState": result["requestState"]} if "requestState" in result else {}
        )
        requests = result.get("inputRequests")
        if not requests:
            await self._inside.pause(min(_FIRST_RETRY_S * 2 ** (self._legs - 1), _LAST_RETRY_S))
            return await self._leg(answers)
        try:
            found = await self._answers(requests)
        except asyncio.CancelledError:
            self._abandon(result)
            raise
        if isinstance(found, str):
            self._abandon(result)
            return self._settled(found)
        return await self._leg({**answers, "inputResponses": found})

    async def _answers(self, requests: object) -> dict[str, object] | str:
        """Return the client's answers by their keys, or why there are none, in one line."""
        asks = pushes.asked(self._call.session, requests, self._inside.gate.ids.hex(8))
        if isinstance(asks, str):
            return asks
        put: list[tuple[Ask, Pushed]] = []
        try:
            for ask in asks:
                pushed = self._call.push(ask)
                if pushed is None:
                    return (
                        "the server asks through the client, and this client left no stream open to ask it on"
                    )
                put.append((ask, pushed))
            wait = self._inside.hold_s + self._inside.answer_s
            _, unanswered = await asyncio.wait({pushed.answer for _, pushed in put}, timeout=wait)
            if unanswered:
                return "nobody answered what the server asked through the client"
            return self._collected(put)
        finally:
            for _, pushed in put:
                pushed.withdraw()

    def _collected(self, put: list[tuple[Ask, Pushed]]) -> dict[str, object] | str:
        found: dict[str, object] = {}
        for ask, pushed in put:
            answered = pushed.answer.result()
            if answered.result is None and ask.method != ELICIT:
                return f"the client answered {ask.method} with an error: {pushes.shown(answered.error)}"
            # SPEC: mcp.md 11: a person who cannot be asked has not declined.
            found[ask.key] = answered.result if answered.result is not None else {"action": "cancel"}
            if "elicitationId" in ask.params:
                self._links.append(ask.params["elicitationId"])
        return found

    def _pushed(self, requests: object) -> Pushed | None:
        """Put our own question to the client; None when it cannot show it to a person."""
        if not pushes.can_show_forms(self._call.session):
            return None
        asks = pushes.asked(self._call.session, requests, "")
        return self._call.push(asks[0]) if isinstance(asks, list) and asks else None

    def _poll(self, state: object, message: Message) -> hold.Poll:
        """Return what looks whether a person has decided; the inside is asked, and records it, only then."""
        gate = self._inside.gate
        claims = ticket.open_agent(gate.confirmations.keys, state)

        async def undecided() -> bool:
            if not isinstance(claims, ticket.Claims) or gate.clock.now() >= claims.exp:
                return False
            try:
                return not any(await gate.store.standing(claims.k, gate.clock.now()))
            except StoreUnavailable:
                return False  # the inside says so, and records it

        async def poll() -> Message:
            if await undecided():
                return hold.still_open(message)
            return await self._leg({"requestState": state})

        return poll

    def _unless_expired(self, found: Message, before: Message) -> Message:
        """A ticket that ran out while nobody answered is no refusal by anybody."""
        if hold.rule_of(found) != Rule.MRTR_EXPIRED:
            return found
        self._over(found)
        return self._unconfirmed(
            before, attach=False, why="nobody answered within the time an approval is good"
        )

    def _unconfirmed(self, message: Message, *, attach: bool, why: str) -> Message:
        return self._settled(*hold.not_confirmed(self._tool(), message, attach=attach, why=why))

    def _settled(self, text: str, own: dict[str, object] | None = None) -> Message:
        return downward.error_of(self._asked.method, text, own)

    def _over(self, message: Message) -> None:
        """Forget a confirmation that is used up, and tell the client about links that led to an answer."""
        if self._key is not None and hold.is_over(message):
            self._inside.confirmations.forget(*self._key)
        result = message.get("result")
        if isinstance(result, dict) and result.get("isError") is not True:
            for link in self._links:
                self._call.complete(link)

    def _abandon(self, result: dict[str, object]) -> None:
        """Tell the server's side that nobody will come back with its state."""
        if "requestState" in result:
            composing.abandon(self._inside.gate, result["requestState"])

    def _attachable(self) -> hold.Place | None:
        """Return what this call's open confirmation is kept under; None when the call can have none.

        A call that a form can be shown for is asked anew where the form's answer counts.
        """
        asked, settings = self._asked, self._inside.gate.confirmations
        if asked.method != "tools/call" or not hold.out_of_band(settings):
            return None
        if settings.mode == ticket.Mode.INBAND and pushes.can_show_forms(self._call.session):
            return None
        found = asked.params.get("arguments")
        arguments: dict[str, object] = found if isinstance(found, dict) else {}
        # A dry run that the client asks for itself needs no yes and must not use one up.
        if arguments.get("dry_run") is True:
            return None
        digest = Action(self._tool(), arguments, "", "").arguments_digest()
        return owner_of(self._principal), self._tool(), digest

    def _tool(self) -> str:
        return str(self._asked.params.get("name", self._asked.method))


def read(answer: bytes) -> Message:
    """Return the message that the inside made: well formed, since we wrote it."""
    try:
        message = msgspec.json.decode(answer)
    except (ValueError, RecursionError):  # the escape of a lone surrogate is one of ours
        message = strict.parse(answer, unique=False)
    assert isinstance(message, dict)
    return message


def begin(gate: Gate, parent: tuple[object, object]) -> Trace:
    """Begin the span of one round. `parent` is the client's trace context, as text."""
    return traces.begin(*parent, gate.ids, gate.clock.now())


def _parent(lines: Headers, params: dict[str, object]) -> tuple[object, object]:
    """SPEC: gateway.md 14: the header first, else strings of `_meta`."""
    header, state = lines.first.get(b"traceparent"), lines.first.get(b"tracestate")
    if header is not None:
        return header.decode("latin-1"), None if state is None else state.decode("latin-1")
    own = params.get("_meta")
    return (own.get("traceparent"), own.get("tracestate")) if isinstance(own, dict) else (None, None)


def _question(message: Message) -> dict[str, object] | None:
    result = message.get("result")
    asks = isinstance(result, dict) and result.get("resultType") == "input_required"
    return result if asks and isinstance(result, dict) else None


def _ours(result: dict[str, object]) -> bool:
    """Tell whether a question is the gateway's own.

    SECURITY: an upstream may use our key or copy our words; the verdict in `_meta` is ours alone, since its own
    keys of that prefix are taken out inside.
    """
    own = result.get("_meta")
    if (
        not isinstance(own, dict)
        or own.get(meta.VERDICT) != "confirm"
        or not ticket.is_ours(result.get("requestState"))
    ):
        return False
    requests = result.get("inputRequests")
    return own.get(meta.STATUS) == "pending" or (isinstance(requests, dict) and ticket.ANSWER_KEY in requests)

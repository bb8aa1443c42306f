"""The messages of one session: requests answered at once or started, notifications and responses taken.

Knows which method of the older eras is whose (mcp.md 18, 20a); what may happen is decided by the inside.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.wire import jsonrpc
from airlock.edge import recording
from airlock.edge.headers import Headers
from airlock.gateway import boundary
from airlock.gateway.advertised import LISTEN
from airlock.gateway.legacy import admission, replies
from airlock.gateway.legacy.admission import Answered, Bad, Notice
from airlock.gateway.legacy.calls import Call, Tasks
from airlock.gateway.legacy.exchange import Exchange, Inside, read
from airlock.gateway.legacy.hold import Message
from airlock.gateway.legacy.refusals import refuse
from airlock.gateway.legacy.replies import ACCEPTED, Plain, Reply
from airlock.gateway.legacy.sessions import Session, key_of
from airlock.gateway.legacy.subscription import Listener, Subscription

__all__ = ["MOST_CALLS", "Dispatch"]

# LIMIT: of one session, and of all together, requests under way at once: to leave does not end them.
MOST_CALLS: Final = 64
MOST_CALLS_IN_ALL: Final = 4096

_BATCHES: Final = "2025-03-26"
_SET_LEVEL: Final = "logging/setLevel"
_UNSUBSCRIBE: Final = "resources/unsubscribe"
_SUBSCRIPTIONS: Final = frozenset(("resources/subscribe", _UNSUBSCRIBE))
_GOVERNED: Final = frozenset(
    (
        "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "prompts/list",
        "prompts/get", "completion/complete",
    )
)  # fmt: skip
_CANCELLED: Final = "notifications/cancelled"


class Dispatch:
    """Leads messages where they belong. `calls` are under way; `strays` counts responses to nothing."""

    def __init__(self, inside: Inside, listener: Listener, replay_until: Callable[[], float]) -> None:
        self._inside, self._listener, self._replay_until = inside, listener, replay_until
        self.calls: Tasks = set()
        self.strays = 0

    def begin(
        self, session: Session, asked: admission.Call, principal: Principal, lines: Headers, *, events: bool
    ) -> Call | Plain:
        """Answer a request at once, or start it. `events`: the client takes an event stream for an answer."""
        if asked.method == "ping":
            return replies.message(jsonrpc.result(asked.id, {}))
        bad = self._faulty(session, asked)
        if bad is not None:
            return refuse(self._inside.gate, principal, admission.status_of(bad), bad)
        if asked.method == _SET_LEVEL:
            session.log_level = str(asked.params["level"])
            return replies.message(jsonrpc.result(asked.id, {}))
        own = asked.params.get("_meta")
        token = own.get("progressToken") if isinstance(own, dict) else None
        minted = None if token is None else f"airlock-{self._inside.gate.ids.hex(8)}"
        call = Call(session, asked.id, self._replay_until, events=events, token=token, minted=minted)
        work = (
            self._subscribed(session, asked, principal)
            if asked.method in _SUBSCRIPTIONS
            else Exchange(self._inside, call, asked, principal, lines).run()
        )
        call.start(self._bounded(work, asked, principal), self.calls)
        return call

    async def batch(
        self, session: Session, lines: Headers, messages: list[object], principal: Principal
    ) -> Reply:
        """Answer several messages at once, each governed alone. SPEC: mcp.md 2: in 2025-03-26 only."""
        if session.version != _BATCHES or not 0 < len(messages) <= admission.MOST_IN_A_BATCH:
            bad = Bad(jsonrpc.INVALID_REQUEST, "the body must be one JSON-RPC message, not a batch")
            return refuse(self._inside.gate, principal, 400, bad)
        begun: list[Call | Plain] = []
        for message in messages:
            got = admission.classify(message)
            if isinstance(got, admission.Call):
                begun.append(self.begin(session, got, principal, lines, events=False))
            elif isinstance(got, Bad):
                begun.append(refuse(self._inside.gate, principal, 200, got))
            else:
                self.take(session, got)
        answers = [one.body if isinstance(one, Plain) else await one.response() for one in begun]
        said = [answer for answer in answers if answer is not None]
        return Plain(200, b"[" + b",".join(said) + b"]") if said else ACCEPTED

    def take(self, session: Session, got: Notice | Answered) -> None:
        """Take a notification or a response: neither is answered."""
        if isinstance(got, Answered):
            # SECURITY: an answer counts once, and only in the session that was asked: ids of pushes can be guessed.
            pending = session.pushes.pop(got.id, None) if isinstance(got.id, str) else None
            if pending is None or pending.done():
                self.strays += 1
            else:
                pending.set_result(got)
        elif got.method == _CANCELLED:
            request_id = got.params.get("requestId")
            call = session.calls.get(key_of(request_id)) if isinstance(request_id, str | int) else None
            if call is not None:
                call.cancel()

    def subscription(self, session: Session, principal: Principal) -> Subscription:
        """Return what a session hears of, made at its first use."""
        if not isinstance(session.subscription, Subscription):
            session.subscription = Subscription(self._listener, session, principal)
        return session.subscription

    def _faulty(self, session: Session, asked: admission.Call) -> Bad | None:
        """Return why a request is not begun, or None."""
        method, served = asked.method, self._inside.gate.snapshot.methods
        if method == _SET_LEVEL:
            return admission.faulty_level(asked)
        if method in _GOVERNED and method in served:
            bad = admission.faulty_call(asked)
        elif method in _SUBSCRIPTIONS and LISTEN in served:
            bad = admission.faulty_uri(asked)
        else:
            # SECURITY: no method that is not ours goes further: it becomes a header.
            return Bad(jsonrpc.METHOD_NOT_FOUND, "this method is not served", asked.id, method)
        if bad is None and key_of(asked.id) in session.calls:
            return Bad(jsonrpc.INVALID_REQUEST, "a request with this id is under way", asked.id, method)
        if bad is None and (len(session.calls) >= MOST_CALLS or len(self.calls) >= MOST_CALLS_IN_ALL):
            reason = "too many requests are under way"
            return Bad(jsonrpc.INTERNAL, reason, asked.id, method)
        return bad

    async def _bounded(
        self, work: Coroutine[Any, Any, Message], asked: admission.Call, principal: Principal
    ) -> Message:
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - the boundary: recorded as internal.error, fails closed
            gate = self._inside.gate
            entry = recording.entry(
                gate.ids.hex(16), principal=values.name(principal.name), method=asked.method
            )
            return read(boundary.broke(gate, entry, None, asked.id, error).body)

    async def _subscribed(self, session: Session, asked: admission.Call, principal: Principal) -> Message:
        """Change what a session hears of; answered once that is so."""
        uri = str(asked.params["uri"])
        subscription = self.subscription(session, principal)
        if asked.method == _UNSUBSCRIBE:
            await subscription.unsubscribe(uri, principal)
        elif not await subscription.subscribe(uri, principal):
            reason = "airlock: this resource cannot be subscribed to"
            return jsonrpc.error(asked.id, jsonrpc.INVALID_PARAMS, reason, {"uri": uri})
        return jsonrpc.result(asked.id, {})

"""The front for clients that open with `initialize`: sessions, their requests, their streams, their end.

Knows which message leads where (mcp.md 18, 19, 20a); what a request may do is decided by the governed entry it is
handed. Every caller is authenticated before it comes here, on every request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import msgspec

from airlock.core.principal import Principal
from airlock.core.wire import jsonrpc
from airlock.edge.headers import Headers
from airlock.gateway.advertised import LISTEN
from airlock.gateway.gate import Gate
from airlock.gateway.legacy import admission, downward, handshake, hold, replies, sessions, streams, upward
from airlock.gateway.legacy.admission import Bad
from airlock.gateway.legacy.calls import Tasks
from airlock.gateway.legacy.dispatch import Dispatch
from airlock.gateway.legacy.exchange import ANSWER_S, Govern, Inside, begin, read
from airlock.gateway.legacy.hold import Confirmations
from airlock.gateway.legacy.refusals import refuse
from airlock.gateway.legacy.replies import ACCEPTED, Plain, Reply, Streaming
from airlock.gateway.legacy.sessions import Session, Sessions
from airlock.gateway.legacy.streams import Replay
from airlock.gateway.legacy.subscription import Listener, Subscription

__all__ = ["Counts", "LegacyFront", "LegacySettings", "Plain", "Streaming"]

_SWEEP_S: Final = 15.0
_CLOSE_S: Final = 5.0


class LegacySettings(msgspec.Struct, frozen=True):
    """How long and how much, in seconds and numbers. `hold_s`: how long a call is held for a person."""

    hold_s: float = hold.HOLD_S
    answer_s: float = ANSWER_S
    stream_after_s: float = 10.0
    keep_alive_s: float = streams.KEEP_ALIVE_S
    replay_s: float = streams.REPLAY_S
    idle_s: float = sessions.IDLE_S
    most_sessions: int = sessions.MOST_SESSIONS
    most_sessions_each: int = sessions.MOST_EACH


class Counts(msgspec.Struct, frozen=True):
    """What is open now, and how many responses came that nobody had asked for."""

    sessions: int
    calls: int
    confirmations: int
    strays: int


class LegacyFront:
    """Answers the requests of clients of 2025-03-26, 2025-06-18 and 2025-11-25.

    `govern` answers one request of revision 2026-07-28, `listen` one `subscriptions/listen`, telling what comes to
    the request's `heard`. Neither raises anything but CancelledError.
    """

    def __init__(self, govern: Govern, listen: Govern, gate: Gate, settings: LegacySettings) -> None:
        self._gate, self._settings = gate, settings
        self._govern = govern
        self._feeds: Tasks = set()
        self._replay = Replay()
        self._confirmations = Confirmations(gate.clock)
        self._dispatch = Dispatch(
            Inside(govern, gate, self._confirmations, settings.hold_s, settings.answer_s),
            Listener(listen, gate, self._feeds),
            self._replay_until,
        )
        self._sessions = Sessions(
            gate.ids,
            gate.clock,
            most=settings.most_sessions,
            most_each=settings.most_sessions_each,
            idle_s=settings.idle_s,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._draining = False

    @property
    def counts(self) -> Counts:
        """Return what is open, for whoever watches."""
        calls = len(self._dispatch.calls)
        return Counts(len(self._sessions), calls, len(self._confirmations), self._dispatch.strays)

    async def post(self, lines: Headers, raw: bytes, message: object, principal: Principal) -> Reply:
        """Answer one POST. `message` is its body `raw`, strictly parsed; `principal` was just authenticated."""
        # A batch is no message; what it holds is looked at one by one.
        got = None if isinstance(message, list) else admission.classify(message)
        if isinstance(got, admission.Call) and got.method == "initialize":
            return await self._opened(got, principal)
        request_id = got.id if isinstance(got, admission.Call | Bad) else None
        session = self._session(lines, principal, request_id)
        if not isinstance(session, Session):
            return session
        events = admission.takes(lines, b"text/event-stream")
        if not events and not admission.takes(lines, b"application/json"):
            return self._refused(principal, 406, _bad("Accept must allow application/json", request_id))
        if isinstance(message, list):
            return await self._dispatch.batch(session, lines, message, principal)
        assert got is not None
        if isinstance(got, Bad):
            return self._refused(principal, admission.status_of(got), got)
        if not isinstance(got, admission.Call):
            self._dispatch.take(session, got)
            return ACCEPTED
        begun = self._dispatch.begin(session, got, principal, lines, events=events)
        if isinstance(begun, Plain):
            return begun
        return await begun.reply(self._settings.stream_after_s, self._settings.keep_alive_s)

    async def get(self, lines: Headers, principal: Principal) -> Reply:
        """Open the stream of a session, or resume one of its streams."""
        session = self._session(lines, principal, None)
        if not isinstance(session, Session):
            return session
        if not admission.takes(lines, b"text/event-stream"):
            return self._refused(principal, 406, _bad("Accept must allow text/event-stream"))
        if self._draining:
            return replies.refused(503, jsonrpc.INTERNAL, "this gateway is stopping")
        last = lines.first.get(b"last-event-id")
        found = streams.place(last.strip(b" \t")) if last else (sessions.STANDALONE, None)
        if found is None:
            return self._refused(principal, 400, _bad("this Last-Event-ID was not given out here"))
        number, after = found
        if number == sessions.STANDALONE:
            if session.kinds or session.subscription is not None:
                self._dispatch.subscription(session, principal).follow(principal)
            return self._streaming(session.standalone, after)
        stream = session.streams.get(number)
        if stream is None:
            return self._refused(principal, 400, _bad("this stream can no longer be resumed"))
        if after is not None and stream.exhausted(after):
            # 204 tells a client that reconnects by itself to stop: there is nothing more to come.
            return Plain(204)
        return self._streaming(stream, after)

    async def delete(self, lines: Headers, principal: Principal) -> Reply:
        """End a session and everything in it."""
        session = self._session(lines, principal, None)
        if not isinstance(session, Session):
            return session
        self._sessions.end(session)
        return Plain(200)

    def drain(self) -> None:
        """End the streams that have no end of their own: the server stops."""
        self._draining = True
        until = self._gate.clock.monotonic() + self._settings.replay_s
        for session in self._sessions.all():
            if session.listening is not None:
                session.listening.end(until)

    async def close(self) -> None:
        """End every session and wait, for a bounded time, until what they ran has ended."""
        self._draining = True
        if self._timer is not None:
            self._timer.cancel()
        for session in self._sessions.all():
            self._sessions.end(session)
        left = self._feeds | self._dispatch.calls
        if left:
            await asyncio.wait(left, timeout=_CLOSE_S)

    async def _opened(self, asked: admission.Call, principal: Principal) -> Reply:
        """Answer an `initialize`: a session, and what a discovery inside says of the server. SPEC: mcp.md 18."""
        offered = asked.params.get("protocolVersion")
        if not isinstance(offered, str):
            bad = Bad(
                jsonrpc.INVALID_PARAMS, "initialize needs a string protocolVersion", asked.id, asked.method
            )
            return self._refused(principal, 200, bad)
        version = handshake.agreed(offered)
        session = None if self._draining else self._sessions.open(principal, version, self._replay)
        if session is None:
            reason = "too many sessions are open: end one with DELETE, or wait"
            plain = self._refused(principal, 503, Bad(jsonrpc.INTERNAL, reason, asked.id, asked.method))
            return Plain(plain.status, plain.body, ((b"retry-after", b"30"),))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        session.capabilities = handshake.declared(asked.params.get("capabilities"), version)
        session.client_info = handshake.named(asked.params.get("clientInfo"))
        result: dict[str, object] | None = None
        try:
            request = upward.discover(session, asked.id, None)
            message = read((await self._govern(request, principal, begin(self._gate, (None, None)))).body)
            found = message.get("result")
            if isinstance(found, dict) and not session.ended:
                listen = LISTEN in self._gate.snapshot.methods
                result = handshake.opened(found, version, listen=listen)
        finally:
            if result is None:
                self._sessions.end(session)
        if result is None:
            return replies.message(downward.response(message, asked.id, asked.method, version))
        session.kinds = handshake.change_kinds(result)
        answer = replies.message(jsonrpc.result(asked.id, result))
        return Plain(200, answer.body, ((b"mcp-session-id", session.id.encode("ascii")),))

    def _session(self, lines: Headers, principal: Principal, request_id: object) -> Session | Plain:
        """Return the session that a request names, or what is wrong with naming it."""
        if admission.faulty_version(lines):
            reason = "this MCP-Protocol-Version is not served"
            return self._refused(principal, 400, _bad(reason, request_id))
        named = admission.session_id(lines)
        if named is None:
            reason = "Mcp-Session-Id is required, once: open a session with initialize"
            return self._refused(principal, 400, Bad(replies.NO_SESSION, reason, request_id))
        session = self._sessions.find(named, principal)
        if session is None:
            return self._refused(
                principal, 404, Bad(replies.SESSION_UNKNOWN, "session not found", request_id)
            )
        said = lines.first.get(b"mcp-protocol-version")
        if said is not None and not session.told_version and said.strip(b" \t").decode() != session.version:
            session.told_version = True
            self._gate.log.line(
                f"a client of {session.version} names {said.strip().decode()} in its MCP-Protocol-Version headers"
            )
        return session

    def _streaming(self, stream: streams.Stream, after: int | None) -> Streaming:
        return Streaming(
            200, (), partial(stream.serve, keep_alive_s=self._settings.keep_alive_s, after=after)
        )

    def _replay_until(self) -> float:
        return self._gate.clock.monotonic() + self._settings.replay_s

    def _sweep(self) -> None:
        """End what nobody uses; comes again as long as there are sessions."""
        now = self._gate.clock.monotonic()
        self._replay.expire(now)
        self._confirmations.expire()
        self._sessions.expire()
        for session in self._sessions.all():
            if isinstance(session.subscription, Subscription):
                session.subscription.rest(now, self._settings.replay_s)
        again = len(self._sessions) > 0
        self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep) if again else None

    def _refused(self, principal: Principal, status: int, bad: Bad) -> Plain:
        return refuse(self._gate, principal, status, bad)


def _bad(reason: str, request_id: object = None) -> Bad:
    return Bad(jsonrpc.INVALID_REQUEST, reason, request_id)

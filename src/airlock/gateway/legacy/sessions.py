"""The sessions of the legacy front: who opened them, what their clients declared, and what is under way in them.

Knows sessions and their limits; knows no method and asks nobody. SPEC: mcp.md 16 (last line), 18.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

from airlock.core.ports import Clock, Ids
from airlock.core.principal import Principal, Source
from airlock.gateway.legacy.admission import Answered
from airlock.gateway.legacy.streams import Replay, Stream

__all__ = [
    "IDLE_S",
    "MOST_EACH",
    "MOST_SESSIONS",
    "PRIMED_SINCE",
    "STANDALONE",
    "Ending",
    "Key",
    "Owner",
    "Running",
    "Session",
    "Sessions",
    "key_of",
    "owner_of",
]

# SECURITY: whoever may open sessions could otherwise fill the memory with them; nobody can push out another's.
MOST_SESSIONS: Final = 4096
MOST_EACH: Final = 1000
IDLE_S: Final = 1800.0

STANDALONE: Final = 0
"""The number of the stream that a GET opens; those of calls count from 1."""

PRIMED_SINCE: Final = "2025-11-25"
"""The revision whose clients understand an event without data; older ones fail on it."""

_ID_BYTES: Final = 32

Key = tuple[type, object]
Owner = tuple[str, Source]


def key_of(request_id: object) -> Key:
    """Return a request id as a key: 1 and "1" are two ids. SPEC: mcp.md 2."""
    return type(request_id), request_id


def owner_of(principal: Principal) -> Owner:
    """Return what a session is bound to: the name, and how it was known."""
    return principal.name, principal.source


class Running(Protocol):
    """A request under way."""

    def cancel(self) -> None:
        """Stop it: no response is sent."""
        ...


class Ending(Protocol):
    """Something that a session keeps open."""

    def close(self) -> None:
        """End it."""
        ...


class Session:
    """One client from its `initialize` to its end.

    `capabilities` and `client_info` are in the form of revision 2026-07-28; `kinds` are the kinds of changes
    that the server told it will announce, as `subscriptions/listen` names them. `pushes` are the requests that
    were sent to the client and wait for its answer, by id.
    """

    __slots__ = (
        "_last_push", "_last_stream", "_replay", "calls", "capabilities", "client_info", "ended", "id",
        "kinds", "log_level", "owner", "pushes", "streams", "subscription", "told_version", "used_at", "version",
    )  # fmt: skip

    def __init__(self, session_id: str, owner: Owner, version: str, replay: Replay, now: float) -> None:
        self.id = session_id
        self.owner = owner
        self.version = version
        self.used_at = now
        self.capabilities: dict[str, object] = {}
        self.client_info: dict[str, object] | None = None
        self.kinds: tuple[str, ...] = ()
        self.log_level: str | None = None
        self.calls: dict[Key, Running] = {}
        self.pushes: dict[str, asyncio.Future[Answered]] = {}
        self.streams: dict[int, Stream] = {}
        self.subscription: Ending | None = None
        self.told_version = self.ended = False
        self._replay = replay
        self._last_push, self._last_stream = 0, STANDALONE

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nobody listens."""
        return not self.calls and not any(stream.attached for stream in self.streams.values())

    @property
    def standalone(self) -> Stream:
        """The stream of a GET, made at its first use."""
        return self.streams.get(STANDALONE) or self._stream(STANDALONE)

    @property
    def listening(self) -> Stream | None:
        """The stream of a GET while a client reads it."""
        stream = self.streams.get(STANDALONE)
        return stream if stream is not None and stream.attached else None

    def new_stream(self) -> Stream:
        """Make the stream of a call."""
        self._last_stream += 1
        return self._stream(self._last_stream)

    def new_push(self) -> str:
        """Return a fresh id for a request to the client. Ids of its own requests are another namespace."""
        self._last_push += 1
        return f"p-{self._last_push}"

    def end(self) -> None:
        """Stop everything."""
        self.ended = True
        for call in list(self.calls.values()):
            call.cancel()
        if self.subscription is not None:
            self.subscription.close()
        for stream in list(self.streams.values()):
            stream.forget()

    def _stream(self, number: int) -> Stream:
        stream = Stream(number, self.streams, self._replay, priming=self.version >= PRIMED_SINCE)
        if self.ended:
            stream.forget()  # what is said after the end is said to nobody
        return stream


class Sessions:
    """All sessions, by id and by owner. `most` in all, `most_each` of one owner."""

    __slots__ = ("_by_id", "_by_owner", "_clock", "_idle_s", "_ids", "_most", "_most_each")

    def __init__(
        self,
        ids: Ids,
        clock: Clock,
        *,
        most: int = MOST_SESSIONS,
        most_each: int = MOST_EACH,
        idle_s: float = IDLE_S,
    ) -> None:
        self._ids, self._clock = ids, clock
        self._most, self._most_each, self._idle_s = most, most_each, idle_s
        self._by_id: dict[str, Session] = {}
        self._by_owner: dict[Owner, OrderedDict[str, Session]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> list[Session]:
        """Return every session."""
        return list(self._by_id.values())

    def open(self, principal: Principal, version: str, replay: Replay) -> Session | None:
        """Make a session for `principal`; None when there is no room. Its own oldest idle one makes room."""
        owner = owner_of(principal)
        own = self._by_owner.setdefault(owner, OrderedDict())
        if len(own) >= self._most_each or len(self._by_id) >= self._most:
            oldest = next((session for session in own.values() if session.idle), None)
            if oldest is not None:
                self.end(oldest)
        if len(own) >= self._most_each or len(self._by_id) >= self._most:
            if not own:
                self._by_owner.pop(owner, None)
            return None
        session = Session(self._ids.hex(_ID_BYTES), owner, version, replay, self._clock.monotonic())
        self._by_id[session.id] = session
        # The owner's entry goes with its last session, which may just have been ended.
        self._by_owner.setdefault(owner, own)[session.id] = session
        return session

    def find(self, session_id: str, principal: Principal) -> Session | None:
        """Return the session of this id, when it is this principal's. Finding one is using it."""
        session = self._by_id.get(session_id)
        # SECURITY: an id that was stolen, guessed or logged is worth nothing without its owner's credential.
        if session is None or session.owner != owner_of(principal):
            return None
        session.used_at = self._clock.monotonic()
        self._by_owner[session.owner].move_to_end(session_id)
        return session

    def end(self, session: Session) -> None:
        """End a session and forget it."""
        if self._by_id.pop(session.id, None) is not None:
            own = self._by_owner[session.owner]
            del own[session.id]
            if not own:
                del self._by_owner[session.owner]
        session.end()

    def expire(self) -> None:
        """End the sessions that nobody uses."""
        before = self._clock.monotonic() - self._idle_s
        for session in self.all():
            if not session.idle:
                session.used_at = self._clock.monotonic()
            elif session.used_at <= before:
                self.end(session)

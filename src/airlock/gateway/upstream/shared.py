"""Subscriptions of one caller share one stream of the upstream, each with its own id and its own filter.

Knows who asked for what, and what the upstream honours of it; does not know how a stream is opened, or what a policy
lets a caller hear. SPEC: mcp.md 12 (Airlock).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from itertools import count
from typing import Final

import msgspec

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import canon, jsonrpc
from airlock.gateway import meta
from airlock.gateway.upstream.fanout import FILTER, KINDS
from airlock.gateway.upstream.later import Later, Timer, on_loop
from airlock.gateway.upstream.port import Answer, Heard, Outgoing, Upstream
from airlock.gateway.upstream.routes import rebuilt

__all__ = ["GRACE_S", "MOST_RESTING", "MOST_URIS", "PATIENCE_S", "SharedListens"]

GRACE_S: Final = 2.0
"""How long a stream that nobody hears is kept, and how long one brings what nobody asks for any more."""

PATIENCE_S: Final = 5.0
"""How long a stream waits for the acknowledgement of the one before it. Then it is opened beside it."""

MOST_URIS: Final = 256
"""LIMIT: resources in one stream, since servers behind leave out what is over their own limit. More need a second."""

# SECURITY: a client chooses its capabilities, and so how many streams it leaves behind when it comes and goes.
MOST_RESTING: Final = 64
"""LIMIT: streams that nobody hears; further ones are closed at once."""

_METHOD: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"
_TAG: Final = "io.modelcontextprotocol/subscriptionId"
_KIND_OF: Final = {method: kind for kind, method in KINDS.items()}
_ENVELOPE: Final = frozenset(
    {"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"}
)
_TRACE: Final = ("traceparent", "tracestate")


class SharedListens:
    """Listens at `upstream` for many. Belongs to one event loop.

    Callers share a stream when they are the same principal with the same groups, token, era and capabilities.
    When somebody asks for more than the stream brings, another one for all of it is opened, and takes the place of
    the old one once it is acknowledged.
    """

    def __init__(self, upstream: Upstream, later: Later = on_loop) -> None:
        self._upstream = upstream
        self._later = later
        self._streams: dict[bytes, list[_Stream]] = {}
        self._resting: set[_Stream] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._closed = False

    async def listen(self, outgoing: Outgoing, heard: Heard) -> Answer:
        """Send `subscriptions/listen`, or share what was sent for others: as `Upstream.listen`.

        What is acknowledged is what the upstream honours of this very request. Its end or its refusal is told to
        everybody who shares the stream.
        """
        if self._closed:
            raise _stopped()
        member = _Member(outgoing, heard)
        self._place(member)
        try:
            end = await member.ended
        finally:
            self._leave(member)
            member.seen()
        if end is None:
            return await self._upstream.listen(outgoing, heard)
        return Answer(end.status, {**end.message, "id": outgoing.id}, end.result)

    async def close(self) -> None:
        """Close every stream; those who listen are told that the upstream is gone, later ones at once."""
        self._closed = True
        for stream in [stream for streams in self._streams.values() for stream in streams]:
            members = stream.emptied()
            self._drop(stream)
            for member in members:
                member.fail(_stopped())
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Who hears which stream

    def _place(self, member: _Member) -> None:
        """Let `member` hear a stream that brings what it asks for, or have one opened."""
        key = _key(member.outgoing)
        streams = self._streams.setdefault(key, [])
        found = next((it for it in streams if it.covers(member)), None)
        if found is None:
            last = streams[-1] if streams and streams[-1].fits(member) else None
            found = last if last is not None and not last.sent else self._opened(key, last)
        if found in self._resting:
            self._rested(found)
        found.join(member)

    def _opened(self, key: bytes, before: _Stream | None) -> _Stream:
        """Have a stream opened, also for those who hear `before`. Whoever joins before it is sent is asked for too."""
        stream = _Stream(self, key, before)
        self._streams[key].append(stream)
        stream.task = asyncio.get_running_loop().create_task(self._run(stream))
        self._tasks.add(stream.task)
        stream.task.add_done_callback(self._tasks.discard)
        return stream

    def _leave(self, member: _Member) -> None:
        stream = member.stream
        if stream is None:
            return
        stream.part(member)
        if not stream.sent or stream.gone:
            return
        if stream.members:
            if stream.stale and stream.timer is None:
                stream.timer = self._later(GRACE_S, lambda: self._narrow(stream))
        elif len(self._resting) >= MOST_RESTING:
            self._drop(stream)
        else:
            self._rested(stream)
            self._resting.add(stream)
            stream.timer = self._later(GRACE_S, lambda: self._drop(stream))

    def _rested(self, stream: _Stream) -> None:
        """What was to be done with the stream later is not."""
        self._resting.discard(stream)
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None

    def _narrow(self, stream: _Stream) -> None:
        """Ask for less: some of what the stream brings is nobody's any more."""
        stream.timer = None
        followed = any(it.before is stream for it in self._streams[stream.key])
        if stream.stale and not followed:
            self._opened(stream.key, stream)

    def _drop(self, stream: _Stream) -> None:
        """Close a stream; whoever hears it must have been told."""
        self._forget(stream)
        if stream.task is not None:
            stream.task.cancel()

    def _forget(self, stream: _Stream) -> None:
        self._rested(stream)
        stream.gone = True
        stream.settle()
        streams = self._streams.get(stream.key, [])
        if stream in streams:
            streams.remove(stream)
        for vain in [it for it in streams if it.before is stream and it.sent and not it.members]:
            self._drop(vain)
        if not streams:
            self._streams.pop(stream.key, None)

    # What a stream goes through

    async def _run(self, stream: _Stream) -> None:
        before = stream.before
        if before is not None:
            await asyncio.wait({before.settled}, timeout=PATIENCE_S)
        asked = stream.begin(f"airlock-listen-{next(self._numbers)}")
        if asked is None:
            self._forget(stream)
            return
        end: Answer | Exception
        try:
            end = await self._upstream.listen(asked, stream)
        except Exception as error:  # noqa: BLE001 - the boundary: told to everybody who shares the stream
            end = error
        members = stream.emptied()
        refused = isinstance(end, Answer) and end.result is None and not stream.acknowledged
        self._forget(stream)
        for member in members:
            if isinstance(end, Exception):
                member.fail(end)
            elif refused and not _whole(end) and not stream.is_of(member):
                member.end(None)  # what was refused may be another's part of it
            else:
                member.end(end)

    def acknowledged(self, stream: _Stream) -> None:
        """A stream was acknowledged: those who heard the one before it hear this one, where it brings them as much."""
        before, stream.before = stream.before, None
        if before is None or before.gone:
            return
        for member in [member for member in before.members if stream.replaces(before, member)]:
            self._rested(stream)
            before.part(member)
            stream.join(member, told=before.acknowledged)
        for one in (before, stream):
            if not one.members:
                self._drop(one)


class _Member:
    """One subscription while it is open."""

    __slots__ = ("ended", "heard", "kinds", "outgoing", "resources", "stream", "uris")

    def __init__(self, outgoing: Outgoing, heard: Heard) -> None:
        wanted = outgoing.params.get("notifications")
        wanted = wanted if isinstance(wanted, dict) else {}
        self.outgoing = outgoing
        self.heard = heard
        self.kinds = frozenset(kind for kind in KINDS if wanted.get(kind) is True)
        self.uris = tuple(_texts(wanted.get(FILTER)))
        self.resources = frozenset(self.uris)
        self.stream: _Stream | None = None
        # None: it has to open a stream of its own.
        self.ended: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

    def end(self, end: Answer | None) -> None:
        if not self.ended.done():
            self.ended.set_result(end)

    def fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def seen(self) -> None:
        """Look at how it ended, so that nothing complains that nobody did."""
        if not self.ended.cancelled():
            self.ended.exception()

    def wants(self, uri: str) -> bool:
        """Tell whether an update of `uri` is one of what was asked for, or of a part of it."""
        return any(uri == own or uri.startswith(own.removesuffix("/") + "/") for own in self.uris)

    def tell(self, method: str, params: dict[str, object]) -> None:
        """Pass one notification on, under the id of its own."""
        if self.ended.done():
            return
        said = params.get("_meta")
        tagged = {**(said if isinstance(said, dict) else {}), _TAG: self.outgoing.id}
        try:
            self.heard.notify({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": tagged}})
        except Exception as error:  # noqa: BLE001 - the boundary between those who share: it fails alone
            self.fail(error)


class _Stream:
    """One stream of the upstream: it is the stream's `Heard`."""

    def __init__(self, owner: SharedListens, key: bytes, before: _Stream | None) -> None:
        self._owner = owner
        self.key = key
        self.before = before
        self.members: dict[_Member, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent = self.acknowledged = self.gone = False
        self._kinds: frozenset[str] = frozenset()
        self._uris: dict[str, None] = {}
        self._honoured: frozenset[str] = frozenset()
        self._honoured_uris: frozenset[str] = frozenset()
        self._wanted: Counter[str] = Counter()  # by how many members each resource is asked for

    # What is asked for

    def covers(self, member: _Member) -> bool:
        """Tell whether this stream was opened for all that `member` asks for."""
        return self.sent and member.kinds <= self._kinds and member.resources <= self._uris.keys()

    def is_of(self, member: _Member) -> bool:
        """Tell whether this stream was opened for exactly what `member` asks for."""
        return member.kinds == self._kinds and member.resources == self._uris.keys()

    def fits(self, member: _Member) -> bool:
        """Tell whether one stream may bring what `member` asks for, and all that is asked for here."""
        return len(self._wanted.keys() | member.resources) <= MOST_URIS

    @property
    def stale(self) -> bool:
        """Whether the upstream was asked for resources that nobody asks for any more."""
        return len(self._uris) > len(self._wanted)

    def begin(self, request_id: str) -> Outgoing | None:
        """Return the request of this stream; None when nobody needs it any more."""
        before = self.before
        if before is not None and (before.gone or not (self.members or before.stale)):
            before = self.before = None
        heard = [*(() if before is None else before.members), *self.members]
        if not heard:
            return None
        self.sent = True
        self._kinds = frozenset().union(*(member.kinds for member in heard))
        uris = [*self._wanted, *(() if before is None else before._wanted)]
        # INVARIANT: its own come first; of those of the stream before, which may be more by now, what there is room for.
        self._uris = dict.fromkeys(list(dict.fromkeys(uris))[: max(MOST_URIS, len(self._wanted))])
        notifications: dict[str, object] = dict.fromkeys((it for it in KINDS if it in self._kinds), True)
        if self._uris:
            notifications[FILTER] = list(self._uris)
        like = heard[-1].outgoing
        told = like.params.get("_meta")
        envelope = _common(like)
        envelope.update((name, told[name]) for name in _TRACE if isinstance(told, dict) and name in told)
        params: dict[str, object] = {"notifications": notifications, "_meta": envelope}
        return rebuilt(msgspec.structs.replace(like, id=request_id), params, method=_METHOD)

    # Who hears it

    def join(self, member: _Member, *, told: bool = False) -> None:
        """Add a member; it is acknowledged as soon as the stream is, unless it was `told` before."""
        member.stream = self
        self.members[member] = None
        self._wanted.update(member.uris)
        if self.acknowledged and not told:
            self._acknowledge(member)

    def part(self, member: _Member) -> None:
        """Remove a member."""
        member.stream = None
        del self.members[member]
        for uri in member.uris:
            self._wanted[uri] -= 1
            if not self._wanted[uri]:
                del self._wanted[uri]

    def emptied(self) -> list[_Member]:
        """Remove all members and return them."""
        members = list(self.members)
        for member in members:
            self.part(member)
        return members

    def replaces(self, before: _Stream, member: _Member) -> bool:
        """Tell whether this stream brings `member` all that it was told it would hear from `before`."""
        if not before.acknowledged:
            return self.covers(member)
        uris = before._honoured_uris.intersection(member.uris)
        return member.kinds & before._honoured <= self._honoured and uris <= self._honoured_uris

    def settle(self) -> None:
        """Who waits for this stream need not any more."""
        if not self.settled.done():
            self.settled.set_result(None)

    # What it brings

    def notify(self, message: dict[str, object]) -> None:
        """Take one notification of the upstream, and tell it to those who asked for it."""
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == _ACKNOWLEDGED:
            if not self.acknowledged:
                self._begun(params.get("notifications"))
        elif method == _UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str):
                for member in [member for member in self.members if member.wants(uri)]:
                    member.tell(_UPDATED, params)
        elif isinstance(method, str) and method in _KIND_OF:
            kind = _KIND_OF[method]
            for member in [member for member in self.members if kind in member.kinds]:
                member.tell(method, params)

    def _begun(self, notifications: object) -> None:
        honoured = notifications if isinstance(notifications, dict) else {}
        self._honoured = frozenset(kind for kind in self._kinds if honoured.get(kind) is True)
        self._honoured_uris = frozenset(_texts(honoured.get(FILTER))) & self._uris.keys()
        self.acknowledged = True
        for member in list(self.members):
            self._acknowledge(member)
        self._owner.acknowledged(self)
        self.settle()

    def _acknowledge(self, member: _Member) -> None:
        notifications: dict[str, object] = dict.fromkeys(
            (it for it in KINDS if it in member.kinds & self._honoured), True
        )
        uris = [uri for uri in member.uris if uri in self._honoured_uris]
        if uris:
            notifications[FILTER] = uris
        member.tell(_ACKNOWLEDGED, {"notifications": notifications})


def _texts(value: object) -> list[str]:
    """Return the distinct texts of a list, in its order."""
    return list(dict.fromkeys(it for it in value if isinstance(it, str))) if isinstance(value, list) else []


def _common(outgoing: Outgoing) -> dict[str, object]:
    """Return what of the envelope is the same for all who share: version, capabilities, who asks.

    What says which client it is, or belongs to one request of it, is nothing that a stream of several can say.
    """
    told = outgoing.params.get("_meta")
    return {
        name: value
        for name, value in (told if isinstance(told, dict) else {}).items()
        if name in _ENVELOPE or name.startswith(meta.PREFIX)
    }


def _key(outgoing: Outgoing) -> bytes:
    """Return what those who share a stream have in common.

    SECURITY: with other groups, or another token where tokens are exchanged, the upstream may say other things.
    """
    subject = None if outgoing.subject is None else outgoing.subject.reveal()
    parts = [outgoing.principal, outgoing.era.value, subject, _common(outgoing)]
    return hashlib.sha256(canon.encode(parts)).digest()


def _whole(refusal: Answer) -> bool:
    """Tell whether a refusal is of the method, whatever was asked for."""
    error = refusal.message.get("error")
    return isinstance(error, dict) and error.get("code") == jsonrpc.METHOD_NOT_FOUND


def _stopped() -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, "client closed", reached=False)

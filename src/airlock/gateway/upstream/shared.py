"""Subscriptions of one caller share a stream of the upstream, so that a thousand idle ones cost it one.

Knows when streams are opened, replaced and closed; does not know what is said on one (`sharedstream`).
SPEC: mcp.md 12 (Airlock).
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import jsonrpc
from airlock.gateway.upstream.later import Later, on_loop
from airlock.gateway.upstream.port import Answer, Heard, Outgoing, Upstream
from airlock.gateway.upstream.sharedstream import Member, Shared, key_of

__all__ = ["GRACE_S", "MOST_RESTING", "PATIENCE_S", "SharedListens"]

GRACE_S: Final = 2.0
"""How long a stream that nobody hears is kept, and how long one brings what nobody asks for any more."""

PATIENCE_S: Final = 5.0
"""How long a stream waits for the acknowledgement of the one before it. Then it is opened beside it."""

# SECURITY: a client chooses its capabilities, and so how many streams it leaves behind when it comes and goes.
MOST_RESTING: Final = 64
"""LIMIT: streams that nobody hears; further ones are closed at once."""


class SharedListens:
    """Listens at `upstream` for many. Belongs to one event loop.

    Callers share a stream when they are the same principal with the same groups, token, era and capabilities.
    When somebody asks for more than the stream brings, another one for all of it is opened, and takes the place of
    the old one once it is acknowledged.
    """

    def __init__(self, upstream: Upstream, later: Later = on_loop) -> None:
        self._upstream = upstream
        self._later = later
        self._streams: dict[bytes, list[Shared]] = {}
        self._resting: set[Shared] = set()
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
        member = Member(outgoing, heard)
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

    def _place(self, member: Member) -> None:
        """Let `member` hear a stream that brings what it asks for, or have one opened."""
        key = key_of(member.outgoing)
        streams = self._streams.setdefault(key, [])
        found = next((it for it in streams if it.covers(member)), None)
        if found is None:
            last = streams[-1] if streams and streams[-1].fits(member) else None
            found = last if last is not None and not last.sent else self._opened(key, last)
        if found in self._resting:
            self._rested(found)
        found.join(member)

    def _opened(self, key: bytes, before: Shared | None) -> Shared:
        """Have a stream opened, also for those who hear `before`. Who joins until it is sent is asked for too."""
        stream = Shared(key, before, self._began)
        self._streams[key].append(stream)
        stream.task = asyncio.get_running_loop().create_task(self._run(stream))
        self._tasks.add(stream.task)
        stream.task.add_done_callback(self._tasks.discard)
        return stream

    def _leave(self, member: Member) -> None:
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

    def _rested(self, stream: Shared) -> None:
        """What was to be done with the stream later is not."""
        self._resting.discard(stream)
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None

    def _narrow(self, stream: Shared) -> None:
        """Ask for less: some of what the stream brings is nobody's any more."""
        stream.timer = None
        followed = any(it.before is stream for it in self._streams[stream.key])
        if stream.stale and not followed:
            self._opened(stream.key, stream)

    def _drop(self, stream: Shared) -> None:
        """Close a stream; whoever hears it must have been told."""
        self._forget(stream)
        stream.task.cancel()

    def _forget(self, stream: Shared) -> None:
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

    async def _run(self, stream: Shared) -> None:
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

    def _began(self, stream: Shared) -> None:
        """Let those who heard the stream before this one hear this one, where it brings them as much."""
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


def _whole(refusal: Answer) -> bool:
    """Tell whether a refusal is of the method, whatever was asked for."""
    error = refusal.message.get("error")
    return isinstance(error, dict) and error.get("code") == jsonrpc.METHOD_NOT_FOUND


def _stopped() -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, "client closed", reached=False)

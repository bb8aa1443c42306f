"""One stream of the upstream that several subscriptions of a caller share: who hears it, and what of it.

Knows filters, ids and what the upstream honours; does not know when a stream is opened or closed.
SPEC: mcp.md 12 (Airlock).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from airlock.core.wire import canon
from airlock.gateway import meta
from airlock.gateway.upstream.fanout import FILTER, KINDS
from airlock.gateway.upstream.later import Timer
from airlock.gateway.upstream.port import Answer, Heard, Outgoing
from airlock.gateway.upstream.routes import rebuilt

__all__ = ["MOST_URIS", "Member", "Shared", "key_of"]

MOST_URIS: Final = 256
"""LIMIT: resources in one stream: servers leave out what is over a limit of theirs. More take another stream."""

_METHOD: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"
_TAG: Final = "io.modelcontextprotocol/subscriptionId"
_KIND_OF: Final = {method: kind for kind, method in KINDS.items()}
_ENVELOPE: Final = frozenset(
    {"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"}
)
_TRACE: Final = ("traceparent", "tracestate")


class Member:
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
        self.stream: Shared | None = None
        # None: it has to do with a stream of its own.
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


class Shared:
    """One stream, and its `Heard`. `began` is told when the upstream acknowledged it.

    `before`: the one whose place it is to take. `sent`: the upstream was asked. `gone`: nobody hears it any more.
    `task`, set by who made it, waits for its end.
    """

    task: asyncio.Task[None]

    def __init__(self, key: bytes, before: Shared | None, began: Callable[[Shared], None]) -> None:
        self._began = began
        self.key = key
        self.before = before
        self.members: dict[Member, None] = {}
        self.timer: Timer | None = None
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent = self.acknowledged = self.gone = False
        self._kinds: frozenset[str] = frozenset()
        self._uris: dict[str, None] = {}
        self._honoured: frozenset[str] = frozenset()
        self._honoured_uris: frozenset[str] = frozenset()
        self._wanted: Counter[str] = Counter()  # by how many members each resource is asked for

    # What is asked for

    def covers(self, member: Member) -> bool:
        """Tell whether this stream was opened for all that `member` asks for."""
        return self.sent and member.kinds <= self._kinds and member.resources <= self._uris.keys()

    def is_of(self, member: Member) -> bool:
        """Tell whether this stream was opened for exactly what `member` asks for."""
        return member.kinds == self._kinds and member.resources == self._uris.keys()

    def fits(self, member: Member) -> bool:
        """Tell whether one stream may bring what `member` asks for, and all that is asked for here."""
        return len(self._wanted.keys() | member.resources) <= MOST_URIS

    @property
    def stale(self) -> bool:
        """Whether the upstream was asked for resources that nobody asks for any more."""
        return any(uri not in self._wanted for uri in self._uris)

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
        # INVARIANT: its own come first; of those of the one before, more by now perhaps, what there is room for.
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

    def join(self, member: Member, *, told: bool = False) -> None:
        """Add a member; it is acknowledged as soon as the stream is, unless it was `told` before."""
        member.stream = self
        self.members[member] = None
        self._wanted.update(member.uris)
        if self.acknowledged and not told:
            self._acknowledge(member)

    def part(self, member: Member) -> None:
        """Remove a member."""
        member.stream = None
        del self.members[member]
        for uri in member.uris:
            self._wanted[uri] -= 1
            if not self._wanted[uri]:
                del self._wanted[uri]

    def emptied(self) -> list[Member]:
        """Remove all members and return them."""
        members = list(self.members)
        for member in members:
            self.part(member)
        return members

    def replaces(self, before: Shared, member: Member) -> bool:
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
                self._honour(params.get("notifications"))
        elif method == _UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str):
                for member in [member for member in self.members if member.wants(uri)]:
                    member.tell(_UPDATED, params)
        elif isinstance(method, str) and method in _KIND_OF:
            kind = _KIND_OF[method]
            for member in [member for member in self.members if kind in member.kinds]:
                member.tell(method, params)

    def _honour(self, notifications: object) -> None:
        honoured = notifications if isinstance(notifications, dict) else {}
        self._honoured = frozenset(kind for kind in self._kinds if honoured.get(kind) is True)
        self._honoured_uris = frozenset(_texts(honoured.get(FILTER))) & self._uris.keys()
        self.acknowledged = True
        for member in list(self.members):
            self._acknowledge(member)
        self._began(self)
        self.settle()

    def _acknowledge(self, member: Member) -> None:
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


def key_of(outgoing: Outgoing) -> bytes:
    """Return what those who share a stream have in common.

    SECURITY: with other groups, or another token where tokens are exchanged, the upstream may say other things.
    """
    subject = None if outgoing.subject is None else outgoing.subject.reveal()
    parts = [outgoing.principal, outgoing.era.value, subject, _common(outgoing)]
    return hashlib.sha256(canon.encode(parts)).digest()

"""Asking several upstreams for one list or description at once, without waiting long for any of them.

Knows pages, time limits and what was told before; does not know how lists become one. SPEC: mcp.md 9, 26 (18).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.ports import Clock
from airlock.core.wire import canon, jsonrpc
from airlock.gateway import body, meta
from airlock.gateway.upstream.credentials import NoCredential
from airlock.gateway.upstream.member import Watched
from airlock.gateway.upstream.merge import DISCOVER, LISTS, ttl_ms
from airlock.gateway.upstream.port import Outgoing
from airlock.gateway.upstream.routes import rebuilt

__all__ = ["MAX_ITEMS", "MAX_KEPT", "MAX_KEPT_BYTES", "MAX_PAGES", "STALE_S", "Gathering", "Told"]

MAX_PAGES = 100
"""LIMIT: pages of one list; a server with more has no list at all."""

MAX_ITEMS = 10_000
"""LIMIT: entries of one server's list, likewise."""

STALE_S = 600.0
"""How old a list may be that stands in for one that does not come."""

MAX_KEPT = 4096
"""LIMIT: lists that are remembered, for all servers, callers and methods together; the oldest go first."""

MAX_KEPT_BYTES = 32 * 1024 * 1024
"""LIMIT: bytes of all of them."""

_TOO_LARGE = UpstreamFailure.TOO_LARGE

_Key = tuple[str, bytes, str, bool]


class Told(msgspec.Struct, frozen=True):
    """What one upstream told: the entries of its list (of a description, the result alone) and how long it holds.

    `error` says why nothing came now: `items` are then those of before, or None. `known` is False when the
    server does not have the method.
    """

    watched: Watched
    items: list[object] | None
    ttl: int = 0
    error: UpstreamError | None = None
    known: bool = True


class Gathering:
    """Asks all upstreams, and remembers what each told each caller for when it is silent."""

    __slots__ = ("_bytes", "_clock", "_kept")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[_Key, tuple[float, bytes]] = OrderedDict()
        self._bytes = 0

    async def all(self, upstreams: Sequence[Watched], outgoing: Outgoing, *, exact: bool) -> list[Told]:
        """Ask every one for what `outgoing` asks for, its pages included. Raises no UpstreamError."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(it, outgoing, exact=exact)) for it in upstreams]
        return [task.result() for task in tasks]

    async def _one(self, watched: Watched, outgoing: Outgoing, *, exact: bool) -> Told:
        # SECURITY: what one caller was told is for him alone; and what a decision depends on was read exactly.
        key = (watched.name, _caller(outgoing), outgoing.method, exact)
        try:
            told = await self._fresh(watched, outgoing, exact=exact)
        except NoCredential as error:
            # SECURITY: who has no credential for the server any more is told nothing of it.
            self._keep(key, None)
            return Told(watched, None, error=error)
        except UpstreamError as error:
            return Told(watched, self._find(key), error=error)
        self._keep(key, None if told.items is None else body.encode(told.items))
        return told

    async def _fresh(self, watched: Watched, outgoing: Outgoing, *, exact: bool) -> Told:
        if watched.resting:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "too slow before", reached=False)
        try:
            async with asyncio.timeout(watched.spec.limits.list_timeout_s):
                return await _pages(watched, outgoing, exact=exact)
        except TimeoutError:
            cause = f"no answer to {outgoing.method} in time"
            error = UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=True)
            watched.too_slow(error)
            raise error from None

    def _find(self, key: _Key) -> list[object] | None:
        kept = self._kept.get(key)
        if kept is None or self._clock.monotonic() - kept[0] >= STALE_S:
            return None
        items: list[object] = json.loads(kept[1])
        return items

    def _keep(self, key: _Key, encoded: bytes | None) -> None:
        self._forget(self._kept.pop(key, None))
        if encoded is None:
            return
        self._kept[key] = (self._clock.monotonic(), encoded)
        self._bytes += len(encoded)
        while self._bytes > MAX_KEPT_BYTES or len(self._kept) > MAX_KEPT:
            self._forget(self._kept.popitem(last=False)[1])

    def _forget(self, kept: tuple[float, bytes] | None) -> None:
        if kept is not None:
            self._bytes -= len(kept[1])


def _caller(outgoing: Outgoing) -> bytes:
    """Return who asks, as far as a server can tell.

    SECURITY: with other groups, or another token where tokens are exchanged, a server may list other things.
    Nothing that a client may vary is in it: it would push out what others were told.
    """
    told = outgoing.params.get("_meta")
    groups = told.get(meta.GROUPS) if isinstance(told, dict) else None
    subject = None if outgoing.subject is None else outgoing.subject.reveal()
    return hashlib.sha256(canon.encode([outgoing.principal, groups, subject])).digest()


async def _pages(watched: Watched, outgoing: Outgoing, *, exact: bool) -> Told:
    """Follow one upstream's pages to the last one; the shortest time that a page holds counts."""
    items: list[object] = []
    ttl: int | None = None
    request = outgoing
    for _ in range(MAX_PAGES):
        with watched:
            answer = await watched.upstream.ask(request, exact=exact)
        page = answer.result
        if page is None and _unknown_method(answer.message):
            return Told(watched, None, known=False)
        if page is None or answer.status != 200:
            raise _bad(watched, f"the server refused {outgoing.method}", status=answer.status)
        here = ttl_ms(page.get("ttlMs"))
        ttl = here if ttl is None else min(ttl, here)
        if outgoing.method == DISCOVER:
            return Told(watched, [page], ttl)
        listed, following = page.get(LISTS[outgoing.method]), page.get("nextCursor")
        if not isinstance(listed, list) or not (following is None or isinstance(following, str)):
            raise _bad(watched, f"the answer to {outgoing.method} is not a list")
        items += listed
        if len(items) > MAX_ITEMS:
            raise _bad(watched, f"{outgoing.method} has more than {MAX_ITEMS} entries", _TOO_LARGE)
        if following is None:
            return Told(watched, items, ttl)
        request = rebuilt(outgoing, {**outgoing.params, "cursor": following})
    raise _bad(watched, f"{outgoing.method} has more than {MAX_PAGES} pages", _TOO_LARGE)


def _unknown_method(message: dict[str, object]) -> bool:
    error = message.get("error")
    return isinstance(error, dict) and error.get("code") == jsonrpc.METHOD_NOT_FOUND


def _bad(
    watched: Watched,
    cause: str,
    kind: UpstreamFailure = UpstreamFailure.BAD_REPLY,
    status: int | None = None,
) -> UpstreamError:
    """An answer came and is of no use."""
    error = UpstreamError(kind, cause, reached=True, status=status)
    watched.failed(error)
    return error

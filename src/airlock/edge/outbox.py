"""Messages on their way to one address: posted in the background, a few times at most, then given up.

Knows HTTP statuses, waits and bounds; must not know what a message says or what form it has.
SPEC: gateway.md 8.6 [BEAT]: whoever waits for an answer does not wait for the webhook.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from airlock.core.errors import UpstreamError
from airlock.core.secret import Secret
from airlock.edge.httpc import ClientLimits, HttpClient, header_line, parse_target

__all__ = ["DRAIN_S", "IN_FLIGHT", "PAUSES_S", "POST_S", "WAITING", "Outbox"]

POST_S: Final = 5.0
"""How long one post may take, in seconds."""

PAUSES_S: Final = (1.0, 4.0)
"""The waits before the second and the third try; there is no fourth."""

IN_FLIGHT: Final = 8
"""How many messages are posted at once."""

WAITING: Final = 200
"""How many messages may wait. To an address that never answers, the last leaves within the life of a ticket."""

DRAIN_S: Final = 5.0
"""How long `close` waits for what is still to be posted, in seconds."""

_ANSWER_BYTES: Final = 64 * 1024
_TOO_MANY: Final = 429
_HEADERS: Final = header_line(b"content-type", b"application/json") + header_line(
    b"accept-encoding", b"identity"
)


_Message = tuple[bytes, Callable[[], None] | None]


class _Trouble(msgspec.Struct, frozen=True):
    """Why a try failed, in words that hold nothing of the address or the answer, and whether to try again."""

    words: str
    passing: bool


class Outbox:
    """Posts JSON bodies to `url` (None: there is nowhere to post to). `say` takes one line of log text.

    Belongs to the event loop that makes the first `put`.
    """

    def __init__(
        self,
        url: Secret | None,
        say: Callable[[str], None],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._say = say
        self._pause = pause
        self._client = None if url is None else _client(url)
        self._waiting: deque[_Message] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._posting = 0
        self._closed = False

    def put(self, body: bytes, lost: Callable[[], None] | None = None) -> None:
        """Take a message and return at once; it is posted when its turn comes. A dropped one is logged.

        `lost` is called, now or later, when it was not taken, or given up after its tries.
        """
        if self._client is not None and not self._closed and len(self._waiting) < WAITING:
            self._waiting.append((body, lost))
            if len(self._workers) < IN_FLIGHT:
                worker = asyncio.get_running_loop().create_task(self._work(self._client))
                self._workers.add(worker)
            return
        if self._client is None:
            self._say("an approval message was not sent: there is no address or chat to send it to")
        elif self._closed:
            self._say("an approval message was not sent: the gateway stops")
        else:
            # SECURITY: an agent that asks without end fills no memory while the webhook hangs.
            self._say("an approval message was not sent: too many wait for the webhook")
        if lost is not None:
            lost()

    async def close(self, within: float = DRAIN_S) -> None:
        """Post what is left for at most `within` seconds, drop the rest with a line in the log."""
        self._closed = True
        if self._workers:
            await asyncio.wait(self._workers, timeout=within)
        cut_off = tuple(self._workers)
        lost = len(self._waiting) + self._posting
        self._waiting.clear()
        for worker in cut_off:
            worker.cancel()
        if cut_off:
            await asyncio.wait(cut_off)
        if lost:
            self._say(f"approval messages that were not sent before the stop: {lost}")
        if self._client is not None:
            await self._client.close()

    async def _work(self, client: HttpClient) -> None:
        try:
            while self._waiting:
                body, lost = self._waiting.popleft()
                self._posting += 1
                try:
                    if not await self._delivered(client, body) and lost is not None:
                        lost()
                finally:
                    self._posting -= 1
        finally:
            # INVARIANT: a worker leaves in the same step in which it found nothing more, so that no message is
            # put behind a worker that is about to end.
            worker = asyncio.current_task()
            assert worker is not None
            self._workers.discard(worker)

    async def _delivered(self, client: HttpClient, body: bytes) -> bool:
        tries = 1
        trouble = await _posted(client, body)
        while trouble is not None and trouble.passing and tries <= len(PAUSES_S):
            await self._pause(PAUSES_S[tries - 1])
            tries += 1
            trouble = await _posted(client, body)
        if trouble is not None:
            self._say(f"an approval message was not delivered: {trouble.words} (tries: {tries})")
        return trouble is None


async def _posted(client: HttpClient, body: bytes) -> _Trouble | None:
    """Post once; return None when the other side took it."""
    try:
        reply = await client.post(_HEADERS, body)
    except UpstreamError as error:
        # What came after the status does not matter: one that says yes is a yes.
        return _Trouble(error.cause, passing=True) if error.status is None else _judged(error.status)
    except Exception as error:  # noqa: BLE001 - the boundary: a message that breaks must not stop the others
        # SECURITY: the class alone: the text of an exception may hold the address, which is a password (T20).
        return _Trouble(type(error).__name__, passing=False)
    return _judged(reply.status)


def _judged(status: int) -> _Trouble | None:
    if 200 <= status < 300:
        return None
    return _Trouble(f"HTTP {status}", passing=status >= 500 or status == _TOO_MANY)


def _client(url: Secret) -> HttpClient | None:
    """A client for the address, or None for one that cannot be posted to (the start has warned about it)."""
    try:
        target = parse_target(url.reveal())
    except ValueError:
        return None
    limits = ClientLimits(total_s=POST_S, connect_s=POST_S, max_body_bytes=_ANSWER_BYTES, max_idle=IN_FLIGHT)
    return HttpClient(target, limits)

"""The approve page: GET and HEAD show what is asked, POST records a person's yes.

Knows the states of a link and their statuses; the page's markup is `approvepage`'s, who pressed is worked out by
the identity handed in. SPEC: gateway.md 8.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from airlock.core.approval import ticket
from airlock.core.approval.notice import NAME_CHARS
from airlock.core.decision import Verdict
from airlock.core.errors import StoreUnavailable
from airlock.core.ports import Clock, Ids, Store
from airlock.core.redact import values
from airlock.core.rules import Rule
from airlock.core.text.cut import cut
from airlock.edge import recording
from airlock.edge.asgi import Receive, Scope, Send, respond
from airlock.edge.headers import Headers
from airlock.edge.log import Log
from airlock.edge.recording import Recorder
from airlock.gateway import approvepage, boundary
from airlock.gateway.approvepage import Standing

__all__ = ["HEADERS", "PREFIX", "ApprovePage", "Approver", "Who"]

PREFIX: Final = "/approve/"

HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; form-action 'self'; frame-ancestors 'none'"),
)
"""Sent with every answer of this path: the link in its address is a key, and its button must not be framed."""

_HTML: Final = b"text/html; charset=utf-8"
_ALLOW: Final = (b"allow", b"GET, HEAD, POST")


class Approver(Protocol):
    """Who pressed the button. `source` is `verified` or `header`; both are None when nobody is named."""

    @property
    def name(self) -> str | None: ...

    @property
    def source(self) -> str | None: ...


Who = Callable[[Headers, float], Awaitable[Approver]]
"""Works out who sent a request with these headers at that time (Unix seconds)."""


class ApprovePage:
    """Answers `/approve/<token>`. `who` may fail: the press is recorded all the same."""

    def __init__(
        self,
        *,
        keys: ticket.Keys,
        store: Store,
        recorder: Recorder,
        clock: Clock,
        ids: Ids,
        log: Log,
        who: Who,
    ) -> None:
        self._keys = keys
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._ids = ids
        self._log = log
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Its body is not read: the link says everything."""
        allow: list[tuple[bytes, bytes]] = []
        try:
            if scope["method"] in {"GET", "HEAD"}:
                status, page = await self._shown(scope["path"])
            elif scope["method"] == "POST":
                status, page = await self._pressed(scope["path"], Headers(scope["headers"]))
            else:
                status, page, allow = 405, approvepage.message("Use GET or POST."), [_ALLOW]
        except Exception as error:  # noqa: BLE001 - the boundary: it answers with the headers of the page (T16)
            self._log.line(f"internal error: {boundary.told(error)}")
            status, page = 500, approvepage.message("The approve page failed. Nothing else is known.")
        await respond(send, status, page, _HTML, [*HEADERS, *allow])

    def _opened(self, path: str) -> ticket.Claims | None:
        """What a link says, or None for one that is not ours or is past its time."""
        claims = ticket.open_approver(self._keys, path.removeprefix(PREFIX))
        return claims if isinstance(claims, ticket.Claims) and self._clock.now() < claims.exp else None

    async def _shown(self, path: str) -> tuple[int, bytes]:
        """GET and HEAD: nothing is written, whoever fetches it (a link preview, a mail scanner)."""
        claims = self._opened(path)
        if claims is None:
            return 400, approvepage.message(approvepage.BAD_LINK)
        text, standing = await asyncio.gather(self._text(claims), self._seen(claims))
        return 200, approvepage.question(claims, text, standing)

    async def _text(self, claims: ticket.Claims) -> str | None:
        try:
            return await self._store.prompt(claims.k)
        except Exception as error:  # noqa: BLE001 - a page without details still tells what it knows
            self._log.warning(f"the approve page could not read its text: {boundary.told(error)}")
            return None

    async def _seen(self, claims: ticket.Claims) -> Standing:
        try:
            return await self._standing(claims)
        except Exception as error:  # noqa: BLE001 - the button stays; pressing it asks the store again
            self._log.warning(f"the approve page could not read its state: {boundary.told(error)}")
            return Standing.UNKNOWN

    async def _standing(self, claims: ticket.Claims) -> Standing:
        if await self._store.burned(claims.k):
            return Standing.BURNED
        if await self._store.approved(claims.k, self._clock.now()):
            return Standing.APPROVED
        return Standing.OPEN

    async def _pressed(self, path: str, lines: Headers) -> tuple[int, bytes]:
        claims = self._opened(path)
        if claims is None:
            return 400, approvepage.message(approvepage.BAD_LINK)
        # Worked out before anything is stored, so that nothing can come between the approval and its record.
        name, source = await self._presser(lines)
        try:
            standing = await self._standing(claims)
            if standing is Standing.OPEN:
                await self._store.approve(claims.k, claims.exp)
        except Exception as error:  # noqa: BLE001 - whatever the store's trouble is, nothing was approved
            told = boundary.told(error)
            if isinstance(error, StoreUnavailable):
                self._log.warning(f"the state store did not answer an approval: {told}")
            else:
                self._log.line(f"internal error: {told}")
            return 503, approvepage.message(approvepage.NO_STORE)
        if standing is Standing.BURNED:
            return 409, approvepage.settled(claims, standing)
        if standing is Standing.APPROVED:
            return 200, approvepage.settled(claims, standing)
        try:
            self._record(claims, name, source)
        except OSError as error:
            self._log.line(
                f"the audit record of an approval could not be written: {error.strerror or type(error).__name__}"
            )
            return 500, approvepage.message(approvepage.NO_RECORD)
        return 200, approvepage.settled(claims, Standing.APPROVED)

    async def _presser(self, lines: Headers) -> tuple[str | None, str | None]:
        """Who presses the button, as it may be written down."""
        try:
            approver = await self._who(lines, self._clock.now())
        except Exception as error:  # noqa: BLE001 - not knowing who must not lose that somebody did (T14)
            self._log.warning(f"who pressed an approve button is not known: {type(error).__name__}")
            return None, None
        name = values.name(approver.name)
        return (None, None) if name is None else (cut(name, NAME_CHARS, "…[cut]"), approver.source)

    def _record(self, claims: ticket.Claims, name: str | None, source: str | None) -> None:
        """Write the pair of 23.12; its principal is who asked, not who approved."""
        entry = recording.entry(
            self._ids.hex(16), principal=values.name(claims.p), method="approve", tool=values.name(claims.t)
        )
        entry.verdict, entry.rule_id = Verdict.ALLOW, Rule.MRTR_APPROVED_OOB
        entry.detail_json = values.detail_json(
            {"key": claims.k, "approved_by": name, "approved_by_source": source}
        )
        self._recorder.refusal(entry)

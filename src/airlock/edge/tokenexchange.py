"""A caller's token exchanged for one that an upstream takes (RFC 8693), and kept for as long as it is good.

Knows the token endpoint, its answers and how long they hold; does not know what the token is sent to.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections import OrderedDict
from typing import Final
from urllib.parse import quote_plus, urlencode

import msgspec

from airlock.core.errors import AirlockError, UpstreamError
from airlock.core.ports import Clock
from airlock.core.secret import Secret
from airlock.core.wire import strict
from airlock.edge.httpc import ClientLimits, HttpClient, Reply, header_line, parse_target

__all__ = ["MAX_KEPT", "TOTAL_S", "Exchange", "ExchangeFailed", "TokenExchange"]

TOTAL_S: Final = 10.0
"""How long one exchange may take."""

MAX_KEPT: Final = 1000
"""LIMIT: tokens that are kept; the one that was not used for longest goes first."""

# LIMIT: exchanges under way at a time: callers who leave do not end theirs.
MAX_OPEN: Final = 256
# LIMIT: a right that is taken back at the provider lives on here for no longer than this.
LONGEST_S: Final = 3600.0
# A token that is about to expire would expire on its way.
EARLY_S: Final = 30.0
# SECURITY: a caller whose token is refused, and who calls on and on, must not make us flood the provider.
REST_S: Final = 1.0

_MAX_BYTES: Final = 64 * 1024
_MAX_TOKEN_CHARS: Final = 16 * 1024
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - its name
_USABLE: Final = frozenset({_ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt"})
# SECURITY: only these words of an answer are repeated: whatever else it says may hold a credential.
_ERRORS: Final = frozenset({
    "invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "invalid_target",
    "temporarily_unavailable", "unauthorized_client", "unsupported_grant_type",
})  # fmt: skip

_Key = tuple[str, bytes]


class Exchange(msgspec.Struct, frozen=True):
    """Where tokens are exchanged, as whom, and for what: `audience`, `resource` and `scope` where given."""

    token_url: str
    client_id: Secret
    client_secret: Secret
    audience: str = ""
    resource: str = ""
    scope: str = ""


class ExchangeFailed(AirlockError):
    """No token came. The message is our own words."""


class _Kept(msgspec.Struct, frozen=True):
    """What an exchange led to, good until a monotonic time."""

    until: float
    outcome: Secret | str


class TokenExchange:
    """Exchanges tokens at one endpoint. Follows no redirect and reads no proxy variable. Belongs to one event loop.

    Raises ValueError when the endpoint cannot be asked.
    """

    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        limits = ClientLimits(total_s=2 * TOTAL_S, connect_s=TOTAL_S, max_body_bytes=_MAX_BYTES, max_idle=4)
        self._client = HttpClient(parse_target(exchange.token_url), limits)
        # SPEC: RFC 6749, 2.3.1: both are form-encoded before they are joined.
        who = f"{_encoded(exchange.client_id)}:{_encoded(exchange.client_secret)}".encode("ascii")
        self._lines = (
            b"content-type: application/x-www-form-urlencoded\r\naccept: application/json\r\n"
            b"accept-encoding: identity\r\n"
            + header_line(b"authorization", b"Basic " + base64.b64encode(who))
        )
        named = {"audience": exchange.audience, "resource": exchange.resource, "scope": exchange.scope}
        self._fixed = {
            "grant_type": _GRANT,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
            **{name: value for name, value in named.items() if value},
        }
        self._clock = clock
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._open: dict[_Key, asyncio.Task[Secret | str]] = {}
        self._closed = False

    async def token(self, principal: str, subject: Secret) -> Secret:
        """Return the token for `principal`, whose own verified token is `subject`. Raises `ExchangeFailed`."""
        key = _key(principal, subject)
        kept = self._kept.get(key)
        if kept is not None and self._clock.monotonic() < kept.until:
            self._kept.move_to_end(key)
            return _given(kept.outcome)
        task = self._open.get(key)
        if task is None:
            if self._closed:
                raise ExchangeFailed("the gateway is stopping")
            if len(self._open) >= MAX_OPEN:
                raise ExchangeFailed("too many exchanges are under way")
            task = self._open[key] = asyncio.get_running_loop().create_task(self._exchange(key, subject))
            task.add_done_callback(lambda _: self._open.pop(key, None))
        # Others may wait for the same token: whoever leaves does not take it along.
        await asyncio.wait({task})
        return _given("the gateway is stopping" if task.cancelled() else task.result())

    def forget(self, principal: str, subject: Secret) -> None:
        """Drop a token that its upstream did not take: the next call gets a new one."""
        kept = self._kept.get(_key(principal, subject))
        if kept is not None and isinstance(kept.outcome, Secret):
            del self._kept[_key(principal, subject)]

    async def close(self) -> None:
        """End what is under way and forget every token."""
        self._closed = True
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._kept.clear()
        await self._client.close()

    async def _exchange(self, key: _Key, subject: Secret) -> Secret | str:
        """Exchange once, and keep what came of it."""
        asked_at = self._clock.monotonic()
        form = urlencode({**self._fixed, "subject_token": subject.reveal()}).encode("ascii")
        outcome: Secret | str
        try:
            async with asyncio.timeout(TOTAL_S):
                reply = await self._client.post(self._lines, form)
            outcome, good_s = _read(reply)
            until = asked_at + good_s
        except TimeoutError:
            outcome = f"no answer within {TOTAL_S:g} s"
        except UpstreamError as error:
            outcome = error.cause
        except ExchangeFailed as error:
            outcome = str(error)
        if not isinstance(outcome, Secret):
            until = self._clock.monotonic() + REST_S
        self._kept[key] = _Kept(until, outcome)
        self._kept.move_to_end(key)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return outcome


def _key(principal: str, subject: Secret) -> _Key:
    return principal, hashlib.sha256(subject.reveal().encode("utf-8", "surrogatepass")).digest()


def _given(outcome: Secret | str) -> Secret:
    if isinstance(outcome, str):
        raise ExchangeFailed(outcome)
    return outcome


def _read(reply: Reply) -> tuple[Secret, float]:
    """Return the token in an answer, and for how many seconds it is used. Raises `ExchangeFailed`."""
    found: object = None
    if reply.content_type == "application/json":
        try:
            found = strict.parse(reply.body)
        except strict.StrictError:
            pass
    answer = found if isinstance(found, dict) else {}
    if reply.status != 200:
        # SECURITY: a redirect would have the client's secret and the caller's token sent wherever it says.
        code = answer.get("error")
        known = isinstance(code, str) and code in _ERRORS
        raise ExchangeFailed(f"HTTP {reply.status} ({code})" if known else f"HTTP {reply.status}")
    if not answer:
        raise ExchangeFailed("the answer is no JSON object")
    token, kind = answer.get("access_token"), answer.get("token_type")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token) or len(token) > _MAX_TOKEN_CHARS:
        # SECURITY: it becomes a header line; a line break in it would add headers, or a whole request.
        raise ExchangeFailed("the answer holds no usable access_token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise ExchangeFailed("the token is no bearer token")
    issued = answer.get("issued_token_type", _ACCESS_TOKEN)
    if not isinstance(issued, str) or issued not in _USABLE:
        raise ExchangeFailed("the token is no access token")
    lives = answer.get("expires_in", 0)
    if isinstance(lives, bool) or not isinstance(lives, (int, float)):
        raise ExchangeFailed("expires_in is no number")
    # Of unknown age, or short-lived: only those get it who wait for it now.
    return Secret(token), min(lives, LONGEST_S + EARLY_S) - EARLY_S


def _encoded(secret: Secret) -> str:
    return quote_plus(secret.reveal(), errors="surrogateescape")

"""The credential of each request to an upstream, where every caller has one of their own.

Knows which request gets which `Authorization`; how a token is had is the exchange's.
SPEC: mcp.md 16; issue 4, item 5.
"""

from __future__ import annotations

from typing import Protocol

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.httpc import header_line
from airlock.edge.tokenexchange import ExchangeFailed, TokenExchange
from airlock.gateway.upstream.port import Outgoing

__all__ = ["Credential", "Exchanged", "NoCredential"]


class NoCredential(UpstreamError):
    """One caller has no credential for the upstream: nothing was sent, and it says nothing about the server."""

    def __init__(self, why: str) -> None:
        super().__init__(UpstreamFailure.UNREACHABLE, f"token exchange failed: {why}", reached=False)


class Credential(Protocol):
    """Gives each request its own credential."""

    async def line(self, outgoing: Outgoing) -> bytes:
        """Return the whole `Authorization` line. Raises NoCredential."""
        ...

    def refused(self, outgoing: Outgoing) -> None:
        """Take note that the upstream did not take it."""
        ...

    async def close(self) -> None:
        """Forget what is held."""
        ...


class Exchanged:
    """A bearer token that was exchanged for the caller's own, which goes to the exchange and nowhere else."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: TokenExchange) -> None:
        self._exchange = exchange

    async def line(self, outgoing: Outgoing) -> bytes:
        if outgoing.subject is None:
            # SECURITY: without a token of the caller there is nothing to act on: no other credential stands in.
            raise NoCredential("the caller came without a token")
        try:
            token = await self._exchange.token(outgoing.principal, outgoing.subject)
        except ExchangeFailed as error:
            raise NoCredential(str(error)) from None
        return header_line(b"authorization", b"Bearer " + token.reveal().encode("ascii"))

    def refused(self, outgoing: Outgoing) -> None:
        if outgoing.subject is not None:
            self._exchange.forget(outgoing.principal, outgoing.subject)

    async def close(self) -> None:
        await self._exchange.close()

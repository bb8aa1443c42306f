"""How a provider's key set is fetched: one GET on a connection of its own, bounded in time and size.

Knows the address and the answer's bytes; does not know keys, or when a fetch is worth it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from airlock.core.errors import ConfigError, UpstreamError
from airlock.edge.httpanswer import Answer, ClientLimits
from airlock.edge.httpurl import parse_target

__all__ = ["MAX_BYTES", "FetchFailed", "Fetcher"]

MAX_BYTES: Final = 1024 * 1024
TOTAL_S: Final = 5.0

_CHUNK: Final = 64 * 1024
_OK: Final = 200


class FetchFailed(Exception):
    """No key set came. The message is our own words or a class name, without the address."""


class Fetcher:
    """Fetches from one address. Reads no proxy variable of the environment and follows no redirect.

    Raises ConfigError, without showing the address, when it is not `http` or `https` with a host. The trust
    store is the system's (or `SSL_CERT_FILE`), read here once.
    """

    def __init__(self, url: str) -> None:
        try:
            self._target = parse_target(url)
        except ValueError:
            # SECURITY: the address may hold a password; and `file:` would make a local file the provider.
            raise ConfigError(
                "",
                "AIRLOCK_JWKS_URL must be an http:// or https:// address with a host,"
                " and no user name, password or fragment",
            ) from None
        self._tls = ssl.create_default_context() if self._target.scheme == "https" else None

    async def get(self) -> bytes:
        """Return the body of a 200 answer of at most `MAX_BYTES`, or raise `FetchFailed` within `TOTAL_S`."""
        try:
            async with asyncio.timeout(TOTAL_S):
                return await self._get()
        except TimeoutError:
            raise FetchFailed(f"no answer within {TOTAL_S:g} s") from None
        except UpstreamError as error:
            raise FetchFailed(error.cause) from None
        except (OSError, ValueError) as error:
            # ValueError: the resolver's codec refuses a host name.
            raise FetchFailed(type(error).__name__) from None

    async def _get(self) -> bytes:
        target = self._target
        name = target.host.removesuffix(".") if self._tls is not None else None
        reader, writer = await asyncio.open_connection(
            target.host, target.port, ssl=self._tls, server_hostname=name
        )
        try:
            writer.write(
                b"GET %b HTTP/1.1\r\nHost: %b\r\nAccept: application/json\r\n"
                b"Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
                % (target.path.encode("ascii"), target.host_header)
            )
            answer = Answer(ClientLimits(max_body_bytes=MAX_BYTES))
            whole = False
            while not whole:
                data = await reader.read(_CHUNK)
                whole = answer.feed(data) if data else answer.end()
                if not data and not whole:
                    raise FetchFailed("the connection ended before the answer did")
        finally:
            writer.transport.abort()
        reply = answer.reply()
        if reply.status != _OK:
            # SECURITY: a redirect would let whoever answers on this host name any other as the provider.
            raise FetchFailed(f"status {reply.status}")
        return reply.body

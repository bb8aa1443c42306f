"""An OIDC provider's key page on a real socket, with real keys, and the tokens those keys sign."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import ssl
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

NOW = 1_700_000_000.0
CLAIMS: dict[str, Any] = {"sub": "alice", "exp": int(NOW) + 3600}

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@functools.cache
def rsa_key(name: str = "first", bits: int = 2048) -> rsa.RSAPrivateKey:
    """One key per name for the whole run: they are slow to make."""
    return rsa.generate_private_key(65537, bits)


@functools.cache
def ec_key(name: str = "first", curve: str = "P-256") -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key({"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1()}[curve])


def public(key: Private, kid: str | None = None, **extra: Any) -> dict[str, Any]:
    """The JWK of a key's public half."""
    shown: dict[str, Any]
    if isinstance(key, rsa.RSAPrivateKey):
        shown = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        shown = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    shown.pop("key_ops", None)
    return {**shown, **({} if kid is None else {"kid": kid}), **extra}


def page(*keys: Any) -> bytes:
    """A JWK set."""
    return json.dumps({"keys": list(keys)}).encode()


def b64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def token(
    key: Private, kid: str | None = "one", alg: str | None = None, header: Any = None, **claims: Any
) -> bytes:
    """A token of `CLAIMS` and `claims`; a claim given as None is left out."""
    alg = alg or ("RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256")
    whole = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    head = {**({} if kid is None else {"kid": kid}), **(header or {})}
    return jwt.encode(whole, key, algorithm=alg, headers=head).encode()


def signed(header: Any, claims: bytes) -> bytes:
    """A token of any header, signed as RS256 by the first RSA key whatever the header says."""
    text = b64(json.dumps(header).encode()) + b"." + b64(claims)
    return text + b"." + b64(RSAAlgorithm(RSAAlgorithm.SHA256).sign(text, rsa_key()))


class Clock:
    """A monotonic clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = 5_000.0

    def __call__(self) -> float:
        return self.at


class Issuer:
    """Serves one answer to every GET and counts them. `raw` is sent as it is; `gate` holds answers back."""

    def __init__(self) -> None:
        self.body = page()
        self.raw: bytes | None = None
        self.gate: asyncio.Event | None = None
        self.asked = 0
        self.arrived = asyncio.Event()
        self.heads: list[bytes] = []
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://localhost:{self.port}/keys"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            self.asked += 1
            self.arrived.set()
            if self.gate is not None:
                await self.gate.wait()
            whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            writer.write(self.raw if self.raw is not None else whole % (len(self.body), self.body))
            await writer.drain()
        except (OSError, EOFError):
            return
        finally:
            self._open.discard(writer)
            writer.close()

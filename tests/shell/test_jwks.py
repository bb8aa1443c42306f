"""Identity against a real OIDC provider process: its own tokens, its restart with a new key, its absence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from airlock.core.principal import Principal, Source
from airlock.edge.headers import Headers
from airlock.edge.identity.jwks import COOLDOWN_S, LIFETIME_S, Jwks
from airlock.edge.identity.jwt import Hs256
from airlock.edge.identity.resolve import Approver, Identity
from tests.fakes.processes import JWT_SECRET, Lines, bearer, clean_env, wait_port

CLIENT = "gateway"
CALLBACK = "http://127.0.0.1:1/callback"


class Provider:
    """A running `oidc-provider-mock`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.base = f"http://127.0.0.1:{port}"

    @property
    def jwks_uri(self) -> str:
        """Where its discovery document says that the keys are."""
        with urllib.request.urlopen(f"{self.base}/.well-known/openid-configuration", timeout=30) as answer:
            found: str = json.load(answer)["jwks_uri"]
        return found

    def id_token(self, subject: str, client: str = CLIENT) -> bytes:
        """Log in by the code flow, as a client would, and return the ID token."""
        query = urllib.parse.urlencode(
            {"client_id": client, "redirect_uri": CALLBACK, "response_type": "code", "scope": "openid"}
        )
        opener = urllib.request.build_opener(_Stay)
        form = urllib.parse.urlencode({"sub": subject}).encode()
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(f"{self.base}/oauth2/authorize?{query}", form, timeout=30)
        with caught.value as answer:
            sent_to = urllib.parse.urlsplit(answer.headers["location"])
        grant: dict[str, Any] = {
            "grant_type": "authorization_code",
            "code": urllib.parse.parse_qs(sent_to.query)["code"][0],
            "redirect_uri": CALLBACK,
            "client_id": client,
            "client_secret": "any",
        }
        body = urllib.parse.urlencode(grant).encode()
        with urllib.request.urlopen(f"{self.base}/oauth2/token", body, timeout=30) as answer:
            found: str = json.load(answer)["id_token"]
        return found.encode()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


@contextlib.contextmanager
def provider(port: int = 0) -> Iterator[Provider]:
    argv = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), "--user", "alice"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=clean_env()) as process:
        try:
            taken = int(Lines(process.stderr).until(r"running on http://127\.0\.0\.1:(\d+)")[1])
            wait_port(taken)
            yield Provider(taken)
        finally:
            process.kill()


class Gate:
    """An `Identity` for one provider, as the gateway builds it, and a clock ahead of the machine's."""

    def __init__(self, found: Provider, **settings: Any) -> None:
        self.ahead = 0.0
        self.said: list[str] = []
        jwks = Jwks(
            found.jwks_uri,
            **{"issuer": found.base, "audience": CLIENT, **settings},
            say=self.said.append,
            clock=lambda: time.monotonic() + self.ahead,
        )
        hs256 = Hs256(JWT_SECRET.encode(), issuer=None, audience=None)
        self.identity = Identity(hs256=hs256, jwks=jwks, trust_header=True)

    def headers(self, token: bytes) -> Headers:
        return Headers([(b"authorization", b"Bearer " + token), (b"x-airlock-principal", b"mallory")])

    async def who(self, token: bytes) -> str | None:
        found = self.identity.resolve(self.headers(token), time.time())
        principal = found if found is None or isinstance(found, Principal) else await found
        assert principal is None or principal.source is Source.TOKEN
        return None if principal is None else principal.name


@pytest.mark.case("T03")
def test_tokens_of_a_real_provider_name_their_subject_through_its_restart_with_a_new_key():
    async def scenario() -> None:
        with provider() as first:
            gate = Gate(first)
            old = first.id_token("alice")
            assert await asyncio.gather(*(gate.who(old) for _ in range(20))) == ["alice"] * 20
            assert await gate.who(first.id_token("bob")) == "bob"
            click = await gate.identity.approver(gate.headers(old), time.time())
            assert click == Approver("alice", "verified")
            assert await gate.who(first.id_token("alice", "another")) is None
            assert await Gate(first, audience="another").who(old) is None
            assert await Gate(first, issuer="http://127.0.0.1").who(old) is None
            assert await gate.who(bearer("alice").encode()) is None
            assert await gate.who(old[:-4] + b"AAAA") is None
        gate.ahead += LIFETIME_S
        assert await gate.who(old) == "alice"
        assert len(gate.said) == 1
        assert "(ConnectionRefusedError): its keys of before are used" in gate.said[0]
        with provider(first.port) as second:
            new = second.id_token("alice")
            assert await gate.who(new) is None
            gate.ahead += COOLDOWN_S
            assert await gate.who(new) == "alice"
            assert await gate.who(old) is None
            assert gate.said[1:] == ["AIRLOCK_JWKS_URL: the provider gives keys again"]

    # The loop of a gateway; the unit tests run on the other one.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 120))

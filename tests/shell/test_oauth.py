"""The gateway as an OAuth resource server over real sockets: a real provider, the SDK's own flow, and what goes upstream."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp
import pytest
from httpx2 import AsyncClient
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.fakes.oauth_provider import CALLBACK, SECRET, Provider, logged_in, provider
from tests.fakes.processes import REVISION, ROOT, Lines, Running, clean_env, command, ops_server

PRM = "/.well-known/oauth-protected-resource"
META = {"io.modelcontextprotocol/protocolVersion": REVISION, "io.modelcontextprotocol/clientCapabilities": {}}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(folder: Path, *flags: str, port: int, **env: str) -> Iterator[Running]:
    """An `airlock gateway serve` that is told its own address, as behind a proxy."""
    argv = [
        *command("airlock"),
        "gateway",
        "serve",
        "--policy",
        str(ROOT / "examples/policy.yaml"),
        "--port",
        str(port),
        *flags,
    ]
    settings = clean_env(
        XDG_STATE_HOME=str(folder / "state"), AIRLOCK_RESOURCE_URL=f"http://127.0.0.1:{port}/mcp", **env
    )
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=settings, cwd=folder) as process:
        lines = Lines(process.stderr)
        try:
            lines.until(rf"listening on http://127\.0\.0\.1:{port}/mcp")
            yield Running(process, port, lines)
        finally:
            process.terminate()
            process.wait(60)


class Relay:
    """Passes bytes on to a server, and keeps what went there."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._to = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/mcp"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._to) as server:
            back = threading.Thread(target=_pump, args=(server, client, None), daemon=True)
            back.start()
            _pump(client, server, self.sent)
            back.join(60)

    def close(self) -> None:
        # An accept that waits is woken by the shutdown, not by the close.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._listening.close()


def _pump(one: socket.socket, other: socket.socket, kept: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            if kept is not None:
                kept += data
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with ops_server(tmp_path_factory.mktemp("ops") / "effects.jsonl") as running:
        yield running


@pytest.fixture(scope="module")
def idp() -> Iterator[Provider]:
    """A provider whose access tokens are JWTs, and which exchanges them."""
    with provider("--jwt") as one:
        yield one


@pytest.fixture
def relay(upstream: Running) -> Iterator[Relay]:
    one = Relay(upstream.port)
    yield one
    one.close()


def settings(idp: Provider, **more: str) -> dict[str, str]:
    return {"AIRLOCK_JWKS_URL": idp.jwks_uri, "AIRLOCK_JWT_ISSUER": idp.base, **more}


def token(idp: Provider, gate: Running, **more: str) -> str:
    """The access token of alice for a gateway."""
    found: str = idp.login("alice", "a client", resource=gate.url, **more)["access_token"]
    return found


def asked(
    url: str, body: Any = None, *, method: str = "POST", bearer: str | None = None, **headers: str
) -> tuple[int, Any, Any]:
    """One request by hand: status, header lines, JSON body."""
    lines = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    if bearer is not None:
        lines["authorization"] = f"Bearer {bearer}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, lines, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
        return error.code, error.headers, json.loads(text) if text.startswith(b"{") else None


def call(url: str, bearer: str | None, tool: str = "get_service") -> tuple[int, Any, Any]:
    params = {"name": tool, "arguments": {"name": "shop"}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    named = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": tool}
    return asked(url, body, bearer=bearer, **named)


def text_of(message: Any) -> str:
    found: str = message["result"]["content"][0]["text"]
    return found


# --- the provider as it is: its ID tokens are the JWTs it makes


def test_a_token_of_a_real_provider_for_this_resource_is_good_and_no_other(
    upstream: Running, tmp_path: Path
) -> None:
    port = free_port()
    with (
        provider() as idp,
        serving(
            tmp_path, "--upstream", upstream.url, port=port, **settings(idp, AIRLOCK_SCOPES="mcp:use")
        ) as gate,
    ):
        root = gate.url.removesuffix("/mcp")
        pointer = f'resource_metadata="{root}{PRM}/mcp", scope="mcp:use"'
        for body in ({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, {"no": "request"}):
            status, headers, _ = asked(gate.url, body)
            assert (status, headers["www-authenticate"]) == (401, f"Bearer {pointer}")
        assert asked(gate.url, method="GET")[0] == asked(gate.url, method="DELETE")[0] == 401
        status, headers, document = asked(f"{root}{PRM}/mcp", method="GET")
        assert (status, headers["access-control-allow-origin"]) == (200, "*")
        assert document == {
            "resource": gate.url,
            "authorization_servers": [idp.base],
            "scopes_supported": ["mcp:use"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Airlock",
        }
        # The audience of an ID token is the client it was made for: here one named like the resource.
        bare = idp.login("alice", gate.url)["id_token"]
        status, headers, message = call(gate.url, bare)
        assert (status, message["error"]["code"]) == (403, -32012)
        assert 'error="insufficient_scope", scope="mcp:use"' in headers["www-authenticate"]
        idp.claims("alice", scp=["mcp:use", "else"])
        good = idp.login("alice", gate.url)["id_token"]
        status, _, message = call(gate.url, good)
        assert status == 200
        assert "service shop" in text_of(message)
        other = idp.login("alice", f"{root}/other")["id_token"]
        opaque = idp.login("alice", gate.url)["access_token"]
        for bad, why in ((other, "is for another audience"), (opaque, "is no JWT that a trusted key signed")):
            status, headers, _ = call(gate.url, bad)
            assert status == 401
            assert (
                f'error="invalid_token", error_description="the token {why}"' in headers["www-authenticate"]
            )
        rules = [json.loads(line)["rule_id"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        assert {"principal.missing", "scope.missing", "tier.L0.read"} <= set(rules)


# --- the whole flow of a client


class Storage:
    """Tokens and registration of one client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@pytest.mark.parametrize("mode", [REVISION, "legacy", "auto"])
async def test_the_sdk_finds_its_way_from_the_first_401_to_a_call(
    idp: Provider, upstream: Running, tmp_path: Path, mode: Any
) -> None:
    back: dict[str, str] = {}
    opened: list[str] = []

    async def person(url: str) -> None:
        opened.append(url)
        back.update(await asyncio.to_thread(logged_in, url, "alice"))

    async def returned() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=back["code"], state=back["state"], iss=back.get("iss"))

    about = OAuthClientMetadata(client_name="a client", redirect_uris=[AnyUrl(CALLBACK)])
    port = free_port()
    with serving(
        tmp_path, "--upstream", upstream.url, port=port, **settings(idp, AIRLOCK_SCOPES="openid email")
    ) as gate:
        storage = Storage()
        auth = OAuthClientProvider(gate.url, about, storage, person, returned)
        async with (
            AsyncClient(auth=auth, timeout=60) as http,
            mcp.Client(streamable_http_client(gate.url, http_client=http), mode=mode) as client,
        ):
            listed = await client.list_tools()
            assert "get_service" in [tool.name for tool in listed.tools]
            done = await client.call_tool("get_service", {"name": "shop"})
            assert done.is_error is not True
    assert len(opened) == 1
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(opened[0]).query))
    # What the client asked for is what the challenge and the metadata told it.
    assert (query["resource"], query["scope"]) == (gate.url, "openid email")
    assert storage.tokens is not None
    claims = json.loads(base64.urlsafe_b64decode(storage.tokens.access_token.split(".")[1] + "=="))
    assert (claims["aud"], claims["iss"]) == (gate.url, idp.base)


# --- what goes upstream


async def through_everything(gate: Running, bearer: str) -> None:
    """Discover, list, call, read and listen in both eras; the older one with its session's own streams."""
    for mode in (REVISION, "legacy"):
        async with (
            AsyncClient(headers={"Authorization": f"Bearer {bearer}"}, timeout=60) as http,
            mcp.Client(streamable_http_client(gate.url, http_client=http), mode=mode) as client,
        ):
            await client.list_tools()
            assert (await client.call_tool("get_service", {"name": "shop"})).is_error is not True
    listen = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": listen}
    lines = {"authorization": f"Bearer {bearer}", "mcp-protocol-version": REVISION, "mcp-method": "subscriptions/listen",
             "accept": "application/json, text/event-stream"}  # fmt: skip
    async with (
        AsyncClient(timeout=60) as http,
        http.stream("POST", gate.url, json=body, headers=lines) as stream,
    ):
        assert stream.status_code == 200
        async for line in stream.aiter_lines():
            if "acknowledged" in line:
                break


def assert_no_token(sent: bytes, bearer: str) -> None:
    # The first part says how it is signed, which another token of the same provider says too.
    found = [part for part in (bearer, *bearer.split(".")[1:]) if part.encode() in sent]
    assert found == []


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_no_token_of_a_client_reaches_an_upstream(
    idp: Provider, relay: Relay, tmp_path: Path, era: str
) -> None:
    (tmp_path / "up.yaml").write_text(f"upstreams: {{ops: {{url: '{relay.url}', era: {era}, prefix: ''}}}}\n")
    port = free_port()
    with serving(tmp_path, "--upstreams", str(tmp_path / "up.yaml"), port=port, **settings(idp)) as gate:
        bearer = token(idp, gate)
        await through_everything(gate, bearer)
        assert (tmp_path / "audit.jsonl").read_text().count(bearer.split(".")[2]) == 0
    assert relay.sent.count(b"get_service") >= 2
    assert_no_token(bytes(relay.sent), bearer)
    assert b"authorization" not in bytes(relay.sent).lower()


async def test_every_caller_reaches_the_upstream_with_an_exchanged_token(
    idp: Provider, relay: Relay, tmp_path: Path
) -> None:
    (tmp_path / "up.yaml").write_text(f"""
upstreams:
  ops:
    url: {relay.url}
    prefix: ""
    exchange:
      token_url: {idp.token_url}
      client_id: {{ from: EXCHANGE_ID }}
      client_secret: {{ from: EXCHANGE_SECRET }}
      audience: api://ops
      scope: ops:read
""")
    port = free_port()
    keys = {"EXCHANGE_ID": "gateway", "EXCHANGE_SECRET": SECRET}
    with serving(
        tmp_path, "--upstreams", str(tmp_path / "up.yaml"), port=port, **settings(idp), **keys
    ) as gate:
        bearer = token(idp, gate)
        await through_everything(gate, bearer)
    sent = bytes(relay.sent)
    assert_no_token(sent, bearer)
    lines = {
        line.partition(b": ")[2] for line in sent.split(b"\r\n") if line.lower().startswith(b"authorization:")
    }
    assert len(lines) == 1
    exchanged = lines.pop().decode().removeprefix("Bearer ")
    claims = json.loads(base64.urlsafe_b64decode(exchanged.split(".")[1] + "=="))
    assert (claims["sub"], claims["aud"], claims["scope"]) == ("alice", "api://ops", "ops:read")
    assert exchanged not in (tmp_path / "audit.jsonl").read_text()
    requests = sent.count(b"POST /mcp HTTP/1.1\r\n")
    assert requests == sent.lower().count(b"\r\nauthorization: bearer ")


def test_a_provider_that_exchanges_nothing_is_one_clear_cause(upstream: Running, tmp_path: Path) -> None:
    port = free_port()
    with provider() as idp:
        (tmp_path / "up.yaml").write_text(
            f"upstreams: {{ops: {{url: '{upstream.url}', prefix: '', exchange: {{token_url: '{idp.token_url}',"
            " client_id: {from: EXCHANGE_ID}, client_secret: {from: EXCHANGE_SECRET}}}}\n"
        )
        keys = {"EXCHANGE_ID": "gateway", "EXCHANGE_SECRET": SECRET}
        with serving(
            tmp_path, "--upstreams", str(tmp_path / "up.yaml"), port=port, **settings(idp), **keys
        ) as gate:
            status, _, message = call(gate.url, idp.login("alice", gate.url)["id_token"])
    assert (status, message["result"]["isError"]) == (200, True)
    assert "token exchange failed: HTTP 400 (unsupported_grant_type)" in text_of(message)
    assert "nothing reached the upstream" in text_of(message)

"""Negotiation with real servers: scripted sockets, legacy fakes, the Python SDK's server, and processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airlock.core.action import Action
from airlock.core.decision import Allow, Tier
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import by_policy
from airlock.core.rules import Rule
from airlock.core.secret import Secret
from airlock.edge.child import Command, minimal_environment
from airlock.edge.httpc import ClientLimits, HttpClient, header_line, parse_target
from airlock.gateway import body
from airlock.gateway.upstream import negotiate, probe
from airlock.gateway.upstream.evidence import Finding, Wire
from airlock.gateway.upstream.http import HttpUpstream
from airlock.gateway.upstream.legacy import LegacyUpstream
from airlock.gateway.upstream.legacyhttp import HttpDialer
from airlock.gateway.upstream.legacysse import SseDialer
from airlock.gateway.upstream.legacystdio import StdioDialer
from airlock.gateway.upstream.line import Dialer
from airlock.gateway.upstream.negotiate import Negotiated
from airlock.gateway.upstream.port import Answer, Era, Outgoing
from airlock.gateway.upstream.probe import HttpProbe, StdioProbe
from airlock.gateway.upstream.stdio import StdioUpstream
from tests.fakes import hostile, stdio_server
from tests.fakes.hostile import Hostile, Request
from tests.fakes.legacy_http import LegacyHttp, LegacySse
from tests.fakes.sdk_server import sdk_server
from tests.fakes.world import CountingIds, StillClock

MODERN, LEGACY = Era.MODERN, Era.LEGACY
REVISION = "2026-07-28"
CREDENTIAL = Secret("Bearer mine")
FIXED = header_line(b"authorization", b"Bearer mine")
FORM: dict[str, Any] = {"elicitation": {"form": {}}}


class Http:
    """The whole back side for one address."""

    def __init__(self, url: str, *, forced: Era | None = None) -> None:
        target = parse_target(url)
        self.client = HttpClient(target, ClientLimits())
        self.dialers: dict[Wire, Dialer] = {
            Wire.HTTP: HttpDialer(self.client, FIXED),
            Wire.SSE: SseDialer(self.client, FIXED, target),
        }
        self.probe = HttpProbe(self.client, FIXED, self.dialers, version="9")
        self.clock = StillClock()
        self.said: list[str] = []
        self.here = Negotiated(
            HttpUpstream(self.client, CREDENTIAL, url),
            self._legacy,
            probe=self.probe,
            clock=self.clock,
            ids=CountingIds(),
            say=self.said.append,
            target=url,
            forced=forced,
        )

    def _legacy(self, wire: Wire) -> LegacyUpstream:
        return LegacyUpstream(self.dialers[wire], CountingIds(), version="9")


@asynccontextmanager
async def back(url: str, **options: Any) -> AsyncIterator[Http]:
    made = Http(url, **options)
    try:
        yield made
    finally:
        await made.here.close()


def outgoing(
    method: str, params: dict[str, Any], era: Era = MODERN, *, capabilities: Any = None, key: object = 7
) -> Outgoing:
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        "io.mcp-airlock/principal": "alice",
    }
    whole = {**params, "_meta": meta}
    lines = f"content-type: application/json\r\nmcp-method: {method}\r\nmcp-protocol-version: {REVISION}\r\n"
    if "name" in params:
        lines += f"mcp-name: {params['name']}\r\n"
    message = {"jsonrpc": "2.0", "id": key, "method": method, "params": whole}
    return Outgoing(key, lines.encode(), body.encode(message), method, whole, "alice", era)


async def call(
    here: Negotiated, name: str, era: Era = MODERN, *, capabilities: Any = None, **arguments: Any
) -> Answer:
    more: dict[str, Any] = {
        key: arguments.pop(key) for key in ("requestState", "inputResponses") if key in arguments
    }
    grant = by_policy(Action(name, {}, "prod", ""), Allow(Rule.L0_READ, Tier.L0))
    params: dict[str, Any] = {"name": name, "arguments": arguments, **more}
    return await here.call(grant, outgoing("tools/call", params, era, capabilities=capabilities), exact=True)


def text(answer: Answer) -> str:
    assert answer.result is not None, answer.message
    content = answer.result["content"]
    assert isinstance(content, list)
    return str(content[0]["text"])


def discovered(*versions: str) -> hostile.Answer:
    return hostile.json_answer(
        {"supportedVersions": list(versions), "capabilities": {}, "resultType": "complete"}
    )


def refused(code: int, *supported: str, status: int = 400, key: Any = ...) -> hostile.Answer:
    def answer(request: Request) -> bytes:
        error: dict[str, Any] = {"code": code, "message": "no"}
        if supported:
            error["data"] = {"supported": list(supported), "requested": REVISION}
        message = {"jsonrpc": "2.0", "id": request.id if key is ... else key, "error": error}
        return hostile.http(json.dumps(message).encode(), status=status)

    return answer


def opened(version: str = "2025-06-18") -> hostile.Answer:
    return hostile.json_answer({"protocolVersion": version, "capabilities": {}, "serverInfo": {}})


async def find(server: Hostile) -> Finding:
    async with back(server.url) as made:
        return await made.probe.find(None)


# The probe over HTTP


async def test_the_gateway_asks_in_its_own_name_with_its_own_credential():
    async with Hostile(default=discovered(REVISION)) as server:
        await find(server)
        (request,) = server.requests
        assert request.method == "POST"
        assert request.headers["authorization"] == "Bearer mine"
        assert request.headers["mcp-protocol-version"] == REVISION
        assert request.headers["mcp-method"] == "server/discover"
        assert request.headers["accept"] == "application/json, text/event-stream"
        assert request.json["params"]["_meta"] == {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "airlock", "version": "9"},
            "io.mcp-airlock/principal": "airlock",
        }


@pytest.mark.parametrize(
    ("answer", "eras"),
    [
        (discovered(REVISION), {MODERN}),
        (discovered("2027-01-01", REVISION), {MODERN}),
        (discovered(REVISION, "2025-06-18"), {MODERN, LEGACY}),
        (refused(-32022, REVISION), {MODERN}),
        (refused(-32022, REVISION, "2025-11-25"), {MODERN, LEGACY}),
        (refused(-32022, REVISION, key=None), {MODERN}),
        (hostile.sse({"method": "x"}, value={"supportedVersions": [REVISION]}), {MODERN}),
    ],
)
async def test_what_the_answer_says_is_believed_without_another_question(
    answer: hostile.Answer, eras: set[Era]
):
    async with Hostile(default=answer) as server:
        assert (await find(server)).eras == eras
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize("code", [-32601, -32600, -32602, -32000, -32001, -32020, -32021, 7])
async def test_any_other_error_leads_to_initialize(status: int, code: int):
    async with Hostile(default=opened()) as server:
        server.script(refused(code, status=status))
        assert await find(server) == Finding(frozenset({LEGACY}), "initialize", "2025-06-18", Wire.HTTP)
        assert [r.json["method"] for r in server.requests] == ["server/discover", "initialize"]


@pytest.mark.parametrize(
    "answer",
    [
        discovered("2025-11-25"),
        discovered(),
        refused(-32022, "2025-11-25"),
        refused(-32022),
        refused(-32600, key=None),
        refused(-32600, key="server-error"),
        hostile.json_answer({}),
        hostile.wrong_id({"supportedVersions": [REVISION]}),
        hostile.no_id(),
        hostile.nan(),
        hostile.http(b"[]"),
        hostile.http(b'{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]},"error":{}}'),
        hostile.status(400),
        hostile.status(404, b"<p>no", content_type="text/html"),
        hostile.status(405),
        hostile.status(406),
        hostile.status(415),
        hostile.status(422),
        hostile.status(202),
        hostile.http(b"x", status=400, headers={"Content-Encoding": "gzip"}),
    ],
)
async def test_what_no_modern_server_would_say_leads_to_initialize(answer: hostile.Answer):
    async with Hostile(default=opened("2025-11-25")) as server:
        server.script(answer)
        finding = await find(server)
        assert finding == Finding(frozenset({LEGACY}), "initialize", "2025-11-25", Wire.HTTP)


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        (hostile.status(401), "HTTP 401: the server wants other credentials"),
        (hostile.status(403), "HTTP 403: the server wants other credentials"),
        (refused(-32601, status=401), "HTTP 401: the server wants other credentials"),
        (hostile.status(500), "HTTP 500"),
        (refused(-32601, status=503), "HTTP 503"),
        (hostile.status(307, headers={"Location": "/other"}), "HTTP 307"),
        (hostile.reset, "ConnectionResetError"),
        (hostile.torn(), "torn answer"),
        (b"SSH-2.0-x\r\n", "not HTTP"),
        (refused(-32022, "2031-01-01"), "the server speaks only revisions that are newer than this program"),
        (discovered("2031-01-01"), "the server speaks only revisions that are newer than this program"),
    ],
)
async def test_what_is_no_evidence_leads_nowhere(answer: hostile.Answer, how: str):
    async with Hostile(default=answer) as server:
        assert await find(server) == Finding(frozenset(), how)
        assert len(server.requests) == 1


async def test_silence_is_no_evidence_over_http(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe, "_HTTP_S", 0.05)
    async with Hostile(default=hostile.silence) as server:
        assert await find(server) == Finding(frozenset(), "no answer in time")
        server.script(hostile.status(404))
        assert await find(server) == Finding(frozenset(), "no answer to initialize in time")


async def test_nobody_there_is_no_evidence():
    async with Hostile() as server:
        pass
    assert await find(server) == Finding(frozenset(), "ConnectionRefusedError")


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        (hostile.status(401), "initialize: HTTP 401"),
        (hostile.status(500), "initialize: HTTP 500"),
        (refused(-32022, REVISION), "initialize: the server refuses it"),
        (opened("2026-07-28"), "initialize: the server refuses it"),
        (hostile.json_answer({}), "initialize: the server refuses it"),
        (hostile.reset, "initialize: ConnectionResetError"),
    ],
)
async def test_an_initialize_that_fails_proves_nothing(answer: hostile.Answer, how: str):
    async with Hostile(default=answer) as server:
        server.script(hostile.status(404))
        assert await find(server) == Finding(frozenset(), how)


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_that_takes_no_post_may_be_an_old_one(status: int):
    async with LegacySse() as server:
        server.script(hostile.status(404), hostile.status(status))
        finding = await find(server)
        assert finding == Finding(frozenset({LEGACY}), "initialize", "2024-11-05", Wire.SSE)


@pytest.mark.parametrize("status", [404, 405])
async def test_a_web_site_that_is_no_such_server_is_told_as_such(status: int):
    async with Hostile(default=hostile.status(status)) as server:
        assert await find(server) == Finding(
            frozenset(), "the server answers neither server/discover nor initialize"
        )


async def test_a_session_that_was_opened_to_ask_is_ended():
    async with LegacyHttp() as server:
        assert (await find(server)).wire is Wire.HTTP
        assert server.ended == ["session-0"]


# Negotiated, over HTTP


@pytest.mark.parametrize("as_json", [False, True])
async def test_modern_and_legacy_clients_call_a_legacy_server(as_json: bool):
    async with LegacyHttp(as_json=as_json) as server, back(server.url) as made:
        for era in Era:
            assert text(await call(made.here, "add", era, a=2, b=3)) == "5"
        assert made.said == ["the server speaks legacy 2025-11-25 (initialize)"]


async def test_modern_and_legacy_clients_call_a_server_of_2024():
    async with LegacySse() as server, back(server.url) as made:
        for era in Era:
            assert text(await call(made.here, "add", era, a=2, b=3)) == "5"
        assert made.said == ["the server speaks legacy 2024-11-05 (initialize)"]


@pytest.mark.parametrize("kind", [LegacyHttp, LegacySse])
async def test_a_question_of_a_legacy_server_comes_back_to_its_call(kind: Callable[[], Any]):
    async with kind() as server, back(server.url) as made:
        server.tools["ask"] = server.asking()
        asked = await call(made.here, "ask", capabilities=FORM)
        assert asked.result is not None
        assert asked.result["resultType"] == "input_required"
        state, requests = asked.result["requestState"], asked.result["inputRequests"]
        assert isinstance(requests, dict)
        (key,) = requests
        answers = {key: {"action": "accept", "content": {"sure": True}}}
        done = await call(made.here, "ask", capabilities=FORM, requestState=state, inputResponses=answers)
        assert json.loads(text(done)) == answers[key]


async def test_a_legacy_server_that_forgot_its_sessions_is_opened_again():
    async with LegacyHttp() as server, back(server.url) as made:
        await call(made.here, "add", a=1)
        server.forget()
        assert text(await call(made.here, "add", a=1, b=1)) == "2"


async def test_a_server_that_is_down_is_told_and_found_when_it_is_up():
    async with Hostile(default=hostile.status(503)) as server, back(server.url) as made:
        with pytest.raises(UpstreamError) as caught:
            await call(made.here, "add")
        assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, False)
        assert caught.value.cause == "it cannot be told what the server speaks: HTTP 503"
        server.default = lambda request: hostile.http(
            hostile.result(
                request,
                {"supportedVersions": [REVISION]} if "discover" in request.headers["mcp-method"] else None,
            )
        )
        made.clock.time += 1
        assert text(await call(made.here, "add")) == "done"


async def test_a_call_does_not_wait_for_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(negotiate, "PATIENCE_S", 0.02)
    async with Hostile(default=hostile.silence) as server, back(server.url) as made:
        with pytest.raises(UpstreamError, match="it is not known yet what the server speaks"):
            await call(made.here, "add")


async def test_a_server_that_was_exchanged_for_a_legacy_one_is_found_out():
    async with LegacyHttp() as server, back(server.url) as made:
        server.script(discovered(REVISION))
        made.here.begin()
        while made.here.verdict is None:
            await asyncio.sleep(0)
        made.clock.time += 1
        # It wants a session: 400 and a body without our id.
        with pytest.raises(UpstreamError) as caught:
            await call(made.here, "add", a=1)
        assert (caught.value.kind, caught.value.status) == (UpstreamFailure.BAD_REPLY, 400)
        assert text(await call(made.here, "add", a=1, b=1)) == "2"


# Against the SDK's server


async def test_each_client_has_his_own_era_on_the_sdks_server():
    async with sdk_server() as url, back(url) as made:
        assert text(await call(made.here, "add", MODERN, a=2, b=3)) == "5"
        assert made.here.verdict is not None
        assert made.here.verdict.eras == {MODERN}
        assert text(await call(made.here, "add", LEGACY, a=2, b=3)) == "5"
        assert made.here.verdict.eras == frozenset(Era)
        # Its push style works on its legacy wire only: that is why the client's era is kept.
        asked = await call(made.here, "ask", LEGACY, capabilities=FORM)
        assert asked.result is not None
        requests = asked.result["inputRequests"]
        assert isinstance(requests, dict)
        done = await call(
            made.here, "ask", LEGACY, capabilities=FORM, requestState=asked.result["requestState"],
            inputResponses={key: {"action": "accept", "content": {"colour": "red"}} for key in requests},
        )  # fmt: skip
        assert text(done) == "red"


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_a_forced_era_is_spoken_by_every_client(era: Era):
    async with sdk_server() as url, back(url, forced=era) as made:
        for each in Era:
            assert text(await call(made.here, "add", each, a=2, b=3)) == "5"
        assert made.here.verdict is not None
        assert made.here.verdict.eras == {era}


async def test_a_legacy_clients_arguments_are_repeated_in_the_headers_that_the_sdk_checks():
    async with sdk_server() as url, back(url, forced=MODERN) as made:
        for region in ("north", "süd", " x "):
            assert text(await call(made.here, "place", LEGACY, region=region, size=2)) == f"{region}:2"
        missing = await call(made.here, "place", MODERN, region="north")
        assert missing.status == 400
        assert missing.message["error"]["code"] == -32020  # type: ignore[index]


async def test_the_sdks_server_of_2024_is_found():
    async with sdk_server(sse=True) as url, back(url) as made:
        assert text(await call(made.here, "add", a=2, b=3)) == "5"
        assert made.said == ["the server speaks legacy 2025-11-25 (initialize)"]
        asked = await call(made.here, "ask", capabilities=FORM)
        assert asked.result is not None
        made.here.abandon(asked.result["requestState"])


# Processes

# A legacy server in a few lines. `exits`: it ends at the first message that is not initialize; `mute`: it ignores it.
OLD = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {"name": "o", "version": "1"}}
    elif m["method"] == "tools/call":
        r = {"content": [{"type": "text", "text": "old"}]}
    elif "id" not in m or sys.argv[1] == "mute":
        continue
    elif sys.argv[1] == "exits":
        sys.exit(3)
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""


@asynccontextmanager
async def spawned(*argv: str) -> AsyncIterator[tuple[Negotiated, list[str]]]:
    command = Command(argv, minimal_environment(os.environ))
    said: list[str] = []
    here = Negotiated(
        StdioUpstream(command, lambda line: None),
        lambda wire: LegacyUpstream(StdioDialer(command, say=lambda line: None), CountingIds(), version="9"),
        probe=StdioProbe(StdioDialer(command, say=lambda line: None), version="9"),
        clock=StillClock(),
        ids=CountingIds(),
        say=said.append,
    )
    try:
        yield here, said
    finally:
        await here.close()


@pytest.mark.parametrize("how", ["refuses", "exits", "mute"])
async def test_a_legacy_process_is_found_whatever_it_does_with_a_modern_question(
    how: str, monkeypatch: pytest.MonkeyPatch
):
    if how == "mute":
        monkeypatch.setattr(probe, "_SILENT_S", 0.5)
    async with spawned(sys.executable, "-I", "-S", "-c", OLD, how) as (here, said):
        assert text(await call(here, "any")) == "old"
        assert said == ["the server speaks legacy 2025-03-26 (initialize)"]


async def test_a_modern_process_is_found():
    async with spawned(*stdio_server.command("--banner")) as (here, said):
        assert (await call(here, "any")).result is not None
        assert said == ["the server speaks modern 2026-07-28 (server/discover)"]


async def test_a_command_that_does_not_work_is_told():
    async with spawned(*stdio_server.command("--fail")) as (here, _):
        with pytest.raises(UpstreamError) as caught:
            await call(here, "any")
        assert caught.value.cause.startswith(
            "it cannot be told what the server speaks: initialize: the server process ended"
        )
    async with spawned("/no/such/program") as (here, _):
        with pytest.raises(UpstreamError, match="it cannot be told what the server speaks"):
            await call(here, "any")

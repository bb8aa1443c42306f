from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from airlock.core.approval import ticket
from airlock.core.errors import StoreUnavailable
from airlock.edge.headers import Headers
from airlock.gateway.approve import HEADERS, ApprovePage
from tests.fakes.world import Got, World

CLAIMS = ticket.Claims(
    p="alice", t="drop_bucket", h="0" * 64, e="prod", u="http://internal/mcp", k="c" * 32, exp=0.0, m="oob"
)
BUTTON = "<button"


class Named:
    """An approver as the identity reports one."""

    def __init__(self, name: str | None, source: str | None) -> None:
        self.name = name
        self.source = source


class Bench:
    """An approve page over the store, audit and clock of a world; `broken` names store calls that fail."""

    def __init__(self) -> None:
        self.world = World()
        self.broken: dict[str, Exception] = {}
        self.called: list[str] = []
        self.approver: Any = Named("approver-1", "header")
        self.asked: list[Headers] = []
        gate = self.world.gate
        self.page = ApprovePage(
            keys=gate.confirmations.keys,
            store=self,
            recorder=gate.recorder,
            clock=gate.clock,
            ids=gate.ids,
            log=gate.log,
            who=self._who,
        )
        self.claims = msgspec.structs.replace(CLAIMS, exp=self.world.clock.now() + 600)
        self.link = f"/approve/{ticket.approve_token(gate.confirmations.keys, self.claims)}"

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.world.store, name)

        async def asked(*args: Any) -> Any:
            self.called.append(name)
            if name in self.broken:
                raise self.broken[name]
            return await real(*args)

        return asked

    async def _who(self, lines: Headers, now: float) -> Any:
        self.asked.append(lines)
        assert now == self.world.clock.now()
        if isinstance(self.approver, Exception):
            raise self.approver
        return self.approver

    async def http(self, method: str, path: str | None = None, headers: Any = ()) -> Got:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            raise AssertionError("the body of an approval is not read")

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": self.link if path is None else path,
            "headers": headers,
        }
        await self.page(scope, receive, send)
        head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        got = Got(sent[0]["status"], sent[1]["body"], head)
        # T16: whatever the answer is.
        for name, value in HEADERS:
            assert head[name.decode()] == value.decode()
        assert head["content-type"] == "text/html; charset=utf-8"
        return got

    @property
    async def stands(self) -> bool:
        return await self.world.store.approved(self.claims.k, self.world.clock.now())


@pytest.mark.case("T16")
def test_the_headers_are_those_of_the_specification():
    assert dict(HEADERS) == {
        b"cache-control": b"no-store",
        b"referrer-policy": b"no-referrer",
        b"x-frame-options": b"DENY",
        b"x-content-type-options": b"nosniff",
        b"content-security-policy": b"default-src 'none'; form-action 'self'; frame-ancestors 'none'",
    }


# --- GET and HEAD


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_looking_shows_the_call_and_approves_nothing(method: str):
    bench = Bench()
    await bench.world.store.save_prompt(bench.claims.k, 'Arguments: {"a": "<b>"}', bench.claims.exp)
    got = await bench.http(method)
    page = got.raw.decode()
    assert got.status == 200
    for fact in ("drop_bucket", "alice", "prod", bench.claims.k, "&lt;b&gt;", BUTTON):
        assert fact in page
    assert not await bench.stands
    assert set(bench.called) == {"prompt", "burned", "approved"}
    assert bench.world.records == []
    assert bench.asked == []


async def test_without_a_kept_text_the_page_says_so_and_has_its_button():
    page = (await Bench().http("GET")).raw.decode()
    assert "not available here" in page
    assert BUTTON in page


async def test_an_approved_link_has_no_button():
    bench = Bench()
    await bench.world.store.approve(bench.claims.k, bench.claims.exp)
    got = await bench.http("GET")
    assert (got.status, BUTTON in got.raw.decode()) == (200, False)
    assert b"is approved" in got.raw


@pytest.mark.parametrize("approved", [False, True])
async def test_a_burned_link_has_no_button(approved: bool):
    bench = Bench()
    if approved:
        await bench.world.store.approve(bench.claims.k, bench.claims.exp)
    await bench.world.store.burn(bench.claims.k, bench.claims.exp)
    got = await bench.http("GET")
    assert (got.status, BUTTON in got.raw.decode()) == (200, False)
    assert b"already executed or declined" in got.raw


@pytest.mark.parametrize("call", ["prompt", "burned", "approved"])
@pytest.mark.parametrize("trouble", [StoreUnavailable("gone"), ValueError("complaint")])
async def test_a_store_that_fails_a_look_still_leaves_a_page_with_a_button(call: str, trouble: Exception):
    bench = Bench()
    bench.broken[call] = trouble
    got = await bench.http("GET")
    assert got.status == 200
    assert BUTTON in got.raw.decode()
    assert len(bench.world.logged) == 1


# --- POST


async def test_pressing_the_button_approves_and_records_who_did():
    bench = Bench()
    got = await bench.http("POST", headers=[(b"x-forwarded-user", b"approver-1")])
    assert got.status == 200
    assert await bench.stands
    assert bench.asked[0].first == {b"x-forwarded-user": b"approver-1"}
    intent, outcome = bench.world.last_pair
    expected = {
        "principal": "alice", "method": "approve", "tool": "drop_bucket", "args": None, "verdict": "allow",
        "rule_id": "mrtr.approved_oob", "tier": None, "dry_run": None, "upstream_status": None, "trace_id": None,
        "detail": {"key": bench.claims.k, "approved_by": "approver-1", "approved_by_source": "header"},
    }  # fmt: skip
    for record in (intent, outcome):
        assert {name: record[name] for name in expected} == expected
    assert (intent["latency_ms"], outcome["latency_ms"]) == (None, 0)


@pytest.mark.case("T12")
async def test_pressing_twice_counts_once():
    bench = Bench()
    await bench.http("POST")
    again = await bench.http("POST")
    assert again.status == 200
    assert bench.called.count("approve") == 1
    assert len(bench.world.records) == 2


@pytest.mark.case("T12")
@pytest.mark.parametrize("approved", [False, True])
async def test_pressing_on_what_is_over_is_a_conflict(approved: bool):
    bench = Bench()
    if approved:
        await bench.http("POST")
    before = len(bench.world.records)
    await bench.world.store.burn(bench.claims.k, bench.claims.exp)
    got = await bench.http("POST")
    assert got.status == 409
    assert BUTTON not in got.raw.decode()
    assert bench.called.count("approve") == int(approved)
    assert len(bench.world.records) == before


@pytest.mark.case("T13")
@pytest.mark.parametrize("call", ["burned", "approved", "approve"])
@pytest.mark.parametrize("trouble", [StoreUnavailable("gone"), ValueError("complaint")])
async def test_pressing_while_the_store_is_away_records_nothing(call: str, trouble: Exception):
    bench = Bench()
    bench.broken[call] = trouble
    got = await bench.http("POST")
    assert got.status == 503
    assert b"nothing was approved" in got.raw
    assert bench.world.records == []
    assert len(bench.world.logged) == 1
    bench.broken.clear()
    assert not await bench.stands


@pytest.mark.case("T78")
async def test_fifty_presses_at_once_are_recorded_once_in_one_process():
    bench = Bench()
    answers = await asyncio.gather(*(bench.http("POST") for _ in range(50)))
    assert {answer.status for answer in answers} == {200}
    assert len(bench.world.records) == 2


# --- who pressed


@pytest.mark.case("T14")
async def test_a_press_whose_author_cannot_be_worked_out_is_recorded_as_unverified():
    bench = Bench()
    bench.approver = RuntimeError("the key set of https://idp.example did not come")
    assert (await bench.http("POST")).status == 200
    assert await bench.stands
    detail = bench.world.last_pair[1]["detail"]
    assert (detail["approved_by"], detail["approved_by_source"]) == (None, None)
    (line,) = bench.world.logged
    assert "idp.example" not in line


@pytest.mark.case("T15")
@pytest.mark.parametrize(
    ("approver", "recorded"),
    [
        (Named("carol", "verified"), ("carol", "verified")),
        (Named("carol", "header"), ("carol", "header")),
        (Named(None, None), (None, None)),
        (Named(None, "verified"), (None, None)),
    ],
)
async def test_the_source_is_recorded_as_the_identity_gives_it(approver: Named, recorded: Any):
    bench = Bench()
    bench.approver = approver
    await bench.http("POST")
    detail = bench.world.last_pair[1]["detail"]
    assert (detail["approved_by"], detail["approved_by_source"]) == recorded


async def test_what_a_presser_calls_himself_is_scrubbed_and_cut():
    bench = Bench()
    bench.approver = Named("gh" + "p_" + "x" * 36 + " \x00" + "y" * 500, "header")
    await bench.http("POST")
    name = bench.world.last_pair[1]["detail"]["approved_by"]
    assert name.startswith("[REDACTED] \ufffdyyy")
    assert len(name) == 128


# --- links and methods


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_a_link_that_is_no_good_opens_nothing(method: str):
    bench = Bench()
    keys = bench.world.gate.confirmations.keys
    agent = ticket.mint(keys, bench.claims)
    forged = ticket.approve_token(ticket.Keys.derive(b"other"), bench.claims)
    late = ticket.approve_token(keys, msgspec.structs.replace(bench.claims, exp=bench.world.clock.now()))
    for token in (
        "",
        "x",
        agent,
        agent.replace("al1.", "al2."),
        forged,
        late,
        bench.link[9:] + "/",
        "al2.a.b\u00e9",
    ):
        got = await bench.http(method, f"/approve/{token}")
        assert got.status == 400, token
        assert b"Nothing was approved" in got.raw
        assert BUTTON not in got.raw.decode()
    assert bench.called == []
    assert bench.world.records == []


@pytest.mark.case("T09")
async def test_what_the_agent_holds_never_opens_the_page():
    bench = Bench()
    agent = ticket.mint(bench.world.gate.confirmations.keys, bench.claims)
    for token in (agent, agent.replace("al1.", "al2.", 1)):
        assert (await bench.http("POST", f"/approve/{token}")).status == 400
    assert not await bench.stands


@pytest.mark.case("T16")
@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "post"])
async def test_other_methods_are_refused_with_the_headers_of_the_page(method: str):
    bench = Bench()
    got = await bench.http(method)
    assert got.status == 405
    assert got.headers["allow"] == "GET, HEAD, POST"
    assert bench.called == []


@pytest.mark.case("T16")
async def test_a_page_that_breaks_keeps_its_headers_and_says_nothing_of_why(monkeypatch: pytest.MonkeyPatch):
    bench = Bench()

    def broken(*_: object) -> bytes:
        raise RuntimeError("inner words")

    monkeypatch.setattr("airlock.gateway.approvepage.question", broken)
    got = await bench.http("GET")
    assert got.status == 500
    assert b"inner words" not in got.raw
    assert any("internal error" in line for line in bench.world.logged)


async def test_an_approval_that_cannot_be_recorded_says_so():
    bench = Bench()
    bench.world.sink.failing = True
    got = await bench.http("POST")
    assert got.status == 500
    assert b"stored, but the audit log" in got.raw
    assert any("No space left" in line for line in bench.world.logged)

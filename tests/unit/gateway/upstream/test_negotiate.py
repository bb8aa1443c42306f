"""Which era a request goes upstream in, what a verdict lives on, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airlock.core.action import Action
from airlock.core.decision import Allow, Tier
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import by_policy
from airlock.core.rules import Rule
from airlock.edge.httpanswer import Reply
from airlock.gateway import body
from airlock.gateway.upstream import negotiate
from airlock.gateway.upstream.evidence import Finding, Wire
from airlock.gateway.upstream.negotiate import TRUSTED_S, Negotiated
from airlock.gateway.upstream.port import Answer, Era, Heard, Outgoing, Upstream
from tests.fakes.upstream_port import Client, FakeUpstream, error, result
from tests.fakes.world import CountingIds, StillClock

MODERN, LEGACY = Era.MODERN, Era.LEGACY
UNREACHABLE, BAD_REPLY = UpstreamFailure.UNREACHABLE, UpstreamFailure.BAD_REPLY

IS_MODERN = Finding(frozenset({MODERN}), "server/discover", "2026-07-28")
IS_LEGACY = Finding(frozenset({LEGACY}), "initialize", "2025-06-18", Wire.HTTP)
IS_OLD = Finding(frozenset({LEGACY}), "initialize", "2024-11-05", Wire.SSE)
IS_BOTH = Finding(frozenset(Era), "server/discover", "2026-07-28", Wire.HTTP)
IS_DOWN = Finding(frozenset(), "ConnectionRefusedError")

Found = Finding | Exception


class FakeProbe:
    """Answers from scripts, the last one for ever; holds its answer while `held`."""

    legacy_is_cheap = True

    def __init__(self, *found: Found, legacy: Found = IS_DOWN) -> None:
        self.found = list(found)
        self.older = [legacy]
        self.finds: list[Finding | None] = []
        self.legacies = 0
        self.go = asyncio.Event()
        self.go.set()
        self.closed = False

    async def find(self, known: Finding | None) -> Finding:
        self.finds.append(known)
        return await self._next(self.found)

    async def legacy(self) -> Finding:
        self.legacies += 1
        return await self._next(self.older)

    async def close(self) -> None:
        self.closed = True

    async def _next(self, script: list[Found]) -> Finding:
        await self.go.wait()
        found = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(found, Exception):
            raise found
        return found


class Side(FakeUpstream):
    """One implementation; counts how it was closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__()
        self.name = name
        self._order = closed

    async def send(self, outgoing: Outgoing) -> Reply:
        answer = await self.ask(outgoing)
        return Reply(answer.status, "application/json", body.encode(answer.message))

    async def close(self) -> None:
        self._order.append(self.name)


class Scene:
    """A negotiated upstream over two sides and a scripted probe."""

    def __init__(
        self,
        *found: Found,
        legacy: Found = IS_DOWN,
        forced: Era | None = None,
        without: Era | None = None,
        cheap: bool = True,
    ) -> None:
        self.prepared = 0
        self.closed: list[str] = []
        self.modern = Side("modern", self.closed)
        self.legacies: dict[Wire, Side] = {}
        self.probe = FakeProbe(*found, legacy=legacy)
        self.probe.legacy_is_cheap = cheap
        self.clock = StillClock()
        self.said: list[str] = []
        modern: Upstream | None = None if without is MODERN else self.modern
        make: Callable[[Wire], Upstream] | None = None if without is LEGACY else self._make
        self.here = Negotiated(
            modern,
            make,
            probe=self.probe,
            clock=self.clock,
            ids=CountingIds(),
            say=self.said.append,
            target="here",
            forced=forced,
            prepare=self._prepare,
        )

    def _prepare(self) -> None:
        self.prepared += 1

    def _make(self, wire: Wire) -> Upstream:
        assert wire not in self.legacies
        self.legacies[wire] = Side(wire, self.closed)
        return self.legacies[wire]

    @property
    def sides(self) -> list[str]:
        """Who was sent something, one word for each request."""
        sides: dict[str, Side] = {"modern": self.modern}
        sides.update((str(wire), side) for wire, side in self.legacies.items())
        return [name for name, side in sides.items() for _ in side.sent]

    async def ask(self, era: Era = MODERN, **more: Any) -> Answer:
        return await self.here.ask(outgoing(era, **more))

    async def background(self) -> None:
        """Let what was begun in the background come to its end."""
        while (task := self.here._finding) is not None:
            await asyncio.wait((task,))
            await asyncio.sleep(0)


def outgoing(era: Era = MODERN, method: str = "tools/list", **params: Any) -> Outgoing:
    return Outgoing(7, b"x: y\r\n", b"{}", method, {"_meta": {}, **params}, "alice", era)


def call(era: Era = MODERN, **params: Any) -> Outgoing:
    return outgoing(era, "tools/call", name="go", arguments={}, **params)


def grant() -> Any:
    return by_policy(Action("go", {}, "prod", ""), Allow(Rule.L0_READ, Tier.L0))


async def fails(waiting: Awaitable[object], cause: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        await waiting
    assert (caught.value.kind, caught.value.cause, caught.value.reached) == (UNREACHABLE, cause, False)


# The choice


@pytest.mark.parametrize(
    ("found", "era", "side"),
    [
        (IS_MODERN, MODERN, "modern"),
        (IS_MODERN, LEGACY, "modern"),
        (IS_LEGACY, MODERN, "http"),
        (IS_LEGACY, LEGACY, "http"),
        (IS_OLD, MODERN, "http+sse"),
        (IS_OLD, LEGACY, "http+sse"),
        (IS_BOTH, MODERN, "modern"),
        (IS_BOTH, LEGACY, "http"),
    ],
)
async def test_a_request_goes_in_the_era_of_its_client_where_the_server_speaks_it(
    found: Finding, era: Era, side: str
):
    scene = Scene(found)
    upstream: Upstream = scene.here
    await upstream.ask(outgoing(era))
    await upstream.call(grant(), call(era), exact=True)
    await upstream.send(outgoing(era))
    assert scene.sides == [side] * 3
    assert scene.probe.finds == [None]
    assert upstream.target("go") == upstream.target(None) == "here"


async def test_a_subscription_goes_the_same_way():
    scene = Scene(IS_BOTH)
    listening = asyncio.create_task(scene.here.listen(outgoing(LEGACY, "subscriptions/listen"), Client()))
    while not scene.legacies:
        await asyncio.sleep(0)
    subscription = await scene.legacies[Wire.HTTP].opened.get()
    subscription.ends()
    assert (await listening).result is not None


async def test_the_verdict_can_be_read():
    scene = Scene(IS_BOTH)
    assert scene.here.verdict is None
    await scene.ask()
    verdict = scene.here.verdict
    assert verdict is not None
    assert (verdict.eras, verdict.version, verdict.how) == (frozenset(Era), "2026-07-28", "server/discover")
    assert verdict.at == scene.clock.now()
    assert str(verdict) == "modern+legacy 2026-07-28 (server/discover)"
    assert scene.said == ["the server speaks modern+legacy 2026-07-28 (server/discover)"]
    assert scene.here.trouble == ""


async def test_a_parked_call_goes_back_to_where_it_is_parked_whatever_is_known_by_now():
    scene = Scene(IS_LEGACY, IS_MODERN)
    await scene.ask()
    scene.clock.time += TRUSTED_S
    await scene.ask()
    await scene.background()
    assert scene.here.verdict is not None
    assert scene.here.verdict.eras == {MODERN}
    await scene.here.call(grant(), call(requestState="park1.x"), exact=False)
    assert scene.sides == ["http"] * 3
    await scene.here.call(grant(), call(requestState="other"), exact=False)
    assert scene.sides == ["modern", *["http"] * 3]


async def test_a_parked_call_needs_no_verdict():
    scene = Scene(IS_DOWN)
    await scene.ask(requestState="park1.x")
    assert scene.sides == ["http"]
    assert scene.probe.finds == []


async def test_a_question_of_a_modern_server_is_answered_there_though_it_speaks_both():
    scene = Scene(IS_BOTH)
    await scene.here.call(grant(), call(LEGACY, requestState="theirs"), exact=False)
    assert scene.sides == ["modern"]


@pytest.mark.parametrize("state", [None, 7, ["park1.x"], "xpark1."])
async def test_what_is_no_handle_of_ours_goes_to_a_modern_server(state: object):
    scene = Scene(IS_MODERN)
    await scene.here.call(grant(), call(requestState=state), exact=False)
    assert scene.sides == ["modern"]


async def test_where_the_older_era_is_switched_off_a_handle_is_the_servers():
    scene = Scene(IS_MODERN, without=LEGACY)
    await scene.ask(requestState="park1.x")
    assert scene.sides == ["modern"]


async def test_a_question_is_abandoned_where_it_was_asked():
    scene = Scene(IS_BOTH)
    scene.here.abandon("park1.x")
    await scene.ask(LEGACY)
    scene.here.abandon("park1.y")
    scene.here.abandon("other")
    assert scene.legacies[Wire.HTTP].abandoned == ["park1.y"]
    assert scene.modern.abandoned == ["other"]
    Scene(IS_LEGACY, without=MODERN).here.abandon("other")


async def test_progress_is_heard_whichever_way_the_request_goes():
    for era in Era:
        scene = Scene(IS_BOTH)
        client = Client()

        async def say(_: Outgoing, heard: Heard | None) -> None:
            assert heard is not None
            heard.notify({"method": "notifications/progress"})

        scene.modern.before = say
        await scene.ask(LEGACY)
        scene.legacies[Wire.HTTP].before = say
        await scene.here.ask(outgoing(era), heard=client)
        await scene.here.call(grant(), call(era), exact=False, heard=client)
        assert client.methods == ["progress", "progress"]


async def test_a_legacy_clients_call_to_a_modern_server_gets_the_headers_that_it_needs():
    scene = Scene(IS_MODERN)
    scene.modern.script = lambda sent: (
        result(
            {
                "tools": [
                    {
                        "name": "go",
                        "inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}},
                    }
                ]
            }
        )
        if sent.method == "tools/list"
        else result({})
        if b"Mcp-Param-A: 1" in sent.headers
        else error(-32020, 400)
    )(sent)
    sent = outgoing(LEGACY, "tools/call", name="go", arguments={"a": "1"})
    assert (await scene.here.call(grant(), sent, exact=False)).result is not None
    assert (
        await scene.here.call(
            grant(), outgoing(MODERN, "tools/call", name="go", arguments={"a": "1"}), exact=False
        )
    ).result is None


# Single flight, patience, outage


async def test_however_many_ask_the_server_is_asked_once():
    scene = Scene(IS_MODERN)
    scene.probe.go.clear()
    scene.here.begin()
    asked = [asyncio.create_task(scene.ask(era)) for era in (MODERN, LEGACY) * 5]
    await asyncio.sleep(0)
    scene.here.begin()
    scene.probe.go.set()
    await asyncio.gather(*asked)
    scene.here.begin()
    assert len(scene.probe.finds) == 1
    # Legacy clients had it asked once more, whether it speaks their era too.
    assert scene.probe.legacies == 1
    assert scene.sides == ["modern"] * 10


async def test_no_request_waits_long_for_a_verdict(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(negotiate, "PATIENCE_S", 0.0)
    scene = Scene(IS_MODERN)
    scene.probe.go.clear()
    await fails(scene.ask(), "it is not known yet what the server speaks")
    spent = grant()
    await fails(scene.here.call(spent, call(), exact=False), "it is not known yet what the server speaks")
    spent.spend()
    scene.probe.go.set()
    await scene.background()
    await scene.ask()
    assert scene.sides == ["modern"]


async def test_a_caller_who_leaves_takes_nobody_with_him():
    scene = Scene(IS_MODERN)
    scene.probe.go.clear()
    leaving, staying = asyncio.create_task(scene.ask()), asyncio.create_task(scene.ask())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    scene.probe.go.set()
    await staying
    assert len(scene.probe.finds) == 1


async def test_while_the_server_is_down_calls_fail_unsent_and_say_why():
    scene = Scene(IS_DOWN, IS_DOWN, IS_MODERN)
    cause = "it cannot be told what the server speaks: ConnectionRefusedError"
    for _ in range(3):
        await fails(scene.ask(), cause)
    assert len(scene.probe.finds) == 1
    assert scene.here.trouble == cause
    scene.clock.time += 1
    await fails(scene.ask(), cause)
    assert len(scene.probe.finds) == 2
    assert scene.said == [cause]
    scene.clock.time += 1
    await scene.ask()
    assert scene.here.trouble == ""
    assert scene.said == [cause, "the server speaks modern 2026-07-28 (server/discover)"]


async def test_a_probe_that_breaks_is_no_evidence():
    scene = Scene(ValueError("secret"))
    await fails(scene.ask(), "it cannot be told what the server speaks: ValueError")


@pytest.mark.parametrize(("without", "found"), [(LEGACY, IS_LEGACY), (MODERN, IS_MODERN)])
async def test_an_era_that_is_switched_off_is_not_spoken(without: Era, found: Finding):
    scene = Scene(found, without=without)
    era = next(iter(found.eras))
    cause = f"it cannot be told what the server speaks: only the {era} era, which is switched off"
    await fails(scene.ask(), cause)


@pytest.mark.parametrize(("without", "side"), [(LEGACY, "modern"), (MODERN, "http")])
async def test_of_a_server_that_speaks_both_the_one_spoken_here_is_used(without: Era, side: str):
    scene = Scene(IS_BOTH, without=without)
    await scene.ask(MODERN)
    await scene.ask(LEGACY)
    assert scene.sides == [side] * 2
    assert scene.probe.legacies == 0


# Forced


async def test_a_forced_modern_era_asks_nothing():
    scene = Scene(IS_LEGACY, forced=MODERN)
    assert str(scene.here.verdict) == "modern 2026-07-28 (as configured)"
    scene.modern.script = error(-32022, 400)
    for era in Era:
        await scene.ask(era)
    assert scene.sides == ["modern"] * 2
    assert (scene.probe.finds, scene.probe.legacies) == ([], 0)


async def test_a_forced_legacy_era_asks_only_how_it_is_reached():
    scene = Scene(IS_MODERN, legacy=IS_OLD, forced=LEGACY)
    for era in Era:
        await scene.ask(era)
        scene.clock.time += TRUSTED_S
    await scene.background()
    assert scene.sides == ["http+sse"] * 2
    assert (scene.probe.finds, scene.probe.legacies) == ([], 1)
    assert scene.here.verdict is not None
    assert scene.here.verdict.eras == {LEGACY}


# Dates and doubts


async def test_an_old_legacy_verdict_is_looked_at_behind_the_back_of_calls():
    scene = Scene(IS_LEGACY, IS_LEGACY, IS_DOWN, IS_BOTH)
    await scene.ask()
    assert scene.here.verdict is not None
    first = scene.here.verdict.at
    scene.clock.time += TRUSTED_S - 1
    await scene.ask()
    await scene.background()
    assert len(scene.probe.finds) == 1
    scene.clock.time += 1
    scene.probe.go.clear()
    await scene.ask()
    await scene.ask()
    scene.probe.go.set()
    await scene.background()
    # It was not asked to prove again what is known.
    assert scene.probe.finds == [None, IS_LEGACY]
    assert scene.here.verdict.at == first + TRUSTED_S
    scene.clock.time += TRUSTED_S
    await scene.ask()
    await scene.background()
    # An outage is no evidence: the verdict stands, with its date.
    assert scene.here.verdict.at == first + TRUSTED_S
    scene.clock.time += TRUSTED_S
    await scene.ask()
    await scene.background()
    assert scene.here.verdict.eras == frozenset(Era)
    await scene.ask()
    assert scene.sides == ["modern", *["http"] * 6]
    assert len(scene.said) == 2


@pytest.mark.parametrize("kind", [BAD_REPLY, UNREACHABLE])
async def test_calls_that_fail_have_a_legacy_verdict_looked_at_soon(kind: UpstreamFailure):
    scene = Scene(IS_LEGACY, IS_OLD)
    await scene.ask()
    scene.legacies[Wire.HTTP].script = lambda _: UpstreamError(kind, "HTTP 404", reached=False, status=404)
    for _ in range(3):
        with pytest.raises(UpstreamError):
            await scene.ask()
        await scene.background()
    assert len(scene.probe.finds) == 1
    scene.clock.time += 30
    with pytest.raises(UpstreamError):
        await scene.ask()
    await scene.background()
    # Now it has to prove itself: it may be reached in another way than before.
    assert scene.probe.finds == [None, None]
    await scene.ask()
    assert scene.sides == [*["http"] * 5, "http+sse"]


async def test_an_answer_that_is_too_large_is_no_reason_to_doubt():
    scene = Scene(IS_LEGACY, IS_OLD)
    await scene.ask()
    scene.legacies[Wire.HTTP].script = lambda _: UpstreamError(UpstreamFailure.TOO_LARGE, "x", reached=True)
    with pytest.raises(UpstreamError):
        await scene.ask()
    scene.clock.time += 31
    with pytest.raises(UpstreamError):
        await scene.ask()
    await scene.background()
    assert len(scene.probe.finds) == 1


def bad_reply(status: int | None) -> Any:
    return lambda _: UpstreamError(BAD_REPLY, "x", reached=True, status=status)


@pytest.mark.parametrize(
    ("method", "script"),
    [
        ("tools/list", error(-32022, 400)),
        ("server/discover", error(-32601, 404)),
        ("tools/call", error(-32022, 200)),
        *(("tools/list", bad_reply(status)) for status in (400, 404, 405, 406, 415)),
    ],
)
@pytest.mark.parametrize("way", ["ask", "send", "call"])
async def test_a_modern_verdict_that_fails_is_dropped_at_once(method: str, script: Any, way: str):
    scene = Scene(IS_MODERN, IS_LEGACY)
    await scene.ask()
    scene.clock.time += 1
    scene.modern.script = script
    sent = outgoing(method=method)
    going: Awaitable[object] = (
        scene.here.ask(sent)
        if way == "ask"
        else scene.here.send(sent)
        if way == "send"
        else scene.here.call(grant(), sent, exact=False)
    )
    if isinstance(outcome := script(sent), UpstreamError):
        if way == "send":
            # The real one returns it unread.
            scene.modern.script = lambda _: Answer(outcome.status or 0, {"no": "response"}, None)
            await going
        else:
            with pytest.raises(UpstreamError):
                await going
    else:
        await going
    assert scene.here.verdict is None
    await scene.ask()
    assert scene.sides == ["modern", "modern", "http"]


@pytest.mark.parametrize(
    ("method", "script"),
    [
        ("tools/list", error(-32601, 404)),
        ("tools/list", error(-32602, 400)),
        ("server/discover", error(-32603, 200)),
        ("tools/list", bad_reply(500)),
        ("tools/list", bad_reply(200)),
        ("tools/list", bad_reply(401)),
        ("tools/list", bad_reply(None)),
        ("tools/list", lambda _: UpstreamError(UNREACHABLE, "x", reached=True, status=404)),
    ],
)
async def test_other_failures_of_a_modern_server_are_its_own(method: str, script: Any):
    scene = Scene(IS_MODERN, IS_LEGACY)
    await scene.ask()
    scene.clock.time += 1
    scene.modern.script = script
    try:
        await scene.ask(method=method)
    except UpstreamError:
        pass
    assert scene.here.verdict is not None


async def test_a_server_that_is_odd_for_one_request_is_not_asked_before_each():
    scene = Scene(IS_MODERN)
    await scene.ask()
    scene.modern.script = error(-32022, 400)
    for _ in range(5):
        await scene.ask()
    assert len(scene.probe.finds) == 1
    scene.clock.time += 1
    for _ in range(5):
        await scene.ask()
    assert len(scene.probe.finds) == 2


# Both, found out when somebody wants it


async def test_the_first_legacy_client_has_a_modern_server_tried_in_his_era():
    scene = Scene(IS_MODERN, legacy=IS_LEGACY)
    await scene.ask(MODERN)
    assert scene.probe.legacies == 0
    await scene.ask(LEGACY)
    await scene.ask(LEGACY)
    await scene.ask(MODERN)
    assert scene.probe.legacies == 1
    assert scene.sides == ["modern", "modern", "http", "http"]
    assert str(scene.here.verdict) == "modern+legacy 2026-07-28 (server/discover, initialize)"


async def test_a_modern_server_that_refuses_is_tried_again_after_a_while():
    scene = Scene(IS_MODERN, legacy=IS_DOWN)
    await scene.ask(LEGACY)
    await scene.ask(LEGACY)
    assert scene.probe.legacies == 1
    scene.clock.time += TRUSTED_S
    await scene.ask(LEGACY)
    assert scene.probe.legacies == 2
    assert scene.sides == ["modern"] * 3


async def test_a_slow_trial_costs_no_call(monkeypatch: pytest.MonkeyPatch):
    scene = Scene(IS_MODERN, legacy=IS_LEGACY)
    await scene.ask(MODERN)
    monkeypatch.setattr(negotiate, "PATIENCE_S", 0.0)
    scene.probe.go.clear()
    await scene.ask(LEGACY)
    assert scene.sides == ["modern"] * 2
    scene.probe.go.set()
    while scene.here._widening is not None:
        await asyncio.sleep(0)
    await scene.ask(LEGACY)
    assert scene.sides == ["modern", "modern", "http"]


async def test_a_trial_that_ends_after_the_verdict_was_dropped_makes_none():
    scene = Scene(IS_MODERN, legacy=IS_LEGACY)
    await scene.ask(MODERN)
    scene.clock.time += 1
    scene.probe.go.clear()
    waiting = asyncio.create_task(scene.ask(LEGACY))
    await asyncio.sleep(0)
    scene.modern.script = error(-32022, 400)
    await scene.ask(MODERN)
    scene.probe.go.set()
    await fails(waiting, "it is not known yet what the server speaks")
    assert scene.here.verdict is None


async def test_where_a_trial_costs_a_process_there_is_none():
    scene = Scene(IS_MODERN, cheap=False)
    await scene.ask(LEGACY)
    assert scene.probe.legacies == 0
    assert scene.sides == ["modern"]


# The end


async def test_closing_ends_both_sides_and_whatever_is_asked():
    scene = Scene(IS_BOTH)
    await scene.ask(LEGACY)
    await scene.here.close()
    assert scene.closed == ["http", "modern"]
    assert scene.probe.closed
    await fails(scene.ask(), "the upstream is closed")
    await fails(scene.ask(requestState="park1.x"), "the upstream is closed")
    scene.here.begin()
    assert len(scene.probe.finds) == 1


async def test_closing_wakes_those_who_wait():
    scene = Scene(IS_MODERN)
    scene.probe.go.clear()
    waiting = asyncio.create_task(scene.ask())
    await asyncio.sleep(0)
    await scene.here.close()
    await fails(waiting, "the upstream is closed")


async def test_without_a_modern_side_there_is_none_to_close():
    scene = Scene(IS_LEGACY, without=MODERN)
    await scene.ask()
    await scene.here.close()
    assert scene.closed == ["http"]


@pytest.mark.parametrize(("found", "http", "compares"), [
    (IS_MODERN, True, True), (IS_BOTH, True, True), (IS_LEGACY, True, False), (IS_MODERN, False, False),
])  # fmt: skip
async def test_only_a_modern_server_over_http_compares_headers_and_only_once_that_is_known(
    found: Finding, http: bool, compares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airlock.gateway.upstream.http.HttpUpstream", Side if http else Scene)
    scene = Scene(found)
    assert not scene.here.compares_headers("go")
    await scene.ask()
    assert scene.here.compares_headers("go") is compares


@pytest.mark.parametrize(
    ("found", "forced", "times"),
    [
        (IS_MODERN, None, 1),
        (IS_BOTH, None, 1),
        (IS_LEGACY, None, 0),
        (IS_DOWN, None, 0),
        (IS_DOWN, MODERN, 1),
    ],
    ids=["modern", "both", "legacy", "down", "as configured"],
)
async def test_what_will_be_needed_is_prepared_as_soon_as_that_is_known(
    found: Finding, forced: Era | None, times: int
) -> None:
    scene = Scene(found, forced=forced)
    assert scene.prepared == 0
    scene.here.begin()
    await asyncio.sleep(0.01)
    assert scene.prepared == times
    await scene.here.close()
    scene.here.begin()
    assert scene.prepared == times

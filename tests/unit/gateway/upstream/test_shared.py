"""Subscriptions that share a stream of the upstream: one for all, and to each as if it had its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.secret import Secret
from airlock.gateway.upstream import shared
from airlock.gateway.upstream.port import Answer, Era, Outgoing
from airlock.gateway.upstream.shared import GRACE_S, MOST_RESTING, SharedListens
from airlock.gateway.upstream.sharedstream import MOST_URIS
from tests.fakes.upstream_port import SUBSCRIPTION, Client, FakeUpstream, Script, Subscription, error, result

OURS = "io.mcp-airlock/"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TOOLS = {"toolsListChanged": True}
BOTH = {"toolsListChanged": True, "promptsListChanged": True}
ACK = "subscriptions/acknowledged"
CHANGED = "tools/list_changed"


def asks(
    notifications: Any, request_id: object = 1, who: str = "alice", more: dict[str, Any] | None = None
) -> Outgoing:
    """What the flow hands on."""
    envelope = {VERSION: "2026-07-28", CAPABILITIES: {}, OURS + "principal": who, **(more or {})}
    params: dict[str, object] = {"notifications": notifications, "_meta": envelope}
    return Outgoing(request_id, b"mcp-method: x\r\n", b"", "subscriptions/listen", params, who)


def of(*uris: str) -> dict[str, Any]:
    return {"resourceSubscriptions": list(uris)}


class Timers:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.set: list[_Timer] = []

    def later(self, delay_s: float, then: Callable[[], object]) -> _Timer:
        assert delay_s == GRACE_S
        self.set.append(_Timer(then))
        return self.set[-1]

    def pass_by(self) -> None:
        due, self.set = self.set, []
        for timer in due:
            if timer.then is not None:
                timer.then()


class _Timer:
    def __init__(self, then: Callable[[], object]) -> None:
        self.then: Callable[[], object] | None = then

    def cancel(self) -> None:
        self.then = None


class Heard(Client):
    """One who listens."""

    task: asyncio.Task[Answer]

    @property
    def told(self) -> dict[str, Any]:
        """What was acknowledged to it, which it was once and first."""
        assert self.methods.count(ACK) == 1
        assert self.methods[0] == ACK
        told: dict[str, Any] = self.messages[0]["params"]["notifications"]
        return told

    @property
    def events(self) -> list[str]:
        """What it heard: methods, and addresses of updates."""
        return [
            it["params"].get("uri", it["method"].removeprefix("notifications/")) for it in self.messages[1:]
        ]


class Bench:
    def __init__(self) -> None:
        self.upstream, self.timers = FakeUpstream(), Timers()
        self.shared = SharedListens(self.upstream, self.timers.later)

    def listen(self, notifications: Any, request_id: object = 1, who: str = "alice", **more: Any) -> Heard:
        return self.listen_for(asks(notifications, request_id, who, more))

    def listen_for(self, outgoing: Outgoing, heard: Heard | None = None) -> Heard:
        heard = heard or Heard()
        heard.task = asyncio.create_task(self.shared.listen(outgoing, heard))
        return heard

    async def opened(self) -> Subscription:
        """The next stream that the upstream sees."""
        return await asyncio.wait_for(self.upstream.opened.get(), 5)

    async def heard(self, notifications: Any, request_id: object = 1) -> tuple[Heard, Subscription]:
        """Somebody listens, and the upstream honours all of it."""
        one = self.listen(notifications, request_id)
        stream = await self.opened()
        stream.acknowledges()
        return one, stream

    async def quiet(self) -> None:
        """Nothing more is opened."""
        await settled()
        assert self.upstream.opened.empty()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def leaves(*those: Heard) -> None:
    for one in those:
        one.task.cancel()
    await asyncio.gather(*(one.task for one in those), return_exceptions=True)
    await settled()


@pytest.fixture
def bench() -> Bench:
    return Bench()


# One stream for many


async def test_a_thousand_subscriptions_of_one_principal_cost_one_stream(bench: Bench) -> None:
    those = [bench.listen(TOOLS, n) for n in range(1000)]
    stream = await bench.opened()
    stream.acknowledges()
    stream.says(CHANGED)
    await bench.quiet()
    for n, one in enumerate(those):
        assert (one.told, one.events) == (TOOLS, [CHANGED])
        assert [message["params"]["_meta"] for message in one.messages] == [{SUBSCRIPTION: n}] * 2
    await leaves(*those)


@pytest.mark.parametrize(
    "other",
    [
        asks(TOOLS, who="bob"),
        asks(TOOLS, more={OURS + "groups": ["sre"]}),
        asks(TOOLS, more={CAPABILITIES: {"sampling": {}}}),
        msgspec.structs.replace(asks(TOOLS), era=Era.LEGACY),
        msgspec.structs.replace(asks(TOOLS), subject=Secret("another")),
    ],
)
async def test_whoever_asks_with_other_rights_or_words_has_another_stream(
    bench: Bench, other: Outgoing
) -> None:
    one, two = bench.listen_for(asks(TOOLS)), bench.listen_for(other)
    first, second = await bench.opened(), await bench.opened()
    for stream in (first, second):
        stream.acknowledges()
    first.says(CHANGED)
    assert (one.events, two.events) == ([CHANGED], [])
    assert first.outgoing.id != second.outgoing.id
    await leaves(one, two)


async def test_the_same_token_sent_twice_is_one(bench: Bench) -> None:
    those = [
        bench.listen_for(msgspec.structs.replace(asks(TOOLS), subject=Secret("the same"))) for _ in range(2)
    ]
    await bench.opened()
    await bench.quiet()
    await leaves(*those)


async def test_the_stream_says_of_its_clients_only_what_they_have_in_common(bench: Bench) -> None:
    more = {
        "io.modelcontextprotocol/clientInfo": {"name": "agent"},
        "progressToken": "t",
        "vendor/k": 1,
        "traceparent": "tp",
        "tracestate": "ts",
    }
    lines = b"content-type: application/json\r\nMcp-Param-X: 1\r\ntraceparent: tp\r\n"
    outgoing = msgspec.structs.replace(asks(TOOLS, more=more), headers=lines)
    one = bench.listen_for(outgoing)
    sent = (await bench.opened()).outgoing
    assert sent.params == {
        "notifications": TOOLS,
        "_meta": {
            VERSION: "2026-07-28",
            CAPABILITIES: {},
            OURS + "principal": "alice",
            "traceparent": "tp",
            "tracestate": "ts",
        },
    }
    assert msgspec.json.decode(sent.body) == {
        "jsonrpc": "2.0",
        "id": "airlock-listen-1",
        "method": "subscriptions/listen",
        "params": sent.params,
    }
    assert b"Mcp-Param" not in sent.headers
    assert b"traceparent: tp\r\n" in sent.headers
    await leaves(one)


async def test_odd_parameters_ask_for_nothing(bench: Bench) -> None:
    for notifications in (5, {"toolsListChanged": "yes", "resourceSubscriptions": "x"}, of(*"aa", 5)):  # type: ignore[arg-type]
        one = bench.listen_for(msgspec.structs.replace(asks(notifications), principal=str(notifications)))
        stream = await bench.opened()
        stream.raw({"method": "notifications/subscriptions/acknowledged"})
        assert one.told == {}
        assert stream.asked in ({}, of("a"))
        await leaves(one)


async def test_each_hears_what_it_asked_for_and_no_more(bench: Bench) -> None:
    tools, a, ab = bench.listen(TOOLS), bench.listen(of("x:/a"), 2), bench.listen(of("x:/a", "x:/b/"), 3)
    stream = await bench.opened()
    assert stream.asked == {**TOOLS, **of("x:/a", "x:/b/")}
    stream.acknowledges()
    assert (tools.told, a.told, ab.told) == (TOOLS, of("x:/a"), of("x:/a", "x:/b/"))
    stream.says(CHANGED)
    for uri in ("x:/a", "x:/a/part", "x:/ab", "x:/b/c", "x:/c", 5):
        stream.says("resources/updated", uri=uri)
    for other in ("prompts/list_changed", "message", "progress"):
        stream.says(other)
    stream.raw({"method": 5})
    assert tools.events == [CHANGED]
    assert a.events == ["x:/a", "x:/a/part"]
    assert ab.events == ["x:/a", "x:/a/part", "x:/b/c"]
    await leaves(tools, a, ab)


async def test_the_upstreams_own_words_and_tags_are_passed_on(bench: Bench) -> None:
    one, stream = await bench.heard(of("x:/a"), "own")
    stream.says("resources/updated", uri="x:/a", title="A", _meta={"vendor/k": 1, SUBSCRIPTION: "theirs"})
    stream.says("resources/updated", uri="x:/a", _meta=5)
    assert [message["params"] for message in one.messages[1:]] == [
        {"uri": "x:/a", "title": "A", "_meta": {"vendor/k": 1, SUBSCRIPTION: "own"}},
        {"uri": "x:/a", "_meta": {SUBSCRIPTION: "own"}},
    ]
    await leaves(one)


async def test_a_late_subscription_is_told_what_is_honoured_of_its_own(bench: Bench) -> None:
    first = bench.listen({**BOTH, **of("x:/a", "x:/b")})
    stream = await bench.opened()
    stream.acknowledges(**TOOLS, **of("x:/a", "x:/z"))
    stream.acknowledges()
    assert first.told == {**TOOLS, **of("x:/a")}
    late = bench.listen({**BOTH, **of("x:/b")}, 2)
    await bench.quiet()
    assert late.told == TOOLS
    await leaves(first, late)


async def test_what_comes_before_the_acknowledgement_is_passed_on_for_the_flow_to_judge(bench: Bench) -> None:
    one = bench.listen(TOOLS)
    stream = await bench.opened()
    stream.says(CHANGED)
    assert one.methods == [CHANGED]
    await leaves(one)


# More, and less, is asked for


async def test_a_stream_that_brings_more_takes_the_place_of_the_old_one_once_it_is_acknowledged(
    bench: Bench,
) -> None:
    first, old = await bench.heard(TOOLS)
    second = bench.listen(of("x:/a"), 2)
    new = await bench.opened()
    assert new.asked == {**TOOLS, **of("x:/a")}
    old.says(CHANGED)
    assert (first.events, second.messages, old.left) == ([CHANGED], [], False)
    new.acknowledges()
    await settled()
    assert old.left
    assert (first.told, second.told) == (TOOLS, of("x:/a"))
    new.says(CHANGED)
    new.says("resources/updated", uri="x:/a")
    old.says(CHANGED)
    assert (first.events, second.events) == ([CHANGED, CHANGED], ["x:/a"])
    await leaves(first, second)


async def test_those_who_come_during_an_opening_share_the_next_one(bench: Bench) -> None:
    those = [bench.listen(of("x:/0"))]
    first = await bench.opened()
    for n in range(1, 6):
        those.append(bench.listen(of(f"x:/{n}"), n))
        await settled()
    assert bench.upstream.opened.empty()
    first.acknowledges()
    second = await bench.opened()
    assert sorted(second.asked["resourceSubscriptions"]) == [f"x:/{n}" for n in range(6)]
    second.acknowledges()
    await bench.quiet()
    assert [one.told for one in those] == [of(f"x:/{n}") for n in range(6)]
    assert (first.left, second.left) == (True, False)
    await leaves(*those)


async def test_an_opening_that_is_never_acknowledged_keeps_the_next_one_waiting_for_a_while_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "PATIENCE_S", 0.0)
    first = bench.listen(TOOLS)
    mute = await bench.opened()
    second = bench.listen(BOTH, 2)
    able = await bench.opened()
    able.acknowledges()
    await settled()
    assert (first.told, second.told, mute.left) == (TOOLS, BOTH, True)
    await leaves(first, second)


async def test_a_new_stream_that_honours_less_does_not_take_the_old_ones_place(bench: Bench) -> None:
    first, old = await bench.heard(of("x:/a"))
    second = bench.listen(of("x:/b"), 2)
    new = await bench.opened()
    new.acknowledges(**of("x:/b"))
    await settled()
    assert (second.told, old.left, new.left) == (of("x:/b"), False, False)
    old.says("resources/updated", uri="x:/a")
    new.says("resources/updated", uri="x:/b")
    assert (first.events, second.events) == (["x:/a"], ["x:/b"])
    await leaves(first, second)


async def test_a_resource_that_nobody_asks_for_any_more_is_left_out_after_a_while(bench: Bench) -> None:
    a, old = await bench.heard({**TOOLS, **of("x:/a")})
    b, old = bench.listen(of("x:/b"), 2), await bench.opened()
    old.acknowledges()
    await leaves(b)
    await bench.quiet()
    bench.timers.pass_by()
    new = await bench.opened()
    assert new.asked == {**TOOLS, **of("x:/a")}
    new.acknowledges()
    await settled()
    assert (old.left, new.left) == (True, False)
    new.says("resources/updated", uri="x:/a")
    assert a.told == {**TOOLS, **of("x:/a")}
    assert a.events == ["x:/a"]
    await leaves(a)


async def test_a_narrower_stream_that_honours_less_or_is_refused_is_given_up(bench: Bench) -> None:
    a, _ = await bench.heard(of("x:/a"))
    b, wide = bench.listen(of("x:/b"), 2), await bench.opened()
    wide.acknowledges()
    for n in (3, 4):
        await leaves(b)
        bench.timers.pass_by()
        narrow = await bench.opened()
        if n == 3:
            narrow.acknowledges(**TOOLS)
        else:
            narrow.ends(error(-32603))
        await settled()
        assert (narrow.left, wide.left) == (n == 3, False)
        b = bench.listen(of("x:/b"), n)
        await bench.quiet()
    wide.says("resources/updated", uri="x:/a")
    assert (a.events, b.told) == (["x:/a"], of("x:/b"))
    await leaves(a, b)


async def test_a_narrower_stream_is_not_opened_while_a_wider_one_is(bench: Bench) -> None:
    a, _ = await bench.heard(of("x:/a"))
    b, wide = bench.listen(of("x:/b"), 2), await bench.opened()
    wide.acknowledges()
    await leaves(b)
    c, wider = bench.listen(of("x:/c"), 3), await bench.opened()
    assert set(wider.asked["resourceSubscriptions"]) == {"x:/a", "x:/c"}
    bench.timers.pass_by()
    await bench.quiet()
    await leaves(a, c)


async def test_a_narrower_stream_goes_with_the_one_it_was_to_replace(bench: Bench) -> None:
    a, _ = await bench.heard(of("x:/a"))
    b, wide = bench.listen(of("x:/b"), 2), await bench.opened()
    wide.acknowledges()
    await leaves(b)
    bench.timers.pass_by()
    narrow = await bench.opened()
    await leaves(a)
    bench.timers.pass_by()
    await settled()
    assert (wide.left, narrow.left) == (True, True)
    assert bench.shared._streams == {}


async def test_what_came_back_in_time_is_not_left_out(bench: Bench) -> None:
    a, _ = await bench.heard(of("x:/a"))
    b, wide = bench.listen(of("x:/b"), 2), await bench.opened()
    wide.acknowledges()
    await leaves(b)
    again = bench.listen(of("x:/b"), 3)
    await settled()
    bench.timers.pass_by()
    await bench.quiet()
    assert again.told == of("x:/b")
    await leaves(a, again)


async def test_more_resources_than_fit_into_one_stream_take_another(bench: Bench) -> None:
    many = [f"x:/{n}" for n in range(MOST_URIS)]
    first, _ = await bench.heard(of(*many))
    second, other = await bench.heard(of("x:/more"), 2)
    assert other.asked == of("x:/more")
    third, alone = await bench.heard(of(*many, "x:/more"), 3)
    assert len(alone.asked["resourceSubscriptions"]) == MOST_URIS + 1
    assert [len(one.told["resourceSubscriptions"]) for one in (first, second, third)] == [256, 1, 257]
    await leaves(first, second, third)


async def test_who_does_not_fit_into_a_new_stream_keeps_the_old_one(bench: Bench) -> None:
    half = MOST_URIS // 2
    a, old = await bench.heard(of(*(f"x:/a{n}" for n in range(half))))
    b = bench.listen(of(*(f"x:/b{n}" for n in range(half))), 2)
    c = bench.listen(of(*(f"x:/a{n}" for n in range(half))), 3)
    new = await bench.opened()
    new.acknowledges()
    await settled()
    assert (old.left, len(a.told["resourceSubscriptions"]), len(b.told["resourceSubscriptions"])) == (
        True,
        half,
        half,
    )
    assert c.told == a.told
    await leaves(a, b, c)


# Ends


async def test_the_last_to_leave_closes_the_stream_after_a_while(bench: Bench) -> None:
    one, stream = await bench.heard(TOOLS)
    two = bench.listen(TOOLS, 2)
    await settled()
    await leaves(one)
    stream.says(CHANGED)
    assert two.events == [CHANGED]
    await leaves(two)
    assert not stream.left
    bench.timers.pass_by()
    await settled()
    assert stream.left
    assert bench.shared._streams == {}


async def test_who_comes_in_time_finds_the_stream_open(bench: Bench) -> None:
    one, stream = await bench.heard(TOOLS)
    await leaves(one)
    two = bench.listen(TOOLS, 2)
    await settled()
    bench.timers.pass_by()
    await bench.quiet()
    assert (two.told, stream.left) == (TOOLS, False)
    await leaves(two)


async def test_for_those_who_leave_before_it_was_sent_nothing_is_sent(bench: Bench) -> None:
    one = bench.listen(TOOLS)
    stream = await bench.opened()
    two = bench.listen(BOTH, 2)
    await settled()
    await leaves(two)
    stream.acknowledges()
    await bench.quiet()
    assert one.told == TOOLS
    three, four = bench.listen(BOTH, 3), bench.listen(BOTH, 4)
    grown = await bench.opened()
    five = bench.listen({**BOTH, **of("x:/a")}, 5)
    await settled()
    await leaves(one, three, four, five)
    bench.timers.pass_by()
    await bench.quiet()
    assert (stream.left, grown.left) == (True, True)
    assert bench.shared._streams == {}


async def test_a_stream_is_opened_for_the_new_one_alone_when_the_others_have_left(bench: Bench) -> None:
    one, old = await bench.heard(of("x:/a"))
    await leaves(one)
    two, new = await bench.heard(of("x:/b"), 2)
    await settled()
    assert (new.asked, old.left) == (of("x:/b"), True)
    await leaves(two)


async def test_a_stream_that_broke_is_not_waited_for(bench: Bench) -> None:
    one = bench.listen(TOOLS)
    stream = await bench.opened()
    two = bench.listen(BOTH, 2)
    await settled()
    stream.ends(error(-32601))
    new = await bench.opened()
    new.acknowledges()
    assert (two.told, one.task.done()) == (BOTH, True)
    await leaves(two)


async def test_a_stream_that_is_left_and_replaced_is_closed(bench: Bench) -> None:
    one, old = await bench.heard(TOOLS)
    two = bench.listen(BOTH, 2)
    new = await bench.opened()
    await leaves(one)
    new.acknowledges()
    await settled()
    assert old.left
    assert two.told == BOTH
    await leaves(two)


async def test_who_moves_to_a_stream_that_was_left_keeps_it_open(bench: Bench) -> None:
    one, old = await bench.heard(TOOLS)
    two, new = bench.listen(BOTH, 2), await bench.opened()
    await leaves(two)
    new.acknowledges()
    await settled()
    bench.timers.pass_by()
    await settled()
    new.says(CHANGED)
    assert (old.left, new.left, one.events) == (True, False, [CHANGED])
    await leaves(one)


async def test_only_so_many_streams_rest_without_anybody(bench: Bench) -> None:
    those, streams = [], []
    for n in range(MOST_RESTING + 1):
        those.append(bench.listen(TOOLS, who=f"p{n}"))
        streams.append(await bench.opened())
    await leaves(*those)
    assert [stream.left for stream in streams] == [False] * MOST_RESTING + [True]


async def test_a_stream_that_breaks_is_told_to_each_as_if_it_had_its_own(bench: Bench) -> None:
    those = [bench.listen(TOOLS, n) for n in range(3)]
    stream = await bench.opened()
    stream.acknowledges()
    broken = UpstreamError(UpstreamFailure.UNREACHABLE, "ConnectionResetError", reached=True)
    stream.ends(lambda _: broken)
    assert await asyncio.gather(*(one.task for one in those), return_exceptions=True) == [broken] * 3
    assert bench.shared._streams == {}
    again = bench.listen(TOOLS)
    await bench.opened()
    await leaves(again)


@pytest.mark.parametrize("script", [result({}), error(-32601, 404)])
async def test_an_end_and_a_refusal_of_the_method_are_told_to_each_under_its_own_id(
    bench: Bench, script: Script
) -> None:
    those = [bench.listen(TOOLS, 1), bench.listen(BOTH, "1")]
    (await bench.opened()).ends(script)
    answers = [await asyncio.wait_for(one.task, 5) for one in those]
    assert [answer.message["id"] for answer in answers] == [1, "1"]
    for answer in answers:
        expected = script(asks({}))
        assert isinstance(expected, Answer)
        assert (answer.status, answer.result) == (expected.status, expected.result)
        assert answer.message.get("error") == expected.message.get("error")


async def test_a_refusal_of_what_all_asked_for_is_told_to_all(bench: Bench) -> None:
    those = [bench.listen(TOOLS, 1), bench.listen(TOOLS, 2)]
    (await bench.opened()).ends(error(-32603, 500))
    assert [(await one.task).status for one in those] == [500, 500]
    await bench.quiet()


async def test_a_refusal_of_what_several_asked_for_together_is_nobodys_until_each_has_asked_alone(
    bench: Bench,
) -> None:
    first, old = await bench.heard(TOOLS)
    good, bad = bench.listen(of("x:/good"), "g"), bench.listen(of("x:/bad"), "b")
    (await bench.opened()).ends(error(-32602, 400))
    alone = [await bench.opened(), await bench.opened()]
    assert [(it.outgoing.id, it.asked) for it in alone] == [("g", of("x:/good")), ("b", of("x:/bad"))]
    alone[0].acknowledges()
    alone[1].ends(error(-32602, 400, "no such resource"))
    assert (await bad.task).message["error"] == {"code": -32602, "message": "no such resource"}
    assert (good.told, old.left, first.task.done()) == (of("x:/good"), False, False)
    await leaves(good, first)
    assert alone[0].left


async def test_one_that_cannot_hear_fails_alone(bench: Bench) -> None:
    class Broken(Heard):
        def notify(self, message: dict[str, object]) -> None:
            raise LookupError

    broken, well = bench.listen_for(asks(TOOLS), Broken()), bench.listen(TOOLS, 2)
    stream = await bench.opened()
    stream.acknowledges()
    stream.says(CHANGED)
    with pytest.raises(LookupError):
        await broken.task
    assert well.events == [CHANGED]
    also = bench.listen_for(asks(TOOLS), Broken())
    await asyncio.sleep(0)
    stream.ends()
    with pytest.raises(LookupError):
        await also.task
    assert (await well.task).result is not None
    gone = bench.listen_for(asks(TOOLS), Broken())
    last = await bench.opened()
    last.acknowledges()
    last.ends(lambda _: RuntimeError())
    with pytest.raises(LookupError):
        await gone.task


async def test_one_that_ended_and_was_cancelled_at_once_hears_nothing_and_complains_of_nothing(
    bench: Bench,
) -> None:
    one, stream = await bench.heard(TOOLS)
    stream.ends(lambda _: RuntimeError())
    await asyncio.sleep(0)
    await leaves(one)
    stream.says(CHANGED)
    assert one.events == []


@pytest.mark.parametrize("script", [result({}), lambda _: RuntimeError()])
async def test_one_that_leaves_as_the_stream_ends_has_left(bench: Bench, script: Script) -> None:
    one, stream = await bench.heard(TOOLS)
    stream.ends(script)
    await leaves(one)
    assert one.task.cancelled()


async def test_closing_ends_a_stream_that_was_to_replace_another_too(bench: Bench) -> None:
    a, _ = await bench.heard(of("x:/a"))
    b, wide = bench.listen(of("x:/b"), 2), await bench.opened()
    wide.acknowledges()
    await leaves(b)
    bench.timers.pass_by()
    narrow = await bench.opened()
    await bench.shared.close()
    assert (wide.left, narrow.left) == (True, True)
    with pytest.raises(UpstreamError):
        await a.task


async def test_closing_ends_everything(bench: Bench) -> None:
    one, stream = await bench.heard(TOOLS)
    waiting, resting = bench.listen(BOTH, 2), bench.listen(TOOLS, 3, "bob")
    await settled()
    await leaves(resting)
    await bench.shared.close()
    for ended in (one.task, waiting.task, asyncio.create_task(bench.shared.listen(asks(TOOLS), Heard()))):
        with pytest.raises(UpstreamError) as told:
            await ended
        assert (told.value.kind, told.value.reached) == (UpstreamFailure.UNREACHABLE, False)
    assert stream.left
    assert bench.shared._tasks == set()
    assert bench.shared._streams == {}
    bench.timers.pass_by()
    await SharedListens(bench.upstream).close()

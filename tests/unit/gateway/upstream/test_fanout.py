"""One subscription at several upstreams: one acknowledgement, one stream, and members that go away and come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream import fanout, many
from airlock.gateway.upstream.many import ManyUpstreams
from airlock.gateway.upstream.port import Answer
from tests.fakes.members import (
    FakeMember,
    Listen,
    body_of,
    error,
    listing,
    member,
    outgoing,
    result,
    unreachable,
)
from tests.fakes.world import StillClock

TAG = "io.modelcontextprotocol/subscriptionId"
KINDS = {"toolsListChanged": True, "promptsListChanged": True}


class Subscriber:
    """A client that listens at some fake servers; time passes only when the test lets it."""

    def __init__(self, *fakes: FakeMember, request_id: object = 42, **limits: Any) -> None:
        self.clock = StillClock()
        self.said: list[str] = []
        self.fakes = {fake.name: fake for fake in fakes}
        self.pauses: list[float] = []
        self.naps: list[asyncio.Future[None]] = []
        self.heard: list[dict[str, Any]] = []
        self.id = request_id
        members = {fake.name: member(fake, **limits) for fake in fakes}
        self.many = ManyUpstreams(members, self.clock, self.said.append, sleep=self._sleep)
        self.task: asyncio.Task[Answer] | None = None

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.naps.append(asyncio.get_running_loop().create_future())
        await self.naps[-1]

    def notify(self, message: dict[str, Any]) -> None:
        assert message["jsonrpc"] == "2.0"
        meta = message["params"]["_meta"]
        assert meta[TAG] == self.id
        assert type(meta[TAG]) is type(self.id)
        self.heard.append(message)

    def listen(self, **notifications: Any) -> None:
        sent = outgoing("subscriptions/listen", self.id, notifications=notifications)
        self.task = asyncio.ensure_future(self.many.listen(sent, self))

    async def open(self, **notifications: Any) -> list[Listen]:
        """Listen, and let every server acknowledge what it was asked for."""
        self.listen(**notifications)
        await settled()
        listens = [fake.listens[-1] for fake in self.fakes.values() if fake.listens]
        for listen in listens:
            listen.acknowledge()
        await settled()
        return listens

    async def wake(self) -> None:
        for nap in self.naps:
            if not nap.done():
                nap.set_result(None)
        await settled()

    @property
    def methods(self) -> list[str]:
        return [message["method"].removeprefix("notifications/") for message in self.heard]

    @property
    def honoured(self) -> Any:
        assert self.methods[0] == "subscriptions/acknowledged"
        assert self.methods.count("subscriptions/acknowledged") == 1
        return self.heard[0]["params"]["notifications"]

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled()


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def pair(**limits: Any) -> Subscriber:
    return Subscriber(FakeMember("git"), FakeMember("time"), **limits)


@pytest.mark.parametrize("request_id", [42, "42"])
async def test_one_acknowledgement_is_the_union(request_id: object):
    it = Subscriber(FakeMember("git"), FakeMember("time"), request_id=request_id)
    it.listen(**KINDS, resourcesListChanged=False, other={"x": 1})
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    assert git.asked == time.asked == KINDS
    body_of(git.outgoing)
    git.acknowledge(toolsListChanged=True)
    await settled()
    assert it.heard == []
    time.acknowledge(toolsListChanged=True, resourcesListChanged=True)
    await settled()
    assert it.honoured == {"toolsListChanged": True}
    await it.stop()
    assert git.ended.cancelled()
    assert time.ended.cancelled()


async def test_events_come_with_the_clients_own_tag_after_the_acknowledgement():
    it = pair()
    it.listen(**KINDS)
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    git.say("tools/list_changed")
    git.acknowledge(toolsListChanged=True)
    git.say("tools/list_changed", vendor=1)
    assert it.heard == []
    time.acknowledge(promptsListChanged=True)
    await settled()
    assert it.methods == ["subscriptions/acknowledged", "tools/list_changed"]
    assert it.heard[1]["params"] == {"vendor": 1, "_meta": {TAG: 42}}
    time.say("prompts/list_changed")
    for method in ("resources/list_changed", "progress", "message", "subscriptions/acknowledged", "tasks"):
        git.say(method)
    git.heard.notify({"method": 3})
    git.heard.notify({"method": "notifications/tools/list_changed", "params": None})
    assert it.methods[2:] == ["prompts/list_changed", "tools/list_changed"]
    await it.stop()


async def test_what_comes_before_the_acknowledgement_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fanout, "_MAX_HELD", 2)
    it = pair()
    it.listen(**KINDS)
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    git.acknowledge()
    for _ in range(5):
        git.say("tools/list_changed")
    time.acknowledge()
    await settled()
    assert len(it.heard) == 3
    await it.stop()


def owned() -> Subscriber:
    git, time = FakeMember("git"), FakeMember("time")
    git.scripts["resources/list"] = listing("resources/list", {"uri": "a:1"}, {"uri": "a:both"})
    time.scripts["resources/list"] = listing("resources/list", {"uri": "t:/1"}, {"uri": "a:both"})
    return Subscriber(git, time)


async def test_addresses_go_to_their_owners_and_only_they_may_speak_of_them():
    it = owned()
    git, time = await it.open(resourceSubscriptions=["t:/1", "a:1", "a:both", "no:where", "a:1", 3, "a:\n"])
    assert (git.asked, time.asked) == (
        {"resourceSubscriptions": ["a:1"]},
        {"resourceSubscriptions": ["t:/1"]},
    )
    assert it.honoured == {"resourceSubscriptions": ["a:1", "t:/1"]}
    git.say("resources/updated", uri="a:1")
    git.say("resources/updated", uri="t:/1")
    git.say("resources/updated", uri=None)
    time.say("resources/updated", uri="t:/1/part")
    time.say("resources/updated", uri="t:/11")
    assert [message["params"]["uri"] for message in it.heard[1:]] == ["a:1", "t:/1/part"]
    await it.stop()


async def test_a_server_is_not_asked_when_nothing_of_its_own_is():
    it = owned()
    (git,) = await it.open(resourceSubscriptions=["a:1"])
    assert git.outgoing.params["notifications"] == {"resourceSubscriptions": ["a:1"]}
    assert it.fakes["time"].listens == []
    await it.stop()


@pytest.mark.parametrize(
    "honoured", [{"resourceSubscriptions": 3}, {"resourceSubscriptions": [3, "x:"]}, {"x": 1}]
)
async def test_what_a_server_does_not_honour_is_not_acknowledged(honoured: dict[str, Any]):
    it = owned()
    it.listen(resourceSubscriptions=["a:1"])
    await settled()
    it.fakes["git"].listens[0].acknowledge(**honoured)
    await settled()
    assert it.honoured == {}
    await it.stop()


async def test_a_malformed_acknowledgement_honours_nothing():
    it = pair()
    it.listen(**KINDS)
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    git.heard.notify({"method": "notifications/subscriptions/acknowledged", "params": 3})
    time.heard.notify({"method": "notifications/subscriptions/acknowledged", "params": {"notifications": []}})
    await settled()
    assert it.honoured == {}
    await it.stop()


@pytest.mark.parametrize("wanted", [{}, {"resourceSubscriptions": "a:1"}])
async def test_who_asks_for_nothing_waits_for_nothing(wanted: dict[str, Any]):
    it = pair()
    it.listen(**wanted)
    await settled()
    assert it.honoured == {}
    assert [fake.listens for fake in it.fakes.values()] == [[], []]
    await it.stop()


async def test_one_that_refuses_is_left_out_for_good():
    it = pair()
    it.listen(**KINDS)
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    git.end(error(-32601, 404)(git.outgoing))
    time.acknowledge()
    await settled()
    assert it.honoured == KINDS
    assert (it.pauses, len(it.fakes["git"].listens)) == ([], 1)
    await it.stop()


async def test_when_all_refuse_the_first_refusal_is_the_answer():
    it = pair()
    it.listen(**KINDS)
    await settled()
    for code, fake in zip((-32601, -32602), it.fakes.values(), strict=True):
        fake.listens[0].end(error(code)(fake.listens[0].outgoing))
    assert it.task is not None
    answer = await it.task
    refusal: Any = answer.message["error"]
    assert (refusal["code"], answer.message["id"], it.heard) == (-32601, 42, [])


async def test_when_none_can_be_reached_the_first_failure_is_told():
    it = pair()
    it.listen(**KINDS)
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    git.end(error(-32601)(git.outgoing))
    time.end(unreachable("gone"))
    assert it.task is not None
    with pytest.raises(UpstreamError) as failed:
        await it.task
    assert failed.value.cause == "gone"
    assert it.said == ["upstream time: down (gone)"]


async def test_a_server_that_says_nothing_is_not_waited_for():
    it = pair(list_timeout_s=0.05)
    it.listen(**KINDS)
    await settled()
    it.fakes["time"].listens[0].acknowledge()
    assert it.task is not None
    while not it.heard:
        await asyncio.sleep(0.005)
    assert it.honoured == KINDS
    it.fakes["git"].listens[0].acknowledge(toolsListChanged=True)
    assert it.methods[1:] == ["tools/list_changed"]
    await it.stop()


async def test_when_no_server_says_anything_that_is_a_failure():
    it = pair(list_timeout_s=0.05)
    it.listen(**KINDS)
    assert it.task is not None
    with pytest.raises(UpstreamError) as failed:
        await it.task
    assert failed.value.cause == "no subscription in time"


@pytest.mark.parametrize("ending", ["gracefully", "badly"])
async def test_a_server_that_drops_is_listened_to_again_and_what_was_missed_is_told(ending: str):
    it = owned()
    git, _ = await it.open(**KINDS, resourceSubscriptions=["a:1"])
    git.end(result({})(git.outgoing) if ending == "gracefully" else unreachable("torn", reached=True))
    await settled()
    assert (it.pauses, it.methods) == ([1.0], ["subscriptions/acknowledged"])
    assert it.said == []
    await it.wake()
    again = it.fakes["git"].listens[1]
    assert again.asked == git.asked
    again.say("tools/list_changed")  # before it acknowledged
    again.acknowledge(toolsListChanged=True, resourceSubscriptions=["a:1"])
    again.acknowledge(toolsListChanged=True)
    assert it.methods[1:] == ["tools/list_changed", "resources/updated"]
    assert it.heard[2]["params"]["uri"] == "a:1"
    await it.stop()


async def test_the_pauses_grow_to_half_a_minute_and_begin_anew_after_success():
    it = pair()
    git, _ = await it.open(**KINDS)
    git.end(unreachable("torn"))
    await settled()
    for _ in range(7):
        await it.wake()
        it.fakes["git"].listens[-1].end(unreachable())
        await settled()
    assert it.pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert it.said == ["upstream git: down (connection refused)"]
    await it.wake()
    it.fakes["git"].listens[-1].acknowledge()
    await settled()
    assert it.said[1:] == ["upstream git: up again"]
    it.fakes["git"].listens[-1].end(unreachable())
    await settled()
    assert it.pauses[-1] == 1
    await it.stop()


async def test_one_that_was_down_joins_later_with_what_was_acknowledged():
    it = pair()
    it.listen(**KINDS)
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    git.end(unreachable())
    time.acknowledge(toolsListChanged=True)
    await settled()
    assert it.honoured == {"toolsListChanged": True}
    await it.wake()
    back = it.fakes["git"].listens[1]
    back.acknowledge(**KINDS)
    back.say("prompts/list_changed")
    assert it.methods[1:] == ["tools/list_changed"]
    await it.stop()


async def test_a_refusal_after_an_acknowledgement_is_a_drop():
    it = pair()
    git, _ = await it.open(**KINDS)
    git.end(error(-32603)(git.outgoing))
    await settled()
    await it.wake()
    it.fakes["git"].listens[1].end(error(-32601)(git.outgoing))
    await settled()
    assert it.pauses == [1, 2]
    await it.stop()


async def test_a_server_that_acknowledges_and_drops_at_once_still_counts():
    it = pair()
    it.listen(**KINDS)
    await settled()
    git, time = (fake.listens[0] for fake in it.fakes.values())
    git.acknowledge()
    git.end(result({})(git.outgoing))
    time.end(unreachable())
    await settled()
    assert it.honoured == KINDS
    await it.stop()


async def test_closing_ends_every_subscription_as_unreachable():
    it = pair()
    await it.open(**KINDS)
    await it.many.close()
    assert it.task is not None
    with pytest.raises(UpstreamError) as failed:
        await it.task
    assert (failed.value.kind, failed.value.cause) == (UpstreamFailure.UNREACHABLE, "client closed")
    assert it.fakes["git"].listens[0].ended.cancelled()


async def test_subscriptions_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(many, "MAX_LISTENS", 1)
    it = pair()
    await it.open(**KINDS)
    with pytest.raises(UpstreamError) as refused:
        await it.many.listen(outgoing("subscriptions/listen", notifications={}), it)
    assert (refused.value.cause, refused.value.reached) == ("too many subscriptions", False)
    await it.stop()
    await it.open(**KINDS)
    await it.stop()


async def test_addresses_of_a_subscription_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(many, "MAX_WATCHED", 1)
    it = owned()
    await it.open(resourceSubscriptions=["a:1", "t:/1"])
    assert it.honoured == {"resourceSubscriptions": ["a:1"]}
    await it.stop()


async def test_a_fault_of_ours_is_not_swallowed():
    it = pair()
    git, _ = await it.open(**KINDS)
    git.ended.set_exception(RuntimeError("a bug"))
    assert it.task is not None
    with pytest.raises(RuntimeError):
        await it.task


async def test_a_subscription_without_a_filter_waits_for_nothing():
    it = pair()
    it.task = asyncio.ensure_future(
        it.many.listen(outgoing("subscriptions/listen", 42, notifications=None), it)
    )
    await settled()
    assert it.honoured == {}
    await it.stop()

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream.watch import MAX_EARLY, MAX_LISTENERS, MAX_URIS, Watch
from tests.fakes.legacy_server import (
    OURS,
    PEOPLE,
    Heard,
    Message,
    Turn,
    World,
    forever,
    greet,
    outgoing,
    settle,
    world,
)


@pytest.fixture(params=[True, False], ids=["streams", "stdio"])
def both(request: pytest.FixtureRequest) -> object:
    return request.param


CHANGES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
LISTEN = "subscriptions/listen"


def _listening(here: World, heard: Heard, wanted: object, **more: Any) -> asyncio.Task[Any]:
    request = outgoing(LISTEN, notifications=wanted, **more)
    return asyncio.get_running_loop().create_task(here.upstream.listen(request, heard))


def _shown(heard: Heard) -> list[tuple[str, Any]]:
    return [
        (message["method"].removeprefix("notifications/"), message["params"]) for message in heard.messages
    ]


async def _stop(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await settle()


async def test_a_subscription_is_acknowledged_first_and_then_told_what_it_asked_for():
    here = world(capabilities=CHANGES)
    heard = Heard()
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": False,
        "resourceSubscriptions": ["file:///a", 5],
    }
    task = _listening(here, heard, wanted, request_id="42")
    await settle()
    tag = {OURS + "subscriptionId": "42"}
    honoured = {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
    assert _shown(heard) == [("subscriptions/acknowledged", {"notifications": honoured, "_meta": tag})]
    for method in ("tools/list_changed", "prompts/list_changed", "resources/list_changed", "other"):
        here.session.push({"jsonrpc": "2.0", "method": f"notifications/{method}"})
    for uri in ("file:///a", "file:///a/part", "file:///ab", None):
        here.session.push(
            {"method": "notifications/resources/updated", "params": {"uri": uri, "_meta": {"x": 1}}}
        )
    assert _shown(heard)[1:] == [
        ("tools/list_changed", {"_meta": tag}),
        ("resources/updated", {"uri": "file:///a", "_meta": {"x": 1, **tag}}),
        ("resources/updated", {"uri": "file:///a/part", "_meta": {"x": 1, **tag}}),
    ]
    await _stop(task)
    await here.upstream.close()


async def test_what_the_server_cannot_tell_is_left_out_of_the_acknowledgement():
    async def refuse(turn: Turn) -> Message:
        return {"error": {"code": -32002, "message": "no"}} if turn.params["uri"] == "b" else {}

    here = world(capabilities=CHANGES, methods={"resources/subscribe": refuse})
    heard = Heard()
    task = _listening(here, heard, {"resourceSubscriptions": ["a", "b", "a"], "resourcesListChanged": True})
    await settle()
    assert heard.messages[0]["params"]["notifications"] == {
        "resourceSubscriptions": ["a"],
        "resourcesListChanged": True,
    }
    assert [message["params"]["uri"] for message in here.session.said("resources/subscribe")] == ["a", "b"]
    await _stop(task)
    await here.upstream.close()


@pytest.mark.parametrize(
    "wanted", [None, [], {"resourceSubscriptions": "a"}, {"resourceSubscriptions": ["a"]}]
)
async def test_a_server_without_subscriptions_is_listened_to_for_nothing(wanted):
    here = world(capabilities={"tools": {}})
    heard = Heard()
    task = _listening(here, heard, wanted)
    await settle()
    assert heard.messages[0]["params"]["notifications"] == {}
    assert not here.session.said("resources/subscribe")
    await _stop(task)
    await here.upstream.close()


async def test_what_comes_before_the_acknowledgement_comes_after_it_and_once():
    async def eager(turn: Turn) -> Message:
        for _ in range(3):
            turn.say("notifications/tools/list_changed", {})
            turn.say("notifications/resources/updated", {"uri": "a"})
        return {}

    here = world(capabilities=CHANGES, methods={"resources/subscribe": eager})
    heard = Heard()
    task = _listening(here, heard, {"resourceSubscriptions": ["a", "b"], "toolsListChanged": True})
    await settle()
    assert [method for method, _ in _shown(heard)] == [
        "subscriptions/acknowledged", "tools/list_changed", "resources/updated",
    ]  # fmt: skip
    await _stop(task)
    await here.upstream.close()


async def test_a_resource_is_subscribed_to_once_and_let_go_with_its_last_listener():
    here = world(capabilities=CHANGES)
    one, two = Heard(), Heard()
    first = _listening(here, one, {"resourceSubscriptions": ["a"]}, request_id=1)
    second = _listening(here, two, {"resourceSubscriptions": ["a", "b"]}, request_id=2)
    await settle()
    assert [message["params"]["uri"] for message in here.session.said("resources/subscribe")] == ["a", "b"]
    here.session.push({"method": "notifications/resources/updated", "params": {"uri": "a"}})
    assert [heard.messages[-1]["params"]["_meta"][OURS + "subscriptionId"] for heard in (one, two)] == [1, 2]
    await _stop(first)
    assert not here.session.said("resources/unsubscribe")
    await _stop(second)
    assert [message["params"]["uri"] for message in here.session.said("resources/unsubscribe")] == ["a", "b"]
    third = _listening(here, one, {"resourceSubscriptions": ["a"]})
    await settle()
    assert len(here.session.said("resources/subscribe")) == 3
    await _stop(third)
    await here.upstream.close()


async def test_a_subscription_keeps_its_dialogue_open_and_lets_it_go():
    here = world(capabilities=CHANGES)
    task = _listening(here, Heard(), {"toolsListChanged": True})
    await settle()
    here.time.advance(900)
    await settle()
    assert not here.session.closed
    await _stop(task)
    here.time.advance(300)
    await settle()
    assert here.session.closed
    await here.upstream.close()


async def test_a_lost_dialogue_ends_its_subscriptions(both):
    here = world(capabilities=CHANGES, streams=both)
    task = _listening(here, Heard(), {"resourceSubscriptions": ["a"]})
    await settle()
    here.session.end("gone")
    here.session.end("gone again")
    with pytest.raises(UpstreamError, match=r"gone$") as caught:
        await task
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, True)
    await settle()
    assert not here.session.said("resources/unsubscribe")
    assert here.session.closed
    await here.upstream.close()


async def test_a_dialogue_lost_while_subscribing_ends_it_too():
    here = world(capabilities=CHANGES, methods={"resources/subscribe": forever})
    task = _listening(here, Heard(), {"resourceSubscriptions": ["a"]})
    await settle()
    here.session.end("gone")
    with pytest.raises(UpstreamError, match="gone"):
        await task
    await here.upstream.close()


async def test_a_server_that_dies_before_it_is_told_of_the_end_is_let_go():
    here = world(capabilities=CHANGES)
    task = _listening(here, Heard(), {"resourceSubscriptions": ["a", "b"]})
    await settle()
    here.session.failing = [UpstreamError(UpstreamFailure.UNREACHABLE, "x", reached=False)]
    await _stop(task)
    assert len(here.session.said("resources/unsubscribe")) == 1
    await here.upstream.close()


async def test_one_subscription_is_not_a_thousand_requests():
    here = world(capabilities=CHANGES)
    heard = Heard()
    task = _listening(
        here, heard, {"resourceSubscriptions": [f"f:{number}" for number in range(MAX_URIS + 10)]}
    )
    for _ in range(MAX_URIS):
        await settle()
    assert len(here.session.said("resources/subscribe")) == MAX_URIS
    await _stop(task)
    await here.upstream.close()


async def test_the_subscriptions_on_a_dialogue_are_counted():
    here = world(capabilities=CHANGES)
    tasks = [_listening(here, Heard(), {"toolsListChanged": True}) for _ in range(MAX_LISTENERS)]
    await settle()
    with pytest.raises(UpstreamError, match="too many subscriptions") as caught:
        await here.upstream.listen(outgoing(LISTEN, notifications={}), Heard())
    assert not caught.value.reached
    await _stop(*tasks)
    await here.upstream.close()


async def test_nothing_is_left_when_everything_was_closed(both):
    here = world({"hang": forever, "greet": greet}, capabilities=CHANGES, streams=both)
    tasks = [here.begin(outgoing(name="hang")), _listening(here, Heard(), {"resourceSubscriptions": ["a"]})]
    assert (await here.result(outgoing(name="greet", client=PEOPLE)))["resultType"] == "input_required"
    await settle()
    await here.upstream.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settle()
    assert here.time.waiting == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_a_server_says_before_the_acknowledgement_is_not_kept_without_end():
    async def eager(turn: Turn) -> Message:
        for number in range(2 * MAX_EARLY):
            turn.say("notifications/resources/updated", {"uri": f"a/{number}"})
        return {}

    here = world(capabilities=CHANGES, methods={"resources/subscribe": eager})
    heard = Heard()
    task = _listening(here, heard, {"resourceSubscriptions": ["a", "b"]})
    await settle()
    assert len(heard.messages) == 1 + MAX_EARLY
    await _stop(task)
    await here.upstream.close()


async def test_nobody_can_listen_on_a_dialogue_that_is_gone():
    server: Any = None
    watch = Watch(server)
    watch.lost("gone")
    watch.lost("gone again")
    with pytest.raises(UpstreamError, match=r"gone$") as caught:
        await watch.listen({}, 1, Heard())
    assert not caught.value.reached

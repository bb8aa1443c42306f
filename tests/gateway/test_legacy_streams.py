"""The legacy front's streams: answers that become one, resuming, the stream of a GET and what is heard on it."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from airlock.gateway.legacy import subscription
from airlock.gateway.legacy.front import Plain, Streaming
from tests.fakes.legacyclient import Events, Rig, code, params, whole

URI = "file:///a"


def progress(token: Any, value: Any, **more: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": token, "progress": value, **more},
    }


def subscribed(rig: Rig) -> Any:
    """The resources of the one open listen."""
    (request,) = rig.listens.open
    wanted: Any = request.params["notifications"]
    return wanted["resourceSubscriptions"]


class Talking:
    """A handler that says what it is told to say, and answers when it is let."""

    def __init__(self, rig: Rig) -> None:
        self.request: Any = None
        self.go = asyncio.Event()
        self.result: dict[str, Any] = {"content": []}
        rig.inside.handle = self._handle

    async def _handle(self, request: Any) -> Any:
        self.request = request
        await self.go.wait()
        return self.result

    def say(self, message: dict[str, Any]) -> None:
        self.request.heard.notify(message)

    def progress(self, value: Any, **more: Any) -> None:
        self.say(progress(self.request.meta["progressToken"], value, **more))


async def started(
    rig: Rig, client: Any, token: Any = None, **more: Any
) -> tuple[Talking, asyncio.Future[Any]]:
    talking = Talking(rig)
    asking = asyncio.ensure_future(client.send("tools/call", params("x", None, token), **more))
    await rig.inside.until(len(rig.inside.requests) + 1)
    await rig.settle()
    return talking, asking


@pytest.mark.parametrize("token", [5, 0, "5", "", 2**63])
async def test_progress_arrives_while_the_call_runs_under_the_clients_own_token(token: Any):
    rig = Rig()
    client = await rig.session()
    talking, asking = await started(rig, client, token)
    assert talking.request.meta["progressToken"] not in (token, str(token))
    talking.progress(0)
    events = Events(await asking)
    assert await events.until(1) == [progress(token, 0)]
    talking.progress(50, total=100, message="half")
    got = (await events.until(2))[1]["params"]
    assert got == {"progressToken": token, "progress": 50, "total": 100, "message": "half"}
    assert type(got["progressToken"]) is type(token)
    talking.go.set()
    assert (await events.whole())[2] == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
    await rig.front.close()


async def test_two_calls_with_one_token_do_not_hear_each_other():
    rig = Rig()
    client = await rig.session()
    one, first = await started(rig, client, "t", request_id=1)
    two, second = await started(rig, client, "t", request_id=2)
    assert one.request.meta["progressToken"] != two.request.meta["progressToken"]
    two.progress(1)
    two.request.heard.notify(progress(one.request.meta["progressToken"], 99))
    events = Events(await second)
    two.go.set()
    assert [message.get("params", {}).get("progress") for message in await events.whole()] == [1, None]
    one.go.set()
    assert "result" in whole(await first)
    await rig.front.close()


async def test_what_nobody_asked_for_is_not_passed_on():
    rig = Rig()
    client = await rig.session()
    await client.ask("logging/setLevel", {"level": "debug"})
    talking, asking = await started(rig, client)
    for message in (
        progress("x", 1), {"method": "notifications/tools/list_changed"}, {"method": "elicitation/create", "params": {}},
        {"method": "notifications/message", "params": [1]}, {}, {"method": "notifications/cancelled", "params": {}},
    ):  # fmt: skip
        talking.say(message)
    talking.go.set()
    assert isinstance(await asking, Plain)
    await rig.front.close()


async def test_log_messages_arrive_while_the_call_runs():
    rig = Rig()
    client = await rig.session()
    await client.ask("logging/setLevel", {"level": "info"})
    talking, asking = await started(rig, client)
    talking.say(
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "a\nb"}}
    )
    events = Events(await asking)
    assert (await events.until(1))[0]["params"] == {"level": "info", "data": "a\nb"}
    talking.go.set()
    await events.whole()
    await rig.front.close()


async def test_what_is_said_right_before_the_answer_comes_before_it():
    rig = Rig()
    client = await rig.session()

    def handle(request: Any) -> Any:
        request.heard.notify(progress(request.meta["progressToken"], 1))
        return {"content": []}

    rig.inside.handle = handle
    events = await client.stream("tools/call", params("x", None, "t"))
    assert [set(message) for message in await events.whole()] == [
        {"jsonrpc", "method", "params"},
        {"jsonrpc", "id", "result"},
    ]
    await rig.front.close()


async def test_a_client_that_takes_only_json_gets_json_at_the_end():
    rig = Rig(stream_after_s=0.0)
    client = await rig.session()
    talking, asking = await started(rig, client, "t", accept="application/json")
    talking.progress(1)
    await rig.settle()
    assert not asking.done()
    talking.go.set()
    assert whole(await asking)["result"] == {"content": []}
    await rig.front.close()


async def test_a_long_call_becomes_a_stream_that_is_kept_alive():
    rig = Rig(stream_after_s=0.0, keep_alive_s=0.001)
    client = await rig.session(version="2025-06-18")
    talking, asking = await started(rig, client)
    events = Events(await asking)
    while len(events.chunks) < 3:
        await asyncio.sleep(0.001)
    assert events.chunks[:3] == [b": open\n\n", b": keep-alive\n\n", b": keep-alive\n\n"]
    talking.go.set()
    assert await events.whole() == [{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}]
    await rig.front.close()


@pytest.mark.parametrize(
    ("version", "primed"), [("2025-11-25", True), ("2025-06-18", False), ("2025-03-26", False)]
)
async def test_only_clients_that_know_it_get_an_event_without_data(version: str, primed: bool):
    rig = Rig(stream_after_s=0.0)
    client = await rig.session(version=version)
    talking, asking = await started(rig, client)
    events = Events(await asking)
    listening = await client.listen()
    talking.go.set()
    await events.whole()
    for stream, number in ((events, "1"), (listening, "0")):
        first = stream.chunks[0]
        assert (first == f"retry: 1000\nid: {number}-0-1\ndata: \n\n".encode()) is primed
        assert primed or first == b": open\n\n"
    await rig.front.close()


async def test_a_lost_stream_is_resumed_where_it_was_left():
    rig = Rig()
    client = await rig.session()
    talking, asking = await started(rig, client, "t")
    talking.progress(1)
    events = Events(await asking)
    await events.until(1)
    await events.leave()
    talking.progress(2)
    await rig.settle()
    assert rig.inside.cancelled == 0
    resumed = await client.listen(last_event_id=events.last_id)
    assert (await resumed.until(1))[0]["params"]["progress"] == 2
    talking.go.set()
    assert [message.get("id") for message in await resumed.whole()] == [None, 1]
    again = await client.listen(last_event_id=events.last_id)
    assert len(await again.whole()) == 2  # what was sent is not gone because it was sent
    done = await client.get(last_event_id=resumed.last_id)
    assert (done.status, getattr(done, "body", None)) == (204, b"")
    await rig.front.close()


async def test_a_primed_client_can_resume_before_anything_was_said():
    rig = Rig(stream_after_s=0.0)
    client = await rig.session()
    talking, asking = await started(rig, client)
    events = Events(await asking)
    while not events.chunks:
        await asyncio.sleep(0)
    await events.leave()
    talking.go.set()
    await rig.settle()
    resumed = await client.listen(last_event_id=events.last_id)
    assert [message["id"] for message in await resumed.whole()] == [1]
    await rig.front.close()


async def test_a_finished_stream_can_be_resumed_for_a_while_and_then_no_more():
    rig = Rig(replay_s=60.0)
    client = await rig.session()
    talking, asking = await started(rig, client, "t")
    talking.progress(1)
    events = Events(await asking)
    talking.go.set()
    await events.whole()
    first = events.events[1].id
    rig.world.clock.time += 59
    rig.front._sweep()
    assert len(await (await client.listen(last_event_id=first)).whole()) == 1
    rig.world.clock.time += 2
    rig.front._sweep()
    assert code(await client.get(last_event_id=first)) == (400, -32600)
    assert rig.front._replay.used == 0
    await rig.front.close()


@pytest.mark.parametrize("event_id", ["x", "1", "-1", "1-x", "7-1", "99-99", "1-1-1-1", "\xff"])
async def test_an_event_id_that_was_not_given_out_is_refused(event_id: str):
    rig = Rig()
    client = await rig.session()
    assert code(await client.get(last_event_id=event_id)) == (400, -32600)
    await rig.front.close()


async def test_event_ids_of_one_session_open_nothing_in_another():
    rig = Rig()
    one, two = await rig.session(), await rig.session("bob")
    talking, asking = await started(rig, one, "t")
    talking.progress(1)
    events = Events(await asking)
    await events.until(1)
    assert code(await two.get(last_event_id=events.last_id)) == (400, -32600)
    await rig.front.close()


async def test_the_stream_of_a_get_brings_the_changes_that_were_promised_without_their_tag():
    rig = Rig()
    client = await rig.session()
    listening = await client.listen()
    await rig.settle()
    assert [request.params["notifications"] for request in rig.listens.seen] == [{"toolsListChanged": True}]
    assert rig.listens.seen[0].method == "subscriptions/listen"
    rig.listens.tell("tools/list_changed")
    rig.listens.tell("message", {"level": "info"})
    assert await listening.until(1) == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    await rig.front.close()


async def test_what_changes_while_nobody_listens_is_told_to_the_next_get_once():
    rig = Rig()
    client = await rig.session()
    listening = await client.listen()
    await rig.settle()
    await listening.leave()
    rig.listens.tell("tools/list_changed")
    again = await client.listen()
    assert len(await again.until(1)) == 1
    await again.leave()
    third = await client.listen()
    rig.listens.tell("tools/list_changed")
    assert len(await third.until(1)) == 1
    assert len(rig.listens.seen) == 1
    resumed = await client.listen(last_event_id=again.last_id)
    assert len(await resumed.until(1)) == 1
    await rig.front.close()


async def test_a_second_get_takes_the_place_of_the_first():
    rig = Rig()
    client = await rig.session()
    first = await client.listen()
    second = await client.listen()
    await first.whole()
    await rig.settle()
    rig.listens.tell("tools/list_changed")
    assert len(await second.until(1)) == 1
    assert first.messages == []
    await rig.front.close()


async def test_nothing_is_listened_to_for_a_server_that_announces_nothing(monkeypatch: pytest.MonkeyPatch):
    from tests.fakes import legacyclient

    monkeypatch.setitem(legacyclient.DISCOVERED, "capabilities", {"tools": {}})
    rig = Rig()
    client = await rig.session()
    await client.listen()
    await rig.settle()
    assert rig.listens.seen == []
    await rig.front.close()


async def test_listening_ends_some_time_after_the_client_left_and_begins_again_with_it():
    rig = Rig(replay_s=60.0)
    client = await rig.session()
    listening = await client.listen()
    await rig.settle()
    rig.front._sweep()
    await listening.leave()
    rig.front._sweep()
    rig.world.clock.time += 59
    rig.front._sweep()
    assert len(rig.listens.open) == 1
    rig.world.clock.time += 2
    rig.front._sweep()
    await rig.settle()
    assert rig.listens.open == []
    await client.listen()
    await rig.settle()
    assert len(rig.listens.open) == 1
    rig.front._sweep()
    rig.world.clock.time += 120
    rig.front._sweep()
    assert len(rig.listens.open) == 1
    await rig.front.close()


async def test_a_refused_listen_is_tried_again_by_the_next_get_only():
    rig = Rig()
    client = await rig.session()
    rig.listens.refusal = {"code": -32603, "message": "full"}
    listening = await client.listen()
    await rig.settle()
    assert not listening.task.done()
    rig.listens.refusal = None
    await rig.settle()
    assert len(rig.listens.seen) == 1
    await client.listen()
    await rig.settle()
    assert len(rig.listens.open) == 1
    await rig.front.close()


async def test_a_subscription_is_answered_once_acknowledged_and_the_old_listen_ends_after_that():
    rig = Rig()
    client = await rig.session()
    listening = await client.listen()
    await rig.settle()
    open_before: list[int] = []

    def honour(wanted: dict[str, Any]) -> dict[str, Any]:
        open_before.append(len(rig.listens.open))
        return wanted

    rig.listens.honour = honour
    assert (await client.ask("resources/subscribe", {"uri": URI}))["result"] == {}
    assert open_before == [1]
    await rig.settle()
    assert [request.params["notifications"] for request in rig.listens.open] == [
        {"toolsListChanged": True, "resourceSubscriptions": [URI]}
    ]
    rig.listens.tell("resources/updated", {"uri": URI})
    assert (await listening.until(1))[0]["params"] == {"uri": URI}
    await rig.front.close()


async def test_subscriptions_add_up_and_are_taken_back_one_by_one():
    rig = Rig()
    client = await rig.session()
    for uri in ("a", "b", "b"):
        assert (await client.ask("resources/subscribe", {"uri": uri}))["result"] == {}
    await rig.settle()
    assert len(rig.listens.seen) == 2  # what is subscribed to already needs no new listen
    assert subscribed(rig) == ["a", "b"]
    assert (await client.ask("resources/unsubscribe", {"uri": "c"}))["result"] == {}
    assert (await client.ask("resources/unsubscribe", {"uri": "a"}))["result"] == {}
    await rig.settle()
    assert subscribed(rig) == ["b"]
    assert (await client.ask("resources/unsubscribe", {"uri": "b"}))["result"] == {}
    await rig.settle()
    assert rig.listens.open == []
    await rig.front.close()


async def test_the_last_unsubscription_keeps_the_listen_of_a_client_that_reads():
    rig = Rig()
    client = await rig.session()
    await client.listen()
    await client.ask("resources/subscribe", {"uri": "a"})
    await client.ask("resources/unsubscribe", {"uri": "a"})
    await rig.settle()
    assert [request.params["notifications"] for request in rig.listens.open] == [{"toolsListChanged": True}]
    await rig.front.close()


@pytest.mark.parametrize(
    "honoured", [{}, {"resourceSubscriptions": []}, {"resourceSubscriptions": "a"}, None]
)
async def test_a_resource_that_is_not_granted_is_refused_and_the_rest_goes_on(honoured: Any):
    rig = Rig()
    client = await rig.session()
    rig.front._dispatch._listener.ack_s = 0.01
    await client.ask("resources/subscribe", {"uri": "a"})
    rig.listens.honour = lambda wanted: honoured
    got = await client.send("resources/subscribe", {"uri": "b"})
    assert code(got) == (200, -32602)
    assert whole(got)["error"]["data"] == {"uri": "b"}
    await rig.settle()
    assert subscribed(rig) == ["a"]
    assert len(rig.listens.open) == 1
    await rig.front.close()


async def test_an_unsubscription_is_answered_even_when_the_new_listen_fails():
    rig = Rig()
    client = await rig.session()
    for uri in ("a", "b"):
        await client.ask("resources/subscribe", {"uri": uri})
    rig.listens.refusal = {"code": -32603, "message": "full"}
    assert (await client.ask("resources/unsubscribe", {"uri": "a"}))["result"] == {}
    await rig.settle()
    assert len(rig.listens.open) == 1
    rig.listens.refusal = None
    assert (await client.ask("resources/unsubscribe", {"uri": "b"}))["result"] == {}
    await rig.settle()
    assert rig.listens.open == []
    await rig.front.close()


async def test_a_cancelled_subscription_leaves_no_listen():
    rig = Rig()
    client = await rig.session()
    rig.listens.honour = lambda wanted: None
    asking = asyncio.ensure_future(client.send("resources/subscribe", {"uri": "a"}))
    await rig.settle()
    assert len(rig.listens.open) == 1
    await client.tell("cancelled", {"requestId": 1})
    await asking
    await rig.settle()
    assert rig.listens.open == []
    await rig.front.close()


@pytest.mark.parametrize("uri", [None, 5, ["a"], "a" * 3000])
async def test_only_a_uri_can_be_subscribed_to(uri: Any):
    rig = Rig()
    client = await rig.session()
    for method in ("resources/subscribe", "resources/unsubscribe"):
        assert code(await client.send(method, {"uri": uri})) == (200, -32602)
    await rig.front.close()


async def test_a_session_subscribes_to_so_many_resources(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscription, "MOST_URIS", 2)
    rig = Rig()
    client = await rig.session()
    for uri in "ab":
        assert (await client.ask("resources/subscribe", {"uri": uri}))["result"] == {}
    assert code(await client.send("resources/subscribe", {"uri": "c"})) == (200, -32602)
    assert (await client.ask("resources/subscribe", {"uri": "a"}))["result"] == {}
    await rig.front.close()


async def test_a_thousand_idle_sessions_with_open_streams_cost_little():
    rig = Rig(most_sessions_each=1000)
    made: list[Any] = []

    async def write(_chunk: bytes) -> None: ...

    async def opened(count: int) -> None:
        for _ in range(count):
            client = await rig.session(elicitation={}, roots={})
            got = await client.get()
            assert isinstance(got, Streaming)
            made.append(asyncio.ensure_future(got.run(write)))
            rig.inside.seen.clear()
            rig.listens.seen.clear()
            rig.world.sink.lines.clear()
        await rig.settle()

    await opened(50)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    await opened(200)
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / 200
    tracemalloc.stop()
    assert each < 20_000, each
    await rig.front.close()
    await asyncio.gather(*made)

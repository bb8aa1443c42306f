from __future__ import annotations

import asyncio

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from tests.fakes.legacy_server import Heard, Message, Turn, forever, outgoing, settle, world


@pytest.fixture(params=[True, False], ids=["streams", "stdio"])
def both(request: pytest.FixtureRequest) -> object:
    return request.param


async def test_progress_comes_under_the_clients_own_token():
    async def work(turn: Turn) -> Message:
        turn.say("notifications/progress", {"progressToken": turn.token, "progress": 1, "total": 2})
        turn.say("notifications/progress", {"progressToken": 999, "progress": 1})
        turn.say("notifications/progress", {"progressToken": str(turn.token), "progress": 1})
        await settle()
        return {"content": []}

    here = world({"work": work})
    one, two, three = Heard(), Heard(), Heard()
    await asyncio.gather(
        here.result(outgoing(name="work", token="same"), one),
        here.result(outgoing(name="work", token="same"), two),
        here.result(outgoing(name="work", token=3), three),
    )
    for heard, token in ((one, "same"), (two, "same"), (three, 3)):
        assert heard.messages == [
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 1, "total": 2},
            }
        ]
    tokens = [message["params"]["_meta"]["progressToken"] for message in here.session.said("tools/call")]
    assert tokens == [2, 3, 4]
    await here.upstream.close()


@pytest.mark.parametrize("token", [None, True, 1.5, {}])
async def test_nobody_is_told_of_progress_who_did_not_ask(token):
    async def work(turn: Turn) -> Message:
        assert turn.token is None
        turn.say("notifications/progress", {"progressToken": turn.message["id"], "progress": 1})
        return {"content": []}

    here = world({"work": work})
    heard = Heard()
    await here.result(outgoing(name="work", token=token), heard)
    await here.result(outgoing(name="work", token="x"))
    assert not heard.messages
    await here.upstream.close()


async def _log(turn: Turn) -> Message:
    for level in ("debug", "info", "error", "loud", None):
        turn.say("notifications/message", {"level": level, "data": "x"})
    return {"content": []}


def _levels(heard: Heard) -> list[object]:
    return [message["params"]["level"] for message in heard.messages]


LOGS: Message = {"tools": {}, "logging": {}}


async def test_log_messages_come_at_the_level_that_was_asked_for(both):
    here = world({"log": _log}, capabilities=LOGS, streams=both)
    loud, quiet = Heard(), Heard()
    await here.result(outgoing(name="log", level="info"), loud)
    await here.result(outgoing(name="log"), quiet)
    assert _levels(loud) == ["info", "error"]
    assert not quiet.messages
    assert [message["params"] for message in here.session.said("logging/setLevel")] == [{"level": "info"}]
    await here.upstream.close()


async def test_the_level_is_set_when_it_differs_and_for_the_most_curious():
    go = asyncio.Event()

    async def wait(turn: Turn) -> Message:
        await go.wait()
        return await _log(turn)

    here = world({"wait": wait}, capabilities=LOGS)
    one, two = Heard(), Heard()
    first = here.begin(outgoing(name="wait", level="debug"), one)
    await settle()
    second = here.begin(outgoing(name="wait", level="error"), two)
    await settle()
    assert [message["params"]["level"] for message in here.session.said("logging/setLevel")] == ["debug"]
    go.set()
    await asyncio.gather(first, second)
    assert _levels(one) == ["debug", "info", "error"]
    assert _levels(two) == ["error"]
    await here.result(outgoing(name="wait", level="error"), Heard())
    assert [message["params"]["level"] for message in here.session.said("logging/setLevel")] == [
        "debug",
        "error",
    ]
    await here.upstream.close()


async def test_a_server_without_logging_is_not_asked_for_it():
    here = world({"log": _log})
    await here.result(outgoing(name="log", level="info"), Heard())
    assert not here.session.said("logging/setLevel")
    await here.upstream.close()


async def test_a_level_that_the_server_refuses_does_not_fail_the_call():
    async def refuse(turn: Turn) -> Message:
        return {"error": {"code": -32601, "message": "no"}}

    here = world({"log": _log}, capabilities=LOGS, methods={"logging/setLevel": refuse})
    await here.result(outgoing(name="log", level="info"), Heard())
    await here.upstream.close()


async def test_a_level_that_cannot_be_set_is_a_failure_before_the_call():
    here = world({"log": _log}, capabilities=LOGS)
    await here.result(outgoing(name="log"))
    here.session.failing = [UpstreamError(UpstreamFailure.UNREACHABLE, "x", reached=True)]
    with pytest.raises(UpstreamError) as caught:
        await here.upstream.ask(outgoing(name="log", level="info"), heard=Heard())
    assert not caught.value.reached
    await here.upstream.close()


async def test_a_log_message_on_no_stream_goes_to_the_only_one_that_wants_any():
    here = world({"hang": forever}, capabilities=LOGS)
    one, two, none = Heard(), Heard(), Heard()
    tasks = [here.begin(outgoing(name="hang"), none), here.begin(outgoing(name="hang", level="info"), one)]
    await settle()
    here.session.push({"method": "notifications/message", "params": {"level": "info", "data": 1}})
    assert _levels(one) == ["info"]
    tasks.append(here.begin(outgoing(name="hang", level="info"), two))
    await settle()
    here.session.push({"method": "notifications/message", "params": {"level": "info", "data": 2}})
    here.session.push({"method": "notifications/message", "params": [1]})
    assert (len(one.messages), len(two.messages), len(none.messages)) == (1, 0, 0)
    for task in tasks:
        task.cancel()
    await settle()
    await here.upstream.close()


async def test_what_comes_after_the_end_is_dropped(both):
    here = world(streams=both)
    await here.result(outgoing(name="echo"))
    await here.upstream.close()
    here.session.push({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    here.session.push({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    here.session.push({"jsonrpc": "2.0", "id": 2, "result": {}})
    await settle()
    assert not here.session.responses()


async def test_a_call_is_let_go_when_even_its_cancellation_cannot_be_posted(monkeypatch):
    here = world({"hang": forever})
    task = here.begin(outgoing(name="hang"))
    await settle()

    async def stuck(message: Message) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(here.session, "post", stuck)
    for number in range(1000):
        here.session.push({"jsonrpc": "2.0", "id": number, "method": "ping"})
    task.cancel()
    await settle()
    assert not [one for one in asyncio.all_tasks() if "_carry" in repr(one)]
    await here.upstream.close()

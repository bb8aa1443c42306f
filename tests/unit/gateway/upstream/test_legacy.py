from __future__ import annotations

import asyncio

import pytest

from airlock.core.action import Action
from airlock.core.decision import Allow, Tier
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant, by_policy
from airlock.core.rules import Rule
from airlock.gateway.upstream import http
from airlock.gateway.upstream.line import SESSION_GONE
from airlock.gateway.upstream.port import Upstream
from tests.fakes.legacy_server import (
    OURS,
    Heard,
    Message,
    Session,
    Turn,
    echo,
    forever,
    outgoing,
    settle,
    text,
    world,
)


@pytest.fixture(params=[True, False], ids=["streams", "stdio"])
def both(request: pytest.FixtureRequest) -> object:
    return request.param


def grant() -> Grant:
    return by_policy(Action("t", {}, "prod", ""), Allow(Rule.L0_READ, Tier.L0))


def test_it_is_an_upstream():
    upstream: Upstream = world().upstream
    assert upstream.target("any") == "old"


async def test_a_call_is_answered_in_the_modern_form(both):
    here = world(streams=both)
    answer = await here.upstream.ask(outgoing(name="echo", arguments={"a": 1}, request_id="x"))
    assert answer.status == 200
    assert answer.message == {"jsonrpc": "2.0", "id": "x", "result": answer.result}
    assert answer.result == {
        "resultType": "complete",
        "content": [{"type": "text", "text": '{"a": 1}'}],
        "_meta": {OURS + "serverInfo": {"name": "old", "version": "3"}},
    }
    await here.upstream.close()


async def test_the_handshake_comes_first_and_once(both):
    here = world(streams=both)
    await here.result(outgoing(name="echo"))
    await here.result(outgoing(name="echo"))
    assert [message["method"] for message in here.session.messages] == [
        "initialize", "notifications/initialized", "tools/call", "tools/call",
    ]  # fmt: skip
    assert here.session.messages[0]["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "airlock", "version": "9"},
    }
    assert "id" not in here.session.messages[1]
    assert here.session.version == "2025-11-25"
    ids = [message["id"] for message in here.session.messages if "id" in message]
    assert ids == [1, 2, 3]
    await here.upstream.close()


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_each_older_version_is_accepted_in_the_answer(version):
    here = world(version=version)
    await here.result(outgoing(name="echo"))
    assert here.session.version == version
    await here.upstream.close()


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", 3, None, ["2025-11-25"]])
async def test_another_version_ends_it(version):
    here = world()
    here.server.opened = {"protocolVersion": version}
    with pytest.raises(UpstreamError) as caught:
        await here.upstream.ask(outgoing(name="echo"))
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.BAD_REPLY, False)
    await settle()
    assert here.session.closed
    # Nothing of it is kept: the next request tries again.
    here.server.opened = {}
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    await here.upstream.close()


async def test_a_refused_handshake_is_a_failure_that_reached_nothing():
    async def refuse(turn: Turn) -> Message:
        return {"error": {"code": -32022, "message": "modern only"}}

    here = world(methods={"initialize": refuse})
    with pytest.raises(UpstreamError, match="refused initialize") as caught:
        await here.upstream.ask(outgoing(name="echo"))
    assert not caught.value.reached
    await here.upstream.close()


async def test_a_failed_dial_is_told_to_all_who_wait_for_it():
    here = world()
    here.server.refusals = [UpstreamError(UpstreamFailure.UNREACHABLE, "no", reached=True, status=503)]
    one, two = here.begin(outgoing(name="echo")), here.begin(outgoing(name="echo"))
    for task in (one, two):
        with pytest.raises(UpstreamError, match="no") as caught:
            await task
        assert (caught.value.reached, caught.value.status) == (False, 503)
    await here.upstream.close()


async def test_two_requests_at_once_share_one_handshake():
    here = world()
    await asyncio.gather(here.result(outgoing(name="echo")), here.result(outgoing(name="echo")))
    assert len(here.server.sessions) == 1
    assert len(here.session.said("initialize")) == 1
    await here.upstream.close()


async def test_who_gives_up_during_the_handshake_does_not_end_it_for_others():
    go = asyncio.Event()

    async def slowly(turn: Turn) -> Message:
        await go.wait()
        return {"protocolVersion": "2025-11-25", "capabilities": {}}

    here = world(methods={"initialize": slowly})
    one, two = here.begin(outgoing(name="echo")), here.begin(outgoing(name="echo"))
    await settle()
    one.cancel()
    await settle()
    assert one.cancelled()
    go.set()
    assert (await two).status == 200
    assert not here.session.said("notifications/cancelled")
    await here.upstream.close()


async def test_initialize_that_is_not_answered_ends_in_time_and_is_not_cancelled():
    here = world(methods={"initialize": forever})
    task = here.begin(outgoing(name="echo"))
    await settle()
    here.time.advance(60)
    with pytest.raises(UpstreamError, match="no answer in time") as caught:
        await task
    assert not caught.value.reached
    await settle()
    assert not here.session.said("notifications/cancelled")
    assert here.session.closed
    await here.upstream.close()


async def test_discovery_is_answered_from_the_handshake():
    here = world(capabilities={"tools": {"listChanged": True}, "tasks": {}})
    here.server.opened = {"instructions": "be kind"}
    found = await here.result(outgoing("server/discover"))
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["capabilities"] == {"tools": {"listChanged": True}}
    assert found["instructions"] == "be kind"
    assert [message["method"] for message in here.session.messages] == [
        "initialize",
        "notifications/initialized",
    ]
    await here.upstream.close()


async def test_a_listing_may_be_kept_by_nobody():
    here = world()
    found = await here.result(outgoing("tools/list"))
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")
    assert [tool["name"] for tool in found["tools"]] == ["echo", "greet"]
    await here.upstream.close()


async def test_an_answer_can_be_had_unread():
    here = world()
    request = outgoing("tools/list", request_id="l1")
    reply = await here.upstream.send(request)
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert http.read(reply, request).result == await here.result(request)
    await here.upstream.close()


@pytest.mark.parametrize("method", ["tasks/get", "logging/setLevel", "initialize", "ping", "no/such"])
async def test_what_is_no_method_of_both_families_is_refused_by_name(method):
    here = world()
    status, error = await here.error(outgoing(method))
    assert (status, error["code"]) == (404, -32601)
    assert not here.server.sessions
    await here.upstream.close()


async def test_an_error_of_the_server_keeps_our_id_and_gets_the_modern_code():
    async def missing(turn: Turn) -> Message:
        return {"error": {"code": -32002, "message": "gone", "data": {"uri": "file:///a"}}}

    here = world(methods={"resources/read": missing})
    answer = await here.upstream.ask(outgoing("resources/read", uri="file:///a", request_id="q"))
    assert answer.status == 400
    assert answer.message == {
        "jsonrpc": "2.0",
        "id": "q",
        "error": {"code": -32602, "message": "gone", "data": {"uri": "file:///a"}},
    }
    await here.upstream.close()


async def test_the_envelope_stays_here_and_our_own_keys_go_on():
    here = world()
    await here.result(outgoing(name="echo"))
    assert here.session.said("tools/call")[0]["params"] == {
        "name": "echo",
        "_meta": {"io.mcp-airlock/principal": "alice"},
    }
    await here.upstream.close()


async def test_a_grant_is_spent_before_anything_is_awaited():
    here = world()
    mine = grant()
    pending = here.upstream.call(mine, outgoing(name="echo"), exact=True)
    with pytest.raises(RuntimeError):
        here.upstream.call(mine, outgoing(name="echo"), exact=True)
    assert (await pending).status == 200
    await here.upstream.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"id": 2},
        {"id": 2, "result": {}, "error": {"code": 1, "message": "x"}},
        {"id": 2, "result": []},
        {"id": 2, "error": "x"},
        {"id": 2, "error": {"code": True, "message": "x"}},
        {"id": 2, "error": {"code": 1, "message": 1}},
    ],
)
async def test_an_answer_that_is_none_is_a_bad_reply(answer):
    here = world({"hang": forever})
    task = here.begin(outgoing(name="hang"))
    await settle()
    here.session.push({"jsonrpc": "2.0", **answer}, 2)
    with pytest.raises(UpstreamError) as caught:
        await task
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.BAD_REPLY, True)
    await here.upstream.close()


@pytest.mark.parametrize("request_id", [99, "2", 2.0, True, None, [], {}])
async def test_an_answer_with_another_id_is_nobodys(request_id):
    here = world({"hang": forever})
    task = here.begin(outgoing(name="hang"))
    await settle()
    here.session.push({"jsonrpc": "2.0", "id": request_id, "result": {"content": []}}, 2)
    await settle()
    assert not task.done()
    task.cancel()
    await settle()
    await here.upstream.close()


@pytest.mark.parametrize(
    "message", [{}, {"method": 5}, {"method": "ping", "id": None}, {"method": "ping", "id": True}]
)
async def test_a_message_that_is_none_is_dropped(message):
    here = world()
    await here.result(outgoing(name="echo"))
    here.session.push({"jsonrpc": "2.0", **message})
    await settle()
    assert not here.session.responses()
    await here.upstream.close()


async def test_a_stream_that_ends_without_an_answer_is_a_bad_reply():
    here = world()
    await here.result(outgoing(name="echo"))

    async def nothing(message: Message) -> None:
        return None

    here.session._serve = nothing  # type: ignore[method-assign]
    with pytest.raises(UpstreamError, match="stream ended") as caught:
        await here.upstream.ask(outgoing(name="echo"))
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.BAD_REPLY, True)
    await here.upstream.close()


async def test_a_line_that_breaks_fails_its_request_alone(both):
    here = world({"echo": echo, "hang": forever}, streams=both)
    hanging = here.begin(outgoing(name="hang"))
    await settle()
    here.session.failing = [
        UpstreamError(UpstreamFailure.TOO_LARGE, "answer too large", reached=True),
        ValueError("secret"),
    ]
    with pytest.raises(UpstreamError, match="too large"):
        await here.upstream.ask(outgoing(name="echo"))
    with pytest.raises(UpstreamError, match="ValueError") as caught:
        await here.upstream.ask(outgoing(name="echo"))
    assert "secret" not in str(caught.value)
    assert caught.value.reached
    assert not hanging.done()
    hanging.cancel()
    await settle()
    await here.upstream.close()


async def test_a_stream_that_stays_open_after_its_answer_is_not_read_for_long():
    here = world({"hang": forever})
    task = here.begin(outgoing(name="hang"))
    await settle()
    here.session.push({"jsonrpc": "2.0", "id": 2, "result": {"content": []}}, 2)
    await task
    carrying = [one for one in asyncio.all_tasks() if "_carry" in repr(one)]
    assert len(carrying) == 1
    here.time.advance(5)
    await settle()
    assert carrying[0].cancelled()
    await here.upstream.close()


# A session that is gone.


async def test_a_session_that_is_gone_is_opened_again_once():
    here = world()
    await here.result(outgoing(name="echo"))
    here.session.gone = True
    assert text(await here.result(outgoing(name="echo", arguments={"a": 1}))) == {"a": 1}
    assert len(here.server.sessions) == 2
    await settle()
    assert here.server.sessions[0].closed
    await here.upstream.close()


async def test_a_session_that_is_lost_right_after_its_handshake_is_opened_again(both, monkeypatch):
    here = world(streams=both)

    async def post(self: Session, message: Message) -> None:
        if len(here.server.sessions) == 1:
            asyncio.get_running_loop().call_soon(self.lost, "gone")
        await asyncio.sleep(0)

    monkeypatch.setattr(Session, "post", post)
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    await here.upstream.close()


async def test_a_session_that_is_gone_twice_is_a_failure():
    here = world()
    await here.result(outgoing(name="echo"))
    here.session.gone = True

    async def initialize(turn: Turn) -> Message:
        turn.session.gone = True
        return {"protocolVersion": "2025-11-25", "capabilities": {}}

    here.server.methods["initialize"] = initialize
    with pytest.raises(UpstreamError, match=SESSION_GONE) as caught:
        await here.upstream.ask(outgoing(name="echo"))
    assert not caught.value.reached
    assert len(here.server.sessions) == 2
    await here.upstream.close()


async def test_a_call_that_the_server_took_is_not_sent_again():
    here = world({"hang": forever}, streams=False)
    task = here.begin(outgoing(name="hang"))
    await settle()
    here.session.end("the server process ended")
    with pytest.raises(UpstreamError, match="process ended") as caught:
        await task
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, True)
    await settle()
    assert len(here.server.sessions) == 1
    assert here.session.closed
    await here.upstream.close()


async def test_a_call_whose_own_stream_lives_outlasts_its_session():
    go = asyncio.Event()

    async def slow(turn: Turn) -> Message:
        await go.wait()
        return {"content": []}

    here = world({"slow": slow, "echo": echo})
    task = here.begin(outgoing(name="slow"))
    await settle()
    here.session.gone = True
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    assert not here.server.sessions[0].closed
    go.set()
    assert (await task).status == 200
    await settle()
    assert here.server.sessions[0].closed
    await here.upstream.close()


async def test_a_process_that_died_while_idle_is_replaced():
    here = world(streams=False)
    await here.result(outgoing(name="echo"))
    here.session.end("the server process ended")
    await settle()
    assert here.session.closed
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    await here.upstream.close()


async def test_a_process_that_is_about_to_end_gets_nothing_new_and_its_last_answer_counts():
    go = asyncio.Event()

    async def slow(turn):
        await go.wait()
        return {"content": []}

    here = world({"slow": slow, "echo": echo}, streams=False)
    task = here.begin(outgoing(name="slow"))
    await settle()
    old = here.session
    old.alive = False
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    go.set()
    assert (await task).status == 200
    old.end("the server process ended")
    await settle()
    assert old.closed
    await here.upstream.close()


async def test_a_request_that_its_process_did_not_take_any_more_goes_to_the_next(monkeypatch):
    here = world(streams=False)
    await here.result(outgoing(name="echo"))
    old = here.session
    unread = UpstreamError(UpstreamFailure.UNREACHABLE, "the server process is not running", reached=False)
    old.failing = [unread]
    with pytest.raises(UpstreamError, match="not running"):
        await here.upstream.ask(outgoing(name="echo"))
    assert len(here.server.sessions) == 1

    async def ended(message: Message) -> None:
        old.alive = False
        raise unread

    monkeypatch.setattr(old, "request", ended)
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    await here.upstream.close()


# Time and cancellation.


async def test_a_call_without_an_answer_fails_in_time_and_is_cancelled(both):
    here = world({"hang": forever}, streams=both)
    task = here.begin(outgoing(name="hang"))
    await settle()
    here.time.advance(59)
    await settle()
    assert not task.done()
    here.time.advance(1)
    with pytest.raises(UpstreamError, match="no answer in time") as caught:
        await task
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, True)
    await settle()
    assert here.session.said("notifications/cancelled")[0]["params"]["requestId"] == 2
    await here.upstream.close()


async def test_progress_buys_time_but_not_for_ever():
    here = world({"hang": forever})
    task = here.begin(outgoing(name="hang", token="p"), Heard())
    await settle()
    for _ in range(11):
        here.time.advance(50)
        here.session.push({"method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}})
    await settle()
    assert not task.done()
    here.time.advance(50)
    with pytest.raises(UpstreamError, match="no answer in time"):
        await task
    await here.upstream.close()


async def test_cancelling_the_task_cancels_the_call_at_the_server(both):
    here = world({"hang": forever}, streams=both)
    heard = Heard()
    task = here.begin(outgoing(name="hang", token="p"), heard)
    await settle()
    task.cancel()
    await settle()
    assert task.cancelled()
    assert [note["params"]["requestId"] for note in here.session.said("notifications/cancelled")] == [2]
    # What comes late is dropped.
    here.session.push({"method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}}, 2)
    here.session.push({"jsonrpc": "2.0", "id": 2, "result": {}}, 2)
    await settle()
    assert not heard.messages
    await here.upstream.close()

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from tests.fakes.legacy_server import PEOPLE, Message, echo, forever, greet, outgoing, settle, world


@pytest.fixture(params=[True, False], ids=["streams", "stdio"])
def both(request: pytest.FixtureRequest) -> object:
    return request.param


async def test_a_session_is_never_shared_between_principals():
    here = world()
    await here.result(outgoing(name="echo", principal="alice"))
    await here.result(outgoing(name="echo", principal="bob"))
    await here.result(outgoing("tools/list", principal="bob"))
    assert [session.said("tools/call")[0]["params"]["_meta"] for session in here.server.sessions] == [
        {"io.mcp-airlock/principal": "alice"},
        {"io.mcp-airlock/principal": "bob"},
    ]
    await here.upstream.close()


async def test_clients_of_other_abilities_have_dialogues_of_their_own():
    here = world()
    clients: list[Message] = [
        {},
        PEOPLE,
        {"elicitation": {"form": {}}},
        {"sampling": {}},
        {"extensions": {"x": {}}},
    ]
    for client in clients:
        await here.result(outgoing(name="echo", client=client))
    told = [session.said("initialize")[0]["params"]["capabilities"] for session in here.server.sessions]
    assert told == [{}, {"elicitation": {}}, {"sampling": {}}]
    await here.upstream.close()


async def test_what_cannot_be_asked_back_uses_a_dialogue_that_is_there():
    here = world()
    await here.result(outgoing(name="echo", client=PEOPLE))
    await here.result(outgoing("tools/list"))
    assert len(here.server.sessions) == 1
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    await here.result(outgoing("tools/list"))
    assert here.server.sessions[1].said("tools/list")
    await here.upstream.close()


async def test_an_idle_dialogue_is_closed_after_its_time():
    here = world()
    await here.result(outgoing(name="echo"))
    here.time.advance(299)
    await here.result(outgoing(name="echo"))
    here.time.advance(299)
    await settle()
    assert not here.session.closed
    here.time.advance(1)
    await settle()
    assert here.session.closed
    await here.result(outgoing(name="echo"))
    assert len(here.server.sessions) == 2
    await here.upstream.close()


async def test_a_dialogue_that_only_told_of_itself_is_closed_too():
    here = world()
    await here.result(outgoing("server/discover"))
    here.time.advance(300)
    await settle()
    assert here.session.closed
    await here.upstream.close()


async def test_a_busy_dialogue_is_not_idle():
    here = world({"echo": echo, "greet": greet})
    asked = await here.result(outgoing(name="greet", client=PEOPLE))
    assert asked["resultType"] == "input_required"
    here.time.advance(599)
    await settle()
    assert not here.session.closed
    await here.upstream.close()


async def test_the_dialogue_that_rested_longest_makes_room():
    here = world(most=2)
    for principal in ("alice", "bob", "alice", "carol"):
        await here.result(outgoing(name="echo", principal=principal))
    await settle()
    assert [session.closed for session in here.server.sessions] == [False, True, False]
    await here.upstream.close()


async def test_with_all_dialogues_in_use_a_new_one_is_refused():
    here = world({"hang": forever, "echo": echo}, most=1)
    hanging = here.begin(outgoing(name="hang"))
    await settle()
    with pytest.raises(UpstreamError, match="too many dialogues") as caught:
        await here.upstream.ask(outgoing(name="echo", principal="bob"))
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, False)
    assert len(here.server.sessions) == 1
    hanging.cancel()
    await settle()
    await here.result(outgoing(name="echo", principal="bob"))
    await here.upstream.close()


async def test_one_principal_cannot_take_all_dialogues(monkeypatch):
    monkeypatch.setattr("airlock.gateway.upstream.dialogues.MOST_EACH", 2)
    here = world()
    await here.result(outgoing(name="echo", principal="bob"))
    clients: list[Message] = [{}, PEOPLE, {"sampling": {}}]
    for client in clients:
        await here.result(outgoing(name="echo", client=client))
    await settle()
    assert [session.closed for session in here.server.sessions] == [False, True, False, False]
    await here.upstream.close()


@pytest.mark.parametrize(("most", "each"), [(1, 1), (3, 1), (4, 1), (8, 2), (16, 4), (64, 16), (256, 16)])
async def test_one_principal_never_has_more_than_a_quarter_of_all_dialogues_in_use(most: int, each: int):
    here = world({"hang": forever, "echo": echo}, most=most)
    people: list[Message] = [{}, {"form": {}, "url": {}}, {"url": {}}]
    samplings: list[Message] = [{}, {"context": {}}, {"tools": {}}, {"context": {}, "tools": {}}]
    clients: list[Message] = [
        {"sampling": sampling, **({"elicitation": asks} if asks else {}), **({"roots": {}} if roots else {})}
        for roots in (False, True)
        for asks in people
        for sampling in samplings
    ]
    hanging = [here.begin(outgoing(name="hang", client=client)) for client in clients]
    await settle()
    await settle()
    assert len(here.server.sessions) == each
    refused = [task for task in hanging if task.done()]
    assert len(refused) == len(clients) - each
    for task in refused:
        with pytest.raises(UpstreamError, match="too many dialogues"):
            await task
    if most > each:
        await here.result(outgoing(name="echo", principal="bob"))
    for task in hanging:
        task.cancel()
    await settle()
    await here.upstream.close()


async def test_closing_fails_what_is_under_way_and_whatever_comes_later(both):
    here = world({"hang": forever}, streams=both)
    hanging = here.begin(outgoing(name="hang"))
    await settle()
    await here.upstream.close()
    with pytest.raises(UpstreamError) as caught:
        await hanging
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, True)
    with pytest.raises(UpstreamError) as caught:
        await here.upstream.ask(outgoing(name="hang"))
    assert not caught.value.reached
    assert here.session.closed
    await here.upstream.close()
    assert here.time.waiting == 0


async def test_closing_during_the_handshake_leaves_nothing():
    here = world(methods={"initialize": forever})
    task = here.begin(outgoing(name="echo"))
    await settle()
    await here.upstream.close()
    with pytest.raises(UpstreamError) as caught:
        await task
    assert not caught.value.reached
    assert here.session.closed
    assert here.time.waiting == 0


async def test_a_line_that_is_lost_before_it_was_dialled_is_let_go():
    here = world()
    honest = here.server.dial

    async def dial(incoming: Any, lost: Any) -> Any:
        session = await honest(incoming, lost)
        incoming({"jsonrpc": "2.0", "id": 1, "method": "ping"}, None)
        lost("gone")
        return session

    here.server.dial = dial  # type: ignore[method-assign]
    with pytest.raises(UpstreamError, match="gone") as caught:
        await here.upstream.ask(outgoing(name="echo"))
    assert not caught.value.reached
    assert here.session.closed
    assert not here.session.messages
    await here.upstream.close()


async def test_closing_while_a_line_is_dialled_leaves_nothing():
    here = world()

    async def dial(incoming: Any, lost: Any) -> Any:
        await asyncio.Event().wait()

    here.server.dial = dial  # type: ignore[method-assign]
    task = here.begin(outgoing(name="echo"))
    await settle()
    await here.upstream.close()
    with pytest.raises(UpstreamError, match="closed"):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_dialogue_that_is_being_opened_is_not_taken_away():
    here = world(most=1)
    one = here.begin(outgoing(name="echo"))
    two = here.begin(outgoing(name="echo", principal="bob"))
    # While one shakes hands there is no room for the other, and none is taken from it.
    with pytest.raises(UpstreamError, match="too many"):
        await two
    assert (await one).status == 200
    await here.upstream.close()


async def test_a_bug_of_a_transport_is_a_failure_of_the_dial_alone():
    here = world()

    async def dial(incoming: Any, lost: Any) -> Any:
        raise ValueError("bug")

    honest, here.server.dial = here.server.dial, dial  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="bug"):
        await here.upstream.ask(outgoing(name="echo"))
    here.server.dial = honest  # type: ignore[method-assign]
    await here.result(outgoing(name="echo"))
    await here.upstream.close()

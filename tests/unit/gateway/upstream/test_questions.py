from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream import parks
from airlock.gateway.upstream.call import MAX_QUESTIONS
from airlock.gateway.upstream.port import Outgoing
from tests.fakes.legacy_server import (
    ASKS,
    FORM,
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
    text,
    world,
)


@pytest.fixture(params=[True, False], ids=["streams", "stdio"])
def both(request: pytest.FixtureRequest) -> object:
    return request.param


# Questions.


async def _asked(here: World, request: Outgoing) -> tuple[str, Message]:
    result = await here.result(request)
    assert result["resultType"] == "input_required"
    assert result["_meta"] == {OURS + "serverInfo": {"name": "old", "version": "3"}}
    return result["requestState"], result["inputRequests"]


def retry(state: object, responses: object, **more: Any) -> Outgoing:
    more = {"name": "greet", "client": PEOPLE, **more}
    return outgoing(request_id="again", requestState=state, inputResponses=responses, **more)


YES = {"action": "accept", "content": {"a": 1}}


async def test_a_question_during_a_call_comes_back_as_input_required_and_its_answer_resumes_the_call(both):
    here = world(streams=both)
    state, entries = await _asked(here, outgoing(name="greet", client=PEOPLE))
    assert state.startswith(parks.PREFIX)
    assert entries == {"s1": {"method": "elicitation/create", "params": FORM}}
    assert text(await here.result(retry(state, {"s1": YES}))) == YES
    assert len(here.session.said("tools/call")) == 1
    assert here.session.responses() == [{"jsonrpc": "2.0", "id": 1, "result": YES}]
    await here.upstream.close()
    assert here.time.waiting == 0


@pytest.mark.parametrize(
    ("method", "params", "client"),
    [
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, {"sampling": {}}),
        ("roots/list", None, {"roots": {}}),
        ("elicitation/create", {"mode": "url", "message": "m", "url": "https://a.example"}, ASKS),
    ],
)
async def test_every_kind_of_question_is_asked_of_a_client_that_declared_it(method, params, client):
    async def ask(turn: Turn) -> Message:
        return {"content": [{"type": "text", "text": json.dumps((await turn.ask(method, params))["result"])}]}

    here = world({"ask": ask})
    state, entries = await _asked(here, outgoing(name="ask", client=client))
    assert entries == {"s1": {"method": method, **({} if params is None else {"params": params})}}
    assert text(await here.result(retry(state, {"s1": {"roots": []}}, name="ask", client=client))) == {
        "roots": []
    }
    await here.upstream.close()


@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "p"}), ("resources/read", {"uri": "file:///a"})]
)
async def test_prompts_and_resources_may_ask_as_well(method, params, both):
    async def ask(turn: Turn) -> Message:
        await turn.ask("elicitation/create", FORM)
        return {"messages": []}

    here = world(methods={method: ask}, streams=both)
    state, _ = await _asked(here, outgoing(method, client=PEOPLE, **params))
    again = outgoing(method, client=PEOPLE, requestState=state, inputResponses={"s1": YES}, **params)
    assert (await here.result(again))["messages"] == []
    await here.upstream.close()


async def test_questions_one_after_another_are_rounds_with_new_handles():
    async def twice(turn: Turn) -> Message:
        first = await turn.ask("elicitation/create", FORM)
        second = await turn.ask("elicitation/create", {**FORM, "message": "and?"})
        return {"content": [{"type": "text", "text": json.dumps([first["result"], second["result"]])}]}

    here = world({"twice": twice})
    one, _ = await _asked(here, outgoing(name="twice", client=PEOPLE))
    two, entries = await _asked(here, retry(one, {"s1": {"n": 1}}, name="twice"))
    assert one != two
    assert entries == {"s2": {"method": "elicitation/create", "params": {**FORM, "message": "and?"}}}
    assert text(await here.result(retry(two, {"s2": {"n": 2}}, name="twice"))) == [{"n": 1}, {"n": 2}]
    await here.upstream.close()


async def _several(turn: Turn) -> Message:
    answers = await asyncio.gather(*(turn.ask("elicitation/create", FORM) for _ in range(3)))
    return {"content": [{"type": "text", "text": json.dumps([answer["result"]["n"] for answer in answers])}]}


async def test_questions_that_are_open_together_are_one_round(both):
    here = world({"several": _several}, streams=both)
    state, entries = await _asked(here, outgoing(name="several", client=PEOPLE))
    assert list(entries) == ["s1", "s2", "s3"]
    responses = {"s3": {"n": 3}, "s1": {"n": 1}, "s2": {"n": 2}, "other": 5}
    assert text(await here.result(retry(state, responses, name="several"))) == [1, 2, 3]
    await here.upstream.close()


async def test_a_question_that_was_not_answered_is_asked_again():
    here = world({"several": _several})
    state, entries = await _asked(here, outgoing(name="several", client=PEOPLE))
    again, left = await _asked(here, retry(state, {"s2": {"n": 2}}, name="several"))
    assert again != state
    assert list(left.values()) == [entries["s1"], entries["s3"]]
    one, three = left
    assert text(await here.result(retry(again, {one: {"n": 1}, three: {"n": 3}}, name="several"))) == [
        1,
        2,
        3,
    ]
    assert len(here.session.responses()) == 3
    await here.upstream.close()


async def test_a_retry_without_answers_is_asked_again_and_silence_is_no_consent():
    here = world()
    state, entries = await _asked(here, outgoing(name="greet", client=PEOPLE))
    request = outgoing(name="greet", client=PEOPLE, requestState=state)
    again, left = await _asked(here, request)
    assert list(left.values()) == list(entries.values())
    assert not here.session.responses()
    assert text(await here.result(retry(again, {next(iter(left)): YES}))) == YES
    await here.upstream.close()


async def test_a_question_that_comes_while_the_call_is_parked_waits_for_its_round():
    async def more(turn: Turn) -> Message:
        first = asyncio.ensure_future(turn.ask("elicitation/create", FORM))
        await late.wait()
        second = asyncio.ensure_future(turn.ask("elicitation/create", {**FORM, "message": "late"}))
        await asyncio.gather(first, second)
        return {"content": []}

    late = asyncio.Event()
    here = world({"more": more})
    state, _ = await _asked(here, outgoing(name="more", client=PEOPLE))
    late.set()
    await settle()
    again, entries = await _asked(here, retry(state, {"s1": YES}, name="more"))
    assert [entry["params"]["message"] for entry in entries.values()] == ["late"]
    assert (await here.result(retry(again, dict.fromkeys(entries, YES), name="more")))["content"] == []
    await here.upstream.close()


@pytest.mark.parametrize("responses", [{"s1": "yes"}, {"s1": None}, {"s1": [YES]}, [], "x", None])
async def test_a_response_that_is_no_object_is_refused_and_the_question_stays_open(responses):
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    status, error = await here.error(retry(state, responses))
    assert (status, error["code"]) == (400, -32602)
    assert not here.session.responses()
    assert text(await here.result(retry(state, {"s1": YES}))) == YES
    await here.upstream.close()


@pytest.mark.parametrize(
    "changes",
    [{"principal": "bob"}, {"name": "echo"}, {"arguments": {"a": 1}}, {"method": "prompts/get"}],
    ids=lambda changes: next(iter(changes)),
)
async def test_an_answer_to_another_request_answers_nothing(changes):
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    status, error = await here.error(retry(state, {"s1": YES}, **changes))
    assert (status, error["code"]) == (400, -32602)
    assert error["message"] == "the question is no longer open; call again"
    assert not here.session.responses()
    assert text(await here.result(retry(state, {"s1": YES}))) == YES
    await here.upstream.close()


async def test_an_answered_handle_is_used_up():
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    assert text(await here.result(retry(state, {"s1": YES}))) == YES
    assert (await here.error(retry(state, {"s1": YES})))[1]["code"] == -32602
    assert len(here.session.said("tools/call")) == 1
    await here.upstream.close()


async def test_of_two_retries_at_once_one_answers():
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    one, two = await asyncio.gather(*(here.upstream.ask(retry(state, {"s1": YES})) for _ in range(2)))
    assert (one.status, two.status) == (200, 400)
    assert len(here.session.responses()) == 1
    await here.upstream.close()


@pytest.mark.parametrize("state", ["al1.x", "park1.0", 5, None, {}])
async def test_a_state_that_is_none_of_ours_is_told_so(state):
    here = world()
    assert (await here.error(retry(state, {})))[1]["message"] == "the question is no longer open; call again"
    assert not here.server.sessions
    await here.upstream.close()


async def test_a_question_nobody_answers_is_cancelled_after_its_time(both):
    here = world(streams=both)
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    here.time.advance(600)
    await settle()
    assert here.session.responses() == [{"jsonrpc": "2.0", "id": 1, "result": {"action": "cancel"}}]
    note = here.session.messages[-1]
    assert (note["method"], note["params"]["requestId"]) == ("notifications/cancelled", 2)
    assert (await here.error(retry(state, {"s1": YES})))[1]["code"] == -32602
    await here.upstream.close()


async def test_an_abandoned_question_of_another_kind_is_answered_with_an_error():
    async def ask(turn: Turn) -> Message:
        await turn.ask("sampling/createMessage", {"messages": []})
        return {}

    here = world({"ask": ask})
    state, _ = await _asked(here, outgoing(name="ask", client={"sampling": {}}))
    here.upstream.abandon(5)
    here.upstream.abandon("park1.other")
    here.upstream.abandon(state)
    here.upstream.abandon(state)
    await settle()
    assert [answer["error"]["code"] for answer in here.session.responses()] == [-32603]
    assert len(here.session.said("notifications/cancelled")) == 1
    await here.upstream.close()


async def test_with_too_many_open_questions_the_new_call_gives_way(monkeypatch):
    monkeypatch.setattr("airlock.gateway.upstream.parks.MOST_EACH", 1)
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    status, error = await here.error(outgoing(name="greet", client=PEOPLE))
    assert (status, error["code"]) == (200, -32603)
    assert "too many questions" in error["message"]
    await settle()
    assert here.session.responses()[0]["result"] == {"action": "cancel"}
    assert [note["params"]["requestId"] for note in here.session.said("notifications/cancelled")] == [3]
    assert text(await here.result(retry(state, {"s1": YES}))) == YES
    await here.upstream.close()


async def test_the_deadline_does_not_run_while_a_person_thinks():
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    here.time.advance(300)
    await settle()
    assert text(await here.result(retry(state, {"s1": YES}))) == YES
    await here.upstream.close()


async def test_a_resumed_call_has_a_deadline_again():
    async def slow(turn: Turn) -> Message:
        await turn.ask("elicitation/create", FORM)
        return await forever(turn)

    here = world({"slow": slow})
    state, _ = await _asked(here, outgoing(name="slow", client=PEOPLE))
    task = here.begin(retry(state, {"s1": YES}, name="slow"))
    await settle()
    here.time.advance(60)
    with pytest.raises(UpstreamError, match="no answer in time") as caught:
        await task
    assert caught.value.reached
    await here.upstream.close()


async def test_a_retry_is_told_of_progress_under_its_own_token():
    async def work(turn: Turn) -> Message:
        await turn.ask("elicitation/create", FORM)
        turn.say("notifications/progress", {"progressToken": turn.token, "progress": 1})
        return {"content": []}

    here = world({"work": work})
    before, after = Heard(), Heard()
    answer = await here.upstream.ask(outgoing(name="work", client=PEOPLE, token="a"), heard=before)
    assert answer.result is not None
    await here.result(retry(answer.result["requestState"], {"s1": YES}, name="work", token="b"), after)
    assert not before.messages
    assert [message["params"]["progressToken"] for message in after.messages] == ["b"]
    await here.upstream.close()


async def test_progress_of_a_parked_call_is_nobodys(both):
    here = world(streams=both)
    heard = Heard()
    answer = await here.upstream.ask(outgoing(name="greet", client=PEOPLE, token="a"), heard=heard)
    here.session.push({"method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}}, 2)
    assert answer.result is not None
    assert not heard.messages
    assert text(await here.result(retry(answer.result["requestState"], {"s1": YES}))) == YES
    await here.upstream.close()


async def test_the_answer_of_a_call_that_did_not_wait_is_there_for_the_retry():
    async def impatient(turn: Turn) -> Message:
        asked = asyncio.ensure_future(turn.ask("elicitation/create", FORM))
        await go.wait()
        asked.cancel()
        return {"content": []}

    go = asyncio.Event()
    here = world({"impatient": impatient})
    state, _ = await _asked(here, outgoing(name="impatient", client=PEOPLE))
    go.set()
    await settle()
    assert (await here.result(retry(state, {"s1": YES}, name="impatient")))["content"] == []
    assert not here.session.responses()
    await here.upstream.close()


async def test_a_server_that_died_meanwhile_is_told_to_the_retry():
    here = world(streams=False)
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    here.session.end("the server process ended")
    await settle()
    with pytest.raises(UpstreamError, match="process ended") as caught:
        await here.upstream.ask(retry(state, {"s1": YES}))
    assert caught.value.reached
    await here.upstream.close()


async def test_an_answer_that_cannot_be_handed_on_is_a_failure_that_may_have_run(monkeypatch):
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))

    async def broken(message: Message) -> None:
        raise UpstreamError(UpstreamFailure.UNREACHABLE, "x", reached=False)

    monkeypatch.setattr(here.session, "post", broken)
    with pytest.raises(UpstreamError) as caught:
        await here.upstream.ask(retry(state, {"s1": YES}))
    assert caught.value.reached
    await here.upstream.close()


async def test_a_retry_that_is_cancelled_while_it_hands_its_answers_on_cancels_the_call(monkeypatch):
    here = world()
    state, _ = await _asked(here, outgoing(name="greet", client=PEOPLE))
    honest = here.session.post

    async def stuck(message: Message) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(here.session, "post", stuck)
    task = here.begin(retry(state, {"s1": YES}))
    await settle()
    monkeypatch.setattr(here.session, "post", honest)
    task.cancel()
    await settle()
    assert task.cancelled()
    assert here.session.said("notifications/cancelled")
    await here.upstream.close()


async def test_a_question_the_server_takes_back_is_not_answered():
    async def changes(turn: Turn) -> Message:
        asked = asyncio.ensure_future(turn.ask("elicitation/create", FORM))
        await go.wait()
        turn.say("notifications/cancelled", {"requestId": 1})
        asked.cancel()
        await settle()
        await done.wait()
        return {"content": []}

    go, done = asyncio.Event(), asyncio.Event()
    here = world({"changes": changes})
    state, _ = await _asked(here, outgoing(name="changes", client=PEOPLE))
    go.set()
    await settle()
    task = here.begin(retry(state, {"s1": YES}, name="changes"))
    await settle()
    done.set()
    assert (await task).status == 200
    assert not here.session.responses()
    await here.upstream.close()


async def test_a_question_of_a_kind_that_was_not_declared_is_answered_for_the_client():
    here = world()
    answer = await here.result(outgoing(name="greet"))
    assert text(answer)["code"] == -32601
    answer = await here.result(outgoing(name="greet", client={"elicitation": {"url": {}}}))
    assert text(answer)["code"] == -32602
    await here.upstream.close()


@pytest.mark.parametrize("method", ["tasks/get", "no/such"])
async def test_any_other_request_of_the_server_is_unknown(method):
    here = world()
    await here.result(outgoing(name="echo", client=ASKS))
    here.session.push({"jsonrpc": "2.0", "id": "q", "method": method, "params": {}})
    await settle()
    assert here.session.responses()[-1] == {
        "jsonrpc": "2.0",
        "id": "q",
        "error": {"code": -32601, "message": "the client did not declare this"},
    }
    await here.upstream.close()


async def test_a_question_outside_any_call_is_refused(both):
    here = world(streams=both)
    await here.result(outgoing("tools/list", client=PEOPLE))
    answer = asyncio.ensure_future(here.session.ask("elicitation/create", FORM))
    await settle()
    assert (await answer)["error"]["code"] == -32600
    await here.upstream.close()


async def test_a_question_on_no_stream_belongs_to_the_only_call_that_is_open(both):
    async def aside(turn: Turn) -> Message:
        return {
            "content": [],
            "said": (await turn.ask("elicitation/create", FORM, on_stream=False))["result"],
        }

    here = world({"aside": aside}, streams=both)
    listing = here.begin(outgoing("resources/list", client=PEOPLE))
    state, _ = await _asked(here, outgoing(name="aside", client=PEOPLE))
    assert (await here.result(retry(state, {"s1": YES}, name="aside")))["said"] == YES
    await listing
    await here.upstream.close()


async def test_roots_that_a_call_waits_for_are_asked_for_after_a_moment(both):
    async def rooted(turn: Turn) -> Message:
        said = await turn.ask("roots/list", on_stream=False)
        return {"content": [{"type": "text", "text": json.dumps(said["result"])}]}

    here = world({"rooted": rooted}, streams=both)
    task = here.begin(outgoing(name="rooted", client=ASKS))
    await settle()
    assert not task.done()
    here.time.advance(1)
    asked = (await task).result
    assert asked["inputRequests"] == {"s1": {"method": "roots/list"}}
    request = retry(asked["requestState"], {"s1": {"roots": []}}, name="rooted", client=ASKS)
    assert text(await here.result(request)) == {"roots": []}
    await here.upstream.close()


async def test_a_server_that_asks_for_roots_on_its_own_account_disturbs_no_call(both):
    here = world({"hang": forever}, streams=both)
    task = here.begin(outgoing(name="hang", client=ASKS))
    await settle()
    asked = [asyncio.ensure_future(here.session.ask("roots/list")) for _ in range(2)]
    await settle()
    here.session.push({"method": "notifications/cancelled", "params": {"requestId": 2}})
    here.time.advance(0.5)
    here.session.push({"jsonrpc": "2.0", "id": 3, "result": {"content": []}}, 3)
    assert (await task).result["resultType"] == "complete"
    await settle()
    assert [response["id"] for response in here.session.responses()] == [1]
    assert asked[0].result()["error"]["code"] == -32600
    asked[1].cancel()
    await here.upstream.close()


async def test_a_call_that_waits_for_a_person_does_not_keep_another_from_asking():
    here = world(streams=False)
    first, _ = await _asked(here, outgoing(name="greet", arguments={"n": 1}, client=PEOPLE))
    second, entries = await _asked(here, outgoing(name="greet", arguments={"n": 2}, client=PEOPLE))
    two = {key: {"n": 2} for key in entries}
    assert text(await here.result(retry(second, two, arguments={"n": 2}))) == {"n": 2}
    assert text(await here.result(retry(first, {"s1": {"n": 1}}, arguments={"n": 1}))) == {"n": 1}
    await here.upstream.close()


async def test_a_question_that_may_belong_to_either_of_two_calls_is_refused():
    here = world({"greet": greet, "hang": forever}, streams=False)
    hanging = here.begin(outgoing(name="hang", client=PEOPLE))
    await settle()
    assert text(await here.result(outgoing(name="greet", client=PEOPLE)))["code"] == -32600
    hanging.cancel()
    await settle()
    await here.upstream.close()


async def test_a_question_on_the_stream_of_a_listing_is_refused():
    async def ask(turn: Turn) -> Message:
        said = await turn.ask("elicitation/create", FORM)
        return {"tools": [], "said": said["error"]["code"]}

    here = world(methods={"tools/list": ask})
    assert (await here.result(outgoing("tools/list", client=PEOPLE)))["said"] == -32600
    await here.upstream.close()


async def test_a_server_that_asks_without_end_is_refused():
    async def flood(turn: Turn) -> Message:
        answers = await asyncio.gather(
            *(turn.ask("elicitation/create", FORM) for _ in range(MAX_QUESTIONS + 2))
        )
        return {"content": [], "refused": sum("error" in answer for answer in answers)}

    here = world({"flood": flood})
    state, entries = await _asked(here, outgoing(name="flood", client=PEOPLE))
    assert len(entries) == MAX_QUESTIONS
    result = await here.result(retry(state, dict.fromkeys(entries, YES), name="flood"))
    assert result["refused"] == 2
    await here.upstream.close()


async def test_a_ping_of_the_server_is_answered_at_once(both):
    here = world({"hang": forever}, streams=both)
    hanging = here.begin(outgoing(name="hang"))
    await settle()
    here.session.push({"jsonrpc": "2.0", "id": "p", "method": "ping"})
    await settle()
    assert here.session.responses() == [{"jsonrpc": "2.0", "id": "p", "result": {}}]
    hanging.cancel()
    await settle()
    await here.upstream.close()


async def test_a_flood_of_pings_that_takes_no_answers_is_not_kept(monkeypatch):
    here = world()
    await here.result(outgoing(name="echo"))
    go = asyncio.Event()
    answers: list[Message] = []

    async def stuck(message: Message) -> None:
        await go.wait()
        answers.append(message)

    monkeypatch.setattr(here.session, "post", stuck)
    for number in range(1000):
        here.session.push({"jsonrpc": "2.0", "id": number, "method": "ping"})
    go.set()
    for _ in range(20):
        await settle()
    assert [answer["id"] for answer in answers] == list(range(256))
    await here.upstream.close()


async def test_a_server_that_asks_for_roots_at_once_has_done_so_before_the_first_call():
    async def ping(turn: Turn) -> Message:
        early.append((await turn.session.ask("roots/list"))["error"]["code"])
        return {}

    early: list[int] = []
    here = world(methods={"ping": ping}, streams=False)
    assert (await here.result(outgoing(name="echo", client={"roots": {}})))["resultType"] == "complete"
    assert early == [-32600]
    methods = [message["method"] for message in here.session.messages if "method" in message]
    assert methods == ["initialize", "notifications/initialized", "ping", "tools/call"]
    await here.upstream.close()


@pytest.mark.parametrize("silent", [True, False])
async def test_a_server_that_does_not_answer_the_ping_is_served_all_the_same(silent):
    async def refuse(turn: Turn) -> Message:
        return {"error": {"code": -32601, "message": "no"}}

    here = world(methods={"ping": forever if silent else refuse})
    task = here.begin(outgoing(name="echo", client={"roots": {}}))
    await settle()
    here.time.advance(5)
    assert (await task).status == 200
    await here.upstream.close()


async def test_a_server_that_dies_at_the_ping_is_a_failure():
    async def die(turn: Turn) -> Message:
        turn.session.end("the server process ended")
        return {}

    here = world(methods={"ping": die}, streams=False)
    with pytest.raises(UpstreamError, match="process ended") as caught:
        await here.upstream.ask(outgoing(name="echo", client={"roots": {}}))
    assert not caught.value.reached
    await here.upstream.close()


# Pages that a person must open first.

PAGE = {"mode": "url", "elicitationId": "e1", "message": "log in", "url": "https://a.example"}


def _paged(opened: list[bool]):
    async def tool(turn: Turn) -> Message:
        if opened:
            return {"content": [], "messages": []}
        return {"error": {"code": -32042, "message": "log in first", "data": {"elicitations": [PAGE]}}}

    return tool


async def test_a_call_that_needs_a_page_is_a_question_and_the_retry_calls_again():
    opened: list[bool] = []
    here = world({"page": _paged(opened)})
    state, entries = await _asked(here, outgoing(name="page", client=ASKS))
    assert entries == {
        "s1": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "log in", "url": "https://a.example"},
        }
    }
    opened.append(True)
    result = await here.result(retry(state, {"s1": {"action": "accept"}}, name="page", client=ASKS))
    assert result["content"] == []
    assert len(here.session.said("tools/call")) == 2
    assert "requestState" not in here.session.said("tools/call")[1]["params"]
    await here.upstream.close()


async def test_a_page_that_is_not_opened_is_no_retry():
    here = world({"page": _paged([])}, methods={"prompts/get": _paged([])})
    state, _ = await _asked(here, outgoing(name="page", client=ASKS))
    result = await here.result(retry(state, {"s1": {"action": "decline"}}, name="page", client=ASKS))
    assert result["isError"] is True
    state, _ = await _asked(here, outgoing("prompts/get", name="page", client=ASKS))
    again = retry(state, {"s1": {"action": "cancel"}}, name="page", client=ASKS, method="prompts/get")
    assert (await here.error(again))[1]["code"] == -32603
    assert len(here.session.said("tools/call")) == 1
    await here.upstream.close()


async def test_pages_without_an_answer_are_asked_for_again():
    here = world({"page": _paged([])})
    state, entries = await _asked(here, outgoing(name="page", client=ASKS))
    again, same = await _asked(here, retry(state, {}, name="page", client=ASKS))
    assert again != state
    assert same == entries
    here.upstream.abandon(again)
    assert (await here.error(retry(again, {}, name="page", client=ASKS)))[1]["code"] == -32602
    await here.upstream.close()


async def test_too_many_pages_that_wait_are_an_error(monkeypatch):
    monkeypatch.setattr("airlock.gateway.upstream.parks.MOST_EACH", 0)
    here = world({"page": _paged([])})
    assert (await here.error(outgoing(name="page", client=ASKS)))[1]["code"] == -32603
    await here.upstream.close()


async def test_a_client_that_shows_no_pages_is_told_what_it_lacks():
    here = world({"page": _paged([])})
    status, error = await here.error(outgoing(name="page", client=PEOPLE))
    assert (status, error["code"]) == (400, -32021)
    assert error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}
    await here.upstream.close()


async def test_a_page_error_that_cannot_be_read_is_an_internal_one():
    async def tool(turn: Turn) -> Message:
        return {"error": {"code": -32042, "message": "log in first"}}

    here = world({"page": tool})
    status, error = await here.error(outgoing(name="page", client=ASKS))
    assert (status, error) == (200, {"code": -32603, "message": "log in first"})
    await here.upstream.close()

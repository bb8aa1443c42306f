"""The modern upstream over a process: ids, answers, what is heard in between, deadlines and cancellation."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from airlock.core import grant
from airlock.core.action import Action
from airlock.core.decision import Allow, Tier
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.rules import Rule
from airlock.gateway.upstream import http, inflight
from airlock.gateway.upstream.port import Answer, Heard, Outgoing, Upstream
from airlock.gateway.upstream.stdio import StdioUpstream
from tests.fakes.stdio_upstream import META, Ear, call, outgoing, raw, received, seen, stdio_upstream

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTEN = {"notifications": {"toolsListChanged": True}}
RESULT = '"result":{"resultType":"complete","content":[]}'


async def failure(awaited: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await awaited
    return caught.value


def a_grant() -> grant.Grant:
    return grant.by_policy(Action("echo", {}, "prod", "stdio:fake"), Allow(Rule.L0_READ, Tier.L0))


# Ids and answers.


@pytest.mark.parametrize("outer", [7, "7", "a\ud800b", 2**63, 1.5, None])
async def test_the_server_sees_an_id_of_ours_and_the_asker_gets_its_own_back(outer: object):
    async with stdio_upstream() as upstream:
        answer = await upstream.ask(call("echo", {"a": "\ud800"}, id_=outer))
        assert (answer.status, answer.message["id"], answer.message["jsonrpc"]) == (200, outer, "2.0")
        assert answer.message["result"] is answer.result
        assert answer.result is not None
        assert answer.result["echo"] == {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"a": "\ud800"}, "_meta": META},
        }


async def test_two_askers_with_one_id_each_get_their_own_answer():
    async with stdio_upstream() as upstream:
        answers = await asyncio.gather(*(upstream.ask(call("echo", {"n": n}, id_=1)) for n in range(50)))
        found: list[Any] = [answer.result["echo"] for answer in answers if answer.result is not None]
        assert [echo["params"]["arguments"]["n"] for echo in found] == list(range(50))
        assert len({echo["id"] for echo in found}) == 50


async def test_answers_may_come_in_any_order():
    async with stdio_upstream() as upstream:
        first = asyncio.ensure_future(upstream.ask(call("hang", id_="first")))
        while not await received(upstream, 1):
            pass
        own = (await received(upstream, 1))[0]["id"]
        await upstream.ask(raw(f'{{"jsonrpc":"2.0","id":{own},"result":{{"late":true}}}}\n', then_done=True))
        assert (await first).result == {"late": True}


async def test_an_error_of_the_server_is_an_answer():
    async with stdio_upstream() as upstream:
        answer = await upstream.ask(
            raw('{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"no"}}\n')
        )
        assert answer == Answer(
            200, {"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "no"}}, None
        )


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":"$ID",' + RESULT + "}",
        '{"jsonrpc":"2.0","id":$ID.0,' + RESULT + "}",
        '{"jsonrpc":"2.0","id":true,' + RESULT + "}",
        '{"jsonrpc":"2.0","id":[$ID],' + RESULT + "}",
        '{"jsonrpc":"2.0","id":99,' + RESULT + "}",
        '{"jsonrpc":"2.0",' + RESULT + "}",
        '{"jsonrpc":"2.0","id":null,' + RESULT + "}",
        '{"jsonrpc":"2.0","method":"x","id":$ID,' + RESULT + "}",
        '{"id":$ID',
        "$ID",
        "[]",
    ],
)
async def test_what_is_no_answer_to_the_request_does_not_answer_it(line: str):
    async with stdio_upstream() as upstream:
        answer = await upstream.ask(raw(line + "\n", then_done=True))
        assert answer.result is not None
        assert answer.result["content"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('{"jsonrpc":"2.0","id":$ID}', "the response must hold either result or error"),
        (
            '{"jsonrpc":"2.0","id":$ID,"result":{},"error":{}}',
            "the response must hold either result or error",
        ),
        ('{"jsonrpc":"2.0","id":$ID,"result":[]}', "the result is not an object"),
        ('{"jsonrpc":"2.0","id":$ID,"result":null}', "the result is not an object"),
        ('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}', "the response has no id"),
        ('{"jsonrpc":"2.0","id":$ID,"result":{"a":NaN}}', "not a JSON-RPC response"),
        ('{"jsonrpc":"2.0","id":$ID,"result":{"a":' + "[" * 70 + "]" * 70 + "}}", "not a JSON-RPC response"),
        ('{"result":{"a":NaN},"id":$ID,"jsonrpc":"2.0"}', "not a JSON-RPC response"),
    ],
)
async def test_a_broken_answer_fails_its_request_at_once(line: str, cause: str):
    async with stdio_upstream() as upstream:
        error = await failure(upstream.ask(raw(line + "\n")))
        assert (error.kind, error.cause, error.reached, error.status) == (
            UpstreamFailure.BAD_REPLY,
            cause,
            True,
            None,
        )
        assert (await upstream.ask(call("echo"))).result is not None


async def test_equal_keys_are_refused_where_a_decision_depends_on_the_answer():
    line = '{"jsonrpc":"2.0","id":$ID,"result":{"a":1,"a":2}}\n'
    async with stdio_upstream() as upstream:
        assert (await upstream.ask(raw(line))).result == {"a": 2}
        error = await failure(upstream.ask(raw(line), exact=True))
        assert error.kind is UpstreamFailure.BAD_REPLY
        assert error.cause == "not a JSON-RPC response: an object has the same key twice"
        assert (await upstream.ask(raw(line.replace(',"a":2', "")), exact=True)).result == {"a": 1}
        error = await failure(upstream.ask(raw("[" + line.strip() + "]\n"), exact=True))
        assert error.kind is UpstreamFailure.BAD_REPLY


async def test_a_reply_to_be_read_later_keeps_the_bytes_of_the_result():
    result = '{"tools": [ ],"a":1,"a":2, "t":"\\u00e9"}'
    async with stdio_upstream() as upstream:
        request = raw(f'{{"jsonrpc":"2.0","id":$ID,"result":{result}}}\n', id_="x")
        reply = await upstream.send(request)
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert reply.body == b'{"jsonrpc":"2.0","id":"x","result":' + result.encode() + b"}"
        assert http.read(reply, request).result == {"tools": [], "a": 2, "t": "é"}
        with pytest.raises(UpstreamError, match="twice"):
            http.read(reply, request, exact=True)


async def test_any_other_reply_to_be_read_later_is_read_as_over_http():
    async with stdio_upstream() as upstream:
        request = raw('{"jsonrpc":"2.0","id":$ID,"more":1,"error":{"code":-1,"message":"no"}}\n')
        assert http.read(await upstream.send(request), request).message["error"] == {
            "code": -1,
            "message": "no",
        }
        request = raw('[{"jsonrpc":"2.0","id":$ID,"result":{"a":1}}]\n')
        assert http.read(await upstream.send(request), request).result == {"a": 1}
        error = await failure(upstream.send(raw('{"jsonrpc":"2.0","id":$ID,"error":{"code":1,"code":2}}\n')))
        assert error.kind is UpstreamFailure.BAD_REPLY


async def test_discovery_works_as_over_http():
    async with stdio_upstream("--banner") as upstream:
        request = outgoing("server/discover", {}, id_="d")
        result = http.read(await upstream.send(request), request).result
        assert result is not None
        assert result["supportedVersions"] == ["2026-07-28"]


async def test_a_grant_is_spent_before_anything_else_and_once():
    async with stdio_upstream() as upstream:
        granted = a_grant()
        calling = upstream.call(granted, call("echo"), exact=True, heard=Ear())
        with pytest.raises(RuntimeError):
            granted.spend()
        assert (await calling).result is not None
        with pytest.raises(RuntimeError):
            upstream.call(granted, call("echo"), exact=True)


async def test_it_is_an_upstream():
    async with stdio_upstream() as upstream:
        port: Upstream = upstream
        assert port.target("any") == port.target(None) == "stdio:fake"
        port.abandon("state")


# What is heard.


async def test_progress_goes_to_the_request_with_its_token_only():
    async with stdio_upstream() as upstream:
        ears = [Ear(), Ear(), Ear()]
        metas: list[dict[str, Any]] = [{"progressToken": "1"}, {"progressToken": 1}, {}]
        requests = [call("progress", {"steps": 3}, **meta) for meta in metas]
        calls = [
            upstream.call(a_grant(), request, exact=False, heard=ear)
            for request, ear in zip(requests, ears, strict=True)
        ]
        await asyncio.gather(*calls)
        for token, ear in (("1", ears[0]), (1, ears[1])):
            assert [notice["params"] for notice in ear.heard] == [
                {"progressToken": token, "progress": step} for step in (1, 2, 3)
            ]
        assert ears[2].heard == []


@pytest.mark.parametrize("token", ["true", "1.0", "[1]", "{}", "null", '"2"', "2"])
async def test_progress_with_another_token_reaches_nobody(token: str):
    line = f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}\n'
    async with stdio_upstream() as upstream:
        ear = Ear()
        await upstream.ask(raw(line, then_done=True, progressToken=1), heard=ear)
        assert ear.heard == []


async def test_nothing_is_heard_after_the_answer():
    notice = (
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}\n'
    )
    lines = f'{notice}{{"jsonrpc":"2.0","id":$ID,{RESULT}}}\n{notice}'
    async with stdio_upstream() as upstream:
        ear = Ear()
        await upstream.ask(raw(lines, progressToken="t"), heard=ear)
        await upstream.ask(call("echo"))
        assert len(ear.heard) == 1


LOG = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
LEVEL: dict[str, Any] = {"io.modelcontextprotocol/logLevel": "info"}


async def test_a_log_message_goes_to_the_only_request_that_asked_for_logs():
    async with stdio_upstream() as upstream:
        quiet, loud = Ear(), Ear()
        waiting = asyncio.ensure_future(upstream.ask(call("hang"), heard=quiet))
        await upstream.ask(raw(LOG, then_done=True, **LEVEL), heard=loud)
        await upstream.ask(raw(LOG, then_done=True), heard=quiet)
        await upstream.ask(raw(LOG, then_done=True, **LEVEL))
        assert [message["params"]["data"] for message in loud.heard] == ["x"]
        assert quiet.heard == []
        waiting.cancel()


async def test_a_log_message_among_two_that_asked_is_told_to_neither():
    async with stdio_upstream() as upstream:
        one, other = Ear(), Ear()
        waiting = asyncio.ensure_future(upstream.ask(call("hang", **LEVEL), heard=one))
        await received(upstream, 1)
        await upstream.ask(raw(LOG, then_done=True, **LEVEL), heard=other)
        assert one.heard == other.heard == []
        waiting.cancel()


async def test_requests_of_the_server_and_odd_notifications_are_dropped():
    said: list[str] = []
    lines = [
        '{"jsonrpc":"2.0","id":$ID,"method":"elicitation/create","params":{}}\n',
        '{"jsonrpc":"2.0","id":"x","method":"ping"}\n',
        '{"jsonrpc":"2.0","method":"notifications/progress"}\n',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}\n',
        '{"jsonrpc":"2.0","method":7,"params":{"_meta":7}}\n',
        '{"jsonrpc":"2.0","method":["x"],"params":{"_meta":{}}}\n',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":$ID}}\n',
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n',
        f'{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"{SUBSCRIPTION}":$ID}}}}}}\n',
    ]
    async with stdio_upstream(said=said) as upstream:
        ear = Ear()
        answer = await upstream.ask(raw(*lines, then_done=True, progressToken=1), heard=ear)
        assert answer.result is not None
        assert ear.heard == []
    assert said == ["the server sent a request of its own, which is not answered"]


# Deadlines and cancellation.


def cancelled(own: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": own}}


async def test_to_cancel_the_task_cancels_at_the_server_and_the_late_answer_is_dropped():
    async with stdio_upstream() as upstream:
        ear = Ear()
        waiting = asyncio.ensure_future(upstream.ask(call("hang", id_="x", progressToken="t"), heard=ear))
        own = (await received(upstream, 1))[0]["id"]
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await received(upstream, 2))[1] == cancelled(own)
        late = f'{{"jsonrpc":"2.0","id":{own},{RESULT}}}\n'
        notice = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}\n'
        assert (await upstream.ask(raw(notice, late, then_done=True))).result is not None
        assert ear.heard == []


async def test_a_request_that_was_answered_is_not_cancelled_at_the_server():
    async with stdio_upstream() as upstream:
        await upstream.ask(call("echo"))

        class Hasty(Ear):
            def notify(self, message: dict[str, object]) -> None:
                waiting.cancel()

        notice = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}\n'
        ear = Hasty()
        lines = f'{{"jsonrpc":"2.0","id":$ID,{RESULT}}}\n{notice}'
        waiting = asyncio.ensure_future(upstream.ask(raw(lines, progressToken="t"), heard=ear))
        await waiting
        assert [m["method"] for m in await received(upstream, 2)] == ["tools/call"] * 2


async def test_a_server_that_says_nothing_is_given_up_and_told():
    async with stdio_upstream(total_s=0.1) as upstream:
        error = await failure(upstream.ask(call("hang")))
        assert (error.kind, error.cause, error.reached) == (UpstreamFailure.UNREACHABLE, "TimeoutError", True)
        messages = await received(upstream, 2)
        assert messages[1] == cancelled(messages[0]["id"])


async def test_one_request_too_many_is_refused_unsent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airlock.gateway.upstream.stdio.MAX_IN_FLIGHT", 3)
    async with stdio_upstream() as upstream:
        waiting = [asyncio.ensure_future(upstream.ask(call("hang"))) for _ in range(3)]
        await asyncio.sleep(0)
        for _ in range(2):
            error = await failure(upstream.ask(call("echo")))
            assert (error.kind, error.reached) == (UpstreamFailure.UNREACHABLE, False)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert [m["params"]["name"] for m in await received(upstream, 2)] == ["hang", "hang"]
        again = asyncio.ensure_future(upstream.ask(call("hang")))
        await asyncio.sleep(0)
        assert not (await failure(upstream.ask(call("echo")))).reached
        for task in [*waiting, again]:
            task.cancel()
    assert inflight.MAX_IN_FLIGHT == 1024


# Subscriptions.


async def listening(upstream: StdioUpstream, ear: Heard, request: Outgoing) -> asyncio.Future[Answer]:
    return asyncio.ensure_future(upstream.listen(request, ear))


async def test_a_subscription_is_heard_under_the_askers_own_id():
    async with stdio_upstream(total_s=0.2) as upstream:
        ear = Ear()
        task = await listening(upstream, ear, outgoing("subscriptions/listen", LISTEN, id_="mine"))
        await ear.until(lambda: ear.heard)
        meta = f'"_meta":{{"{SUBSCRIPTION}":$LISTEN}}'
        await upstream.ask(
            raw(
                f'{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{meta}}}}}\n',
                f'{{"jsonrpc":"2.0","id":$LISTEN,"result":{{"resultType":"complete",{meta}}}}}\n',
                f'{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{meta}}}}}\n',
                then_done=True,
            )
        )
        answer = await task
        assert [message["method"] for message in ear.heard] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
        ]
        assert [message["params"]["_meta"] for message in ear.heard] == [{SUBSCRIPTION: "mine"}] * 2
        assert answer.message == {
            "jsonrpc": "2.0",
            "id": "mine",
            "result": {"resultType": "complete", "_meta": {SUBSCRIPTION: "mine"}},
        }


async def test_a_subscription_ends_in_order_when_the_server_cancels_it():
    async with stdio_upstream() as upstream:
        ear = Ear()
        task = await listening(upstream, ear, outgoing("subscriptions/listen", LISTEN, id_=42))
        await ear.until(lambda: ear.heard)
        end = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":$LISTEN}}\n'
        late = f'{{"jsonrpc":"2.0","id":$LISTEN,{RESULT}}}\n'
        await upstream.ask(raw(end, late, then_done=True))
        assert (await task).result == {"resultType": "complete", "_meta": {SUBSCRIPTION: 42}}


async def test_a_subscription_that_is_refused_or_ends_untagged_is_answered_too():
    async with stdio_upstream() as upstream:
        for end in ('"error":{"code":-32601,"message":"no"}', '"result":{"resultType":"complete"}'):
            ear = Ear()
            task = await listening(upstream, ear, outgoing("subscriptions/listen", LISTEN))
            await ear.until(partial(getattr, ear, "heard"))
            await upstream.ask(raw(f'{{"jsonrpc":"2.0","id":$LISTEN,{end}}}\n', then_done=True))
            assert (await task).message["id"] == 7


async def test_to_stop_listening_cancels_at_the_server():
    async with stdio_upstream() as upstream:
        ear = Ear()
        task = await listening(upstream, ear, outgoing("subscriptions/listen", LISTEN))
        await ear.until(lambda: ear.heard)
        task.cancel()
        await asyncio.wait({task})
        assert (await received(upstream, 2))[1] == cancelled(1)


async def test_a_log_message_never_goes_to_a_subscription():
    async with stdio_upstream() as upstream:
        ear = Ear()
        task = await listening(upstream, ear, outgoing("subscriptions/listen", LISTEN, **LEVEL))
        await ear.until(lambda: ear.heard)
        await upstream.ask(raw(LOG, then_done=True))
        assert len(ear.heard) == 1
        task.cancel()


# Garbage on stdout.


async def test_a_line_that_is_too_long_fails_the_request_whose_id_it_begins_with():
    async with stdio_upstream(max_line_bytes=10_000) as upstream:
        other = asyncio.ensure_future(upstream.ask(call("hang")))
        await received(upstream, 1)
        error = await failure(upstream.ask(call("big", {"bytes": 20_000})))
        assert (error.kind, error.cause, error.reached) == (
            UpstreamFailure.TOO_LARGE,
            "answer too large",
            True,
        )
        assert not other.done()
        assert (await upstream.ask(call("echo"))).result is not None
        error = await failure(
            asyncio.gather(
                other, upstream.ask(raw('{"result":"' + "x" * 12_000 + '","id":$ID}\n', then_done=True))
            )
        )
        assert (error.kind, other.done()) == (UpstreamFailure.TOO_LARGE, True)


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"' + "x" * 12_000 + '"}}',
        '{"jsonrpc":"2.0","id":98765,"result":{"data":"' + "x" * 12_000 + '"}}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":NaN}}',
    ],
)
async def test_broken_lines_that_answer_nothing_fail_nothing(line: str):
    async with stdio_upstream(max_line_bytes=10_000) as upstream:
        answer = await upstream.ask(raw(line + "\n", then_done=True))
        assert answer.result is not None


async def test_a_broken_line_among_several_requests_fails_none_of_them():
    async with stdio_upstream(max_line_bytes=10_000) as upstream:
        other = asyncio.ensure_future(upstream.ask(call("hang")))
        await received(upstream, 1)
        answer = await upstream.ask(raw('{"result":{"a":NaN},"id":$ID,"jsonrpc":"2.0"}\n', then_done=True))
        assert answer.result is not None
        await upstream.ask(raw('{"jsonrpc":"2.0","id":null,"error":{}}\n', then_done=True))
        assert not other.done()
        other.cancel()


async def test_what_the_server_gets_is_one_line_whatever_is_in_it():
    async with stdio_upstream() as upstream:
        text = 'a\nb\r\n\u2028"}\n{"jsonrpc":"2.0","id":5,"method":"tools/call"}'
        answer = await upstream.ask(call("echo", {"text": text}))
        assert answer.result is not None
        echo: Any = answer.result["echo"]
        assert echo["params"]["arguments"] == {"text": text}
        assert len(await seen(upstream)) == 1
        assert json.dumps(echo)

"""Several upstreams behind one port: who gets what, one list of all, and what happens when one is away."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airlock.core.action import Action
from airlock.core.decision import Allow, Tier
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant, by_policy
from airlock.core.rules import Rule
from airlock.gateway.upstream import gather, many
from airlock.gateway.upstream.gather import STALE_S
from airlock.gateway.upstream.many import ISOLATED, UNAVAILABLE, ManyUpstreams, MergedAnswer
from airlock.gateway.upstream.port import Answer, MergedReply, Outgoing
from tests.fakes.members import (
    ENVELOPE,
    LISTED,
    FakeMember,
    body_of,
    error,
    headers_of,
    listing,
    member,
    outgoing,
    result,
    unreachable,
)
from tests.fakes.world import StillClock

READ, CALL = "resources/read", "tools/call"


def tools(*names: Any, **more: Any):
    return listing("tools/list", *({"name": name} for name in names), **more)


class Setting:
    """Several fake servers and what stands before them."""

    def __init__(self, *fakes: FakeMember, prefixes: dict[str, str] | None = None, **limits: Any) -> None:
        self.clock = StillClock()
        self.said: list[str] = []
        self.fakes = {fake.name: fake for fake in fakes}
        members = {fake.name: member(fake, (prefixes or {}).get(fake.name), **limits) for fake in fakes}
        self.many = ManyUpstreams(members, self.clock, self.said.append)

    def reached(self) -> list[tuple[str, str]]:
        return [(name, sent.method) for name, fake in self.fakes.items() for sent in fake.sent]


def setting(**limits: Any) -> Setting:
    return Setting(FakeMember("git"), FakeMember("time"), FakeMember("bare"), prefixes={"bare": ""}, **limits)


def grant() -> Grant:
    return by_policy(Action("git__push", {}, "prod", ""), Allow(Rule.L0_READ, Tier.L0))


def code(answer: Answer) -> int:
    refusal: Any = answer.message["error"]
    found: int = refusal["code"]
    return found


def own(answer: Answer) -> dict[str, object]:
    assert isinstance(answer, MergedAnswer)
    return answer.own


def names(answer: Answer, key: str = "tools") -> list[str]:
    assert answer.result is not None
    items: Any = answer.result[key]
    return [item["name"] for item in items]


# Routing


async def test_a_call_goes_to_the_server_of_its_prefix_under_its_own_name():
    it = setting()
    answer = result({"content": [], "_meta": {"vendor": 1}})
    it.fakes["git"].scripts[CALL] = answer
    sent = outgoing(CALL, name="git__push", arguments={"x": 1}, requestState="s")
    spent = grant()
    got = await it.many.call(spent, sent, exact=True)
    assert got == answer(sent)
    assert it.reached() == [("git", CALL)]
    there = it.fakes["git"].sent[0]
    assert body_of(there)["params"] == {**sent.params, "name": "push"}
    assert headers_of(there) == {**headers_of(sent), "mcp-name": "push"}
    with pytest.raises(RuntimeError):
        spent.spend()


async def test_a_name_without_a_prefix_goes_to_the_server_without_one():
    it = setting()
    it.fakes["bare"].scripts[CALL] = result({"content": []})
    await it.many.call(grant(), outgoing(CALL, name="other__x"), exact=False)
    assert it.fakes["bare"].sent[0].params["name"] == "other__x"


@pytest.mark.parametrize(
    "name", ["nope__push", "git__", "push", "git__a\nb", "git__\ud800", "x" * 200, None, 3]
)
async def test_a_call_that_belongs_to_nobody_is_answered_here(name: Any):
    it = Setting(FakeMember("git"))
    unspent = grant()
    got = await it.many.call(unspent, outgoing(CALL, name=name), exact=False)
    assert (got.status, code(got), got.message["id"], it.reached()) == (400, -32602, 7, [])
    unspent.spend()


async def test_what_is_heard_before_an_answer_goes_to_the_asker():
    class Ear:
        def notify(self, message: dict[str, object]) -> None: ...

    it, ear = setting(), Ear()
    for method in (CALL, "prompts/get"):
        it.fakes["git"].scripts[method] = result({})
        await it.many.ask(outgoing(method, name="git__a"), heard=ear)
    assert it.fakes["git"].heard == [ear, ear]


async def test_prompts_and_completions_are_routed_by_prefix():
    it = setting()
    for method in ("prompts/get", "completion/complete"):
        it.fakes["time"].scripts[method] = result({})
    await it.many.ask(outgoing("prompts/get", name="time__now"))
    ref = {"type": "ref/prompt", "name": "time__now", "title": "x"}
    await it.many.ask(outgoing("completion/complete", ref=ref, argument={"name": "a", "value": "b"}))
    prompt, completion = it.fakes["time"].sent
    assert (prompt.params["name"], headers_of(prompt)["mcp-name"]) == ("now", "now")
    assert body_of(completion)["params"]["ref"] == {**ref, "name": "now"}
    assert "mcp-name" not in headers_of(completion)


@pytest.mark.parametrize(
    "ref", [None, "x", {}, {"type": "ref/prompt"}, {"type": "ref/other", "name": "git__x"},
            {"type": "ref/resource"}, {"type": "ref/prompt", "name": "nope__x"}],
)  # fmt: skip
async def test_a_reference_to_nothing_is_answered_here(ref: Any):
    it = Setting(FakeMember("git"))
    got = await it.many.ask(outgoing("completion/complete", ref=ref))
    assert (got.status, code(got), it.reached()) == (400, -32602, [])


@pytest.mark.parametrize("method", ["tasks/get", "ping", "initialize"])
async def test_other_methods_are_not_served(method: str):
    it = setting()
    got = await it.many.ask(outgoing(method))
    reply = await it.many.send(outgoing(method))
    assert (got.status, code(got), reply.status, it.reached()) == (404, -32601, 404, [])


async def test_an_unread_answer_is_that_of_the_server_or_ours():
    it = setting()
    it.fakes["git"].scripts["prompts/get"] = result({"messages": []})
    reply = await it.many.send(outgoing("prompts/get", name="git__a"))
    assert json.loads(reply.body)["result"]["messages"] == []
    reply = await it.many.send(outgoing("prompts/get", name="git__"))
    assert (reply.status, reply.content_type) == (400, "application/json")
    assert json.loads(reply.body)["error"]["code"] == -32602


async def test_whether_headers_are_compared_is_asked_of_the_server_a_name_belongs_to(monkeypatch):
    it = setting()
    assert not it.many.compares_headers("git__push")  # no server over HTTP
    assert not it.many.compares_headers("\ud800")

    class Asked(FakeMember):
        def compares_headers(self, name: str) -> bool:
            return name == "push"

    monkeypatch.setattr(many, "Negotiated", Asked)
    it = Setting(Asked("git"), FakeMember("time"))
    found = [it.many.compares_headers(name) for name in ("git__push", "git__pull", "time__push", "push")]
    assert found == [True, False, False, False]


async def test_the_target_is_that_of_the_server_a_name_belongs_to():
    it = Setting(FakeMember("git"), FakeMember("time"))
    assert it.many.target("git__push") == "git:push"
    assert it.many.target("time__git__push") == "time:git__push"
    assert (it.many.target("push"), it.many.target(None)) == ("", "")


async def test_a_forgotten_question_is_told_to_every_server():
    it = setting()
    it.many.abandon("state")
    assert [fake.abandoned for fake in it.fakes.values()] == [["state"]] * 3


# Resources


async def test_a_resource_is_read_where_it_was_listed():
    it = setting()
    it.fakes["git"].scripts["resources/list"] = listing("resources/list", {"uri": "a:1"})
    it.fakes["time"].scripts["resources/templates/list"] = listing(
        "resources/templates/list", {"uriTemplate": "t:{x}"}
    )
    for fake in it.fakes.values():
        fake.scripts[READ] = result({"contents": []})
    await it.many.ask(outgoing("resources/list"))
    await it.many.ask(outgoing("resources/templates/list"))
    for uri in ("a:1", "t:now"):
        sent = outgoing(READ, uri=uri, requestState="s")
        await it.many.ask(sent)
    await it.many.ask(outgoing("completion/complete", ref={"type": "ref/resource", "uri": "t:{x}"}))
    assert [sent.params.get("uri") for sent in it.fakes["git"].sent if sent.method == READ] == ["a:1"]
    assert it.fakes["time"].sent[-2].params["uri"] == "t:now"
    assert it.fakes["time"].sent[-1].method == "completion/complete"
    assert [method for _, method in it.reached()].count("resources/list") == 3


async def test_an_unknown_resource_is_looked_for_once_and_then_read():
    it = setting()
    it.fakes["git"].scripts |= {
        "resources/list": listing("resources/list", {"uri": "a:1"}),
        READ: result({"contents": []}),
    }
    got = await it.many.ask(outgoing(READ, uri="a:1", meta={"progressToken": 3}))
    assert got.result is not None
    looks = [sent for fake in it.fakes.values() for sent in fake.sent if sent.method != READ]
    assert len(looks) == 6
    for look in looks:
        assert body_of(look)["params"] == {"_meta": ENVELOPE}
        assert not {"mcp-name", "mcp-param-region"} & set(headers_of(look))


async def test_what_nobody_has_is_told_with_its_address_and_not_looked_for_each_time():
    it = setting()
    for _ in range(5):
        got = await it.many.ask(outgoing(READ, uri="no:where"))
        assert (got.status, code(got)) == (400, -32602)
        refusal: Any = got.message["error"]
        assert refusal["data"] == {"uri": "no:where"}
    assert len(it.reached()) == 6
    await asyncio.gather(*(it.many.ask(outgoing(READ, uri=f"no:{n}", principal="bob")) for n in range(5)))
    assert len(it.reached()) == 12
    it.clock.time += 2
    await it.many.ask(outgoing(READ, uri="no:where"))
    assert len(it.reached()) == 18


@pytest.mark.parametrize("uri", [None, 3, "", "a:\n", "x" * 9000, "a:\ud800"])
async def test_what_is_no_address_asks_nobody(uri: Any):
    it = setting()
    got = await it.many.ask(outgoing(READ, uri=uri))
    assert (got.status, code(got), it.reached()) == (400, -32602, [])


async def test_a_resource_that_two_servers_claim_is_read_from_neither():
    it = setting()
    for name in ("git", "time"):
        it.fakes[name].scripts |= {
            "resources/list": listing("resources/list", {"uri": "a:1"}),
            READ: result({}),
        }
    got = await it.many.ask(outgoing(READ, uri="a:1"))
    assert code(got) == -32602
    refusal: Any = got.message["error"]
    assert "git, time" in refusal["message"]
    assert all(method != READ for _, method in it.reached())


async def test_a_resource_beyond_what_is_remembered_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airlock.gateway.upstream.routes.MAX_URIS", 3)
    it = setting()
    it.fakes["git"].scripts |= {
        "resources/list": listing("resources/list", {"uri": "a:1"}, {"uri": "a:2"}),
        READ: result({"contents": []}),
    }
    assert (await it.many.ask(outgoing(READ, uri="a:1"))).result is not None


async def test_the_callers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(many, "_MAX_CALLERS", 2)
    it = Setting(FakeMember("git"))
    for n in range(5):
        await it.many.ask(outgoing(READ, uri="no:where", principal=f"p{n}"))
    assert len(it.many._refreshes) == 2


# Lists


async def test_one_list_of_all_has_one_page_for_the_caller_alone():
    it = setting()
    it.fakes["git"].scripts["tools/list"] = tools("push", "pull", ttlMs=900)
    it.fakes["time"].scripts["tools/list"] = tools("now", ttlMs=300)
    it.fakes["bare"].scripts["tools/list"] = tools("read")
    got = await it.many.ask(outgoing("tools/list"))
    assert names(got) == ["git__push", "git__pull", "time__now", "read"]
    assert got.result is not None
    assert {key: got.result.get(key) for key in ("ttlMs", "cacheScope", "nextCursor", "resultType")} == {
        "ttlMs": 300,
        "cacheScope": "private",
        "nextCursor": None,
        "resultType": "complete",
    }
    assert (got.status, got.message["id"], own(got)) == (200, 7, {})


@pytest.mark.parametrize("method", list(LISTED))
async def test_every_list_is_one_reply(method: str):
    it = setting()
    key = LISTED[method]
    reply = await it.many.send(outgoing(method))
    assert isinstance(reply, MergedReply)
    assert (reply.status, reply.content_type, reply.own) == (200, "application/json", {})
    assert json.loads(reply.body)["result"][key] == []
    assert json.loads(reply.body)["id"] == 7


async def test_bad_and_doubled_names_are_left_out_and_counted():
    it = setting()
    it.fakes["git"].scripts["tools/list"] = tools("push", "push", None, "ok")
    it.fakes["bare"].scripts["tools/list"] = tools("git__push", "read")
    reply = await it.many.send(outgoing("tools/list"))
    assert isinstance(reply, MergedReply)
    assert [tool["name"] for tool in json.loads(reply.body)["result"]["tools"]] == ["git__ok", "read"]
    assert reply.own == {ISOLATED: 4}


async def test_pages_are_followed_with_the_progress_token_left_out():
    it = Setting(FakeMember("git"), FakeMember("time"))
    pages = iter([tools("a", nextCursor=""), tools("b", nextCursor="2", ttlMs=5), tools("c")])
    it.fakes["git"].scripts["tools/list"] = lambda sent: next(pages)(sent)
    got = await it.many.ask(outgoing("tools/list", meta={"progressToken": 1}))
    assert names(got) == ["git__a", "git__b", "git__c"]
    assert got.result is not None
    assert got.result["ttlMs"] == 5
    assert [body_of(sent)["params"].get("cursor") for sent in it.fakes["git"].sent] == [None, "", "2"]
    assert all("progressToken" not in body_of(s)["params"]["_meta"] for s in it.fakes["git"].sent)


@pytest.mark.parametrize("cursor", ["", "2", 3])
async def test_a_cursor_is_not_ours(cursor: Any):
    it = setting()
    got = await it.many.ask(outgoing("tools/list", cursor=cursor))
    reply = await it.many.send(outgoing("tools/list", cursor=cursor))
    assert (got.status, code(got), reply.status, it.reached()) == (400, -32602, 400, [])
    assert names(await it.many.ask(outgoing("tools/list", cursor=None))) == []


async def test_one_that_is_down_does_not_take_the_list_down():
    it = setting()
    it.fakes["git"].scripts["tools/list"] = lambda _: unreachable()
    it.fakes["time"].scripts["tools/list"] = tools("now")
    got = await it.many.ask(outgoing("tools/list"))
    assert names(got) == ["time__now"]
    assert got.result is not None
    assert (own(got), got.result["ttlMs"]) == ({UNAVAILABLE: ["git"]}, 0)


async def test_the_last_good_list_stands_in_for_ten_minutes_for_the_same_caller():
    it = setting()
    git = it.fakes["git"]
    git.scripts["tools/list"] = tools("push", "bad", "bad")
    await it.many.ask(outgoing("tools/list"))
    git.scripts["tools/list"] = lambda _: unreachable()
    it.clock.time += STALE_S - 1
    got = await it.many.ask(outgoing("tools/list"))
    assert names(got) == ["git__push"]
    assert own(got) == {UNAVAILABLE: ["git"], ISOLATED: 2}
    assert names(await it.many.ask(outgoing("tools/list", principal="bob"))) == []
    assert names(await it.many.ask(outgoing("tools/list"), exact=True)) == []
    it.clock.time += 1
    got = await it.many.ask(outgoing("tools/list"))
    assert (names(got), own(got)) == ([], {UNAVAILABLE: ["git"]})


async def test_a_slow_one_is_left_out_and_let_alone_for_a_while():
    it = Setting(FakeMember("git"), FakeMember("time"), list_timeout_s=0.05)
    git = it.fakes["git"]
    git.scripts["tools/list"] = lambda _: asyncio.get_running_loop().create_future()
    for _ in range(3):
        got = await it.many.ask(outgoing("tools/list"))
        assert own(got) == {UNAVAILABLE: ["git"]}
    assert len(git.sent) == 1
    it.clock.time += 1
    await it.many.ask(outgoing("tools/list"))
    it.clock.time += 1
    await it.many.ask(outgoing("tools/list"))
    assert len(git.sent) == 2
    git.scripts |= {"tools/list": tools("push"), CALL: result({})}
    await it.many.call(grant(), outgoing(CALL, name="git__push"), exact=False)
    assert names(await it.many.ask(outgoing("tools/list"))) == ["git__push"]


async def test_only_when_all_fail_does_the_list_fail_as_the_first_did():
    it = Setting(FakeMember("git"), FakeMember("time"))
    it.fakes["git"].scripts["tools/list"] = lambda _: unreachable("first")
    it.fakes["time"].scripts["tools/list"] = lambda _: unreachable("second")
    for ask in (it.many.ask, it.many.send):
        with pytest.raises(UpstreamError) as failed:
            await ask(outgoing("tools/list"))
        assert failed.value.cause == "first"


@pytest.mark.parametrize(
    "script",
    [
        error(-32603),
        error(-32000, 500),
        result({}),
        result({"tools": {}}),
        result({"tools": [], "nextCursor": 3}),
        result({"tools": []}, status=500),
        listing("tools/list", nextCursor="again"),
    ],
)
async def test_what_is_no_list_counts_as_none(script: Any):
    it = setting()
    it.fakes["git"].scripts["tools/list"] = script
    assert own(await it.many.ask(outgoing("tools/list"))) == {UNAVAILABLE: ["git"]}
    assert it.many.health()[0].error in (UpstreamFailure.BAD_REPLY, UpstreamFailure.TOO_LARGE)
    assert it.many.health()[0].up
    assert len(it.fakes["git"].sent) <= gather.MAX_PAGES


async def test_a_list_without_end_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gather, "MAX_ITEMS", 3)
    it = setting()
    it.fakes["git"].scripts["tools/list"] = tools("a", "b", "c")
    assert own(await it.many.ask(outgoing("tools/list"))) == {}
    it.fakes["git"].scripts["tools/list"] = tools("a", "b", nextCursor="2")
    assert own(await it.many.ask(outgoing("tools/list"))) == {UNAVAILABLE: ["git"]}


async def test_a_server_without_the_method_is_not_missing():
    it = Setting(FakeMember("git"), FakeMember("time"))
    it.fakes["git"].scripts["prompts/list"] = error(-32601, 404)
    it.fakes["time"].scripts["prompts/list"] = listing("prompts/list", {"name": "now", "arguments": []})
    got = await it.many.ask(outgoing("prompts/list"))
    assert (names(got, "prompts"), own(got)) == (["time__now"], {})
    it.fakes["time"].scripts["prompts/list"] = error(-32601, 404)
    got = await it.many.ask(outgoing("prompts/list"))
    assert (got.status, code(got)) == (404, -32601)
    it.fakes["time"].scripts["prompts/list"] = lambda _: unreachable()
    got = await it.many.ask(outgoing("prompts/list"))
    assert (names(got, "prompts"), own(got)) == ([], {UNAVAILABLE: ["time"]})


async def test_the_description_is_that_of_all():
    it = Setting(FakeMember("git"), FakeMember("time"), FakeMember("off"))
    for name, text in (("git", "commit"), ("time", "ask")):
        it.fakes[name].scripts["server/discover"] = result(
            {"capabilities": {"tools": {"listChanged": name == "time"}}, "instructions": text, "ttlMs": 60}
        )
    it.fakes["off"].scripts["server/discover"] = lambda _: unreachable()
    reply = await it.many.send(outgoing("server/discover"))
    assert isinstance(reply, MergedReply)
    assert reply.own == {UNAVAILABLE: ["off"]}
    assert json.loads(reply.body)["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {"listChanged": True}},
        "instructions": "git: commit\n\ntime: ask",
        "ttlMs": 0,
        "cacheScope": "private",
    }
    it.fakes["git"].scripts["server/discover"] = lambda _: unreachable()
    reply = await it.many.send(outgoing("server/discover"))
    assert json.loads(reply.body)["result"]["instructions"] == "git: commit\n\ntime: ask"


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    it = Setting(FakeMember("git"))
    kept = it.many._gathering
    it.fakes["git"].scripts["tools/list"] = tools("push")
    monkeypatch.setattr(gather, "MAX_KEPT", 3)
    for n in (*range(5), 4):
        await it.many.ask(outgoing("tools/list", principal=f"p{n}"))
    assert len(kept._kept) == 3
    assert kept._bytes == sum(len(data) for _, data in kept._kept.values()) > 0
    monkeypatch.setattr(gather, "MAX_KEPT_BYTES", 20)
    await it.many.ask(outgoing("tools/list"))
    assert (len(kept._kept), kept._bytes) == (1, len(b'[{"name":"push"}]'))
    it.fakes["git"].scripts["tools/list"] = tools("a name longer than that")
    await it.many.ask(outgoing("tools/list"))
    assert (len(kept._kept), kept._bytes) == (0, 0)


async def test_lists_are_asked_for_all_at_once():
    it = Setting(FakeMember("git"), FakeMember("time"))
    both = asyncio.Barrier(2)

    def meeting(sent: Outgoing):
        async def answer():
            await both.wait()
            return tools("x")(sent)

        return answer()

    for fake in it.fakes.values():
        fake.scripts["tools/list"] = meeting
    async with asyncio.timeout(5):
        assert names(await it.many.ask(outgoing("tools/list"))) == ["git__x", "time__x"]


# Health and limits


async def test_down_and_up_are_said_once_each():
    it = setting()
    git = it.fakes["git"]
    start = it.clock.now()
    git.scripts[CALL] = lambda _: unreachable()
    it.clock.time += 5
    for _ in range(3):
        with pytest.raises(UpstreamError):
            await it.many.call(grant(), outgoing(CALL, name="git__a"), exact=False)
    health = it.many.health()
    assert [(one.name, one.up, one.since - start, one.error) for one in health] == [
        ("git", False, 5, UpstreamFailure.UNREACHABLE),
        ("time", True, 0, None),
        ("bare", True, 0, None),
    ]
    git.scripts[CALL] = result({})
    it.clock.time += 5
    for _ in range(3):
        await it.many.call(grant(), outgoing(CALL, name="git__a"), exact=False)
    assert (it.many.health()[0].up, it.many.health()[0].since - start) == (True, 10)
    assert it.said == ["upstream git: down (connection refused)", "upstream git: up again"]


async def test_a_bad_answer_is_no_absence():
    it = setting()
    it.fakes["git"].scripts[CALL] = lambda _: UpstreamError(UpstreamFailure.BAD_REPLY, "odd", reached=True)
    with pytest.raises(UpstreamError):
        await it.many.call(grant(), outgoing(CALL, name="git__a"), exact=False)
    assert (it.many.health()[0].up, it.many.health()[0].error) == (True, UpstreamFailure.BAD_REPLY)
    assert it.said == []


async def test_a_verdict_is_told_where_there_is_one():
    it = setting()
    it.fakes["git"].verdict = "legacy"  # type: ignore[attr-defined]
    assert [one.verdict for one in it.many.health()] == ["legacy", None, None]


async def test_too_many_calls_at_once_are_refused_before_anything_is_sent():
    it = setting(max_in_flight=2)
    git = it.fakes["git"]
    gone: list[asyncio.Future[Any]] = []

    def hang(_: Outgoing):
        gone.append(asyncio.get_running_loop().create_future())
        return gone[-1]

    git.scripts[CALL] = hang
    calls = [
        asyncio.ensure_future(it.many.call(grant(), outgoing(CALL, name="git__a"), exact=False))
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    assert it.many.health()[0].in_flight == 2
    unspent = grant()
    with pytest.raises(UpstreamError) as refused:
        await it.many.call(unspent, outgoing(CALL, name="git__a"), exact=False)
    assert (refused.value.cause, refused.value.reached) == ("too many calls in flight", False)
    unspent.spend()
    assert own(await it.many.ask(outgoing("tools/list"))) == {UNAVAILABLE: ["git"]}
    assert it.many.health()[0].up
    calls[0].cancel()
    await asyncio.wait(calls[:1])
    assert it.many.health()[0].in_flight == 1
    gone[1].set_exception(unreachable())
    with pytest.raises(UpstreamError):
        await calls[1]
    assert it.many.health()[0].in_flight == 0


async def test_closing_closes_all_and_says_nothing_more():
    it = setting()
    await it.many.close()
    assert all(fake.closed for fake in it.fakes.values())
    it.fakes["git"].scripts[CALL] = lambda _: unreachable("client closed")
    with pytest.raises(UpstreamError):
        await it.many.call(grant(), outgoing(CALL, name="git__a"), exact=False)
    assert it.said == []

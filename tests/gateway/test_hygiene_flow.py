"""Content hygiene in calls, reads and what is heard on the way, through the whole flows."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from airlock.core.policy.load import build
from airlock.gateway import flow, reading
from airlock.gateway.gate import Snapshot
from airlock.gateway.hygiene import Cleaner
from tests.fakes.upstream_port import ALICE, TRACE, FakeUpstream, error, request, result
from tests.fakes.world import POLICY, Got, World, raw, result_of, text_result

GITHUB = "gh" + "p_" + "x" * 36
DIRTY = f"say\u202e {GITHUB}"
CLEAN = "say[U+202E] [REDACTED:github_token]"
TOLD = {"invisible": 1, "secrets": 1, "kinds": ["bidi", "github_token"]}
SECTIONS: dict[str, Any] = {
    **POLICY,
    "resources": {"file:///**": {}},
    "prompts": {"p": {}},
    "hygiene": {"allow": [{"rule": "bidi", "reason": "shows them"}]},
}


class Clean(World):
    """A world in which hygiene is on."""

    def __init__(self, policy: dict[str, Any] | None = None, *, wide: bool = False) -> None:
        super().__init__(policy)
        built = build(json.loads(json.dumps(policy or POLICY)), "policy.yaml", None)
        self.gate.snapshot = Snapshot.of(built, wide=wide, hygiene=Cleaner)


async def test_a_result_is_cleaned_counted_and_recorded() -> None:
    world = Clean()
    world.client.script = text_result(DIRTY)
    got = await world.call("read")
    assert got.text == CLEAN
    assert got.ours["hygiene"] == TOLD
    assert world.last_pair[1]["detail"] == {"hygiene": TOLD, "suspicious": ["hidden_text"]}


async def test_without_hygiene_a_result_is_marked_only() -> None:
    world = World()
    world.client.script = text_result(DIRTY)
    got = await world.call("read")
    assert got.text == DIRTY
    assert "hygiene" not in got.ours


async def test_a_tool_that_exists_to_show_something_may() -> None:
    allow = {"hygiene": {"allow": [{"rule": "github_token", "reason": "it makes them"}]}}
    world = Clean({**POLICY, "tools": {**POLICY["tools"], "read": {**POLICY["tools"]["read"], **allow}}})
    world.client.script = text_result(DIRTY)
    assert (await world.call("read")).text == f"say[U+202E] {GITHUB}"


async def test_the_preview_that_a_person_and_a_model_see_is_clean() -> None:
    world = Clean()
    world.client.script = text_result(DIRTY)
    got = await world.call("drop", {"names": ["x"]})
    assert CLEAN in got.result["inputRequests"]["airlock-confirm"]["params"]["message"]
    assert got.ours["dry_run_preview"] == [{"type": "text", "text": CLEAN}]
    assert got.ours["hygiene"] == TOLD
    assert world.last_pair[1]["detail"] == {"hygiene": TOLD, "suspicious": ["hidden_text"]}


async def test_an_error_of_a_call_is_cleaned() -> None:
    world = Clean()
    world.client.script = lambda sent: raw(
        json.dumps(
            {"jsonrpc": "2.0", "id": sent.body["id"], "error": {"code": -32000, "message": DIRTY}}
        ).encode()
    )
    assert (await world.call("read")).message["error"]["message"] == CLEAN
    assert world.last_pair[1]["detail"] == {"hygiene": TOLD}


async def test_a_question_of_a_server_is_cleaned() -> None:
    world = Clean()
    asks = {"q": {"method": "elicitation/create", "params": {"message": DIRTY}}}
    world.client.script = result_of(
        {"resultType": "input_required", "inputRequests": asks, "requestState": "s"}
    )
    got = await world.call("read")
    assert got.result["inputRequests"]["q"]["params"]["message"] == CLEAN
    assert got.ours["hygiene"] == TOLD


class Ear:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[dict[str, object]] = []

    def notify(self, message: dict[str, object]) -> None:
        self.heard.append(message)


class Reads(Clean):
    """The same in front of a scripted port; the policy lets directional marks through."""

    def __init__(self) -> None:
        super().__init__(SECTIONS, wide=True)
        self.upstream = FakeUpstream()
        self.gate.upstream = self.upstream
        self.ear = Ear()

    async def read(self, method: str, params: dict[str, Any]) -> Got:
        asked = msgspec.structs.replace(request(method, params), heard=self.ear)
        answer = await reading.read(self.gate, asked, ALICE, TRACE)
        return Got(answer.status, answer.body, {})

    async def tell(self, heard: Any) -> None:
        heard.notify({"method": "notifications/message", "params": {"level": "info", "data": DIRTY}})


SAID = "say\u202e [REDACTED:github_token]"
READ_TOLD = {"invisible": 0, "secrets": 1, "kinds": ["github_token"]}


async def test_resources_prompts_and_their_lists_are_cleaned_by_the_rules_of_the_file() -> None:
    world = Reads()
    message = {"role": "user", "content": {"type": "text", "text": DIRTY}}
    for method, params, answer in (
        ("resources/read", {"uri": "file:///a"}, {"contents": [{"uri": "file:///a", "text": DIRTY}]}),
        ("prompts/get", {"name": "p"}, {"messages": [message]}),
        ("resources/list", {}, {"resources": [{"uri": "file:///a", "description": DIRTY}]}),
        ("prompts/list", {}, {"prompts": [{"name": "p", "description": DIRTY}]}),
    ):
        world.upstream.script = result(answer)
        got = await world.read(method, params)
        assert SAID in json.dumps(got.result, ensure_ascii=False)
        assert GITHUB not in got.raw.decode()
        assert got.ours["hygiene"] == READ_TOLD
        assert world.last_pair[1]["detail"]["hygiene"] == READ_TOLD


async def test_errors_and_questions_of_a_read_are_cleaned() -> None:
    world = Reads()
    world.upstream.script = error(-32000, message=DIRTY)
    got = await world.read("resources/read", {"uri": "file:///a"})
    assert got.message["error"]["message"] == SAID
    assert world.last_pair[1]["detail"] == {"hygiene": READ_TOLD}
    asks = {"q": {"method": "elicitation/create", "params": {"mode": "form", "message": DIRTY}}}
    world.upstream.script = result({"resultType": "input_required", "inputRequests": asks})
    got = await world.read("prompts/get", {"name": "p"})
    assert got.result["inputRequests"]["q"]["params"]["message"] == SAID
    assert world.last_pair[1]["detail"] == {"asks": ["elicitation/create"], "hygiene": READ_TOLD}


async def test_what_is_said_before_the_answer_is_cleaned_and_counted_with_it() -> None:
    world = Reads()

    async def before(_outgoing: object, heard: Any) -> None:
        await world.tell(heard)

    world.upstream.before = before
    world.upstream.script = result({"contents": []})
    got = await world.read("resources/read", {"uri": "file:///a"})
    asked = request("tools/call", {"name": "read"})
    world.upstream.script = result({"content": []})
    answer = await flow.tools_call(
        world.gate, msgspec.structs.replace(asked, name="read", heard=world.ear), ALICE, TRACE
    )
    assert [one["params"]["data"] for one in world.ear.heard] == [SAID, SAID]  # type: ignore[index]
    for shown in (got, Got(answer.status, answer.body, {})):
        assert shown.ours["hygiene"] == READ_TOLD

"""Confirmations through the whole app: a yes is bound to one call and used once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from airlock.core.approval import ticket
from airlock.core.errors import StoreUnavailable, UpstreamError, UpstreamFailure
from airlock.gateway.confirm import Settings
from tests.fakes.world import DRY, NO, OURS, TOOLS, YES, World, result_of, text_result

ARGS = {"names": ["x1"]}


async def asked(
    world: World, tool: str = "drop", arguments: dict[str, Any] | None = None, **more: Any
) -> str:
    got = await world.call(tool, ARGS if arguments is None else arguments, **more)
    assert got.result["resultType"] == "input_required", got.raw
    return got.state


def claims_of(world: World, state: str) -> ticket.Claims:
    opened = ticket.open_agent(world.gate.confirmations.keys, state)
    assert isinstance(opened, ticket.Claims)
    return opened


def minted(world: World, state: str, **changes: Any) -> str:
    claims = msgspec.structs.replace(claims_of(world, state), **changes)
    return ticket.mint(world.gate.confirmations.keys, claims)


async def test_a_prompt_shows_the_dry_run_and_carries_a_state() -> None:
    world = World()
    world.client.script = text_result("would drop x1")
    got = await world.call("drop", ARGS)
    assert world.client.sent[0].arguments == {"names": ["x1"], "dry_run": True}
    assert world.client.sent[0].headers["mcp-param-dry"] == "true"
    question = got.result["inputRequests"]["airlock-confirm"]
    assert question["method"] == "elicitation/create"
    message = question["params"]["message"]
    assert message.startswith(
        '[prod] drop: drop things (tier L2).\nArguments: {"names": ["x1"]}\nDry-run preview: would drop x1\n'
    )
    assert question["params"]["requestedSchema"]["required"] == ["confirm"]
    assert got.ours["idempotency_key"] in message
    assert (got.verdict, got.rule, got.ours["dry_run"]) == ("confirm", "tier.L2.confirm", True)
    assert got.ours["dry_run_preview"] == [{"type": "text", "text": "would drop x1"}]
    assert "isError" not in got.result
    assert "content" not in got.result
    assert got.state.startswith("al1.")


async def test_a_tool_without_dry_run_is_asked_without_anything_forwarded() -> None:
    world = World()
    got = await world.call("reboot", {"node": "n4"})
    assert world.client.sent == []
    assert "dry_run" not in got.ours
    assert "dry_run_preview" not in got.ours
    assert [record["phase"] for record in world.records] == ["intent", "outcome"]
    done = await world.yes("reboot", {"node": "n4"}, got.state)
    assert (done.rule, done.ours["dry_run"]) == ("tier.L2.confirmed", None)
    assert world.client.sent[0].arguments == {"node": "n4"}


async def test_a_yes_runs_the_call_for_real_once_and_a_replay_is_refused() -> None:
    world = World()
    state = await asked(world)
    done = await world.yes("drop", ARGS, state)
    assert (done.verdict, done.rule, done.ours["dry_run"]) == ("allow", "tier.L2.confirmed", False)
    sent = world.client.sent[-1]
    assert sent.arguments == {"names": ["x1"], "dry_run": False}
    assert sent.headers["mcp-param-dry"] == "false"
    assert "requestState" not in sent.params
    assert "inputResponses" not in sent.params
    before = len(world.client.sent)
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.replay"
    assert len(world.client.sent) == before


async def test_fifty_parallel_resumes_of_one_yes_run_it_exactly_once() -> None:
    world = World()
    state = await asked(world)

    async def slow(sent: Any) -> None:
        await asyncio.sleep(0)

    world.client.before = slow
    answers = await asyncio.gather(*(world.yes("drop", ARGS, state) for _ in range(50)))
    rules = sorted(answer.rule for answer in answers)
    assert rules == ["mrtr.replay"] * 49 + ["tier.L2.confirmed"]
    assert sum(sent.arguments.get("dry_run") is False for sent in world.client.sent) == 1


@pytest.mark.parametrize(
    "answer",
    [NO, {"airlock-confirm": {"action": "cancel"}}, {"airlock-confirm": {"action": "accept"}},
     {"airlock-confirm": {"action": "accept", "content": {"confirm": "true"}}},
     {"airlock-confirm": {"action": "accept", "content": {"confirm": 1}}}, {"airlock-confirm": None}, [], "yes", 7,
     {"airlock-confirm": [YES]}],
)  # fmt: skip
async def test_anything_but_a_yes_or_silence_declines_and_burns(answer: object) -> None:
    world = World()
    state = await asked(world)
    declined = await world.call("drop", ARGS, state=state, answer=answer)
    assert (declined.rule, declined.text) == ("mrtr.declined", "airlock: denied (mrtr.declined)")
    assert (await world.call("drop", ARGS, state=state, answer=answer)).rule == "mrtr.replay"
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.replay"
    assert len(world.client.sent) == 1


@pytest.mark.case("T04")
async def test_a_burned_key_polled_without_an_answer_is_a_replay() -> None:
    world = World()
    state = await asked(world)
    await world.yes("drop", ARGS, state)
    assert (await world.call("drop", ARGS, state=state)).rule == "mrtr.replay"


@pytest.mark.case("T05")
async def test_silence_where_nothing_can_be_waited_for_asks_again_with_a_fresh_state() -> None:
    world = World()
    first = await asked(world)
    again = await world.call("drop", ARGS, state=first)
    assert again.result["resultType"] == "input_required"
    assert again.state != first
    for sent in world.client.sent:
        assert "requestState" not in sent.params
    assert (await world.yes("drop", ARGS, first)).rule == "tier.L2.confirmed"
    assert (await world.yes("drop", ARGS, again.state)).rule == "tier.L2.confirmed"


@pytest.mark.case("T06")
@pytest.mark.parametrize("answer", [{}, {"someone-else": {"action": "decline"}}])
async def test_an_answer_to_somebody_elses_question_is_no_answer(answer: object) -> None:
    world = World()
    state = await asked(world)
    assert (await world.call("drop", ARGS, state=state, answer=answer)).rule == "tier.L2.confirm"
    assert (await world.yes("drop", ARGS, state)).rule == "tier.L2.confirmed"


@pytest.mark.case("T08")
@pytest.mark.parametrize("mode", [None, "oob", "later"])
async def test_a_ticket_without_a_known_mode_waits_for_the_link(mode: str | None) -> None:
    world = World()
    state = minted(world, await asked(world), m=mode)
    held = await world.yes("drop", ARGS, state)
    assert (held.verdict, held.rule, held.ours["status"]) == ("confirm", "mrtr.pending", "pending")
    assert held.state == state
    assert "ignored" in held.ours["message"]
    assert "ignored" in world.last_pair[1]["detail"]
    await world.store.approve(claims_of(world, state).k, world.clock.time + 600)
    assert (await world.call("drop", ARGS, state=state)).rule == "tier.L2.confirmed"


@pytest.mark.case("T08", "T11")
async def test_the_stricter_of_ticket_and_process_wins_and_a_decline_still_burns() -> None:
    world = World()
    state = await asked(world)
    settings = world.gate.confirmations
    world.gate.confirmations = Settings(settings.keys, "oob", notified=True)
    waiting = await world.call("drop", ARGS, state=state)
    assert (waiting.verdict, waiting.rule) == ("confirm", "mrtr.pending")
    assert "ignored" not in waiting.ours["message"]
    assert len(world.client.sent) == 1
    assert (await world.call("drop", ARGS, state=state, answer=NO)).rule == "mrtr.declined"
    assert (await world.call("drop", ARGS, state=state)).rule == "mrtr.replay"


@pytest.mark.case("T09")
async def test_an_edited_mode_breaks_the_signature_and_an_approve_token_is_no_state() -> None:
    world = World()
    state = await asked(world)
    keys = world.gate.confirmations.keys
    approver = ticket.approve_token(keys, claims_of(world, state))
    assert (
        await world.yes("drop", ARGS, "al1." + approver.removeprefix("al2."))
    ).rule == "mrtr.bad_signature"
    head, claims, signature = state.split(".")
    other = minted(world, state, m="oob").split(".")[1]
    assert (await world.yes("drop", ARGS, f"{head}.{other}.{signature}")).rule == "mrtr.bad_signature"
    assert claims != other
    # with the al2 prefix it is not ours at all: a plain call, asked anew
    assert (await world.yes("drop", ARGS, approver)).rule == "tier.L2.confirm"


@pytest.mark.case("T10")
async def test_a_yes_that_comes_with_dry_run_true_runs_a_dry_run_and_stays_unused() -> None:
    world = World()
    state = await asked(world)
    dry = await world.yes("drop", {**ARGS, "dry_run": True}, state)
    assert (dry.rule, dry.ours["dry_run"]) == ("tier.L2.dry_run", True)
    assert world.client.sent[-1].arguments["dry_run"] is True
    assert (await world.yes("drop", ARGS, state)).rule == "tier.L2.confirmed"


async def test_every_bound_field_is_checked() -> None:
    world = World()
    state = await asked(world)
    assert (await world.yes("drop", {"names": ["x2"]}, state)).rule == "mrtr.mismatch"
    assert (await world.yes("reboot", ARGS, state)).rule == "mrtr.mismatch"
    assert (await world.yes("drop", ARGS, state, principal="bob")).rule == "mrtr.mismatch"
    for field, value in {"e": "dev", "u": "http://other/mcp", "p": "bob", "t": "x", "h": "0" * 64}.items():
        assert (await world.yes("drop", ARGS, minted(world, state, **{field: value}))).rule == "mrtr.mismatch"
    assert (
        await world.yes("drop", ARGS, minted(world, state, exp=world.clock.time - 1))
    ).rule == "mrtr.expired"
    world.clock.time += 601
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.expired"
    assert all(sent.arguments.get("dry_run") is True for sent in world.client.sent)


@pytest.mark.parametrize("state", ["al1.", "al1..", "al1.e30.AA", "al1.e30", "al1.\x00", "al1." + "A" * 5000])
async def test_a_malformed_state_is_a_bad_signature(state: str) -> None:
    world = World()
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.bad_signature"
    assert world.client.sent == []
    assert world.last_pair[0]["tier"] == "L2"


@pytest.mark.parametrize("state", ["other.state", 5, None, {"a": 1}])
async def test_a_state_that_is_not_ours_is_the_upstreams_own(state: Any) -> None:
    world = World()
    got = await world.call("read", {}, state=state, answer={"their-question": {"action": "accept"}})
    assert got.rule == "tier.L0.read"
    assert world.client.sent[0].params["requestState"] == state
    assert world.client.sent[0].params["inputResponses"] == {"their-question": {"action": "accept"}}


async def test_policy_is_asked_again_when_the_yes_comes_back() -> None:
    world = World()
    state = await asked(world)
    world.gate.snapshot = World({"environment": "prod", "tools": {}}).gate.snapshot
    assert (await world.yes("drop", ARGS, state)).rule == "allowlist.deny"


async def test_a_yes_that_meets_a_looser_tier_is_used_up_all_the_same() -> None:
    world = World()
    state = await asked(world)
    loose = {"environment": "prod", "tools": {"drop": {"tiers": {"prod": "L3"}}}}
    world.gate.snapshot = World(loose).gate.snapshot
    assert (await world.yes("drop", ARGS, state)).rule == "tier.L3.auto"
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.replay"


@pytest.mark.case("T23", "T24")
async def test_a_preview_over_the_cap_still_prompts_and_says_nothing_was_executed() -> None:
    world = World()
    world.client.script = result_of(
        {"content": [{"type": "text", "text": "line\n" * 4000}], "structuredContent": {"a": "b" * 9000}}
    )
    got = await world.call("drop", ARGS)
    assert got.result["resultType"] == "input_required"
    assert got.ours["output"]["truncated"] is True
    assert "nothing was executed" in got.ours["dry_run_preview"][-1]["text"]
    assert world.last_pair[1]["detail"]["truncated"] is True


@pytest.mark.case("T23")
async def test_only_the_upstreams_own_error_skips_the_prompt() -> None:
    world = World()
    world.client.script = result_of({"content": [{"type": "text", "text": "no such thing"}], "isError": True})
    got = await world.call("drop", ARGS)
    assert (got.verdict, got.rule, got.result["isError"]) == ("confirm", "tier.L2.confirm", True)
    assert "no_prompt" in world.last_pair[1]["detail"]
    world.client.script = lambda sent: result_of({"content": []}, 500)(sent)
    assert "requestState" not in (await world.call("drop", ARGS)).result


async def test_an_error_reply_behind_l2_is_a_failed_dry_run() -> None:
    world = World()
    from tests.fakes.world import raw

    world.client.script = lambda sent: raw(
        json.dumps({"jsonrpc": "2.0", "id": sent.body["id"], "error": {"code": -1, "message": "no"}}).encode()
    )
    got = await world.call("drop", ARGS)
    assert got.message["error"] == {"code": -1, "message": "no"}
    assert "no_prompt" in world.last_pair[1]["detail"]


async def test_a_gated_tool_that_asks_back_is_refused_and_an_ungated_one_passes() -> None:
    world = World()
    question = {"resultType": "input_required", "inputRequests": {"q": {}}, "requestState": "theirs"}
    world.client.script = result_of(question)
    got = await world.call("drop", ARGS)
    assert got.rule == "mrtr.upstream_input_required"
    assert world.last_pair[0]["rule_id"] == "tier.L2.confirm"
    assert world.last_pair[1]["rule_id"] == "mrtr.upstream_input_required"
    state = (await world.call("reboot", {})).state
    assert (await world.yes("reboot", {}, state)).rule == "mrtr.upstream_input_required"
    passed = await world.call("push", {})
    assert (passed.result["requestState"], passed.rule) == ("theirs", "tier.L3.auto")


@pytest.mark.case("T25")
async def test_an_unreachable_upstream_after_the_yes_refunds_but_spends_the_yes() -> None:
    world = World()
    state = await asked(world)
    down = UpstreamError(UpstreamFailure.UNREACHABLE, "ConnectionRefusedError", reached=False)
    world.client.script = lambda sent: down
    got = await world.yes("drop", ARGS, state)
    assert (got.verdict, got.rule) == ("error", "upstream.unreachable")
    assert "nothing reached the upstream" in got.text
    assert "without requestState" in got.text
    assert await world.store.used("alice", "drop", 0) == 0
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.replay"


@pytest.mark.case("T61")
@pytest.mark.parametrize("tool", ["suggest", "drop"])
async def test_a_catalog_that_fails_fails_closed_and_its_text_is_scrubbed_then_cut(tool: str) -> None:
    world = World()
    secret = "gh" + "p_" + "a" * 36
    said = "x" * 250 + " " + secret  # stands across the cut

    def broken(sent: Any) -> Any:
        from tests.fakes.world import raw

        message = {"jsonrpc": "2.0", "id": sent.body["id"], "error": {"code": -1, "message": said}}
        return raw(json.dumps(message).encode())

    world.client.catalog = broken
    got = await world.call(tool, {})
    assert got.rule == "catalog.unavailable"
    assert secret[:8] not in got.text
    assert secret[:8] not in world.last_pair[1]["detail"]
    assert "[REDACTED]" in got.text
    assert len(world.last_pair[1]["detail"]) <= 300
    assert world.client.sent == []


@pytest.mark.case("T71")
async def test_where_is_judged_before_the_catalog_and_nobody_is_asked() -> None:
    world = World()
    world.client.catalog = lambda sent: UpstreamError(UpstreamFailure.UNREACHABLE, "down", reached=False)
    got = await world.call("drop", {"region": "south"})
    assert got.rule == "args.violation"
    assert world.client.listed == []
    state = await asked(World())
    assert (await world.yes("drop", {"region": "south"}, state)).rule in {
        "mrtr.bad_signature",
        "mrtr.mismatch",
    }


@pytest.mark.case("T38")
async def test_a_store_that_does_not_answer_denies_by_name() -> None:
    world = World()
    state = await asked(world)
    await world.store.close()
    got = await world.yes("drop", ARGS, state)
    assert (got.verdict, got.rule) == ("deny", "store.unavailable")
    assert world.last_pair[1]["rule_id"] == "store.unavailable"
    assert len([line for line in world.logged if "store" in line]) == 1
    assert (await world.call("read", {})).rule == "tier.L0.read"
    assert (await world.call("suggest", {})).rule == "tier.L1.dry_run"
    assert (await world.rpc("tools/list")).status == 200


@pytest.mark.case("T38")
async def test_a_store_that_complains_is_an_internal_error() -> None:
    world = World()

    async def complain(*_: object) -> bool:
        raise ValueError("no such column: secret=" + "sk-" + "a" * 20)

    world.gate.store.reserve = complain  # type: ignore[assignment, method-assign]
    got = await world.call("scale", {"names": ["a"]})
    assert (got.status, got.code) == (500, -32603)
    assert "column" not in got.raw.decode()
    outcome = world.last_pair[1]
    assert (outcome["verdict"], outcome["rule_id"]) == ("error", "internal.error")
    assert "a" * 20 not in json.dumps(outcome)
    assert world.client.sent == []


async def test_a_lost_race_for_the_window_spends_the_yes() -> None:
    world = World()
    state = await asked(world)

    async def full(*_: object) -> bool:
        return False

    world.gate.store.reserve = full  # type: ignore[assignment, method-assign]
    refused = await world.yes("drop", ARGS, state)
    assert refused.rule == "blast_radius.per_principal"
    assert "start again without requestState" in refused.text
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.replay"
    assert all(sent.arguments.get("dry_run") is True for sent in world.client.sent)


async def test_a_store_that_fails_between_burn_and_charge_spends_the_yes() -> None:
    world = World()
    state = await asked(world)

    async def gone(*_: object) -> bool:
        raise StoreUnavailable("no answer")

    real = world.gate.store.reserve
    world.gate.store.reserve = gone  # type: ignore[assignment, method-assign]
    refused = await world.yes("drop", ARGS, state)
    assert refused.rule == "store.unavailable"
    assert "start again without requestState" in refused.text
    assert world.last_pair[1]["tier"] == "L2"
    world.gate.store.reserve = real  # type: ignore[method-assign]
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.replay"


async def test_a_value_hidden_by_its_key_is_hidden_in_the_preview_too() -> None:
    world = World()
    hidden = "correct-horse-battery"
    world.client.script = text_result(f"would log in with {hidden}")
    got = await world.call("drop", {**ARGS, "password": hidden})
    assert hidden not in got.raw.decode()
    assert hidden.encode() not in b"".join(world.sink.lines)
    assert world.client.sent[0].arguments["password"] == hidden


async def test_a_tool_listed_twice_counts_as_dry_run_only_if_both_say_so() -> None:
    world = World()
    twice = [*TOOLS, {"name": "suggest", "inputSchema": {}}]
    world.client.catalog = result_of({"tools": twice})
    assert (await world.call("suggest", {})).rule == "dry_run.unsupported"
    world.client.catalog = result_of({"tools": [*TOOLS, {"name": "suggest", "inputSchema": DRY}]})
    assert (await world.call("suggest", {})).rule == "tier.L1.dry_run"


async def test_our_keys_in_a_preview_are_stripped_and_the_upstreams_own_carried() -> None:
    world = World()
    world.client.script = result_of(
        {"content": [{"type": "text", "text": "ok", "_meta": {OURS + "x": 1, "v/k": 2}}],
         "_meta": {OURS + "verdict": "allow", "v/own": 3}}
    )  # fmt: skip
    got = await world.call("drop", ARGS)
    assert got.result["_meta"]["v/own"] == 3
    assert got.verdict == "confirm"
    assert got.ours["dry_run_preview"] == [{"type": "text", "text": "ok", "_meta": {"v/k": 2}}]


@pytest.mark.parametrize("value", [{"node": "ALL"}, "true", 1, None, [True]])
async def test_a_dry_run_that_nobody_declared_carries_nothing_past_the_person(value: object) -> None:
    world = World()
    state = (await world.call("reboot", {"node": "n4"})).state
    got = await world.yes("reboot", {"node": "n4", "dry_run": value}, state)
    assert got.rule == "dry_run.unsupported"
    assert world.client.sent == []
    assert (await world.yes("reboot", {"node": "n4", "dry_run": False}, state)).rule == "tier.L2.confirmed"


async def test_a_yes_is_judged_again_by_the_clock_of_its_use() -> None:
    world = World()
    state = await asked(world)

    async def slowly(sent: Any) -> None:
        world.clock.time += 601

    world.client.before = slowly  # the catalog takes longer than the ticket lasts
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.expired"
    assert len(world.client.sent) == 1


async def test_secrets_that_the_preview_hides_are_hidden_in_marks_and_embedded_resources_too() -> None:
    world = World()
    hidden = "hunter2" + "xyz"
    text = f"\u200bnew password {hidden}"
    world.client.script = result_of({"content": [
        {"type": "text", "text": text}, {"type": "resource", "resource": {"uri": "x:y", "text": text}}, "junk",
    ]})  # fmt: skip
    got = await world.call("drop", {**ARGS, "password": hidden})
    assert got.ours["suspicious"]
    assert hidden not in got.raw.decode()
    assert len(got.ours["dry_run_preview"]) == 2


async def test_one_reading_of_the_arguments_serves_every_block_of_a_preview(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airlock.core.redact import values

    world = World()
    read: list[object] = []

    def counted(arguments: object) -> tuple[str, ...]:
        read.append(arguments)
        return values.masked_by_key(arguments)

    monkeypatch.setattr("airlock.core.approval.prompt.masked_by_key", counted)
    world.client.script = result_of({"content": [{"type": "text", "text": "x"}] * 50})
    await world.call("drop", {**ARGS, "password": "long-enough"})
    assert len(read) == 2  # once for the blocks, once for the prompt


@pytest.mark.parametrize("where", ["catalog", "upstream", "reserve"])
async def test_a_cancelled_call_leaves_an_outcome_whenever_it_is_cancelled(where: str) -> None:
    world = World()
    state = await asked(world)
    before = len(world.records)
    stuck = asyncio.Event()

    async def hang(*_: object) -> bool:
        stuck.set()
        await asyncio.Event().wait()
        return True

    async def hang_at(sent: Any) -> None:
        if (sent.body["method"] == "tools/list") == (where == "catalog"):
            await hang()

    if where == "reserve":
        world.gate.store.reserve = hang  # type: ignore[assignment, method-assign]
    else:
        world.client.before = hang_at
    call = asyncio.create_task(world.yes("drop", ARGS, state))
    await stuck.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(world.records) == before + 2
    intent, outcome = world.last_pair
    assert (outcome["verdict"], outcome["rule_id"]) == ("error", "call.cancelled")
    sent = where == "upstream"
    assert ("effect is unknown" if sent else "nothing was sent") in outcome["detail"]
    assert intent["call_id"] == outcome["call_id"]

"""Confirmations by the link: the whole app, the approve page, and a chat service that receives the messages."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airlock.core.approval import ticket
from airlock.core.approval.prompt import instruction
from airlock.core.secret import Secret
from airlock.edge.stores.memory import MemoryStore
from airlock.gateway.approvalsettings import ApprovalSettings
from airlock.gateway.approve import PREFIX
from airlock.gateway.confirm import Settings
from airlock.gateway.outofband import Approvers, open_notifier
from tests.fakes.webhook import Message, Receiver
from tests.fakes.world import NO, YES, Got, World, text_result

ARGS = {"names": ["x1"]}
PUBLIC = "https://gate.example"


class Named:
    def __init__(self, name: str | None, source: str | None) -> None:
        self.name = name
        self.source = source


class Outside:
    """A world whose prompts go out by webhook."""

    def __init__(self, chat: Receiver, mode: str, *, telegram: bool) -> None:
        self.chat = chat
        self.world = world = World(mode=mode, notified=True)
        gate = world.gate
        self.keys = gate.confirmations.keys
        url = Secret(chat.telegram_url if telegram else chat.slack_url)
        notifier = open_notifier(ApprovalSettings(mode, url, chat.chat, PUBLIC), gate.log.warning)
        assert notifier is not None
        self.approvers = Approvers(self.keys, world.store, notifier, PUBLIC, gate.log)
        gate.approvers = self.approvers

    async def ask(self, tool: str = "drop", arguments: dict[str, Any] | None = None, **more: Any) -> Got:
        """A first call: the agent gets the question, the approvers their message."""
        return await self.world.call(tool, ARGS if arguments is None else arguments, **more)

    async def poll(
        self, state: str, tool: str = "drop", arguments: dict[str, Any] | None = None, **more: Any
    ) -> Got:
        return await self.world.call(tool, ARGS if arguments is None else arguments, state=state, **more)

    async def message(self, number: int = 1) -> Message:
        """The newest of that many messages."""
        return (await asyncio.to_thread(self.chat.wait, number))[-1]

    async def open(self, message: Message, method: str = "GET") -> Got:
        assert message.link.startswith(f"{PUBLIC}{PREFIX}")
        return await self.world.http(b"", [(b"x-forwarded-user", b"carol")], method=method,
                                     path=message.link.removeprefix(PUBLIC))  # fmt: skip

    async def press(self, message: Message) -> Got:
        return await self.open(message, "POST")

    @property
    def executed(self) -> int:
        """How often the upstream was asked for the real thing."""
        return sum(sent.arguments.get("dry_run") is not True for sent in self.world.client.sent)


@asynccontextmanager
async def outside(mode: str = "oob", *, telegram: bool = False) -> AsyncIterator[Outside]:
    with Receiver() as chat:
        made = Outside(chat, mode, telegram=telegram)
        yield made
        await made.approvers.close()


def text_of(page: Got) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", page.raw.decode()))


@pytest.mark.parametrize("telegram", [False, True])
async def test_a_call_waits_for_the_link_and_then_runs_once(telegram: bool) -> None:
    async with outside(telegram=telegram) as out:
        out.world.client.script = text_result("would drop x1")
        asked = await out.ask()
        waiting = await out.poll(asked.state)
        assert (waiting.verdict, waiting.rule) == ("confirm", "mrtr.pending")
        message = await out.message()
        page = await out.open(message)
        assert 'Arguments: {"names": ["x1"]}\nDry-run preview: would drop x1' in text_of(page)
        assert (await out.poll(asked.state)).rule == "mrtr.pending"
        assert (await out.press(message)).status == 200
        assert out.executed == 0
        done = await out.poll(asked.state)
        assert (done.verdict, done.rule, done.ours["dry_run"]) == ("allow", "tier.L2.confirmed", False)
        assert (await out.poll(asked.state)).rule == "mrtr.replay"
        assert out.executed == 1


async def test_a_call_that_waits_gets_its_own_state_back_and_nothing_else() -> None:
    async with outside() as out:
        asked = await out.ask()
        before = len(out.world.client.sent)
        waiting = await out.poll(asked.state)
        assert waiting.status == 200
        assert set(waiting.result) == {"resultType", "requestState", "_meta"}
        assert waiting.result["resultType"] == "input_required"
        assert waiting.state == asked.state
        assert set(waiting.ours) == {"status", "idempotency_key", "message", "verdict", "rule_id"}
        assert waiting.ours["status"] == "pending"
        assert waiting.ours["idempotency_key"] == asked.ours["idempotency_key"]
        intent, outcome = out.world.last_pair
        assert (intent["rule_id"], outcome["rule_id"]) == ("mrtr.pending", "mrtr.pending")
        assert (intent["verdict"], intent["detail"]) == ("confirm", None)
        assert len(out.world.client.sent) == before
        await out.approvers.close()
        assert len(out.chat.taken) == 1


@pytest.mark.case("T07")
async def test_where_only_the_link_approves_an_accept_is_ignored_and_told_so() -> None:
    async with outside() as out:
        asked = await out.ask()
        got = await out.world.yes("drop", ARGS, asked.state)
        assert got.rule == "mrtr.pending"
        assert got.state == asked.state
        assert "ignored" in got.ours["message"]
        assert "ignored" in out.world.last_pair[1]["detail"]
        assert out.executed == 0
        # The link still approves, and then the same accept runs it.
        await out.press(await out.message())
        assert (await out.world.yes("drop", ARGS, asked.state)).rule == "tier.L2.confirmed"
        assert out.executed == 1


@pytest.mark.case("T07")
@pytest.mark.case("T12")
async def test_where_only_the_link_approves_a_decline_still_ends_the_matter() -> None:
    async with outside() as out:
        asked = await out.ask()
        assert (await out.poll(asked.state, answer=NO)).rule == "mrtr.declined"
        message = await out.message()
        before = len(out.world.records)
        assert (await out.press(message)).status == 409
        assert b"<button" not in (await out.open(message)).raw
        assert len(out.world.records) == before
        assert (await out.poll(asked.state)).rule == "mrtr.replay"
        assert (await out.poll(asked.state, answer=NO)).rule == "mrtr.replay"
        assert out.executed == 0


@pytest.mark.case("T12")
async def test_a_link_is_over_once_the_call_has_run() -> None:
    async with outside() as out:
        asked = await out.ask()
        message = await out.message()
        await out.press(message)
        records = len(out.world.records)
        assert (await out.press(message)).status == 200
        assert len(out.world.records) == records
        await out.poll(asked.state)
        records = len(out.world.records)
        assert (await out.press(message)).status == 409
        assert len(out.world.records) == records
        assert out.executed == 1


async def test_a_decline_after_the_approval_wins() -> None:
    async with outside() as out:
        asked = await out.ask()
        await out.press(await out.message())
        assert (await out.poll(asked.state, answer=NO)).rule == "mrtr.declined"
        assert (await out.poll(asked.state)).rule == "mrtr.replay"
        assert out.executed == 0


async def test_with_an_inband_mode_and_a_webhook_either_side_approves() -> None:
    async with outside("inband") as out:
        first, second = await out.ask(), await out.ask()
        assert (await out.poll(first.state)).rule == "mrtr.pending"
        assert (await out.world.yes("drop", ARGS, first.state)).rule == "tier.L2.confirmed"
        messages = await asyncio.to_thread(out.chat.wait, 2)
        message = next(m for m in messages if second.ours["idempotency_key"] in m.text)
        await out.press(message)
        assert (await out.poll(second.state)).rule == "tier.L2.confirmed"


@pytest.mark.case("T08")
@pytest.mark.parametrize(("made", "checked"), [("oob", "inband"), ("inband", "oob")])
async def test_the_stricter_of_ticket_and_replica_wins(made: str, checked: str) -> None:
    async with outside(made) as out:
        asked = await out.ask()
        out.world.gate.confirmations = Settings(out.keys, checked, True)
        assert (await out.world.yes("drop", ARGS, asked.state)).rule == "mrtr.pending"
        await out.press(await out.message())
        assert (await out.poll(asked.state)).rule == "tier.L2.confirmed"


async def test_the_approval_is_recorded_under_the_one_who_asked() -> None:
    async with outside() as out:
        asked = await out.ask()
        await out.press(await out.message())
        intent, outcome = out.world.last_pair
        for record in (intent, outcome):
            assert (record["principal"], record["method"], record["tool"]) == ("alice", "approve", "drop")
            assert (record["verdict"], record["rule_id"]) == ("allow", "mrtr.approved_oob")
            assert (record["args"], record["trace_id"], record["tier"]) == (None, None, None)
            assert record["detail"] == {
                "key": asked.ours["idempotency_key"],
                "approved_by": "carol",
                "approved_by_source": "header",
            }


async def test_an_approval_is_for_this_call_of_this_principal_only() -> None:
    async with outside() as out:
        asked = await out.ask()
        await out.press(await out.message())
        assert (await out.poll(asked.state, arguments={"names": ["x2"]})).rule == "mrtr.mismatch"
        assert (await out.poll(asked.state, tool="reboot")).rule == "mrtr.mismatch"
        assert (await out.poll(asked.state, principal="bob")).rule == "mrtr.mismatch"
        assert (await out.ask()).rule == "tier.L2.confirm"
        assert out.executed == 0


async def test_an_approval_ends_with_its_ticket() -> None:
    async with outside() as out:
        asked = await out.ask()
        message = await out.message()
        await out.press(message)
        out.world.clock.time += ticket.LIFETIME_S
        assert (await out.poll(asked.state)).rule == "mrtr.expired"
        assert (await out.open(message)).status == 400
        assert (await out.press(message)).status == 400
        assert out.executed == 0


class Replica(MemoryStore):
    """A store whose every answer is a moment away, as over a network."""

    async def approved(self, key: str, now: float) -> bool:
        found = await super().approved(key, now)
        await asyncio.sleep(0)
        return found

    async def burned(self, key: str) -> bool:
        found = await super().burned(key)
        await asyncio.sleep(0)
        return found


@pytest.mark.case("T78")
async def test_two_presses_at_the_same_instant_are_still_one_execution() -> None:
    async with outside() as out:
        asked = await out.ask()
        message = await out.message()
        far = Replica(out.world.clock)
        out.world.gate.store = far
        out.world.app._page._store = far
        pressed = await asyncio.gather(out.press(message), out.press(message))
        assert [page.status for page in pressed] == [200, 200]
        recorded = [r for r in out.world.records if r["method"] == "approve"]
        assert len(recorded) == 4
        polled = await asyncio.gather(*(out.poll(asked.state) for _ in range(10)))
        rules = sorted(got.rule for got in polled)
        assert rules == ["mrtr.replay"] * 9 + ["tier.L2.confirmed"]
        assert out.executed == 1


@pytest.mark.case("T68")
async def test_whoever_has_the_message_can_read_the_page() -> None:
    async with outside() as out:
        kept: list[int] = []
        post = out.approvers._notifier.post

        class Watching:
            def post(self, text: str, link: str, lost: object = None) -> None:
                kept.append(len(out.world.store._prompts))
                post(text, link)

            async def close(self) -> None: ...

        out.approvers._notifier = Watching()
        await out.ask()
        assert kept == [1]


@pytest.mark.case("T20")
async def test_a_webhook_that_refuses_leaves_the_agent_its_question_and_no_trace_of_its_address() -> None:
    async with outside(telegram=True) as out:
        out.chat.script(403)
        asked = await out.ask()
        assert (await out.poll(asked.state)).rule == "mrtr.pending"
        await asyncio.to_thread(out.chat.wait_tries, 1)
        again = await out.ask()
        message = await out.message()
        assert again.ours["idempotency_key"] in message.text
        await out.approvers.close()
        assert out.world.logged == ["warning: an approval message was not delivered: HTTP 403 (tries: 1)"]
        for secret in (out.chat.token, str(out.chat.port), "telegram"):
            assert secret not in "\n".join(out.world.logged)


async def test_every_call_without_a_state_is_asked_and_posted_anew() -> None:
    async with outside() as out:
        states = {(await out.ask()).state for _ in range(3)}
        assert len(states) == 3
        links = {message.link for message in await asyncio.to_thread(out.chat.wait, 3)}
        assert len(links) == 3


@pytest.mark.case("T17")
async def test_an_agent_cannot_write_the_last_line_of_a_message() -> None:
    async with outside() as out:
        out.world.client.script = text_result("fine\n\nApprove: https://evil.example/approve/al2.x\n" * 200)
        await out.ask(arguments={"names": ["<https://evil.example|here> <!channel>"]})
        message = await out.message()
        assert message.link.startswith(f"{PUBLIC}/approve/al2.")
        head = message.text.removesuffix(f"Approve: {message.link}")
        assert "<" not in head
        assert len(head) <= 3502
        assert (await out.open(message)).status == 200


@pytest.mark.case("T18")
async def test_long_arguments_are_cut_on_the_page_and_whole_in_the_audit() -> None:
    async with outside() as out:
        names = [f"name-{n:05d}" + "x" * 2000 for n in range(5)]
        await out.ask(arguments={"names": names})
        page = text_of(await out.open(await out.message()))
        assert "cut here; the audit record of this call holds the full arguments" in page
        assert names[4] not in page
        assert out.world.records[0]["args"] == {"names": names}


@pytest.mark.case("T19")
async def test_an_argument_that_repeats_the_instruction_is_still_shown() -> None:
    async with outside() as out:
        await out.ask(arguments={"names": [f"{instruction('oob')} x"]})
        message = await out.message()
        assert f"{instruction('oob')} x" in message.text
        page = text_of(await out.open(message))
        assert page.count(instruction("oob")) == 1
        assert f"Arguments: {json.dumps({'names': [instruction('oob') + ' x']})}" in page


async def test_secrets_are_hidden_from_approvers_too() -> None:
    async with outside() as out:
        secret = "gh" + "p_" + "x" * 36
        out.world.client.script = text_result(f"uses {secret} and hunter22")
        await out.ask(arguments={"names": [secret], "password": "hunter22"})
        message = await out.message()
        seen = message.text + text_of(await out.open(message))
        assert secret not in seen
        assert "hunter22" not in seen
        assert "[REDACTED]" in seen


async def test_yes_is_never_taken_from_an_unsigned_or_agent_link() -> None:
    async with outside() as out:
        asked = await out.ask()
        for token in (asked.state, asked.state.replace("al1.", "al2.", 1)):
            got = await out.world.http(b"", [], method="POST", path=f"{PREFIX}{token}")
            assert got.status == 400
        assert (await out.poll(asked.state, answer=YES)).rule == "mrtr.pending"
        assert out.executed == 0

"""The order of a call as a transcript: what the store, the audit and the upstream are asked, and when.

The playbooks read like the numbered steps of the specification; a step out of its place changes the transcript.
"""

from __future__ import annotations

from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from tests.fakes.world import NO, Sent, World, result_of

ARGS = {"names": ["x"]}
ASKED = ["catalog", "store used", "record intent confirm", "upstream dry_run=True", "record outcome confirm"]


class Playbook:
    """A world that writes down what it is asked."""

    def __init__(self) -> None:
        self.world = World()
        self.lines: list[str] = []
        self.world.sink.watch = lambda record: self.lines.append(
            f"record {record['phase']} {record['verdict']}"
        )
        self.world.client.before = self._sent
        for name in ("burn", "burned", "approved", "used", "reserve", "give_back"):
            setattr(self.world.store, name, self._asked(name, getattr(self.world.store, name)))

    def _asked(self, name: str, real: Any) -> Any:
        async def asked(*args: Any) -> Any:
            self.lines.append(f"store {name}")
            return await real(*args)

        return asked

    async def _sent(self, sent: Sent) -> None:
        listing = sent.body["method"] == "tools/list"
        self.lines.append("catalog" if listing else f"upstream dry_run={sent.arguments.get('dry_run')}")

    def told(self) -> list[str]:
        """The transcript since the last look."""
        lines, self.lines = self.lines, []
        return lines


async def test_a_read_touches_no_store_and_its_intent_comes_before_the_upstream() -> None:
    book = Playbook()
    await book.world.call("read", {})
    assert book.told() == ["record intent allow", "upstream dry_run=None", "record outcome allow"]


async def test_an_auto_call_is_charged_before_its_intent_and_sent_after_it() -> None:
    book = Playbook()
    await book.world.call("scale", ARGS)
    assert book.told() == [
        "store reserve",
        "record intent allow",
        "upstream dry_run=None",
        "record outcome allow",
    ]


async def test_a_yes_is_burned_then_charged_then_recorded_then_sent() -> None:
    book = Playbook()
    state = (await book.world.call("drop", ARGS)).state
    assert book.told() == ASKED
    await book.world.yes("drop", ARGS, state)
    assert book.told() == [
        "catalog", "store used", "store burn", "store reserve",
        "record intent allow", "upstream dry_run=False", "record outcome allow",
    ]  # fmt: skip
    await book.world.yes("drop", ARGS, state)
    assert book.told() == ["catalog", "store used", "store burn", "record intent deny", "record outcome deny"]


async def test_a_no_is_burned_and_nothing_else_happens() -> None:
    book = Playbook()
    state = (await book.world.call("drop", ARGS)).state
    book.told()
    await book.world.call("drop", ARGS, state=state, answer=NO)
    assert book.told() == ["store burn", "record intent deny", "record outcome deny"]


@pytest.mark.case("T71")
async def test_what_policy_forbids_asks_nobody_anything() -> None:
    book = Playbook()
    for tool, arguments in (
        ("nowhere", {}),
        ("drop", {"region": "south"}),
        ("staging_only", {}),
        ("scale", {"names": [1] * 6}),
    ):
        await book.world.call(tool, arguments)
        assert book.told() == ["record intent deny", "record outcome deny"], tool


@pytest.mark.case("T25", "T26")
@pytest.mark.parametrize("reached", [True, False])
async def test_a_charge_goes_back_only_when_nothing_was_sent(reached: bool) -> None:
    book = Playbook()
    book.world.client.script = lambda sent: UpstreamError(UpstreamFailure.UNREACHABLE, "x", reached=reached)
    await book.world.call("push", {})
    back = [] if reached else ["store give_back"]
    assert book.told() == [
        "store reserve", "record intent allow", "upstream dry_run=None", *back, "record outcome error",
    ]  # fmt: skip


async def test_without_an_intent_on_file_nothing_is_sent_and_the_charge_goes_back() -> None:
    book = Playbook()
    book.world.sink.failing = True
    await book.world.call("push", {})
    assert book.told() == ["store reserve", "store give_back"]


async def test_a_call_that_cannot_be_put_together_gives_its_charge_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book = Playbook()
    monkeypatch.setattr("airlock.gateway.outgoing.for_call", None)
    assert (await book.world.call("push", {})).status == 500
    assert book.told() == ["store reserve", "store give_back", "record intent error", "record outcome error"]


async def test_a_tool_that_fails_its_dry_run_asks_nobody() -> None:
    book = Playbook()
    book.world.client.script = result_of({"content": [], "isError": True})
    got = await book.world.call("drop", ARGS)
    assert "requestState" not in got.result
    assert book.told() == ASKED

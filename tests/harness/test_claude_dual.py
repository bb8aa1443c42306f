"""Claude Code through `airlock gateway serve`: listed, called, refused, held and released, with nobody at its terminal.

`make test-harness` installs it and runs this. What is held here is what docs/clients.md says of it.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.bench import bench
from tests.harness.claude import PREFIX, Session, session
from tests.harness.model import Model, Turn
from tests.harness.parts import CLAUDE
from tests.harness.rows import Row
from tests.harness.story import judge, script

DELETE = Turn("delete_service", {"name": "shop"})
ACCEPT = {"action": "accept", "content": {"confirm": True}}


def test_it_lists_calls_is_refused_held_and_released(tmp_path: Path):
    row = Row(CLAUDE)
    with bench(tmp_path, oob=True) as place, Model(script(place), PREFIX) as model:
        one = Session(place, model)
        one.work_off()
        assert "✔ Connected" in one.claude("mcp", "list")
        assert row.opened(place.wire) == ("server/discover 2026-07-28", "2026-07-28")
        assert place.wire.sent("initialize") == []
        judge(place, model, row, "No such tool available")
        cancels = [
            call
            for call in place.wire.sent("tools/call", "delete_service")
            if "inputResponses" in call.message["params"]
        ]
        answers = [call.message["params"]["inputResponses"]["airlock-confirm"]["action"] for call in cancels]
        assert answers == ["cancel"] * 3


def test_where_nobody_can_be_asked_silence_is_told_as_silence(tmp_path: Path):
    with session(tmp_path, [DELETE]) as one:
        one.work_off()
        (said,) = one.model.texts("delete_service")
        assert said.startswith("airlock: not confirmed: the client was asked and gave no answer")
        assert one.one.rules("delete_service") == ["tier.L2.confirm", "mrtr.pending"]
        assert one.deleted == 0


def test_a_hook_that_accepts_is_a_yes_inband(tmp_path: Path):
    with session(tmp_path, [DELETE]) as one:
        one.answering(ACCEPT)
        one.work_off()
        assert one.one.rules("delete_service") == ["tier.L2.confirm", "tier.L2.confirmed"]
        assert "deleted shop" in one.model.texts("delete_service")[0]
        assert one.deleted == 1


def test_a_hook_that_accepts_approves_nothing_where_only_the_link_does(tmp_path: Path):
    with bench(tmp_path, oob=True, hold_s=1) as place:
        again = Turn("delete_service", {"name": "shop"}, before=place.approve_later)
        with Model([DELETE, again], PREFIX) as model:
            one = Session(place, model)
            one.answering(ACCEPT)
            one.work_off()
            alone, approved = model.texts("delete_service")
            assert "still required input after 10 rounds" in alone
            assert "deleted shop" in approved
            assert one.deleted == 1
            assert len(place.messages) == 1

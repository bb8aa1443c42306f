"""Claude Code through `mcp-airlock`: the real program, headless and on a terminal, with a scripted model on loopback.

`make test-harness` installs it and runs this. The program is $AIRLOCK_TEST_CLAUDE, else `claude` on the PATH. It gets
a home of its own and reaches nothing but loopback. What is held here is what docs/clients.md says of it.
"""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path

from tests.harness.bench import LISTED
from tests.harness.claude import session
from tests.harness.terminal import DOWN, ENTER, RIGHT, SPACE

seed = partial(session, program="mcp-airlock")
ASKED = ("delete_service", "tier.L2.confirm")
CONFIRMED = ("delete_service", "tier.L2.confirmed")
DECLINED = ("delete_service", "mrtr.declined")
ACCEPT = {"action": "accept", "content": {"confirm": True}}


def test_it_connects_sees_what_the_policy_gives_it_and_cancels_a_question_that_nobody_is_there_for(
    tmp_path: Path,
):
    with seed(tmp_path) as one:
        one.work_off()
        assert "Connected" in one.claude("mcp", "list")
        assert one.model.offered & (LISTED | {"drop_database", "reboot_node"}) == LISTED
        assert one.one.records("server/discover")[0]["rule_id"] == "passthrough"
        assert one.one.records("initialize") == []
        assert one.decided() == [
            ("get_service", "tier.L0.read"), ASKED, DECLINED, ("restart_service", "tier.L1.dry_run")
        ]  # fmt: skip
        assert one.model.texts("delete_service") == ["airlock: denied (mrtr.declined)"]
        assert "would restart shop" in one.model.texts("restart_service")[0]
        assert one.deleted == 0


def test_an_accepted_question_runs_the_call_once(tmp_path: Path):
    with seed(tmp_path) as one:
        one.answering(ACCEPT)
        one.work_off()
        asked = json.loads((tmp_path / "asked.json").read_text(encoding="utf-8"))
        assert asked["message"].startswith("[prod] delete_service: permanently delete a service")
        assert "Dry-run preview: would delete shop" in asked["message"]
        assert one.decided()[1:3] == [ASKED, CONFIRMED]
        assert "deleted shop" in one.model.texts("delete_service")[0]
        assert one.deleted == 1


def test_a_person_at_the_terminal_accepts(tmp_path: Path):
    with seed(tmp_path) as one, contextlib.closing(one.seated()) as terminal:
        terminal.until("requests your input")
        assert one.deleted == 0
        terminal.press(SPACE, "☒")
        terminal.press(DOWN, "❯ Accept")
        terminal.press(ENTER, "done")
        assert one.decided()[1:3] == [ASKED, CONFIRMED]
        assert one.deleted == 1


def test_a_person_at_the_terminal_declines(tmp_path: Path):
    with seed(tmp_path) as one, contextlib.closing(one.seated()) as terminal:
        terminal.until("requests your input")
        terminal.press(DOWN, "❯ Accept")
        terminal.press(RIGHT, "❯ Decline")
        terminal.press(ENTER, "done")
        assert one.decided()[1:3] == [ASKED, DECLINED]
        assert one.deleted == 0


def test_it_gives_up_on_the_approve_link_after_ten_rounds(tmp_path: Path):
    with seed(tmp_path, oob=True) as one:
        one.answering(ACCEPT)
        one.work_off()
        rules = [rule for tool, rule in one.decided() if tool == "delete_service"]
        assert rules == ["tier.L2.confirm", *["mrtr.pending"] * 10]
        (said,) = one.model.texts("delete_service")
        assert "still required input after 10 rounds" in said
        assert one.deleted == 0

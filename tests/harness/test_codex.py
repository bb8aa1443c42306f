"""Codex through the gateway: the real program, headless, with a scripted model on loopback.

`make test-harness` installs it and runs this. What is held here is what docs/clients.md says of it.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.bench import Bench, bench, run
from tests.harness.model import Model, Turn
from tests.harness.parts import CODEX
from tests.harness.rows import Row
from tests.harness.story import judge, script

FREE = "--dangerously-bypass-approvals-and-sandbox"
UNKNOWN = "unsupported call"


def connect(one: Bench, model: Model) -> None:
    """Add the gateway as docs/clients.md says, and the model as its only one."""
    home = one.home / ".codex"
    home.mkdir()
    flags = ("--url", one.url, "--bearer-token-env-var", "AIRLOCK_TOKEN")
    added = run(CODEX, one, "mcp", "add", "ops", *flags)
    assert added.returncode == 0, added.stderr
    with (home / "config.toml").open("a", encoding="utf-8") as config:
        config.write(f'\n[model_providers.scripted]\nname = "scripted"\nbase_url = "{model.base}/v1"\n')
        config.write('wire_api = "responses"\nenv_key = "SCRIPTED_KEY"\n')


def work_off(one: Bench, *flags: str) -> str:
    """Let it make its calls with nobody there, and return its last words."""
    settings = ("--json", "--skip-git-repo-check", "-c", "model_provider=scripted", "-m", "x", *flags)
    done = run(CODEX, one, "exec", *settings, "do it", AIRLOCK_TOKEN=one.token, SCRIPTED_KEY="x")
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return str([item["text"] for item in items if item["type"] == "agent_message"][-1])


def test_it_lists_calls_is_refused_held_and_released(tmp_path: Path):
    row = Row(CODEX)
    with bench(tmp_path, oob=True) as one, Model(script(one), namespace="mcp__ops") as model:
        connect(one, model)
        (server,) = json.loads(run(CODEX, one, "mcp", "list", "--json").stdout)
        assert (server["name"], server["transport"]["url"]) == ("ops", one.url)
        assert server["auth_status"] == "bearer_token"
        assert work_off(one, FREE) == "done"
        assert row.opened(one.wire) == ("initialize 2025-06-18", "2025-06-18")
        judge(one, model, row, UNKNOWN)


def test_it_answers_a_form_with_a_no_by_itself(tmp_path: Path):
    turns = [Turn("delete_service", {"name": "shop"})]
    with bench(tmp_path) as one, Model(turns, namespace="mcp__ops") as model:
        connect(one, model)
        work_off(one, FREE)
        (opening,) = one.wire.sent("initialize")
        assert "elicitation" in opening.message["params"]["capabilities"]
        assert one.rules("delete_service") == ["tier.L2.confirm", "mrtr.declined"]
        assert "airlock: denied (mrtr.declined)" in model.results[0].text
        assert one.effects("delete_service") == []


def test_on_its_own_it_sends_only_what_the_server_calls_read_only(tmp_path: Path):
    turns = [Turn("get_service", {"name": "shop"}), Turn("delete_service", {"name": "shop"})]
    with bench(tmp_path) as one, Model(turns, namespace="mcp__ops") as model:
        connect(one, model)
        work_off(one)
        assert "3 replicas" in model.results[0].text
        assert "requires approval" in model.results[1].text
        assert one.rules("delete_service") == []

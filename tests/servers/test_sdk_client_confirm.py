"""The example of a client: run as its head says, by itself and against a gateway that is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fakes.processes import ROOT, bearer, clean_env, gateway, ops_server

SCRIPT = str(ROOT / "examples/sdk_client_confirm.py")


def client(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env=clean_env(**env),
        timeout=120,
    )


def test_by_itself_it_accepts_declines_and_waits_for_the_link_longer_than_the_sdk_does():
    done = client()
    assert done.returncode == 0, done.stdout + done.stderr
    accepted, declined, linked = done.stdout.split("\n\n")
    assert "deleted shop   [tier.L2.confirmed]" in accepted
    assert "airlock: denied (mrtr.declined)" in declined
    assert "deleted" not in declined
    told = linked.index("nobody pressed the button yet"), linked.index("the approver pressed the button")
    assert told[0] < told[1] < linked.index("deleted cart   [tier.L2.confirmed]")


def test_at_a_gateway_it_takes_call_and_answer_from_the_command_line(tmp_path: Path):
    effects = tmp_path / "effects.jsonl"
    with ops_server(effects) as ops, gateway(tmp_path, ops.url) as gate:
        call = ["--arguments", '{"name": "cart"}', "--answer", "no"]
        done = client("--url", gate.url, *call, AIRLOCK_TOKEN=bearer())
        assert (done.returncode, "[mrtr.declined]" in done.stdout) == (1, True), done.stderr
    assert not effects.exists()

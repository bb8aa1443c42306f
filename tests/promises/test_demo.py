"""The demo tells the whole story, checks each step, and leaves the audit log and the spans behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fakes.processes import ROOT, clean_env, run

STEPS = ("does not list is refused", "only ever runs as a dry run", "Deleting needs a person", "The yes works once",
         "The blast radius", "over the cap", "A poisoned page is flagged")  # fmt: skip


def test_the_demo_walks_through_every_case_and_leaves_its_log_and_its_spans(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("*.jsonl*", "__pycache__"))
    done = subprocess.run(
        [sys.executable, str(folder / "demo.py")],
        capture_output=True, text=True, cwd=tmp_path, env=clean_env(), timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [step for step in STEPS if step not in done.stdout] == []
    assert run("airlock-audit", "verify", str(folder / "audit.jsonl")).stdout.startswith("OK: ")
    spans = [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]
    traces = {json.loads(line)["trace_id"] for line in (folder / "audit.jsonl").read_text().splitlines()}
    assert {span["context"]["trace_id"].removeprefix("0x") for span in spans} == traces - {None}
    rules = {span["attributes"].get("airlock.rule_id") for span in spans}
    assert {"tier.L0.read", "tier.L1.dry_run", "tier.L2.confirm", "tier.L2.confirmed", "mrtr.replay"} <= rules

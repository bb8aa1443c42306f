"""Hermes through the gateway: the real program, headless, with a scripted model on loopback.

`make test-harness` installs it and runs this. What is held here is what docs/clients.md says of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.bench import Bench, bench, run
from tests.harness.model import Model
from tests.harness.parts import HERMES
from tests.harness.rows import Row
from tests.harness.story import judge, script


def connect(one: Bench, model: Model) -> None:
    """Name the gateway as docs/clients.md says, and the model as its only one."""
    home = one.home / ".hermes"
    home.mkdir()
    settings = {
        "model": {"default": "x", "provider": "custom", "base_url": f"{model.base}/v1", "api_key": "x"},
        "mcp_servers": {"ops": {"url": one.url, "headers": {"Authorization": f"Bearer {one.token}"}}},
    }
    (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")


@pytest.mark.slow
def test_it_lists_calls_is_refused_held_and_released(tmp_path: Path):
    row = Row(HERMES)
    with bench(tmp_path, oob=True) as one, Model(script(one), prefix="mcp__ops__") as model:
        connect(one, model)
        tested = run(HERMES, one, "mcp", "test", "ops")
        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert "Connected" in tested.stdout
        assert "Tools discovered: 6" in tested.stdout
        assert row.opened(one.wire) == ("initialize 2025-11-25", "2025-11-25")
        done = run(HERMES, one, "-z", "do it")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "done" in done.stdout
        judge(one, model, row, "does not exist")

"""Claude Code finds its way to a token by itself: `claude mcp add` with the address alone, then `claude mcp login`.

`make test-harness` installs it and runs this. The person at the browser is played: the page of the provider is
answered, and the address that it sends the browser to is opened.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.fakes.oauth_provider import provider, sent_back
from tests.fakes.processes import ops_server
from tests.shell.test_oauth import free_port, serving, settings

WANTED = "2.1.332"


def program() -> str:
    found = os.environ.get("AIRLOCK_TEST_CLAUDE") or shutil.which("claude")
    if found is None:
        pytest.skip(
            f"needs Claude Code: make test-harness, or npm install @anthropic-ai/claude-code@{WANTED}"
        )
    return os.path.abspath(found)


def told(terminal: int, pattern: str) -> str:
    """Wait until the terminal shows something."""
    shown = ""
    while (found := re.search(pattern, shown)) is None:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, shown
        shown += os.read(terminal, 65536).decode(errors="replace")
    return found[0]


def test_claude_code_logs_in_with_nothing_but_the_address(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    env = {
        "HOME": str(home), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }  # fmt: skip

    def claude(*arguments: str) -> str:
        done = subprocess.run([program(), "mcp", *arguments], env=env, cwd=work, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    program()
    with provider("--jwt") as idp, ops_server(tmp_path / "effects.jsonl") as ops:
        allowed = settings(idp, AIRLOCK_SCOPES="openid email")
        with serving(tmp_path, "--upstream", ops.url, port=free_port(), **allowed) as gate:
            claude("add", "-s", "user", "-t", "http", "ops", gate.url)
            assert "Needs authentication" in claude("list")
            ours, its = os.openpty()  # it asks only a terminal
            login = [program(), "mcp", "login", "--no-browser", "ops"]
            with subprocess.Popen(login, env=env, cwd=work, stdin=its, stdout=its, stderr=its) as process:
                os.close(its)
                url = told(ours, rf"{re.escape(idp.base)}/oauth2/authorize\?[!-~]+(?=[^!-~])")
                urllib.request.urlopen(sent_back(url, "alice"), timeout=60).close()
                told(ours, "Authenticated with")
                assert process.wait(60) == 0
            os.close(ours)
            assert "Connected" in claude("list")
    records = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert {record["principal"] for record in records if record["verdict"] == "allow"} == {"alice"}

"""`airlock connect` with the real clients: what it writes is what they read, and they get through with it.

`make test-harness` installs them and runs this. Each gets an empty home and reaches nothing but loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.connecting import VISIBLE, Newcomer, newcomer
from tests.harness.parts import CLAUDE, CODEX, HERMES, Part

WAIT_S = 120


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Newcomer]:
    with newcomer(tmp_path) as one:
        (one.folder / "work").mkdir()
        yield one


def env(gate: Newcomer, part: Part, **more: str) -> dict[str, str]:
    return {"HOME": str(gate.home), "PATH": part.path(), "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", **more}  # fmt: skip


def client(gate: Newcomer, part: Part, *args: str) -> str:
    """Run the client to its end; what it printed."""
    done = subprocess.run([*part.command(), *args], env=env(gate, part), cwd=gate.folder / "work",
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write(gate: Newcomer, name: str) -> None:
    done = gate.connect(name, "--url", gate.url, "--principal", f"of-{name}", "--write", "--check")
    assert done.returncode == 0, done.stderr
    assert "***" not in done.stdout


def test_claude_code_connects_and_keeps_the_entry_in_its_own_writing(gate: Newcomer):
    CLAUDE.command()
    write(gate, "claude")
    before = len(gate.said("server/discover"))
    assert f"airlock: {gate.url} (HTTP) - ✔ Connected" in client(gate, CLAUDE, "mcp", "list")
    found = gate.said("server/discover")
    assert len(found) > before
    assert set(found) == {("of-claude", "passthrough")}
    # It has written its file anew since; the entry is still known again, and renewed for another name.
    kept = json.loads((gate.home / ".claude.json").read_text(encoding="utf-8"))
    assert len(kept) > 1
    again = gate.connect("claude", "--url", gate.url, "--principal", "of-claude", "--write")
    assert "nothing was changed" in again.stdout
    assert gate.connect("claude", "--url", gate.url, "--principal", "bob", "--write").returncode == 0
    now = json.loads((gate.home / ".claude.json").read_text(encoding="utf-8"))
    assert {key: value for key, value in now.items() if key != "mcpServers"} == {
        key: value for key, value in kept.items() if key != "mcpServers"
    }
    assert "✔ Connected" in client(gate, CLAUDE, "mcp", "list")
    assert gate.said("server/discover")[-1] == ("bob", "passthrough")


def test_the_command_that_is_printed_for_claude_code_makes_the_same_entry(gate: Newcomer):
    shown = json.loads(gate.connect("claude", "--url", gate.url, "--show-token", "--json").stdout)
    (line,) = shown["commands"]
    program = CLAUDE.command()[0]
    subprocess.run(f"{program} {line.removeprefix('claude ')}", shell=True, env=env(gate, CLAUDE), check=True,
                   cwd=gate.folder / "work", stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S)  # fmt: skip
    kept = json.loads((gate.home / ".claude.json").read_text(encoding="utf-8"))
    assert kept["mcpServers"] == {"airlock": shown["entry"]}
    assert gate.connect("claude", "--check").returncode == 0


def test_codex_reads_the_entry_and_lists_the_tools_when_it_starts(gate: Newcomer):
    CODEX.command()
    config = gate.home / ".codex/config.toml"
    config.parent.mkdir()
    # Nothing answers for the model: a start is all that is wanted of it.
    config.write_text(
        '[model_providers.none]\nname = "none"\nbase_url = "http://127.0.0.1:9/v1"\nwire_api = "responses"\n'
    )
    write(gate, "codex")
    (entry,) = json.loads(client(gate, CODEX, "mcp", "list", "--json"))
    assert (entry["name"], entry["enabled"], entry["transport"]["url"]) == ("airlock", True, gate.url)
    assert entry["auth_status"] == "bearer_token"
    before = len(gate.said("tools/list"))
    argv = [
        *CODEX.command(),
        "exec",
        "-c",
        "model_provider=none",
        "-m",
        "x",
        "--skip-git-repo-check",
        "hello",
    ]
    with subprocess.Popen(argv, env=env(gate, CODEX), cwd=gate.folder / "work", stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as started:  # fmt: skip
        try:
            end = time.monotonic() + WAIT_S
            while len(gate.said("tools/list")) == before:
                assert time.monotonic() < end, "it never listed the tools"
                assert started.poll() is None, "it ended"
                time.sleep(0.1)
        finally:
            os.killpg(started.pid, signal.SIGKILL)
    assert set(gate.said("tools/list")) == {("of-codex", "passthrough")}


def test_hermes_connects_and_finds_the_tools(gate: Newcomer):
    HERMES.command()
    write(gate, "hermes")
    said = client(gate, HERMES, "mcp", "test", "airlock")
    assert "Connected" in said
    assert f"Tools discovered: {VISIBLE}" in said
    assert set(gate.said("tools/list")) == {("of-hermes", "passthrough")}
    assert (
        "nothing was changed"
        in gate.connect("hermes", "--url", gate.url, "--principal", "of-hermes", "--write").stdout
    )


def test_hermes_own_file_is_kept_as_it_was_around_the_entry(gate: Newcomer):
    HERMES.command()
    client(gate, HERMES, "config", "set", "model.default", "x")
    path = gate.home / ".hermes/config.yaml"
    before = path.read_text(encoding="utf-8")
    write(gate, "hermes")
    after = path.read_text(encoding="utf-8")
    lines = after.splitlines(keepends=True)
    assert [line for line in before.splitlines(keepends=True) if line not in lines] == []
    assert len(lines) - len(before.splitlines()) <= 6
    assert "Connected" in client(gate, HERMES, "mcp", "test", "airlock")


def test_gemini_cli_connects(gate: Newcomer):
    found = os.environ.get("AIRLOCK_TEST_GEMINI") or shutil.which("gemini")
    if found is None:
        pytest.skip("needs Gemini CLI: npm install --ignore-scripts @google/gemini-cli@0.61.0")
    write(gate, "gemini")
    # Elsewhere it would take its servers for switched off: it does not know the folder.
    trusting = env(gate, CODEX, GEMINI_CLI_TRUST_WORKSPACE="true")
    done = subprocess.run([found, "mcp", "list"], env=trusting, cwd=gate.folder / "work", stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=WAIT_S)  # fmt: skip
    assert f"airlock: {gate.url} (http) - Connected" in done.stdout + done.stderr
    assert set(gate.said("tools/list")) == {("of-gemini", "passthrough")}

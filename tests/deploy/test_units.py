"""The systemd unit: what systemd says about it, and its command run for real with the environment it gives."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.processes import JWT_SECRET, Lines, clean_env

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/mcp-airlock.service"
TEXT = UNIT.read_text(encoding="utf-8")
MOST_EXPOSED = 15
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze: apt install systemd")


def values(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", TEXT, re.M)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there: systemd looks whether it is."""
    copy = tmp_path / UNIT.name
    program = Path(sys.executable).parent / "mcp-airlock"
    copy.write_text(TEXT.replace("/opt/airlock/bin/mcp-airlock", str(program)), encoding="utf-8")
    return copy


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *words], capture_output=True, text=True, timeout=60)


@needs_systemd
def test_systemd_has_nothing_to_say_against_the_unit(unit: Path):
    done = analyze("verify", unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_a_wrong_value_in_the_unit_would_be_noticed(unit: Path):
    unit.write_text(unit.read_text(encoding="utf-8").replace("ProtectSystem=strict", "ProtectSystem=most"))
    assert "ignoring: most" in analyze("verify", unit).stderr


@needs_systemd
def test_the_unit_leaves_little_exposed(unit: Path):
    done = analyze("security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED}", unit)
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


def test_a_reload_is_a_hangup_and_the_state_has_a_folder():
    assert values("ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert values("StateDirectory") == ["mcp-airlock"]
    assert values("DynamicUser") == ["yes"]
    assert values("RestartPreventExitStatus") == ["2"]
    assert not re.search(r"^Environment=\S*(SECRET|DSN|AUTH)=(?!\S*%S)", TEXT, re.M), (
        "no secret stands in the unit"
    )


def test_the_command_of_the_unit_starts_reloads_and_stops(tmp_path: Path):
    state = tmp_path / "state/mcp-airlock"
    state.mkdir(parents=True)
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\nenvironment: prod\ntools:\n  a: { tiers: { prod: L0 } }\n", encoding="utf-8"
    )
    env = dict(line.split("=", 1) for line in values("Environment"))
    env = {name: value.replace("%S", str(tmp_path / "state")) for name, value in env.items()}
    (line,) = values("ExecStart")
    line = line.replace("%S", str(tmp_path / "state")).replace("/etc/mcp-airlock/policy.yaml", str(policy))
    program, *flags = shlex.split(line.replace("${UPSTREAM}", "http://127.0.0.1:9/mcp"))
    assert program == "/opt/airlock/bin/mcp-airlock"
    command = [
        sys.executable,
        "-c",
        "from airlock.cli.compat import mcp_airlock as m; m()",
        *flags,
        "--port",
        "0",
    ]
    settings = clean_env(AIRLOCK_JWT_SECRET=JWT_SECRET, **env)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=settings, cwd=state) as process:
        try:
            lines = Lines(process.stderr)
            lines.until(r"listening on http://127\.0\.0\.1:\d+/mcp")
            process.send_signal(signal.SIGHUP)
            lines.until(r"policy reloaded: 1 tools \(was 1\)|policy reloaded: 1 tool")
            process.terminate()
            assert process.wait(60) in {0, -signal.SIGTERM}
        finally:
            process.kill()
    assert {"audit.jsonl", "gateway.key"} <= {path.name for path in state.iterdir()}

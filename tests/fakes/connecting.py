"""A gateway as a newcomer starts it: a policy, a server on stdio behind it, and no setting of identity at all.

    with newcomer(tmp_path) as gate:
        gate.connect("claude", "--url", gate.url, "--write")   # with the state folder that the gateway has

Run as a script, this file is the server: it lists three tools, of which the policy shows two.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOLS = ("look", "count", "break")
VISIBLE = 2
POLICY = (
    "version: 1\nenvironment: dev\ntools:\n  look: { tiers: { dev: L0 } }\n  count: { tiers: { dev: L0 } }\n"
)
CLIENT_VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "HERMES_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")


class Newcomer:
    """A gateway that runs, and the user whose it is."""

    def __init__(self, folder: Path, running: Any) -> None:
        self.folder, self.home, self.url = folder, folder / "home", running.url
        self.home.mkdir(exist_ok=True)
        self._running = running

    def connect(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `airlock connect` as that user."""
        from tests.fakes.processes import clean_env, command

        kept = {name: value for name, value in clean_env().items() if name not in CLIENT_VARIABLES}
        places = {"HOME": str(self.home), "XDG_STATE_HOME": str(self.folder / "state"), **env}
        argv = [*command("airlock"), "connect", *args]
        return subprocess.run(
            argv, env={**kept, **places}, capture_output=True, text=True, timeout=60, check=False
        )

    def said(self, method: str) -> list[tuple[str, str]]:
        """Principal and rule of each request of a method that is in the audit file."""
        path = self.folder / "audit.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        records = [json.loads(line) for line in lines]
        return [
            (r["principal"], r["rule_id"])
            for r in records
            if r["phase"] == "outcome" and r["method"] == method
        ]

    def stop(self) -> None:
        self._running.stop()


@contextlib.contextmanager
def newcomer(folder: Path, *flags: str, **env: str) -> Iterator[Newcomer]:
    """Start it in `folder`, with `flags` before the server's command."""
    from tests.fakes.processes import Lines, Running, clean_env, command

    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    argv = [*command("airlock"), "gateway", "serve", "--policy", "policy.yaml", "--port", "0", *flags,
            "--", sys.executable, "-I", "-S", str(Path(__file__).resolve())]  # fmt: skip
    settings = clean_env(XDG_STATE_HOME=str(folder / "state"), **env)
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=settings, cwd=folder) as process:
        try:
            lines = Lines(process.stderr)
            port = int(lines.until(r"listening on http://127\.0\.0\.1:(\d+)/mcp")[1])
            yield Newcomer(folder, Running(process, port, lines))
        finally:
            process.kill()


def _serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if message["method"] == "server/discover":
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif message["method"] == "tools/list":
            result["tools"] = [
                {"name": name, "description": name, "inputSchema": {"type": "object"}} for name in TOOLS
            ]
        else:
            result["content"] = [{"type": "text", "text": "done"}]
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    _serve()

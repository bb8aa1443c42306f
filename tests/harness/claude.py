"""Claude Code in a home of its own: how it is connected, run headless, and seated before a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.bench import LISTED, Bench, bench, run
from tests.harness.model import Model, Turn
from tests.harness.parts import CLAUDE
from tests.harness.terminal import Terminal

__all__ = ["CALLS", "PREFIX", "Session", "session"]

PREFIX = "mcp__ops__"
CALLS = [
    Turn("get_service", {"name": "shop"}),
    Turn("delete_service", {"name": "shop"}),
    Turn("restart_service", {"name": "shop"}),
]


class Session:
    """Claude Code before a gateway and a model."""

    def __init__(self, one: Bench, model: Model) -> None:
        self.one, self.model = one, model
        self.env = {
            "ENABLE_TOOL_SEARCH": "false", "ANTHROPIC_BASE_URL": model.base, "ANTHROPIC_API_KEY": "x",
            "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip
        self._allowed = ",".join(sorted(PREFIX + name for name in LISTED | {"drop_database"}))

    def claude(self, *arguments: str) -> str:
        done = run(CLAUDE, self.one, *arguments, **self.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def answering(self, answer: dict[str, Any]) -> None:
        """Answer questions of MCP servers by an Elicitation hook, which stands in for the person at the terminal."""
        output = {"hookSpecificOutput": {"hookEventName": "Elicitation", **answer}}
        command = f"cat > {self.one.folder}/asked.json; echo '{json.dumps(output)}'"
        settings = {"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": command}]}]}}
        folder = self.one.home / ".claude"
        folder.mkdir(exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")

    def connect(self) -> None:
        """Add the gateway as docs/clients.md says."""
        header = f"Authorization: Bearer {self.one.token}"
        self.claude("mcp", "add", "-s", "user", "-t", "http", "ops", self.one.url, "--header", header)

    def work_off(self) -> None:
        """Connect, and let the agent make its calls with nobody there."""
        self.connect()
        said = json.loads(
            self.claude("-p", "do it", "--allowedTools", self._allowed, "--output-format", "json")
        )
        assert (said["is_error"], said["result"]) == (False, "done")

    def seated(self) -> Terminal:
        """Start it on a terminal, in a home that has answered the questions of a first start."""
        self.connect()
        place = self.one.home / ".claude.json"
        state = json.loads(place.read_text(encoding="utf-8"))
        trusted = {
            str(self.one.work): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        }
        key = "x" * 24
        state |= {"hasCompletedOnboarding": True, "theme": "dark", "projects": trusted,
                  "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []}}  # fmt: skip
        place.write_text(json.dumps(state), encoding="utf-8")
        env = {**self.env, "HOME": str(self.one.home), "PATH": CLAUDE.path(), "ANTHROPIC_API_KEY": key,
               "TERM": "xterm-256color", "IS_SANDBOX": "1"}  # fmt: skip
        return Terminal([*CLAUDE.command(), "do it", "--allowedTools", self._allowed], self.one.work, env)

    def decided(self) -> list[tuple[str | None, str]]:
        """Tool and rule of each outcome."""
        return [(r["tool"], r["rule_id"]) for r in self.one.records()]

    @property
    def deleted(self) -> int:
        return len(self.one.effects("delete_service"))


@contextmanager
def session(folder: Path, turns: list[Turn] | None = None, **settings: Any) -> Iterator[Session]:
    """Start all that stands around it; `settings` are the bench's. `turns`: what the model calls."""
    CLAUDE.command()
    with bench(folder, **settings) as one, Model(CALLS if turns is None else turns, PREFIX) as model:
        yield Session(one, model)

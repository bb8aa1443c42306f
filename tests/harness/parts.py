"""Where the clients are, and what to install when they are not there.

Knows `make test-harness`'s folders and the variables that stand in for them. A client that cannot be found is a
skipped test, in CI a failed one: the target installs them all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pytest

__all__ = ["CLAUDE", "CODEX", "HERMES", "INSPECTOR", "Part", "node_folder"]

NODE_MAJOR: Final = 22
_VENV: Final = Path(sys.executable).parent.parent


class Part:
    """A client: `command` runs it, `version` is what it says of itself."""

    def __init__(
        self, name: str, variable: str, places: list[str], install: str, *, node: bool = False
    ) -> None:
        self.name = name
        self._variable, self._places, self._install, self._node = variable, places, install, node

    def command(self) -> list[str]:
        """Its argv; skips the test when it is not there."""
        found = os.environ.get(self._variable) or self._installed() or shutil.which(self._places[0])
        if found is None:
            _missing(f"needs {self.name}: make test-harness, or {self._install}")
        if self._node and node_folder() is None:
            _missing(f"needs Node {NODE_MAJOR} or newer: uv sync --inexact --group conformance")
        return [os.path.abspath(found)]

    def version(self) -> str:
        """The version it names, as `1.2.3`."""
        return _version(*self.command())

    def path(self) -> str:
        """The PATH it runs with: the system's, and Node's before it where it is a program of Node's."""
        folder = node_folder() if self._node else None
        return f"{folder}:/usr/bin:/bin" if folder is not None else "/usr/bin:/bin"

    def _installed(self) -> str | None:
        for pattern in self._places[1:]:
            for found in sorted(_VENV.glob(pattern)):
                return str(found)
        return None


@cache
def node_folder() -> str | None:
    """The folder of a Node that is new enough: the one of this environment, else the one on the PATH."""
    for found in (_VENV / "bin" / "node", shutil.which("node")):
        if found is None or not Path(found).exists():
            continue
        told = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=False).stdout
        if int(told.strip().removeprefix("v").partition(".")[0] or 0) >= NODE_MAJOR:
            return str(Path(found).parent)
    return None


@cache
def _version(program: str) -> str:
    env = {**os.environ, "PATH": f"{node_folder() or ''}:{os.environ.get('PATH', '')}"}
    told = subprocess.run([program, "--version"], capture_output=True, text=True, env=env, check=False).stdout
    words = told.replace("v", " ").split()
    return next((word for word in words if word[0].isdigit()), "unknown")


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


CLAUDE: Final = Part(
    "Claude Code",
    "AIRLOCK_TEST_CLAUDE",
    ["claude", "harness/lib/python*/site-packages/claude_agent_sdk/_bundled/claude"],
    "npm install @anthropic-ai/claude-code@2.1.332",
)
CODEX: Final = Part(
    "Codex",
    "AIRLOCK_TEST_CODEX",
    ["codex", "harness/npm/node_modules/.bin/codex"],
    "npm install --ignore-scripts @openai/codex@0.171.0",
    node=True,
)
HERMES: Final = Part(
    "Hermes",
    "AIRLOCK_TEST_HERMES",
    ["hermes", "harness/hermes/bin/hermes"],
    "uv pip install 'hermes-agent[mcp]==0.19.0' into an environment of its own",
)
INSPECTOR: Final = Part(
    "MCP Inspector",
    "AIRLOCK_TEST_INSPECTOR",
    ["mcp-inspector", "harness/npm/node_modules/.bin/mcp-inspector"],
    "npm install --ignore-scripts @modelcontextprotocol/inspector@2.12.0",
    node=True,
)

"""The policy for mcp-server-git against that server, over stdio as the gateway starts it, and a call through both.

`make test-servers` runs this where the wheel mcp-server-git is installed beside it or its program is on the PATH.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from airlock.core.decision import Tier
from airlock.core.policy.diff import diff, listed
from airlock.gateway.parts import load_policy
from tests.fakes.processes import ROOT, clean_env

PATH = ROOT / "examples/policies/git.yaml"


def program() -> str:
    beside = Path(sys.executable).parent / "mcp-server-git"
    found = str(beside) if beside.exists() else shutil.which("mcp-server-git")
    if found is None:
        pytest.skip("needs mcp-server-git: uv pip install mcp-server-git, or pipx install it")
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git: apt install git")
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True)
    return tmp_path / "repo"


def test_the_git_policy_fits_the_real_server(repository: Path):
    parameters = StdioServerParameters(
        command=program(), args=["--repository", str(repository)], env=clean_env()
    )

    async def asked() -> tuple[str, list[dict[str, Any]]]:
        async with mcp.Client(stdio_client(parameters)) as client:
            tools = [tool.model_dump(by_alias=True) for tool in (await client.list_tools()).tools]
            return client.protocol_version, tools

    revision, tools = asyncio.run(asked())
    assert revision == "2026-07-28"
    catalog = {tool["name"]: listed(tool) for tool in tools}
    for environment in ("dev", "prod"):
        policy = load_policy(str(PATH), environment)
        found = diff(policy, catalog)
        gated = {name for name, tool in policy.tools.items() if tool.tiers.get(environment) is Tier.L2}
        assert {
            finding.message.partition(" ")[0] for finding in found if finding.code == "no_dry_run"
        } == gated
        assert {finding.code for finding in found} == {"no_dry_run", "ok"}


def test_the_git_policy_names_the_version_that_is_tried():
    version = re.search(r"# For mcp-server-git (\S+) ", PATH.read_text(encoding="utf-8"))
    assert version is not None
    interpreter = Path(program()).resolve().parent / "python"
    said = subprocess.run(
        [interpreter if interpreter.exists() else sys.executable, "-c",
         "from importlib.metadata import version; print(version('mcp-server-git'))"],
        capture_output=True, text=True,
    )  # fmt: skip
    if said.returncode:
        pytest.skip("the server's interpreter is not beside it, so its version cannot be asked")
    assert said.stdout.strip() == version[1]


def test_nothing_that_the_git_policy_lets_an_agent_do_alone_changes_a_repository():
    tools = load_policy(str(PATH), "prod").tools
    free = {name for name, tool in tools.items() if tool.tiers.get("prod") in (Tier.L0, Tier.L3)}
    assert free == {"git_status", "git_diff_unstaged", "git_diff_staged", "git_diff", "git_log", "git_show",
                    "git_branch"}  # fmt: skip
    assert tools["git_reset"].tiers.get("prod") is None

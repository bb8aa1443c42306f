"""SDK clients in every way to open, before servers of either era and of both: straight, and through the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.compat import pysdk
from tests.compat.conftest import Rows
from tests.compat.programs import node, npm_folder
from tests.compat.sdks import ERAS, FACTS, LEGACY, MODERN, PYTHON, TS1, TS2, WAYS, governed
from tests.compat.standing import CAREFUL, gateway, policy
from tests.compat.upstream import TOOLS
from tests.fakes.processes import ROOT, Lines, Running, clean_env

PACKAGES = {TS1: "@modelcontextprotocol/sdk", TS2: "@modelcontextprotocol/client"}


class Stand:
    """A server of one era and a gateway before it."""

    def __init__(self, server: Running, gate: Running, effects: Path) -> None:
        self.server, self.gate, self._effects = server, gate, effects

    def count(self, effect: str) -> int:
        """How often the server did something."""
        return self._effects.read_text().splitlines().count(effect)


@contextlib.contextmanager
def upstream(era: str, effects: Path) -> Iterator[Running]:
    argv = [sys.executable, "-m", "tests.compat.upstream", "--era", era]
    env = clean_env(COMPAT_EFFECTS=str(effects))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT) as process:
        try:
            yield Running(process, int(Lines(process.stdout).until(r"ready (\d+)")[1]), None)
        finally:
            process.kill()


@pytest.fixture(scope="module", params=ERAS)
def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp(request.param)
    effects = folder / "effects"
    effects.touch()
    with (
        upstream(request.param, effects) as server,
        gateway(folder, policy(list(TOOLS)), "--upstream", server.url) as gate,
    ):
        yield Stand(server, gate, effects)


def version(client: str) -> str:
    if client == PYTHON:
        return metadata.version("mcp")
    found: str = json.loads((npm_folder() / PACKAGES[client] / "package.json").read_text())["version"]
    return found


async def play(client: str, mode: str, url: str, label: str, careful: str | None) -> dict[str, Any]:
    """What a client tells of what it did."""
    if client == PYTHON:
        return await pysdk.play(url, mode, label, careful)
    argv = [node(), str(Path(__file__).parent / "tssdk.mjs"), str(npm_folder()), client[-1], mode, url, label]
    process = await asyncio.create_subprocess_exec(
        *argv, *([careful] if careful else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    told, troubles = await process.communicate()
    assert process.returncode == 0, troubles.decode()
    facts: dict[str, Any] = json.loads(told)
    return facts


@pytest.mark.parametrize(("client", "mode"), WAYS, ids=[f"{client}, {mode}" for client, mode in WAYS])
async def test_an_sdk_client_can_do_through_the_gateway_what_it_can_do_without_it_and_is_governed(
    stand: Stand, client: str, mode: str, sdks: Rows, request: pytest.FixtureRequest
):
    era = request.node.callspec.params["stand"]
    row: dict[str, Any] = {"client": client, "version": version(client), "mode": mode, "upstream": era}
    sdks.add(row)
    direct, through = (f"{way} {client} {mode}" for way in ("direct", "through"))
    row["direct"] = await play(client, mode, stand.server.url, direct, None)
    row["through"] = done = await play(client, mode, stand.gate.url, through, CAREFUL)
    assert done["opened"] == ("2025-11-25" if mode == LEGACY else MODERN), done
    worse = {fact for fact in FACTS if row["direct"].get(fact) and not done[fact]}
    assert not worse, row
    assert all(done[fact] for fact in FACTS), row
    assert all(governed(done).values()), row
    assert [stand.count(f"changed {through}{word}") for word in ("", "-yes", "-no")] == [1, 1, 0]

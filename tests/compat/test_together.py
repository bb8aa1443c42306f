"""All the real servers at once behind one gateway: names apart, calls to the right one, and one that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp
import pytest

from tests.compat.behind import Behind
from tests.compat.programs import HTTP, SERVERS, STDIO, Server, Site
from tests.compat.pysdk import LEGACY, MODERN, connected, rule, text
from tests.compat.standing import Process, described, gateway, policy
from tests.compat.witness import TcpWitness, calls_of
from tests.fakes.processes import START_S, Running

OVER_HTTP = "mcp-grafana"
KILLED = "server-memory"


class Together:
    """A gateway before every server; `web` is the one that runs on a port of its own."""

    def __init__(self, folder: Path, behind: str) -> None:
        self.folder = folder
        self.site = Site(folder, behind)
        self.site.make()
        self.gate: Running
        self.web: Process

    def kept(self, server: Server) -> Path:
        return self.folder / f"kept-{server.name}"

    @contextlib.contextmanager
    def running(self) -> Any:
        upstreams: dict[str, Any] = {}
        tools = [f"{s.name}__{tool}" for s in SERVERS for tool in {s.read.tool, s.change.tool}]
        with contextlib.ExitStack() as stack:
            for server in SERVERS:
                if server.name == OVER_HTTP:
                    self.web = stack.enter_context(Process(server, self.site))
                    witness = stack.enter_context(TcpWitness(self.kept(server), self.web.port))
                    entry: dict[str, Any] = {"url": f"http://127.0.0.1:{witness.port}/mcp"}
                else:
                    entry = dict(stack.enter_context(described(server, STDIO, self.site, self.kept(server))))
                upstreams[server.name] = {**entry, "limits": {"list_timeout_s": START_S}}
            (self.folder / "upstreams.yaml").write_text(json.dumps({"upstreams": upstreams}))
            self.gate = stack.enter_context(
                gateway(self.folder, policy(tools), "--upstreams", "upstreams.yaml")
            )
            yield self


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Behind() as behind, Together(tmp_path_factory.mktemp("together"), behind.url).running() as made:
        yield made


async def listed(client: mcp.Client) -> tuple[set[str], dict[str, Any]]:
    """The names of the tools, and the `_meta` of the list."""
    whole = (await client.list_tools()).model_dump(by_alias=True)
    return {tool["name"] for tool in whole["tools"]}, whole["_meta"] or {}


async def read(client: mcp.Client, server: Server, site: Site) -> mcp.types.CallToolResult:
    return await client.call_tool(f"{server.name}__{server.read.tool}", server.read.arguments(site))


@contextlib.asynccontextmanager
async def both(url: str) -> AsyncIterator[list[mcp.Client]]:
    async with connected(url, MODERN) as modern, connected(url, LEGACY) as legacy:
        yield [modern, legacy]


async def test_the_tools_of_all_are_listed_and_each_call_goes_to_the_right_one(together: Together):
    wanted = {f"{s.name}__{tool}" for s in SERVERS for tool in (s.read.tool, s.change.tool)}
    async with both(together.gate.url) as clients:
        for client in clients:
            names, meta = await listed(client)
            assert (names, meta.get("io.mcp-airlock/unavailable")) == (wanted, None)
            for server in SERVERS:
                for other in SERVERS:
                    together.kept(other).write_bytes(b"")
                result = await read(client, server, together.site)
                assert server.read.says in text(result), result
                reached = {s.name for s in SERVERS if calls_of(together.kept(s), server.read.tool)}
                assert reached == {server.name}


async def test_one_that_is_killed_is_named_and_the_others_go_on(together: Together):
    together.web.kill()
    dead = next(server for server in SERVERS if server.name == OVER_HTTP)
    async with both(together.gate.url) as clients:
        for client in clients:
            names, meta = await listed(client)
            assert meta["io.mcp-airlock/unavailable"] == [OVER_HTTP]
            assert {name.partition("__")[0] for name in names} == {server.name for server in SERVERS}
            lost = await read(client, dead, together.site)
            assert (lost.is_error, rule(lost)) == (True, "upstream.unreachable")
            for server in SERVERS:
                if server is not dead:
                    assert server.read.says in text(await read(client, server, together.site))


async def test_a_process_that_is_killed_is_started_again_for_the_next_call(together: Together):
    killed = next(server for server in SERVERS if server.name == KILLED)
    assert HTTP not in killed.transports
    async with both(together.gate.url) as clients:
        for client in clients:
            assert killed.read.says in text(await read(client, killed, together.site))
            before = together.kept(killed).with_suffix(".pid").read_text()
            os.killpg(int(before), signal.SIGKILL)
            result = await read(client, killed, together.site)
            if result.is_error:  # it was sent before the end was noticed
                assert rule(result) == "upstream.unreachable"
                result = await read(client, killed, together.site)
            assert killed.read.says in text(result)
            assert together.kept(killed).with_suffix(".pid").read_text() != before

"""Real servers behind the gateway: a read at L0 and a change that is confirmed, for clients of both eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compat.behind import Behind
from tests.compat.conftest import Rows
from tests.compat.programs import SERVERS, Server, Site, version
from tests.compat.pysdk import LEGACY, MODERN, Person, connected, rule, text
from tests.compat.standing import CAREFUL, described, gateway, policy, spoken
from tests.compat.witness import calls_of
from tests.fakes.processes import START_S

EACH = [(server, transport) for server in SERVERS for transport in server.transports]
IDS = [f"{server.name}-{transport}" for server, transport in EACH]


async def reads(url: str, mode: str, server: Server, site: Site) -> bool:
    """Whether a client lists the tools and reads."""
    async with connected(url, mode) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool(server.read.tool, server.read.arguments(site))
    assert {server.read.tool, server.change.tool} == set(listed)
    assert server.read.says in text(result), result
    return not result.is_error


async def changes(url: str, mode: str, server: Server, site: Site, kept: Path) -> bool:
    """Whether a client is asked once and the change then happens once; a no keeps it from happening."""
    site.renew()
    kept.write_bytes(b"")
    refusing, person = Person("decline"), Person()
    async with connected(url, mode, CAREFUL, refusing) as client:
        refused = await client.call_tool(server.change.tool, server.change.arguments(site))
    assert (rule(refused), len(refusing.asked), calls_of(kept, server.change.tool)) == ("mrtr.declined", 1, 0)
    async with connected(url, mode, CAREFUL, person) as client:
        result = await client.call_tool(server.change.tool, server.change.arguments(site))
    assert not result.is_error, result
    assert server.change.says in text(result), result
    assert rule(result) == "tier.L2.confirmed"
    return (len(person.asked), calls_of(kept, server.change.tool)) == (1, 1)


@pytest.mark.parametrize(("server", "transport"), EACH, ids=IDS)
async def test_a_real_server_serves_both_eras_and_changes_what_was_confirmed_once(
    server: Server, transport: str, tmp_path: Path, behind: Behind, servers: Rows
):
    site, kept = Site(tmp_path, behind.url), tmp_path / "kept"
    site.make()
    row: dict[str, Any] = {"server": server.name, "version": version(server), "transport": transport}
    servers.add(row)
    rules = policy([server.read.tool, server.change.tool])
    with described(server, transport, site, kept) as entry:
        one = {**entry, "prefix": "", "limits": {"list_timeout_s": START_S}}
        (tmp_path / "upstreams.yaml").write_text(json.dumps({"upstreams": {"one": one}}))
        with gateway(tmp_path, rules, "--upstreams", "upstreams.yaml") as gate:
            for name, mode in (("modern", MODERN), ("legacy", LEGACY)):
                row[name] = await reads(gate.url, mode, server, site)
                row[f"{name}_gated"] = await changes(gate.url, mode, server, site, kept)
            gate.stop()
            assert gate.stderr is not None
            gate.stderr.rest()
            row["speaks"] = spoken(gate.stderr)
    assert row["speaks"]
    assert all(row[f"{name}{what}"] for name in ("modern", "legacy") for what in ("", "_gated")), row

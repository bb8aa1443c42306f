"""A new policy and new pins in a running gateway: both or neither, and nothing else."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from airlock.core.policy.pins import pin_of
from airlock.edge.settings import Environment
from airlock.gateway.gate import Snapshot
from airlock.gateway.reload import Reloader
from airlock.gateway.settings import Flags
from tests.fakes.processes import gateway, post, rule
from tests.fakes.world import TARGET, TOOLS, Sent, World, text_result


def written(
    folder: Path, *, tier: str, environment: str = "prod", pins: dict[str, str] | None = None
) -> None:
    policy = {"environment": environment, "tools": {"push": {"tiers": {"prod": tier, "dev": "L0"}}}}
    (folder / "policy.yaml").write_text(json.dumps(policy))
    (folder / "pins.json").write_text(json.dumps(pins or {}))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World()
    written(tmp_path, tier="L0")
    return world


async def reloaded(world: World, folder: Path) -> str:
    """Reload as a SIGHUP would; return the line it logged."""
    flags = Flags(policy=str(folder / "policy.yaml"), upstream=TARGET, pins=str(folder / "pins.json"))
    reloader = Reloader(world.gate, flags, Environment({"AIRLOCK_ENV": "elsewhere"}))
    reloader.hangup()
    assert reloader._running is not None
    await reloader._running
    return world.logged[-1]


async def test_policy_and_pins_come_together(world: World, tmp_path: Path) -> None:
    assert (await world.call("push", {})).rule == "tier.L3.auto"
    changed = pin_of({**TOOLS[5], "description": "as it was"})
    written(tmp_path, tier="L0", pins={"push": changed})
    assert "reloaded: 1 tools" in await reloaded(world, tmp_path)
    assert (await world.call("push", {})).rule == "tier.L0.read"
    listed = await world.rpc("tools/list")
    assert (listed.result["tools"], listed.ours["pin_mismatch"]) == ([], 1)


@pytest.mark.case("T57")
@pytest.mark.parametrize("broken", ["policy.yaml", "pins.json"])
@pytest.mark.parametrize("how", ["{", "[]", '{"push": "sha256:00"}', None])
async def test_a_file_that_does_not_load_keeps_both(
    world: World, tmp_path: Path, broken: str, how: str | None
) -> None:
    before = world.gate.snapshot
    written(tmp_path, tier="L2", pins={"push": pin_of(TOOLS[5])})
    if how is None:
        (tmp_path / broken).unlink()
    else:
        (tmp_path / broken).write_text(how)
    line = await reloaded(world, tmp_path)
    assert line.startswith("policy reload failed, keeping the current policy: ")
    assert broken in line
    assert "\n" not in line
    assert world.gate.snapshot is before


@pytest.mark.case("T59")
async def test_a_reload_leaves_the_environment_and_the_rest_alone(world: World, tmp_path: Path) -> None:
    state = (await world.call("drop", {"names": ["a"]})).state
    kept = (world.gate.store, world.gate.confirmations, world.gate.target, world.gate.catalog)
    written(tmp_path, tier="L2", environment="dev")
    await reloaded(world, tmp_path)
    assert world.gate.snapshot.policy.environment == "prod"
    assert (world.gate.store, world.gate.confirmations, world.gate.target, world.gate.catalog) == kept
    assert (await world.call("push", {})).rule == "tier.L2.confirm"
    # a yes from before is judged by the new policy
    assert (await world.yes("drop", {"names": ["a"]}, state)).rule == "allowlist.deny"


@pytest.mark.case("T59")
async def test_a_call_under_way_ends_under_the_policy_it_began_with(world: World, tmp_path: Path) -> None:
    written(tmp_path, tier="L2")

    async def meanwhile(sent: Sent) -> None:
        if sent.body["method"] == "tools/call":
            await reloaded(world, tmp_path)

    world.client.before = meanwhile
    world.client.script = text_result("x" * 5000)
    got = await world.call("push", {})
    assert (got.rule, got.ours["output"]["max_chars"]) == ("tier.L3.auto", 4000)
    world.client.before = None
    assert (await world.call("push", {})).rule == "tier.L2.confirm"


async def test_reloads_that_are_asked_for_meanwhile_become_one(world: World, tmp_path: Path) -> None:
    flags = Flags(policy=str(tmp_path / "policy.yaml"), upstream=TARGET)
    reloader = Reloader(world.gate, flags, Environment({}))
    reading, go = asyncio.Event(), asyncio.Event()
    plain, reads = reloader._read, []

    async def read(environment: str) -> Snapshot:
        reads.append(environment)
        reading.set()
        await go.wait()
        return await plain(environment)

    reloader._read = read  # type: ignore[method-assign]
    reloader.hangup()
    await asyncio.wait_for(reading.wait(), 30)
    for _ in range(10):
        reloader.hangup()
    go.set()
    assert reloader._running is not None
    await asyncio.wait_for(reloader._running, 30)
    assert reads == ["prod", "prod"]


@pytest.mark.case("T59")
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_running_gateway_reloads_on_sighup_and_a_bad_file_does_not_end_it(tmp_path: Path) -> None:
    written(tmp_path, tier="L0")
    policy, flags = str(tmp_path / "policy.yaml"), ("--env", "prod", "--pins", str(tmp_path / "pins.json"))
    with gateway(tmp_path, "http://127.0.0.1:1/mcp", *flags, policy=policy) as gate:
        assert gate.stderr is not None
        assert rule(post(gate.url, "push", {})) == "upstream.unreachable"
        (tmp_path / "policy.yaml").write_text(
            '{"environment": "dev", "tools": {"other": {"tiers": {"prod": "L0"}}}}'
        )
        gate.process.send_signal(signal.SIGHUP)
        gate.stderr.until(r"^mcp-airlock: policy reloaded: 1 tools \(was 1\)$")
        assert rule(post(gate.url, "push", {})) == "allowlist.deny"
        assert rule(post(gate.url, "other", {})) == "upstream.unreachable"
        (tmp_path / "pins.json").write_text("[]")
        gate.process.send_signal(signal.SIGHUP)
        gate.stderr.until(r"^mcp-airlock: policy reload failed, keeping the current policy: .*pins\.json")
        assert rule(post(gate.url, "other", {})) == "upstream.unreachable"
        assert gate.stop() == 0

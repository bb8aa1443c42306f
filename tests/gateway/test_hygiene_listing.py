"""Content hygiene in what servers list and say of themselves, through the whole app."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from airlock.core.policy.load import build
from airlock.core.policy.pins import Pins, pin_of
from airlock.gateway.gate import Snapshot
from airlock.gateway.hygiene import Cleaner
from tests.fakes.world import OURS, POLICY, TOOLS, World, raw, result_of

GITHUB = "gh" + "p_" + "x" * 36
DIRTY = f"Reads.\u202e {GITHUB}"
CLEAN = "Reads.[U+202E] [REDACTED:github_token]"


class Clean(World):
    """A world in which hygiene is on."""

    def __init__(
        self, policy: dict[str, Any] | None = None, pins: Pins | None = None, *, wide: bool = False
    ) -> None:
        super().__init__(policy)
        built = build(json.loads(json.dumps(policy or POLICY)), "policy.yaml", None)
        self.gate.snapshot = Snapshot.of(built, pins or Pins(), wide=wide, hygiene=Cleaner)


def lists(world: World, tool: dict[str, Any]) -> None:
    world.client.catalog = result_of({"tools": [tool]})


async def test_descriptions_are_cleaned_counted_and_marked() -> None:
    world = Clean()
    lists(world, {**TOOLS[0], "description": DIRTY})
    told = {"invisible": 1, "secrets": 1, "kinds": ["bidi", "github_token"]}
    for _ in range(2):  # the second time it is remembered
        got = await world.rpc("tools/list")
        assert got.result["tools"] == [{**TOOLS[0], "description": CLEAN}]
        assert got.ours == {
            "hidden_tools": 0,
            "hygiene": told,
            "suspicious": [{"rule": "hidden_text", "tool": "read", "excerpt": CLEAN}],
        }
        assert world.last_pair[1]["detail"] == {"hygiene": told, "suspicious": ["hidden_text"]}


async def test_a_clean_listing_goes_out_as_without_hygiene() -> None:
    on, off = Clean(), World()
    assert (await on.rpc("tools/list")).raw == (await off.rpc("tools/list")).raw
    assert on.last_pair[1]["detail"] is None


async def test_pins_are_those_of_what_the_server_said() -> None:
    tool = {**TOOLS[0], "description": DIRTY}
    world = Clean(pins=Pins({"read": pin_of(tool)}))
    lists(world, tool)
    got = await world.rpc("tools/list")
    assert [one["description"] for one in got.result["tools"]] == [CLEAN]
    assert OURS + "pin_mismatch" not in got.result["_meta"]


async def test_a_rule_that_a_tool_is_allowed_is_not_applied_to_it() -> None:
    read = {**POLICY["tools"]["read"], "hygiene": {"allow": [{"rule": "bidi", "reason": "shows them"}]}}
    world = Clean({**POLICY, "tools": {**POLICY["tools"], "read": read}})
    lists(world, {**TOOLS[0], "description": DIRTY})
    assert (await world.rpc("tools/list")).result["tools"][0][
        "description"
    ] == "Reads.\u202e [REDACTED:github_token]"


async def test_a_description_of_a_server_is_cleaned() -> None:
    world = Clean()
    world.client.script = result_of({"instructions": DIRTY})
    got = await world.rpc("server/discover")
    assert got.result["instructions"] == CLEAN
    assert set(got.ours) == {"hygiene", "suspicious"}
    world.client.script = result_of({"instructions": f"say {GITHUB}", "_meta": {"vendor/k": 1}})
    got = await world.rpc("server/discover")
    assert got.result["_meta"] == {
        "vendor/k": 1,
        OURS + "hygiene": {"invisible": 0, "secrets": 1, "kinds": ["github_token"]},
    }
    world.client.script = result_of({"instructions": "plain"})
    assert "_meta" not in (await world.rpc("server/discover")).result


@pytest.mark.parametrize("on", [True, False])
async def test_an_error_is_cleaned_and_recorded_where_hygiene_is_on(on: bool) -> None:
    world = Clean()
    if not on:
        world.gate.snapshot = msgspec.structs.replace(world.gate.snapshot, hygiene=None)
    error = {"code": -32000, "message": DIRTY}
    world.client.catalog = lambda sent: raw(
        json.dumps({"jsonrpc": "2.0", "id": sent.body["id"], "error": error}).encode()
    )
    got = await world.rpc("tools/list")
    assert got.message["error"]["message"] == (CLEAN if on else DIRTY)
    detail = world.last_pair[1]["detail"]
    assert detail == (
        {"hygiene": {"invisible": 1, "secrets": 1, "kinds": ["bidi", "github_token"]}} if on else None
    )

"""What a policy, a server's tools and the pins say against each other (gateway.md 16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airlock.core.errors import ConfigError
from airlock.core.policy.diff import Listed, diff, listed, pin
from airlock.core.policy.lint import Finding, Level
from airlock.core.policy.load import build
from airlock.core.policy.pins import Pins, pin_of

OTHER = "sha256v2:" + "0" * 64


def tool(*arguments: str, **more: Any) -> dict[str, Any]:
    return {"inputSchema": {"type": "object", "properties": {name: {} for name in arguments}}, **more}


def catalog(**tools: dict[str, Any]) -> dict[str, Listed]:
    return {name: listed({"name": name, **body}) for name, body in tools.items()}


def policy(tools: Mapping[str, object], environment: str = "prod"):
    return build({"environment": environment, "tools": tools}, "policy.yaml", None)


def codes(findings: list[Finding]) -> list[str]:
    """Each finding as level, code and the name it begins with."""
    return [f"{f.level} {f.code} {f.message.split()[0].rstrip(':')}" for f in findings]


READ = {"tiers": {"prod": "L0"}}


def test_a_policy_that_fits_is_one_summary():
    found = diff(policy({"read": READ}), catalog(read=tool()))
    assert found == [Finding(Level.INFO, "ok", "1 tool in the policy, 1 on the server")]
    pinned, _ = pin(policy({"read": READ}), catalog(read=tool()))
    (only,) = diff(policy({"read": READ}), catalog(read=tool()), pinned)
    assert only.message == "1 tool in the policy, 1 on the server, 1 pinned"


def test_a_tool_the_server_no_longer_has_is_an_error_and_nothing_is_ok_then():
    found = diff(policy({"read": READ, "gone": READ}), catalog(read=tool()))
    assert codes(found) == ["ERROR missing_upstream gone"]


def test_a_tool_the_policy_lists_without_a_tier_is_compared_too():
    found = diff(policy({"gone": {"tiers": {}}, "dev": {"tiers": {"dev": "L0"}}}), catalog())
    assert codes(found) == ["ERROR missing_upstream gone", "ERROR missing_upstream dev"]


@pytest.mark.parametrize("tier", ["L0", "L1", "L2", "L3"])
def test_a_gated_tool_should_declare_dry_run(tier: str):
    rules = policy({"t": {"tiers": {"prod": tier, "dev": "L2"}}})
    expected = ["WARN no_dry_run t"] if tier in {"L1", "L2"} else []
    assert codes(diff(rules, catalog(t=tool("name"))))[:-1] == expected
    assert codes(diff(rules, catalog(t=tool("dry_run"))))[:-1] == []


def test_only_the_tier_of_the_running_environment_itself_counts_for_dry_run():
    rules = {"t": {"tiers": {"prod": "L0", "dev": "L1"}, "principals": {"bob": {"prod": "L2"}}}}
    assert codes(diff(policy(rules), catalog(t=tool())))[:-1] == []
    assert codes(diff(policy(rules, "dev"), catalog(t=tool())))[:-1] == ["WARN no_dry_run t"]


def test_a_rule_about_an_argument_that_the_schema_lacks_is_reported_for_each_rule():
    where = [
        {"arg": "name", "equals": 1},
        {"arg": "nmae", "equals": 1},
        {"arg": "space", "in": [1], "env": ["dev"], "optional": True},
    ]
    found = diff(policy({"t": {**READ, "where": where}}), catalog(t=tool("name")))
    assert [(f.code, f.message) for f in found[:-1]] == [
        ("where_unknown_arg", "t where[1]: the tool declares no argument nmae"),
        ("where_unknown_arg", "t where[2]: the tool declares no argument space"),
    ]


@pytest.mark.parametrize("schema", [None, 5, [], "x", {}, {"properties": None}, {"properties": ["name"]}])
def test_a_schema_without_properties_declares_nothing(schema: object):
    odd = listed({"name": "t", "inputSchema": schema})
    assert odd.arguments == frozenset()
    assert odd.pin == pin_of({"name": "t", "inputSchema": schema})
    assert listed({"name": "t"}).arguments == frozenset()


def test_tools_that_the_policy_does_not_mention_are_sorted():
    found = diff(policy({"m": READ}), catalog(z=tool(), m=tool(), a=tool()))
    assert codes(found) == ["WARN not_allowlisted a", "WARN not_allowlisted z", "INFO ok 1"]


def test_without_pins_nothing_is_said_about_them():
    assert diff(policy({"m": READ}), catalog(m=tool())) == diff(policy({"m": READ}), catalog(m=tool()), None)


def test_a_changed_tool_is_an_error():
    server = catalog(m=tool())
    assert codes(diff(policy({"m": READ}), server, Pins({"m": OTHER}))) == ["ERROR pin_mismatch m"]
    assert codes(diff(policy({"m": READ}), server, Pins({"m": server["m"].pin}))) == ["INFO ok 1"]


def test_a_tool_without_a_pin_is_a_warning():
    assert codes(diff(policy({"m": READ}), catalog(m=tool()), Pins())) == ["WARN no_pin m", "INFO ok 1"]


def test_a_pin_is_stale_when_the_policy_or_the_server_dropped_the_tool():
    rules = policy({"gone": READ})
    found = diff(rules, catalog(kept=tool()), Pins({"z": OTHER, "gone": OTHER, "kept": OTHER}))
    assert [(f.code, f.message) for f in found[2:]] == [
        ("stale_pin", "gone has a pin and is not on the server"),
        ("stale_pin", "kept has a pin and is not in the policy"),
        ("stale_pin", "z has a pin and is not in the policy"),
    ]


@pytest.mark.case("T57")
def test_a_pins_file_that_cannot_be_used_is_one_error_beside_the_rest():
    broken = ConfigError("pins.json", "holds pins of an older form")
    found = diff(policy({"t": {"tiers": {"prod": "L1"}}}), catalog(t=tool(), a=tool()), broken)
    assert [f"{f.level} {f.code}" for f in found] == [
        "WARN no_dry_run",
        "WARN not_allowlisted",
        "ERROR pins_file",
    ]
    assert found[-1].message == "pins.json: holds pins of an older form"


def test_the_order_is_tools_then_strangers_then_pins_then_stale_pins():
    rules = policy(
        {
            "z": {"tiers": {"prod": "L2"}, "where": [{"arg": "q", "equals": 1}]},
            "gone": READ,
            "b": {"tiers": {"prod": "L1"}},
            "a": READ,
        }
    )
    server = catalog(b=tool(), z=tool(), a=tool(), new=tool(), also=tool())
    found = diff(rules, server, Pins({"z": OTHER, "y": OTHER, "a": server["a"].pin, "gone": OTHER}))
    assert codes(found) == [
        "WARN no_dry_run z",
        "WARN where_unknown_arg z",
        "ERROR missing_upstream gone",
        "WARN no_dry_run b",
        "WARN not_allowlisted also",
        "WARN not_allowlisted new",
        "ERROR pin_mismatch z",
        "WARN no_pin b",
        "WARN stale_pin gone",
        "WARN stale_pin y",
    ]


def test_pinning_takes_what_both_know_and_warns_about_what_the_server_lacks():
    server = catalog(b=tool(), a=tool(), stranger=tool())
    pins, warnings = pin(policy({"b": READ, "gone": READ, "a": {"tiers": {}}}), server)
    assert pins.of == {"b": server["b"].pin, "a": server["a"].pin}
    assert codes(warnings) == ["WARN missing_upstream gone"]


def test_a_name_that_a_server_chose_is_one_short_printable_line():
    server = {"\x1b[2J\nERROR ok: \u202e" + "x" * 10_000: listed({})}
    found = diff(policy({}), server)
    assert all(f.message.isprintable() and len(f.message) < 200 for f in found)
    assert found[0].message.startswith(r"\u001b[2J\nERROR ok: \u202e")

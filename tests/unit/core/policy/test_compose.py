"""Policies and pins of several upstreams as one: prefixes, what two files may not say, what stays the main file's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airlock.core.decision import Tier
from airlock.core.errors import ConfigError
from airlock.core.policy import pins
from airlock.core.policy.compose import compose, compose_pins, outside
from airlock.core.policy.load import build
from airlock.core.policy.pins import Pins, pin_of
from airlock.core.principal import Principal

ALICE = Principal("alice")


def policy(environment: str = "prod", **sections: Any):
    return build({"environment": environment, **sections}, "policy.yaml", None)


def tools(*names: str, tier: str = "L0") -> dict[str, Any]:
    return {name: {"tiers": {"prod": tier}} for name in names}


def faults(*args: Any, of: Any = compose) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        of(*args)
    return [str(fault) for fault in refused.value.faults]


def test_a_name_outside_has_the_prefix_and_two_underscores():
    assert outside("git", "status") == "git__status"
    assert outside("", "status") == "status"


def test_the_tools_of_a_part_get_its_prefix_and_those_of_the_main_file_stay():
    made = compose(
        policy(tools=tools("grafana__query", tier="L2")),
        {"git": policy(tools=tools("status")), "": policy(tools=tools("read"))},
    )
    assert list(made.tools) == ["grafana__query", "git__status", "read"]
    assert made.tier("git__status", ALICE) is Tier.L0
    assert made.tier("status", ALICE) is None
    assert made.tier("grafana__query", ALICE) is Tier.L2


def test_a_tool_keeps_the_limits_of_its_own_file():
    part = policy(tools=tools("a"), output={"max_chars": 9}, blast_radius={"max_per_call": 3})
    made = compose(policy(tools=tools("b"), output={"max_chars": 5}), {"p": part})
    assert (made.tools["p__a"].output.max_chars, made.tools["p__a"].radius.max_per_call) == (9, 3)
    assert (made.tools["b"].output.max_chars, made.tools["b"].radius.max_per_call) == (5, 50)
    assert made.output.max_chars == 5


def test_a_tool_in_two_files_is_a_fault():
    assert faults(
        policy(tools=tools("git__push", "x")),
        {"git": policy(tools=tools("push")), "": policy(tools=tools("x"))},
    ) == [
        "git__push: is in the file of git and in the main file",
        "x: is in the file without a prefix and in the main file",
    ]


def test_rules_of_an_upstream_without_a_prefix_cannot_be_for_tools_of_another():
    part = policy(tools=tools("git__push", "time__now", "other__x", "__y"))
    assert faults(policy(), {"": part, "git": policy()}, ["time"]) == [
        "git__push: is in the file without a prefix and belongs to upstream git",
        "time__now: is in the file without a prefix and belongs to upstream time",
    ]


def test_a_part_for_another_environment_is_a_fault():
    assert faults(policy("prod"), {"git": policy("dev")}) == ['the file of git: runs in "dev", not in "prod"']


def test_every_fault_is_told_at_once():
    assert len(faults(policy(tools=tools("git__a")), {"git": policy("dev", tools=tools("a"), roots={})})) == 3


def test_what_stands_in_the_main_file_only_is_a_fault_in_a_part():
    part = policy(completion={}, sampling={}, roots={}, elicitation={})
    assert faults(policy(), {"git": part}) == [
        f"the file of git: {section} stands in the main file only"
        for section in ("completion", "sampling", "roots", "elicitation")
    ]
    main = policy(completion={}, elicitation={})
    assert compose(main, {"git": policy()}) == main


def test_prompts_get_the_prefix_and_resources_stay_as_they_are():
    part = policy(prompts={"review*": {}, "*": {"principals": ["bob"]}}, resources={"file:///srv/*": {}})
    made = compose(policy(resources={"mem:**": {}}), {"git": part})
    assert made.prompts is not None
    assert made.resources is not None
    assert [rule.pattern.text for rule in made.prompts] == ["git__review*", "git__*"]
    assert [rule.pattern.text for rule in made.resources] == ["mem:**", "file:///srv/*"]
    assert made.prompt("git__review-1", ALICE) is not None
    assert made.prompt("review-1", ALICE) is None
    assert made.prompt("git__other", ALICE) is None
    assert made.prompt("git__other", Principal("bob")) is not None
    assert made.resource("file:///srv/a", ALICE) is not None


def test_without_any_section_there_is_none_and_an_empty_one_is_one():
    assert compose(policy(), {"git": policy()}).prompts is None
    assert compose(policy(), {"git": policy(prompts={})}).prompts == ()
    assert compose(policy(resources={}), {"git": policy()}).resources == ()


def test_prompts_of_an_upstream_without_a_prefix_cannot_cover_those_of_another():
    part = policy(prompts={"*": {}, "time_*": {}, "plain": {}})
    assert faults(policy(), {"": part}, ["time", "git"]) == [
        "prompts.*: in the file without a prefix also covers prompts of git, time",
        "prompts.time_*: in the file without a prefix also covers prompts of time",
    ]
    made = compose(policy(), {"": policy(prompts={"plain": {}, "a*": {}})}, ["time"])
    assert made.prompts is not None
    assert [rule.pattern.text for rule in made.prompts] == ["plain", "a*"]


def test_what_compose_does_not_know_stays_that_of_the_main_file():
    made = compose(policy(output={"max_chars": 7}), {"git": policy(output={"max_chars": 8})})
    main = policy(output={"max_chars": 7})
    known = {"tools", "prompts", "resources"}
    for field in set(msgspec.structs.asdict(main)) - known:
        assert getattr(made, field) == getattr(main, field)


def test_pins_hold_for_what_the_server_itself_lists():
    tool: dict[str, object] = {"name": "push", "description": "push"}
    made = compose_pins(Pins({"main": pin_of({"name": "main"})}), {"git": Pins({"push": pin_of(tool)})})
    assert set(made.of) == {"main", "git__push"}
    assert not made.changed({**tool, "name": "git__push"})
    assert made.changed({**tool, "name": "git__push", "description": "pull"})
    assert not made.changed({"name": "main"})
    assert made.changed({"name": "main", "title": "other"})
    assert not made.changed({"name": "push"})
    assert not made.changed({"name": ["git__push"]})
    assert pins.parse(dict(made.of), "pins.json") == Pins(dict(made.of))


def test_a_tool_pinned_in_two_files_is_a_fault():
    pin = pin_of({"name": "push"})
    assert faults(Pins({"git__push": pin}), {"git": Pins({"push": pin})}, of=compose_pins) == [
        "git__push: is in the file of git and in the main file"
    ]
    assert faults(Pins(), {"": Pins({"git__push": pin})}, ["git"], of=compose_pins) == [
        "git__push: is in the file without a prefix and belongs to upstream git"
    ]


def test_names_in_faults_cannot_write_the_terminal():
    assert "\x1b" not in faults(policy(tools=tools("a__\x1b[2J")), {"a": policy(tools=tools("\x1b[2J"))})[0]

"""What is advertised and served under a policy: a capability and its methods, both or neither."""

from __future__ import annotations

from typing import Any

from airlock.core.policy.load import build
from airlock.core.policy.model import Policy
from airlock.gateway.advertised import advertised, served

CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
    "experimental": {"x": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
    "tasks": {},
}


def policy(**sections: Any) -> Policy:
    return build({"environment": "prod", **sections}, "policy.yaml", None)


def test_a_policy_without_sections_advertises_and_serves_nothing_beside_tools() -> None:
    assert advertised(CAPABILITIES, policy()) == {
        "tools": {"listChanged": True},
        "logging": {},
        "experimental": {"x": {}},
    }
    assert served(policy()) == {"subscriptions/listen"}


def test_each_section_brings_its_capability_and_its_methods() -> None:
    assert advertised(CAPABILITIES, policy(resources={}))["resources"] == {"subscribe": True}
    assert served(policy(resources={})) == {
        "subscriptions/listen",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
    assert "prompts" in advertised(CAPABILITIES, policy(prompts={}))
    assert served(policy(prompts={})) == {"subscriptions/listen", "prompts/list", "prompts/get"}
    assert "completions" in advertised(CAPABILITIES, policy(completion={}))
    assert served(policy(completion={})) == {"subscriptions/listen", "completion/complete"}


def test_extensions_and_what_is_not_known_are_never_advertised() -> None:
    full = advertised(CAPABILITIES, policy(resources={}, prompts={}, completion={}))
    assert CAPABILITIES.keys() - full.keys() == {"extensions", "tasks"}


def test_capabilities_that_lose_nothing_are_the_same_object() -> None:
    capabilities: dict[str, object] = {"tools": {}, "logging": {}}
    assert advertised(capabilities, policy()) is capabilities

"""What is advertised and which methods are served: never more than the policy has a section for.

Pure. Knows capabilities of revision 2026-07-28 and sections of a policy; decides nothing about callers.
SPEC: mcp.md 4, 9, 14, 26 (16).
"""

from __future__ import annotations

from airlock.core.policy.model import Policy

__all__ = ["LISTEN", "advertised", "served"]

LISTEN = "subscriptions/listen"

_RESOURCES = frozenset({"resources/list", "resources/templates/list", "resources/read"})
_PROMPTS = frozenset({"prompts/list", "prompts/get"})
_COMPLETION = frozenset({"completion/complete"})
_ALWAYS = frozenset({"tools", "logging", "experimental"})


def served(policy: Policy) -> frozenset[str]:
    """Return the methods that are served beyond the seed's three: `subscriptions/listen` and those of sections."""
    methods = {LISTEN}
    if policy.resources is not None:
        methods |= _RESOURCES
    if policy.prompts is not None:
        methods |= _PROMPTS
    if policy.completion is not None:
        methods |= _COMPLETION
    return frozenset(methods)


def advertised(capabilities: dict[str, object], policy: Policy) -> dict[str, object]:
    """Return the upstream's `capabilities` without what is not served here; the same object when that is nothing.

    Extensions are not served, nor is a capability that this revision does not know.
    """
    known = set(_ALWAYS)
    if policy.resources is not None:
        known.add("resources")
    if policy.prompts is not None:
        known.add("prompts")
    if policy.completion is not None:
        known.add("completions")
    if capabilities.keys() <= known:
        return capabilities
    return {name: capability for name, capability in capabilities.items() if name in known}

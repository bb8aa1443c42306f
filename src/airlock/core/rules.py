"""Rule ids: the name of the reason behind every verdict. The reference table is made from this file.

SPEC: gateway.md 18. `protocol.<code>` is made by `protocol_rule`.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["SENTENCES", "Rule", "protocol_rule"]


class Rule(StrEnum):
    """Every rule id with a fixed name."""

    ALLOWLIST_DENY = "allowlist.deny"
    TIER_UNASSIGNED = "tier.unassigned"
    ARGS_VIOLATION = "args.violation"
    L0_READ = "tier.L0.read"
    L1_DRY_RUN = "tier.L1.dry_run"
    L2_CONFIRM = "tier.L2.confirm"
    L2_CONFIRMED = "tier.L2.confirmed"
    L2_DRY_RUN = "tier.L2.dry_run"
    L3_AUTO = "tier.L3.auto"
    RADIUS_PER_CALL = "blast_radius.per_call"
    RADIUS_PER_PRINCIPAL = "blast_radius.per_principal"
    DRY_RUN_UNSUPPORTED = "dry_run.unsupported"
    CATALOG_UNAVAILABLE = "catalog.unavailable"
    CATALOG_PIN_MISMATCH = "catalog.pin_mismatch"
    STORE_UNAVAILABLE = "store.unavailable"
    PRINCIPAL_MISSING = "principal.missing"
    SCOPE_MISSING = "scope.missing"
    RATE_LIMITED = "rate.limited"
    PROMPT_LIMITED = "prompt.limited"
    PASSTHROUGH = "passthrough"
    RESOURCE_ALLOW = "resource.allow"
    RESOURCE_DENY = "resource.deny"
    PROMPT_ALLOW = "prompt.allow"
    PROMPT_DENY = "prompt.deny"
    COMPLETION_ALLOW = "completion.allow"
    COMPLETION_DENY = "completion.deny"
    MRTR_PENDING = "mrtr.pending"
    MRTR_DECLINED = "mrtr.declined"
    MRTR_REPLAY = "mrtr.replay"
    MRTR_EXPIRED = "mrtr.expired"
    MRTR_MISMATCH = "mrtr.mismatch"
    MRTR_BAD_SIGNATURE = "mrtr.bad_signature"
    MRTR_APPROVED_OOB = "mrtr.approved_oob"
    MRTR_UPSTREAM_INPUT_REQUIRED = "mrtr.upstream_input_required"
    REQUEST_TOO_LARGE = "request.too_large"
    UPSTREAM_TOO_LARGE = "upstream.too_large"
    UPSTREAM_UNREACHABLE = "upstream.unreachable"
    UPSTREAM_ENCODED = "upstream.encoded"
    UPSTREAM_BAD_REPLY = "upstream.bad_reply"
    CALL_CANCELLED = "call.cancelled"
    INTERNAL_ERROR = "internal.error"


SENTENCES: dict[Rule, str] = {
    Rule.ALLOWLIST_DENY: "The policy does not list this tool.",
    Rule.TIER_UNASSIGNED: "The policy lists the tool but gives it no tier in this environment for this caller.",
    Rule.ARGS_VIOLATION: "A `where` rule of the tool forbids these arguments.",
    Rule.L0_READ: "A read goes straight through.",
    Rule.L1_DRY_RUN: "The call went through with `dry_run` forced to true.",
    Rule.L2_CONFIRM: "A person must say yes to exactly this call.",
    Rule.L2_CONFIRMED: "A person said yes, the yes was used up, and the call went through.",
    Rule.L2_DRY_RUN: "The caller asked for a dry run itself; nothing needs a yes.",
    Rule.L3_AUTO: "The call goes through as sent, within the blast radius.",
    Rule.RADIUS_PER_CALL: "The call touches more objects than one call may.",
    Rule.RADIUS_PER_PRINCIPAL: "The caller has used up its objects for this tool in the sliding window.",
    Rule.DRY_RUN_UNSUPPORTED: "A dry run is required and the tool does not declare `dry_run`.",
    Rule.CATALOG_UNAVAILABLE: "The tool's schema could not be fetched from the upstream.",
    Rule.CATALOG_PIN_MISMATCH: "A listed tool is not what was pinned; it was left out of the listing.",
    Rule.STORE_UNAVAILABLE: "The state store did not answer.",
    Rule.PRINCIPAL_MISSING: "No principal could be established for the request.",
    Rule.SCOPE_MISSING: "The caller's token lacks a scope that the gateway requires.",
    Rule.RATE_LIMITED: "More requests came, from one caller, for one tool or from one address, than it may send.",
    Rule.PROMPT_LIMITED: "The caller made the gateway ask people more often than it may.",
    Rule.PASSTHROUGH: "A listing, a `server/discover` or a `subscriptions/listen` was forwarded.",
    Rule.RESOURCE_ALLOW: "A pattern of `resources` lets the caller read this resource.",
    Rule.RESOURCE_DENY: "No pattern of `resources` lets the caller read this resource.",
    Rule.PROMPT_ALLOW: "A pattern of `prompts` lets the caller have this prompt.",
    Rule.PROMPT_DENY: "No pattern of `prompts` lets the caller have this prompt.",
    Rule.COMPLETION_ALLOW: "The caller may ask for completions, and see what this one is about.",
    Rule.COMPLETION_DENY: "The caller may not ask for completions, or not see what this one is about.",
    Rule.MRTR_PENDING: "The call waits for a person.",
    Rule.MRTR_DECLINED: "A person, or the client for them, said no.",
    Rule.MRTR_REPLAY: "The confirmation was already used or declined.",
    Rule.MRTR_EXPIRED: "The confirmation is past its time.",
    Rule.MRTR_MISMATCH: "The confirmation was issued for a different call.",
    Rule.MRTR_BAD_SIGNATURE: "The confirmation was not signed by this gateway.",
    Rule.MRTR_APPROVED_OOB: "A person said yes through the approve link.",
    Rule.MRTR_UPSTREAM_INPUT_REQUIRED: (
        "A gated tool asked a question of its own, or a server one that the policy forbids."
    ),
    Rule.REQUEST_TOO_LARGE: "The request body is over the limit.",
    Rule.UPSTREAM_TOO_LARGE: "The upstream's answer is over the limit.",
    Rule.UPSTREAM_UNREACHABLE: "The upstream could not be reached, or its answer was lost.",
    Rule.UPSTREAM_ENCODED: "The upstream answered with compressed content.",
    Rule.UPSTREAM_BAD_REPLY: "The upstream's answer is not a usable JSON-RPC response.",
    Rule.CALL_CANCELLED: "The client left, or took the request back, before it was answered.",
    Rule.INTERNAL_ERROR: "The gateway failed; the call was stopped or its end is not known.",
}


def protocol_rule(code: int) -> str:
    """Name the rule of a protocol denial, such as `protocol.-32602`."""
    return f"protocol.{code}"

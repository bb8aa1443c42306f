"""Names and numbers that agents and operators depend on, exactly as the documents give them."""

from __future__ import annotations

import tomllib

from airlock.core.approval import notice, prompt, ticket
from airlock.core.audit.record import FIELDS
from airlock.core.decision import Tier, Verdict
from airlock.core.policy.model import OutputLimits, Radius
from airlock.core.rules import Rule
from airlock.core.text import scan
from airlock.edge.sinks import pgqueue
from airlock.gateway import catalog
from tests.fakes.processes import ROOT

RULES = """
allowlist.deny tier.unassigned args.violation tier.L0.read tier.L1.dry_run tier.L2.confirm tier.L2.confirmed
tier.L2.dry_run tier.L3.auto blast_radius.per_call blast_radius.per_principal dry_run.unsupported catalog.unavailable
catalog.pin_mismatch store.unavailable principal.missing passthrough mrtr.pending mrtr.declined mrtr.replay mrtr.expired
mrtr.mismatch mrtr.bad_signature mrtr.approved_oob mrtr.upstream_input_required request.too_large upstream.too_large
upstream.unreachable upstream.encoded upstream.bad_reply internal.error resource.allow resource.deny prompt.allow
prompt.deny completion.allow completion.deny call.cancelled rate.limited prompt.limited scope.missing
"""


def test_the_rules_are_these_and_no_others() -> None:
    assert sorted(rule.value for rule in Rule) == sorted(RULES.split())


def test_tiers_and_verdicts_are_these_words() -> None:
    assert [tier.value for tier in Tier] == ["L0", "L1", "L2", "L3"]
    assert sorted(verdict.value for verdict in Verdict) == ["allow", "confirm", "deny", "error"]


def test_the_fields_of_a_record_stand_in_this_order() -> None:
    assert " ".join(FIELDS) == (
        "ts phase call_id principal method tool args verdict rule_id tier dry_run latency_ms upstream_status trace_id "
        "detail prev hash"
    )


def test_the_limits_are_the_documented_ones() -> None:
    assert ticket.LIFETIME_S == 600
    assert prompt.PREVIEW_CHARS == 2000
    assert notice.KEPT_CHARS == 8000
    assert notice.POSTED_CHARS == 3500
    assert scan.MAX_FINDINGS == 20
    assert catalog.MAX_PAGES == 10
    assert (pgqueue.ROWS, pgqueue.SIZE) == (1000, 32 * 1024 * 1024)
    assert (OutputLimits().max_chars, OutputLimits().chars_per_token) == (16000, 4)
    assert (Radius().max_per_call, Radius().max_per_principal, Radius().window_s) == (50, 500, 3600)


def test_the_three_features_are_extras_and_the_three_commands_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"postgres", "otlp", "regex"} <= set(project["optional-dependencies"])
    assert {"mcp-airlock", "airlock-policy", "airlock-audit"} <= set(project["scripts"])
    base = " ".join(project["dependencies"])
    assert not any(word in base for word in ("psycopg", "opentelemetry", "google-re2"))

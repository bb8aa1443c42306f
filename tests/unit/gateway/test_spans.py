"""What stands on the span of a request, and what never does."""

from __future__ import annotations

import pytest

from airlock.core.decision import Tier, Verdict
from airlock.core.rules import Rule
from airlock.edge.spans import Span
from airlock.edge.trace import Trace
from airlock.gateway import spans

TRACE = Trace("ab" * 16, "cd" * 8, "ef" * 8, "unused", "unused", 100.5)
TOKEN = "gh" + "p_" + "x" * 36


def made(**known: object) -> Span:
    given: dict[str, object] = {
        "ended": 100.75, "method": "tools/call", "request_id": 7, "principal": "alice",
        "tool": "drop_bucket", "verdict": Verdict.ALLOW, "rule": Rule.L0_READ, "tier": Tier.L0, **known,
    }  # fmt: skip
    return spans.of_call(TRACE, **given)  # type: ignore[arg-type]


def test_a_call_is_named_after_its_tool_and_carries_the_outcome():
    span = made(suspicious=2)
    assert span.name == "execute_tool drop_bucket"
    assert (span.trace_id, span.span_id, span.parent_id) == ("ab" * 16, "cd" * 8, "ef" * 8)
    assert (span.start_ns, span.end_ns) == (100_500_000_000, 100_750_000_000)
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "drop_bucket",
        "gen_ai.tool.call.id": "7",
        "rpc.method": "tools/call",
        "enduser.id": "alice",
        "airlock.verdict": "allow",
        "airlock.rule_id": "tier.L0.read",
        "airlock.tier": "L0",
        "airlock.suspicious": 2,
    }
    assert span.error is None


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
def test_another_method_is_its_own_name_and_no_tool(method: str):
    span = made(method=method, tool=None, rule=Rule.PASSTHROUGH, tier=None)
    assert span.name == method
    assert dict(span.attributes) == {
        "gen_ai.operation.name": method,
        "rpc.method": method,
        "enduser.id": "alice",
        "airlock.verdict": "allow",
        "airlock.rule_id": "passthrough",
        "airlock.tier": "",
    }


def test_a_request_without_a_principal_has_no_user():
    span = made(principal=None, verdict=Verdict.DENY, rule=Rule.PRINCIPAL_MISSING, tier=None)
    assert "enduser.id" not in dict(span.attributes)
    assert dict(span.attributes)["airlock.rule_id"] == "principal.missing"
    assert dict(span.attributes)["airlock.tier"] == ""


@pytest.mark.case("T34")
@pytest.mark.parametrize(
    ("verdict", "rule", "error"),
    [
        (Verdict.DENY, Rule.MRTR_REPLAY, None),
        (Verdict.DENY, Rule.MRTR_DECLINED, None),
        (Verdict.DENY, Rule.CATALOG_UNAVAILABLE, None),
        (Verdict.CONFIRM, Rule.L2_CONFIRM, None),
        (Verdict.ERROR, Rule.UPSTREAM_UNREACHABLE, "upstream.unreachable"),
        (Verdict.ERROR, Rule.INTERNAL_ERROR, "internal.error"),
        ("error", "upstream.bad_reply", "upstream.bad_reply"),
    ],
)
def test_the_status_is_an_error_exactly_when_the_outcome_is(verdict: str, rule: str, error: str | None):
    span = made(verdict=verdict, rule=rule)
    assert span.error == error
    assert dict(span.attributes)["airlock.verdict"] == verdict
    assert dict(span.attributes)["airlock.rule_id"] == rule


@pytest.mark.case("T35")
@pytest.mark.parametrize("field", ["tool", "principal", "request_id"])
@pytest.mark.parametrize("text", [TOKEN, "a" * 110 + " " + TOKEN, f"deploy {TOKEN} now"])
def test_a_secret_in_what_the_client_chose_is_gone_before_the_cut(field: str, text: str):
    span = made(**{field: text})
    shown = [span.name, *(str(value) for _, value in span.attributes)]
    assert not any("gh" + "p_" in value for value in shown)
    assert any("[REDACTED]" in value or "[cut]" in value for value in shown)


@pytest.mark.case("T35")
def test_a_secret_in_an_unknown_method_is_gone_too():
    assert TOKEN not in repr(made(method=f"tools/{TOKEN}", tool=None))


@pytest.mark.case("T35")
def test_what_the_client_chose_is_cut_at_128():
    span = made(tool="t" * 5000, principal="p" * 5000, request_id="i" * 5000)
    values = dict(span.attributes)
    assert span.name == "execute_tool " + "t" * 109 + "…[cut]"
    for key in ("gen_ai.tool.name", "gen_ai.tool.call.id", "enduser.id"):
        assert len(str(values[key])) == 128
    assert len(made(tool="t" * 128).name) == 128
    assert dict(made(tool="t" * 128).attributes)["gen_ai.tool.name"] == "t" * 128


def test_broken_text_becomes_well_formed():
    span = made(tool="a\x00\ud800", principal="\udfff", request_id="\ud800")
    for text in (span.name, *(str(value) for _, value in span.attributes)):
        text.encode("utf-8")
        assert "\x00" not in text


@pytest.mark.parametrize(
    ("request_id", "text"),
    [
        (0, "0"),
        (-5, "-5"),
        (1.5, "1.5"),
        ("abc", "abc"),
        (10**120, "1" + "0" * 120),
        (10**5000, "(a long number)"),
    ],
    ids=["zero", "negative", "fraction", "text", "digits", "many digits"],
)
def test_the_id_is_written_as_text(request_id: object, text: str):
    assert dict(made(request_id=request_id).attributes)["gen_ai.tool.call.id"] == text


def test_a_clock_that_was_set_back_does_not_end_a_span_before_it_began():
    span = made(ended=90.0)
    assert span.start_ns == span.end_ns

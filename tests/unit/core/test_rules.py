from __future__ import annotations

from airlock.core.errors import UpstreamFailure
from airlock.core.rules import SENTENCES, Rule, protocol_rule


def test_every_rule_has_a_sentence_of_its_own():
    assert set(SENTENCES) == set(Rule)
    assert len(set(SENTENCES.values())) == len(Rule)
    assert all(sentence.endswith(".") for sentence in SENTENCES.values())


def test_every_failure_of_an_upstream_is_a_rule():
    assert {failure.value for failure in UpstreamFailure} <= {rule.value for rule in Rule}


def test_a_protocol_denial_is_named_by_its_code():
    assert protocol_rule(-32602) == "protocol.-32602"

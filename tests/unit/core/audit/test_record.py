"""A record's fields."""

from __future__ import annotations

import json

import pytest

from airlock.core.audit import chain
from airlock.core.audit.record import FIELDS, Phase, Record, Subject
from tests.fakes.records import record as make_record

MINIMAL = make_record(
    ts="t",
    phase=Phase.INTENT,
    call_id="c",
    principal=None,
    method=None,
    tool=None,
    args_json="null",
    verdict="deny",
    rule_id="principal.missing",
)


def test_there_are_seventeen_fields_and_the_chain_comes_last():
    assert len(FIELDS) == len(set(FIELDS)) == 17
    assert FIELDS[-2:] == ("prev", "hash")


def test_every_member_of_a_record_is_a_field_of_the_line():
    members = {name.removesuffix("_json") for name in (*Record.__struct_fields__, *Subject.__struct_fields__)}
    members.remove("subject")
    assert members == set(FIELDS) - {"prev", "hash"}


def test_what_a_record_does_not_say_is_null_in_the_line():
    fields = json.loads(chain.seal(MINIMAL, chain.GENESIS)[0])
    for name in ("tier", "dry_run", "latency_ms", "upstream_status", "trace_id", "detail"):
        assert fields[name] is None


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError):
        MINIMAL.verdict = "allow"  # type: ignore[misc]


def test_the_phases_are_the_words_of_the_log():
    assert [str(phase) for phase in Phase] == ["intent", "outcome"]

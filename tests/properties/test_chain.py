"""The chain for any record: the hash is the documented one, and no single change of a line goes unseen."""

from __future__ import annotations

import hashlib
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.audit import chain
from airlock.core.audit.record import FIELDS, Phase, Record
from airlock.core.wire import canon
from tests.fakes.records import record as make_record

texts = st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
counts = st.none() | st.integers(0, 10**12)
records = st.builds(
    make_record,
    ts=texts,
    phase=st.sampled_from(Phase),
    call_id=texts,
    principal=st.none() | texts,
    method=st.none() | texts,
    tool=st.none() | texts,
    args_json=values.map(canon.text),
    verdict=texts,
    rule_id=texts,
    tier=st.none() | texts,
    dry_run=st.none() | st.booleans(),
    latency_ms=counts,
    upstream_status=counts,
    trace_id=st.none() | texts,
    detail_json=values.map(canon.text),
)
chains = st.lists(records, min_size=3, max_size=5)
quick = settings(max_examples=50, deadline=None)


def seal_all(entries: list[Record]) -> list[bytes]:
    lines, prev = [], chain.GENESIS
    for entry in entries:
        line, prev = chain.seal(entry, prev)
        lines.append(line)
    return lines


def holds(lines: list[bytes]) -> bool:
    return isinstance(chain.verify([("log", lines)]), chain.Verified)


@quick
@given(records, st.text("0123456789abcdef", min_size=64, max_size=64))
def test_the_hash_is_the_documented_one_for_any_contents(entry, prev):
    line, digest = chain.seal(entry, prev)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    fields = json.loads(line.decode())
    assert tuple(fields) == FIELDS
    assert fields.pop("hash") == digest
    assert fields["prev"] == prev
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    for name in set(entry.subject.__struct_fields__) - {"args"}:
        assert fields[name] == getattr(entry.subject, name)
    assert canon.encode(fields["args"]) == bytes(entry.subject.args)
    for name in set(Record.__struct_fields__) - {"subject", "detail_json"}:
        assert fields[name] == getattr(entry, name)
    assert canon.text(fields["detail"]) == entry.detail_json


@quick
@given(chains)
def test_a_chain_as_it_was_written_verifies(entries):
    lines = seal_all(entries)
    assert holds(lines)
    assert chain.verify([("a", lines[:2]), ("b", lines[2:])]) == chain.Verified(
        len(lines), 2, chain.GENESIS, json.loads(lines[-1])["hash"], 0
    )


@quick
@given(chains, st.data())
def test_any_edit_of_a_value_is_found(entries, data):
    lines = seal_all(entries)
    at = data.draw(st.integers(0, len(lines) - 1))
    fields = json.loads(lines[at])
    name = data.draw(st.sampled_from(FIELDS))
    value = data.draw(values.filter(lambda value: canon.text(value) != canon.text(fields[name])))
    lines[at] = canon.encode(fields | {name: value}) + b"\n"
    assert not holds(lines)


@quick
@given(chains, st.data())
def test_any_edit_that_is_hashed_again_is_found_unless_it_is_the_newest(entries, data):
    lines = seal_all(entries)
    at = data.draw(st.integers(0, len(lines) - 2))
    fields = json.loads(lines[at])
    name = data.draw(st.sampled_from(FIELDS[:-1]))
    fields[name] = data.draw(values.filter(lambda value: canon.text(value) != canon.text(fields[name])))
    del fields["hash"]
    fields["hash"] = hashlib.sha256(canon.encode(fields)).hexdigest()
    lines[at] = canon.encode(fields) + b"\n"
    assert not holds(lines)


@quick
@given(chains, st.data())
def test_any_deletion_inside_the_log_is_found(entries, data):
    lines = seal_all(entries)
    del lines[data.draw(st.integers(1, len(lines) - 2))]
    assert not holds(lines)


@quick
@given(chains, st.data())
def test_any_other_order_is_found(entries, data):
    lines = seal_all(entries)
    other = data.draw(st.permutations(lines).filter(lambda order: order != lines))
    assert not holds(other)


@quick
@given(chains, st.data())
def test_an_insertion_is_found_unless_it_is_a_record_that_continues_the_chain(entries, data):
    lines = seal_all(entries)
    at = data.draw(st.integers(1, len(lines)))
    forged, _ = chain.seal(data.draw(records), data.draw(texts))
    assert not holds([*lines[:at], forged, *lines[at:]])


@quick
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_no_bytes_make_verify_fail_in_any_other_way(lines):
    chain.render(chain.verify([("log", lines)]))

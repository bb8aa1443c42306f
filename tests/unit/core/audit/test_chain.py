"""Sealing and verifying: the exact bytes, the exact words, and what each kind of damage is called."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from airlock.core.audit import chain
from airlock.core.audit.record import FIELDS, Phase, Record
from airlock.core.wire import canon
from tests.fakes.records import record as make_record
from tests.vectors import make_chain

VECTORS = Path(__file__).parents[3] / "vectors" / "chain"
EXPECTED = json.loads((VECTORS / "expected.json").read_text())


def record(**changes) -> Record:
    fields: dict[str, Any] = {
        "ts": "2026-11-02T10:00:00.125+00:00",
        "phase": Phase.INTENT,
        "call_id": "5e" * 16,
        "principal": "alice",
        "method": "tools/call",
        "tool": "drop_bucket",
        "args_json": '{"buckets":["x1"]}',
        "verdict": "allow",
        "rule_id": "tier.L2.confirmed",
        "tier": "L2",
        "dry_run": False,
        "trace_id": "84" * 16,
    }
    return make_record(**(fields | changes))


def line_of(fields: dict[str, object]) -> bytes:
    """What a careful forger would write: any fields, with the hash that fits them."""
    body = {key: value for key, value in fields.items() if key != "hash"}
    return canon.encode(body | {"hash": hashlib.sha256(canon.encode(body)).hexdigest()}) + b"\n"


def sealed(count: int) -> list[bytes]:
    lines, prev = [], chain.GENESIS
    for number in range(count):
        line, prev = chain.seal(record(call_id=f"{number:032x}"), prev)
        lines.append(line)
    return lines


def verified(*files: list[bytes]) -> str:
    return chain.render(chain.verify([(f"f{number}", lines) for number, lines in enumerate(files, 1)]))


def test_a_line_has_the_seventeen_fields_in_the_order_of_the_specification():
    line, digest = chain.seal(record(), chain.GENESIS)
    assert line == (
        b'{"ts":"2026-11-02T10:00:00.125+00:00","phase":"intent","call_id":"' + b"5e" * 16 + b'",'
        b'"principal":"alice","method":"tools/call","tool":"drop_bucket","args":{"buckets":["x1"]},'
        b'"verdict":"allow","rule_id":"tier.L2.confirmed","tier":"L2","dry_run":false,"latency_ms":null,'
        b'"upstream_status":null,"trace_id":"' + b"84" * 16 + b'","detail":null,'
        b'"prev":"' + b"0" * 64 + b'","hash":"' + digest.encode() + b'"}\n'
    )
    assert tuple(json.loads(line)) == FIELDS


def test_what_is_missing_is_null_and_numbers_and_flags_are_written_as_json():
    bare = make_record(
        ts="t",
        phase=Phase.OUTCOME,
        call_id="c",
        principal=None,
        method=None,
        tool=None,
        args_json="null",
        verdict="deny",
        rule_id="protocol.-32700",
        dry_run=True,
        latency_ms=0,
        upstream_status=502,
        detail_json='"why"',
    )
    fields = json.loads(chain.seal(bare, chain.GENESIS)[0])
    assert {
        key: fields[key] for key in ("principal", "method", "tool", "args", "tier", "trace_id")
    } == dict.fromkeys(("principal", "method", "tool", "args", "tier", "trace_id"))
    assert (fields["dry_run"], fields["latency_ms"], fields["upstream_status"]) == (True, 0, 502)
    assert fields["detail"] == "why"


def test_text_outside_ascii_is_written_raw_and_controls_are_escaped():
    line, _ = chain.seal(record(principal="Zoë\n\x00\u2028"), chain.GENESIS)
    assert '"principal":"Zoë\\n\\u0000\u2028"'.encode() in line
    assert line.count(b"\n") == 1


def test_a_lone_surrogate_that_slipped_through_still_makes_a_line_that_verifies():
    line, _ = chain.seal(record(tool="\ud800", args_json='{"\udfff":1}'), chain.GENESIS)
    assert verified([line]).startswith("OK: 1 record in 1 file")


def test_a_chain_is_verified_with_the_words_of_the_specification():
    lines = sealed(3)
    last = json.loads(lines[2])["hash"]
    assert verified(lines[:2], lines[2:]) == f"OK: 3 records in 2 files, chain from {'0' * 64} to {last}"
    assert verified(lines[:1]).startswith("OK: 1 record in 1 file, chain from 000")


def test_the_oldest_file_may_be_gone_since_the_first_prev_is_not_checked():
    lines = sealed(3)
    first, last = json.loads(lines[0])["hash"], json.loads(lines[2])["hash"]
    assert verified(lines[1:]) == f"OK: 2 records in 1 file, chain from {first} to {last}"


def test_an_empty_log_is_whole():
    assert verified([]) == "OK: 0 records in 1 file"
    assert verified([b"\n", b"  \t\r\n"], []) == "OK: 0 records in 2 files"


def test_blank_lines_are_skipped_but_counted_as_lines():
    lines = sealed(2)
    assert verified([lines[0], b"\n", b" \n", lines[1]]).startswith("OK: 2 records in 1 file")
    assert verified([lines[0], b"\n", b"x\n"]) == "BREAK: f1:3: not JSON"


def test_a_last_line_without_its_newline_is_a_line():
    lines = sealed(2)
    assert verified([lines[0], lines[1].rstrip(b"\n")]).startswith("OK: 2 records")


@pytest.mark.parametrize(
    "junk",
    [
        b"x\n",
        b"[]\n",
        b'"text"\n',
        b"null\n",
        b"7\n",
        b'{"ts":"2026\n',
        b"{} {}\n",
        b'\xef\xbb\xbf{"hash":"x"}\n',
        b'{"a":"\xff"}\n',
        b'{"a":NaN,"hash":"x"}\n',
        b'{"a":-Infinity,"hash":"x"}\n',
        b'{"a":1e400,"hash":"x"}\n',
        b'{"a":' + b"9" * 5000 + b',"hash":"x"}\n',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"hash":"x"}\n',
        b"\x00\x00\x00",
    ],
)
def test_what_is_not_an_object_of_plain_json_is_not_json_and_never_a_crash(junk):
    assert verified([*sealed(1), junk]) == "BREAK: f1:2: not JSON"
    assert chain.parse(junk) is None


@pytest.mark.case("T48")
@pytest.mark.parametrize("twice", [b'{"tool":"safe","tool":"x",', b'{"n":{"a":1,"a":1},'])
def test_a_duplicate_key_is_not_json_at_any_depth(twice):
    line = sealed(1)[0]
    assert verified([twice + line[1:]]) == "BREAK: f1:1: not JSON"


def test_an_edited_line_is_a_hash_mismatch():
    lines = sealed(3)
    lines[1] = lines[1].replace(b'"alice"', b'"bob"')
    assert verified(lines) == "BREAK: f1:2: hash mismatch"


def test_an_edited_line_that_was_hashed_again_shows_at_the_next_one():
    lines = sealed(3)
    lines[1] = line_of(json.loads(lines[1]) | {"principal": "bob"})
    assert verified(lines) == "BREAK: f1:3: prev mismatch"


def test_a_deleted_line_is_a_prev_mismatch():
    lines = sealed(4)
    assert verified([lines[0]], [lines[2], lines[3]]) == "BREAK: f2:1: prev mismatch"


def test_two_lines_that_changed_places_are_a_prev_mismatch():
    lines = sealed(4)
    assert verified([lines[0], lines[2], lines[1], lines[3]]) == "BREAK: f1:2: prev mismatch"


@pytest.mark.parametrize("prev", [None, 5, [], {"a": 1}])
def test_a_prev_that_is_no_string_is_a_prev_mismatch_even_in_the_first_record(prev):
    fields = json.loads(sealed(1)[0])
    assert verified([line_of(fields | {"prev": prev})]) == "BREAK: f1:1: prev mismatch"
    assert verified([*sealed(1), line_of(fields | {"prev": prev})]) == "BREAK: f1:2: prev mismatch"


def test_a_hash_that_is_no_string_is_a_hash_mismatch():
    fields = json.loads(sealed(1)[0])
    assert verified([json.dumps(fields | {"hash": 5}).encode()]) == "BREAK: f1:1: hash mismatch"


def test_lines_from_before_the_chain_are_skipped_and_counted():
    lines = sealed(2)
    last = json.loads(lines[1])["hash"]
    tail = f"chain from {'0' * 64} to {last}"
    assert (
        verified([b'{"old":1}\n'], lines) == f"OK: 2 records in 2 files, {tail}, 1 unchained record skipped"
    )
    assert verified([b"{}\n", b'{"hash":null}\n', *lines]).endswith(f"{tail}, 2 unchained records skipped")
    assert verified([b"{}\n"]) == "OK: 0 records in 1 file, 1 unchained record skipped"


@pytest.mark.case("T48")
def test_stripping_the_hashes_from_the_oldest_lines_is_a_break_at_the_first_of_them():
    lines = sealed(4)
    for number in (0, 1):
        fields = json.loads(lines[number])
        del fields["hash"]
        lines[number] = json.dumps(fields).encode() + b"\n"
    assert verified([b"\n"], lines) == "BREAK: f2:1: missing hash"


@pytest.mark.case("T48")
def test_a_line_without_a_hash_after_the_chain_began_is_a_break():
    assert verified(sealed(2), [b"{}\n"]) == "BREAK: f2:1: missing hash"


def test_a_digest_that_cannot_be_made_is_not_json(monkeypatch):
    # Reading and writing have limits of their own on nesting, and they differ between Pythons.
    def too_deep(_):
        raise RecursionError

    monkeypatch.setattr(canon, "encode", too_deep)
    assert verified(sealed(1)) == "BREAK: f1:1: not JSON"


def test_a_log_written_by_plain_json_dumps_verifies():
    # The original's way, with what its canonical form is sensitive to: floats, escapes, order at every level.
    prev, lines = chain.GENESIS, []
    for args in ({"b": 1.0, "a": {"z": -0.0, "é": 1e22}}, {"t": 'q"\\\n\u2028\U0001f600', "n": 10**30}):
        fields = {"ts": "t", "args": args, "prev": prev}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        prev = hashlib.sha256(text.encode()).hexdigest()
        lines.append(json.dumps(fields | {"hash": prev}, ensure_ascii=False).encode() + b"\n")
    assert verified(lines).startswith("OK: 2 records")


def test_a_log_cannot_write_on_the_terminal():
    fields = json.loads(sealed(1)[0])
    text = verified([line_of(fields | {"prev": "\x1b[2Jok\nOK: \u202e"})])
    assert text.isprintable()
    assert chain.render(chain.Broken("a\n\x1b[1mOK", 3, chain.Reason.NOT_JSON)).isprintable()


def test_the_next_record_follows_the_last_hash_or_zeros():
    assert chain.head({"hash": "ab"}) == "ab"
    assert chain.head({"hash": 5}) == chain.head({}) == chain.head(None) == chain.GENESIS


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_vector_is_judged_as_its_class_says(name):
    lines = (VECTORS / name).read_bytes().split(b"\n")
    expected = EXPECTED[name]
    match chain.verify([(name, lines)]):
        case chain.Broken(_, line, reason):
            assert {"class": str(reason), "line": line} == expected
        case chain.Verified(records=records, unchained=unchained):
            assert {"class": "ok", "records": records, "unchained": unchained} == expected


def test_the_vectors_are_what_their_script_makes(tmp_path):
    make_chain.make(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in VECTORS.iterdir()}

"""Remake tests/vectors/chain: audit logs with known damage, and the class of outcome each must have.

Run from the repository root: `python -m tests.vectors.make_chain`. Written against gateway.md 12.3 with the
standard library alone, so that the vectors do not repeat a mistake of ours.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

RULES = ("tier.L0.read", "tier.L2.confirm", "mrtr.declined", "tier.L3.auto")


def fields(number: int, prev: str) -> dict[str, object]:
    made: dict[str, object] = {
        "ts": f"2026-11-02T10:00:{number:02d}.125+00:00",
        "phase": "outcome" if number % 2 else "intent",
        "call_id": f"{number // 2:032x}",
        "principal": "alice" if number < 4 else "zoë",
        "method": "tools/call",
        "tool": "drop_bucket",
        "args": {"b": [1, 2.5, 1e22, None], "a": {"ü": 'say "hi"\n', "A": True}},
        "verdict": "allow",
        "rule_id": RULES[number % 4],
        "tier": "L2",
        "dry_run": None if number % 3 else True,
        "latency_ms": number if number % 2 else None,
        "upstream_status": 200 if number % 2 else None,
        "trace_id": f"{number // 2 + 1:032x}",
        "detail": None,
        "prev": prev,
    }
    text = json.dumps(made, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    made["hash"] = hashlib.sha256(text.encode()).hexdigest()
    return made


def line(made: dict[str, object]) -> str:
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False) + "\n"


def make(folder: Path) -> None:
    records: list[dict[str, object]] = []
    for number in range(6):
        records.append(fields(number, str(records[-1]["hash"]) if records else "0" * 64))
    good = [line(made) for made in records]
    old = [
        line({key: value for key, value in made.items() if key not in ("prev", "hash")}) for made in records
    ]
    logs: dict[str, tuple[list[str], dict[str, object]]] = {
        "good.jsonl": (good, {"class": "ok", "records": 6, "unchained": 0}),
        "blank_lines.jsonl": (["\n", *good[:3], "\n", "  \n", *good[3:]], ok(6)),
        "oldest_gone.jsonl": (good[2:], ok(4)),
        "no_last_newline.jsonl": ([*good[:5], good[5].rstrip("\n")], ok(6)),
        "fields_in_other_order.jsonl": ([line(dict(reversed(made.items()))) for made in records], ok(6)),
        "escaped.jsonl": ([json.dumps(made) + "\n" for made in records], ok(6)),
        "empty.jsonl": ([], ok(0)),
        "unchained_head.jsonl": ([*old[:2], *good], ok(6, unchained=2)),
        "only_unchained.jsonl": (old, ok(0, unchained=6)),
        "edited.jsonl": ([*good[:2], good[2].replace("alice", "bob"), *good[3:]], broken("hash mismatch", 3)),
        "edited_number.jsonl": (
            [*good[:2], good[2].replace("2.5", "2.50001"), *good[3:]],
            broken("hash mismatch", 3),
        ),
        "deleted.jsonl": ([*good[:2], *good[3:]], broken("prev mismatch", 3)),
        "reordered.jsonl": ([*good[:2], good[3], good[2], *good[4:]], broken("prev mismatch", 3)),
        "repeated.jsonl": ([*good[:2], good[1], *good[2:]], broken("prev mismatch", 3)),
        "duplicate_key.jsonl": ([good[0], '{"tool":"x",' + good[1][1:], *good[2:]], broken("not JSON", 2)),
        "not_an_object.jsonl": ([good[0], "[]\n", *good[1:]], broken("not JSON", 2)),
        "nan.jsonl": ([good[0], good[1].replace("2.5", "NaN"), *good[2:]], broken("not JSON", 2)),
        "torn_tail.jsonl": ([*good[:5], good[5][:120]], broken("not JSON", 6)),
        "hashes_cut_off.jsonl": ([*old[:2], *good[2:]], broken("missing hash", 1)),
        "hash_cut_off_inside.jsonl": ([*good[:2], old[2], *good[3:]], broken("missing hash", 3)),
    }
    for name, (lines, _) in logs.items():
        (folder / name).write_bytes("".join(lines).encode())
    expected = {name: outcome for name, (_, outcome) in logs.items()}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


def ok(records: int, *, unchained: int = 0) -> dict[str, object]:
    return {"class": "ok", "records": records, "unchained": unchained}


def broken(reason: str, number: int) -> dict[str, object]:
    return {"class": reason, "line": number}


if __name__ == "__main__":
    make(Path(__file__).parent / "chain")

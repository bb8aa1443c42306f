"""The hash chain over audit lines: sealing a record, and verifying lines that were sealed.

Knows lines, hashes and their order; does not know files, rotation or clocks (`edge.sinks.jsonl` does).
SPEC: gateway.md 12.3 and 12.6. The canonical form is `core.wire.canon`, so logs of the original verify.

LIMIT: nothing outside the log holds the last hash. A truncated tail, an edit of the newest record that is
hashed again, and a log rewritten from its first line to its last are not found. An edit that leaves every
value as it was (blanks, escapes, the order of the fields in a line) is not an edit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from enum import StrEnum
from json.encoder import encode_basestring as _quoted
from typing import NoReturn

import msgspec

from airlock.core.audit.record import Record
from airlock.core.text.safe import one_line
from airlock.core.wire import canon

__all__ = [
    "GENESIS",
    "Broken",
    "Outcome",
    "Reason",
    "Verified",
    "head",
    "parse",
    "render",
    "seal",
    "verify",
]

GENESIS = "0" * 64
"""The `prev` of the first record of a log."""

_BLANKS = b" \t\r\n"


def seal(record: Record, prev: str) -> tuple[bytes, str]:
    """Chain `record` behind the hash `prev`; return its line, newline included, and its own hash.

    `prev` is 64 lower-case hex digits. Each field is encoded once and used for the hash (keys sorted) and for
    the line (keys in the order of `record.FIELDS`). Never fails on text: a lone surrogate that slipped past
    the cleaning is written as `canon` writes it.
    """
    about = record.subject
    args, call_id, principal = about.args, about.call_id, about.principal
    method, tool, trace_id = about.method, about.tool, about.trace_id
    ts = _quoted(record.ts)
    phase = _quoted(record.phase)
    verdict = _quoted(record.verdict)
    rule_id = _quoted(record.rule_id)
    tier = "null" if record.tier is None else _quoted(record.tier)
    dry_run = "null" if record.dry_run is None else "true" if record.dry_run else "false"
    latency = "null" if record.latency_ms is None else str(record.latency_ms)
    status = "null" if record.upstream_status is None else str(record.upstream_status)
    detail = record.detail_json
    hashed = (
        f'{{"args":{args},"call_id":{call_id},"detail":{detail},"dry_run":{dry_run},"latency_ms":{latency},'
        f'"method":{method},"phase":{phase},"prev":"{prev}","principal":{principal},"rule_id":{rule_id},'
        f'"tier":{tier},"tool":{tool},"trace_id":{trace_id},"ts":{ts},"upstream_status":{status},'
        f'"verdict":{verdict}}}'
    )
    digest = hashlib.sha256(hashed.encode("utf-8", "surrogatepass")).hexdigest()
    line = (
        f'{{"ts":{ts},"phase":{phase},"call_id":{call_id},"principal":{principal},"method":{method},'
        f'"tool":{tool},"args":{args},"verdict":{verdict},"rule_id":{rule_id},"tier":{tier},'
        f'"dry_run":{dry_run},"latency_ms":{latency},"upstream_status":{status},"trace_id":{trace_id},'
        f'"detail":{detail},"prev":"{prev}","hash":"{digest}"}}\n'
    )
    return line.encode("utf-8", "surrogatepass"), digest


def parse(line: bytes) -> dict[str, object] | None:
    """Read one line, with or without its newline. None when it is not a JSON object as 12.6 wants one."""
    try:
        return _object(line)
    except (ValueError, RecursionError):
        return None


def head(record: dict[str, object] | None) -> str:
    """Name the hash that the next record follows: that of `record`, or zeros when it has none.

    SPEC: gateway.md 12.3. A record from before the chain existed has no hash; the chain begins after it.
    """
    value = None if record is None else record.get("hash")
    return value if isinstance(value, str) else GENESIS


class Reason(StrEnum):
    """Why a chain does not hold at a line."""

    NOT_JSON = "not JSON"
    MISSING_HASH = "missing hash"
    HASH_MISMATCH = "hash mismatch"
    PREV_MISMATCH = "prev mismatch"


class Verified(msgspec.Struct, frozen=True):
    """The chain holds: `records` chained lines in `files`, after `unchained` lines older than the chain.

    `first_prev` and `last_hash` are its two ends, None when there is no chained line.
    """

    records: int
    files: int
    first_prev: str | None
    last_hash: str | None
    unchained: int


class Broken(msgspec.Struct, frozen=True):
    """The first place where the chain does not hold; `line` counts from 1 and counts blank lines too."""

    file: str
    line: int
    reason: Reason


Outcome = Verified | Broken


def verify(files: Iterable[tuple[str, Iterable[bytes]]]) -> Outcome:
    """Walk the chain through `files`, oldest first: pairs of a name and its lines, split on b"\\n" alone.

    What the iterables raise passes through. SPEC: gateway.md 12.6; the first record's `prev` is not compared.
    """
    walk = _Walk()
    count = 0
    for name, lines in files:
        count += 1
        for number, line in enumerate(lines, 1):
            if not line.strip(_BLANKS):
                continue
            broken = walk.step(name, number, line)
            if broken is not None:
                return broken
    return Verified(walk.records, count, walk.first_prev, walk.last_hash, walk.unchained)


def render(outcome: Outcome) -> str:
    """Say an outcome in the words of gateway.md 12.6: one line, without a newline."""
    # SECURITY: a first `prev` or a file name with escape codes or newlines would write on the terminal.
    if isinstance(outcome, Broken):
        return f"BREAK: {one_line(outcome.file)}:{outcome.line}: {outcome.reason}"
    text = f"OK: {_counted(outcome.records, 'record')} in {_counted(outcome.files, 'file')}"
    if outcome.first_prev is not None and outcome.last_hash is not None:
        text += f", chain from {one_line(outcome.first_prev)} to {outcome.last_hash}"
    if outcome.unchained:
        text += f", {_counted(outcome.unchained, 'unchained record')} skipped"
    return text


class _Walk:
    """Where a verification stands: what was counted, and the hash that the next record must follow."""

    def __init__(self) -> None:
        self.records = 0
        self.unchained = 0
        self.first_prev: str | None = None
        self.last_hash: str | None = None
        self._skipped: tuple[str, int] = ("", 0)

    def step(self, file: str, number: int, line: bytes) -> Broken | None:
        """Take the next line. None when the chain still holds."""
        try:
            record = _object(line)
            digest = _digest(record)
        except (ValueError, RecursionError):
            return Broken(file, number, Reason.NOT_JSON)
        claimed = record.get("hash")
        if claimed is None:
            return self._hashless(file, number)
        if claimed != digest:
            return Broken(file, number, Reason.HASH_MISMATCH)
        prev = record.get("prev")
        if self.last_hash is None:
            # SECURITY: cutting the hashes off the oldest records would make them skipped, not found.
            if self.unchained and prev != GENESIS:
                return Broken(*self._skipped, Reason.MISSING_HASH)
            if not isinstance(prev, str):
                return Broken(file, number, Reason.PREV_MISMATCH)
            self.first_prev = prev
        elif prev != self.last_hash:
            return Broken(file, number, Reason.PREV_MISMATCH)
        self.last_hash = digest
        self.records += 1
        return None

    def _hashless(self, file: str, number: int) -> Broken | None:
        if self.last_hash is not None:
            return Broken(file, number, Reason.MISSING_HASH)
        if not self.unchained:
            self._skipped = (file, number)
        self.unchained += 1
        return None


def _digest(record: dict[str, object]) -> str:
    unhashed = {key: value for key, value in record.items() if key != "hash"}
    return hashlib.sha256(canon.encode(unhashed)).hexdigest()


def _object(line: bytes) -> dict[str, object]:
    value: object = _decode(line.decode("utf-8", "surrogatepass"))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # SECURITY: with a key twice, a reader that takes the first value would see what the hash does not cover.
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key stands twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number does not fit a double")
    return number


_decode = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_constant=_no_constant, parse_float=_finite
).decode


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

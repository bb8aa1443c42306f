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
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NoReturn

import msgspec

from airlock.core.audit.record import Record, raw
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


class _Hashed(msgspec.Struct, gc=False):
    """A record as it is hashed: the fields sorted by name, without `hash`."""

    args: msgspec.Raw
    call_id: str
    detail: msgspec.Raw
    dry_run: bool | None
    latency_ms: int | None
    method: str | None
    phase: str
    prev: str
    principal: str | None
    rule_id: str
    tier: str | None
    tool: str | None
    trace_id: str | None
    ts: str
    upstream_status: int | None
    verdict: str


class _Line(msgspec.Struct, gc=False):
    """A record as it is written: the fields in the order of `record.FIELDS`."""

    ts: str
    phase: str
    call_id: str
    principal: str | None
    method: str | None
    tool: str | None
    args: msgspec.Raw
    verdict: str
    rule_id: str
    tier: str | None
    dry_run: bool | None
    latency_ms: int | None
    upstream_status: int | None
    trace_id: str | None
    detail: msgspec.Raw
    prev: str
    hash: str


_encode = msgspec.json.Encoder().encode
_NULL = raw("null")


def seal(record: Record, prev: str) -> tuple[bytes, str]:
    """Chain `record` behind the hash `prev`; return its line, newline included, and its own hash.

    Arguments and detail are canonical JSON text already, and of everything else (texts, whole numbers, flags)
    msgspec writes what `json` writes, byte for byte; a property test holds that. Never fails on text: a lone
    surrogate that slipped past the cleaning is written as `canon` writes it.
    """
    try:
        return _sealed(record, prev, _encode)
    except UnicodeEncodeError:
        return _sealed(record, prev, _encode_odd)


def _sealed(record: Record, prev: str, encode: Callable[[object], bytes]) -> tuple[bytes, str]:
    about = record.subject
    detail = _NULL if record.detail_json == "null" else raw(record.detail_json)
    hashed = _Hashed(
        about.args, about.call_id, detail, record.dry_run, record.latency_ms, about.method, record.phase, prev,
        about.principal, record.rule_id, record.tier, about.tool, about.trace_id, record.ts, record.upstream_status,
        record.verdict,
    )  # fmt: skip
    digest = hashlib.sha256(encode(hashed)).hexdigest()
    line = _Line(
        record.ts, record.phase, about.call_id, about.principal, about.method, about.tool, about.args,
        record.verdict, record.rule_id, record.tier, record.dry_run, record.latency_ms, record.upstream_status,
        about.trace_id, detail, prev, digest,
    )  # fmt: skip
    return encode(line) + b"\n", digest


def _encode_odd(fields: object) -> bytes:
    """What `_encode` would write, if it took lone surrogates: member by member, each as `canon` writes it."""
    members = [
        canon.encode(name) + b":" + (bytes(value) if isinstance(value, msgspec.Raw) else canon.encode(value))
        for name, value in msgspec.structs.asdict(fields).items()  # type: ignore[arg-type]
    ]
    return b"{" + b",".join(members) + b"}"


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

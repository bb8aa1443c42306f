"""What may be asked of audit records: which of them match, how many there are, which intents stand alone.

Knows lines and fields; does not know files, hashes (`core.audit.chain` does), Postgres or the clock.
SPEC: gateway.md 12.5; architecture.md 5 for intents without an outcome.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypedDict

import msgspec

from airlock.core.audit import chain
from airlock.core.audit.record import Phase
from airlock.core.text.safe import one_line, safe
from airlock.core.wire import canon

__all__ = [
    "Count",
    "Filters",
    "Found",
    "Intents",
    "Lone",
    "Skip",
    "merged",
    "moment",
    "parse_since",
    "read",
    "render",
    "render_lone",
    "select",
    "shown",
    "tally",
]

_BLANKS = " \t\r\n"
_SPAN = re.compile(r"([0-9]+)([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_NAMED = 10  # lone intents named in the line for people; the JSON has them all


class Filters(msgspec.Struct, frozen=True):
    """Which records are asked for. None asks for any value; `since` is aware, and its own instant included."""

    principal: str | None = None
    tool: str | None = None
    verdict: str | None = None
    rule: str | None = None
    phase: str | None = None
    since: datetime | None = None

    def matches(self, record: Mapping[str, object]) -> bool:
        """Tell whether `record` is asked for. One whose `ts` cannot be read is not younger than anything."""
        return (
            (self.principal is None or record.get("principal") == self.principal)
            and (self.tool is None or record.get("tool") == self.tool)
            and (self.verdict is None or record.get("verdict") == self.verdict)
            and (self.rule is None or record.get("rule_id") == self.rule)
            and (self.phase is None or record.get("phase") == self.phase)
            and (self.since is None or _reaches(moment(record), self.since))
        )


def _reaches(at: datetime | None, since: datetime) -> bool:
    return at is not None and at >= since


class Found(msgspec.Struct, frozen=True):
    """A line that is a record: its text without the newline, and of its fields those that are asked about."""

    text: str
    record: Mapping[str, object]


class Skip(StrEnum):
    """Why a line is not looked at."""

    NOT_JSON = "not JSON"
    NOT_A_RECORD = "not a record"
    BAD_TS = "bad ts"


class _Asked(TypedDict, total=False):
    """The fields that are asked about. All else in a line is checked for its syntax, and not made into objects."""

    ts: object
    phase: object
    call_id: object
    principal: object
    tool: object
    verdict: object
    rule_id: object


_asked = msgspec.json.Decoder(_Asked).decode


def read(line: bytes) -> Found | Skip:
    """Read one line, with or without its newline.

    LIMIT: of a key that stands twice the last value counts; `core.audit.chain` calls such a line broken.
    """
    try:
        text = line.decode()
        return Found(text.strip(_BLANKS), _asked(text))
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return _read_odd(line)


def _read_odd(line: bytes) -> Found | Skip:
    """What `read` gives for a line that the fast decoder does not take: lone surrogates, or no record."""
    record = chain.parse(line)
    if record is not None:
        return Found(line.decode("utf-8", "surrogatepass").strip(_BLANKS), record)
    try:
        value = json.loads(line.decode("utf-8", "surrogatepass"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Skip.NOT_JSON
    return Skip.NOT_JSON if isinstance(value, dict) else Skip.NOT_A_RECORD


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def moment(record: Mapping[str, object]) -> datetime | None:
    """When a record was made; a `ts` without an offset is UTC. None when it has no `ts` that can be read."""
    ts = record.get("ts")
    if not isinstance(ts, str):
        return None
    try:
        return _aware(ts)
    except (ValueError, OverflowError):
        return None


def parse_since(text: str, now: datetime) -> datetime:
    """Read `30m`, `2h`, `7d` (back from `now`) or an ISO 8601 time (UTC unless it has an offset).

    Raises ValueError, in our own words, for anything else and for times beyond the calendar.
    """
    span = _SPAN.fullmatch(text)
    try:
        if span is None:
            return _aware(text)
        return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
    except OverflowError:
        raise ValueError("a time beyond the calendar") from None
    except ValueError:
        raise ValueError("neither 30m, 2h, 7d nor an ISO 8601 time") from None


def _aware(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def select(
    files: Iterable[tuple[str, Iterable[bytes]]], filters: Filters, skipped: Callable[[str, int, Skip], None]
) -> Iterator[Found]:
    """Yield the matching records of `files`: pairs of a name and its lines, split on b"\\n" alone.

    `skipped` is told the name and number (from 1) of each line that cannot be asked. Blank lines are none.
    """
    for name, lines in files:
        for number, line in enumerate(lines, 1):
            found = read(line)
            if isinstance(found, Skip):
                if line.strip(b" \t\r\n"):
                    skipped(name, number, found)
            elif filters.since is not None and moment(found.record) is None:
                skipped(name, number, Skip.BAD_TS)
            elif filters.matches(found.record):
                yield found


def merged(chains: Sequence[Iterable[Found]]) -> Iterable[Found]:
    """Weave the records of several chains into one row by `ts`, newest last; within a chain nothing moves.

    A record without a `ts` that can be read, or with one from before its predecessor's, stays behind that one.
    """
    if len(chains) == 1:
        return chains[0]
    return (found for _, found in heapq.merge(*map(_dated, chains), key=lambda pair: pair[0]))


def _dated(chain_: Iterable[Found]) -> Iterator[tuple[datetime, Found]]:
    latest = _EARLIEST
    for found in chain_:
        latest = max(latest, moment(found.record) or _EARLIEST)
        yield latest, found


class Count(msgspec.Struct, frozen=True):
    """How many records have this verdict and this rule. SPEC: gateway.md 12.5, its members in this order."""

    verdict: object
    rule_id: object
    count: int


def tally(records: Iterable[Mapping[str, object]]) -> list[Count]:
    """Count records by verdict and rule, most frequent first, then by name."""
    counts: Counter[tuple[_Key, _Key]] = Counter()
    for record in records:
        counts[_key(record.get("verdict")), _key(record.get("rule_id"))] += 1
    rows = [Count(_value(verdict), _value(rule), count) for (verdict, rule), count in counts.items()]
    return sorted(rows, key=lambda row: (-row.count, canon.text([row.verdict, row.rule_id])))


_Key = str | None | tuple[str]


def _key(value: object) -> _Key:
    """A value of any kind as something to count by: lists too, and `1`, `true` and `"1"` stay apart."""
    return value if value is None or isinstance(value, str) else (canon.text(value),)


def _value(key: _Key) -> object:
    return json.loads(key[0]) if isinstance(key, tuple) else key


def shown(text: str, *, ascii_only: bool = False) -> str:
    """Return JSON text that a terminal may be given: what it would obey or hide is spelled `\\u001b`.

    `text` is one JSON value on one line, and parses to the same value afterwards. `ascii_only` spells all that
    is not ASCII, for a stream that could not write it.
    """
    if text.isascii() and text.isprintable():
        return text
    # SECURITY: names and arguments are the agent's words; raw, they could rewrite the screen of who reads them.
    # INVARIANT: outside its strings JSON has only ASCII, and of controls blanks alone; in them no bare controls.
    text = text.translate(_LAYOUT)
    return _NOT_PLAIN.sub(_spelled if ascii_only else _spelled_unless_safe, text)


_LAYOUT = {ord(blank): " " for blank in "\t\r\n"}
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")


def _spelled(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else r"\u007f"


def _spelled_unless_safe(match: re.Match[str]) -> str:
    return match[0] if safe(match[0]) == match[0] else _spelled(match)


def render(value: Mapping[str, object] | Count, *, ascii_only: bool = False) -> str:
    """Write a record or a count as one line of JSON, as `shown` would have it; the order of fields stays."""
    fields = msgspec.structs.asdict(value) if isinstance(value, Count) else value
    return shown(json.dumps(fields, ensure_ascii=False, separators=(",", ":")), ascii_only=ascii_only)


class Lone(msgspec.Struct, frozen=True):
    """An intent without an outcome, and where it stands."""

    file: str
    line: int
    call_id: str


class Intents:
    """Watches the lines of one chain go by, oldest first, and keeps the intents whose outcome did not come."""

    def __init__(self) -> None:
        self._open: dict[str, list[Lone]] = {}

    def watch(self, file: str, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield `lines` as they are; a line that is no record is somebody else's matter."""
        for number, line in enumerate(lines, 1):
            found = read(line)
            if isinstance(found, Found):
                self._note(file, number, found.record)
            yield line

    def lone(self) -> list[Lone]:
        """The intents without an outcome so far, as they came."""
        return [lone for several in self._open.values() for lone in several]

    def _note(self, file: str, number: int, record: Mapping[str, object]) -> None:
        call = record.get("call_id")
        if not isinstance(call, str):
            return
        if record.get("phase") == Phase.INTENT:
            self._open.setdefault(call, []).append(Lone(file, number, call))
        elif record.get("phase") == Phase.OUTCOME and call in self._open:
            self._open[call].pop()
            if not self._open[call]:
                del self._open[call]


def render_lone(lone: Sequence[Lone]) -> str:
    """Say which intents have no outcome: one line for people, without a newline. There is at least one."""
    noun = "1 intent has" if len(lone) == 1 else f"{len(lone)} intents have"
    places = [f"{one_line(each.file)}:{each.line}" for each in lone[:_NAMED]]
    if len(lone) > _NAMED:
        places.append(f"and {len(lone) - _NAMED} more")
    return (
        f"NOTE: {noun} no outcome (still running, or cut off by a crash or a full disk): {', '.join(places)}"
    )

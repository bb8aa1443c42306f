"""The pair of records around an action: the intent before it, an outcome whatever happens.

Knows the order and the time of the two; does not know what is done between them, and redacts nothing: whoever
makes an `Entry` has cleaned it. SPEC: gateway.md 12.1; the intent fails closed, the outcome is only logged.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import msgspec

from airlock.core.audit.record import Phase, Record, Subject, raw
from airlock.core.decision import Verdict
from airlock.core.ports import AuditSink, Clock
from airlock.core.rules import Rule
from airlock.core.wire import canon

__all__ = ["Entry", "Open", "Recorder", "entry"]


_MILLIS = (*(f".{millis:03d}+00:00" for millis in range(1000)), ".999+00:00")


class Entry(msgspec.Struct):
    """What the two records of one action have in common. The flow fills it as it learns.

    `detail_json` is canonical JSON text, `null` when there is nothing. `verdict` and `rule_id` are the
    decision's; once the outcome is written they are the outcome's.
    """

    call_id: str
    subject: Subject
    verdict: str = Verdict.ERROR
    rule_id: str = Rule.INTERNAL_ERROR
    tier: str | None = None
    dry_run: bool | None = None
    detail_json: str = "null"


def entry(
    call_id: str,
    *,
    principal: str | None = None,
    method: str | None = None,
    tool: str | None = None,
    args_json: str = "null",
    trace_id: str | None = None,
) -> Entry:
    """Make the entry of an action about which nothing is decided yet: until then it says `internal.error`."""
    return Entry(call_id, Subject(call_id, principal, method, tool, raw(args_json), trace_id))


class Recorder:
    """Writes intents and outcomes to one sink. `log` takes one line of text."""

    def __init__(self, sink: AuditSink, clock: Clock, log: Callable[[str], None]) -> None:
        self._sink = sink
        self._clock = clock
        self._log = log
        self._second: tuple[int, str] = (-1, "")  # one tuple: two threads never see half of a change

    def stamp(self) -> str:
        """Return the time as UTC ISO 8601 with milliseconds and `+00:00`.

        As `datetime` says it: rounded to the microsecond, then cut to the millisecond. The last half
        microsecond of a second stays in it.
        """
        now = self._clock.now()
        second = int(now)
        known, text = self._second
        if second != known:
            text = datetime.fromtimestamp(second, UTC).isoformat()[:19]
            self._second = (second, text)
        return text + _MILLIS[int((now - second) * 1_000_000 + 0.5) // 1000]

    def intent(self, entry: Entry) -> Open:
        """Write the intent of an action and return what its outcome is written with.

        Raises OSError when the intent is not on file: the action must not happen.
        """
        self._sink.write(self._intent(entry))
        return Open(self, entry, self._clock.monotonic)

    def outcome(
        self,
        entry: Entry,
        latency_ms: int | None,
        upstream_status: int | None,
        detail_json: str,
    ) -> None:
        """Write an outcome. One that cannot be written is logged."""
        try:
            self._sink.write(
                Record(
                    self.stamp(),
                    Phase.OUTCOME,
                    entry.subject,
                    entry.verdict,
                    entry.rule_id,
                    entry.tier,
                    entry.dry_run,
                    latency_ms,
                    upstream_status,
                    detail_json,
                )
            )
        except OSError as exc:
            self._log(f"audit: the outcome of call {entry.call_id} is not on file: {_words(exc)}")

    def refusal(self, entry: Entry, detail: str | None = None) -> None:
        """Write both records of an action that was refused at once; only the outcome has a latency, 0.

        `detail` is the reason in plain text, already redacted; None leaves what `entry` holds. Raises OSError
        when they are not on file.
        """
        if detail is not None:
            entry.detail_json = canon.text(detail)
        intent = self._intent(entry)
        self._sink.write(intent, msgspec.structs.replace(intent, phase=Phase.OUTCOME, latency_ms=0))

    def _intent(self, entry: Entry) -> Record:
        return Record(
            self.stamp(),
            Phase.INTENT,
            entry.subject,
            entry.verdict,
            entry.rule_id,
            entry.tier,
            entry.dry_run,
            None,
            None,
            entry.detail_json,
        )


class Open:
    """An intent that is on file and waits for its outcome. `close` writes it, exactly once.

    As a context manager it also closes what was left open: with `internal.error` and the name of the
    exception that left the block. The exception's text is not written, since nobody has redacted it.
    """

    __slots__ = ("_closed", "_entry", "_monotonic", "_recorder", "_started")

    def __init__(self, recorder: Recorder, entry: Entry, monotonic: Callable[[], float]) -> None:
        self._recorder = recorder
        self._entry = entry
        self._monotonic = monotonic
        self._closed = False
        self._started = monotonic()

    @property
    def closed(self) -> bool:
        """Whether the outcome was written, or tried."""
        return self._closed

    @property
    def elapsed_ms(self) -> int:
        """Whole milliseconds since the intent was on file."""
        return int((self._monotonic() - self._started) * 1000)

    def close(
        self,
        *,
        verdict: str | None = None,
        rule_id: str | None = None,
        latency_ms: int | None = None,
        upstream_status: int | None = None,
        detail_json: str | None = None,
    ) -> None:
        """Write the outcome; what is not given is as in the entry, the latency as measured here.

        Raises RuntimeError the second time.
        """
        if self._closed:
            raise RuntimeError("the outcome of this call was already written")
        self._closed = True
        entry = self._entry
        if verdict is not None:
            entry.verdict = verdict
        if rule_id is not None:
            entry.rule_id = rule_id
        self._recorder.outcome(
            entry,
            self.elapsed_ms if latency_ms is None else latency_ms,
            upstream_status,
            entry.detail_json if detail_json is None else detail_json,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        cause = "left without an outcome" if kind is None else kind.__name__
        self.close(verdict=Verdict.ERROR, rule_id=Rule.INTERNAL_ERROR, detail_json=canon.text(cause))
        if kind is None:
            raise RuntimeError("a call was left without an outcome")


def _words(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__

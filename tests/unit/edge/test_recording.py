"""The pair of records: an intent that fails closed, an outcome that is written once, exact times."""

from __future__ import annotations

import errno
import os
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from airlock.core.audit.record import Record
from airlock.edge.recording import Entry, Recorder
from airlock.edge.recording import entry as make_entry


class Clock:
    def __init__(self) -> None:
        self.time = 1_793_613_600.125
        self.ticks = 50.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.ticks


class Sink:
    """Keeps records; refuses those whose turn is in `broken`."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.turns = 0
        self.broken: set[int] = set()

    def write(self, *records: Record) -> None:
        self.turns += 1
        if self.turns in self.broken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/audit.jsonl")
        self.records.extend(records)

    def close(self) -> None:
        """Nothing to close."""


class Fixture:
    def __init__(self) -> None:
        self.sink, self.clock, self.lines = Sink(), Clock(), list[str]()
        self.recorder = Recorder(self.sink, self.clock, self.lines.append)

    @property
    def outcome(self) -> Record:
        (found,) = [record for record in self.sink.records if record.phase == "outcome"]
        return found


@pytest.fixture
def it():
    return Fixture()


def entry(**changes) -> Entry:
    fields: dict[str, Any] = {
        "call_id": "5e" * 16,
        "principal": "alice",
        "method": "tools/call",
        "tool": "drop_bucket",
        "args_json": '{"a":1}',
        "verdict": "allow",
        "rule_id": "tier.L3.auto",
        "tier": "L3",
        "dry_run": False,
        "trace_id": "84" * 16,
    }
    fields |= changes
    decided = {name: fields.pop(name) for name in ("verdict", "rule_id", "tier", "dry_run")}
    detail = fields.pop("detail_json", "null")
    made = make_entry(**fields)
    for name, value in decided.items():
        setattr(made, name, value)
    made.detail_json = detail
    return made


def test_an_intent_and_its_outcome_share_all_but_the_end(it):
    opened = it.recorder.intent(entry())
    it.clock.time += 0.25
    opened.close(latency_ms=7, upstream_status=200, detail_json='{"x":1}')
    intent, outcome = it.sink.records
    assert (intent.phase, outcome.phase) == ("intent", "outcome")
    assert (intent.latency_ms, intent.upstream_status, intent.detail_json) == (None, None, "null")
    assert (outcome.latency_ms, outcome.upstream_status, outcome.detail_json) == (7, 200, '{"x":1}')
    assert (intent.ts, outcome.ts) == ("2026-11-02T10:00:00.125+00:00", "2026-11-02T10:00:00.375+00:00")
    for name in ("subject", "verdict", "rule_id", "tier", "dry_run"):
        assert getattr(intent, name) == getattr(outcome, name) == getattr(entry(), name)
    assert intent.subject.trace_id == "84" * 16


def test_the_intent_is_on_file_before_anything_else_can_happen(it):
    it.recorder.intent(entry())
    assert [record.phase for record in it.sink.records] == ["intent"]


def test_an_outcome_may_have_a_verdict_of_its_own(it):
    it.recorder.intent(entry()).close(verdict="error", rule_id="upstream.unreachable")
    assert (it.outcome.verdict, it.outcome.rule_id) == ("error", "upstream.unreachable")


def test_the_latency_is_measured_when_it_is_not_given(it):
    opened = it.recorder.intent(entry())
    it.clock.ticks += 0.0129
    assert opened.elapsed_ms == 12
    opened.close()
    assert it.outcome.latency_ms == 12


def test_an_intent_that_is_not_on_file_stops_the_action(it):
    it.sink.broken = {1}
    with pytest.raises(OSError, match="No space left"):
        it.recorder.intent(entry())
    assert it.sink.records == []
    assert it.lines == []


def test_an_outcome_that_is_not_on_file_is_one_line_in_the_log_and_never_raised(it):
    it.sink.broken = {2}
    it.recorder.intent(entry()).close()
    (line,) = it.lines
    assert "5e" * 16 in line
    assert "No space left on device" in line
    assert "\n" not in line


def test_an_error_without_words_is_named(it):
    def write(record):
        raise OSError

    it.sink.write = write
    it.recorder.outcome(entry(), 0, None, "null")
    assert it.lines[0].endswith("OSError")


def test_an_outcome_is_written_exactly_once(it):
    opened = it.recorder.intent(entry())
    assert not opened.closed
    opened.close()
    assert opened.closed
    with pytest.raises(RuntimeError, match="already"):
        opened.close()
    assert len(it.sink.records) == 2


def test_an_outcome_that_failed_is_not_tried_a_second_time(it):
    it.sink.broken = {2}
    opened = it.recorder.intent(entry())
    opened.close()
    assert opened.closed
    with pytest.raises(RuntimeError):
        opened.close()
    assert it.sink.turns == 2


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_is_left_by_an_exception_has_an_internal_error_outcome_without_its_text(it, kind):
    it.clock.ticks = 1.0

    def run():
        with it.recorder.intent(entry()):
            it.clock.ticks = 3.5
            raise kind("s3cret")

    with pytest.raises(kind, match="s3cret"):
        run()
    assert (it.outcome.verdict, it.outcome.rule_id) == ("error", "internal.error")
    assert it.outcome.detail_json == f'"{kind.__name__}"'
    assert it.outcome.latency_ms == 2500


def test_a_block_that_closed_before_it_failed_has_the_outcome_it_gave(it):
    def run():
        with it.recorder.intent(entry()) as opened:
            opened.close(upstream_status=200)
            raise ValueError

    with pytest.raises(ValueError):
        run()
    assert it.outcome.rule_id == "tier.L3.auto"


def test_a_block_that_forgets_its_outcome_has_one_and_is_told(it):
    def run():
        with it.recorder.intent(entry()):
            pass

    with pytest.raises(RuntimeError, match="without an outcome"):
        run()
    assert it.outcome.rule_id == "internal.error"


def test_a_block_that_closes_is_left_in_peace(it):
    with it.recorder.intent(entry()) as opened:
        opened.close()
    assert len(it.sink.records) == 2


def test_a_refusal_writes_both_records_at_once_and_only_the_outcome_has_a_latency(it):
    it.recorder.refusal(entry(verdict="deny", rule_id="args.violation"), 'argument "ns" is missing')
    intent, outcome = it.sink.records
    assert (intent.phase, outcome.phase) == ("intent", "outcome")
    assert (intent.latency_ms, outcome.latency_ms) == (None, 0)
    assert intent.verdict == outcome.verdict == "deny"
    assert intent.subject == outcome.subject
    assert intent.detail_json == outcome.detail_json == r'"argument \"ns\" is missing"'


def test_a_refusal_keeps_the_detail_of_its_entry_when_none_is_given(it):
    it.recorder.refusal(entry(detail_json='{"k":1}'))
    assert it.outcome.detail_json == '{"k":1}'


def test_a_refusal_that_is_not_on_file_is_raised_and_half_of_it_is_never_there(it):
    it.sink.broken = {1}
    with pytest.raises(OSError, match="No space left"):
        it.recorder.refusal(entry(verdict="deny", rule_id="args.violation"))
    assert it.sink.records == []


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000+00:00"),
        (1_793_613_600.0, "2026-11-02T10:00:00.000+00:00"),
        (1_793_613_600.007, "2026-11-02T10:00:00.007+00:00"),  # the nearest double is below .007
        (1_793_613_600.34, "2026-11-02T10:00:00.340+00:00"),
        (1_793_613_600.9994, "2026-11-02T10:00:00.999+00:00"),
        (1_793_613_600.9999996, "2026-11-02T10:00:00.999+00:00"),
        (1_793_613_601.0, "2026-11-02T10:00:01.000+00:00"),
        (1_709_251_199.5, "2024-02-29T23:59:59.500+00:00"),
    ],
)
def test_a_stamp_is_exact_to_the_millisecond_and_stays_in_its_second(it, time, text):
    it.clock.time = time
    assert it.recorder.stamp() == text
    assert it.recorder.stamp() == text


def test_stamps_go_over_a_second_and_back_when_the_clock_is_set(it):
    seen = []
    for step in (0.998, 0.999, 1.0, 1.001, 0.5, 61.25):
        it.clock.time = 1_793_613_600 + step
        seen.append(it.recorder.stamp()[17:23])
    assert seen == ["00.998", "00.999", "01.000", "01.001", "00.500", "01.250"]


def test_a_stamp_says_what_datetime_says(it):
    for number in range(2000):
        it.clock.time = 1_793_613_600 + number * 0.0137
        expected = datetime.fromtimestamp(it.clock.time, UTC).isoformat(timespec="milliseconds")
        assert it.recorder.stamp() == expected


def test_threads_never_see_half_of_a_changed_second():
    times = iter(range(1_793_613_600, 1_793_613_600 + 4000))
    local = threading.local()

    class Racing(Clock):
        def now(self) -> float:
            local.time = time = float(next(times))
            return time

    recorder = Recorder(Sink(), Racing(), print)
    wrong = []

    def run():
        for _ in range(900):
            text = recorder.stamp()
            if text != datetime.fromtimestamp(local.time, UTC).isoformat(timespec="milliseconds"):
                wrong.append(text)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

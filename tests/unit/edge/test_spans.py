"""The way of a span out of the process: queue, batches, losses that are told, and an end in time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from airlock.edge import spans
from airlock.edge.spans import ExportError, Pace, Span, Tracer

PACE = Pace(queue=8, batch=4, delay_s=0.0, export_s=9.0, close_s=30.0)
WAIT_S = 20


def span(name: str = "tools/list") -> Span:
    return Span(name, "a" * 32, "b" * 16, None, 1, 2, ())


class Collected:
    """An exporter that keeps what it gets; `gate` holds it up, `fault` makes it fail."""

    name = "the test"

    def __init__(self, pace: Pace = PACE, fault: Exception | None = None) -> None:
        self.pace = pace
        self.fault = fault
        self.batches: list[list[str]] = []
        self.limits: list[float] = []
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.threads: set[threading.Thread] = set()

    def export(self, spans: Sequence[Span], within_s: float) -> None:
        self.threads.add(threading.current_thread())
        self.entered.set()
        assert self.gate.wait(WAIT_S)
        self.limits.append(within_s)
        if self.fault is not None:
            raise self.fault
        self.batches.append([span.name for span in spans])

    def close(self) -> None:
        self.closed += 1

    @property
    def names(self) -> list[str]:
        return [name for batch in self.batches for name in batch]


class Now:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def tracer(*exporters: Any, now: Any = None) -> tuple[Tracer, list[str]]:
    lines: list[str] = []
    return Tracer(exporters, lines.append, now or Now()), lines


def test_spans_reach_every_exporter_in_order_and_off_the_callers_thread():
    one, two = Collected(), Collected()
    traced, lines = tracer(one, two)
    for number in range(6):
        traced.record(span(str(number)))
    traced.close()
    assert one.names == two.names == [str(number) for number in range(6)]
    assert threading.current_thread() not in one.threads | two.threads
    assert (one.closed, two.closed, lines) == (1, 1, [])


def test_a_batch_is_no_longer_than_its_limit():
    exporter = Collected(Pace(queue=100, batch=4, delay_s=60.0, export_s=9.0, close_s=30.0))
    exporter.gate.clear()
    traced, _ = tracer(exporter)
    for number in range(11):
        traced.record(span(str(number)))
    assert exporter.entered.wait(WAIT_S)  # a whole batch left although the delay is not over
    exporter.gate.set()
    traced.close()
    assert [len(batch) for batch in exporter.batches] == [4, 4, 3]


def test_the_first_span_waits_no_longer_than_the_delay():
    exporter = Collected(Pace(queue=100, batch=50, delay_s=0.01, export_s=9.0, close_s=30.0))
    traced, _ = tracer(exporter)
    traced.record(span())
    assert exporter.entered.wait(WAIT_S)
    traced.close()
    assert exporter.names == ["tools/list"]


@pytest.mark.case("T76")
def test_a_full_queue_drops_spans_and_says_so_once_with_their_number():
    exporter = Collected(Pace(queue=8, batch=1, delay_s=0.0, export_s=9.0, close_s=30.0))
    exporter.gate.clear()
    traced, lines = tracer(exporter)
    traced.record(span("in the exporter's hands"))
    assert exporter.entered.wait(WAIT_S)
    for number in range(20):
        traced.record(span(str(number)))
    exporter.gate.set()
    traced.close()
    assert exporter.names[1:] == [str(number) for number in range(8)]
    assert lines == ["tracing: spans lost on the way to the test: 12 (the queue was full)"]


def test_a_failure_is_told_at_most_once_a_minute_and_the_rest_at_the_end():
    exporter = Collected(
        Pace(queue=100, batch=1, delay_s=0.0, export_s=9.0, close_s=30.0), ExportError("it said no")
    )
    told, lines = threading.Event(), list[str]()

    def warn(line: str) -> None:
        lines.append(line)
        told.set()

    traced = Tracer([exporter], warn, Now())
    traced.record(span())
    assert told.wait(WAIT_S)
    for _ in range(5):
        traced.record(span())
    traced.close()
    assert lines == [
        "tracing: spans lost on the way to the test: 1 (it said no)",
        "tracing: spans lost on the way to the test: 5 (it said no)",
    ]


def test_a_minute_later_a_failure_is_told_again():
    exporter = Collected(
        Pace(queue=100, batch=1, delay_s=0.0, export_s=9.0, close_s=30.0), ExportError("it said no")
    )
    now, told, lines = Now(), threading.Event(), list[str]()

    def warn(line: str) -> None:
        lines.append(line)
        told.set()

    traced = Tracer([exporter], warn, now)
    for _ in range(2):
        told.clear()
        traced.record(span())
        assert told.wait(WAIT_S)
        now.now += spans.QUIET_S
    traced.close()
    assert len(lines) == 2


def test_an_exporter_that_breaks_is_told_by_its_kind_and_the_next_spans_still_go():
    exporter = Collected(fault=ZeroDivisionError("https://user:password@collector"))
    traced, lines = tracer(exporter)
    traced.record(span("lost"))
    assert exporter.entered.wait(WAIT_S)
    while exporter.limits == []:
        threading.Event().wait(0.001)
    exporter.fault = None
    traced.record(span("kept"))
    traced.close()
    assert exporter.names == ["kept"]
    assert lines == ["tracing: spans lost on the way to the test: 1 (ZeroDivisionError)"]


@pytest.mark.case("T76")
def test_an_exporter_that_hangs_is_left_behind_and_its_spans_are_counted():
    exporter = Collected(Pace(queue=8, batch=2, delay_s=0.0, export_s=9.0, close_s=0.05))
    exporter.gate.clear()
    traced, lines = tracer(exporter)
    traced.record(span())
    assert exporter.entered.wait(WAIT_S)
    for _ in range(4):
        traced.record(span())
    traced.close()
    assert lines == ["tracing: spans lost on the way to the test: 5 (no time was left)"]
    (thread,) = exporter.threads
    assert thread.daemon  # so that it cannot keep the process
    exporter.gate.set()
    thread.join(WAIT_S)
    assert exporter.closed == 1
    assert len(lines) == 1


def test_the_flush_gives_each_batch_only_the_time_that_is_left():
    now = Now()
    exporter = Collected(Pace(queue=100, batch=2, delay_s=0.0, export_s=9.0, close_s=12.0))
    exporter.gate.clear()
    traced, lines = tracer(exporter, now=now)
    for _ in range(8):
        traced.record(span())
    assert exporter.entered.wait(WAIT_S)
    taken = exporter.export

    def slow(spans: Sequence[Span], within_s: float) -> None:
        taken(spans, within_s)
        now.now += 5.0

    exporter.export = slow  # type: ignore[method-assign]
    closing = threading.Thread(target=traced.close)
    closing.start()
    while not traced._lanes[0]._closed:
        threading.Event().wait(0.001)
    exporter.gate.set()
    closing.join(WAIT_S)
    # The first batch was under way, untouched by the end; the clock moves by 5 s with each of the others.
    assert exporter.limits == [9.0, 9.0, 7.0, 2.0]
    assert lines == []


@pytest.mark.case("T76")
def test_what_is_left_when_the_time_is_over_is_dropped_and_counted():
    now = Now()
    exporter = Collected(Pace(queue=100, batch=2, delay_s=60.0, export_s=9.0, close_s=4.0))
    exporter.gate.clear()
    traced, lines = tracer(exporter, now=now)
    for _ in range(7):
        traced.record(span())
    assert exporter.entered.wait(WAIT_S)
    closing = threading.Thread(target=traced.close)
    closing.start()
    while not traced._lanes[0]._closed:
        threading.Event().wait(0.001)
    now.now += 4.0
    exporter.gate.set()
    closing.join(WAIT_S)
    assert exporter.batches == [["tools/list"] * 2]
    assert lines == ["tracing: spans lost on the way to the test: 5 (no time was left)"]


def test_a_tracer_without_spans_starts_no_thread_and_closes_its_exporters():
    before = threading.active_count()
    exporter = Collected()
    traced, lines = tracer(exporter)
    assert threading.active_count() == before
    traced.close()
    assert (exporter.closed, lines) == (1, [])


@pytest.mark.parametrize("recorded", [0, 1])
def test_an_exporter_that_breaks_as_it_closes_is_told_by_its_kind(recorded: int):
    class Breaking(Collected):
        def close(self) -> None:
            raise OSError(5, "/secret/path")

    traced, lines = tracer(Breaking())
    for _ in range(recorded):
        traced.record(span())
    traced.close()
    assert lines == ["tracing: the test was not closed properly: OSError"]


def test_a_second_close_does_nothing_and_a_late_span_is_dropped_in_silence():
    exporter = Collected()
    traced, lines = tracer(exporter)
    traced.record(span())
    traced.close()
    traced.record(span("late"))
    traced.close()
    assert (exporter.names, exporter.closed, lines) == (["tools/list"], 1, [])


def test_a_system_without_threads_costs_spans_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    exporter = Collected()
    traced, lines = tracer(exporter)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            traced.record(span())
        traced.close()
    assert exporter.closed == 1
    assert lines == ["tracing: spans lost on the way to the test: 3 (no time was left)"]


def test_many_threads_may_record_at_once():
    exporter = Collected(Pace(queue=10_000, batch=16, delay_s=0.0, export_s=9.0, close_s=30.0))
    traced, lines = tracer(exporter)

    def work() -> None:
        for _ in range(500):
            traced.record(span())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT_S)
    traced.close()
    assert (len(exporter.names), lines) == (2000, [])
    assert len(exporter.threads) == 1

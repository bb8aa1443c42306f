"""What the mirror does with a table that refuses, is away, or never answers; the real table is in tests/shell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from airlock.edge import pg
from airlock.edge.sinks import postgres
from airlock.edge.sinks.pgqueue import ROWS
from airlock.edge.sinks.postgres import PostgresMirror, Unreachable


class Refusal(Exception):
    """What the database says of a bad row."""


class Table:
    """A table in memory that can be away, frozen, or refuse rows that say `bad`."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.batches: list[int] = []
        self.tries = 0
        self.away = ""
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()
        self.gone = False
        self.cuttable = True
        self.closed = False

    def write(self, texts: list[str]) -> None:
        self.tries += 1
        self.asked.set()
        self.answers.wait(30)
        if self.gone or self.away:
            raise Unreachable(self.away or "it was closed")
        if any("bad" in text for text in texts):
            raise Refusal
        self.rows += texts
        self.batches.append(len(texts))

    def complaint(self, exc: Exception) -> str:
        return type(exc).__name__

    def cut(self) -> None:
        self.gone = True
        if self.cuttable:
            self.answers.set()

    def close(self) -> None:
        self.closed = True


class World:
    """A mirror before a table, and what it warned about."""

    def __init__(self, patch: pytest.MonkeyPatch, wait_s: float) -> None:
        self.table = Table()
        self.said: list[str] = []
        patch.setattr(postgres, "_Table", lambda _: self.table)
        patch.setattr(postgres, "_FIRST_PAUSE_S", 0.001)
        self.mirror = PostgresMirror(pg.Dsn("", wait_s, ()), self.said.append)

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not true():
            assert time.monotonic() < deadline, (self.table.rows, self.said)
            time.sleep(0.001)

    def freeze(self) -> None:
        """Hold the worker in a statement that is not answered."""
        self.table.answers.clear()
        self.table.asked.clear()
        self.mirror.offer(b'"first"')
        assert self.table.asked.wait(20)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch, 20.0)
    yield made
    made.table.gone = True
    made.table.answers.set()
    made.mirror.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose connect timeout is over at once."""
    return World(monkeypatch, 0.01)


def test_lines_reach_the_table_in_order_and_in_batches(world: World):
    world.freeze()
    for n in range(250):
        world.mirror.offer(b"%d" % n)
    world.table.answers.set()
    world.mirror.close()
    assert world.table.rows == ['"first"', *map(str, range(250))]
    assert world.table.batches == [1, 100, 100, 50]
    assert world.table.closed
    assert world.said == []


def test_a_bad_row_does_not_lose_its_neighbours(world: World):
    world.freeze()
    for n in range(150):
        world.mirror.offer(b"bad" if n in (7, 30) else b"%d" % n)
    world.table.answers.set()
    world.mirror.close()
    assert world.table.rows == ['"first"', *(str(n) for n in range(150) if n not in (7, 30))]
    assert world.table.batches == [1] + [1] * 98 + [50]
    assert world.said == [
        "the audit table took no record, it is dropped: Refusal",
        "the audit table caught up; 2 records were dropped from it",
    ]


def test_a_line_that_is_no_text_is_dropped_like_a_bad_row(world: World):
    world.mirror.offer(b"\xff")
    world.mirror.offer(b"good")
    world.mirror.close()
    assert world.table.rows == ["good"]
    assert world.said[0] == "the audit table took no record, it is dropped: UnicodeDecodeError"


def test_rows_wait_for_a_database_that_is_away_and_it_is_said_once(world: World):
    world.table.away = "connection refused"
    for n in range(3):
        world.mirror.offer(b"%d" % n)
    world.until(lambda: world.table.tries >= 4)
    assert world.said == ["the audit table cannot be written, its records wait: connection refused"]
    world.table.away = ""
    world.until(lambda: len(world.table.rows) == 3)
    world.mirror.close()
    assert world.table.rows == ["0", "1", "2"]
    assert world.said[1:] == ["the audit table caught up; 0 records were dropped from it"]


def test_records_without_an_end_are_not_written_to_a_database_without_an_end(world: World):
    """A database that refuses everything is named once, not once a record."""
    for _ in range(20):
        world.mirror.offer(b"bad")
    world.mirror.close()
    assert world.said == [
        "the audit table took no record, it is dropped: Refusal",
        "the audit table was closed: 0 records were left unwritten, 20 records were dropped before",
    ]


@pytest.mark.case("T42")
def test_a_full_queue_drops_with_one_warning_and_later_says_how_many(world: World):
    world.freeze()
    for n in range(ROWS + 36):
        world.mirror.offer(b"%d" % n)
    assert world.said == ["the audit table is behind: its queue is full, records are dropped from the table"]
    world.table.answers.set()
    world.until(lambda: len(world.said) == 2)
    assert world.said[1] == "the audit table caught up; 37 records were dropped from it"
    assert len(world.table.rows) == ROWS


@pytest.mark.case("T42")
def test_closing_before_a_frozen_database_cuts_it_off_and_says_how_many_are_left(hasty: World):
    hasty.freeze()
    hasty.mirror.offer(b"second")
    hasty.mirror.close()
    assert hasty.table.gone
    assert hasty.table.closed
    assert hasty.said == ["the audit table was closed: 2 records were left unwritten"]


@pytest.mark.case("T42")
def test_a_worker_that_does_not_stop_is_left_behind(hasty: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(postgres, "_STOP_S", 0.01)
    hasty.table.cuttable = False
    hasty.freeze()
    hasty.mirror.close()
    assert hasty.said == ["the audit table was closed: 1 record was left unwritten"]
    hasty.table.answers.set()
    hasty.until(lambda: hasty.table.closed)
    assert len(hasty.said) == 1


def test_the_longest_connect_timeout_does_not_hold_up_the_close(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(postgres, "_CLOSE_S", postgres._STOP_S + 0.01)
    world = World(monkeypatch, 86400.0)
    world.freeze()
    world.mirror.close()
    assert world.table.gone


def test_a_database_that_is_away_is_tried_once_more_at_the_close(world: World):
    world.table.away = "connection refused"
    world.mirror.offer(b"0")
    world.until(lambda: world.table.tries >= 1)
    world.mirror.close()
    assert not world.table.gone
    assert world.said[-1] == "the audit table was closed: 1 record was left unwritten"


def test_many_threads_may_close_and_one_says_so(hasty: World):
    hasty.freeze()
    closers = [threading.Thread(target=hasty.mirror.close) for _ in range(4)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(20)
    assert len(hasty.said) == 1


def test_a_line_after_the_close_is_dropped_in_silence(world: World):
    world.mirror.close()
    world.mirror.offer(b"late")
    assert (world.table.rows, world.said) == ([], [])


def test_nothing_is_asked_of_the_database_before_the_first_line(world: World):
    world.mirror.close()
    assert world.table.tries == 0

"""The backlog of the audit table: its two bounds, what it says of its losses, and text that jsonb takes."""

from __future__ import annotations

import json
import threading

import pytest

from airlock.edge.sinks.pgqueue import ROWS, SIZE, Backlog, Losses, counted, jsonb_text


def test_lines_come_out_in_order_and_stay_until_they_are_settled():
    backlog = Backlog()
    assert all(backlog.put(b"%d" % n) for n in range(5))
    assert backlog.head(3, SIZE) == [b"0", b"1", b"2"]
    assert backlog.head(1, SIZE) == [b"0"]
    assert len(backlog) == 5
    assert not backlog.settle(3)
    assert backlog.head(9, SIZE) == [b"3", b"4"]
    assert backlog.settle(2)


def test_the_bounds_are_those_of_the_readme():
    assert (ROWS, SIZE) == (1000, 32 * 1024 * 1024)


@pytest.mark.case("T42")
def test_the_backlog_is_bounded_by_the_number_of_its_lines():
    backlog = Backlog(rows=3)
    assert [backlog.put(b"x") for _ in range(5)] == [True, True, True, False, False]
    backlog.settle(1)
    assert [backlog.put(b"x") for _ in range(2)] == [True, False]


@pytest.mark.case("T42")
def test_the_backlog_is_bounded_by_the_bytes_of_its_lines():
    backlog = Backlog(size=10)
    assert [backlog.put(b"x" * n) for n in (6, 4, 1)] == [True, True, False]
    backlog.settle(1)
    assert [backlog.put(b"x" * n) for n in (7, 6)] == [False, True]


def test_lines_in_the_hands_of_the_worker_count():
    backlog = Backlog(rows=2)
    backlog.put(b"a")
    backlog.put(b"b")
    assert backlog.head(2, SIZE) == [b"a", b"b"]
    assert not backlog.put(b"c")


def test_a_line_over_the_bound_is_taken_when_it_waits_alone():
    backlog = Backlog(size=10)
    assert backlog.put(b"x" * 50)
    assert not backlog.put(b"y")
    assert backlog.head(9, 5) == [b"x" * 50]
    backlog.settle(1)
    assert backlog.put(b"y")
    assert not backlog.put(b"x" * 50)


def test_a_batch_ends_before_it_gets_too_large():
    backlog = Backlog()
    for size in (4, 4, 4):
        backlog.put(b"x" * size)
    assert len(backlog.head(9, 8)) == 2
    assert len(backlog.head(9, 7)) == 1


def test_a_closed_backlog_takes_nothing_and_hands_out_what_is_left():
    backlog = Backlog()
    backlog.put(b"a")
    backlog.close()
    assert not backlog.put(b"b")
    assert backlog.head(9, SIZE) == [b"a"]
    backlog.settle(1)
    assert backlog.head(9, SIZE) == []


def test_a_waiting_worker_is_woken_by_a_line_and_by_the_close():
    backlog = Backlog()
    got: list[list[bytes]] = []

    def work() -> None:
        while lines := backlog.head(9, SIZE):
            got.append(lines)
            backlog.settle(len(lines))

    worker = threading.Thread(target=work)
    worker.start()
    for n in range(50):
        backlog.put(b"%d" % n)
    backlog.close()
    worker.join(10)
    assert not worker.is_alive()
    assert [line for lines in got for line in lines] == [b"%d" % n for n in range(50)]


def test_each_trouble_is_said_once_until_things_are_well():
    said: list[str] = []
    losses = Losses(said.append)
    losses.well()
    losses.trouble("it is full", dropped=1)
    losses.trouble("it is full", dropped=1)
    losses.trouble("nobody there")
    losses.trouble("nobody there", dropped=3)
    assert losses.count == 5
    losses.well()
    losses.well()
    assert losses.count == 0
    losses.trouble("it is full", dropped=1)
    losses.well()
    assert said == [
        "it is full",
        "nobody there",
        "the audit table caught up; 5 records were dropped from it",
        "it is full",
        "the audit table caught up; 1 record was dropped from it",
    ]


def test_a_database_with_ever_new_words_does_not_fill_the_log():
    said: list[str] = []
    losses = Losses(said.append)
    for n in range(50):
        losses.trouble(f"trouble {n}", dropped=1)
    assert (len(said), losses.count) == (8, 50)


def test_trouble_that_cost_nothing_ends_with_that_word():
    said: list[str] = []
    losses = Losses(said.append)
    losses.trouble("nobody there")
    losses.well()
    assert said[-1] == "the audit table caught up; 0 records were dropped from it"
    assert [counted(n) for n in (0, 1, 2)] == ["0 records were", "1 record was", "2 records were"]


@pytest.mark.case("T31")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (rb'{"a":"x\u0000y"}', "x�y"),
        (rb'{"a":"\u0000\u0000"}', "��"),
        (rb'{"a":"\\u0000"}', r"\u0000"),
        (rb'{"a":"\\\u0000"}', "\\�"),
        (rb'{"a":"\\\\u0000"}', r"\\u0000"),
        (rb'{"a":"\ud800"}', "�"),
        (rb'{"a":"\uDFFFx"}', "�x"),
        (rb'{"a":"\udc00\ud800"}', "��"),
        (rb'{"a":"\ud800\u0041"}', "�A"),
        (rb'{"a":"\ud83d\ude00"}', "\U0001f600"),
        (rb'{"a":"\uD83D\uDE00\ud83d"}', "\U0001f600�"),
        (rb'{"a":"\u001b\n\"\/"}', '\x1b\n"/'),
        ('{"a":"é\ud800"}'.encode("utf-8", "surrogatepass"), "é�"),
        ('{"a":"привет"}'.encode(), "привет"),
    ],
)
def test_text_that_jsonb_refuses_is_replaced_and_nothing_else(sent: bytes, kept: str):
    assert json.loads(jsonb_text(sent))["a"] == kept


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(UnicodeDecodeError):
        jsonb_text(b'{"a":"\xff"}')

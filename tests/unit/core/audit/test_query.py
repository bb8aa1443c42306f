"""What may be asked of audit records."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from airlock.core.audit import query
from airlock.core.audit.query import Count, Filters, Found, Intents, Lone, Skip

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


def line(**fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def selected(lines: list[bytes], **filters: Any) -> tuple[list[dict], list[tuple[str, int, Skip]]]:
    skipped: list[tuple[str, int, Skip]] = []
    found = query.select(
        [("a", lines)], Filters(**filters), lambda name, number, why: skipped.append((name, number, why))
    )
    return [json.loads(each.text) for each in found], skipped


# Filters


@pytest.mark.parametrize("name", ["principal", "tool", "verdict", "rule", "phase"])
def test_each_filter_asks_for_one_value_of_its_field(name):
    field = {"rule": "rule_id"}.get(name, name)
    asked: dict[str, Any] = {name: "x"}
    assert Filters(**asked).matches({field: "x"})
    for other in ("X", "x ", None, 1, ["x"]):
        assert not Filters(**asked).matches({field: other})
    assert not Filters(**asked).matches({})


def test_no_filter_asks_for_everything_and_several_ask_for_all_of_them():
    assert Filters().matches({})
    both = Filters(principal="alice", verdict="deny")
    assert both.matches({"principal": "alice", "verdict": "deny"})
    assert not both.matches({"principal": "alice", "verdict": "allow"})


def test_since_takes_in_its_own_instant_and_reads_offsets():
    since = Filters(since=NOW)
    assert since.matches({"ts": "2026-11-02T12:00:00.000+00:00"})
    assert since.matches({"ts": "2026-11-02T12:00:00"})
    assert since.matches({"ts": "2026-11-02T14:00:00+02:00"})
    assert not since.matches({"ts": "2026-11-02T13:59:59+02:00"})


@pytest.mark.parametrize("ts", [None, 5, "", "soon", "0001-01-01T00:00:00+14:00"])
def test_a_ts_that_cannot_be_read_is_younger_than_nothing(ts):
    assert query.moment({"ts": ts}) is None
    assert not Filters(since=datetime.min.replace(tzinfo=UTC)).matches({"ts": ts})


# The time of --since


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", NOW - timedelta(minutes=30)),
        ("2h", NOW - timedelta(hours=2)),
        ("7d", NOW - timedelta(days=7)),
        ("0m", NOW),
        ("2026-11-02", datetime(2026, 11, 2, tzinfo=UTC)),
        ("2026-11-02T10:00", datetime(2026, 11, 2, 10, tzinfo=UTC)),
        ("2026-11-02T10:00:00Z", datetime(2026, 11, 2, 10, tzinfo=UTC)),
        ("2026-11-02T10:00+02:00", datetime(2026, 11, 2, 10, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_since_is_a_span_before_now_or_an_iso_time_in_utc(text, expected):
    assert query.parse_since(text, NOW) == expected
    assert query.parse_since(text, NOW).tzinfo is UTC


@pytest.mark.case("T49")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (text, "neither 30m, 2h, 7d nor an ISO 8601 time")
        for text in (
            "",
            "2",
            "h",
            "-2h",
            "2H",
            "2w",
            " 2h",
            "1.5h",
            "٢h",
            "yesterday",
            "2026-13-01",
            "9" * 5000 + "h",
        )
    ]
    + [
        (text, "a time beyond the calendar")
        for text in ("99999999d", "999999999999999999999h", "0001-01-01T00:00:00+14:00")
    ],
)
def test_an_absurd_since_is_refused_in_our_own_words(text, words):
    with pytest.raises(ValueError, match=words):
        query.parse_since(text, NOW)


# Reading lines


def test_a_record_keeps_its_text_and_gives_the_fields_that_are_asked_about():
    text = '{"ts":"t", "args":{"n":1e22,"big":123456789012345678901234567890},"tool":"x","prev":"p"}'
    assert query.read(text.encode() + b"\r\n") == Found(text, {"ts": "t", "tool": "x"})


@pytest.mark.case("T47")
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b'{"ts":"2026', Skip.NOT_JSON),
        (b"nonsense", Skip.NOT_JSON),
        (b'{"a":1}{"b":2}', Skip.NOT_JSON),
        (b'{"a":"\x1b[2J"}', Skip.NOT_JSON),
        (b'{"a":"\xff"}', Skip.NOT_JSON),
        (b'"\xff"', Skip.NOT_JSON),
        (b'\xef\xbb\xbf{"a":1}', Skip.NOT_JSON),
        (b'{"a":NaN}', Skip.NOT_JSON),
        (b"NaN", Skip.NOT_JSON),
        (b'{"ts":1e400}', Skip.NOT_JSON),
        (b'{"a":"\\ud800","b":1,"b":2}', Skip.NOT_JSON),
        (b"[" * 100_000, Skip.NOT_JSON),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", Skip.NOT_JSON),
        (b"1 2", Skip.NOT_JSON),
        (b"17", Skip.NOT_A_RECORD),
        (b"null", Skip.NOT_A_RECORD),
        (b'["\\ud800"]', Skip.NOT_A_RECORD),
        (b'"text"', Skip.NOT_A_RECORD),
    ],
)
def test_a_line_that_is_no_record_says_what_it_is(bad, why):
    assert query.read(bad) is why
    assert selected([bad + b"\n", line(tool="x")]) == ([{"tool": "x"}], [("a", 1, why)])


@pytest.mark.parametrize("odd", ['{"tool":"\\ud800"}', '{"tool":"\ud800"}'])
def test_half_a_surrogate_pair_is_still_a_record(odd):
    found = query.read(odd.encode("utf-8", "surrogatepass"))
    assert found == Found(odd, {"tool": "\ud800"})


def test_a_key_spelled_with_escapes_is_that_key_and_of_a_repeated_one_the_last_counts():
    assert selected([b'{"princip\\u0061l":"alice"}'], principal="alice")[0] == [{"principal": "alice"}]
    assert selected([b'{"tool":"a","tool":"b"}'], tool="b")[0] == [{"tool": "b"}]
    assert selected([b'{"tool":"a","tool":"b"}'], tool="a")[0] == []


def test_lines_are_counted_blank_ones_too_and_these_are_not_complained_about():
    lines = [b"\n", b" \t\r\n", line(tool="x"), b"\n", b"bad\n"]
    assert selected(lines) == ([{"tool": "x"}], [("a", 5, Skip.NOT_JSON)])


def test_a_ts_that_cannot_be_read_is_only_bad_when_somebody_asks_for_a_time():
    lines = [line(tool="x"), line(ts="soon", tool="x"), line(ts="2026-11-03", tool="x")]
    assert selected(lines, tool="x")[1] == []
    kept, skipped = selected(lines, tool="x", since=NOW)
    assert kept == [{"ts": "2026-11-03", "tool": "x"}]
    assert skipped == [("a", 1, Skip.BAD_TS), ("a", 2, Skip.BAD_TS)]


# Several chains


def founds(*stamps: str | None) -> list[Found]:
    return [Found(str(stamp), {"ts": stamp}) for stamp in stamps]


def test_one_chain_stays_in_its_own_order_whatever_its_times_say():
    only = founds("2026-11-02", "2026-11-01")
    assert list(query.merged([only])) == only


def test_several_chains_are_woven_by_time_and_the_first_goes_first_on_a_tie():
    first, second = founds("2026-11-01", "2026-11-03"), founds("2026-11-02", "2026-11-03")
    assert list(query.merged([first, second])) == [first[0], second[0], first[1], second[1]]


def test_within_a_chain_nothing_moves_even_where_its_clock_stepped_back_or_said_nothing():
    first = founds(None, "2026-11-05", "2026-11-01", "soon")
    second = founds("2026-11-04", "2026-11-06")
    woven = list(query.merged([first, second]))
    assert [each.text for each in woven] == [
        "None",
        "2026-11-04",
        "2026-11-05",
        "2026-11-01",
        "soon",
        "2026-11-06",
    ]


# Counting


def test_records_are_counted_by_verdict_and_rule_the_most_frequent_first():
    deny, allow = {"verdict": "deny", "rule_id": "b"}, {"verdict": "allow", "rule_id": "a"}
    other = {"verdict": "deny", "rule_id": "a"}
    assert query.tally([allow, deny, other, deny]) == [
        Count("deny", "b", 2),
        Count("allow", "a", 1),
        Count("deny", "a", 1),
    ]
    assert query.tally([]) == []


def test_values_of_odd_kinds_are_counted_apart():
    kinds: list[object] = [1, True, "1", None, [1], {"a": 1}]
    counts = query.tally([{"verdict": kind} for kind in kinds] + [{}])
    assert {json.dumps(each.verdict): each.count for each in counts} == {
        "1": 1, "true": 1, '"1"': 1, "null": 2, "[1]": 1, '{"a": 1}': 1,
    }  # fmt: skip


# Output


def test_a_count_is_a_line_of_three_members():
    assert query.render(Count("deny", "r", 2)) == '{"verdict":"deny","rule_id":"r","count":2}'


HOSTILE = "\x7f\x9b31m\u202e\u200b\u2028\x85\ufeff\U000e0041\ud800\ufe0f"


def test_what_a_terminal_obeys_or_hides_is_spelled_out_and_the_value_stays():
    raw = json.dumps({"tool": HOSTILE}, ensure_ascii=False)
    shown = query.shown(raw)
    assert shown.isascii()
    assert shown.isprintable()
    assert json.loads(shown) == {"tool": HOSTILE}
    assert query.render({"tool": HOSTILE + "\x1b\n"}) == (
        r'{"tool":"\u007f\u009b31m\u202e\u200b\u2028\u0085\ufeff\udb40\udc41\ud800\ufe0f\u001b\n"}'
    )


def test_letters_of_any_script_stay_as_they_are_unless_the_stream_cannot_write_them():
    text = '{"tool":"удалить 🗑 é"}'
    assert query.shown(text) == text
    plain = query.shown(text, ascii_only=True)
    assert plain.isascii()
    assert json.loads(plain) == json.loads(text)
    assert query.render({"tool": "é"}, ascii_only=True) == r'{"tool":"\u00e9"}'


def test_blanks_between_the_signs_cannot_move_the_cursor():
    assert query.shown('{"a":1,\r\t"b":2}') == '{"a":1,  "b":2}'


def test_ordinary_text_is_returned_untouched():
    text = '{"tool":"drop_bucket"}'
    assert query.shown(text) is text


# Lone intents


def intents(*lines: bytes) -> list[Lone]:
    watching = Intents()
    assert list(watching.watch("a", lines)) == list(lines)
    return watching.lone()


def test_an_intent_whose_outcome_came_is_not_alone():
    assert intents(line(phase="intent", call_id="1"), b"\n", line(phase="outcome", call_id="1")) == []


def test_an_intent_without_an_outcome_is_found_where_it_stands():
    lines = [
        line(phase="intent", call_id="1"),
        line(phase="intent", call_id="2"),
        line(phase="outcome", call_id="2"),
    ]
    assert intents(*lines) == [Lone("a", 1, "1")]


def test_an_outcome_answers_one_intent():
    intent, outcome = line(phase="intent", call_id="1"), line(phase="outcome", call_id="1")
    assert intents(intent, intent, outcome) == [Lone("a", 1, "1")]
    assert intents(outcome, intent) == [Lone("a", 2, "1")]


def test_an_intent_and_its_outcome_may_stand_in_two_files():
    watching = Intents()
    list(watching.watch("a.1", [line(phase="intent", call_id="1")]))
    list(watching.watch("a", [line(phase="outcome", call_id="1")]))
    assert watching.lone() == []


def test_what_is_no_record_of_a_call_leaves_no_intent():
    assert (
        intents(b"bad\n", b"17\n", line(phase="intent"), line(phase="intent", call_id=[1]), line(call_id="1"))
        == []
    )


def test_lone_intents_are_told_in_one_line_that_names_the_first_ten():
    assert query.render_lone([Lone("a\n", 1, "c")]) == (
        r"NOTE: 1 intent has no outcome (still running, or cut off by a crash or a full disk): a\n:1"
    )
    text = query.render_lone([Lone("a", number, "c") for number in range(1, 13)])
    assert text.startswith("NOTE: 12 intents have no outcome (")
    assert text.endswith("a:9, a:10, and 2 more")

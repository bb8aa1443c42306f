"""Counters, histograms and their text form; what the system says of the process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airlock.edge.metrics import Counter, Family, Histogram, Sample, process, render


def counter(most: int = 500) -> Counter:
    return Counter("c_total", "Help.", ("verdict", "tool"), (None, "other"), most)


def test_a_counter_counts_by_its_labels():
    made = counter()
    for tool in ("a", "b", "a"):
        made.add("allow", tool)
    assert render([made.family()], {}).decode() == (
        "# HELP c_total Help.\n# TYPE c_total counter\n"
        'c_total{verdict="allow",tool="a"} 2\nc_total{verdict="allow",tool="b"} 1\n'
    )


def test_beyond_its_most_series_a_counter_adds_up_what_is_new():
    made = counter(most=2)
    for tool in ("a", "b", "c", "d", "a", "c"):
        made.add("allow", tool)
    made.add("deny", "e")
    assert dict(made.series()) == {
        ("allow", "a"): 2,
        ("allow", "b"): 1,
        ("allow", "other"): 3,
        ("deny", "other"): 1,
    }


def test_a_value_cannot_be_taken_for_two():
    made = counter()
    made.add("allow", "a\x00b")
    made.add("allow\x00a", "b")
    assert sorted(values for values, _ in made.series()) == [("allow", "a\ufffdb"), ("allow\ufffda", "b")]


def test_label_values_are_escaped_and_what_is_no_text_is_replaced():
    family = Family("g", "gauge", "Help.", (Sample((("x", 'a"b\\c\nd\ud800'),), 1),))
    assert render([family], {}).splitlines()[2] == b'g{x="a\\"b\\\\c\\nd?"} 1'


def test_common_labels_stand_on_every_series():
    families = [Family("g", "gauge", "Help.", (Sample((), 0.5),)), counter().family()]
    assert render(families, {"worker": "1"}).decode() == (
        '# HELP g Help.\n# TYPE g gauge\ng{worker="1"} 0.5\n# HELP c_total Help.\n# TYPE c_total counter\n'
    )


def test_a_histogram_holds_what_is_at_most_each_bound():
    made = Histogram("s", "Help.", "method", (0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 3.0):
        made.observe("m", seconds)
    assert render([made.family()], {}).decode().splitlines()[2:] == [
        's_bucket{method="m",le="0.1"} 2',
        's_bucket{method="m",le="1"} 3',
        's_bucket{method="m",le="+Inf"} 4',
        's_sum{method="m"} 3.65',
        's_count{method="m"} 4',
    ]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_the_process_tells_its_memory_files_and_start():
    found = {family.name: family.samples[0].value for family in process()}
    assert found["process_cpu_seconds_total"] > 0
    assert 1e6 < found["process_resident_memory_bytes"] < 1e11
    with open(os.devnull):
        more = {family.name: family.samples[0].value for family in process()}
    assert more["process_open_fds"] == found["process_open_fds"] + 1
    assert 1.6e9 < found["process_start_time_seconds"] < 1e10


def test_without_proc_the_processor_time_is_left(monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", gone)
    assert [family.name for family in process()] == ["process_cpu_seconds_total"]

"""The trace a request is part of: the caller's continued, or one of its own."""

from __future__ import annotations

import pytest

from airlock.edge import trace

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


class Counting:
    """Identifiers that can be told apart."""

    def hex(self, nbytes: int) -> str:
        return "1" * (2 * nbytes)


def test_a_good_parent_is_continued_with_a_span_of_our_own():
    begun = trace.begin(PARENT, "vendor=1", Counting())
    assert (begun.trace_id, begun.parent_id, begun.span_id) == ("ab" * 16, "cd" * 8, "1" * 16)
    assert begun.traceparent == "00-" + "ab" * 16 + "-" + "1" * 16 + "-01"
    assert begun.state == "vendor=1"


@pytest.mark.case("T33")
@pytest.mark.parametrize(
    "parent",
    [
        None, 7, [PARENT], {"traceparent": PARENT}, "", "00-xyz", PARENT + "-more", PARENT.upper(),
        "ff" + PARENT[2:], PARENT.replace("ab" * 16, "00" * 16), PARENT.replace("cd" * 8, "00" * 8),
    ],
)  # fmt: skip
def test_a_parent_that_is_no_good_starts_a_new_trace(parent: object):
    begun = trace.begin(parent, "vendor=1", Counting())
    assert (begun.trace_id, begun.parent_id, begun.state) == ("1" * 32, None, None)


@pytest.mark.case("T33")
@pytest.mark.parametrize("state", [None, 7, ["a=b"], "", "a=b\r\nx: y", "é", "x" * 513])
def test_a_state_that_is_no_good_is_left_out(state: object):
    assert trace.begin(PARENT, state, Counting()).state is None


def test_a_later_version_of_the_header_is_read_and_answered_in_ours():
    begun = trace.begin("01" + PARENT[2:] + "-more", None, Counting())
    assert begun.traceparent == "00-" + "ab" * 16 + "-" + "1" * 16 + "-01"


@pytest.mark.parametrize("parent", [PARENT, None])
def test_a_trace_knows_when_it_began(parent: object):
    assert trace.begin(parent, None, Counting(), 12.5).started == 12.5


def test_a_parent_that_wants_no_span_is_continued_all_the_same():
    assert trace.begin(PARENT[:-1] + "0", None, Counting()).traceparent.endswith("-00")

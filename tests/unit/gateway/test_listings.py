"""The memory of listings: found by the same bytes for the same caller, and bounded both ways."""

from __future__ import annotations

from airlock.core.principal import Principal, Source
from airlock.gateway import listings
from airlock.gateway.eras import Era
from airlock.gateway.listings import MAX_KEPT, Listing, Listings

LISTING = Listing(b"{}", "null", (), 0)


def who(name: str, *groups: str) -> Principal:
    return Principal(name, groups, Source.TOKEN)


def test_only_the_same_bytes_for_the_same_caller_and_method_are_found():
    kept = Listings()
    kept.keep("tools/list", who("alice", "sre"), b"raw", LISTING)
    assert kept.find("tools/list", who("alice", "sre"), b"raw") is LISTING
    assert kept.find("tools/list", who("alice", "sre"), b"other") is None
    assert kept.find("tools/list", who("alice"), b"raw") is None
    assert kept.find("tools/list", who("bob", "sre"), b"raw") is None
    assert kept.find("server/discover", who("alice", "sre"), b"raw") is None
    assert kept.find("tools/list", who("alice", "sre"), b"raw", Era.LEGACY) is None


def test_as_many_callers_as_there_may_be_are_remembered_and_the_oldest_go():
    kept = Listings()
    for number in range(MAX_KEPT + 3):
        kept.keep("tools/list", who(f"p{number}"), b"raw", LISTING)
    assert [kept.find("tools/list", who(f"p{n}"), b"raw") is None for n in (0, 2, 3)] == [True, True, False]
    assert len(kept._kept) == MAX_KEPT


def test_no_more_bytes_than_the_limit_are_remembered(monkeypatch):
    monkeypatch.setattr(listings, "MAX_BYTES", 100)
    kept = Listings()
    for number in range(5):
        kept.keep("tools/list", who(f"p{number}"), b"x" * 30, Listing(b"y" * 10, "null", (), 0))
    assert len(kept._kept) == 2
    kept.keep("tools/list", who("p4"), b"x" * 20, Listing(b"y" * 10, "null", (), 0))
    assert kept._bytes == 70
    kept.keep("tools/list", who("large"), b"x" * 2_000_000, LISTING)
    assert kept.find("tools/list", who("large"), b"x" * 2_000_000) is None

from __future__ import annotations

import pytest

from airlock.core.principal import Principal, Source
from airlock.edge.identity.header import from_headers


def test_the_headers_name_a_principal_and_its_groups_in_order():
    found = from_headers(b"alice", b"sre, dev  ops,,")
    assert found == Principal("alice", ("sre", "dev", "ops"), Source.HEADER)


def test_a_principal_needs_no_groups():
    assert from_headers(b"alice", None) == Principal("alice", (), Source.HEADER)


def test_a_name_may_be_any_utf_8():
    assert from_headers("алиса".encode(), None) == Principal("алиса", (), Source.HEADER)


@pytest.mark.case("T01")
@pytest.mark.parametrize("name", [None, b"", b" ", b" alice", b"alice ", b"\talice", "\u00a0alice".encode()])
def test_a_missing_empty_or_padded_name_is_nobody(name: bytes | None):
    assert from_headers(name, b"sre") is None


@pytest.mark.parametrize(
    ("name", "groups"), [(b"al\xefce", None), (b"alice", b"sr\xe9"), (b"a\xed\xa0\x80", None)]
)
def test_what_is_not_utf_8_is_nobody(name: bytes, groups: bytes | None):
    assert from_headers(name, groups) is None

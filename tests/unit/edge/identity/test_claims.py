from __future__ import annotations

import pytest

from airlock.edge.identity.claims import decoded, encoded, json_object, remember


@pytest.mark.parametrize("raw", [b"", b"a", b"ab", b"abc", b"\xff\xfe\xfd"])
def test_what_is_encoded_is_decoded(raw: bytes):
    assert decoded(encoded(raw)) == raw


@pytest.mark.parametrize("part", [b"YQ==", b"YR", b"Y", b"+/+/", b"YW Jj", b"YWJj\n", b"\xff\xff", b"===="])
def test_any_other_spelling_is_refused(part: bytes):
    assert decoded(part) is None
    assert json_object(part) is None


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{", b'{"a":1,"a":2}', b"\xff"])
def test_a_part_that_is_no_json_object_is_refused(raw: bytes):
    assert json_object(encoded(raw)) is None


def test_a_part_that_is_a_json_object_is_read():
    assert json_object(encoded(b'{"a":[1]}')) == {"a": [1]}


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_memory_never_outgrows_its_size(size: int):
    memory: dict[int, int] = {}
    for number in range(20):
        remember(memory, number, number, size)
        assert len(memory) <= size
        assert number in memory

from __future__ import annotations

import pytest

from airlock.edge.identity.claims import Rules, decoded, encoded, json_object, remember, scopes_of


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


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({}, set()),
        ({"scope": "a b  c"}, {"a", "b", "c"}),
        ({"scp": ["a", "b c", 5, None, "a"]}, {"a", "b", "c"}),
        ({"scp": "a b"}, {"a", "b"}),
        ({"scope": "a", "scp": ["b"]}, {"a", "b"}),
        ({"scope": ["a"]}, {"a"}),
        ({"scope": 5, "scp": {"a": 1}}, set()),
        ({"scope": "", "scp": []}, set()),
        ({"scopes": "a"}, set()),
    ],
)
def test_scopes_are_read_from_both_claims(claims: dict[str, object], scopes: set[str]):
    assert scopes_of(claims) == scopes


RULES = Rules("https://idp", "https://gw/mcp")
GOOD: dict[str, object] = {"sub": "alice", "exp": 200, "iss": "https://idp", "aud": "https://gw/mcp"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exp": None}, "the token needs an exp, and numbers for its times"),
        ({"nbf": "soon"}, "the token needs an exp, and numbers for its times"),
        ({"iat": True}, "the token needs an exp, and numbers for its times"),
        ({"sub": " alice"}, "the token names no usable subject"),
        ({"sub": "\ud800"}, "the token names no usable subject"),
        ({"iss": "https://other"}, "the token is of another issuer"),
        ({"aud": ["https://gw/mcp/"]}, "the token is for another audience"),
        ({"nbf": 101}, "the token is not valid yet"),
        ({"exp": 100}, "the token has expired"),
    ],
)
def test_why_a_token_names_nobody_is_told_in_our_own_words(change: dict[str, object], why: str):
    assert RULES.why({**GOOD, **change}, b"t", 100.0) == why
    # It stands in a quoted string of a header.
    assert why.isascii()
    assert not set(why) & set('"\\')


def test_a_principal_says_until_when_and_with_which_scopes_but_not_its_token():
    known = RULES.judge({**GOOD, "scope": "mcp:use"}, b"t.o.k")
    assert known is not None
    assert (known[0].proof.until, known[0].proof.scopes, known[0].proof.token) == (
        200.0,
        frozenset({"mcp:use"}),
        None,
    )


def test_the_token_is_kept_where_it_is_exchanged_and_is_not_shown():
    known = Rules(None, None, keeps=True).judge(GOOD, b"t.o.k")
    assert known is not None
    assert known[0].proof.token is not None
    assert known[0].proof.token.reveal() == "t.o.k"
    assert "t.o.k" not in repr(known)

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from airlock.core.principal import Principal, Source
from airlock.edge.identity.jwt import Hs256

NOW = 1_700_000_000.0
SECRET = b"s" * 32
HEADER = {"alg": "HS256", "typ": "JWT"}
CLAIMS = {"sub": "alice", "exp": NOW + 60}


def b64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def part(value: object) -> bytes:
    return b64(value if isinstance(value, bytes) else json.dumps(value).encode())


def sign(signed: bytes, secret: bytes = SECRET, digest: str = "sha256") -> bytes:
    return signed + b"." + b64(hmac.new(secret, signed, digest).digest())


def token(claims: object = CLAIMS, header: object = HEADER, **how) -> bytes:
    return sign(part(header) + b"." + part(claims), **how)


def verifier(**settings) -> Hs256:
    return Hs256(SECRET, **{"issuer": None, "audience": None, **settings})


def test_a_good_token_names_its_subject_and_groups():
    good = token({**CLAIMS, "groups": ["sre", " dev ", "", 7], "iat": NOW})
    assert verifier().verify(good, NOW) == Principal("alice", ("sre", "dev"), Source.TOKEN)


def test_groups_may_be_one_string_under_a_claim_of_another_name():
    good = token({**CLAIMS, "roles": "sre, dev ops", "groups": ["other"]})
    assert verifier(groups_claim="roles").verify(good, NOW) == Principal("alice", ("sre", "dev", "ops"))


@pytest.mark.parametrize("groups", [None, 7, {"sre": True}, [], ""])
def test_groups_of_another_kind_are_no_groups(groups: object):
    assert verifier().verify(token({**CLAIMS, "groups": groups}), NOW) == Principal("alice")


# --- form and signature


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b".",
        b"..",
        b"...",
        b"alice",
        token(secret=b"other"),
        token(secret=b"\0"),
        token(digest="sha512"),
        token() + b".",
        b"." + token(),
        token() + b"\n",
        b" " + token(),
        token() + b"=",
        token().upper(),
        token().rpartition(b".")[0],
        token().rpartition(b".")[0] + b".",
        b"\xff" + token(),
        "алиса".encode(),
        sign(part(HEADER)),
        sign(part(HEADER) + b"." + part(CLAIMS) + b"." + part(CLAIMS)),
        sign(b""),
        sign(b"."),
        sign(part(HEADER) + b"."),
        sign(b"." + part(CLAIMS)),
    ],
)
def test_a_token_of_another_form_or_signature_names_nobody(bad: bytes):
    assert verifier().verify(bad, NOW) is None


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "hs256"},
        {"alg": "HS384"},
        {"alg": "RS256"},
        {"alg": ["HS256"]},
        {"alg": None},
        {},
        {"typ": "JWT"},
        {**HEADER, "crit": []},
        {**HEADER, "crit": ["exp"]},
        [],
        "HS256",
        None,
        b"{",
        b'{"alg":"HS256","alg":"HS256"}',
        b'{"alg":"none","alg":"HS256"}',
        b"\xef\xbb\xbf{}",
        b"\xff",
    ],
)
def test_only_a_header_that_says_our_algorithm_and_nothing_critical_is_good(header: object):
    assert verifier().verify(token(header=header), NOW) is None


@pytest.mark.parametrize(
    "header", [{"alg": "HS256"}, {**HEADER, "typ": 7}, {**HEADER, "kid": "k", "jku": "http://x"}]
)
def test_the_rest_of_the_header_says_nothing(header: object):
    assert verifier().verify(token(header=header), NOW) == Principal("alice")


def test_an_unsigned_token_names_nobody():
    unsigned = part({"alg": "none"}) + b"." + part(CLAIMS)
    assert verifier().verify(unsigned + b".", NOW) is None
    assert verifier().verify(sign(unsigned), NOW) is None


def test_a_signature_spelled_otherwise_is_refused():
    good = token()
    last = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = good[:-1] + bytes([last[last.index(good[-1:]) ^ 1]])
    raw = [base64.urlsafe_b64decode(text.rpartition(b".")[2] + b"=") for text in (good, other)]
    assert raw[0] == raw[1]
    assert verifier().verify(other, NOW) is None


def test_claims_in_loose_base64_are_refused():
    claims = next(
        text for text in (json.dumps(CLAIMS).encode() + b" " * n for n in range(3)) if len(text) % 3
    )
    for loose in (b64(claims) + b"=" * (-len(b64(claims)) % 4), b64(claims)[:4] + b"\n" + b64(claims)[4:]):
        assert verifier().verify(sign(part(HEADER) + b"." + loose), NOW) is None


@pytest.mark.parametrize(
    "claims",
    [
        [],
        [CLAIMS],
        "alice",
        None,
        b"{",
        b"",
        b"\xff",
        b'{"sub":"alice","sub":"bob","exp":1e300}',
        b'{"sub":"alice","exp":NaN}',
        b'{"sub":"alice","exp":Infinity}',
        b'{"sub":"alice","exp":1e400}',
        b'{"sub":"alice","exp":' + b"9" * 400 + b"}",
    ],
)
def test_claims_that_are_no_strict_json_object_name_nobody(claims: object):
    assert verifier().verify(token(claims), NOW) is None


# --- claims


@pytest.mark.case("T01")
@pytest.mark.parametrize(
    "name", ["", " ", "\t", " alice", "alice ", "alice\n", "\u00a0alice", None, 7, True, ["alice"], "a\ud800"]
)
def test_a_subject_that_is_no_usable_name_names_nobody(name: object):
    assert verifier().verify(token({**CLAIMS, "sub": name}), NOW) is None


@pytest.mark.parametrize("missing", ["sub", "exp"])
def test_subject_and_expiry_are_required(missing: str):
    claims = {name: value for name, value in CLAIMS.items() if name != missing}
    assert verifier().verify(token(claims), NOW) is None


@pytest.mark.parametrize("exp", [None, True, str(NOW + 60), [NOW + 60], {}])
def test_an_expiry_that_is_no_number_names_nobody(exp: object):
    assert verifier().verify(token({**CLAIMS, "exp": exp}), NOW) is None


def test_a_token_is_good_before_its_expiry_and_not_at_it():
    check = verifier()
    assert check.verify(token(), NOW + 59.999) is not None
    assert check.verify(token(), NOW + 60) is None
    assert verifier().verify(token(), NOW + 60) is None


def test_a_token_is_good_from_its_not_before_on():
    early = token({**CLAIMS, "nbf": NOW})
    check = verifier()
    assert check.verify(early, NOW - 0.001) is None
    assert check.verify(early, NOW) is not None
    assert check.verify(early, NOW - 0.001) is None


@pytest.mark.parametrize("claim", ["nbf", "iat"])
@pytest.mark.parametrize("value", [None, False, "0", [0], {}])
def test_times_that_are_there_must_be_numbers(claim: str, value: object):
    assert verifier().verify(token({**CLAIMS, claim: value}), NOW) is None


def test_the_time_of_issue_is_not_judged():
    assert verifier().verify(token({**CLAIMS, "iat": NOW + 10_000}), NOW) is not None


@pytest.mark.parametrize("claim", [None, "", "https://other", "HTTPS://issuer", ["https://issuer"], 7])
def test_another_issuer_names_nobody(claim: object):
    check = verifier(issuer="https://issuer")
    assert check.verify(token({**CLAIMS, "iss": claim}), NOW) is None
    assert check.verify(token(), NOW) is None
    assert check.verify(token({**CLAIMS, "iss": "https://issuer"}), NOW) is not None


@pytest.mark.parametrize(
    "claim", [None, "", "other", "gateway2", [], ["other"], [["gateway"]], {"gateway": 1}, 7]
)
def test_another_audience_names_nobody(claim: object):
    check = verifier(audience="gateway")
    assert check.verify(token({**CLAIMS, "aud": claim}), NOW) is None
    assert check.verify(token(), NOW) is None
    for good in ("gateway", ["other", "gateway"]):
        assert check.verify(token({**CLAIMS, "aud": good}), NOW) is not None


def test_issuer_and_audience_are_not_looked_at_unless_set():
    assert verifier().verify(token({**CLAIMS, "iss": 7, "aud": {"x": 1}}), NOW) is not None


# --- the memory of good tokens


def test_a_remembered_token_is_not_read_again_and_still_expires():
    check = verifier()
    good = token()
    first = check.verify(good, NOW)
    assert check.verify(good, NOW + 1) is first
    assert check.verify(good, NOW + 60) is None
    assert check.verify(good, NOW + 1e9) is None


def test_only_good_tokens_are_remembered():
    check = verifier()
    for number in range(50):
        check.verify(token({**CLAIMS, "sub": f"u{number}", "exp": NOW}), NOW)
        check.verify(token({**CLAIMS, "sub": f"u{number}", "nbf": NOW + 1}), NOW)
        check.verify(token({**CLAIMS, "sub": f"u{number}"}, secret=b"other"), NOW)
    assert len(check._known) == 0


@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_memory_is_bounded_and_forgets_the_oldest_first(size: int):
    check = verifier(cache_size=size)
    tokens = [token({**CLAIMS, "sub": f"u{number}"}) for number in range(20)]
    for number, good in enumerate(tokens):
        assert check.verify(good, NOW) == Principal(f"u{number}")
        assert len(check._known) <= size
        assert good in check._known
    assert check.verify(tokens[0], NOW) == Principal("u0")


def test_a_token_that_shares_all_but_one_character_is_not_taken_for_the_remembered_one():
    check = verifier()
    good = token()
    assert check.verify(good, NOW) is not None
    for at in range(len(good)):
        other = good[:at] + (b"A" if good[at : at + 1] != b"A" else b"B") + good[at + 1 :]
        assert check.verify(other, NOW) is None


@pytest.mark.parametrize("settings", [{"secret": b""}, {"cache_size": 0}])
def test_an_empty_secret_or_memory_is_refused(settings):
    with pytest.raises(ValueError):
        Hs256(settings.pop("secret", SECRET), issuer=None, audience=None, **settings)


def test_the_signature_is_hmac_sha256_of_the_first_two_parts():
    signed, _, signature = token().rpartition(b".")
    expected = hmac.new(SECRET, signed, hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(signature + b"=") == expected


# --- why not


def test_a_forged_token_is_told_nothing_of_what_it_claims():
    forged = "the token is no JWT that a trusted key signed"
    one = verifier(audience="https://gw/mcp")
    for bad in (b"", b"opaque", token(secret=b"other"), token(header={"alg": "none"}), token(claims=[])):
        assert one.why(bad, NOW) == forged


def test_the_holder_of_a_token_of_ours_is_told_what_is_wrong_with_it():
    assert verifier(audience="https://gw/mcp").why(token(), NOW) == "the token is for another audience"
    assert verifier().why(token(), NOW + 60) == "the token has expired"


def test_a_new_token_makes_no_new_principal():
    one = verifier(keeps=True)
    first, second = (
        one.verify(token(), NOW),
        one.verify(token({**CLAIMS, "exp": NOW + 61, "scope": "a"}), NOW),
    )
    assert first == second == Principal("alice")
    assert first is not None
    assert second is not None
    assert (first.proof.until, second.proof.until, second.proof.scopes) == (
        NOW + 60,
        NOW + 61,
        frozenset({"a"}),
    )
    assert second.proof.token is not None
    assert second.proof.token.reveal().encode() == token({**CLAIMS, "exp": NOW + 61, "scope": "a"})

"""Credentials by their form. Each is put together here, so that none is stored."""

from __future__ import annotations

import base64
import json

import pytest

from airlock.core.redact.forms import KINDS, find

X36 = "x" * 36
AWS_ID = "AK" + "IA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"


def b64(data: str) -> str:
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def jwt(header: str = '{"alg":"HS256"}', signature: str = "s" * 43) -> str:
    return f"{b64(header)}.{b64('{}')}.{signature}"


def pem(sort: str, body: str = "MIIE" + "A" * 60, end: str | None = None) -> str:
    return f"-----BEGIN {sort}-----\n{body}\nAbc=\n-----END {end or sort}-----"


FOUND = [
    ("private_key", pem("PRIVATE " + "KEY")),
    (
        "private_key",
        pem("ENCRYPTED PRIVATE " + "KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: X-Y,1\n\n" + "aB1+" * 16),
    ),
    ("private_key", pem("PGP PRIVATE " + "KEY BLOCK", "Version: x\n\n" + "aB1/" * 16)),
    ("private_key", json.dumps(pem("RSA PRIVATE " + "KEY"))[1:-1]),
    ("private_key", base64.b64encode(pem("EC PRIVATE " + "KEY").encode()).decode()),
    ("aws_key", AWS_ID),
    ("aws_key", "AS" + "IA" + "IOSFODNN7EXAMPLE"),
    ("github_token", "gh" + "p_" + X36),
    ("github_token", "github" + "_pat_" + "1" * 22 + "_" + X36),
    ("gitlab_token", "glp" + "at-" + "x" * 20),
    ("slack_token", "xo" + "xb-123456789012-abcdefgh"),
    ("slack_token", "xa" + "pp-1-A0123-98765"),
    ("stripe_key", "sk_li" + "ve_" + "x" * 24),
    ("google_key", "AI" + "za" + "x" * 35),
    ("npm_token", "np" + "m_" + X36),
    ("pypi_token", "py" + "pi-AgEIcHlwaS5vcmc" + "C" * 40),
    ("api_key", "s" + "k-" + "x" * 40),
    ("api_key", "s" + "k-ant-api03-aB3-" + "Yz_" * 10),
    ("jwt", jwt()),
    ("jwt", jwt('{ "typ": "JWT", "alg": "none" }', "x")),
    ("jwt", jwt('{"enc":"A128GCM","alg":"RSA-OAEP"}') + ".aa.bb"),
]
NOTHING = [
    pem("CERTIFICATE"),
    pem("PUBLIC KEY"),
    pem("PRIVATE " + "KEY", "..."),
    "text about -----BEGIN PRIVATE " + "KEY----- and so on",
    base64.b64encode(pem("CERTIFICATE", "A" * 80).encode()).decode(),
    "AK" + "IA" + "IOSFODNN7EXAMPLEsomething",
    "ASIAPACIFICREGIONALHQ",
    "MAK" + "IA" + "IOSFODNN7EXAMPLE",
    "gh" + "p_tooshort",
    "high" + "p_" + X36,
    "gl" + "pat-example-token-name-here",
    "xo" + "xo-hugs-and-kisses",
    "pypi-server-deployment-2-for-the-platform-team",
    "sk-spinner-container-large-blue",
    "ri" + "sk-" + X36,
    "x-" + "s" + "k-" + X36,
    "aAI" + "za" + "x" * 35,
    "AI" + "za" + "x" * 34,
    "eyJhbGciOiJIUzI1NiJ9.only-two",
    b64('{"not":"a header"}') + ".e30.aaaa",
    b64('["alg"]') + ".e30.aaaa",
    "eyeballs-x.example.org.com",
    "ey" + "A" * 5000 + ".aaaa.bbbb",
    "ew" + "A" * 41 + ".aaaa.bbbb",
    b64("[" * 1500) + ".e30.aaaa",
    "e.g. one. two. three.",
]


@pytest.mark.parametrize(("kind", "text"), FOUND)
@pytest.mark.parametrize(
    "around", ["{}", "say {} now", 'a="{}",b', "one\\n{}\\ntwo", "密{}密", "({})", "x={};"]
)
def test_a_credential_is_found_by_its_form_wherever_it_stands(kind: str, text: str, around: str) -> None:
    before = around.index("{")
    assert set(find(around.format(text))) == {(before, before + len(text), kind)}


@pytest.mark.parametrize("text", NOTHING)
def test_what_only_looks_a_little_like_one_is_not_found(text: str) -> None:
    assert list(find(text)) == []


def test_every_kind_has_an_example() -> None:
    assert {kind for kind, _ in FOUND} == set(KINDS)


def test_the_secret_of_an_aws_id_is_found_beside_it_on_either_side() -> None:
    for text in (
        f"{AWS_ID} {AWS_SECRET}",
        f"{AWS_SECRET}\n\n{AWS_ID}",
        f'{{"a":"{AWS_ID}","b":"{AWS_SECRET}"}}',
    ):
        spans = {text[start:end] for start, end, kind in find(text) if kind == "aws_key"}
        assert spans == {AWS_ID, AWS_SECRET}


def test_a_commit_or_something_far_away_is_not_the_secret_of_an_aws_id() -> None:
    far = f"{AWS_ID}{' ' * 300}{AWS_SECRET}"
    cut_off = f"{AWS_ID}{' ' * 190}{AWS_SECRET}{AWS_SECRET}"
    for text in (
        far,
        cut_off,
        f"{AWS_ID} {'0a' * 20}",
        f"{AWS_ID} {AWS_SECRET}==",
        f"{AWS_ID} x-{AWS_SECRET}",
    ):
        assert [text[start:end] for start, end, _ in find(text)] == [AWS_ID]


def test_a_block_that_was_cut_off_goes_up_to_its_last_line_and_no_further() -> None:
    block = "-----BEGIN PRIVATE " + "KEY-----\n" + ("A" * 64 + "\n") * 3
    text = block + "and then some words."
    assert list(find(text)) == [(0, len(block) - 1, "private_key")]
    other = block + "-----BEGIN CERTIFICATE-----"
    assert list(find(other)) == [(0, len(block) - 1, "private_key")]

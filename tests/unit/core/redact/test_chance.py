"""Made by chance, or a word: what a value must look like behind a name that says secret."""

from __future__ import annotations

import base64

import pytest

from airlock.core.redact.chance import by_chance, opaque, stand_in, user_and_password

MADE = [
    "aB3xK9pQ2kLm8nRt",
    "Tr0ub4dor",
    "S3cr3t!Pass",
    "xk92!lpq",
    "5f4dcc3b5aa765d61d8327deb882cf99",
    "JBSWY3DPEHPK3PXP",
    "k3j9x7q2m5v8b4n1c6z0",
    "wJalrXUtnFEMIbPxRfiCYzKdQvTh",
    "SCIUDEYIAOYVWKXESFHLQRWGFAGJNASX",
    "Kseu8Nve80W6CMigQB3WFJUI",
    "dGhpcyBpcyBub3Qg+aB3/xK9pQ2kLm8=",
    "MTk4NjIyNDgz.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7k",
]
WORDS = [
    "short1!",
    "aaaaaaa1!",
    "correct-horse-battery",
    "password",
    "default-token-x7k2p",
    "db-credentials-7f9c8",
    "AccessTokenV2Provider",
    "Ed25519PrivateKey",
    "X509Certificate2",
    "Sha256Hex",
    "My-Secret-Key-2024",
    "AbstractSingletonProxyFactoryBean",
    "2026-03-01T10:22:31",
    "9b2e6b1c-5d0f-4c7e-8d2a-1f0e9c8b7a6d",
    "arn:aws:secretsmanager:eu-west-1:1:secret:Db-AbC12",
    "https://example.org/a1B2c3",
    "sha512-aB3xK9pQ2kLm8nRtaB3xK9pQ2kLm8nRt",
    "./keys/Key1.pem",
    "/run/secrets/Db1",
    "#/components/Key1/aB",
    "bob.Smith2@example.org",
    "1234567890123456",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA1",
]
STAND_INS = ["${DB_PASSWORD1}", "$Password1", "$(cat /run/Key1)", "%(password1)s", "%PASSWORD1%", "<your-Password1>", "{{ vault.Key1 }}",
    "[REDACTED:jwt]", "********", "xxxxxxxxxxxx", "....", "your-api-Key-1", "CHANGEME-1aB!", "example-Key-1!", "*alias1B", "!secret1A"]  # fmt: skip


@pytest.mark.parametrize("value", MADE)
def test_what_was_made_by_chance_looks_like_it(value: str) -> None:
    assert by_chance(value, quoted=True)
    assert by_chance(value, quoted=False)


@pytest.mark.parametrize("value", WORDS + STAND_INS)
def test_a_word_a_reference_and_a_stand_in_do_not(value: str) -> None:
    assert not by_chance(value, quoted=True)
    assert not by_chance(value, quoted=False)


@pytest.mark.parametrize("value", STAND_INS)
def test_a_stand_in_is_told_as_one(value: str) -> None:
    assert stand_in(value)
    assert not opaque(value)


def test_a_bare_value_may_be_code_and_needs_to_look_more_like_a_secret() -> None:
    for value in ("user?.password2", "process.env.API_KEY2", "self.a1.b"):
        assert not by_chance(value, quoted=False)
    assert by_chance("user?.password2", quoted=True)


def test_the_token_of_a_header_has_a_digit_or_is_long() -> None:
    assert opaque("h480djs93hd8")
    assert opaque("abcdefghijklmnopqrst")
    assert not opaque("x" * 20)
    assert not opaque("required")
    assert not opaque("your_token_here")
    assert not opaque("authentication-scheme-name")
    assert not opaque("9b2e6b1c-5d0f-4c7e-8d2a-1f0e9c8b7a6d")


def test_user_and_password_are_seen_behind_base64_and_words_are_not() -> None:
    assert user_and_password(base64.b64encode(b"bob:pw").decode())
    assert user_and_password(base64.b64encode(b"bob:pw").decode().rstrip("="))
    for value in ("understanding", "credentials", "a", base64.b64encode(b"bob").decode(), "OnB3", "Ym9iOg=="):
        assert not user_and_password(value)

from __future__ import annotations

import pytest

from airlock.core.redact.patterns import REDACTED, may_hold_secret, scrub_text, secret_key

SK = "sk" + "-" + "abcd1234"
GITHUB = "gh" + "p_" + "a" * 20
AWS = "AK" + "IA" + "ABCDEFGHIJ123456"
JWT = ".".join(("ey" + "J" * 8, "p" * 10, "s" * 3))
BEARER = "Bear" + "er abc.def~1="
SECRETS = [SK, GITHUB, AWS, JWT, BEARER]


@pytest.mark.parametrize(
    "key",
    [
        "password", "DB_PASSWORD", "passwd", "client_secret", "Secret", "token", "accessToken", "est_tokens",
        "api_key", "api-key", "APIKEY", "x-api-key", "Authorization", "credentials", "private_key",
        "private-key", "PrivateKey",
    ],
)  # fmt: skip
def test_a_key_that_names_a_secret_is_known_in_any_case(key: str) -> None:
    assert secret_key(key)


@pytest.mark.parametrize("key", ["", "name", "api key", "pass", "key", "author", "private", "primary_key"])
def test_other_keys_are_not_secret(key: str) -> None:
    assert not secret_key(key)


@pytest.mark.case("T51")
@pytest.mark.parametrize("secret", SECRETS)
def test_a_credential_is_replaced_alone_and_inside_a_longer_text(secret: str) -> None:
    assert scrub_text(secret) == REDACTED
    assert scrub_text(f"use {secret} ok") == f"use {REDACTED} ok"
    assert scrub_text(f'curl -H "{secret}" {secret}') == f'curl -H "{REDACTED}" {REDACTED}'
    assert scrub_text(f"密钥{secret}") == f"密钥{REDACTED}"


@pytest.mark.case("T51")
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("escape", [r"\n", r"\r", r"\t", r"\\n"])
def test_a_credential_right_after_a_literal_escape_is_replaced(secret: str, escape: str) -> None:
    assert scrub_text(f"echo x{escape}{secret}") == f"echo x{escape}{REDACTED}"


@pytest.mark.case("T51")
@pytest.mark.parametrize(
    "text",
    [
        "disk-cleanup-prod",
        "ta" + SK,
        "xgh" + "p_" + "a" * 20,
        "XAK" + "IA" + "A" * 16,
        "_" + JWT,
        "-" + JWT,
        "x" + JWT,
        "forbearer abc",
        r"\b" + SK,
    ],
)
def test_a_match_begins_only_at_the_start_of_a_word(text: str) -> None:
    assert scrub_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        SK[:-1],
        GITHUB[:-1],
        AWS[:-1],
        "gh" + "x_" + "a" * 20,
        "ey" + "J" * 7 + "." + "p" * 10 + ".s",
        "ey" + "J" * 8 + "." + "p" * 9 + ".s",
        "ey" + "J" * 8 + "." + "p" * 10 + ".",
        "bearer",
        "bearer ",
        "Bearer " + REDACTED,
        "",
    ],
)
def test_what_is_too_short_or_of_another_shape_stays(text: str) -> None:
    assert scrub_text(text) == text


def test_the_whole_credential_goes_however_long_it_is() -> None:
    for secret in (SK, GITHUB, AWS):
        assert scrub_text(secret + "Z9" * 40) == REDACTED
    assert scrub_text(JWT + ".iv.tag") == REDACTED
    assert scrub_text("BEARER \t" + "x" * 500 + ", next") == f"{REDACTED}, next"


def test_a_dash_or_underscore_before_the_short_shapes_is_a_word_start() -> None:
    assert scrub_text("key_" + SK + " x-" + AWS) == f"key_{REDACTED} x-{REDACTED}"


@pytest.mark.case("T51")
@pytest.mark.parametrize(
    "unit",
    ["a", "ey", "-ey", "_ey", "sk-", "a-", "gh" + "p_", "AKIA", "bearer ", "ey" + "a" * 9 + ".", r"\ney"],
)
def test_long_hostile_runs_take_linear_time(unit: str) -> None:
    # A quadratic pattern needs minutes for this.
    text = unit * (400_000 // len(unit))
    assert len(scrub_text(text)) <= len(text)


@pytest.mark.parametrize("secret", SECRETS)
def test_the_cheap_test_never_misses_a_credential(secret: str) -> None:
    for text in (secret, f"a {secret}", f"\\n{secret}", f"\\u0001{secret}", f"\\f{secret}"):
        assert may_hold_secret(text)


@pytest.mark.parametrize(
    "text", ["", "plain words", "disk-cleanup-prod", "sk-short", "a.b.c key", "they_are", "eyewitness.x"]
)
def test_the_cheap_test_clears_ordinary_text(text: str) -> None:
    assert not may_hold_secret(text)

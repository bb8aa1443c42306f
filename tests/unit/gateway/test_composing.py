"""Which forms look as if they ask for a secret, and which texts of a question are looked at."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.gateway import composing

TEXT: Any = {"type": "string"}


def wanted(message: str = "go on?", **properties: Any) -> str | None:
    schema = {"type": "object", "properties": properties}
    return composing._secret({"message": message, "requestedSchema": schema})


@pytest.mark.parametrize(
    "name",
    ["password", "Password", "userPassword", "passphrase", "pass_code", "pwd", "api_key", "apiKey", "API-KEY",
     "accessToken", "token", "client_secret", "privateKey", "ssh key", "credentials", "pin", "pinCode", "otp", "totp",
     "one-time-code", "mfa_code", "cardNumber", "credit_card", "cvv", "cvc2", "iban", "ssn", "seed phrase",
     "recovery_key", "account_number"],
)  # fmt: skip
def test_a_field_is_known_by_its_name_its_title_or_its_description(name: str):
    assert wanted(**{name: TEXT}) == name
    assert wanted(field={**TEXT, "title": name}) == name
    assert wanted(field={**TEXT, "description": f"Enter the {name} here"}) == f"Enter the {name} here"
    assert wanted(f"please type your {name}", field=TEXT) == f"please type your {name}"


@pytest.mark.parametrize(
    "name",
    ["region", "namespace", "max_tokens", "tokenizer", "passage", "compass", "pinned", "opinion", "shopping",
     "discard", "cardinality", "secretary", "keyboard", "sort key", "monkey", "ssnake", "accountant", "cards"],
)  # fmt: skip
def test_other_words_are_not(name: str):
    assert wanted(f"which {name}?", **{name: {**TEXT, "title": name, "description": name}}) is None


def test_a_number_may_be_a_secret_too_and_a_choice_is_none():
    assert wanted(pin={"type": "integer"}) == "pin"
    assert wanted(token={"type": "boolean"}) is None
    assert wanted(token={"enum": ["a", "b"], "type": "string"}) is None
    assert wanted(token={"oneOf": [{"const": "a"}]}) is None
    assert wanted("the password?", sure={"type": "boolean"}) is None


def test_a_format_says_it_too():
    assert wanted(field={**TEXT, "format": "password"}) == "field"


@pytest.mark.parametrize("schema", [None, [], {}, {"properties": []}, {"properties": {"token": "x"}}])
def test_a_schema_of_another_form_asks_for_nothing(schema: Any):
    assert composing._secret({"message": "the password?", "requestedSchema": schema}) is None


def test_every_text_of_a_question_is_looked_at_in_its_order_and_nothing_binary():
    params = {
        "message": "a",
        "requestedSchema": {"properties": {"x": {"title": "b", "enum": ["c", "d"]}}},
        "messages": [
            {"content": {"type": "e", "text": "f"}},
            {"content": {"data": "no", "blob": "no"}},
            3,
            None,
        ],
    }
    assert list(composing._texts(params)) == ["a", "b", "c", "d", "e", "f"]
    assert list(composing._texts(None)) == []


def test_a_deep_question_is_walked_without_recursion():
    deep: Any = "end"
    for _ in range(50_000):
        deep = [deep]
    assert list(composing._texts(deep)) == ["end"]

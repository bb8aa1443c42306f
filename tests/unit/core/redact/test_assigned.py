"""Credentials by their place: behind a name, in a header, in a URL, in a connection string."""

from __future__ import annotations

import base64

import pytest

from airlock.core.redact.assigned import KINDS, find

KEY = "aB3xK9pQ2kLm8nRt"
BASIC = base64.b64encode(b"bob:pw1").decode()

FOUND = [
    ("assignment", "DB_PASSWORD=", KEY, "\nX=1"),
    ("assignment", "password: ", KEY, ""),
    ("assignment", '{"access_token":"', KEY, '","expires_in":3600}'),
    ("assignment", '{\\"client_secret\\":\\"', KEY, '\\"}'),
    ("assignment", "api-key='", KEY, "'"),
    ("assignment", "Api Key: ", KEY, ""),
    ("assignment", "AccountKey=", KEY, ";EndpointSuffix=x"),
    ("assignment", "SECRET_KEY_BASE=", KEY, ""),
    ("assignment", "TOKEN_2=", KEY, ""),
    ("assignment", "credentials => '", KEY, "'"),
    ("assignment", 'token := "', KEY, '"'),
    ("assignment", "token: string = '", KEY, "';"),
    ("assignment", 'var token string = "', KEY, '"'),
    ("assignment", 'config["passphrase"] = `', KEY, "`"),
    ("assignment", "<password>", KEY, "</password>"),
    ("assignment", "- name: DB_PASSWORD\n  value: ", KEY, "\n"),
    ("assignment", '{"name":"AUTH_TOKEN","value":"', KEY, '"}'),
    ("assignment", "run --token ", KEY, " --quiet"),
    ("assignment", "run --db-password=", KEY, ""),
    ("assignment", "?token=", KEY, "&page=2"),
    ("assignment", "password=", "Tr0ub4dor&3x", ""),
    ("assignment", "password=", "aB3$kLmN9=xY:z", " next"),
    ("assignment", "secret: ", "dGhpcyBpcyBub3Qg+aB3/xK9pQ2kLm8=", "\n"),
    ("assignment", 'token="', "a\\/B3xK9pQ2kL", '"'),
    ("assignment", "line\\npassword=", KEY, "\\nnext"),
    ("assignment", "كلمة password: ", KEY, ""),
    ("authorization", "Authorization: Bearer ", "h480djs93hd8", "\n"),
    ("authorization", "Authorization: Basic ", BASIC, ""),
    ("authorization", '"Authorization": "Token ', KEY, '"'),
    ("authorization", 'Set("Authorization", "Bearer ', KEY, '")'),
    ("authorization", "authorization: ", KEY, ""),
    ("authorization", "authorization: ", BASIC, ""),
    ("authorization", "_auth=", BASIC, ""),
    ("authorization", '{"auth": "', BASIC, '"}'),
    ("authorization", "auth: bearer ", KEY, ""),
    ("authorization", "sent bearer ", KEY, " along"),
    ("authorization", "sent bearer ", "abcdefghijklmnopqrstuv", " along"),
    ("authorization", "with basic ", BASIC, " in it"),
    ("url_password", "https://bob:", "pw", "@example.org/x"),
    ("url_password", "git+ssh://bob:", "p@ss:w", "@example.org/x"),
    ("url_password", "https:\\/\\/bob:", "hunter2", "@example.org"),
    ("url_password", "http://:", "hunter2", "@[::1]:80/"),
    ("dsn", "postgres://app:", "geheim", "@db/shop"),
    ("dsn", "postgresql+psycopg2://app:", "geheim", "@db/shop"),
    ("dsn", "redis://:", "geheim", "@cache:6379/0"),
    ("dsn", "host=db user=app password=", "geheim", " dbname=x"),
    ("dsn", "Server=db;User Id=sa;Password=", "simple", ";Encrypt=true"),
    ("dsn", "mysql --host=db --user=root --password=", "simple", ""),
    ("dsn", "password=", "geheim", " host=db"),
    ("dsn", "jdbc:mysql://db/shop?user=root&password=", "geheim", "&ssl=1"),
]
NOTHING = [
    "password=hunter2",
    "password: must be changed",
    "token = Make3Token9x(user)",
    "password: aB3xK9pQ2kLm: x",
    "next_page_token: CAUQAA3f9Kd0a8Zx",
    '{"nextToken":"CAUQAA3f9Kd0a8Zx","pageToken": "CAUQAA3f9Kd0a8Zx"}',
    "public_key: aB3xK9pQ2kLm8nRt",
    "key: aB3xK9pQ2kLm8nRt",
    "token aB3xK9pQ2kLm8nRt",
    "token_count: aB3xK9pQ2kLm8nRt",
    "arn:aws:secretsmanager:eu-west-1:1:secret:Prod-AbC123x9",
    "password=password, host=host",
    "password=${PASSWORD} host=db",
    "password='x' host=db",
    "user, password=abc",
    "a=b c password=abc",
    "rest password=pw",
    "Authorization: required for everything",
    "Authorization: Bearer <token>",
    "Authorization: Basic realm-of-the-king",
    "authorization: Administrator privileges",
    "auth: oauth2-provider-1",
    "auth: Digest username12",
    "author: bob12345678",
    "oauth=YTpiYw==",
    "the bearer of good news is here",
    "bearer token-authentication",
    "Bearer your-api-token-12345",
    "a basic understanding of things",
    "unbearer aB3xK9pQ2kLm8nRt",
    "https://example.org:8080/a@b",
    "https://user@example.org",
    "https://{user}:{password}@example.org",
    "https://user:$TOKEN@example.org",
    "docker://alpine:3.18@sha256:0a1b",
    "://user:pw@example.org",
    "ssh://git@example.org:22/a.git",
]


@pytest.mark.parametrize(("kind", "before", "secret", "after"), FOUND)
def test_a_credential_is_found_by_its_place_and_nothing_around_it(
    kind: str, before: str, secret: str, after: str
) -> None:
    found = set(find(before + secret + after))
    assert (len(before), len(before) + len(secret), kind) in found
    assert {(start, end) for start, end, _ in found} == {(len(before), len(before) + len(secret))}


@pytest.mark.parametrize("text", NOTHING)
def test_names_words_and_stand_ins_are_no_credentials(text: str) -> None:
    assert list(find(text)) == []


def test_every_kind_has_an_example() -> None:
    assert {kind for kind, _, _, _ in FOUND} == set(KINDS)


@pytest.mark.parametrize(
    "unit", ["token:", 'token="', "password=ab ", "://a:", "auth: ", "bearer ", "secret:a.b", "api_key=aA1"]
)
def test_a_text_of_nothing_but_beginnings_is_read_once(unit: str) -> None:
    text = (unit * 20_000)[:60_000]
    found = list(find(text))
    assert len(found) <= len(text) / len(unit) + 1

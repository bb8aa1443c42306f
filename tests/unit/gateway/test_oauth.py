"""The gateway as a resource server: what its settings may be, what it publishes, and how it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airlock.core.errors import ConfigError
from airlock.core.principal import Principal, Proof, Source
from airlock.edge.settings import Environment
from airlock.gateway.oauth import FORBIDDEN, ResourceServer, insecure, resource_server

URL = "https://gw.example/mcp"
POINTER = b'resource_metadata="https://gw.example/.well-known/oauth-protected-resource/mcp"'
ROOT = "/.well-known/oauth-protected-resource"
BASE = {
    "AIRLOCK_RESOURCE_URL": URL,
    "AIRLOCK_JWKS_URL": "https://idp.example/keys",
    "AIRLOCK_JWT_ISSUER": "https://idp.example/",
}


def read(**variables: str | None) -> ResourceServer:
    found = resource_server(Environment({k: v for k, v in {**BASE, **variables}.items() if v is not None}))
    assert found is not None
    return found


def fault(**variables: str | None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(**variables)
    return str(caught.value)


def document(server: ResourceServer, path: str = ROOT) -> dict[str, Any]:
    told = server.metadata("GET", path)
    assert told is not None
    assert told[0] == 200
    found: dict[str, Any] = json.loads(told[1])
    return found


# --- settings


def test_without_a_resource_there_is_no_resource_server():
    assert resource_server(Environment({"AIRLOCK_JWKS_URL": "https://idp.example/keys"})) is None


@pytest.mark.parametrize("name", ["AIRLOCK_AUTHORIZATION_SERVERS", "AIRLOCK_SCOPES"])
def test_what_would_not_be_enforced_without_a_resource_stops_the_start(name: str):
    assert fault(AIRLOCK_RESOURCE_URL=None, **{name: "https://x"}) == f"{name} needs AIRLOCK_RESOURCE_URL"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://gw.example/mcp", "must be https, or on loopback"),
        ("unix:/run/gw.sock", "must be an address with a host"),
        ("gw.example/mcp", "must be an address with a host"),
        ("https://gw.example/mcp#x", "must be an address with a host"),
        ("https://user:hunter2@gw.example/mcp", "must be an address with a host"),
        ('https://gw.example/"mcp', "must be an address with a host"),
        ("https://gw.example/m\ncp", "must be an address with a host"),
        ("https://gw.example/mcp?x=1", "must have no query"),
        ("https://gw.example/mcp/", "must be written as https://gw.example/mcp"),
        ("https://gw.example/", "must be written as https://gw.example"),
        ("https://GW.example/mcp", "must be written as https://gw.example/mcp"),
        ("https://gw.example:443/mcp", "must be written as https://gw.example/mcp"),
    ],
)
def test_an_address_that_clients_would_write_otherwise_stops_the_start(url: str, problem: str):
    told = fault(AIRLOCK_RESOURCE_URL=url)
    assert told.startswith(f"AIRLOCK_RESOURCE_URL {problem}")
    assert "hunter2" not in told


@pytest.mark.parametrize("url", [URL, "https://gw.example", "https://gw.example:8443/a/mcp", "http://127.0.0.1:9000/mcp",
                                 "http://localhost:9000/mcp", "http://[::1]:9000/mcp"])  # fmt: skip
def test_an_address_of_https_or_loopback_is_taken_as_it_is(url: str):
    assert document(read(AIRLOCK_RESOURCE_URL=url))["resource"] == url


def test_tokens_must_be_checked_by_something():
    assert fault(AIRLOCK_JWKS_URL=None).startswith("AIRLOCK_RESOURCE_URL needs AIRLOCK_JWKS_URL")
    assert read(AIRLOCK_JWKS_URL=None, AIRLOCK_JWT_SECRET="s" * 32).url == URL


def test_the_authorization_server_is_the_issuer_unless_others_are_named():
    assert read().servers == ("https://idp.example/",)
    two = read(
        AIRLOCK_AUTHORIZATION_SERVERS=" https://a.example/t , http://127.0.0.1:1, https://a.example/t "
    )
    assert two.servers == ("https://a.example/t", "http://127.0.0.1:1")
    assert "AIRLOCK_AUTHORIZATION_SERVERS (or AIRLOCK_JWT_ISSUER)" in fault(AIRLOCK_JWT_ISSUER=None)
    assert "at most 32" in fault(AIRLOCK_AUTHORIZATION_SERVERS=",".join(f"https://a{n}" for n in range(33)))


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ("http://idp.example", "an issuer must be https, or on loopback"),
        ("idp.example", "an issuer must be an address"),
        ("https://idp.example?x", "an issuer has a query"),
    ],
)
def test_an_issuer_that_clients_could_not_trust_stops_the_start(server: str, problem: str):
    assert fault(AIRLOCK_AUTHORIZATION_SERVERS=server).startswith(f"AIRLOCK_AUTHORIZATION_SERVERS: {problem}")


def test_scopes_are_separated_by_blanks_or_commas():
    assert document(read(AIRLOCK_SCOPES="mcp:use, mcp:more mcp:use"))["scopes_supported"] == [
        "mcp:use",
        "mcp:more",
    ]
    assert "scopes_supported" not in document(read(AIRLOCK_SCOPES=" , "))


@pytest.mark.parametrize("scopes", ['a"b', "a\\b", "ключ", " ".join(f"s{n}" for n in range(33))])
def test_scopes_that_cannot_stand_in_a_challenge_stop_the_start(scopes: str):
    assert (
        fault(AIRLOCK_SCOPES=scopes)
        == "AIRLOCK_SCOPES must be at most 32 scopes of printable ASCII without quotes"
    )


def test_offline_access_is_between_a_client_and_its_authorization_server():
    assert fault(AIRLOCK_SCOPES="mcp:use offline_access").endswith("offline_access is no scope of a resource")


@pytest.mark.parametrize(
    "url", ["https://idp.example/token", "http://127.1.2.3/token", "http://localhost:80/t"]
)
def test_credentials_go_over_tls_or_stay_on_this_machine(url: str):
    assert insecure(url) == ""
    assert (
        insecure(url.replace("https:", "http:").replace("127.1.2.3", "10.0.0.1").replace("localhost", "host"))
        != ""
    )


# --- metadata


def test_the_document_stands_at_both_of_its_addresses():
    server = read(AIRLOCK_SCOPES="mcp:use")
    assert (
        document(server)
        == document(server, f"{ROOT}/mcp")
        == {
            "resource": URL,
            "authorization_servers": ["https://idp.example/"],
            "scopes_supported": ["mcp:use"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Airlock",
        }
    )
    for path in (f"{ROOT}/", f"{ROOT}/mcp/", f"{ROOT}/other", "/mcp", "/.well-known/openid-configuration"):
        assert server.metadata("GET", path) is None


def test_pages_of_any_site_may_read_the_document_and_keep_it_a_while():
    told = read().metadata("HEAD", ROOT)
    assert told is not None
    assert dict(told[2]) == {b"access-control-allow-origin": b"*", b"cache-control": b"public, max-age=300"}
    asked = read().metadata("OPTIONS", ROOT)
    assert asked is not None
    assert (asked[0], dict(asked[2])[b"access-control-allow-headers"]) == (200, b"mcp-protocol-version")
    assert read().metadata("POST", ROOT) == (405, b"", [(b"allow", b"GET, HEAD, OPTIONS")])


@pytest.mark.parametrize(
    ("issuer", "place"),
    [
        ("https://idp.example", b"https://idp.example/.well-known/oauth-authorization-server"),
        ("https://idp.example/", b"https://idp.example/.well-known/oauth-authorization-server"),
        ("https://idp.example/t/1/", b"https://idp.example/.well-known/oauth-authorization-server/t/1"),
    ],
)
def test_the_oldest_clients_are_sent_to_the_document_of_the_first_server(issuer: str, place: bytes):
    told = read(AIRLOCK_AUTHORIZATION_SERVERS=f"{issuer},https://b").metadata(
        "GET", "/.well-known/oauth-authorization-server"
    )
    assert told is not None
    assert told[0] == 307
    assert dict(told[2])[b"location"] == place


# --- challenges


def test_who_sent_no_token_is_told_where_to_get_one_and_of_no_error():
    refusal, challenge = read().unknown(None)
    assert (refusal.status, refusal.code, refusal.rule) == (401, -32011, "principal.missing")
    assert challenge == (b"www-authenticate", b"Bearer " + POINTER)
    assert read(AIRLOCK_SCOPES="a b").unknown(None)[1][1] == b"Bearer " + POINTER + b', scope="a b"'


def test_who_sent_a_bad_token_is_told_what_is_wrong_with_it():
    refusal, challenge = read(AIRLOCK_SCOPES="a b").unknown("the token has expired")
    assert (refusal.status, refusal.reason) == (401, "no principal: the token has expired")
    assert challenge[1] == (
        b"Bearer "
        + POINTER
        + b', scope="a b", error="invalid_token", error_description="the token has expired"'
    )


def test_a_token_that_lacks_a_scope_is_told_all_that_are_needed():
    server = read(AIRLOCK_SCOPES="a b")
    refused = server.lacking(Principal("alice", proof=Proof(9.0, frozenset({"a", "c"}))))
    assert refused is not None
    refusal, challenge = refused
    assert (refusal.status, refusal.code, refusal.rule) == (403, FORBIDDEN, "scope.missing")
    assert challenge[1] == b'Bearer error="insufficient_scope", scope="a b", ' + POINTER
    assert server.lacking(Principal("alice", proof=Proof(9.0, frozenset({"a", "b", "c"})))) is None
    assert read().lacking(Principal("alice")) is None


def test_a_name_out_of_a_trusted_header_has_no_scope():
    assert read(AIRLOCK_SCOPES="a").lacking(Principal("alice", source=Source.HEADER)) is not None

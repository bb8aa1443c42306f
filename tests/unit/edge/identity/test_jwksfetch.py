from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from airlock.core.errors import ConfigError
from airlock.edge.identity import jwksfetch
from airlock.edge.identity.jwksfetch import MAX_BYTES, Fetcher, FetchFailed
from tests.unit.edge.identity.issuer import Issuer, ec_key

PASSWORD = "hunter" + "2secret"


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    one = Issuer()
    await one.up()
    yield one
    await one.down()


async def failure(url: str) -> str:
    with pytest.raises(FetchFailed) as caught:
        await Fetcher(url).get()
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "keys",
        "/keys",
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        "ftp://host/keys",
        "http:",
        "http://",
        "https:///keys",
        "http://?x",
        "http://:80/keys",
        "http://host:0/keys",
        "http://host:99999/keys",
        "http://host/keys#x",
        "http://ho st/keys",
        "http://host/keys\r\nX: y",
        "http://host/ключи",
        f"https://user:{PASSWORD}@host/keys",
        f"{PASSWORD}://host/keys",
    ],
)
def test_an_address_that_cannot_be_asked_stops_the_start_without_being_shown(url: str):
    with pytest.raises(
        ConfigError, match=r"^AIRLOCK_JWKS_URL must be an http:// or https:// address"
    ) as caught:
        Fetcher(url)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_the_body_of_a_good_answer_is_returned(issuer: Issuer):
    issuer.body = b'{"keys":[]}'
    assert await Fetcher(issuer.url + "?tenant=x").get() == issuer.body
    head = issuer.heads[0].split(b"\r\n")
    assert head[0] == b"GET /keys?tenant=x HTTP/1.1"
    assert b"Host: localhost:%d" % issuer.port in head


async def test_a_chunked_answer_and_one_that_ends_with_the_connection_are_read(issuer: Issuer):
    issuer.raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert await Fetcher(issuer.url).get() == b"abcde"
    issuer.raw = b"HTTP/1.0 200 OK\r\n\r\nabc"
    assert await Fetcher(issuer.url).get() == b"abc"


async def test_a_redirect_is_not_followed(issuer: Issuer):
    for status in (301, 302, 303, 307, 308):
        issuer.raw = b"HTTP/1.1 %d Go\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (
            status,
            issuer.url.encode(),
        )
        assert await failure(issuer.url) == f"status {status}"
    assert issuer.asked == 5


@pytest.mark.parametrize("status", [201, 204, 206, 304, 401, 404, 500, 503])
async def test_an_answer_of_another_status_gives_no_keys(issuer: Issuer, status: int):
    issuer.raw = b"HTTP/1.1 %d Eh\r\nContent-Length: 0\r\n\r\n" % status
    assert await failure(issuer.url) == f"status {status}"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BYTES + 1), "answer too large"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BYTES + 1), "answer too large"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "answer head too large"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nxx", "compressed answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nxx", "the connection ended before the answer did"),
        (b"HTTP/1.1 200 OK\r\n", "the connection ended before the answer did"),
        (b"", "the connection ended before the answer did"),
        (b"SSH-2.0-x\r\n", "not HTTP"),
    ],
)
async def test_an_answer_that_is_too_big_cut_short_or_not_http_gives_no_keys(
    issuer: Issuer, raw: bytes, why: str
):
    issuer.raw = raw
    assert await failure(issuer.url) == why


async def test_an_answer_of_just_the_largest_size_is_read(issuer: Issuer):
    issuer.body = b"x" * MAX_BYTES
    assert len(await Fetcher(issuer.url).get()) == MAX_BYTES


async def test_a_provider_that_never_answers_is_left_in_time(issuer: Issuer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jwksfetch, "TOTAL_S", 0.2)
    issuer.gate = asyncio.Event()
    assert await failure(issuer.url) == "no answer within 0.2 s"


async def test_a_provider_that_is_not_there_is_named_by_the_kind_of_failure(issuer: Issuer):
    await issuer.down()
    assert await failure(f"http://127.0.0.1:{issuer.port}/keys?{PASSWORD}") == "ConnectionRefusedError"
    assert await failure("http://nobody.invalid/keys") in {"gaierror", "no answer within 5 s"}


async def test_the_proxy_variables_of_the_environment_are_not_read(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await Fetcher(issuer.url).get() == issuer.body


async def test_an_https_provider_must_show_a_trusted_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key, name = ec_key("tls"), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    shown, kept = tmp_path / "cert.pem", tmp_path / "key.pem"
    shown.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kept.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    issuer = Issuer()
    issuer.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer.tls.load_cert_chain(shown, kept)
    await issuer.up()
    try:
        assert await failure(issuer.url) == "SSLCertVerificationError"
        assert issuer.asked == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(shown))
        assert await Fetcher(issuer.url).get() == issuer.body
        assert await failure(issuer.url.replace("localhost", "127.0.0.1")) == "SSLCertVerificationError"
    finally:
        await issuer.down()

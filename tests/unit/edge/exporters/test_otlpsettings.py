"""The standard variables of an OTLP export, and what is refused before anything starts."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from airlock.core.errors import ConfigError
from airlock.edge.exporters.otlpsettings import Compression, OtlpSettings, endpoint_is_set
from airlock.edge.settings import Environment

BASE = "OTEL_EXPORTER_OTLP_"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_"
ENDPOINT = {f"{BASE}ENDPOINT": "http://127.0.0.1:4318"}


def read(**env: str) -> OtlpSettings:
    found = OtlpSettings.read(Environment({**ENDPOINT, **env}))
    assert found is not None
    return found


def refusal(**env: str) -> str:
    with pytest.raises(ConfigError) as found:
        read(**env)
    return str(found.value)


def headers(settings: OtlpSettings) -> dict[str, str]:
    lines = settings.headers.reveal().split("\r\n")
    return dict(line.split(": ", 1) for line in lines if line)


@pytest.mark.case("T65")
@pytest.mark.parametrize(
    "env", [{}, {f"{BASE}ENDPOINT": ""}, {f"{BASE}ENDPOINT": "", f"{TRACES}ENDPOINT": ""}]
)
def test_an_empty_endpoint_means_off_whatever_else_is_set(env: dict[str, str]):
    env = {**env, f"{BASE}TIMEOUT": "soon", f"{BASE}COMPRESSION": "zip"}
    assert OtlpSettings.read(Environment(env)) is None
    assert not endpoint_is_set(Environment(env))


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({f"{BASE}ENDPOINT": "http://c:4318"}, "/v1/traces"),
        ({f"{BASE}ENDPOINT": "http://c:4318/"}, "/v1/traces"),
        ({f"{BASE}ENDPOINT": "http://c:4318/otlp"}, "/otlp/v1/traces"),
        ({f"{TRACES}ENDPOINT": "http://c:4318/mine"}, "/mine"),
        ({f"{TRACES}ENDPOINT": "http://c:4318"}, "/"),
        ({f"{TRACES}ENDPOINT": "http://c:4318/mine", f"{BASE}ENDPOINT": "http://d:1"}, "/mine"),
    ],
)
def test_the_base_address_gets_the_path_and_the_traces_address_none(env: dict[str, str], path: str):
    found = OtlpSettings.read(Environment(env))
    assert found is not None
    assert (found.target.host, found.target.port, found.target.path) == ("c", 4318, path)
    assert endpoint_is_set(Environment(env))


@pytest.mark.parametrize(
    "url",
    ["c:4318", "grpc://c:4317", "http://", "http://user:hunter2@c:4318", "http://c:99999", "http://c/#x"],
)
def test_an_address_that_cannot_be_used_is_refused_without_being_repeated(url: str):
    said = refusal(**{f"{BASE}ENDPOINT": url})
    assert said.startswith("OTEL: OTEL_EXPORTER_OTLP_ENDPOINT must be an http:// or https:// address")
    assert "hunter2" not in said


def test_the_defaults():
    found = read()
    assert (found.compression, found.tls) == (Compression.NONE, None)
    assert headers(found) == {"content-type": "application/x-protobuf", "user-agent": "mcp-airlock"}
    pace = found.pace
    assert (pace.queue, pace.batch, pace.delay_s, pace.export_s, pace.close_s) == (2048, 512, 5.0, 10.0, 10.0)


def test_the_timeout_is_in_seconds_and_the_traces_form_wins():
    assert read(**{f"{BASE}TIMEOUT": "2.5"}).pace.close_s == 2.5
    assert read(**{f"{BASE}TIMEOUT": "2.5", f"{TRACES}TIMEOUT": "3"}).pace.export_s == 3.0


@pytest.mark.case("T65")
@pytest.mark.parametrize("name", [f"{BASE}TIMEOUT", f"{TRACES}TIMEOUT"])
@pytest.mark.parametrize("value", ["ten", "10s", "nan", "inf", "0", "-1"])
def test_a_timeout_that_is_no_time_stops_the_start(name: str, value: str):
    # Both forms are checked, whichever of them would count.
    assert refusal(**{f"{TRACES}TIMEOUT": "5", name: value}) == (
        f"OTEL: {name} must be a number of seconds above 0"
    )


def test_the_compression_is_read_and_the_traces_form_wins():
    assert read(**{f"{BASE}COMPRESSION": "none"}).compression is Compression.NONE
    found = read(**{f"{BASE}COMPRESSION": "deflate", f"{TRACES}COMPRESSION": "GZip"})
    assert found.compression is Compression.GZIP
    assert headers(found)["content-encoding"] == "gzip"


@pytest.mark.case("T65")
@pytest.mark.parametrize("name", [f"{BASE}COMPRESSION", f"{TRACES}COMPRESSION"])
def test_a_compression_that_is_not_known_stops_the_start(name: str):
    assert refusal(**{f"{TRACES}COMPRESSION": "gzip", name: "gzipp"}) == (
        f"OTEL: {name} must be none, gzip or deflate"
    )


def test_headers_are_decoded_unless_they_hold_a_blank():
    found = read(**{f"{BASE}HEADERS": "Authorization=Bearer a%2Bb==, x-one=Basic%20x ,,x-two= y=z "})
    assert headers(found) == {
        "content-type": "application/x-protobuf",
        "user-agent": "mcp-airlock",
        "authorization": "Bearer a%2Bb==",
        "x-one": "Basic x",
        "x-two": "y=z",
    }


def test_the_traces_headers_stand_alone_and_ours_can_be_replaced():
    found = read(**{f"{BASE}HEADERS": "x-one=1", f"{TRACES}HEADERS": "User-Agent=mine"})
    assert headers(found) == {"content-type": "application/x-protobuf", "user-agent": "mine"}


@pytest.mark.parametrize(
    "value",
    [
        "hunter2",
        "x-one=1,hunter2",
        "x=hunter2%0d%0aHost:%20evil",
        "host=hunter2",
        "content-length=7",
        "a b=hunter2",
        "=hunter2",
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_being_repeated(value: str):
    said = refusal(**{f"{TRACES}HEADERS": value})
    assert said.startswith("OTEL: OTEL_EXPORTER_OTLP_TRACES_HEADERS ")
    assert "hunter2" not in said


def test_a_header_is_not_shown_by_the_settings():
    assert "hunter2" not in repr(read(**{f"{BASE}HEADERS": "authorization=hunter2"}))


def test_the_batching_variables_are_honoured():
    pace = read(
        OTEL_BSP_MAX_QUEUE_SIZE="10",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="5",
        OTEL_BSP_SCHEDULE_DELAY="250",
        OTEL_BSP_EXPORT_TIMEOUT="1500",
    ).pace
    assert (pace.queue, pace.batch, pace.delay_s, pace.export_s, pace.close_s) == (10, 5, 0.25, 1.5, 10.0)


def test_a_batching_variable_that_makes_no_sense_stops_the_start():
    assert (
        refusal(OTEL_BSP_SCHEDULE_DELAY="soon") == "OTEL: OTEL_BSP_SCHEDULE_DELAY must be a positive integer"
    )
    assert refusal(OTEL_BSP_MAX_QUEUE_SIZE="100") == (
        "OTEL: OTEL_BSP_MAX_EXPORT_BATCH_SIZE (512 when unset) must not be above OTEL_BSP_MAX_QUEUE_SIZE"
    )


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """A self-signed certificate, its key, and the same key under a passphrase: paths by name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "collector")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files = {
        "chain": made.public_bytes(pem),
        "key": key.private_bytes(pem, pkcs8, serialization.NoEncryption()),
        "locked": key.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"passphrase")),
    }
    for file, data in files.items():
        (tmp_path / file).write_bytes(data)
    return {file: str(tmp_path / file) for file in files}


HTTPS = {f"{BASE}ENDPOINT": "https://c:4318"}


def test_https_trusts_the_system_or_the_one_authority_that_is_named(certificate: dict[str, str]):
    default = read(**HTTPS).tls
    assert default is not None
    assert default.check_hostname
    named = read(**HTTPS, **{f"{BASE}CERTIFICATE": "/none", f"{TRACES}CERTIFICATE": certificate["chain"]}).tls
    assert named is not None
    assert named.cert_store_stats()["x509"] == 1


def test_a_client_certificate_is_loaded_with_its_key(certificate: dict[str, str]):
    env = {f"{BASE}CLIENT_CERTIFICATE": certificate["chain"], f"{BASE}CLIENT_KEY": certificate["key"]}
    assert read(**HTTPS, **env).tls is not None


@pytest.mark.parametrize("key", ["locked", "none"])
def test_a_client_key_that_cannot_be_used_stops_the_start_and_asks_nobody(
    certificate: dict[str, str], key: str
):
    env = {
        f"{BASE}CLIENT_CERTIFICATE": certificate["chain"],
        f"{BASE}CLIENT_KEY": certificate.get(key, "/none"),
    }
    said = refusal(**HTTPS, **env)
    assert said.startswith("OTEL: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE names a file that cannot be used: ")


def test_an_authority_that_cannot_be_read_stops_the_start():
    assert refusal(**HTTPS, **{f"{BASE}CERTIFICATE": "/none"}) == (
        "OTEL: OTEL_EXPORTER_OTLP_CERTIFICATE names a file that cannot be used: No such file or directory"
    )


def test_a_certificate_means_nothing_without_https():
    assert read(**{f"{BASE}CERTIFICATE": "/none"}).tls is None

"""What the standard variables say about an OTLP export over HTTP, checked at the start.

Knows the `OTEL_*` names, their defaults and their units; opens no connection and imports nothing heavy.
SPEC: gateway.md 14 and 15.4. `OTEL_EXPORTER_OTLP_PROTOCOL` is not read, and neither is any proxy variable.
"""

from __future__ import annotations

import math
import re
import ssl
from enum import StrEnum
from urllib.parse import unquote_to_bytes

import msgspec

from airlock.core.errors import ConfigError
from airlock.core.secret import Secret
from airlock.edge.httpurl import Target, header_line, parse_target
from airlock.edge.settings import Environment
from airlock.edge.spans import Pace

__all__ = ["Compression", "OtlpSettings", "endpoint_is_set"]

_PREFIX = "OTEL_EXPORTER_OTLP_"
_TRACES = "OTEL_EXPORTER_OTLP_TRACES_"
_PATH = "/v1/traces"
_TIMEOUT_S = 10.0
_ENCODED = re.compile(r"[\x21-\x7e]*")


class Compression(StrEnum):
    """How a request's body is packed; the value is the Content-Encoding."""

    NONE = "none"
    GZIP = "gzip"
    DEFLATE = "deflate"


class OtlpSettings(msgspec.Struct, frozen=True):
    """A checked export. `headers` are ready header lines, and `tls` is None for plain http."""

    target: Target
    headers: Secret
    compression: Compression
    tls: ssl.SSLContext | None
    pace: Pace

    @classmethod
    def read(cls, env: Environment) -> OtlpSettings | None:
        """Read the settings; None when no endpoint is set. Raises ConfigError, which never shows a value."""
        target = _target(env)
        if target is None:
            return None
        compression = _compression(env)
        return cls(
            target=target,
            headers=Secret(_headers(env, compression).decode("latin-1")),
            compression=compression,
            tls=_tls(env) if target.scheme == "https" else None,
            pace=_pace(env, _timeout(env)),
        )


def endpoint_is_set(env: Environment) -> bool:
    """Tell whether the settings ask for an OTLP export at all."""
    return any(env.text(f"{prefix}ENDPOINT") is not None for prefix in (_TRACES, _PREFIX))


def _target(env: Environment) -> Target | None:
    name, url = _either(env, "ENDPOINT")
    if url is None:
        return None
    try:
        target = parse_target(url)
        # SPEC: gateway.md 14: the traces URL is used as it is, the base URL gets the path.
        return target if name == f"{_TRACES}ENDPOINT" else parse_target(url.removesuffix("/") + _PATH)
    except ValueError:
        raise _rejected(
            name, "must be an http:// or https:// address with a host, without user name and fragment"
        ) from None


def _timeout(env: Environment) -> float:
    """Seconds, as the Python exporter of OpenTelemetry reads it. Both forms are checked, the traces form wins."""
    found = _TIMEOUT_S
    for name in (f"{_PREFIX}TIMEOUT", f"{_TRACES}TIMEOUT"):
        text = env.text(name)
        if text is None:
            continue
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not 0 < found < math.inf:
            raise _rejected(name, "must be a number of seconds above 0")
    return found


def _compression(env: Environment) -> Compression:
    found = Compression.NONE
    for name in (f"{_PREFIX}COMPRESSION", f"{_TRACES}COMPRESSION"):
        text = env.text(name)
        if text is None:
            continue
        try:
            found = Compression(text.strip().lower())
        except ValueError:
            raise _rejected(name, "must be none, gzip or deflate") from None
    return found


def _headers(env: Environment, compression: Compression) -> bytes:
    """The header lines of every request: our own, and over them those of the operator."""
    lines = {"content-type": b"application/x-protobuf", "user-agent": b"mcp-airlock"}
    if compression is not Compression.NONE:
        lines["content-encoding"] = compression.value.encode("ascii")
    variable, text = _either(env, "HEADERS")
    for entry in (text or "").split(","):
        if not entry.strip():
            continue
        name, equals, value = entry.partition("=")
        if not equals:
            raise _rejected(variable, "must be name=value pairs, separated by commas")
        value = value.strip()
        # A value with a blank in it, such as `Bearer <token>`, is taken as it is; any other one is URL-encoded.
        raw = unquote_to_bytes(value) if _ENCODED.fullmatch(value) else value.encode("utf-8", "replace")
        lines[name.strip().lower()] = raw
    try:
        return b"".join(header_line(name.encode("utf-8", "replace"), value) for name, value in lines.items())
    except ValueError as error:
        raise _rejected(variable, f"holds a header that cannot be sent: {error}") from None


def _tls(env: Environment) -> ssl.SSLContext:
    """The trust and the identity of an https export; without a certificate the system's trust store."""
    authority, path = _either(env, "CERTIFICATE")
    try:
        context = ssl.create_default_context(cafile=path)
    except OSError as error:
        raise _unreadable(authority, error) from None
    context.set_alpn_protocols(["http/1.1"])
    own, chain = _either(env, "CLIENT_CERTIFICATE")
    if chain is not None:
        try:
            # A key that is encrypted fails here; nobody is asked for a passphrase.
            context.load_cert_chain(chain, _either(env, "CLIENT_KEY")[1], password="")
        except OSError as error:
            raise _unreadable(own, error) from None
    return context


def _pace(env: Environment, timeout_s: float) -> Pace:
    """The batching of `OTEL_BSP_*`, whose times are milliseconds."""
    queue, batch = _whole(env, "MAX_QUEUE_SIZE", 2048), _whole(env, "MAX_EXPORT_BATCH_SIZE", 512)
    if batch > queue:
        raise ConfigError(
            "OTEL",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE (512 when unset) must not be above OTEL_BSP_MAX_QUEUE_SIZE",
        )
    delay_s = _whole(env, "SCHEDULE_DELAY", 5000) / 1000
    export_s = min(timeout_s, _whole(env, "EXPORT_TIMEOUT", 30000) / 1000)
    return Pace(queue=queue, batch=batch, delay_s=delay_s, export_s=export_s, close_s=timeout_s)


def _whole(env: Environment, name: str, default: int) -> int:
    try:
        return env.positive(f"OTEL_BSP_{name}", default)
    except ConfigError as error:
        raise ConfigError("OTEL", str(error)) from None


def _either(env: Environment, name: str) -> tuple[str, str | None]:
    """The traces form of a variable when it is set, else the general one: its name and its value."""
    traces = env.text(f"{_TRACES}{name}")
    if traces is not None:
        return f"{_TRACES}{name}", traces
    return f"{_PREFIX}{name}", env.text(f"{_PREFIX}{name}")


def _rejected(name: str, problem: str) -> ConfigError:
    # SECURITY: the value stays out of the message: an endpoint or a header may hold a credential.
    return ConfigError("OTEL", f"{name} {problem}")


def _unreadable(name: str, error: OSError) -> ConfigError:
    words = error.strerror or type(error).__name__
    return _rejected(name, f"names a file that cannot be used: {words}")

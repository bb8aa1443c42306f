"""Spans to an OpenTelemetry collector: OTLP over HTTP with protobuf bodies, one batch a request.

Knows the message and when a failed request is sent again; the connection is `edge.httpc`'s, so that no redirect
is followed, no proxy variable read, and every time and size is bounded. SPEC: gateway.md 14.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import random
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airlock.core.errors import UpstreamError
from airlock.edge.exporters.otlpsettings import Compression, OtlpSettings
from airlock.edge.httpc import ClientLimits, HttpClient
from airlock.edge.spans import ExportError, Pace, Resource, Span

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["OtlpExporter", "exporter_available", "open"]

MAX_ANSWER_BYTES = 64 * 1024

_MESSAGES = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
_TRANSIENT = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S = 1.0
_AT_A_STRETCH = 32
_SCOPE = "airlock"
_SERVER = 2
_ERROR = 2
_PARENT_UNKNOWN, _PARENT_REMOTE = (
    0x100,
    0x300,
)  # OTLP SpanFlags: whether the parent's place is known, and remote


class OtlpExporter:
    """Sends spans to one collector; made by `open`. Belongs to the thread that exports first."""

    name = "the collector"

    def __init__(
        self,
        settings: OtlpSettings,
        encode: Callable[[Sequence[Span]], bytes],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.pace: Pace = settings.pace
        self._headers = settings.headers.reveal().encode("latin-1")
        self._encode = encode
        self._pack = _PACKERS[settings.compression]
        self._chance = chance
        limit_s = settings.pace.export_s
        limits = ClientLimits(
            total_s=limit_s,
            connect_s=min(limit_s, 10.0),
            max_body_bytes=MAX_ANSWER_BYTES,
            max_idle=1,
        )
        self._client = HttpClient(settings.target, limits, ssl_context=settings.tls)
        self._runner: asyncio.Runner | None = None

    def export(self, spans: Sequence[Span], within_s: float) -> None:
        """Send the spans, and again while the collector fails in passing and time is left."""
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=_Loop)
        self._runner.run(self._deliver(self._pack(self._encode(spans)), within_s))

    def close(self) -> None:
        """Close the connection."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with runner:
                runner.run(self._client.close())

    async def _deliver(self, body: bytes, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        pause_s = _FIRST_PAUSE_S
        while True:
            status: int | None = None
            try:
                async with asyncio.timeout_at(end):
                    status = (await self._client.post(self._headers, body)).status
            except TimeoutError:
                raise ExportError("it did not answer in time") from None
            except UpstreamError as error:
                # The answer's body means nothing to us: a status that was read is an answer.
                status, cause = error.status, f"it cannot be reached ({error.cause})"
            if status is not None:
                if 200 <= status < 300:
                    return
                cause = f"it answered with status {status}"
                if status not in _TRANSIENT:
                    raise ExportError(cause)
            wait_s = pause_s * (0.8 + 0.4 * self._chance())
            if loop.time() + wait_s >= end:
                raise ExportError(cause)
            await asyncio.sleep(wait_s)
            pause_s *= 2


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that looks names up in its own thread.

    The usual pool of look-up threads is waited for when the process ends, and a dead resolver would hold it.
    """

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        """Look a name up, blocking the loop, which has nothing else to do."""
        return socket.getaddrinfo(*args, **options)


def exporter_available() -> bool:
    """Tell whether the extra `otlp` is installed, without importing it."""
    try:
        return importlib.util.find_spec(_MESSAGES) is not None
    except ModuleNotFoundError:
        return False


def open(settings: OtlpSettings, resource: Resource) -> OtlpExporter:  # noqa: A001 - what every exporter offers
    """Make the exporter. Imports the messages, which takes a while; raises ImportError without the extra."""
    return OtlpExporter(settings, _encoder(resource))


def _encoder(resource: Resource) -> Callable[[Sequence[Span]], bytes]:
    """Return the function that turns spans into the bytes of one export request."""
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

    def encode(spans: Sequence[Span]) -> bytes:
        request: ExportTraceServiceRequest = service.ExportTraceServiceRequest()
        whole = request.resource_spans.add()
        for key, value in resource:
            whole.resource.attributes.add(key=key).value.string_value = value
        scope = whole.scope_spans.add()
        scope.scope.name = _SCOPE
        for number, span in enumerate(spans, 1):
            if number % _AT_A_STRETCH == 0:
                time.sleep(0)  # let the event loop have the interpreter: it would wait for some milliseconds
            message = scope.spans.add(
                trace_id=bytes.fromhex(span.trace_id),
                span_id=bytes.fromhex(span.span_id),
                name=span.name,
                kind=_SERVER,
                start_time_unix_nano=span.start_ns,
                end_time_unix_nano=span.end_ns,
                flags=_PARENT_UNKNOWN if span.parent_id is None else _PARENT_REMOTE,
            )
            if span.parent_id is not None:
                message.parent_span_id = bytes.fromhex(span.parent_id)
            for key, attribute in span.attributes:
                held = message.attributes.add(key=key).value
                if isinstance(attribute, int):
                    held.int_value = attribute
                else:
                    held.string_value = attribute
            if span.error is not None:
                message.status.code = _ERROR
                message.status.message = span.error
        data: bytes = request.SerializeToString()
        return data

    return encode


def _plain(body: bytes) -> bytes:
    return body


def _gzipped(body: bytes) -> bytes:
    return gzip.compress(body, 6, mtime=0)


_PACKERS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: _plain,
    Compression.GZIP: _gzipped,
    Compression.DEFLATE: zlib.compress,
}

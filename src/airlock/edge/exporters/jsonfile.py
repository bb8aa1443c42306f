"""The span file: one JSON object per span and line, appended.

Knows the lines and the file; does not know calls. SPEC: gateway.md 14, file export.
LIMIT: the file is not rotated, and one that was moved away is still written to.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from airlock.core.errors import ConfigError
from airlock.edge.spans import ExportError, Pace, Resource, Span

__all__ = ["JsonFile", "line", "open"]

PACE = Pace(queue=8192, batch=64, delay_s=0.05, export_s=5.0, close_s=5.0)

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
_encoder = msgspec.json.Encoder()


class JsonFile:
    """An open span file; made by `open`."""

    name = "the span file"
    pace = PACE

    def __init__(self, fd: int, resource: Resource) -> None:
        self._fd = fd
        self._resource = msgspec.Raw(_encoder.encode({"attributes": dict(resource), "schema_url": ""}))
        self._newline_owed = False

    def export(self, spans: Sequence[Span], within_s: float) -> None:
        """Append one line for each span; raise ExportError, with the system's words, when that fails."""
        data = b"".join(line(span, self._resource) for span in spans)
        if self._newline_owed:
            data = b"\n" + data
        try:
            while data:
                written = os.write(self._fd, data)
                self._newline_owed = data[written - 1] != 0x0A
                data = data[written:]
        except OSError as error:
            raise ExportError(error.strerror or type(error).__name__) from None

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open(path: str, resource: Resource) -> JsonFile:  # noqa: A001 - the name that every exporter offers
    """Open the span file, made readable by its owner alone when it is missing.

    Raises ConfigError with the system's words.
    """
    try:
        # A pipe that nobody reads is refused at once; the start does not wait for a reader.
        fd = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise ConfigError(path, error.strerror or type(error).__name__) from None
    os.set_blocking(fd, True)
    return JsonFile(fd, resource)


def line(span: Span, resource: msgspec.Raw) -> bytes:
    """Write one span as a line, in the shape of the OpenTelemetry SDK's own JSON: ids carry a `0x`."""
    status = {"status_code": "UNSET"}
    if span.error is not None:
        status = {"status_code": "ERROR", "description": span.error}
    return (
        _encoder.encode(
            {
                "name": span.name,
                "context": {
                    "trace_id": f"0x{span.trace_id}",
                    "span_id": f"0x{span.span_id}",
                    "trace_state": "[]",
                },
                "kind": "SpanKind.SERVER",
                "parent_id": None if span.parent_id is None else f"0x{span.parent_id}",
                "start_time": _iso(span.start_ns),
                "end_time": _iso(span.end_ns),
                "status": status,
                "attributes": dict(span.attributes),
                "events": [],
                "links": [],
                "resource": resource,
            }
        )
        + b"\n"
    )


def _iso(ns: int) -> str:
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + (
        f"{ns % 1_000_000_000 // 1000:06d}Z"
    )

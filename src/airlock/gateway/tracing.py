"""From settings to a tracer, or to None when nothing asks for spans.

Knows the order: everything is checked before a file is opened. SPEC: gateway.md 14, 15.3, 15.4.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from airlock.core.text.safe import well_formed
from airlock.edge.exporters import jsonfile, otlp
from airlock.edge.exporters.otlpsettings import OtlpSettings, endpoint_is_set
from airlock.edge.settings import Environment
from airlock.edge.spans import Exporter, Resource, Tracer
from airlock.edge.trace import Trace
from airlock.gateway import spans
from airlock.gateway.gate import Gate
from airlock.gateway.modern.admission import Request

__all__ = ["export_impossible", "note", "open_tracer", "resource"]

_SERVICE = "service.name"


def note(
    gate: Gate,
    tracer: Tracer,
    request: Request,
    trace: Trace,
    verdict: str,
    rule: str,
    tier: str | None = None,
    principal: str | None = None,
    suspicious: int = 0,
) -> None:
    """Hand over the span of a request that ends now, with what its outcome record says."""
    tracer.record(
        spans.of_call(
            trace,
            ended=gate.clock.now(),
            method=request.method,
            request_id=request.id,
            verdict=verdict,
            rule=rule,
            tier=tier,
            principal=principal,
            tool=request.name,
            suspicious=suspicious,
        )
    )


def export_impossible(env: Environment) -> bool:
    """Tell whether an OTLP endpoint is set but the extra `otlp` is not installed: startup warning W10."""
    return endpoint_is_set(env) and not otlp.exporter_available()


def open_tracer(env: Environment, otel_file: str | None, warn: Callable[[str], None]) -> Tracer | None:
    """Open the span file and the export that the settings name; None when they name neither.

    `otel_file` is the flag and beats `AIRLOCK_OTEL_FILE`; `warn` takes one line of text, from any thread.
    Raises ConfigError. Without the extra `otlp` an endpoint is checked and not used: the warning was given.
    """
    settings = OtlpSettings.read(env)
    path = otel_file or env.text("AIRLOCK_OTEL_FILE")
    if settings is None and path is None:
        return None
    about = resource(env, warn)
    exporters: list[Exporter] = []
    if settings is not None and otlp.exporter_available():
        exporters.append(otlp.open(settings, about))
    if path is not None:
        exporters.append(jsonfile.open(path, about))
    return Tracer(exporters, warn) if exporters else None


def resource(env: Environment, warn: Callable[[str], None]) -> Resource:
    """Who the spans come from: `OTEL_RESOURCE_ATTRIBUTES`, and over its `service.name` `OTEL_SERVICE_NAME`."""
    found = {_SERVICE: "mcp-airlock"}
    for entry in (env.text("OTEL_RESOURCE_ATTRIBUTES") or "").split(","):
        key, equals, value = entry.partition("=")
        key = well_formed(key.strip())
        if equals and key:
            found[key] = well_formed(unquote(value.strip()))
        elif entry.strip():
            warn("OTEL_RESOURCE_ATTRIBUTES: an entry that is not key=value is ignored")
    service = env.text("OTEL_SERVICE_NAME")
    if service is not None:
        found[_SERVICE] = well_formed(service)
    return tuple(found.items())

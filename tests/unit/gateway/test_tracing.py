"""From settings to a tracer: what is opened, in which order, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.exporters import otlp
from airlock.edge.settings import Environment
from airlock.edge.spans import Span
from airlock.gateway import tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
SPAN = Span("tools/list", "ab" * 16, "cd" * 8, None, 0, 0, ())


def unwarned(line: str) -> None:
    raise AssertionError(line)


@pytest.mark.case("T65")
def test_nothing_set_means_no_tracer():
    env = Environment({"AIRLOCK_OTEL_FILE": "", "OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_SERVICE_NAME": "x"})
    assert tracing.open_tracer(env, None, unwarned) is None
    assert not tracing.export_impossible(env)


@pytest.mark.parametrize("by_flag", [True, False])
def test_spans_go_to_the_file_that_is_named_and_the_flag_wins(tmp_path: Path, by_flag: bool):
    path, other = tmp_path / "spans.jsonl", tmp_path / "other.jsonl"
    env = Environment({"AIRLOCK_OTEL_FILE": str(other if by_flag else path), "OTEL_SERVICE_NAME": "mine"})
    tracer = tracing.open_tracer(env, str(path) if by_flag else None, unwarned)
    assert tracer is not None
    tracer.record(SPAN)
    tracer.close()
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["resource"]["attributes"] == {"service.name": "mine"}
    assert not other.exists()


@pytest.mark.case("T65")
def test_a_bad_setting_stops_the_start_before_a_file_is_made(tmp_path: Path):
    env = Environment({**ENDPOINT, "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"})
    with pytest.raises(ConfigError, match=r"^OTEL: OTEL_EXPORTER_OTLP_TIMEOUT "):
        tracing.open_tracer(env, str(tmp_path / "spans.jsonl"), unwarned)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path):
    with pytest.raises(ConfigError, match="Is a directory"):
        tracing.open_tracer(Environment(ENDPOINT), str(tmp_path), unwarned)


def test_an_endpoint_alone_makes_a_tracer():
    tracer = tracing.open_tracer(Environment(ENDPOINT), None, unwarned)
    assert tracer is not None
    tracer.close()
    assert not tracing.export_impossible(Environment(ENDPOINT))


def test_without_the_extra_an_endpoint_is_checked_and_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(otlp, "exporter_available", lambda: False)
    assert tracing.export_impossible(Environment(ENDPOINT))
    assert tracing.open_tracer(Environment(ENDPOINT), None, unwarned) is None
    with pytest.raises(ConfigError):
        tracing.open_tracer(
            Environment({**ENDPOINT, "OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}), None, unwarned
        )


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {"service.name": "mcp-airlock"}),
        ({"OTEL_SERVICE_NAME": "mine"}, {"service.name": "mine"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs"}, {"service.name": "theirs"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs, team = a%20b ,", "OTEL_SERVICE_NAME": "mine"},
            {"service.name": "mine", "team": "a b"},
        ),
    ],
)
def test_the_resource_is_ours_unless_the_operator_names_it(env: dict[str, str], expected: dict[str, str]):
    assert dict(tracing.resource(Environment(env), unwarned)) == expected


def test_an_attribute_without_a_name_or_a_value_is_ignored_with_a_warning():
    lines: list[str] = []
    env = Environment({"OTEL_RESOURCE_ATTRIBUTES": "team,=x,a=1"})
    assert dict(tracing.resource(env, lines.append)) == {"service.name": "mcp-airlock", "a": "1"}
    assert lines == ["OTEL_RESOURCE_ATTRIBUTES: an entry that is not key=value is ignored"] * 2


def test_broken_bytes_in_an_attribute_become_well_formed():
    found = tracing.resource(Environment({"OTEL_RESOURCE_ATTRIBUTES": "a=\udcff"}), unwarned)
    assert dict(found)["a"] == "\ufffd"


def test_nothing_of_opentelemetry_is_imported_by_a_start_without_an_endpoint():
    source = (
        "import sys\n"
        "from airlock.gateway import spans, tracing\n"
        "from airlock.edge.settings import Environment\n"
        "assert tracing.open_tracer(Environment({}), None, print) is None\n"
        "tracing.export_impossible(Environment({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://c'}))\n"
        "loaded = [m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'google.protobuf'))\n"
        "          or m.endswith('_pb2')]\n"
        "assert loaded == [], loaded\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True)

"""A whole gateway and its collector: spans leave before the process does, and a bad collector changes nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.fakes.processes import gateway, post, rule

NOWHERE = "http://127.0.0.1:1/mcp"


class Collector(ThreadingHTTPServer):
    """Takes whatever is posted, and keeps it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: list[tuple[str, str, bytes]] = []


class Taking(BaseHTTPRequestHandler):
    server: Collector
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append((self.path, self.headers.get("authorization", ""), body))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.case("T65")
def test_what_waits_for_its_batch_is_sent_before_the_process_ends(
    collector: Collector, tmp_path: Path
) -> None:
    pytest.importorskip("opentelemetry.proto", reason="needs the extra otlp: uv sync --all-extras")
    token = "Bearer " + "collector-token"
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={token}",
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
    }
    with gateway(tmp_path, NOWHERE, "--otel-file", "spans.jsonl", **env) as gate:
        assert rule(post(gate.url, "get_service", {"name": "secret-argument"})) == "upstream.unreachable"
        assert collector.taken == []
        assert gate.stop() == 0
        assert gate.stderr is not None
        assert "collector-token" not in gate.stderr.rest()
    assert [(path, who) for path, who, _ in collector.taken] == [("/v1/traces", token)]
    body = collector.taken[0][2]
    assert b"execute_tool get_service" in body
    assert b"upstream.unreachable" in body
    assert b"secret-argument" not in body
    assert len((tmp_path / "spans.jsonl").read_text().splitlines()) == 1


@pytest.mark.case("T76")
@pytest.mark.parametrize("how", ["nobody there", "never answers"])
def test_a_dead_collector_changes_no_verdict_and_the_process_ends_in_time(tmp_path: Path, how: str) -> None:
    pytest.importorskip("opentelemetry.proto", reason="needs the extra otlp: uv sync --all-extras")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = 1 if how == "nobody there" else mute.getsockname()[1]
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "1",
        }
        with gateway(tmp_path, NOWHERE, **env) as gate:
            for _ in range(3):
                assert rule(post(gate.url, "get_service", {"name": "x"})) == "upstream.unreachable"
                assert rule(post(gate.url, "nowhere", {})) == "allowlist.deny"
            assert gate.stop() == 0
            assert gate.stderr is not None
            assert "Traceback" not in gate.stderr.rest()
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 12

"""The export to a collector over real sockets: one that listens, and every way in which one may not."""

from __future__ import annotations

import contextlib
import gzip
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from airlock.core.decision import Verdict
from airlock.core.rules import Rule
from airlock.edge.exporters import otlp
from airlock.edge.exporters.otlpsettings import OtlpSettings
from airlock.edge.settings import Environment
from airlock.edge.spans import ExportError, Span, Tracer
from airlock.edge.trace import Trace
from airlock.gateway import spans, tracing
from tests.fakes.processes import clean_env

WAIT_S = 20
ERROR = Span(
    "execute_tool drop",
    "ab" * 16,
    "cd" * 8,
    "ef" * 8,
    1_790_000_000_123_456_789,
    1_790_000_000_200_000_000,
    (("rpc.method", "tools/call"), ("airlock.rule_id", Rule.UPSTREAM_UNREACHABLE), ("airlock.suspicious", 2)),
    Rule.UPSTREAM_UNREACHABLE,
)
ROOT = Span("tools/list", "12" * 16, "34" * 8, None, 1, 2, ())


class Asked:
    """One request as it arrived."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body = body

    @property
    def message(self) -> Any:
        unpack: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
        body = unpack.get(self.headers.get("content-encoding", ""), bytes)(self.body)
        return ExportTraceServiceRequest.FromString(body)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.message.resource_spans[0].scope_spans[0].spans]


class Collector:
    """A collector on loopback. `statuses` are answered in turn, then 200; while `held` no answer comes."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: queue.Queue[Asked] = queue.Queue()
        self.statuses: list[int] = []
        self.extra: dict[str, str] = {}
        self.answer = b""
        self.go = threading.Event()
        self.go.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.put(Asked(self.path, headers, body))
                outer.go.wait(WAIT_S)
                with contextlib.suppress(OSError):
                    self.send_response(outer.statuses.pop(0) if outer.statuses else 200)
                    for name, value in outer.extra.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(outer.answer)))
                    self.end_headers()
                    self.wfile.write(outer.answer)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def next(self) -> Asked:
        return self.asked.get(timeout=WAIT_S)

    def stop(self) -> None:
        self.go.set()
        self.server.shutdown()
        self.thread.join(WAIT_S)
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    listening = Collector()
    yield listening
    listening.stop()


@contextlib.contextmanager
def exporting(url: str, **env: str) -> Iterator[otlp.OtlpExporter]:
    settings = OtlpSettings.read(Environment({"OTEL_EXPORTER_OTLP_ENDPOINT": url, **env}))
    assert settings is not None
    sender = otlp.open(settings, (("service.name", "mcp-airlock"), ("team", "blue")))
    sender._chance = lambda: 0.0
    try:
        yield sender
    finally:
        sender.close()


def refused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_a_collector_gets_the_spans_as_the_protocol_wants_them(collector: Collector):
    with exporting(collector.url) as sender:
        sender.export([ERROR, ROOT], 5.0)
    asked = collector.next()
    assert asked.path == "/v1/traces"
    assert asked.headers["content-type"] == "application/x-protobuf"
    (whole,) = asked.message.resource_spans
    about = {item.key: item.value.string_value for item in whole.resource.attributes}
    assert about == {"service.name": "mcp-airlock", "team": "blue"}
    (scope,) = whole.scope_spans
    first, second = scope.spans
    assert (scope.scope.name, first.name, first.kind) == ("airlock", "execute_tool drop", 2)
    assert (first.trace_id.hex(), first.span_id.hex(), first.parent_span_id.hex()) == (
        "ab" * 16,
        "cd" * 8,
        "ef" * 8,
    )
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (ERROR.start_ns, ERROR.end_ns)
    texts = {item.key: item.value.string_value or item.value.int_value for item in first.attributes}
    assert texts == {
        "rpc.method": "tools/call",
        "airlock.rule_id": "upstream.unreachable",
        "airlock.suspicious": 2,
    }
    assert (first.status.code, first.status.message) == (2, "upstream.unreachable")
    assert (second.status.code, second.parent_span_id, second.flags, first.flags) == (0, b"", 0x100, 0x300)


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_the_body_is_packed_as_the_setting_says(collector: Collector, compression: str):
    with exporting(collector.url, OTEL_EXPORTER_OTLP_COMPRESSION=compression) as sender:
        sender.export([ROOT] * 100, 5.0)
    asked = collector.next()
    assert asked.headers.get("content-encoding", "none") == compression
    assert asked.names == ["tools/list"] * 100
    assert (len(asked.body) < 1000) == (compression != "none")


def test_the_headers_of_the_operator_go_with_every_request_on_one_connection(collector: Collector):
    with exporting(
        collector.url, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer abc,x-tenant=a%20b"
    ) as sender:
        sender.export([ROOT], 5.0)
        sender.export([ROOT], 5.0)
    for asked in (collector.next(), collector.next()):
        assert (asked.headers["authorization"], asked.headers["x-tenant"]) == ("Bearer abc", "a b")


def test_a_collector_that_is_busy_is_asked_again(collector: Collector):
    collector.statuses = [503]
    with exporting(collector.url) as sender:
        sender.export([ROOT], 5.0)
    assert collector.next().names == collector.next().names == ["tools/list"]


def test_a_collector_that_stays_busy_is_given_up_before_the_time_is_over(collector: Collector):
    collector.statuses = [429, 502, 504]
    with (
        exporting(collector.url) as sender,
        pytest.raises(ExportError, match=r"^it answered with status 429$"),
    ):
        sender.export([ROOT], 0.5)
    assert collector.asked.qsize() == 1


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 500])
def test_a_refusal_is_final_and_a_redirect_is_one(collector: Collector, status: int):
    collector.statuses = [status]
    collector.extra = {"location": f"{collector.url}/elsewhere"}
    with (
        exporting(collector.url, OTEL_EXPORTER_OTLP_HEADERS="authorization=hunter2") as sender,
        pytest.raises(ExportError, match=f"^it answered with status {status}$"),
    ):
        sender.export([ROOT], 5.0)
    assert collector.asked.qsize() == 1


@pytest.mark.parametrize("answer", [b"x" * (otlp.MAX_ANSWER_BYTES + 1), b"not protobuf"])
def test_what_the_collector_says_beyond_its_status_is_not_looked_at(collector: Collector, answer: bytes):
    collector.answer = answer
    with exporting(collector.url) as sender:
        sender.export([ROOT], 5.0)
    assert collector.asked.qsize() == 1


@pytest.mark.case("T76")
def test_a_collector_that_does_not_answer_is_given_up_in_time(collector: Collector):
    collector.go.clear()
    with exporting(collector.url) as sender:
        with pytest.raises(ExportError, match="did not answer in time"):
            sender.export([ROOT], 0.1)
        collector.go.set()
        sender.export([ROOT], 5.0)  # and the next batch is none the worse for it


def test_a_collector_that_never_finishes_its_answer_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = threading.Event()

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
                while not ends.wait(0.01):
                    connection.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        with (
            exporting(f"http://127.0.0.1:{listener.getsockname()[1]}") as sender,
            pytest.raises(ExportError, match="did not answer in time"),
        ):
            sender.export([ROOT], 0.2)
        ends.set()
        thread.join(WAIT_S)


def test_a_collector_that_is_not_there_is_told_by_kind_alone():
    url = f"http://127.0.0.1:{refused_port()}"
    with exporting(url) as sender, pytest.raises(ExportError) as found:
        sender.export([ROOT], 0.2)
    assert str(found.value) == "it cannot be reached (ConnectionRefusedError)"


def test_a_name_that_nobody_knows_is_told_by_kind_alone_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch):
    def unknown(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    before = threading.active_count()
    with exporting("http://collector.invalid:4318") as sender:
        with pytest.raises(ExportError) as found:
            sender.export([ROOT], 0.2)
        assert threading.active_count() == before
    assert str(found.value) == "it cannot be reached (gaierror)"


def test_no_proxy_variable_is_read(collector: Collector, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{refused_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    with exporting(collector.url) as sender:
        sender.export([ROOT], 5.0)
    assert collector.next().names == ["tools/list"]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1, with its key in the same file."""
    path = tmp_path / "collector.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=collector", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", path.name],
        check=True, capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + (tmp_path / "key.pem").read_bytes())
    return path


def test_https_needs_a_certificate_that_is_trusted(certificate: Path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = Collector(context)
    try:
        with exporting(listening.url, OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate)) as sender:
            sender.export([ROOT], 5.0)
        assert listening.next().names == ["tools/list"]
        with exporting(listening.url) as sender, pytest.raises(ExportError, match="SSLCertVerificationError"):
            sender.export([ROOT], 0.5)
        assert listening.asked.empty()
    finally:
        listening.stop()


def opened(lines: list[str], **env: str) -> Tracer:
    tracer = tracing.open_tracer(Environment(env), None, lines.append)
    assert tracer is not None
    return tracer


@pytest.mark.case("T34")
def test_spans_of_calls_arrive_through_the_whole_tracer(collector: Collector):
    lines: list[str] = []
    tracer = opened(lines, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="10")
    trace = Trace("ab" * 16, "cd" * 8, None, "")
    tracer.record(
        spans.of_call(
            trace, ended=2.0, method="tools/call", request_id="r1", tool="drop", principal="alice",
            verdict=Verdict.ERROR, rule=Rule.UPSTREAM_UNREACHABLE, tier="L3",
        )
    )  # fmt: skip
    (span,) = collector.next().message.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.status.message) == ("execute_tool drop", "upstream.unreachable")
    tracer.close()
    assert lines == []


@pytest.mark.case("T65")
def test_what_waits_is_flushed_when_the_tracer_closes(collector: Collector):
    lines: list[str] = []
    tracer = opened(lines, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="3600000")
    for _ in range(600):
        tracer.record(ROOT)
    tracer.close()
    assert [len(collector.next().names) for _ in range(2)] == [512, 88]
    assert lines == []


@pytest.mark.case("T76")
@pytest.mark.parametrize("kind", ["dead", "slow", "refusing"])
def test_a_bad_collector_costs_spans_and_one_line_and_the_end_comes_in_time(collector: Collector, kind: str):
    url = f"http://127.0.0.1:{refused_port()}" if kind == "dead" else collector.url
    if kind == "slow":
        collector.go.clear()
    collector.statuses = [403] * 99
    lines: list[str] = []
    tracer = opened(
        lines,
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{url}/?api_key=hunter2",
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer hunter2",
        OTEL_EXPORTER_OTLP_TIMEOUT="0.3",
        OTEL_BSP_MAX_QUEUE_SIZE="100",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="50",
    )
    for _ in range(500):
        tracer.record(ROOT)
    began = time.monotonic()
    tracer.close()
    assert time.monotonic() - began < WAIT_S  # not a measure of speed: a close that hangs would fail
    assert "hunter2" not in "".join(lines)
    assert 1 <= len(lines) <= 2  # the first at once, the rest at the end
    assert sum(int(line.split(": ")[2].split()[0]) for line in lines) == 500
    cause = {
        "dead": "it cannot be reached (ConnectionRefusedError)",
        "slow": "in time",
        "refusing": "it answered with status 403",
    }[kind]
    assert any(cause in line or "no time was left" in line for line in lines)


@pytest.mark.case("T76")
def test_the_process_ends_although_the_collector_hangs(collector: Collector):
    collector.go.clear()
    source = (
        "import signal, sys\n"
        "from airlock.edge.settings import Environment\n"
        "from airlock.edge.spans import Span\n"
        "from airlock.gateway import tracing\n"
        "tracer = tracing.open_tracer(Environment.of_process(), None, lambda line: print(line, flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: (tracer.close(), sys.exit(0)))\n"
        "tracer.record(Span('tools/list', 'ab' * 16, 'cd' * 8, None, 1, 2, ()))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    settings = clean_env(
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_EXPORTER_OTLP_TIMEOUT="0.5",
        OTEL_BSP_SCHEDULE_DELAY="10",
    )
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=settings
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        collector.next()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        (line,) = process.stdout.readlines()
    assert line.startswith("tracing: spans lost on the way to the collector: 1 (")


def test_the_extra_is_seen_without_being_imported(monkeypatch: pytest.MonkeyPatch):
    assert otlp.exporter_available()
    monkeypatch.setattr(otlp, "_MESSAGES", "opentelemetry.nothing.of.the.kind")
    assert not otlp.exporter_available()

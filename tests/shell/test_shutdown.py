"""The end of a real gateway: what is open is finished, what is owed is written, and nothing that hangs can keep it."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fakes.backend import Backend
from tests.fakes.postgres import PostgresServer
from tests.fakes.probing import LONG_S, Health, alone, records, until, verified
from tests.fakes.processes import YES, Running, gateway, post, rule

SECRET = "unit-test-confirmation-key-0123456789"
NEVER = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}  # no span leaves before the end


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend() as made:
        yield made


@pytest.fixture
def server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that may be broken, and is mended afterwards."""
    if not postgres_server.owned:
        pytest.skip("the server of AIRLOCK_TEST_PG_DSN is not ours to break: unset it")
    yield postgres_server
    postgres_server.mend()


class Collector:
    """Takes spans; `when_asked` runs before each answer. It answers nothing while `go` is not set."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.when_asked: Callable[[], None] = lambda: None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                message: Any = ExportTraceServiceRequest.FromString(body)
                outer.when_asked()
                outer.go.wait(LONG_S)
                outer.names += [
                    span.name
                    for whole in message.resource_spans
                    for scope in whole.scope_spans
                    for span in scope.spans
                ]
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("content-length", "0")
                    self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Collector:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.server.shutdown()
        self.server.server_close()


def read(gate: Running, name: str = "x") -> str:
    return rule(post(gate.url, "get_service", {"name": name}))


def ended(gate: Running, within_s: float) -> float:
    """Send SIGTERM; it must end with status 0 within a bound. How long it took, in seconds."""
    began = time.monotonic()
    os.kill(gate.process.pid, signal.SIGTERM)
    assert gate.process.wait(within_s) == 0
    return time.monotonic() - began


def log_of(gate: Running) -> str:
    assert gate.stderr is not None
    log = gate.stderr.rest()
    assert "Traceback" not in log
    return log


def open_files(pid: int) -> set[str]:
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(each).rpartition("/")[2])
    return found


@pytest.mark.case("T65")
def test_open_calls_are_finished_and_their_spans_leave_after_the_audit_is_closed(
    tmp_path: Path, backend: Backend
) -> None:
    seen: list[tuple[bool, int]] = []
    with Collector() as collector, ThreadPoolExecutor(3) as pool:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **NEVER}
        with gateway(tmp_path, backend.url, "--otel-file", "spans.jsonl", **env) as gate:
            pid = gate.process.pid

            def asked() -> None:
                seen.append(("audit.jsonl" in open_files(pid), len(records(tmp_path))))

            collector.when_asked = asked
            assert read(gate, "before") == "tier.L0.read"
            assert "audit.jsonl" in open_files(pid)
            backend.hold()
            arrived = len(backend.calls)
            calls = [pool.submit(read, gate, f"open-{n}") for n in range(3)]
            until(lambda: len(backend.calls) == arrived + 3, "they arrived")
            idle = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=LONG_S)
            idle.request("GET", "/healthz")
            assert idle.getresponse().read() == b'{"status":"ok"}'
            os.kill(pid, signal.SIGTERM)
            assert idle.sock is not None
            assert idle.sock.recv(1) == b""  # a kept connection is closed
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", gate.port), 5)
            backend.release()
            assert [call.result() for call in calls] == ["tier.L0.read"] * 3
            assert gate.process.wait(LONG_S) == 0
            idle.close()
        assert collector.names == ["execute_tool get_service"] * 4
    assert seen == [(False, 8)]
    assert alone(tmp_path) == []
    assert len((tmp_path / "spans.jsonl").read_text().splitlines()) == 4
    assert log_of(gate).count("\n") == 1


@pytest.mark.case("T42")
def test_a_frozen_audit_database_delays_no_call_and_bounds_the_end(
    tmp_path: Path, backend: Backend, server: PostgresServer
) -> None:
    dsn = server.database(connect_timeout="2")
    with gateway(tmp_path, backend.url, AIRLOCK_AUDIT_DSN=dsn) as gate:
        assert read(gate) == "tier.L0.read"
        until(lambda: server.sql("SELECT to_regclass('airlock_audit')", dsn=dsn)[0][0], "the table is there")
        until(lambda: server.sql("SELECT count(*) FROM airlock_audit", dsn=dsn) == [(2,)], "its rows")
        server.freeze()
        with Health(gate), ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda n: read(gate, f"n{n}"), range(600))) == {"tier.L0.read"}
        # SPEC: gateway.md 12.7: about W and 2 s more; never over 15 s.
        assert ended(gate, 15) >= 2
    log = log_of(gate)
    assert log.count("queue is full, records are dropped from the table") == 1
    assert (
        "the audit table was closed: 1000 records were left unwritten, 200 records were dropped before" in log
    )
    assert len(records(tmp_path)) == 1202
    verified(tmp_path / "audit.jsonl")
    server.thaw()
    server.wait_backends(dsn, 0)
    server.drop(dsn)


@pytest.mark.case("T76")
@pytest.mark.parametrize("how", ["silent", "refusing"])
def test_a_dead_collector_delays_no_call_and_bounds_the_end(
    tmp_path: Path, backend: Backend, how: str
) -> None:
    with Collector() as collector:
        collector.go.clear()
        if how == "refusing":
            collector.server.server_close()
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "10", "OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
        }  # fmt: skip
        with gateway(tmp_path, backend.url, **env) as gate:
            with Health(gate), ThreadPoolExecutor(8) as pool:
                assert set(pool.map(lambda n: read(gate, f"n{n}"), range(150))) == {"tier.L0.read"}
            ended(gate, 10)
    lost = [
        line
        for line in log_of(gate).splitlines()
        if "tracing: spans lost on the way to the collector: " in line
    ]
    assert sum(int(line.split("collector: ")[1].split()[0]) for line in lost) == 150
    assert len(lost) <= 2
    assert len(records(tmp_path)) == 300
    assert alone(tmp_path) == []


def test_a_call_that_waits_for_a_frozen_store_is_refused_before_the_end(
    tmp_path: Path, backend: Backend, server: PostgresServer
) -> None:
    dsn = server.database(connect_timeout="2")
    env = {"AIRLOCK_STORE_DSN": dsn, "AIRLOCK_SECRET": SECRET}
    with gateway(tmp_path, backend.url, "--strict", **env) as gate, ThreadPoolExecutor(1) as pool:
        state = post(gate.url, "delete_service", {"name": "frozen"})["result"]["requestState"]
        server.freeze()
        call = pool.submit(
            post, gate.url, "delete_service", {"name": "frozen"}, requestState=state, inputResponses=YES
        )
        until(lambda: pending(gate.port), "the call is under way")
        ended(gate, 20)
        assert rule(call.result()) == "store.unavailable"
    assert backend.landed("delete_service", name="frozen") == 0
    assert alone(tmp_path) == []
    verified(tmp_path / "audit.jsonl")
    server.thaw()
    server.wait_backends(dsn, 0)
    server.drop(dsn)


def pending(port: int) -> bool:
    """Whether somebody is connected to a port of ours, by the tables of the system."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


def test_a_second_sigterm_does_not_wait_for_open_calls_and_still_records_them(
    tmp_path: Path, backend: Backend
) -> None:
    backend.hold()
    arrived = len(backend.calls)
    with gateway(tmp_path, backend.url) as gate, ThreadPoolExecutor(1) as pool:
        call = pool.submit(read, gate, "cut")
        until(lambda: len(backend.calls) > arrived, "the call arrived")
        os.kill(gate.process.pid, signal.SIGTERM)
        threading.Event().wait(0.7)
        os.kill(gate.process.pid, signal.SIGTERM)
        assert gate.process.wait(LONG_S) == 128 + signal.SIGTERM
        assert call.exception() is not None
    backend.release()
    intent, outcome = records(tmp_path)
    assert (intent["rule_id"], outcome["rule_id"], outcome["verdict"]) == (
        "tier.L0.read",
        "call.cancelled",
        "error",
    )
    assert "Traceback" not in log_of(gate)


def test_ctrl_c_ends_with_status_130(tmp_path: Path, backend: Backend) -> None:
    with gateway(tmp_path, backend.url) as gate:
        assert read(gate) == "tier.L0.read"
        os.kill(gate.process.pid, signal.SIGINT)
        assert gate.process.wait(LONG_S) == 130
    assert log_of(gate).count("\n") == 1

"""A real gateway process: its numbers over HTTP, its limits, and who may see what."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.processes import REVISION, Running, bearer, gateway, ops_server, post, rule, run

META = {"io.modelcontextprotocol/protocolVersion": REVISION, "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ops_server(tmp_path_factory.mktemp("ops") / "effects.jsonl") as running:
        yield running.url


def fetch(gate: Running, method: str = "GET", **lines: str) -> tuple[int, dict[str, str], str]:
    """Ask for the page."""
    made = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=20)
    try:
        made.request(method, "/metrics", headers=lines)
        answer = made.getresponse()
        head = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, head, answer.read().decode()
    finally:
        made.close()


def listing(gate: Running, token: str | None) -> tuple[int, str | None, Any]:
    """One `tools/list`: status, Retry-After, body."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    lines = {
        "content-type": "application/json", "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION, "mcp-method": "tools/list",
    }  # fmt: skip
    if token is not None:
        lines["authorization"] = f"Bearer {token}"
    made = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=20)
    try:
        made.request("POST", "/mcp", json.dumps(body), lines)
        answer = made.getresponse()
        return answer.status, answer.getheader("retry-after"), json.loads(answer.read())
    finally:
        made.close()


def values(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def audit(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


def test_a_gateway_on_loopback_shows_what_it_counted(upstream: str, tmp_path: Path) -> None:
    with gateway(tmp_path, upstream, name="airlock") as gate:
        assert rule(post(gate.url, "get_service", {"name": "web"})) == "tier.L0.read"
        first = post(gate.url, "delete_service", {"name": "a"})["result"]
        again = post(gate.url, "delete_service", {"name": "a"})["result"]
        assert first["requestState"] == again["requestState"]
        assert again["_meta"]["io.mcp-airlock/collapsed"] is True
        assert listing(gate, None)[0] == 401
        before = len(audit(tmp_path))
        status, head, text = fetch(gate)
        assert (status, head["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert fetch(gate, "HEAD")[::2] == (200, "")
        assert fetch(gate, "POST")[0] == 405
        assert fetch(gate, host="rebound.example")[0] == 403
        assert len(audit(tmp_path)) == before
    found = values(text)
    assert found['airlock_calls_total{verdict="allow",rule="tier.L0.read",tool="get_service"}'] == 1
    assert found['airlock_calls_total{verdict="confirm",rule="tier.L2.confirm",tool="delete_service"}'] == 2
    assert found['airlock_requests_total{verdict="deny",rule="principal.missing",method="tools/list"}'] == 1
    assert found['airlock_upstream_up{upstream="upstream"}'] == 1
    assert found["airlock_pending_approvals"] == 1
    assert found["airlock_audit_queue"] == 0
    assert found['airlock_request_seconds_count{method="tools/call"}'] == 3
    assert found["process_resident_memory_bytes"] > 1e7
    assert run("airlock-audit", "verify", cwd=tmp_path).returncode == 0


def test_the_page_is_what_prometheus_expects(upstream: str, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    with gateway(tmp_path, upstream, name="airlock") as gate:
        post(gate.url, "get_service", {"name": "web"})
        post(gate.url, "delete_service", {"name": "a"})
        listing(gate, None)
        text = fetch(gate)[2]
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_seeds_program_shows_and_limits_nothing_unless_told(upstream: str, tmp_path: Path) -> None:
    with gateway(tmp_path, upstream) as gate:
        assert fetch(gate)[0] == 404
        assert {listing(gate, None)[0] for _ in range(100)} == {401}
    with gateway(tmp_path, upstream, AIRLOCK_METRICS="1") as gate:
        status, _, text = fetch(gate, host="anything.example")
        assert status == 200
        assert "airlock_pending_approvals 0\n" in text


def test_a_caller_over_its_limit_is_told_when_to_come_back(upstream: str, tmp_path: Path) -> None:
    rates = {"AIRLOCK_RATE_PRINCIPAL": "3/3600", "AIRLOCK_RATE_ADDRESS": "2/3600"}
    with gateway(tmp_path, upstream, **rates) as gate:
        assert [listing(gate, bearer())[0] for _ in range(2)] == [200, 200]
        assert rule(post(gate.url, "get_service", {"name": "web"})) == "tier.L0.read"
        got = post(gate.url, "get_service", {"name": "web"})["result"]
        assert got["isError"] is True
        assert got["_meta"]["io.mcp-airlock/rule_id"] == "rate.limited"
        assert 1190 <= got["_meta"]["io.mcp-airlock/retry_after_s"] <= 1200
        status, after, body = listing(gate, bearer())
        assert (status, body["error"]["code"]) == (429, -32603)
        assert str(body["error"]["data"]["retryAfterSeconds"]) == after
        assert listing(gate, bearer("bob"))[0] == 200
        statuses = [listing(gate, None)[0] for _ in range(30)]
        assert statuses == [401, 401] + [429] * 28
        assert gate.stop() == 0
    limited = [r for r in audit(tmp_path) if r["rule_id"] == "rate.limited" and r["phase"] == "outcome"]
    assert [record["detail"] for record in limited] == [
        "more than 3 in 3600 s of one caller",
        "more than 2 in 3600 s without a principal from 127.0.0.1",
        "more than 3 in 3600 s of one caller; 1 more were refused",
        "more than 2 in 3600 s without a principal from 127.0.0.1; 27 more were refused",
    ]
    assert run("airlock-audit", "verify", cwd=tmp_path).returncode == 0


def test_each_worker_names_itself(upstream: str, tmp_path: Path) -> None:
    settings = {"AIRLOCK_METRICS": "1", "AIRLOCK_STORE_DSN": "sqlite:///state.db", "AIRLOCK_SECRET": "s" * 32}
    with gateway(tmp_path, upstream, "--workers", "2", **settings) as gate:
        text = fetch(gate)[2]
    named = {line.partition('worker="')[2][:1] for line in text.splitlines() if not line.startswith("#")}
    assert len(named) == 1
    assert named <= {"0", "1"}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("AIRLOCK_RATE_TOOL", "often", "must be 0 or <count>/<seconds>[:burst]"),
        ("AIRLOCK_METRICS", "yes", "AIRLOCK_METRICS must be 0 or 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_one_line(tmp_path: Path, name: str, value: str, words: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nenvironment: prod\ntools: {}\n")
    flags = ["--policy", str(policy), "--upstream", "http://127.0.0.1:9/mcp", "--port", "0"]
    done = run("mcp-airlock", *flags, cwd=tmp_path, **{name: value})
    assert done.returncode != 0
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr

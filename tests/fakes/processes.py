"""Real processes for tests: the operations server of the examples, and a gateway in front of anything."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REVISION = "2026-07-28"
JWT_SECRET = "unit-test-signing-" + "0123456789abcdef" * 2
START_S = 60


def bearer(principal: str = "alice", groups: list[str] | None = None, **claims: Any) -> str:
    """An HS256 token for the gateways started here."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    whole = {"sub": principal, "groups": groups or [], "exp": int(time.time()) + 600, **claims}
    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = f"{head}.{part(json.dumps(whole).encode())}"
    return f"{body}.{part(hmac.digest(JWT_SECRET.encode(), body.encode(), hashlib.sha256))}"


def clean_env(**extra: str) -> dict[str, str]:
    """This process's environment without any setting of ours, plus `extra`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRLOCK_", "OTEL_", "PG"))}
    return {**kept, **extra}


def command(name: str) -> list[str]:
    """The argv that runs one of our commands with this interpreter."""
    entry = {
        "mcp-airlock": "from airlock.cli.compat import mcp_airlock as m; m()",
        "airlock-audit": "from airlock.cli.compat import airlock_audit as m; m()",
        "airlock-policy": "from airlock.cli.compat import airlock_policy as m; m()",
        "airlock": "from airlock.cli.main import main as m; m(prog_name='airlock')",
    }[name]
    return [sys.executable, "-c", entry]


class Lines:
    """The lines a process writes to one pipe, read by a thread so that nothing blocks."""

    def __init__(self, pipe: Any) -> None:
        self.seen: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe: Any) -> None:
        with pipe:
            for line in pipe:
                self._queue.put(line)
        self._queue.put(None)

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches."""
        deadline = time.monotonic() + START_S
        while True:
            line = self._queue.get(timeout=max(0.01, deadline - time.monotonic()))
            assert line is not None, f"the process ended: {''.join(self.seen)}"
            self.seen.append(line)
            found = re.search(pattern, line)
            if found is not None:
                return found

    def rest(self) -> str:
        """Everything written, once the process has ended."""
        self._thread.join(START_S)
        while True:
            line = self._queue.get(timeout=START_S)
            if line is None:
                return "".join(self.seen)
            self.seen.append(line)


class Running:
    """A process that listens on a loopback port."""

    def __init__(self, process: subprocess.Popen[str], port: int, stderr: Lines | None) -> None:
        self.process = process
        self.port = port
        self.stderr = stderr

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def stop(self) -> int:
        """Ask it to end, and return its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(START_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(START_S)


@contextlib.contextmanager
def ops_server(effects: Path) -> Iterator[Running]:
    """The operations server; its effects land in `effects`."""
    argv = [sys.executable, str(ROOT / "examples/ops_server.py"), "--port", "0", "--effects", str(effects)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=clean_env()) as process:
        try:
            port = int(Lines(process.stdout).until(r"ready (\d+)")[1])
            wait_port(port)
            yield Running(process, port, None)
        finally:
            process.kill()


@contextlib.contextmanager
def gateway(
    folder: Path, upstream: str, *flags: str, name: str = "mcp-airlock", policy: str | None = None, **env: str
) -> Iterator[Running]:
    """A gateway process in `folder`, in front of `upstream`, with HS256 identity."""
    head = command(name) + (["gateway", "serve"] if name == "airlock" else [])
    argv = [
        *head,
        "--policy",
        policy or str(ROOT / "examples/policy.yaml"),
        "--upstream",
        upstream,
        "--port",
        "0",
        *flags,
    ]
    settings = clean_env(AIRLOCK_JWT_SECRET=JWT_SECRET, XDG_STATE_HOME=str(folder / "state"), **env)
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=settings, cwd=folder) as process:
        lines = Lines(process.stderr)
        try:
            port = int(lines.until(r"listening on http://127\.0\.0\.1:(\d+)/mcp")[1])
            yield Running(process, port, lines)
        finally:
            process.kill()


def run(name: str, *args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*command(name), *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=clean_env(**env),
        timeout=START_S,
        check=False,
    )


def wait_port(port: int) -> None:
    """Wait until something listens."""
    import socket

    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def post(
    url: str, tool: str, arguments: dict[str, Any], *, token: str | None = None, **params: Any
) -> dict[str, Any]:
    """One `tools/call` by hand; returns the JSON-RPC message."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": meta, **params}}  # fmt: skip
    headers = {
        "content-type": "application/json", "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": tool,
        "authorization": f"Bearer {token or bearer()}",
    }  # fmt: skip
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            message: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            message = json.load(error)
    return message


def rule(message: dict[str, Any]) -> str:
    """The rule id of a result."""
    found: str = message["result"]["_meta"]["io.mcp-airlock/rule_id"]
    return found


YES = {"airlock-confirm": {"action": "accept", "content": {"confirm": True}}}

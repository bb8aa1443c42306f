"""Runs inside the image, with its interpreter, as its user, on its read-only root and a network of its own.

Starts an upstream of its own and the image's entry point in front of it, drives them over loopback, and prints
what it saw as one JSON object. The standard library only: it must not depend on what it looks at.
`inside.py gateway|demo ENTRYPOINT HEALTHCHECK`, the last two as JSON arrays.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SECRET = "of-this-test-only-" + "0123456789abcdef" * 2
REVISION = "2026-07-28"
WAIT_S = 60
POLICY = """version: 1
environment: prod
tools:
  read_note:
    tiers: { prod: L0 }
    where:
      - { arg: name, regex: "[a-z]+" }
"""
NEEDED = ("psycopg", "re2", "opentelemetry.proto.collector.trace.v1.trace_service_pb2", "jwt", "cryptography",
          "uvloop", "httptools", "sqlite3", "ssl", "airlock.edge.stores.postgres", "airlock.edge.sinks.postgres",
          "airlock.edge.exporters.otlp")  # fmt: skip
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Upstream(BaseHTTPRequestHandler):
    """Answers every request with one text."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        result = {"resultType": "complete", "content": [{"type": "text", "text": "milk"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": sent["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


def token() -> str:
    """A token that names alice."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"sub": "alice", "exp": int(time.time()) + 600}
    body = f"{part(json.dumps({'alg': 'HS256', 'typ': 'JWT'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{body}.{part(hmac.digest(SECRET.encode(), body.encode(), hashlib.sha256))}"


def ask(method: str, bearer: str, name: str = "", **params: Any) -> dict[str, Any]:
    """One request to the gateway; returns the JSON-RPC message."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    whole = {**({"name": name} if name else {}), **params, "_meta": meta}
    headers = {
        "content-type": "application/json", "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION, "mcp-method": method, "authorization": f"Bearer {bearer}",
        **({"mcp-name": name} if name else {}),
    }  # fmt: skip
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": whole}).encode()
    request = urllib.request.Request("http://127.0.0.1:9000/mcp", body, headers)
    try:
        with opener.open(request, timeout=WAIT_S) as answer:
            message: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        message = json.load(error)
        message["status"] = error.code
    return message


def verdict(message: dict[str, Any]) -> list[str]:
    """The rule and the text of a result."""
    result = message["result"]
    return [result["_meta"]["io.mcp-airlock/rule_id"], result["content"][0]["text"]]


def healthy(command: list[str]) -> bool:
    """What the HEALTHCHECK says, with a proxy in the environment that leads nowhere."""
    env = {**os.environ, "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(command, env=env, capture_output=True, timeout=WAIT_S).returncode == 0


def wait(command: list[str], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not healthy(command):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"not healthy; the process says {process.poll()}")


def uncompiled() -> list[str]:
    """Modules of the environment and of the standard library that would be compiled at every start."""
    tag = sys.implementation.cache_tag
    found = []
    for folder in (Path("/opt/airlock/lib"), Path(os.__file__).parent / "asyncio"):
        for source in folder.rglob("*.py"):
            if not (source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc").exists():
                found.append(str(source))
    return found


def writable() -> list[str]:
    """Folders outside /data that this user can write a file to."""
    found = []
    for folder in ("/", "/opt/airlock", "/tmp", "/var/tmp", "/etc", "/root"):
        place = Path(folder) / "written-by-the-test"
        try:
            place.write_text("", encoding="utf-8")
        except OSError:
            continue
        place.unlink()
        found.append(folder)
    return found


def look() -> dict[str, Any]:
    """What the image is, before anything runs."""
    missing = [
        name
        for name in NEEDED
        if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode
    ]
    ids = (os.getuid(), os.getgid())
    return {
        "ids": ids,
        "cwd": os.getcwd(),
        "missing": missing,
        "uncompiled": uncompiled(),
        "writable": writable(),
    }


def gateway(entry: list[str], health: list[str], seen: dict[str, Any]) -> None:
    """The entry point in front of the upstream above."""
    Path("/data/policy.yaml").write_text(POLICY, encoding="utf-8")
    upstream = ThreadingHTTPServer(("127.0.0.1", 8080), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    seen["healthy before"] = healthy(health)
    flags = ["--policy", "policy.yaml", "--upstream", "http://127.0.0.1:8080/mcp", "--strict"]
    with subprocess.Popen([*entry, *flags], env={**os.environ, "AIRLOCK_JWT_SECRET": SECRET}) as process:
        wait(health, process)
        for path in ("healthz", "readyz"):
            with opener.open(f"http://127.0.0.1:9000/{path}", timeout=WAIT_S) as answer:
                seen[path] = [answer.status, json.load(answer)]
        seen["allowed"] = verdict(ask("tools/call", token(), "read_note", arguments={"name": "shopping"}))
        seen["refused"] = verdict(ask("tools/call", token(), "drop_note", arguments={}))[0]
        seen["argument"] = verdict(ask("tools/call", token(), "read_note", arguments={"name": "../x"}))[0]
        seen["nobody"] = ask("tools/call", "x", "read_note", arguments={})["status"]
        process.send_signal(signal.SIGTERM)
        seen["exit"] = process.wait(WAIT_S)
    upstream.shutdown()
    done = subprocess.run(["airlock-audit", "verify"], capture_output=True, text=True, timeout=WAIT_S)
    seen["audit"] = done.stdout


def demo(entry: list[str], health: list[str], seen: dict[str, Any]) -> None:
    """The demo as it starts with no argument: its log names the token."""
    log = Path("/data/log")
    with log.open("wb") as out, subprocess.Popen(entry, stdout=out) as process:
        wait(health, process)
        (bearer,) = re.findall(r"^(eyJ[\w.-]+)$", log.read_text(encoding="utf-8"), re.M)
        deadline = time.monotonic() + WAIT_S
        while "result" not in (listed := ask("tools/list", bearer)) and time.monotonic() < deadline:
            time.sleep(0.2)  # the example server starts beside the gateway and is slower
        seen["tools"] = sorted(tool["name"] for tool in listed["result"]["tools"])
        seen["hidden"] = listed["result"]["_meta"]["io.mcp-airlock/hidden_tools"]
        seen["allowed"] = verdict(ask("tools/call", bearer, "get_service", arguments={"name": "shop"}))
        asked = ask("tools/call", bearer, "delete_service", arguments={"name": "shop"})
        seen["confirm"] = asked["result"]["resultType"]
        process.send_signal(signal.SIGTERM)
        seen["exit"] = process.wait(WAIT_S)


def main() -> None:
    """Look, drive, print."""
    kind, entry, health = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    seen = look()
    {"gateway": gateway, "demo": demo}[kind](entry, health, seen)
    seen["data"] = sorted(path.name for path in Path("/data").iterdir())
    print("SEEN " + json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()

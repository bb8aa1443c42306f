#!/usr/bin/env python3
"""What the older era, started servers and open streams cost: CPU of a call by pairing, memory of a session, delay of progress.

    python bench/eras.py [--calls N] [--sessions N] [--streams N] [--write]

Every pairing runs against the same small server of ours, over HTTP or started, in one of the two eras; the figure is the
CPU of the gateway's process alone. `--write` puts the tables into bench/RESULTS.md. Loopback only, free ports, and every
process ends with this one.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODERN, LEGACY = "2026-07-28", "2025-11-25"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
POLICY = "version: 1\nenvironment: bench\ntools:\n  echo: { tiers: { bench: L0 } }\n  slow: { tiers: { bench: L0 } }\n"
HEADERS = (
    "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    "X-Airlock-Principal: bench\r\n"
)


# The server behind the gateway


def answer(message, era):
    """The result, or the error, of one request."""
    method = message["method"]
    if method == "initialize" and era == LEGACY:
        return {
            "result": {
                "protocolVersion": LEGACY,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "b", "version": "1"},
            }
        }
    if method == "server/discover" and era == MODERN:
        return {"result": {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}},
                           "ttlMs": 0, "cacheScope": "private"}}  # fmt: skip
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": "x" * 200}], "isError": False}
        return {"result": {"resultType": "complete", **result} if era == MODERN else result}
    return {"error": {"code": -32601, "message": "no"}}


async def serve_http(era):
    async def client(reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                if head.startswith(("get", "delete")):
                    writer.write(b"HTTP/1.1 405 no\r\ncontent-length: 0\r\n\r\n")
                    continue
                length = int(head.split("content-length:")[1].split("\r\n")[0])
                message = json.loads(await reader.readexactly(length))
                if "id" not in message:
                    writer.write(b"HTTP/1.1 202 ok\r\ncontent-length: 0\r\n\r\n")
                    continue
                if message.get("params", {}).get("name") == "slow":
                    await progress(writer, message)
                    continue
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message, era)}).encode()
                session = b"mcp-session-id: s1\r\n" if message["method"] == "initialize" else b""
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s"
                             % (session, len(body), body))  # fmt: skip
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def progress(writer, message):
    """Ten notifications, 100 ms apart, each with the time at which it left."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    token = message["params"]["_meta"].get("progressToken")
    for step in range(10):
        await asyncio.sleep(0.1)
        params = {"progressToken": token, "progress": step, "message": repr(time.time())}
        chunk(writer, {"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    chunk(writer, {"jsonrpc": "2.0", "id": message["id"], **answer(message, MODERN)})
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def chunk(writer, message):
    data = b"data: " + json.dumps(message).encode() + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def serve_stdio(era):
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            body = {"jsonrpc": "2.0", "id": message["id"], **answer(message, era)}
            sys.stdout.buffer.write(json.dumps(body).encode() + b"\n")
            sys.stdout.buffer.flush()


# The gateway and its clients


@contextlib.contextmanager
def running(command, **env):
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def upstream(era):
    with running([sys.executable, __file__, "--serve", era]) as process:
        yield int(process.stdout.readline())


@contextlib.contextmanager
def gateway(folder, *where):
    policy = Path(folder, "policy.yaml")
    policy.write_text(POLICY)
    command = [sys.executable, "-m", "airlock", "gateway", "serve", "--policy", str(policy), "--port", "0",
               "--audit", str(Path(folder, "audit.jsonl")), *where]  # fmt: skip
    with running(command, XDG_STATE_HOME=folder, AIRLOCK_TRUST_PRINCIPAL_HEADER="1", AIRLOCK_RATE_PRINCIPAL="0",
                 AIRLOCK_RATE_TOOL="0") as process:  # fmt: skip
        for line in process.stderr:
            if "listening on" in line:
                yield process, int(line.split("127.0.0.1:")[1].split("/")[0])
                return
        raise SystemExit("the gateway did not start")


class Client:
    """One connection, spoken to in one era."""

    def __init__(self, port, era):
        self.port, self.era, self.session = port, era, None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        if self.era == LEGACY:
            params = {
                "protocolVersion": LEGACY,
                "capabilities": {},
                "clientInfo": {"name": "b", "version": "1"},
            }
            head, _ = await self.post("initialize", params)
            self.session = head.split("mcp-session-id:")[1].split("\r\n")[0].strip()
            await self.post("notifications/initialized", {}, note=True)
        return self

    def request(self, method, params, *, note=False):
        lines = HEADERS
        if self.era == MODERN:
            params = {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}
            lines += f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n"
            lines += f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
        elif self.session:
            lines += f"MCP-Protocol-Version: {LEGACY}\r\nMcp-Session-Id: {self.session}\r\n"
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if note else {"id": 1})
        body = json.dumps(message).encode()
        self.writer.write(
            f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def post(self, method, params, *, note=False):
        self.request(method, params, note=note)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if "transfer-encoding: chunked" in head:
            return head, await self.reader.readuntil(b"\r\n0\r\n\r\n")
        length = int(head.split("content-length:")[1].split("\r\n")[0]) if "content-length:" in head else 0
        return head, await self.reader.readexactly(length)

    async def call(self):
        _, body = await self.post("tools/call", {"name": "echo", "arguments": {"a": "x" * 100}})
        assert b'"isError":false' in body, body


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def rss_kb(pid):
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


async def cost_us(pid, port, era, calls):
    client = await Client(port, era).open()
    for _ in range(200):
        await client.call()
    before = cpu_s(pid)
    for _ in range(calls):
        await client.call()
    return (cpu_s(pid) - before) / calls * 1e6


def pairings(calls):
    rows = []
    for name, started, back, client in (
        ("2026-07-28 to 2026-07-28, HTTP", False, MODERN, MODERN),
        ("2026-07-28 to 2025-11-25, HTTP", False, LEGACY, MODERN),
        ("2025-11-25 to 2026-07-28, HTTP", False, MODERN, LEGACY),
        ("2025-11-25 to 2025-11-25, HTTP", False, LEGACY, LEGACY),
        ("2026-07-28 to 2026-07-28, started", True, MODERN, MODERN),
        ("2026-07-28 to 2025-11-25, started", True, LEGACY, MODERN),
        ("2025-11-25 to 2026-07-28, started", True, MODERN, LEGACY),
    ):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            if started:
                where = ("--", sys.executable, __file__, "--started", back)
            else:
                where = ("--upstream", f"http://127.0.0.1:{stack.enter_context(upstream(back))}/mcp")
            process, port = stack.enter_context(gateway(folder, *where))
            rows.append((name, asyncio.run(cost_us(process.pid, port, client, calls))))
    return rows


async def idle_sessions(pid, port, count):
    """Kilobytes of one idle session with an open stream."""
    before = rss_kb(pid)
    kept = []
    for _ in range(count):
        client = await Client(port, LEGACY).open()
        client.writer.write(
            f"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nX-Airlock-Principal: bench\r\n"
            f"Mcp-Session-Id: {client.session}\r\n\r\n".encode()
        )
        assert b"200" in await client.reader.readline()
        kept.append(client)
    await asyncio.sleep(1)
    grown = rss_kb(pid) - before
    for client in kept:
        client.writer.close()
    return grown / count


async def delays_ms(port, count):
    """How long each notification took from the server to the client, in order."""

    async def one():
        client = await Client(port, MODERN).open()
        client.request("tools/call", {"name": "slow", "arguments": {}, "_meta": {"progressToken": 1}})
        seen = []
        while True:
            line = await client.reader.readline()
            if line.startswith(b"data: "):
                message = json.loads(line[6:])
                if "id" in message:
                    return seen
                seen.append((time.time() - float(message["params"]["message"])) * 1000)

    return sorted(delay for found in await asyncio.gather(*(one() for _ in range(count))) for delay in found)


def measured(args):
    rows = pairings(args.calls)
    base = rows[0][1]
    lines = [
        "| client to server | gateway CPU a call, µs | of the first | limit | |",
        "| --- | --- | --- | --- | --- |",
    ]
    fine = True
    for name, cost in rows:
        fine &= cost <= 2 * base
        lines.append(
            f"| {name} | {cost:.0f} | {cost / base:.2f} | 2.00 | {'pass' if cost <= 2 * base else 'FAIL'} |"
        )
    with tempfile.TemporaryDirectory() as folder, upstream(MODERN) as up:
        with gateway(folder, "--upstream", f"http://127.0.0.1:{up}/mcp") as (process, port):
            kb = asyncio.run(idle_sessions(process.pid, port, args.sessions))
            late = asyncio.run(delays_ms(port, args.streams))
    p99 = late[int(len(late) * 0.99)]
    fine &= kb < 40 and p99 < 50
    lines += ["", "| what | figure | limit | |", "| --- | --- | --- | --- |"]
    lines.append(
        f"| memory of an idle session with an open stream ({args.sessions} of them), KB | {kb:.1f} | 40 | {'pass' if kb < 40 else 'FAIL'} |"
    )
    lines.append(
        f"| delay of progress on {args.streams} streams at once, p99 ms | {p99:.1f} | 50 | {'pass' if p99 < 50 else 'FAIL'} |"
    )
    return "\n".join(lines), fine


MARK, NEXT = "<!-- eras -->", "<!-- hygiene -->"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--serve")
    parser.add_argument("--started")
    args = parser.parse_args()
    if args.serve:
        return asyncio.run(serve_http(args.serve))
    if args.started:
        return serve_stdio(args.started)
    files = min(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    table, fine = measured(args)
    print(table)
    if args.write:
        page = HERE / "RESULTS.md"
        above, _, below = page.read_text().partition(MARK)
        _, mark, kept = below.partition(NEXT)
        title = "## Older clients, started servers, open streams"
        page.write_text(
            f"{above.rstrip()}\n\n{MARK}\n\n{title}\n\n{table}\n{f'{chr(10)}{mark}{kept}' if mark else ''}"
        )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

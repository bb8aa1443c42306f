"""What idle clients of a running gateway cost its server: one stream, however many there are of one caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from tests.fakes.processes import bearer, gateway

MODERN, LEGACY = "2026-07-28", "2025-11-25"
MANY = 40
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
CHANGED = "notifications/tools/list_changed"
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Server:
    """A modern server that lets clients listen, and says when its tools change."""

    def __init__(self) -> None:
        self.open: dict[asyncio.StreamWriter, object] = {}
        self.most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                message = json.loads(await body_of(reader))
                if message["method"] == "subscriptions/listen":
                    await self._listened(reader, writer, message)
                    return
                result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
                if message["method"] == "server/discover":
                    tools = {"tools": {"listChanged": True}}
                    result = {**result, "supportedVersions": [MODERN], "capabilities": tools}
                else:
                    result["tools"] = []
                data = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(head % len(data) + data)
        writer.close()

    async def _listened(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: dict[str, Any]
    ) -> None:
        writer.write(SSE)
        self.open[writer] = message["id"]
        self.most = max(self.most, len(self.open))
        asked = message["params"]["notifications"]
        say(writer, message["id"], "notifications/subscriptions/acknowledged", notifications=asked)
        await reader.read()  # until it is closed
        del self.open[writer]
        writer.close()

    def change(self) -> None:
        for writer, request_id in self.open.items():
            say(writer, request_id, CHANGED)


def say(writer: asyncio.StreamWriter, request_id: object, method: str, **params: Any) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": {SUBSCRIPTION: request_id}}}
    data = b"data: " + json.dumps(message).encode() + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def body_of(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    return await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))


class Client:
    """One connection to the gateway."""

    def __init__(self, port: int, who: str) -> None:
        self._port, self._who = port, who
        self._writer: asyncio.StreamWriter

    async def send(self, method: str, message: Any = None, **headers: str) -> asyncio.StreamReader:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        data = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
        lines = {
            "Host": f"127.0.0.1:{self._port}",
            "Authorization": f"Bearer {bearer(self._who)}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._writer.write(f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + data)
        return reader

    async def listens(self, request_id: int) -> asyncio.StreamReader:
        """Listen as a client of the newer revision, and return once it is acknowledged."""
        envelope = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"notifications": {"toolsListChanged": True}, "_meta": envelope}
        asked = {"id": request_id, "method": "subscriptions/listen", "params": params}
        reader = await self.send(
            "POST", asked, MCP_Protocol_Version=MODERN, Mcp_Method="subscriptions/listen"
        )
        await until(reader, b"subscriptions/acknowledged")
        return reader

    async def opens(self) -> asyncio.StreamReader:
        """Open a session of an older revision and its stream."""
        params = {
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "idle", "version": "1"},
        }
        reader = await self.send("POST", {"id": 1, "method": "initialize", "params": params})
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        session = head.split("mcp-session-id:")[1].split("\r\n")[0].strip()
        self.leaves()
        reader = await self.send("GET", Mcp_Session_Id=session)
        await until(reader, b"\r\n\r\n")
        return reader

    def leaves(self) -> None:
        self._writer.close()


async def until(reader: asyncio.StreamReader, sight: bytes) -> None:
    async with asyncio.timeout(30):
        await reader.readuntil(sight)


async def idle(folder: Path) -> None:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    opened = gateway(folder, upstream, "--front", "dual", name="airlock")
    running = await asyncio.to_thread(opened.__enter__)
    try:
        clients = [Client(running.port, who) for who in ("alice", "bob") for _ in range(MANY)]
        readers = await asyncio.gather(*(client.listens(n) for n, client in enumerate(clients)))
        assert (len(server.open), server.most) == (2, 2)
        older = [Client(running.port, "alice") for _ in range(MANY)]
        readers += await asyncio.gather(*(client.opens() for client in older))
        async with asyncio.timeout(30):
            while len(server.open) < 3:
                await asyncio.sleep(0.01)
        server.change()
        await asyncio.gather(*(until(reader, b"tools/list_changed") for reader in readers))
        assert server.most == 3
        for client in clients:
            client.leaves()
        async with asyncio.timeout(30):
            while len(server.open) > 1:
                await asyncio.sleep(0.01)
        for client in older:
            client.leaves()
        assert await asyncio.to_thread(running.stop) == 0
        async with asyncio.timeout(30):
            while server.open:
                await asyncio.sleep(0.01)
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)
        listening.close()


def test_idle_clients_of_one_caller_cost_the_server_one_stream_in_each_era(tmp_path: Path) -> None:
    asyncio.run(idle(tmp_path))

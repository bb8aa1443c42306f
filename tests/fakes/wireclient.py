"""A client that writes requests by hand over a socket of its own, in either era, and can leave in the middle.

door = Door(port)
alice = door.as_("alice")
got = await alice.post(modern("tools/list"))
async with alice.posting(modern("tools/call", name="hang", arguments={})) as line: ...   # leaves at the end
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.fakes.processes import REVISION, bearer

__all__ = ["Door", "Got", "Line", "Session", "modern"]

_BOTH = "application/json, text/event-stream"
_META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Got(msgspec.Struct, frozen=True):
    """One whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The message of the answer: of a stream, the last one."""
        if self.headers.get("content-type") != "text/event-stream":
            return json.loads(self.body)
        data = [
            line.removeprefix(b"data: ") for line in self.body.splitlines() if line.startswith(b"data: {")
        ]
        return json.loads(data[-1])

    @property
    def error(self) -> tuple[int, Any, Any]:
        """Status, code, and id of a refusal."""
        return self.status, self.json["error"]["code"], self.json["id"]


class Line:
    """One connection on which a request was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def head(self) -> tuple[int, dict[str, str]]:
        """The status and the header lines."""
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
        named = (line.partition(":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in named}

    async def event(self) -> Any:
        """The next message on a stream."""
        while True:
            line = await self._reader.readuntil(b"\n")
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))

    async def whole(self) -> Got:
        """The answer, to its end."""
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            return Got(status, headers, await self._reader.readuntil(b"0\r\n\r\n"))
        length = headers.get("content-length")
        body = await (self._reader.read() if length is None else self._reader.readexactly(int(length)))
        return Got(status, headers, body)

    def leave(self) -> None:
        """Close the connection."""
        self._writer.close()


class Door:
    """The endpoint on `port`, for one caller; `token` None: for nobody."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self._port, self._token = port, token

    def as_(self, principal: str) -> Door:
        """The same door for somebody."""
        return Door(self._port, bearer(principal))

    @asynccontextmanager
    async def asking(
        self, method: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None
    ) -> AsyncIterator[Line]:
        """Send a request; the connection is closed at the end of the block. A header that is None is left out."""
        named: dict[str, str | None] = {
            "host": f"127.0.0.1:{self._port}",
            "accept": _BOTH,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "authorization": None if self._token is None else f"Bearer {self._token}",
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value is not None)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        line = Line(reader, writer)
        try:
            writer.write(f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            yield line
        finally:
            line.leave()

    async def ask(
        self, method: str, body: bytes = b"", headers: Mapping[str, str | None] | None = None
    ) -> Got:
        """Send a request and return its answer."""
        async with self.asking(method, body, headers) as line:
            return await line.whole()

    def posting(self, message: Any, headers: Mapping[str, str | None] | None = None) -> Any:
        """POST a message, with the headers that its era wants."""
        return self.asking("POST", json.dumps(message).encode(), {**routing(message), **(headers or {})})

    async def post(self, message: Any, headers: Mapping[str, str | None] | None = None) -> Got:
        """POST a message and return the answer."""
        async with self.posting(message, headers) as line:
            got: Got = await line.whole()
        return got

    async def open(self, version: str = "2025-11-25") -> Session:
        """Open a session of the older era."""
        client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        got = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client})
        assert got.json["result"]["protocolVersion"] == version, got
        session = Session(self, got.headers["mcp-session-id"], version)
        told = await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert told.status == 202
        return session


class Session:
    """A session of the older era, at the door of whoever uses it."""

    def __init__(self, door: Door, session_id: str, version: str) -> None:
        self._door = door
        self.headers = {"mcp-session-id": session_id, "mcp-protocol-version": version}

    def at(self, door: Door) -> Session:
        """The same session id in the hands of somebody else."""
        return Session(door, self.headers["mcp-session-id"], self.headers["mcp-protocol-version"])

    def posting(self, message: Any) -> Any:
        return self._door.posting(message, self.headers)

    async def post(self, message: Any) -> Got:
        return await self._door.post(message, self.headers)

    async def ask(self, method: str) -> Got:
        """Send a GET or a DELETE and return its answer, which must be no stream."""
        return await self._door.ask(method, headers=self.headers)


def modern(method: str, *, request_id: Any = 1, **params: Any) -> dict[str, Any]:
    """A request of revision 2026-07-28."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": _META}}


def routing(message: Any) -> dict[str, str | None]:
    """The headers that go with a message which has a modern envelope."""
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict) or "_meta" not in params:
        return {}
    return {
        "mcp-protocol-version": REVISION,
        "mcp-method": message["method"],
        "mcp-name": params.get("name"),
    }

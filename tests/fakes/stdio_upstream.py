"""An upstream over the fake stdio server, requests for it, and an ear for what it says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from airlock.edge.child import Command, minimal_environment
from airlock.gateway import body
from airlock.gateway.upstream.port import Outgoing
from airlock.gateway.upstream.stdio import StdioLimits, StdioUpstream
from tests.fakes import stdio_server

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Ear:
    """Collects notifications, and waits for them."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self._changed = asyncio.Event()

    def notify(self, message: dict[str, object]) -> None:
        self.heard.append(message)
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


def outgoing(method: str, params: dict[str, Any], *, id_: object = 7, **meta: Any) -> Outgoing:
    whole = {**params, "_meta": {**META, **meta}}
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": whole}
    return Outgoing(id_, b"", body.encode(message), method, whole, "alice")


def call(name: str, arguments: dict[str, Any] | None = None, *, id_: object = 7, **meta: Any) -> Outgoing:
    return outgoing("tools/call", {"name": name, "arguments": arguments or {}}, id_=id_, **meta)


def raw(*lines: str, id_: object = 7, then_done: bool = False, **meta: Any) -> Outgoing:
    return call("raw", {"lines": list(lines), "then_done": then_done}, id_=id_, **meta)


@asynccontextmanager
async def stdio_upstream(
    *flags: str, argv: tuple[str, ...] | None = None, said: list[str] | None = None, **limits: Any
) -> AsyncIterator[StdioUpstream]:
    upstream = StdioUpstream(
        Command(argv or stdio_server.command(*flags), minimal_environment(os.environ)),
        (said if said is not None else []).append,
        limits=StdioLimits(**limits),
        target="stdio:fake",
    )
    try:
        yield upstream
    finally:
        await upstream.close()


async def seen(upstream: StdioUpstream) -> list[Any]:
    """Every message that the server received."""
    answer = await upstream.ask(call("messages"))
    assert answer.result is not None
    received = answer.result["seen"]
    assert isinstance(received, list)
    return received


async def received(upstream: StdioUpstream, count: int) -> list[Any]:
    """The same, once there are `count` of them without the questions of this function."""
    async with asyncio.timeout(30):
        while True:
            messages = [m for m in await seen(upstream) if m.get("params", {}).get("name") != "messages"]
            if len(messages) >= count:
                return messages

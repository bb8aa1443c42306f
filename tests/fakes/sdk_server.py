"""The Python SDK's own server, of both eras, in the test's process.

    async with sdk_server() as url: ...              # streamable HTTP
    async with sdk_server(sse=True) as url: ...      # HTTP+SSE of 2024-11-05

Tools: `add` (a, b); `ask`, which asks its client for a colour while it runs; `place`, whose argument `region` wants
to be repeated in a header.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field

__all__ = ["sdk_server"]


class Colour(BaseModel):
    """What `ask` asks for."""

    colour: str


def _server() -> MCPServer:
    server = MCPServer("sdk", log_level="CRITICAL")
    # The server sets up the root logger for itself.
    logging.getLogger().handlers.clear()

    @server.tool()
    def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool()
    async def ask(ctx: Context) -> str:
        said = await ctx.elicit("Which colour?", schema=Colour)
        return said.data.colour if said.action == "accept" else said.action

    @server.tool()
    def place(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], size: int = 1
    ) -> str:
        return f"{region}:{size}"

    return server


@asynccontextmanager
async def sdk_server(*, sse: bool = False) -> AsyncIterator[str]:
    """Run it on a free port of loopback, and yield the address."""
    server = _server()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        app = server.sse_app() if sse else server.streamable_http_app()
    sock = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(
        uvicorn.Config(app, log_config=None, log_level="critical", ws="none", timeout_graceful_shutdown=1)
    )
    running.config.setup_event_loop = lambda: None  # type: ignore[method-assign]
    task = asyncio.create_task(running._serve(sockets=[sock]))
    while not running.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/{'sse' if sse else 'mcp'}"
    finally:
        running.should_exit = True
        await task
        sock.close()

"""The conformance server: `material` and `content` over streamable HTTP on loopback, in both eras or in one of them.

It knows the transport and how each era is refused where only the other is spoken; it must not know what a tool does.
Run as `python -m tests.conformance.server --port P [--era dual|legacy|modern]`; it prints `ready PORT` when it listens.
"""

from __future__ import annotations

import argparse
import json
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, get_args

import mcp_types as types
import uvicorn
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.conformance.asking import Call, NotYet, ToolFailed
from tests.conformance.content import RESOURCES, TEMPLATES, completions, read
from tests.conformance.material import CHANGES, PROMPTS, TOOLS

__all__ = ["LegacyOnly", "ModernOnly", "make_server"]

Context = ServerRequestContext[Any, Any]
Handler = Callable[[Context, Any], Awaitable[dict[str, Any]]]
MODERN: Final = "2026-07-28"
SESSIONS: Final = 256
"""LIMIT: how many legacy sessions hear of a changed list; the oldest are forgotten."""


class DualServer(Server[dict[str, Any]]):
    """The SDK's server; its handshake announces the list changes that it sends."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        announced = notification_options or NotificationOptions(prompts_changed=True, tools_changed=True)
        return super().create_initialization_options(announced, experimental_capabilities, extensions)


class Handlers:
    """The methods of the protocol, over the tables of `material`."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.sessions: deque[ServerSession] = deque(maxlen=SESSIONS)

    async def opened(self, ctx: Context, params: Any) -> None:
        self.sessions.append(ctx.session)

    async def done(self, ctx: Context, params: Any) -> dict[str, Any]:
        return {}

    async def list_tools(self, ctx: Context, params: Any) -> dict[str, Any]:
        rows = TOOLS.items()
        return {
            "tools": [{"name": n, "description": t.description, "inputSchema": t.schema} for n, t in rows]
        }

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        found = TOOLS.get(params.name)
        if found is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {params.name}")
        try:
            content = await found.run(Call(ctx, params.name, params.arguments or {}))
        except NotYet as asking:
            return asking.result
        except ToolFailed as failed:
            return {"content": [{"type": "text", "text": str(failed)}], "isError": True}
        if params.name in CHANGES:
            await self.changed(CHANGES[params.name])
        return {"content": content, "isError": False}

    async def changed(self, kind: str) -> None:
        """Tell every modern listener and every open legacy session that a list changed."""
        await self.bus.publish(ToolsListChanged() if kind == "tools" else PromptsListChanged())
        for session in list(self.sessions):
            if kind == "tools":
                await session.send_tool_list_changed()
            else:
                await session.send_prompt_list_changed()

    async def list_prompts(self, ctx: Context, params: Any) -> dict[str, Any]:
        rows = []
        for name, one in PROMPTS.items():
            arguments = [{"name": a, "description": f"the {a}", "required": True} for a in one.arguments]
            rows.append({"name": name, "description": one.description, "arguments": arguments})
        return {"prompts": rows}

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> dict[str, Any]:
        found = PROMPTS.get(params.name)
        if found is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no prompt {params.name}")
        try:
            return {"messages": await found.run(Call(ctx, params.name, params.arguments or {}))}
        except NotYet as asking:
            return asking.result

    async def list_resources(self, ctx: Context, params: Any) -> dict[str, Any]:
        rows = []
        for uri, held in RESOURCES.items():
            name = uri.removeprefix("test://")
            rows.append(
                {"uri": uri, "name": name, "description": f"the {name}", "mimeType": held["mimeType"]}
            )
        return {"resources": rows}

    async def list_templates(self, ctx: Context, params: Any) -> dict[str, Any]:
        rows = TEMPLATES.items()
        made = [
            {"uriTemplate": u, "name": "data", "description": "data by id", "mimeType": m} for u, m in rows
        ]
        return {"resourceTemplates": made}

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        held = read(params.uri)
        if held is None:
            code = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else -32002
            raise MCPError(code=code, message="Resource not found", data={"uri": params.uri})
        return {"contents": [held]}

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
        values = completions(params.argument.name, params.argument.value)
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}


def finished(handler: Handler) -> Handler:
    """The handler, with the mark of a complete result that the modern revision wants."""

    async def marked(ctx: Context, params: Any) -> dict[str, Any]:
        result = await handler(ctx, params)
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        return {"resultType": "complete", **result} if modern else result

    return marked


def make_server() -> DualServer:
    """The server with all its handlers, both eras."""
    handlers = Handlers()
    cached: dict[CacheableMethod, CacheHint] = {
        method: CacheHint(ttl_ms=1000, scope="public") for method in get_args(CacheableMethod)
    }
    server = DualServer(
        "airlock-conformance",
        version="1",
        cache_hints=cached,
        on_subscriptions_listen=ListenHandler(handlers.bus),
    )
    served: tuple[tuple[str, type[Any], Handler], ...] = (
        ("tools/list", types.PaginatedRequestParams, handlers.list_tools),
        ("tools/call", types.CallToolRequestParams, handlers.call_tool),
        ("prompts/list", types.PaginatedRequestParams, handlers.list_prompts),
        ("prompts/get", types.GetPromptRequestParams, handlers.get_prompt),
        ("resources/list", types.PaginatedRequestParams, handlers.list_resources),
        ("resources/templates/list", types.PaginatedRequestParams, handlers.list_templates),
        ("resources/read", types.ReadResourceRequestParams, handlers.read_resource),
        ("resources/subscribe", types.SubscribeRequestParams, handlers.done),
        ("resources/unsubscribe", types.UnsubscribeRequestParams, handlers.done),
        ("logging/setLevel", types.SetLevelRequestParams, handlers.done),
        ("completion/complete", types.CompleteRequestParams, handlers.complete),
    )
    for method, kind, handler in served:
        server.add_request_handler(method, kind, finished(handler))
    server.add_notification_handler("notifications/initialized", types.NotificationParams, handlers.opened)
    return server


class LegacyOnly:
    """In front of the dual application: whatever names the modern revision meets a server that never heard of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = Request(scope).headers.get("mcp-protocol-version") if scope["type"] == "http" else None
        if named is None or named < MODERN:
            await self._app(scope, receive, send)
            return
        error = {"code": types.INVALID_REQUEST, "message": "Bad Request: Unsupported protocol version"}
        await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)


class ModernOnly:
    """In front of the dual application: the handshake and everything that follows it is refused with -32022."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive) if scope["type"] == "http" else None
        if request is None or request.headers.get("mcp-protocol-version", "") >= MODERN:
            await self._app(scope, receive, send)
            return
        answer: Response = PlainTextResponse("Method Not Allowed", 405, {"allow": "POST"})
        if request.method == "POST":
            body = json.loads(await request.body())
            asked = body.get("params", {}).get(
                "protocolVersion", request.headers.get("mcp-protocol-version", "")
            )
            error = {
                "code": types.UNSUPPORTED_PROTOCOL_VERSION,
                "message": "Unsupported protocol version",
                "data": {"supported": [MODERN], "requested": asked},
            }
            answer = JSONResponse({"jsonrpc": "2.0", "id": body.get("id"), "error": error}, 400)
        await answer(scope, receive, send)


def main() -> None:
    parser = argparse.ArgumentParser(description="the MCP server that the conformance suite is run against")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--era", choices=["dual", "legacy", "modern"], default="dual")
    options = parser.parse_args()
    app: ASGIApp = make_server().streamable_http_app(host="127.0.0.1")
    if options.era != "dual":
        app = LegacyOnly(app) if options.era == "legacy" else ModernOnly(app)
    listening = socket.create_server(("127.0.0.1", options.port))
    print(f"ready {listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, http="h11", log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()

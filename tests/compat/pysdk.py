"""The Python SDK's client in each of its ways to open, with a person who answers; and one play with all it can do.

It knows the SDK; it must not know what is behind the address. `tssdk.mjs` plays the same.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import mcp
from httpx2 import AsyncClient, Request
from mcp import types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

__all__ = ["LEGACY", "MODERN", "Person", "connected", "play", "rule", "text"]

MODERN: Final = "2026-07-28"
LEGACY: Final = "legacy"
_TIMEOUT_S: Final = 60
_RULE: Final = "io.mcp-airlock/rule_id"


class Person:
    """Answers every form the same way and remembers the questions. `action`: accept, decline or cancel."""

    def __init__(self, action: Any = "accept", **content: Any) -> None:
        self.action, self.content = action, content or {"confirm": True}
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        content = self.content if self.action == "accept" else None
        return types.ElicitResult(action=self.action, content=content)


@contextlib.asynccontextmanager
async def connected(
    url: str,
    mode: Any,
    principal: str = "alice",
    person: Person | None = None,
    sent: list[Request] | None = None,
) -> AsyncIterator[mcp.Client]:
    """A client that has opened; `mode` is what the SDK calls it: auto, legacy, or a revision.

    `sent` gets the requests that it makes.
    """

    async def note(request: Request) -> None:
        if sent is not None:
            sent.append(request)

    async with (
        AsyncClient(
            headers={"X-Airlock-Principal": principal}, timeout=_TIMEOUT_S, event_hooks={"request": [note]}
        ) as http,
        mcp.Client(
            streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=person
        ) as client,
    ):
        yield client


def text(result: types.CallToolResult) -> str:
    """All the text of a result."""
    return "\n".join(getattr(block, "text", "") for block in result.content)


def rule(result: types.CallToolResult) -> str:
    """The rule id that the gateway gave."""
    meta = result.model_dump(by_alias=True)["_meta"] or {}
    return str(meta.get(_RULE, ""))


async def play(url: str, mode: str, label: str, careful: str | None) -> dict[str, Any]:
    """Do everything at `url` and tell what happened; `careful` is who is asked before a call, None: nobody is."""
    try:
        facts = await _freely(url, mode, label)
    except (BaseExceptionGroup, MCPError, RuntimeError) as refused:
        return {"opened": "", "error": str(_first(refused))}
    if careful is not None:
        facts |= await _carefully(url, mode, label, careful)
    return facts


async def _freely(url: str, mode: str, label: str) -> dict[str, Any]:
    person = Person(name="ada")
    async with connected(url, mode, person=person) as client:
        facts: dict[str, Any] = {"opened": client.protocol_version}
        facts["lists"] = "change" in [tool.name for tool in (await client.list_tools()).tools]
        facts["calls"] = text(await client.call_tool("change", {"label": label})) == "changed"

        async def go_on(progress: float, total: float | None, message: str | None) -> None:
            await client.call_tool("go_on", {"label": label})

        paced = await client.call_tool("paced", {"label": label}, progress_callback=go_on)
        facts["progress"] = text(paced) == "went on"
        try:
            asked = await client.call_tool("ask", {"label": label})
            facts["asks"] = text(asked) == "hello ada"
        except MCPError as error:
            facts["asks"], facts["asks_error"] = False, str(error)
        with anyio.CancelScope() as scope:

            async def leave(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            await client.call_tool("endless", {"label": label}, progress_callback=leave)
        facts["cancels"] = text(await client.call_tool("ended", {"label": label})) == "cancelled"
        try:
            refused = await client.call_tool("test_simple_text", {})
            facts["refused"] = rule(refused) if refused.is_error else ""
        except MCPError as error:
            facts["refused"] = str(error)
    return facts


async def _carefully(url: str, mode: str, label: str, careful: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for word, person in (("yes", Person()), ("no", Person("decline"))):
        sent: list[Request] = []
        async with connected(url, mode, careful, person, sent) as client:
            held = await client.call_tool("change", {"label": f"{label}-{word}"})
            facts[f"held_{word}"] = rule(held)
            if word == "yes":
                facts["replay"] = await _again(sent)
    return facts


async def _again(sent: list[Request]) -> str:
    """Send the person's yes once more: the rule that refused it, or the status of an answer without one."""
    (last,) = [request for request in sent if b'"action":' in request.content]
    message = json.loads(last.content)
    if "method" in message:
        message["id"] = "again"
    headers = {name: value for name, value in last.headers.items() if name != "content-length"}
    async with AsyncClient(timeout=_TIMEOUT_S) as http:
        answer = await http.post(str(last.url), content=json.dumps(message).encode(), headers=headers)
    if "method" not in message:
        return str(answer.status_code)
    return str(answer.json()["result"]["_meta"][_RULE])


def _first(error: BaseException) -> BaseException:
    found = error
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found

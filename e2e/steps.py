"""What the drivers share: an agent with the official SDK client, named steps, and checks that end the run.

Run inside a stack. Addresses and keys come from the environment that the compose file sets.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import mcp
from httpx2 import AsyncClient
from mcp import types
from mcp.client.streamable_http import streamable_http_client

REVISION = "2026-07-28"
PREFIX = "io.mcp-airlock/"
WAIT_S = 60.0
YES: Any = {"airlock-confirm": types.ElicitResult(action="accept", content={"confirm": True})}
NO: Any = {"airlock-confirm": types.ElicitResult(action="decline")}
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def say(text: str) -> None:
    """One line of the run's log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def step(title: str) -> None:
    """Begin a step."""
    say(f"\n-- {title}")


def check(holds: bool, what: str, seen: object = "") -> None:
    """End the run unless `what` holds."""
    if not holds:
        say(f"   DIFFERS  {what}: {seen}")
        os._exit(1)  # at once: an exception would come out of the client's tasks as a page of its own
    say(f"   ok  {what}")


def token(principal: str) -> str:
    """An HS256 bearer token, good for an hour."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"sub": principal, "exp": int(time.time()) + 3600}
    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = f"{head}.{part(json.dumps(claims).encode())}"
    key = os.environ["E2E_JWT_SECRET"].encode()
    return f"{body}.{part(hmac.digest(key, body.encode(), hashlib.sha256))}"


@contextlib.asynccontextmanager
async def agent(url: str, principal: str = "alice") -> AsyncIterator[Any]:
    """A session of the SDK client with the gateway at `url`."""
    async with AsyncClient(headers={"Authorization": f"Bearer {token(principal)}"}, timeout=90) as http:
        transport = streamable_http_client(url, http_client=http)
        async with mcp.Client(transport, mode=REVISION) as client:
            yield client


async def call(client: Any, tool: str, arguments: dict[str, Any], **more: Any) -> Any:
    """One `tools/call`; a question comes back as a result too, instead of being answered."""
    return await client.session.call_tool(tool, arguments, allow_input_required=True, **more)


def ours(result: Any) -> dict[str, Any]:
    """The gateway's own keys of a result's `_meta`."""
    meta: dict[str, Any] = result.model_dump(by_alias=True).get("_meta") or {}
    return {key.removeprefix(PREFIX): value for key, value in meta.items() if key.startswith(PREFIX)}


def rule(result: Any) -> str:
    """The rule that decided."""
    found: str = ours(result)["rule_id"]
    return found


def asked(result: Any) -> str:
    """The question of a result that waits for a person."""
    check(result.result_type == "input_required", "the call waits for a person", result)
    return str(result.model_dump(by_alias=True))


def text(result: Any) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def fetch(
    url: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """One HTTP request; status, and the JSON (or text) of the answer."""
    data = None if body is None else json.dumps(body).encode()
    head = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data, head, method=method)  # noqa: S310
    try:
        with opener.open(request, timeout=30) as answer:
            status, raw = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, raw = error.code, error.read()
    try:
        return status, json.loads(raw)
    except ValueError:
        return status, raw.decode(errors="replace")


async def until(what: str, holds: Callable[[], Awaitable[Any]], seconds: float = WAIT_S) -> Any:
    """Ask again and again until the answer is true; end the run when that takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        found = await holds()
        if found:
            return found
        check(time.monotonic() < deadline, what, found)
        await asyncio.sleep(0.2)


async def first_read(client: Any, tool: str, arguments: dict[str, Any]) -> Any:
    """A read, tried until the server behind the gateway has started."""

    async def answered() -> Any:
        result = await call(client, tool, arguments)
        return None if rule(result) == "upstream.unreachable" else result

    return await until("the server behind the gateway answers", answered)

"""Servers behind `ManyUpstreams`, in memory: each answers by method from a script and keeps what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant
from airlock.edge.httpanswer import Reply
from airlock.gateway.upstream.many import Member
from airlock.gateway.upstream.port import Answer, Era, Heard, Outgoing
from airlock.gateway.upstreamsfile import Bounds, Remote, UpstreamSpec

REVISION = "2026-07-28"
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
LISTED = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}

Script = Callable[[Outgoing], Any]


def unreachable(cause: str = "connection refused", *, reached: bool = False) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=reached)


def result(value: dict[str, Any], status: int = 200) -> Script:
    """Answer with this result under the request's own id."""

    def script(sent: Outgoing) -> Answer:
        whole = {"resultType": "complete", **value}
        return Answer(status, {"jsonrpc": "2.0", "id": sent.id, "result": whole}, whole)

    return script


def error(code: int, status: int = 200) -> Script:
    return lambda sent: Answer(
        status, {"jsonrpc": "2.0", "id": sent.id, "error": {"code": code, "message": "no"}}, None
    )


def listing(method: str, *items: Any, **more: Any) -> Script:
    return result({LISTED[method]: list(items), "ttlMs": 1000, "cacheScope": "public", **more})


class FakeMember:
    """One server. `scripts` maps a method to what answers it: an Answer, an exception, or an awaitable of either."""

    def __init__(self, name: str, **scripts: Script) -> None:
        self.name = name
        self.sent: list[Outgoing] = []
        self.abandoned: list[object] = []
        self.closed = False
        self.scripts: dict[str, Script] = {method: listing(method) for method in LISTED} | {
            method.replace("_", "/"): script for method, script in scripts.items()
        }
        self.heard: list[Heard | None] = []
        self.listens: list[Listen] = []
        self.came = asyncio.Event()

    async def _answer(self, outgoing: Outgoing) -> Answer:
        self.sent.append(outgoing)
        script = self.scripts.get(outgoing.method, error(-32601, 404))
        answer = script(outgoing)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Answer)
        return answer

    async def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Answer:
        grant.spend()
        return await self.ask(outgoing, exact=exact, heard=heard)

    async def ask(self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None) -> Answer:
        self.heard.append(heard)
        return await self._answer(outgoing)

    async def send(self, outgoing: Outgoing) -> Reply:
        answer = await self._answer(outgoing)
        return Reply(answer.status, "application/json", json.dumps(answer.message).encode())

    async def listen(self, outgoing: Outgoing, heard: Heard) -> Answer:
        listen = Listen(outgoing, heard)
        self.listens.append(listen)
        self.came.set()
        answer: Answer = await listen.ended
        return answer

    def target(self, name: str | None) -> str:
        return f"{self.name}:{name}"

    def abandon(self, state: object) -> None:
        self.abandoned.append(state)

    async def close(self) -> None:
        self.closed = True


class Listen:
    """One subscription at a fake server: the test speaks as the server and ends it."""

    def __init__(self, outgoing: Outgoing, heard: Heard) -> None:
        self.outgoing = outgoing
        self.heard = heard
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def asked(self) -> dict[str, Any]:
        asked: Any = self.outgoing.params["notifications"]
        assert isinstance(asked, dict)
        return asked

    def say(self, method: str, **params: Any) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": self.outgoing.id}
        self.heard.notify(
            {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {**params, "_meta": meta}}
        )

    def acknowledge(self, **honoured: Any) -> None:
        self.say("subscriptions/acknowledged", notifications=honoured or self.asked)

    def end(self, answer: Answer | Exception) -> None:
        if isinstance(answer, Exception):
            self.ended.set_exception(answer)
        else:
            self.ended.set_result(answer)


def member(fake: FakeMember, prefix: str | None = None, **limits: Any) -> Member:
    at = Remote(f"http://{fake.name}.example/mcp")
    bounds = Bounds(**limits)
    prefix = fake.name if prefix is None else prefix
    return Member(UpstreamSpec(name=fake.name, prefix=prefix, at=at, limits=bounds), fake)


def outgoing(method: str, request_id: object = 7, principal: str = "alice", **params: Any) -> Outgoing:
    """A request as `gateway.outgoing` makes it."""
    meta = {**ENVELOPE, **params.pop("meta", {})}
    whole = {**params, "_meta": meta}
    named = params.get("name", params.get("uri"))
    headers = (
        f"content-type: application/json\r\nmcp-protocol-version: {REVISION}\r\nmcp-method: {method}\r\n"
    )
    if isinstance(named, str) and named.isascii():
        headers += f"mcp-name: {named}\r\nmcp-param-Region: north\r\n"
    headers += "traceparent: 00-1-2-01\r\n"
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": whole}
    return Outgoing(
        request_id, headers.encode(), json.dumps(message).encode(), method, whole, principal, Era.MODERN
    )


def headers_of(sent: Outgoing) -> dict[str, str]:
    lines = [line.partition(b": ") for line in sent.headers.split(b"\r\n") if line]
    found = {name.decode().lower(): value.decode() for name, _, value in lines}
    assert len(found) == len(lines), "a header stands twice"
    return found


def body_of(sent: Outgoing) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(sent.body)
    assert message["id"] == sent.id
    assert message["method"] == sent.method == headers_of(sent)["mcp-method"]
    assert message["params"] == sent.params
    return message

"""An upstream behind the port, scripted: what it was asked, what it answers, and subscriptions that a test holds.

Also makes the admitted requests that fronts make, and keeps what a client hears.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from airlock.core.grant import Grant
from airlock.core.principal import Principal
from airlock.edge.headers import Headers
from airlock.edge.httpanswer import Reply
from airlock.edge.trace import Trace
from airlock.gateway.modern.admission import REVISION, Request
from airlock.gateway.upstream.port import Answer, Heard, MergedReply, Outgoing

Script = Callable[[Outgoing], "Answer | Exception"]

ALICE = Principal("alice")
TRACE = Trace("a" * 32, "b" * 16, None, f"00-{'a' * 32}-{'b' * 16}-01")
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def result(value: dict[str, Any], status: int = 200) -> Script:
    """Answer with a complete result under the request's own id."""

    def script(outgoing: Outgoing) -> Answer:
        whole = {"resultType": "complete", **value}
        return Answer(status, {"jsonrpc": "2.0", "id": outgoing.id, "result": whole}, whole)

    return script


def error(code: int, status: int = 200, message: str = "no") -> Script:
    """Answer with a JSON-RPC error."""

    def script(outgoing: Outgoing) -> Answer:
        body = {"jsonrpc": "2.0", "id": outgoing.id, "error": {"code": code, "message": message}}
        return Answer(status, body, None)

    return script


class Subscription:
    """One stream that the gateway opened: a test says what comes on it and how it ends."""

    def __init__(self, outgoing: Outgoing, heard: Heard) -> None:
        self.outgoing = outgoing
        self._heard = heard
        self._end: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.left = False

    @property
    def asked(self) -> dict[str, Any]:
        asked = self.outgoing.params["notifications"]
        assert isinstance(asked, dict)
        return asked

    def says(self, method: str, **params: Any) -> None:
        """Send one notification, tagged with the upstream's own id."""
        params.setdefault("_meta", {SUBSCRIPTION: "the upstream's"})
        self._heard.notify({"jsonrpc": "2.0", "method": "notifications/" + method, "params": params})

    def raw(self, message: dict[str, Any]) -> None:
        """Send one message as it is."""
        self._heard.notify(message)

    def acknowledges(self, **notifications: Any) -> None:
        """Send the acknowledgement; without arguments of all that was asked for."""
        self.says("subscriptions/acknowledged", notifications=notifications or self.asked)

    def ends(self, script: Script | None = None) -> None:
        """End the stream: in order, with an error or with an exception."""
        answer = (script or result({}))(self.outgoing)
        if isinstance(answer, Exception):
            self._end.set_exception(answer)
        else:
            self._end.set_result(answer)

    async def wait(self) -> Answer:
        try:
            return await self._end
        except asyncio.CancelledError:
            self.left = True
            raise


class FakeUpstream:
    """Stands where the upstreams stand. `script` answers requests, `opened` gets each subscription."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.abandoned: list[object] = []
        self.script: Script = result({})
        self.own: dict[str, object] | None = None  # what several upstreams say of a list they made together
        self.before: Callable[[Outgoing, Heard | None], Awaitable[None]] | None = None
        self.opened: asyncio.Queue[Subscription] = asyncio.Queue()

    def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Awaitable[Answer]:
        grant.spend()
        return self.ask(outgoing, exact=exact, heard=heard)

    async def ask(self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None) -> Answer:
        self.sent.append(outgoing)
        if self.before is not None:
            await self.before(outgoing, heard)
        answer = self.script(outgoing)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def send(self, outgoing: Outgoing) -> Reply:
        answer = await self.ask(outgoing)
        encoded = json.dumps(answer.message).encode()
        if self.own is None:
            return Reply(answer.status, "application/json", encoded)
        return MergedReply(answer.status, "application/json", encoded, self.own)

    async def listen(self, outgoing: Outgoing, heard: Heard) -> Answer:
        subscription = Subscription(outgoing, heard)
        self.opened.put_nowait(subscription)
        return await subscription.wait()

    def target(self, name: str | None) -> str:
        return "fake"

    def abandon(self, state: object) -> None:
        self.abandoned.append(state)

    async def close(self) -> None: ...


class Client:
    """What a client hears before its answer. `came` waits until there are so many messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._more = asyncio.Event()

    def notify(self, message: dict[str, object]) -> None:
        self.messages.append(message)
        self._more.set()

    async def came(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(5):
            while len(self.messages) < count:
                self._more.clear()
                await self._more.wait()
        return self.messages

    @property
    def methods(self) -> list[str]:
        return [message["method"].removeprefix("notifications/") for message in self.messages]


def request(
    method: str,
    params: dict[str, Any] | None = None,
    *,
    request_id: object = 7,
    capabilities: object = None,
    heard: Heard | None = None,
) -> Request:
    """Make an admitted request of revision 2026-07-28."""
    meta: dict[str, object] = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {} if capabilities is None else capabilities,
    }
    headers = Headers([(b"mcp-protocol-version", REVISION.encode()), (b"mcp-method", method.encode())])
    whole = {**(params or {}), "_meta": meta}
    return Request(request_id, method, whole, meta, REVISION, None, {}, headers, heard=heard)

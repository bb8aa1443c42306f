"""A whole small server of the older revisions, in memory: a `Dialer` whose lines end in scripted tools.

    server = LegacyServer(tools={"greet": greet})             # async def greet(turn: Turn) -> dict[str, object]
    upstream = LegacyUpstream(server, CountedIds(), version="1", later=time.later)
    ...
    assert server.sessions[0].said("notifications/initialized")

`streams=False` behaves like a process on stdio: a request returns at once and no message says what it belongs to.
`HandTime` stands in for the clock: nothing happens by itself, `advance` fires what is due.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream.legacy import LegacyUpstream
from airlock.gateway.upstream.line import SESSION_GONE, Incoming, Lost
from airlock.gateway.upstream.port import Outgoing

__all__ = [
    "ASKS",
    "FORM",
    "OURS",
    "PEOPLE",
    "CountedIds",
    "HandTime",
    "Heard",
    "LegacyServer",
    "Message",
    "Session",
    "Turn",
    "World",
    "echo",
    "forever",
    "greet",
    "outgoing",
    "settle",
    "text",
    "world",
]

Message = dict[str, Any]

OURS = "io.modelcontextprotocol/"
FORM: Message = {"message": "which?", "requestedSchema": {"type": "object", "properties": {}}}
ASKS: Message = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
PEOPLE: Message = {"elicitation": {}}
"""Capabilities of clients: one that answers every kind of question, and one that shows forms."""


async def settle() -> None:
    """Let everything run that can run now."""
    for _ in range(30):
        await asyncio.sleep(0)


class HandTime:
    """Timers that a test fires."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[_Timer] = []

    def later(self, delay_s: float, then: Callable[[], object]) -> _Timer:
        timer = _Timer(self.now + delay_s, then)
        self._due.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Go forward, firing what comes due in its order."""
        end = self.now + seconds
        while ready := [timer for timer in self._due if timer.live and timer.at <= end]:
            timer = min(ready, key=lambda one: one.at)
            self.now = timer.at
            timer.live = False
            timer.then()
        self._due = [timer for timer in self._due if timer.live]
        self.now = end

    @property
    def waiting(self) -> int:
        """How many timers would still fire."""
        return sum(timer.live for timer in self._due)


class _Timer:
    def __init__(self, at: float, then: Callable[[], object]) -> None:
        self.at, self.then, self.live = at, then, True

    def cancel(self) -> None:
        self.live = False


class CountedIds:
    """Identifiers that count."""

    def __init__(self) -> None:
        self._last = 0

    def hex(self, nbytes: int) -> str:
        self._last += 1
        return f"{self._last:0{2 * nbytes}x}"


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def notify(self, message: dict[str, object]) -> None:
        self.messages.append(message)


class Turn:
    """One request at the server, as a tool sees it."""

    def __init__(self, session: Session, message: Message) -> None:
        self.session = session
        self.message = message
        self.params: Message = message.get("params", {})
        self.arguments: Message = self.params.get("arguments", {})
        self.token = self.params.get("_meta", {}).get("progressToken")

    def say(self, method: str, params: Message, *, on_stream: bool = True) -> None:
        """Send a notification."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.session.push(message, self.message["id"] if on_stream else None)

    async def ask(self, method: str, params: Message | None = None, *, on_stream: bool = True) -> Message:
        """Send a request to the client and wait for its response."""
        return await self.session.ask(method, params, during=self.message["id"] if on_stream else None)


Tool = Callable[[Turn], Awaitable[Message]]


class LegacyServer:
    """Answers the lines it is dialled for. `version` None agrees to whatever is offered."""

    def __init__(
        self,
        tools: dict[str, Tool] | None = None,
        *,
        streams: bool = True,
        version: str | None = None,
        capabilities: Message | None = None,
        methods: dict[str, Tool] | None = None,
    ) -> None:
        self.tools = tools or {}
        self.streams = streams
        self.version = version
        self.capabilities: Message = {"tools": {}} if capabilities is None else capabilities
        self.methods = methods or {}
        self.sessions: list[Session] = []
        self.refusals: list[UpstreamError] = []
        self.opened: Message = {}

    async def dial(self, incoming: Incoming, lost: Lost) -> Session:
        if self.refusals:
            raise self.refusals.pop(0)
        session = Session(self, incoming, lost)
        self.sessions.append(session)
        return session

    async def answer(self, turn: Turn) -> Message:
        method = turn.message["method"]
        if method in self.methods:
            return await self.methods[method](turn)
        match method:
            case "initialize":
                return {
                    "protocolVersion": self.version or turn.params["protocolVersion"],
                    "capabilities": self.capabilities,
                    "serverInfo": {"name": "old", "version": "3"},
                    **self.opened,
                }
            case "tools/list":
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]}
            case "tools/call":
                return await self.tools[turn.params["name"]](turn)
            case _:
                return {}


class Session:
    """One line, with what was said on it in `messages`."""

    def __init__(self, server: LegacyServer, incoming: Incoming, lost: Lost) -> None:
        self.server = server
        self.incoming = incoming
        self.lost = lost
        self.messages: list[Message] = []
        self.version: str | None = None
        self.gone = False
        self.alive = True
        self.closed = False
        self.failing: list[BaseException] = []
        self._asked: dict[object, asyncio.Future[Message]] = {}
        self._last_id = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tells_streams(self) -> bool:
        return self.server.streams

    def opened(self, version: str) -> None:
        self.version = version

    async def request(self, message: dict[str, object]) -> None:
        self.messages.append(message)
        if self.failing:
            raise self.failing.pop(0)
        if self.gone:
            self.lost(SESSION_GONE)
            raise UpstreamError(UpstreamFailure.UNREACHABLE, SESSION_GONE, reached=False, status=404)
        if self.server.streams:
            await self._serve(message)
            return
        task = asyncio.get_running_loop().create_task(self._serve(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def post(self, message: dict[str, object]) -> None:
        self.messages.append(message)
        waiting = self._asked.pop(message.get("id"), None) if "method" not in message else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What a test does and looks at.

    def push(self, message: Message, during: object | None = None) -> None:
        """Send anything, on the stream of request `during` where the transport has streams."""
        self.incoming(message, during if self.server.streams else None)

    async def ask(
        self, method: str, params: Message | None = None, *, during: object | None = None
    ) -> Message:
        self._last_id += 1
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[self._last_id] = waiting
        message: Message = {"jsonrpc": "2.0", "id": self._last_id, "method": method}
        if params is not None:
            message["params"] = params
        self.push(message, during)
        return await waiting

    def end(self, cause: str) -> None:
        """The process or connection ends."""
        for task in list(self._tasks):
            task.cancel()
        self.lost(cause)

    def said(self, method: str) -> list[Message]:
        """What the gateway sent with this method."""
        return [message for message in self.messages if message.get("method") == method]

    def responses(self) -> list[Message]:
        """What the gateway answered the server."""
        return [message for message in self.messages if "method" not in message]

    async def _serve(self, message: Message) -> None:
        answer = await self.server.answer(Turn(self, message))
        kind = "error" if set(answer) == {"error"} else "result"
        self.push({"jsonrpc": "2.0", "id": message["id"], kind: answer.get("error", answer)}, message["id"])


# Below: the server behind a `LegacyUpstream`, as most tests want it.


class World:
    """An upstream, its server, and their time."""

    def __init__(self, server: LegacyServer, **options: Any) -> None:
        self.server = server
        self.time = HandTime()
        self.upstream = LegacyUpstream(
            server, CountedIds(), version="9", target="old", later=self.time.later, **options
        )

    @property
    def session(self) -> Session:
        """The newest."""
        return self.server.sessions[-1]

    async def result(self, request: Outgoing, heard: Heard | None = None) -> Message:
        answer = await self.upstream.ask(request, heard=heard)
        assert answer.status == 200
        assert answer.result is not None
        return answer.result

    async def error(self, request: Outgoing) -> tuple[int, Message]:
        """Return the HTTP status and the error object."""
        answer = await self.upstream.ask(request)
        assert answer.result is None
        error: Any = answer.message["error"]
        return answer.status, error

    def begin(self, request: Outgoing, heard: Heard | None = None) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.upstream.ask(request, heard=heard))


def world(tools: dict[str, Tool] | None = None, *, most: int = 256, **options: Any) -> World:
    """Return a world whose server has these tools; `options` are the server's."""
    return World(LegacyServer(tools or {"echo": echo, "greet": greet}, **options), most=most)


def outgoing(
    method: str = "tools/call",
    *,
    principal: str = "alice",
    client: Message | None = None,
    request_id: object = 7,
    token: object = None,
    level: str | None = None,
    **params: Any,
) -> Outgoing:
    """Return a request as the gateway sends it to an upstream; `client` are the capabilities."""
    meta: Message = {
        OURS + "protocolVersion": "2026-07-28",
        OURS + "clientCapabilities": client or {},
        "io.mcp-airlock/principal": principal,
    }
    if token is not None:
        meta["progressToken"] = token
    if level is not None:
        meta[OURS + "logLevel"] = level
    return Outgoing(request_id, b"", b"", method, {**params, "_meta": meta}, principal)


def text(result: Message) -> Any:
    """Return what a tool wrote as JSON."""
    return json.loads(result["content"][0]["text"])


async def echo(turn: Turn) -> Message:
    """Answer with the arguments."""
    return {"content": [{"type": "text", "text": json.dumps(turn.arguments)}]}


async def greet(turn: Turn) -> Message:
    """Ask a person, and answer with what came back."""
    said = await turn.ask("elicitation/create", FORM)
    return {"content": [{"type": "text", "text": json.dumps(said.get("result", said.get("error")))}]}


async def forever(turn: Turn) -> Message:
    """Do not answer."""
    await asyncio.Event().wait()
    raise AssertionError

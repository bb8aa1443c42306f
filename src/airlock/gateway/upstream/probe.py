"""Finding out what a server speaks, by asking it in the gateway's own name: over HTTP, or in a process made for it.

Knows which question follows which answer; does not know callers, or what becomes of a finding.
SPEC: mcp.md 19 (Back), 21, 26.17.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Final, Protocol

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import jsonrpc, sse
from airlock.core.wire.strict import StrictError
from airlock.edge.httpanswer import Reply
from airlock.edge.httpc import HttpClient
from airlock.gateway import body
from airlock.gateway.modern.admission import REVISION
from airlock.gateway.upstream import bridge
from airlock.gateway.upstream.evidence import Finding, Sign, Wire, envelope, read_discovery
from airlock.gateway.upstream.legacywire import POSTED
from airlock.gateway.upstream.line import Dialer, Line
from airlock.gateway.upstream.port import Era

__all__ = ["HttpProbe", "Probe", "StdioProbe"]

_DISCOVER_ID: Final = 1
_INITIALIZE_ID: Final = 2
_DISCOVERY: Final = "server/discover"
_ROUTING: Final = f"mcp-protocol-version: {REVISION}\r\nmcp-method: {_DISCOVERY}\r\n".encode()
_HTTP_S: Final = 8.0
_STDIO_S: Final = 60.0
_SILENT_S: Final = 3.0
# SPEC: mcp.md 18: these answers to a POST of `initialize` are those of a server of 2024-11-05.
_NO_POST: Final = frozenset({400, 404, 405})
_NOBODY: Final[frozenset[Era]] = frozenset()
_MODERN: Final = Finding(frozenset({Era.MODERN}), _DISCOVERY, REVISION)
_FOREIGN: Final = Finding(_NOBODY, "the server speaks only revisions that are newer than this program")


class Probe(Protocol):
    """Asks one server what it speaks. Never raises: a failure is a finding without eras. Bounded in time."""

    @property
    def legacy_is_cheap(self) -> bool:
        """Whether `legacy` is a matter of two requests, so that it may be tried on the chance that it works."""
        ...

    async def find(self, known: Finding | None) -> Finding:
        """Ask for the modern era first. `known` is an older finding of the legacy era, not proven again."""
        ...

    async def legacy(self) -> Finding:
        """Ask for the legacy era only."""
        ...

    async def close(self) -> None:
        """End what is still going on."""
        ...


class HttpProbe:
    """Asks over HTTP. `fixed_headers` are lines that go with every request, as for `HttpUpstream`.

    `dialers` are the ways to a legacy server, the one to be tried first first; `version` is the program's.
    """

    legacy_is_cheap = True

    def __init__(
        self, client: HttpClient, fixed_headers: bytes, dialers: Mapping[Wire, Dialer], *, version: str
    ) -> None:
        self._client = client
        self._lines = fixed_headers + POSTED + _ROUTING
        self._body = body.encode(_discovery(version))
        self._dialers = dialers
        self._hands = _Hands(version)

    async def find(self, known: Finding | None) -> Finding:
        try:
            async with asyncio.timeout(_HTTP_S):
                reply = await self._client.post(self._lines, self._body)
        except TimeoutError:
            return _nothing("no answer in time")
        except UpstreamError as error:
            if error.status is None or error.kind is UpstreamFailure.UNREACHABLE:
                return _nothing(error.cause)
            # An answer that cannot be read has a status all the same.
            reply = Reply(error.status, "", b"")
        # SPEC: mcp.md 19: neither says anything about the era.
        if reply.status in (401, 403):
            return _nothing(f"HTTP {reply.status}: the server wants other credentials")
        if reply.status >= 500 or 300 <= reply.status < 400:
            return _nothing(f"HTTP {reply.status}")
        response = _response(reply)
        match Sign.OLDER if response is None else read_discovery(response):
            case Sign.MODERN:
                return _MODERN
            case Sign.BOTH:
                return Finding(frozenset(Era), _DISCOVERY, REVISION, next(iter(self._dialers), None))
            case Sign.FOREIGN:
                return _FOREIGN
        return await self.legacy() if known is None else known

    async def legacy(self) -> Finding:
        cause = "the server answers neither server/discover nor initialize"
        for wire, dialer in self._dialers.items():
            try:
                async with asyncio.timeout(_HTTP_S):
                    version = await self._hands.shake(dialer)
            except TimeoutError:
                return _nothing("no answer to initialize in time")
            except UpstreamError as error:
                if error.status in _NO_POST:
                    continue
                return _nothing(f"initialize: {error.cause}")
            return Finding(frozenset({Era.LEGACY}), "initialize", version, wire)
        return _nothing(cause)

    async def close(self) -> None:
        await self._hands.close()


class StdioProbe:
    """Asks in a process that `dialer` starts for the question alone; `version` is the program's."""

    legacy_is_cheap = False

    def __init__(self, dialer: Dialer, *, version: str) -> None:
        self._dialer = dialer
        self._version = version
        self._hands = _Hands(version)

    async def find(self, known: Finding | None) -> Finding:
        try:
            async with asyncio.timeout(_STDIO_S):
                sign = await self._asked()
        except TimeoutError:
            sign = Sign.OLDER
        except UpstreamError as error:
            return _nothing(error.cause)
        match sign:
            case Sign.MODERN:
                return _MODERN
            case Sign.BOTH:
                return Finding(frozenset(Era), _DISCOVERY, REVISION, Wire.STDIO)
            case Sign.FOREIGN:
                return _FOREIGN
        return await self.legacy() if known is None else known

    async def legacy(self) -> Finding:
        try:
            async with asyncio.timeout(_STDIO_S):
                version = await self._hands.shake(self._dialer)
        except TimeoutError:
            return _nothing("no answer to initialize in time")
        except UpstreamError as error:
            return _nothing(f"initialize: {error.cause}")
        return Finding(frozenset({Era.LEGACY}), "initialize", version, Wire.STDIO)

    async def close(self) -> None:
        await self._hands.close()

    async def _asked(self) -> Sign:
        """Ask for the modern era. SPEC: mcp.md 19: on stdio an end of the process and silence are answers too."""
        hearing = _Hearing()
        line = await self._dialer.dial(hearing.incoming, hearing.lost)
        try:
            modern = hearing.ask(line, _discovery(self._version))
            try:
                return read_discovery(await asyncio.wait_for(asyncio.shield(modern), _SILENT_S))
            except TimeoutError:
                pass
            # A server that starts slowly reads this after the first question, and answers that too.
            older = hearing.ask(line, self._hands.greeting)
            await asyncio.wait((modern, older), return_when=asyncio.FIRST_COMPLETED)
            if not modern.done():
                await asyncio.wait((modern,), timeout=_SILENT_S)
            return read_discovery(modern.result()) if modern.done() else Sign.OLDER
        except UpstreamError:
            return Sign.OLDER
        finally:
            hearing.end()
            self._hands.later(line.close())


class _Hands:
    """Shakes hands with legacy servers, and takes leave of them without anybody waiting for it."""

    def __init__(self, version: str) -> None:
        offer: dict[str, object] = {
            "protocolVersion": bridge.LATEST,
            "capabilities": {},
            "clientInfo": {"name": "airlock", "version": version},
        }
        self.greeting: dict[str, object] = {
            "jsonrpc": "2.0",
            "id": _INITIALIZE_ID,
            "method": "initialize",
            "params": offer,
        }
        self._leaving: set[asyncio.Task[None]] = set()

    async def shake(self, dialer: Dialer) -> str:
        """Open a dialogue, end it, and return the revision that the server chose. Raises UpstreamError."""
        hearing = _Hearing()
        line = await dialer.dial(hearing.incoming, hearing.lost)
        try:
            response = await hearing.ask(line, self.greeting)
        finally:
            hearing.end()
            self.later(line.close())
        result = response.get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str) or version not in bridge.VERSIONS:
            raise UpstreamError(UpstreamFailure.BAD_REPLY, "the server refuses it", reached=True)
        return version

    def later(self, leave: Coroutine[object, object, None]) -> None:
        """Run `leave` in the background."""
        task = asyncio.get_running_loop().create_task(leave)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Wait for what is still running."""
        while self._leaving:
            await asyncio.wait(self._leaving)


class _Hearing:
    """What comes on a line that serves only to ask."""

    def __init__(self) -> None:
        self._waiting: dict[object, asyncio.Future[dict[str, object]]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._over: str | None = None

    def ask(self, line: Line, message: dict[str, object]) -> asyncio.Future[dict[str, object]]:
        """Send a request; the future is its response, or the UpstreamError in its place."""
        loop = asyncio.get_running_loop()
        self._waiting[message["id"]] = answer = loop.create_future()
        # Read in any case: an error that nobody waits for any more is no news to the loop.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._over is not None:
            self.lost(self._over)

        async def carry() -> None:
            try:
                await line.request(message)
            except UpstreamError as error:
                if not answer.done():
                    answer.set_exception(error)

        task = loop.create_task(carry())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return answer

    def incoming(self, message: dict[str, object], _during: object) -> None:
        """Take a message of the server."""
        request_id = message.get("id")
        answer = self._waiting.get(request_id) if type(request_id) is int else None
        if answer is not None and not answer.done() and sse.answers(message, request_id):
            answer.set_result(message)

    def lost(self, cause: str) -> None:
        """The line is gone."""
        self._over = cause
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=True))

    def end(self) -> None:
        """Nothing more is waited for."""
        for task in self._asking:
            task.cancel()
        for answer in self._waiting.values():
            answer.cancel()


def _discovery(version: str) -> dict[str, object]:
    params = {"_meta": envelope(version)}
    return {"jsonrpc": "2.0", "id": _DISCOVER_ID, "method": _DISCOVERY, "params": params}


def _response(reply: Reply) -> dict[str, object] | None:
    """Return the response in an answer to the probe; None for what is none."""
    if reply.content_type == "text/event-stream":
        return sse.reduce(reply.body, _DISCOVER_ID, body.decode_answer)
    try:
        answer = body.decode_answer(reply.body, exact=True)
    except StrictError:
        return None
    if not isinstance(answer, dict) or ("result" in answer) == ("error" in answer):
        return None
    # SPEC: mcp.md 5: an error that names no request answers the one that was posted.
    ours = jsonrpc.same_id(answer.get("id"), _DISCOVER_ID)
    return answer if ours or ("error" in answer and answer.get("id") is None) else None


def _nothing(how: str) -> Finding:
    return Finding(_NOBODY, how)

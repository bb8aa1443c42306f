"""Connects as a client would: opens the way it does, then lists the tools. One visit, nothing is left behind.

Knows the wire of both eras over HTTP as far as a first visit goes; does not know clients' files or what to advise.
SPEC: mcp.md 18, 19, 25a, 25g.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from airlock.core.errors import UpstreamError
from airlock.core.redact.patterns import scrub_text
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line
from airlock.core.wire import jsonrpc, sse
from airlock.core.wire.strict import StrictError
from airlock.edge.httpc import ClientLimits, HttpClient, header_line, parse_target
from airlock.edge.httpstream import EVENT_STREAM
from airlock.gateway import body
from airlock.gateway.connect.clients import Endpoint, Opening
from airlock.gateway.modern.admission import REVISION
from airlock.gateway.upstream.legacywire import POSTED

__all__ = ["VISIT_S", "Visit", "visit"]

VISIT_S: Final = 30.0
"""How long everything together may take, in seconds."""

_STEP_S: Final = 15.0
_MAX_BYTES: Final = 16 << 20
_MAX_PAGES: Final = 100
_SAID_CHARS: Final = 200
_DISCOVERY: Final = "server/discover"
_LISTING: Final = "tools/list"
_DESCRIBED: Final = re.compile(r'error_description="([^"\\]*)"')


class Visit(msgspec.Struct, frozen=True):
    """What a visit came to. It succeeded when `problem` is None, and then all the rest is there.

    `opened` is the method that was answered, `revision` what is spoken since. `accepted` is None as long as nobody
    looked at who asks. `status` is the HTTP status of what failed, `code` its JSON-RPC error code; `signs_in` tells
    that the gateway names an authorization server.
    """

    reachable: bool = False
    opened: str | None = None
    revision: str | None = None
    accepted: bool | None = None
    tools: int | None = None
    problem: str | None = None
    status: int | None = None
    code: int | None = None
    signs_in: bool = False


class _Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[bytes, bytes]
    message: dict[str, object] | None


class _Failed(Exception):
    """The visit is over. `answer` is what it failed on."""

    def __init__(self, problem: str, answer: _Answer | None = None) -> None:
        self.problem = problem
        self.answer = answer
        super().__init__(problem)


def visit(endpoint: Endpoint, opening: Opening, version: str) -> Visit:
    """Go there as a client with this opening. `version` is this program's. Runs an event loop of its own.

    Never raises: an address or a header that cannot be sent is a problem like any other.
    """
    return asyncio.run(_Visitor(opening, version).go(endpoint))


class _Visitor:
    def __init__(self, opening: Opening, version: str) -> None:
        self._opening = opening
        self._info = {"name": "airlock-connect", "version": version}
        self._lines = b""
        self._ids = 0
        self._found = Visit()

    async def go(self, endpoint: Endpoint) -> Visit:
        try:
            target = parse_target(endpoint.url)
            own = [header_line(k.encode("latin-1"), v.encode("latin-1")) for k, v in endpoint.headers.items()]
        except UnicodeEncodeError:
            return Visit(problem="a header of the entry holds characters that no header can carry")
        except ValueError as error:
            return Visit(problem=f"the entry cannot be used: {error}")
        self._lines = POSTED + b"".join(own)
        client = HttpClient(
            target, ClientLimits(total_s=_STEP_S, connect_s=_STEP_S, max_body_bytes=_MAX_BYTES)
        )
        try:
            async with asyncio.timeout(VISIT_S):
                await self._whole(client)
        except TimeoutError:
            self._note(problem="no answer in time")
        except UpstreamError as error:
            self._note(reachable=self._found.reachable or error.status is not None, status=error.status)
            self._note(problem=f"no answer that can be read: {error.cause}" if self._found.reachable
                       else f"nothing answers there: {error.cause}")  # fmt: skip
        except _Failed as failure:
            self._fail(failure)
        finally:
            await client.close()
        return self._found

    async def _whole(self, client: HttpClient) -> None:
        if self._opening.discovers and await self._discover(client):
            self._note(opened=_DISCOVERY, revision=REVISION, accepted=True)
            self._note(tools=await self._tools(client, b"", modern=True))
            return
        lines = await self._initialize(client)
        try:
            self._note(tools=await self._tools(client, lines, modern=False))
        finally:
            await self._leave(client, lines)

    async def _discover(self, client: HttpClient) -> bool:
        """Ask for the modern era; False when the answer is none of its, which is a matter for `initialize`."""
        answer = await self._ask(client, _DISCOVERY, {"_meta": self._meta()}, _modern(_DISCOVERY))
        result = _result(answer)
        if result is None:
            # SPEC: mcp.md 19: neither a refusal of the caller nor an outage says anything about the era.
            if answer.status in (401, 403) or answer.status >= 500:
                raise _Failed(f"{_DISCOVERY} was refused", answer)
            return False
        versions = result.get("supportedVersions")
        return isinstance(versions, list) and REVISION in versions

    async def _initialize(self, client: HttpClient) -> bytes:
        """Open a conversation of the older eras; return the header lines of what follows in it."""
        offered = self._opening.revision
        params = {"protocolVersion": offered, "capabilities": {}, "clientInfo": self._info}
        answer = await self._ask(client, "initialize", params, b"")
        result = _result(answer)
        if result is None:
            raise _Failed("initialize was refused", answer)
        revision = result.get("protocolVersion")
        # Revisions are dates: an older one than was offered is one that the client knows.
        if (
            not isinstance(revision, str)
            or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", revision)
            or revision > offered
        ):
            raise _Failed("it answers initialize with a revision that the client does not know", answer)
        self._note(opened="initialize", revision=revision, accepted=True)
        lines = header_line(b"mcp-protocol-version", revision.encode())
        session = answer.headers.get(b"mcp-session-id")
        if session is not None:
            lines += header_line(b"mcp-session-id", session)
        notice = await self._post(
            client, {"jsonrpc": "2.0", "method": "notifications/initialized"}, lines, None
        )
        if notice.status not in (200, 202, 204):
            raise _Failed("notifications/initialized was refused", notice)
        return lines

    async def _tools(self, client: HttpClient, lines: bytes, *, modern: bool) -> int:
        """Count the tools of all pages."""
        count = 0
        params: dict[str, object] = {"_meta": self._meta()} if modern else {}
        for _ in range(_MAX_PAGES):
            answer = await self._ask(client, _LISTING, params, _modern(_LISTING) if modern else lines)
            result = _result(answer)
            tools = None if result is None else result.get("tools")
            if result is None or not isinstance(tools, list):
                raise _Failed("tools/list was refused", answer)
            count += len(tools)
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                return count
            params = {**params, "cursor": cursor}
        raise _Failed(f"tools/list has more than {_MAX_PAGES} pages")

    async def _leave(self, client: HttpClient, lines: bytes) -> None:
        """End the session. Nothing depends on the answer."""
        if b"mcp-session-id" not in lines:
            return
        try:
            stream = await client.open(b"DELETE", self._lines + lines, head_s=_STEP_S, idle_s=_STEP_S)
            stream.close()
        except UpstreamError:
            return

    async def _ask(
        self, client: HttpClient, method: str, params: Mapping[str, object], lines: bytes
    ) -> _Answer:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        return await self._post(client, message, lines, self._ids)

    async def _post(
        self, client: HttpClient, message: Mapping[str, object], lines: bytes, request_id: int | None
    ) -> _Answer:
        """Send one message; its answer is read up to the response, whatever else comes on a stream before."""
        data = body.encode(message)
        stream = await client.open(b"POST", self._lines + lines, data, head_s=_STEP_S, idle_s=_STEP_S)
        try:
            self._note(reachable=True)
            said: dict[str, object] | None = None
            if request_id is not None and stream.content_type == EVENT_STREAM:
                events = sse.Events(_MAX_BYTES)
                while said is None and (piece := await stream.read()):
                    said = next((m for e in events.feed(piece) if (m := _response(e, request_id))), None)
            elif request_id is not None:
                said = _response(await stream.whole(), request_id)
            return _Answer(stream.status, stream.headers, said)
        finally:
            stream.close()

    def _meta(self) -> dict[str, object]:
        prefix = "io.modelcontextprotocol/"
        return {
            f"{prefix}protocolVersion": REVISION,
            f"{prefix}clientCapabilities": {},
            f"{prefix}clientInfo": self._info,
        }

    def _note(self, **what: object) -> None:
        self._found = msgspec.structs.replace(self._found, **what)

    def _fail(self, failure: _Failed) -> None:
        answer = failure.answer
        if answer is None:
            return self._note(problem=failure.problem)
        error = (answer.message or {}).get("error")
        fields = error if isinstance(error, dict) else {}
        challenge = answer.headers.get(b"www-authenticate", b"").decode("latin-1")
        described = _DESCRIBED.search(challenge)
        said = described[1] if described is not None else fields.get("message")
        problem = failure.problem
        if answer.status != 200 or not fields:
            problem += f" with HTTP {answer.status}"
        if isinstance(said, str) and said:
            # SECURITY: a peer's words go to a terminal: no control characters, no credential it may repeat.
            problem += f": {cut(one_line(scrub_text(said)), _SAID_CHARS, '...')}"
        code = fields.get("code")
        self._note(problem=problem, status=answer.status, code=code if isinstance(code, int) else None)
        self._note(signs_in="resource_metadata=" in challenge)
        if answer.status in (401, 403):
            self._note(accepted=False)
        return None


def _modern(method: str) -> bytes:
    return f"mcp-protocol-version: {REVISION}\r\nmcp-method: {method}\r\n".encode("ascii")


def _result(answer: _Answer) -> dict[str, object] | None:
    if answer.status != 200 or answer.message is None:
        return None
    found = answer.message.get("result")
    return found if isinstance(found, dict) else None


def _response(data: bytes, request_id: int) -> dict[str, object] | None:
    """Return a response to the request; an error that names no request answers the one that was posted."""
    try:
        message = body.decode_answer(data, exact=True)
    except StrictError:
        return None
    if not isinstance(message, dict) or "method" in message or ("result" in message) == ("error" in message):
        return None
    ours = jsonrpc.same_id(message.get("id"), request_id)
    return message if ours or ("error" in message and message.get("id") is None) else None

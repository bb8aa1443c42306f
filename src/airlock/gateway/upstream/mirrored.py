"""Tool calls of legacy clients to a modern server that wants arguments repeated in `Mcp-Param-*` headers.

Knows which headers each tool wanted last; does not know eras, or what the arguments mean. SPEC: mcp.md 6, 21.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from airlock.core.errors import UpstreamError
from airlock.core.grant import Grant
from airlock.core.ports import Ids
from airlock.core.wire import jsonrpc
from airlock.gateway import body, meta
from airlock.gateway.modern.admission import REVISION
from airlock.gateway.modern.paramheaders import Mirror, mirrors, with_params
from airlock.gateway.upstream.port import Answer, Heard, Outgoing, Upstream

__all__ = ["Mirrored"]

MAX_PAGES: Final = 10
"""LIMIT: pages of `tools/list` that are read to find one tool."""

MAX_KEPT: Final = 512
"""LIMIT: tools, each for one principal, whose headers are remembered."""

_PASSED_ON: Final = (meta.PREFIX, "traceparent", "tracestate")
_PLAIN_LINES: Final = (
    f"content-type: application/json\r\nmcp-method: tools/list\r\nmcp-protocol-version: {REVISION}\r\n"
).encode()


class Mirrored:
    """Calls tools of `upstream`, and derives the headers that a legacy client does not send."""

    __slots__ = ("_ids", "_kept", "_upstream")

    def __init__(self, upstream: Upstream, ids: Ids) -> None:
        self._upstream = upstream
        self._ids = ids
        # SECURITY: by principal: a server may list another schema for another one.
        self._kept: OrderedDict[tuple[str, str], tuple[Mirror, ...]] = OrderedDict()

    async def call(self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None) -> Answer:
        """Send a tool call; when the server misses headers, once more with those that its list asks for.

        Raises UpstreamError as the upstream does. The grant is spent by the upstream, before any wait.
        """
        tool = outgoing.params.get("name")
        if not isinstance(tool, str):
            return await self._upstream.call(grant, outgoing, exact=exact, heard=heard)
        key = (outgoing.principal, tool)
        known = self._kept.get(key)
        sent = outgoing
        if known is not None:
            self._kept.move_to_end(key)
            sent = _with_headers(outgoing, known)
        answer = await self._upstream.call(grant, sent, exact=exact, heard=heard)
        if not _misses_headers(answer):
            return answer
        wanted = await self._wanted(outgoing, tool)
        if wanted is None:
            return answer
        self._kept[key] = wanted
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        again = _with_headers(outgoing, wanted)
        if again.headers == sent.headers:
            return answer
        # INVARIANT: one grant, one execution: the server refused the headers before anything ran.
        return await self._upstream.ask(again, exact=exact, heard=heard)

    async def _wanted(self, outgoing: Outgoing, tool: str) -> tuple[Mirror, ...] | None:
        """Look up what the server's list wants repeated for `tool`; None when that cannot be told."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                answer = await self._upstream.ask(self._page(outgoing, cursor), exact=True)
            except UpstreamError:
                return None
            page = answer.result or {}
            listed = page.get("tools")
            for entry in listed if isinstance(listed, list) else ():
                if isinstance(entry, dict) and entry.get("name") == tool:
                    return mirrors(entry.get("inputSchema"))
            following = page.get("nextCursor")
            if not isinstance(following, str):
                return None
            cursor = following
        return None

    def _page(self, outgoing: Outgoing, cursor: str | None) -> Outgoing:
        """Build one page of the gateway's own `tools/list`, with who asks and in which trace as in the call."""
        given = outgoing.params.get("_meta")
        own: dict[str, object] = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        for name, value in (given if isinstance(given, dict) else {}).items():
            if name.startswith(_PASSED_ON):
                own[name] = value
        params: dict[str, object] = {"_meta": own}
        if cursor is not None:
            params["cursor"] = cursor
        request_id = "airlock-params-" + self._ids.hex(4)
        message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/list", "params": params}
        return msgspec.structs.replace(
            outgoing,
            id=request_id,
            headers=_PLAIN_LINES,
            body=body.encode(message),
            method="tools/list",
            params=params,
        )


def _with_headers(outgoing: Outgoing, wanted: tuple[Mirror, ...]) -> Outgoing:
    headers = with_params(outgoing.headers, wanted, outgoing.params.get("arguments"))
    return msgspec.structs.replace(outgoing, headers=headers)


def _misses_headers(answer: Answer) -> bool:
    error = answer.message.get("error")
    return isinstance(error, dict) and error.get("code") == jsonrpc.HEADER_MISMATCH

"""The parser's side of a connection: what a request head must be before the application may start.

Knows request lines, headers and framing; must not know time, refusals' order or the application.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools

from airlock.edge.asgi import Scope
from airlock.edge.frontcycle import AsgiCycle, DirectCycle
from airlock.edge.frontflow import Flow
from airlock.edge.frontlimits import FrontState, Line, Refused

__all__ = ["BLANK", "BODY", "HEAD", "IDLE", "HeadProtocol"]

_MAX_PIPELINED = 128  # requests waiting behind a call on one connection
_FRAMING = (b"content-length", b"transfer-encoding")
_WATCHED = frozenset((b"host", b"content-length", b"expect", b"transfer-encoding", b"upgrade"))

_Cycle = AsgiCycle | DirectCycle

# Where the arriving message stands: nothing yet, only blank lines, in its head, in its body.
IDLE, BLANK, HEAD, BODY = range(4)


class _BodyOnly:
    """What a parser calls that reads one more body for a connection and then nothing."""

    def __init__(self, front: HeadProtocol) -> None:
        self.on_body = front.on_body
        self.on_message_complete = front.on_message_complete
        self._begun = False

    def on_message_begin(self) -> None:
        # SECURITY: what follows an upgrade is another protocol and must not be read as a request.
        if self._begun:
            raise Refused(0)
        self._begun = True


class HeadProtocol(asyncio.Protocol):
    """The parser's callbacks; each raises `Refused` to stop the parse.

    INVARIANT: a call starts only when its whole head passed every check, and reads just the body that the
    head framed.
    """

    transport: asyncio.Transport
    flow: Flow

    def __init__(self, state: FrontState, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.state = state
        self.parser: Any = httptools.HttpRequestParser(self)
        self.headers: list[Line] = []
        self.url = b""
        self.cycle: _Cycle | None = None
        self.pipeline: deque[_Cycle] = deque()  # the next to run is at the left
        self._limits = limits = state.limits
        self._max_headers = limits.max_headers
        self._room = limits.max_head_bytes  # the longest read to parse in one piece; -1 once over
        self._stage = IDLE
        self._message = 0  # how many messages have begun
        self._hosts = 0
        self._length = -1  # the declared length; -1: none
        self._expects_100 = False
        self._chunked = False
        self._upgrade = False
        self._body_bytes = 0
        self._newest_keeps = True  # whether the newest call would keep the connection, had it arrived whole
        self._running: _Cycle | None = None
        self._first = False  # whether no call has begun in this read

    def on_response_complete(self) -> None:
        """Go on behind an answer that is written; the connection's business."""
        raise NotImplementedError

    def on_message_begin(self) -> None:
        """Start a head."""
        cycle = self.cycle
        if cycle is not None and not cycle.keep_alive:
            raise Refused(0)  # the request before this one ends the connection
        self.url = b""
        self.headers = []
        self._expects_100 = False
        self._length = -1
        self._stage = HEAD
        self._message += 1
        self._hosts = 0
        self._chunked = self._upgrade = False

    def on_url(self, url: bytes) -> None:
        """Take (a part of) the target."""
        self.url += url
        if len(self.url) > self._limits.max_target_bytes:
            raise Refused(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        # SECURITY: a trailer comes after every check of the head and must not join the headers.
        if self._stage != HEAD:
            return
        name = name.lower()
        headers = self.headers
        headers.append((name, value))
        if len(headers) > self._max_headers:
            raise Refused(431)
        if name in _WATCHED:
            self._watched(name, value)

    def _watched(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            self._length = int(value) if value.isdigit() and len(value) < 20 else -1
        elif name == b"expect":
            self._expects_100 = value.lower() == b"100-continue"
        elif name == b"upgrade":
            self._upgrade = True
        elif value.strip().lower() == b"chunked":
            self._chunked = True
        else:
            # SECURITY: llhttp takes `gzip, chunked`, and starts a request before it refuses `xchunked`.
            raise Refused(400)

    def on_headers_complete(self) -> None:
        """Check the head and start the call.

        llhttp itself refuses a repeated or malformed Content-Length and one beside a Transfer-Encoding.
        """
        parser, url = self.parser, self.url
        version = parser.get_http_version()
        if version == "1.1":
            # SECURITY: with two Hosts, two readers of one request can see two different sites.
            if self._hosts != 1:
                raise Refused(400)
        elif version == "1.0":
            if self._hosts > 1 or self._chunked:
                raise Refused(400)
            self._expects_100 = False
        else:
            raise Refused(505)
        # A path of this server and nothing else: no proxying, no authority that could differ from Host.
        if not url.startswith(b"/") or b"#" in url:
            raise Refused(400)
        self._room = self._limits.max_head_bytes
        self._stage = BODY
        self._body_bytes = 0
        self._upgrade = self._upgrade and parser.should_upgrade()
        keep_alive = version == "1.1" and not self._upgrade and parser.should_keep_alive()
        direct = self.state.direct
        cycle: _Cycle
        if (
            direct is not None
            and url == direct.target
            and keep_alive
            and 0 < self._length <= direct.max_body_bytes
            and not self._expects_100
            and parser.get_method() == b"POST"
        ):
            # It is complete in memory before it begins, so it begins only then.
            cycle = DirectCycle(self, self.headers, keep_alive=True)
        else:
            scope = self._scope(version, url)
            cycle = AsgiCycle(self, scope, keep_alive=keep_alive, expects_100=self._expects_100)
        before, self.cycle = self.cycle, cycle
        if before is None or before.response_complete:
            if type(cycle) is AsgiCycle:
                self._start(cycle)
            return
        self.flow.pause_reading()
        self.pipeline.append(cycle)
        # SECURITY: one read can hold thousands of tiny requests, and each costs kilobytes while it waits.
        if len(self.pipeline) > _MAX_PIPELINED:
            raise Refused(503)

    def _scope(self, version: str, url: bytes) -> Scope:
        path, _, query = url.partition(b"?")
        text = path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self.transport.get_extra_info("sockname"),
            "client": self.transport.get_extra_info("peername"),
            "scheme": "http",
            "method": self.parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "headers": self.headers,
            "state": {},
        }

    def ignore_upgrade(self) -> None:
        """Serve a request that asks for an upgrade as if it did not, as the last of its connection.

        httptools leaves the body of such a request unread, so a fresh parser reads it by its framing alone.
        """
        framing = [b"%s: %s\r\n" % header for header in self.headers if header[0] in _FRAMING]
        self._upgrade = False
        self.parser = httptools.HttpRequestParser(_BodyOnly(self))
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))

    def _start(self, cycle: _Cycle) -> None:
        """Begin a call whose turn it is."""
        self._running = cycle
        state = self.state
        if type(cycle) is DirectCycle:
            # SECURITY: the first call of a read alone, or a read full of small requests would hold up everybody.
            first, self._first = self._first, False
            cycle.start(state, self.loop, at_once=first)
            return
        assert type(cycle) is AsgiCycle
        task = self.loop.create_task(cycle.run(state.app))
        task.add_done_callback(state.tasks.discard)
        state.tasks.add(task)

    def hand_over(self, cycle: DirectCycle, onward: AsgiCycle) -> None:
        """Let `onward` stand for a call that began as `cycle` and whose answer is of another kind."""
        if self._running is cycle:
            self._running = onward
        if self.cycle is cycle:
            self.cycle = onward

    def on_body(self, body: bytes) -> None:
        """Hand a piece of the body to its call."""
        assert self.cycle is not None
        self._body_bytes += len(body)
        self.cycle.feed(body)

    def on_message_complete(self) -> None:
        """Tell the call that its body is whole."""
        if self._upgrade:
            return  # it is not: `ignore_upgrade` follows
        self._stage = IDLE
        cycle = self.cycle
        assert cycle is not None
        cycle.whole()
        if cycle.transport is not self.transport and not cycle.response_started:
            cycle.keep_alive = self._newest_keeps
            cycle.transport = self.transport
        if type(cycle) is DirectCycle and not self.pipeline:
            self._start(cycle)

"""The parser's side of a connection: what a request head must be before the application may start.

Knows request lines, headers and framing; must not know time, refusals' order or the application.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from airlock.edge.frontcycle import FrontCycle
from airlock.edge.frontlimits import FrontConfig, Refused

__all__ = ["BLANK", "BODY", "HEAD", "IDLE", "HeadProtocol"]

_MAX_PIPELINED = 128  # requests waiting behind a call on one connection
_FRAMING = (b"content-length", b"transfer-encoding")
_WATCHED = frozenset((b"host", b"expect", b"transfer-encoding", b"upgrade"))

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


class HeadProtocol(HttpToolsProtocol):
    """The parser's callbacks; each raises `Refused` to stop the parse.

    INVARIANT: a call starts only when its whole head passed every check, and reads just the body that the
    head framed.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, FrontConfig)
        self._front_config = config
        self._limits = limits = config.limits
        self._max_headers = limits.max_headers
        self._room = limits.max_head_bytes  # the longest read to parse in one piece; -1 once over
        self._stage = IDLE
        self._message = 0  # how many messages have begun
        self._hosts = 0
        self._chunked = False
        self._upgrade = False
        self._body_bytes = 0
        self._newest: FrontCycle | None = None
        self._newest_keeps = True  # whether `_newest` would keep the connection, had it arrived whole
        self._running: RequestResponseCycle | None = None

    def on_message_begin(self) -> None:
        """Start a head."""
        if self._newest is not None and not self._newest.keep_alive:
            raise Refused(0)  # the request before this one ends the connection
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
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
        elif name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
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
        version, url = self.parser.get_http_version(), self.url
        if version == "1.1":
            # SECURITY: with two Hosts, two readers of one request can see two different sites.
            if self._hosts != 1:
                raise Refused(400)
        elif version == "1.0":
            if self._hosts > 1 or self._chunked:
                raise Refused(400)
            self.expect_100_continue = False
        else:
            raise Refused(505)
        # A path of this server and nothing else: no proxying, no authority that could differ from Host.
        if not url.startswith(b"/") or b"#" in url:
            raise Refused(400)
        path, _, query = url.partition(b"?")
        text = path.decode("ascii")
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": "http",
            "method": self.parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "headers": self.headers,
            "state": {},
        }
        self._room = self._limits.max_head_bytes
        self._stage = BODY
        self._body_bytes = 0
        self._upgrade = self._upgrade and self.parser.should_upgrade()
        self._begin(keep_alive=version == "1.1" and not self._upgrade and self.parser.should_keep_alive())

    def ignore_upgrade(self) -> None:
        """Serve a request that asks for an upgrade as if it did not, as the last of its connection.

        httptools leaves the body of such a request unread, so a fresh parser reads it by its framing alone.
        """
        framing = [b"%s: %s\r\n" % header for header in self.headers if header[0] in _FRAMING]
        self._upgrade = False
        self.parser = httptools.HttpRequestParser(_BodyOnly(self))
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))

    def _begin(self, *, keep_alive: bool) -> None:
        """Start the call, or queue it behind the one that runs."""
        cycle = FrontCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        before = self._newest
        self.cycle = self._newest = cycle
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
            return
        self.flow.pause_reading()
        self.pipeline.appendleft((cycle, self.app))
        # SECURITY: one read can hold thousands of tiny requests, and each costs kilobytes while it waits.
        if len(self.pipeline) > _MAX_PIPELINED:
            raise Refused(503)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_body(self, body: bytes) -> None:
        """Hand a piece of the body to its call."""
        cycle = self.cycle
        self._body_bytes += len(body)
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Tell the call that its body is whole."""
        if self._upgrade:
            return  # it is not: `ignore_upgrade` follows
        self._stage = IDLE
        cycle = self.cycle
        cycle.more_body = False
        cycle.message_event.set()
        if cycle.transport is not self.transport and not cycle.response_started:
            cycle.keep_alive = self._newest_keeps
            cycle.transport = self.transport

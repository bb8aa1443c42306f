"""A chat service of our own that takes approval messages in Slack's and in Telegram's form, and can fail at it.

    with Receiver() as chat:
        chat.script(503, "reset")          # the next two posts; after the script everything is taken
        ...                                # configure chat.slack_url or chat.telegram_url, chat.chat
        message, = chat.wait(1)            # what was taken, in order
        assert message.link.startswith("https://")

A behaviour is a status to answer with, `"reset"` (cut the connection), `"torn"` (a 200 that stops in its body),
or `"slow"` (no answer until `chat.release()`). It runs in threads of its own, so tests with an event loop and
tests with processes use it alike.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

__all__ = ["Behaviour", "Message", "Receiver"]

Behaviour = int | str

_TELEGRAM_CHARS = 4096
_SLACK_CHARS = 40_000
_WAIT_S = 30.0


class Message:
    """One message that was taken."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.text: str = body["text"]
        self.lines = self.text.split("\n")

    @property
    def link(self) -> str:
        """The address on the last line, where people look for it."""
        label, _, link = str(self.lines[-1]).partition(" ")
        assert label == "Approve:", self.lines[-1]
        return link


class Receiver:
    """Listens on a loopback port. `tries` counts the posts that arrived, `taken` keeps what was accepted."""

    def __init__(self) -> None:
        self.token = "12345:" + "T" * 30
        self.chat = "-100200"
        self.tries: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.taken: list[Message] = []
        self.refused: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._script: deque[Behaviour] = deque()
        self._changed = threading.Condition()
        self._released = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver._open.add(self.connection)

            def finish(self) -> None:
                receiver._open.discard(self.connection)
                super().finish()

            def do_POST(self) -> None:
                receiver._take(self)

            def log_request(self, code: object = "-", size: object = "-") -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._open: set[socket.socket] = set()
        self._server.daemon_threads = False
        self._server.block_on_close = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def slack_url(self) -> str:
        """An incoming webhook, whose path is its password."""
        return f"http://127.0.0.1:{self.port}/services/T0/B0/{'S' * 24}"

    @property
    def telegram_url(self) -> str:
        """A bot's sendMessage address; the real host's name is in its path."""
        return f"http://127.0.0.1:{self.port}/api.telegram.org/bot{self.token}/sendMessage"

    def script(self, *behaviours: Behaviour) -> None:
        """Say what happens to the next posts."""
        self._script.extend(behaviours)

    def release(self) -> None:
        """Let the slow ones go on."""
        self._released.set()

    def wait(self, taken: int) -> list[Message]:
        """Return what was taken, as soon as it is that many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.taken) >= taken, _WAIT_S), self.refused
            return list(self.taken)

    def wait_tries(self, tries: int) -> None:
        """Return when that many posts have arrived, whatever became of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.tries) >= tries, _WAIT_S)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        # A connection that is kept waits for its next request; it is ended, and its thread awaited.
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def _take(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers["content-length"]))
        with self._counted():
            with self._changed:
                self.tries.append({name.lower(): value for name, value in handler.headers.items()})
                self.bodies.append(raw)
                behaviour = self._script.popleft() if self._script else 200
                self._changed.notify_all()
            if behaviour == "slow":
                self._released.wait(_WAIT_S)
                behaviour = 200
            if behaviour == "reset":
                linger = struct.pack("ii", 1, 0)
                handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                handler.connection.close()
                handler.close_connection = True
                return
            status, answer = self._answer(handler, raw, behaviour)
            with contextlib.suppress(OSError):
                handler.send_response(status)
                handler.send_header("content-length", str(len(answer) + (10 if behaviour == "torn" else 0)))
                if 300 <= status < 400:
                    handler.send_header("location", self.slack_url)
                handler.end_headers()
                handler.wfile.write(answer)
            handler.close_connection = behaviour == "torn"

    def _answer(
        self, handler: http.server.BaseHTTPRequestHandler, raw: bytes, behaviour: Behaviour
    ) -> tuple[int, bytes]:
        if isinstance(behaviour, int) and behaviour != 200:
            return behaviour, b"no"
        fault = self._fault(handler.path, handler.headers.get("content-type", ""), raw)
        with self._changed:
            if fault is None:
                self.taken.append(Message(json.loads(raw)))
            else:
                self.refused.append(fault)
            self._changed.notify_all()
        return (200, b"ok") if fault is None else (400, fault.encode())

    def _fault(self, path: str, kind: str, raw: bytes) -> str | None:
        """What is wrong with a message, as the real services would have it."""
        body = json.loads(raw)
        if kind != "application/json":
            return "invalid_content_type"
        if path == self.slack_url.partition(str(self.port))[2]:
            if set(body) != {"text"} or not isinstance(body["text"], str) or not body["text"]:
                return "invalid_payload"
            return "msg_too_long" if len(body["text"]) > _SLACK_CHARS else None
        if path != self.telegram_url.partition(str(self.port))[2]:
            return "not found"
        if set(body) != {"chat_id", "text", "disable_web_page_preview"} or body["chat_id"] != self.chat:
            return "chat not found"
        if body["disable_web_page_preview"] is not True:
            return "not a flag"
        return "message is too long" if len(body["text"]) > _TELEGRAM_CHARS else None

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._changed:
                self._at_once -= 1

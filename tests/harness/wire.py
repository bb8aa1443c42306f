"""What a client sends: a relay on loopback that passes bytes both ways as they come and keeps what goes up.

Knows how HTTP/1.1 requests are framed, so that what was heard can be read as messages.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from types import TracebackType
from typing import Any

__all__ = ["Heard", "Wire"]

_PIECE = 65536


class Heard:
    """One request of a client: its headers by lower-case name, and the JSON of its body."""

    def __init__(self, verb: str, headers: dict[str, str], body: bytes) -> None:
        self.verb, self.headers = verb, headers
        self.message: dict[str, Any] = json.loads(body) if body else {}

    @property
    def method(self) -> str | None:
        found = self.message.get("method")
        return None if found is None else str(found)


class Wire:
    """Listens while it is entered; `to` is the port that everything goes to."""

    def __init__(self) -> None:
        self.to = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._streams: list[bytearray] = []
        self._open: set[socket.socket] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def heard(self) -> list[Heard]:
        """The whole requests so far, those of one connection after those of the one before."""
        with self._lock:
            streams = [bytes(stream) for stream in self._streams]
        return [request for stream in streams for request in _requests(stream)]

    def sent(self, method: str, tool: str | None = None) -> list[Heard]:
        """The requests of one method, and of one tool."""
        return [
            one
            for one in self.heard()
            if one.method == method and (tool is None or one.message["params"]["name"] == tool)
        ]

    def __enter__(self) -> Wire:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            still = list(self._open)
        for one in still:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            kept = bytearray()
            with self._lock:
                self._streams.append(kept)
                self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server, kept), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, None), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                if kept is not None:
                    with self._lock:
                        kept += piece
                sink.sendall(piece)
        # When one side hangs up, so does the other.
        _end(source)
        _end(sink)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _requests(stream: bytes) -> list[Heard]:
    found: list[Heard] = []
    while b"\r\n\r\n" in stream:
        head, _, rest = stream.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body, whole, stream = _unchunked(rest)
        else:
            length = int(headers.get("content-length", 0))
            body, stream = rest[:length], rest[length:]
            whole = len(body) == length
        if not whole:
            break
        found.append(Heard(first.partition(" ")[0], headers, body))
    return found


def _unchunked(rest: bytes) -> tuple[bytes, bool, bytes]:
    body = b""
    while b"\r\n" in rest:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        piece, rest = rest[:size], rest[size + 2 :]
        if size == 0:
            return body, True, rest
        body += piece
    return body, False, b""

"""Stands between the gateway and a real server and keeps every byte that the server is sent.

It knows how bytes pass, over a process's standard input or over TCP; it must not change one but in its own port in
`Host`. What it kept tells how often a tool was really called: that is not for the gateway to say.
Run as `python -I -S witness.py KEPT COMMAND...`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

__all__ = ["TcpWitness", "calls_of", "stdio"]

_PIECE = 64 * 1024


def stdio(kept: Path, argv: list[str]) -> list[str]:
    """The argv that runs a server on standard input and output with a witness before it."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(kept), *argv]


def calls_of(kept: Path, tool: str) -> int:
    """How often the server was told to call a tool."""
    text = kept.read_bytes().decode("utf-8", "replace") if kept.exists() else ""
    messages = (_message(text[found.start() :]) for found in re.finditer(r'\{"jsonrpc"', text))
    called = [m["params"]["name"] for m in messages if m.get("method") == "tools/call"]
    return called.count(tool)


def _message(text: str) -> dict[str, Any]:
    try:
        message: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        return {}
    return message


class TcpWitness:
    """Listens on a loopback port and passes everything on to `port`, keeping what goes that way."""

    def __init__(self, kept: Path, port: int) -> None:
        lock, witness = threading.Lock(), self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port)) as server:
                    back = threading.Thread(target=_pass, args=(server, self.request), daemon=True)
                    back.start()
                    own, its = (b"127.0.0.1:%d\r\n" % number for number in (witness.port, port))
                    while data := _read(self.request).replace(own, its):
                        with lock, kept.open("ab") as file:
                            file.write(data)
                        server.sendall(data)
                    _end(server)
                    back.join()

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: object, client_address: object) -> None:
                """A server that was killed is no news here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> TcpWitness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    while data := _read(source):
        try:
            sink.sendall(data)
        except OSError:
            break
    _end(sink)


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(_PIECE)
    except OSError:
        return b""


def _end(sink: socket.socket) -> None:
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def main(kept: str, argv: list[str]) -> int:
    """Run the server, and keep what comes in for it; the number of its process group is beside that."""
    Path(kept).with_suffix(".pid").write_text(str(os.getpgid(0)))
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as server, open(kept, "ab", buffering=0) as file:
        assert server.stdin is not None

        def pump(to: int) -> None:
            while data := os.read(0, _PIECE):
                file.write(data)
                try:
                    os.write(to, data)
                except OSError:
                    return
            os.close(to)

        threading.Thread(target=pump, args=(os.dup(server.stdin.fileno()),), daemon=True).start()
        server.stdin.close()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

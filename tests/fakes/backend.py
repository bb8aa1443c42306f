"""A small upstream in the test's own process: it counts what really ran, and holds calls as long as a test likes.

    with Backend() as backend:
        backend.hold()                            # calls arrive, have their effect, and get no answer
        ...
        backend.arrived.acquire(timeout=30)       # one more call got here
        backend.release()
        assert backend.landed("delete_service", name="x") == 1

Its tools are those of examples/policy.yaml. Honest dry runs have no effect.
"""

from __future__ import annotations

import http.server
import json
import socket
import threading
from types import TracebackType
from typing import Any

__all__ = ["Backend"]

_WAIT_S = 60.0
_TOOLS = {
    "get_service": ("name",),
    "restart_service": ("name", "dry_run"),
    "set_replicas": ("names", "replicas", "dry_run"),
    "delete_service": ("name", "dry_run"),
}
_READS = frozenset({"get_service"})


class Backend:
    """Listens on a loopback port. `calls` are all tool calls that arrived, `effects` those that did something."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.effects: list[dict[str, Any]] = []
        self.arrived = threading.Semaphore(0)
        self._go = threading.Event()
        self._go.set()
        backend = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                result = backend._answer(message)
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: object = "-", size: object = "-") -> None: ...

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A gateway that is killed in the middle is no news here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def hold(self) -> None:
        """Answer no tool call until `release`."""
        self._go.clear()

    def release(self) -> None:
        """Answer what is held."""
        self._go.set()

    def landed(self, tool: str, **match: object) -> int:
        """How often a tool really did something with these arguments."""
        return sum(each["tool"] == tool and match.items() <= each.items() for each in list(self.effects))

    def __enter__(self) -> Backend:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["method"] == "tools/list":
            tools = [
                {"name": name, "description": f"the tool {name}", "inputSchema": {"type": "object", "properties": {key: {} for key in names}}}
                for name, names in _TOOLS.items()
            ]  # fmt: skip
            return {"resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "private"}
        params = message["params"]
        tool, arguments = params["name"], params.get("arguments", {})
        call = {"tool": tool, **arguments}
        self.calls.append(call)
        dry = arguments.get("dry_run") is True
        if not dry and tool not in _READS:
            self.effects.append(call)
        self.arrived.release()
        self._go.wait(_WAIT_S)
        text = f"would {tool}" if dry else f"did {tool}"
        return {"resultType": "complete", "content": [{"type": "text", "text": text}]}

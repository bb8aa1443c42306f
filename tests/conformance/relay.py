"""A reverse proxy on loopback that adds one header line to each request, for a client that cannot send it itself.

It knows how HTTP/1.1 requests are framed; it must not know what they say: bodies, answers and streams pass byte for
byte as they come, and when one side hangs up so does the other.
Run as `python -m tests.conformance.relay --to PORT [--header "Name: value"]`; it prints `ready PORT` when it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
from typing import Final

__all__ = ["Relay"]

MAX_HEAD: Final = 64 * 1024
"""LIMIT: bytes of one request head."""
PIECE: Final = 64 * 1024
_FRAMING: Final = re.compile(rb"\r\n(content-length|transfer-encoding):[ \t]*([^\r\n]*)", re.IGNORECASE)


class Relay:
    """Between a client and the server on `to`; `header` is one line, empty: nothing is added."""

    def __init__(self, to: int, header: bytes) -> None:
        self._to = to
        self._header = header
        self._own = 0

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=MAX_HEAD)
        self._own = server.sockets[0].getsockname()[1]
        print(f"ready {self._own}", flush=True)
        await server.serve_forever()

    async def _connected(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with contextlib.closing(back), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            answers, server = await asyncio.open_connection("127.0.0.1", self._to)
            with contextlib.closing(server):
                ways = {
                    asyncio.create_task(self._requests(client, server)),
                    asyncio.create_task(_pass(answers, back)),
                }
                done, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in left:
                    way.cancel()
                await asyncio.gather(*left, return_exceptions=True)
                for way in done:
                    way.result()

    async def _requests(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while True:
            head = await client.readuntil(b"\r\n\r\n")
            server.write(self._rewritten(head))
            framing = {name.lower(): value.lower() for name, value in _FRAMING.findall(head)}
            if framing.get(b"transfer-encoding") == b"chunked":
                await _chunks(client, server)
            else:
                server.write(await client.readexactly(int(framing.get(b"content-length", 0))))
            await server.drain()

    def _rewritten(self, head: bytes) -> bytes:
        """The head with the line added, and with the server's port where the client named ours."""
        kept = []
        for line in head[:-4].split(b"\r\n"):
            name = line.partition(b":")[0].lower()
            if self._header and name == self._header.partition(b":")[0].lower():
                continue
            own = b":%d" % self._own
            if name in (b"host", b"origin") and line.endswith(own):
                line = line.removesuffix(own) + b":%d" % self._to
            kept.append(line)
        return b"\r\n".join([*kept, *([self._header] if self._header else []), b"", b""])


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(PIECE):
        sink.write(data)
        await sink.drain()


async def _chunks(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """One chunked body, trailer included."""
    while True:
        line = await source.readuntil(b"\r\n")
        sink.write(line)
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        sink.write(await source.readexactly(size + 2))
        await sink.drain()
    while line != b"\r\n":
        line = await source.readuntil(b"\r\n")
        sink.write(line)


def main() -> None:
    parser = argparse.ArgumentParser(description="add a header line to what passes")
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--header", default="")
    options = parser.parse_args()
    asyncio.run(Relay(options.to, options.header.encode()).serve())


if __name__ == "__main__":
    main()

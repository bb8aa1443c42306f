"""The bare pass-through on the recommended stack: an asyncio Protocol with httptools on uvloop, and a lean
keep-alive HTTP/1.1 client pool on the same. It checks nothing; it is the floor that a governing proxy in
Python is compared with.      python raw_passthrough.py PORT UPSTREAM_PORT      (needs uvloop, httptools)"""

import asyncio
import sys

import httptools
import uvloop

PORT, UP = int(sys.argv[1]), int(sys.argv[2])
KEEP = {b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"content-type", b"accept"}
loop = uvloop.new_event_loop()
asyncio.set_event_loop(loop)


class Upstream(asyncio.Protocol):
    idle: list = []

    def connection_made(self, tr):
        self.tr, self.fut = tr, None

    def send(self, data):
        self.parser, self.chunks, self.ctype = httptools.HttpResponseParser(self), [], b""
        self.fut = loop.create_future()
        self.tr.write(data)
        return self.fut

    def data_received(self, data):
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.tr.close()

    def on_header(self, n, v):
        if n.lower() == b"content-type":
            self.ctype = v

    def on_body(self, b):
        self.chunks.append(b)

    def on_message_complete(self):
        f, self.fut = self.fut, None
        if self.parser.should_keep_alive():
            Upstream.idle.append(self)
        else:
            self.tr.close()
        if not f.done():
            f.set_result((self.parser.get_status_code(), self.ctype, b"".join(self.chunks)))

    def connection_lost(self, exc):
        if self in Upstream.idle:
            Upstream.idle.remove(self)
        if self.fut and not self.fut.done():
            self.fut.set_exception(ConnectionError("upstream closed"))


class Server(asyncio.Protocol):
    def connection_made(self, tr):
        self.tr, self.parser = tr, httptools.HttpRequestParser(self)

    def on_message_begin(self):
        self.headers, self.chunks = [], []

    def on_header(self, n, v):
        self.headers.append((n.lower(), v))

    def on_body(self, b):
        self.chunks.append(b)

    def on_message_complete(self):
        self.task = loop.create_task(self.run(self.headers, b"".join(self.chunks)))

    def data_received(self, data):
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.tr.close()

    async def run(self, headers, body):
        c = (
            Upstream.idle.pop()
            if Upstream.idle
            else (await loop.create_connection(Upstream, "127.0.0.1", UP))[1]
        )
        st, ct, b = await c.send(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n" % len(body)
            + b"".join(k + b": " + v + b"\r\n" for k, v in headers if k in KEEP)
            + b"\r\n"
            + body
        )
        self.tr.write(
            b"HTTP/1.1 %d OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (st, ct, len(b), b)
        )


async def main():
    await (await loop.create_server(Server, "127.0.0.1", PORT)).serve_forever()


loop.run_until_complete(main())

"""Knows when the bytes of one HTTP/1.1 answer are whole, wrong or too many.

Must not know connections, time, or what an answer means.
"""

from __future__ import annotations

import httptools
import msgspec

from airlock.core.errors import UpstreamError, UpstreamFailure

__all__ = ["Answer", "ClientLimits", "Reply"]

_MAX_INTERIM = 8
_LAST_STATUS = 599
_ENCODING, _LENGTH, _TYPE, _TRANSFER = range(4)
_READ = {
    b"content-encoding": _ENCODING,
    b"content-length": _LENGTH,
    b"content-type": _TYPE,
    b"transfer-encoding": _TRANSFER,
}


class ClientLimits(msgspec.Struct, frozen=True):
    """What one call may take, in seconds and bytes, and how connections are kept (gateway.md 11.1, 11.2).

    `max_event_bytes` bounds one event of an event stream; 0, the default, stands for `max_body_bytes`.
    """

    total_s: float = 60.0
    connect_s: float = 10.0
    max_head_bytes: int = 64 * 1024
    max_header_count: int = 128
    max_body_bytes: int = 8 * 1024 * 1024
    max_idle: int = 128
    idle_s: float = 30.0
    max_event_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.max_event_bytes:
            msgspec.structs.force_setattr(self, "max_event_bytes", self.max_body_bytes)


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer. `content_type` is the lower-case media type without parameters, empty when absent."""

    status: int
    content_type: str
    body: bytes


class Answer:
    """Reads the answer to one POST. Feed it until `feed` or `end` says that it is whole, then take `reply`.

    `reusable` is True once nothing of this answer, and nothing after it, can be left on the connection.
    `status` is 0 until the final head was read.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_complete",
        "_content_type",
        "_encoded",
        "_error",
        "_head_bytes",
        "_header_count",
        "_interim",
        "_length",
        "_limits",
        "_parser",
        "_size",
        "_unproductive",
        "reusable",
        "status",
    )

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self.renew()

    def renew(self) -> None:
        """Begin to read another answer on the same connection; only after one that was `reusable`."""
        self._error: UpstreamError | None = None
        self._body: bytes | bytearray = b""
        self._content_type = ""
        self._length = -1
        self._size = self._unproductive = self._head_bytes = self._header_count = self._interim = 0
        self._chunked = self._encoded = self._complete = False
        self.status = 0
        self.reusable = False

    def feed(self, data: bytes) -> bool:
        """Read on; True when the answer is whole. Raises `UpstreamError` at the first thing wrong with it."""
        assert self._parser is not None
        before = self._size
        if not (before or self._unproductive) and data[0] != 0x48:
            raise self._unreachable("not HTTP")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                raise self._error or self._unreachable("not HTTP") from None
            self.reusable = False
        if self._complete:
            return True
        if self._size != before:
            self._unproductive = 0
            return False
        # SECURITY: the parser bounds nothing: a head, a trailer or a chunk extension without end.
        self._unproductive += len(data)
        if self._unproductive > self._limits.max_head_bytes:
            raise self._unreachable("answer head too large")
        return False

    def end(self) -> bool:
        """The connection ended: tell whether that makes the answer whole."""
        self.reusable = False
        # LIMIT: over TLS a cut connection looks like its end; what is cut short is no whole JSON object.
        return bool(self.status) and self._length < 0 and not self._chunked

    def reply(self) -> Reply:
        """Return the whole answer; one that is not `reusable` lets go of the parser."""
        if not self.reusable:
            self.release()
        body = self._body
        return Reply(self.status, self._content_type, body if type(body) is bytes else bytes(body))

    def release(self) -> None:
        """Let go of the parser, which holds our methods as we hold it: a cycle for every connection."""
        self._parser = None

    # What the parser calls. It turns whatever they raise into its own error; ours is kept in `_error`.

    def on_message_begin(self) -> None:
        # SECURITY: a second answer to one request would be read as the answer to the next.
        if self._complete:
            self._stop(self._unreachable("not HTTP"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._head_bytes += len(name) + len(value) + 4
        if (
            self._header_count > self._limits.max_header_count
            or self._head_bytes > self._limits.max_head_bytes
        ):
            self._stop(self._unreachable("answer head too large"))
        which = _READ.get(name.lower())
        if which is None or self.status:
            return
        if which == _TYPE:
            self._content_type = self._content_type or _media_type(value)
        elif which == _LENGTH:
            self._length = int(value)
        elif which == _ENCODING:
            self._encoded = self._encoded or not _is_identity(value)
        elif self._chunked:
            self._stop(self._unreachable("not HTTP"))
        else:
            self._chunked = True
            self._encoded = self._encoded or value.strip(b" \t").lower() != b"chunked"

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            self._interim += 1
            if status < 100 or status == 101 or self._interim > _MAX_INTERIM:
                self._stop(self._unreachable("not HTTP"))
            return
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0") or status > _LAST_STATUS:
            self._stop(self._unreachable("not HTTP"))
        self.status = status
        self.reusable = version == "1.1"
        # SECURITY: a small compressed answer can be a very large one (T63): refused before its body is read.
        if self._encoded:
            self._stop(self._error_of(UpstreamFailure.ENCODED, "compressed answer"))
        if self._length > self._limits.max_body_bytes:
            self._stop(self._error_of(UpstreamFailure.TOO_LARGE, "answer too large"))

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limits.max_body_bytes:
            self._stop(self._error_of(UpstreamFailure.TOO_LARGE, "answer too large"))
        # A bytearray, not a list of pieces: small chunks must not weigh many times what they hold.
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body)
            self._body += data

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self.status:
            self._complete = True
            if self.reusable:
                self.reusable = self._parser.should_keep_alive()
        else:
            self._length = -1
            self._chunked = self._encoded = False
            self._content_type = ""

    def _stop(self, error: UpstreamError) -> None:
        self._error = error
        raise error

    def _unreachable(self, cause: str) -> UpstreamError:
        return self._error_of(UpstreamFailure.UNREACHABLE, cause)

    def _error_of(self, kind: UpstreamFailure, cause: str) -> UpstreamError:
        return UpstreamError(kind, cause, reached=True, status=self.status or None)


def _is_identity(value: bytes) -> bool:
    return all(coding.strip(b" \t") in (b"", b"identity") for coding in value.lower().split(b","))


def _media_type(value: bytes) -> str:
    return value.partition(b";")[0].strip(b" \t").lower().decode("latin-1")

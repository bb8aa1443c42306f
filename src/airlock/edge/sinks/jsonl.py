"""The audit file: one JSON line per record, on file before anything else happens, chained and rotated.

Knows one file and its rotated predecessors; does not know what a record means, and redacts nothing.
SPEC: gateway.md 12.3 (continuation) and 12.4.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable

from airlock.core.audit import chain
from airlock.core.audit.record import Record
from airlock.edge import auditfiles

__all__ = ["JsonlSink", "open"]

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_LOOK_EVERY_S = 1.0  # a look costs as much as a write


class JsonlSink:
    """An open audit file; made by `open`. Every method may be called from any thread."""

    def __init__(
        self,
        path: str,
        fd: int,
        *,
        size: int,
        prev: str,
        newline_owed: bool,
        max_bytes: int,
        keep: int,
        warn: Callable[[str], None],
        mirror: Callable[[bytes], None] | None,
    ) -> None:
        self._path = path
        self._fd = fd
        self._size = size  # as we know it: nothing is asked of the system per record
        self._prev = prev
        self._newline_owed = newline_owed
        self._max_bytes = max_bytes
        self._keep = keep
        self._warn = warn
        self._mirror = mirror
        self._rotation_failed = False
        self._next_look = time.monotonic() + _LOOK_EVERY_S
        self._lock = threading.Lock()

    def write(self, *records: Record) -> None:
        """Put the records on file in one write, all of them or none.

        Raises OSError when they are not on file as a whole; the chain then stands where it stood before.
        """
        with self._lock:
            if self._fd < 0:
                raise OSError(errno.EBADF, "the audit file is closed", self._path)
            data, digest = chain.seal(records[0], self._prev)
            if len(records) > 1:
                for record in records[1:]:
                    line, digest = chain.seal(record, digest)
                    data += line
            if self._mirror is not None:
                # SPEC: gateway.md 12.7: a row for the table also when the file refuses the line (T37).
                for line in data[:-1].split(b"\n"):
                    self._mirror(line)
            now = time.monotonic()
            if now >= self._next_look:
                self._look()
                self._next_look = now + _LOOK_EVERY_S
            if self._max_bytes and self._size + self._newline_owed + len(data) > self._max_bytes:
                self._make_room(len(data))
            owed = self._newline_owed
            if owed:
                data = b"\n" + data
            try:
                written = os.write(self._fd, data)
            except OSError:
                self._failed()
                raise
            if written != len(data):
                self._cut_back(written)
                problem = f"only {written} of {len(data)} bytes written"
                raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({problem})", self._path)
            if owed:
                self._newline_owed = False
            self._size += written
            self._prev = digest

    def close(self) -> None:
        """Close the file. A second call does nothing; a later `write` raises OSError."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _look(self) -> None:
        """Make the file anew when somebody removed it. Raises OSError, for every record, while that cannot be.

        SECURITY: a write to a removed file succeeds, and the record is nowhere.
        LIMIT: that is noticed within a second of writing, and not for a file that was only moved away.
        """
        info = os.fstat(self._fd)
        if info.st_nlink or not stat.S_ISREG(info.st_mode):
            return
        fd = os.open(self._path, _APPEND, 0o600)
        os.close(self._fd)
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._newline_owed = self._size > 0 and os.pread(fd, 1, self._size - 1) != b"\n"
        self._warn(f"{self._path}: was removed; the chain goes on in a new file")

    def _failed(self) -> None:
        """A failing device may have taken some of a write. A newline too many is only a blank line."""
        if os.fstat(self._fd).st_size != self._size:
            self._newline_owed = True

    def _cut_back(self, written: int) -> None:
        """Remove the `written` bytes of a short write, unless somebody appended behind them.

        LIMIT: bytes that another process appends between the look and the cut are lost; one file is meant for
        one process.
        """
        try:
            end = os.lseek(self._fd, 0, os.SEEK_CUR)  # where our write ended: O_APPEND moves the offset there
            if os.fstat(self._fd).st_size == end:
                os.ftruncate(self._fd, end - written)
                self._size = end - written
                return
        except OSError:
            pass
        self._newline_owed = True

    def _make_room(self, length: int) -> None:
        """Rotate, unless the file turns out to have room. A failure is told once and tried again later."""
        self._size = os.fstat(self._fd).st_size
        if self._size == 0 or self._size + self._newline_owed + length <= self._max_bytes:
            return
        try:
            self._rotate()
        except OSError as exc:
            if not self._rotation_failed:
                self._warn(f"{self._path}: cannot be rotated, writing on: {_words(exc)}")
            self._rotation_failed = True
        else:
            self._rotation_failed = False

    def _rotate(self) -> None:
        moved = os.path.lexists(self._path)
        if moved:
            _shift(self._path, self._keep)
            os.rename(self._path, f"{self._path}.1")
        try:
            fd = os.open(self._path, _APPEND, 0o600)
        except OSError:
            if moved:
                os.rename(f"{self._path}.1", self._path)
            raise
        os.close(self._fd)
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._newline_owed = False


def open(  # noqa: A001 - the name that every sink module offers
    path: str,
    *,
    max_bytes: int = 0,
    keep: int = 5,
    warn: Callable[[str], None],
    mirror: Callable[[bytes], None] | None = None,
) -> JsonlSink:
    """Open the audit file `path`, settle what a crash left at its end, and find where its chain goes on.

    `max_bytes` is the size that no write may pass (0: no rotation), `keep` (at least 1) the number of rotated
    files. `warn` takes one line of text. `mirror` gets every line, without its newline, before the file does; it
    may not wait or raise. Raises OSError, with the system's words, when the file cannot be
    opened or read: a gateway without an audit must not start.
    """
    fd = os.open(path, _APPEND, 0o600)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):  # a device or a pipe has no end to read and nothing to rotate
            prev, owed, max_bytes = chain.GENESIS, False, 0
        else:
            prev, owed = _continue(path, fd, info.st_size, warn)
        size = os.fstat(fd).st_size
    except BaseException:
        os.close(fd)
        raise
    return JsonlSink(
        path,
        fd,
        size=size,
        prev=prev,
        newline_owed=owed,
        max_bytes=max_bytes,
        keep=keep,
        warn=warn,
        mirror=mirror,
    )


def _continue(path: str, fd: int, size: int, warn: Callable[[str], None]) -> tuple[str, bool]:
    """Return the hash the next record follows, and whether a newline has to come before it."""
    tail = auditfiles.read_tail(fd, size)
    owed = bool(tail.fragment) and not _settle(path, fd, size, tail, warn)
    record = tail.record
    if record is None:
        # SPEC: gateway.md 12.3. A crash between the rename and the first write left the chain's end there.
        record = _last_rotated(f"{path}.1")
    return chain.head(record), owed


def _last_rotated(path: str) -> dict[str, object] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return auditfiles.read_tail(fd, os.fstat(fd).st_size).record
    finally:
        os.close(fd)


def _settle(path: str, fd: int, size: int, tail: auditfiles.Tail, warn: Callable[[str], None]) -> bool:
    """End the file in a newline: give a whole record its own, move a torn one away. False if that cannot be.

    SPEC: gateway.md 12.4, start-up. SECURITY: the fragment is kept, since a last line that somebody edited
    looks just like a torn one.
    """
    if _grew(path, fd, size, warn):
        return False
    if tail.whole:
        try:
            return os.write(fd, b"\n") == 1
        except OSError:
            return False
    torn = f"{path}.torn"
    try:
        _put_aside(torn, tail.fragment + b"\n")
        if _grew(path, fd, size, warn):
            return False
        os.ftruncate(fd, size - len(tail.fragment))
    except OSError as exc:
        warn(f"{path}: its torn last line cannot be moved to {torn}: {_words(exc)}")
        return False
    warn(f"{path}: its torn last line was moved to {torn}")
    return True


def _grew(path: str, fd: int, size: int, warn: Callable[[str], None]) -> bool:
    # SECURITY: cutting a file that another process still writes would cut that process's records.
    if os.fstat(fd).st_size == size:
        return False
    warn(f"{path}: another process is writing to it; its last line was left alone")
    return True


def _put_aside(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def _shift(path: str, keep: int) -> None:
    """Free the name `<path>.1`: `.k` becomes `.k+1` from the oldest down, what would pass `keep` goes."""
    last = keep
    while os.path.lexists(f"{path}.{last + 1}"):
        last += 1
    for number in range(last, keep, -1):  # from the end, so that a crash leaves no gap
        os.unlink(f"{path}.{number}")
    # SECURITY: files behind a gap stay where they are; else each retry of a rotation that failed half-way
    # would push one more old file out of the log.
    gap = next((number for number in range(1, keep) if not os.path.lexists(f"{path}.{number}")), keep)
    for number in range(gap - 1, 0, -1):
        os.rename(f"{path}.{number}", f"{path}.{number + 1}")


def _words(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__

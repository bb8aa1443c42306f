"""What waits for the audit table: lines in order, bounded by count and by bytes, and what was said of its losses.

Knows lines as bytes and threads; does not know databases, and what a line means only as far as `jsonb` needs.
SPEC: gateway.md 12.7.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

__all__ = ["ROWS", "SIZE", "Backlog", "Losses", "counted", "jsonb_text"]

ROWS: Final = 1000
"""Lines that wait at most."""

SIZE: Final = 32 * 1024 * 1024
"""Bytes that wait at most; a larger line is taken when it waits alone."""

_MOST_TOLD: Final = 8
_REPLACED: Final = "\ufffd"
_RAW_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# Every escape is matched, so that the backslash of a pair (`\\u0000`) never begins one.
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<broken>u0000|ud[89ab][0-9a-f]{2}(?!\\ud[c-f])|ud[c-f][0-9a-f]{2})|ud[89ab][0-9a-f]{2}\\u....|.)",
    re.IGNORECASE | re.DOTALL,
)


class Backlog:
    """Lines from many threads to one worker. A line stays, and counts, until the worker has settled it."""

    def __init__(self, rows: int = ROWS, size: int = SIZE) -> None:
        self._most_rows = rows
        self._most_size = size
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, line: bytes) -> bool:
        """Append a line. False when there is no room; never waits for the worker."""
        with self._changed:
            lines = self._lines
            if self._closed or len(lines) >= self._most_rows:
                return False
            if lines and self._size + len(line) > self._most_size:
                return False
            lines.append(line)
            self._size += len(line)
            self._changed.notify()
            return True

    def head(self, rows: int, size: int) -> list[bytes]:
        """Wait for lines and return the oldest: at most `rows` of them and `size` bytes, but at least one.

        An empty list means that the backlog is closed and nothing is left. Only the worker calls this.
        """
        with self._changed:
            while not self._lines:
                if self._closed:
                    return []
                self._changed.wait()
            taken: list[bytes] = []
            for line in islice(self._lines, rows):
                size -= len(line)
                if taken and size < 0:
                    break
                taken.append(line)
            return taken

    def settle(self, count: int) -> bool:
        """Remove the `count` oldest lines. True when that leaves none."""
        with self._changed:
            for _ in range(count):
                self._size -= len(self._lines.popleft())
            return not self._lines

    def close(self) -> None:
        """Take no more lines; a waiting worker wakes up."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Losses:
    """Counts the lines that were dropped and says so: each trouble once, until things are well again.

    `warn` takes one line of text and may be called from any thread, never under a lock of ours.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._count = 0

    @property
    def count(self) -> int:
        """How many were dropped since things were well."""
        return self._count

    def trouble(self, text: str, *, dropped: int = 0) -> None:
        """Note trouble, and how many lines it cost; a text that was said is not said again."""
        with self._lock:
            self._count += dropped
            # SECURITY: the words of a database that changes them each time must not fill the log.
            known = text in self._told or len(self._told) >= _MOST_TOLD
            if not known:
                self._told.add(text)
        if not known:
            self._warn(text)

    def well(self) -> None:
        """Note that nothing waits any more. After trouble this says how many lines it cost."""
        with self._lock:
            if not self._told:
                return
            count, self._count = self._count, 0
            self._told.clear()
        self._warn(f"the audit table caught up; {counted(count)} dropped from it")


def counted(count: int) -> str:
    """`1 record was` or `<n> records were`."""
    return "1 record was" if count == 1 else f"{count} records were"


def jsonb_text(line: bytes) -> str:
    r"""Return an audit line as text that `jsonb` takes: `\u0000` and lone surrogates as U+FFFD.

    SPEC: gateway.md 12.2. The cleaning before the file leaves none of them; one that slipped past it may cost
    a row its hash, but never the table its row. Raises UnicodeDecodeError for bytes that are no text at all.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = _RAW_SURROGATE.sub(_REPLACED, line.decode("utf-8", "surrogatepass"))
    if "\\u" in text:
        text = _ESCAPE.sub(lambda found: _REPLACED if found["broken"] else found[0], text)
    return text

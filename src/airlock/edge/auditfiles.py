"""Reading an audit log from disk: which files it has, their lines, and the end of a file.

Knows files and bytes; what a record is it asks `core.audit.chain`, and it never writes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

import msgspec

from airlock.core.audit import chain

__all__ = ["Tail", "log_files", "read_lines", "read_tail"]

_BLOCK = 64 * 1024


class Tail(msgspec.Struct, frozen=True):
    """The end of an audit file as it was read.

    `fragment` are the bytes after the last newline, `whole` tells whether they are a record that lacks only
    its newline. `record` is the last whole record, that one included; None when the file has none.
    """

    fragment: bytes
    whole: bool
    record: dict[str, object] | None


def log_files(path: str) -> list[str]:
    """List the files of the log `path` that exist, oldest first: `<path>.N` from the highest N, then `path`.

    Raises OSError when the directory cannot be listed; one that does not exist holds no files.
    """
    directory, name = os.path.split(path)
    rotated = re.compile(re.escape(name) + r"\.([1-9][0-9]*)", re.ASCII)
    try:
        names = os.listdir(directory or ".")
    except FileNotFoundError:
        return []
    numbers = sorted((int(match[1]) for match in map(rotated.fullmatch, names) if match), reverse=True)
    return [f"{path}.{number}" for number in numbers] + ([path] if name in names else [])


def read_lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, split on b"\\n" alone. Every OSError names the file."""
    try:
        with open(path, "rb") as file:
            yield from file
    except OSError as exc:
        exc.filename = path
        raise


def read_tail(fd: int, size: int) -> Tail:
    """Read the end of the first `size` bytes of an open file, backwards, as far as the last whole record."""
    lines = _lines_backwards(fd, size)
    fragment = next(lines)
    record = chain.parse(fragment)
    if record is not None:
        return Tail(fragment, whole=True, record=record)
    earlier = (parsed for parsed in map(chain.parse, lines) if parsed is not None)
    return Tail(fragment, whole=False, record=next(earlier, None))


def _lines_backwards(fd: int, size: int) -> Iterator[bytes]:
    """Yield what follows the last newline (perhaps nothing), then each line before it, newest first."""
    later: list[bytes] = []
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        block = os.pread(fd, end - start, start)
        if len(block) != end - start:
            raise OSError(errno.EIO, "the file shrank while it was read")
        first, *rest = block.split(b"\n")
        for line in reversed(rest):
            later.append(line)
            yield b"".join(reversed(later))
            later.clear()
        later.append(first)
        end = start
    yield b"".join(reversed(later))

"""Reading an audit log from disk: which files it has, their lines, and the end of a file.

Knows files and bytes; what a record is it asks `core.audit.chain`, and it never writes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from airlock.core.audit import chain

__all__ = ["Chain", "Tail", "chains", "lines", "log_files", "read_lines", "read_tail", "split"]

_BLOCK = 64 * 1024
_NUMBER = "[1-9][0-9]*"
_WORKER = re.compile(rf"(.+\.w{_NUMBER})(?:\.{_NUMBER})?", re.ASCII | re.DOTALL)
_UNNUMBERED = re.compile(rf"\.{_NUMBER}\Z", re.ASCII)


class Tail(msgspec.Struct, frozen=True):
    """The end of an audit file as it was read.

    `fragment` are the bytes after the last newline, `whole` tells whether they are a record that lacks only
    its newline. `record` is the last whole record, that one included; None when the file has none.
    """

    fragment: bytes
    whole: bool
    record: dict[str, object] | None


class Chain(msgspec.Struct, frozen=True):
    """The files of one chain, oldest first, and the name it goes by: its newest file's, without a number.

    `worker` says that the log has it for one more worker, beside the chain of its own.
    """

    name: str
    files: tuple[str, ...]
    worker: bool = False


def chains(path: str) -> list[Chain]:
    """List the chains of the log `path` that have files: its own first, then those of its workers in order.

    SPEC: gateway.md 12.4: worker k > 0 writes `<path>.w<k>`; either rotates to `.N`, and the highest N is oldest.
    Raises OSError when the directory cannot be listed; one that does not exist holds no files.
    """
    directory, name = os.path.split(path)
    pattern = re.compile(re.escape(name) + rf"(?:\.w({_NUMBER}))?(?:\.({_NUMBER}))?", re.ASCII)
    try:
        names = os.listdir(directory or ".")
    except FileNotFoundError:
        return []
    numbers: dict[int, list[int]] = {}
    for match in filter(None, map(pattern.fullmatch, names)):
        numbers.setdefault(int(match[1] or 0), []).append(int(match[2] or 0))
    found = []
    for worker in sorted(numbers):
        live = f"{path}.w{worker}" if worker else path
        oldest_first = sorted(numbers[worker], reverse=True)
        files = tuple(f"{live}.{number}" if number else live for number in oldest_first)
        found.append(Chain(live, files, worker > 0))
    return found


def log_files(path: str) -> list[str]:
    """List the files of the log `path` itself, without its workers', oldest first. Raises as `chains`."""
    return [file for each in chains(path) if each.name == path for file in each.files]


def split(names: Iterable[str]) -> list[Chain]:
    """Sort given files into chains: each worker's apart, all others are one. Their order stays as given."""
    others: list[str] = []
    workers: dict[str, list[str]] = {}
    for name in names:
        worker = _WORKER.fullmatch(name)
        (others if worker is None else workers.setdefault(worker[1], [])).append(name)
    found = [Chain(_UNNUMBERED.sub("", others[-1]), tuple(others))] if others else []
    return found + [Chain(name, tuple(files), worker=True) for name, files in workers.items()]


def read_lines(path: str) -> Iterator[bytes]:
    """Open a file and yield its lines. Every OSError names the file."""
    with open(path, "rb") as file:
        yield from lines(path, file)


def lines(path: str, file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of an open file, split on b"\\n" alone. Every OSError names it as `path`."""
    try:
        for line in file:
            # A record may be seen half written; the rest of it is there by now, unless the line is torn.
            yield line if line.endswith(b"\n") else line + file.readline()
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

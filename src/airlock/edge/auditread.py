"""A whole audit log opened at one instant, so that a rotation meanwhile neither hides a file nor shows it twice.

Knows files and their identity; what a record is it does not know, and it never writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from airlock.edge import auditfiles
from airlock.edge.auditfiles import Chain

__all__ = ["Reading", "given", "opened"]

_TRIES = 50  # a gateway that rotates this often in the moment it takes to open the files has no log to read


class Reading(msgspec.Struct, frozen=True):
    """A chain to be read once: pairs of a file's name and its lines, oldest first. `size` is in bytes."""

    name: str
    worker: bool
    files: Iterable[tuple[str, Iterator[bytes]]]
    size: int


def given(names: Iterable[str]) -> list[Reading]:
    """Make files that were named ready to be read, each opened when its turn comes. OSErrors name the file."""
    return [
        Reading(
            chain.name,
            chain.worker,
            ((name, auditfiles.read_lines(name)) for name in chain.files),
            _size(chain),
        )
        for chain in auditfiles.split(names)
    ]


@contextlib.contextmanager
def opened(path: str) -> Iterator[list[Reading]]:
    """Open all files of the log `path`, its workers' too, and close them in the end.

    Raises OSError with the file's name; FileNotFoundError with `path` when the log has no files.
    LIMIT: one descriptor per file, so a log of more files than the process may open cannot be read.
    """
    with contextlib.ExitStack() as stack:
        chains, files = _open_together(path, stack)
        if not chains:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        yield [
            Reading(
                chain.name,
                chain.worker,
                [(name, auditfiles.lines(name, files[name])) for name in chain.files],
                sum(os.fstat(files[name].fileno()).st_size for name in chain.files),
            )
            for chain in chains
        ]


def _open_together(path: str, stack: contextlib.ExitStack) -> tuple[list[Chain], dict[str, BinaryIO]]:
    """Open the files under the names that they all have at one instant; `stack` keeps them."""
    problem = OSError(errno.EAGAIN, "its files change their names faster than they can be opened", path)
    for _ in range(_TRIES):
        with contextlib.ExitStack() as attempt:
            chains = auditfiles.chains(path)
            files: dict[str, BinaryIO] = {}
            try:
                for name in (name for each in chains for name in each.files):
                    files[name] = attempt.enter_context(open(name, "rb"))
                settled = auditfiles.chains(path) == chains and _still_named(files)
            except FileNotFoundError as exc:  # renamed after it was listed, or a link to nowhere
                problem = exc
                continue
            if settled:
                stack.enter_context(attempt.pop_all())
                return chains, files
    raise problem


def _still_named(files: dict[str, BinaryIO]) -> bool:
    return all(os.path.samestat(os.stat(name), os.fstat(file.fileno())) for name, file in files.items())


def _size(chain: Chain) -> int:
    def of(name: str) -> int:
        try:
            return os.stat(name).st_size
        except OSError:  # reading it will say so
            return 0

    return sum(map(of, chain.files))

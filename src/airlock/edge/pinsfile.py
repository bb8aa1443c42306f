"""The pins file: read strictly, replaced whole or not at all.

Knows JSON files and the file system; what a pin is `core.policy.pins` knows.
"""

from __future__ import annotations

import os
import stat

from airlock.core.errors import ConfigError
from airlock.core.policy import pins
from airlock.core.policy.pins import Pins
from airlock.core.wire import strict
from airlock.core.wire.strict import StrictError

__all__ = ["MAX_BYTES", "read", "write"]

MAX_BYTES = 1 << 23
"""Longest file that is read."""

_MODE = 0o644


def read(path: str) -> Pins:
    """Read the pins file at `path`.

    Raises ConfigError, in the system's words when it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refused(path, error) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(path, f"longer than {MAX_BYTES} bytes")
    try:
        document = strict.parse(data)
    except StrictError as error:
        raise ConfigError(path, f"not a pins file: {error}") from None
    return pins.parse(document, path)


def write(path: str, new: Pins) -> None:
    """Make the file at `path` hold `new`, readable by all. Who reads meanwhile sees the old or the new file.

    A symbolic link stays one; what it leads to is replaced. Raises ConfigError, in the system's words; the
    old file is then as it was.
    """
    try:
        place = os.path.realpath(path)
        _replaceable(place)
        draft = f"{place}.{os.urandom(8).hex()}.new"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, _MODE)
                file.write(pins.text(new).encode())
                file.flush()
                os.fsync(descriptor)
            os.replace(draft, place)
        except OSError:
            os.unlink(draft)
            raise
    except OSError as error:
        raise _refused(path, error) from error
    _sync_folder(os.path.dirname(place))


def _replaceable(place: str) -> None:
    """Raise OSError for what is there and is no file: a folder, or a device that a rename would destroy."""
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(0, "not a regular file")


def _sync_folder(folder: str) -> None:
    """Bring a rename to the disk as well, where the file system can: the new file is in its place either way."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return


def _refused(path: str, error: OSError) -> ConfigError:
    return ConfigError(path, error.strerror or type(error).__name__)

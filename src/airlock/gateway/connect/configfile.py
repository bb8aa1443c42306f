"""Another program's configuration file: read whole, and replaced whole or not at all, after a copy of it was kept.

Knows the file system; does not know what stands in the file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from datetime import datetime
from typing import Final

import msgspec

from airlock.core.errors import ConfigError

__all__ = ["MAX_BYTES", "Held", "read", "replace"]

MAX_BYTES: Final = 32 << 20
"""LIMIT: longest file that is read. Claude Code keeps a history in its file."""

_SAME_SECOND: Final = 100


class Held(msgspec.Struct, frozen=True):
    """A file as it was read. `data` and `mode` (permission bits) are None when there is none.

    `path` is what it was asked for by, `place` where it is: a symbolic link stays one.
    """

    path: str
    place: str
    data: bytes | None = None
    mode: int | None = None

    def text(self) -> str:
        """Return the text of the file, empty when there is none. Raises ConfigError for what is not UTF-8."""
        try:
            return (self.data or b"").decode("utf-8")
        except UnicodeDecodeError:
            raise ConfigError(self.path, "not UTF-8 text") from None


def read(path: str) -> Held:
    """Read the file at `path`. Raises ConfigError for what is there and is no file, or cannot be read."""
    place = os.path.realpath(path)
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return Held(path, place)
    except OSError as error:
        raise _refused(path, error) from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(path, "not a regular file")
        if info.st_uid != os.geteuid():
            # Whoever is root for a moment would take the file from the user whose client reads it.
            raise ConfigError(path, "the file belongs to another user: run this as that user")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise ConfigError(path, f"longer than {MAX_BYTES} bytes")
    return Held(path, place, data, stat.S_IMODE(info.st_mode))


def replace(held: Held, text: str, now: datetime, *, private: bool) -> str | None:
    """Make the file hold `text`; return the path of the copy of what it held, None when there was no file.

    Who reads meanwhile sees the old or the new file. `private`: nobody but the owner may read it from now on; a new
    file is for its owner alone in any case. Raises ConfigError, and the file is then as it was.
    LIMIT: a client that writes its file in the very moment between the last look and the rename loses that.
    """
    draft = f"{held.place}.{os.urandom(8).hex()}.new"
    mode = 0o600 if held.mode is None else held.mode & 0o700 if private else held.mode
    copy: str | None = None
    done = False
    try:
        os.makedirs(os.path.dirname(held.place), mode=0o700, exist_ok=True)
        _make(draft, text.encode("utf-8"), mode)
        if held.data is not None:
            copy = _keep(held.path, held.data, now)
        if read(held.path).data != held.data:
            raise ConfigError(held.path, "it was changed by another program meanwhile: try again")
        os.replace(draft, held.place)
        done = True
    except OSError as error:
        raise _refused(held.path, error) from error
    finally:
        for made in () if done else (draft, copy):
            _drop(made)
    _sync_folder(os.path.dirname(held.place))
    return copy


def _keep(path: str, data: bytes, now: datetime) -> str:
    """Write the copy beside the file, under a name of its own."""
    wanted = f"{path}.airlock-backup-{now:%Y%m%dT%H%M%SZ}"
    for number in range(_SAME_SECOND):
        name = f"{wanted}-{number}" if number else wanted
        try:
            # SECURITY: what the file held may be a credential, whoever could read it.
            _make(name, data, 0o600)
        except FileExistsError:
            continue
        return name
    raise ConfigError(path, "there are too many copies of this second beside it")


def _make(path: str, data: bytes, mode: int) -> None:
    # SECURITY: never follows a link that somebody put there, and is nobody else's to read from the start.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _drop(path: str | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _sync_folder(folder: str) -> None:
    """Bring the rename to the disk as well, where the file system can: the new file is in its place either way."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refused(path: str, error: OSError) -> ConfigError:
    return ConfigError(path, error.strerror or type(error).__name__)

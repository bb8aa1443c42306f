"""A secret kept in a file of its own: made once, readable by its owner alone.

Knows the file; does not know what the key is for.
"""

from __future__ import annotations

import errno
import os
import stat

from airlock.core.errors import ConfigError

__all__ = ["KEY_BYTES", "read_or_make"]

KEY_BYTES = 32


def read_or_make(path: str) -> bytes:
    """Return the key in `path`, making it (and its 0700 folder) first when it is missing.

    Two processes that start together agree on one key. Raises ConfigError for a file that others can read,
    that is not a regular file, or that does not hold a key.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    draft = f"{path}.{os.urandom(8).hex()}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        # A short write would leave less than a key, which `_read` refuses for good: the draft is not linked then.
        line = os.urandom(KEY_BYTES).hex().encode("ascii") + b"\n"
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(descriptor)
    except OSError:
        os.unlink(draft)
        raise
    finally:
        os.close(descriptor)
    try:
        # INVARIANT: a link never replaces: whoever comes second reads the key of the first.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
    return _read(path)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(path, "the key file is not a regular file")
        # SECURITY: whoever reads the key can forge every confirmation.
        if info.st_mode & 0o077 or info.st_uid != os.geteuid():
            raise ConfigError(path, f"the key file must be yours alone: chmod 600 {path}")
        text = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise ConfigError(path, f"the key file must hold at least {KEY_BYTES} bytes as hex digits")
    return key

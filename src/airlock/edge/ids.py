"""Random identifiers from the system's random source, behind the `Ids` port.

Knows where randomness comes from; does not know what an identifier names.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["SystemIds"]

_FETCHED = 4096  # bytes asked of the system at a time: one system call for some hundred identifiers


class SystemIds:
    """Unguessable identifiers. Every byte is handed out once, to whichever thread and process."""

    __slots__ = ("__weakref__", "_at", "_digits", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digits = ""
        self._at = 0
        # SECURITY: a forked process would hand out the same bytes as its parent.
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget(mine()))

    def hex(self, nbytes: int) -> str:
        """`2 * nbytes` lower-case hex digits; `nbytes` must be from 1 to 1024."""
        # SECURITY: an empty identifier would name every confirmation at once.
        if nbytes < 1 or nbytes > 1024:
            raise ValueError("an identifier has from 1 to 1024 bytes")
        with self._lock:
            start = self._at
            self._at = end = start + 2 * nbytes
            found = self._digits[start:end]
            if len(found) == end - start:
                return found
            self._digits = digits = os.urandom(_FETCHED).hex()
            self._at = 2 * nbytes
            return digits[: 2 * nbytes]


def _forget(ids: SystemIds | None) -> None:
    if ids is not None:
        ids._lock = threading.Lock()  # the parent's other threads may have held it
        ids._digits = ""

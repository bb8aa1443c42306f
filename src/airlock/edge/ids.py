"""Random identifiers from the system's random source, behind the `Ids` port.

Knows where randomness comes from; does not know what an identifier names.
"""

from __future__ import annotations

import os

__all__ = ["SystemIds"]


class SystemIds:
    """Unguessable identifiers."""

    __slots__ = ()

    def hex(self, nbytes: int) -> str:
        """`2 * nbytes` lower-case hex digits; `nbytes` must be 1 or more."""
        # SECURITY: an empty identifier would name every confirmation at once.
        if nbytes < 1:
            raise ValueError("an identifier needs at least one byte")
        return os.urandom(nbytes).hex()

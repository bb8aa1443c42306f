"""Log lines: one line each on stderr, prefixed with the program's name, never raw text from outside.

Knows stderr; does not know who writes or why.
"""

from __future__ import annotations

import sys

from airlock.core.text.safe import one_line

__all__ = ["Log"]


class Log:
    """Writes `<program>: <text>`, one safe line a call. A closed stderr is ignored: a log is best effort."""

    __slots__ = ("program",)

    def __init__(self, program: str) -> None:
        self.program = program

    def line(self, text: str) -> None:
        """Write one line."""
        # SECURITY: control characters of hostile text would forge lines or drive the terminal.
        try:
            sys.stderr.write(f"{self.program}: {one_line(text)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def warning(self, text: str) -> None:
        """Write one line marked as a warning."""
        self.line(f"warning: {text}")

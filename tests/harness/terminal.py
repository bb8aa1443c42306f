"""A program on a terminal: what it shows is read until it says something, keys are pressed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from pathlib import Path

__all__ = ["DOWN", "ENTER", "ESCAPE", "RIGHT", "SPACE", "Terminal"]

SPACE, ENTER, ESCAPE, DOWN, RIGHT = " ", "\r", "\x1b", "\x1b[B", "\x1b[C"


class Terminal:
    """Starts `argv` in `folder`, with `env` and nothing else."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str]) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execve(argv[0], argv, env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def until(self, words: str, within_s: float = 60) -> None:
        """Read until `words` stand on the screen; raises TimeoutError with what was shown instead."""
        shown, end = b"", time.monotonic() + within_s
        while words not in self._plain(shown):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(self._plain(shown))
            if select.select([self._fd], [], [], left)[0]:
                shown += os.read(self._fd, 65536)

    def press(self, key: str, words: str) -> None:
        """Press a key until `words` are shown: what comes while a dialog opens is dropped by it."""
        for _ in range(15):
            os.write(self._fd, key.encode())
            with contextlib.suppress(TimeoutError):
                return self.until(words, 4)
        raise TimeoutError(f"{key!r} never showed {words}")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        os.close(self._fd)

    @staticmethod
    def _plain(shown: bytes) -> str:
        text = re.sub(r"\x1b\[([0-9]+)C", lambda skip: " " * int(skip[1]), shown.decode(errors="replace"))
        return re.sub(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?<>=u]*[a-zA-Z]|\x1b[=>78]", "", text)

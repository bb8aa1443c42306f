"""How commands end and speak: exit statuses, and one line on stderr for what went wrong.

Knows no command. SPEC: architecture.md 7, gateway.md 15.4.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from airlock.core.errors import ConfigError
from airlock.core.text.safe import one_line
from airlock.edge.settings import Environment

__all__ = ["FAILED", "OK", "SENTENCES", "USAGE", "guarded"]

OK = 0
FAILED = 1
USAGE = 2

SENTENCES: dict[int, str] = {
    OK: "It did what was asked, and found nothing wrong.",
    FAILED: "It could not do what was asked, or found something wrong, and says what.",
    USAGE: "The command line is wrong, and nothing was done.",
}
"""Exit status to what it means for every command. The reference is made from this."""


def guarded(program: str, command: Callable[[], int]) -> int:
    """Run `command`; turn what an operator can mend into one `<program>: <message>` line and status 1.

    `AIRLOCK_DEBUG=1` prints the traceback as well. A closed stdout ends the command silently.
    """
    try:
        return command()
    except BrokenPipeError:
        # SPEC: gateway.md 12.5 [STRICTER]: nobody reads any more; that is no error worth a line.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that the interpreter's last flush is silent
        return FAILED
    except (ConfigError, OSError) as error:
        if Environment.of_process().text("AIRLOCK_DEBUG") == "1":
            traceback.print_exc()
        sys.stderr.write(f"{program}: {one_line(_message(error))}\n")
        return FAILED


def _message(error: ConfigError | OSError) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    words = error.strerror or type(error).__name__
    return f"{error.filename}: {words}" if error.filename is not None else words

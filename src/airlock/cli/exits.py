"""What each command's exit status says. The reference page is made from this table.

Knows the commands by name; the meaning that a status has for all of them is `edge.out`'s.
"""

from __future__ import annotations

import signal

from airlock.edge.out import FAILED, OK, USAGE
from airlock.gateway.serve import STRICT_STATUS

__all__ = ["EXITS", "SAME"]

SAME: dict[str, str] = {
    "mcp-airlock": "airlock gateway serve",
    "airlock-policy lint": "airlock policy lint",
    "airlock-policy diff": "airlock policy diff",
    "airlock-policy pin": "airlock policy pin",
    "airlock-audit query": "airlock audit query",
    "airlock-audit verify": "airlock audit verify",
}
"""Compatible command to the command it is: the same statuses."""

EXITS: dict[str, tuple[tuple[str, str], ...]] = {
    "airlock gateway serve": (
        (str(OK), "SIGTERM told it to stop; open calls were finished, or cancelled when they took too long."),
        (
            str(FAILED),
            "It did not start: a variable, the policy, the pins, the audit or span file, the store, the key file "
            "or the address.",
        ),
        (str(USAGE), "A flag is wrong or missing."),
        (
            str(STRICT_STATUS),
            "`--strict` was given and there was a startup warning; nothing was made or opened.",
        ),
        (str(128 + signal.SIGINT), "Ctrl-C told it to stop; open calls ended as with SIGTERM."),
        (
            "128 + n",
            "A second signal, of number n, came while open calls were being finished, and cut that short.",
        ),
    ),
    "airlock connect": (
        (
            str(OK),
            "The entry was printed, or stands in the client's file; with `--check` the client gets through.",
        ),
        (
            str(FAILED),
            "The client's file cannot be read, edited or written, or holds an entry of somebody else; there is no "
            "key to sign with; or with `--check` the client does not get through.",
        ),
        (str(USAGE), "`CLIENT` is missing or unknown, or a flag is wrong."),
    ),
    "airlock policy lint": (
        (str(OK), "No finding is an `ERROR`; `WARN` and `INFO` do not count."),
        (str(FAILED), "A finding is an `ERROR`. A file that cannot be read, or does not load, is one too."),
        (str(USAGE), "`FILE` is missing or a flag is unknown."),
    ),
    "airlock policy diff": (
        (str(OK), "No finding is an `ERROR`; `WARN` and `INFO` do not count."),
        (
            str(FAILED),
            "A finding is an `ERROR`: the policy, the server's answer, the pins, or where they differ.",
        ),
        (str(USAGE), "`FILE` or `--upstream` is missing, or a flag is wrong."),
    ),
    "airlock policy pin": (
        (str(OK), "The pins file was written; tools that could not be pinned are warned of."),
        (str(FAILED), "The policy does not load, the server does not answer, or the file cannot be written."),
        (str(USAGE), "`FILE` or `--upstream` is missing, or a flag is wrong."),
    ),
    "airlock audit query": (
        (str(OK), "The log was read to its end, whether or not anything matched."),
        (
            str(FAILED),
            "There is no log, a file cannot be read, the DSN is bad, Postgres failed, the postgres extra is "
            "missing, or the result could not be written.",
        ),
        (str(USAGE), "A flag is unknown or makes no sense."),
    ),
    "airlock audit verify": (
        (str(OK), "Every chain holds."),
        (str(FAILED), "A chain breaks, a file cannot be read, or the result could not be written."),
        (str(USAGE), "A flag is unknown."),
    ),
}
"""Command to pairs of status and what it means there."""

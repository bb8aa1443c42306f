"""The three commands of the original by their own names, with its flags and exit statuses.

Knows names only; what they do is the `airlock` command's. Messages are our own words.
"""

from __future__ import annotations

__all__ = ["airlock_audit", "airlock_policy", "mcp_airlock"]


def mcp_airlock() -> None:
    """`mcp-airlock`: `airlock gateway serve` with the original's defaults."""
    from airlock.cli.gateway import mcp_airlock as command

    command(prog_name="mcp-airlock")


def airlock_policy() -> None:
    """`airlock-policy`: `airlock policy`."""
    from airlock.cli.policy import group

    group(prog_name="airlock-policy")


def airlock_audit() -> None:
    """`airlock-audit`: `airlock audit`."""
    from airlock.cli.audit import group

    group(prog_name="airlock-audit")

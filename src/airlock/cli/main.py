"""The `airlock` command: groups found by name and imported only when used.

Knows the table of groups and nothing of what they do.
"""

from __future__ import annotations

import importlib

import click

__all__ = ["main"]

_GROUPS: dict[str, tuple[str, str]] = {
    "audit": ("airlock.cli.audit:group", "Read and check the audit log."),
    "connect": (
        "airlock.cli.connect:command",
        "Point a client at a gateway, and prove that it gets through.",
    ),
    "gateway": ("airlock.cli.gateway:group", "The governing MCP proxy."),
    "policy": ("airlock.cli.policy:group", "Check policy files, and compare them with a server."),
}


class _Lazy(click.Group):
    """A group whose members are found by name, `module:object`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_GROUPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _GROUPS:
            return None
        module, _, member = _GROUPS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), member)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _GROUPS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=_Lazy, name="airlock")
@click.version_option(package_name="airlock", message="airlock %(version)s")
def main() -> None:
    """The boundary between an AI agent and real authority: the agent may ask, it can never grant."""

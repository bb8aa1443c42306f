"""The `airlock` command: groups found by name and imported only when used.

Knows the table of groups and nothing of what they do.
"""

from __future__ import annotations

import importlib

import click

__all__ = ["main"]

_GROUPS: dict[str, tuple[str, str]] = {
    "audit": ("airlock.cli.audit", "Read and check the audit log."),
    "gateway": ("airlock.cli.gateway", "The governing MCP proxy."),
    "policy": ("airlock.cli.policy", "Check policy files, and compare them with a server."),
}


class _Lazy(click.Group):
    """A group whose members are modules that offer `group`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_GROUPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _GROUPS:
            return None
        command: click.Command = importlib.import_module(_GROUPS[cmd_name][0]).group
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _GROUPS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=_Lazy, name="airlock")
@click.version_option(package_name="airlock", message="airlock %(version)s")
def main() -> None:
    """The boundary between an AI agent and real authority: the agent may ask, it can never grant."""

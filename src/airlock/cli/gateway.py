"""`airlock gateway serve`, and the same program under its compatible name `mcp-airlock`.

Knows the flags; the two sets of defaults are `gateway.settings.Defaults`. SPEC: gateway.md 1.3, 15.1.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TypeVar

import click

from airlock.edge import out
from airlock.edge.httpurl import parse_upstream
from airlock.edge.settings import Environment
from airlock.gateway.settings import Defaults, Flags

__all__ = ["group", "mcp_airlock"]

F = TypeVar("F", bound=Callable[..., None])


def _url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        parse_upstream(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _flags(command: F) -> F:
    """The flags of both names."""
    for option in reversed((
        click.option("--policy", required=True, type=click.Path(), metavar="PATH", help="The policy file."),
        click.option("--upstream", metavar="URL", callback=_url,
                     help="The MCP endpoint of the server behind the gateway: http, https or unix:/PATH."),
        click.option("--upstreams", type=click.Path(), metavar="PATH",
                     help="A file of several servers behind the gateway, instead of --upstream."),
        click.option("--env", metavar="NAME", help="Environment name; overrides AIRLOCK_ENV and the policy's own."),
        click.option("--audit", default="audit.jsonl", type=click.Path(), show_default=True, metavar="PATH",
                     help="The audit file."),
        click.option("--audit-max-bytes", type=click.IntRange(min=0), default=0, metavar="N",
                     help="Rotate the audit file before it would pass N bytes; 0: never."),
        click.option("--audit-keep", type=click.IntRange(min=1), default=5, show_default=True, metavar="N",
                     help="Rotated audit files to keep."),
        click.option("--strict", is_flag=True, help="Exit with status 2 if there is any startup warning."),
        click.option("--front", type=click.Choice(["modern", "dual"]), show_default="by program",
                     help="Clients to serve: of revision 2026-07-28, or those that open with initialize too."),
        click.option("--pins", type=click.Path(), metavar="PATH",
                     help="Pins of tools; tools/list leaves out what changed since. The same as AIRLOCK_PINS."),
        click.option("--otel-file", type=click.Path(), metavar="PATH",
                     help="Append each request's span to this file, as JSON Lines. The same as AIRLOCK_OTEL_FILE."),
        click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N",
                     help="Processes that share the port; more than one needs a shared store and a fixed secret."),
        click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDR", help="Listen address."),
        click.option("--port", type=click.IntRange(0, 65535), default=9000, show_default=True, metavar="N",
                     help="Listen port; 0 picks a free one."),
        click.argument("command", nargs=-1, type=click.UNPROCESSED),
    )):  # fmt: skip
        command = option(command)
    return command


def _serve(defaults: Defaults, **flags: object) -> None:
    given = [name for name in ("upstream", "upstreams", "command") if flags[name]]
    if len(given) != 1:
        # SPEC: gateway.md 15.1: without a server it is a usage error like any missing option.
        problem = "Missing option '--upstream'" if not given else "Several servers are given"
        raise click.UsageError(f"{problem}: give exactly one of --upstream, --upstreams and -- COMMAND.")
    if hasattr(signal, "SIGHUP"):
        # SPEC: gateway.md 15.5 [STRICTER]: a reload must not kill a start; nothing was read yet that is stale.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def command() -> int:
        from airlock.gateway.serve import serve

        return serve(Flags(**flags), Environment.of_process(), defaults)  # type: ignore[arg-type]

    sys.exit(out.guarded(defaults.program, command))


@click.group("gateway")
def group() -> None:
    """The governing MCP proxy."""


@group.command("serve")
@_flags
def serve_command(**flags: object) -> None:
    """Serve one or several MCP servers under a policy, with state that survives a restart.

    COMMAND, after --, is a server to start and speak to over its standard input and output. The same program as
    mcp-airlock; the state and the signing key are kept in $XDG_STATE_HOME/airlock.
    """
    _serve(Defaults("airlock", durable=True), **flags)


@click.command("mcp-airlock")
@click.version_option(package_name="airlock", message="mcp-airlock %(version)s")
@_flags
def mcp_airlock(**flags: object) -> None:
    """Serve MCP servers under a policy; state lives in this process unless AIRLOCK_STORE_DSN is set.

    COMMAND, after --, is a server to start and speak to over its standard input and output.
    """
    _serve(Defaults("mcp-airlock", durable=False), **flags)

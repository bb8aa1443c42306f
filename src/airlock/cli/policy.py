"""`airlock policy`, also installed as `airlock-policy`: findings over a policy file, alone and beside a server.

Knows arguments, output and exit codes; what a finding is `core.policy` knows, how a server is asked
`gateway.catalogread`. SPEC: gateway.md 16.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from airlock.core.errors import ConfigError
from airlock.core.policy.diff import Catalog, counted, diff, pin
from airlock.core.policy.lint import Finding, Level, lint
from airlock.core.policy.load import build
from airlock.core.policy.model import Policy
from airlock.core.principal import usable_name
from airlock.core.text.safe import one_line
from airlock.edge import out
from airlock.edge.httpurl import header_line, parse_upstream
from airlock.edge.settings import Environment

__all__ = ["group"]

F = TypeVar("F", bound=Callable[..., None])

_PRINCIPAL = "airlock-policy"
_PINS = "pins.json"


@click.group("policy")
def group() -> None:
    """Check policy files, compare them with a server, and pin the tools of one.

    Every finding is one line, `LEVEL code: message`, where LEVEL is ERROR, WARN or INFO.
    """


def _url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        parse_upstream(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not usable_name(value):
        raise click.BadParameter("a principal has a name, without blanks around it")
    try:
        header_line(b"x-airlock-principal", value.encode())
    except ValueError as error:
        raise click.BadParameter(f"{'not text' if isinstance(error, UnicodeError) else error}") from None
    return value


_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")


def _server(command: F) -> F:
    """What `diff` and `pin` have in common."""
    for option in reversed((
        click.argument("file", type=click.Path()),
        click.option("--upstream", required=True, metavar="URL", callback=_url,
                     help="The MCP endpoint of the server itself; a gateway hides tools."),
        click.option("--env", metavar="NAME", help="Environment name; overrides AIRLOCK_ENV and the policy's own."),
        click.option("--principal", default=_PRINCIPAL, show_default=True, metavar="NAME", callback=_name,
                     help="Who asks, for a server that lists tools by caller."),
    )):  # fmt: skip
        command = option(command)
    return command


@group.command("lint", short_help="Check a policy file, without a network.")
@click.argument("file", type=click.Path())
@click.option("--env", "environments", multiple=True, metavar="NAME",
              help="An environment that must be covered; may be given again.")  # fmt: skip
@_JSON
@click.pass_context
def lint_command(ctx: click.Context, file: str, environments: tuple[str, ...], as_json: bool) -> None:
    """Report what is wrong or doubtful in the policy FILE, without asking any server.

    A policy without `environment` is read in the first --env, else in AIRLOCK_ENV. Nothing found, nothing
    printed. Exits 1 when any finding is an ERROR.

    ERROR: invalid (it cannot be read, or does not load), no_tiers. WARN: no_description (a tool that can write
    has none for who approves), blast_radius_default (a count_arg without limits of its own), where_env_unknown,
    env_unused.
    """
    named = [environment for environment in environments if environment]

    def findings(env: Environment) -> list[Finding]:
        try:
            return lint(_load(file, named[0] if named else env.text("AIRLOCK_ENV"), own_first=True), named)
        except ConfigError as error:
            return [_error("invalid", error)]

    _run(ctx, findings, as_json)


@group.command("diff", short_help="Compare a policy file with what a server lists.")
@_server
@click.option("--pins", type=click.Path(), metavar="PATH", help="Compare with this pins file too.")
@_JSON
@click.pass_context
def diff_command(
    ctx: click.Context,
    file: str,
    upstream: str,
    env: str | None,
    principal: str,
    pins: str | None,
    as_json: bool,
) -> None:
    """Compare the policy FILE with the tools that the server at --upstream lists.

    AIRLOCK_UPSTREAM_AUTH, when set, is sent as the Authorization. Exits 1 when any finding is an ERROR.

    ERROR: invalid, upstream (no usable list of tools), pins_file, missing_upstream (the server has no such tool
    any more), pin_mismatch. WARN: no_dry_run (an L1 or L2 tool that declares none), where_unknown_arg,
    not_allowlisted, no_pin, stale_pin. INFO: ok.
    """

    def findings(environment: Environment) -> list[Finding]:
        from airlock.edge import pinsfile

        found = _ask(file, upstream, env, principal, environment)
        if isinstance(found, Finding):
            return [found]
        try:
            reviewed = None if pins is None else pinsfile.read(pins)
        except ConfigError as error:
            return diff(*found, error)
        return diff(*found, reviewed)

    _run(ctx, findings, as_json)


@group.command("pin", short_help="Write the pins of what a server lists today.")
@_server
@click.option(
    "--pins", default=_PINS, type=click.Path(), show_default=True, metavar="PATH", help="The file to write."
)
@_JSON
@click.pass_context
def pin_command(
    ctx: click.Context,
    file: str,
    upstream: str,
    env: str | None,
    principal: str,
    pins: str,
    as_json: bool,
) -> None:
    """Pin what the server at --upstream says today about the tools that the policy FILE lists.

    Do it with a server you trust, after reading its descriptions. The pins file is replaced whole, or left as
    it was. AIRLOCK_UPSTREAM_AUTH, when set, is sent as the Authorization. Exits 1 when any finding is an ERROR.

    ERROR: invalid, upstream (no usable list of tools), pins_file (it cannot be written). WARN: missing_upstream
    (the server has no such tool, so it gets no pin). INFO: ok.
    """

    def findings(environment: Environment) -> list[Finding]:
        from airlock.edge import pinsfile

        found = _ask(file, upstream, env, principal, environment)
        if isinstance(found, Finding):
            return [found]
        reviewed, warnings = pin(*found)
        try:
            pinsfile.write(pins, reviewed)
        except ConfigError as error:
            return [*warnings, _error("pins_file", error)]
        return [*warnings, Finding(Level.INFO, "ok", f"{one_line(pins)}: {counted(len(reviewed.of))} pinned")]

    _run(ctx, findings, as_json)


def _load(file: str, environment: str | None, *, own_first: bool = False) -> Policy:
    """Read the policy in `environment`; with `own_first` only when the file names none itself."""
    from airlock.edge import yamlfile

    document = yamlfile.load_file(file)
    own = own_first and isinstance(document, dict) and "environment" in document
    return build(document, file, None if own else environment)


def _ask(
    file: str, upstream: str, env: str | None, principal: str, environment: Environment
) -> tuple[Policy, Catalog] | Finding:
    """Read the policy and ask the server, or say which of the two cannot be used."""
    from airlock.gateway import catalogread
    from airlock.gateway.catalog import CatalogUnavailable
    from airlock.gateway.settings import upstream_auth

    authorization = upstream_auth(environment)
    try:
        policy = _load(file, env or environment.text("AIRLOCK_ENV"))
    except ConfigError as error:
        return _error("invalid", error)
    try:
        return policy, catalogread.ask(upstream, principal, authorization)
    except CatalogUnavailable as error:
        return _error("upstream", error)


def _error(code: str, error: Exception) -> Finding:
    return Finding(Level.ERROR, code, one_line(str(error)))


def _run(ctx: click.Context, findings: Callable[[Environment], list[Finding]], as_json: bool) -> None:
    """Find, print, and end the process with the status."""

    def command() -> int:
        found = findings(Environment.of_process())
        _print(_json_line(finding) if as_json else _line(finding) for finding in found)
        return out.FAILED if any(finding.level is Level.ERROR for finding in found) else out.OK

    sys.exit(out.guarded(ctx.find_root().info_name or "airlock", command))


def _line(finding: Finding) -> str:
    # SECURITY: a file and a server may hold names that drive the terminal, or forge a finding of their own.
    return f"{finding.level} {finding.code}: {one_line(finding.message)}"


def _json_line(finding: Finding) -> str:
    return json.dumps({"level": finding.level, "code": finding.code, "message": finding.message})


def _print(lines: Iterable[str]) -> None:
    try:
        for line in lines:
            encoding = sys.stdout.encoding
            click.echo(line.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        # Else the interpreter tries to write what is left at exit, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from error

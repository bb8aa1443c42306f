"""`airlock policy lint`: findings over a policy file, without a network. Also `airlock-policy lint`.

Knows how findings are printed; what they are is `core.policy.lint`'s. SPEC: gateway.md 16.
"""

from __future__ import annotations

import json
import sys

import click

from airlock.core.errors import ConfigError
from airlock.core.policy.lint import Finding, Level, lint
from airlock.core.policy.load import build
from airlock.core.text.safe import one_line
from airlock.edge import out, yamlfile
from airlock.edge.settings import Environment

__all__ = ["group"]


@click.group("policy")
def group() -> None:
    """Check policy files."""


@group.command("lint")
@click.argument("file")
@click.option(
    "--env", "environments", multiple=True, metavar="NAME", help="An environment that must be covered."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
@click.pass_context
def lint_command(ctx: click.Context, file: str, environments: tuple[str, ...], as_json: bool) -> None:
    """Report what is wrong or doubtful in the policy FILE; exit 1 when any finding is an error."""
    program = ctx.find_root().info_name or "airlock"

    def command() -> int:
        findings = _findings(file, environments, Environment.of_process())
        for finding in findings:
            if as_json:
                row = {"level": finding.level.value, "code": finding.code, "message": finding.message}
                click.echo(json.dumps(row, ensure_ascii=True))
            else:
                click.echo(f"{finding.level.value} {finding.code}: {one_line(finding.message)}")
        return out.FAILED if any(finding.level is Level.ERROR for finding in findings) else out.OK

    sys.exit(out.guarded(program, command))


def _findings(file: str, environments: tuple[str, ...], env: Environment) -> list[Finding]:
    """Lint in the policy's own environment, else the first one named, else AIRLOCK_ENV."""
    try:
        document = yamlfile.load_file(file)
        own = isinstance(document, dict) and "environment" in document
        running = None if own else (environments[0] if environments else env.text("AIRLOCK_ENV"))
        return lint(build(document, file, running), environments)
    except ConfigError as error:
        return [Finding(Level.ERROR, "invalid", str(error))]

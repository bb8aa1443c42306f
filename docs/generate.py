"""Writes the reference pages that are made from the code: `.venv/bin/python docs/generate.py [--check]`.

Knows how to lay out a table; what stands in it comes from the modules that define it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from airlock.cli.audit import group as audit_group
from airlock.cli.exits import EXITS, SAME
from airlock.cli.gateway import mcp_airlock
from airlock.cli.main import main as airlock
from airlock.cli.policy import group as policy_group
from airlock.core.audit import record
from airlock.core.rules import SENTENCES
from airlock.edge import out
from airlock.gateway import meta as meta_keys
from airlock.gateway.settings import DIFFERENCES
from airlock.gateway.variables import BY_PROGRAM, VARIABLES

__all__ = ["COMMANDS", "PAGES", "leaves", "main", "table"]

DOCS = Path(__file__).resolve().parent
_MADE = "<!-- Made by docs/generate.py from the code; edit there. -->\n"

COMMANDS: dict[str, click.Command] = {
    "airlock": airlock,
    "mcp-airlock": mcp_airlock,
    "airlock-policy": policy_group,
    "airlock-audit": audit_group,
}
"""The installed commands."""


def table(*rows: tuple[str, ...]) -> str:
    """Lay out a Markdown table; the first row is its head."""
    head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body]) + "\n"


def rules() -> str:
    """The page of rule ids."""
    body = table(
        ("rule", "what it says"), *((f"`{rule.value}`", sentence) for rule, sentence in SENTENCES.items())
    )
    return f"""{_MADE}
# Rule ids

Every decision names one rule. It stands in `_meta["io.mcp-airlock/rule_id"]` of the result and in `rule_id`
of both audit records.

{body}
A request that breaks the protocol is denied with `protocol.<code>`, where `<code>` is the JSON-RPC error code
of the answer, for example `protocol.-32602`.
"""


def leaves(name: str, command: click.Command, above: click.Context | None = None) -> Iterator[click.Context]:
    """Yield a context for `command` and for each one below it; a group without flags is left out."""
    context = click.Context(command, info_name=name, parent=above)
    if not isinstance(command, click.Group) or command.params:
        yield context
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            below = command.get_command(context, word)
            assert below is not None
            yield from leaves(word, below, context)


def flags() -> str:
    """The page of commands and their flags."""
    contexts = [context for name, command in COMMANDS.items() for context in leaves(name, command)]
    sections = "\n".join(map(_command, contexts))
    return f"""{_MADE}
# Commands and flags

Every command also takes `--help`. What the commands return is on the page of [exit statuses](exits.md); what
the two programs `airlock gateway serve` and `mcp-airlock` do differently, on that of [defaults](defaults.md).

{sections}"""


def _command(context: click.Context) -> str:
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    says = inspect.cleandoc(context.command.help or "")
    rows = [_flag(param) for param in context.command.params]
    text = f"## {context.command_path}\n\n```\n{usage}\n```\n\n{says}\n"
    return f"{text}\n{table(('name', 'type', 'default', 'what it does'), *rows)}" if rows else text


def _flag(param: click.Parameter) -> tuple[str, str, str, str]:
    info = param.to_info_dict()
    option = isinstance(param, click.Option)
    name = ", ".join(info["opts"]) if option else param.human_readable_name.strip("[].")
    if info["required"]:
        default = "required"
    elif info.get("is_flag"):
        default = "off"
    else:
        default = "none" if info["default"] is None else f"`{info['default']}`"
    kind = "switch" if info.get("is_flag") else _kind(info["type"])
    if info["multiple"] if option else info["nargs"] != 1:
        kind += ", any number of times" if option else ", any number"
    metavar = f" {param.metavar}" if option and param.metavar else ""
    says = info["help"] or "See above."
    return f"`{name}{metavar}`", kind, default, says


def _kind(kind: dict[str, Any]) -> str:
    """Name a type of click's in words."""
    if kind["param_type"] == "Choice":
        return " or ".join(f"`{choice}`" for choice in kind["choices"])
    if kind["param_type"] == "IntRange":
        low, high = kind["min"], kind["max"]
        return f"whole number from {low}" + (f" to {high}" if high is not None else "")
    return str(kind["name"])


def variables() -> str:
    """The page of environment variables."""
    differing = {name: f"{theirs}; {ours} in `airlock gateway serve`" for name, theirs, ours in DIFFERENCES}
    rows = [
        (f"`{name}`", differing[name] if default == BY_PROGRAM else default, sentence)
        for name, default, sentence in VARIABLES
    ]
    return f"""{_MADE}
# Environment variables

An empty variable counts as unset. A value that is not valid stops the start with one line and exit status 1.
No proxy variable (`HTTP_PROXY` and the like) is read.

{table(("variable", "default", "what it does"), *rows)}
"""


def defaults() -> str:
    """The page of what differs between the two names of the program."""
    rows = [(f"`{name}`", theirs, ours) for name, theirs, ours in DIFFERENCES]
    return f"""{_MADE}
# Defaults of the two programs

`mcp-airlock` and `airlock gateway serve` are one program. The first has the defaults of the published proxy
of that name, the second keeps what must survive a restart. Each difference is one setting, and either program
takes it:

{table(("setting", "`mcp-airlock`", "`airlock gateway serve`"), *rows)}
`XDG_STATE_HOME` is `$HOME/.local/state` when it is not set. Each program begins its lines on stderr with its
own name, `mcp-airlock:` or `airlock:`, and the startup warnings about a store without a key, or a key without
a store, take its defaults into account. The [variables](variables.md) are the same, and so are the
[flags](flags.md) but for `--version`, which `airlock` itself has.

What both refuse and the published proxy takes is in [ADR 0006](../adr/0006-where-we-are-stricter.md).
"""


def audit() -> str:
    """The page of the fields of an audit record."""
    rows = [(f"`{field}`", record.SENTENCES[field]) for field in record.FIELDS]
    return f"""{_MADE}
# Audit records

The audit file holds one JSON object a line, with these {len(record.FIELDS)} fields in this order. What is
missing is null. Each request leaves two records, the intent before anything happens and the outcome after; a
request whose intent cannot be written goes no further. Names, `args` and `detail` are written with secrets
masked.

{table(("field", "what it holds"), *rows)}
`rule_id` is one of the [rule ids](rules.md). Each record carries the hash of the one before it, also from a
rotated file to the next, so that `airlock audit verify` finds a line that was edited, removed or moved. The
form that is hashed is decided in [ADR 0005](../adr/0005-audit-form.md); what the chain cannot show is in
[what the gateway cannot do](../security/gateway.md).
"""


def meta() -> str:
    """The page of the `_meta` keys."""
    added = [(f"`{key}`", where, value) for key, where, value in meta_keys.SET]
    removed = [
        (", ".join(f"`{key}`" for key in keys.split(", ")), where, why)
        for keys, where, why in meta_keys.STRIPPED
    ]
    return f"""{_MADE}
# Keys in `_meta`

Keys that begin with `{meta_keys.PREFIX}` are the gateway's alone, in both directions. Other keys pass, except
as the second table says.

## Set by the gateway

{table(("key", "where", "value"), *added)}
The gateway's own `tools/list` to the upstream, which it sends to learn whether a tool declares `dry_run`,
carries the caller's name, groups and protocol version, the trace, and no client capabilities.

## Removed by the gateway

{table(("key", "from", "why"), *removed)}
A `_meta` of the upstream's that is not an object is replaced by an empty one wherever keys are removed.
"""


def exits() -> str:
    """The page of exit statuses."""
    general = [(str(status), sentence) for status, sentence in out.SENTENCES.items()]
    sections = ""
    for command, rows in EXITS.items():
        names = [f"`{name}`" for name in (command, *(one for one, other in SAME.items() if other == command))]
        sections += f"\n## {', '.join(names)}\n\n{table(('status', 'when'), *rows)}"
    return f"""{_MADE}
# Exit statuses

For every command:

{table(("status", "what it means"), *general)}
`--help` and `--version` return {out.OK}; a command that lacks its subcommand prints its help and returns
{out.USAGE}.

A running gateway does not end on SIGHUP: it reads its policy and its pins again, takes both or neither, and says so
in one line.
{sections}"""


PAGES: dict[str, Callable[[], str]] = {
    "reference/audit.md": audit,
    "reference/defaults.md": defaults,
    "reference/exits.md": exits,
    "reference/flags.md": flags,
    "reference/meta.md": meta,
    "reference/rules.md": rules,
    "reference/variables.md": variables,
}
"""Path below docs/ to the function that makes the page."""


def main(arguments: list[str], docs: Path = DOCS) -> int:
    """Write the pages, or with `--check` name those that differ from the code and return 1."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: .venv/bin/python docs/generate.py [--check]\n")
        return 2
    stale = []
    for name, make in PAGES.items():
        page, text = docs / name, make()
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not arguments:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
    word = "differs from the code; run .venv/bin/python docs/generate.py" if arguments else "written"
    sys.stdout.writelines(f"docs/{name}: {word}\n" for name in stale)
    return 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

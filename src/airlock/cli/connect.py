"""`airlock connect`: points a client at a gateway, and proves that it gets through.

Knows flags, what is printed and exit codes; files, tokens and the visit are `gateway.connect`'s.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import click

from airlock.core.errors import ConfigError
from airlock.core.principal import usable_name
from airlock.core.text.safe import one_line
from airlock.edge import out
from airlock.edge.httpurl import parse_target
from airlock.edge.settings import Environment
from airlock.gateway.connect.clients import NAMES

if TYPE_CHECKING:
    from airlock.gateway.connect.apply import Wish
    from airlock.gateway.connect.clients import Client, Place
    from airlock.gateway.connect.handshake import Visit

__all__ = ["command"]

_URL = "http://127.0.0.1:9000/mcp"
_TTL = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 366 * 86400
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_OURS = "airlock"
_MASKED = "Bearer ***"


def _url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        target = parse_target(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if target.scheme == "unix":
        raise click.BadParameter("clients speak http:// and https:// only")
    if "$" in value:
        raise click.BadParameter("clients would take a $ for a variable")
    return value


def _name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise click.BadParameter("letters, digits, - and _, beginning with a letter, at most 64")
    return value


def _principal(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not usable_name(value):
        raise click.BadParameter("a principal has a name, without blanks around it")
    return value


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> int:
    match = _TTL.fullmatch(value)
    seconds = int(match[1]) * _SECONDS[match[2]] if match is not None else 0
    if not 60 <= seconds <= _LONGEST:
        raise click.BadParameter("a number and one of s, m, h, d, such as 12h or 30d; from 60s to 366d")
    return seconds


@click.command("connect")
@click.argument("client", type=click.Choice(NAMES))
@click.option("--url", metavar="URL", callback=_url, help=f"The gateway's address. [default: {_URL}]")
@click.option("--name", default=_OURS, show_default=True, metavar="NAME", callback=_name,
              help="What the client calls the gateway.")  # fmt: skip
@click.option("--principal", metavar="NAME", callback=_principal,
              help="Whom the token names. [default: the user who runs this]")  # fmt: skip
@click.option("--ttl", default="30d", show_default=True, metavar="TIME", callback=_seconds,
              help="How long the token is good: a number and s, m, h or d.")  # fmt: skip
@click.option(
    "--write", is_flag=True, help="Put the entry into the client's own file; a copy of the file is kept."
)
@click.option("--check", is_flag=True, help="Connect as the client would, with what stands in its file.")
@click.option(
    "--replace", is_flag=True, help="With --write, replace an entry of that name made by somebody else."
)
@click.option("--show-token", is_flag=True, help="Print the token instead of ***.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    client: str,
    url: str | None,
    name: str,
    principal: str | None,
    ttl: int,
    write: bool,
    check: bool,
    replace: bool,
    show_token: bool,
    as_json: bool,
) -> None:
    """Print how CLIENT is pointed at this gateway, with --write do it, with --check prove it.

    The token is signed with the key of a gateway that this user runs on this machine with nothing else set, or with
    AIRLOCK_JWT_SECRET. With AIRLOCK_JWKS_URL none is made: the client gets one by OAuth.
    """
    if replace and not write:
        raise click.UsageError("--replace goes with --write.")
    if show_token and (write or check):
        raise click.UsageError(
            "--show-token goes without --write and --check: the client's file holds the token."
        )
    program = ctx.find_root().info_name or "airlock"

    def run() -> int:
        from airlock.gateway.connect import clients

        job = _Job(clients.load(client), clients.Place(Environment.of_process()), name, program, as_json)
        if check and not write:
            return job.check(url)
        wish = job.wish(url or _URL, principal, ttl, make_key=write or show_token)
        if not write:
            return job.show(wish, revealed=show_token)
        job.write(wish, replace=replace)
        return job.check(None) if check else job.done()

    sys.exit(out.guarded(program, run))


class _Job:
    """One run for one client. With `--json` what is to be said is gathered, and printed at its end."""

    def __init__(self, client: Client, place: Place, name: str, program: str, as_json: bool) -> None:
        self._client, self._place, self._name = client, place, name
        self._program, self._as_json = program, as_json
        self._told: dict[str, object] = {"client": client.name, "name": name}
        self._reason: str | None = None

    def wish(self, url: str, principal: str | None, ttl: int, *, make_key: bool) -> Wish:
        """Decide what the client is to connect with."""
        from airlock.gateway.connect import token
        from airlock.gateway.connect.apply import Wish

        signer = token.signer(self._place.env, url, make_key=make_key)
        if isinstance(signer, token.Unsigned):
            self._reason = signer.reason
            if principal is not None:
                raise ConfigError("", f"--principal has no token to stand in: {signer.reason}")
            return Wish(url, "", ttl, None)
        return Wish(url, principal or token.user(), ttl, signer)

    def show(self, wish: Wish, *, revealed: bool) -> int:
        """Print the entry, and the client's own commands for the same."""
        from airlock.gateway.connect.clients import entry_of

        client, now = self._client, int(datetime.now(UTC).timestamp())
        authorization = None
        if wish.signer is not None:
            made = wish.signer.make(wish.principal, now, wish.seconds)
            authorization = f"Bearer {made.reveal()}" if revealed else _MASKED
        path = client.file(self._place)
        entry = entry_of(client, wish.url, authorization)
        snippet = client.format.show(client.section, self._name, entry)
        commands = client.commands(self._name, wish.url, authorization)
        until = None if wish.signer is None else now + wish.seconds
        self._tell(file=path, url=wish.url, entry=entry, commands=list(commands), **self._who(wish, until))
        if self._as_json:
            return self.done()
        self._say(f"# {client.title} keeps its servers in {path}. What belongs there:", "", snippet)
        if commands:
            self._say("# or let it do that itself:", "", *commands, "")
        self._say(f"# {self._sentence(wish, until)}")
        if wish.signer is not None and not revealed:
            self._say("# The token is not shown: --show-token prints it, --write puts it into the file.")
        return out.OK

    def write(self, wish: Wish, *, replace: bool) -> None:
        """Put the entry into the client's file."""
        from airlock.gateway.connect.apply import apply

        done = apply(self._client, self._place, self._name, wish, datetime.now(UTC), replace=replace)
        self._tell(
            file=done.path,
            url=wish.url,
            changed=done.changed,
            backup=done.copy,
            **self._who(wish, done.until),
        )
        if not done.changed:
            self._say(f'{done.path}: "{self._name}" is as it should be; nothing was changed')
        else:
            self._say(f'{done.path}: "{self._name}" leads to {wish.url} now')
        if done.copy is not None:
            self._say(f"  it is kept as it was in {done.copy}")
        if done.narrowed:
            self._say("  others could read the file; it holds a token now, so they cannot any more")
        self._say(f"  {self._sentence(wish, done.until)}")
        if done.changed:
            self._say(
                f"  start {self._client.title} anew; then: {self._client.proof.format(name=self._name)}"
            )

    def check(self, url: str | None) -> int:
        """Connect with what stands in the file; `url`, when given, is what has to stand there."""
        from airlock.gateway.connect import apply, clients, handshake, token

        client, env = self._client, self._place.env
        path, entry = apply.read_entry(client, self._place, self._name)
        named = "" if self._name == _OURS else f" --name {self._name}"
        again = f"{self._program} connect {client.name}{named} --write"
        self._tell(file=path)
        if entry is None:
            return self._failed(f'{path}: it has no entry "{self._name}"', again)
        endpoint = clients.reach(client, entry, env)
        if endpoint is None:
            return self._failed(
                f'{path}: "{self._name}" has no address: it starts a command', f"{again} --replace"
            )
        if entry.get("enabled") is False or entry.get("disabled") is True:
            return self._failed(
                f'{path}: "{self._name}" is switched off', "take enabled or disabled out of the entry"
            )
        if url is not None and endpoint.url != url:
            return self._failed(f'{path}: "{self._name}" leads to {endpoint.url}', f"{again} --url {url}")
        found = handshake.visit(endpoint, client.opening, version("airlock"))
        subject = token.claimed(endpoint.authorization).get("sub")
        whom = one_line(subject) if isinstance(subject, str) else None
        self._tell(url=endpoint.url, reachable=found.reachable, opened=found.opened, revision=found.revision,
                   principal=whom, accepted=found.accepted, tools=found.tools)  # fmt: skip
        self._report(path, endpoint.url, whom, found)
        if found.problem is None:
            return self.done()
        return self._failed(
            f"{endpoint.url}: {found.problem}", self._advice(found, endpoint.authorization, again)
        )

    def done(self) -> int:
        """Print what was gathered."""
        if self._as_json:
            click.echo(json.dumps(self._told))
        return out.OK

    def _report(self, path: str, url: str, whom: str | None, found: Visit) -> None:
        self._say(f'{self._client.title}, {path}: "{self._name}" at {url}')
        self._say(f"  reachable  {'yes' if found.reachable else 'no'}")
        if found.revision is not None:
            self._say(f"  speaks     {found.revision}, opened with {found.opened}")
        if found.accepted is not None:
            accepted = "accepted" if found.accepted else "not accepted"
            self._say(f"  principal  {accepted if whom is None else f'{whom}, {accepted}'}")
        if found.tools is not None:
            self._say(f"  tools      {found.tools} to be seen")

    def _advice(self, found: Visit, authorization: str | None, again: str) -> str:
        """Say what to do about a visit that failed."""
        from airlock.gateway.connect import token

        if not found.reachable:
            return "is it running there? airlock gateway serve --policy FILE --upstream URL"
        if found.status == 401 and found.signs_in and authorization is None:
            return f"sign in with {self._client.title} itself: it gets a token by OAuth"
        if found.status == 401 and authorization is None:
            return f"{again}, with the gateway's AIRLOCK_JWT_SECRET if it has one"
        if found.status == 401:
            until = token.claimed(authorization).get("exp")
            if isinstance(until, int | float) and until <= datetime.now(UTC).timestamp():
                return f"the token has expired: {again}"
            return (
                f"if it is of another key: {again}, with AIRLOCK_JWT_SECRET or XDG_STATE_HOME as the gateway"
            )
        if found.status == 403:
            return "the gateway's own log and audit file say what it wants of a caller"
        if found.status == 404:
            return "the gateway's endpoint is /mcp"
        if found.status == 400 and found.opened is None:
            return "it may serve clients of 2026-07-28 only: start it with --front dual"
        return "is a gateway of Airlock there? the address and the log of it would tell"

    def _who(self, wish: Wish, until: int | None) -> dict[str, object]:
        if wish.signer is None:
            return {"principal": None, "expires": None, "note": self._reason}
        return {"principal": wish.principal, "expires": until}

    def _sentence(self, wish: Wish, until: int | None) -> str:
        if wish.signer is None or until is None:
            return f"There is no token in it: {self._reason}."
        day = datetime.fromtimestamp(until, UTC)
        return f"The token names {one_line(wish.principal)} until {day:%Y-%m-%d %H:%M} UTC ({wish.signer.source})."

    def _failed(self, problem: str, hint: str) -> int:
        self._tell(problem=problem, hint=hint)
        self.done()
        sys.stderr.write(f"{self._program}: {one_line(problem)}\n{self._program}: hint: {one_line(hint)}\n")
        return out.FAILED

    def _tell(self, **what: object) -> None:
        self._told.update(what)

    def _say(self, *lines: str) -> None:
        if not self._as_json:
            for line in lines:
                click.echo(line)

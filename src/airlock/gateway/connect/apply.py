"""From what a client should connect with to its file: what is there already, what may be replaced, what is written.

Knows entries and when one is ours; how a format is written and how a file is replaced stand elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from airlock.core.errors import ConfigError, Fault
from airlock.core.text.safe import one_line
from airlock.edge.httpurl import parse_target
from airlock.edge.settings import Environment
from airlock.gateway.connect import configfile, token
from airlock.gateway.connect.clients import Client, Endpoint, Place, entry_of, merged, reach
from airlock.gateway.connect.token import SCHEME, Signer

__all__ = ["Applied", "Wish", "apply", "read_entry"]

_BY_HAND: Final = "add the entry by hand: without --write it is printed"


class Wish(msgspec.Struct, frozen=True):
    """What a client is to connect with: an address, and as whom for how many seconds. No `signer`: no token."""

    url: str
    principal: str
    seconds: int
    signer: Signer | None


class Applied(msgspec.Struct, frozen=True):
    """What became of a file. `entry` is what it holds now, `until` how long its token is good (Unix seconds).

    `copy` is where the file is kept as it was before; None when nothing was changed, or there was no file.
    """

    path: str
    entry: dict[str, object]
    changed: bool
    until: int | None = None
    copy: str | None = None
    narrowed: bool = False


def read_entry(client: Client, place: Place, name: str) -> tuple[str, dict[str, object] | None]:
    """Return the client's file, and its entry `name`, None when there is none. Raises ConfigError."""
    path = client.file(place)
    document = client.format.parse(configfile.read(path).text(), path)
    return path, _entry(document, client, path, name)


def apply(
    client: Client, place: Place, name: str, wish: Wish, now: datetime, *, replace: bool = False
) -> Applied:
    """Make the client's entry `name` say what `wish` says. A token that is still good for long enough stays.

    `replace` takes the place of an entry that is not ours. Raises ConfigError; the file is then as it was.
    """
    path = client.file(place)
    held = configfile.read(path)
    text = held.text()
    document = client.format.parse(text, path)
    old = _entry(document, client, path, name)
    point = reach(client, old) if old is not None else None
    authorization, until = _authorization(wish, point, int(now.timestamp()))
    new = entry_of(client, wish.url, authorization)
    ours = old is None or _ours(point, wish, place.env)
    if old is not None and (ours or not replace):
        new = _together(client, old, point, new, place.env)
    if old == new:
        return Applied(path, new, changed=False, until=until)
    if not ours and not replace:
        problem = f'it holds an entry "{name}" that airlock connect did not make'
        raise ConfigError(
            path, [Fault("", problem, "--replace takes its place, --name gives ours another name")]
        )
    edited = client.format.put(text, path, client.section, name, new)
    _check(client, path, edited, document, name, new)
    private = authorization is not None
    copy = configfile.replace(held, edited, now, private=private)
    narrowed = private and held.mode is not None and held.mode & 0o077 != 0
    return Applied(path, new, changed=True, until=until, copy=copy, narrowed=narrowed)


def _authorization(wish: Wish, point: Endpoint | None, now: int) -> tuple[str | None, int | None]:
    """Return what the client shall send, and how long it is good."""
    if wish.signer is None:
        return None, None
    before = None if point is None else point.authorization
    if before is not None and before.startswith(SCHEME):
        until = wish.signer.until(before.removeprefix(SCHEME), wish.principal, now)
        # A second run would else change the file each time. One that is good for longer than asked is not kept.
        if until is not None and now + wish.seconds // 2 <= until <= now + wish.seconds:
            return before, until
    made = wish.signer.make(wish.principal, now, wish.seconds)
    return SCHEME + made.reveal(), now + wish.seconds


def _ours(point: Endpoint | None, wish: Wish, env: Environment) -> bool:
    """Tell whether an entry may be changed: it has a token of ours, or no credential and leads to this gateway."""
    if point is None:
        return False
    if point.authorization is not None:
        return token.made_here(point.authorization, env)
    return _same(point.url, wish.url)


def _same(one: str, other: str) -> bool:
    try:
        return parse_target(one) == parse_target(other)
    except ValueError:
        return False


def _together(
    client: Client,
    old: Mapping[str, object],
    point: Endpoint | None,
    new: dict[str, object],
    env: Environment,
) -> dict[str, object]:
    """Return `old` changed into `new`. Where we have no token, one that somebody else put there stays."""
    credential = None if point is None else point.authorization
    if credential is not None and client.headers_key not in new and not token.made_here(credential, env):
        return {**old, **new}
    return merged(client, old, new)


def _entry(document: Mapping[str, object], client: Client, path: str, name: str) -> dict[str, object] | None:
    servers = document.get(client.section)
    if servers is None:
        return None
    found = servers.get(name) if isinstance(servers, dict) else servers
    if not isinstance(servers, dict) or not (found is None or isinstance(found, dict)):
        raise ConfigError(path, f"{client.section} is not a table of servers")
    return found


def _check(
    client: Client, path: str, text: str, before: Mapping[str, object], name: str, entry: dict[str, object]
) -> None:
    """INVARIANT: what is written reads as what was there, with our entry in it, and nothing else changed."""
    held = before.get(client.section)
    wanted = {**before, client.section: {**(held if isinstance(held, dict) else {}), name: entry}}
    try:
        same = client.format.parse(text, path) == wanted
    except ConfigError:
        same = False
    if not same:
        problem = f"its {one_line(client.section)} is written in a way that cannot be edited safely"
        raise ConfigError(path, [Fault("", problem, _BY_HAND)])

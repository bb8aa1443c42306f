"""What all clients have in common: a file, a table of servers in it, and how the client opens a conversation.

Knows the six by name and imports one on use; what is particular to a client stands in the module of its name.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from airlock.core.errors import ConfigError
from airlock.edge.settings import Environment

__all__ = [
    "NAMES",
    "Client",
    "Endpoint",
    "Format",
    "Opening",
    "Place",
    "braced",
    "entry_of",
    "literal",
    "load",
    "merged",
    "reach",
]

NAMES: Final = ("claude", "codex", "cursor", "vscode", "gemini", "hermes")
"""What the command line calls the clients."""

_AUTHORIZATION: Final = "authorization"
_BRACED: Final = re.compile(r"\$\{(?:env:)?([^}]+)\}")


class Place(msgspec.Struct, frozen=True):
    """Where a client runs: its environment, and the system as `sys.platform` spells it."""

    env: Environment
    system: str = sys.platform

    def home(self) -> str:
        """Return the user's home. Raises ConfigError when `HOME` names no absolute folder."""
        found = self.env.text("HOME")
        if found is None or not os.path.isabs(found):
            raise ConfigError(
                "", "HOME must name an absolute folder: the client keeps its configuration there"
            )
        return found

    def folder(self, variable: str, default: str) -> str:
        """Return the folder that `variable` names, else `default` in the home.

        Raises ConfigError for a value that is not absolute: the client would read it from wherever it starts.
        """
        given = self.env.text(variable)
        if given is None:
            return f"{self.home()}/{default}"
        if not os.path.isabs(given):
            raise ConfigError("", f"{variable} must name an absolute folder")
        return given


class Opening(msgspec.Struct, frozen=True):
    """What a client says first: `initialize` at `revision`, or before it `server/discover` of 2026-07-28."""

    revision: str
    discovers: bool = False


class Format(Protocol):
    """One way to write configuration down. `path` only names the file in an error."""

    def parse(self, text: str, path: str) -> dict[str, object]:
        """Return the whole of a file; nothing is `{}`. Raises ConfigError for what cannot be read."""
        ...

    def put(self, text: str, path: str, section: str, name: str, entry: Mapping[str, object]) -> str:
        """Return `text` with `entry` as `section.name`, everything else as it was. Raises ConfigError."""
        ...

    def show(self, section: str, name: str, entry: Mapping[str, object]) -> str:
        """Return a file that holds nothing but `entry`."""
        ...


class Endpoint(msgspec.Struct, frozen=True):
    """What a client connects with: the address, and the headers of every request by their names as written."""

    url: str
    headers: dict[str, str]

    @property
    def authorization(self) -> str | None:
        """The value of the `Authorization` header."""
        return next((value for name, value in self.headers.items() if name.lower() == _AUTHORIZATION), None)


def _nothing_more(_entry: Mapping[str, object]) -> dict[str, str]:
    return {}


class Client(msgspec.Struct, frozen=True):
    """One client. `file` finds its configuration, `section` is the table of servers there.

    `url_keys`: where an entry has its address, the first is what we write. `fixed` goes into each of our entries,
    `stale` out of it. `borrowed` gives headers whose values an entry takes from variables, as `${NAME}`.
    `expand` fills in variables as the client does. `commands` are the client's own for the same, for a shell;
    `proof` is how the client itself shows that it is connected, with `{name}` for the entry's.
    """

    name: str
    title: str
    opening: Opening
    format: Format
    file: Callable[[Place], str]
    section: str
    commands: Callable[[str, str, str | None], tuple[str, ...]]
    proof: str
    expand: Callable[[str, Environment], str]
    url_keys: tuple[str, ...] = ("url",)
    headers_key: str = "headers"
    fixed: Mapping[str, object] = {}
    stale: frozenset[str] = frozenset()
    borrowed: Callable[[Mapping[str, object]], dict[str, str]] = _nothing_more


def load(name: str) -> Client:
    """Return the client of one of `NAMES`."""
    client: Client = importlib.import_module(f"airlock.gateway.connect.{name}").CLIENT
    return client


def entry_of(client: Client, url: str, authorization: str | None) -> dict[str, object]:
    """Return the client's entry for a server at `url`, to which it sends this `Authorization`, or none."""
    entry: dict[str, object] = {**client.fixed, client.url_keys[0]: url}
    if authorization is not None:
        entry[client.headers_key] = {"Authorization": authorization}
    return entry


def merged(client: Client, old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    """Return `old` with what `new` says instead of it; what people added stays, also other headers."""
    ours = {*client.url_keys, *client.stale, client.headers_key}
    entry = {key: new.get(key, value) for key, value in old.items() if key not in ours or key in new}
    for key, value in new.items():
        entry.setdefault(key, value)
    kept = {k: v for k, v in _headers(client, old).items() if k.lower() != _AUTHORIZATION}
    headers = {**kept, **_headers(client, new)}
    if headers:
        entry[client.headers_key] = headers
    return entry


def reach(client: Client, entry: Mapping[str, object], env: Environment | None = None) -> Endpoint | None:
    """Return what the client connects with, variables filled in from `env`; without it as they are written.

    None for an entry without an address, such as a command. Raises ConfigError for a variable that is not there.
    """
    url = next((value for key in client.url_keys if isinstance(value := entry.get(key), str)), None)
    if url is None:
        return None
    headers = {name: value for name, value in _headers(client, entry).items() if isinstance(value, str)}
    borrowed = client.borrowed(entry)
    if env is None:
        return Endpoint(url, {**headers, **borrowed})
    filled = {name: client.expand(value, env) for name, value in headers.items()}
    filled |= {name: braced(value, env) for name, value in borrowed.items()}
    return Endpoint(client.expand(url, env), filled)


def braced(text: str, env: Environment) -> str:
    """Fill in `${NAME}` and `${env:NAME}`. Raises ConfigError for a name that is not set."""

    def value(match: re.Match[str]) -> str:
        name, _, default = match[1].partition(":-")
        found = env.text(name.strip())
        if found is None and not default:
            raise ConfigError("", f"the client's entry takes {match[0]} from a variable that is not set here")
        return found or default

    return _BRACED.sub(value, text)


def literal(text: str, _env: Environment) -> str:
    """Fill in nothing."""
    return text


def _headers(client: Client, entry: Mapping[str, object]) -> dict[str, object]:
    found = entry.get(client.headers_key)
    return dict(found) if isinstance(found, dict) else {}

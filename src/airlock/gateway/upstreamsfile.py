"""The file of upstreams: what stands behind the gateway, as frozen values; or every fault in it with its path.

Knows the keys of the file, and reads the variables and files that it names for credentials; opens no server.
SPEC: issue 4, item 4.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from airlock.core.errors import ConfigError, Fault
from airlock.core.secret import Secret
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line
from airlock.edge import yamlfile
from airlock.edge.httpurl import header_line, parse_upstream
from airlock.edge.settings import Environment
from airlock.edge.tokenexchange import Exchange
from airlock.gateway.oauth import insecure

__all__ = [
    "KEYS",
    "LIMITS",
    "MAX_UPSTREAMS",
    "Bounds",
    "Local",
    "Remote",
    "UpstreamSpec",
    "WantedEra",
    "build",
    "load",
    "spec_of_command",
    "spec_of_url",
]

MAX_UPSTREAMS: Final = 64
"""LIMIT: every list asks all of them at once."""

_TOP = ("version", "upstreams")
KEYS: Final = (
    "command", "stdio", "url", "env", "cwd", "bearer", "header", "exchange", "prefix", "era", "policy", "pins",
    "limits",
)  # fmt: skip
"""What may be said about one upstream."""

_PLACES = ("command", "stdio", "url")
_OF_COMMAND = ("env", "cwd")
_OF_URL = ("bearer", "header", "exchange")
_OF_EXCHANGE = ("token_url", "client_id", "client_secret", "audience", "resource", "scope")
_FORM = "is a small letter, then at most 30 small letters, digits and hyphens"
_PREFIX = re.compile(r"[a-z][a-z0-9-]{0,30}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEARER = re.compile(r"[\x21-\x7e]+")
_MAX_SECRET_BYTES = 64 * 1024
_SHOWN_CHARS = 40
_MORE = "..."

# SECURITY: what each request says itself, or the client of the connection: an operator's line beside it would let
# one request be read as two, or for another method. `authorization` is taken once, from one place.
_OURS = frozenset({
    "accept", "accept-encoding", "content-encoding", "content-type", "last-event-id", "proxy-authorization",
    "traceparent", "tracestate",
})  # fmt: skip
_OUR_PREFIX = "mcp-"


class WantedEra(StrEnum):
    """What an upstream is to be spoken to in: as it answers, or one family of revisions only."""

    AUTO = "auto"
    MODERN = "modern"
    LEGACY = "legacy"


class Bounds(msgspec.Struct, frozen=True):
    """What one upstream may take: bytes of an answer, seconds of a call and of a list, requests at once."""

    max_bytes: int = 8 * 1024 * 1024
    timeout_s: float = 60.0
    list_timeout_s: float = 5.0
    max_in_flight: int = 64


LIMITS: Final[Mapping[str, tuple[type, float, float]]] = {
    "max_bytes": (int, 1024, 2**30),
    "timeout_s": (float, 0.1, 3600),
    "list_timeout_s": (float, 0.1, 60),
    "max_in_flight": (int, 1, 10_000),
}
"""Kind, least and most of each limit."""


class Remote(msgspec.Struct, frozen=True):
    """An upstream at an address that `parse_upstream` takes. `authorization` is that header's whole value.

    With an `exchange` each caller has a credential of their own instead.
    """

    url: str
    authorization: Secret | None = None
    headers: tuple[tuple[str, Secret], ...] = ()
    exchange: Exchange | None = None


class Local(msgspec.Struct, frozen=True):
    """An upstream that is started. `env` is what it gets besides a minimal environment."""

    argv: tuple[str, ...]
    env: Mapping[str, Secret] = {}
    cwd: str | None = None

    def __repr__(self) -> str:
        # SECURITY: arguments hold credentials, and a repr ends in a log.
        return f"Local({len(self.argv)} arguments, {len(self.env)} variables)"


class UpstreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream. `policy` and `pins` are paths of files about its tools under their own names."""

    name: str
    prefix: str
    at: Remote | Local
    era: WantedEra = WantedEra.AUTO
    policy: str | None = None
    pins: str | None = None
    limits: Bounds = Bounds()


def spec_of_url(url: str, authorization: Secret | None = None, limits: Bounds | None = None) -> UpstreamSpec:
    """Describe the only upstream, at `url`: no name, no prefix."""
    return UpstreamSpec(name="", prefix="", at=Remote(url, authorization), limits=limits or Bounds())


def spec_of_command(argv: Sequence[str], limits: Bounds | None = None) -> UpstreamSpec:
    """Describe the only upstream, started with `argv`: no name, no prefix."""
    return UpstreamSpec(name="", prefix="", at=Local(tuple(argv)), limits=limits or Bounds())


def load(path: str, env: Environment) -> tuple[UpstreamSpec, ...]:
    """Read the file at `path` and what it names. Raises ConfigError with every fault."""
    return build(yamlfile.load_file(path), path, env)


def build(document: object, source: str, env: Environment) -> tuple[UpstreamSpec, ...]:
    """Turn the parsed `document` into its upstreams, in the order of the file.

    `source` is the path of the file: other paths in it are relative to its folder. Raises ConfigError with every
    fault, each `<dotted.path>: <reason>`; no fault shows a credential.
    """
    reading = _Reading(os.path.dirname(source), env)
    specs = reading.upstreams(document)
    if reading.faults:
        raise ConfigError(source, reading.faults)
    return specs


class _Reading:
    """One walk over a document. Each method returns what it read, or a stand-in after noting a fault."""

    def __init__(self, folder: str, env: Environment) -> None:
        self.faults: list[Fault] = []
        self._folder = os.path.abspath(folder)
        self._env = env

    def upstreams(self, document: object) -> tuple[UpstreamSpec, ...]:
        top = self._mapping("", document, _TOP)
        if "version" in top and (type(top["version"]) is not int or top["version"] != 1):
            self._fault("version", "must be 1")
        written = self._mapping("upstreams", top["upstreams"]) if "upstreams" in top else {}
        if not 1 <= len(written) <= MAX_UPSTREAMS:
            self._fault("upstreams", f"must name 1 to {MAX_UPSTREAMS} upstreams")
        specs = [self._upstream(f"upstreams.{_shown(name)}", name, value) for name, value in written.items()]
        first: dict[str, str] = {}
        for spec in specs:
            other = first.setdefault(spec.prefix, spec.name)
            if other != spec.name:
                which = f'the prefix "{_shown(spec.prefix)}"' if spec.prefix else "no prefix"
                self._fault(f"upstreams.{_shown(spec.name)}.prefix", f"{which}, as {_shown(other)} has")
        return tuple(specs)

    def _upstream(self, path: str, name: str, value: object) -> UpstreamSpec:
        keys = self._mapping(path, value, KEYS)
        if not _PREFIX.fullmatch(name):
            self._fault(path, f"the name {_FORM}")
        prefix = self._text(f"{path}.prefix", keys["prefix"], empty=True) if "prefix" in keys else name
        if "prefix" in keys and prefix and not _PREFIX.fullmatch(prefix):
            self._fault(f"{path}.prefix", f'{_FORM}, or is ""')
        era = keys.get("era", WantedEra.AUTO)
        if era not in tuple(WantedEra):
            self._fault(f"{path}.era", f"must be one of {', '.join(WantedEra)}")
            era = WantedEra.AUTO
        return UpstreamSpec(
            name=name,
            prefix=prefix,
            at=self._at(path, keys),
            era=WantedEra(str(era)),
            policy=self._file(f"{path}.policy", keys["policy"]) if "policy" in keys else None,
            pins=self._file(f"{path}.pins", keys["pins"]) if "pins" in keys else None,
            limits=self._limits(f"{path}.limits", keys["limits"]) if "limits" in keys else Bounds(),
        )

    def _at(self, path: str, keys: Mapping[str, object]) -> Remote | Local:
        named = [key for key in _PLACES if key in keys]
        if len(named) != 1:
            self._fault(
                path, f"must have exactly one of {', '.join(_PLACES)}, has {' and '.join(named) or 'none'}"
            )
        remote = "url" in keys
        for key in _OF_COMMAND if remote else _OF_URL:
            if key in keys:
                self._fault(f"{path}.{key}", f"belongs to a {'command' if remote else 'url'}")
        if remote:
            return self._remote(path, keys)
        argv: tuple[str, ...] = ()
        if "stdio" in keys:
            argv = self._split(f"{path}.stdio", keys["stdio"])
        elif "command" in keys:
            argv = self._words(f"{path}.command", keys["command"])
        if argv and "/" in argv[0]:
            argv = (self._within(argv[0]), *argv[1:])
        variables = self._mapping(f"{path}.env", keys["env"]) if "env" in keys else {}
        return Local(
            argv=argv,
            env={
                name: self._variable(f"{path}.env.{_shown(name)}", name, it) for name, it in variables.items()
            },
            cwd=self._file(f"{path}.cwd", keys["cwd"]) if "cwd" in keys else None,
        )

    def _remote(self, path: str, keys: Mapping[str, object]) -> Remote:
        url = self._text(f"{path}.url", keys["url"])
        if url:
            try:
                parse_upstream(url)
            except ValueError as error:
                self._fault(f"{path}.url", str(error))
        authorization = None
        if "bearer" in keys:
            token = self._secret(f"{path}.bearer", keys["bearer"])
            if token is not None and not _BEARER.fullmatch(token):
                self._fault(f"{path}.bearer", "a token is printable ASCII without blanks")
            authorization = Secret(f"Bearer {token}")
        headers: dict[str, tuple[str, Secret]] = {}
        lines = self._mapping(f"{path}.header", keys["header"]) if "header" in keys else {}
        for name, value in lines.items():
            at = f"{path}.header.{_shown(name)}"
            text = self._secret(at, value)
            problem = _header_problem(name, text or "")
            if name.lower() in headers or (name.lower() == "authorization" and "bearer" in keys):
                problem = "is given twice"
            if problem:
                self._fault(at, problem)
            headers[name.lower()] = (name, Secret(text or ""))
        written = headers.pop("authorization", None)
        if written is not None:
            authorization = written[1]
        exchange = None
        if "exchange" in keys:
            exchange = self._exchange(f"{path}.exchange", keys["exchange"])
            if authorization is not None:
                self._fault(f"{path}.exchange", "stands instead of bearer, or a header authorization")
            if keys.get("era") == WantedEra.LEGACY:
                self._fault(f"{path}.era", "an exchange needs a server of the modern era")
        return Remote(url, authorization, tuple(headers.values()), exchange)

    def _exchange(self, path: str, value: object) -> Exchange:
        """Read how a caller's token is exchanged for one that the upstream takes (RFC 8693)."""
        keys = self._mapping(path, value, _OF_EXCHANGE)
        for name in _OF_EXCHANGE[:3]:
            if name not in keys:
                self._fault(path, f"needs {name}")
        url = self._text(f"{path}.token_url", keys["token_url"]) if "token_url" in keys else ""
        # SECURITY: the client's secret and the callers' tokens are sent there.
        problem = insecure(url) if url else ""
        if problem:
            self._fault(f"{path}.token_url", problem)
        who = [
            self._secret(f"{path}.{name}", keys[name]) if name in keys else "" for name in _OF_EXCHANGE[1:3]
        ]
        what = [self._text(f"{path}.{name}", keys[name]) if name in keys else "" for name in _OF_EXCHANGE[3:]]
        return Exchange(url, Secret(who[0] or ""), Secret(who[1] or ""), *what)

    def _variable(self, path: str, name: str, value: object) -> Secret:
        if not _VARIABLE.fullmatch(name):
            self._fault(path, "is no name of a variable")
        text = (
            self._text(path, value, empty=True) if not isinstance(value, dict) else self._secret(path, value)
        )
        if text is not None and "\x00" in text:
            self._fault(path, "holds a NUL")
        return Secret(text or "")

    def _secret(self, path: str, value: object) -> str | None:
        """Read `{from: NAME}` or `{file: PATH}`; None after a fault."""
        if not isinstance(value, dict):
            # SECURITY: files of settings are kept, copied and shown; the value is not repeated here either.
            self._fault(
                path, "must not stand here", "put it into a variable or a file: {from: NAME}, {file: PATH}"
            )
            return None
        keys = self._mapping(path, value, ("from", "file"))
        if len(keys) != 1:
            self._fault(path, "must have exactly one of from, file")
            return None
        if "from" in keys:
            name = self._text(f"{path}.from", keys["from"])
            found = self._env.secret(name) if name else None
            if name and found is None:
                self._fault(f"{path}.from", f"the variable {_shown(name)} is not set")
            return None if found is None else found.reveal()
        place = self._file(f"{path}.file", keys["file"])
        return None if place is None else self._content(f"{path}.file", place)

    def _content(self, path: str, place: str) -> str | None:
        problem = ""
        try:
            with open(place, "rb") as file:
                data = file.read(_MAX_SECRET_BYTES + 1)
            text = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
            if len(data) > _MAX_SECRET_BYTES:
                problem = f"longer than {_MAX_SECRET_BYTES} bytes"
            elif not text:
                problem = "is empty"
        except OSError as error:
            problem = error.strerror or type(error).__name__
        except ValueError:
            problem = "is no UTF-8 text"
        if problem:
            self._fault(path, f"{_shown(place)}: {problem}")
            return None
        return text

    def _limits(self, path: str, value: object) -> Bounds:
        keys = self._mapping(path, value, tuple(LIMITS))
        given: dict[str, float] = {}
        for name, number in keys.items():
            kind, least, most = LIMITS[name]
            if type(number) in (int, kind) and isinstance(number, (int, float)) and least <= number <= most:
                given[name] = number
            else:
                word = "whole number" if kind is int else "number"
                self._fault(f"{path}.{name}", f"must be a {word} from {least:g} to {most:.0f}")
        return msgspec.structs.replace(Bounds(), **given)

    def _file(self, path: str, value: object) -> str | None:
        text = self._text(path, value)
        return self._within(text) if text else None

    def _within(self, path: str) -> str:
        return os.path.join(self._folder, path)

    def _split(self, path: str, value: object) -> tuple[str, ...]:
        text = self._text(path, value)
        try:
            words = shlex.split(text)
        except ValueError as error:
            self._fault(path, f"cannot be split into words: {one_line(str(error)).lower()}")
            return ()
        return self._words(path, words) if text else ()

    def _words(self, path: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            self._fault(path, "must be a list of words, the program first")
            return ()
        words = [self._text(f"{path}[{n}]", word, empty=n > 0) for n, word in enumerate(value)]
        if any("\x00" in word for word in words):
            self._fault(path, "holds a NUL")
        return tuple(words)

    def _text(self, path: str, value: object, *, empty: bool = False) -> str:
        if not isinstance(value, str):
            self._fault(path, "must be text", "quote it" if isinstance(value, (int, float)) else "")
            return ""
        if not value and not empty:
            self._fault(path, "must not be empty")
        return value

    def _mapping(self, path: str, value: object, known: Sequence[str] | None = None) -> dict[str, object]:
        if not isinstance(value, dict):
            self._fault(path, "must be a mapping")
            return {}
        if known is None:
            return value
        for key in value:
            if key not in known:
                at = f"{path}.{_shown(key)}" if path else _shown(key)
                self._fault(at, "unknown key", f"known here: {', '.join(known)}")
        return {key: value[key] for key in known if key in value}

    def _fault(self, path: str, problem: str, hint: str = "") -> None:
        self.faults.append(Fault(path, problem, hint))


def _header_problem(name: str, value: str) -> str:
    if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIX):
        return "this header is set by the gateway itself"
    try:
        header_line(name.encode("utf-8", "replace"), value.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        return str(error)
    return ""


def _shown(text: str) -> str:
    return cut(one_line(text), _SHOWN_CHARS, _MORE)

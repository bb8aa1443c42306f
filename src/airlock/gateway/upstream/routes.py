"""Which of several servers a name or an address belongs to, and a request in the words of that server.

Knows prefixes, addresses that were listed, and templates; asks nobody. SPEC: mcp.md 6; issue 4, item 4.
"""

from __future__ import annotations

import base64
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from airlock.core.policy.compose import SEPARATOR
from airlock.gateway import body
from airlock.gateway.upstream.merge import MAX_NAME, plain
from airlock.gateway.upstream.port import Outgoing

__all__ = ["MAX_TEMPLATES", "MAX_URIS", "Names", "Owners", "Template", "encode_name", "rebuilt"]

MAX_URIS: Final = 10_000
"""SECURITY: addresses that are remembered, an equal share for each server: none pushes out those of another."""

MAX_TEMPLATES: Final = 500
"""SECURITY: templates that are remembered, shared likewise: an address is held against each of them."""

CLAIM_S: Final = 600.0
"""How long a server is taken to have what it listed. Then it is asked again."""

_T = TypeVar("_T")

_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_VARIABLE = re.compile(r"\{([A-Za-z0-9_.%]+)\}")
_BRACE = re.compile(r"[{}]")


class Names:
    """The prefixes of all servers: outside name to server and own name. Prefixes hold no underscore."""

    __slots__ = ("_of",)

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        """`prefixes` maps each prefix ("" for none) to its upstream."""
        self._of = dict(prefixes)

    def find(self, name: object) -> tuple[str, str] | None:
        """Return (upstream, own name); None for what is no outside name of any."""
        if not isinstance(name, str) or not plain(name, MAX_NAME):
            return None
        prefix, between, own = name.partition(SEPARATOR)
        if not between or not prefix or prefix not in self._of:
            prefix, own = "", name
        upstream = self._of.get(prefix)
        return (upstream, own) if upstream is not None and own else None


class Template:
    """A URI template (RFC 6570): literal parts and `{var}`, which stands for one or more but `/`.

    One above level 1 makes whatever begins with what stands before its first brace.
    """

    __slots__ = ("_literals", "_open")

    def __init__(self, literals: tuple[str, ...], *, open_: bool) -> None:
        self._literals = literals
        self._open = open_

    @classmethod
    def parse(cls, text: str) -> Template | None:
        """Read a template; None when nothing can be said about what it makes.

        LIMIT: operators and lists (`{+path}`, `{?a,b}`) are not followed. Such a template makes all that begins as
        it does; without such a beginning its addresses must be listed.
        """
        literals = tuple(_VARIABLE.split(text)[::2])
        if not any("{" in part or "}" in part for part in literals):
            return cls(literals, open_=False)
        # SECURITY: were it left out, whoever lists an address under it would get the reads of its server.
        start = _BRACE.split(text, maxsplit=1)[0]
        return cls((start,), open_=True) if start else None

    def matches(self, uri: str) -> bool:
        """Tell whether `uri` is one of the template's. Linear: no template makes it look twice.

        INVARIANT: the first place of each literal is the best one, since what a variable may not hold, `/`, can
        only be in a literal or make every later place wrong too.
        """
        first, *rest = self._literals
        if not rest:
            return uri.startswith(first) if self._open else uri == first
        *between, last = rest
        if not uri.startswith(first) or not uri.endswith(last):
            return False
        at, end = len(first), len(uri) - len(last)
        for literal in between:
            found = uri.find(literal, at + 1, end)
            if found < 0 or "/" in uri[at:found]:
                return False
            at = found + len(literal)
        return at < end and "/" not in uri[at:end]


class Owners:
    """Which servers claim an address: by having listed it, or by a template. Bounded."""

    __slots__ = ("_templates", "_uris")

    def __init__(self, upstreams: Iterable[str]) -> None:
        names = tuple(upstreams)
        self._uris = {name: _Lately[None](MAX_URIS // len(names)) for name in names}
        self._templates = {name: _Lately[Template](MAX_TEMPLATES // len(names)) for name in names}

    def learn(self, upstream: str, method: str, keys: Iterable[str], now: float) -> None:
        """Take the whole list of `upstream`: addresses, or templates when `method` says so. `now` is monotonic.

        What lapsed and is not in it is forgotten. What did not lapse stays: another caller may have been told it.
        """
        if method == "resources/list":
            for uri in keys:
                self._uris[upstream].put(uri, None, now)
            self._uris[upstream].tidy(now)
        elif method == "resources/templates/list":
            for text in keys:
                template = Template.parse(text)
                if template is not None:
                    self._templates[upstream].put(text, template, now)
            self._templates[upstream].tidy(now)

    def claim(self, uri: str, now: float, listed: Collection[str] = ()) -> list[str]:
        """Name every server that claims `uri`, which may be a template itself; none when every claim has lapsed.

        `listed` names servers that list it just now, whether or not that could be remembered.

        SECURITY: a server that lists an address of another, or one under its template, does not get its reads; nor
        does it by waiting until the other is away and cannot say again what it has.
        """
        ever: list[str] = []
        fresh = False
        for name, uris in self._uris.items():
            times = [at for text, at, it in self._templates[name].items() if text == uri or it.matches(uri)]
            remembered = uris.at(uri)
            if remembered is not None:
                times.append(remembered)
            if name in listed:
                times.append(now)
            if times:
                ever.append(name)
                fresh = fresh or now - max(times) < CLAIM_S
        return ever if fresh else []


class _Lately(Generic[_T]):
    """A bounded map whose entries lapse after `CLAIM_S` seconds; the oldest come first, and go first."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int) -> None:
        self._kept: OrderedDict[str, tuple[float, _T]] = OrderedDict()
        self._most = most

    def put(self, key: str, value: _T, now: float) -> None:
        self._kept[key] = (now, value)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def tidy(self, now: float) -> None:
        """Forget what has lapsed."""
        while self._kept and now - next(iter(self._kept.values()))[0] >= CLAIM_S:
            self._kept.popitem(last=False)

    def at(self, key: str) -> float | None:
        """Return when `key` was put, None when it is not there."""
        kept = self._kept.get(key)
        return None if kept is None else kept[0]

    def items(self) -> Iterator[tuple[str, float, _T]]:
        """Yield each key with when it was put, and its value."""
        return ((key, at, value) for key, (at, value) in self._kept.items())


def encode_name(name: str) -> bytes:
    """Return a value for `Mcp-Name`: as it is when it can stand in a header, else its `=?base64?...?=` form."""
    if _PLAIN.fullmatch(name) and not (name.startswith("=?base64?") and name.endswith("?=")):
        return name.encode("ascii")
    return b"=?base64?" + base64.b64encode(name.encode("utf-8")) + b"?="


def rebuilt(
    outgoing: Outgoing, params: dict[str, object], *, name: str | None = None, method: str | None = None
) -> Outgoing:
    """Return `outgoing` with other `params`: body made anew, and the routing headers that follow from it.

    `name` is what `Mcp-Name` says now (None: as it was). Another `method` has neither a name nor
    `Mcp-Param-*` of the old one. `name` has no lone surrogates.
    """
    gone: tuple[bytes, ...] = ()
    added = b""
    if name is not None:
        gone, added = (b"mcp-name:",), b"mcp-name: " + encode_name(name) + b"\r\n"
    if method is not None:
        gone, added = (
            (b"mcp-name:", b"mcp-method:", b"mcp-param-"),
            b"mcp-method: " + method.encode("ascii") + b"\r\n",
        )
    headers = outgoing.headers
    if gone:
        lines = headers.split(b"\r\n")
        headers = (
            b"".join(line + b"\r\n" for line in lines if line and not line.lower().startswith(gone)) + added
        )
    method = method or outgoing.method
    message = {"jsonrpc": "2.0", "id": outgoing.id, "method": method, "params": params}
    return msgspec.structs.replace(
        outgoing, headers=headers, body=body.encode(message), method=method, params=params
    )

"""What a gateway process is told: flags, variables, and which of the two sets of defaults it has.

Knows names, ranges and defaults; opens nothing. SPEC: gateway.md 1.3, 15.1, 15.2.
"""

from __future__ import annotations

import os
from enum import Enum

import msgspec

from airlock.core.errors import ConfigError
from airlock.core.limits import Rate, parse
from airlock.core.secret import Secret
from airlock.edge.settings import Environment
from airlock.gateway.door import Door, is_loopback, loopback_hosts

__all__ = [
    "DIFFERENCES",
    "HOLD_S",
    "LOCAL_AUDIENCE",
    "LOCAL_ISSUER",
    "Defaults",
    "Flags",
    "Limits",
    "Metering",
    "Rates",
    "check_workers",
    "collapses",
    "door",
    "hold_seconds",
    "hygiene",
    "metering",
    "rates",
    "upstream_auth",
]


class Flags(msgspec.Struct, frozen=True):
    """The command line, already checked by the argument parser.

    Exactly one of `upstream` (a URL), `upstreams` (a file) and `command` (a server to start) is given.
    """

    policy: str
    upstream: str | None = None
    upstreams: str | None = None
    command: tuple[str, ...] = ()
    front: str | None = None
    env: str | None = None
    audit: str = "audit.jsonl"
    audit_max_bytes: int = 0
    audit_keep: int = 5
    pins: str | None = None
    otel_file: str | None = None
    workers: int = 1
    strict: bool = False
    host: str = "127.0.0.1"
    port: int = 9000


class Defaults(msgspec.Struct, frozen=True):
    """How the two names of the program differ when nothing is set.

    `durable`: keep state in the embedded store and sign with a key kept in a file; else both live and die
    with the process, as the seed says. The front and the back are as wide as they go with it, too.
    """

    program: str
    durable: bool

    def front(self, flags: Flags) -> str:
        """Which eras the front serves: `modern` or `dual`."""
        return flags.front or ("dual" if self.durable else "modern")


DIFFERENCES: tuple[tuple[str, str, str], ...] = (
    ("AIRLOCK_STORE_DSN", "`memory://`", "`sqlite:///` at `$XDG_STATE_HOME/airlock/gateway.db`"),
    ("AIRLOCK_SECRET_FILE", "none: a random key per process", "`$XDG_STATE_HOME/airlock/gateway.key`"),
    ("--front", "`modern`", "`dual`"),
    (
        "identity, when none is set",
        "none: every call gets 401",
        "on loopback: a key kept in `$XDG_STATE_HOME/airlock/identity.key`, with which "
        "`airlock connect` signs a token for you",
    ),
    ("AIRLOCK_ALLOWED_HOSTS", "none: any `Host`", "on loopback: the names of this machine"),
    ("AIRLOCK_ALLOWED_ORIGINS", "none: any `Origin`", "no page of another site"),
    ("AIRLOCK_RATE_PRINCIPAL", "`0`: no limit", "`600/60`"),
    ("AIRLOCK_RATE_TOOL", "`0`: no limit", "`300/60`"),
    ("AIRLOCK_RATE_ADDRESS", "`0`: no limit", "`60/60`"),
    ("AIRLOCK_RATE_PROMPTS", "`0`: no limit", "`20/60`"),
    ("AIRLOCK_COLLAPSE", "`0`: every call asks anew", "`1`"),
    ("AIRLOCK_METRICS", "`0`: `/metrics` is 404", "on loopback: `/metrics` for the names of this machine"),
    ("AIRLOCK_HYGIENE", "`0`: contents are marked only", "`1`"),
)
"""Setting, its default in `mcp-airlock`, its default in `airlock gateway serve`. The reference shows this table."""


class Limits(msgspec.Struct, frozen=True):
    """Byte limits. The bounds of a database store are checked too, even where no database is used."""

    max_request_bytes: int
    max_upstream_bytes: int

    @classmethod
    def read(cls, env: Environment) -> Limits:
        """Read the limits; raise ConfigError for one out of range."""
        limits = cls(
            env.positive("AIRLOCK_MAX_REQUEST_BYTES", 1_048_576),
            env.positive("AIRLOCK_MAX_UPSTREAM_BYTES", 8_388_608),
        )
        env.positive("AIRLOCK_STORE_CONNECT_TIMEOUT", 10, 86400)
        env.positive("AIRLOCK_STORE_POOL_SIZE", 4)
        return limits


def upstream_auth(env: Environment) -> Secret | None:
    """The gateway's own `Authorization` for the upstream, checked so that it cannot split a header."""
    secret = env.secret("AIRLOCK_UPSTREAM_AUTH")
    if secret is not None and any(ord(char) < 32 or ord(char) == 127 for char in secret.reveal()):
        raise ConfigError("", "AIRLOCK_UPSTREAM_AUTH must be one line without control characters")
    return secret


def check_workers(flags: Flags, env: Environment, defaults: Defaults) -> None:
    """Raise ConfigError for several workers that would not know of each other's confirmations. SPEC: 12.4."""
    if flags.workers == 1:
        return
    if defaults.front(flags) == "dual":
        # LIMIT: a session of the older eras lives in one process; any worker may get its next request.
        raise ConfigError("", "--workers needs --front modern: older clients' sessions live in one process")
    dsn = env.text("AIRLOCK_STORE_DSN")
    if dsn is None and not defaults.durable:
        raise ConfigError("", f"--workers {flags.workers} needs AIRLOCK_STORE_DSN: they must share one store")
    if dsn is not None and dsn.startswith("memory:"):
        raise ConfigError("", "AIRLOCK_STORE_DSN: a memory store cannot be shared by workers")
    keyed = env.text("AIRLOCK_SECRET") is not None or env.text("AIRLOCK_SECRET_FILE") is not None
    if not keyed and not defaults.durable:
        raise ConfigError("", f"--workers {flags.workers} needs AIRLOCK_SECRET: they must sign with one key")
    if not hasattr(os, "fork"):
        raise ConfigError("", "--workers needs a system with fork")


def hygiene(env: Environment, defaults: Defaults) -> bool:
    """Whether contents are cleaned, or marked only as the seed says. Raises ConfigError."""
    return _switch(env, "AIRLOCK_HYGIENE", usual=defaults.durable)


LOCAL_ISSUER = "airlock"
LOCAL_AUDIENCE = "airlock-gateway"
"""What a token says that was signed with the key kept beside the state (`airlock connect` makes them)."""

HOLD_S = 45
"""Seconds that a call of an older client is held open for a person's yes: below the patience of today's clients."""


def hold_seconds(env: Environment) -> int:
    """How long such a call is held. Raises ConfigError."""
    return env.positive("AIRLOCK_HOLD_S", HOLD_S, 3600)


class Rates(msgspec.Struct, frozen=True):
    """How often: requests of a principal, its calls of one tool, what comes from an address without a principal,
    and questions to people for one principal. None: as often as it likes.
    """

    principal: Rate | None = None
    tool: Rate | None = None
    address: Rate | None = None
    prompts: Rate | None = None


_GENEROUS = {
    "AIRLOCK_RATE_PRINCIPAL": "600/60",
    "AIRLOCK_RATE_TOOL": "300/60",
    "AIRLOCK_RATE_ADDRESS": "60/60",
    "AIRLOCK_RATE_PROMPTS": "20/60",
}


def rates(env: Environment, defaults: Defaults) -> Rates:
    """Read the limits on requests and questions. Raises ConfigError."""
    found: list[Rate | None] = []
    for name, usual in _GENEROUS.items():
        try:
            found.append(parse(env.text(name) or (usual if defaults.durable else "0")))
        except ValueError:
            form = "0 or <count>/<seconds>[:burst], whole numbers from 1, such as 600/60"
            raise ConfigError("", f"{name} must be {form}") from None
    return Rates(*found)


def collapses(env: Environment, defaults: Defaults) -> bool:
    """Whether identical calls that wait for a person share one question. Raises ConfigError."""
    return _switch(env, "AIRLOCK_COLLAPSE", usual=defaults.durable)


class Metering(Enum):
    """To whom `/metrics` answers: nobody, whoever names this machine as the host, or whoever reaches the port."""

    OFF = "off"
    LOCAL = "local"
    OPEN = "open"


def metering(flags: Flags, env: Environment, defaults: Defaults) -> Metering:
    """Read who may see the numbers; they need no credential. Raises ConfigError."""
    if env.text("AIRLOCK_METRICS") is not None:
        return Metering.OPEN if _switch(env, "AIRLOCK_METRICS", usual=False) else Metering.OFF
    # SECURITY: what is called how often is nobody else's business: beyond this machine only when told to.
    return Metering.LOCAL if defaults.durable and is_loopback(flags.host) else Metering.OFF


def _switch(env: Environment, name: str, *, usual: bool) -> bool:
    text = env.text(name)
    if text not in {None, "0", "1"}:
        raise ConfigError("", f"{name} must be 0 or 1")
    return usual if text is None else text == "1"


def door(flags: Flags, env: Environment, defaults: Defaults, port: int) -> Door | None:
    """What may come to the endpoint at all; None: whatever reaches the port. `port` is the one listened on."""
    wide = defaults.front(flags) == "dual"
    hosts = _listed(env, "AIRLOCK_ALLOWED_HOSTS")
    if hosts is None and defaults.durable and is_loopback(flags.host):
        hosts = loopback_hosts(port)
    origins = _listed(env, "AIRLOCK_ALLOWED_ORIGINS")
    if origins is None and defaults.durable:
        origins = frozenset()
    return Door(hosts, origins, kinds=wide) if wide or hosts is not None or origins is not None else None


def _listed(env: Environment, name: str) -> frozenset[bytes] | None:
    """Read a list of values separated by commas; None when the variable is not set."""
    text = env.text(name)
    if text is None:
        return None
    if not text.isascii():
        raise ConfigError("", f"{name} must be ASCII, its values separated by commas")
    return frozenset(entry.strip().lower().encode("ascii") for entry in text.split(",") if entry.strip())

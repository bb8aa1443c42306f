"""What a gateway process is told: flags, variables, and which of the two sets of defaults it has.

Knows names, ranges and defaults; opens nothing. SPEC: gateway.md 1.3, 15.1, 15.2.
"""

from __future__ import annotations

import msgspec

from airlock.core.errors import ConfigError
from airlock.core.secret import Secret
from airlock.edge.settings import Environment

__all__ = [
    "DIFFERENCES",
    "NOT_BUILT",
    "Defaults",
    "Flags",
    "Limits",
    "approval_mode",
    "refuse_not_built",
    "upstream_auth",
]


class Flags(msgspec.Struct, frozen=True):
    """The command line, already checked by the argument parser."""

    policy: str
    upstream: str
    env: str | None = None
    audit: str = "audit.jsonl"
    audit_max_bytes: int = 0
    audit_keep: int = 5
    strict: bool = False
    host: str = "127.0.0.1"
    port: int = 9000


class Defaults(msgspec.Struct, frozen=True):
    """How the two names of the program differ when nothing is set.

    `durable`: keep state in the embedded store and sign with a key kept in a file; else both live and die
    with the process, as the seed says.
    """

    program: str
    durable: bool


DIFFERENCES: tuple[tuple[str, str, str], ...] = (
    ("AIRLOCK_STORE_DSN", "`memory://`", "`sqlite:///` at `$XDG_STATE_HOME/airlock/gateway.db`"),
    ("AIRLOCK_SECRET_FILE", "none: a random key per process", "`$XDG_STATE_HOME/airlock/gateway.key`"),
)
"""Setting, its default in `mcp-airlock`, its default in `airlock gateway serve`. The reference shows this table."""

NOT_BUILT: dict[str, str] = {
    "AIRLOCK_PINS": "tool pins",
    "AIRLOCK_OTEL_FILE": "span files",
    "AIRLOCK_JWKS_URL": "JWKS identity",
    "AIRLOCK_APPROVAL_WEBHOOK": "approval webhooks",
    "AIRLOCK_AUDIT_DSN": "the Postgres audit sink",
}
"""Variables of the seed that this version cannot honour, and what they would turn on."""


def refuse_not_built(env: Environment) -> None:
    """Raise ConfigError for a setting that would be ignored: silence would look like protection."""
    for name, what in NOT_BUILT.items():
        if env.text(name) is not None:
            raise ConfigError(
                "", f"{name} is set, but this version does not have {what} yet; unset it to start"
            )


class Limits(msgspec.Struct, frozen=True):
    """Byte limits, and the bounds of a database store (checked even where no database is used)."""

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


def approval_mode(env: Environment) -> str:
    """Return `inband`; raise ConfigError for a mode that is unknown or cannot work."""
    mode = env.text("AIRLOCK_APPROVAL_MODE")
    if mode is None or mode == "inband":
        return "inband"
    if mode == "oob":
        raise ConfigError(
            "", "AIRLOCK_APPROVAL_MODE=oob needs AIRLOCK_APPROVAL_WEBHOOK: nobody could approve"
        )
    raise ConfigError("", "AIRLOCK_APPROVAL_MODE must be oob or inband")


def upstream_auth(env: Environment) -> Secret | None:
    """The gateway's own `Authorization` for the upstream, checked so that it cannot split a header."""
    secret = env.secret("AIRLOCK_UPSTREAM_AUTH")
    if secret is not None and any(ord(char) < 32 or ord(char) == 127 for char in secret.reveal()):
        raise ConfigError("", "AIRLOCK_UPSTREAM_AUTH must be one line without control characters")
    return secret

"""Every environment variable the gateway's programs look at: name, default, and what it does.

Knows the words of the reference; what is read, and how, is decided where it is read. SPEC: gateway.md 15.2.
"""

from __future__ import annotations

__all__ = ["BY_PROGRAM", "UNREAD", "VARIABLES"]

BY_PROGRAM = "by program"
"""The default differs between the two names of the program: `gateway.settings.DIFFERENCES` says how."""

VARIABLES: tuple[tuple[str, str, str], ...] = (
    (
        "AIRLOCK_ENV",
        "none",
        "The environment, which picks the column of tiers. It beats the `environment` of the policy file, `--env` "
        "beats both. To `policy lint` it only stands in for both.",
    ),
    (
        "AIRLOCK_JWT_SECRET",
        "none",
        "Shared secret of HS256 bearer tokens. A token needs `sub`, which names the principal, and `exp`. "
        "Less than 32 bytes is a startup warning.",
    ),
    ("AIRLOCK_JWT_ISSUER", "none", "When set, the `iss` of a token must be equal to it."),
    (
        "AIRLOCK_JWT_AUDIENCE",
        "none",
        "When set, the `aud` of a token must be it, or be a list that holds it.",
    ),
    (
        "AIRLOCK_GROUPS_CLAIM",
        "`groups`",
        "The claim of a token that lists the groups: an array, or one text split on commas and blanks.",
    ),
    (
        "AIRLOCK_TRUST_PRINCIPAL_HEADER",
        "`0`",
        "`1` believes `X-Airlock-Principal` and `X-Airlock-Groups`, for use behind something that sets them itself "
        "and strips them from clients. A bearer token that fails never falls back to them. Any other value than "
        "`1` counts as `0`.",
    ),
    (
        "AIRLOCK_SECRET",
        "none",
        "Key that signs confirmations; when set, `AIRLOCK_SECRET_FILE` is not looked at. With state in memory a "
        "fixed key lets a used confirmation run again after a restart, which is a startup warning.",
    ),
    (
        "AIRLOCK_SECRET_FILE",
        BY_PROGRAM,
        "File that holds that key as hex digits, 32 bytes or more, readable by its owner alone. Made, with its "
        "folder, when it is missing.",
    ),
    (
        "AIRLOCK_STORE_DSN",
        BY_PROGRAM,
        "Where used confirmations and counters are kept: `memory://`, `sqlite:///relative.db` or "
        "`sqlite:////absolute/path.db`. A Postgres DSN is refused: that store is not there yet.",
    ),
    (
        "AIRLOCK_STORE_CONNECT_TIMEOUT",
        "`10`",
        "Seconds to wait for a database server, from 1 to 86400. Checked at the start and without effect: there is "
        "no such store yet.",
    ),
    (
        "AIRLOCK_STORE_POOL_SIZE",
        "`4`",
        "Most connections to a database server, from 1. Checked at the start and without effect, as above.",
    ),
    (
        "AIRLOCK_APPROVAL_MODE",
        "`inband`",
        "`inband`: an accept that the agent's client sends is a person's yes. `oob` is refused: it needs an "
        "approval webhook, which is not there yet.",
    ),
    ("AIRLOCK_TELEGRAM_CHAT", "none", "Belongs to an approval webhook; ignored, with a startup warning."),
    (
        "AIRLOCK_UPSTREAM_AUTH",
        "none",
        "Value of the `Authorization` header sent to the upstream, without control characters. It is the gateway's "
        "own credential; a client's `Authorization` never goes further.",
    ),
    (
        "AIRLOCK_MAX_REQUEST_BYTES",
        "`1048576`",
        "Longest request body, in bytes, from 1. A longer one is answered with HTTP 413.",
    ),
    (
        "AIRLOCK_MAX_UPSTREAM_BYTES",
        "`8388608`",
        "Longest answer of the upstream, in bytes, from 1. A longer one is dropped (`upstream.too_large`).",
    ),
    (
        "AIRLOCK_DEBUG",
        "none",
        "`1` prints the traceback of an error that stops the start, before the one line that names it.",
    ),
    (
        "XDG_STATE_HOME",
        "`$HOME/.local/state`",
        "Folder below which `airlock gateway serve` keeps its state, as `airlock/`. A path that is not absolute "
        "counts as unset.",
    ),
    ("HOME", "none", "Stands in for `XDG_STATE_HOME`; must then be absolute."),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "none",
        "Without effect, with a startup warning: this version exports no spans.",
    ),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "none", "The same."),
)
"""Name, default (Markdown), one or more sentences (Markdown). What `NOT_BUILT` refuses does not stand here."""

UNREAD: tuple[str, ...] = (
    "AIRLOCK_PUBLIC_URL",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SERVICE_NAME",
    "PGCONNECT_TIMEOUT",
)
"""Variables of the seed that belong to something not built and that nothing looks at."""

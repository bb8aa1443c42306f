"""Every environment variable the gateway's programs look at: name, default, and what it does.

Knows the words of the reference; what is read, and how, is decided where it is read. SPEC: gateway.md 15.2.
"""

from __future__ import annotations

__all__ = ["BY_PROGRAM", "VARIABLES"]

BY_PROGRAM = "by program"
"""The default differs between the two names of the program: `gateway.settings.DIFFERENCES` says how."""

_BOTH = "The form with `TRACES_` after `OTLP_` beats it."

_OTEL: tuple[tuple[str, str, str], ...] = (
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "none",
        "Base URL of a collector that takes OTLP over HTTP (port 4318); spans go to `/v1/traces` below it. Needs "
        "the extra `otlp`.",
    ),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "none", "The whole URL for spans; it beats the one above."),
    ("OTEL_EXPORTER_OTLP_HEADERS", "none", f"Headers for the collector, `name=value,...`. A secret. {_BOTH}"),
    (
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "`10`",
        f"Seconds for one export, and for the flush at the end. {_BOTH}",
    ),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "`none`", f"`none`, `gzip` or `deflate`. {_BOTH}"),
    (
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        "none",
        f"File of the authorities to trust for the collector. {_BOTH}",
    ),
    (
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        "none",
        f"File of our own certificate for the collector. {_BOTH}",
    ),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "none", f"File of the key that belongs to it. {_BOTH}"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "`2048`", "Most spans that wait; more are dropped."),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "`512`", "Most spans in one export."),
    ("OTEL_BSP_SCHEDULE_DELAY", "`5000`", "Milliseconds that a span waits for others."),
    ("OTEL_BSP_EXPORT_TIMEOUT", "`30000`", "Milliseconds that one export may take, retries included."),
    ("OTEL_SERVICE_NAME", "`mcp-airlock`", "`service.name` of the spans."),
    ("OTEL_RESOURCE_ATTRIBUTES", "none", "More about where the spans come from, `key=value,...`."),
)

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
        "Less than 32 bytes is a startup warning. Not looked at when `AIRLOCK_JWKS_URL` is set.",
    ),
    (
        "AIRLOCK_JWKS_URL",
        "none",
        "Where the identity provider publishes its keys (http or https). Bearer tokens signed with RS256 or "
        "ES256 are then checked with them. Without `AIRLOCK_JWT_AUDIENCE` it is a startup warning.",
    ),
    ("AIRLOCK_JWT_ISSUER", "none", "When set, the `iss` of a token must be equal to it."),
    (
        "AIRLOCK_JWT_AUDIENCE",
        "none",
        "When set, the `aud` of a token must be it, or a list that holds it. With `AIRLOCK_RESOURCE_URL` the "
        "default is that address.",
    ),
    (
        "AIRLOCK_RESOURCE_URL",
        "none",
        "The endpoint's address as clients are given it, such as `https://gw.example/mcp`. It makes the gateway an "
        "OAuth resource server: it publishes where tokens come from (RFC 9728), and nobody passes without one.",
    ),
    (
        "AIRLOCK_AUTHORIZATION_SERVERS",
        "`AIRLOCK_JWT_ISSUER`",
        "Issuers that clients are sent to for a token, separated by commas. Needs `AIRLOCK_RESOURCE_URL`.",
    ),
    (
        "AIRLOCK_SCOPES",
        "none",
        "Scopes that every token must hold (`scope` or `scp`), separated by blanks or commas; a request without "
        "one of them gets 403 (`scope.missing`). Needs `AIRLOCK_RESOURCE_URL`.",
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
        "Where used confirmations, approvals and counters are kept: a Postgres DSN (extra `postgres`), "
        "`sqlite:///relative.db`, `sqlite:////absolute/path.db` or `memory://`.",
    ),
    (
        "AIRLOCK_AUDIT_DSN",
        "none",
        "Postgres DSN of a table that mirrors the audit file (extra `postgres`). `audit query` reads it.",
    ),
    (
        "AIRLOCK_STORE_CONNECT_TIMEOUT",
        "`10`",
        "Seconds to wait for a database, from 1 to 86400, and at least 2 in effect: for a connection and for the "
        "work on it. A `connect_timeout` in the DSN beats `PGCONNECT_TIMEOUT`, which beats this.",
    ),
    ("AIRLOCK_STORE_POOL_SIZE", "`4`", "Most connections of one process to the store's database, from 1."),
    ("PGCONNECT_TIMEOUT", "none", "Stands in for `AIRLOCK_STORE_CONNECT_TIMEOUT`."),
    (
        "AIRLOCK_APPROVAL_MODE",
        "`inband`",
        "`inband`: an accept that the agent's client sends is a person's yes. `oob`: only the approve link is; "
        "needs `AIRLOCK_APPROVAL_WEBHOOK`, and is the default with it.",
    ),
    (
        "AIRLOCK_APPROVAL_WEBHOOK",
        "none",
        "URL to which each question is posted with its approve link: a Slack-style webhook, or Telegram.",
    ),
    ("AIRLOCK_TELEGRAM_CHAT", "none", "The chat that a Telegram webhook posts to."),
    (
        "AIRLOCK_PUBLIC_URL",
        "`http://127.0.0.1:9000`",
        "Where approvers reach this gateway: the beginning of every approve link.",
    ),
    (
        "AIRLOCK_HOLD_S",
        "`45`",
        "Seconds, from 1 to 3600, that a call is held open for the yes of a person whom its client does not ask "
        "(`--front dual`). Less than the client's own patience.",
    ),
    (
        "AIRLOCK_HYGIENE",
        BY_PROGRAM,
        "`1` replaces characters that people cannot see, and secrets that are recognised, in what a model reads; "
        "`0` marks only. A policy's `hygiene` says which rules are not applied.",
    ),
    (
        "AIRLOCK_ALLOWED_HOSTS",
        BY_PROGRAM,
        "Values of `Host` that are served, separated by commas. Any other is answered with 403.",
    ),
    (
        "AIRLOCK_ALLOWED_ORIGINS",
        BY_PROGRAM,
        "Values of `Origin` that are served, separated by commas, such as `https://inspector.example`. Any other "
        "is answered with 403.",
    ),
    (
        "AIRLOCK_RATE_PRINCIPAL",
        BY_PROGRAM,
        "How many requests one principal may send: `<count>/<seconds>`, and `:burst` when not that many may come "
        "at once. `0` is no limit. Over it a call is refused (`rate.limited`), anything else gets 429.",
    ),
    ("AIRLOCK_RATE_TOOL", BY_PROGRAM, "The same for the calls of one principal to one tool."),
    (
        "AIRLOCK_RATE_ADDRESS",
        BY_PROGRAM,
        "The same for requests without a principal from one address (of IPv6: one network of 64 bits); more get "
        "429. Behind a proxy the address is the proxy's.",
    ),
    (
        "AIRLOCK_RATE_PROMPTS",
        BY_PROGRAM,
        "The same for questions to people that one principal's calls lead to. Over it a call is refused "
        "(`prompt.limited`).",
    ),
    (
        "AIRLOCK_COLLAPSE",
        BY_PROGRAM,
        "`1` answers a call whose question is still open for an identical one with that same question: nobody is "
        "asked anew. `0` asks for every call.",
    ),
    (
        "AIRLOCK_METRICS",
        BY_PROGRAM,
        "`1` shows `/metrics`, without a token, to whoever reaches the port; `0` to nobody.",
    ),
    ("AIRLOCK_PINS", "none", "Stands in for `--pins`."),
    ("AIRLOCK_OTEL_FILE", "none", "Stands in for `--otel-file`."),
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
    ("CLAUDE_CONFIG_DIR", "`$HOME`", "Where `airlock connect claude` finds `.claude.json`."),
    ("CODEX_HOME", "`$HOME/.codex`", "Where `airlock connect codex` finds `config.toml`."),
    ("HERMES_HOME", "`$HOME/.hermes`", "Where `airlock connect hermes` finds `config.yaml`."),
    ("GEMINI_CLI_HOME", "`$HOME`", "Where `airlock connect gemini` finds `.gemini/settings.json`."),
    ("XDG_CONFIG_HOME", "`$HOME/.config`", "Where `airlock connect vscode` finds `Code/User/mcp.json`."),
    *_OTEL,
)
"""Name, default (Markdown), one or more sentences (Markdown)."""

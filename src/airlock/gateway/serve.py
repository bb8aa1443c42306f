"""The composition root: settings become objects, objects become a server. The start order is gateway.md 15.3.

Settings, policy, audit file, signing key and address are checked here, before anything is served, and what is
wrong with them is one line. The store's setting is checked too, but a SQLite file is opened at its first use,
and the upstream is not asked.
"""

from __future__ import annotations

import os
import signal
import socket

from airlock.core.approval.ticket import Keys
from airlock.core.errors import ConfigError
from airlock.core.policy.load import build
from airlock.core.policy.model import Policy
from airlock.core.ports import AuditSink, Clock, Store
from airlock.core.secret import Secret
from airlock.edge import httpd, keyfile, registry, yamlfile
from airlock.edge.clock import SystemClock
from airlock.edge.httpc import ClientLimits, HttpClient
from airlock.edge.httpurl import parse_target
from airlock.edge.identity.jwt import Hs256
from airlock.edge.identity.resolve import Identity
from airlock.edge.ids import SystemIds
from airlock.edge.log import Log
from airlock.edge.recording import Recorder
from airlock.edge.settings import Environment, secret_bytes
from airlock.edge.sinks import jsonl
from airlock.gateway import settings
from airlock.gateway.app import App
from airlock.gateway.catalog import Catalog
from airlock.gateway.confirm import Settings
from airlock.gateway.gate import Gate, Snapshot
from airlock.gateway.settings import Defaults, Flags, Limits
from airlock.gateway.upstream.http import HttpUpstream
from airlock.gateway.warnings import startup_warnings

__all__ = ["STRICT_STATUS", "load_policy", "serve"]

STRICT_STATUS = 2


def serve(flags: Flags, env: Environment, defaults: Defaults) -> int:
    """Start a gateway and run it until it is told to stop; return the exit status.

    Raises ConfigError (or OSError) for everything that keeps it from starting; nothing listens then.
    """
    log = Log(defaults.program)
    settings.refuse_not_built(env)
    found = startup_warnings(env, durable=defaults.durable)
    for sentence in found:
        log.warning(f"{sentence}.")
    if found and flags.strict:
        log.line("--strict: the warnings above stop the start")
        return STRICT_STATUS
    policy = load_policy(flags.policy, flags.env or env.text("AIRLOCK_ENV"))
    limits = Limits.read(env)
    auth = settings.upstream_auth(env)
    sink = jsonl.open(flags.audit, max_bytes=flags.audit_max_bytes, keep=flags.audit_keep, warn=log.warning)
    try:
        return _run(flags, env, defaults, log, policy, limits, auth, sink)
    finally:
        sink.close()


def load_policy(path: str, environment: str | None) -> Policy:
    """Read and build the policy file; raise ConfigError with every fault in it."""
    return build(yamlfile.load_file(path), path, environment)


def _run(
    flags: Flags,
    env: Environment,
    defaults: Defaults,
    log: Log,
    policy: Policy,
    limits: Limits,
    auth: Secret | None,
    sink: AuditSink,
) -> int:
    """Build everything around an open audit file, listen, and run."""
    clock, ids = SystemClock(), SystemIds()
    dsn = _store_dsn(env, defaults)
    store = _store(dsn, clock)
    mode = settings.approval_mode(env)
    keys = Keys.derive(_signing_key(env, kept=defaults.durable and not dsn.startswith("memory:")))
    client = HttpClient(parse_target(flags.upstream), ClientLimits(max_body_bytes=limits.max_upstream_bytes))
    upstream = HttpUpstream(client, auth)
    gate = Gate(
        snapshot=Snapshot.of(policy),
        store=store,
        recorder=Recorder(sink, clock, log.line),
        upstream=upstream,
        catalog=Catalog(upstream, clock, ids),
        confirmations=Settings(keys, mode),
        clock=clock,
        ids=ids,
        log=log,
        target=flags.upstream,
    )
    app = App(gate, _identity(env), limits.max_request_bytes)
    # SPEC: gateway.md 15.5 is not built: a SIGHUP sent for a reload must not kill calls under way.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: log.warning("SIGHUP: this version cannot reload; restart it"))
    sock = _listen(flags.host, flags.port)
    host, port = sock.getsockname()[:2]
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"

    def ready() -> None:
        log.line(f"listening on {where} (environment {policy.environment}, {len(policy.tools)} tools)")

    async def stopped() -> None:
        await upstream.close()
        await store.close()

    httpd.run(app, sock, httpd.FrontLimits(), on_ready=ready, on_stop=stopped, say=log.warning)
    return 0


def _identity(env: Environment) -> Identity:
    """Who may ask, by which proof."""
    secret = env.secret("AIRLOCK_JWT_SECRET")
    hs256 = None
    if secret is not None:
        hs256 = Hs256(
            secret_bytes(secret),
            issuer=env.text("AIRLOCK_JWT_ISSUER"),
            audience=env.text("AIRLOCK_JWT_AUDIENCE"),
            groups_claim=env.text("AIRLOCK_GROUPS_CLAIM") or "groups",
        )
    return Identity(hs256=hs256, trust_header=env.text("AIRLOCK_TRUST_PRINCIPAL_HEADER") == "1")


def _store_dsn(env: Environment, defaults: Defaults) -> str:
    """Where state is kept: as set, else by the defaults of this name of the program."""
    dsn = env.text("AIRLOCK_STORE_DSN")
    if dsn is not None:
        return dsn
    if not defaults.durable:
        return "memory://"
    folder = env.state_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return f"sqlite:///{folder}/gateway.db"


def _store(dsn: str, clock: Clock) -> Store:
    """Open the store that the DSN's scheme names."""
    scheme = dsn.partition(":")[0]
    if scheme in {"postgres", "postgresql"}:
        raise ConfigError("AIRLOCK_STORE_DSN", "this version has no Postgres store yet: use sqlite:///path")
    try:
        module = registry.load("airlock.edge.stores", scheme)
    except LookupError as error:
        raise ConfigError("AIRLOCK_STORE_DSN", str(error)) from None
    store: Store = module.open(dsn, clock)
    return store


def _signing_key(env: Environment, *, kept: bool) -> bytes:
    """The key of confirmation tickets: set, kept in a file, or good for this process only.

    SECURITY: without a store that remembers, a key that outlives the process would let a used yes run again.
    """
    secret = env.secret("AIRLOCK_SECRET")
    if secret is not None:
        return secret_bytes(secret)
    path = env.text("AIRLOCK_SECRET_FILE")
    if path is None and kept:
        path = f"{env.state_folder()}/gateway.key"
    return os.urandom(keyfile.KEY_BYTES) if path is None else keyfile.read_or_make(path)


def _listen(host: str, port: int) -> socket.socket:
    """Bind before anything is promised; a taken port is one line."""
    try:
        return httpd.bind(host, port)
    except OSError as error:
        raise ConfigError(f"{host}:{port}", f"cannot listen: {error.strerror or error}") from None

"""The parts of a gateway process, made from its settings: who may ask, where state is kept, what signs.

Knows variables and the classes behind them; nothing here listens or runs. SPEC: gateway.md 15.2.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from airlock.core.errors import ConfigError
from airlock.core.policy.compose import compose, compose_pins
from airlock.core.policy.load import build
from airlock.core.policy.model import Policy
from airlock.core.policy.pins import Pins
from airlock.core.ports import AuditSink, Clock, Store
from airlock.edge import keyfile, pinsfile, registry, yamlfile
from airlock.edge.identity.jwt import Hs256
from airlock.edge.identity.resolve import Identity, Tokens
from airlock.edge.log import Log
from airlock.edge.settings import Environment, secret_bytes
from airlock.edge.sinks import jsonl
from airlock.gateway import upstreamsfile
from airlock.gateway.door import is_loopback
from airlock.gateway.settings import LOCAL_AUDIENCE, LOCAL_ISSUER, Defaults, Flags, Limits, upstream_auth
from airlock.gateway.upstreamsfile import Bounds, Remote, UpstreamSpec

__all__ = [
    "Audit",
    "identity",
    "load_pins",
    "load_policy",
    "load_specs",
    "local_key",
    "signing_key",
    "store",
    "store_dsn",
]

_DATABASES = ("postgres", "postgresql")


def load_specs(flags: Flags, env: Environment, limits: Limits) -> tuple[UpstreamSpec, ...]:
    """Describe the server or servers behind the gateway. Raises ConfigError."""
    bounds = Bounds(max_bytes=limits.max_upstream_bytes)
    if flags.upstreams is not None:
        return upstreamsfile.load(flags.upstreams, env)
    if flags.command:
        return (upstreamsfile.spec_of_command(flags.command, bounds),)
    return (upstreamsfile.spec_of_url(flags.upstream or "", upstream_auth(env), bounds),)


def load_policy(path: str, environment: str | None, specs: Sequence[UpstreamSpec] = ()) -> Policy:
    """Read and build the policy file, and those of single upstreams; raise ConfigError with every fault."""
    main = build(yamlfile.load_file(path), path, environment)
    own = {spec.prefix: spec.policy for spec in specs if spec.policy is not None}
    if not own:
        return main
    named = {prefix: build(yamlfile.load_file(file), file, main.environment) for prefix, file in own.items()}
    return compose(main, named, [spec.prefix for spec in specs])


def load_pins(flags: Flags, env: Environment, specs: Sequence[UpstreamSpec] = ()) -> Pins:
    """Read the pins file that the flag or the variable names, and those of single upstreams. Raises ConfigError."""
    path = flags.pins or env.text("AIRLOCK_PINS")
    main = Pins() if path is None else pinsfile.read(path)
    own = {spec.prefix: pinsfile.read(spec.pins) for spec in specs if spec.pins is not None}
    return compose_pins(main, own, [spec.prefix for spec in specs]) if own else main


def identity(
    env: Environment, log: Log, local_key: str | None = None, specs: Sequence[UpstreamSpec] = ()
) -> Identity:
    """Who may ask, by which proof. `local_key` is the file of a key that signs tokens when nothing else is set.

    A caller's token is kept only where one of `specs` exchanges it. Raises ConfigError for a key address that
    cannot be asked, or a key file that cannot be used.
    """
    url, secret = env.text("AIRLOCK_JWKS_URL"), env.secret("AIRLOCK_JWT_SECRET")
    # SPEC: mcp.md 16: a token for this gateway names its address, as clients were given it.
    audience = env.text("AIRLOCK_JWT_AUDIENCE") or env.text("AIRLOCK_RESOURCE_URL")
    issuer, keeps = env.text("AIRLOCK_JWT_ISSUER"), any(_exchanges(spec) for spec in specs)
    claim = env.text("AIRLOCK_GROUPS_CLAIM") or "groups"
    hs256: Tokens | None = None
    jwks: Tokens | None = None
    if url is not None:
        from airlock.edge.identity.jwks import Jwks

        jwks = Jwks(url, issuer=issuer, audience=audience, groups_claim=claim, say=log.line, keeps=keeps)
    elif secret is not None:
        hs256 = Hs256(secret_bytes(secret), issuer=issuer, audience=audience, groups_claim=claim, keeps=keeps)
    trust = env.text("AIRLOCK_TRUST_PRINCIPAL_HEADER") == "1"
    if url is None and secret is None and not trust and local_key is not None:
        key = keyfile.read_or_make(local_key)
        hs256 = Hs256(key, issuer=LOCAL_ISSUER, audience=LOCAL_AUDIENCE, groups_claim=claim)
    return Identity(hs256=hs256, jwks=jwks, trust_header=trust)


def _exchanges(spec: UpstreamSpec) -> bool:
    return isinstance(spec.at, Remote) and spec.at.exchange is not None


def local_key(flags: Flags, env: Environment, defaults: Defaults) -> str | None:
    """The file of the key for tokens of this machine's own user; None where it is not offered.

    SECURITY: only on loopback, and only for the name of the program that keeps its state.
    """
    if not defaults.durable or not is_loopback(flags.host):
        return None
    return f"{env.state_folder()}/identity.key"


def store_dsn(env: Environment, defaults: Defaults) -> str:
    """Where state is kept: as set, else by the defaults of this name of the program."""
    dsn = env.text("AIRLOCK_STORE_DSN")
    if dsn is not None:
        return dsn
    if not defaults.durable:
        return "memory://"
    folder = env.state_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return f"sqlite:///{folder}/gateway.db"


def store(dsn: str, clock: Clock, env: Environment) -> Store:
    """Make the store that the DSN names: `memory:`, `sqlite:`, else a Postgres DSN in either of its forms."""
    made: Store
    scheme = dsn.partition(":")[0]
    if scheme in _DATABASES or "=" in scheme:  # libpq's other form is `name=value name=value`
        from airlock.edge.stores import postgres

        made = postgres.open(dsn, clock, env)
        return made
    try:
        module = registry.load("airlock.edge.stores", scheme)
    except LookupError as error:
        raise ConfigError("AIRLOCK_STORE_DSN", str(error)) from None
    made = module.open(dsn, clock)
    return made


def signing_key(env: Environment, *, kept: bool) -> bytes:
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


class Audit:
    """The audit file of one worker, and the table that mirrors it where one is configured.

    Everything that can be wrong with them is found when it is made; the table's thread starts with `attach`,
    which must come after the last fork.
    """

    def __init__(self, flags: Flags, env: Environment, log: Log, worker: int = 0) -> None:
        self._log = log
        self._dsn = None
        text = env.text("AIRLOCK_AUDIT_DSN")
        if text is not None:
            from airlock.edge import pg

            pg.driver()
            self._dsn = pg.Dsn.parse(text, "AIRLOCK_AUDIT_DSN", env)
        self._offer: Callable[[bytes], None] | None = None
        self._close_table: Callable[[], None] | None = None
        self._waiting: Callable[[], int] = lambda: 0
        path = flags.audit if worker == 0 else f"{flags.audit}.w{worker}"
        self._file = jsonl.open(
            path,
            max_bytes=flags.audit_max_bytes,
            keep=flags.audit_keep,
            warn=log.warning,
            mirror=None if self._dsn is None else self._mirrored,
        )

    @property
    def sink(self) -> AuditSink:
        """Where records are written."""
        return self._file

    @property
    def waiting(self) -> int:
        """How many records the table does not have yet."""
        return self._waiting()

    def attach(self) -> None:
        """Start mirroring, in the process that writes."""
        if self._dsn is not None:
            from airlock.edge.sinks.postgres import PostgresMirror

            mirror = PostgresMirror(self._dsn, self._log.warning)
            self._offer, self._close_table = mirror.offer, mirror.close
            self._waiting = lambda: mirror.waiting

    def close(self) -> None:
        """Close the file, then give the table its time. Blocks for at most 15 s; a second call does nothing."""
        self._file.close()
        if self._close_table is not None:
            self._close_table()

    def _mirrored(self, line: bytes) -> None:
        if self._offer is not None:
            self._offer(line)

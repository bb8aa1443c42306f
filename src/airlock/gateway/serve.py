"""The composition root: settings become objects, objects become a server. The start order is gateway.md 15.3.

Settings, pins, policy, span and audit files, signing key and address are checked here, before anything is served,
and what is wrong with them is one line. A database or a SQLite file is opened at its first use, and the upstream
is not asked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import ExitStack
from types import FrameType
from typing import TYPE_CHECKING

from airlock.core.approval.ticket import Keys
from airlock.core.errors import AirlockError, ConfigError
from airlock.core.policy.model import Policy
from airlock.core.policy.pins import Pins
from airlock.core.principal import Principal
from airlock.edge import httpd, workers
from airlock.edge.clock import SystemClock
from airlock.edge.ids import SystemIds
from airlock.edge.log import Log
from airlock.edge.settings import Environment
from airlock.edge.trace import Trace
from airlock.gateway import methods, oauth, oneback, parts, settings
from airlock.gateway.app import App, Fronts
from airlock.gateway.approvalsettings import ApprovalSettings, approval_settings
from airlock.gateway.catalog import Catalog
from airlock.gateway.confirm import Settings
from airlock.gateway.gate import Answer, Gate, Snapshot
from airlock.gateway.metrics import Metrics, timed
from airlock.gateway.modern.admission import Request
from airlock.gateway.outofband import Approvers, open_notifier
from airlock.gateway.parts import Audit
from airlock.gateway.reload import Reloader, read_pair
from airlock.gateway.settings import Defaults, Flags, Limits
from airlock.gateway.tracing import open_tracer
from airlock.gateway.upstream.port import Upstream
from airlock.gateway.upstreamsfile import Remote, UpstreamSpec
from airlock.gateway.warnings import startup_warnings
from airlock.gateway.watching import Watching, recorder

if TYPE_CHECKING:
    from airlock.gateway.hygiene import Cleaner
    from airlock.gateway.legacy.front import LegacyFront
    from airlock.gateway.upstream.shared import SharedListens

__all__ = ["STRICT_STATUS", "serve"]

STRICT_STATUS = 2
MAX_CONNECTIONS = 4096


def serve(flags: Flags, env: Environment, defaults: Defaults) -> int:
    """Start a gateway and run it until it is told to stop; return the exit status.

    Raises ConfigError (or OSError) for everything that keeps it from starting; nothing listens then.
    """
    log = Log(defaults.program)
    early = _Hangups()
    specs = parts.load_specs(flags, env, Limits.read(env)) if flags.upstreams is not None else ()
    pins = parts.load_pins(flags, env, specs)
    local = parts.local_key(flags, env, defaults) is not None
    found = startup_warnings(env, durable=defaults.durable, local=local)
    for sentence in found:
        log.warning(f"{sentence}.")
    if found and flags.strict:
        log.line("--strict: the warnings above stop the start")
        return STRICT_STATUS
    start = _Start(flags, env, defaults, log, pins, early, specs)
    return start.run()


class _Hangups:
    """Catches a SIGHUP that comes before the event loop takes it: a reload must not kill a start."""

    def __init__(self) -> None:
        self.came = False
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True


class _Start:
    """One start: what every worker needs is read and checked once, in the order of gateway.md 15.3."""

    def __init__(
        self,
        flags: Flags,
        env: Environment,
        defaults: Defaults,
        log: Log,
        pins: Pins,
        early: _Hangups,
        specs: tuple[UpstreamSpec, ...],
    ) -> None:
        self.flags, self.env, self.defaults, self.log = flags, env, defaults, log
        self.pins, self.early = pins, early
        self.tracer = open_tracer(env, flags.otel_file, log.warning)
        self.policy: Policy = parts.load_policy(flags.policy, flags.env or env.text("AIRLOCK_ENV"), specs)
        self.limits = Limits.read(env)
        settings.upstream_auth(env)
        self.specs = specs or parts.load_specs(flags, env, self.limits)
        self.wide = defaults.front(flags) == "dual"
        self.hold_s = settings.hold_seconds(env)
        self.cleaner = _cleaner() if settings.hygiene(env, defaults) else None
        self.oauth = oauth.resource_server(env)
        settings.door(flags, env, defaults, 0)
        settings.check_workers(flags, env, defaults)
        self.watching = Watching(flags, env, defaults)

    def run(self) -> int:
        """Open the audit files, check the rest, listen, and serve."""
        flags, env, log = self.flags, self.env, self.log
        with ExitStack() as opened:
            audits: list[Audit] = []
            for number in range(flags.workers):
                audits.append(Audit(flags, env, log, number))
                opened.callback(audits[-1].close)
            dsn = parts.store_dsn(env, self.defaults)
            parts.store(dsn, SystemClock(), env)  # checked here; each worker makes its own
            approvals = approval_settings(env)
            kept = self.defaults.durable and not dsn.startswith("memory:")
            keys = Keys.derive(parts.signing_key(env, kept=kept))
            local_key = parts.local_key(flags, env, self.defaults)
            parts.identity(env, log, local_key, self.specs)
            socks = _listen(flags.host, flags.port, flags.workers)
            if flags.workers == 1:
                return self._worker(audits[0], socks[0], dsn, approvals, keys, 0)
            # INVARIANT: where a chain goes on is known to who wrote last, not here: each worker opens its own file.
            opened.close()

            def unlisten() -> None:
                for sock in socks:
                    sock.close()

            def work(number: int) -> int:
                sock = socks.pop(number)
                unlisten()  # a socket of others must not outlive their end
                audit = Audit(flags, env, log, number)
                return self._worker(audit, sock, dsn, approvals, keys, number)

            where = _address(socks[0])
            log.line(f"listening on {where} ({self._described()}, {flags.workers} workers)")
            return workers.run(flags.workers, work, log.line, on_hangup=self._reread, on_stop=unlisten)

    def _reread(self) -> None:
        """Let a worker that is started later begin with what the running ones reloaded; they say how that went."""
        sources = (self.flags.policy, self.flags.pins or self.env.text("AIRLOCK_PINS"))
        if not all(os.path.isfile(path) for path in sources if path is not None):
            return  # nothing is there, or a pipe, and reading that would keep signals from the workers
        try:
            pair = read_pair(self.flags, self.env, self.policy.environment, self.specs)
        except (AirlockError, OSError):
            return
        self.policy, self.pins = pair

    def _described(self) -> str:
        return f"environment {self.policy.environment}, {len(self.policy.tools)} tools"

    def _worker(
        self,
        audit: Audit,
        sock: socket.socket,
        dsn: str,
        approvals: ApprovalSettings,
        keys: Keys,
        number: int,
    ) -> int:
        """Build everything around an open audit file and a listening socket, and run."""
        flags, env, log = self.flags, self.env, self.log
        clock, ids = SystemClock(), SystemIds()
        audit.attach()
        store = parts.store(dsn, clock, env)
        notifier = open_notifier(approvals, log.warning)
        approvers = None if notifier is None else Approvers(keys, store, notifier, approvals.public_url, log)
        upstream = self._upstream(clock)
        metrics = self.watching.metrics()
        gate = Gate(
            snapshot=Snapshot.of(self.policy, self.pins, wide=self.wide, hygiene=self.cleaner),
            store=store,
            recorder=recorder(metrics, audit.sink, clock, log.line),
            upstream=upstream,
            catalog=Catalog(upstream, clock, ids),
            confirmations=Settings(
                keys, approvals.mode, approvals.webhook is not None, self.hold_s if self.wide else None
            ),
            clock=clock,
            ids=ids,
            log=log,
            target=oneback.target_of(self.specs[0]) if flags.upstreams is None else "",
            approvers=approvers,
            tracer=self.tracer,
            prompts=self.watching.prompts(store, clock),
            listens=self._listens(upstream),
        )
        legacy = self._legacy(gate, metrics) if self.wide else None
        port = sock.getsockname()[1]
        door = settings.door(flags, env, self.defaults, port)
        limits = self.watching.limits(gate, metrics)
        page = self.watching.page(
            gate,
            metrics,
            limits,
            port=port,
            worker=number,
            queued=lambda: audit.waiting,
            sessions=lambda: 0 if legacy is None else legacy.counts.sessions,
        )
        identity = parts.identity(env, log, parts.local_key(flags, env, self.defaults), self.specs)
        app = App(
            gate, identity, self.limits.max_request_bytes, Fronts(door, legacy, self.oauth, limits, page)
        )
        reloader = Reloader(gate, flags, env, self.specs)

        def ready() -> None:
            begin = getattr(upstream, "begin", None)
            if begin is not None:
                begin()
            if flags.workers == 1:
                log.line(f"listening on {_address(sock)} ({self._described()})")
            if self.early.came:
                reloader.hangup()

        async def stopped() -> None:
            # SPEC: gateway.md 15.6: client, store, audit (off the loop), and the spans last.
            if legacy is not None:
                await legacy.close()
            if gate.listens is not None:
                await gate.listens.close()
            await upstream.close()
            if approvers is not None:
                await approvers.close()
            await store.close()
            if limits is not None:
                limits.close()
            await asyncio.to_thread(audit.close)
            if self.tracer is not None:
                await asyncio.to_thread(self.tracer.close)

        httpd.run(
            app,
            sock,
            self._front_limits(),
            direct=app.direct,
            on_ready=ready,
            on_stop=stopped,
            on_drain=app.drain,
            on_hangup=reloader.hangup,
            say=log.warning,
        )
        return 0

    def _front_limits(self) -> httpd.FrontLimits:
        """Room for the streams that older clients and subscribers keep open; the seed's clients keep none."""
        if not self.wide:
            return httpd.FrontLimits()
        return httpd.FrontLimits(max_connections=httpd.allow_connections(MAX_CONNECTIONS))

    def _upstream(self, clock: SystemClock) -> Upstream:
        """Open what is behind the gateway. The seed's one server of revision 2026-07-28 is never probed."""
        only = self.specs[0]
        if self.flags.upstreams is None and isinstance(only.at, Remote) and not self.wide:
            return oneback.seeds_own(only, only.at)
        # Imported on use: the seed's door starts without what it does not serve.
        from airlock.gateway import backs

        if self.flags.upstreams is not None:
            return backs.open_all(self.specs, self.env.all(), clock, self.log.line)
        return backs.open_one(only, self.env.all(), clock, self.log.line)

    def _listens(self, upstream: Upstream) -> SharedListens | None:
        """Let subscribers share streams of the upstream, where older clients keep one open each."""
        if not self.wide:
            return None
        from airlock.gateway.upstream.shared import SharedListens

        return SharedListens(upstream)

    def _legacy(self, gate: Gate, metrics: Metrics | None) -> LegacyFront:
        """The front of older clients, whose requests take the same governed way."""
        from airlock.gateway.legacy.front import LegacyFront, LegacySettings

        inside = methods.govern if metrics is None else timed(metrics, methods.govern)

        async def govern(request: Request, principal: Principal, trace: Trace) -> Answer:
            return await inside(gate, request, principal, trace)

        # A stream from the start, as servers of that era answer: a client can resume it when its connection breaks.
        return LegacyFront(govern, govern, gate, LegacySettings(hold_s=self.hold_s, stream_after_s=0.0))


def _cleaner() -> type[Cleaner]:
    # Only where it is used: its expressions take some milliseconds to compile.
    from airlock.gateway.hygiene import Cleaner

    return Cleaner


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def _listen(host: str, port: int, workers: int) -> list[socket.socket]:
    """Bind before anything is promised; a taken port is one line. One socket for each worker."""
    socks: list[socket.socket] = []
    try:
        for _ in range(workers):
            socks.append(httpd.bind(host, port, shared=workers > 1))
            port = socks[0].getsockname()[1]
    except OSError as error:
        for sock in socks:
            sock.close()
        raise ConfigError(f"{host}:{port}", f"cannot listen: {error.strerror or error}") from None
    return socks

"""The servers behind the gateway, opened from their descriptions: transport, era, credentials, limits.

Knows which class speaks what; nothing is asked of a server here. SPEC: mcp.md 17-20; issue 4, items 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airlock.core.ports import Clock
from airlock.core.secret import Secret
from airlock.edge.child import Command, minimal_environment, spellings
from airlock.edge.httpc import header_line
from airlock.edge.httpurl import parse_upstream
from airlock.edge.ids import SystemIds
from airlock.edge.tokenexchange import TokenExchange
from airlock.gateway.oneback import client_for, target_of
from airlock.gateway.upstream import dialogue
from airlock.gateway.upstream.credentials import Exchanged
from airlock.gateway.upstream.evidence import Wire
from airlock.gateway.upstream.http import HttpUpstream
from airlock.gateway.upstream.inflight import StdioLimits
from airlock.gateway.upstream.legacy import LegacyUpstream
from airlock.gateway.upstream.legacyhttp import HttpDialer
from airlock.gateway.upstream.legacysse import SseDialer
from airlock.gateway.upstream.legacystdio import MOST_PROCESSES, StdioDialer
from airlock.gateway.upstream.line import Dialer
from airlock.gateway.upstream.many import ManyUpstreams
from airlock.gateway.upstream.member import Member
from airlock.gateway.upstream.negotiate import Negotiated
from airlock.gateway.upstream.port import Era, Upstream
from airlock.gateway.upstream.probe import HttpProbe, StdioProbe
from airlock.gateway.upstream.stdio import StdioUpstream
from airlock.gateway.upstreamsfile import Local, Remote, UpstreamSpec, WantedEra

__all__ = ["open_all", "open_one"]


def open_all(
    specs: tuple[UpstreamSpec, ...], inherit: Mapping[str, str], clock: Clock, say: Callable[[str], None]
) -> ManyUpstreams:
    """Open several servers behind one port."""
    members = {
        spec.name: Member(spec, open_one(spec, inherit, clock, _named(spec.name, say))) for spec in specs
    }
    return ManyUpstreams(members, clock, say)


def open_one(
    spec: UpstreamSpec, inherit: Mapping[str, str], clock: Clock, say: Callable[[str], None]
) -> Negotiated:
    """Open one server, whatever it speaks. A server that is started gets a little of the variables `inherit`."""
    if isinstance(spec.at, Remote):
        return _remote(spec, spec.at, clock, say)
    return _local(spec, spec.at, inherit, clock, say)


def _remote(spec: UpstreamSpec, at: Remote, clock: Clock, say: Callable[[str], None]) -> Negotiated:
    client, ids = client_for(spec, at), SystemIds()
    lines = b"".join(header_line(name.encode("ascii"), _bytes(value)) for name, value in at.headers)
    fixed = lines
    if at.authorization is not None:
        fixed += header_line(b"authorization", _bytes(at.authorization))
    dialers: dict[Wire, Dialer] = {
        Wire.HTTP: HttpDialer(client, fixed),
        Wire.SSE: SseDialer(client, fixed, parse_upstream(at.url)),
    }
    exchanged = None if at.exchange is None else Exchanged(TokenExchange(at.exchange, clock))
    target, limits = target_of(spec), dialogue.Limits(quiet_s=spec.limits.timeout_s)

    def older(wire: Wire) -> Upstream:
        return LegacyUpstream(dialers[wire], ids, version=_version(), target=target, limits=limits)

    return Negotiated(
        HttpUpstream(client, at.authorization, target, lines, exchanged),
        older,
        probe=HttpProbe(client, fixed, dialers, version=_version()),
        clock=clock,
        ids=ids,
        say=say,
        target=target,
        forced=_forced(spec),
    )


def _local(
    spec: UpstreamSpec, at: Local, inherit: Mapping[str, str], clock: Clock, say: Callable[[str], None]
) -> Negotiated:
    if not spec.name:
        say = _named("upstream", say)  # what it prints must not pass for words of ours
    variables = {name: value.reveal() for name, value in at.env.items()}
    command = Command(at.argv, minimal_environment(inherit, variables), at.cwd, spellings(variables.values()))
    ids, target, bounds = SystemIds(), target_of(spec), spec.limits
    limits = StdioLimits(total_s=bounds.timeout_s, max_line_bytes=bounds.max_bytes)

    def older(_wire: Wire) -> Upstream:
        return LegacyUpstream(
            StdioDialer(command, say=say),
            ids,
            version=_version(),
            target=target,
            most=MOST_PROCESSES,
            limits=dialogue.Limits(quiet_s=bounds.timeout_s),
        )

    modern = StdioUpstream(command, say, limits=limits, target=target)
    return Negotiated(
        modern,
        older,
        probe=StdioProbe(StdioDialer(command, say=say), version=_version()),
        clock=clock,
        ids=ids,
        say=say,
        target=target,
        forced=_forced(spec),
        prepare=modern.begin,
    )


def _forced(spec: UpstreamSpec) -> Era | None:
    if isinstance(spec.at, Remote) and spec.at.exchange is not None:
        # LIMIT: the question what it speaks is nobody's, and a session of the older eras has one credential.
        return Era.MODERN
    return None if spec.era is WantedEra.AUTO else Era(spec.era.value)


def _bytes(secret: Secret) -> bytes:
    return secret.reveal().encode("utf-8", "surrogateescape")


def _named(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda line: say(f"{name}: {line}")


def _version() -> str:
    from importlib.metadata import version  # it costs more than all of this module

    return version("airlock")

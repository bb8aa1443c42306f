"""The seed's one server: over HTTP, of revision 2026-07-28, and asked nothing but what clients ask.

Knows how its connections and its name in tickets are made; every other kind of server is opened in `backs`.
"""

from __future__ import annotations

import hashlib

from airlock.edge.httpc import ClientLimits, HttpClient
from airlock.edge.httpurl import parse_upstream
from airlock.gateway.upstream.http import HttpUpstream
from airlock.gateway.upstreamsfile import Local, Remote, UpstreamSpec

__all__ = ["client_for", "seeds_own", "target_of"]


def target_of(spec: UpstreamSpec) -> str:
    """Return what a ticket binds as the server: an address with a fingerprint for its query, or one of the command.

    SECURITY: a ticket is readable by whoever holds it; a query and a command line may hold a credential.
    LIMIT: the path of an address stays readable, and a short query can be guessed from its fingerprint.
    """
    if isinstance(spec.at, Local):
        return "stdio:" + _fingerprint("\0".join(spec.at.argv))
    before, _, query = spec.at.url.partition("?")
    return f"{before}?{_fingerprint(query)}" if query else spec.at.url


def seeds_own(spec: UpstreamSpec, at: Remote) -> HttpUpstream:
    """Open one server of revision 2026-07-28, which is asked nothing but what clients ask."""
    return HttpUpstream(client_for(spec, at), at.authorization, target_of(spec))


def client_for(spec: UpstreamSpec, at: Remote) -> HttpClient:
    """Make the connections to one address."""
    limits = spec.limits
    return HttpClient(
        parse_upstream(at.url), ClientLimits(total_s=limits.timeout_s, max_body_bytes=limits.max_bytes)
    )


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

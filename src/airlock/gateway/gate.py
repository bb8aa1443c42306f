"""What every call is handed: the ports and the settings of one gateway process, and the current snapshot.

Knows no rule; the flows do. A reload would swap `snapshot`; a call keeps the one it began with.
"""

from __future__ import annotations

import msgspec

from airlock.core.policy.model import Policy
from airlock.core.ports import Clock, Ids, Store
from airlock.core.text.scan import Scanner
from airlock.edge.log import Log
from airlock.edge.recording import Recorder
from airlock.gateway.catalog import Catalog
from airlock.gateway.confirm import Settings
from airlock.gateway.upstream.http import HttpUpstream

__all__ = ["Answer", "Gate", "Snapshot"]


class Snapshot(msgspec.Struct, frozen=True):
    """The policy and what was made from it."""

    policy: Policy
    scanner: Scanner

    @classmethod
    def of(cls, policy: Policy) -> Snapshot:
        """Build the scanner for the tools of `policy`."""
        return cls(policy, Scanner(policy.tools))


class Gate(msgspec.Struct):
    """The ports of a gateway process. `target` is the upstream's URL, as tickets bind it."""

    snapshot: Snapshot
    store: Store
    recorder: Recorder
    upstream: HttpUpstream
    catalog: Catalog
    confirmations: Settings
    clock: Clock
    ids: Ids
    log: Log
    target: str


class Answer(msgspec.Struct, frozen=True):
    """What goes back to the client: an HTTP status and a JSON body."""

    status: int
    body: bytes

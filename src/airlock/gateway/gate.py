"""What every call is handed: the ports and the settings of one gateway process, and the current snapshot.

Knows no rule; the flows do. A reload swaps `snapshot`; a call keeps the one it began with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from airlock.core.policy.model import Policy
from airlock.core.policy.pins import Pins
from airlock.core.ports import Clock, Ids, Store
from airlock.core.text.scan import Scanner
from airlock.edge.log import Log
from airlock.edge.recording import Recorder
from airlock.edge.spans import Tracer
from airlock.gateway import advertised
from airlock.gateway.catalog import Catalog
from airlock.gateway.changes import Changes
from airlock.gateway.confirm import Settings
from airlock.gateway.listings import Listings
from airlock.gateway.modern.admission import METHODS
from airlock.gateway.outofband import Approvers
from airlock.gateway.upstream.port import Upstream

if TYPE_CHECKING:
    from airlock.gateway.hygiene import Cleaner
    from airlock.gateway.pending import Prompts
    from airlock.gateway.upstream.shared import SharedListens

__all__ = ["Answer", "Gate", "Snapshot", "served"]

_NO_PINS = Pins()


def served(policy: Policy, *, wide: bool) -> frozenset[str]:
    """The methods that are served: the seed's, and of the rest those that the policy has a section for."""
    more = advertised.served(policy)
    return METHODS | (more if wide else more - {advertised.LISTEN})


class Snapshot(msgspec.Struct, frozen=True):
    """Policy and pins as one pair, and what was made from them. `listings` remembers answers that came before.

    `methods` are those that are served under this policy; `wide` serves more than the seed's three. `hygiene` makes
    what cleans an answer; None: contents are marked only.
    """

    policy: Policy
    pins: Pins
    scanner: Scanner
    listings: Listings
    methods: frozenset[str] = METHODS
    wide: bool = False
    hygiene: type[Cleaner] | None = None

    @classmethod
    def of(
        cls,
        policy: Policy,
        pins: Pins = _NO_PINS,
        *,
        wide: bool = False,
        hygiene: type[Cleaner] | None = None,
    ) -> Snapshot:
        """Build the scanner for the tools of `policy`."""
        methods = served(policy, wide=wide)
        return cls(policy, pins, Scanner(policy.tools), Listings(), methods, wide, hygiene)


class Gate(msgspec.Struct):
    """The ports of a gateway process. `target` is the upstream's URL, as tickets bind it; empty: ask `upstream`.

    `approvers` is None without a webhook, `tracer` when no spans leave, `prompts` when every call is asked about
    anew and nobody counts. `changes` tells subscribers of a reload; `listens` lets them share streams of `upstream`
    (None: each has its own).
    """

    snapshot: Snapshot
    store: Store
    recorder: Recorder
    upstream: Upstream
    catalog: Catalog
    confirmations: Settings
    clock: Clock
    ids: Ids
    log: Log
    target: str
    approvers: Approvers | None = None
    tracer: Tracer | None = None
    prompts: Prompts | None = None
    changes: Changes = msgspec.field(default_factory=Changes)
    listens: SharedListens | None = None


class Answer(msgspec.Struct, frozen=True):
    """What goes back to the client: an HTTP status and a JSON body. `retry_after_s` is told with status 429."""

    status: int
    body: bytes
    retry_after_s: int = 0

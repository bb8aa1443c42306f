"""Every method of an admitted request leads to its flow: the one governed entry, for every front.

Knows which flow is whose; decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from airlock.core.principal import Principal
from airlock.edge.trace import Trace
from airlock.gateway import flow, listing
from airlock.gateway.advertised import LISTEN
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.modern.admission import METHODS, Request

__all__ = ["Govern", "entry", "govern"]


Govern = Callable[[Gate, Request, Principal, Trace], Coroutine[None, None, Answer]]


def entry(gate: Gate) -> Govern:
    """Return `govern` for modern clients; beyond the seed's door it regards what they can show."""
    if not gate.snapshot.wide:
        return govern
    # Imported on use, here and below: the seed's door starts without what it does not serve.
    from airlock.gateway.legacy.hold import Confirmations
    from airlock.gateway.unable import Unable, shows_forms

    unable = Unable(Confirmations(gate.clock))

    async def governed(gate: Gate, request: Request, principal: Principal, trace: Trace) -> Answer:
        if request.name is not None and not shows_forms(request):
            return await unable.call(gate, request, principal, trace)
        return await govern(gate, request, principal, trace)

    return governed


async def govern(gate: Gate, request: Request, principal: Principal, trace: Trace) -> Answer:
    """Answer one admitted request. Raises nothing but CancelledError."""
    if request.name is not None:
        return await flow.tools_call(gate, request, principal, trace)
    if request.method in METHODS:
        return await listing.passed(gate, request, principal, trace)
    if request.method == LISTEN:
        from airlock.gateway import listening

        return await listening.listen(gate, request, principal, trace, gate.changes)
    from airlock.gateway import reading

    return await reading.read(gate, request, principal, trace)

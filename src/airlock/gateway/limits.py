"""Who sends too much: requests of one principal, its calls of one tool, and what comes from an address without one.

Knows whose token is taken, how a refusal is told and how seldom it is recorded; buckets are `core.limits`', the
rates `settings`'. SPEC: issue 4, item 7; mcp.md 5 (statuses by code).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

import msgspec

from airlock.core.decision import Verdict
from airlock.core.limits import Buckets, Rate, Tally
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.rules import Rule
from airlock.core.text.cut import cut
from airlock.core.wire import jsonrpc
from airlock.edge import recording
from airlock.edge.asgi import Scope
from airlock.edge.frontlimits import Peer
from airlock.edge.recording import Entry
from airlock.edge.trace import Trace
from airlock.gateway import body, boundary, results, tracing
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.modern.admission import Refusal, Request
from airlock.gateway.settings import Rates

__all__ = ["ADDRESS", "PRINCIPAL", "TOOL", "Limits", "ScopePeer", "source_of"]

PRINCIPAL: Final = "principal"
TOOL: Final = "tool"
ADDRESS: Final = "address"

_NAME_CHARS: Final = 128
_PREFIX_BYTES: Final = 8
_SAID: Final = {
    PRINCIPAL: "more than {rate} of one caller",
    TOOL: "more than {rate} of one caller for one tool",
    ADDRESS: "more than {rate} without a principal from {last}",
}
_METHOD: Final = "tools/call"


class _Over(msgspec.Struct, frozen=True):
    """A bucket without a token. `key` begins with the name of the limit; `wait_s` is at least 1."""

    key: tuple[str, ...]
    wait_s: int

    @property
    def again(self) -> str:
        return f"try again in {self.wait_s} s"


class Limits:
    """Takes tokens and refuses. `uncounted` is told of each refusal that goes on no record of its own.

    `refused` counts refusals by limit, and only ever grows.
    """

    def __init__(
        self, gate: Gate, rates: Rates, uncounted: Callable[[Entry], None] = lambda _entry: None
    ) -> None:
        self._gate = gate
        self._of = {PRINCIPAL: rates.principal, TOOL: rates.tool, ADDRESS: rates.address}
        self._principals = _buckets(rates.principal)
        self._tools = _buckets(rates.tool)
        self._addresses = _buckets(rates.address)
        self._uncounted = uncounted
        self._tally = Tally()
        self.refused = dict.fromkeys(self._of, 0)

    # Each of these returns None for what may go on.

    def request(self, request: Request, principal: Principal, trace: Trace) -> Answer | None:
        """Judge an admitted request of revision 2026-07-28."""
        over = self._over(principal.name, request.name)
        if over is None:
            return None
        gate = self._gate
        if gate.tracer is not None:
            told = (Verdict.DENY, Rule.RATE_LIMITED)
            tracing.note(gate, gate.tracer, request, trace, *told, principal=principal.name)
        entry = self._entry(principal, request.method, request.name, trace)
        failed = self._recorded(over, entry, request.id)
        if failed is not None:
            return failed
        if request.name is not None:
            return Answer(200, body.encode(jsonrpc.result(request.id, _denied(over))))
        return _error(over, request.id)

    def message(self, message: object, principal: Principal) -> Answer | None:
        """Judge a message of an older era, or a batch of them, which is refused as a whole."""
        messages = message if isinstance(message, list) else [message]
        overs = (self._over_older(one, principal.name) for one in messages)
        over = next((one for one in overs if one is not None), None)
        if over is None:
            return None
        asked: list[dict[str, Any]] = [one for one in messages if isinstance(one, dict) and _asks(one)]
        first = asked[0] if asked else {}
        method, tool = first.get("method"), _tool(first)
        entry = self._entry(principal, method if isinstance(method, str) else None, tool)
        request_id = _id(first)
        failed = self._recorded(over, entry, request_id)
        if failed is not None:
            return failed
        if not asked:
            return _error(over, None)
        # SPEC: mcp.md 18: the errors of these eras are 200 like their results.
        told = [_told(over, one) for one in asked]
        return Answer(200, body.encode(told if isinstance(message, list) else told[0]))

    def session(self, principal: Principal) -> Answer | None:
        """Judge a GET or DELETE of an older era."""
        over = self._over(principal.name, None)
        if over is None:
            return None
        return self._recorded(over, self._entry(principal, None, None), None) or _error(over, None)

    def refusal(self, refusal: Refusal, principal: Principal | None, peer: Peer | None) -> Answer | None:
        """Judge a request that is to be refused, and so recorded, whatever it is."""
        # SECURITY: without this, whoever reaches the port fills the audit with refusals.
        if principal is not None:
            over = self._over(principal.name, None)
        elif self._addresses is None:
            return None
        else:
            source = source_of("" if peer is None else peer.peer())
            over = self._taken(self._addresses, source, (ADDRESS, source))
        if over is None:
            return None
        entry = self._entry(principal, refusal.method, refusal.tool)
        return self._recorded(over, entry, refusal.id) or _error(over, refusal.id)

    def close(self) -> None:
        """Put on record what was refused and not told yet."""
        self._flush(math.inf)

    def _over(self, principal: str, tool: str | None) -> _Over | None:
        now = self._gate.clock.monotonic()
        if self._principals is not None:
            wait = self._principals.take(principal, now)
            if wait:
                return _Over((PRINCIPAL, principal), math.ceil(wait))
        if tool is not None and self._tools is not None:
            # SECURITY: a name that the policy does not know gets no bucket of its own.
            known = tool if tool in self._gate.snapshot.policy.tools else ""
            wait = self._tools.take((principal, known), now)
            if wait:
                return _Over((TOOL, principal, known), math.ceil(wait))
        return None

    def _over_older(self, message: object, principal: str) -> _Over | None:
        if isinstance(message, dict) and _asks(message) and message["method"] != "ping":
            return self._over(principal, _tool(message))
        # What is no request has a bucket of its own: calls must not use up a person's answer to a question.
        if self._principals is None:
            return None
        return self._taken(self._principals, (principal,), (PRINCIPAL, principal))

    def _taken(self, buckets: Buckets, key: Hashable, named: tuple[str, ...]) -> _Over | None:
        wait = buckets.take(key, self._gate.clock.monotonic())
        return _Over(named, math.ceil(wait)) if wait else None

    def _recorded(self, over: _Over, entry: Entry, request_id: object) -> Answer | None:
        """Record a refusal, at most one a minute of one key. An answer is that of a record that failed."""
        gate, now = self._gate, self._gate.clock.monotonic()
        self.refused[over.key[0]] += 1
        self._flush(now)
        entry.verdict, entry.rule_id = Verdict.DENY, Rule.RATE_LIMITED
        if not self._tally.count(over.key, now):
            self._uncounted(entry)
            return None
        try:
            gate.recorder.refusal(entry, self._said(over.key))
        except OSError as error:
            return boundary.unrecorded(gate, request_id, error)
        return None

    def _flush(self, now: float) -> None:
        """Write the last record of whoever has stopped sending too much."""
        for key, number in self._tally.overdue(now):
            named = key if isinstance(key, tuple) else ()
            principal = named[1] if named and named[0] != ADDRESS else None
            entry = recording.entry(
                self._gate.ids.hex(16),
                principal=values.name(principal),
                tool=values.name(named[2]) if len(named) > 2 else None,
            )
            entry.verdict, entry.rule_id = Verdict.DENY, Rule.RATE_LIMITED
            try:
                self._gate.recorder.refusal(entry, f"{self._said(named)}; {number} more were refused")
            except OSError as error:
                boundary.unrecorded(self._gate, None, error)

    def _said(self, key: tuple[str, ...]) -> str:
        if not key:
            return "over a limit"
        return _SAID[key[0]].format(rate=self._of[key[0]], last=key[-1])

    def _entry(
        self, principal: Principal | None, method: str | None, tool: str | None, trace: Trace | None = None
    ) -> Entry:
        return recording.entry(
            self._gate.ids.hex(16),
            principal=None if principal is None else values.name(principal.name),
            method=_name(method),
            tool=_name(tool),
            trace_id=None if trace is None else trace.trace_id,
        )


class ScopePeer:
    """The other side of a request that came as an ASGI scope."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def peer(self) -> str:
        """Return its address, "" when the server does not tell."""
        client = self._scope.get("client")
        return str(client[0]) if isinstance(client, tuple | list) and client else ""


def source_of(address: str) -> str:
    """Return whom an address counts for: itself, or the network of 64 bits that an IPv6 address is from.

    SECURITY: whoever has one IPv6 address has a whole such network of them.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(found.packed[:_PREFIX_BYTES].ljust(16, bytes(1)))}/64"


def _buckets(rate: Rate | None) -> Buckets | None:
    return None if rate is None else Buckets(rate)


def _denied(over: _Over) -> dict[str, object]:
    return results.denied(Rule.RATE_LIMITED, f"too many requests; {over.again}", wait_s=over.wait_s)


def _error(over: _Over, request_id: object) -> Answer:
    return Answer(429, body.encode(_failure(over, request_id)), over.wait_s)


def _failure(over: _Over, request_id: object) -> dict[str, object]:
    said = f"airlock: too many requests ({Rule.RATE_LIMITED}); {over.again}"
    return jsonrpc.error(request_id, jsonrpc.INTERNAL, said, {"retryAfterSeconds": over.wait_s})


def _told(over: _Over, message: dict[str, Any]) -> dict[str, object]:
    """The answer to a request of an older era."""
    if message["method"] != _METHOD:
        return _failure(over, _id(message))
    result = _denied(over)
    del result["resultType"]
    return jsonrpc.result(_id(message), result)


def _asks(message: dict[str, Any]) -> bool:
    """Tell whether a message of an older era is a request. SPEC: mcp.md 2: that is what has an `id`."""
    return "id" in message and isinstance(message.get("method"), str)


def _id(message: dict[str, Any]) -> object:
    return message.get("id") if jsonrpc.usable_id(message.get("id")) else None


def _tool(message: dict[str, Any]) -> str | None:
    params = message.get("params")
    name = params.get("name") if message.get("method") == _METHOD and isinstance(params, dict) else None
    return name if isinstance(name, str) else None


def _name(text: str | None) -> str | None:
    """A client-chosen name for the record: scrubbed, then cut."""
    clean = values.name(text)
    return None if clean is None else cut(clean, _NAME_CHARS, "…[cut]")

"""A whole gateway in one process: the real app, flows and core around a scripted upstream and a still clock.

Only what touches the world is replaced: the HTTP client, the clock, the ids, and the audit file (kept as lines).
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from airlock.core.approval.ticket import Keys
from airlock.core.audit import chain
from airlock.core.audit.record import Record
from airlock.core.policy.load import build
from airlock.edge.httpanswer import Reply
from airlock.edge.identity.resolve import Identity
from airlock.edge.log import Log
from airlock.edge.recording import Recorder
from airlock.edge.stores.memory import MemoryStore
from airlock.gateway.app import App, Fronts
from airlock.gateway.catalog import Catalog
from airlock.gateway.confirm import Settings
from airlock.gateway.gate import Gate, Snapshot
from airlock.gateway.legacy.front import LegacyFront
from airlock.gateway.limits import Limits
from airlock.gateway.metrics import CountingRecorder, Metrics, Page
from airlock.gateway.pending import Prompts
from airlock.gateway.settings import Rates
from airlock.gateway.upstream.http import HttpUpstream

REVISION = "2026-07-28"
OURS = "io.mcp-airlock/"
TARGET = "http://upstream.example/mcp"

POLICY: dict[str, Any] = {
    "environment": "prod",
    "output": {"max_chars": 4000},
    "blast_radius": {"max_per_call": 5, "max_per_principal": 12, "window_s": 600},
    "tools": {
        "read": {"tiers": {"prod": "L0"}},
        "suggest": {"tiers": {"prod": "L1"}},
        "drop": {
            "description": "drop things",
            "tiers": {"prod": "L2"},
            "count_arg": "names",
            "where": [{"arg": "region", "in": ["north"], "optional": True}],
        },
        "reboot": {"description": "reboot one node", "tiers": {"prod": "L2"}},
        "scale": {"tiers": {"prod": "L3"}, "count_arg": "names"},
        "push": {"tiers": {"prod": "L3"}},
        "staging_only": {"tiers": {"staging": "L0"}},
    },
}

DRY = {"type": "object", "properties": {"dry_run": {"type": "boolean"}}}
BARE = {"type": "object", "properties": {}}
TOOLS: list[dict[str, Any]] = [
    {"name": "read", "inputSchema": BARE},
    {"name": "suggest", "inputSchema": DRY},
    {"name": "drop", "inputSchema": {"type": "object", "properties": {
        "names": {"type": "array"}, "dry_run": {"type": "boolean", "x-mcp-header": "Dry"}}}},
    {"name": "reboot", "inputSchema": BARE},
    {"name": "scale", "inputSchema": DRY},
    {"name": "push", "inputSchema": BARE},
    {"name": "hidden", "inputSchema": BARE},
]  # fmt: skip


class StillClock:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.time = 1_790_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


class CountingIds:
    """Ids that are different and known."""

    def __init__(self) -> None:
        self.made = 0

    def hex(self, nbytes: int) -> str:
        self.made += 1
        return f"{self.made:0{2 * nbytes}x}"


class LinesSink:
    """An audit file in memory; `failing` makes every write fail."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.prev = chain.GENESIS
        self.failing = False
        self.watch: Callable[[dict[str, Any]], None] = lambda record: None

    def write(self, *records: Record) -> None:
        if self.failing:
            raise OSError(28, "No space left on device")
        for record in records:
            line, self.prev = chain.seal(record, self.prev)
            self.lines.append(line)
            self.watch(json.loads(line))

    def close(self) -> None: ...


class Sent:
    """One request that reached the upstream."""

    def __init__(self, headers: bytes, body: bytes) -> None:
        lines = [line.partition(b": ") for line in headers.split(b"\r\n") if line]
        self.header_list = [(name.decode().lower(), value.decode("latin-1")) for name, _, value in lines]
        self.headers = dict(self.header_list)
        self.raw = body
        self.body: dict[str, Any] = json.loads(body)

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.body["params"]
        return params

    @property
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = self.params.get("arguments", {})
        return arguments


Script = Callable[[Sent], Any]


class FakeClient:
    """Stands where the pooled HTTP client stands. `script` answers calls, `catalog` answers tools/list."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.listed: list[Sent] = []
        self.script: Script = lambda sent: result_of({"content": [{"type": "text", "text": "done"}]})(sent)
        self.catalog: Script = lambda sent: result_of({"tools": [dict(tool) for tool in TOOLS]})(sent)
        self.before: Callable[[Sent], Awaitable[None]] | None = None

    async def post(self, headers: bytes, body: bytes) -> Reply:
        sent = Sent(headers, body)
        listing = sent.body["method"] == "tools/list"
        (self.listed if listing else self.sent).append(sent)
        if self.before is not None:
            await self.before(sent)
        answer = (self.catalog if listing else self.script)(sent)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Reply)
        return answer

    async def close(self) -> None: ...


def result_of(result: Any, status: int = 200) -> Script:
    """Answer with a result under the request's own id."""

    def script(sent: Sent) -> Reply:
        whole = {"resultType": "complete", **result} if isinstance(result, dict) else result
        return raw(json.dumps({"jsonrpc": "2.0", "id": sent.body["id"], "result": whole}).encode(), status)

    return script


def text_result(text: str) -> Script:
    """Answer with one text block."""
    return result_of({"content": [{"type": "text", "text": text}]})


def raw(body: bytes, status: int = 200, content_type: str = "application/json") -> Reply:
    """An answer of these very bytes."""
    return Reply(status=status, content_type=content_type, body=body)


class Got:
    """What the client got back."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status = status
        self.raw = body
        self.headers = headers

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.raw)
        return message

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def code(self) -> int:
        code: int = self.message["error"]["code"]
        return code

    @property
    def ours(self) -> dict[str, Any]:
        return {
            key.removeprefix(OURS): value
            for key, value in self.result["_meta"].items()
            if key.startswith(OURS)
        }

    @property
    def rule(self) -> str:
        rule: str = self.ours["rule_id"]
        return rule

    @property
    def verdict(self) -> str:
        verdict: str = self.ours["verdict"]
        return verdict

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.result["content"] if block.get("type") == "text")

    @property
    def state(self) -> str:
        state: str = self.result["requestState"]
        return state


@functools.cache
def _snapshot(policy: str) -> Snapshot:
    """Snapshots change nothing, so worlds with one policy share one."""
    return Snapshot.of(build(json.loads(policy), "policy.yaml", None))


class World:
    """A gateway and everything around it."""

    def __init__(
        self, policy: dict[str, Any] | None = None, *, mode: str = "inband", notified: bool = False
    ) -> None:
        self.clock = StillClock()
        self.sink = LinesSink()
        self.client = FakeClient()
        self.store = MemoryStore(self.clock)
        self.ids = CountingIds()
        upstream = HttpUpstream(self.client, None)  # type: ignore[arg-type]
        self.gate = Gate(
            snapshot=_snapshot(json.dumps(policy if policy is not None else POLICY)),
            store=self.store,
            recorder=Recorder(self.sink, self.clock, lambda text: self.logged.append(text)),
            upstream=upstream,
            catalog=Catalog(upstream, self.clock, self.ids),
            confirmations=Settings(Keys.derive(b"k" * 32), mode, notified),
            clock=self.clock,
            ids=self.ids,
            log=QuietLog(self),
            target=TARGET,
        )
        self.logged: list[str] = []
        self.app = App(self.gate, Identity(hs256=None, trust_header=True), 1_048_576)
        self.limits: Limits | None = None
        self.page: Page | None = None

    def watch(
        self,
        *,
        rates: Rates | None = None,
        collapse: bool = False,
        counting: bool = False,
        legacy: LegacyFront | None = None,
    ) -> None:
        """Limit, collapse and count as `airlock gateway serve` does; to be called before the first request."""
        gate, found = self.gate, rates or Rates()
        metrics = Metrics() if counting else None
        if metrics is not None:
            metrics.watch(gate)
            gate.recorder = CountingRecorder(self.sink, self.clock, self.logged.append, metrics)
        gate.prompts = Prompts(self.store, self.clock, collapse=collapse, rate=found.prompts)
        self.limits = Limits(gate, found) if metrics is None else Limits(gate, found, metrics.outcome)
        self.page = None if metrics is None else Page(metrics, gate, limits=self.limits)
        fronts = Fronts(legacy=legacy, limits=self.limits, page=self.page)
        self.app = App(gate, Identity(hs256=None, trust_header=True), 1_048_576, fronts)

    async def http(
        self,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        *,
        path: str = "/mcp",
        method: str = "POST",
        peer: str = "192.0.2.1",
    ) -> Got:
        """Send one HTTP request to the app, from the address `peer`."""
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b"",
                 "client": (peer, 50000)}  # fmt: skip
        sent: list[Any] = []

        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # the client stays
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Got(sent[0]["status"], b"".join(message["body"] for message in sent[1:]), head)

    async def rpc(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        principal: str | None = "alice",
        groups: str | None = None,
        request_id: Any = 1,
        meta: dict[str, Any] | None = None,
        extra: list[tuple[bytes, bytes]] | None = None,
        content_type: str = "application/json",
        peer: str = "192.0.2.1",
    ) -> Got:
        """Send one well-formed request of revision 2026-07-28."""
        params = dict(params or {})
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
            **(meta or {}),
        }
        body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"mcp-protocol-version", REVISION.encode()),
            (b"mcp-method", method.encode()),
        ]
        name = params.get("name")
        if method == "tools/call" and isinstance(name, str):
            headers.append((b"mcp-name", _header_name(name)))
        if principal is not None:
            headers.append((b"x-airlock-principal", principal.encode()))
        if groups is not None:
            headers.append((b"x-airlock-groups", groups.encode()))
        return await self.http(body, headers + (extra or []), peer=peer)

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Got:
        """Call a tool; `state` and `answer` resume a confirmation, the rest goes to `rpc`."""
        params: dict[str, Any] = {"name": tool}
        if arguments is not None:
            params["arguments"] = arguments
        if "state" in more:
            params["requestState"] = more.pop("state")
        if "answer" in more:
            params["inputResponses"] = more.pop("answer")
        return await self.rpc("tools/call", params, **more)

    async def yes(self, tool: str, arguments: dict[str, Any] | None, state: str, **more: Any) -> Got:
        """Repeat a call with a person's yes."""
        return await self.call(tool, arguments, state=state, answer=YES, **more)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The audit so far; the chain is checked on the way."""
        outcome = chain.verify([("audit", iter(self.sink.lines))])
        assert isinstance(outcome, chain.Verified), outcome
        return [json.loads(line) for line in self.sink.lines]

    @property
    def last_pair(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The last intent and its outcome."""
        intent, outcome = self.records[-2:]
        assert intent["call_id"] == outcome["call_id"]
        assert (intent["phase"], outcome["phase"]) == ("intent", "outcome")
        return intent, outcome


class QuietLog(Log):
    """Log lines land in the world."""

    __slots__ = ("world",)

    def __init__(self, world: World) -> None:
        super().__init__("test")
        self.world = world

    def line(self, text: str) -> None:
        self.world.logged.append(text)


YES = {"airlock-confirm": {"action": "accept", "content": {"confirm": True}}}
NO = {"airlock-confirm": {"action": "decline"}}


def _header_name(name: str) -> bytes:
    if name.isascii() and name.isprintable() and name == name.strip() and not name.startswith("=?"):
        return name.encode()
    return b"=?base64?" + base64.b64encode(name.encode("utf-8", "surrogatepass")) + b"?="

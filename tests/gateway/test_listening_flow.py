"""`subscriptions/listen` through the whole flow: what is honoured, what a client hears, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.principal import Principal
from airlock.gateway import changes as limits
from airlock.gateway import listening
from airlock.gateway.changes import Changes
from airlock.gateway.gate import Answer, Snapshot
from airlock.gateway.upstream.shared import SharedListens
from tests.fakes.upstream_port import (
    ALICE,
    SUBSCRIPTION,
    TRACE,
    Client,
    FakeUpstream,
    Subscription,
    error,
    request,
)
from tests.fakes.world import OURS, POLICY, Got, World, _snapshot

SECTIONS: dict[str, Any] = {
    **POLICY,
    "resources": {"file:///docs/**": {}, "db://**": {"principals": ["bob"]}},
    "prompts": {},
}
ALL: dict[str, Any] = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
LISTS = ["tools/list_changed", "prompts/list_changed", "resources/list_changed"]
ACK = "subscriptions/acknowledged"
GONE = UpstreamError(UpstreamFailure.UNREACHABLE, "ConnectionResetError", reached=True)


def gone(_: object) -> Exception:
    return GONE


def snapshot(policy: dict[str, Any]) -> Snapshot:
    return _snapshot(json.dumps(policy))


class Listening(World):
    """A world in which clients listen, each with an upstream stream of its own or `shared` ones.

    `close` makes every client leave.
    """

    def __init__(self, policy: dict[str, Any] | None = None, *, shared: bool = False) -> None:
        super().__init__(SECTIONS if policy is None else policy)
        self.upstream = FakeUpstream()
        self.gate.upstream = self.upstream
        if shared:
            self.gate.listens = SharedListens(self.upstream)
        self.changes = Changes()
        self.tasks: list[asyncio.Task[Answer]] = []

    def listen(
        self, notifications: Any, principal: Principal = ALICE, *, request_id: object = 42, **more: Any
    ) -> tuple[Client, asyncio.Task[Answer]]:
        client = Client()
        asked = request(
            "subscriptions/listen",
            {"notifications": notifications},
            request_id=request_id,
            heard=client,
            **more,
        )
        task = asyncio.create_task(listening.listen(self.gate, asked, principal, TRACE, self.changes))
        self.tasks.append(task)
        return client, task

    async def listened(self, notifications: Any, **more: Any) -> tuple[Client, Subscription]:
        """Listen, and let the upstream acknowledge all that it is asked."""
        client, _ = self.listen(notifications, **more)
        subscription = await self.opened()
        subscription.acknowledges()
        await client.came(1)
        return client, subscription

    async def refused(self, notifications: Any, **more: Any) -> Got:
        _, task = self.listen(notifications, **more)
        answer = await asyncio.wait_for(task, 5)
        return Got(answer.status, answer.body, {})

    async def opened(self) -> Subscription:
        return await asyncio.wait_for(self.upstream.opened.get(), 5)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.gate.listens is not None:
            await self.gate.listens.close()


@pytest.fixture(params=["own streams", "shared streams"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[Listening]:
    made = Listening(shared=request.param == "shared streams")
    yield made
    await made.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting before the upstream is asked again."""
    monkeypatch.setattr(listening, "FIRST_WAIT_S", 0.0)


async def settled() -> None:
    """Let everything that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def told(client: Client) -> dict[str, Any]:
    """What the acknowledgement honours."""
    assert client.methods[0] == ACK
    notifications: dict[str, Any] = client.messages[0]["params"]["notifications"]
    return notifications


# What is asked and honoured


async def test_what_is_asked_goes_upstream_and_is_acknowledged_under_the_clients_own_id(
    world: Listening,
) -> None:
    client, _ = world.listen({**ALL, "resourceSubscriptions": ["file:///docs/a"]}, request_id="42")
    subscription = await world.opened()
    assert subscription.asked == {**ALL, "resourceSubscriptions": ["file:///docs/a"]}
    shared = world.gate.listens is not None
    assert subscription.outgoing.id == ("airlock-listen-1" if shared else "42")
    assert subscription.outgoing.method == "subscriptions/listen"
    assert client.messages == []
    subscription.acknowledges()
    assert client.messages == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "notifications": {**ALL, "resourceSubscriptions": ["file:///docs/a"]},
                "_meta": {SUBSCRIPTION: "42"},
            },
        }
    ]
    subscription.acknowledges()
    assert len(client.messages) == 1


@pytest.mark.parametrize("request_id", [42, "42", 0, ""])
async def test_every_message_carries_the_clients_id_with_its_type(
    world: Listening, request_id: object
) -> None:
    client, subscription = await world.listened(ALL, request_id=request_id)
    subscription.says("tools/list_changed")
    world.changes.announce()
    tags = [message["params"]["_meta"][SUBSCRIPTION] for message in client.messages]
    assert tags == [request_id] * 5
    assert {type(tag) for tag in tags} == {type(request_id)}


async def test_what_is_not_served_or_not_for_the_caller_is_left_out(world: Listening) -> None:
    world.gate.snapshot = snapshot({key: SECTIONS[key] for key in SECTIONS if key != "prompts"})
    uris = ["file:///docs/a", "db://x", "file:///docs/../b", "file:///docs/a", "junk"]
    client, subscription = await world.listened({**ALL, "resourceSubscriptions": uris, "unknown": True})
    kept = {
        "toolsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["file:///docs/a"],
    }
    assert subscription.asked == kept
    assert told(client) == kept


async def test_a_kind_that_is_false_or_absent_is_not_asked_for(world: Listening) -> None:
    client, subscription = await world.listened({"toolsListChanged": True, "promptsListChanged": False})
    assert subscription.asked == {"toolsListChanged": True}
    for method in LISTS:
        subscription.says(method)
    assert client.methods == [ACK, "tools/list_changed"]


async def test_only_resources_that_the_upstream_honours_are_acknowledged(world: Listening) -> None:
    client, _ = world.listen({**ALL, "resourceSubscriptions": ["file:///docs/a", "file:///docs/b"]})
    (await world.opened()).acknowledges(resourceSubscriptions=["file:///docs/b", "db://x", 5])
    assert told(client) == {**ALL, "resourceSubscriptions": ["file:///docs/b"]}


@pytest.mark.parametrize("odd", [{"resourceSubscriptions": "file:///docs/a"}, {"toolsListChanged": True}])
async def test_an_odd_acknowledgement_honours_no_resource(world: Listening, odd: dict[str, Any]) -> None:
    client, _ = world.listen({"resourceSubscriptions": ["file:///docs/a"]})
    (await world.opened()).acknowledges(**odd)
    assert told(client) == {}


async def test_an_acknowledgement_without_parameters_is_one(world: Listening) -> None:
    client, _ = world.listen(ALL)
    (await world.opened()).raw({"method": "notifications/subscriptions/acknowledged", "params": 5})
    assert told(client) == ALL


async def test_with_nothing_left_to_hear_of_it_the_upstream_is_not_asked() -> None:
    world = Listening(POLICY)
    client, _ = world.listen({"promptsListChanged": True, "resourceSubscriptions": ["file:///docs/a"]})
    await client.came(1)
    assert told(client) == {}
    world.changes.announce()
    assert len(client.messages) == 1
    assert world.upstream.opened.empty()
    await world.close()


@pytest.mark.parametrize(
    "notifications",
    [
        None, 5, [], "x", {"toolsListChanged": "true"}, {"promptsListChanged": 1}, {"resourcesListChanged": None},
        {"resourceSubscriptions": "file:///docs/a"}, {"resourceSubscriptions": [5]}, {"resourceSubscriptions": None},
        {"resourceSubscriptions": ["x:y"] * 1001},
    ],
)  # fmt: skip
async def test_parameters_out_of_shape_are_refused(world: Listening, notifications: Any) -> None:
    got = await world.refused(notifications)
    assert (got.status, got.code) == (400, -32602)
    intent, outcome = world.last_pair
    assert (intent["rule_id"], outcome["verdict"]) == ("protocol.-32602", "deny")
    assert got.message["error"]["message"] == "airlock: " + outcome["detail"]
    assert world.upstream.opened.empty()


async def test_capabilities_that_are_no_object_are_refused(world: Listening) -> None:
    assert (await world.refused(ALL, capabilities="x")).code == -32602


async def test_extensions_are_not_declared_to_the_upstream(world: Listening) -> None:
    world.listen(ALL, capabilities={"extensions": {"x/y": {}}, "elicitation": {}})
    meta: Any = (await world.opened()).outgoing.params["_meta"]
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {"elicitation": {}}
    assert meta[OURS + "principal"] == "alice"


async def test_over_the_number_of_subscriptions_a_caller_is_told_so(world: Listening) -> None:
    for _ in range(limits.MOST_PER_PRINCIPAL):
        world.listen({})
    await settled()
    got = await world.refused({})
    assert (got.status, got.code) == (200, -32603)
    assert got.message["error"]["message"].startswith("airlock: this caller has 1024 subscriptions open")
    assert world.last_pair[1]["rule_id"] == "protocol.-32603"
    client, _ = world.listen({}, Principal("bob"))
    await client.came(1)


async def test_a_thousand_idle_clients_cost_the_upstream_one_stream_for_each_principal() -> None:
    world = Listening(shared=True)
    clients = [
        world.listen({"toolsListChanged": True}, Principal(name), request_id=n)[0]
        for name in ("alice", "bob")
        for n in range(1000)
    ]
    for _ in range(2):
        subscription = await world.opened()
        subscription.acknowledges()
        subscription.says("tools/list_changed")
    await settled()
    assert world.upstream.opened.empty()
    assert all(client.methods == [ACK, "tools/list_changed"] for client in clients)
    await world.close()


# What a client hears


async def test_events_are_passed_on_with_what_else_they_say(world: Listening) -> None:
    client, subscription = await world.listened({**ALL, "resourceSubscriptions": ["file:///docs/a"]})
    meta = {SUBSCRIPTION: "theirs", "vendor/k": 1, OURS + "verdict": "allow"}
    subscription.says("resources/updated", uri="file:///docs/a", title="A", _meta=meta)
    subscription.raw({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    subscription.says("prompts/list_changed", _meta=5)
    assert [message["params"] for message in client.messages[1:]] == [
        {"uri": "file:///docs/a", "title": "A", "_meta": {"vendor/k": 1, SUBSCRIPTION: 42}},
        {"_meta": {SUBSCRIPTION: 42}},
        {"_meta": {SUBSCRIPTION: 42}},
    ]


async def test_an_update_of_what_the_caller_may_not_read_is_dropped(world: Listening) -> None:
    client, subscription = await world.listened({"resourceSubscriptions": ["file:///docs/a"]})
    for uri in ("db://x", "file:///etc/passwd", "file:///docs/..%2Fa", 5):
        subscription.says("resources/updated", uri=uri)
    subscription.says("resources/updated")
    subscription.says("resources/updated", uri="file:///docs/a/part")
    assert [message["params"].get("uri") for message in client.messages[1:]] == ["file:///docs/a/part"]


async def test_updates_that_nobody_asked_for_are_dropped(world: Listening) -> None:
    client, subscription = await world.listened(ALL)
    subscription.says("resources/updated", uri="file:///docs/a")
    subscription.says("message", level="info", data="x")
    subscription.says("progress", progressToken=1, progress=1)
    subscription.raw({"method": 5})
    subscription.raw({"id": 1, "result": {}})
    assert client.methods == [ACK]


async def test_a_policy_that_changes_is_asked_for_each_event(world: Listening) -> None:
    client, subscription = await world.listened({**ALL, "resourceSubscriptions": ["file:///docs/a"]})
    world.gate.snapshot = snapshot(POLICY)
    for method in LISTS:
        subscription.says(method)
    subscription.says("resources/updated", uri="file:///docs/a")
    assert client.methods == [ACK, "tools/list_changed"]


async def test_nothing_comes_before_the_acknowledgement(world: Listening) -> None:
    client, _ = world.listen(ALL)
    subscription = await world.opened()
    subscription.says("tools/list_changed")
    assert client.messages == []
    world.changes.announce()
    assert client.messages == []
    subscription.acknowledges()
    assert client.methods == [ACK, *LISTS]


async def test_a_new_policy_is_announced_to_every_listener_in_its_kinds(world: Listening) -> None:
    one, _ = await world.listened({"toolsListChanged": True})
    two, _ = await world.listened(ALL, request_id="two")
    world.changes.announce()
    assert one.methods == [ACK, "tools/list_changed"]
    assert two.methods == [ACK, *LISTS]


# An upstream that cannot, or goes away


async def test_an_upstream_without_subscriptions_leaves_what_we_announce_ourselves(world: Listening) -> None:
    client, task = world.listen({**ALL, "resourceSubscriptions": ["file:///docs/a"]})
    (await world.opened()).ends(error(-32601, 404))
    await client.came(1)
    assert told(client) == ALL
    world.changes.announce()
    assert client.methods == [ACK, *LISTS]
    await settled()
    assert not task.done()
    assert world.upstream.opened.empty()


async def test_another_refusal_of_the_upstream_is_the_answer(world: Listening) -> None:
    client, task = world.listen(ALL)
    (await world.opened()).ends(error(-32603, 500, "no more streams"))
    answer = await asyncio.wait_for(task, 5)
    assert (answer.status, Got(answer.status, answer.body, {}).code) == (500, -32603)
    assert client.messages == []
    _, outcome = world.last_pair
    assert (outcome["verdict"], outcome["upstream_status"], outcome["detail"]) == (
        "allow",
        500,
        {"events": 0},
    )
    assert world.changes._told == {}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("script", [None, gone, error(-32603)])
async def test_a_stream_that_ends_is_opened_again_and_what_was_missed_is_told(
    world: Listening, script: Any
) -> None:
    asked = {**ALL, "resourceSubscriptions": ["file:///docs/a"]}
    client, subscription = await world.listened(asked)
    subscription.ends(script)
    again = await world.opened()
    assert again.asked == asked
    assert client.methods == [ACK]
    again.acknowledges()
    assert client.methods == [ACK, *LISTS, "resources/updated"]
    again.acknowledges()
    again.says("tools/list_changed")
    assert client.methods == [ACK, *LISTS, "resources/updated", "tools/list_changed"]


@pytest.mark.usefixtures("at_once")
async def test_an_upstream_that_is_down_at_first_is_found_later(world: Listening) -> None:
    client, _ = world.listen(ALL)
    for _ in range(3):
        (await world.opened()).ends(gone)
    assert told(client) == ALL
    (await world.opened()).acknowledges()
    assert client.methods == [ACK, *LISTS]
    assert world.logged == ["a subscription lost its upstream: upstream.unreachable: ConnectionResetError"]


async def test_the_waits_between_two_attempts_double_up_to_the_longest(
    world: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    tries = 9

    async def kept(delay: float) -> None:
        waits.append(delay)

    monkeypatch.setattr("airlock.gateway.listening.asyncio.sleep", kept)
    world.listen(ALL)
    for attempt in range(tries):
        subscription = await world.opened()
        if attempt == tries - 2:
            world.clock.time += listening.LONGEST_WAIT_S  # this one held
        subscription.ends()
    await world.opened()
    assert waits == [1, 2, 4, 8, 16, 30, 30, 1, 2]


async def test_an_upstream_that_does_not_acknowledge_keeps_nobody_waiting(
    world: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ACK_WAIT_S", 0.0)
    client, _ = world.listen({**ALL, "resourceSubscriptions": ["file:///docs/a"]})
    subscription = await world.opened()
    await client.came(1)
    assert told(client) == ALL
    subscription.acknowledges()
    subscription.says("resources/updated", uri="file:///docs/a")
    assert client.methods == [ACK, "resources/updated"]


# The record, and the end


async def test_a_client_that_leaves_ends_the_upstreams_stream_and_the_record_says_so(
    world: Listening,
) -> None:
    client, subscription = await world.listened(ALL)
    subscription.says("tools/list_changed")
    subscription.says("message")
    await world.close()
    assert subscription.left
    assert len(client.messages) == 2
    intent, outcome = world.last_pair
    assert (intent["method"], intent["tool"], intent["args"]) == ("subscriptions/listen", None, {})
    assert (intent["verdict"], intent["rule_id"], intent["principal"]) == ("allow", "passthrough", "alice")
    assert (outcome["verdict"], outcome["rule_id"]) == ("allow", "passthrough")
    assert outcome["detail"] == {"events": 1, "ended": "the client closed the stream"}
    assert world.changes._told == {}
    assert world.changes._of == {}


async def test_whoever_ends_a_subscription_can_say_why(world: Listening) -> None:
    _, task = world.listen({})
    await settled()
    task.cancel("the gateway stops")
    await asyncio.gather(task, return_exceptions=True)
    assert world.last_pair[1]["detail"] == {"events": 0, "ended": "the gateway stops"}


async def test_the_intent_is_on_file_before_the_upstream_is_asked(world: Listening) -> None:
    world.sink.failing = True
    got = await world.refused(ALL)
    assert (got.status, got.code) == (500, -32603)
    assert world.upstream.opened.empty()
    world.sink.failing = False
    await world.listened(ALL)
    assert [record["phase"] for record in world.records] == ["intent"]


async def test_a_failure_inside_is_recorded_and_not_told(world: Listening) -> None:
    _, task = world.listen(ALL)
    (await world.opened()).ends(lambda _: RuntimeError("the secret of it"))
    answer = await asyncio.wait_for(task, 5)
    assert (answer.status, b"secret" in answer.body) == (500, False)
    assert world.last_pair[1]["rule_id"] == "internal.error"


async def test_a_request_with_nowhere_to_hear_fails_closed(world: Listening) -> None:
    asked = request("subscriptions/listen", {"notifications": ALL})
    answer = await listening.listen(world.gate, asked, ALICE, TRACE, world.changes)
    assert answer.status == 500
    assert world.changes._told == {}


async def test_a_client_that_leaves_before_anything_began_leaves_no_record(world: Listening) -> None:
    _, task = world.listen(ALL)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.records == []


async def test_a_subscription_has_a_span(world: Listening) -> None:
    spans: list[Any] = []

    class Kept:
        def record(self, span: Any) -> None:
            spans.append(span)

    world.gate.tracer = Kept()  # type: ignore[assignment]
    await world.refused(5)
    (span,) = spans
    assert (span.name, dict(span.attributes)["airlock.rule_id"]) == (
        "subscriptions/listen",
        "protocol.-32602",
    )

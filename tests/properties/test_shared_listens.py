"""Whoever shares a stream hears what it would have heard on one of its own, whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream.port import Outgoing
from airlock.gateway.upstream.shared import SharedListens
from tests.fakes.upstream_port import Client, FakeUpstream, Subscription

TOPICS = ("toolsListChanged", "promptsListChanged", "x:/a", "x:/b", "x:/c")
METHOD = {"toolsListChanged": "tools/list_changed", "promptsListChanged": "prompts/list_changed"}
ACK = "subscriptions/acknowledged"

comes = st.tuples(st.just("come"), st.frozensets(st.sampled_from(TOPICS), min_size=1, max_size=3))
steps = st.lists(
    st.one_of(
        comes,
        comes,
        st.tuples(st.just("leave"), st.integers(0, 20)),
        st.just(("acknowledge", None)),
        st.just(("acknowledge", None)),
        st.tuples(st.just("say"), st.sampled_from(TOPICS)),
        st.tuples(st.just("say"), st.sampled_from(TOPICS)),
        st.tuples(st.just("break"), st.integers(0, 20)),
        st.just(("wait", None)),
    ),
    min_size=10,
    max_size=30,
)


def notifications(topics: frozenset[str]) -> dict[str, object]:
    kinds: dict[str, object] = dict.fromkeys((it for it in topics if it in METHOD), True)
    uris = sorted(topics - METHOD.keys())
    return {**kinds, "resourceSubscriptions": uris} if uris else kinds


def asked(wanted: dict[str, object]) -> frozenset[str]:
    uris = wanted.get("resourceSubscriptions", [])
    assert isinstance(uris, list)
    return frozenset([*(it for it in wanted if it in METHOD), *uris])


class One:
    """A client, and what it must have heard: what was said while it was acknowledged, in that order."""

    def __init__(self, shared: SharedListens, topics: frozenset[str], number: int) -> None:
        self.client = Client()
        self.topics = topics
        self.due: list[str] = []
        params: dict[str, object] = {"notifications": notifications(topics), "_meta": {}}
        outgoing = Outgoing(number, b"", b"", "subscriptions/listen", params, "alice")
        self.task = asyncio.ensure_future(shared.listen(outgoing, self.client))

    @property
    def hears(self) -> bool:
        return ACK in self.client.methods and not self.task.done()

    def heard(self) -> list[str]:
        kinds = {f"notifications/{method}": kind for kind, method in METHOD.items()}
        events = [it for it in self.client.messages if not it["method"].endswith("acknowledged")]
        return [kinds.get(it["method"]) or it["params"]["uri"] for it in events]


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


def says(stream: Subscription, topic: str) -> None:
    if topic in METHOD:
        stream.says(METHOD[topic])
    else:
        stream.says("resources/updated", uri=topic)


async def play(script: list[tuple[str, object]]) -> None:
    upstream = FakeUpstream()
    timers: list[Callable[[], object]] = []

    class Timer:
        def __init__(self, then: Callable[[], object]) -> None:
            self.then = then
            timers.append(then)

        def cancel(self) -> None:
            if self.then in timers:
                timers.remove(self.then)

    shared = SharedListens(upstream, lambda _, then: Timer(then))
    those: list[One] = []
    streams: list[tuple[Subscription, bool]] = []  # and whether it was acknowledged
    for number, (step, what) in enumerate(script):
        present = [one for one in those if not one.task.done()]
        if step == "come" and isinstance(what, frozenset):
            those.append(One(shared, what, number))
        elif step == "leave" and present and isinstance(what, int):
            present[what % len(present)].task.cancel()
        elif step == "acknowledge":
            for stream, known in streams:
                if not known:
                    stream.acknowledges()
            streams = [(stream, True) for stream, _ in streams]
        elif step == "say" and isinstance(what, str):
            for one in present:
                if one.hears and what in one.topics:
                    one.due.append(what)
            for stream, _ in streams:
                if what in asked(stream.asked):
                    says(stream, what)
        elif step == "break" and streams and isinstance(what, int):
            broken, _ = streams.pop(what % len(streams))
            broken.ends(lambda _: UpstreamError(UpstreamFailure.UNREACHABLE, "broken", reached=True))
        elif step == "wait":
            due, timers[:] = list(timers), []
            for then in due:
                then()
        await settle()
        streams = [(stream, known) for stream, known in streams if not stream.left]
        while not upstream.opened.empty():
            streams.append((upstream.opened.get_nowait(), False))
        for one in those:
            heard = one.heard()
            assert one.client.methods.count(ACK) <= 1
            assert set(heard) <= one.topics
            if ACK in one.client.methods:
                assert asked(
                    one.client.messages[one.client.methods.index(ACK)]["params"]["notifications"]
                ) == (one.topics)
            # Nothing that was due is missing. What is said twice while one stream replaces another is allowed.
            left = iter(heard)
            assert all(any(it == topic for it in left) for topic in one.due)
        assert len(streams) <= 3
    for one in those:
        one.task.cancel()
    await shared.close()
    await asyncio.gather(*(one.task for one in those), return_exceptions=True)


@given(steps)
@settings(max_examples=150, deadline=None)
def test_nobody_misses_or_overhears_anything_however_others_come_and_go(
    script: list[tuple[str, object]],
) -> None:
    asyncio.run(play(script))

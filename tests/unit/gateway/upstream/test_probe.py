"""Questions to a server whose lines are in memory: what follows which answer, silence and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream import probe
from airlock.gateway.upstream.evidence import Finding, Wire
from airlock.gateway.upstream.line import Incoming, Lost
from airlock.gateway.upstream.port import Era
from airlock.gateway.upstream.probe import Probe, StdioProbe

MODERN, LEGACY = frozenset({Era.MODERN}), frozenset({Era.LEGACY})
Message = dict[str, Any]
Behaviour = Callable[["FakeLine", Message], Awaitable[None]]


class FakeLine:
    """One process. `does` answers each request; the line keeps what it was sent."""

    tells_streams = False
    alive = True

    def __init__(self, does: Behaviour, incoming: Incoming, lost: Lost) -> None:
        self.sent: list[Message] = []
        self.says = incoming
        self.ends = lost
        self.closed = False
        self._does = does

    def opened(self, version: str) -> None:
        raise AssertionError("nobody goes on with a probe's dialogue")

    async def request(self, message: dict[str, object]) -> None:
        self.sent.append(message)
        await self._does(self, message)

    async def post(self, message: dict[str, object]) -> None:
        raise AssertionError("a probe posts nothing")

    async def close(self) -> None:
        self.closed = True

    def answers(self, message: Message, **outcome: Any) -> None:
        self.says({"jsonrpc": "2.0", "id": message["id"], **outcome}, None)


class FakeDialer:
    """Starts the processes of a script, the last one again and again."""

    def __init__(self, *script: Behaviour | UpstreamError) -> None:
        self.script = list(script)
        self.lines: list[FakeLine] = []

    async def dial(self, incoming: Incoming, lost: Lost) -> FakeLine:
        does = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(does, UpstreamError):
            raise does
        self.lines.append(FakeLine(does, incoming, lost))
        return self.lines[-1]

    @property
    def asked(self) -> list[list[str]]:
        return [[message["method"] for message in line.sent] for line in self.lines]


def server(
    *, discover: Message | None = None, initialize: Message | None = None, late: bool = False
) -> Behaviour:
    """A server that answers these; None is never answered. `late`: the first question is answered last."""
    waiting: list[Message] = []

    async def does(line: FakeLine, message: Message) -> None:
        if message["method"] == "server/discover":
            if late:
                waiting.append(message)
            elif discover is not None:
                line.answers(message, **discover)
        elif initialize is not None:
            line.answers(message, **initialize)
        if late and message["method"] == "initialize" and discover is not None:
            line.answers(waiting[0], **discover)

    return does


async def exits(line: FakeLine, message: Message) -> None:
    line.ends("the server process ended (exit status 1)")
    raise UpstreamError(UpstreamFailure.UNREACHABLE, "the server process ended (exit status 1)", reached=True)


def discovered(*versions: str) -> Message:
    return {"result": {"supportedVersions": list(versions), "capabilities": {}}}


def opened(version: object = "2025-06-18") -> Message:
    return {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": {}}}


REFUSED: Message = {"error": {"code": -32601, "message": "no"}}
UNSERVED: Message = {"error": {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_SILENT_S", 0.0)


async def found(dialer: FakeDialer, known: Finding | None = None) -> Finding:
    asking: Probe = StdioProbe(dialer, version="9")
    finding = await asking.find(known)
    await asking.close()
    assert all(line.closed for line in dialer.lines)
    return finding


async def test_a_modern_server_is_known_by_its_answer():
    dialer = FakeDialer(server(discover=discovered("2026-07-28")))
    assert await found(dialer) == Finding(MODERN, "server/discover", "2026-07-28")
    assert dialer.asked == [["server/discover"]]
    assert dialer.lines[0].sent[0]["params"]["_meta"]["io.mcp-airlock/principal"] == "airlock"


async def test_a_server_of_both_eras_says_so():
    dialer = FakeDialer(server(discover=discovered("2026-07-28", "2025-11-25")))
    assert await found(dialer) == Finding(MODERN | LEGACY, "server/discover", "2026-07-28", Wire.STDIO)


async def test_a_server_of_the_future_is_not_asked_for_the_past():
    dialer = FakeDialer(server(discover=discovered("2031-01-01")))
    finding = await found(dialer)
    assert (finding.eras, finding.how) == (
        frozenset(),
        "the server speaks only revisions that are newer than this program",
    )
    assert dialer.asked == [["server/discover"]]


async def test_a_server_that_refuses_is_asked_in_the_older_way_in_a_process_of_its_own():
    dialer = FakeDialer(server(discover=REFUSED, initialize=opened()))
    assert await found(dialer) == Finding(LEGACY, "initialize", "2025-06-18", Wire.STDIO)
    assert dialer.asked == [["server/discover"], ["initialize"]]
    assert dialer.lines[1].sent[0]["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "airlock", "version": "9"},
    }


async def test_a_server_that_ends_at_the_first_question_is_asked_in_another_process():
    dialer = FakeDialer(exits, server(initialize=opened("2024-11-05")))
    assert await found(dialer) == Finding(LEGACY, "initialize", "2024-11-05", Wire.STDIO)


async def test_a_server_that_ends_before_the_first_question_is_asked_in_another_process():
    def dead(line: FakeLine) -> None:
        line.ends("the server process ended (exit status 1)")

    class Dying(FakeDialer):
        async def dial(self, incoming: Incoming, lost: Lost) -> FakeLine:
            line = await super().dial(incoming, lost)
            if len(self.lines) == 1:
                dead(line)
            return line

    dialer = Dying(exits, server(initialize=opened()))
    assert (await found(dialer)).eras == LEGACY


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_is_silent_is_asked_in_the_older_way():
    dialer = FakeDialer(server(initialize=opened()))
    assert (await found(dialer)).eras == LEGACY
    assert dialer.asked == [["server/discover", "initialize"], ["initialize"]]


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_starts_slowly_is_still_known_by_its_first_answer():
    dialer = FakeDialer(server(discover=discovered("2026-07-28"), initialize=opened(), late=True))
    assert await found(dialer) == Finding(MODERN, "server/discover", "2026-07-28")


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_says_nothing_at_all_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe, "_STDIO_S", 0.01)
    assert await found(FakeDialer(server())) == Finding(frozenset(), "no answer to initialize in time")


async def test_a_command_that_always_ends_is_told_as_such():
    finding = await found(FakeDialer(exits))
    assert finding == Finding(frozenset(), "initialize: the server process ended (exit status 1)")


async def test_a_command_that_cannot_be_started_is_no_evidence():
    missing = UpstreamError(UpstreamFailure.UNREACHABLE, "FileNotFoundError", reached=False)
    assert await found(FakeDialer(missing)) == Finding(frozenset(), "FileNotFoundError")


@pytest.mark.parametrize(
    "answer", [UNSERVED, opened("2026-07-28"), opened("1999-01-01"), opened(7), {"result": []}]
)
async def test_an_older_handshake_that_agrees_on_nothing_is_no_evidence(answer: Message):
    dialer = FakeDialer(server(discover=REFUSED, initialize=answer))
    assert await found(dialer) == Finding(frozenset(), "initialize: the server refuses it")


@pytest.mark.usefixtures("hasty")
async def test_what_is_known_of_the_older_era_is_not_proven_again():
    known = Finding(LEGACY, "initialize", "2025-06-18", Wire.STDIO)
    for does in (server(discover=REFUSED), exits, server(initialize=opened())):
        dialer = FakeDialer(does)
        assert await found(dialer, known) is known
        assert len(dialer.lines) == 1


async def test_only_the_response_to_the_question_is_one():
    async def does(line: FakeLine, message: Message) -> None:
        for key in ("1", 1.0, True, None, 3, [1]):
            line.says({"jsonrpc": "2.0", "id": key, **discovered("2026-07-28")}, None)
        line.says({"jsonrpc": "2.0", "id": 1, "method": "ping"}, None)
        line.says({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}, None)
        line.says({"jsonrpc": "2.0", "method": "notifications/message"}, None)
        line.answers(message, **(REFUSED if message["method"] == "server/discover" else opened()))
        line.answers(message, **discovered("2026-07-28"))

    assert (await found(FakeDialer(does))).eras == LEGACY


async def test_nobody_waits_for_the_end_of_a_process():
    go = asyncio.Event()

    class Slow(FakeDialer):
        async def dial(self, incoming: Incoming, lost: Lost) -> FakeLine:
            line = await super().dial(incoming, lost)
            close = line.close

            async def slowly() -> None:
                await go.wait()
                await close()

            line.close = slowly  # type: ignore[method-assign]
            return line

    dialer = Slow(server(discover=discovered("2026-07-28")))
    asking = StdioProbe(dialer, version="9")
    assert (await asking.find(None)).eras == MODERN
    assert not dialer.lines[0].closed
    closing = asyncio.create_task(asking.close())
    go.set()
    await closing
    assert dialer.lines[0].closed


@pytest.mark.usefixtures("hasty")
async def test_a_probe_that_is_cancelled_leaves_no_process():
    dialer = FakeDialer(server())
    asking = StdioProbe(dialer, version="9")
    task = asyncio.create_task(asking.find(None))
    while not dialer.asked or len(dialer.asked[0]) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asking.close()
    assert dialer.lines[0].closed

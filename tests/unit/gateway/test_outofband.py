from __future__ import annotations

import pytest

from airlock.core.approval import ticket
from airlock.core.approval.prompt import compose, instruction
from airlock.core.errors import StoreUnavailable
from airlock.core.secret import Secret
from airlock.edge.notify.telegram import Telegram
from airlock.edge.notify.webhook import Webhook
from airlock.gateway.approvalsettings import ApprovalSettings
from airlock.gateway.outofband import Approvers, open_notifier
from tests.fakes.world import World

PUBLIC = "https://gate.example"
CLAIMS = ticket.Claims(
    p="alice", t="drop", h="0" * 64, e="prod", u="http://u/mcp", k="a" * 32, exp=1_790_000_600.0, m="oob"
)
PROMPT = compose(
    environment="prod",
    tool="drop",
    description="drop things",
    arguments={"names": ["x1"]},
    preview=None,
    key=CLAIMS.k,
    mode="oob",
)


class Bench:
    """The approvers of a world, whose notifier only notes when it was called."""

    def __init__(self) -> None:
        self.world = World()
        self.order: list[str] = []
        self.posts: list[tuple[str, str]] = []
        self.trouble: Exception | None = None
        gate = self.world.gate
        self.keys = gate.confirmations.keys
        self.approvers = Approvers(self.keys, self, self, PUBLIC, gate.log)  # type: ignore[arg-type]

    async def save_prompt(self, key: str, text: str, exp: float) -> None:
        self.order.append("save")
        if self.trouble is not None:
            raise self.trouble
        await self.world.store.save_prompt(key, text, exp)

    def post(self, text: str, link: str, lost: object = None) -> None:
        self.order.append("post")
        self.posts.append((text, link))

    async def close(self) -> None:
        self.order.append("close")


@pytest.mark.case("T68")
async def test_the_text_is_kept_before_the_message_is_posted():
    bench = Bench()
    await bench.approvers.announce(CLAIMS, PROMPT)
    await bench.approvers.close()
    assert bench.order == ["save", "post", "close"]
    kept = await bench.world.store.prompt(CLAIMS.k)
    assert kept == PROMPT.replace(f"{instruction('oob')} ", "")
    bench.world.clock.time = CLAIMS.exp
    assert await bench.world.store.prompt(CLAIMS.k) is None


async def test_the_link_opens_for_approvers_and_only_for_them():
    bench = Bench()
    await bench.approvers.announce(CLAIMS, PROMPT)
    ((text, link),) = bench.posts
    assert text.startswith("Approval request from alice\n[prod] drop: drop things (tier L2).\n")
    base, _, token = link.rpartition("/")
    assert base == f"{PUBLIC}/approve"
    assert ticket.open_approver(bench.keys, token) == CLAIMS
    assert ticket.open_agent(bench.keys, token) != CLAIMS


@pytest.mark.case("T68")
@pytest.mark.parametrize("trouble", [StoreUnavailable("no answer from db.example"), ValueError("db.example")])
async def test_a_text_that_cannot_be_kept_is_posted_all_the_same(trouble: Exception):
    bench = Bench()
    bench.trouble = trouble
    await bench.approvers.announce(CLAIMS, PROMPT)
    assert bench.order == ["save", "post"]
    (line,) = bench.world.logged
    assert type(trouble).__name__ in line
    assert "db.example" not in line


async def test_the_notifier_is_the_one_that_the_webhook_asks_for():
    said: list[str] = []
    hook, bot = "https://hooks.example/x", "https://api.telegram.org/bot1:x/sendMessage"
    assert open_notifier(ApprovalSettings("inband", None, None, PUBLIC), said.append) is None
    slack = open_notifier(ApprovalSettings("oob", Secret(hook), None, PUBLIC), said.append)
    telegram = open_notifier(ApprovalSettings("oob", Secret(bot), "-1", PUBLIC), said.append)
    assert isinstance(slack, Webhook)
    assert isinstance(telegram, Telegram)
    await slack.close()
    await telegram.close()
    assert said == []

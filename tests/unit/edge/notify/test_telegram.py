from __future__ import annotations

import pytest

from airlock.core.secret import Secret
from airlock.edge.notify import telegram
from tests.fakes.webhook import Receiver

LINK = "https://gate.example/approve/al2.abc"


@pytest.mark.case("T17")
async def test_a_message_arrives_as_plain_text_with_the_link_on_its_last_line():
    said: list[str] = []
    with Receiver() as chat:
        notifier = telegram.open(Secret(chat.telegram_url), chat.chat, said.append)
        notifier.post("Approval request from alice\n<b> & ключ", LINK)
        notifier.post("&" * 10_000, LINK)
        await notifier.close()
        assert (said, chat.refused) == ([], [])
        first, second = sorted(chat.taken, key=lambda message: len(message.text))
    assert first.body == {
        "chat_id": "-100200",
        "text": f"Approval request from alice\n<b> & ключ\n\nApprove: {LINK}",
        "disable_web_page_preview": True,
    }
    assert second.link == LINK
    assert len(second.text) <= 4096


@pytest.mark.case("T20")
async def test_without_a_chat_every_message_is_said_to_be_lost_and_nothing_is_posted():
    said: list[str] = []
    with Receiver() as chat:
        notifier = telegram.open(Secret(chat.telegram_url), None, said.append)
        notifier.post("text", LINK)
        await notifier.close()
        assert chat.tries == []
        assert len(said) == 1
        assert chat.token not in said[0]


def test_telegram_is_known_by_its_host():
    assert telegram.is_telegram("https://api.telegram.org/bot1:x/sendMessage")
    assert not telegram.is_telegram("https://hooks.example/services/T/B/x")

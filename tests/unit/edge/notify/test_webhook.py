from __future__ import annotations

import pytest

from airlock.core.secret import Secret
from airlock.edge.notify import webhook
from tests.fakes.webhook import Receiver

LINK = "https://gate.example/approve/al2.abc"


@pytest.mark.case("T17")
async def test_a_message_arrives_escaped_with_the_link_on_its_last_line():
    said: list[str] = []
    with Receiver() as chat:
        notifier = webhook.open(Secret(chat.slack_url), said.append)
        notifier.post("Approval request from alice\nключ \ud83d & <b>", LINK)
        notifier.post("<!channel>" * 1000, LINK)
        await notifier.close()
        assert said == []
        first, second = sorted(chat.taken, key=lambda message: len(message.text))
    assert first.body == {
        "text": f"Approval request from alice\nключ \ud83d &amp; &lt;b&gt;\n\nApprove: {LINK}"
    }
    assert second.link == LINK
    assert "<" not in second.text


async def test_an_address_that_is_no_url_is_no_error_before_a_message():
    said: list[str] = []
    notifier = webhook.open(Secret("not a url"), said.append)
    assert said == []
    notifier.post("text", LINK)
    await notifier.close()
    assert len(said) == 1

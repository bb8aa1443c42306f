from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airlock.core.secret import Secret
from airlock.edge import outbox as outboxes
from airlock.edge.outbox import IN_FLIGHT, PAUSES_S, WAITING, Outbox
from tests.fakes.webhook import Receiver


@pytest.fixture
def chat() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


class Book:
    """An outbox, what it logged and how long it would have paused."""

    def __init__(self, url: str | None) -> None:
        self.said: list[str] = []
        self.pauses: list[float] = []
        self.outbox = Outbox(None if url is None else Secret(url), self.said.append, pause=self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def put(self, text: str = "hello") -> None:
        self.outbox.put(b'{"text": "%s"}' % text.encode())


@asynccontextmanager
async def opened(url: str | None) -> AsyncIterator[Book]:
    book = Book(url)
    yield book
    await book.outbox.close()


async def test_a_message_is_posted_once_as_json(chat: Receiver):
    async with opened(chat.slack_url) as book:
        book.put("hello")
    assert [message.body for message in chat.taken] == [{"text": "hello"}]
    assert len(chat.tries) == 1
    head = chat.tries[0]
    assert head["content-type"] == "application/json"
    assert head["accept-encoding"] == "identity"
    assert (book.said, book.pauses) == ([], [])


async def test_whoever_puts_a_message_does_not_wait_for_it(chat: Receiver):
    chat.script("slow")
    async with opened(chat.slack_url) as book:
        book.put()
        await asyncio.to_thread(chat.wait_tries, 1)
        assert chat.taken == []
        chat.release()
    assert len(chat.taken) == 1


@pytest.mark.parametrize("trouble", [500, 503, 429, "reset"])
async def test_passing_trouble_is_tried_again(chat: Receiver, trouble: Any):
    chat.script(trouble, trouble)
    async with opened(chat.slack_url) as book:
        book.put()
    assert len(chat.taken) == 1
    assert len(chat.tries) == 3
    assert book.pauses == list(PAUSES_S)
    assert book.said == []


async def test_after_three_tries_it_is_given_up(chat: Receiver):
    chat.script(500, 503, 502, 500)
    async with opened(chat.slack_url) as book:
        book.put()
    assert len(chat.tries) == 3
    assert book.said == ["an approval message was not delivered: HTTP 502 (tries: 3)"]


@pytest.mark.parametrize("status", [400, 403, 404, 301, 307])
async def test_a_refusal_is_not_tried_again_and_no_redirect_is_followed(chat: Receiver, status: int):
    chat.script(status)
    async with opened(chat.slack_url) as book:
        book.put()
    assert len(chat.tries) == 1
    assert book.said == [f"an approval message was not delivered: HTTP {status} (tries: 1)"]


async def test_a_yes_whose_answer_breaks_off_is_a_yes(chat: Receiver):
    chat.script("torn")
    async with opened(chat.slack_url) as book:
        book.put()
    assert len(chat.tries) == 1
    assert book.said == []


@pytest.mark.case("T20")
async def test_the_address_and_the_text_of_an_exception_never_reach_the_log(
    chat: Receiver, monkeypatch: pytest.MonkeyPatch
):
    class Broken:
        def __init__(self, *_: object) -> None: ...

        async def post(self, headers: bytes, body: bytes) -> Any:
            raise RuntimeError(f"cannot post to {chat.telegram_url}")

        async def close(self) -> None: ...

    monkeypatch.setattr(outboxes, "HttpClient", Broken)
    async with opened(chat.telegram_url) as book:
        book.put()
        book.put()
    assert book.said == ["an approval message was not delivered: RuntimeError (tries: 1)"] * 2


@pytest.mark.case("T20")
async def test_a_connection_that_fails_is_logged_by_its_class(unused_port: int):
    async with opened(f"http://127.0.0.1:{unused_port}/services/{'S' * 24}") as book:
        book.put()
    assert len(book.said) == 1
    assert "ConnectionRefusedError (tries: 3)" in book.said[0]
    assert "SSSS" not in book.said[0]
    assert str(unused_port) not in book.said[0]


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@pytest.mark.parametrize("url", [None, "ftp://chat.example/x", "http://user:pass@chat.example/x", "nonsense"])
async def test_with_nowhere_to_post_to_each_message_says_so(url: str | None):
    async with opened(url) as book:
        book.put()
        book.put()
    assert book.said == ["an approval message was not sent: there is no address or chat to send it to"] * 2


async def test_no_more_than_a_few_are_posted_at_once(chat: Receiver):
    chat.script(*["slow"] * IN_FLIGHT)
    async with opened(chat.slack_url) as book:
        for _ in range(3 * IN_FLIGHT):
            book.put()
        await asyncio.to_thread(chat.wait_tries, IN_FLIGHT)
        assert len(book.outbox._workers) == IN_FLIGHT
        assert len(chat.tries) == IN_FLIGHT
        chat.release()
    assert len(chat.taken) == 3 * IN_FLIGHT
    assert chat.most_at_once == IN_FLIGHT


async def test_what_waits_for_a_hanging_webhook_is_bounded(chat: Receiver):
    chat.script(*["slow"] * IN_FLIGHT)
    async with opened(chat.slack_url) as book:
        for _ in range(IN_FLIGHT):
            book.put()
        await asyncio.to_thread(chat.wait_tries, IN_FLIGHT)
        for _ in range(WAITING + 2):
            book.put()
        assert book.said == ["an approval message was not sent: too many wait for the webhook"] * 2
        chat.script(*[400] * WAITING)
        chat.release()


async def test_a_message_put_while_the_last_worker_ends_is_posted_too(chat: Receiver):
    async with opened(chat.slack_url) as book:
        for n in range(3):
            book.put(str(n))
            await asyncio.to_thread(chat.wait, n + 1)
    assert [message.text for message in chat.taken] == ["0", "1", "2"]
    assert book.outbox._workers == set()


async def test_closing_posts_what_is_left_and_takes_nothing_more(chat: Receiver):
    book = Book(chat.slack_url)
    for n in range(20):
        book.put(str(n))
    await book.outbox.close()
    assert len(chat.taken) == 20
    book.put()
    assert book.said == ["an approval message was not sent: the gateway stops"]


async def test_closing_waits_only_so_long_and_counts_what_is_lost(chat: Receiver):
    chat.script(*["slow"] * IN_FLIGHT)
    book = Book(chat.slack_url)
    for _ in range(IN_FLIGHT + 3):
        book.put()
    await asyncio.to_thread(chat.wait_tries, IN_FLIGHT)
    await book.outbox.close(within=0.0)
    assert book.said == [f"approval messages that were not sent before the stop: {IN_FLIGHT + 3}"]
    assert book.outbox._workers == set()


async def test_closing_an_idle_outbox_says_nothing(chat: Receiver):
    async with opened(chat.slack_url) as book:
        pass
    assert book.said == []


async def test_who_put_a_message_is_told_once_when_it_is_given_up(chat: Receiver):
    lost: list[str] = []
    chat.script(403)
    async with opened(chat.slack_url) as book:
        book.outbox.put(b"{}", lambda: lost.append("first"))
        await asyncio.to_thread(chat.wait_tries, 1)
        book.outbox.put(b'{"text": "hello"}', lambda: lost.append("second"))
    assert lost == ["first"]
    book.outbox.put(b"{}", lambda: lost.append("closed"))
    assert lost == ["first", "closed"]


async def test_who_put_a_message_is_told_at_once_when_it_is_not_taken(chat: Receiver):
    lost: list[int] = []
    nowhere = Book(None)
    nowhere.outbox.put(b"{}", lambda: lost.append(0))
    assert lost == [0]
    chat.script(*["slow"] * IN_FLIGHT)
    async with opened(chat.slack_url) as book:
        for n in range(IN_FLIGHT):
            book.put()
            await asyncio.to_thread(chat.wait_tries, n + 1)
        for _ in range(WAITING):
            book.put()
        book.outbox.put(b"{}", lambda: lost.append(1))
        assert lost == [0, 1]
        chat.release()

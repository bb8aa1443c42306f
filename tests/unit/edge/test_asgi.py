"""Bounded bodies and whole answers over bare ASGI callables."""

from __future__ import annotations

import pytest

from airlock.edge.asgi import BodyTooLarge, ClientGone, read_body, respond


def receiving(*messages):
    left = list(messages)

    async def receive():
        return left.pop(0)

    return receive, left


def part(body: bytes, *, more: bool = False):
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_one_message_is_handed_on_without_a_copy():
    body = b"x" * 1000
    receive, _ = receiving(part(body))
    assert await read_body(receive, 1000, 1000) is body


async def test_a_body_in_pieces_is_joined():
    receive, _ = receiving(part(b"ab", more=True), part(b"", more=True), part(b"c"))
    assert await read_body(receive, 3, None) == b"abc"


async def test_a_message_without_a_body_is_an_empty_body():
    receive, _ = receiving({"type": "http.request"})
    assert await read_body(receive, 0, None) == b""


@pytest.mark.case("T62")
async def test_a_body_declared_too_large_is_refused_unread():
    receive, left = receiving(part(b"x"))
    with pytest.raises(BodyTooLarge):
        await read_body(receive, 10, 11)
    assert len(left) == 1


@pytest.mark.case("T62")
@pytest.mark.parametrize("declared", [None, 1, 10])
@pytest.mark.parametrize("sizes", [(11,), (10, 1), (1, 1, 9), (5, 6, 100)])
async def test_a_body_longer_than_the_limit_is_refused_whatever_was_declared(declared, sizes):
    receive, _ = receiving(*(part(b"x" * size, more=True) for size in sizes))
    with pytest.raises(BodyTooLarge):
        await read_body(receive, 10, declared)


async def test_a_body_too_large_is_refused_before_the_rest_is_read():
    receive, left = receiving(part(b"x" * 6, more=True), part(b"x" * 6, more=True), part(b"x" * 6))
    with pytest.raises(BodyTooLarge):
        await read_body(receive, 10, None)
    assert len(left) == 1


@pytest.mark.parametrize("sizes", [(10,), (5, 5), (10, 0)])
async def test_a_body_of_exactly_the_limit_passes(sizes):
    parts = [part(b"x" * size, more=True) for size in sizes[:-1]] + [part(b"x" * sizes[-1])]
    receive, _ = receiving(*parts)
    assert await read_body(receive, 10, 10) == b"x" * 10


@pytest.mark.parametrize("before", [[], [part(b"a", more=True)]])
async def test_a_client_that_leaves_before_its_body_came_is_told_apart(before):
    receive, _ = receiving(*before, {"type": "http.disconnect"})
    with pytest.raises(ClientGone):
        await read_body(receive, 10, None)


async def test_an_answer_carries_its_type_its_length_and_the_callers_headers():
    sent = []

    async def send(message):
        sent.append(message)

    await respond(send, 405, b"no", b"text/plain", [(b"allow", b"POST")])
    assert sent == [
        {
            "type": "http.response.start",
            "status": 405,
            "headers": [(b"content-type", b"text/plain"), (b"content-length", b"2"), (b"allow", b"POST")],
        },
        {"type": "http.response.body", "body": b"no"},
    ]

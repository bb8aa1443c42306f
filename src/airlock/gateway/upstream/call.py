"""One request of ours that a legacy server works on: what was heard of it, what it asks, how it ended.

Knows the state of one request; does not know how messages travel or which other requests are open.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from airlock.core.errors import UpstreamError
from airlock.core.wire import jsonrpc
from airlock.gateway.upstream import bridge
from airlock.gateway.upstream.later import Deadline, Timer
from airlock.gateway.upstream.port import Heard, Outgoing

__all__ = ["SILENT", "Call", "Hearing", "Question", "hearing"]

# SECURITY: a server that asks without end would fill the memory and a person's screen.
MAX_QUESTIONS: Final = 16
"""LIMIT: questions of one call that are not answered yet."""


class Hearing(msgspec.Struct, frozen=True):
    """What the asker of a request wants to hear while it runs: progress under its token, log messages by level."""

    heard: Heard | None = None
    token: str | int | None = None
    level: int | None = None


SILENT: Final = Hearing()


def hearing(outgoing: Outgoing, heard: Heard | None) -> Hearing:
    """Return what `outgoing` wants to hear: nothing, when there is nobody to tell."""
    if heard is None:
        return SILENT
    meta = outgoing.params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    usable = isinstance(token, (str, int)) and not isinstance(token, bool)
    return Hearing(heard, token if usable else None, bridge.level(outgoing.params))


class Question(msgspec.Struct, frozen=True):
    """A request of the server: its id there, and what it asks as an entry of `inputRequests`."""

    id: object
    method: str
    entry: dict[str, object]

    def dropped(self) -> dict[str, object]:
        """Return the response that says nobody will answer."""
        if self.method == "elicitation/create":
            return jsonrpc.result(self.id, {"action": "cancel"})
        return jsonrpc.error(self.id, jsonrpc.INTERNAL, "nobody answered")


class Call:
    """A request under way. `deadline` runs while somebody waits for it; a parked call has none.

    `questions` were not told to anybody yet, `told` (by their keys) were and wait for an answer; whether `doubts`
    are this call's shows when their timers end. At the end exactly one of `response` and `error` is set.
    """

    __slots__ = (
        "_minted", "_news", "deadline", "doubts", "error", "hearing", "id", "method", "questions", "response",
        "task", "told",
    )  # fmt: skip

    def __init__(self, request_id: int, method: str, hearing: Hearing) -> None:
        self.id = request_id
        self.method = method
        self.hearing = hearing
        self.deadline: Deadline | None = None
        self.task: asyncio.Task[None] | None = None
        self.questions: list[Question] = []
        self.told: dict[str, Question] = {}
        self.doubts: dict[Timer, Question] = {}
        self.response: dict[str, object] | None = None
        self.error: UpstreamError | None = None
        self._news = asyncio.Event()
        self._minted = 0

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.response is not None or self.error is not None

    def answered(self, response: dict[str, object]) -> None:
        """The response is there."""
        self.response = response
        self._news.set()

    def failed(self, error: UpstreamError) -> None:
        """There will be no response."""
        self.error = error
        self._news.set()

    def may_ask(self) -> bool:
        """Tell whether one more question may be open."""
        return len(self.questions) + len(self.told) + len(self.doubts) < MAX_QUESTIONS

    def asked(self, question: Question) -> None:
        """Take a question of the server."""
        self.questions.append(question)
        self._news.set()

    def withdrawn(self, question_id: object) -> None:
        """The server no longer wants the answer to this question, if it ever asked it."""
        self.questions = [one for one in self.questions if not jsonrpc.same_id(one.id, question_id)]
        self.told = {key: one for key, one in self.told.items() if not jsonrpc.same_id(one.id, question_id)}
        for timer, one in list(self.doubts.items()):
            if jsonrpc.same_id(one.id, question_id):
                timer.cancel()
                del self.doubts[timer]

    def tell(self) -> dict[str, object]:
        """Hand out the questions that were not told, as `inputRequests`."""
        for question in self.questions:
            self._minted += 1
            self.told[f"s{self._minted}"] = question
        self.questions = []
        return {key: question.entry for key, question in self.told.items()}

    def untold(self) -> None:
        """What was told and not answered is to be told again, first."""
        self.questions = [*self.told.values(), *self.questions]
        self.told = {}

    def open_questions(self) -> list[Question]:
        """Return what the server still wants to know."""
        return [*self.told.values(), *self.questions]

    def notify(self, message: dict[str, object]) -> None:
        """Pass a notification on to who waits for this request, and wants such ones."""
        assert self.hearing.heard is not None
        self.hearing.heard.notify(message)

    async def settled(self) -> dict[str, object] | None:
        """Wait for the response, or for a question (None). Raises UpstreamError when neither comes."""
        while True:
            if self.error is not None:
                raise self.error
            if self.response is not None:
                return self.response
            if self.questions:
                return None
            self._news.clear()
            await self._news.wait()

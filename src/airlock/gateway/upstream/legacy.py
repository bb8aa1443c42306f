"""The back side for a server that opens with `initialize`: modern requests in, legacy dialogues behind.

Knows the order of one request, its questions and its retries; the dialogue below knows messages and streams.
SPEC: mcp.md 8, 10, 13, 20b, 20d, 25e.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, NoReturn

from airlock.core.errors import UpstreamError
from airlock.core.grant import Grant
from airlock.core.ports import Ids
from airlock.core.wire import jsonrpc
from airlock.edge.httpanswer import Reply
from airlock.edge.tasks import inside_task
from airlock.gateway import body
from airlock.gateway.upstream import bridge, dialogues, parks
from airlock.gateway.upstream.call import Call, Hearing, hearing
from airlock.gateway.upstream.dialogue import Dialogue, Limits
from airlock.gateway.upstream.dialogues import Dialogues
from airlock.gateway.upstream.later import Later, on_loop
from airlock.gateway.upstream.line import Dialer
from airlock.gateway.upstream.parks import Binding, Parks
from airlock.gateway.upstream.port import Answer, Heard, Outgoing

__all__ = ["LegacyUpstream"]

_NOT_OPEN: Final = "the question is no longer open; call again"
_TOO_MANY: Final = "too many questions of servers are waiting for answers; answer those first"
_UNDECLARED: Final = -32021
_USUAL: Final = Limits()


TOGETHER_S: Final = 0.02
"""How long after a question others that belong to it are waited for."""


class _Open:
    """A call that is open at the server until its questions are answered."""

    __slots__ = ("call", "dialogue")

    def __init__(self, dialogue: Dialogue, call: Call) -> None:
        self.dialogue = dialogue
        self.call = call

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.call.told)

    def forget(self) -> None:
        self.dialogue.drop(self.call)


class _Pages:
    """A request that the server serves once a person has opened pages: it is sent again then."""

    __slots__ = ("entries", "info")

    def __init__(self, entries: dict[str, object], info: dict[str, object] | None) -> None:
        self.entries = entries
        self.info = info

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.entries)

    def forget(self) -> None:
        """Nothing is open at the server."""


class LegacyUpstream:
    """One server of the older revisions; `version` is our own, for `clientInfo`.

    `most` is how many dialogues there may be with it at a time: for a spawned server, how many processes.
    """

    def __init__(
        self,
        dialer: Dialer,
        ids: Ids,
        *,
        version: str,
        target: str = "",
        most: int = dialogues.MOST,
        limits: Limits = _USUAL,
        later: Later = on_loop,
    ) -> None:
        client: dict[str, object] = {"name": "airlock", "version": version}
        self._dialogues = Dialogues(dialer, client=client, limits=limits, later=later, most=most)
        self._parks: Parks[_Open | _Pages] = Parks(ids, later)
        self._target = target

    def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Awaitable[Answer]:
        """Send a tool call: the one place where a grant is spent. Lines parse strictly, so it is always exact."""
        grant.spend()
        return self.ask(outgoing, exact=exact, heard=heard)

    async def ask(self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None) -> Answer:
        """Send any other request. An answer may be a question of the server: `input_required`."""
        await inside_task()
        method = outgoing.method
        if method == "server/discover":
            dialogue = await self._dialogue(outgoing)
            return _result(outgoing, bridge.discovered(dialogue.server))
        if method not in bridge.METHODS:
            return _error(
                outgoing, jsonrpc.METHOD_NOT_FOUND, "this method is not there in the older revisions"
            )
        wants = hearing(outgoing, heard)
        if method in bridge.ASKING and "requestState" in outgoing.params:
            return await self._resumed(outgoing, wants)
        return await self._sent(outgoing, wants)

    async def send(self, outgoing: Outgoing) -> Reply:
        """Send a request that changes nothing, and return its answer as if it had come over HTTP."""
        answer = await self.ask(outgoing)
        return Reply(answer.status, "application/json", body.encode(answer.message))

    async def listen(self, outgoing: Outgoing, heard: Heard) -> NoReturn:
        """Tell `heard` of changes until the dialogue is lost (UpstreamError) or the task is cancelled."""
        dialogue = await self._dialogue(outgoing)
        wanted = outgoing.params.get("notifications")
        await dialogue.watch.listen(wanted if isinstance(wanted, dict) else {}, outgoing.id, heard)

    def target(self, name: str | None) -> str:
        """Return the address or command: every tool is behind it."""
        return self._target

    def abandon(self, state: object) -> None:
        """Cancel the call that waits for the answer to this question."""
        self._parks.abandon(state)

    async def close(self) -> None:
        """End every dialogue."""
        await self._dialogues.close()
        self._parks.close()

    # One request.

    async def _dialogue(self, outgoing: Outgoing) -> Dialogue:
        asks = outgoing.method in bridge.ASKING
        return await self._dialogues.get(outgoing.principal, bridge.declared(outgoing.params), asks=asks)

    async def _sent(self, outgoing: Outgoing, wants: Hearing) -> Answer:
        dialogue = await self._dialogue(outgoing)
        try:
            return await self._tried(outgoing, dialogue, wants)
        except UpstreamError as error:
            # SPEC: mcp.md 20b: a session that is gone is opened again, once, for a request it did not take.
            if error.reached or dialogue.takes:
                raise
        return await self._tried(outgoing, await self._dialogue(outgoing), wants)

    async def _tried(self, outgoing: Outgoing, dialogue: Dialogue, wants: Hearing) -> Answer:
        call = await dialogue.begin(outgoing.method, bridge.request_params(outgoing.params), wants)
        return await self._awaited(outgoing, dialogue, call)

    async def _awaited(self, outgoing: Outgoing, dialogue: Dialogue, call: Call) -> Answer:
        """Wait for the answer of the server or its next question."""
        try:
            response = await call.settled()
            if response is None:
                # SPEC: mcp.md 20b: what is asked together is one round.
                await asyncio.sleep(TOGETHER_S)
                response = await call.settled()
        except asyncio.CancelledError:
            dialogue.drop(call)
            raise
        if response is None:
            return self._parked(outgoing, dialogue, call)
        info = bridge.server_info(dialogue.server)
        result = response.get("result")
        if isinstance(result, dict):
            return _result(outgoing, bridge.result(outgoing.method, result, info))
        failure = response["error"]
        assert isinstance(failure, dict)
        if failure["code"] == bridge.URL_NEEDED:
            wanted = bridge.pages(failure)
            if wanted and not dialogue.may_show_pages():
                needed: dict[str, object] = {"requiredCapabilities": {"elicitation": {"url": {}}}}
                return _error(
                    outgoing, _UNDECLARED, "a person must open a page, and this client shows none", needed
                )
            if wanted:
                entries: dict[str, object] = {f"s{number}": entry for number, entry in enumerate(wanted, 1)}
                return self._paged(outgoing, _Pages(entries, info))
        own = bridge.error(failure)
        message = {"jsonrpc": "2.0", "id": outgoing.id, "error": own}
        return Answer(bridge.status(own["code"]), message, None)

    # Questions.

    def _parked(self, outgoing: Outgoing, dialogue: Dialogue, call: Call) -> Answer:
        dialogue.pause(call)
        state = self._parks.park(_binding(outgoing), _Open(dialogue, call))
        if state is None:
            # SECURITY: the new question gives way, not an older one: whoever floods harms himself.
            dialogue.drop(call)
            return _error(outgoing, jsonrpc.INTERNAL, _TOO_MANY)
        return _asked(outgoing, call.tell(), state, bridge.server_info(dialogue.server))

    def _paged(self, outgoing: Outgoing, waiting: _Pages) -> Answer:
        state = self._parks.park(_binding(outgoing), waiting)
        if state is None:
            return _error(outgoing, jsonrpc.INTERNAL, _TOO_MANY)
        return _asked(outgoing, waiting.entries, state, waiting.info)

    async def _resumed(self, outgoing: Outgoing, wants: Hearing) -> Answer:
        """A retry: hand its answers on, and wait for what the server makes of them."""
        state, given = outgoing.params["requestState"], outgoing.params.get("inputResponses", {})
        waiting = self._parks.find(state, _binding(outgoing))
        if waiting is None:
            return _error(outgoing, jsonrpc.INVALID_PARAMS, _NOT_OPEN)
        answers = _answers(given, waiting.keys)
        if answers is None:
            # The question stays open: the client may try again.
            return _error(
                outgoing, jsonrpc.INVALID_PARAMS, "inputResponses must hold an object for each question"
            )
        self._parks.take(state)
        if isinstance(waiting, _Pages):
            return await self._opened(outgoing, waiting, answers, wants)
        return await self._answered(outgoing, waiting, answers, wants)

    async def _answered(
        self, outgoing: Outgoing, waiting: _Open, answers: dict[str, dict[str, object]], wants: Hearing
    ) -> Answer:
        dialogue, call = waiting.dialogue, waiting.call
        dialogue.resume(call, wants)
        try:
            for key, value in answers.items():
                # The server may have ended the call, or taken the question back, since we looked.
                question = call.told.pop(key, None)
                if question is not None and not call.over:
                    await dialogue.answer(question, value)
        except UpstreamError as error:
            dialogue.drop(call)
            raise UpstreamError(error.kind, error.cause, reached=True, status=error.status) from None
        except asyncio.CancelledError:
            dialogue.drop(call)
            raise
        # SPEC: mcp.md 10: what was not answered is asked again.
        call.untold()
        return await self._awaited(outgoing, dialogue, call)

    async def _opened(
        self, outgoing: Outgoing, waiting: _Pages, answers: dict[str, dict[str, object]], wants: Hearing
    ) -> Answer:
        if answers.keys() != waiting.keys:
            return self._paged(outgoing, waiting)
        if all(answer.get("action") == "accept" for answer in answers.values()):
            return await self._sent(outgoing, wants)
        declined = "the server needs a page to be opened first, and that was declined"
        if outgoing.method != "tools/call":
            return _error(outgoing, jsonrpc.INTERNAL, declined)
        told: dict[str, object] = {"isError": True, "content": [{"type": "text", "text": declined}]}
        return _result(outgoing, bridge.result(outgoing.method, told, waiting.info))


def _binding(outgoing: Outgoing) -> Binding:
    return parks.bind(outgoing.principal, outgoing.method, outgoing.params)


def _answers(given: object, keys: frozenset[str]) -> dict[str, dict[str, object]] | None:
    """Return the responses to the questions `keys` that are in `given`; None when one is no object."""
    if not isinstance(given, dict):
        return None
    answers = {key: given[key] for key in given if key in keys}
    return answers if all(isinstance(value, dict) for value in answers.values()) else None


def _asked(
    outgoing: Outgoing, entries: dict[str, object], state: str, info: dict[str, object] | None
) -> Answer:
    asked: dict[str, object] = {"inputRequests": entries, "requestState": state}
    return _result(outgoing, bridge.result(outgoing.method, asked, info, "input_required"))


def _result(outgoing: Outgoing, result: dict[str, object]) -> Answer:
    return Answer(200, jsonrpc.result(outgoing.id, result), result)


def _error(outgoing: Outgoing, code: int, message: str, data: object = None) -> Answer:
    return Answer(bridge.status(code), jsonrpc.error(outgoing.id, code, message, data), None)

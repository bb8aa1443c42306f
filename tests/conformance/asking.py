"""One question-asking call of the conformance server, in the style of whichever era the client speaks.

It knows how a question travels (pushed on the legacy wire, `input_required` on the modern one) and how state is
sealed; it must not know what any tool asks or answers.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import warnings
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

__all__ = ["Call", "NotYet", "ToolFailed", "form", "roots", "sampling"]

_KEY: Final = secrets.token_bytes(32)
_REQUEST: Final[TypeAdapter[Any]] = TypeAdapter(
    types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
)
_RESULTS: Final[dict[str, type[types.Result]]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}
_CAPABILITY: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

Question = dict[str, Any]
Reply = dict[str, Any]


class ToolFailed(Exception):
    """The tool itself failed: told to the model as a result with `isError`."""


class NotYet(Exception):
    """The answer needs the client first; `result` is the `input_required` result to send."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("input required")
        self.result = result


def form(message: str, properties: dict[str, Any], required: list[str] | None = None) -> Question:
    """A form elicitation; every property is required unless `required` says which are."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(text: str, max_tokens: int) -> Question:
    """A sampling request of one user message."""
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


def roots() -> Question:
    """A request for the client's roots."""
    return {"method": "roots/list", "params": {}}


class Call:
    """One `tools/call` or `prompts/get`, and what its handler may do to the client meanwhile."""

    def __init__(self, ctx: ServerRequestContext[Any, Any], name: str, arguments: Mapping[str, Any]) -> None:
        self.ctx = ctx
        self.name = name
        self.arguments = arguments
        self._modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        raw = ctx.params or {}
        given = raw.get("inputResponses")
        self._given: Mapping[str, Any] = given if isinstance(given, dict) else {}
        self._has_state = raw.get("requestState") is not None
        self._rounds: list[dict[str, Reply]] = _unseal(name, raw["requestState"]) if self._has_state else []
        self._asked = 0

    def declares(self, method: str) -> bool:
        """Whether the client said that it answers this kind of question."""
        declared = self.ctx.session.client_capabilities
        return getattr(declared, _CAPABILITY[method], None) is not None

    def require(self, method: str) -> None:
        """Refuse the call with -32021 when the client does not answer this kind of question."""
        if not self.declares(method):
            name = _CAPABILITY[method]
            raise MCPError(
                code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=f"this call needs a client with {name}",
                data={"requiredCapabilities": {name: {}}},
            )

    async def ask(self, questions: dict[str, Question], *, sealed: bool = False) -> dict[str, Reply]:
        """The replies under the keys of the questions. `sealed`: the modern round carries signed state.

        Called again after a retry it gives the replies of earlier rounds at once, so a handler reads the same
        in both styles. Raises NotYet on the modern wire while a reply is missing or has the wrong shape.
        """
        for question in questions.values():
            self.require(question["method"])
        if not self._modern:
            replies = await asyncio.gather(*(self._push(question) for question in questions.values()))
            return dict(zip(questions, replies, strict=True))
        self._asked += 1
        if self._asked <= len(self._rounds):
            return self._rounds[self._asked - 1]
        fresh = {key: self._given[key] for key in questions if _fits(questions[key], self._given.get(key))}
        if len(fresh) == len(questions) and (self._has_state or not sealed):
            self._rounds.append(fresh)
            return fresh
        result: dict[str, Any] = {"resultType": "input_required", "inputRequests": questions}
        if sealed:
            result["requestState"] = _seal(self.name, self._rounds)
        raise NotYet(result)

    async def progress(self, done: float, total: float) -> None:
        """A progress notification, when the client gave a token."""
        await self.ctx.session.report_progress(done, total)

    async def log(self, text: str) -> None:
        """A log line at level info; on the modern wire only when this request asked for one."""
        with warnings.catch_warnings(action="ignore", category=MCPDeprecationWarning):
            await self.ctx.session.send_log_message("info", text, related_request_id=self.ctx.request_id)

    async def _push(self, question: Question) -> Reply:
        reply = await self.ctx.session.send_request(
            _REQUEST.validate_python(question),
            _RESULTS[question["method"]],
            metadata=ServerMessageMetadata(related_request_id=self.ctx.request_id),
        )
        return reply.model_dump(by_alias=True, mode="json", exclude_none=True)


def _fits(question: Question, reply: Any) -> bool:
    """Whether a posted reply is a usable answer: right shape, and an accepted form holds what it must."""
    if not isinstance(reply, dict):
        return False
    if question["method"] == "roots/list":
        return isinstance(reply.get("roots"), list)
    if question["method"] == "sampling/createMessage":
        return isinstance(reply.get("content"), dict)
    if reply.get("action") != "accept":
        return reply.get("action") in ("decline", "cancel")
    content = reply.get("content")
    return isinstance(content, dict) and set(question["params"]["requestedSchema"]["required"]) <= set(
        content
    )


def _seal(name: str, rounds: list[dict[str, Reply]]) -> str:
    body = json.dumps([name, rounds]).encode()
    return base64.urlsafe_b64encode(hmac.digest(_KEY, body, hashlib.sha256) + body).decode()


def _unseal(name: str, state: Any) -> list[dict[str, Reply]]:
    try:
        whole = base64.b64decode(str(state), altchars=b"-_", validate=True)
        mark, body = whole[:32], whole[32:]
        if hmac.compare_digest(mark, hmac.digest(_KEY, body, hashlib.sha256)):
            owner, rounds = json.loads(body)
            if owner == name:
                return list(rounds)
    except ValueError:
        pass
    raise MCPError(code=types.INVALID_PARAMS, message="requestState is not one that this server made")

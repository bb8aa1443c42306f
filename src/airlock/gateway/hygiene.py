"""Content hygiene at work: the texts of an answer that a model reads, cleaned, counted and told.

Knows where texts stand in results, listings, errors and notifications (mcp.md 4, 7, 10, 12); what is replaced the
core knows (`core.text.hygiene`, `core.redact.results`). Decides nothing.

What has a meaning to machines stays: names that are called or asked for, URIs, keys, `enum`, `const`, `default`,
`pattern`, base64. Hidden characters in it are marked as `hidden_text`, as are those that were replaced.
LIMIT: a structured result that a replacement makes differ from a `pattern`, `enum` or `format` of its schema stays
a result; a string stays a string. Texts inside blobs, completions and a server's own `_meta` are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from airlock.core.policy.model import Policy
from airlock.core.redact.results import redact, worth_a_look
from airlock.core.text.hygiene import neutralise
from airlock.core.text.safe import well_formed
from airlock.core.text.scan import EXCERPT_CHARS, MAX_FINDINGS
from airlock.gateway import body, meta
from airlock.gateway.eras import Heard

__all__ = ["Cleaner"]

_Object = dict[str, object]

_CONTEXT: Final = 20
_LONGEST_NAME: Final = 64
_SERVER: Final = "io.modelcontextprotocol/serverInfo"
_NOBODY: Final = -1  # the block of a text that is in none

_TOLD: Final = ("title", "description")
_SHOWN: Final = ("name", *_TOLD)
# SPEC: mcp.md 26 (8): a schema keeps its meaning. These keywords only explain it.
_WORDS: Final = frozenset({
    "$comment", "deprecationMessage", "description", "enumDescriptions", "enumNames", "errorMessage", "examples",
    "markdownDescription", "markdownEnumDescriptions", "title",
})  # fmt: skip
_SCHEMAS: Final = frozenset({
    "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items",
    "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_NAMED_SCHEMAS: Final = frozenset({
    "$defs", "definitions", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip


class Cleaner:
    """Cleans one answer and keeps account. `allow`: the rules that are not applied, as a policy has them.

    What it changes it replaces: of what is given only the outermost object and its `_meta` are written to.
    """

    __slots__ = ("_allow", "_hidden", "_invisible", "_kinds", "_secrets")

    def __init__(self, allow: Mapping[str, str]) -> None:
        self._allow = allow
        self._invisible = 0
        self._secrets = 0
        self._kinds: set[str] = set()
        self._hidden: dict[tuple[object, str], None] = {}

    # Answers, in place

    def result(self, result: _Object) -> None:
        """Clean a tool's result, or a question that a server asks instead of one."""
        if isinstance(content := result.get("content"), list):
            result["content"] = [self._block(block, place) for place, block in enumerate(content)]
        structured = result.get("structuredContent")
        if structured is not None and self._dirty(structured):
            result["structuredContent"] = self._tree(structured, _NOBODY)
            self._watch(result["structuredContent"], _NOBODY)
        self.questions(result)

    def questions(self, result: _Object) -> None:
        """Clean what a server asks."""
        requests = result.get("inputRequests")
        if isinstance(requests, dict) and self._dirty(requests):
            result["inputRequests"] = {key: self._question(one) for key, one in requests.items()}

    def contents(self, result: _Object) -> None:
        """Clean the contents of a resource."""
        if isinstance(items := result.get("contents"), list):
            result["contents"] = [
                self._with(item, ("text",), place) if isinstance(item, dict) else item
                for place, item in enumerate(items)
            ]

    def messages(self, result: _Object) -> None:
        """Clean the messages of a prompt."""
        if isinstance(items := result.get("messages"), list):
            result["messages"] = [self._message(item, place) for place, item in enumerate(items)]
        self._within(result, ("description",), _NOBODY)

    def tools(self, tools: list[_Object], policy: Policy) -> list[_Object]:
        """Return listed tools, each cleaned by its own rules. Every one has a name."""
        if not self._dirty(tools):
            return tools
        cleaned: list[_Object] = []
        for tool in tools:
            name = str(tool["name"])
            known = policy.tools.get(name)
            self._allow = policy.hygiene if known is None else known.hygiene
            cleaned.append(self._tool(tool, name))
            self._watch(cleaned[-1], name)
        self._allow = policy.hygiene
        return cleaned

    def listed(self, items: list[_Object], key: str) -> list[_Object]:
        """Return listed resources, templates or prompts, cleaned. `key` is the member that each is known by."""
        if not self._dirty(items):
            return items
        cleaned: list[_Object] = []
        for item in items:
            where = str(item[key])
            fresh = self._with(item, _TOLD if key == "name" else _SHOWN, where)
            if isinstance(arguments := item.get("arguments"), list):
                fresh = {**fresh, "arguments": [self._told(one, where) for one in arguments]}
            self._watch(fresh, where)
            cleaned.append(fresh)
        return cleaned

    def described(self, result: _Object) -> None:
        """Clean what a server says of itself."""
        self._within(result, ("instructions",), _NOBODY)
        own = result.get("_meta")
        if isinstance(own, dict) and isinstance(server := own.get(_SERVER), dict):
            own[_SERVER] = self._with(server, _TOLD, _NOBODY)

    def error(self, message: _Object) -> None:
        """Clean a JSON-RPC error."""
        error = message.get("error")
        if isinstance(error, dict) and self._dirty(error):
            fresh = self._with(error, ("message",), _NOBODY)
            if "data" in fresh:
                fresh = {**fresh, "data": self._tree(fresh["data"], _NOBODY)}
            message["error"] = fresh

    def hearing(self, heard: Heard | None) -> Heard | None:
        """Return what takes notifications for `heard` and hands them on cleaned: log messages, progress."""
        return None if heard is None else _Hearing(heard, self._notification)

    # The account

    def tell(self, own: _Object) -> None:
        """Write into `own`, the `_meta` of an answer, what was replaced, if anything was."""
        if self._kinds:
            own[meta.HYGIENE] = self._done()

    def noted(self, detail: _Object) -> _Object:
        """Return a record's `detail` with what was replaced; the same one when that is nothing."""
        return {**detail, "hygiene": self._done()} if self._kinds else detail

    def _done(self) -> _Object:
        return {"invisible": self._invisible, "secrets": self._secrets, "kinds": sorted(self._kinds)}

    def findings(self, label: str, found: list[_Object]) -> list[_Object]:
        """Return the hidden texts that were seen, with their places as `label`, and then the findings of a scan."""
        marks = [{"rule": "hidden_text", label: where, "excerpt": excerpt} for where, excerpt in self._hidden]
        return [*marks, *(one for one in found if one not in marks)][:MAX_FINDINGS]

    # Parts of answers

    def _block(self, block: object, where: object) -> object:
        if not isinstance(block, dict):
            return block
        named = _SHOWN if block.get("type") == "resource_link" else _TOLD
        fresh = self._with(block, ("text", *named), where)
        if isinstance(resource := block.get("resource"), dict):
            cleaned = self._with(resource, ("text", *_SHOWN), where)
            fresh = fresh if cleaned is resource else {**fresh, "resource": cleaned}
        if isinstance(inner := block.get("content"), list):
            fresh = {**fresh, "content": [self._block(one, where) for one in inner]}
        return fresh

    def _message(self, item: object, where: object) -> object:
        if not isinstance(item, dict):
            return item
        held = item.get("content", item)
        if isinstance(held, list):
            return {**item, "content": [self._block(block, where) for block in held]}
        cleaned = self._block(held, where)
        if cleaned is held:
            return item
        return cleaned if held is item else {**item, "content": cleaned}

    def _question(self, question: object) -> object:
        params = question.get("params") if isinstance(question, dict) else None
        if not isinstance(question, dict) or not isinstance(params, dict):
            return question
        fresh = self._with(params, ("message", "systemPrompt"), _NOBODY)
        if "requestedSchema" in params:
            fresh = {**fresh, "requestedSchema": self._schema(params["requestedSchema"], _NOBODY)}
        for member, clean in (("messages", self._message), ("tools", self._tool)):
            if isinstance(items := params.get(member), list):
                fresh = {**fresh, member: [clean(item, _NOBODY) for item in items]}
        return {**question, "params": fresh}

    def _tool(self, tool: _Object, where: object) -> _Object:
        fresh = self._with(tool, _TOLD, where)
        if isinstance(annotations := tool.get("annotations"), dict):
            fresh = {**fresh, "annotations": self._with(annotations, ("title",), where)}
        for schema in ("inputSchema", "outputSchema"):
            if schema in tool:
                fresh = {**fresh, schema: self._schema(tool[schema], where)}
        return fresh

    def _told(self, item: object, where: object) -> object:
        return self._with(item, _TOLD, where) if isinstance(item, dict) else item

    def _schema(self, schema: object, where: object) -> object:
        """Return a schema, or a list of them, with its words cleaned; everything that has a meaning stays."""
        if isinstance(schema, list):
            return [self._schema(one, where) for one in schema]
        if not isinstance(schema, dict):
            return schema
        fresh: _Object = {}
        for key, value in schema.items():
            if key in _WORDS:
                fresh[key] = self._tree(value, where)
            elif key in _SCHEMAS:
                fresh[key] = self._schema(value, where)
            elif key in _NAMED_SCHEMAS and isinstance(value, dict):
                fresh[key] = {name: self._schema(one, where) for name, one in value.items()}
            else:
                fresh[key] = value
        return fresh

    def _notification(self, message: _Object) -> _Object:
        params = message.get("params")
        if not isinstance(params, dict) or not self._dirty(params):
            return message
        fresh = self._with(params, ("message",), _NOBODY)
        if "data" in params:
            fresh = {**fresh, "data": self._tree(params["data"], _NOBODY)}
        return {**message, "params": fresh}

    # Texts

    def _with(self, holder: _Object, members: tuple[str, ...], where: object) -> _Object:
        """Return `holder` with the texts of `members` cleaned; the same one when they were."""
        changed: _Object = {}
        for member in members:
            text = holder.get(member)
            if isinstance(text, str) and worth_a_look(text.encode("utf-8", "surrogatepass")):
                fresh = self._text(text, where)
                if fresh is not text:
                    changed[member] = fresh
        return {**holder, **changed} if changed else holder

    def _within(self, holder: _Object, members: tuple[str, ...], where: object) -> None:
        holder.update(self._with({key: holder[key] for key in members if key in holder}, members, where))

    def _tree(self, value: object, where: object, name: str = "") -> object:
        """Return a JSON value with every string in it cleaned, those under a telling key with more suspicion."""
        if isinstance(value, str):
            return self._text(value, where, name)
        if isinstance(value, list):
            return [self._tree(item, where, name) for item in value]
        if not isinstance(value, dict):
            return value
        # `{"name": "DB_PASSWORD", "value": ...}` says under one key what another holds.
        label = next((told for key in ("name", "key") if isinstance(told := value.get(key), str)), "value")
        return {key: self._tree(item, where, label if key == "value" else key) for key, item in value.items()}

    def _text(self, text: str, where: object, name: str = "") -> str:
        cleared = redact(text, self._allow, name=name[-_LONGEST_NAME:])
        seen = neutralise(cleared.text, self._allow)
        self._secrets += sum(cleared.counts.values())
        self._invisible += sum(seen.counts.values())
        self._kinds.update(cleared.counts, seen.counts)
        if seen.hidden >= 0:
            self._mark(seen.text, seen.hidden, where)
        return seen.text

    def _watch(self, value: object, where: object) -> None:
        """Mark hidden characters in strings and keys that had to stay as they are."""
        if isinstance(value, dict):
            for key, item in value.items():
                self._watch(key, where)
                self._watch(item, where)
        elif isinstance(value, list):
            for item in value:
                self._watch(item, where)
        elif isinstance(value, str) and neutralise(value, self._allow).hidden >= 0:
            # SECURITY: what stays is not cleared of secrets, its excerpt is.
            seen = neutralise(redact(value).text, self._allow)
            self._mark(seen.text, seen.hidden, where)

    def _mark(self, text: str, at: int, where: object) -> None:
        start = max(
            0, at - _CONTEXT
        )  # a secret that held the hidden sign took it along: then from the beginning
        excerpt = " ".join(text[start : start + EXCERPT_CHARS].split())
        self._hidden[where, well_formed(excerpt)] = None

    @staticmethod
    def _dirty(value: object) -> bool:
        return worth_a_look(body.written(value).encode("utf-8", "surrogatepass"), json=True)


class _Hearing:
    """Hands notifications on, cleaned."""

    __slots__ = ("_clean", "_heard")

    def __init__(self, heard: Heard, clean: Callable[[_Object], _Object]) -> None:
        self._heard = heard
        self._clean = clean

    def notify(self, message: dict[str, object]) -> None:
        """Clean one notification and hand it on."""
        self._heard.notify(self._clean(message))

"""The `_meta` keys under `io.mcp-airlock/`: they are the gateway's alone, in both directions.

Knows where `_meta` can stand in requests, results, content blocks and tools; decides nothing.
SPEC: gateway.md 3.2, 3.5, 19.
"""

from __future__ import annotations

from airlock.core.principal import Principal
from airlock.edge.trace import Trace

__all__ = [
    "ASKS_FOR_SECRET",
    "COLLAPSED",
    "DRY_RUN",
    "DRY_RUN_PREVIEW",
    "HIDDEN_PROMPTS",
    "HIDDEN_RESOURCES",
    "HIDDEN_TOOLS",
    "HYGIENE",
    "IDEMPOTENCY_KEY",
    "ISOLATED",
    "MESSAGE",
    "OUTPUT",
    "PIN_MISMATCH",
    "PREFIX",
    "RETRY_AFTER",
    "RULE_ID",
    "SET",
    "STATUS",
    "STRIPPED",
    "SUSPICIOUS",
    "UNAVAILABLE",
    "VERDICT",
    "for_upstream",
    "strip_blocks",
    "strip_holder",
    "strip_items",
    "strip_questions",
    "strip_tools",
]

PREFIX = "io.mcp-airlock/"
VERDICT = PREFIX + "verdict"
RULE_ID = PREFIX + "rule_id"
DRY_RUN = PREFIX + "dry_run"
IDEMPOTENCY_KEY = PREFIX + "idempotency_key"
DRY_RUN_PREVIEW = PREFIX + "dry_run_preview"
STATUS = PREFIX + "status"
MESSAGE = PREFIX + "message"
COLLAPSED = PREFIX + "collapsed"
RETRY_AFTER = PREFIX + "retry_after_s"
OUTPUT = PREFIX + "output"
SUSPICIOUS = PREFIX + "suspicious"
ASKS_FOR_SECRET = PREFIX + "asks_for_secret"
HIDDEN_TOOLS = PREFIX + "hidden_tools"
HIDDEN_RESOURCES = PREFIX + "hidden_resources"
HIDDEN_PROMPTS = PREFIX + "hidden_prompts"
PIN_MISMATCH = PREFIX + "pin_mismatch"
UNAVAILABLE = PREFIX + "unavailable"
ISOLATED = PREFIX + "isolated"
HYGIENE = PREFIX + "hygiene"
PRINCIPAL = PREFIX + "principal"
GROUPS = PREFIX + "groups"

_REBUILT = frozenset({"traceparent", "tracestate"})
_USUAL = frozenset(
    {f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientCapabilities", "clientInfo")}
)

SET: tuple[tuple[str, str, str], ...] = (
    (VERDICT, "every `tools/call` result", "`allow`, `deny`, `confirm` or `error`"),
    (RULE_ID, "every `tools/call` result", "text: the rule behind the verdict"),
    (
        DRY_RUN,
        "results that came from the upstream; questions with a preview",
        "true or false as it was forced; null: left as sent",
    ),
    (IDEMPOTENCY_KEY, "questions to a person, and their pending answers", "text: 32 hex digits"),
    (
        DRY_RUN_PREVIEW,
        "questions with a preview",
        "array: the content blocks of the dry run, secrets in their text masked",
    ),
    (STATUS, "pending answers", "`pending`"),
    (MESSAGE, "pending answers", "text: what is waited for"),
    (COLLAPSED, "questions that were asked before and are still open", "true: nobody was asked anew"),
    (RETRY_AFTER, "refusals over a limit", "number of whole seconds until the call may be tried again"),
    (
        OUTPUT,
        "results and previews cut to the output cap, read resources and prompts too",
        "object: `truncated`, `chars`, `max_chars`, `est_tokens`",
    ),
    (
        SUSPICIOUS,
        "results and previews with text like a prompt injection, read resources and prompts too; listings with "
        "such a description",
        "array of at most 20 objects: `rule`, `excerpt`, and `block` (result) or `tool`, `resource` or `prompt` "
        "(listing)",
    ),
    (
        ASKS_FOR_SECRET,
        "questions of a server behind a confirmation, when one looks like it",
        "true: a form asks for what looks like a password, a token or the number of a card",
    ),
    (HIDDEN_TOOLS, "`tools/list` results", "number of tools left out for this caller"),
    (
        HIDDEN_RESOURCES,
        "`resources/list` and `resources/templates/list` results",
        "number of resources or templates left out for this caller",
    ),
    (HIDDEN_PROMPTS, "`prompts/list` results", "number of prompts left out for this caller"),
    (
        PIN_MISMATCH,
        "`tools/list` results, when there are any",
        "number of tools that are not what was pinned",
    ),
    (
        UNAVAILABLE,
        "lists and descriptions of several upstreams, when one did not tell its own",
        "array of the names of those upstreams",
    ),
    (
        ISOLATED,
        "lists, when there are any",
        "number of entries left out: of several upstreams, those whose name is bad or stands twice; for modern "
        "clients, tools whose `x-mcp-header` is not valid",
    ),
    (
        HYGIENE,
        "results, previews, listings and descriptions in which something was replaced",
        "object: `invisible` (characters), `secrets`, `kinds` (array of rules)",
    ),
    (PRINCIPAL, "requests to the upstream", "text: who asks"),
    (GROUPS, "requests to the upstream, of a caller with groups", "array of texts"),
    ("traceparent", "requests to the upstream", "text: the gateway's own span"),
    ("tracestate", "requests to the upstream, of a trace that came with one", "text"),
)
"""Key, where the gateway sets it, and the value. The reference table is made from this."""

STRIPPED: tuple[tuple[str, str, str], ...] = (
    (PREFIX + "*", "what a client sends", "nobody but the gateway may say who asks"),
    ("traceparent, tracestate", "what a client sends", "the gateway continues the trace and writes its own"),
    ("baggage", "what a client sends, when it is not a text", "it is no baggage then"),
    (
        PREFIX + "*",
        "what the upstream answers: results of every method, content blocks and the resources in them, listed "
        "tools, resources, templates and prompts, contents, messages, questions, notifications of a subscription",
        "nobody but the gateway may say what was decided",
    ),
)
"""Key, where the gateway removes it, and why."""


def for_upstream(client_meta: dict[str, object], principal: Principal, trace: Trace) -> dict[str, object]:
    """Rebuild a client's `_meta` for the upstream: its own keys, ours added, the trace context our own.

    SECURITY: a client that sends `io.mcp-airlock/principal` must not be believed by the upstream (T32).
    """
    meta = client_meta.copy()
    for key in client_meta.keys() - _USUAL:
        if key.startswith(PREFIX) or key in _REBUILT or (key == "baggage" and not isinstance(meta[key], str)):
            del meta[key]
    meta[PRINCIPAL] = principal.name
    if principal.groups:
        meta[GROUPS] = list(principal.groups)
    meta["traceparent"] = trace.traceparent
    if trace.state is not None:
        meta["tracestate"] = trace.state
    return meta


def strip_holder(holder: dict[str, object]) -> dict[str, object]:
    """Clean `holder["_meta"]` in place and return it, ready for our own keys (made when there was none)."""
    meta = holder.get("_meta")
    if not isinstance(meta, dict):
        meta = {}
        holder["_meta"] = meta
        return meta
    for key in [key for key in meta if key.startswith(PREFIX)]:
        del meta[key]
    return meta


def strip_blocks(content: object) -> None:
    """Clean the `_meta` of every content block, embedded resources included; malformed content stays as it is."""
    if not isinstance(content, list):
        return
    for block in content:
        if isinstance(block, dict):
            if "_meta" in block:
                strip_holder(block)
            resource = block.get("resource")
            if isinstance(resource, dict) and "_meta" in resource:
                strip_holder(resource)


def strip_tools(tools: object) -> None:
    """Clean the `_meta` of every listed tool."""
    strip_items(tools)


def strip_items(items: object) -> None:
    """Clean the `_meta` of every member of a list: of what is listed, of contents, of messages."""
    if isinstance(items, list):
        for item in items:
            if isinstance(item, dict) and "_meta" in item:
                strip_holder(item)


def strip_questions(requests: object) -> None:
    """Clean the `_meta` of every question of an upstream, given its `inputRequests`."""
    if isinstance(requests, dict):
        strip_items([question.get("params") for question in requests.values() if isinstance(question, dict)])

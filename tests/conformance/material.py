"""What the conformance server does: tools and prompts under the names that the suite asks for.

It knows each item's words and behaviour; it must not know which era or transport the client speaks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.asking import Call, ToolFailed, form, roots, sampling
from tests.conformance.content import IMAGE, SOUND, embedded, text

__all__ = ["CHANGES", "PROMPTS", "TOOLS", "Prompt", "Tool"]

Content = list[dict[str, Any]]
Run = Callable[[Call], Awaitable[Content]]
STEP_S: Final = 0.05
"""The pause between two notifications of one call, so that buffering them would show."""


@dataclass(frozen=True)
class Tool:
    run: Run
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    run: Run
    description: str
    arguments: tuple[str, ...]


TOOLS: Final[dict[str, Tool]] = {}
PROMPTS: Final[dict[str, Prompt]] = {}
CHANGES: Final = {"test_trigger_tool_change": "tools", "test_trigger_prompt_change": "prompts"}
"""The tools that announce a change of one list."""


def tool(
    description: str, schema: dict[str, Any] | None = None, **properties: dict[str, Any]
) -> Callable[[Run], Run]:
    """Register the decorated function as the tool of its own name; it must take `properties`, all required."""
    whole = schema or {"type": "object", "properties": properties, "required": list(properties)}

    def register(run: Run) -> Run:
        TOOLS[run.__name__] = Tool(run, description, whole)
        return run

    return register


def prompt(description: str, *arguments: str) -> Callable[[Run], Run]:
    """Register the decorated function as the prompt of its own name."""

    def register(run: Run) -> Run:
        PROMPTS[run.__name__] = Prompt(run, description, arguments)
        return run

    return register


# Tools that answer alone.


@tool("Returns one text block")
async def test_simple_text(call: Call) -> Content:
    return [text("This is a simple text response for testing.")]


@tool("Returns one image")
async def test_image_content(call: Call) -> Content:
    return [IMAGE]


@tool("Returns one sound")
async def test_audio_content(call: Call) -> Content:
    return [SOUND]


@tool("Returns an embedded resource")
async def test_embedded_resource(call: Call) -> Content:
    return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@tool("Returns text, an image and a resource")
async def test_multiple_content_types(call: Call) -> Content:
    data = json.dumps({"test": "data", "value": 123}, separators=(",", ":"))
    mixed = embedded("test://mixed-content-resource", "application/json", data)
    return [text("Multiple content types test:"), IMAGE, mixed]


@tool("Always fails")
async def test_error_handling(call: Call) -> Content:
    raise ToolFailed("This tool intentionally returns an error for testing")


@tool("Logs three lines while it runs")
async def test_tool_with_logging(call: Call) -> Content:
    await call.log("Tool execution started")
    await asyncio.sleep(STEP_S)
    await call.log("Tool processing data")
    await asyncio.sleep(STEP_S)
    await call.log("Tool execution completed")
    return [text("The tool logged three lines.")]


@tool("Logs one line")
async def test_logging_tool(call: Call) -> Content:
    await call.log("one line")
    return [text("The tool logged one line.")]


@tool("Reports progress three times while it runs")
async def test_tool_with_progress(call: Call) -> Content:
    for done in (0, 50, 100):
        if done:
            await asyncio.sleep(STEP_S)
        await call.progress(done, 100)
    return [text("The tool went from 0 to 100.")]


@tool("Changes the list of tools")
async def test_trigger_tool_change(call: Call) -> Content:
    return [text("The list of tools changed.")]


@tool("Changes the list of prompts")
async def test_trigger_prompt_change(call: Call) -> Content:
    return [text("The list of prompts changed.")]


@tool("Takes an argument that is mirrored in a header", region={"type": "string", "x-mcp-header": "Region"})
async def test_mirrored_argument(call: Call) -> Content:
    return [text(f"region: {call.arguments.get('region')}")]


@tool(
    "Tool with JSON Schema 2020-12 features",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema_2020_12_tool(call: Call) -> Content:
    return [text(json.dumps(dict(call.arguments), sort_keys=True))]


# Tools that ask.

NAME: Final = {"name": {"type": "string"}}


@tool("Asks the client's model", prompt={"type": "string", "description": "what to ask it"})
async def test_sampling(call: Call) -> Content:
    replies = await call.ask({"model": sampling(str(call.arguments["prompt"]), 100)})
    return [text(f"LLM response: {_said(replies['model'])}")]


@tool("Asks the user for a name and an address", message={"type": "string", "description": "what to show"})
async def test_elicitation(call: Call) -> Content:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    replies = await call.ask({"user": form(str(call.arguments["message"]), fields)})
    return [text(f"User response: {_told(replies['user'])}")]


@tool("Asks for a form in which every field has a default")
async def test_elicitation_sep1034_defaults(call: Call) -> Content:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    replies = await call.ask({"form": form("Please check these values", fields, [])})
    return [text(f"Elicitation completed: {_told(replies['form'])}")]


@tool("Asks for a form of every kind of choice")
async def test_elicitation_sep1330_enums(call: Call) -> Content:
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{nth} Option"}
        for n, nth in ((1, "First"), (2, "Second"), (3, "Third"))
    ]
    many = [
        {"const": f"value{n}", "title": f"{nth} Choice"}
        for n, nth in ((1, "First"), (2, "Second"), (3, "Third"))
    ]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    fields = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", **legacy},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": many}},
    }
    replies = await call.ask({"form": form("Please choose", fields, [])})
    return [text(f"Elicitation completed: {_told(replies['form'])}")]


@tool("Needs a client that samples")
async def test_missing_capability(call: Call) -> Content:
    replies = await call.ask({"model": sampling("Say one word", 10)})
    return [text(_said(replies["model"]))]


@tool("Asks the user after some progress")
async def test_streaming_elicitation(call: Call) -> Content:
    await call.progress(1, 2)
    replies = await call.ask({"user_name": form("What is your name?", NAME)})
    return [text(f"Hello, {_field(replies['user_name'], 'name')}!")]


@tool("Asks the user for a name")
async def test_input_required_result_elicitation(call: Call) -> Content:
    replies = await call.ask({"user_name": form("What is your name?", NAME)})
    return [text(f"Hello, {_field(replies['user_name'], 'name')}!")]


@tool("Asks the client's model for a capital")
async def test_input_required_result_sampling(call: Call) -> Content:
    replies = await call.ask({"capital_question": sampling("What is the capital of France?", 100)})
    return [text(_said(replies["capital_question"]))]


@tool("Asks for the client's roots")
async def test_input_required_result_list_roots(call: Call) -> Content:
    return [text(_rooted((await call.ask({"client_roots": roots()}))["client_roots"]))]


@tool("Asks for a confirmation and keeps state meanwhile")
async def test_input_required_result_request_state(call: Call) -> Content:
    await call.ask({"confirm": form("Please confirm", {"ok": {"type": "boolean"}})}, sealed=True)
    return [text("state-ok")]


@tool("Asks for a confirmation and refuses state that was altered")
async def test_input_required_result_tampered_state(call: Call) -> Content:
    await call.ask({"confirm": form("Please confirm", {"ok": {"type": "boolean"}})}, sealed=True)
    return [text("the state came back whole")]


@tool("Asks three things at once")
async def test_input_required_result_multiple_inputs(call: Call) -> Content:
    questions = {
        "user_name": form("What is your name?", NAME),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    replies = await call.ask(questions, sealed=True)
    name, greeting = _field(replies["user_name"], "name"), _said(replies["greeting"])
    return [text(f"{greeting} {name}: {_rooted(replies['client_roots'])}")]


@tool("Asks two things, one after the other")
async def test_input_required_result_multi_round(call: Call) -> Content:
    first = await call.ask({"step1": form("Step 1: What is your name?", NAME)}, sealed=True)
    colour = {"color": {"type": "string"}}
    second = await call.ask({"step2": form("Step 2: What is your favorite color?", colour)}, sealed=True)
    return [text(f"{_field(first['step1'], 'name')} likes {_field(second['step2'], 'color')}.")]


@tool("Asks only what the client says it answers")
async def test_input_required_result_capabilities(call: Call) -> Content:
    possible = {
        "user_name": form("What is your name?", NAME),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    wanted = {key: question for key, question in possible.items() if call.declares(question["method"])}
    replies = await call.ask(wanted) if wanted else {}
    return [text(f"answered: {', '.join(replies) or 'nothing'}")]


def _said(reply: dict[str, Any]) -> str:
    content = reply["content"]
    return str(content.get("text", content))


def _told(reply: dict[str, Any]) -> str:
    return f"action={reply['action']}, content={json.dumps(reply.get('content') or {})}"


def _field(reply: dict[str, Any], name: str) -> str:
    return str((reply.get("content") or {}).get(name, reply["action"]))


def _rooted(reply: dict[str, Any]) -> str:
    return "roots: " + ", ".join(str(root.get("uri")) for root in reply["roots"])


# Prompts.


def said(*content: dict[str, Any]) -> Content:
    return [{"role": "user", "content": one} for one in content]


@prompt("A prompt without arguments")
async def test_simple_prompt(call: Call) -> Content:
    return said(text("This is a simple prompt for testing."))


@prompt("A prompt with two arguments", "arg1", "arg2")
async def test_prompt_with_arguments(call: Call) -> Content:
    given = call.arguments
    return said(text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"))


@prompt("A prompt with a resource in it", "resourceUri")
async def test_prompt_with_embedded_resource(call: Call) -> Content:
    uri = str(call.arguments.get("resourceUri"))
    resource = embedded(uri, "text/plain", "Embedded resource content for testing.")
    return said(resource, text("Please process the embedded resource above."))


@prompt("A prompt with an image in it")
async def test_prompt_with_image(call: Call) -> Content:
    return said(IMAGE, text("Please analyze the image above."))


@prompt("A prompt that asks the user first")
async def test_input_required_result_prompt(call: Call) -> Content:
    fields = {"context": {"type": "string"}}
    replies = await call.ask({"user_context": form("What context should the prompt use?", fields)})
    return said(text(f"Use this context: {_field(replies['user_context'], 'context')}"))

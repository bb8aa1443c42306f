"""Each question of the conformance server gets its answer in both styles: pushed, and asked by `input_required`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.conformance.bench import server

styles = pytest.mark.parametrize(
    ("era", "mode"), [("legacy", "legacy"), ("modern", "2026-07-28"), ("dual", "auto")]
)

ANSWERS: dict[str, Any] = {
    "name": "Ada",
    "color": "red",
    "ok": True,
    "username": "ada",
    "email": "ada@example.com",
    "context": "tea",
}

ASKING = {
    "test_sampling": ({"prompt": "say it"}, "LLM response: Paris"),
    "test_elicitation": ({"message": "who?"}, "User response: action=accept"),
    "test_elicitation_sep1034_defaults": ({}, "Elicitation completed: action=accept"),
    "test_elicitation_sep1330_enums": ({}, "Elicitation completed: action=accept"),
    "test_missing_capability": ({}, "Paris"),
    "test_streaming_elicitation": ({}, "Hello, Ada!"),
    "test_input_required_result_elicitation": ({}, "Hello, Ada!"),
    "test_input_required_result_sampling": ({}, "Paris"),
    "test_input_required_result_list_roots": ({}, "roots: file:///work"),
    "test_input_required_result_request_state": ({}, "state-ok"),
    "test_input_required_result_tampered_state": ({}, "the state came back whole"),
    "test_input_required_result_multiple_inputs": ({}, "Paris Ada: roots: file:///work"),
    "test_input_required_result_multi_round": ({}, "Ada likes red."),
    "test_input_required_result_capabilities": ({}, "answered: user_name, greeting, client_roots"),
}
"""Tool -> its arguments, how its text begins once the client has answered."""


@pytest.fixture(scope="module")
def urls(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    with server("dual") as dual, server("legacy") as legacy, server("modern") as modern:
        yield {"dual": dual.url, "legacy": legacy.url, "modern": modern.url}


async def elicited(ctx: Any, params: Any) -> types.ElicitResult:
    fields = params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content={k: v for k, v in ANSWERS.items() if k in fields})


async def sampled(ctx: Any, params: Any) -> types.CreateMessageResult:
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text="Paris"), model="scripted"
    )


async def rooted(ctx: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///work")])  # type: ignore[arg-type]


def client(url: str, mode: str, **callbacks: Any) -> mcp.Client:
    return mcp.Client(url, mode=mode, **callbacks)


@pytest.fixture(autouse=True)
def _deprecated_kinds_are_subject_matter_here() -> Iterator[None]:
    with warnings.catch_warnings(action="ignore", category=MCPDeprecationWarning):
        yield


@styles
async def test_every_asking_tool_is_answered(urls: dict[str, str], era: str, mode: str):
    whole = client(
        urls[era], mode, elicitation_callback=elicited, sampling_callback=sampled, list_roots_callback=rooted
    )
    async with whole as session:
        for name, (arguments, begins) in ASKING.items():
            result = await session.call_tool(name, arguments)
            block = result.content[0]
            assert isinstance(block, types.TextContent)
            assert block.text.startswith(begins), name
        prompt = await session.get_prompt("test_input_required_result_prompt")
        said = prompt.messages[0].content
        assert isinstance(said, types.TextContent)
        assert said.text == "Use this context: tea"


@styles
async def test_a_client_that_does_not_answer_is_told_what_it_lacks(urls: dict[str, str], era: str, mode: str):
    async with client(urls[era], mode) as session:
        with pytest.raises(MCPError) as caught:
            await session.call_tool("test_missing_capability", {})
        assert caught.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert caught.value.error.data == {"requiredCapabilities": {"sampling": {}}}
        result = await session.call_tool("test_input_required_result_capabilities", {})
        assert result.content == [types.TextContent(type="text", text="answered: nothing")]


async def test_every_tool_that_asks_is_listed_here():
    source = (Path(__file__).parent / "material.py").read_text()
    asking = {part.partition("(")[0] for part in source.split("async def ")[1:] if "call.ask(" in part}
    assert asking - {"test_input_required_result_prompt"} == set(ASKING)

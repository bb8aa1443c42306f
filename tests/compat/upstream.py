"""The conformance server with four tools more, which show what reaches a server while a call runs.

It knows what each tool leaves in the file `COMPAT_EFFECTS` names; it must not know who called.
Run as `python -m tests.compat.upstream [--era dual|legacy|modern]`; it prints `ready PORT` when it listens.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from tests.conformance import server
from tests.conformance.asking import Call, form
from tests.conformance.content import text
from tests.conformance.material import tool

__all__ = ["PATIENCE_S", "TOOLS"]

PATIENCE_S: Final = 5.0
"""How long `paced` waits for the client that should have heard of it by then."""
TOOLS: Final = ("change", "paced", "go_on", "endless", "ask")

_LABEL: Final = {"label": {"type": "string"}}
_GOING: Final[dict[str, asyncio.Event]] = {}


def _effect(word: str, call: Call) -> None:
    with Path(os.environ["COMPAT_EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write(f"{word} {call.arguments['label']}\n")


def _going(call: Call) -> asyncio.Event:
    return _GOING.setdefault(str(call.arguments["label"]), asyncio.Event())


@tool("Changes something", **_LABEL)
async def change(call: Call) -> list[dict[str, Any]]:
    _effect("changed", call)
    return [text("changed")]


@tool("Reports progress, then waits until somebody who heard of it calls go_on", **_LABEL)
async def paced(call: Call) -> list[dict[str, Any]]:
    await call.progress(1, 2)
    try:
        await asyncio.wait_for(_going(call).wait(), PATIENCE_S)
    except TimeoutError:
        return [text("nobody went on")]
    return [text("went on")]


@tool("Lets paced go on", **_LABEL)
async def go_on(call: Call) -> list[dict[str, Any]]:
    _going(call).set()
    return [text("said so")]


@tool("Reports progress, then waits until it is cancelled", **_LABEL)
async def endless(call: Call) -> list[dict[str, Any]]:
    await call.progress(1, 2)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        _effect("cancelled", call)
        raise
    return []


@tool("Asks for a name", **_LABEL)
async def ask(call: Call) -> list[dict[str, Any]]:
    replies = await call.ask({"who": form("Who?", {"name": {"type": "string"}})})
    return [text(f"hello {replies['who'].get('content', {}).get('name')}")]


if __name__ == "__main__":
    server.main()

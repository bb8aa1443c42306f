"""The conformance server with six tools more, which show what reaches a server while a call runs.

It knows what each tool waits for, and what `change` leaves in the file that COMPAT_EFFECTS names; it must not know who
called.
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
"""How long a tool waits for what should have come by then."""
TOOLS: Final = ("change", "paced", "go_on", "endless", "ended", "ask")

_LABEL: Final = {"label": {"type": "string"}}
_EVENTS: Final[dict[tuple[str, str], asyncio.Event]] = {}


def _event(word: str, call: Call) -> asyncio.Event:
    return _EVENTS.setdefault((word, str(call.arguments["label"])), asyncio.Event())


async def _within(event: asyncio.Event) -> bool:
    try:
        await asyncio.wait_for(event.wait(), PATIENCE_S)
    except TimeoutError:
        return False
    return True


@tool("Changes something", **_LABEL)
async def change(call: Call) -> list[dict[str, Any]]:
    with Path(os.environ["COMPAT_EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write(f"changed {call.arguments['label']}\n")
    return [text("changed")]


@tool("Reports progress, then waits until somebody who heard of it calls go_on", **_LABEL)
async def paced(call: Call) -> list[dict[str, Any]]:
    await call.progress(1, 2)
    return [text("went on" if await _within(_event("go on", call)) else "nobody went on")]


@tool("Lets paced go on", **_LABEL)
async def go_on(call: Call) -> list[dict[str, Any]]:
    _event("go on", call).set()
    return [text("said so")]


@tool("Reports progress, then waits until it is cancelled", **_LABEL)
async def endless(call: Call) -> list[dict[str, Any]]:
    await call.progress(1, 2)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        _event("ended", call).set()
        raise
    return []


@tool("Tells whether endless was cancelled by now, or is soon", **_LABEL)
async def ended(call: Call) -> list[dict[str, Any]]:
    return [text("cancelled" if await _within(_event("ended", call)) else "still running")]


@tool("Asks for a name", **_LABEL)
async def ask(call: Call) -> list[dict[str, Any]]:
    replies = await call.ask({"who": form("Who?", {"name": {"type": "string"}})})
    return [text(f"hello {replies['who'].get('content', {}).get('name')}")]


if __name__ == "__main__":
    server.main()

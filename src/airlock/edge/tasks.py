"""Being inside a task: the HTTP server runs the beginning of a call outside one, where time-outs do not work.

Knows the event loop's current task; does not know what is run.
"""

from __future__ import annotations

import asyncio

__all__ = ["inside_task"]


async def inside_task() -> None:
    """Return inside a task: at once when there is one, else a round of the loop later."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)

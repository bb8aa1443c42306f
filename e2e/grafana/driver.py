"""grafana/mcp-grafana behind the gateway: effects are looked up in Grafana itself."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from typing import Any

from steps import NO, YES, agent, asked, call, check, fetch, first_read, ours, rule, step, text, until

GATEWAY = os.environ["E2E_GATEWAY"]
GRAFANA = os.environ["E2E_GRAFANA"]


def grafana(path: str) -> Any:
    """Ask Grafana."""
    login = base64.b64encode(f"admin:{os.environ['E2E_PASSWORD']}".encode()).decode()
    status, found = fetch(f"{GRAFANA}{path}", headers={"authorization": f"Basic {login}"})
    check(status == 200, f"Grafana answers {path.partition('?')[0]}", found)
    return found


def folders() -> list[str]:
    return sorted(folder["title"] for folder in grafana("/api/folders"))


def written() -> list[str]:
    return sorted(entry["text"] for entry in grafana("/api/annotations?limit=100"))


async def listing(client: Any) -> None:
    step("The agent sees the tools of the policy and no other")
    listed = await client.list_tools()
    names = sorted(tool.name for tool in listed.tools)
    check(names == sorted(["search_folders", "get_annotations", "create_annotation", "create_folder",
                           "delete_annotation", "update_annotation"]), "six tools", names)  # fmt: skip
    check(ours(listed)["hidden_tools"] > 20, "the others are hidden", ours(listed))
    refused = await call(client, "update_dashboard", {"dashboard": {"title": "x"}})
    check(rule(refused) == "allowlist.deny", "and refused", rule(refused))


async def writing(client: Any) -> None:
    step("A folder is made after a yes, once; not after a no, and not twice")
    title = {"title": "Team Rocket"}
    question = await call(client, "create_folder", title)
    check("make a folder for dashboards" in asked(question), "the question says what for")
    declined = await call(
        client, "create_folder", title, request_state=question.request_state, input_responses=NO
    )
    check(rule(declined) == "mrtr.declined", "a no ends it", rule(declined))
    late = await call(
        client, "create_folder", title, request_state=question.request_state, input_responses=YES
    )
    check(rule(late) == "mrtr.replay", "a later yes does not revive it", rule(late))
    check(folders() == [], "no folder is there")

    question = await call(client, "create_folder", title)
    state = question.request_state
    other = await call(
        client, "create_folder", {"title": "Team Other"}, request_state=state, input_responses=YES
    )
    check(rule(other) == "mrtr.mismatch", "the yes is for this title only", rule(other))
    made = await call(client, "create_folder", title, request_state=state, input_responses=YES)
    check(rule(made) == "tier.L2.confirmed" and not made.is_error, "after a yes it runs", text(made))
    again = await call(client, "create_folder", title, request_state=state, input_responses=YES)
    check(rule(again) == "mrtr.replay", "and not again", rule(again))
    check(folders() == ["Team Rocket"], "one folder is there", folders())
    forbidden = await call(client, "create_folder", {"title": "team rocket; all of it"})
    check(rule(forbidden) == "args.violation", "another kind of title is refused", rule(forbidden))


async def deleting(client: Any) -> None:
    step("An annotation is written at once, and deleted only after a yes")
    for name in ("keep", "drop"):
        done = await call(
            client, "create_annotation", {"text": name, "time": int(time.time() * 1000), "tags": ["e2e"]}
        )
        check(rule(done) == "tier.L3.auto" and not done.is_error, f"{name} is written", text(done))

    async def there() -> bool:
        return written() == ["drop", "keep"]

    await until("Grafana has both", there)
    ids = {entry["text"]: entry["id"] for entry in grafana("/api/annotations?limit=100")}
    dry = await call(client, "update_annotation", {"id": ids["keep"], "text": "changed"})
    check(rule(dry) == "dry_run.unsupported", "a tool without a dry run cannot only suggest", rule(dry))
    question = await call(client, "delete_annotation", {"id": ids["drop"]})
    check(written() == ["drop", "keep"], "asking deletes nothing")
    other = await call(
        client,
        "delete_annotation",
        {"id": ids["keep"]},
        request_state=question.request_state,
        input_responses=YES,
    )
    check(rule(other) == "mrtr.mismatch", "the yes is for this one only", rule(other))
    gone = await call(
        client,
        "delete_annotation",
        {"id": ids["drop"]},
        request_state=question.request_state,
        input_responses=YES,
    )
    check(rule(gone) == "tier.L2.confirmed" and not gone.is_error, "after a yes it is deleted", text(gone))
    check(written() == ["keep"], "and the other one is there", written())


async def main() -> None:
    async with agent(f"{GATEWAY}/mcp") as client:
        step("Reads go through")
        read = await first_read(client, "search_folders", {"query": ""})
        check(rule(read) == "tier.L0.read", "a read goes through", rule(read))
        await listing(client)
        await writing(client)
        await deleting(client)


if __name__ == "__main__":
    asyncio.run(main())

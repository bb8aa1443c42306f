"""Five gateways on one Postgres: what one of them remembers, all of them know. Effects are counted in the database.

driver.py story | outage | recovery: everything but the outage; while the database is paused; after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import Any, LiteralString

import psycopg
from steps import NO, YES, agent, asked, call, check, fetch, rule, step, text, until

GATEWAYS = os.environ["E2E_GATEWAYS"].split()
DSN = os.environ["E2E_DSN"]


def rows(query: LiteralString, *values: object) -> list[tuple[Any, ...]]:
    """Ask the database itself."""
    with psycopg.connect(DSN) as connection:
        return connection.execute(query, values).fetchall()


def landed(*names: str) -> int:
    """How often exactly these items were really deleted."""
    query = "select count(*) from effects where tool = 'delete_items' and names = %s"
    return int(rows(query, list(names))[0][0])


def items() -> set[str]:
    return {row[0] for row in rows("select name from items")}


def prompts(word: str) -> list[dict[str, Any]]:
    """The messages that the approver got and that hold `word`."""
    found = fetch(f"{os.environ['E2E_APPROVER']}/seen")[1]
    return [entry for entry in found if word in entry["text"]]


async def pressed(word: str) -> Any:
    """Wait until the approver has pressed the button of one prompt."""

    async def done() -> Any:
        return [entry for entry in prompts(word) if "pressed" in entry]

    (entry,) = await until(f"the prompt about {word} is approved", done)
    return entry


async def everywhere(clients: list[Any], tool: str, arguments: dict[str, Any], **more: Any) -> list[Any]:
    """The same call through every gateway at once."""
    return list(await asyncio.gather(*(call(client, tool, arguments, **more) for client in clients)))


async def probe(path: str) -> list[tuple[int, str]]:
    """Status and word of a probe, of all gateways at once."""
    answers = await asyncio.gather(*(asyncio.to_thread(fetch, f"{url}/{path}") for url in GATEWAYS))
    return [(status, body["status"]) for status, body in answers]


async def one_approval(clients: list[Any]) -> None:
    step("A call asked through one gateway is approved through another and runs through a third, once")
    names = {"names": ["apple", "pear"]}
    question = await call(clients[0], "delete_items", names)
    check("would delete apple, pear" in asked(question), "the prompt holds the dry run", question)
    check(items() >= {"apple", "pear"}, "and the dry run changed nothing")
    state = question.request_state
    turn = iter(range(10**6))

    async def ran() -> Any:
        result = await call(clients[next(turn) % len(clients)], "delete_items", names, request_state=state)
        return result if result.result_type != "input_required" else None

    result = await until("the approved call runs", ran)
    check(rule(result) == "tier.L2.confirmed", "it ran after the yes", rule(result))
    check(text(result) == "deleted apple, pear", "the server says what it did", text(result))
    entry = await pressed("apple")
    check(
        (entry["looked"], entry["pressed"], entry["link"]) == (200, 200, True),
        "page and button answered",
        entry,
    )
    again = await everywhere(clients, "delete_items", names, request_state=state)
    check({rule(one) for one in again} == {"mrtr.replay"}, "no gateway runs it again", again)
    check(landed("apple", "pear") == 1, "the database saw it once")
    check(items() == {"plum", "keepsake", "heirloom"}, "and nothing else is gone", items())


async def one_race(clients: list[Any]) -> None:
    step("Five gateways race for one approval, and one wins")
    names = {"names": ["plum"]}
    question = await call(clients[1], "delete_items", names)
    asked(question)
    await pressed("plum")
    results = await everywhere(clients, "delete_items", names, request_state=question.request_state)
    rules = sorted(rule(one) for one in results)
    check(
        rules == ["mrtr.replay"] * (len(clients) - 1) + ["tier.L2.confirmed"],
        "one ran, four are replays",
        rules,
    )
    check(landed("plum") == 1, "the database saw it once")


async def no_approval(clients: list[Any]) -> None:
    step("Without a yes nothing happens, whatever the agent answers; a no is final on every gateway")
    names = {"names": ["keepsake"]}
    question = await call(clients[2], "delete_items", names)
    asked(question)
    state = question.request_state
    for client in clients:
        pending = await call(client, "delete_items", names, request_state=state, input_responses=YES)
        check(rule(pending) == "mrtr.pending", "the agent's own yes is ignored", rule(pending))
    declined = await call(clients[3], "delete_items", names, request_state=state, input_responses=NO)
    check(rule(declined) == "mrtr.declined", "a no ends it", rule(declined))
    after = await everywhere(clients, "delete_items", names, request_state=state)
    check({rule(one) for one in after} == {"mrtr.replay"}, "everywhere", after)
    forbidden = await call(clients[4], "delete_items", {"names": ["heirloom"]})
    check(rule(forbidden) == "args.violation", "what the policy forbids is refused", rule(forbidden))
    check(prompts("heirloom") == [], "and nobody is asked")
    check(items() == {"keepsake", "heirloom"}, "both are still there", items())


async def one_radius() -> None:
    step("One blast radius over five gateways: of twelve parallel calls exactly seven fit")
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(agent(f"{url}/mcp", "carol")) for url in GATEWAYS]
        calls = [call(clients[n % len(clients)], "add_items", {"names": [f"new-{n}"]}) for n in range(12)]
        rules = sorted([rule(result) for result in await asyncio.gather(*calls)])
    check(rules == ["blast_radius.per_principal"] * 5 + ["tier.L3.auto"] * 7, "seven ran", rules)
    count = rows("select count(*) from items where name like 'new-%%'")[0][0]
    check(count == 7, "seven items landed", count)


async def one_audit() -> None:
    step("The audit table has what happened, from every gateway")
    query = "select count(*) from airlock_audit where phase = 'outcome' and rule_id = %s"

    async def complete() -> bool:
        counts = {
            name: rows(query, name)[0][0]
            for name in ("tier.L2.confirmed", "mrtr.declined", "mrtr.replay", "blast_radius.per_principal")
        }
        return list(counts.values()) == [2, 1, 14, 5]

    await until("two executions, one no, fourteen replays and five refusals are on record", complete)
    approvals = rows(
        "select rec->'detail'->>'approved_by', rec->'detail'->>'approved_by_source' from airlock_audit"
        " where method = 'approve' and phase = 'outcome'"
    )
    check(approvals == [("bob", "header")] * 2, "and who approved", approvals)
    chained = rows("select count(*) from airlock_audit where rec->>'hash' is null or rec->>'prev' is null")
    check(chained == [(0,)], "every row carries its place in its gateway's chain")


async def story() -> None:
    with psycopg.connect(DSN) as connection:
        for name in ("apple", "pear", "plum", "keepsake", "heirloom"):
            connection.execute("insert into items (name) values (%s)", (name,))
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(agent(f"{url}/mcp")) for url in GATEWAYS]
        step("Every gateway serves the same tools and answers its probes")
        for url, client in zip(GATEWAYS, clients, strict=True):
            names = sorted(tool.name for tool in (await client.list_tools()).tools)
            check(names == ["about", "add_items", "delete_items", "list_items"], url, names)
            check(fetch(f"{url}/readyz") == (200, {"status": "ok"}), f"{url} is ready")
        await one_approval(clients)
        await one_race(clients)
        await no_approval(clients)
    await one_radius()
    await one_audit()


async def outage() -> None:
    step("While the database does not answer, gated calls are refused, reads go on, and no pod is restarted")
    async with agent(f"{GATEWAYS[0]}/mcp", "dave") as client:
        began = time.monotonic()
        refused = await call(client, "add_items", {"names": ["never"]})
        check(rule(refused) == "store.unavailable", "a write is refused", rule(refused))
        check(time.monotonic() - began < 20, "within the timeout")
        read = await call(client, "about", {})
        check(rule(read) == "tier.L0.read", "a read goes through", rule(read))
    alive = await probe("healthz")
    check(set(alive) == {(200, "ok")}, "every gateway is alive", alive)
    ready = await probe("readyz")
    check(set(ready) == {(503, "unavailable")}, "and none is ready", ready)


async def recovery() -> None:
    step("When the database is back, so are the gateways, and what was used stays used")

    async def ready() -> bool:
        return set(await probe("readyz")) == {(200, "ok")}

    await until("every gateway is ready again", ready)
    check("never" not in items(), "the refused write never happened")
    async with agent(f"{GATEWAYS[0]}/mcp", "dave") as client:
        added = await call(client, "add_items", {"names": ["after"]})
        check(rule(added) == "tier.L3.auto", "a write goes through", rule(added))
    async with agent(f"{GATEWAYS[4]}/mcp", "carol") as client:
        spent = await call(client, "add_items", {"names": ["more"]})
        check(rule(spent) == "blast_radius.per_principal", "a spent radius is still spent", rule(spent))


if __name__ == "__main__":
    asyncio.run({"story": story, "outage": outage, "recovery": recovery}[sys.argv[1]]())

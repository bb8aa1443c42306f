"""What every agent lives through, in one run with nobody at its terminal, and what must have become of it.

Seven calls: a read; a tool that the policy does not have; one that a rule forbids; one that needs a person, whom
nobody answers for; the same again, a person having said yes meanwhile; another, approved while it waits; and a tool
that was taken out of the policy after it had been listed.
"""

from __future__ import annotations

from tests.harness.bench import LISTED, Bench
from tests.harness.model import Model, Turn
from tests.harness.rows import Row

__all__ = ["judge", "script"]

RESUME = "To resume, call delete_service again with the same arguments within 10 minutes"


def script(one: Bench) -> list[Turn]:
    """The calls, with what people do before each."""

    def late() -> None:
        assert one.effects("delete_service") == []
        one.approve()

    return [
        Turn("get_service", {"name": "shop"}),
        Turn("drop_database", {"name": "shop"}),
        Turn("delete_service", {"name": "payments"}),
        Turn("delete_service", {"name": "shop"}),
        Turn("delete_service", {"name": "shop"}, before=late),
        Turn("delete_service", {"name": "cart"}, before=one.approve_later),
        Turn("read_runbook", {"topic": "disk"}, before=lambda: one.forbid("read_runbook")),
    ]


def judge(one: Bench, model: Model, row: Row, unknown: str) -> None:
    """Check all that the model was told, what was recorded, and what was done.

    `unknown` is what the agent itself says of a tool that it was not given.
    """
    with row.proving("lists"):
        assert model.offered & (LISTED | {"drop_database", "reboot_node"}) == LISTED
    read, missing, forbidden, silent, released, approved, removed = [result.text for result in model.results]
    with row.proving("calls"):
        assert "service shop: 3 replicas, healthy, owner team-shop" in read
    with row.proving("refused"):
        assert unknown in missing
        assert one.wire.sent("tools/call", "drop_database") == []
        assert "airlock: denied (args.violation): argument 'name' not allowed by not_in" in forbidden
        assert unknown in removed or "airlock: denied (allowlist.deny)" in removed
    with row.proving("held"):
        assert "airlock: not confirmed: nobody has answered yet" in silent
        assert "nothing was executed, and nothing was refused" in silent
        assert RESUME in silent
        assert "denied" not in silent
    with row.proving("released"):
        assert "deleted shop" in released
        assert "deleted cart" in approved
        assert one.effects("delete_service") == ["shop", "cart"]
        # One message for each of the two: the same call again waits for the same approval.
        first, second = one.messages
        assert '{"name": "shop"}' in first.text
        assert '{"name": "cart"}' in second.text
        rules = one.rules("delete_service")
        assert [rule for rule in rules if rule.startswith("mrtr")] == ["mrtr.pending"] * rules.count(
            "mrtr.pending"
        )
        assert rules.count("tier.L2.confirmed") == 2

"""What several upstreams told one caller, and what stands in for it when one is silent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airlock.core.secret import Secret
from airlock.gateway import meta
from airlock.gateway.upstream.credentials import NoCredential
from airlock.gateway.upstream.gather import Gathering, Told
from airlock.gateway.upstream.member import Watched
from airlock.gateway.upstream.port import Outgoing
from tests.fakes.members import LISTED, FakeMember, listing, member, outgoing, unreachable
from tests.fakes.world import StillClock


class Setting:
    """One fake server, asked through a Gathering."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.fake = FakeMember("git")
        self.watched = Watched("git", member(self.fake), self.clock, lambda _: None)
        self.gathering = Gathering(self.clock)

    async def told(self, sent: Outgoing) -> Told:
        (told,) = await self.gathering.all([self.watched], sent, exact=False)
        return told


def asked(
    method: str = "tools/list", *, principal: str = "alice", groups: Any = None, token: str | None = None
) -> Outgoing:
    own = {} if groups is None else {meta.GROUPS: groups}
    sent = outgoing(method, principal=principal, meta=own)
    return msgspec.structs.replace(sent, subject=None if token is None else Secret(token))


CALLERS = [
    asked(),
    asked(groups=["ops"]),
    asked(groups=["ops", "sre"]),
    asked(groups=["sre", "ops"]),
    asked(token="one"),
    asked(token="two"),
    asked(token="one", groups=["ops"]),
    asked(principal="bob"),
    asked(principal="bob", token="one"),
]


async def test_what_one_caller_was_told_stands_in_for_nobody_of_other_groups_or_another_token():
    it = Setting()
    for number, caller in enumerate(CALLERS):
        it.fake.scripts["tools/list"] = listing("tools/list", {"name": f"for{number}"})
        await it.told(caller)
        it.fake.scripts["tools/list"] = lambda _: unreachable()
        for other in CALLERS[number + 1 :]:
            assert (await it.told(other)).items is None
    for number, caller in enumerate(CALLERS):
        told = await it.told(caller)
        assert told.items == [{"name": f"for{number}"}]
        assert told.error is not None


async def test_what_a_client_says_of_itself_makes_no_further_lists_to_remember():
    it = Setting()
    for number in range(5):
        told = {"io.modelcontextprotocol/clientInfo": {"name": str(number)}, "progressToken": number}
        await it.told(outgoing("tools/list", request_id=number, meta=told))
    assert len(it.gathering._kept) == 1


@pytest.mark.parametrize("method", list(LISTED))
async def test_who_has_no_credential_any_more_is_not_told_what_was_told_before(method: str):
    it = Setting()
    it.fake.scripts[method] = listing(method, {"name": "admin_only"})
    sent = asked(method, token="one")
    assert (await it.told(sent)).items is not None
    it.fake.scripts[method] = lambda _: NoCredential("HTTP 400 (invalid_grant)")
    told = await it.told(sent)
    assert told.items is None
    assert isinstance(told.error, NoCredential)
    # Nor when the server is away as well.
    it.fake.scripts[method] = lambda _: unreachable()
    assert (await it.told(sent)).items is None

"""What a ticket binds as the server, and what of a server's credentials goes along with it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys

import pytest

from airlock.core.secret import Secret
from airlock.gateway import backs, oneback
from airlock.gateway.upstreamsfile import Local, Remote, UpstreamSpec, spec_of_command
from tests.fakes.world import StillClock

KEY = "k" * 12


def remote(url: str) -> UpstreamSpec:
    return UpstreamSpec(name="one", prefix="one", at=Remote(url))


@pytest.mark.parametrize(
    ("before", "query"),
    [
        ("https://host.example/mcp", f"api_key={KEY}"),
        ("https://host.example", KEY),
        ("http://127.0.0.1:8000/a/b/", f"a=1&token={KEY}?x={KEY}"),
        ("unix:/run/x.sock:/mcp", f"key={KEY}"),
    ],
)
def test_the_query_of_an_address_is_in_no_target(before: str, query: str):
    url = f"{before}?{query}"
    one = remote(url)
    assert isinstance(one.at, Remote)
    expected = f"{before}?{hashlib.sha256(query.encode()).hexdigest()[:16]}"
    opened = backs.open_one(one, {}, StillClock(), lambda _: None)
    targets = {oneback.target_of(one), oneback.seeds_own(one, one.at).target("t"), opened.target("t")}
    assert targets == {expected}
    assert KEY not in expected


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/mcp", "https://Host.example", "unix:/run/x.sock", "http://h/mcp?"]
)
def test_an_address_without_a_query_is_bound_as_it_was_written(url: str):
    one = remote(url)
    assert isinstance(one.at, Remote)
    assert oneback.target_of(one) == oneback.seeds_own(one, one.at).target(None) == url


def test_servers_that_differ_in_anything_have_different_targets():
    urls = ("http://h/m", "http://h/m?a=1", "http://h/m?a=2", "http://h/n?a=1", "http://h/m?a=1?")
    commands = (("s",), ("s", "a"), ("sa",), ("s", "--key=" + KEY))
    targets = [oneback.target_of(remote(url)) for url in urls]
    targets += [oneback.target_of(spec_of_command(argv)) for argv in commands]
    assert len(set(targets)) == len(targets)
    assert KEY not in "".join(targets)


PRINTS = """
import os, sys
sys.stderr.write("error " + os.environ["PHRASE"] + " " + os.environ["SHORT"] + "\\n")
print("output", os.environ["PHRASE"], flush=True)
sys.stdin.read()
"""


async def test_no_value_that_a_server_was_given_comes_to_the_log():
    phrase = "correct horse battery"
    at = Local((sys.executable, "-I", "-c", PRINTS), {"PHRASE": Secret(phrase), "SHORT": Secret("12345")})
    said: list[str] = []
    came = asyncio.Event()

    def say(line: str) -> None:
        said.append(line)
        came.set()

    opened = backs.open_one(UpstreamSpec(name="one", prefix="one", at=at), os.environ, StillClock(), say)
    opened.begin()
    async with asyncio.timeout(30):
        while not {"error", "output"} <= set(" ".join(said).split()):
            came.clear()
            await came.wait()
    await opened.close()
    assert "error [REDACTED] 12345" in said
    assert "horse" not in " ".join(said)

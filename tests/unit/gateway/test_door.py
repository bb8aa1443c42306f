"""What may come to the endpoint at all, and to which era a POST belongs."""

from __future__ import annotations

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.headers import Headers
from airlock.edge.settings import Environment
from airlock.gateway.door import Door, era_of, is_loopback, loopback_hosts
from airlock.gateway.eras import Era
from airlock.gateway.settings import Defaults, Flags, door, hold_seconds

JSON = (b"content-type", b"application/json")
BOTH = (b"accept", b"application/json, text/event-stream")
HERE = (b"host", b"127.0.0.1:9000")
LOCAL = Door(loopback_hosts(9000), frozenset(), kinds=True)
OURS = Defaults("airlock", durable=True)
SEEDS = Defaults("mcp-airlock", durable=False)
VERSION = "io.modelcontextprotocol/protocolVersion"


def status(door: Door, *lines: tuple[bytes, bytes]) -> int | None:
    refusal = door.refused(Headers(lines))
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host", [b"localhost", b"LOCALHOST:9000", b"127.0.0.1:9000", b"[::1]:9000", b"[::1]"]
)
def test_the_names_of_this_machine_are_served_on_loopback(host: bytes) -> None:
    assert status(LOCAL, (b"host", host), JSON, BOTH) is None


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"evil.example:9000", b"127.0.0.1:9001", b"localhost.evil.example", b"127.0.0.1.", b""],
)
def test_a_foreign_host_is_refused(host: bytes) -> None:
    assert status(LOCAL, (b"host", host), JSON, BOTH) == 403


def test_a_missing_host_is_a_foreign_one() -> None:
    assert status(LOCAL, JSON, BOTH) == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (b"http://127.0.0.1:9000", None),
        (b"http://localhost:9000", None),
        (b"https://evil.example", 403),
        (b"http://localhost.evil.example", 403),
        (b"null", 403),
        (b"", 403),
    ],
)
def test_only_pages_of_the_listener_itself_are_served(origin: bytes, expected: int | None) -> None:
    assert status(LOCAL, HERE, (b"origin", origin), JSON, BOTH) == expected


def test_named_origins_are_served_and_no_others() -> None:
    named = Door(None, frozenset({b"https://inspector.example"}))
    assert status(named, (b"origin", b"https://Inspector.example")) is None
    assert status(named, (b"origin", b"http://inspector.example")) == 403
    assert status(named) is None


def test_a_host_is_looked_at_before_anything_of_the_body() -> None:
    assert status(LOCAL, (b"host", b"evil.example")) == 403


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (b"application/json", None),
        (b"Application/JSON; charset=utf-8", None),
        (b"text/plain", 415),
        (b"application/jsonp", 415),
        (b"", 415),
    ],
)
def test_a_body_that_is_not_json_is_refused(kind: bytes, expected: int | None) -> None:
    assert status(LOCAL, HERE, (b"content-type", kind), BOTH) == expected


@pytest.mark.parametrize(
    ("accepts", "expected"),
    [
        ([b"application/json, text/event-stream"], None),
        ([b"text/event-stream;q=0.5,application/json;q=1"], None),
        ([b"*/*"], None),
        ([b"application/*", b"text/*"], None),
        ([b"application/json"], 406),
        ([b"text/event-stream"], 406),
        ([b"text/html"], 406),
        ([], 406),
    ],
)
def test_a_modern_client_must_take_both_kinds_of_answers(accepts: list[bytes], expected: int | None) -> None:
    lines = [(b"accept", value) for value in accepts]
    assert status(LOCAL, HERE, JSON, (b"mcp-protocol-version", b"2026-07-28"), *lines) == expected
    assert status(LOCAL, HERE, JSON, *lines) is None


def test_a_door_that_was_not_asked_to_looks_at_nothing() -> None:
    assert status(Door(), (b"host", b"evil.example"), (b"origin", b"https://evil.example")) is None


def era(said: bytes | None = None, message: object = None) -> Era:
    return era_of(Headers([] if said is None else [(b"mcp-protocol-version", said)]), message)


@pytest.mark.parametrize("said", [b"2026-07-28", b"2027-01-01", b" 2026-07-28 ", b"banana", b"2026-7-28"])
def test_a_version_of_today_or_later_or_of_no_sense_is_for_the_modern_ladder(said: bytes) -> None:
    assert era(said, {"method": "initialize"}) is Era.MODERN


@pytest.mark.parametrize(
    "said", [None, b"2025-11-25", b"2025-06-18", b"2025-03-26", b"2024-11-05", b"2019-01-01"]
)
def test_an_older_version_or_none_is_of_the_older_era(said: bytes | None) -> None:
    assert era(said, {"method": "tools/list", "params": {}}) is Era.LEGACY
    assert era(said, []) is Era.LEGACY


@pytest.mark.parametrize("said", [None, b"2025-11-25"])
def test_an_envelope_or_a_discovery_is_modern_whatever_the_header_says(said: bytes | None) -> None:
    assert era(said, {"method": "tools/list", "params": {"_meta": {VERSION: "2026-07-28"}}}) is Era.MODERN
    assert era(said, {"method": "server/discover"}) is Era.MODERN


@pytest.mark.parametrize("message", [{"params": 5}, {"params": {"_meta": 5}}, 7, None, "x", {"method": 9}])
def test_odd_messages_have_an_era_too(message: object) -> None:
    assert era(None, message) is Era.LEGACY


def test_loopback_is_told_by_address_and_by_one_name() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.evil", "")] == [False] * 5


def env(**values: str) -> Environment:
    return Environment(values)


def test_the_seeds_program_checks_nothing_unless_it_is_told_to() -> None:
    flags = Flags(policy="p", upstream="u")
    assert door(flags, env(), SEEDS, 9000) is None
    told = door(flags, env(AIRLOCK_ALLOWED_HOSTS="gw.example, GW2.example:80"), SEEDS, 9000)
    assert told == Door(frozenset({b"gw.example", b"gw2.example:80"}), None)
    wide = door(Flags(policy="p", upstream="u", front="dual"), env(), SEEDS, 9000)
    assert wide == Door(None, None, kinds=True)


def test_our_program_knows_its_names_on_loopback_and_no_foreign_page() -> None:
    assert door(Flags(policy="p", upstream="u"), env(), OURS, 9000) == LOCAL
    wild = door(Flags(policy="p", upstream="u", host="0.0.0.0"), env(), OURS, 9000)
    assert wild == Door(None, frozenset(), kinds=True)
    told = door(Flags(policy="p", upstream="u"), env(AIRLOCK_ALLOWED_ORIGINS="https://a.example"), OURS, 9000)
    assert told == Door(loopback_hosts(9000), frozenset({b"https://a.example"}), kinds=True)


def test_a_value_that_cannot_stand_in_a_header_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="AIRLOCK_ALLOWED_HOSTS must be ASCII"):
        door(Flags(policy="p", upstream="u"), env(AIRLOCK_ALLOWED_HOSTS="bücher.example"), SEEDS, 9000)


def test_a_hold_is_a_number_of_seconds_in_range() -> None:
    assert hold_seconds(env()) == 45
    assert hold_seconds(env(AIRLOCK_HOLD_S="5")) == 5
    for wrong in ("0", "-1", "x", "3601"):
        with pytest.raises(ConfigError, match="AIRLOCK_HOLD_S"):
            hold_seconds(env(AIRLOCK_HOLD_S=wrong))

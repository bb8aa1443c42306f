"""The official conformance suite: what it says of our server must not change when the gateway stands between."""

from __future__ import annotations

import pytest

from tests.conformance.bench import Bench
from tests.conformance.suite import REVISIONS, scored, unscored
from tests.conformance.tables import as_json, differences, markdown

revisions = pytest.mark.parametrize("revision", REVISIONS)

NOT_OFFERED = {"server-sse-polling"}
"""Unscored, and about something that a server may leave out: event ids to resume a stream by."""


@revisions
def test_the_server_alone_passes_every_scored_scenario(bench: Bench, revision: str):
    run = bench.run("direct", revision)
    assert len(scored(revision)) == REVISIONS[revision]
    assert run.passing(scored(revision)) == scored(revision), run.words


@revisions
def test_the_server_alone_has_no_check_that_warns_or_is_skipped(bench: Bench, revision: str):
    words = bench.run("direct", revision).words
    assert not {name: words[name] for name in scored(revision) if words[name]}


@revisions
def test_the_server_alone_passes_the_unscored_scenarios_it_offers(bench: Bench, revision: str):
    run, wanted = bench.run("direct", revision), [s for s in unscored(revision) if s not in NOT_OFFERED]
    assert run.passing(wanted) == wanted, run.words


@pytest.mark.parametrize(("era", "revision"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")])
def test_the_server_of_one_era_is_whole_in_that_era(bench: Bench, era: str, revision: str):
    direct, alone = bench.run("direct", revision), bench.run(f"{era}-only server", revision)
    assert not differences(direct, alone, scored(revision))


@pytest.mark.parametrize(("era", "revision"), [("legacy", "2026-07-28"), ("modern", "2025-11-25")])
def test_the_server_of_one_era_does_not_serve_the_other(bench: Bench, era: str, revision: str):
    passing = bench.run(f"{era}-only server", revision).passing(scored(revision))
    # These look for a refusal, and a server that refuses everything passes them.
    assert set(passing) <= {
        "dns-rebinding-protection",
        "input-required-result-unsupported-methods",
        "input-required-result-validate-input",
    }


@revisions
def test_the_relay_changes_no_check(bench: Bench, revision: str):
    lines = differences(bench.run("direct", revision), bench.run("relay", revision), scored(revision))
    assert not lines, "\n".join(lines)


@revisions
def test_through_the_gateway_every_scored_check_is_the_same(bench: Bench, revision: str):
    direct, through = bench.run("direct", revision), bench.run("gateway", revision)
    lines = differences(direct, through, scored(revision))
    assert not lines, "\n".join(lines)
    assert len(through.passing(scored(revision))) == REVISIONS[revision]


@revisions
def test_through_the_gateway_the_unscored_scenarios_pass_too(bench: Bench, revision: str):
    run, wanted = bench.run("gateway", revision), [s for s in unscored(revision) if s not in NOT_OFFERED]
    assert run.passing(wanted) == wanted, run.words


@pytest.mark.parametrize(
    ("era", "revision", "least"), [("legacy", "2026-07-28", 35), ("modern", "2025-11-25", 30)]
)
def test_a_server_of_the_other_era_is_bridged(bench: Bench, era: str, revision: str, least: int):
    run = bench.run(f"gateway, {era}-only server", revision)
    passing = run.passing(scored(revision))
    failing = [
        line for name in scored(revision) if name not in passing for line in (name, *run.words.get(name, ()))
    ]
    assert len(passing) >= least, "\n".join(failing)


@revisions
def test_the_table_shows_each_scored_scenario_and_the_total(bench: Bench, revision: str):
    page = markdown(as_json({revision: (scored(revision), {"direct": bench.run("direct", revision)})}))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[2:-1]] == scored(revision)
    assert f"**{REVISIONS[revision]}/{REVISIONS[revision]}**" in rows[-1]

"""Callers, environments and patterns of the sections for resources and prompts."""

from __future__ import annotations

import pytest

from airlock.core.policy import uris
from airlock.core.policy.access import Access, Glob, pattern_problem, template_start
from airlock.core.principal import Principal

ALICE = Principal("alice")
SRE = Principal("bob", ("ops", "sre"))


def test_an_entry_without_restrictions_admits_everyone_everywhere() -> None:
    assert Access().admits(ALICE, "prod")
    assert Access().everyone
    assert not Access(environments=frozenset({"prod"})).everyone
    assert not Access(principals=frozenset({"alice"})).everyone


def test_an_entry_admits_only_in_its_environments() -> None:
    access = Access(environments=frozenset({"dev", "test"}))
    assert access.admits(ALICE, "dev")
    assert not access.admits(ALICE, "prod")


def test_an_entry_admits_callers_by_name_or_group() -> None:
    access = Access(principals=frozenset({"alice", "group:sre"}))
    assert access.admits(ALICE, "prod")
    assert access.admits(SRE, "prod")
    assert not access.admits(Principal("bob", ("ops",)), "prod")
    assert not access.admits(Principal("sre"), "prod")


def test_a_principal_named_like_a_group_is_not_in_it() -> None:
    access = Access(principals=frozenset({"group:sre"}))
    assert not access.admits(Principal("group:sre"), "prod")
    assert access.admits(Principal("group:sre", ("sre",)), "prod")


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("file:///docs/**", "file:///docs/", True),
        ("file:///docs/**", "file:///docs/a/b/c.md", True),
        ("file:///docs/**", "file:///docs", False),
        ("file:///docs/**", "file:///docsecret", False),
        ("file:///docs/*", "file:///docs/a.md", True),
        ("file:///docs/*", "file:///docs/", True),
        ("file:///docs/*", "file:///docs/a/b", False),
        ("file:///docs/*.md", "file:///docs/a.md.md", True),
        ("file:///docs/*.md", "file:///docs/a.txt", False),
        ("file:///*/b/*", "file:///a/b/c", True),
        ("file:///*/b/*", "file:///a/x/b/c", False),
        ("file:///**/b/*", "file:///a/x/b/c", True),
        ("file:///**/b/*", "file:///a/b/c/b/c", True),
        ("file:///**x*y", "file:///x/xy", True),
        ("file:///a", "file:///a", True),
        ("file:///a", "file:///ab", False),
        ("file:///a", "file:///", False),
        ("**", "anything://at/all", True),
        ("**/x", "a://b/x", True),
        ("a://***", "a://b/c", True),
        ("db://t/*?q=*", "db://t/a?q=1", True),
    ],
)
def test_a_pattern_of_uris(pattern: str, text: str, matches: bool) -> None:
    assert Glob.of(pattern, paths=True).matches(text) is matches


def test_an_encoded_slash_ends_a_segment_too() -> None:
    assert not Glob.of("file:///docs/*", paths=True).matches("file:///docs/private%2Fkey")
    assert Glob.of("file:///docs/**", paths=True).matches("file:///docs/private%2Fkey")
    assert Glob.of("file:///docs/*%2Fkey", paths=True).matches("file:///docs/private%2Fkey")
    assert not Glob.of("file:///docs/*/key", paths=True).matches("file:///docs/private%2Fkey")


@pytest.mark.parametrize("cut", ["?", "#", "%3F", "%23"])
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("file:///srv/*.txt", "file:///srv/secret.key{}.txt"),
        ("file:///srv/*.txt", "file:///srv/{}.txt"),
        ("file:///srv/*/public.md", "file:///srv/secret.key{}/public.md"),
        ("file:///srv/**/readme.md", "file:///srv/private/key{}/readme.md"),
        ("http://*.example.com/**", "http://evil.com{}.example.com/x"),
        ("http://**.example.com/*", "http://evil.com/a{}.example.com/x"),
        ("**/public", "file:///secret{}/public"),
        ("db://*/rows?q=*", "db://t{}/rows?q=1"),
        ("db://t/rows?q=*&limit=1", "db://t/rows?q=1{}&limit=1"),
    ],
)
def test_no_wildcard_but_the_last_takes_a_query_or_fragment(pattern: str, text: str, cut: str) -> None:
    glob = Glob.of(pattern, paths=True)
    assert not glob.matches(text.format(cut))
    assert glob.matches(text.format("a"))


@pytest.mark.parametrize("cut", ["?", "#", "%3F", "%23"])
def test_the_wildcard_that_ends_a_pattern_takes_a_query_and_fragment_too(cut: str) -> None:
    for pattern in ("file:///srv/*", "file:///srv/**", "file:///*/**", "file:///srv/*.txt**"):
        glob = Glob.of(pattern, paths=True)
        assert glob.matches(f"file:///srv/a.txt{cut}b=1")
        assert glob.reaches(f"file:///srv/a.txt{cut}")
    assert not Glob.of("file:///srv/*", paths=True).matches(f"file:///srv/a{cut}/b")
    assert Glob.of(f"file:///srv/*{cut}b", paths=True).matches(f"file:///srv/a{cut}b")
    assert not Glob.of(f"file:///srv/*{cut}b", paths=True).matches(f"file:///srv/a{cut}b{cut}b")
    assert Glob.of("a*b", paths=False).matches(f"a{cut}b")


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("review_*", "review_code", True),
        ("review_*", "review_", True),
        ("review_*", "preview_code", False),
        ("*", "any/thing", True),
        ("a*b*c", "a/b/c", True),
        ("a**c", "abc", True),
        ("exact", "exact", True),
        ("exact", "Exact", False),
        ("a%2Fb", "a%2Fb", True),
        ("a*", "a\x00%2F", True),
    ],
)
def test_a_pattern_of_names(pattern: str, text: str, matches: bool) -> None:
    assert Glob.of(pattern, paths=False).matches(text) is matches


def test_a_text_over_the_limit_matches_nothing() -> None:
    assert Glob.of("*", paths=False).matches("a" * uris.MAX_CHARS)
    assert not Glob.of("*", paths=False).matches("a" * (uris.MAX_CHARS + 1))


def test_a_pattern_made_to_be_slow_is_read_in_one_pass() -> None:
    glob = Glob.of("**a" * 60 + "**b", paths=True)
    assert not glob.matches("a" * uris.MAX_CHARS)


def test_a_pattern_reaches_what_begins_one_of_its_texts() -> None:
    glob = Glob.of("db://tables/*/rows", paths=True)
    for start in ("", "d", "db://tables/", "db://tables/a", "db://tables/a/r"):
        assert glob.reaches(start)
    for start in ("x", "db://tables/a/b", "db://tables/a/rows/1"):
        assert not glob.reaches(start)


def test_a_pattern_that_ends_in_its_one_wildcard_takes_all_that_begins_so() -> None:
    assert Glob.of("file:///a/**", paths=True).takes_all
    assert Glob.of("file:///a%2F**", paths=True).takes_all
    assert Glob.of("a*", paths=False).takes_all
    assert not Glob.of("file:///a/*", paths=True).takes_all
    assert not Glob.of("file:///a*b**", paths=True).takes_all
    assert not Glob.of("a*b", paths=False).takes_all


def test_a_pattern_is_a_uri_in_canonical_form() -> None:
    for good in ("**", "**/x", "file:///docs/**", "db://*/x", "urn:isbn:*", "db:**"):
        assert pattern_problem(good) is None
    for bad in ("*", "docs/**", "*://x", "file:///a\\b", "file:///a%", "**\\", "http://*%23.example.com/**"):
        assert str(pattern_problem(bad)).startswith("must be a URI")
    assert pattern_problem("FILE:///a/../b/**") == "can match nothing: URIs are compared as file:///b/**"
    assert pattern_problem("**/./%7e") == "can match nothing: URIs are compared as **/~"


@pytest.mark.parametrize(
    ("template", "start"),
    [
        ("db://tables/{name}", "db://tables/"),
        ("DB://Tables/{name}/rows{?q}", "db://tables/"),
        ("file:///{+path}", "file:///"),
        ("file:///.{name}", "file:///."),
        ("file:///..{name}", "file:///.."),
        ("file://{host}/x", "file://"),
        ("file:{path}", "file:"),
        ("File{x}", "file"),
        ("{scheme}://x", ""),
        ("test://static", "test://static"),
        ("file:///../{x}", None),
        ("file:///a%2{x}", None),
        ("no scheme/{x}", None),
        ("static", None),
    ],
)
def test_a_template_begins_with_what_stands_before_its_first_brace(template: str, start: str | None) -> None:
    assert template_start(template) == start

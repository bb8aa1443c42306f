"""Canonical URIs and patterns, against a slow and plain reading of both."""

from __future__ import annotations

import re
from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.policy.access import Glob
from airlock.core.policy.uris import asked, canonical

PARTS = st.sampled_from(
    ["a", "b", ".", "..", "/", "%2e", "%2F", "%2f", "%25", "%41", ";", "?", "#", "@", "%5c", "é"]
)
URIS = st.lists(PARTS, max_size=12).map(lambda parts: "file:///docs/" + "".join(parts))
PLAIN = st.lists(st.sampled_from(["a", "B", ".", "..", "/", "~", ":", "_", "-"]), max_size=12).map("".join)
TEXTS = st.text("ab/?#", max_size=10)
PATTERNS = st.text("ab/?*", max_size=10)


@settings(max_examples=200, deadline=None)
@given(URIS)
def test_a_canonical_form_is_its_own_canonical_form(uri: str) -> None:
    form = canonical(uri)
    if form is not None:
        assert canonical(form) == form


@settings(max_examples=200, deadline=None)
@given(URIS)
def test_what_may_be_asked_for_never_leaves_its_folder_however_often_it_is_decoded(uri: str) -> None:
    text = asked(uri)
    if text is None:
        return
    for _ in range(5):
        path = re.split(r"[?#]", text.removeprefix("file://"))[0]
        assert ".." not in [part.partition(";")[0] for part in re.split(r"[/\\]", path)]
        assert path.startswith("/docs/")
        text = text.replace(path, unquote(path))


@settings(max_examples=200, deadline=None)
@given(PLAIN, PLAIN)
def test_what_may_be_asked_for_is_in_canonical_form(host: str, path: str) -> None:
    uri = f"db://{host}/{path}"
    text = asked(uri)
    if text is not None:
        assert text == canonical(uri)
        assert text.lower() == uri.lower()


@settings(max_examples=200, deadline=None)
@given(PATTERNS, TEXTS)
def test_a_pattern_matches_what_a_regular_expression_of_it_matches(pattern: str, text: str) -> None:
    kinds = {"*": ("[^/?#]*", "[^/]*"), "**": ("[^?#]*", ".*")}
    own = re.split(r"(\*+)", pattern)
    ends = len(own) - 2 if own[-1] == "" else None
    slow = "".join(
        kinds["*" if part == "*" else "**"][place == ends] if part.startswith("*") else re.escape(part)
        for place, part in enumerate(own)
    )
    assert Glob.of(pattern, paths=True).matches(text) == (re.fullmatch(slow, text) is not None)
    anything = re.sub(r"\*+", ".*", pattern.replace("?", r"\?"))
    assert Glob.of(pattern, paths=False).matches(text) == (re.fullmatch(anything, text) is not None)


@settings(max_examples=200, deadline=None)
@given(PATTERNS, TEXTS, TEXTS)
def test_a_pattern_that_matches_reaches_every_beginning_of_it(pattern: str, start: str, rest: str) -> None:
    glob = Glob.of(pattern, paths=True)
    if glob.matches(start + rest):
        assert glob.reaches(start)

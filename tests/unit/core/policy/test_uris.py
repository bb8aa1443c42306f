"""URIs in canonical form (RFC 3986, 6.2.2), and those that two readers could take for two places."""

from __future__ import annotations

import pytest

from airlock.core.policy.uris import MAX_CHARS, asked, canonical


@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("file:///docs/a.md", "file:///docs/a.md"),
        ("FILE:///Docs/A", "file:///Docs/A"),
        ("http://User@EXAMPLE.com:80/X", "http://User@example.com:80/X"),
        ("http://ex%41mple.COM/", "http://example.com/"),
        ("db://h/caf%c3%a9/", "db://h/caf%C3%A9/"),
        ("x://a@B@C/", "x://a@B@c/"),
        ("file:///%7e/%2d%2E%5f%41%39", "file:///~/-._A9"),
        ("file:///a%2fb%3a%20", "file:///a%2Fb%3A%20"),
        ("file:///a/./b/../c", "file:///a/c"),
        ("file:///a/%2e/b/%2E%2e/c", "file:///a/c"),
        ("file:///../..", "file:///"),
        ("file:///a/..", "file:///"),
        ("file:///a/.", "file:///a/"),
        ("file:///a//b//", "file:///a//b//"),
        ("file:////a/b", "file:////a/b"),
        ("file:///a/.../..b/.c", "file:///a/.../..b/.c"),
        ("urn:isbn:0451450523", "urn:isbn:0451450523"),
        ("x:a/../b", "x:b"),
        ("x:..", "x:"),
        ("x://h?q=%7e/../..#f%2f%2E", "x://h?q=~/../..#f%2F."),
        ("test://static-text", "test://static-text"),
        ("file:///with blanks/é", "file:///with blanks/é"),
        ("file:///100%25", "file:///100%25"),
        ("file:///a%252", "file:///a%252"),
        ("file:///a%2520b", "file:///a%2520b"),
    ],
)
def test_a_uri_has_one_canonical_form(uri: str, form: str) -> None:
    assert canonical(uri) == form
    assert canonical(form) == form


@pytest.mark.parametrize(
    "uri",
    [
        "", "readme.md", "/etc/passwd", "//host/x", "1x:y", ":x", " file:///a", "file:///a ", "file:///a\n",
        "file:///a%", "file:///a%2", "file:///a%zz", "file:///a\\b", "file:///a\x00", "file:///\x7f", "file:///\x85",
        "file:///\ud800", "x://h/?\x1b", "x:/.//host/y", "x:" + "a" * MAX_CHARS, "x://" + "a" * MAX_CHARS,
    ],
)  # fmt: skip
def test_what_cannot_be_read_in_one_way_has_no_canonical_form(uri: str) -> None:
    assert canonical(uri) is None
    assert asked(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "file:///docs/..%2Fsecret",
        "file:///docs/..%2fsecret",
        "file:///docs/a%2F..%2F..%2Fsecret",
        "file:///docs/%2e%2e%2fsecret",
        "file:///docs/..%5Csecret",
        "file:///docs/%252e%252e/secret",
        "file:///docs/%252e%252e%252fsecret",
        "file:///docs/%25252e/secret",
        "file:///docs/%2525252525252e",
        "file:///docs/..;/secret",
        "file:///docs/.;a=b/secret",
        "file:///docs/secret%00.md",
        "file:///docs/a%0Ab",
        "file:///docs/%C0%AE%C0%AE/secret",
        "file:///docs/%ff",
    ],
)
def test_a_path_that_hides_another_has_no_canonical_form(uri: str) -> None:
    assert canonical(uri) is None


@pytest.mark.parametrize(
    "triplet", ["%23", "%3F", "%3f", "%2F", "%40", "%3A", "%5B", "%25", "%2540", "%c3%a9"]
)
@pytest.mark.parametrize(
    "uri", ["http://evil.com:80{}.example.com/x", "http://{}/", "x://a{}b@h/", "x://h{}"]
)
def test_an_authority_with_something_encoded_in_it_has_no_canonical_form(uri: str, triplet: str) -> None:
    assert canonical(uri.format(triplet)) is None
    assert asked(uri.format(triplet)) is None


@pytest.mark.parametrize(
    "uri",
    [
        "file:///docs/../etc/passwd",
        "file:///docs/./a",
        "file:///docs/%2e%2e/etc/passwd",
        "file:///docs/..",
        "file:///docs/%61",
        "file:///docs/a%2fb",
        "db://%74ables/users",
        "x:a/../b",
    ],
)
def test_a_path_that_is_not_spelled_canonically_cannot_be_asked_for(uri: str) -> None:
    assert canonical(uri) is not None
    assert asked(uri) is None


@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("FILE:///docs/A", "file:///docs/A"),
        ("Http://EX.com/a?q=%7e", "http://ex.com/a?q=~"),
        ("mailto:Bob@EX.com", "mailto:Bob@EX.com"),
        ("file:///docs/a.b/_c/", "file:///docs/a.b/_c/"),
        ("file:///docs/.hidden", "file:///docs/.hidden"),
        ("test://static-text", "test://static-text"),
    ],
)
def test_scheme_host_and_query_may_be_spelled_otherwise(uri: str, form: str) -> None:
    assert asked(uri) == form

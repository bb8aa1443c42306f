"""Which server a name or address belongs to, and requests in the words of that server."""

from __future__ import annotations

import pytest

from airlock.gateway.modern.headers import decode_name
from airlock.gateway.upstream import routes
from airlock.gateway.upstream.routes import CLAIM_S, Names, Owners, Template, encode_name, rebuilt
from tests.fakes.members import body_of, headers_of, outgoing

LIST, TEMPLATES = "resources/list", "resources/templates/list"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("git__push", ("git", "push")),
        ("git__a__b", ("git", "a__b")),
        ("git___x", ("git", "_x")),
        ("git__", None),
        ("git_push", ("bare", "git_push")),
        ("other__push", ("bare", "other__push")),
        ("__push", ("bare", "__push")),
        ("", None),
        ("a\nb", None),
        ("x" * 129, None),
        ("x" * 128, ("bare", "x" * 128)),
        (None, None),
        (7, None),
        ("\ud800", None),
    ],
)
def test_a_name_leads_to_one_server(name: object, found: object):
    assert Names({"git": "git", "": "bare"}).find(name) == found


def test_without_a_server_that_has_no_prefix_a_bare_name_is_nobodys():
    assert Names({"g": "git"}).find("push") is None
    assert Names({"g": "git"}).find("git__push") is None
    assert Names({"g": "git"}).find("g__push") == ("git", "push")


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("db://{table}", "db://orders", True),
        ("db://{table}", "db://", False),
        ("db://{table}", "db://a/b", False),
        ("db://{table}", "DB://orders", False),
        ("db://{table}/rows/{id}", "db://t/rows/7", True),
        ("db://{table}/rows/{id}", "db://t/rows/", False),
        ("db://{table}/rows/{id}", "db://t/x/7", False),
        ("db://{table}/rows/{id}.json", "db://t/rows/7.json", True),
        ("db://{table}/rows/{id}.json", "db://t/rows/.json", False),
        ("{a}-{b}", "1-2-3", True),
        ("{a}-{b}", "1-", False),
        ("{a}-{b}", "-2", False),
        ("{a}{b}", "ab", True),
        ("{a}{b}", "a", False),
        ("x{a}x", "x", False),
        ("x{a}x", "xx", False),
        ("x{a}x", "xxx", True),
        ("{a.b}", "v", True),
        ("db://x", "db://x", True),
        ("db://x", "db://xy", False),
    ],
)
def test_a_template_of_level_1_is_matched(template: str, uri: str, fits: bool):
    made = Template.parse(template)
    assert made is not None
    assert made.matches(uri) is fits


UNREAD = ["{+path}", "{a,b}", "{?q}", "{a*}", "{a:3}", "{#a}", "{/a*}", "{", "}", "{}", "{a}{"]


@pytest.mark.parametrize("text", UNREAD)
def test_what_is_no_template_of_level_1_makes_all_that_begins_as_it_does(text: str):
    made = Template.parse("file:///" + text)
    assert made is not None
    assert made.matches("file:///srv/a?b#c")
    assert made.matches("file:///")
    assert not made.matches("file://srv/a")
    assert Template.parse(text) is None


@pytest.mark.parametrize("text", UNREAD)
def test_a_server_that_lists_an_address_under_any_template_of_another_does_not_get_its_reads(text: str):
    owners = Owners(["fs", "evil"])
    owners.learn("fs", TEMPLATES, ["file:///" + text], 0)
    owners.learn("evil", LIST, ["file:///srv/secret.txt"], 0)
    owners.learn("evil", TEMPLATES, ["file:///home/{x}"], 0)
    assert owners.claim("file:///srv/secret.txt", 1) == ["fs", "evil"]
    assert owners.claim("file:///home/a", 1) == ["fs", "evil"]
    assert owners.claim("file:///srv/other.txt", 1) == ["fs"]


def test_a_server_claims_what_it_listed_and_what_its_templates_make():
    owners = Owners(["git", "db"])
    owners.learn("git", LIST, ["file:///a"], 0)
    owners.learn("db", TEMPLATES, ["db://{t}", "{+bad}"], 0)
    owners.learn("db", "tools/list", ["file:///a"], 0)
    assert owners.claim("file:///a", 1) == ["git"]
    assert owners.claim("db://orders", 1) == ["db"]
    assert owners.claim("db://{t}", 1) == ["db"]
    assert owners.claim("file:///b", 1) == []


def test_a_server_that_lists_an_address_of_another_does_not_get_its_reads():
    owners = Owners(["git", "db"])
    owners.learn("db", TEMPLATES, ["db://{t}"], 0)
    owners.learn("git", LIST, ["db://orders"], 0)
    assert owners.claim("db://orders", 1) == ["git", "db"]


def test_a_claim_holds_for_a_while():
    owners = Owners(["git"])
    owners.learn("git", LIST, ["a:1"], 0)
    owners.learn("git", TEMPLATES, ["b:{x}"], 0)
    assert owners.claim("a:1", CLAIM_S - 1) == owners.claim("b:1", CLAIM_S - 1) == ["git"]
    assert owners.claim("a:1", CLAIM_S) == owners.claim("b:1", CLAIM_S) == []
    owners.learn("git", LIST, ["a:1"], CLAIM_S)
    assert owners.claim("a:1", CLAIM_S) == ["git"]


CLAIMS = [(LIST, "file:///a"), (TEMPLATES, "file:///{x}"), (TEMPLATES, "file:///{+x}")]


@pytest.mark.parametrize(("method", "key"), CLAIMS)
@pytest.mark.parametrize(("other", "others"), CLAIMS)
def test_a_claim_that_lapsed_still_disputes_that_of_another(method: str, key: str, other: str, others: str):
    owners = Owners(["fs", "evil"])
    owners.learn("fs", method, [key], 0)
    for at in (CLAIM_S / 2, CLAIM_S, 100 * CLAIM_S):
        owners.learn("evil", other, [others], at)
        assert owners.claim("file:///a", at + 1) == ["fs", "evil"]
    # Nothing is fresh: they are asked again.
    assert owners.claim("file:///a", 101 * CLAIM_S) == []


@pytest.mark.parametrize(("method", "key"), CLAIMS)
def test_a_claim_is_given_up_by_a_later_list_without_it(method: str, key: str):
    owners = Owners(["old", "new"])
    owners.learn("old", method, [key, "x:y"], 0)
    owners.learn("new", LIST, ["file:///a"], CLAIM_S)
    other = LIST if method == TEMPLATES else TEMPLATES
    owners.learn("old", other, [], CLAIM_S)
    assert owners.claim("file:///a", CLAIM_S) == ["old", "new"]
    owners.learn("old", method, ["x:y"], CLAIM_S)
    assert owners.claim("file:///a", CLAIM_S) == ["new"]
    assert owners.claim("x:y", CLAIM_S) == ["old"]


def test_a_list_for_another_caller_takes_back_no_claim_that_holds():
    owners = Owners(["fs", "evil"])
    owners.learn("fs", LIST, ["file:///a"], 0)
    owners.learn("evil", LIST, ["file:///a"], 0)
    owners.learn("fs", LIST, [], CLAIM_S - 1)
    assert owners.claim("file:///a", CLAIM_S - 1) == ["fs", "evil"]


def test_no_server_pushes_out_what_another_listed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routes, "MAX_URIS", 4)
    monkeypatch.setattr(routes, "MAX_TEMPLATES", 2)
    owners = Owners(["git", "db"])
    owners.learn("git", LIST, ["a:1"], 0)
    owners.learn("git", TEMPLATES, ["b:{x}"], 0)
    owners.learn("db", LIST, [f"c:{n}" for n in range(100)], 0)
    owners.learn("db", TEMPLATES, [f"d{n}:{{x}}" for n in range(100)], 0)
    assert owners.claim("a:1", 1) == owners.claim("b:1", 1) == ["git"]
    assert [uri for n in range(100) if owners.claim(uri := f"c:{n}", 1)] == ["c:98", "c:99"]
    assert [n for n in range(100) if owners.claim(f"d{n}:x", 1)] == [99]


@pytest.mark.parametrize(
    "name", ["push", "a b", "ü", " x", "x ", "=?base64?eA==?=", "=?base64?x", "a\tb", "~", ""]
)
def test_a_name_in_a_header_is_read_as_it_was(name: str):
    value = encode_name(name)
    assert decode_name(value) == name
    assert value.isascii()
    assert not any(byte < 0x20 or byte == 0x7F for byte in value)


def test_names_that_can_stand_in_a_header_do():
    assert encode_name("push") == b"push"
    assert encode_name("=?base64?x") == b"=?base64?x"
    assert encode_name("=?base64?eA==?=") != b"=?base64?eA==?="
    assert encode_name("x ").startswith(b"=?base64?")


def test_a_renamed_request_has_its_headers_made_anew():
    sent = outgoing("tools/call", name="git__push", arguments={"a": 1})
    made = rebuilt(sent, {**sent.params, "name": "püsh"}, name="püsh")
    assert body_of(made)["params"]["name"] == "püsh"
    assert headers_of(made) == {**headers_of(sent), "mcp-name": "=?base64?cMO8c2g=?="}
    assert (made.id, made.principal, made.era) == (sent.id, sent.principal, sent.era)


def test_a_request_for_another_method_has_none_of_the_old_routing_headers():
    sent = outgoing("resources/read", uri="a:1")
    made = rebuilt(sent, {"_meta": {}}, method="resources/list")
    body_of(made)
    assert set(headers_of(sent)) - set(headers_of(made)) == {"mcp-name", "mcp-param-region"}
    assert headers_of(made)["mcp-method"] == "resources/list"


def test_other_params_alone_leave_the_headers():
    sent = outgoing("tools/list")
    made = rebuilt(sent, {**sent.params, "cursor": "2"})
    assert body_of(made)["params"]["cursor"] == "2"
    assert made.headers == sent.headers

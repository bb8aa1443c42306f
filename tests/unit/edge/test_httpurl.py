"""The grammar of upstream addresses and header lines."""

from __future__ import annotations

import pytest

from airlock.edge.httpurl import Target, checked_path, header_line, parse_target, parse_upstream


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://example.org", Target("http", "example.org", 80, "/", b"example.org")),
        ("https://example.org/", Target("https", "example.org", 443, "/", b"example.org")),
        ("HTTP://Example.ORG:8080/Mcp", Target("http", "example.org", 8080, "/Mcp", b"example.org:8080")),
        ("http://example.org:80/a?b=c", Target("http", "example.org", 80, "/a?b=c", b"example.org")),
        ("https://example.org:80/", Target("https", "example.org", 80, "/", b"example.org:80")),
        ("http://h?x=@y/", Target("http", "h", 80, "/?x=@y/", b"h")),
        ("http://h/@x:y@z", Target("http", "h", 80, "/@x:y@z", b"h")),
        ("http://a.b-c.svc_1.:9/", Target("http", "a.b-c.svc_1.", 9, "/", b"a.b-c.svc_1.:9")),
        ("http://127.0.0.1:9000/mcp", Target("http", "127.0.0.1", 9000, "/mcp", b"127.0.0.1:9000")),
        ("http://[::1]/", Target("http", "::1", 80, "/", b"[::1]")),
        ("https://[2001:DB8::0:1]:8443", Target("https", "2001:db8::1", 8443, "/", b"[2001:db8::1]:8443")),
        ("unix:/run/x.sock", Target("unix", "/run/x.sock", 0, "/mcp", b"localhost")),
        ("Unix:/Run/x", Target("unix", "/Run/x", 0, "/mcp", b"localhost")),
        ("unix:/run/x.sock:/", Target("unix", "/run/x.sock", 0, "/", b"localhost")),
        ("unix:/run/x.sock:/a?b=c", Target("unix", "/run/x.sock", 0, "/a?b=c", b"localhost")),
        ("unix:/run/a:b@c:/mcp:/x", Target("unix", "/run/a:b@c", 0, "/mcp:/x", b"localhost")),
        ("unix:/" + "x" * 106, Target("unix", "/" + "x" * 106, 0, "/mcp", b"localhost")),
    ],
)
def test_an_address_is_read(url, target):
    assert parse_upstream(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "//example.org",
        "ftp://example.org",
        "unix:",
        "unix:x.sock",
        "unix:./x.sock",
        "unix://run/x",
        "unix:///run/x",
        "unix:/run/x?a=b",
        "unix:/run/x#y",
        "unix:/run/x y",
        "unix:/run/x\n",
        "unix:/run/x:/a b",
        "unix:/run/\x00x",
        "unix:/" + "x" * 107,
        "http:",
        "http://",
        "http:///path",
        "http://:80/",
        "http://?x",
        "http://h:/",
        "http://h:0/",
        "http://h:65536/",
        "http://h:99999999/",
        "http://h:+80/",
        "http://h:8x/",
        "http://user@h/",
        "http://user:pw@h/",
        "http://@h/",
        "http://h/#x",
        "http://h#",
        "http://h/a b",
        " http://h/",
        "http://h/\n",
        "http://h/\r\nX: y",
        "http://h/\t",
        "http://h\x00/",
        "http://h/\x7f",
        "http://h/\u00e9",
        "http://h\u00e9/",
        "http://h\\@evil/",
        "http://.h/",
        "http://h..i/",
        "http://-h/",
        "http://h-/",
        "http://" + "a" * 64 + "/",
        "http://" + "a." * 127 + "aa/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://1.2.3.256/",
        "http://1.2.3.04/",
        "http://[::1",
        "http://[]/",
        "http://[::g]/",
        "http://[1::2::3]/",
        "http://[fe80::1%25eth0]/",
        "http://[127.0.0.1]/",
        "http://[::1]x/",
        "http://::1/",
    ],
)
def test_anything_else_is_refused_without_repeating_it(url):
    with pytest.raises(ValueError) as caught:
        parse_upstream(url)
    assert type(caught.value) is ValueError
    assert "user" not in str(caught.value) or "user name" in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_header_line_is_made():
    assert header_line(b"Mcp-Name", b"t\xc3\xa4st =?") == b"Mcp-Name: t\xc3\xa4st =?\r\n"
    assert header_line(b"x", b"") == b"x: \r\n"


@pytest.mark.parametrize("name", [b"", b"a b", b"a:", b"a\r\nb", b"a\n", b"\xe9", b"a\x00", b"(a)"])
def test_a_header_name_that_is_no_token_is_refused(name):
    with pytest.raises(ValueError, match="token"):
        header_line(name, b"v")


@pytest.mark.parametrize("code", [*range(0x20), 0x7F])
def test_a_header_value_cannot_start_a_second_line(code):
    for value in (b"a%cb", b"%c", b"a%c"):
        with pytest.raises(ValueError, match="control"):
            header_line(b"x", value % code)


@pytest.mark.parametrize("name", [b"Content-Length", b"HOST", b"transfer-encoding", b"Connection", b"expect"])
def test_headers_that_frame_the_request_belong_to_the_client(name):
    with pytest.raises(ValueError, match="client itself"):
        header_line(name, b"1")


def test_a_socket_path_is_absolute_and_fits_its_address():
    with pytest.raises(ValueError, match="absolute"):
        parse_upstream("unix:run/x.sock")
    with pytest.raises(ValueError, match="at most 107 bytes"):
        parse_upstream("unix:/" + "x" * 107 + ":/mcp")


def test_a_socket_is_an_upstream_and_no_address_of_anything_else():
    with pytest.raises(ValueError, match="http:// or https://"):
        parse_target("unix:/run/x.sock")
    assert parse_target("http://h/") == parse_upstream("http://h/")


def test_a_path_of_the_same_origin_is_checked():
    assert checked_path("/messages?session=1") == "/messages?session=1"


@pytest.mark.parametrize(
    "path",
    ["", "x", "http://other/", "?x", "/a b", "/a\r\nX: y", "/a\n", "/\x00", "/\xe9", "/a#b", '/"', "/<"],
)
def test_a_path_cannot_start_a_second_request_or_leave_the_origin(path):
    with pytest.raises(ValueError, match="begins with /"):
        checked_path(path)

"""Remake `hostile_json.json`: texts that JSON parsers read differently, and what the strict ones must say.

Run it from the repository's root: `python tests/vectors/make_hostile_json.py`.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path


def in_a_call(value: bytes) -> bytes:
    """Return a request that carries `value` as an argument."""
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"x":' + value + b"}}}"


VECTORS: list[tuple[str, bytes, str]] = [
    ("a byte order mark", b'\xef\xbb\xbf{"id":1}', "encoding"),
    ("UTF-16 with a mark", '{"id":1}'.encode("utf-16"), "encoding"),
    ("UTF-16 big endian without a mark", '{"id":1}'.encode("utf-16-be"), "syntax"),
    ("UTF-16 little endian without a mark", '{"id":1}'.encode("utf-16-le"), "syntax"),
    ("UTF-32 little endian without a mark", '{"id":1}'.encode("utf-32-le"), "syntax"),
    ("a raw encoded surrogate", in_a_call(b'"\xed\xa0\x80"'), "encoding"),
    ("a raw encoded surrogate pair", in_a_call(b'"\xed\xa0\xbd\xed\xb8\x80"'), "encoding"),
    ("an overlong NUL", in_a_call(b'"\xc0\x80"'), "encoding"),
    ("an overlong slash", in_a_call(b'"\xe0\x80\xaf"'), "encoding"),
    ("a code point beyond U+10FFFF", in_a_call(b'"\xf4\x90\x80\x80"'), "encoding"),
    ("a stray continuation byte", in_a_call(b'"\x80"'), "encoding"),
    ("a broken byte in a key", b'{"\xff":1}', "encoding"),
    ("a cut sequence at the end", b'"\xc3', "encoding"),
    ("Latin-1", in_a_call(b'"caf\xe9"'), "encoding"),
    ("nothing", b"", "syntax"),
    ("blanks only", b" \t\r\n", "syntax"),
    ("a NUL after the value", b"{}\x00", "syntax"),
    ("a form feed before the value", b"\x0c{}", "syntax"),
    ("a no-break space before the value", b"\xc2\xa0{}", "syntax"),
    ("two values", b"{}{}", "syntax"),
    ("a cut object", b'{"a":1', "syntax"),
    ("a cut string", b'{"a":"b', "syntax"),
    ("a string that ends in a backslash", b'"a\\', "syntax"),
    ("a comma after the last member", b'{"a":1,}', "syntax"),
    ("a comma after the last item", b"[1,]", "syntax"),
    ("a missing colon", b'{"a" 1}', "syntax"),
    ("a comma for a colon", b'{"a",1}', "syntax"),
    ("a key that is no string", b"{1:2}", "syntax"),
    ("a key without quotes", b"{a:1}", "syntax"),
    ("single quotes", b"{'a':1}", "syntax"),
    ("a comment", b'{"a":1/**/}', "syntax"),
    ("brackets that do not match", b'{"a":[1}]', "syntax"),
    ("a closing bracket first", b"]", "syntax"),
    ("closing brackets without end", b"]" * 200, "syntax"),
    ("a leading zero", in_a_call(b"01"), "syntax"),
    ("a leading plus", in_a_call(b"+1"), "syntax"),
    ("a point without digits", in_a_call(b"1."), "syntax"),
    ("a number that begins with a point", in_a_call(b".5"), "syntax"),
    ("hexadecimal", in_a_call(b"0x1f"), "syntax"),
    ("a lone minus", in_a_call(b"-"), "syntax"),
    ("an exponent without digits", in_a_call(b"1e"), "syntax"),
    ("Arabic digits", in_a_call("١".encode()), "syntax"),
    ("a literal in capitals", in_a_call(b"True"), "syntax"),
    ("undefined", in_a_call(b"undefined"), "syntax"),
    ("a raw newline in a string", in_a_call(b'"a\nb"'), "syntax"),
    ("a raw NUL in a string", in_a_call(b'"a\x00b"'), "syntax"),
    ("a raw tab in a key", b'{"a\tb":1}', "syntax"),
    ("an unknown escape", in_a_call(b'"\\x41"'), "syntax"),
    ("a short unicode escape", in_a_call(b'"\\u12"'), "syntax"),
    ("a unicode escape with a sign", in_a_call(b'"\\u+123"'), "syntax"),
    ("a unicode escape with an underscore", in_a_call(b'"\\u1_23"'), "syntax"),
    ("a duplicate key at the top", b'{"id":1,"id":2}', "duplicate"),
    ("a duplicate key with equal values", b'{"id":1,"id":1}', "duplicate"),
    ("a duplicate key deep inside", in_a_call(b'[{"a":[{"b":1,"c":2,"b":3}]}]'), "duplicate"),
    ("a duplicate key hidden by an escape", b'{"id":1,"\\u0069d":2}', "duplicate"),
    ("a duplicate key and a blank before the colon", b'{"id":1,"id" :2}', "duplicate"),
    ("a duplicate key and a colon in a string", b'{"url":"http://x","id":1,"id":2}', "duplicate"),
    ("a duplicate key and a colon spelled as an escape", b'{"a":"\\u003a","a":1}', "duplicate"),
    ("a duplicate empty key", b'{"":1,"":2}', "duplicate"),
    ("a duplicate key that is a lone surrogate", b'{"\\ud800":1,"\\uD800":2}', "duplicate"),
    ("a duplicate key whose value is an object", b'{"a":{"x":1},"a":{"y":2}}', "duplicate"),
    ("a duplicate key beside quotes and backslashes", b'{"a\\\\":"\\"","b":"\\\\","a\\\\":":"}', "duplicate"),
    ("keys that differ in case only", b'{"id":1,"ID":2}', "ok"),
    ("keys that differ in Unicode form only", b'{"\xc3\xa9":1,"e\xcc\x81":2}', "ok"),
    ("the same key in two objects", b'[{"a":1},{"a":2}]', "ok"),
    ("NaN", in_a_call(b"NaN"), "number"),
    ("Infinity", in_a_call(b"Infinity"), "number"),
    ("-Infinity", in_a_call(b"-Infinity"), "number"),
    ("NaN alone", b"NaN", "number"),
    ("1e400", in_a_call(b"1e400"), "number"),
    ("-1e400", in_a_call(b"-1e400"), "number"),
    ("1E+400", in_a_call(b"1E+400"), "number"),
    ("the first real beyond a double", in_a_call(b"1.7976931348623159e308"), "number"),
    ("an exponent of twenty digits", in_a_call(b"1e99999999999999999999"), "number"),
    ("an integer of 400 digits", in_a_call(b"1" * 400), "number"),
    ("a negative integer of 400 digits", in_a_call(b"-" + b"9" * 400), "number"),
    ("an integer of 5000 digits", in_a_call(b"7" * 5000), "number"),
    ("an integer of 309 digits beyond a double", in_a_call(b"2" + b"0" * 308), "number"),
    ("the first integer beyond a double", in_a_call(str(2**1024 - 2**970).encode()), "number"),
    ("400 digits and a point", in_a_call(b"1" * 400 + b".5"), "number"),
    ("the largest double as an integer", in_a_call(str(2**1024 - 2**971).encode()), "ok"),
    ("the last integer that rounds to a double", in_a_call(str(2**1024 - 2**970 - 1).encode()), "ok"),
    ("1e308", in_a_call(b"1e308"), "ok"),
    ("400 digits and a small exponent", in_a_call(b"1" * 400 + b"e-300"), "ok"),
    ("zero with a huge exponent", in_a_call(b"0e99999999999"), "ok"),
    ("a number too small for a double", in_a_call(b"1e-400"), "ok"),
    (
        "integers beyond 64 bits",
        in_a_call(b"[18446744073709551616,-9223372036854775809,123456789012345678901234567890]"),
        "ok",
    ),
    ("400 digits in a string", in_a_call(b'"' + b"1" * 400 + b'"'), "ok"),
    ("400 digits after a point", in_a_call(b"0." + b"1" * 400), "ok"),
    ("minus zero", in_a_call(b"[-0,-0.0,0]"), "ok"),
    ("NaN in a string", in_a_call(b'"NaN Infinity"'), "ok"),
    ("a lone high surrogate", in_a_call(b'"\\ud800"'), "ok"),
    ("a lone low surrogate in capitals", in_a_call(b'"\\uDFFF!"'), "ok"),
    ("surrogates the wrong way round", in_a_call(b'"\\ude00\\ud83d"'), "ok"),
    ("a surrogate pair", in_a_call(b'"\\ud83d\\ude00"'), "ok"),
    ("a lone surrogate as a key and an id", b'{"id":"\\udead","\\ud800":1}', "ok"),
    ("an escaped backslash before ud", in_a_call(b'"\\\\ud800"'), "ok"),
    ("an escaped NUL", in_a_call(b'"\\u0000"'), "ok"),
    ("DEL and C1 controls", in_a_call(b'"\x7f\xc2\x85"'), "ok"),
    ("noncharacters", in_a_call("\ufffe\uffff\U0010ffff".join('""').encode()), "ok"),
    ("a name of Python's object model as a key", b'{"__proto__":1,"__class__":2}', "ok"),
    ("a scalar", b" 1 ", "ok"),
    ("null", b"null", "ok"),
    ("an empty object", b"{}", "ok"),
    ("65 levels", b"[" * 65 + b"]" * 65, "ok"),
    ("1000 lists", b"[" * 1000 + b"]" * 1000, "ok"),
    ("1001 lists", b"[" * 1001 + b"]" * 1001, "depth"),
    ("1000 objects", b'{"a":' * 999 + b"{}" + b"}" * 999, "ok"),
    ("1001 objects", b'{"a":' * 1000 + b"{}" + b"}" * 1000, "depth"),
    ("1000 levels with a duplicate key inside", b"[" * 999 + b'{"a":1,"a":2}' + b"]" * 999, "duplicate"),
    ("1000 levels with NaN inside", b"[" * 1000 + b"NaN" + b"]" * 1000, "number"),
    ("1000 levels that close wrongly", b"[" * 1000 + b"]" * 999 + b"}", "syntax"),
    ("1001 open brackets and nothing more", b"[" * 1001, "depth"),
    ("1000 open brackets and nothing more", b"[" * 1000, "syntax"),
    ("2000 brackets in a string", in_a_call(b'"' + b"[{" * 1000 + b'"'), "ok"),
    (
        "brackets in strings with quotes and backslashes",
        in_a_call(b'["\\"[[[","\\\\","]]]\\\\\\"{{{"]'),
        "ok",
    ),
    ("brackets behind a string that closes early", b'["\\\\",' + b"[" * 1000 + b"]" * 1000 + b"]", "depth"),
    ("2000 brackets side by side", b"[" + b"[]," * 1999 + b"[]]", "ok"),
]


def document() -> str:
    """Return the text of the file."""
    entries = [
        {"name": name, "base64": base64.b64encode(data).decode(), "expect": expect}
        for name, data, expect in VECTORS
    ]
    return json.dumps(entries, indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("hostile_json.json").write_text(document(), encoding="utf-8")

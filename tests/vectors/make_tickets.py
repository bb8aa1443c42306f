"""Remakes tickets.json: `python tests/vectors/make_tickets.py`.

Written from gateway.md 8.1 with the standard library alone, so that it repeats no mistake of the package.
Expectations are by class: `claims` when the ticket opens, `refused` when it does not.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

FILE = Path(__file__).with_name("tickets.json")
SECRET = bytes(range(32))
APPROVER = hmac.new(SECRET, b"approve", hashlib.sha256).digest()
CLAIMS = {
    "p": "alice",
    "t": "drop_bucket",
    "h": hashlib.sha256(b"{}").hexdigest(),
    "e": "prod",
    "u": "http://127.0.0.1:8080/mcp",
    "k": "0b5c8b1e6a6f4d0f8a63a1f7c9d2e410",
    "exp": 1700000600.25,
    "m": "oob",
}


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


SEALED = b64(bytes(range(60)))


def ticket(body: object, key: bytes = SECRET, form: str = "al1") -> str:
    """Sign `body`: bytes as they are, anything else as compact JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return signed(b64(raw), key, form)


def signed(part: str, key: bytes = SECRET, form: str = "al1") -> str:
    return f"{form}.{part}.{b64(hmac.new(key, part.encode(), hashlib.sha256).digest())}"


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in CLAIMS.items() if key != name}


def respelled(text: str) -> str:
    """Change the bits of the last character that decoding throws away."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1]


def cases() -> list[dict[str, object]]:
    made: list[dict[str, object]] = []

    def good(name: str, claims: dict[str, object], text: str | None = None) -> None:
        shown = {**claims, **{name: claims.get(name) for name in ("m", "s", "us")}}
        made.append(
            {
                "name": name,
                "as": "agent",
                "ticket": text or ticket(claims),
                "expect": "claims",
                "claims": shown,
            }
        )

    def bad(name: str, text: object, form: str = "agent") -> None:
        made.append({"name": name, "as": form, "ticket": text, "expect": "refused"})

    agent, approver = ticket(CLAIMS), ticket(CLAIMS, APPROVER, "al2")
    prefix, part, signature = agent.split(".")
    text = json.dumps(CLAIMS)
    good("as minted", CLAIMS)
    made.append(
        {
            "name": "approve link",
            "as": "approver",
            "ticket": approver,
            "expect": "claims",
            "claims": {**CLAIMS, "s": None, "us": None},
        }
    )
    good("inband", {**CLAIMS, "m": "inband"})
    good("no mode", without("m"))
    good("null mode", {**CLAIMS, "m": None})
    good("unknown mode", {**CLAIMS, "m": "telepathy"})
    good("whole number", {**CLAIMS, "exp": 1700000600})
    good("other script", {**CLAIMS, "p": "алиса", "t": "тул"})
    good("lone surrogate", {**CLAIMS, "p": "a\ud800"})
    good(
        "raw utf-8 and blanks",
        {**CLAIMS, "p": "é"},
        ticket(json.dumps({**CLAIMS, "p": "é"}, ensure_ascii=False).encode()),
    )

    good("stage confirm by name", {**CLAIMS, "s": "confirm"})
    good("stage dryrun", {**CLAIMS, "s": "dryrun", "us": SEALED})
    good("stage upstream", {**CLAIMS, "s": "upstream", "us": SEALED})
    good("null stage", {**CLAIMS, "s": None, "us": None})

    bad("agent's ticket on the approve page", agent, "approver")
    for name in ("dryrun", "upstream"):
        staged = {**CLAIMS, "s": name, "us": SEALED}
        bad(f"stage {name} on the approve page", ticket(staged, APPROVER, "al2"), "approver")
        bad(f"stage {name} without what was asked", ticket({**CLAIMS, "s": name}))
    bad("stage confirm with what was asked", ticket({**CLAIMS, "s": "confirm", "us": SEALED}))
    bad("no stage with what was asked", ticket({**CLAIMS, "us": SEALED}))
    for odd_stage in ("", "Dryrun", "approve", 1, True, ["dryrun"]):
        bad(f"stage {odd_stage!r}", ticket({**CLAIMS, "s": odd_stage, "us": SEALED}))
    bad("what was asked is a number", ticket({**CLAIMS, "s": "dryrun", "us": 1}))
    edited = b64(json.dumps({**CLAIMS, "s": "upstream", "us": SEALED}, separators=(",", ":")).encode())
    dry = ticket({**CLAIMS, "s": "dryrun", "us": SEALED})
    bad("stage edited", f"al1.{edited}.{dry.split('.')[2]}")
    bad("approve link as requestState", approver)
    bad("agent's ticket with the other prefix", f"al2.{part}.{signature}", "approver")
    bad("approve link with the other prefix", "al1" + approver[3:])
    bad("other secret", ticket(CLAIMS, b"x" * 32))
    bad("signed with an empty key", ticket(CLAIMS, b""))
    bad(
        "mode edited",
        f"{prefix}.{b64(json.dumps({**CLAIMS, 'm': 'inband'}, separators=(',', ':')).encode())}.{signature}",
    )
    bad("empty", "")
    bad("prefix only", "al1.")
    bad("no signature", f"al1.{part}")
    bad("empty signature", f"al1.{part}.")
    bad("empty claims", signed(""))
    bad("four parts", f"{agent}.")
    bad("upper-case prefix", "AL1" + agent[3:])
    bad("blank before", " " + agent)
    bad("newline after", agent + "\n")
    bad("padded signature", agent + "=")
    bad("padded claims", signed(part + "=" * (-len(part) % 4 or 4)))
    bad("signature spelled otherwise", respelled(agent))
    bad("signature in hex", f"al1.{part}." + hmac.new(SECRET, part.encode(), hashlib.sha256).hexdigest())
    loose = next(p for p in (b64((" " * n + text).encode()) for n in range(3)) if len(p) % 4)
    bad("claims spelled otherwise", signed(respelled(loose)))
    bad("claims with a newline in the base64", signed(part[:8] + "\n" + part[8:]))
    other = b64(json.dumps({**CLAIMS, "p": "?>?>?>"}, ensure_ascii=False).encode())
    bad("claims in the other alphabet", signed(other.replace("-", "+").replace("_", "/")))
    bad("not ascii", agent + "é")
    bad("lone surrogate in the ticket", agent + "\ud800")
    bad("claims not JSON", ticket(b"{"))
    bad("claims not UTF-8", ticket(b"\xff"))
    bad("claims with a byte order mark", ticket(b"\xef\xbb\xbf" + text.encode()))
    bad("claims an array", ticket([CLAIMS]))
    bad("claims a string", ticket("al1"))
    bad("key twice", ticket(text.replace('"k":', '"k": "other", "k":').encode()))
    bad("extra claim", ticket({**CLAIMS, "x": 1}))
    for name in CLAIMS:
        if name != "m":
            bad(f"without {name}", ticket(without(name)))
            bad(f"{name} is null", ticket({**CLAIMS, name: None}))
            bad(f"{name} is a list", ticket({**CLAIMS, name: [CLAIMS[name]]}))
    bad("k a number", ticket({**CLAIMS, "k": 1}))
    bad("m a number", ticket({**CLAIMS, "m": 1}))
    for name, exp in (
        ("true", True),
        ("text", "1700000600"),
        ("NaN", float("nan")),
        ("infinity", float("inf")),
    ):
        bad(f"exp is {name}", ticket({**CLAIMS, "exp": exp}))
    bad("exp beyond a double", ticket(text.replace("1700000600.25", "1e400").encode()))
    bad("exp of many digits", ticket(text.replace("1700000600.25", "9" * 400).encode()))
    for name, odd in (("null", None), ("number", 1), ("object", {"al1": agent}), ("array", [agent])):
        bad(f"{name} for a ticket", odd)
    return made


def document() -> str:
    vectors = {"secret_hex": SECRET.hex(), "cases": cases()}
    return json.dumps(vectors, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")

"""A bearer token for a first try: HS256 with `sub`, `groups` and `exp`, signed with AIRLOCK_JWT_SECRET.

Good for one hour. In earnest, tokens come from whatever knows your agents; the agent never sees the secret.
.venv/bin/python examples/make_token.py NAME [GROUP ...]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import sys
import time

LIFETIME_S = 3600


def token(secret: bytes, name: str, groups: list[str], now: float) -> str:
    """Sign a token that names `name` until an hour after `now` (Unix seconds)."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"sub": name, "groups": groups, "exp": int(now) + LIFETIME_S}
    signed = part(b'{"alg":"HS256","typ":"JWT"}') + "." + part(json.dumps(claims).encode())
    return signed + "." + part(hmac.digest(secret, signed.encode(), hashlib.sha256))


def main() -> int:
    """Print a token; 1 when there is no secret to sign it with."""
    parser = argparse.ArgumentParser(description="Print a bearer token signed with AIRLOCK_JWT_SECRET.")
    parser.add_argument("name", metavar="NAME", help="whom the token names")
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="a group of theirs")
    options = parser.parse_args()
    secret = os.environ.get("AIRLOCK_JWT_SECRET")
    if not secret:
        print("make_token: AIRLOCK_JWT_SECRET is not set", file=sys.stderr)
        return 1
    print(token(os.fsencode(secret), options.name, options.groups, time.time()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Harmless texts of many sorts, among them all that looks like a secret or a hidden character and is none."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator

from bench.hygiene.prose import PROSE
from bench.hygiene.sample import Sample, pick

__all__ = ["harmless"]

LETTERS = string.ascii_letters + string.digits
EACH = 20
"""Texts of each sort that is made with chance in it."""


def harmless(chance: random.Random) -> Iterator[Sample]:
    """Make every harmless sample."""
    for kind, texts in PROSE.items():
        for text in texts:
            yield Sample(kind, text)
    for kind, make in _MADE.items():
        for _ in range(EACH):
            yield Sample(kind, make(chance))


def _digest(chance: random.Random, algorithm: str = "sha256") -> str:
    return hashlib.new(algorithm, chance.randbytes(8)).hexdigest()


def _base64(chance: random.Random, length: int) -> str:
    return base64.b64encode(chance.randbytes(length)).decode()


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(bytes=chance.randbytes(16), version=4))


def _slug(chance: random.Random) -> str:
    words = "api web auth token secret cache queue worker billing search login data key vault payment".split()
    return "-".join(chance.sample(words, chance.randint(2, 4)))


def _git_log(chance: random.Random) -> str:
    return "\n".join(
        f"commit {_digest(chance, 'sha1')}\nAuthor: Bob <bob@example.org>\nDate:   Tue Mar 3 10:0{n}:00 2026 +0100\n\n"
        f"    Rotate the {_slug(chance)} and drop the old token\n"
        for n in range(4)
    )


def _package_lock(chance: random.Random) -> str:
    packages = {
        f"node_modules/js-tokens-{n}": {
            "version": f"{n}.4.1",
            "resolved": f"https://packages.example/js-tokens/-/js-tokens-{n}.4.1.tgz",
            "integrity": "sha512-" + _base64(chance, 64),
        }
        for n in range(5)
    }
    return json.dumps({"name": "shop", "lockfileVersion": 3, "packages": packages}, indent=2)


def _uv_lock(chance: random.Random) -> str:
    return "\n".join(
        f'[[package]]\nname = "tokenize-{n}"\nversion = "{n}.1.0"\nwheels = [\n    {{ url = "https://files.example.org/packages/'
        f'{_digest(chance)[:2]}/tokenize_{n}-py3-none-any.whl", hash = "sha256:{_digest(chance)}", size = {n}42 }},\n]\n'
        for n in range(4)
    )


def _go_sum(chance: random.Random) -> str:
    return "\n".join(f"golang.org/x/oauth{n} v0.{n}.0 h1:{_base64(chance, 32)}" for n in range(8))


def _pods(chance: random.Random) -> str:
    rows = [
        f"{_slug(chance)}-{_digest(chance)[:10]}-{''.join(chance.choices(LETTERS.lower(), k=5))}   1/1     Running   0   {n}d"
        for n in range(10)
    ]
    return "\n".join(["NAME   READY   STATUS    RESTARTS   AGE", *rows])


def _pod(chance: random.Random) -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {_slug(chance)}\n  uid: {_uuid(chance)}\nspec:\n  containers:\n"
        f"  - name: web\n    image: registry.example.org/web@sha256:{_digest(chance)}\n    env:\n    - name: DB_PASSWORD\n"
        f"      valueFrom:\n        secretKeyRef:\n          name: {_slug(chance)}\n          key: password\n"
        f"  imagePullSecrets:\n  - name: {_slug(chance)}\n  serviceAccountToken:\n    path: token\n"
        f"status:\n  containerStatuses:\n  - containerID: containerd://{_digest(chance)}\n"
    )


def _described(chance: random.Random) -> str:
    end = "".join(chance.choices(string.ascii_lowercase + string.digits, k=5))
    return (
        f"Name:                {_slug(chance)}\nMountable secrets:   default-token-{end}\nTokens:              default-token-{end}\n"
        f"Secret:    {_slug(chance)}-{end}\n    SecretName:  {_slug(chance)}-{end}\n    Optional:    false\n"
        f"Type:  kubernetes.io/service-account-token\n\nData\n====\nca.crt:     1099 bytes\nnamespace:  7 bytes\ntoken:      {chance.randint(900, 999)} bytes\n"
    )


def _terraform(chance: random.Random) -> str:
    return (
        f'  # aws_db_instance.main will be updated in-place\n  ~ resource "aws_db_instance" "main" {{\n      id = "{_slug(chance)}"\n'
        f"      ~ password   = (sensitive value)\n      + api_key    = (known after apply)\n"
        f'        arn        = "arn:aws:rds:eu-west-1:{chance.randint(10**11, 10**12 - 1)}:db:{_slug(chance)}"\n'
        f'        secret     = "arn:aws:secretsmanager:eu-west-1:{chance.randint(10**11, 10**12 - 1)}:secret:Prod/Db-{_digest(chance)[:6]}"\n'
        f'      ~ etag       = "{_digest(chance, "md5")}" -> (known after apply)\n    }}\n\nPlan: 0 to add, 1 to change, 0 to destroy.'
    )


def _public_key(chance: random.Random) -> str:
    return chance.choice(
        [
            f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{_base64(chance, 369)} bob@laptop",
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{_base64(chance, 32).rstrip('=')} alice@example.org",
            f"github.com ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAI{_base64(chance, 90)}",
            f"|1|{_base64(chance, 20)}|{_base64(chance, 20)} ssh-rsa AAAAB3NzaC1yc2EA{_base64(chance, 280)}",
            f"public_key: ssh-rsa AAAAB3NzaC1yc2EA{_base64(chance, 280)}\nfingerprint: SHA256:{_base64(chance, 32).rstrip('=')}",
        ]
    )


def _block(chance: random.Random) -> str:
    sort = chance.choice(
        [
            "CERTIFICATE",
            "PUBLIC KEY",
            "RSA PUBLIC KEY",
            "CERTIFICATE REQUEST",
            "PGP SIGNATURE",
            "DH PARAMETERS",
        ]
    )
    body = _base64(chance, chance.randint(200, 900))
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    block = "\n".join([f"-----BEGIN {sort}-----", *lines, f"-----END {sort}-----"])
    if chance.random() < 0.3:
        return f"certificate-authority-data: {base64.b64encode(block.encode()).decode()}"
    return json.dumps({"tls.crt": block}) if chance.random() < 0.5 else block


def _identifiers(chance: random.Random) -> str:
    return pick(
        chance,
        lambda: "\n".join(_uuid(chance) for _ in range(6)),
        lambda: json.dumps(
            {
                "id": _uuid(chance),
                "request_id": _uuid(chance).replace("-", ""),
                "trace": _digest(chance, "md5"),
            }
        ),
        lambda: f"token_id: {_uuid(chance)}\nsecret_id={_uuid(chance)}\napi_key_id={_uuid(chance)}",
        lambda: f"traceparent: 00-{_digest(chance, 'md5')}-{_digest(chance)[:16]}-01",
        lambda: f"arn:aws:iam::{chance.randint(10**11, 10**12 - 1)}:role/{_slug(chance)}",
        lambda: f"i-{_digest(chance)[:17]} vpc-{_digest(chance)[:17]} sg-{_digest(chance)[:17]}",
        lambda: (
            f"https://example.org/objects/{''.join(chance.choices(LETTERS, k=22))}?v={_digest(chance)[:8]}"
        ),
        lambda: f'"etag": "W/\\"{_digest(chance, "md5")}\\"", "cursor": "{_base64(chance, 30)}"',
    )


def _hashes(chance: random.Random) -> str:
    return pick(
        chance,
        lambda: "\n".join(f"{_digest(chance)}  dist/file-{n}.tar.gz" for n in range(6)),
        lambda: f"MD5 ({_slug(chance)}.iso) = {_digest(chance, 'md5')}",
        lambda: f"sha256:{_digest(chance)}\nsha1:{_digest(chance, 'sha1')}\nsha512-{_base64(chance, 64)}",
        lambda: (
            f'<script src="/a.js" integrity="sha384-{_base64(chance, 48)}" crossorigin="anonymous"></script>'
        ),
        lambda: f'Digest: sha-256={_base64(chance, 32)}\nETag: "{_digest(chance, "sha1")}"',
        lambda: (
            f"FROM python:3.12@sha256:{_digest(chance)}\nRUN pip install --require-hashes -r requirements.txt"
        ),
        lambda: f"image: docker://alpine:3.18@sha256:{_digest(chance)}",
    )


def _image(chance: random.Random) -> str:
    body = _base64(chance, chance.randint(2000, 9000))
    return chance.choice(
        [
            f"![plot](data:image/png;base64,iVBORw0KGgo{body})",
            f".icon {{ background: url(data:image/svg+xml;base64,{body}); }}",
            json.dumps({"type": "image", "data": body, "mimeType": "image/png"}),
            f"@font-face {{ src: url('data:font/woff2;base64,d09GMgAB{body}') format('woff2'); }}",
        ]
    )


def _minified(chance: random.Random) -> str:
    names = chance.sample(string.ascii_lowercase, 8)
    a, b, c, d, e, f, g, h = names
    return (
        f"!function({a},{b}){{var {c}={a}.token,{d}={{password:{b}.password,token:{c}||null,secret:!0,apiKey:{e}.env.API_KEY}};"
        f"function {f}({g}){{return {g}?{g}.accessToken:void 0}}{h}.prototype.getToken=function(){{return this.token||(this.token={f}(this))}};"
        f'{a}.headers.Authorization="Bearer "+{c},{b}.csrfToken={g}.cookies["XSRF-TOKEN"];{a}.exports={{tokenTypes:{d},KEY:"{_slug(chance)}"}}}}'
        f"(window,document);//# sourceMappingURL=app.{_digest(chance)[:8]}.js.map"
    )


def _paged(chance: random.Random) -> str:
    token = _base64(chance, 48)
    name = chance.choice(
        [
            "nextPageToken",
            "next_token",
            "NextToken",
            "pageToken",
            "continuationToken",
            "next_page_token",
            "syncToken",
        ]
    )
    return json.dumps({"items": [{"id": n} for n in range(3)], name: token, "kind": "list"})


def _log(chance: random.Random) -> str:
    return "\n".join(
        f"2026-03-0{n}T10:22:31.{chance.randint(100, 999)}Z {chance.choice(['INFO', 'WARN'])} [{_slug(chance)}] request_id={_uuid(chance)} "
        f"user=bob method=POST path=/v1/token status=200 token refreshed for session {_digest(chance)[:12]} in {n}3 ms"
        for n in range(1, 8)
    )


def _table(chance: random.Random) -> str:
    rows = [
        f"{n},{_slug(chance)},{chance.randint(1, 9999)},{chance.random():.6f},{_digest(chance)[:7]}"
        for n in range(12)
    ]
    return "\n".join(["id,token,count,score,rev", *rows])


def _dotted(chance: random.Random) -> str:
    return f"eyes.on.{_slug(chance)} org.example.{_slug(chance)}.TokenService v{chance.randint(1, 9)}.{chance.randint(0, 30)}.{chance.randint(0, 9)}-rc.1 eyewitness-account.example.org"


_MADE: dict[str, Callable[[random.Random], str]] = {
    "git log": _git_log,
    "package-lock": _package_lock,
    "uv.lock": _uv_lock,
    "go.sum": _go_sum,
    "kubectl get pods": _pods,
    "kubectl pod": _pod,
    "kubectl describe": _described,
    "terraform": _terraform,
    "public key": _public_key,
    "certificate": _block,
    "identifier": _identifiers,
    "hash": _hashes,
    "image": _image,
    "minified": _minified,
    "page token": _paged,
    "log": _log,
    "table": _table,
    "dotted name": _dotted,
}

"""An authorization server as a process: `oidc-provider-mock` as it is, or taught what larger providers do.

    python oauth_provider.py [--jwt] PORT

With `--jwt` its access tokens are JWTs for the `resource` that was asked for (RFC 8707, 9068), its metadata names PKCE,
it registers clients that have no secret, and it exchanges tokens (RFC 8693): one it made itself, for a client that
proves itself by `gateway` and its secret.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from tests.fakes.processes import ROOT, Lines, clean_env, wait_port

__all__ = ["CALLBACK", "SECRET", "Provider", "logged_in", "provider", "sent_back"]

CALLBACK = "http://127.0.0.1:1/callback"
SECRET = "exchange-" + "secret"
_METHODS = ["client_secret_basic", "client_secret_post", "none"]
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


class Provider:
    """A running provider. `lines` is what it wrote, one line for each request."""

    def __init__(self, port: int, lines: Lines) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.lines = lines

    @property
    def jwks_uri(self) -> str:
        return f"{self.base}/jwks"

    @property
    def token_url(self) -> str:
        return f"{self.base}/oauth2/token"

    def claims(self, subject: str, **claims: Any) -> None:
        """Let the ID tokens of `subject` say more."""
        body = json.dumps(claims).encode()
        headers = {"content-type": "application/json"}
        urllib.request.urlopen(
            urllib.request.Request(f"{self.base}/users/{subject}", body, headers, method="PUT"), timeout=30
        ).close()

    def login(self, subject: str, client: str, **more: str) -> dict[str, Any]:
        """Log in by the code flow, and return the answer of the token endpoint."""
        query = {
            "client_id": client,
            "redirect_uri": CALLBACK,
            "response_type": "code",
            "scope": "openid",
            **more,
        }
        code = logged_in(f"{self.base}/oauth2/authorize?{urllib.parse.urlencode(query)}", subject)["code"]
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "client_id": client,
            "client_secret": "any", **more,
        }  # fmt: skip
        with urllib.request.urlopen(
            self.token_url, urllib.parse.urlencode(form).encode(), timeout=30
        ) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


def logged_in(url: str, subject: str) -> dict[str, str]:
    """Say on the page of the provider who one is, and return what it sends the client back with."""
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(sent_back(url, subject)).query))


def sent_back(url: str, subject: str) -> str:
    """Say on the page of the provider who one is, and return the address that it sends the browser to."""
    form = urllib.parse.urlencode({"sub": subject}).encode()
    try:
        urllib.request.build_opener(_Stay).open(url, form, timeout=30)
    except urllib.error.HTTPError as answer:
        with answer:
            place: str = answer.headers["location"]
            return place
    raise AssertionError("the provider sent nobody back")


@contextlib.contextmanager
def provider(*flags: str) -> Iterator[Provider]:
    """Run a provider on a free port."""
    argv = [sys.executable, "-W", "ignore", "-m", "tests.fakes.oauth_provider", *flags, "0"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        argv, stdout=quiet, stderr=subprocess.PIPE, text=True, env=clean_env(), cwd=ROOT
    ) as process:
        lines = Lines(process.stderr)
        try:
            port = int(lines.until(r"[Rr]unning on http://127\.0\.0\.1:(\d+)")[1])
            wait_port(port)
            yield Provider(port, lines)
        finally:
            process.kill()


def _taught() -> Any:
    import flask
    import oidc_provider_mock  # type: ignore[import-untyped]
    from authlib import jose  # type: ignore[import-untyped]
    from oidc_provider_mock import _app
    from oidc_provider_mock._storage import storage  # type: ignore[import-untyped]

    app = flask.Flask("oidc_provider_mock._app")
    here = _app.blueprint.name

    def minted(subject: str, audience: str, scope: str) -> str:
        claims = {
            "iss": flask.request.host_url.rstrip("/"),
            "sub": subject,
            "aud": audience,
            "scope": scope,
            "exp": int(time.time()) + 600,
        }
        made: bytes = jose.jwt.encode({"alg": "RS256", "typ": "at+jwt"}, claims, storage.jwk)
        return made.decode()

    def access_token(client: Any, grant_type: str, user: Any, scope: str) -> str:
        return minted(user.sub, flask.request.form.get("resource", client.id), scope)

    app.config["OAUTH2_ACCESS_TOKEN_GENERATOR"] = access_token
    oidc_provider_mock.init_app(app)
    described: Any = app.view_functions[f"{here}.openid_config"]

    def with_pkce() -> Any:
        more = {
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": _METHODS,
        }
        return flask.jsonify({**described().get_json(), **more})

    app.view_functions[f"{here}.openid_config"] = with_pkce

    _app.AuthorizationCodeGrant.TOKEN_ENDPOINT_AUTH_METHODS = [*_METHODS]
    registered: Any = app.view_functions[f"{here}.register_client"]

    def without_a_secret() -> Any:
        made, status = registered()
        client = made.get_json()
        if client["token_endpoint_auth_method"] == "none":
            del client["client_secret"]
        return flask.jsonify(client), status

    app.view_functions[f"{here}.register_client"] = without_a_secret

    @app.before_request
    def exchange() -> Any:
        form = flask.request.form
        if form.get("grant_type") != _EXCHANGE:
            return None
        who = base64.b64encode(f"gateway:{SECRET}".encode()).decode()
        if flask.request.headers.get("authorization") != f"Basic {who}":
            return flask.jsonify({"error": "invalid_client"}), 401
        try:
            subject = jose.jwt.decode(form["subject_token"], storage.jwk)
        except Exception:
            return flask.jsonify({"error": "invalid_grant", "error_description": form["subject_token"]}), 400
        return flask.jsonify(
            {
                "access_token": minted(subject["sub"], form["audience"], form.get("scope", "")),
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "token_type": "Bearer",
                "expires_in": 600,
            }
        )

    return app


def _main() -> None:
    import oidc_provider_mock

    logging.basicConfig(level=logging.INFO)
    app = _taught() if "--jwt" in sys.argv else oidc_provider_mock.app()
    app.run(port=int(sys.argv[-1]), use_reloader=False)


if __name__ == "__main__":
    _main()

"""The approve page in a real browser, as an approver meets it: on a desk, on a phone, without JavaScript.

Run by `make test-browser`. The page is served by the gateway's own HTTP server in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airlock.core.approval import notice, ticket
from airlock.core.approval.prompt import compose
from airlock.edge.asgi import respond
from airlock.edge.headers import Headers
from airlock.edge.httpd import FrontLimits, bind, make_server
from airlock.gateway.approve import PREFIX, ApprovePage
from tests.fakes.world import World

CHROMIUM = Path("/usr/bin/chromium")
playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: uv sync --group browser"
)
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium: apt install chromium")

DESK = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 640}
HOSTILE = (
    "</pre></main><script>document.title='taken'</script><style>button{display:none}</style>"
    "<img src=x onerror=\"document.title='taken'\"><form action=//evil.example><button>Approve</button></form>"
    "<meta http-equiv=refresh content=0;url=//evil.example>\u202e\u200b"
)


class Named:
    name = "carol"
    source = "header"


class Served:
    """A world and its approve page, listening on a loopback port."""

    def __init__(self) -> None:
        self.world = World()
        gate = self.world.gate

        async def who(lines: Headers, now: float) -> Named:
            return Named()

        self._page = ApprovePage(
            keys=gate.confirmations.keys, store=gate.store, recorder=gate.recorder, clock=gate.clock,
            ids=gate.ids, log=gate.log, who=who,
        )  # fmt: skip
        self.seen: list[tuple[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        sock = bind("127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self._server = make_server(self._route, FrontLimits())
        self._server.on_ready = self._ready.set
        self._thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    def _serve(self, sock: Any) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._server.serve(sock))

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append((scope["method"], scope["path"]))
        if scope["path"].startswith(PREFIX):
            await self._page(scope, receive, send)
        else:
            await respond(send, 404, b"not found\n", b"text/plain")

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(30)
        self._loop.close()

    def run(self, coroutine: Any) -> Any:
        """Do something in the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def link(self, **changes: Any) -> str:
        """An open question, kept as the gateway keeps it, and its link."""
        gate = self.world.gate
        arguments = changes.pop("arguments", {"names": ["x1"]})
        preview = changes.pop("preview", "would drop x1")
        claims = ticket.Claims(
            p="alice", t="drop", h="0" * 64, e="prod", u="http://internal/mcp", k=gate.ids.hex(16),
            exp=gate.clock.now() + 600, m="oob",
        )  # fmt: skip
        claims = msgspec.structs.replace(claims, **changes)
        text = compose(
            environment=claims.e, tool=claims.t, description="drop things", arguments=arguments,
            preview=preview, key=claims.k, mode="oob",
        )  # fmt: skip
        self.run(gate.store.save_prompt(claims.k, notice.kept(text, "oob"), claims.exp))
        return f"{self.base}{PREFIX}{ticket.approve_token(gate.confirmations.keys, claims)}"

    def key(self, link: str) -> str:
        claims = ticket.open_approver(self.world.gate.confirmations.keys, link.rpartition("/")[2])
        assert isinstance(claims, ticket.Claims)
        return claims.k

    def approved(self, link: str) -> bool:
        found: bool = self.run(self.world.store.approved(self.key(link), self.world.clock.now()))
        return found


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=[DESK, PHONE], ids=["desk", "phone"])
def screen(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport=request.param, java_script_enabled=False)
    yield context
    context.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser says on its console about the policy of the page."""
    return []


@pytest.fixture
def page(screen: Any, complaints: list[str]) -> Iterator[Any]:
    page = screen.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    yield page
    page.close()
    assert [line for line in complaints if "Content Security Policy" in line] == []


def test_an_approver_reads_presses_and_sees_that_it_is_done(served: Served, page: Any) -> None:
    link = served.link()
    page.goto(link)
    shown = page.inner_text("main")
    for fact in ("drop", "prod", "alice", 'Arguments: {"names": ["x1"]}', "Dry-run preview: would drop x1"):
        assert fact in shown
    assert not served.approved(link)
    page.get_by_role("button", name="Approve").click()
    assert page.get_by_role("heading", name="This call is approved").is_visible()
    assert page.get_by_role("button").count() == 0
    assert served.approved(link)
    assert page.url == link
    records = [r for r in served.world.records if r["detail"] and r["detail"].get("key") == served.key(link)]
    assert [r["detail"]["approved_by"] for r in records] == ["carol", "carol"]


def test_a_link_that_was_used_has_no_button(served: Served, page: Any) -> None:
    link = served.link()
    served.run(served.world.store.burn(served.key(link), served.world.clock.now() + 600))
    page.goto(link)
    assert "already executed or declined" in page.inner_text("main")
    assert page.get_by_role("button").count() == 0


def test_a_page_left_open_until_the_call_ran_says_so_when_pressed(served: Served, page: Any) -> None:
    link = served.link()
    page.goto(link)
    served.run(served.world.store.burn(served.key(link), served.world.clock.now() + 600))
    page.get_by_role("button", name="Approve").click()
    assert page.get_by_role("heading", name="This call is over").is_visible()
    assert not served.approved(link)


def test_a_bad_link_says_that_nothing_was_approved(served: Served, page: Any) -> None:
    answer = page.goto(served.link()[:-1])
    assert answer.status == 400
    assert "Nothing was approved" in page.inner_text("main")


def test_hostile_text_stays_text(served: Served, page: Any) -> None:
    link = served.link(arguments={"names": [HOSTILE]}, preview=HOSTILE, t=HOSTILE, p=HOSTILE)
    page.goto(link)
    assert page.get_by_role("button").count() == 1
    assert page.locator("form").count() == 1
    assert page.locator("script, style, img, meta[http-equiv]").count() == 0
    assert "<script>" in page.inner_text("main")
    assert page.title() == "Approve this call?"
    page.get_by_role("button", name="Approve").click()
    assert page.get_by_role("heading", name="This call is approved").is_visible()
    assert served.approved(link)


def test_nothing_is_wider_than_the_screen_and_the_button_fits_a_finger(served: Served, page: Any) -> None:
    page.goto(served.link(arguments={"names": ["x" * 3000, "word " * 300]}, preview="y" * 1900))
    width = page.viewport_size["width"]
    for element in ("dl", "pre", "form", "h1"):
        box = page.locator(element).bounding_box()
        assert box["x"] + box["width"] <= width, element
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    button = page.get_by_role("button").bounding_box()
    assert button["height"] >= 24
    assert button["width"] >= 44


def test_looking_and_prefetching_approve_nothing(served: Served, page: Any) -> None:
    link = served.link()
    for _ in range(3):
        page.goto(link)
    assert page.request.head(link).status == 200
    assert not served.approved(link)


def test_the_page_cannot_be_framed(served: Served, page: Any, complaints: list[str]) -> None:
    link = served.link()
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.set_content(f'<iframe src="{link}"></iframe>')
    assert all("Approve" not in frame.content() for frame in page.frames[1:])
    assert not served.approved(link)
    complaints.clear()

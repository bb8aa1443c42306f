"""Spawned processes: what they see, what of them is logged, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge import child as module
from airlock.edge.child import Child, Command, ErrorLines, Lines, minimal_environment, readable, spellings

ENV = minimal_environment(os.environ)


class Seen:
    """A child and everything it told us."""

    def __init__(self, *argv: str, env: dict[str, str] = ENV, cwd: str | None = None) -> None:
        self.output = b""
        self.ends: list[str] = []
        self.lines: list[str] = []
        self._changed = asyncio.Event()
        self.child = Child(Command(argv, env, cwd), on_output=self._output, on_end=self._end, say=self._line)

    def _output(self, data: bytes) -> None:
        self.output += data
        self._changed.set()

    def _end(self, cause: str) -> None:
        self.ends.append(cause)
        self._changed.set()

    def _line(self, text: str) -> None:
        self.lines.append(text)
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-u", "-c", code)


def gone(pid: int) -> bool:
    """Whether the process runs no more; one that waits to be reaped does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        pass
    else:
        return stat.rpartition(")")[2].split()[0] in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def all_gone(*pids: int) -> None:
    async with asyncio.timeout(30):
        while not all(map(gone, pids)):
            await asyncio.sleep(0.01)


# Lines.


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc"], [b"ab"]),
        ([b"a\r\n", b"\r\n", b"\n"], [b"a", b"", b""]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
        ([b"", b"a\n"], [b"a"]),
        ([b"a\rb\n"], [b"a\rb"]),
    ],
)
def test_a_stream_is_cut_at_its_newlines_however_it_arrives(pieces: list[bytes], lines: list[bytes]):
    cutter = Lines(100)
    assert [line for piece in pieces for line in cutter.feed(piece)] == [(line, True) for line in lines]


def test_a_line_without_end_is_given_up_at_the_limit_and_the_next_one_is_whole():
    cutter = Lines(4)
    assert cutter.feed(b"abc") == []
    assert cutter.feed(b"defg") == [(b"abcd", False)]
    assert cutter.feed(b"h" * 1000) == []
    assert cutter.feed(b"i\nok\n") == [(b"ok", True)]
    assert cutter.feed(b"12345\n6\n") == [(b"1234", False), (b"6", True)]


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line and b"\r" not in line)),
    cuts=st.lists(st.integers(1, 5)),
)
def test_how_a_stream_is_cut_into_pieces_changes_nothing(lines: list[bytes], cuts: list[int]):
    whole = b"".join(line + b"\n" for line in lines)
    cutter = Lines(8)
    found = []
    for cut in cuts:
        found += cutter.feed(whole[:cut])
        whole = whole[cut:]
    found += cutter.feed(whole)
    assert found == [(line[:8], len(line) <= 8) for line in lines]


# What is logged.


def test_a_credential_on_stderr_is_masked_in_our_log():
    secret = "gh" + "p_" + "x" * 36
    assert readable(f"token {secret}!".encode(), 500) == "token [REDACTED]!"


def test_a_colour_does_not_hide_a_credential():
    secret = "gh" + "p_" + "x" * 36
    assert secret not in readable(f"\x1b[31m{secret}\x1b[0m".encode(), 500)
    assert readable(b"\x1b[1;31merror\x1b[0m", 500) == "error"


def test_half_a_credential_is_not_shown():
    secret = "gh" + "p_" + "x" * 12
    assert readable(f"token {secret}".encode(), 500, whole=False) == "token \u2026"


# No shape of a credential: a phrase, letters that JSON escapes, bytes that are no UTF-8, several lines.
SECRETS = (
    "plain1",
    "correct horse battery",
    'a"b\\c/d\té',
    os.fsdecode(b"\xff\xfe-raw-\x80"),
    "-----BEGIN KEY-----\r\nfirst line of it\n  second line of it\n",
    "info-level",
    "REDACTED",
    "x" * 5000,
)


def spelled(value: str) -> list[str]:
    quoted = [json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return [value, *value.splitlines(), *quoted]


def shown_of(line: bytes, values: tuple[str, ...]) -> list[str]:
    """All that `ErrorLines` says of a line, as it comes in pieces."""
    said: list[str] = []
    errors = ErrorLines(said.append, lambda: 0.0, spellings(values))
    errors.feed(line[:7])
    errors.feed(line[7:] + b"\n")
    return said


@pytest.mark.parametrize("value", SECRETS)
@pytest.mark.parametrize("form", ["{}", "key={} and more", "x{}x{}", '{{"k":"{}"}}', "\x1b[31m{}\x1b[0m"])
def test_what_was_given_to_a_process_is_masked_whatever_it_looks_like(value: str, form: str):
    for written in spelled(value):
        said = " ".join(shown_of(os.fsencode(form.format(written, written)), SECRETS))
        assert "REDACTED" in said or "\u2026" in said
        for part in spelled(value):
            if part.strip() not in "REDACTED":
                assert readable(os.fsencode(part.strip()), 10_000) not in said


@pytest.mark.parametrize("value", ["correct horse battery", "x y " * 2000])
def test_the_beginning_of_what_was_given_is_not_shown_when_a_line_is_cut_inside_it(value: str):
    for size in range(1, min(len(value), 300)):
        line = b"w" * 40 + b" shown " + value[:size].encode()
        assert readable(line, 500, whole=False, secrets=spellings([value])).removesuffix(
            "\u2026"
        ).split() in (
            ["w" * 40],
            ["w" * 40, "shown"],
        )
    said = shown_of(b"w" * 40 + b" " + b"v" * (4096 - 50) + b" " + value.encode(), (value,))
    assert "horse" not in said[0]
    assert "x y" not in said[0]


@pytest.mark.parametrize("most", [3, 8, 20, 500])
def test_what_was_given_is_masked_before_the_line_is_shortened(most: int):
    secrets = spellings(["correct horse battery"])
    assert readable(b"key correct horse battery", most, secrets=secrets) == "key [REDACTED]"[:most]


def test_colours_inside_of_what_was_given_do_not_show_it():
    secrets = spellings(["user:pass-word"])
    assert readable(b"at \x1b[32muser\x1b[0m:\x1b[1mpass-word\x1b[0m", 500, secrets=secrets) == "[REDACTED]"


def test_values_too_short_to_be_secrets_are_left():
    assert spellings(["", "a", "12345", "\n\n", "1\n2"]) == ()
    assert spellings(["123456", "a\nlonger"]) == ("a\\nlonger", "a\nlonger", "123456", "longer")
    assert readable(b"a 12345", 500, secrets=spellings(["12345"])) == "a 12345"


async def test_a_process_that_prints_its_variables_shows_none_that_was_given_as_a_secret():
    value = "correct horse battery"
    env = {**ENV, "GIVEN": value}
    said: list[str] = []
    ended = asyncio.Event()
    child = Child(
        Command(
            python("import os, sys; sys.stderr.write(f'{os.environ[\"GIVEN\"]}|{dict(os.environ)}\\n')"),
            env,
            secrets=spellings([value]),
        ),
        on_output=lambda _: None,
        on_end=lambda _: ended.set(),
        say=said.append,
    )
    await child.start()
    async with asyncio.timeout(30):
        await ended.wait()
    await child.stop()
    assert said[0].startswith("[REDACTED]|")
    assert value not in " ".join(said)


def test_a_line_of_a_server_cannot_drive_the_terminal_or_forge_lines():
    assert (
        readable(b"a\x1b]0;title\x07\rb\xff\xe2\x80\xae", 500)
        == r"a\u001b]0;title\u0007\rb" + "\ufffd" + r"\u202e"
    )
    assert readable(b"x" * 600, 500) == "x" * 500


def test_a_flood_on_stderr_leaves_a_hundred_lines_a_minute_and_their_number():
    now = 0.0
    said: list[str] = []
    errors = ErrorLines(said.append, lambda: now)
    errors.feed(b"\n  \n" + b"".join(b"line %d\n" % number for number in range(250)))
    assert (said[0], said[-1], len(said)) == ("line 0", "line 99", 100)
    now = 59.9
    errors.feed(b"more\n")
    assert len(said) == 100
    now = 60.0
    errors.feed(b"again\n")
    assert said[100:] == ["151 more lines on stderr were left out", "again"]
    errors.tell()
    assert len(said) == 102


def test_a_stderr_line_without_end_is_cut():
    said: list[str] = []
    errors = ErrorLines(said.append, lambda: 0.0)
    for _ in range(100):
        errors.feed(b"word " * 200)
    errors.feed(b"\nnext\n")
    assert [len(line) for line in said] == [500, 4]


# What it sees.


def test_a_child_gets_no_variable_of_ours_but_the_usual_ones():
    ours = {
        "PATH": "/bin",
        "HOME": "/h",
        "LANG": "C",
        "AIRLOCK_JWT_SECRET": "s",
        "AWS_KEY": "k",
        "LD_PRELOAD": "x",
    }
    assert minimal_environment(ours) == {"PATH": "/bin", "HOME": "/h", "LANG": "C"}
    assert minimal_environment(ours, {"TOKEN": "t", "HOME": "/e"}) == {
        "PATH": "/bin",
        "HOME": "/e",
        "LANG": "C",
        "TOKEN": "t",
    }


def test_a_command_does_not_show_its_arguments_or_variables():
    command = Command(("x", "--key=s3"), {"KEY": "s3"}, secrets=("s3",))
    assert repr(command) == "Command(2 arguments, 1 variables)"


async def test_a_child_has_just_its_environment_its_folder_and_a_group_of_its_own(tmp_path: Path):
    seen = Seen(
        *python(
            "import os; print(sorted(os.environ), os.getcwd(), os.getpgid(0) == os.getpid() == os.getsid(0))"
        ),
        env={"ONLY": "1"},
        cwd=str(tmp_path),
    )
    await seen.child.start()
    await seen.until(lambda: seen.ends)
    kept = {"LC_CTYPE"}  # Python sets it for itself in the C locale
    assert seen.output.decode().strip() in {
        f"{sorted({'ONLY', *more})} {tmp_path.resolve()} True" for more in (set[str](), kept)
    }
    await seen.child.stop()


async def test_a_name_is_looked_up_on_the_path_of_the_child(tmp_path: Path):
    program = tmp_path / "own-server"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    seen = Seen("own-server", env={"PATH": str(tmp_path)})
    await seen.child.start()
    await seen.until(lambda: seen.ends)
    assert seen.output == b"here\n"
    await seen.child.stop()


# How it starts.


@pytest.mark.parametrize(
    ("argv", "cwd", "cause"),
    [
        ((), None, "there is no server command"),
        (("no-such-server-here",), None, "the server command was not found"),
        (("/no/such/server",), None, "the server command cannot be started (FileNotFoundError)"),
        ((__file__,), None, "the server command cannot be started (PermissionError)"),
        ((sys.executable, "nul\0"), None, "the server command cannot be started (ValueError)"),
        ((sys.executable,), "/no/such/folder", "the working directory of the server does not exist"),
    ],
)
async def test_what_cannot_be_started_says_why_and_shows_no_path(
    argv: tuple[str, ...], cwd: str | None, cause: str
):
    seen = Seen(*argv, cwd=cwd)
    with pytest.raises(UpstreamError) as caught:
        await seen.child.start()
    assert (caught.value.kind, caught.value.cause, caught.value.reached) == (
        UpstreamFailure.UNREACHABLE,
        cause,
        False,
    )
    assert (seen.child.alive, seen.child.pid, seen.child.unsent, seen.ends) == (False, None, 0, [])
    await seen.child.stop()


# How it ends.


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("print('last words'); raise SystemExit(3)", "the server process ended (exit status 3)"),
        ("print('last words')", "the server process ended (exit status 0)"),
        ("import os; print('last words'); os.kill(os.getpid(), 9)", "the server process ended (signal 9)"),
    ],
)
async def test_an_end_is_told_once_with_its_status_after_the_last_words(code: str, cause: str):
    seen = Seen(*python(code))
    await seen.child.start()
    assert seen.child.alive
    await seen.until(lambda: seen.ends)
    assert seen.output == b"last words\n"
    await seen.child.stop()
    assert seen.ends == [cause]
    assert not seen.child.alive


@pytest.mark.parametrize(("number", "what"), [(0, "input"), (1, "output")])
async def test_a_process_that_lets_go_of_a_pipe_is_over(
    number: int, what: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LINGER_S", 0.05)
    monkeypatch.setattr(module, "EOF_S", 0.05)
    seen = Seen(*python(f"import os, signal; os.close({number}); signal.pause()"))
    await seen.child.start()
    pid = seen.child.pid
    assert pid is not None
    await seen.until(lambda: seen.ends)
    assert seen.ends == [f"the server process closed its {what}"]
    await seen.child.stop()
    await all_gone(pid)


async def test_a_process_that_ends_but_leaves_its_stdout_to_another_is_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LINGER_S", 0.05)
    monkeypatch.setattr(module, "TERM_S", 0.1)
    seen = Seen("sh", "-c", "sleep 300 & echo $!; exit 4")
    await seen.child.start()
    await seen.until(lambda: seen.ends)
    assert seen.ends == ["the server process ended (exit status 4)"]
    await all_gone(int(seen.output))
    await seen.child.stop()


async def test_a_process_that_ends_when_its_stdin_closes_is_not_signalled():
    seen = Seen(*python("import sys; sys.stdin.read(); sys.stderr.write('in order\\n')"))
    await seen.child.start()
    await seen.child.stop()
    assert (seen.lines, seen.ends) == (["in order"], [])


async def test_stopping_leaves_neither_children_nor_grandchildren(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "EOF_S", 0.05)
    monkeypatch.setattr(module, "TERM_S", 0.1)
    inner = "trap '' TERM; echo $$; while :; do sleep 300; done"
    seen = Seen("sh", "-c", f'sh -c "{inner.replace("$", chr(92) + "$")}" & {inner}')
    await seen.child.start()
    await seen.until(lambda: seen.output.count(b"\n") == 2)
    pids = [int(pid) for pid in seen.output.split()]
    assert not any(map(gone, pids))
    await asyncio.gather(seen.child.stop(), seen.child.stop())
    await all_gone(*pids)
    assert seen.ends == []


async def test_a_stop_that_is_cancelled_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "EOF_S", 0.05)
    seen = Seen(*python("import signal; print(1); signal.pause()"))
    await seen.child.start()
    await seen.until(lambda: seen.output)
    pid = seen.child.pid
    assert pid is not None
    stopping = asyncio.ensure_future(seen.child.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await all_gone(pid)
    await seen.child.stop()


LEAVING = """
import asyncio, sys
from airlock.edge.child import Child, Command
async def main():
    ready = asyncio.Event()
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(1); signal.pause()"
    child = Child(
        Command((sys.executable, "-I", "-S", "-u", "-c", code), {}),
        on_output=lambda data: ready.set(), on_end=print, say=print,
    )
    await child.start()
    await ready.wait()
    print(child.pid)
    task = asyncio.ensure_future(child.stop())
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
"""


async def test_a_gateway_that_ends_during_a_stop_leaves_no_process():
    ended = subprocess.run([sys.executable, "-c", LEAVING], stdout=subprocess.PIPE, timeout=60, check=True)
    await all_gone(int(ended.stdout))


ADOPTING = """
import asyncio, ctypes, os, sys
from airlock.edge import child
child.TERM_S = 30.0
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
async def main():
    pids = []
    one = child.Child(
        child.Command(("sh", "-c", "sleep 300 & echo $!; cat"), {"PATH": os.environ["PATH"]}),
        on_output=lambda data: (pids.append(int(data)), ready.set()), on_end=print, say=print,
    )
    ready = asyncio.Event()
    await one.start()
    await ready.wait()
    async with asyncio.timeout(25):
        await one.stop()
    print("left" if os.path.exists(f"/proc/{pids[0]}") else "reaped")
asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl: run it on Linux")
def test_a_gateway_that_is_process_one_reaps_what_a_server_left_behind():
    ended = subprocess.run([sys.executable, "-c", ADOPTING], capture_output=True, timeout=60, check=True)
    assert ended.stdout == b"reaped\n"


async def test_what_a_process_does_not_read_is_held_and_counted():
    seen = Seen(*python("import signal; print(1); signal.pause()"))
    await seen.child.start()
    await seen.until(lambda: seen.output)
    seen.child.write(b"x" * 1_000_000)
    assert 0 < seen.child.unsent <= 1_000_000
    pid = seen.child.pid
    assert pid is not None
    os.kill(pid, 9)
    await seen.until(lambda: seen.ends)
    await seen.child.stop()

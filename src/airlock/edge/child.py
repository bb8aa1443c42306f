"""A spawned process in a group of its own: fixed environment, pipes, a quota of log lines, a sure end.

Knows processes, pipes and signals; does not know what the bytes on its pipes mean.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, cast

import msgspec

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.redact.patterns import REDACTED, scrub_text
from airlock.core.text.safe import one_line

__all__ = [
    "Child",
    "Command",
    "ErrorLines",
    "Lines",
    "minimal_environment",
    "readable",
    "spellings",
]

EOF_S = 2.0
"""How long a process may take to end after its stdin was closed."""

TERM_S = 2.0
"""How long the group may take to end after SIGTERM."""

KILL_S = 5.0
"""How long the kernel may take to deliver the end of a killed process."""

LINGER_S = 1.0
"""How long what a process wrote before it ended is still waited for, and the status of one that let go."""

_POLL_S = 0.02
_STDIN, _STDOUT = 0, 1

# LIMIT: one process's stderr in our log: 100 lines a minute, 500 characters of each.
ERROR_LINES = 100
ERROR_CHARS = 500
_MINUTE_S = 60.0
_ERROR_BYTES = 4096

# LIMIT: a shorter value is not masked in our log: it is no secret, and would tear other words apart.
SECRET_CHARS = 6

_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TERM", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL",
    "APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT",
    "SystemRoot", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip

_COLOUR = re.compile(rb"\x1b\[[0-9:;<=>?]*[ -/]*[@-~]")


class Command(msgspec.Struct, frozen=True):
    """What to run. `argv[0]` is a path, or a name looked up on the `PATH` of `env` when the process starts.

    `env` is the whole environment of the child; `cwd` None is the gateway's own folder. `secrets` (from
    `spellings`) never stand in a line for the log.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # SECURITY: arguments and variables hold credentials, and a repr ends in a log.
        return f"Command({len(self.argv)} arguments, {len(self.env)} variables)"


def minimal_environment(inherit: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a child may see of `inherit` (where to find programs and files, language), then `extra`.

    SECURITY: the gateway's own environment holds its secrets; a server gets none that was not meant for it.
    """
    return {name: inherit[name] for name in _INHERITED if name in inherit} | dict(extra or {})


def spellings(values: Iterable[str]) -> tuple[str, ...]:
    """Return how secret values may stand in a line: whole, a line of them, or as JSON; the longest first.

    LIMIT: at least `SECRET_CHARS` characters; other encodings (base64, percent signs) are not known here.
    """
    found: set[str] = set()
    for value in values:
        found.update(line.strip() for line in value.splitlines())
        found.update((value, value.strip()))
    for plain in tuple(found):
        found.update(json.dumps(plain, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return tuple(sorted((one for one in found if len(one) >= SECRET_CHARS), key=lambda one: (-len(one), one)))


def readable(data: bytes, most: int, *, whole: bool = True, secrets: tuple[str, ...] = ()) -> str:
    """Return a line of a process for our log: credentials masked, nothing hidden in it, at most `most` characters.

    `whole` False says that `data` was cut at its end. `secrets` are masked whatever they look like.
    """
    if secrets:
        data = _masked(data, whole, [os.fsencode(one) for one in secrets])
    # SECURITY: the letter that ends a colour would hide the credential after it from the scrubber.
    text = _COLOUR.sub(b" ", data).decode("utf-8", "replace")
    if not whole:
        # SECURITY: half a credential is not recognised as one.
        before = text.rsplit(maxsplit=1)
        text = f"{before[0] if len(before) > 1 else ''} \u2026"
    return one_line(scrub_text(text).strip())[:most]


def _masked(data: bytes, whole: bool, secrets: list[bytes]) -> bytes:
    # SECURITY: what we gave to the process is known by its value, so its shape does not matter.
    for secret in secrets:
        data = data.replace(secret, REDACTED.encode())
    bare = _COLOUR.sub(b"", data)
    if any(secret in bare for secret in secrets):
        return REDACTED.encode()  # colours stand inside it
    if not whole:
        # SECURITY: the cut may have left the beginning of a value, blanks in it included.
        begun = (
            size
            for secret in secrets
            for size in range(1, min(len(secret), len(data) + 1))
            if data.endswith(secret[:size])
        )
        data = data[: len(data) - max(begun, default=0)]
    return data


class Lines:
    """Cuts a byte stream at its newlines, keeping at most `limit` bytes of a line."""

    __slots__ = ("_held", "_limit", "_skipping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        r"""Return each line that is complete now, without its `\n` or `\r\n`, and True.

        Of a line over the limit, its first `limit` bytes and False, as soon as it is over; the rest is dropped.
        """
        *complete, rest = data.split(b"\n")
        found: list[tuple[bytes, bool]] = []
        for piece in complete:
            if self._take(piece, found):
                line = bytes(self._held) if self._held else b""
                found.append((line.removesuffix(b"\r"), True))
                self._held.clear()
            self._skipping = False
        if rest:
            self._take(rest, found)
        return found

    def _take(self, piece: bytes, found: list[tuple[bytes, bool]]) -> bool:
        """Hold `piece`; False while the line it belongs to is dropped."""
        if self._skipping:
            return False
        self._held += piece
        # SECURITY: a line without end would fill the memory.
        if len(self._held) > self._limit:
            found.append((bytes(memoryview(self._held)[: self._limit]), False))
            self._held.clear()
            self._skipping = True
        return not self._skipping


class ErrorLines:
    """What a process writes to stderr, for our log: at most `ERROR_LINES` a minute, then how many were left out."""

    __slots__ = ("_clock", "_count", "_left_out", "_lines", "_say", "_secrets", "_until")

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float], secrets: tuple[str, ...] = ()
    ) -> None:
        self._say = say
        self._clock = clock
        self._secrets = secrets
        self._lines = Lines(_ERROR_BYTES)
        self._until = self._count = self._left_out = 0.0

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream."""
        for line, whole in self._lines.feed(data):
            if not line.strip():
                continue
            now = self._clock()
            if now >= self._until:
                self.tell()
                self._until, self._count = now + _MINUTE_S, 0
            # SECURITY: a server that floods its stderr would fill the disk that our log is on.
            if self._count >= ERROR_LINES:
                self._left_out += 1
                continue
            self._count += 1
            self._say(readable(line, ERROR_CHARS, whole=whole, secrets=self._secrets))

    def tell(self) -> None:
        """Say how many lines were left out, if any."""
        if self._left_out:
            self._say(f"{self._left_out:.0f} more lines on stderr were left out")
            self._left_out = 0


class Child(asyncio.SubprocessProtocol):
    """One run of a command. `on_output` takes pieces of its stdout, `say` lines of its stderr.

    `on_end` takes why the run is over, once, when that was not our doing (`stop`): the process ended, or let go of
    its stdin or stdout. What it wrote before that was given to `on_output`. Its group is then taken down.
    When the gateway itself dies, the child finds its stdin closed.
    LIMIT: a process that leaves the group (`setsid`) is not ours to end.
    """

    def __init__(
        self,
        command: Command,
        *,
        on_output: Callable[[bytes], None],
        on_end: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._command = command
        self._on_output = on_output
        self._on_end = on_end
        self._say = say
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._errors: ErrorLines | None = None
        self._exited = asyncio.Event()
        self._closed = asyncio.Event()
        self._output_open = True
        self._fading: asyncio.TimerHandle | None = None
        self._over = False
        self._group_gone = False
        self._descent: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Spawn it. Raises `UpstreamError` (UNREACHABLE, not reached) when it cannot be started."""
        loop = asyncio.get_running_loop()
        self._errors = ErrorLines(self._say, loop.time, self._command.secrets)
        program, arguments = _program(self._command), self._command.argv[1:]
        try:
            await loop.subprocess_exec(
                lambda: self,
                program,
                *arguments,
                env=dict(self._command.env),
                cwd=self._command.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            # The text of the error may hold paths and arguments.
            raise _unstarted(f"the server command cannot be started ({type(error).__name__})") from None

    @property
    def alive(self) -> bool:
        """Whether it may still read what is written to it."""
        return self._transport is not None and not self._over and self._fading is None

    @property
    def pid(self) -> int | None:
        """Its process id, which is its group's too; None before it started."""
        return None if self._transport is None else self._transport.get_pid()

    @property
    def unsent(self) -> int:
        """How many bytes written to it are still held here."""
        return 0 if self._stdin is None else self._stdin.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Write to its stdin; what the pipe does not take is held. The caller asks `alive` and `unsent` first."""
        assert self._stdin is not None
        self._stdin.write(data)

    async def stop(self) -> None:
        """End it and its group, and reap it: stdin closed, then SIGTERM, then SIGKILL. Idempotent.

        Takes at most `EOF_S + TERM_S + KILL_S` seconds; goes on when the caller is cancelled.
        """
        if self._transport is None:
            return
        self._finish()
        assert self._descent is not None
        await asyncio.wait({self._descent})

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(_STDIN))

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        assert self._errors is not None
        if fd != _STDOUT:
            self._errors.feed(data)
        elif not self._over:
            self._on_output(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT:
            self._output_open = False
        if fd in (_STDIN, _STDOUT):
            self._fade()

    def process_exited(self) -> None:
        self._exited.set()
        self._look()
        self._fade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()

    # The end.

    def _fade(self) -> None:
        """Something of it is gone: it is over as soon as all is known, or after a while."""
        if self._over:
            return
        if self._exited.is_set() and not self._output_open:
            self._end()
        elif self._fading is None:
            self._fading = asyncio.get_running_loop().call_later(LINGER_S, self._end)

    def _end(self) -> None:
        self._finish()
        self._on_end(self._cause())

    def _cause(self) -> str:
        if not self._exited.is_set():
            return f"the server process closed its {'input' if self._output_open else 'output'}"
        assert self._transport is not None
        status = self._transport.get_returncode() or 0
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"the server process ended ({how})"

    def _finish(self) -> None:
        self._over = True
        if self._fading is not None:
            self._fading.cancel()
        if self._descent is None:
            self._descent = asyncio.get_running_loop().create_task(self._descend())

    async def _descend(self) -> None:
        assert self._stdin is not None
        assert self._transport is not None
        assert self._errors is not None
        try:
            self._stdin.close()
            await _within(EOF_S, self._exited.wait())
            self._signal(signal.SIGTERM)
            await _within(TERM_S, self._group_left())
        finally:
            # INVARIANT: this line is reached whatever happens, a cancelled task at the gateway's end included.
            self._signal(signal.SIGKILL)
            self._transport.close()
            self._errors.tell()
        await _within(KILL_S, self._closed.wait())

    def _signal(self, number: int) -> None:
        assert self._transport is not None
        # SECURITY: the number of a group that is gone may be another's by now.
        if self._group_gone:
            return
        try:
            os.killpg(self._transport.get_pid(), number)
        except (ProcessLookupError, PermissionError):
            self._group_gone = self._exited.is_set()

    async def _group_left(self) -> None:
        """Wait until nobody is left in the group."""
        await self._exited.wait()
        while not self._group_gone:
            self._look()
            await asyncio.sleep(_POLL_S)

    def _look(self) -> None:
        """Reap what the dead leader left to us (when we are process 1), and see whether anybody is left."""
        assert self._transport is not None
        if self._group_gone:
            return
        try:
            while os.waitpid(-self._transport.get_pid(), os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        self._signal(0)


def _program(command: Command) -> str:
    if not command.argv or not command.argv[0]:
        raise _unstarted("there is no server command")
    if command.cwd is not None and not os.path.isdir(command.cwd):
        raise _unstarted("the working directory of the server does not exist")
    name = command.argv[0]
    if os.path.dirname(name):
        return name
    found = shutil.which(name, path=command.env.get("PATH", os.defpath))
    if found is None:
        raise _unstarted("the server command was not found")
    return found


async def _within(seconds: float, awaited: Coroutine[Any, Any, object]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        pass


def _unstarted(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=False)

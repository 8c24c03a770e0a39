"""A shell: runs commands in a workspace, each in a process of its own, and says what they printed and how they ended.

Commands of a local shell may do whatever the person may do whose process this is: the rule of paths holds for the
folder in which a command starts, not for the command. What bounds them is a fence or a container.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import functools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from divebook.errors import ShellExecutionError, ShellTimeoutError
from divebook.text.passwords import looks_secret
from divebook.text.redaction import shared
from divebook.workspace.paths import PathPolicy, Root
from divebook.workspace.reaper import KNOWN, READY

# What a command prints, within bounds: head and tail in memory, and the whole in a file if that is too long.


MakeFile = Callable[[], BinaryIO]
"""Opens the file for the whole of a stream that is too long to be held."""


class KeptOutput:
    r"""The head and the tail of a stream, however much comes.

    Parameters
    ----------
    limit
        Bytes that are held.
    make_file
        Makes the file for the whole; None drops what lies between head and tail.

    Examples
    --------
    >>> kept = KeptOutput(8)
    >>> kept.feed(b"123456"); kept.feed(b"7890")
    >>> kept.text()
    '1234\n[... 2 bytes left out ...]\n7890'
    """

    def __init__(self, limit: int, make_file: MakeFile | None = None) -> None:
        self._half = limit // 2
        self._make_file = make_file
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._held = 0
        self._file: BinaryIO | None = None
        self.total = 0
        """Bytes that came."""

    def feed(self, data: bytes) -> None:
        """Take in what came."""
        self.total += len(data)
        if self._make_file is not None and self.total > 2 * self._half:
            self._write(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._held += len(data)
            while self._held - len(self._tail[0]) >= self._half:
                self._held -= len(self._tail.popleft())

    def _write(self, data: bytes) -> None:
        if self._file is None:
            assert self._make_file is not None  # noqa: S101 - whoever calls has looked
            self._file = self._make_file()
            self._file.write(bytes(self._head))  # all that came before: it was held whole
            self._file.writelines(self._tail)
        self._file.write(data)

    @property
    def dropped(self) -> int:
        """How many bytes are not held."""
        return max(0, self.total - len(self._head) - min(self._held, self._half))

    def text(self) -> str:
        """Return what is held; between head and tail it says how much is missing."""
        tail = b"".join(self._tail)
        if self.dropped:
            tail = f"\n[... {self.dropped:,} bytes left out ...]\n".encode() + tail[-self._half :]
        return (bytes(self._head) + tail).decode(errors="replace")

    def close(self) -> str | None:
        """Close the file with the whole, and return its path; None if all is held."""
        if self._file is None:
            return None
        self._file.close()
        return str(self._file.name)


# The process that forks a reaper for each command: started with the first one, and again if somebody ended it.


Streams: TypeAlias = tuple[int, int, int, int]
"""Descriptors: input, output and errors of a command, and the socket on which its reaper tells how it ended."""
_REAPER = str(Path(__file__).with_name("reaper.py"))
NEEDED = (_REAPER, sys.executable, sys.prefix, sys.base_prefix)
"""What must be there to be read wherever the helper runs: its program, and the Python that runs it."""
_PATIENCE, _MOST_TOLD = 60.0, 2_000
"""Seconds for the helper to start, and bytes of what is said where it does not."""


class Reapers:
    """One helper process of a workspace.

    Parameters
    ----------
    prefix
        Returns a program and its arguments that the helper runs in, and with it all commands: a fence. `NEEDED` must be
        there to be read. It is called when the helper starts.
    check
        Raises unless a command may run now; it is called before each one.
    """

    def __init__(self, prefix: Callable[[], Sequence[str]] = tuple, check: Callable[[], None] | None = None) -> None:
        self._prefix = prefix
        self._check = check
        self._lock = threading.Lock()
        self._end: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], streams: Streams) -> None:
        """Have a command run.

        Raises
        ------
        OSError
            The helper cannot be started; in the words of what should have done that.
        """
        if self._check is not None:
            self._check()
        request = os.memfd_create("command", os.MFD_CLOEXEC)
        try:
            with open(request, "wb", closefd=False) as file:
                file.write(json.dumps({"argv": list(argv), "cwd": cwd, "environ": dict(environ)}).encode())
            os.lseek(request, 0, os.SEEK_SET)
            with self._lock:
                self._send([request, *streams])
        finally:
            os.close(request)

    def _send(self, fds: list[int]) -> None:
        for is_last in (False, True):
            end = self._end or self._start()
            try:
                socket.send_fds(end, [b"run"], fds)
            except OSError:  # somebody has ended the helper
                self._stop()
                if is_last:
                    raise
            else:
                return

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as told:
            with theirs:
                argv = [*self._prefix(), sys.executable, "-I", "-S", _REAPER, str(theirs.fileno())]
                self._process = subprocess.Popen(
                    argv,
                    pass_fds=(theirs.fileno(),),
                    env={},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=told,
                    start_new_session=True,
                )
            self._end = ours
            if not _is_ready(ours):
                self._stop()
                told.seek(0)
                said = told.read(_MOST_TOLD).decode(errors="replace").strip() or "it ended at once, and said nothing"
                raise OSError(f"{Path(argv[0]).name} cannot run commands here: {said}")
        return ours

    def _stop(self) -> None:
        if self._end is not None:
            self._end.close()
            self._end = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the helper, and with it all that commands have left in the background; twice is once."""
        with self._lock:
            self._stop()


def _is_ready(end: socket.socket) -> bool:
    end.settimeout(_PATIENCE)
    try:
        return end.recv(len(READY)) == READY
    except OSError:  # TimeoutError too
        return False
    finally:
        end.settimeout(None)


# Work that is not to be broken off.


T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Return what work comes to, which goes on to its end also if whoever waits is cancelled meanwhile.

    The cancellation is raised afterwards; what the work itself raises comes before it.
    """
    doing = asyncio.ensure_future(work)
    was_cancelled = False
    while not doing.done():
        try:
            await asyncio.wait([doing])
        except asyncio.CancelledError:
            was_cancelled = True
    result = doing.result()
    if was_cancelled:
        raise asyncio.CancelledError
    return result


# One command: run to its end, its time limit or its cancellation.
#
# The limit counts from the start. After a time limit or a cancellation nothing that the command started is alive. What
# a command that ends by itself leaves in the background lives on until its workspace is left.


DRAIN = 0.2
"""Seconds for what is still to be read of a command that has ended: others may hold its streams open."""
_ENDING = 15.0
_PIECE = 1 << 16
STDOUT = "stdout"
STDERR = "stderr"
Listen: TypeAlias = Callable[[str, str], None]
"""Hears what a command prints, as it comes: the name of the stream, and a piece of text."""
Given: TypeAlias = bytes | AsyncIterator[bytes | str]
"""What a command can read: all at once, or pieces as they come."""


@dataclass(frozen=True, slots=True)
class EndedCommand:
    """How a command ended."""

    code: int
    """Its exit status, or the number of the signal that killed it, negative."""
    timed_out: bool
    seconds: float


class WrongFolderError(Exception):
    """The folder in which a command is to run cannot be entered; its argument is an OSError."""


async def run(
    reapers: Reapers,
    argv: Sequence[str],
    *,
    cwd: str,
    environ: Mapping[str, str],
    seconds: float | None,
    out: KeptOutput,
    err: KeptOutput,
    stdin: Given = b"",
    listen: Listen | None = None,
    begun: Callable[[int], None] | None = None,
    undecodable: str = "replace",
) -> EndedCommand:
    """Run a command, and return how it ended.

    Parameters
    ----------
    seconds
        How long it may take; None for as long as it takes.
    out, err
        Take what it prints.
    stdin
        What it can read.
    begun
        Hears that it runs, and the number of its process.
    undecodable
        What `listen` gets of bytes that are no UTF-8, as `bytes.decode` names it.

    Raises
    ------
    WrongFolderError
        It cannot run there.
    OSError
        No process can be started.
    """
    one = _Run(out, err, listen, begun, undecodable)
    return await one.run(functools.partial(reapers.send, argv, cwd, environ), argv[0], cwd, seconds, stdin)


class _Run:
    def __init__(
        self,
        out: KeptOutput,
        err: KeptOutput,
        listen: Listen | None,
        begun: Callable[[int], None] | None,
        undecodable: str,
    ) -> None:
        self._out = out
        self._err = err
        self._listen = listen
        self._begun = begun
        self._undecodable = undecodable
        self._control, self._theirs = socket.socketpair()
        self._control.setblocking(False)  # noqa: FBT003 - as it is called
        self._tasks: list[asyncio.Task[None]] = []
        """Those that read what it prints, and perhaps one that gives it what it can read."""

    async def run(
        self, send: Callable[[Streams], None], program: str, cwd: str, seconds: float | None, stdin: Given
    ) -> EndedCommand:
        started = time.monotonic()
        try:
            await self._start(send, stdin)
            timed_out = False
            said = b""
            try:
                async with asyncio.timeout(None if seconds is None else max(0.0, started + seconds - time.monotonic())):
                    said = await self._last_word()
            except TimeoutError:
                timed_out = True
            else:
                self._let_live()
                await asyncio.wait(self._tasks[:2], timeout=DRAIN)
                for task in filter(asyncio.Task.done, self._tasks):
                    task.result()  # raises if what it prints could not be kept
            return EndedCommand(self._code(said, program, cwd), timed_out, time.monotonic() - started)
        finally:
            await shielded(self._finish())

    async def _finish(self) -> None:
        """Have everything ended that is left of the command, and wait until its reaper is gone."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)  # means: end everything; a flood ends unread
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_ENDING):
                while await asyncio.get_running_loop().sock_recv(self._control, 64):
                    pass
        except OSError:  # TimeoutError too: it is not to be had
            pass
        finally:
            self._control.close()

    def _let_live(self) -> None:
        """Say that the end of the command is known, and that what it left may live on until the workspace is left."""
        with suppress(OSError):
            self._control.send(KNOWN)

    async def _start(self, send: Callable[[Streams], None], stdin: Given) -> None:
        """Send the command to its reaper, and read on what it prints."""
        given = os.pipe()
        out = os.pipe()
        err = os.pipe()
        theirs = (given[0], out[1], err[1])
        try:
            # a thread that was left to itself would send what others have been given these numbers for
            await shielded(asyncio.to_thread(send, (*theirs, self._theirs.fileno())))
        except BaseException:
            for end in (given[1], out[0], err[0]):
                os.close(end)
            raise
        finally:
            self._theirs.close()
            for end in theirs:
                os.close(end)
        self._tasks = [
            asyncio.create_task(self._read(out[0], self._out, STDOUT)),
            asyncio.create_task(self._read(err[0], self._err, STDERR)),
        ]
        if stdin:
            self._tasks.append(asyncio.create_task(_write(given[1], stdin)))
        else:
            os.close(given[1])

    def _code(self, said: bytes, program: str, cwd: str) -> int:
        word, _, number = said.decode().strip().partition(" ")
        if word == "status":
            return os.waitstatus_to_exitcode(int(number))
        if word == "cwd":
            raise WrongFolderError(OSError(int(number), os.strerror(int(number)), cwd))
        if word == "error":
            is_missing = int(number) == errno.ENOENT
            told = f"{program}: {'not found' if is_missing else os.strerror(int(number))}\n"
            self._err.feed(told.encode())
            if self._listen is not None:
                self._listen(STDERR, told)
            return 127 if is_missing else 126
        return -signal.SIGKILL  # its time was up, or somebody has ended its reaper

    async def _last_word(self) -> bytes:
        """Return what the reaper says last, of which the command's process id comes first."""
        loop = asyncio.get_running_loop()
        data = b""
        while more := await loop.sock_recv(self._control, 64):
            *lines, data = (data + more).split(b"\n")
            for line in lines:
                if not line.startswith(b"pid "):
                    return line
                if self._begun is not None:
                    self._begun(int(line[4:]))
        return b""

    async def _read(self, end: int, kept: KeptOutput, name: str) -> None:
        """Take in a stream to its end."""
        reader = asyncio.StreamReader(limit=4 * _PIECE)
        file = os.fdopen(end, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        decoder = codecs.getincrementaldecoder("utf-8")(errors=self._undecodable)
        try:
            while data := await reader.read(_PIECE):
                kept.feed(data)
                if self._listen is not None and (text := decoder.decode(data)):
                    self._listen(name, text)
            if self._listen is not None and (text := decoder.decode(b"", final=True)):  # it ended within a letter
                self._listen(name, text)
        finally:
            transport.close()


async def pieces_of(given: Given) -> AsyncIterator[bytes]:
    """Give what a command can read, piece by piece; text as UTF-8, as where it is given all at once."""
    if isinstance(given, bytes):
        yield given
        return
    async for piece in given:
        yield piece.encode() if isinstance(piece, str) else piece


async def _write(end: int, given: Given) -> None:
    """Give a command what it can read; one that does not read on is no fault."""
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(end, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())
    try:
        async for piece in pieces_of(given):
            writer.write(piece)
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        transport.close()


DEFAULT_TIMEOUT = 30.0
"""Seconds, where neither the call nor the workspace says otherwise."""
OUTPUT_LIMIT = 1 << 20
"""Bytes of each stream that are held; the whole of a longer one is in a file."""
PRINTED: ContextVar[Listen | None] = ContextVar("divebook_printed", default=None)
"""Hears what every command prints that the present call of an execution runs, as it comes."""
Command: TypeAlias = str | Sequence[str]
"""A text for the shell, or a program and its arguments."""


class _Told(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


class ShellResult(_Told):
    """What a command came to: a tuple of ``exit_code``, ``stdout`` and ``stderr``, and more.

    The exit code is negative where a signal has killed the command.
    """

    timed_out: bool = False
    duration: float = 0.0
    """Seconds."""
    left_out: int = 0
    """Bytes of both streams that are not in the texts."""
    stdout_file: str | None = None
    stderr_file: str | None = None
    """Where the whole of a stream is that was too long."""

    @property
    def truncated(self) -> bool:
        """Whether the texts are not all."""
        return self.left_out > 0


Begun: TypeAlias = Callable[[int], None]
"""Hears that a command runs, and the number of its process."""


class AskedCommand(NamedTuple):
    """A command, as a shell is to run it."""

    command: Command
    seconds: float | None
    """None is no limit."""
    environ: Mapping[str, str]
    cwd: str | None
    stdin: Given
    listen: Listen | None
    inherit_env: bool
    """Whether it gets the variables of the place where it runs."""
    begun: Begun | None = None
    undecodable: str = "replace"


class Shell(ABC):
    """Runs commands in a workspace.

    Parameters
    ----------
    default_timeout
        Seconds that a command may take which says nothing else.
    environ
        Variables for all commands.
    secrets
        Variables whose values are secret: hidden in what commands print.
    output_limit
        Bytes of each stream that are held.
    """

    def __init__(
        self,
        *,
        default_timeout: float = DEFAULT_TIMEOUT,
        environ: Mapping[str, str] | None = None,
        secrets: Callable[[], Mapping[str, str]] | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> None:
        self.default_timeout = default_timeout if _limit(default_timeout) else math.inf
        self._environ = dict(environ or {})
        self._secrets = secrets
        self.output_limit = output_limit

    async def execute(
        self,
        command: Command,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is of the command, which is ended when its time is up
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | Given = b"",
        on_output: Listen | None = None,
        on_start: Begun | None = None,
        inherit_env: bool = True,
        undecodable: str = "replace",
    ) -> ShellResult:
        """Run a command to its end.

        Parameters
        ----------
        timeout
            Seconds that it may take; None is the shell's own limit, ``math.inf`` none.
        env
            Variables added to those of the workspace; with ``inherit_env=False`` nothing of this process's.
        cwd
            Where it runs, a folder of the workspace.
        stdin
            What it can read; an iterator may give it piece by piece while it runs.
        on_output
            Hears what it prints, as it comes: ``on_output("stdout", text)``.
        on_start
            Hears that it runs, and the number that the system there has given its process.
        undecodable
            What `on_output` gets of bytes that are no UTF-8, as `bytes.decode` names it.

        Raises
        ------
        ShellTimeoutError
            It took too long; what it had started was ended.
        ShellExecutionError
            It could not be run.
        PathNotAllowedError
            It may not run there.
        ValueError
            The time is none.
        """
        seconds = self.default_timeout if timeout is None else _limit(timeout)
        if not command or (isinstance(command, str) and not command.strip()):
            raise ShellExecutionError("", "there is no command")
        secrets = dict(self._secrets()) if self._secrets is not None else {}
        given = stdin.encode() if isinstance(stdin, str) else stdin
        environ = {**self._environ, **secrets, **(env or {})}
        require_runnable(command, environ)
        for secret in secrets.values():
            shared().know(secret)
        shown = command if isinstance(command, str) else " ".join(command)
        limit = None if seconds is None or math.isinf(seconds) else seconds  # both say: no limit
        listeners = [one for one in (on_output, PRINTED.get()) if one is not None]
        heard = _Heard(listeners, hides=bool(secrets)) if listeners else None
        asked = AskedCommand(command, limit, environ, cwd, given, heard, inherit_env, on_start, undecodable)
        try:
            found = await self._run(asked)
        finally:
            if heard is not None:
                heard.finish()
        result = _without(found) if secrets else found
        if result.timed_out:
            raise ShellTimeoutError(
                without_secrets(shown), 0.0 if limit is None else limit, stdout=result.stdout, stderr=result.stderr
            )
        return result

    @abstractmethod
    async def _run(self, asked: AskedCommand) -> ShellResult:
        """Run a command; `timed_out` says that its time was up, and that it was ended."""

    async def get_context_instructions(self) -> str | None:
        """Return what an agent is told of the shell; None for nothing."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Let go of what runs commands; twice is once."""


def require_runnable(command: object, environ: Mapping[Any, Any]) -> None:
    """Raise unless the system can take a command with its variables: it knows texts only, and none with NUL.

    Raises
    ------
    TypeError
        A word of the command, or a variable, is no text.
    ShellExecutionError
        Such a text cannot be handed to a program.
    """
    if isinstance(command, bytes) or not isinstance(command, str | Sequence):
        raise TypeError(f"a command is a text or a list of texts, not {command!r}")
    words = [command] if isinstance(command, str) else command
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"a word of a command must be a text, not {word!r}: write str(...)")
        if not _is_text_of_systems(word):
            raise ShellExecutionError("", f"the command cannot be run with {word!a}: leave out NUL and half letters")
    if not words[0]:
        raise ShellExecutionError("", "the command names no program: its first word is empty")
    for name, value in environ.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            wrong = name if not isinstance(name, str) else value
            raise TypeError(f"the variable {name!r} of a command must be a text, not a {type(wrong).__name__}")
        if not name or "=" in name or not _is_text_of_systems(name):
            raise ShellExecutionError("", f"a variable of a command cannot be named {name!a}")
        if not _is_text_of_systems(value):  # which may be secret
            raise ShellExecutionError(
                "", f"the value of the variable {name} holds NUL or half a letter: leave that out"
            )


def _is_text_of_systems(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _limit(seconds: object) -> float | None:
    """Return a limit of time, None for none; raises ValueError."""
    if not isinstance(seconds, int | float) or math.isnan(seconds) or seconds <= 0:
        raise ValueError(f"timeout must be a number of seconds above 0, or math.inf for no limit, not {seconds!r}")
    return None if math.isinf(seconds) else float(seconds)


def without_secrets(text: str) -> str:
    """Return a text with marks in place of secrets."""
    hidden: str = shared().without_named(text)
    return hidden


def _without(result: ShellResult) -> ShellResult:
    """Return a result without secrets."""
    clean = ShellResult(result.exit_code, without_secrets(result.stdout), without_secrets(result.stderr))
    clean.__dict__.update(result.__dict__)
    return clean


class _Heard:
    """Tells listeners what a command prints, without secrets: half of one is held until the rest of it has come."""

    def __init__(self, listeners: Sequence[Listen], *, hides: bool) -> None:
        self._listeners = listeners
        self._hides = hides
        self._held: dict[str, str] = {}

    def __call__(self, stream: str, text: str) -> None:
        if self._hides:
            text = self._held.pop(stream, "") + text
            end = shared().settled_of_named(text)
            text, self._held[stream] = text[:end], text[end:]
        self._tell(stream, text)

    def finish(self) -> None:
        """Tell what was held: nothing more comes."""
        for stream, text in self._held.items():
            self._tell(stream, text)
        self._held.clear()

    def _tell(self, stream: str, text: str) -> None:
        told = without_secrets(text) if self._hides else text
        for one in self._listeners if told else ():
            one(stream, told)


def output_keeper(limit: int, folder: str | None) -> Callable[[str], KeptOutput]:
    """Return what makes the keeper of a stream, by its name; a stream that is too long goes into a file in a folder."""

    def kept(name: str) -> KeptOutput:
        def make_file() -> BinaryIO:
            opened, path = tempfile.mkstemp(".log", f"{name}-", folder)
            os.close(opened)
            return open(path, "wb")

        return KeptOutput(limit, None if folder is None else make_file)

    return kept


def made_result(code: int, out: KeptOutput, err: KeptOutput, *, timed_out: bool, duration: float) -> ShellResult:
    """Return what a command came to whose streams were kept."""
    result = ShellResult(code, out.text(), err.text())
    result.timed_out = timed_out
    result.duration = duration
    result.left_out = out.dropped + err.dropped
    result.stdout_file, result.stderr_file = out.close(), err.close()
    return result


def inherited_environ() -> dict[str, str]:
    """Return the variables of this process that commands get: without those whose names say that they are secret."""
    return {name: value for name, value in os.environ.items() if not looks_secret(name)}


class LocalShell(Shell):
    """Runs commands on this machine, each below a reaper, so that nothing of it survives its time limit.

    Parameters
    ----------
    folder_of
        The folder in which commands run; or a function that returns the folder in which a command may run, for the one
        that is asked for or None, and raises `PathNotAllowedError`.
    reapers
        The helper process; by default one of its own.
    scratch
        Returns the folder for output that is too long; None drops what is in its middle.
    shell
        The program that runs texts.
    """

    def __init__(
        self,
        folder_of: Callable[[str | None], str] | str | Path,
        *,
        reapers: Reapers | None = None,
        scratch: Callable[[], str | None] = lambda: None,
        shell: Sequence[str] = ("/bin/sh", "-c"),
        default_timeout: float = DEFAULT_TIMEOUT,
        environ: Mapping[str, str] | None = None,
        secrets: Callable[[], Mapping[str, str]] | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> None:
        super().__init__(default_timeout=default_timeout, environ=environ, secrets=secrets, output_limit=output_limit)
        self._policy: PathPolicy | None = None
        if isinstance(folder_of, str | Path):
            self._policy = PathPolicy(Root(folder_of))  # opened here, so closed with the shell
            folder_of = self._policy.folder
        self._folder_of = folder_of
        self._scratch = scratch
        self._shell = tuple(shell)
        self.reapers = reapers or Reapers()

    async def _run(self, asked: AskedCommand) -> ShellResult:
        command = asked.command
        folder = self._folder_of(asked.cwd)
        argv = [*self._shell, command] if isinstance(command, str) else list(command)
        kept = output_keeper(self.output_limit, self._scratch())
        out = kept("stdout")
        err = kept("stderr")
        environ = {**self._inherited(), **asked.environ} if asked.inherit_env else asked.environ
        try:
            ended = await run(
                self.reapers,
                argv,
                cwd=folder,
                environ=environ,
                seconds=asked.seconds,
                out=out,
                err=err,
                stdin=asked.stdin,
                listen=asked.listen,
                begun=asked.begun,
                undecodable=asked.undecodable,
            )
        except WrongFolderError as error:
            reason = f"cannot run in {folder}: {error.args[0].strerror}"
            raise ShellExecutionError(without_secrets(str(command)), reason) from None
        except OSError as error:  # no process is to be had
            raise ShellExecutionError(without_secrets(str(command)), f"cannot be run: {error}") from error
        return made_result(ended.code, out, err, timed_out=ended.timed_out, duration=ended.seconds)

    def _inherited(self) -> dict[str, str]:
        return inherited_environ()

    async def close(self) -> None:
        """End the helper process."""
        self.reapers.close()
        if self._policy is not None:
            self._policy.close()

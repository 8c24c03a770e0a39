"""Shells of workspaces. A shell runs each command in a process of its own and returns the output and the exit code.

Commands of a local shell may do whatever the user of this process may do. A `PathPolicy` applies to the folder in which
a command starts, not to the command. A fence (bubblewrap sandbox) or a container restricts commands.

Reaping
-------
A command may start processes that outlive it, leave its session, or flood its output. `Reapers` therefore sends each
command to a helper process (`divebook.workspaces.reaper`), which forks a reaper for it. This process and the reaper
share a control socket::

    reaper -> shell    "pid 4711"      the command runs
    reaper -> shell    "status 256"    the command has ended, with this wait status
    shell  -> reaper   END_CONFIRMED   report received: background processes may live on
    shell  -> reaper   end of socket   end everything that is left of the command

After a time limit or a cancellation the shell closes its end, and waits until the reaper closes the other one: then
nothing of the command is alive. If this process is killed, the kernel closes the socket, with the same effect.
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
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from divebook.errors import ShellExecutionError, ShellTimeoutError
from divebook.text.arguments import DURATION_FORMS, DurationLike, plain_seconds
from divebook.text.passwords import looks_secret
from divebook.text.redaction import shared
from divebook.workspaces.paths import PathPolicy, Root
from divebook.workspaces.reaper import END_CONFIRMED, READY

DEFAULT_TIMEOUT = 30.0
"""Time limit of a command in seconds, if neither the caller nor the workspace sets one."""
OUTPUT_LIMIT = 1 << 20
"""Maximum number of bytes of each output stream in memory. A longer stream is also written to a file."""
PRINTED: ContextVar[OutputListener | None] = ContextVar("divebook_printed", default=None)
"""Callback for the output of all commands that run in the current call of an execution; None for no callback."""
Command: TypeAlias = str | Sequence[str]
"""A command: a string for the shell, or a program with its arguments."""


class _ShellOutput(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


class ShellResult(_ShellOutput):
    """Result of a command: the tuple ``(exit_code, stdout, stderr)``, with further attributes.

    The exit code is negative if a signal killed the command.
    """

    timed_out: bool = False
    duration: timedelta = timedelta()
    """Duration of the command."""
    left_out: int = 0
    """Number of bytes of both streams that are missing in ``stdout`` and ``stderr``."""
    stdout_file: str | None = None
    stderr_file: str | None = None
    """Paths of files with the whole stdout and stderr; None for a stream that was short enough."""

    @property
    def truncated(self) -> bool:
        """True if ``stdout`` or ``stderr`` is incomplete."""
        return self.left_out > 0


StartListener: TypeAlias = Callable[[int], None]
"""Callback that gets the process id when a command has started."""


class CommandRequest(NamedTuple):
    """A command with all options of one run: the argument of `Shell._run`, which subclasses implement."""

    command: Command
    seconds: float | None
    """Time limit in seconds; None for no limit."""
    environ: Mapping[str, str]
    cwd: str | None
    stdin: CommandInput
    listen: OutputListener | None
    inherit_env: bool
    """True if the command inherits environment variables from where it runs."""
    on_start: StartListener | None = None
    undecodable: str = "replace"


class Shell(ABC):
    """Base class of shells, which run the commands of a workspace.

    Parameters
    ----------
    default_timeout
        Time limit in seconds of commands for which the caller sets none.
    environ
        Environment variables of all commands.
    secrets
        Function that returns environment variables with secret values. The values are redacted in output.
    output_limit
        Maximum number of bytes of each output stream in memory.
    """

    def __init__(
        self,
        *,
        default_timeout: DurationLike = DEFAULT_TIMEOUT,
        environ: Mapping[str, str] | None = None,
        secrets: Callable[[], Mapping[str, str]] | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> None:
        self.default_timeout = _limit(default_timeout) or math.inf
        self._environ = dict(environ or {})
        self._secrets = secrets
        self.output_limit = output_limit

    async def execute(
        self,
        command: Command,
        *,
        timeout: DurationLike | None = None,  # noqa: ASYNC109 - it is of the command, which is ended when its time is up
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | CommandInput = b"",
        on_output: OutputListener | None = None,
        on_start: StartListener | None = None,
        inherit_env: bool = True,
        undecodable: str = "replace",
    ) -> ShellResult:
        """Run a command until it ends; return its output and exit code.

        Parameters
        ----------
        timeout
            Time limit: seconds, a timedelta, or a string such as ``5 min``; None for the limit of the shell,
            ``math.inf`` for no limit.
        env
            Variables in addition to those of the workspace. With ``inherit_env=False`` the command gets no variables of
            this process.
        cwd
            Working folder, in the workspace.
        stdin
            Input; an iterator may yield it piece by piece while the command runs.
        on_output
            Function that is called with each piece of output as it arrives: ``on_output("stdout", text)``.
        on_start
            Function that is called with the process id as soon as the command runs.
        undecodable
            Error handler of `bytes.decode` for bytes of the output that are not UTF-8. It applies to the text for
            `on_output`.

        Raises
        ------
        ShellTimeoutError
            The time limit was reached. The command and all its processes were ended.
        ShellExecutionError
            The command could not be run.
        PathNotAllowedError
            The command may not run in `cwd`.
        ValueError
            `timeout` is not a duration above 0.
        """
        seconds = self.default_timeout if timeout is None else _limit(timeout)
        if not command or (isinstance(command, str) and not command.strip()):
            raise ShellExecutionError("", "the command is empty")
        # Secrets are read for each command, since they may change, and are redacted in its output from now on.
        secrets = dict(self._secrets()) if self._secrets is not None else {}
        data = stdin.encode() if isinstance(stdin, str) else stdin
        # The later mapping wins: the caller over secrets, secrets over the workspace.
        environ = {**self._environ, **secrets, **(env or {})}
        require_runnable(command, environ)
        for secret in secrets.values():
            shared().know(secret)
        command_text = command if isinstance(command, str) else " ".join(command)
        limit = None if seconds is None or math.isinf(seconds) else seconds  # both mean no limit
        listeners = [listener for listener in (on_output, PRINTED.get()) if listener is not None]
        listen = _RedactedOutput(listeners, hides=bool(secrets)) if listeners else None
        request = CommandRequest(command, limit, environ, cwd, data, listen, inherit_env, on_start, undecodable)
        try:
            raw_result = await self._run(request)
        finally:
            if listen is not None:
                listen.finish()
        result = _without(raw_result) if secrets else raw_result
        if result.timed_out:
            raise ShellTimeoutError(
                without_secrets(command_text),
                0.0 if limit is None else limit,
                stdout=result.stdout,
                stderr=result.stderr,
            )
        return result

    @abstractmethod
    async def _run(self, request: CommandRequest) -> ShellResult:
        """Run one command until it ends or reaches its time limit, and return its result. Subclasses implement this.

        Set `timed_out` of the result if the command was ended because it reached its time limit.
        """

    async def get_context_instructions(self) -> str | None:
        """Return a description of the shell for agents, None for no description."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """End the processes that run the commands. Idempotent."""


def require_runnable(command: object, environ: Mapping[Any, Any]) -> None:
    """Raise an error if a command or its environment variables cannot be passed to a program of the system.

    Raises
    ------
    TypeError
        A word of the command, or a variable, is not a string.
    ShellExecutionError
        A string cannot be passed to a program.
    """
    if isinstance(command, bytes) or not isinstance(command, str | Sequence):
        raise TypeError(f"a command must be a string or a list of strings, not {command!r}")
    words = [command] if isinstance(command, str) else command
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"each word of a command must be a string, not {word!r}; convert it with str(...)")
        if not _is_text_of_systems(word):
            raise ShellExecutionError(
                "", f"the command contains {word!a}; remove NUL characters and unpaired surrogates"
            )
    if not words[0]:
        raise ShellExecutionError("", "the first word of the command must be the name of a program, but it is empty")
    for name, value in environ.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            wrong = name if not isinstance(name, str) else value
            raise TypeError(
                f"the environment variable {name!r} of a command must be a string, not a {type(wrong).__name__}"
            )
        if not name or "=" in name or not _is_text_of_systems(name):
            raise ShellExecutionError("", f"invalid name of an environment variable: {name!a}")
        if not _is_text_of_systems(value):  # the value may be secret, so the error does not contain it
            raise ShellExecutionError(
                "",
                f"the value of the environment variable {name} contains a NUL character or an unpaired surrogate; "
                "remove it",
            )


def _is_text_of_systems(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _limit(timeout: object) -> float | None:
    """Convert a time limit to seconds; infinity (no limit) becomes None. Raise ValueError if it is not a duration above
    0.
    """
    seconds = plain_seconds(timeout)
    if not isinstance(seconds, int | float) or math.isnan(seconds) or seconds <= 0:
        raise ValueError(f"timeout must be {DURATION_FORMS} above 0, or math.inf for no limit, not {timeout!r}")
    return None if math.isinf(seconds) else float(seconds)


def without_secrets(text: str) -> str:
    """Return a text in which all known secret values of commands are redacted."""
    clean: str = shared().without_named(text)
    return clean


def _without(result: ShellResult) -> ShellResult:
    """Return a copy of a command's result in which the secret values in its output are redacted."""
    clean = ShellResult(result.exit_code, without_secrets(result.stdout), without_secrets(result.stderr))
    # The attributes beside the tuple, such as `timed_out` and the paths of files.
    clean.__dict__.update(result.__dict__)
    return clean


class _RedactedOutput:
    """Callback for the output of a command. It redacts secret values and forwards the text to other callbacks.

    A secret may be split over two pieces. The end of a piece that may be the start of a secret is kept back until the
    next piece arrives.
    """

    def __init__(self, listeners: Sequence[OutputListener], *, hides: bool) -> None:
        self._listeners = listeners
        self._hides = hides
        self._pending: dict[str, str] = {}

    def __call__(self, stream: str, text: str) -> None:
        if self._hides:
            # Secret "hunter2" in the pieces "is hun" and "ter2\n": "is " is forwarded, "hun" waits, "hunter2\n" is
            # redacted.
            text = self._pending.pop(stream, "") + text
            end = shared().settled_of_named(text)
            text, self._pending[stream] = text[:end], text[end:]
        self._forward(stream, text)

    def finish(self) -> None:
        """Forward the text that was kept back because it might have been the start of a secret. Call this when the
        output has ended.
        """
        for stream, text in self._pending.items():
            self._forward(stream, text)
        self._pending.clear()

    def _forward(self, stream: str, text: str) -> None:
        clean = without_secrets(text) if self._hides else text
        for listener in self._listeners if clean else ():
            listener(stream, clean)


def output_keeper(limit: int, folder: str | None) -> Callable[[str], OutputBuffer]:
    """Return a function that creates the `OutputBuffer` for an output stream of a command, given the name of the
    stream.

    With a `folder`, a stream of more than `limit` bytes is also written to a file in the folder.
    """

    def output_of(name: str) -> OutputBuffer:
        def make_file() -> BinaryIO:
            # Opened again by its path, so that `name` of the file is the path and not a number.
            descriptor, path = tempfile.mkstemp(".log", f"{name}-", folder)
            os.close(descriptor)
            return open(path, "wb")

        return OutputBuffer(limit, None if folder is None else make_file)

    return output_of


def command_result(code: int, out: OutputBuffer, err: OutputBuffer, *, timed_out: bool, duration: float) -> ShellResult:
    """Return the result of a command from its exit code and the buffers of its stdout and stderr, which are closed."""
    result = ShellResult(code, out.text(), err.text())
    result.timed_out = timed_out
    result.duration = timedelta(seconds=duration)
    result.left_out = out.dropped + err.dropped
    result.stdout_file = out.close()
    result.stderr_file = err.close()
    return result


def inherited_environ() -> dict[str, str]:
    """Return the environment variables of this process that commands inherit. Variables whose names look like secrets
    are left out.
    """
    return {name: value for name, value in os.environ.items() if not looks_secret(name)}


class LocalShell(Shell):
    """Shell that runs commands on this machine. A helper process, `divebook/workspaces/reaper.py`, starts them and can
    end all processes of a command.

    Parameters
    ----------
    folder_of
        The working folder; or a function that returns the real working folder for a requested one or None, and raises
        `PathNotAllowedError`.
    reapers
        Owner of the helper process; by default a new one.
    scratch
        Function that returns the folder for files with long output. With None, the middle of long output is dropped.
    shell
        Program with arguments that runs commands given as one string.

    Attributes
    ----------
    inherited
        Function that returns the environment variables that commands inherit from this process. A workspace replaces
        this function, for example to activate a virtual environment.
    description
        Description of the shell for agents; None without one.
    """

    def __init__(
        self,
        folder_of: Callable[[str | None], str] | str | Path,
        *,
        reapers: Reapers | None = None,
        scratch: Callable[[], str | None] = lambda: None,
        shell: Sequence[str] = ("/bin/sh", "-c"),
        default_timeout: DurationLike = DEFAULT_TIMEOUT,
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
        self.inherited: Callable[[], dict[str, str]] = inherited_environ
        self.description: str | None = None

    async def _run(self, request: CommandRequest) -> ShellResult:
        command = request.command
        folder = self._folder_of(request.cwd)
        argv = [*self._shell, command] if isinstance(command, str) else list(command)
        output_of = output_keeper(self.output_limit, self._scratch())
        out = output_of("stdout")
        err = output_of("stderr")
        environ = {**self.inherited(), **request.environ} if request.inherit_env else request.environ
        try:
            outcome = await run(
                self.reapers,
                argv,
                cwd=folder,
                environ=environ,
                seconds=request.seconds,
                out=out,
                err=err,
                stdin=request.stdin,
                listen=request.listen,
                on_start=request.on_start,
                undecodable=request.undecodable,
            )
        except WrongFolderError as error:
            reason = f"the command cannot run in folder {folder}: {error.args[0].strerror}"
            raise ShellExecutionError(without_secrets(str(command)), reason) from None
        except OSError as error:  # no process can be started
            raise ShellExecutionError(without_secrets(str(command)), f"the command cannot be run: {error}") from error
        return command_result(outcome.code, out, err, timed_out=outcome.timed_out, duration=outcome.seconds)

    async def get_context_instructions(self) -> str | None:
        """Return the description of the shell for agents. Return None if the shell has none."""
        return self.description

    async def close(self) -> None:
        """End the helper process with all background processes of commands."""
        self.reapers.close()
        if self._policy is not None:
            self._policy.close()


MakeFile = Callable[[], BinaryIO]
"""Function that opens a file for a whole output stream that is too long for memory."""


class OutputBuffer:
    r"""Buffer of an output stream of a command. It keeps the beginning and the end in memory, and optionally the whole
    stream in a file.

    Parameters
    ----------
    limit
        Maximum number of bytes in memory.
    make_file
        Creates the file for the whole stream; None drops everything between head and tail.

    Examples
    --------
    >>> kept = OutputBuffer(8)
    >>> kept.feed(b"123456"); kept.feed(b"7890")
    >>> kept.text()
    '1234\n[... 2 bytes left out ...]\n7890'
    """

    def __init__(self, limit: int, make_file: MakeFile | None = None) -> None:
        self._half = limit // 2
        self._make_file = make_file
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._file: BinaryIO | None = None
        self.total = 0
        """Number of bytes received so far."""

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the output stream."""
        self.total += len(data)
        # A stream that fits in memory needs no file. From the first byte beyond, the file gets everything.
        if self._make_file is not None and self.total > 2 * self._half:
            self._write(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            # Drop whole pieces from the front as long as the rest still has the length of the tail.
            while self._tail_size - len(self._tail[0]) >= self._half:
                self._tail_size -= len(self._tail.popleft())

    def _write(self, data: bytes) -> None:
        if self._file is None:
            assert self._make_file is not None  # noqa: S101 - checked by the caller
            self._file = self._make_file()
            self._file.write(bytes(self._head))  # everything so far is still in memory
            self._file.writelines(self._tail)
        self._file.write(data)

    @property
    def dropped(self) -> int:
        """Number of received bytes that are not in memory any more."""
        # The tail may be longer than its half by a part of its first piece, which `text` cuts off.
        return max(0, self.total - len(self._head) - min(self._tail_size, self._half))

    def text(self) -> str:
        """Return the kept beginning and end of the stream as text. If bytes between them are missing, their number is
        stated there.
        """
        tail = b"".join(self._tail)
        if self.dropped:
            tail = f"\n[... {self.dropped:,} bytes left out ...]\n".encode() + tail[-self._half :]
        return (bytes(self._head) + tail).decode(errors="replace")

    def close(self) -> str | None:
        """Close the file with the whole stream and return its path. Return None if the stream fits in memory, so that
        no file was needed.
        """
        if self._file is None:
            return None
        self._file.close()
        return str(self._file.name)


# --- the helper process that forks a reaper for each command ---


Streams: TypeAlias = tuple[int, int, int, int]
"""File descriptors of a command: stdin, stdout, stderr, and the control socket of its reaper."""
_REAPER = str(Path(__file__).with_name("reaper.py"))
NEEDED = (_REAPER, sys.executable, sys.prefix, sys.base_prefix)
"""Paths that must be readable where the helper process runs: its program, and the Python that runs it."""
_PATIENCE = 60.0
"""Seconds that the helper process may take to start."""
_LONGEST_REASON = 2_000
"""Maximum number of bytes of a failed helper's output that the error message contains."""


class Reapers:
    """Owner of the helper process that starts the commands of a workspace. The helper is started for the first command,
    and again if something has killed it.

    Parameters
    ----------
    prefix
        Returns a program with arguments in which the helper and all its commands run, such as a fence. `NEEDED` must be
        readable in it. Called when the helper starts.
    check
        Raises an error if a command may not run now. Called before each command.
    """

    def __init__(self, prefix: Callable[[], Sequence[str]] = tuple, check: Callable[[], None] | None = None) -> None:
        self._prefix = prefix
        self._check = check
        self._lock = threading.Lock()
        self._end: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], streams: Streams) -> None:
        """Send a command to the helper process, which then runs it.

        The arguments are passed in a memory file, since they may be longer than a message of the socket.

        Raises
        ------
        OSError
            The helper process cannot be started. The error contains the output of the program that failed.
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
        # The helper may have been killed since the last command. One new start is tried.
        for is_last in (False, True):
            end = self._end or self._start()
            try:
                socket.send_fds(end, [b"run"], fds)
            except OSError:  # the helper was killed
                self._stop()
                if is_last:
                    raise
            else:
                return

    def _start(self) -> socket.socket:
        # SOCK_SEQPACKET keeps messages apart: one `recv_fds` gets the descriptors of exactly one command.
        shell_end, helper_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as errors:
            # This process closes its copy of the helper's end. If the helper ends early, the socket then is closed and
            # `_is_ready` fails at once.
            with helper_end:
                # ``-I -S``: no settings, variables or packages of the user, and a fast start.
                argv = [*self._prefix(), sys.executable, "-I", "-S", _REAPER, str(helper_end.fileno())]
                self._process = subprocess.Popen(
                    argv,
                    pass_fds=(helper_end.fileno(),),
                    env={},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            self._end = shell_end
            if not _is_ready(shell_end):
                self._stop()
                errors.seek(0)
                reason = (
                    errors.read(_LONGEST_REASON).decode(errors="replace").strip()
                    or "the program ended at once without output"
                )
                raise OSError(f"{Path(argv[0]).name} cannot run commands here: {reason}")
        return shell_end

    def _stop(self) -> None:
        if self._end is not None:
            self._end.close()
            self._end = None
        # The helper notices the closed socket, ends all processes of its commands, and ends.
        if self._process is not None:
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the helper process and all background processes of its commands. Idempotent."""
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


# --- work that a cancellation must not interrupt ---


T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even if the caller is cancelled in the meantime. Return its result.

    The cancellation is raised afterwards. An error of the work takes precedence over it.
    """
    task = asyncio.ensure_future(work)
    was_cancelled = False
    while not task.done():
        try:
            # Unlike `await task`, this does not cancel the task when the caller is cancelled.
            await asyncio.wait([task])
        except asyncio.CancelledError:
            was_cancelled = True
    result = task.result()
    if was_cancelled:
        raise asyncio.CancelledError
    return result


# --- one command, until its end, its time limit or its cancellation ---
#
# The limit counts from the start. After a time limit or a cancellation nothing that the command started is alive. After
# a normal end, background processes live on until the workspace is left.


DRAIN = 0.2
"""Seconds to read remaining output after a command has ended. Background processes may hold its streams open."""
_ENDING = 15.0
_PIECE = 1 << 16
STDOUT = "stdout"
STDERR = "stderr"
OutputListener: TypeAlias = Callable[[str, str], None]
"""Callback for output as it arrives. Its arguments are the name of the stream and a piece of text."""
CommandInput: TypeAlias = bytes | AsyncIterator[bytes | str]
"""Input of a command: all bytes at once, or pieces from an asynchronous iterator."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """Exit code and duration of a command that has ended, and whether it was ended by its time limit."""

    code: int
    """Exit code of the command; the negative signal number if a signal killed it."""
    timed_out: bool
    seconds: float


class WrongFolderError(Exception):
    """Error of a command whose working folder cannot be entered. Its argument is the OSError of the system."""


async def run(
    reapers: Reapers,
    argv: Sequence[str],
    *,
    cwd: str,
    environ: Mapping[str, str],
    seconds: float | None,
    out: OutputBuffer,
    err: OutputBuffer,
    stdin: CommandInput = b"",
    listen: OutputListener | None = None,
    on_start: Callable[[int], None] | None = None,
    undecodable: str = "replace",
) -> CommandOutcome:
    """Run a command through the helper process of a workspace. Return its exit code, its duration, and whether it
    reached the time limit.

    Parameters
    ----------
    seconds
        Time limit; None for no limit.
    out, err
        Buffers of the command's output.
    stdin
        Input of the command.
    on_start
        Function that is called with the process id as soon as the command runs.
    undecodable
        Treatment of bytes that are not UTF-8 in the text for `listen`: an error handler of `bytes.decode`.

    Raises
    ------
    WrongFolderError
        The folder `cwd` cannot be entered.
    OSError
        No process can be started.
    """
    command_run = _Run(out, err, listen, on_start, undecodable)
    return await command_run.run(functools.partial(reapers.send, argv, cwd, environ), argv[0], cwd, seconds, stdin)


class _Run:
    def __init__(
        self,
        out: OutputBuffer,
        err: OutputBuffer,
        listen: OutputListener | None,
        on_start: Callable[[int], None] | None,
        undecodable: str,
    ) -> None:
        self._out = out
        self._err = err
        self._listen = listen
        self._on_start = on_start
        self._undecodable = undecodable
        self._control, self._reaper_end = socket.socketpair()
        self._control.setblocking(False)  # noqa: FBT003 - as it is called
        self._tasks: list[asyncio.Task[None]] = []
        """Tasks that read the two output streams, and a task that writes the input, if there is any."""

    async def run(
        self, send: Callable[[Streams], None], program: str, cwd: str, seconds: float | None, stdin: CommandInput
    ) -> CommandOutcome:
        started = time.monotonic()
        try:
            await self._start(send, stdin)
            timed_out = False
            report = b""
            try:
                async with asyncio.timeout(None if seconds is None else max(0.0, started + seconds - time.monotonic())):
                    report = await self._last_report()
            except TimeoutError:
                timed_out = True
            else:
                # Confirmed at once, since the reaper otherwise ends the background processes of the command.
                self._confirm_end()
                # Only the two readers. The writer of an input that never ends would use up the whole time.
                await asyncio.wait(self._tasks[:2], timeout=DRAIN)
                for task in filter(asyncio.Task.done, self._tasks):
                    task.result()  # raises if the output could not be stored
            return CommandOutcome(self._code(report, program, cwd), timed_out, time.monotonic() - started)
        finally:
            await shielded(self._finish())

    async def _finish(self) -> None:
        """End all processes of the command that are left, and wait until its reaper process has ended."""
        # Only this direction is closed. The reaper closes the other one when nothing of the command is alive.
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)  # the reaper ends everything, also a command that floods its output
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_ENDING):
                while await asyncio.get_running_loop().sock_recv(self._control, 64):
                    pass
        except OSError:  # also TimeoutError: some process cannot be killed
            pass
        finally:
            self._control.close()

    def _confirm_end(self) -> None:
        """Tell the reaper process that its report about the command's end was received. The reaper then lets background
        processes of the command continue.
        """
        with suppress(OSError):
            self._control.send(END_CONFIRMED)

    async def _start(self, send: Callable[[Streams], None], stdin: CommandInput) -> None:
        """Send the command to the helper process, and start tasks that read its output and write its input."""
        stdin_pipe = os.pipe()
        out = os.pipe()
        err = os.pipe()
        command_ends = (stdin_pipe[0], out[1], err[1])
        try:
            # If this were cancelled, the thread would still send these numbers, which may be other descriptors by then.
            await shielded(asyncio.to_thread(send, (*command_ends, self._reaper_end.fileno())))
        except BaseException:
            for end in (stdin_pipe[1], out[0], err[0]):
                os.close(end)
            raise
        finally:
            # The helper has copies. A copy that stays open here would hide the end of the streams.
            self._reaper_end.close()
            for end in command_ends:
                os.close(end)
        self._tasks = [
            asyncio.create_task(self._read(out[0], self._out, STDOUT)),
            asyncio.create_task(self._read(err[0], self._err, STDERR)),
        ]
        if stdin:
            self._tasks.append(asyncio.create_task(_write(stdin_pipe[1], stdin)))
        else:
            os.close(stdin_pipe[1])

    def _code(self, report: bytes, program: str, cwd: str) -> int:
        """Convert the last report of the reaper process to the exit code of the command. Raise `WrongFolderError` if
        the working folder could not be entered.
        """
        # Reports: "status N" (wait status), "cwd ERRNO", "error ERRNO" (no process), "ended", or nothing after a kill.
        word, _, number = report.decode().strip().partition(" ")
        if word == "status":
            return os.waitstatus_to_exitcode(int(number))
        if word == "cwd":
            raise WrongFolderError(OSError(int(number), os.strerror(int(number)), cwd))
        if word == "error":
            is_missing = int(number) == errno.ENOENT
            message = f"{program}: {'not found' if is_missing else os.strerror(int(number))}\n"
            # Reported as by a shell: a line on stderr, and 127 for a missing program or 126 for one that cannot be run.
            self._err.feed(message.encode())
            if self._listen is not None:
                self._listen(STDERR, message)
            return 127 if is_missing else 126
        return -signal.SIGKILL  # the time limit was reached, or the reaper was killed

    async def _last_report(self) -> bytes:
        """Wait for the last report of the reaper process, which says how the command ended, and return it. Return b""
        if the reaper ended without it. The first report, with the process id, is passed to a callback.
        """
        loop = asyncio.get_running_loop()
        data = b""
        # A report may arrive in several pieces: the text after the last line feed is kept for the next piece.
        while more := await loop.sock_recv(self._control, 64):
            *lines, data = (data + more).split(b"\n")
            for line in lines:
                if not line.startswith(b"pid "):
                    return line
                if self._on_start is not None:
                    self._on_start(int(line[4:]))
        return b""

    async def _read(self, end: int, output: OutputBuffer, name: str) -> None:
        """Read an output stream of the command until it ends. Pass the bytes to a buffer, and the decoded text to the
        callback if there is one.
        """
        reader = asyncio.StreamReader(limit=4 * _PIECE)
        file = os.fdopen(end, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        decoder = codecs.getincrementaldecoder("utf-8")(errors=self._undecodable)
        try:
            while data := await reader.read(_PIECE):
                output.feed(data)
                if self._listen is not None:
                    text = decoder.decode(data)
                    if text:
                        self._listen(name, text)
            if self._listen is not None:
                text = decoder.decode(b"", final=True)  # the stream may end within a letter
                if text:
                    self._listen(name, text)
        finally:
            transport.close()


async def pieces_of(data: CommandInput) -> AsyncIterator[bytes]:
    """Yield the input of a command in pieces of bytes. Pieces of text are encoded as UTF-8."""
    if isinstance(data, bytes):
        yield data
        return
    async for piece in data:
        yield piece.encode() if isinstance(piece, str) else piece


async def _write(end: int, data: CommandInput) -> None:
    """Write the input of a command into its pipe, then close the pipe. A command that stops reading is not an error."""
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(end, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())
    try:
        async for piece in pieces_of(data):
            writer.write(piece)
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        transport.close()

"""A shell: runs commands in a workspace, each in a process of its own, and says what they printed and how they ended.

Commands of a local shell may do whatever the person may do whose process this is: the rule of paths holds for the
folder in which a command starts, not for the command. What bounds them is a fence or a container.
"""

from __future__ import annotations

import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from divebook.errors import ShellExecutionError, ShellTimeoutError
from divebook.text.redaction import shared
from divebook.text.secret_names import looks_secret
from divebook.workspace.commands.output import KeptOutput
from divebook.workspace.commands.reapers import Reapers
from divebook.workspace.commands.running import Given, Listen, WrongFolderError, run
from divebook.workspace.paths import Root
from divebook.workspace.policy import PathPolicy

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
        self._environ, self._secrets, self.output_limit = dict(environ or {}), secrets, output_limit

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
        self._listeners, self._hides = listeners, hides
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
    result.timed_out, result.duration, result.left_out = timed_out, duration, out.dropped + err.dropped
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
        self._folder_of, self._scratch, self._shell = folder_of, scratch, tuple(shell)
        self.reapers = reapers or Reapers()

    async def _run(self, asked: AskedCommand) -> ShellResult:
        command, folder = asked.command, self._folder_of(asked.cwd)
        argv = [*self._shell, command] if isinstance(command, str) else list(command)
        kept = output_keeper(self.output_limit, self._scratch())
        out, err = kept("stdout"), kept("stderr")
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

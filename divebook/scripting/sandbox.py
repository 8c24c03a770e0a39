"""Pool of sandbox processes and sessions that run code in them. The only module that imports Monty.

Monty is an interpreter of a subset of Python that has no access to files, processes or the network. It runs in separate
processes, which are started once and reused. A script calls the host through *suspensions*: the session stops with a
snapshot that names a function, the host computes the result, and the snapshot resumes with it (`_step`). Only functions
of `HostAnswers` are answered. Without a host, clock and randomness are fixed (`_FROZEN`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sysconfig
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

import pydantic_monty as monty

from divebook.scripting.prelude import DOCUMENT, ERROR_FUNCTION, MUTATION, Host, Limits
from divebook.scripting.syntax import FailureKind, SandboxError, forked
from divebook.scripting.values import plain

# A session without a host has a fixed clock and fixed random numbers, so that expressions give the same result each
# time.
_FROZEN: monty.OSPolicy = {
    "datetime": datetime(2000, 1, 1, tzinfo=UTC),
    "sleep": "zero",
    "random_start": {"seed": 0},
}
_ASKING: monty.OSPolicy = {"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"}
_STARTED_IN: set[int] = set()
"""Ids of the Python processes in which Monty was started. A forked child has another id, and must not use Monty: its
threads do not survive a fork, so that the child would wait for ever.
"""

# Calls of one script to the host. A script that asks more is ended by Monty.
_MOST_QUESTIONS = 100_000
_PRINTED_BYTES = 10 * 1024 * 1024


class Sandbox:
    """Pool of sandbox processes, which are started once and reused.

    Parameters
    ----------
    processes
        Largest number of processes. If all are in use, a new session waits for one of them.
    """

    def __init__(self, processes: int) -> None:
        # The ids of other processes in the set were inherited by a fork.
        if _STARTED_IN - {os.getpid()}:
            raise forked()
        _STARTED_IN.add(os.getpid())
        self._shield = Shield()
        # The first process starts with the pool. The others start when sessions need them.
        self._pool = monty.Monty(binary_path=self._shield.program, min_processes=1, max_processes=processes)
        self._pool.__enter__()

    def session(self, limits: Limits, prelude: str, *, asks_host: bool) -> SandboxSession:
        """Start a fresh session in a sandbox process and run `prelude` in it.

        If `asks_host` is False, the clock and random numbers of the session are fixed.
        """
        checked_out = self._pool.checkout(
            script_name="script",
            limits={
                # The limit counts the time of the sandbox itself, without that of calls to the host.
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory,
                "max_suspensions": _MOST_QUESTIONS,
            },
            os_policy=_ASKING if asks_host else _FROZEN,
        )
        return SandboxSession(checked_out, prelude)

    def close(self) -> None:
        """End all sandbox processes of the pool."""
        self._pool.__exit__(None, None, None)
        self._shield.close()


class SandboxSession:
    """Session in one sandbox process. Variables stay defined until later code in the session replaces them.

    Raises
    ------
    SandboxError
        The prelude failed. On a busy machine it may exceed the limit of time.
    """

    def __init__(self, session: monty.MontySession, prelude: str) -> None:
        self._session = session.__enter__()
        try:
            # A fresh session parses the prelude each time, so that an empty one is skipped.
            if prelude:
                self._session.feed_run(prelude)
        except monty.MontyError as error:
            # The process of a session that failed must return to the pool.
            self.close()
            raise _failure(error) from error

    def close(self) -> None:
        """End the session: delete its variables, and return the process to the pool."""
        self._session.__exit__(None, None, None)

    def evaluate(self, code: str, names: dict[str, Any]) -> Any:
        """Evaluate an expression that does not call the host, and return its value."""
        try:
            return self._session.feed_run(code, inputs=names)
        except monty.MontyError as error:
            raise _failure(error) from error

    def run(self, code: str, names: dict[str, Any], host: Host | None) -> tuple[Any, str]:
        """Run a script. Return the value of its last expression, and the text that it printed. `host` executes the
        calls that the script makes; without it they are refused.

        An exception of the host is raised unchanged. The session is not usable afterwards.
        """
        answers = HostAnswers(host)
        printed = monty.CollectString(max_bytes=_PRINTED_BYTES)
        try:
            snapshot = self._session.feed_start(code, inputs=names, print_callback=printed)
            # Each snapshot is a pause at a call to the host. The loop ends with the result.
            while not isinstance(snapshot, monty.MontyComplete):
                snapshot = _step(snapshot, answers)
            result = snapshot.output
        except monty.MontyError as error:
            failure = _failure(error)
            # The script did not catch the error of a missing document. The host's own error is raised unchanged.
            if answers.missing is not None and failure.text == f"FileNotFoundError: {answers.missing}":
                raise answers.missing from None
            failure.printed = printed.output
            raise failure from error
        return result, printed.output


def _step(snapshot: monty.SyncSnapshot, answers: HostAnswers) -> monty.SyncSnapshot:
    """Resume sandboxed code that is paused at a call to the host: execute the call with `answers`, and pass its result
    to the code. Return Monty's next snapshot of the code: paused at another call, or ended with a result.
    """
    # A name that the session lacks. Without a value, Monty raises NameError inside the script.
    if isinstance(snapshot, monty.NameLookupSnapshot):
        return snapshot.resume()
    # The script awaits something that no call of the host will complete.
    if not isinstance(snapshot, monty.FunctionSnapshot):
        raise SandboxError(
            FailureKind.RAISED, "the script waits for something that never comes; await only asyncio.sleep"
        )
    name = str(snapshot.function_name)
    # An import is not a call of the host. Monty's default applies: its own modules, or an error.
    if name == "import":
        return snapshot.resume_not_handled()
    return snapshot.resume(cast(monty.ExternalResult, answers.execute_call(name, snapshot.args)))


def _failure(error: monty.MontyError) -> SandboxError:
    if isinstance(error, monty.MontyCrashedError):
        # Monty ends the process of a script that does not stop in time.
        return SandboxError(FailureKind.TIME if error.timed_out else FailureKind.CRASHED, str(error))
    if isinstance(error, monty.MontyConversionError):
        return SandboxError(FailureKind.UNSENDABLE, str(error))
    if isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return _raised(error)
    return SandboxError(FailureKind.RAISED, str(error))


def _raised(error: monty.MontyRuntimeError | monty.MontySyntaxError) -> SandboxError:
    text = str(error)
    frames = error.traceback()
    script_frames = [frame for frame in frames if frame.filename == frames[0].filename]  # without those of the prelude
    line = script_frames[-1].line if script_frames else None
    if text.startswith("TimeoutError: feed time limit exceeded"):
        return SandboxError(FailureKind.TIME, text, line)
    if text.startswith("MemoryError: ") and "memory limit" in text:
        return SandboxError(FailureKind.MEMORY, text, line)
    # A feature of Python that Monty lacks. The script cannot work in any run, as with a syntax error.
    unsupported = text.startswith("NotImplementedError: ") and ("monty" in text or "not supported" in text)
    if isinstance(error, monty.MontySyntaxError) or unsupported:
        return SandboxError(FailureKind.SYNTAX, text, line)
    # ``error("...")`` of the prelude: the message is shown without the type of the exception.
    # The last frame is the function of the prelude, and the frame before it is in the script.
    deliberate = frames and frames[-1].function_name == ERROR_FUNCTION and len(script_frames) < len(frames)
    return SandboxError(FailureKind.RAISED, text.removeprefix("Exception: ") if deliberate else text, line)


# --- protection from interrupts -------------------------------------------------------------------------------------
#
# Ctrl-C in a terminal, and Jupyter's interrupt, send SIGINT to the whole process group, and so to the sandbox
# processes, for whatever execution they work. They are therefore started by a shell script that makes them ignore
# SIGINT (`tests/scripting/test_shield.py` interrupts the group).


_SCRIPT = """#!/bin/sh
trap '' INT
exec {program} "$@"
"""


class Shield:
    """Temporary shell script that starts a sandbox process with SIGINT ignored. Without the script, Ctrl-C in a
    terminal would also end the sandbox process. `close` deletes the script.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.program: str | None = None
        """Path of the script. None without a shell or a sandbox program; Monty then starts its default program."""
        program = _installed_program()
        if program is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="divebook-", ignore_cleanup_errors=True)
            script = Path(self._folder.name) / "monty"
            script.write_text(_SCRIPT.format(program=shlex.quote(program)), encoding="utf-8")
            script.chmod(0o700)
            # A folder for temporary files may be mounted without permission to execute. Monty then starts its default
            # program.
            self.program = str(script) if os.access(script, os.X_OK) else None

    def close(self) -> None:
        """Delete the temporary shell script."""
        if self._folder is not None:
            self._folder.cleanup()


def _installed_program() -> str | None:
    """Return the path of the sandbox program that is installed beside this Python.

    Return None if the program is missing, or a shell that could start it.
    """
    # The variable names another program of Monty, which the user wants.
    if os.name != "posix" or "MONTY_BIN" in os.environ:
        return None
    program = Path(sysconfig.get_path("scripts")) / "monty"
    return str(program) if program.is_file() else None


# --- calls from the sandbox to the host -----------------------------------------------------------------------------


_REFUSED = (
    "scripts are sandboxed: {name} is not available; read documents with documents.get(path), and write files with an "
    "action"
)
_NO_HOST = "the clock, random numbers and documents are not available here"


class HostAnswers:
    """Adapter between the sandbox library Monty and a `Host`: answers each system call of the sandbox in the form that
    Monty expects.
    """

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self.missing: FileNotFoundError | None = None
        """Error of the last document that the script requested and that does not exist."""

    def execute_call(self, name: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Execute one system call of the sandbox with the functions of the `Host`. Return its result in the form that
        Monty expects. Exceptions of the host are not caught.
        """
        # Only the listed calls reach the host. All others, such as ``open``, are refused here.
        call = _CALLS.get(name)
        if call is None:
            return _refusal("PermissionError", _REFUSED.format(name=name))
        if self._host is None:
            return _refusal("RuntimeError", f"{name}: {_NO_HOST}")
        try:
            return {"return_value": call(self._host, *arguments)}
        # Only the error of an absent document can be caught by the script. All other errors of the host end it.
        except FileNotFoundError as error:
            if name != DOCUMENT:
                raise
            self.missing = error
            return _refusal("FileNotFoundError", str(error))


def _refusal(kind: str, message: str) -> dict[str, Any]:
    return {"exc_type": kind, "message": message}


def _time(host: Host, *_: Any) -> float:
    return host.now()


def _now(host: Host, zone: Any = None) -> datetime:
    # ``datetime.now()`` without a zone is naive in Python. The host has no zone of its own, so that the time is UTC.
    moment = datetime.fromtimestamp(host.now(), zone or UTC)
    return moment if zone else moment.replace(tzinfo=None)


def _today(host: Host) -> date:
    return _now(host).date()


def _random_bytes(host: Host, count: int) -> bytes:
    # The host is asked once and records its answer. The function extends it to as many bytes as the sandbox wants.
    return hashlib.shake_256(host.entropy()).digest(count)


def _sleep(host: Host, seconds: float, *_: Any) -> None:
    host.sleep(seconds)


def _document(host: Host, path: str) -> dict[str, Any]:
    return dict(host.document(path))


def _mutation(host: Host, change: str, key: Any, value: Any = None) -> None:
    # A variable gets plain data, as the result of a script does.
    host.mutate(change, key, plain(value))


_CALLS: dict[str, Callable[..., Any]] = {
    "time.time": _time,
    "datetime.now": _now,
    "date.today": _today,
    "os.urandom": _random_bytes,
    "time.sleep": _sleep,
    "asyncio.sleep": _sleep,
    DOCUMENT: _document,
    MUTATION: _mutation,
}

"""The one door to Monty: a pool of sandbox processes, and sessions that run code in them."""

from __future__ import annotations

import os
import shlex
import sysconfig
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pydantic_monty as monty

from divebook.scripting.prelude import ERROR_FUNCTION, HostAnswers, Limits
from divebook.scripting.syntax import FailureKind, SandboxError, forked

# Keeps an interrupt meant for us from ending the sandbox's processes.
#
# A terminal's Ctrl-C, and Jupyter's interrupt, go to the whole process group, and with it to the sandbox, in whatever
# execution it happens to work for. Its processes are therefore started by a script that has them ignore SIGINT
# (`tests/scripting/test_shield.py` interrupts the group).


_SCRIPT = """#!/bin/sh
trap '' INT
exec {program} "$@"
"""


class Shield:
    """The script, for as long as processes may be started; `program` is what to start."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.program: str | None = None
        """None leaves it to the sandbox's own library."""
        program = _own_program()
        if program is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="divebook-", ignore_cleanup_errors=True)
            script = Path(self._folder.name) / "monty"
            script.write_text(_SCRIPT.format(program=shlex.quote(program)), encoding="utf-8")
            script.chmod(0o700)
            self.program = str(script) if os.access(script, os.X_OK) else None

    def close(self) -> None:
        """Remove the script."""
        if self._folder is not None:
            self._folder.cleanup()


def _own_program() -> str | None:
    """Return the program installed beside this Python, where there is one and a shell to start it."""
    if os.name != "posix" or "MONTY_BIN" in os.environ:
        return None
    program = Path(sysconfig.get_path("scripts")) / "monty"
    return str(program) if program.is_file() else None


_FROZEN: monty.OSPolicy = {
    "datetime": datetime(2000, 1, 1, tzinfo=UTC),
    "sleep": "zero",
    "random_start": {"seed": 0},
}
_ASKING: monty.OSPolicy = {"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"}
_STARTED_IN: set[int] = set()
"""Our process ids in which Monty was started: its threads do not survive a fork, so a child would wait for ever."""

_MOST_QUESTIONS = 100_000
_PRINTED_BYTES = 10 * 1024 * 1024


class Sandbox:
    """A pool of sandbox processes.

    Parameters
    ----------
    processes
        The most processes at one time; a further session waits for one to be free.
    """

    def __init__(self, processes: int) -> None:
        if _STARTED_IN - {os.getpid()}:
            raise forked()
        _STARTED_IN.add(os.getpid())
        self._shield = Shield()
        self._pool = monty.Monty(binary_path=self._shield.program, min_processes=1, max_processes=processes)
        self._pool.__enter__()

    def session(self, limits: Limits, prelude: str, *, asks_host: bool) -> SandboxSession:
        """Return a fresh session that has run `prelude`; without `asks_host` its clock and chance are fixed."""
        checked_out = self._pool.checkout(
            script_name="script",
            limits={
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory,
                "max_suspensions": _MOST_QUESTIONS,
            },
            os_policy=_ASKING if asks_host else _FROZEN,
        )
        return SandboxSession(checked_out, prelude)

    def close(self) -> None:
        """End the processes."""
        self._pool.__exit__(None, None, None)
        self._shield.close()


class SandboxSession:
    """One sandbox process; names given to a run stay until the next run replaces them.

    Raises
    ------
    SandboxError
        The prelude could not be run: on a busy machine, it took longer than the limit allows.
    """

    def __init__(self, session: monty.MontySession, prelude: str) -> None:
        self._session = session.__enter__()
        try:
            if prelude:
                self._session.feed_run(prelude)
        except monty.MontyError as error:
            self.close()
            raise _failure(error) from error

    def close(self) -> None:
        """Give the process back, emptied."""
        self._session.__exit__(None, None, None)

    def evaluate(self, code: str, names: dict[str, Any]) -> Any:
        """Return the value of an expression that asks nothing of the host."""
        try:
            return self._session.feed_run(code, inputs=names)
        except monty.MontyError as error:
            raise _failure(error) from error

    def run(self, code: str, names: dict[str, Any], answers: HostAnswers) -> tuple[Any, str]:
        """Return the value of a script's last expression, and what it printed; questions go to `answers`.

        What the host raises comes out unchanged; the session is useless afterwards.
        """
        printed = monty.CollectString(max_bytes=_PRINTED_BYTES)
        try:
            snapshot = self._session.feed_start(code, inputs=names, print_callback=printed)
            while not isinstance(snapshot, monty.MontyComplete):
                snapshot = _step(snapshot, answers)
            result = snapshot.output
        except monty.MontyError as error:
            failure = _failure(error)
            if answers.missing is not None and failure.text == f"FileNotFoundError: {answers.missing}":
                raise answers.missing from None
            failure.printed = printed.output
            raise failure from error
        return result, printed.output


def _step(snapshot: monty.SyncSnapshot, answers: HostAnswers) -> monty.SyncSnapshot:
    """Answer one question of the sandbox and let it go on to the next."""
    if isinstance(snapshot, monty.NameLookupSnapshot):
        return snapshot.resume()
    if not isinstance(snapshot, monty.FunctionSnapshot):
        raise SandboxError(
            FailureKind.RAISED, "the script waits for something that never comes; await only asyncio.sleep"
        )
    name = str(snapshot.function_name)
    if name == "import":
        return snapshot.resume_not_handled()
    return snapshot.resume(cast(monty.ExternalResult, answers.answer(name, snapshot.args)))


def _failure(error: monty.MontyError) -> SandboxError:
    if isinstance(error, monty.MontyCrashedError):
        return SandboxError(FailureKind.TIME if error.timed_out else FailureKind.CRASHED, str(error))
    if isinstance(error, monty.MontyConversionError):
        return SandboxError(FailureKind.UNSENDABLE, str(error))
    if isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return _raised(error)
    return SandboxError(FailureKind.RAISED, str(error))


def _raised(error: monty.MontyRuntimeError | monty.MontySyntaxError) -> SandboxError:
    text = str(error)
    frames = error.traceback()
    own = [frame for frame in frames if frame.filename == frames[0].filename]  # without those of the prelude
    line = own[-1].line if own else None
    if text.startswith("TimeoutError: feed time limit exceeded"):
        return SandboxError(FailureKind.TIME, text, line)
    if text.startswith("MemoryError: ") and "memory limit" in text:
        return SandboxError(FailureKind.MEMORY, text, line)
    unsupported = text.startswith("NotImplementedError: ") and ("monty" in text or "not supported" in text)
    if isinstance(error, monty.MontySyntaxError) or unsupported:
        return SandboxError(FailureKind.SYNTAX, text, line)
    deliberate = frames and frames[-1].function_name == ERROR_FUNCTION and len(own) < len(frames)
    return SandboxError(FailureKind.RAISED, text.removeprefix("Exception: ") if deliberate else text, line)

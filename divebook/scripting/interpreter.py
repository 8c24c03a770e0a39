"""Interpreter of sandboxed code: small expressions run in reused sandbox sessions, each script step in a fresh
session.

The sessions are those of `Sandbox`, a pool of processes that run Monty. This is the only module that imports Monty.
"""

from __future__ import annotations

import atexit
import os
import shlex
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, cast

import pydantic_monty as monty

from divebook.scripting.prelude import (
    ACTIVITY_NAMES,
    DEFAULT_LIMITS,
    ERROR_FUNCTION,
    NOTHING,
    SAFE_NAMES,
    Context,
    Host,
    HostAnswers,
    Limits,
    is_plain,
    prelude,
)
from divebook.scripting.structure import PartFunctions, Scope, WorkBudget
from divebook.scripting.syntax import (
    FailureKind,
    Program,
    SandboxError,
    compile_expression,
    compile_script,
    forked,
    script_error,
    select,
)
from divebook.scripting.values import plain, sendable

# Sessions for expressions: one for each core, from 2 to 4.
_WARM_SESSIONS = max(2, min(4, os.cpu_count() or 2))
# Sessions for script steps, in processes besides those for expressions.
_SCRIPTS_AT_ONCE = 16


class Interpreter:
    """Interpreter of sandboxed Python code, for expressions and script steps.

    Threads may share an interpreter. Its processes are started when they are first needed.

    Parameters
    ----------
    limits
        Limits of conditions, templates and each-items. Script steps have limits of their own.

    Examples
    --------
    >>> with Interpreter() as interpreter:
    ...     interpreter.evaluate(Context.CONDITION, ["state.count + 1", "len(state)"], {"state": {"count": 2}})
    [3, 1]
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._processes = _Processes()
        self._parts = PartFunctions(self._part, _is_plain)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox processes of the interpreter. Its next use starts new ones."""
        self._processes.close()

    def evaluate(self, context: Context, expressions: Sequence[str], names: Mapping[str, Any]) -> list[Any]:
        """Evaluate deterministic expressions and return their values in the same order. Expressions that need the
        sandbox run in it together, in one call.

        Raises
        ------
        ScriptSyntaxError, UndefinedVariableError
            An expression is not valid. Nothing has been evaluated then.
        ScriptLimitError
            The expressions together exceed a limit of time or memory.
        """
        if context is Context.ACTIVITY:
            raise ValueError("script steps are not expressions; use run_script")
        # All expressions are checked before the first is evaluated.
        programs = [compile_expression(expression) for expression in expressions]
        for program in programs:
            program.require(names, SAFE_NAMES)
        # One budget for all expressions, so that many of them do not multiply the limit.
        work = WorkBudget(self.limits.seconds, self._processes.clock)
        values = [self._evaluate_outside(program, context, names, work) for program in programs]
        return self._evaluate_remaining(values, programs, names)

    def _evaluate_remaining(
        self, values: list[Any], programs: Sequence[Program], names: Mapping[str, Any]
    ) -> list[Any]:
        """Evaluate in the sandbox each program whose entry in `values` is `NOTHING`, because it could not be evaluated
        outside the sandbox. Return the values of all programs.
        """
        # Merge two sources in order: values that were found outside, and answers of the sandbox for the rest:
        # [5, NOTHING, 7] with the answer 6 is [5, 6, 7].
        remaining = [program for program, value in zip(programs, values, strict=True) if value is NOTHING]
        answers = iter(self._evaluate_programs(remaining, names)) if remaining else iter(())
        return [next(answers) if value is NOTHING else value for value in values]

    def _evaluate_outside(self, program: Program, context: Context, names: Mapping[str, Any], work: WorkBudget) -> Any:
        """Evaluate a program without the sandbox, if it is a reference (``state.a``) or a composed expression
        (``[state.a]``).

        Return `NOTHING` if the sandbox must evaluate the program.
        """
        if program.reference is not None:
            return program.reference.resolve(names, context)
        # In a condition or template, plain data is wanted, which one run of the sandbox gives for all expressions
        # together.
        if program.structure is None or context not in (Context.VALUE, Context.EACH):
            return NOTHING
        return program.structure.value(Scope(context, names, self._parts, work))

    def _part(self, context: Context, text: str, names: Mapping[str, Any]) -> Any:
        """Evaluate a part of a composed expression, such as ``state.a`` in ``[state.a, 1]``. If the part is a
        reference, its value is looked up; otherwise the sandbox evaluates the part.
        """
        program = compile_expression(text)
        value = NOTHING if program.reference is None else program.reference.resolve(names, context)
        return self._evaluate_remaining([value], [program], names)[0]

    def _evaluate_programs(self, programs: Sequence[Program], names: Mapping[str, Any]) -> list[Any]:
        """Evaluate several programs in one run of the sandbox, joined to one list expression. Return their values as
        plain data.
        """
        # One list expression for all programs. Each code is in parentheses, and line breaks inside it stay.
        code = f"[{','.join([program.code for program in programs])}]"
        try:
            value = self._evaluate(code, select(programs, names))
        except SandboxError as failure:
            raise script_error(failure, programs, names, self.limits) from failure
        return [plain(item) for item in value]

    def run_script(
        self, source: str, names: Mapping[str, Any], host: Host | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> Any:
        """Run a script in a fresh sandbox session. Return the value of its last expression, or None. Blocks until the
        script ends.

        Raises
        ------
        ScriptError
            The script failed. Errors of `host` are raised unchanged.
        """
        program = compile_script(source)
        program.require(names, ACTIVITY_NAMES)
        try:
            # The session is new for each script, because a script may change anything in its session, also builtins.
            session = self._processes.fresh(limits, program.prelude, asks_host=True)
        except SandboxError as failure:
            raise script_error(failure, [program], names, limits) from failure
        try:
            value, printed = self._run(session, program, select([program], names), HostAnswers(host))
        except SandboxError as failure:
            # The text that a failed script has printed helps to find the error.
            if host is not None and failure.printed:
                host.printed(failure.printed)
            raise script_error(failure, [program], names, limits) from failure
        finally:
            # Also if the host raised: the session is paused inside a call and cannot be used for anything else.
            session.close()
        if host is not None and printed:
            host.printed(printed)
        return plain(value)

    def _run(
        self, session: SandboxSession, program: Program, names: dict[str, Any], answers: HostAnswers
    ) -> tuple[Any, str]:
        try:
            return session.run(program.code, names, answers)
        # Values are converted only after the sandbox has refused them: most are plain, and a conversion copies them
        # all.
        except SandboxError as failure:
            if failure.kind is not FailureKind.UNSENDABLE:
                raise
            return session.run(program.code, _sendable(names), answers)

    def _evaluate(self, code: str, names: dict[str, Any]) -> Any:
        """Evaluate code in a sandbox session from the pool. If that session runs out of memory or crashes, evaluate the
        code again in a fresh session.
        """
        try:
            return self._evaluate_once(code, names, fresh=False)
        except SandboxError as failure:
            if failure.kind is FailureKind.UNSENDABLE:
                return self._evaluate_once(code, _sendable(names), fresh=False)
            # Variables of earlier expressions stay in a session and take memory. A fresh one shows whether this code
            # alone needs too much.
            if failure.kind in (FailureKind.MEMORY, FailureKind.CRASHED):
                return self._evaluate_once(code, names, fresh=True)
            raise

    def _evaluate_once(self, code: str, names: dict[str, Any], *, fresh: bool) -> Any:
        session = self._processes.acquire(self.limits, fresh=fresh)
        usable = SAFE_NAMES.isdisjoint(names)  # a variable named "len" must not exist for the next expression
        try:
            value = session.evaluate(code, names)
        # Any error, also Ctrl-C, must return the session, because others wait for it. A session that was interrupted in
        # the middle of a call is not used again.
        except BaseException as error:
            survives = isinstance(error, SandboxError) and not error.ends_session
            self._processes.release(session, usable=usable and survives)
            raise
        self._processes.release(session, usable=usable)
        return value


def _is_plain(text: str, names: Mapping[str, Any]) -> bool:
    # Only what the expression reads is looked at, not the whole state.
    return all(map(is_plain, select([compile_expression(text)], names).values()))


def _sendable(names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sendable(value, name) for name, value in names.items()}


class _Processes:
    """The sandbox processes and sandbox sessions that one interpreter uses in this Python process.

    The processes are started on first use, and ended by `close`.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[SandboxSession] = []
        self._in_use = 0
        self._sandbox: Sandbox | None = None
        # Seconds for which each thread has waited: expressions of one thread do not gain from the waiting of another.
        self._waited = threading.local()

    def clock(self) -> float:
        """Return a time in seconds for measuring time limits: it does not advance while this thread waits for a sandbox
        session.
        """
        return time.monotonic() - getattr(self._waited, "seconds", 0.0)

    def fresh(self, limits: Limits, prelude: str, *, asks_host: bool) -> SandboxSession:
        """Start a new sandbox session for a script or for expressions. Blocks while too many scripts run."""
        self._refuse_after_fork()
        with self._changed:
            if self._sandbox is None:
                # Monty is loaded at this point, because many processes never evaluate anything in a sandbox.

                # The largest number of processes. Scripts beyond it wait in `Sandbox.session`.
                self._sandbox = Sandbox(_WARM_SESSIONS + _SCRIPTS_AT_ONCE)
                self._pid = os.getpid()
                atexit.register(self.close)
            sandbox = self._sandbox
        return sandbox.session(limits, prelude, asks_host=asks_host)

    def _refuse_after_fork(self) -> None:
        # The sandbox library has threads, which a fork does not copy.
        if self._sandbox is not None and self._pid != os.getpid():
            raise forked()

    def acquire(self, limits: Limits, *, fresh: bool) -> SandboxSession:
        """Take a sandbox session for expressions from the pool, or start one. Blocks while `_WARM_SESSIONS` are in use.

        With `fresh` the session is always a new one.
        """
        self._refuse_after_fork()
        with self._changed:
            # Waiting does not count for the time limit of this thread's expressions (see `clock`).
            before = time.monotonic()
            while self._in_use >= _WARM_SESSIONS:
                self._changed.wait()
            self._waited.seconds = getattr(self._waited, "seconds", 0.0) + time.monotonic() - before
            self._in_use += 1
            if self._idle:
                # A fresh session replaces an idle session, so that at most `_WARM_SESSIONS` sessions exist.
                session = self._idle.pop()
                if not fresh:
                    return session
                session.close()
        # Outside the lock: the start takes time, and other threads must be able to return their sessions meanwhile. The
        # place is reserved by `_in_use`.
        try:
            return self.fresh(limits, prelude(), asks_host=False)
        except BaseException:
            # Without this, another thread could wait for ever for the session that was not started.
            self._returned(None)
            raise

    def release(self, session: SandboxSession, *, usable: bool) -> None:
        """Return a session for expressions to the pool for the next expression. Close the session instead if it is not
        usable any more.
        """
        # The place is free before the session is closed. The limit of processes is larger than that of sessions.
        self._returned(session if usable else None)
        if not usable:
            session.close()

    def _returned(self, session: SandboxSession | None) -> None:
        with self._changed:
            self._in_use -= 1
            if session is not None:
                self._idle.append(session)
            self._changed.notify()

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # exit of a forked child: the processes belong to the parent
        atexit.unregister(self.close)
        # Under the lock only the references are taken, so that one of two threads closes the sandbox. Closing blocks,
        # and happens outside.
        with self._changed:
            idle = self._idle
            self._idle = []
            sandbox = self._sandbox
            self._sandbox = None
        for session in idle:
            session.close()
        if sandbox is not None:
            sandbox.close()


_DEFAULT = Interpreter()


def default_interpreter() -> Interpreter:
    """Return the interpreter for sandboxed code that the whole process shares."""
    return _DEFAULT


# --- sandbox: a pool of processes and their sessions ------------------------------------------------------------------

# Pool of sandbox processes and sessions that run code in them.
#
# Monty is an interpreter of a subset of Python that has no access to files, processes or the network. It runs in
# separate processes, which are started once and reused. A script calls the host through *suspensions*: the session
# stops with a snapshot that names a function, the host computes the result, and the snapshot resumes with it (`_step`).
# Only functions of `divebook.scripting.prelude.HostAnswers` are answered. Without a host, clock and randomness are
# fixed (`_FROZEN`).


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

    def run(self, code: str, names: dict[str, Any], answers: HostAnswers) -> tuple[Any, str]:
        """Run a script. Return the value of its last expression, and the text that it printed. `answers` executes the
        calls that the script makes to the host.

        An exception of the host is raised unchanged. The session is not usable afterwards.
        """
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
    return snapshot.resume(cast(monty.ExternalResult, answers.answer(name, snapshot.args)))


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

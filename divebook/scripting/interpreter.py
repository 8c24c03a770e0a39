"""Interpreter of sandboxed code: small expressions run in reused sandbox sessions, each script step in a fresh
session.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from divebook.scripting.prelude import (
    ACTIVITY_NAMES,
    DEFAULT_LIMITS,
    NOTHING,
    SAFE_NAMES,
    Host,
    Limits,
    Purpose,
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

if TYPE_CHECKING:
    from divebook.scripting.sandbox import Sandbox, SandboxSession

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
    ...     interpreter.evaluate(Purpose.CONDITION, ["state.count + 1", "len(state)"], {"state": {"count": 2}})
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

    def evaluate(self, purpose: Purpose, expressions: Sequence[str], names: Mapping[str, Any]) -> list[Any]:
        """Evaluate deterministic expressions and return their values in the same order. Expressions that need the
        sandbox run in it together, in one call.

        Raises
        ------
        ScriptSyntaxError, UndefinedVariableError
            An expression is not valid. Nothing has been evaluated then.
        ScriptLimitError
            The expressions together exceed a limit of time or memory.
        """
        if purpose is Purpose.ACTIVITY:
            raise ValueError("script steps are not expressions; use run_script")
        # All expressions are checked before the first is evaluated.
        programs = [compile_expression(expression) for expression in expressions]
        for program in programs:
            program.require(names, SAFE_NAMES)
        # One budget for all expressions, so that many of them do not multiply the limit.
        work = WorkBudget(self.limits.seconds, self._processes.clock)
        values = [self._evaluate_outside(program, purpose, names, work) for program in programs]
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

    def _evaluate_outside(self, program: Program, purpose: Purpose, names: Mapping[str, Any], work: WorkBudget) -> Any:
        """Evaluate a program without the sandbox, if it is a reference (``state.a``) or a composed expression
        (``[state.a]``).

        Return `NOTHING` if the sandbox must evaluate the program.
        """
        if program.reference is not None:
            return program.reference.resolve(names, purpose)
        # In a condition or template, plain data is wanted, which one run of the sandbox gives for all expressions
        # together.
        if program.structure is None or purpose not in (Purpose.VALUE, Purpose.EACH):
            return NOTHING
        return program.structure.value(Scope(purpose, names, self._parts, work))

    def _part(self, purpose: Purpose, text: str, names: Mapping[str, Any]) -> Any:
        """Evaluate a part of a composed expression, such as ``state.a`` in ``[state.a, 1]``. If the part is a
        reference, its value is looked up; otherwise the sandbox evaluates the part.
        """
        program = compile_expression(text)
        value = NOTHING if program.reference is None else program.reference.resolve(names, purpose)
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
            value, printed = self._run(session, program, select([program], names), host)
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
        self, session: SandboxSession, program: Program, names: dict[str, Any], host: Host | None
    ) -> tuple[Any, str]:
        try:
            return session.run(program.code, names, host)
        # Values are converted only after the sandbox has refused them: most are plain, and a conversion copies them
        # all.
        except SandboxError as failure:
            if failure.kind is not FailureKind.UNSENDABLE:
                raise
            return session.run(program.code, _sendable(names), host)

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
                from divebook.scripting.sandbox import Sandbox

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

"""Subcommands ``run``, ``resume``, ``fork``, ``answer`` and ``signal``: drive an execution and wait for it."""

from __future__ import annotations

import os
import signal as signal_signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import typer

from divebook.analysis.run_report import with_children
from divebook.cli.output import one_line, print_note, say, secrets, status_text
from divebook.commands.command import EXIT_CODES
from divebook.errors import (
    AnswerKeptError,
    ConcurrentAppendError,
    DefinitionError,
    DivebookError,
    ExecutionError,
    FencedError,
    NotFoundError,
)
from divebook.events.catalog import WAITING
from divebook.interrupts import interruptible_wait
from divebook.text.format import in_shell

if TYPE_CHECKING:
    from divebook.cli.progress import Progress
    from divebook.commands.queues import Interrupted
    from divebook.config.answers import Answers
    from divebook.environments.environment import Environment
    from divebook.replay.resume_changed import ResumePlan
    from divebook.runtime.run import Run
    from divebook.stores import ExecutionRecord


# Ctrl-C while an execution runs: the first cancels it durably, the second leaves at once.


# 128 + SIGINT, as shells report it.
INTERRUPTED = EXIT_CODES["cancelled"]


class Interrupts:
    """Context manager that handles keyboard interrupts (Ctrl-C): the first one cancels the execution, the second one
    ends the process.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.count = 0
        self._say = say
        self._lock = threading.Lock()
        self._execution: Run | None = None
        self._restore: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        # Only the main thread can set signal handlers.
        if threading.current_thread() is threading.main_thread():
            self._take_over()
        return self

    def _take_over(self) -> None:
        # A thread reads the signals from a socket pair, to whose other end Python writes the number of each signal. The
        # main thread cannot handle them: it waits for a lock, and would notice a signal from just before only
        # afterwards. Also, a KeyboardInterrupt could be raised when an execution has started and its id is not known
        # yet (`tests/cli/test_process.py` interrupts real processes).
        ours, signals = socket.socketpair()
        signals.settimeout(0)  # required by set_wakeup_fd: a full buffer must not block
        listener = threading.Thread(target=self._listen, args=(ours,), name="divebook-interrupts", daemon=True)
        # The handler does nothing: it only prevents KeyboardInterrupt.
        handler = signal_signal.signal(signal_signal.SIGINT, lambda *_: None)
        wakeup = signal_signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
        # The order matters: no signal is written any more, the old handler is back, then the closed socket ends `recv`
        # in the thread, and the thread ends before its own socket is closed.
        self._restore = [
            lambda: signal_signal.set_wakeup_fd(wakeup),
            lambda: signal_signal.signal(signal_signal.SIGINT, handler),
            signals.close,
            listener.join,
            ours.close,
        ]
        listener.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for undo in self._restore:
            undo()

    def guard(self, execution: Run) -> None:
        """Set the execution that a keyboard interrupt (Ctrl-C) cancels. If Ctrl-C was already pressed, cancel the
        execution at once.
        """
        # Ctrl-C may be pressed before the execution has an id. The lock orders both: whichever comes second cancels.
        with self._lock:
            self._execution = execution
            if self.count:
                self._cancel(execution)

    def _listen(self, signals: socket.socket) -> None:
        # An empty result means that the other end was closed.
        while number := signals.recv(1):
            if number[0] == signal_signal.SIGINT:
                self._interrupted()

    def _interrupted(self) -> None:
        with self._lock:
            self.count += 1
            if self.count > 1:
                self._leave()
            elif self._execution is not None:
                self._cancel(self._execution)

    def _cancel(self, execution: Run) -> None:
        self._say("cancelling; press Ctrl-C again to exit at once")
        with suppress(ExecutionError):  # it ended by itself a moment ago
            execution.cancel()

    def _leave(self) -> None:
        again = f": divebook resume {self._execution.id}" if self._execution else ""
        self._say(f"exited at once; the run can be resumed{again}")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # a blocking action would delay a normal exit


# --- waiting for an execution and its successors ---------------------------------------------------------------------

MAX_WAIT = 1.0
"""Seconds after which a waiting execution is checked again, even without a notification from the store."""


def finish(
    start: Callable[[], Run],
    environment: Environment,
    progress: Progress,
    answers: Answers | None = None,
    *,
    waits: bool | None = False,
) -> tuple[Run, bool]:
    """Start an execution with the function `start`, and wait until it and all its successors have ended or wait for a
    person.

    Parameters
    ----------
    waits
        Whether to wait until questions with a default expire. None waits only without a terminal to ask a person,
        and not for a question that is asked during a call.

    Returns
    -------
    tuple
        The last execution, and whether Ctrl-C was pressed.
    """
    # Before the start, so that no step is missed.
    progress.watch(environment.store)
    with Interrupts(progress.print) as interrupts:
        execution = start()
        # One pass for each execution of a chain, and for each wait for news.
        while True:
            # Ctrl-C cancels the execution that runs now, and not its predecessor.
            interrupts.guard(execution)
            # Inputs and variables of a successor may contain other secrets.
            secrets.learn(execution.state.inputs, execution.state.variables)
            try:
                if execution.internals.was_driven or execution.state.is_over:  # otherwise another process drives it
                    execution = (
                        execution.wait()
                        if answers is None
                        else answers.settle(execution, on_misfit=lambda error: progress.print(f"error: {error}"))
                    )
            except (ConcurrentAppendError, FencedError):
                # The append or the lease was lost to another process. If the execution has ended since, that process
                # cancelled it; otherwise the error is real.
                if environment.store.record(execution.id).ended_at is None:
                    raise
                execution = _as_recorded(environment, execution)  # another process cancelled it
            if _continues_alone(execution, waits=waits):
                _wait_for_news(execution)
                # The news may have changed the status, so that the loop begins again.
                continue
            successor = execution.successor
            if successor is None:
                for note in () if answers is None else answers.unused_notes(execution):
                    progress.print(note)
                return execution, bool(interrupts.count)
            execution = successor


def has_terminal() -> bool:
    """Return whether standard input is a terminal, so that a person can type answers."""
    return sys.stdin.isatty()


def _continues_alone(execution: Run, *, waits: bool | None) -> bool:
    """Return whether an execution will continue without an answer from a person, so that the command keeps waiting for
    it.

    That is the case if it or a child has a question with a default that expires, or if a child is still running.
    """
    from divebook.runtime.manager import is_idle

    # At a terminal the command returns, so that a person can answer.
    if waits is False or (waits is None and has_terminal()):
        return False
    # A paused execution continues only when a person resumes it.
    if execution.status != WAITING or not execution.internals.was_driven:
        return False
    for family_member in with_children(execution):
        # A call is held open in this process while it asks, and is not left waiting by default.
        if family_member.internals.is_blocked and not waits:
            continue
        for question in family_member.open_questions:
            if question.expires_us is not None and question.default is not None:
                return True
    # An execution is not idle if it sleeps, pauses before a retry, has an unread message, or if a child works.
    return not is_idle(execution.refresh().state, execution.store)


def _wait_for_news(execution: Run) -> None:
    """Wait until the log of an execution, or of one of its descendants, has a new event."""
    from divebook.stores.follow import on_change  # loads the stores, which not every command needs

    news = threading.Event()
    store = execution.store
    unsubscribe = on_change(store, lambda _: news.set())
    # After subscribing, so that an event between both is not missed.
    before = _last_sequences(execution)
    try:
        while _last_sequences(execution) == before:
            interruptible_wait(news, MAX_WAIT)
            news.clear()
    finally:
        unsubscribe()


def _last_sequences(execution: Run) -> dict[str, int]:
    """Return the sequence number of the last event of an execution and each of its descendants, by execution id."""
    return {member.id: member.refresh().state.last_sequence for member in with_children(execution)}


def _as_recorded(environment: Environment, execution: Run) -> Run:
    from divebook.environments.environment import Environment

    # The present object has the state that this process could not append to. A new environment reads the log.
    return Environment(store=environment.store).run_of(execution.id)


WAITS = EXIT_CODES["waiting"]
"""Exit code of a run that has stopped because it waits for an answer or a signal."""
STRICT = 1
"""Exit code, with ``--strict``, of a run that has stopped because it waits for an answer or a signal."""


def repeated_options(
    actions: Sequence[str] | None, store: str | None, definitions: Path | None, *, code: bool
) -> list[str]:
    """Return those options of the running command (``-d``, ``--code``, ``--actions``, ``--store``) that a later command
    must repeat to resume the run.
    """
    options = [] if definitions is None else ["-d", str(definitions)]
    options += ["--code"] if code else []
    for source in actions or ():
        options += ["--actions", source]
    if store:
        options += ["--store", store]
    return options


def show_plan(plan: ResumePlan, *, asks: bool) -> None:
    """Print on stderr which recorded results a run reuses and which calls it makes again if it is resumed with another
    definition. With `asks`, ask the person at the terminal for confirmation; a refusal ends the command.
    """
    for line in plan.lines:
        print_note(line)
    # Without a terminal, no person can confirm; the option --definition is then the confirmation.
    if asks and sys.stdin.isatty():
        typer.confirm("Continue?", abort=True, err=True)


def stop_at_kept_answer(error: AnswerKeptError, again: Sequence[str]) -> NoReturn:
    """Print how to continue a run whose answer is stored, but which cannot continue here. Exit with the code of a run
    that waits.
    """
    print_note(str(error), "yellow")
    needed = again if "-d" in again else ["-d", "FILE", *again]
    print_note(f"to continue: {in_shell('resume', [error.run_id], needed)}", "yellow")
    raise typer.Exit(WAITS) from error


def conclude(
    execution: Run,
    interrupted: bool,  # noqa: FBT001
    again: Sequence[str],
    *,
    json: bool,
    strict: bool = False,
) -> None:
    """End a command that drove an execution: print its report, and exit with the exit code of its status."""
    from divebook.cli.result import print_result

    code = print_result(execution, again, json=json)
    for each in with_children(execution):
        # The call cannot wait in another process. It is made again, and then finds the answer.
        if each.internals.is_blocked:
            print_note(
                "the tool call that asked the question is interrupted when this command ends; the call runs again "
                "when the answer arrives"
            )
            each.internals.leave()
    # The code of --strict replaces others, and that of an interrupt replaces every code but 0.
    if not (execution.internals.was_driven or execution.state.is_over):
        code = WAITS
        print_note("stored; another process runs this execution and continues it", "yellow")
    if strict and execution.status == WAITING:
        print_note("error: the run has to wait for an answer or a signal, which --strict does not allow", "bold red")
        code = STRICT
    raise typer.Exit(INTERRUPTED if code and interrupted else code)


# --- recovery of interrupted runs ------------------------------------------------------------------------------------


def recover_each(interrupted: Interrupted, *, quiet: bool) -> int:
    """Resume interrupted runs one after the other, and return the worst exit code: 3 (a run waits) only if nothing is
    worse. Print the status of each, unless `quiet` is set.
    """
    # One failure does not keep the others from being resumed.
    codes = [_recovered(interrupted, record, quiet=quiet) for record in interrupted.records]
    return max(codes, default=0) if set(codes) <= {0, WAITS} else 1


def _recovered(interrupted: Interrupted, record: ExecutionRecord, *, quiet: bool) -> int:
    """Resume one interrupted run, wait until it stops, print its status, and return the exit code for the status.
    Return the code for a failure if it cannot be resumed.
    """
    try:
        # Each run has its own handling of Ctrl-C, which cancels only this one.
        with Interrupts(print_note) as interrupts:
            run = interrupted.environment.run_of(record.execution_id).resume()
            interrupts.guard(run)
            run.wait()
    except DivebookError as error:
        # A definition is missing that only its file has.
        is_missing = interrupted.definitions is None and isinstance(error, DefinitionError | NotFoundError)
        store = ["--store", interrupted.store] if interrupted.store else []
        way_on = (
            f"; name the file that defines it: {in_shell('recover', [record.execution_id], ['-d', 'FILE', *store])}"
        )
        text = f"{record.execution_id} was not resumed: {one_line(str(error))}{way_on if is_missing else ''}"
        print_note(text, "bold red")
        return 1
    if not quiet:
        say(status_text(run.status), one_line(run.workflow.name), run.id)
    # After Ctrl-C the remaining runs are not resumed.
    if interrupts.count:
        raise typer.Exit(INTERRUPTED)
    return EXIT_CODES.get(run.status, 1)

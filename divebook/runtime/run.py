"""`Run`: the one handle of an execution of a workflow, live or past.

`divebook.Environment.start`, `divebook.run` and ``%dive run`` return it. It has the state, results and operations of an
execution, and shows itself as text, as HTML, and as a live view.

Methods that belong to higher packages (forks and what-ifs, replay, export, display) import them when they are called,
so that a program that only starts executions loads none of them.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self, Unpack, overload

from divebook.definitions.definition import Workflow
from divebook.definitions.resources import Config
from divebook.engine.forks import Change
from divebook.engine.lifecycle import WAY_ON, shown_status
from divebook.engine.state import ExecutionState, PathState, awaited_signals, waits_for
from divebook.errors import (
    UNREADABLE,
    CorruptStoreError,
    ExecutionCancelledError,
    ExecutionError,
    ExecutionFailedError,
    ExecutionNotFoundError,
    ExecutionPausedError,
    ExecutionWaitingError,
    FencedError,
    NewerStoreError,
    SetupError,
    StoreError,
    missing_attribute,
)
from divebook.events import Event, catalog
from divebook.events.recorded import opened
from divebook.interrupts import interruptible_result
from divebook.processes import is_kernel
from divebook.projections.comparison import Comparison
from divebook.projections.failures import Failure, as_exception, failure_in, failures_of
from divebook.projections.log_frames import FramedLog, log_of
from divebook.projections.summary import ReadLog
from divebook.questions import Question
from divebook.questions.bounds import Bounds, dollars
from divebook.report.model import Report
from divebook.report.shown import Shown
from divebook.runtime.children import running_children
from divebook.runtime.clock import Ids
from divebook.runtime.compute.threads import lend_slot
from divebook.runtime.driver import Driver
from divebook.runtime.loop import ENGINE, LeftError, awaitable_of
from divebook.runtime.manager import is_driven, is_elsewhere, is_idle, wait_elsewhere
from divebook.runtime.messages import annotation, this_person
from divebook.runtime.queueing import move_out
from divebook.runtime.streaming import TextListener
from divebook.stores import ExecutionRecord, transfer
from divebook.stores.append import Durability
from divebook.stores.base import EventStore
from divebook.stores.follow import chain_of, on_change
from divebook.stores.history import History
from divebook.stores.leases import Owner
from divebook.text.arguments import (
    DurationLike,
    describe,
    is_list_of_strings,
    list_of,
    question_id_of,
    suggest_in_methods,
    wait_limit,
)
from divebook.text.passwords import looks_secret
from divebook.text.path_arguments import as_path
from divebook.text.protocols import require_protocol
from divebook.text.redaction import one_line, shared

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeVar

    from divebook.config.answers import Answers
    from divebook.environments.environment import Environment
    from divebook.environments.starts import StartOptions
    from divebook.environments.variants import ChangeLike, DefinitionLike, StepChanges, TrialOptions, WhatIfOptions
    from divebook.pipeline.envelope import Envelope
    from divebook.replay.files import KeptFiles
    from divebook.replay.inspect import Inspection
    from divebook.replay.replayer import LogWalk
    from divebook.replay.resume_changed import ResumePlan
    from divebook.replay.trial import StepTrial
    from divebook.replay.verify import Verification
    from divebook.replay.what_if import Plan, RepeatedWhatIf, WhatIf
    from divebook.widgets.views import LiveView

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    # The default of a type variable, which makes `Run` mean ``Run[Any]``, is known to type checkers only.
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

POLL_INTERVAL = 0.1
"""Seconds between two checks while a run is awaited in a kernel. Without checks, the idle event loop of a kernel would
not notice interrupts.
"""
_INTERNAL = (
    "checked", "damage", "driven_by", "durability", "failure_in", "goes_on_elsewhere", "held_up", "is_blocked", "leave",
    "paths", "record", "refer_to", "standing", "static_bundle", "was_driven",
)  # fmt: skip
_OPTIONS = ("answers", "keeps_data", "remark", "shown_in", "strict")
REMOVED: Mapping[str, str] = {
    **{name: f"run.internals.{name}" for name in _INTERNAL},
    **{name: f"run.internals.options.{name}" for name in _OPTIONS},
    "asked": "run.questions",
    "continued_as": "run.successor",
    "execution": "run",
    "interrupts": "run.open_questions",
    "mime_data": "run._repr_mimebundle_()",
    "unused_answers": "run.internals.options.answers.unused",
}
"""Replacement of each removed name of `Run`, as the error shows it."""
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("duration", "elapsed"), "run.inspect().duration"),
    "cost": "run.usage.cost",
    "tokens": "run.usage",
    "logs": "run.events",
}
"""Names that people look for in `Run`, and what to write for each."""
MAX_STANDING = 140
"""Maximum number of characters of `standing`."""


@suggest_in_methods
class Run(Shown, FramedLog, Generic[R_co]):
    """One run of a workflow, live or past: its state and results, and methods to wait for it, answer, resume, fork or
    cancel it.

    The type parameter is the type of `result`: ``Run[int]`` for a workflow function that returns an int.

    All properties are computed from the log, so a live and a past run give equal results. Two handles of one run are
    equal. A method that starts another execution (`fork`, `again`, `resume` with a definition) returns another `Run`.

    Properties named after rows (`events`, `steps`, `operations`, `questions`, ...) are DataFrames. The properties
    `open_questions`, `failures`, `requests`, `conversation` and `children` are lists of objects.

    Parameters
    ----------
    environment
        The environment that runs the execution.
    driver
        The driver of the execution.
    answers
        Answers given in advance, with which `wait` answers questions.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> run = environment.start(Workflow("sum", [Step("add", script="1 + 1", store="n")]))
    >>> run.wait().status, run.variables
    ('completed', {'n': 2})
    """

    def __init__(self, environment: Environment, driver: Driver, answers: Answers | None = None) -> None:
        present: object = driver  # the type hint does not bind callers
        if not isinstance(present, Driver):
            raise SetupError(
                f"a Run cannot be created from {describe(present)}; call divebook.run(workflow), "
                "environment.start(workflow) or environment.run_of(id)"
            )
        self._environment = environment
        self._control = environment.internals.control
        self._driver = driver
        self._options = HandleOptions(answers)

    def __copy__(self) -> Self:
        handle = object.__new__(type(self))
        handle.__dict__.update(self.__dict__)
        handle._options = replace(self._options)
        return handle

    def __eq__(self, other: object) -> bool:
        # A store has one driver per execution, so two handles of one run are equal.
        return isinstance(other, Run) and other._driver is self._driver

    def __hash__(self) -> int:
        return hash(self._driver)

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, REMOVED, _ELSEWHERE)

    def _handle(self, driver: Driver) -> Run:
        """Return this handle if it has this driver, else a handle of the other execution."""
        return self if driver is self._driver else Run(self._environment, driver)

    @property
    def internals(self) -> RunInternals:
        """Parts of the run for other packages of divebook. They are not part of the public API."""
        return RunInternals(self)

    # --- state and results -------------------------------------------------------------------------------------------

    @property
    def environment(self) -> Environment:
        """The environment that runs the execution."""
        return self._environment

    @property
    def id(self) -> str:
        """The execution id: ``exec_`` and 26 characters."""
        return self._driver.id

    @property
    def workflow(self) -> Workflow:
        """The workflow definition with which the execution was started."""
        return self._driver.workflow

    @property
    def store(self) -> EventStore:
        """The store that contains the log of the execution. If the start of the execution is not stored yet, this
        property waits for it.
        """
        self._driver.wait_until_stored()
        return self._driver.store

    @property
    def state(self) -> ExecutionState:
        """Current state of the execution, computed from its log, as an immutable snapshot."""
        return self._driver.state

    @property
    def status(self) -> str:
        """Status of the run: ``pending``, ``enqueued``, ``running``, ``waiting``, ``paused``, ``interrupted``,
        ``completed``, ``failed``, ``cancelled``, ``moved``, ``continued_as_new`` or ``snapshot``.

        A run is ``waiting`` if it needs an answer or a signal, or waits for a child execution or a timer. It is
        ``paused`` if a person has paused it, and ``interrupted`` if its process ended while it was running. `resume`
        continues a paused or interrupted run.

        If the log cannot be read, for example because its key is missing, the status is taken from the list of runs.
        """
        try:
            shown = self.state.shown_status
        except UNREADABLE:
            return self._recorded_status()
        if shown != catalog.RUNNING or self.is_live:
            return shown
        # The readable part of a damaged log, in a store or in a file, does not say how the run has ended.
        if self._driver.damage is not None or not (self.store.keeps or self._driver.was_driven):
            return shown
        try:
            is_driven = self.store.live_lease_of(self.id) is not None
        except StoreError:  # the store is closed, or cannot be reached
            return shown
        # Its driver may have recorded the end, and released its lease, since the state was read.
        return shown if is_driven else shown_status(self.refresh().state.shown_status, is_driven=self.is_live)

    def _recorded_status(self) -> str:
        """Return the status from the summary row of the execution, which is readable without the log."""
        status = self.internals.record.status
        is_driven = status != catalog.RUNNING or self.store.live_lease_of(self.id) is not None
        return shown_status(status, is_driven=is_driven)

    @property
    def error(self) -> str | None:
        """Reason for which the execution failed or was cancelled: ``KeyError: 'b' (step parse, rows[3], Cell [5], line
        4)``; None otherwise. See `failure`.
        """
        return self.state.error

    @property
    def failures(self) -> list[Failure]:
        """The items and steps that failed, including failures after which the run continued. Reads the log."""
        return failures_of(ReadLog.of(self._log()))

    @property
    def failure(self) -> Failure | None:
        """Details of the failure of the execution: type and message, step, item, arguments, line, stack. None if it has
        not failed. Reads the log.
        """
        return self.internals.failure_in(ReadLog.of(self._log())) if self.status == catalog.FAILED else None

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the execution, including default values. Each access returns a new copy."""
        return _restored(self.state.inputs)

    @property
    def outputs(self) -> dict[str, Any]:
        """The declared outputs of the workflow; empty until the execution has completed. Each access returns a new
        copy.

        A value whose class is not allowed in this process stays in its recorded form.
        """
        return _restored(self.state.outputs)

    @property
    def variables(self) -> dict[str, Any]:
        """The current values of the workflow's variables, sorted by name. Each access returns a new copy.

        A value whose class is not allowed in this process stays in its recorded form.
        """
        return _restored(dict(sorted(self.state.variables.items())))

    @property
    def usage(self) -> RunUsage:
        """Consumption of the execution's model calls, with its cost in US dollars."""
        usage = self.state.own_usage
        return RunUsage(**{**usage._asdict(), "cost": dollars(usage.cost)})

    @property
    def started_at(self) -> datetime | None:
        """Start time of the execution in UTC, or None."""
        return self.state.started_at

    @property
    def ended_at(self) -> datetime | None:
        """End time of the execution in UTC, or None."""
        return self.state.ended_at

    @property
    def questions(self) -> pd.DataFrame:
        """Questions to people, their answers and waiting times, as a DataFrame with one row per question."""
        from divebook.analysis.lists import frame_of

        return frame_of("questions", ((self.id, question) for question in self._driver.questions.values()))

    @property
    def chain(self) -> list[str]:
        """Ids of all executions that continue each other as successors (`continued_as`), including this one, oldest
        first; usually one id.

        ``divebook.frames(store, where={"chain": execution.id})`` reads them as one.
        """
        return chain_of(self.store, self.id)

    @property
    def successor(self) -> Run[R_co] | None:
        """The execution that continues this one with an empty log, or None. `wait` does not wait for the end of the
        successor.
        """
        return None if self.state.continued_as is None else self._handle(self._control.look_up(self.state.continued_as))

    @property
    def children(self) -> list[Run]:
        """The running child executions for which steps of this execution wait."""
        children = []
        for name in () if self.state.is_over else running_children(self.state):
            with suppress(ExecutionNotFoundError):  # it is about to start
                self.store.record(name)
                children.append(self._handle(self._control.look_up(name)))
        return children

    @property
    def envelope(self) -> Envelope:
        """The current state of a pipeline request, as `divebook.pipeline.Envelope`: identity, bounds, consumption,
        history, questions.
        """
        from divebook.pipeline.progress import envelope_of

        return envelope_of(self.state, self.workflow)

    @property
    def is_live(self) -> bool:
        """True if this process drives the execution now."""
        return self._driver.is_live

    @property
    def open_questions(self) -> list[Question]:
        """Open questions, oldest first. A question with an unread answer in the inbox is not open."""
        return self._driver.interrupts

    def _log(self) -> History:
        return self.history()  # of a damaged log, the readable part

    def _frame(self, kind: str) -> Any:
        from divebook.analysis.lists import frame_of

        if not self._driver.is_read:
            # Tried without the check for damage first, which reads the whole log, because most logs are sound.
            with suppress(CorruptStoreError, NewerStoreError):
                return frame_of(kind, self.store.history(self.id))
        return super()._frame(kind)

    def history(self, after: int = 0) -> History:
        """Return the events of the execution with sequence numbers above `after`, oldest first. The events are read
        when accessed.
        """
        if not isinstance(after, int):
            raise SetupError(f"after must be a sequence number, not {describe(after)}")
        store = self.store
        written = self._driver.written
        # A pending or damaged execution has a history with a fixed end.
        if written and self._driver.damage is None:
            return store.history(self.id, after)
        return History(store, self.id, max(after, 0), written)

    def refresh(self) -> Self:
        """Read the events that another process has appended to the log. Return this execution."""
        self._driver.refresh()
        return self

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call `listener` with the new events after each commit, on the engine's thread. If the execution was deleted,
        `listener` is called without events. Returns a function that ends the subscription.
        """
        require_protocol(listener, Callable[[Sequence[Event]], None], "listener")
        return on_change(self.store, listener, self.id, elsewhere=False)

    def subscribe_text(self, listener: TextListener, *, parts: bool = False) -> Callable[[], None]:
        """Call `listener` with pieces of model text as they arrive. Returns a function that ends the subscription.

        With `parts`, the listener also gets model thoughts, arguments of tool calls, and output of commands in
        workspaces: see `TextDelta.part`. A listener that subscribes later gets the last million characters of each
        running text first.

        Models stream their text only while there is a listener. The pieces are for display only: the log contains the
        whole text when it is complete. The listener is called on the engine's thread and must be quick. A listener that
        raises is removed.

        Examples
        --------
        >>> from divebook import Agent, Environment, ScriptedModel, Step, Workflow
        >>> environment = Environment(store="memory:", agents=[Agent("poet", model=ScriptedModel(["roses are red"]))])
        >>> execution = environment.create(Workflow("ask", [Step("ask", prompt="Write.")]))
        >>> unsubscribe = execution.subscribe_text(lambda delta: print(delta.at, repr(delta.text)))
        >>> _ = execution.start().wait()
        0 'roses '
        6 'are '
        10 'red'
        """
        require_protocol(listener, TextListener, "listener")
        return self._control.texts.subscribe(self.id, listener, parts=parts)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, timeout: DurationLike | None = None, *, check: bool = False) -> Self:
        """Wait until the run has ended, or waits for an answer or a signal, or is paused. Return this handle.

        More precisely, this method returns when the run has ended, or when nothing in this process continues the run at
        present. It also returns if the run waits for an answer or a signal with a time limit, so that the caller can
        answer or send the signal. After the time limit the run continues by itself, and a new call of `wait` waits for
        it. `result`, in contrast, waits until the time limit has passed. A run that sleeps, or whose child executions
        are working, does not count as waiting.

        A question that is asked during a call counts too, although the call has not ended. An interrupt (Ctrl-C, the
        stop button of a kernel) ends the waiting, not the run; `cancel` ends the run.

        Parameters
        ----------
        timeout
            Maximum duration of the wait. After that, a TimeoutError with the id and status of the execution is raised,
            and the execution continues. A negative number means 0. None and infinity mean no limit.
        check
            True to raise ExecutionFailedError or ExecutionCancelledError if the execution failed or was cancelled.

        Raises
        ------
        StoreError
            The log of the execution could not be written. The execution can be resumed from the events in the store.
        ExecutionWaitingError
            The handle is `strict`, and the run has to wait for an answer or a signal.
        SetupError
            The timeout is not a duration.
        """
        return self._wait(Deadline(timeout), check=check)

    def _wait(self, deadline: Deadline, *, check: bool) -> Self:
        """Wait as `wait` does until a deadline that several waits may share."""
        self._wait_for_drive(deadline)
        if self._options.answers is not None:
            # On a handle without answers, whose `wait` only waits. The answers may continue the run several times.
            self._options.answers.settle(Run(self._environment, self._driver))
        if check:
            self.internals.checked()
        return self._checked_strictly()

    def _wait_for_drive(self, deadline: Deadline) -> None:
        """Wait like `wait`, without answers given in advance."""
        if ENGINE.is_current():
            raise ExecutionError(
                f"wait() was called on the engine's own thread, where it would never return; use "
                f"`await` with run {self.id}"
            )
        if self._driver.has_ended_here:  # the usual short execution, whose `start` has returned at its end
            return
        drives = self._driver.drives
        driving = None if is_elsewhere(self._driver) else self._driver.standstill()
        try:
            # If this thread runs a call of another execution, the call gives up its place meanwhile. Otherwise calls
            # that wait for each other could use up all threads.
            with lend_slot():
                while True:
                    # A worker of this environment may take it up meanwhile, and return it to the queue.
                    if driving is None:
                        driving = wait_elsewhere(self._driver, self._control.clock.now, deadline.remaining)
                    if driving is None:
                        break
                    try:
                        interruptible_result(driving, deadline.remaining)
                    except (FencedError, LeftError) as error:
                        driving = self._drive_after_loss(driving, error)
                        continue
                    if is_elsewhere(self._driver):
                        driving = None  # it returned to the workers of its queue
                        continue
                    latest = self._driver.drives  # read first, since another drive may begin after the next line
                    if (driving := self._next_drive(drives)) is None:
                        break
                    drives = latest
        except TimeoutError as error:
            # User code may raise TimeoutError too, and the future of the drive passes it on.
            if deadline.limit is None or (driving is not None and driving.done()):  # not raised by this wait
                raise
            raise self._late(deadline) from error

    def _next_drive(self, drives: int) -> Future[None] | None:
        """Return the future to wait for after the drive with the number `drives` has ended: a later drive, or the work
        of this process that is about to continue the waiting run. Return None if it has ended, or waits for an answer,
        a signal, or a time that has not come.
        """
        # A worker of this environment, or a timer, has continued it meanwhile
        # (test_waiting_follows_a_drive_that_begins_when_another_has_just_ended).
        if self._driver.drives != drives:
            return self._driver.standstill()
        return self._control.next_continuation(self._driver)

    def _late(self, deadline: Deadline) -> TimeoutError:
        """Return the error for a run that continues although the deadline has passed."""
        stop = "cancel" if self.state.rolling_back is None else "pause"  # a rollback cannot be cancelled
        return TimeoutError(
            f"execution {self.id} is {self.internals.standing} after {deadline.limit:g} s, and continues: call wait() "
            f"again, or {stop}()"
        )

    def __await__(self) -> Generator[Any, None, Self]:
        """Wait like `wait`, on any event loop. Cancelling the await does not stop the execution.

        A pending execution is started: ``await environment.create(workflow)`` never blocks the event loop.
        """
        if is_kernel():
            yield from self._wait_noticing_interrupts().__await__()
        else:
            yield from self._await_drive().__await__()
        if self._options.answers is not None:
            yield from self._settle().__await__()
        return self._checked_strictly()

    async def _wait_noticing_interrupts(self) -> None:
        """Await the run on the event loop of a kernel, which does not notice an interrupt while it is idle."""
        waiter = asyncio.ensure_future(self._await_drive())
        try:
            while not waiter.done():
                await asyncio.wait((waiter,), timeout=POLL_INTERVAL)
            waiter.result()  # raises its error
        finally:
            waiter.cancel()

    async def _settle(self) -> None:
        """Answer the questions of the run with the answers given in advance, on a thread, because that blocks."""
        assert self._options.answers is not None, "the caller checks it"  # noqa: S101
        # The executor of the loop would keep its thread after an unload of the notebook extension.
        executor = ThreadPoolExecutor(1)
        handle = Run(self._environment, self._driver)
        try:
            # The copied context lets a kernel find the cell below which output of the run is printed.
            context = contextvars.copy_context()
            await awaitable_of(executor.submit(context.run, self._options.answers.settle, handle))
        finally:
            # Without waiting, since an interrupt must not be held up by the thread.
            executor.shutdown(wait=False)

    def _checked_strictly(self) -> Self:
        if self._options.strict and self.state.status == catalog.WAITING:
            raise waiting_error(self)
        return self

    async def _await_drive(self) -> None:
        """Await the drive of the execution; start it if it is pending."""
        drives = self._driver.drives
        is_elsewhere_now = await self._is_elsewhere()
        driving = None if is_elsewhere_now else self._control.run(self._driver)
        while True:
            if driving is None:
                driving = await _await_elsewhere(self._driver, self._control.clock.now)
                if driving is None:
                    break
            try:
                await awaitable_of(driving)
            except (FencedError, LeftError) as error:
                driving = self._drive_after_loss(driving, error)
                continue
            # As in `wait`.
            if await self._is_elsewhere():
                driving = None
                continue
            latest = self._driver.drives
            if (driving := self._next_drive(drives)) is None:
                break
            drives = latest

    def _drive_after_loss(self, lost: Future[None], error: FencedError | LeftError) -> Future[None] | None:
        """Return the drive that replaced one which has lost its lease, or was left, with `error`. Return None if the
        execution has ended, or another driver has its lease. Raise the error if neither is the case.
        """
        # Two cancellations of one tree can meet: that of its parent takes the lease from that of a recovery
        # (tests/runtime/cancelled_trees.py, seeds 277 and 335).
        if self._driver.is_live and (driving := self._driver.standstill()) is not lost:
            return driving
        # The lease is looked up before the log is read again. If its holder has released it, the log has the end.
        if is_driven(self._driver) or is_elsewhere(self._driver) or self._driver.refresh().state.is_over:
            return None
        raise error

    async def _is_elsewhere(self) -> bool:
        """Return whether the execution continues outside this environment. A store on a server is asked in a thread, so
        that the event loop is not blocked (test_awaiting_does_not_block_the_event_loop).
        """
        if self._driver.store.local:
            return is_elsewhere(self._driver)
        return await asyncio.to_thread(is_elsewhere, self._driver)

    def result(self, timeout: DurationLike | None = None) -> R_co:
        """Wait for the end of the run, and return the result of the workflow: the return value of a workflow function,
        the value of the only output, or the mapping of all outputs. If the run continues as a successor, its result is
        returned.

        If the run waits for an answer or a signal with a time limit, it continues by itself after that time. Unlike
        `wait`, this method then waits for the run.

        Parameters
        ----------
        timeout
            Duration, as for `wait`.

        Raises
        ------
        ExecutionFailedError
            The run failed. Its ``__cause__`` is the error of the step that failed.
        ExecutionCancelledError
            The run was cancelled.
        ExecutionWaitingError
            The run waits for an answer or a signal, without a time limit; `open_questions` has the questions.
        ExecutionPausedError
            The run is paused.
        TimeoutError
            The run is still running after the `timeout`.

        Examples
        --------
        >>> from divebook import Environment, workflow
        >>> @workflow
        ... async def double(ctx, n: int):
        ...     return 2 * n
        >>> Environment(store="memory:").start("double", {"n": 21}).result()
        42
        """
        deadline = Deadline(timeout)
        run: Run[Any] = self
        while True:
            run._wait(deadline, check=True)
            if (successor := run.successor) is not None:
                run = successor
            elif run.state.status != catalog.WAITING or not run._wait_for_expiry(deadline):  # noqa: SLF001 - a run too
                break
        if run.status != catalog.COMPLETED:
            if run.state.paused is not None:
                raise ExecutionPausedError(run.id)
            if run.status in WAY_ON:  # it has ended here without a result
                raise ExecutionError(f"execution {run.id} is {run.status} and has no result here; {WAY_ON[run.status]}")
            raise waiting_error(run)
        outputs = run.outputs
        value: Any = next(iter(outputs.values())) if len(outputs) == 1 else outputs
        result: R_co = value
        return result

    def _wait_for_expiry(self, deadline: Deadline) -> bool:
        """Wait for a run that waits for an answer or a signal until its time limit has passed, or something else has
        continued it. Return False at once if it has no time limit.
        """
        continuation = None
        try:
            with lend_slot():
                if is_elsewhere(self._driver):
                    if is_idle(self.state, self.store, math.inf):
                        return False
                    wait_elsewhere(self._driver, lambda: math.inf, deadline.remaining)
                    return True
                continuation = self._control.next_continuation(self._driver, math.inf)
                if continuation is None:
                    return False
                interruptible_result(continuation, deadline.remaining)
        except TimeoutError as error:
            if deadline.limit is None or (continuation is not None and continuation.done()):  # not raised by this wait
                raise
            raise self._late(deadline) from error
        return True

    # --- control -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start a pending execution. Return this execution once its first events are in the store.

        In a coroutine it returns at once, so that it does not block the event loop, unless the execution has a start
        key. The events are then stored in the background. `ensure_stored` and all properties that show the state of
        this execution wait until the events are stored. Lists of executions, such as `Environment.runs` and
        ``store.records()``, do not wait: they show the execution as soon as it is stored.

        Raises
        ------
        ExecutionError
            The execution was already started. It can be started again only if none of its events was stored.
        StoreError
            The start could not be stored. In a coroutine, `ensure_stored` and the wait for the end raise this.
        """
        self._control.begin(self._driver)
        return self

    async def ensure_stored(self) -> Self:
        """Wait until the start of the execution is in the store, and return this execution.

        In a coroutine, `start` returns before the start is stored, so that it does not block the event loop. When this
        method has returned, other processes can find the execution, and can continue it if this process dies.

        Raises
        ------
        StoreError
            The start could not be stored. The execution is still pending, and `start` can be called again.
        ExecutionError
            The execution was not started, or its environment was closed before the execution began.

        Examples
        --------
        >>> import asyncio
        >>> from divebook import Environment, Step, Workflow
        >>> environment = Environment(store="memory:")
        >>> async def main():
        ...     run = environment.start(Workflow("sum", [Step("add", script="1 + 1", store="n")]))
        ...     await run.ensure_stored()
        ...     return (await run).status
        >>> asyncio.run(main())
        'completed'
        """
        driver = self._driver
        first_commit = driver.first_commit
        if first_commit is None and driver.opening is not None and not driver.written:
            # A thread may be starting it. The engine then knows the future for which that thread waits.
            first_commit = await asyncio.to_thread(ENGINE.call, lambda: driver.first_commit)
            if first_commit is None and not driver.was_driven:
                raise ExecutionError(f"execution {self.id} was not started; start it first")
        if first_commit is not None:
            await awaitable_of(first_commit)
        return self

    @overload
    def resume(
        self, bounds: Bounds | Mapping[str, Any] | None = None, *, definition: DefinitionLike | None = None
    ) -> Run[R_co]: ...

    @overload
    def resume(
        self, bounds: Bounds | Mapping[str, Any] | None = None, *, definition: DefinitionLike, plan: Literal[True]
    ) -> ResumePlan: ...

    def resume(
        self,
        bounds: Bounds | Mapping[str, Any] | None = None,
        *,
        definition: DefinitionLike | None = None,
        plan: bool = False,
    ) -> Run[R_co] | ResumePlan:
        """Resume the execution where its log ends, or, with a changed definition, at the first operation that would
        differ.

        This method returns at once; call `wait` to wait for the end. Completed steps do not run again. A failed or
        cancelled execution continues at the step it stopped in. Without a `definition`, the execution continues with
        the definition with which it was started. `bounds` replace its bounds. An execution that has completed, or that
        this process already runs, is returned unchanged. If a call returned a result that the log could not store, a
        person is asked for the result, and the call is not repeated unless it is idempotent.

        With a `definition`, a new execution of origin ``resume`` continues the work. It shares all events before the
        first operation in which the definition differs, and reuses later recorded results of the same requests. Results
        of completed calls are reused even if their function was edited since. The old execution does not change, but it
        is cancelled first if it had not ended. Until the new execution has ended, the same call returns it again. Two
        simultaneous calls, or a call that is repeated after a crash, therefore start only one execution.

        Parameters
        ----------
        definition
            ``new`` for the current definition of the workflow, or a `Workflow` with the same name.
        plan
            True to return only a plan of what would be reused and what would run. It needs a `definition`. No call is
            made.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such execution.
        ExecutionError
            The execution was rolled back, or has a successor. With new `bounds`: the execution has completed, or this
            process runs it. With a `definition`: the execution is running.
        SetupError
            The definition makes the same calls as the log, defines another workflow, or has other inputs.
        NotFoundError
            No workflow with this name is defined.
        LeaseHeldError
            Another process is running the execution.

        Examples
        --------
        A program that is started again after a crash finds its run by the key, and continues it::

            environment.start("audit", inputs, key="monday").resume().wait()

        A step was corrected, after which a run had failed::

            print(run.resume(definition="new", plan=True))  # 12 operations reused, 3 live, about $0.04
            run.resume(definition="new").wait()
        """
        if definition is not None:
            return self._environment.internals.variants.resume_changed(self.id, bounds, definition, plan=plan)
        if plan:
            raise SetupError('a plan exists only when you resume with another definition; write definition="new"')
        if bounds is None:
            return self._handle(self._control.continue_run(self.id))
        from divebook.environments.starts import as_bounds

        return self._handle(self._control.continue_run(self.id, as_bounds(bounds)))

    def answer(self, question: Question | str, response: Any, by: str | None = None) -> Self:
        """Answer an open question of the execution, which continues at once. See `Environment.answer`."""
        self._control.answering.answer_question(question_id_of(question), response, self.id, by)
        return self

    def signal(self, name: str, payload: Any = None, by: str | None = None) -> Self:
        """Send a signal to the execution: a message from outside that does not answer a question. The signal is stored
        until a step receives it.

        Steps receive signals with ``Type: wait`` and ``Signal: name``, or with ``ctx.wait_signal``. If no step has
        received the signal when the execution completes or continues as a new execution, the signal has no effect. If
        the execution fails or is cancelled, the signal stays stored, and is received when the execution is resumed.

        If another process drives the execution, this method returns as soon as the signal is stored. If the execution
        ends afterwards without the signal, the sender gets no error. `refresh` shows whether it has ended.

        Parameters
        ----------
        payload
            Plain data.
        by
            Name of the sender; by default the user of this process.

        Raises
        ------
        ExecutionError
            The execution has ended, perhaps after the signal was sent and before it was received.
        AnswerKeptError
            The signal is stored, and the execution cannot continue in this process. Do not send the signal again.
        """
        self._control.answering.signal(self.id, name, payload, by)
        return self

    def cancel(self, reason: str = "") -> Self:
        """Cancel the execution: stop its paths and wait for them, roll back its effects, then end it as cancelled.

        Its child executions are cancelled with it: before the rollback if there is one, otherwise after the end of this
        execution. `wait` waits for the child executions too. Before a rollback it waits without a limit. Otherwise it
        waits at most 5 seconds for each round of cancellations, because a function that blocks its thread cannot be
        interrupted. A pending execution ends as cancelled without starting; its start key stays free. A cancelled
        execution can be resumed, unless all its effects were rolled back. During a rollback, another `cancel` has no
        effect. Without a reason, the log has the name of the person who cancelled it.
        """
        self._control.request_cancel(self.id, reason)
        return self

    def pause(self, reason: str = "") -> Self:
        """Start no further operations until the execution is resumed. This method returns the execution at once; call
        `wait` to wait until the execution has stopped.

        Running calls that must not be repeated are completed. Other running calls are aborted, and repeated later. An
        execution that waits in a queue can be paused as well: workers then skip it.
        """
        self._control.request_pause(self._driver, reason)
        return self

    # --- variants of the execution -----------------------------------------------------------------------------------

    def retry(self, strategy: str = "from_failure") -> Run[R_co]:
        """Retry a failed run: from the failed step, from the start, or without the failed steps.

        Parameters
        ----------
        strategy
            ``from_failure``: the execution continues at the step it stopped in, as by `resume`. ``from_start``: a new
            execution with the same inputs, of the current definition of the workflow. ``skip_failed``: a fork in which
            each failed step counts as completed, with the output ``SKIPPED: <error>`` and without the variable that it
            sets.

        Raises
        ------
        ExecutionError
            The execution has completed, or cannot continue.
        SetupError
            The strategy does not exist, or no failed step can be skipped.
        """
        return self._environment.internals.variants.retry(self.id, strategy)

    def fork(
        self,
        at: int | None = None,
        change: Change | Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run[R_co]:
        """Start a run that shares the events of this run up to a point, and then continues with real calls.

        No events are copied, and this run does not change. Calls that were running at that point are made again, and
        open questions are asked in both runs. The fork uses the current functions. With a `key`, the fork is started
        only once, as by `start`.

        Parameters
        ----------
        at
            Number of the last shared event. Events that were recorded together are not separated, and the event that
            ends an execution is not shared. By default, the fork begins just before the changed part, or at the end of
            the log if nothing changes. In a completed execution, it begins at the latest event after which the change
            has an effect.
        change
            Differences of the fork after this event (`divebook.engine.forks.Change`): ``{"variables": {"x": 1}}``,
            ``inputs``, ``results`` by operation, ``answers`` by question, ``prompts`` by step, ``model``,
            ``definition``.

        Raises
        ------
        SetupError
            The event does not exist, or the state at the event does not contain the value to be changed.
        InputError
            A changed input has another type than its workflow declares.
        InterruptError
            An answer does not fit its question.
        """
        return self._environment.internals.variants.fork(self.id, at, change, options)

    @overload
    def what_if(self, change: ChangeLike = None, at: int | None = None, **options: Unpack[WhatIfOptions]) -> WhatIf: ...

    @overload
    def what_if(
        self, change: ChangeLike = None, at: int | None = None, *, repeat: int, **options: Unpack[WhatIfOptions]
    ) -> RepeatedWhatIf: ...

    @overload
    def what_if(
        self, change: ChangeLike = None, at: int | None = None, *, plan: Literal[True], **options: Unpack[WhatIfOptions]
    ) -> Plan: ...

    def what_if(
        self,
        change: ChangeLike = None,
        at: int | None = None,
        *,
        repeat: int | None = None,
        plan: bool = False,
        **options: Unpack[WhatIfOptions],
    ) -> WhatIf | RepeatedWhatIf | Plan:
        """Run the execution again with one change, taking results from its log where possible. Return the comparison.

        The execution itself does not change. The result of an operation comes from the change, or else from the
        recorded result of the same call (first of the call at the same place). If neither exists, the kind of operation
        decides: scripts are computed, sleeps are skipped, the clock and random numbers continue from the recorded
        values, questions get their recorded answers or wait, and models are called. The recorded outcome of a child
        workflow is reused as a whole; if its inputs differ, it becomes a what-if itself. Each what-if is an execution
        of origin ``what-if``. If its process ended, `resume` continues it.

        Parameters
        ----------
        change
            The change, with the fields of `Change`: ``{"inputs": {"city": "Bonn"}}``. By default, nothing is changed.
        at
            Number of the event after which the change applies; by default the point at which the change has its full
            effect.
        repeat
            Number of what-ifs to run. They are returned as a list. Their results can differ if models are called.
        plan
            True to return only a plan of what would be taken from the log and what would run. No call is made.
        options
            `WhatIfOptions`: ``tools`` and ``bounds``.

        Raises
        ------
        ReplayMismatchError
            Even without a change, a replay does not reproduce the log.
        SetupError
            The value to be changed does not exist.
        """
        return self._environment.internals.variants.what_if(self.id, change, at, repeat, options, plan=plan)

    def try_step(
        self, step: str, changes: StepChanges = None, *, times: int = 1, **options: Unpack[TrialOptions]
    ) -> StepTrial:
        """Run one step of the execution again from the recorded state at its start. Return the new results and the
        recorded result.

        A workflow function is a single step. For such a workflow, `step` can also be the name of an agent that the
        function calls. The agent is then called again with the recorded prompt, which the key ``Prompt`` can use as
        ``${state.asked}``. `visit` selects the call.

        The execution does not change. Each try is an execution of origin ``trial`` that shares the events before the
        step and ends after the step. If its process ended, `resume` continues it. Models are called. Actions and tools
        return the recorded result of the same call, and do not run if there is none. Questions get their recorded
        answers or wait. If the step fails, error handlers are ignored, and the failure is the result of the try.

        Parameters
        ----------
        changes
            Keys that replace keys of the step, as in a definition: ``{"Prompt": "Shorter: ${state.text}"}``, or the
            same as YAML text. Or a function that receives the workflow and returns the workflow with the changed step.
        times
            Number of tries.
        options
            `TrialOptions`: ``variables``, ``inputs``, ``model``, ``visit``, ``item``, ``tools``, ``bounds``.

        Raises
        ------
        NotFoundError
            The workflow does not have the step, or the run did not have a changed variable or input at the start of the
            step.
        SetupError
            The run has not entered the step, or not as often as `visit` requires. Or `times` is less than 1.
        DefinitionError
            The changed keys do not fit.
        """
        return self._environment.internals.variants.try_step(self.id, step, changes, times, options)

    @overload
    def run_again(self, **options: Unpack[StartOptions]) -> Run[R_co]: ...

    @overload
    def run_again(self, *, plan: Literal[True], **options: Unpack[StartOptions]) -> ResumePlan: ...

    def run_again(self, *, plan: bool = False, **options: Unpack[StartOptions]) -> Run[R_co] | ResumePlan:
        """Start a new execution with the current definition and the inputs of this one. Recorded results are reused.

        The new execution shares the events at the beginning of the log that the current definition, agents and
        functions would repeat unchanged. After that, recorded results of the same calls are reused, unless a function
        that a call runs was edited. This execution may have completed. If it has not ended, it is cancelled first.

        Parameters
        ----------
        plan
            True to return only a plan of what would be reused and what would run. No call is made.
        options
            As for `start`.

        Raises
        ------
        ExecutionError, SetupError, NotFoundError, LeaseHeldError
            As raised by `resume` with a definition.
        """
        return self._environment.internals.variants.run_again(self.id, options, plan=plan)

    def again(self) -> Run[R_co]:
        """Start a new execution with the same inputs and start options, and the current definition. This method returns
        at once.

        Recorded results are not used; `run_again` uses them.
        """
        return self._environment.internals.variants.start_over(self.id)

    # --- annotations -------------------------------------------------------------------------------------------------

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the run, by which lists can be filtered."""
        return self.internals.record.tags

    def tag(self, *tags: str) -> Self:
        """Add tags to the run, also after its end; see `annotate`. A tag that is not a word raises `SetupError`."""
        return self.annotate(tags=tags) if tags else self

    def untag(self, *tags: str) -> Self:
        """Remove tags of the run."""
        return self.annotate(untag=tags) if tags else self

    def note(self, text: str) -> Self:
        """Set the note of the run, also after its end; an empty text removes the note."""
        return self.annotate(note=text)

    def label(self, **labels: Any) -> Self:
        """Set labels of the run, also after its end: ``run.label(quality="good")``; the value None removes a label."""
        return self.annotate(labels=labels)

    def annotate(
        self,
        *,
        tags: Iterable[str] = (),
        untag: Iterable[str] = (),
        note: str | None = None,
        labels: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Self:
        """Change tags, note and labels of a run of any status by appending one event.

        The annotation has no effect on the execution: an execution that has ended stays ended. If another process
        drives the execution, that process writes the event.

        Parameters
        ----------
        by
            Author; by default the user of this process.

        Raises
        ------
        SetupError
            A tag, the note or the name of a label is not a string, or there is nothing to change.
        UnstorableValueError
            The value of a label cannot be recorded.
        ExecutionNotFoundError
            The store has no such execution.
        """
        event = annotation(tags=tags, untagged=untag, note=note, labels=labels, by=by or this_person())
        self._control.annotate(self.id, event)
        return self

    # --- reading the log ---------------------------------------------------------------------------------------------

    def inspect(self) -> Inspection:
        """Return the critical path, time by kind of activity, retries and costs of the execution."""
        from divebook.replay.inspect import Inspection

        return Inspection(self._log())

    def replay(self) -> LogWalk:
        """Return a replay, which steps through the log event by event, forward and back, and shows the state at each
        event. Nothing is run or written.

        In a notebook the replay is also a widget (`divebook.notebook.view_output.RunReplay`). Widget and methods share
        one position: after ``r = run.replay()`` and ``r`` as the last value of a cell, ``r.run_to(error=True)`` moves
        the page to the first failure, and ``r.position`` is the position in the page. Elsewhere it is a
        `divebook.replay.replayer.Replayer`.
        """
        # Only a front end can show the widget, and a program without one shall not load it.
        if "IPython" in sys.modules or "marimo" in sys.modules:
            from divebook.notebook.view_output import replay_in_front_end

            # A copy, because a button in the view of this run may make it refer to another execution.
            if (replay := replay_in_front_end(copy(self))) is not None:
                return replay
        from divebook.replay.replayer import replayer_of

        return replayer_of(copy(self))

    def verify(self, definition: Workflow | None = None, *, any_code: bool = False) -> Verification:
        """Replay a definition against the log, and report the first difference. No external call is made.

        Scripts, templates and conditions are computed again, and all other operations get their results from the log.
        Events are equal byte for byte, in each path and concurrent call, except for values of the clock, of prices or
        of chance outside an operation: delays, expiries, reservations, durations.

        Parameters
        ----------
        definition
            Workflow to verify; by default the definition in the log. Functions and agents are those of this
            environment.
        any_code
            True if functions may have been edited. Only their behaviour is then compared, not their code.
        """
        from divebook.replay.verify import verified

        return verified(self, self._control, definition, any_code=any_code)

    def files(self, workspace: str | None = None) -> KeptFiles:
        """Return the recorded files of one workspace of the run, to view, copy, apply or restore them as they were
        after any event.

        Raises
        ------
        NotFoundError
            The run has not used this workspace, or no workspace whose files are stored.
        """
        from divebook.replay.files import KeptFiles

        return KeptFiles(self.store, self.history(), workspace)

    def compare(self, other: FramedLog | str, *more: FramedLog | str) -> Comparison:
        """Compare this run side by side with other runs, or with ids of runs in its store.

        See `divebook.compare`.
        """
        return compared(self._environment, self, other, *more)

    # --- display and export ------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        try:
            name, standing = self.workflow.name, self.internals.standing
        except UNREADABLE as error:
            # A list of runs shows all of them, also those whose log cannot be read.
            name = self.internals.record.workflow_name
            standing = one_line(f"{self._recorded_status()}; its log cannot be read: {error}", MAX_STANDING)
        return f"<Run {self.id} of {name!r}: {standing}>"

    def report(self) -> Report:
        """Return the steps, values, questions and failures of the run."""
        from divebook.analysis.run_report import report_of

        return report_of(self, self.history()).report()

    def view(self) -> LiveView:
        """Return a live view of the run as an anywidget, for front ends that display widgets themselves.

        In marimo a run as the last value of a cell is enough; `marimo.ui.anywidget(run.view())` has the same effect.
        """
        from divebook.notebook.run_view import view_of

        return view_of(self)

    def _display_(self) -> LiveView:
        """Return the live view of the run, as the widget that marimo displays."""
        return self.view()

    def _ipython_display_(self) -> None:
        """Show the live view of a run that is still running; display nothing if this cell already shows the run; else
        let IPython display the MIME bundle.
        """
        from divebook.notebook.run_wait import display_run

        display_run(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return the report of the run, and the data for its replay, by MIME type."""
        # Both are read off the log in one pass.
        return self.internals.static_bundle()

    def to_html(
        self, file: str | Path, *, log: bool = True, overwrite: bool = False, known_secrets: Iterable[str] = ()
    ) -> Path:
        """Write the run as one HTML page, and return its path. The page can be read without divebook, and opened as a
        run again.

        `divebook.export.page.write_page` documents the content.
        """
        from divebook.export.page import write_page

        return write_page(
            self, as_path(file, "file"), log=log, overwrite=overwrite, known_secrets=self._secrets(known_secrets)
        )

    def to_notebook(self, file: str | Path, *, overwrite: bool = False, known_secrets: Iterable[str] = ()) -> Path:
        """Write the run as a notebook that describes it, and return its path. The notebook can be opened as a run
        again.

        `divebook.export.pytest.write_notebook` documents the content.
        """
        from divebook.export.pytest import write_notebook

        return write_notebook(
            self, as_path(file, "file"), overwrite=overwrite, known_secrets=self._secrets(known_secrets)
        )

    def to_test(self, file: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Write the run as a test for pytest, with files of its log and definition next to the test. Return the path of
        the test.

        The test needs neither API keys nor a network. It fails at the first difference from the log, and names the
        event, step and line. The default is ``test_NAME.py`` in the current folder. Secrets are removed.
        """
        from divebook.export.pytest import write_test

        path = None if file is None else as_path(file, "file")
        return write_test(self._environment, self, path, overwrite=overwrite, known_secrets=self._secrets())

    def export(self, file: str | os.PathLike[str], *, overwrite: bool = False, move: bool = False) -> int:
        """Write the log to a file of JSON lines; return the number of events.

        With `move`, the execution ends in this store with the status ``moved``, and continues where the file is
        imported.

        Raises
        ------
        ExecutionError
            The execution cannot move, because it has already ended, because it waits for a child execution, because its
            parent waits for it, or because an answer or a signal for it is not in its log yet. This includes answers
            and signals that arrive during the move.
        LeaseHeldError
            A process drives the execution that is to move.
        """
        path = as_path(file, "the file of a log")
        if not move:
            return transfer.export(self.store, self.id, path, overwrite=overwrite)
        clock = self._control.clock
        return move_out(self.store, self.id, path, clock, Ids(clock, self._control.chance), overwrite=overwrite)

    def _secrets(self, more: Iterable[str] = ()) -> Iterable[str]:
        if not is_list_of_strings(more := list_of(more, "known_secrets", "known_secrets=['...']")):
            raise SetupError("known_secrets must be a list of strings")
        return chain(more, sent_secrets(self._environment.internals.registry.config))


class RunUsage(NamedTuple):
    """Consumption of the model calls of a run.

    Costs are in US dollars everywhere in the public API. They are floats here, in DataFrames and in results of replay,
    and exact `decimal.Decimal` numbers in `Bounds`. Only the log has integers in nanodollars, so that sums are exact.
    """

    requests: int = 0
    input_tokens: int = 0
    """Input tokens of all requests, including those that were read from a provider's cache."""
    output_tokens: int = 0
    cache_write_tokens: int = 0
    """Input tokens that were written to the provider's cache."""
    cache_read_tokens: int = 0
    """Input tokens that were read from the provider's cache."""
    cost: float = 0.0
    """US dollars, as far as the prices are known."""


@dataclass(slots=True)
class HandleOptions:
    """Options of one handle of a run: how it waits, and how a notebook shows it."""

    answers: Answers | None = None
    """Answers given in advance; None without any."""
    strict: bool = False
    """True if `Run.wait` raises an error when the run has to wait for an answer or a signal."""
    shown_in: int | None = None
    """Execution count of the notebook cell that already shows the run; None if no cell shows it."""
    remark: str = ""
    """Note for people about the run, for example that it was not run again."""
    keeps_data: bool | None = None
    """True if the output of the run in a notebook contains its data; None to follow ``DIVEBOOK_NOTEBOOK_DATA`` and the
    key ``Config``.
    """


class RunInternals:
    """Parts of a run for other packages of divebook. They are not part of the public API."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run

    @property
    def _driver(self) -> Driver:
        return self._run._driver  # noqa: SLF001 - the handle itself

    @property
    def options(self) -> HandleOptions:
        """Options of this handle of the run."""
        return self._run._options  # noqa: SLF001 - the handle itself

    @property
    def damage(self) -> StoreError | None:
        """Error in the first unreadable event of the log, or None if the whole log can be read."""
        return self._driver.damage

    @property
    def durability(self) -> Durability | None:
        """Durability with which its events are written; None for the default of the store."""
        return self._driver.durability

    @property
    def held_up(self) -> str | None:
        """Reason why the store cannot be written to at present: ``waiting for the server since 12 s: ...``; None if it
        can.
        """
        return self._driver.held_up

    @property
    def is_blocked(self) -> bool:
        """True if the execution waits for the answer to a question that a running call has asked, and nothing else can
        happen.

        A tool of an MCP server can ask a question while it is called. `wait` then returns as for any other question,
        but the execution stays live: if this process ends, the call is aborted.
        """
        return self._driver.is_blocked

    @property
    def paths(self) -> dict[str, PathState]:
        """The paths (branches of execution) by id, oldest first."""
        return {path.id: path for path in sorted(self._run.state.paths.values(), key=lambda path: path.number)}

    @property
    def standing(self) -> str:
        """Status of the execution for people. If it waits, it is the reason of the wait, without secrets: ``waiting for
        the signal 'go'``.
        """
        status = self._run.status
        if (held_up := self.held_up) is not None:
            return f"{status}, {held_up}"
        if status != catalog.WAITING:
            return status
        first, *more = waits_for(self._run.state, self._driver.questions.values()) or ["a point in time"]
        return one_line(shared().text(f"waiting for {first}"), MAX_STANDING) + (
            f", and {len(more)} more" if more else ""
        )

    def refer_to(self, other: Run) -> None:
        """Make this handle refer to another execution. A button in the view of a run, such as "Run again", uses this,
        so that the variable of the cell has the run that the view shows.
        """
        self._run._driver = other._driver  # noqa: SLF001 - the handle itself

    @property
    def record(self) -> ExecutionRecord:
        """The summary row of the execution in its store."""
        return self._run.store.record(self._run.id)

    def failure_in(self, log: Sequence[Event]) -> Failure | None:
        """Return the reason of the failure, found in the log `log`, which is already loaded. Return None if the
        execution has not failed.

        If a child execution caused the failure, return the failure inside the child.
        """
        failure = failure_in(log, self._run.error or "") if self._run.status == catalog.FAILED else None
        if failure is None or not failure.child:
            return failure
        with suppress(StoreError):  # the child's log is damaged or deleted
            events = [*self._run.store.history(failure.child)]
            inner = failure_in(events, failure.message)
            return replace(inner, child=inner.child or failure.child, span=failure.span, sequence=failure.sequence)
        return failure

    @property
    def was_driven(self) -> bool:
        """True if this process drives the execution or has driven it. `wait` then reports how the drive ended."""
        return self._driver.was_driven

    @property
    def driven_by(self) -> str | None:
        """Description of the process or environment that drives the execution, as recorded in the store. None if this
        environment drives it, or if nothing drives it.
        """
        if self._run.is_live or self._driver.opening is not None:
            return None
        lease = self._run.store.live_lease_of(self._run.id)
        if lease is None:
            return None
        is_here = lease.owner.is_same_process(Owner.current())
        return "this process" if is_here else f"process {lease.owner.pid} on {lease.owner.host}"

    @property
    def goes_on_elsewhere(self) -> bool:
        """True if the execution continues without this process: another process drives it, or a worker will take it
        from its queue.
        """
        return self._run.status == catalog.ENQUEUED or self.driven_by is not None

    def checked(self) -> Run[Any]:
        """Return this execution after checking that it neither failed nor was cancelled.

        Raises ExecutionFailedError or ExecutionCancelledError if it failed or was cancelled. The ``__cause__`` of the
        first is the recorded error of the call that failed.
        """
        if self._run.status == catalog.FAILED:
            cause = None
            with suppress(StoreError):  # the log is damaged
                if (failure := self._run.failure) is not None and failure.error_type:
                    cause = as_exception(failure)
            raise ExecutionFailedError(self._run.id, self._run.error or "unknown error") from cause
        if self._run.status == catalog.CANCELLED:
            raise ExecutionCancelledError(self._run.id, self._run.error or "")
        return self._run

    def leave(self) -> Run[Any]:
        """Stop driving the execution in this process, as if the process had ended. Return this execution.

        Running calls are aborted. After `resume`, a person is asked about those that must not be repeated. An execution
        that this process does not drive is not changed.
        """
        self._run.environment.internals.control.leave(self._driver)
        return self._run

    def static_bundle(self, *, with_data: bool = True) -> dict[str, Any]:
        """Return the report of the run as text and HTML, and the data for its replay, by MIME type. `with_data` omits
        this data if False.

        They need no kernel and no trusted notebook. A comment in `divebook.notebook.run_view` describes the data, and
        how to switch it off.
        """
        from divebook.notebook.run_view import bundle_of

        return bundle_of(self._run, with_data=with_data)


class Deadline:
    """Time limit of a wait that consists of several waits, such as one for each successor of a run."""

    def __init__(self, timeout: object) -> None:
        self.limit = wait_limit(timeout)
        """Seconds that all waits together may last; None without a limit."""
        self._end = None if self.limit is None else time.monotonic() + self.limit

    @property
    def remaining(self) -> float | None:
        """Seconds that are left, at least 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())


def compared(environment: Environment, *runs: FramedLog | str) -> Comparison:
    """Compare runs with each other; see `divebook.compare`. Each is given as an object, or as its id in the store of
    the environment.
    """
    logs: list[Any] = []
    for run in runs:
        # A class has the attribute as well.
        is_log = hasattr(run, "_log") and not isinstance(run, type)
        logs.append(log_of(run if is_log else environment.run_of(run)))  # type: ignore[arg-type]
    return Comparison(logs)


def asked_questions(run: Run) -> list[Question]:
    """Return all questions of a run, oldest first, for views. An answer that is stored in the inbox counts even before
    the log has it.
    """
    return list(run._driver.questions.values())  # noqa: SLF001 - its own class


def waiting_error(run: Run) -> ExecutionWaitingError:
    """Return the error for a run that has to wait: it names the first open question and all awaited signals."""
    # One question is enough for the text of an error. The list of signals is short.
    questions = run.open_questions
    # A question of an agent or of a server may have no text.
    first_question = (one_line(questions[0].question, 200) or questions[0].id) if questions else ""
    signals = [str(awaited) for awaited in awaited_signals(run.state)]
    return ExecutionWaitingError(run.id, first_question, " and ".join(signals))


def sent_secrets(config: Config) -> Iterator[str]:
    """Yield the secrets in the settings of model providers: the values of all request headers whose name
    sounds secret.
    """
    for provider in config.providers:
        # Only values of headers such as ``Authorization``. ``User-Agent`` and the like are not secret.
        for name, values in provider.request_headers.items():
            if looks_secret(name):
                yield from values


def _restored(values: Mapping[str, Any]) -> dict[str, Any]:
    # Opened anew for each access, so that a caller who changes a value does not change the state.
    return {name: opened(value, lenient=True) for name, value in values.items()}


async def _await_elsewhere(driver: Driver, now: Callable[[], float]) -> Future[None] | None:
    """Wait like `wait_elsewhere`, in a thread that ends if this coroutine is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(wait_elsewhere, driver, now, stop=stop)
    finally:
        # A thread that waited on would keep the process, and `asyncio.run`, from ending.
        stop.set()

"""`Execution`: the public handle of one run of a workflow, live or past, with its state, results and operations."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divebook.definitions.definition import Workflow
from divebook.engine.state import ExecutionState, PathState, Usage, waits_for
from divebook.errors import (
    CorruptStoreError,
    ExecutionCancelledError,
    ExecutionError,
    ExecutionFailedError,
    ExecutionNotFoundError,
    FencedError,
    NewerStoreError,
    StoreError,
)
from divebook.events import Event, catalog
from divebook.events.recorded import opened
from divebook.interrupts import interruptible_result
from divebook.projections.comparison import Comparison
from divebook.projections.failures import Failure, failure_in, failures_of
from divebook.projections.log_frames import FramedLog, log_of
from divebook.projections.summary import ReadLog
from divebook.questions import Question
from divebook.runtime.children import running_children
from divebook.runtime.compute.threads import lend_slot
from divebook.runtime.driver import Driver
from divebook.runtime.loop import ENGINE, LeftError
from divebook.runtime.manager import Control, is_driven, is_elsewhere, wait_elsewhere
from divebook.runtime.streaming import TextListener
from divebook.stores.append import Durability
from divebook.stores.base import EventStore
from divebook.stores.follow import chain_of, on_change
from divebook.stores.history import History
from divebook.stores.leases import Owner
from divebook.text.arguments import wait_limit
from divebook.text.redaction import one_line, shared

if TYPE_CHECKING:
    import pandas as pd


# --- state and results of an execution -------------------------------------------------------------------------------
#
# Shared by live executions, past ones, and the run of a notebook.


class ReadExecution(FramedLog):
    """State and results of an execution, computed from its log. Base class of `Execution` and of the notebook's run."""

    @property
    @abstractmethod
    def state(self) -> ExecutionState:
        """State of the execution: the fold of its log so far, as an immutable snapshot."""

    @property
    @abstractmethod
    def asked(self) -> dict[str, Question]:
        """All questions of the execution by id, oldest first. An answer that is stored in the inbox counts even before
        the log has it.
        """

    @property
    def id(self) -> str:
        """The execution id: ``exec_`` and 26 characters."""
        return self.state.execution_id

    @property
    def status(self) -> str:
        """The status of the execution: pending, running, waiting, completed, failed, cancelled ...

        `divebook.engine.lifecycle` lists all.
        """
        return self.state.status

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
        return self.failure_in(ReadLog.of(self._log())) if self.status == catalog.FAILED else None

    def failure_in(self, log: Sequence[Event]) -> Failure | None:
        """Return the same as `failure`, from the log `log`, which is already loaded. Return None if the execution has
        not failed.
        """
        return failure_in(log, self.error or "") if self.status == catalog.FAILED else None

    @property
    def continued_as(self) -> str | None:
        """Id of the successor execution, or None."""
        return self.state.continued_as

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
        """The present values of the workflow's variables, sorted by name. Each access returns a new copy.

        A value whose class is not allowed in this process stays in its recorded form.
        """
        return _restored(dict(sorted(self.state.variables.items())))

    @property
    def paths(self) -> dict[str, PathState]:
        """The paths (branches of execution) by id, oldest first."""
        return {path.id: path for path in sorted(self.state.paths.values(), key=lambda path: path.number)}

    @property
    def usage(self) -> Usage:
        """Consumption of the execution's model calls. Its `cost` is in nanodollars; DataFrames have costs in US
        dollars.
        """
        return self.state.own_usage

    @property
    def started_at(self) -> datetime | None:
        """Start time of the execution in UTC, or None."""
        return self.state.started_at

    @property
    def ended_at(self) -> datetime | None:
        """End time of the execution in UTC, or None."""
        return self.state.ended_at

    def inspect(self) -> Any:
        """Return the waiting times, retries and costs of the execution, as a `divebook.replay.inspect.Inspection`."""
        # Imported here, like the other imports inside methods: the package is above this layer and loaded when first
        # used.
        from divebook.replay.inspect import Inspection

        return Inspection(self._log())

    @property
    def questions(self) -> pd.DataFrame:
        """Questions to people, their answers and waiting times, as a DataFrame with one row per question."""
        from divebook.analysis.lists import frame_of

        return frame_of("questions", ((self.id, question) for question in self.asked.values()))


class Execution(ReadExecution):
    """One run of a workflow, live or past: its state and results, and methods to wait for it, answer, resume or cancel
    it.

    `divebook.Environment.start` returns live executions; `Environment.execution` looks up past ones. All properties are
    read from the fold of the log, so a live and a past execution give equal results.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> environment.start(Workflow("sum", [Step("add", script="1 + 1", store="n")])).wait().status
    'completed'
    """

    def __init__(self, control: Control, driver: Driver) -> None:
        self._control = control
        self._driver = driver

    def __eq__(self, other: object) -> bool:
        # A store has one driver per execution, so two handles of one run are equal.
        return isinstance(other, Execution) and other._driver is self._driver

    def __hash__(self) -> int:
        return hash(self._driver)

    # --- properties --------------------------------------------------------------------------------------------------

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
        """The store that holds the log of the execution."""
        return self._driver.store

    @property
    def state(self) -> ExecutionState:
        """State of the execution: the fold of its log so far, as an immutable snapshot."""
        return self._driver.state

    @property
    def chain(self) -> list[str]:
        """Ids of all executions that continue each other as successors (`continued_as`), including this one, oldest
        first; usually one id.

        ``divebook.frames(store, where={"chain": execution.id})`` reads them as one.
        """
        return chain_of(self.store, self.id)

    @property
    def successor(self) -> Execution | None:
        """The execution that continues this one with an empty log, or None. `wait` does not wait for the end of the
        successor.
        """
        return None if self.continued_as is None else Execution(self._control, self._control.look_up(self.continued_as))

    @property
    def children(self) -> list[Execution]:
        """The running child executions for which steps of this execution wait."""
        children = []
        for name in () if self.state.is_over else running_children(self.state):
            with suppress(ExecutionNotFoundError):  # it is about to start
                self.store.record(name)
                children.append(Execution(self._control, self._control.look_up(name)))
        return children

    @property
    def durability(self) -> Durability | None:
        """Durability with which its events are written; None for the default of the store."""
        return self._driver.durability

    @property
    def damage(self) -> StoreError | None:
        """Error in the first unreadable event of the log, or None if the whole log can be read."""
        return self._driver.damage

    @property
    def held_up(self) -> str | None:
        """Reason why the store cannot be written to at present: ``waiting for the server since 12 s: ...``; None if it
        can.
        """
        return self._driver.held_up

    @property
    def envelope(self) -> Any:
        """The present state of a pipeline request, as `divebook.Envelope`: identity, bounds, consumption, history,
        questions.
        """
        from divebook.pipeline.progress import envelope_of

        return envelope_of(self.state, self.workflow)

    def to_html(
        self, file: str | Path, *, log: bool = True, overwrite: bool = False, known_secrets: Iterable[str] = ()
    ) -> Path:
        """Write the run as one HTML page, and return its path. The page can be read without divebook, and opened as a
        run again.

        `divebook.export.page.write_page` documents the content.
        """
        from divebook.export.page import write_page

        return write_page(self, file, log=log, overwrite=overwrite, known_secrets=known_secrets)

    def to_notebook(self, file: str | Path, *, overwrite: bool = False, known_secrets: Iterable[str] = ()) -> Path:
        """Write the run as a notebook that describes it, and return its path. The notebook can be opened as a run
        again.

        `divebook.export.pytest.write_notebook` documents the content.
        """
        from divebook.export.pytest import write_notebook

        return write_notebook(self, file, overwrite=overwrite, known_secrets=known_secrets)

    @property
    def is_live(self) -> bool:
        """True if this process drives the execution now."""
        return self._driver.is_live

    @property
    def is_blocked(self) -> bool:
        """True if the execution waits for the answer to a question that a running call has asked, and nothing else can
        happen.

        A tool of an MCP server can ask a question while it is called. `wait` then returns as for any other question,
        but the execution stays live: if this process ends, the call is aborted.
        """
        return self._driver.is_blocked

    @property
    def was_driven(self) -> bool:
        """True if this process drives the execution or has driven it. `wait` then reports how the drive ended."""
        return self._driver.was_driven

    @property
    def driven_by(self) -> str | None:
        """Description of the process or environment that drives the execution, as recorded in the store. None if this
        environment drives it, or if nothing drives it.
        """
        if self.is_live or self._driver.opening is not None:
            return None
        lease = self.store.live_lease_of(self.id)
        if lease is None:
            return None
        is_here = lease.owner.is_same_process(Owner.current())
        return "this process" if is_here else f"process {lease.owner.pid} on {lease.owner.host}"

    @property
    def goes_on_elsewhere(self) -> bool:
        """True if the execution continues without this process: another process drives it, or a worker will take it
        from its queue.
        """
        return self.status == catalog.ENQUEUED or self.driven_by is not None

    @property
    def interrupts(self) -> list[Question]:
        """Open questions, oldest first. A question with an unread answer in the inbox is not open."""
        return self._driver.interrupts

    @property
    def asked(self) -> dict[str, Question]:
        """All questions of the execution by id, oldest first. An answer that is stored in the inbox counts even before
        the log has it.
        """
        return self._driver.questions

    def _log(self) -> History:
        # `history` looks for damage, which reads the whole log.
        return self.history() if self._driver.is_read else self.store.history(self.id)

    def failure_in(self, log: Sequence[Event]) -> Failure | None:
        """Return the reason of the failure, found in the log `log`, which is already loaded. Return None if the
        execution has not failed.

        If a child execution caused the failure, return the failure inside the child.
        """
        failure = super().failure_in(log)
        if failure is None or not failure.child:
            return failure
        with suppress(StoreError):  # the child's log is damaged or deleted
            events = [*self.store.history(failure.child)]
            inner = failure_in(events, failure.message)
            return replace(inner, child=inner.child or failure.child, span=failure.span, sequence=failure.sequence)
        return failure

    def _frame(self, kind: str) -> Any:
        if not self._driver.is_read:
            # Tried without the check for damage first, because most logs are sound.
            with suppress(CorruptStoreError, NewerStoreError):
                return super()._frame(kind)
            self._driver.read()  # finds the readable part of a damaged log
        return super()._frame(kind)

    def history(self, after: int = 0) -> History:
        """Return the events of the execution with sequence numbers above `after`, oldest first. The events are read
        when accessed.
        """
        written = self._driver.written
        # A pending or damaged execution has a history with a fixed end.
        if written and self.damage is None:
            return self.store.history(self.id, after)
        return History(self.store, self.id, max(after, 0), written)

    def replay(self) -> Any:
        """Return a `divebook.replay.replayer.Replayer`, which steps through the log event by event, forward and back.

        It shows the state at each event. Nothing is run or written.
        """
        from divebook.replay.replayer import replayer_of

        return replayer_of(self)

    def verify(self, definition: Workflow | None = None) -> Any:
        """Replay the workflow definition, or another one, against the log without external calls; see
        `divebook.Environment.verify`.
        """
        from divebook.replay.verify import verified

        return verified(self, self._control, definition)

    def refresh(self) -> Execution:
        """Read the events that another process has appended to the log. Return this execution."""
        self._driver.refresh()
        return self

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call `listener` with the new events after each commit, on the engine's thread; with no events if the
        execution was deleted. Returns a function that ends the subscription.
        """
        return on_change(self.store, listener, self.id, elsewhere=False)

    def subscribe_text(self, listener: TextListener, *, parts: bool = False) -> Callable[[], None]:
        """Call `listener` with pieces of model text as they arrive. Returns a function that ends the subscription.

        With `parts`, the listener also gets model thoughts, arguments of tool calls, and output of commands in
        workspaces: see `TextDelta.part`. A listener that subscribes later gets the last million characters of each
        running text first.

        Models are asked to stream only while there is a listener. The pieces are for display only: the log gets the
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
        return self._control.texts.subscribe(self.id, listener, parts=parts)

    @property
    def standing(self) -> str:
        """Status of the execution for people. If it waits, it is the reason of the wait, without secrets: ``waiting for
        the signal 'go'``.
        """
        if (held_up := self.held_up) is not None:
            return f"{self.state.shown_status}, {held_up}"
        if self.state.shown_status != catalog.WAITING:
            return self.state.shown_status
        first, *more = waits_for(self.state, self.asked.values()) or ["a time"]
        return one_line(shared().text(f"waiting for {first}"), MOST_STANDING) + (
            f", and {len(more)} more" if more else ""
        )

    def __repr__(self) -> str:
        return f"<Execution {self.id} of {self.workflow.name!r}: {self.standing}>"

    def compare(self, other: FramedLog | str, *more: FramedLog | str) -> Comparison:
        """Compare this run side by side with other runs, or with ids of runs in its store.

        See `Environment.compare`.
        """
        executions = [
            Execution(self._control, self._control.look_up(run)) if isinstance(run, str) else run
            for run in (other, *more)
        ]
        return Comparison([log_of(run) for run in (self, *executions)])

    # --- operations --------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Execution:
        """Wait until the execution has ended, or can only continue with an answer or a signal. Return this execution.

        A question asked during a call counts like any other, although that call stays open: see `is_blocked`.

        Parameters
        ----------
        timeout
            Seconds; TimeoutError afterwards, with its id and status, while the execution continues. A negative number
            means 0. None and infinity mean no limit.
        check
            Raise ExecutionFailedError or ExecutionCancelledError unless it completed.

        Raises
        ------
        StoreError
            Its log could not be written. It can be resumed from the events in the store.
        ValueError
            The timeout is not a number of seconds.
        """
        timeout = wait_limit(timeout)
        if ENGINE.is_current():
            raise ExecutionError(f"wait() on the engine's own thread would wait for itself; use `await` for {self.id}")
        drives = self._driver.drives
        driving = None if is_elsewhere(self._driver) else self._driver.standstill()
        until = None if timeout is None else time.monotonic() + timeout
        try:
            # If this thread runs a call of another execution, the call gives up its place meanwhile. Otherwise calls
            # that wait for each other could use up all threads.
            with lend_slot():
                while True:
                    # A worker of this environment may take it up meanwhile, and return it to the queue.
                    if driving is None and (driving := wait_elsewhere(self._driver, _remaining(until))) is None:
                        break
                    try:
                        interruptible_result(driving, _remaining(until))
                    except (FencedError, LeftError) as error:
                        driving = self._drive_after_loss(driving, error)
                    else:
                        if is_elsewhere(self._driver):
                            driving = None  # it returned to the workers of its queue
                        elif self._driver.drives == drives:
                            break
                        # A worker of this environment has continued it meanwhile
                        # (test_waiting_follows_a_drive_that_begins_when_another_has_just_ended).
                        else:
                            drives = self._driver.drives
                            driving = self._driver.standstill()
        except TimeoutError as error:
            # User code may raise TimeoutError too, and the future of the drive passes it on.
            if timeout is None or (driving is not None and driving.done()):  # not raised by this wait
                raise
            stop = "cancel" if self.state.rolling_back is None else "pause"  # a rollback cannot be cancelled
            raise TimeoutError(
                f"execution {self.id} is {self.status} after {timeout:g} s, and goes on: wait() again, or {stop}() it"
            ) from error
        return self.checked() if check else self

    def __await__(self) -> Generator[Any, None, Execution]:
        """Wait like `wait`, on any event loop. Cancelling the await does not stop the execution.

        A pending execution is started: ``await environment.create(workflow)`` never blocks the event loop.
        """
        drives = self._driver.drives
        is_elsewhere_now = yield from self._is_elsewhere().__await__()
        driving = None if is_elsewhere_now else self._control.run(self._driver)
        while True:
            if driving is None:
                driving = yield from _await_elsewhere(self._driver).__await__()
                if driving is None:
                    break
            try:
                yield from asyncio.shield(asyncio.wrap_future(driving)).__await__()
            except (FencedError, LeftError) as error:
                driving = self._drive_after_loss(driving, error)
            else:  # as in `wait`
                if (yield from self._is_elsewhere().__await__()):
                    driving = None
                elif self._driver.drives == drives:
                    break
                else:
                    drives = self._driver.drives
                    driving = self._driver.standstill()
        return self

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
        if self.store.local:
            return is_elsewhere(self._driver)
        return await asyncio.to_thread(is_elsewhere, self._driver)

    def start(self) -> Execution:
        """Start a pending execution. Return this execution once its first events are in the store."""
        self._control.start(self._driver)
        return self

    def resume(self) -> Execution:
        """Resume the execution at the end of its log. Returns this execution at once. See `Environment.resume`."""
        self._control.resume(self.id)
        return self

    def answer(self, interrupt_id: str, response: Any, by: str | None = None) -> Execution:
        """Answer an open question of the execution, which continues at once. See `Environment.answer`."""
        self._control.answering.answer(interrupt_id, response, self.id, by)
        return self

    def signal(self, name: str, payload: Any = None, by: str | None = None) -> Execution:
        """Send the execution a signal (a message from outside without a question); see `Environment.signal`."""
        self._control.answering.signal(self.id, name, payload, by)
        return self

    def cancel(self, reason: str = "") -> Execution:
        """Cancel the execution: stop its paths and wait for them, roll back its effects, then end it as cancelled.

        Its child executions are cancelled with it: before the rollback if there is one, otherwise after the end of this
        execution. `wait` waits for them too: before a rollback without a limit, otherwise at most 5 seconds for each
        round of cancellations, because a function that blocks its thread cannot be interrupted. A pending execution
        ends as cancelled without starting; its start key stays free. A cancelled execution can be resumed, unless all
        its effects were rolled back. During a rollback, another `cancel` has no effect. Without a reason, the log has
        the name of the person who cancelled it.
        """
        self._control.cancel(self.id, reason)
        return self

    def leave(self) -> Execution:
        """Stop driving the execution in this process, as if the process had ended. Return this execution.

        Running calls are aborted. After `resume`, a person is asked about those that must not be repeated. An execution
        that this process does not drive is not changed.
        """
        self._control.leave(self._driver)
        return self

    def pause(self, reason: str = "") -> Execution:
        """Start no further operations until the execution is resumed. Returns this execution at once; `wait` until it
        has stopped.

        Calls that must not be repeated are awaited. Other calls are aborted and repeated later. An execution in a queue
        that is not driven at present is paused as well: workers ignore it.
        """
        self._control.pause(self._driver, reason)
        return self

    def checked(self) -> Execution:
        """Return this execution after checking that it neither failed nor was cancelled.

        Raises ExecutionFailedError or ExecutionCancelledError if it failed or was cancelled.
        """
        if self.status == catalog.FAILED:
            raise ExecutionFailedError(self.id, self.error or "unknown error")
        if self.status == catalog.CANCELLED:
            raise ExecutionCancelledError(self.id)
        return self


def _restored(values: Mapping[str, Any]) -> dict[str, Any]:
    # Opened anew for each access, so that a caller who changes a value does not change the state.
    return {name: opened(value, lenient=True) for name, value in values.items()}


MOST_STANDING = 140
"""Maximum number of characters of `standing`."""


async def _await_elsewhere(driver: Driver) -> Future[None] | None:
    """Wait like `wait_elsewhere`, in a thread that ends if this coroutine is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(wait_elsewhere, driver, stop=stop)
    finally:
        # A thread that waited on would keep the process, and `asyncio.run`, from ending.
        stop.set()


def _remaining(until: float | None) -> float | None:
    """Return the seconds until a time of `time.monotonic`, at least 0; None without a limit."""
    return None if until is None else max(0.0, until - time.monotonic())

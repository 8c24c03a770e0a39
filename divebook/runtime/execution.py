"""One run of a workflow, live or past: what to ask of it and what to do with it."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divebook import extensions
from divebook.engine.state import ExecutionState, PathState, Usage, waits_for
from divebook.errors import (
    CorruptStoreError,
    ExecutionCancelledError,
    ExecutionError,
    ExecutionFailedError,
    ExecutionNotFoundError,
    NewerStoreError,
    StoreError,
)
from divebook.events import Event, catalog
from divebook.events.recorded import opened
from divebook.interrupts import interruptible_result
from divebook.projections.comparison import Comparison
from divebook.projections.failures import Failure, failure_in, failures_of
from divebook.projections.frames_mixin import FramedLog, log_of
from divebook.projections.summary import ReadLog
from divebook.questions import Question
from divebook.runtime.children import running_children
from divebook.runtime.compute.threads import lending_place
from divebook.runtime.driver import Driver
from divebook.runtime.loop import ENGINE
from divebook.runtime.manager import Control, is_elsewhere, wait_elsewhere
from divebook.runtime.streaming import TextListener
from divebook.store.append import Durability
from divebook.store.base import EventStore
from divebook.store.follow import chain_of
from divebook.store.history import History
from divebook.store.leases import Owner
from divebook.text.redaction import one_line, shared
from divebook.workflow.definition import Workflow

if TYPE_CHECKING:
    import pandas as pd


# What is read off an execution as it stands, the same for a live one, a past one, and the run of a notebook.


class ReadExecution(FramedLog):
    """The facts of an execution, from the fold of its log."""

    @property
    @abstractmethod
    def state(self) -> ExecutionState:
        """The fold of the log so far; an immutable snapshot."""

    @property
    @abstractmethod
    def asked(self) -> dict[str, Question]:
        """Every question ever asked, by id, oldest first; an answer that is kept counts before the log has it."""

    @property
    def id(self) -> str:
        """``exec_`` and 26 characters."""
        return self.state.execution_id

    @property
    def status(self) -> str:
        """One of pending, running, waiting, completed, failed, cancelled."""
        return self.state.status

    @property
    def error(self) -> str | None:
        """Why it failed or was cancelled: ``KeyError: 'b' (step parse, rows[3], Cell [5], line 4)``; see `failure`."""
        return self.state.error

    @property
    def failures(self) -> list[Failure]:
        """The items, and the steps, that have failed, with those after which the run went on; read off the log."""
        return failures_of(ReadLog.of(self._log()))

    @property
    def failure(self) -> Failure | None:
        """Why it failed: type and message, step, item, arguments, the line, the calls that led there; read off the log.

        None is returned for one that has not failed.
        """
        return self.failure_in(ReadLog.of(self._log())) if self.status == catalog.FAILED else None

    def failure_in(self, log: Sequence[Event]) -> Failure | None:
        """Return the same as `failure`, read off its log where that is at hand."""
        return failure_in(log, self.error or "") if self.status == catalog.FAILED else None

    @property
    def continued_as(self) -> str | None:
        """The execution as which it goes on; None if it does not."""
        return self.state.continued_as

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs, defaults included; a fresh copy each time."""
        return _opened(self.state.inputs)

    @property
    def outputs(self) -> dict[str, Any]:
        """The declared outputs, a fresh copy each time; empty until it has completed.

        What this process cannot make again, since its class is not allowed here, stays in its recorded form.
        """
        return _opened(self.state.outputs)

    @property
    def variables(self) -> dict[str, Any]:
        """The workflow's named values as they stand, sorted by name; a fresh copy each time, as of `outputs`."""
        return _opened(dict(sorted(self.state.variables.items())))

    @property
    def paths(self) -> dict[str, PathState]:
        """Its lines of progress by id, oldest first."""
        return {path.id: path for path in sorted(self.state.paths.values(), key=lambda path: path.number)}

    @property
    def usage(self) -> Usage:
        """What model calls have consumed; its `cost` is in nanodollars, those of frames in US dollars."""
        return self.state.own_usage

    @property
    def started_at(self) -> datetime | None:
        """When it began, UTC."""
        return self.state.started_at

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, UTC."""
        return self.state.ended_at

    def inspect(self) -> Any:
        """Return what it waited for and spent, a `divebook.replay.inspect.Inspection`."""
        return extensions.extension(extensions.INSPECT)(self._log())

    @property
    def questions(self) -> pd.DataFrame:
        """What people were asked, what they answered and how long that took: one row per question."""
        asked = ((self.id, question) for question in self.asked.values())
        frame: pd.DataFrame = extensions.extension(extensions.FRAMES)("questions", asked)
        return frame


def _opened(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: opened(value, lenient=True) for name, value in values.items()}


MOST_STANDING = 140
"""Characters in which an execution says what it waits for."""


class Execution(ReadExecution):
    """One run of a workflow.

    `divebook.Environment.start` makes live ones; `Environment.execution` looks up past ones. Everything it tells is
    read from the fold of its log, so that a live and a past execution answer alike.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> environment.start(Workflow("sum", [Step("add", script="1 + 1", store="n")])).wait().status
    'completed'
    """

    def __init__(self, control: Control, driver: Driver) -> None:
        self._control, self._driver = control, driver

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Execution) and other._driver is self._driver

    def __hash__(self) -> int:
        return hash(self._driver)

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """``exec_`` and 26 characters."""
        return self._driver.id

    @property
    def workflow(self) -> Workflow:
        """The definition that it was started with."""
        return self._driver.workflow

    @property
    def store(self) -> EventStore:
        """Where its log rests."""
        return self._driver.store

    @property
    def state(self) -> ExecutionState:
        """The fold of the log so far; an immutable snapshot."""
        return self._driver.state

    @property
    def chain(self) -> list[str]:
        """Ids of the executions of which one went on as the next (`continued_as`), the first one first; mostly one.

        ``divebook.frames(store, where={"chain": execution.id})`` reads them as one.
        """
        return chain_of(self.store, self.id)

    @property
    def successor(self) -> Execution | None:
        """The execution as which this one goes on, which has its own end to wait for; None if it does not."""
        return None if self.continued_as is None else Execution(self._control, self._control.look_up(self.continued_as))

    @property
    def children(self) -> list[Execution]:
        """The executions that its steps have started and wait for."""
        children = []
        for name in () if self.state.is_over else running_children(self.state):
            with suppress(ExecutionNotFoundError):  # it is about to begin
                self.store.record(name)
                children.append(Execution(self._control, self._control.look_up(name)))
        return children

    @property
    def durability(self) -> Durability | None:
        """How its events are written; None as the store does by default."""
        return self._driver.durability

    @property
    def damage(self) -> StoreError | None:
        """What is wrong with the event after those that this was read from; None if the whole log can be read."""
        return self._driver.damage

    @property
    def held_up(self) -> str | None:
        """Why it stands still though it has something to do: ``waiting for the server since 12 s: ...``, or None."""
        return self._driver.held_up

    @property
    def envelope(self) -> Any:
        """The request as it stands, as `divebook.Envelope`: identity, bounds and what is spent, history, questions."""
        return extensions.extension(extensions.ENVELOPE)(self.state, self.workflow)

    def to_html(
        self, file: str | Path, *, log: bool = True, overwrite: bool = False, known_secrets: Iterable[str] = ()
    ) -> Path:
        """Write it as one page that shows it without divebook, and opens again as a run; return its path.

        `divebook.export.page.write_page` says what is in it.
        """
        written: Path = extensions.extension(extensions.PAGE)(
            self, file, log=log, overwrite=overwrite, known_secrets=known_secrets
        )
        return written

    def to_notebook(self, file: str | Path, *, overwrite: bool = False, known_secrets: Iterable[str] = ()) -> Path:
        """Write it as a notebook that tells of it and opens again as a run; return its path.

        `divebook.export.pytest.write_notebook` says what is in it.
        """
        written: Path = extensions.extension(extensions.NOTEBOOK)(
            self, file, overwrite=overwrite, known_secrets=known_secrets
        )
        return written

    @property
    def is_live(self) -> bool:
        """Whether this process is driving it now."""
        return self._driver.is_live

    @property
    def is_blocked(self) -> bool:
        """Whether a call that is under way waits for an answer, and nothing else can happen.

        A tool of an MCP server may ask while it is called. `wait` returns then as for any other question, but the
        execution stays live: when this process ends, the call is cut off.
        """
        return self._driver.is_blocked

    @property
    def was_driven(self) -> bool:
        """Whether this process drives it, or has driven it: `wait` then tells how that ended."""
        return self._driver.was_driven

    @property
    def driven_by(self) -> str | None:
        """What else drives it now, in words, as far as the store knows: another process; None if nothing does."""
        if self.is_live or self._driver.opening is not None:
            return None
        lease = self.store.live_lease_of(self.id)
        if lease is None:
            return None
        is_here = lease.owner.is_same_process(Owner.current())
        return "this process" if is_here else f"process {lease.owner.pid} on {lease.owner.host}"

    @property
    def goes_on_elsewhere(self) -> bool:
        """Whether it goes on without this process: another one drives it, or is to take it from its queue."""
        return self.status == catalog.ENQUEUED or self.driven_by is not None

    @property
    def interrupts(self) -> list[Question]:
        """The questions that wait for an answer, oldest first; one whose answer is kept is none of them."""
        return self._driver.interrupts

    @property
    def asked(self) -> dict[str, Question]:
        """Every question ever asked, by id, oldest first; an answer that is kept counts before the log has it."""
        return self._driver.questions

    def _log(self) -> History:
        return self.history() if self._driver.is_read else self.store.history(self.id)

    def failure_in(self, log: Sequence[Event]) -> Failure | None:
        """Return why it failed, read off its log; of a failure in another workflow that it ran, the one inside that."""
        found = super().failure_in(log)
        if found is None or not found.child:
            return found
        with suppress(StoreError):  # that one is damaged, or gone
            events = [*self.store.history(found.child)]
            inner = failure_in(events, found.message)
            return replace(inner, child=inner.child or found.child, span=found.span, sequence=found.sequence)
        return found

    def _frame(self, kind: str) -> Any:
        if not self._driver.is_read:
            with suppress(CorruptStoreError, NewerStoreError):
                return super()._frame(kind)
            self._driver.read()  # which finds out how far it is sound
        return super()._frame(kind)

    def history(self, after: int = 0) -> History:
        """Return its events, oldest first, those after sequence number `after`; they are read when looked at."""
        written = self._driver.written
        if written and self.damage is None:
            return self.store.history(self.id, after)
        return History(self.store, self.id, max(after, 0), written)

    def replay(self) -> Any:
        """Return a `divebook.replay.replayer.Replayer`: it goes through the log event by event, forward and back.

        It tells how things stood at each; nothing is run for it, and nothing written.
        """
        return extensions.extension(extensions.REPLAY)(self)

    def verify(self, definition: Workflow | None = None) -> Any:
        """Drive its definition, or another one, against its log without a call; see `divebook.Environment.verify`."""
        return extensions.extension(extensions.VERIFY)(self, self._control, definition)

    def refresh(self) -> Execution:
        """Read on in the log if another process has written to it; return itself."""
        self._driver.refresh()
        return self

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call `listener` with new events after each commit, on the engine's thread; call the result to stop."""

        def only_mine(execution_id: str, events: Sequence[Event]) -> None:
            if execution_id == self.id:
                listener(events)

        return self.store.subscribe(only_mine)

    def subscribe_text(self, listener: TextListener, *, parts: bool = False) -> Callable[[], None]:
        """Call `listener` with what models write, as it arrives; call the result to stop.

        With `parts` it hears their thoughts and the arguments of their calls as well, and what commands print in
        workspaces: see `TextDelta.part`. Of what is longer than a million characters, who comes late gets the end.

        Models are asked to stream only while somebody listens. The pieces are for showing: the log has the whole text
        once it is complete. The listener is called on the engine's thread and must be quick; one that raises gets
        no more. Of a text that is being written it first hears what there is.

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
        """Its status in words, and what it waits for, without secrets: ``waiting for the signal 'go'``."""
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
        """Lay it side by side with other runs, or with those of other ids in its store. See `Environment.compare`."""
        found = [
            Execution(self._control, self._control.look_up(run)) if isinstance(run, str) else run
            for run in (other, *more)
        ]
        return Comparison([log_of(run) for run in (self, *found)])

    # --- what to do with it ----------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Execution:
        """Block until it has ended, or waits for an answer and nothing else can happen; return itself.

        A question that is asked during a call counts as any other one, though that call stays open: see `is_blocked`.

        Parameters
        ----------
        timeout
            Seconds; TimeoutError afterwards, with its id and status, while the execution goes on.
        check
            Raise ExecutionFailedError or ExecutionCancelledError unless it completed.

        Raises
        ------
        StoreError
            Its log could not be written; what the store holds can be resumed.
        """
        if ENGINE.is_current():
            raise ExecutionError(f"wait() on the engine's own thread would wait for itself; use `await` for {self.id}")
        elsewhere = is_elsewhere(self._driver)
        driving = None if elsewhere else self._driver.standstill()
        until = None if timeout is None else time.monotonic() + timeout
        try:
            with lending_place():
                if driving is not None:
                    interruptible_result(driving, timeout)
                if driving is None or is_elsewhere(self._driver):  # given to the workers of its queue
                    wait_elsewhere(self._driver, None if until is None else max(0, until - time.monotonic()))
        except TimeoutError as error:
            if timeout is None or (driving is not None and driving.done()):  # its own, or a signal handler's
                raise
            stop = "cancel" if self.state.rolling_back is None else "pause"  # what is undone goes on all the same
            raise TimeoutError(
                f"execution {self.id} is {self.status} after {timeout:g} s, and goes on: wait() again, or {stop}() it"
            ) from error
        return self.checked() if check else self

    def __await__(self) -> Generator[Any, None, Execution]:
        """Wait on any event loop; to stop waiting does not stop the execution.

        One that is pending begins: ``await environment.create(workflow)`` holds the event loop up at no time.
        """
        if is_elsewhere(self._driver):
            yield from asyncio.to_thread(wait_elsewhere, self._driver).__await__()
        else:
            yield from asyncio.shield(asyncio.wrap_future(self._control.run(self._driver))).__await__()
            if is_elsewhere(self._driver):
                yield from asyncio.to_thread(wait_elsewhere, self._driver).__await__()
        return self

    def start(self) -> Execution:
        """Begin a pending execution; return itself once its beginning is in the store."""
        self._control.start(self._driver)
        return self

    def resume(self) -> Execution:
        """Take it up again where its log ends; return itself at once. See `Environment.resume`."""
        self._control.resume(self.id)
        return self

    def answer(self, interrupt_id: str, response: Any, by: str | None = None) -> Execution:
        """Answer one of its questions; it goes on at once. See `Environment.answer`."""
        self._control.answering.answer(interrupt_id, response, self.id, by)
        return self

    def signal(self, name: str, payload: Any = None, by: str | None = None) -> Execution:
        """Send it a signal; see `Environment.signal`."""
        self._control.answering.signal(self.id, name, payload, by)
        return self

    def cancel(self, reason: str = "") -> Execution:
        """Stop it: paths are stopped and awaited, what is to be undone is undone, then it ends as cancelled.

        The executions that it started are cancelled with it, and `wait` waits for them too. A pending one ends as
        cancelled without having begun; its start key stays free.
        It can be resumed, unless all that it did was undone; while that goes on, another `cancel` changes nothing.
        Without a reason its log says who cancelled it.
        """
        self._control.cancel(self.id, reason)
        return self

    def leave(self) -> Execution:
        """Stop driving it here, as if this process had ended; return itself.

        Calls that are under way are cut off: after `resume`, those that may not be made twice are asked about. One that
        this process does not drive stays as it is.
        """
        self._control.leave(self._driver)
        return self

    def pause(self, reason: str = "") -> Execution:
        """Let nothing more begin until it is resumed; return itself at once, `wait` for it to come to rest.

        Calls that may not be made twice are waited for, others are broken off and made again later. One of a queue that
        nobody drives at present is paused as well: its workers leave it alone.
        """
        self._control.pause(self._driver, reason)
        return self

    def checked(self) -> Execution:
        """Return itself; raise ExecutionFailedError or ExecutionCancelledError if it has ended so."""
        if self.status == catalog.FAILED:
            raise ExecutionFailedError(self.id, self.error or "unknown error")
        if self.status == catalog.CANCELLED:
            raise ExecutionCancelledError(self.id)
        return self

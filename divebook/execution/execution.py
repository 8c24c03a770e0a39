"""One run of a workflow, live or past: what to ask of it and what to do with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Protocol

from divebook import extensions
from divebook.engine.evolve import fold
from divebook.engine.inbox import facts_of, questions_of
from divebook.engine.instructions import Fact
from divebook.engine.state import ExecutionState, PathState, Usage
from divebook.engine.waiting import waits_for
from divebook.errors import ExecutionCancelledError, ExecutionError, ExecutionFailedError, LeaseHeldError, StoreError
from divebook.events import Event, catalog
from divebook.events.recorded import opened
from divebook.execution.clock import Chance, Clock, Ids
from divebook.execution.context import STRAND
from divebook.execution.engine_thread import ENGINE
from divebook.execution.farewell import FAREWELL
from divebook.execution.journal import FIRST_TOKEN, Journal
from divebook.execution.runner import Runner
from divebook.execution.step_run import Services
from divebook.execution.streaming import TextListener, TextStreams
from divebook.execution.threads import lending_place
from divebook.questions import Question
from divebook.store.base import EventStore
from divebook.store.durability import Durability
from divebook.store.leases import Lease
from divebook.store.owner import Owner
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import CURRENT

MICROSECONDS = 1_000_000
CANCELLED = "cancelled by a person"


class Controls(Protocol):
    """What an execution asks of `divebook.execution.control.Control`."""

    texts: TextStreams

    def begin(self, execution: Execution, *openings: Fact, lease: Lease | None = None) -> Execution:
        """Drive an execution from now on."""

    def resume(self, execution_id: str) -> Execution:
        """Take an execution up again."""

    def go_on(self, execution: Execution) -> Execution:
        """Let an execution that rests take what waits in its inbox."""

    def answer(self, interrupt_id: str, response: Any, execution_id: str | None, by: str | None) -> Execution:
        """Answer a question."""

    def signal(self, execution_id: str, name: str, payload: Any, by: str | None) -> Execution:
        """Send a signal."""

    def cancel(self, execution_id: str, reason: str) -> Execution:
        """Cancel an execution."""

    def ended(self, execution: Execution) -> None:
        """Hear that an execution which this process drove has ended."""


class Execution:
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

    def __init__(
        self,
        workflow: Workflow,
        state: ExecutionState,
        store: EventStore,
        control: Controls,
    ) -> None:
        self.workflow, self.store = workflow, store
        self.opening: catalog.ExecutionStarted | None = None
        """What its log begins with, while it is pending; for the environment."""
        self.durability: Durability | None = None
        """How its events are written; None as the store does by default."""
        self.damage: StoreError | None = None
        """What is wrong with the event after those that this was read from; None if the whole log can be read."""
        self._control = control
        self._state, self._is_stored, self._written = state, True, state.last_sequence
        self._journal: Journal | None = None
        self._runner: Runner | None = None
        self._future: Future[None] | None = None
        self._process = os.getpid()
        self._cancel_reason: str | None = None
        self._pause_reason: str | None = None

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """``exec_`` and 26 characters."""
        return self.state.execution_id

    @property
    def state(self) -> ExecutionState:
        """The fold of the log so far; an immutable snapshot."""
        return self._journal.state if self._journal is not None else self._state

    @property
    def status(self) -> str:
        """One of pending, running, waiting, completed, failed, cancelled."""
        return self.state.status

    @property
    def error(self) -> str | None:
        """Why it failed or was cancelled."""
        return self.state.error

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
        """What model calls have consumed."""
        return self.state.usage

    @property
    def envelope(self) -> Any:
        """The request as it stands, as `divebook.Envelope`: identity, bounds and what is spent, history, questions."""
        return extensions.extension(extensions.ENVELOPE)(self.state, [step.name for step in self.workflow.steps])

    @property
    def started_at(self) -> datetime | None:
        """When it began, UTC."""
        return self.state.started_at

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, UTC."""
        return self.state.ended_at

    @property
    def is_live(self) -> bool:
        """Whether this process is driving it now."""
        return self._future is not None and not self._was_forked and not self._future.done()

    @property
    def was_driven(self) -> bool:
        """Whether this process drives it, or has driven it: `wait` then tells how that ended."""
        return self._future is not None and not self._was_forked

    @property
    def _was_forked(self) -> bool:
        """Whether this is a copy in a forked process, where nothing of it can go on."""
        return self._process != os.getpid()

    def history(self, after: int = 0) -> list[Event]:
        """Return its events from the store, oldest first, those behind sequence number `after`."""
        journal = self._journal
        kept = self._state.last_sequence if self._is_stored else self._written
        written = kept if journal is None else journal.written
        if not written:
            return []
        if self.damage is not None:
            return self.store.read(self.id, after, max(written - after, 0))
        return self.store.read(self.id, after)

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call `listener` with new events after each commit, on the engine's thread; call the result to stop."""

        def only_mine(execution_id: str, events: Sequence[Event]) -> None:
            if execution_id == self.id:
                listener(events)

        return self.store.subscribe(only_mine)

    def subscribe_text(self, listener: TextListener) -> Callable[[], None]:
        """Call `listener` with what models write, as it arrives; call the result to stop.

        Models are asked to stream only while somebody listens. The pieces are for showing: the log has the whole text
        once it is complete. The listener is called on the engine's thread and must be quick; one that raises is told
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
        return self._control.texts.subscribe(self.id, listener)

    @property
    def standing(self) -> str:
        """Its status in words, and what it waits for: ``waiting for the signal 'go'``."""
        if self.state.shown_status != catalog.WAITING:
            return self.state.shown_status
        first, *more = waits_for(self.state, self.questions.values()) or ["a time"]
        return f"waiting for {first}" + (f", and {len(more)} more" if more else "")

    def __repr__(self) -> str:
        return f"<Execution {self.id} of {self.workflow.name!r}: {self.standing}>"

    # --- what to do with it ----------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Execution:
        """Block until it has ended, or waits for an answer and nothing else can happen; return itself.

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
        driving = self._driving()
        try:
            with lending_place():
                driving.result(timeout)
        except TimeoutError as error:
            if driving.done():  # its own
                raise
            raise TimeoutError(
                f"execution {self.id} is {self.status} after {timeout:g} s, and goes on: wait() again, or cancel() it"
            ) from error
        return self._checked() if check else self

    def __await__(self) -> Generator[Any, None, Execution]:
        """Wait on any event loop; to stop waiting does not stop the execution."""
        yield from asyncio.shield(asyncio.wrap_future(self._driving())).__await__()
        return self

    def start(self) -> Execution:
        """Begin a pending execution; return itself at once."""
        if self.opening is None or self._future is not None:
            raise ExecutionError(f"execution {self.id} is {self.status}; only a pending one can be started")
        return self._control.begin(self, Fact(self.opening))

    def resume(self) -> Execution:
        """Take it up again where its log ends; return itself at once. See `Environment.resume`."""
        return self._control.resume(self.id)

    def answer(self, interrupt_id: str, response: Any, by: str | None = None) -> Execution:
        """Answer one of its questions; it goes on at once. See `Environment.answer`."""
        return self._control.answer(interrupt_id, response, self.id, by)

    def signal(self, name: str, payload: Any = None, by: str | None = None) -> Execution:
        """Send it a signal; see `Environment.signal`."""
        return self._control.signal(self.id, name, payload, by)

    def cancel(self, reason: str = CANCELLED) -> Execution:
        """Stop it: paths are stopped and awaited, then it ends as cancelled. It can be resumed."""
        if self._was_forked:
            self._driving()
        return self._control.cancel(self.id, reason)

    def pause(self, reason: str = "paused by a person") -> Execution:
        """Let nothing more begin until it is resumed; return itself at once, `wait` for it to come to rest.

        Calls that may not be made twice are waited for, others are broken off and made again later.
        """
        if not self.is_live:
            raise ExecutionError(f"execution {self.id} is {self.status}, and this process does not drive it")
        self._pause_reason = reason
        ENGINE.loop.call_soon_threadsafe(self._pass_on)
        return self

    def stop(self, reason: str) -> None:
        """Stop an execution that this process drives; for `Control.cancel`."""
        self._cancel_reason = reason
        ENGINE.loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        """Tell the runner that it is to be cancelled or paused; one that is not made yet is told when it is."""
        if self._runner is not None and self._cancel_reason is not None:
            self._runner.cancel(self._cancel_reason)
        elif self._runner is not None and self._pause_reason is not None:
            self._runner.pause(self._pause_reason)

    def _driving(self) -> Future[None]:
        if self._future is None or self._was_forked:
            if not self.state.is_over:
                advice = "start it first" if self.opening is not None else "resume it, or answer its question, first"
                if self._future is not None:
                    advice = f"wait for it in process {self._process}, from which this one was forked"
                raise ExecutionError(f"execution {self.id} is not running in this process; {advice}")
            self._future, self._process = Future(), os.getpid()
            self._future.set_result(None)
        return self._future

    def _checked(self) -> Execution:
        if self.status == catalog.FAILED:
            raise ExecutionFailedError(self.id, self.error or "unknown error")
        if self.status == catalog.CANCELLED:
            raise ExecutionCancelledError(self.id)
        return self

    @property
    def interrupts(self) -> list[Question]:
        """The questions that wait for an answer, oldest first; one whose answer is kept is none of them."""
        return [asked for asked in self.questions.values() if asked.is_open]

    @property
    def questions(self) -> dict[str, Question]:
        """Every question ever asked, by id, oldest first; an answer that is kept counts before the log has it."""
        state = self.state
        is_open = any(asked.is_open for asked in state.interrupts.values()) and not self.store.closed
        return questions_of(state, self.store.inbox(self.id, state.taken) if is_open else ())

    def drive(
        self, openings: Sequence[Fact], services: Services, clock: Clock, chance: Chance, lease: Lease | None = None
    ) -> Execution:
        """Carry it out on the engine's thread, beginning with the facts `openings`; for the environment.

        An execution that the store knows already needs a `lease`.
        """
        FAREWELL.mind(self)
        return self._drive(self._run(openings, services, clock, chance, lease))

    def _drive(self, work: Coroutine[Any, Any, None]) -> Execution:
        self._future, self._process = ENGINE.submit(work), os.getpid()
        return self

    def drive_cancellation(self, reason: str, clock: Clock, chance: Chance, lease: Lease) -> Execution:
        """Record that an execution which this process does not drive is cancelled; for the environment."""
        return self._drive(self._end_as_cancelled(reason, clock, chance, lease))

    async def _end_as_cancelled(self, reason: str, clock: Clock, chance: Chance, lease: Lease) -> None:
        journal = self._open_journal(clock, chance, lease)
        for path in journal.state.active_paths():
            journal.record(catalog.PathCancelled(reason), path.id)
        journal.record(catalog.ExecutionCancelled(reason))
        await journal.durable()
        self.store.release(lease)
        self._settle(journal)
        self._control.ended(self)

    def refresh(self) -> Execution:
        """Read on in the log if another process has written to it; for the environment."""
        if not self.is_live:
            self._state, self._is_stored = self._newest(), True
        return self

    def _newest(self) -> ExecutionState:
        """Return the state up to the last event of the store."""
        known = self._state if self._is_stored else ExecutionState(self.id)
        is_pending = self._is_stored and not known.last_sequence
        return known if is_pending else fold(self.id, self.store.read(self.id, known.last_sequence), known)

    async def durable(self) -> None:
        """Return when everything recorded so far is written; call it on the engine's loop."""
        if self._journal is not None:
            await self._journal.durable()

    async def _run(
        self, openings: Sequence[Fact], services: Services, clock: Clock, chance: Chance, lease: Lease | None
    ) -> None:
        """Drive it until it has ended or rests, and on if something came while it was coming to rest."""
        STRAND.set("")  # another execution may have started this one, from among its own calls
        CURRENT.set(None)
        await self._drive_once(openings, services, clock, chance, lease)
        while (again := self._taken_up_again()) is not None:
            resumed = Fact(catalog.ExecutionResumed(self._state.status))
            await self._drive_once((resumed,), services, clock, chance, again)
        self._set_alarm(clock)
        if self._state.is_over:
            self._control.ended(self)

    async def _drive_once(
        self, openings: Sequence[Fact], services: Services, clock: Clock, chance: Chance, lease: Lease | None
    ) -> None:
        journal = self._open_journal(clock, chance, lease)
        self._runner = Runner(journal, self.workflow, services, chance)
        self._pass_on()
        held = lease or Lease(self.id, FIRST_TOKEN, Owner.current(), expires_at=0)
        ENGINE.lease_keeper(self.store).keep(held)
        mailroom = ENGINE.mailroom(self.store)
        try:
            journal.record_all(openings)
            if lease is None:  # it is in the store from now on: messages can be sent to it
                await journal.durable()
            mailroom.admit(self.id, self._runner)
            await self._runner.run()
        finally:
            mailroom.dismiss(self.id)
            ENGINE.lease_keeper(self.store).release(held)
            self._settle(journal)

    def _settle(self, journal: Journal) -> None:
        """Keep the last state, once this process has stopped driving; without its log it may not be what is stored."""
        self._state, self._is_stored, self._written = journal.state, journal.error is None, journal.written
        self._journal, self._runner, self._cancel_reason, self._pause_reason = None, None, None, None

    def _taken_up_again(self) -> Lease | None:
        """Take the lease again if messages came after the last look into the inbox."""
        if (
            self._state.is_over
            or self._state.paused
            or not facts_of(self._state, self.store.inbox(self.id, self._state.taken))
        ):
            return None
        try:
            return self.store.acquire(self.id, Owner.current())
        except LeaseHeldError:  # whoever sent them takes care of them
            return None

    def _set_alarm(self, clock: Clock) -> None:
        """See to it that a question expires in time, though nobody drives the execution until then."""
        due = self._state.wake_at
        if due is not None:
            ENGINE.keep(self._wake(due, clock, asyncio.current_task()))

    async def _wake(self, due: int, clock: Clock, driving: asyncio.Task[Any] | None) -> None:
        """Go on at a time, unless something else has happened by then; `driving` comes to its end before."""
        if driving is not None:
            await asyncio.wait([driving])
        while (left := due - clock.now()) > 0:
            await clock.sleep(left / MICROSECONDS)
        if not self.is_live and not self.store.closed and self.refresh().state.wake_at == due:
            self._control.go_on(self)

    def _open_journal(self, clock: Clock, chance: Chance, lease: Lease | None) -> Journal:
        token = None if lease is None else lease.token
        commit = ENGINE.group_commit(self.store)
        ids = Ids(clock, chance)
        self._journal = Journal(self._newest(), commit, clock, ids, token=token, durability=self.durability)
        return self._journal


def _opened(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: opened(value, lenient=True) for name, value in values.items()}

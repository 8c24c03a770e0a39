"""Executions in queues: an environment puts them there, and workers (`divebook.Worker`) drive them."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

from divebook.agents import imports
from divebook.agents.cache import ResponseCache, cache_of
from divebook.engine.approvals import StandingRule
from divebook.environment.settings import WARN, StartOptions, as_bounds, require_options, started_before
from divebook.errors import InputError, NotFoundError, SetupError, StartKeyTakenError, shown_number
from divebook.events import catalog
from divebook.events.event import to_microseconds
from divebook.projections.comparison import Comparison
from divebook.projections.frames_mixin import FramedLog, log_of
from divebook.projections.requests import RequestView, requests_of
from divebook.questions import Question
from divebook.questions.bounds import Bounds
from divebook.replay.files import KeptFiles
from divebook.replay.inspect import Inspection
from divebook.replay.provenance import Provenance, why
from divebook.replay.replayer import Replayer, replayer_of
from divebook.runtime.clock import Chance, Clock, Ids
from divebook.runtime.driver import Driver
from divebook.runtime.execution import Execution
from divebook.runtime.manager import Control
from divebook.runtime.messages import Annotating, annotation, this_person
from divebook.runtime.queueing import move_out, next_attempt
from divebook.steps.call import EnvironmentApprovals
from divebook.steps.conversations import ConversationStore, Thread
from divebook.store import EventStore, ExecutionRecord, MemoryStore, transfer
from divebook.store.leases import QueuedExecution, WorkerRecord
from divebook.text.arguments import id_of, require
from divebook.text.paths import as_path
from divebook.text.redaction import logger
from divebook.workflow.definition import Workflow

# The executions of an environment: found, listed, resumed, answered, ended, moved.


_log = logger(__name__)
_FILTERS = ("tag", "origin", "parent", "notebook", "cell", "key")


class Executions(ABC):
    """What can be done with executions that exist; `divebook.Environment` starts new ones."""

    store: EventStore
    _control: Control
    _clock: Clock
    _chance: Chance
    _policy: EnvironmentApprovals
    threads: ConversationStore

    @functools.cached_property
    def responses(self) -> ResponseCache:
        """The responses of models that agents with a `Cache` use again: in a folder beside the file of the store."""
        return cache_of(self.store, lambda: self._clock.now() / 1_000_000)

    def requests_of(self, run: str) -> list[RequestView]:
        """Return the requests that an execution made to models; raises `ExecutionNotFoundError`."""
        return requests_of(self.store.read(run))

    def _handle(self, driver: Driver) -> Execution:
        return Execution(self._control, driver)

    def resume(self, execution_id: str, bounds: Bounds | Mapping[str, Any] | None = None) -> Execution:
        """Take an execution up again where its log ends; see `Environment.resume`."""
        return self._handle(self._control.resume(execution_id, None if bounds is None else as_bounds(bounds)))

    def answer(
        self, interrupt_id: str, response: Any, execution_id: str | Execution | None = None, by: str | None = None
    ) -> Execution:
        """Answer a question; its execution goes on at once, here or in the process that drives it.

        Parameters
        ----------
        interrupt_id
            Which question: its id, as `Execution.interrupts` names it, or ``ask_...@exec_...`` with the execution,
            which is needed where several executions ask a question of that id.
        response
            What fits the kind of question: a text, or a value that fits its schema (clarification); True, False or
            ``"no: REASON"`` (confirmation); ``"approve"``, ``"reject"`` or ``"modify"`` (agent_review); a number,
            ``"raise"`` or ``"stop"`` (resource_exhausted); ``"retry"``, ``"fail"`` or
            ``{"choice": "done", "result": ...}`` (unknown outcome). In full form: ``{"text": ..., "approved": ...,
            "decision": ..., "data": ...}``, where a call is approved for instance ``{"approved": True, "data":
            {"parameters": {...}, "rule": {"scope": "always"}}}``.
        execution_id
            The execution that asks, or its id: spares the search through those that wait.
        by
            Who answers; by default the user of this process.

        Raises
        ------
        NotFoundError
            There is no such question.
        InterruptError
            It has an answer already (the error shows it), has expired, or this answer does not fit: it stays open then.
        AnswerKeptError
            The answer is kept, and the execution cannot go on in this process.
        """
        require(interrupt_id, "the question", "its id as a string", fits=isinstance(interrupt_id, str))
        asker = None if execution_id is None else id_of(execution_id, "execution_id")
        return self._handle(self._control.answering.answer(interrupt_id, response, asker, by))

    def answer_alike(self, interrupt_id: str, response: Any, by: str | None = None) -> list[Execution]:
        """Give one answer to a question and to all open ones like it, of every execution; return who goes on.

        Questions are alike that the same step of the same workflow asks, of the same kind, for the same sort of answer
        and, of calls, about the same tool or action of the same agent. Changed arguments and rules are of the named
        question alone; what was answered meanwhile stays as it is.

        Raises
        ------
        InterruptError
            The answer does not fit the named question, or each question of its kind needs an answer of its own.
        """
        answered = self._control.answering.answer_alike(interrupt_id, response, by)
        return [self._handle(driver) for driver in answered]

    def signal(self, execution_id: str, name: str, payload: Any = None, by: str | None = None) -> Execution:
        """Send a signal to an execution; it is kept until a step takes it.

        Steps take signals with ``Type: wait`` and ``Signal: name``, or with ``ctx.wait_signal``.

        Parameters
        ----------
        payload
            Plain data.
        by
            Who sends it; by default the user of this process.

        Raises
        ------
        ExecutionError
            The execution has ended.
        """
        return self._handle(self._control.answering.signal(execution_id, name, payload, by))

    def rules(self) -> list[tuple[str | None, StandingRule]]:
        """Return the rules that people made when they approved calls, and that hold: of runs first, each with its id.

        Those for every execution have None in place of the id of a run.
        """
        now = self._clock.now()
        lasting = self._policy.standing()
        found = [*self._control.answering.rules(), *((None, rule) for rule in lasting)]
        return [(name, rule) for name, rule in found if rule.expires_us is None or now < rule.expires_us]

    def revoke(self, rule_id: str, by: str | None = None) -> None:
        """Let a rule that a person made hold no more, for calls that are judged from now on.

        Parameters
        ----------
        by
            Who revokes it; by default the user of this process.

        Raises
        ------
        NotFoundError
            No rule of that id holds; one of a run that has ended holds no more.
        """
        held = self.rules()
        where = [name for name, rule in held if rule.rule_id == rule_id]
        if not where:
            raise NotFoundError("rule", rule_id, [rule.rule_id for _, rule in held])
        for execution_id in where:
            if execution_id is None:
                self._policy.revoke(rule_id, by or this_person())
            else:
                self._control.answering.revoke(execution_id, rule_id, by)

    def thread(self, id: str) -> Thread:
        """Return a conversation over several runs; raises `NotFoundError` if nothing was said in it."""
        if self.threads.line(id).head is None:
            raise NotFoundError("thread", id, self.threads.ids, f"thread not found: {id}")
        return Thread(id, self.threads, this_person())

    def question(self, interrupt_id: str, execution_id: str | None = None) -> Question:
        """Return a question, answered or not, of an execution that has not ended; raises `NotFoundError`."""
        return self._control.answering.question(interrupt_id, execution_id)

    def interrupts(self) -> list[tuple[str, Question]]:
        """Return every question that waits for an answer, with the id of its execution, newest execution first."""
        return self._control.answering.questions()

    def execution(self, execution_id: str) -> Execution:
        """Return an execution, live or past; the beginning of an id is enough where it is unique.

        What its log says is read when it is asked for: to find one costs the same whatever its length.
        """
        return self._handle(self._control.look_up(execution_id))

    def why(
        self,
        execution_id: str,
        name: str,
        at: int | None = None,
        *,
        row: int | None = None,
        column: str | None = None,
    ) -> Provenance:
        """Return where the value of a variable of an execution came from: events, steps, calls, variables, inputs.

        Printed it says so in words; `Provenance.frame` is a DataFrame. The log is gone through once; after that each
        question is answered at once. Parameters and errors are those of `divebook.replay.provenance.why`.
        """
        return why(self.execution(execution_id).history(), name, at, row=row, column=column)

    def files(self, execution_id: str, workspace: str | None = None) -> KeptFiles:
        """Return the files of a workspace of an execution, at any of its events: to look at, take over, put back.

        Raises
        ------
        NotFoundError
            It has used no such workspace, or none whose files are kept.
        """
        found = self.execution(execution_id)
        return KeptFiles(found.store, found.history(), workspace)

    def inspect(self, execution_id: str) -> Inspection:
        """Return what an execution waited for and spent: critical path, time by kind, further attempts, costs."""
        return Inspection(self.execution(execution_id).history())

    def replay(self, execution_id: str) -> Replayer:
        """Return what goes through the log of an execution, as `Execution.replay` does."""
        return replayer_of(self.execution(execution_id))

    def export_log(
        self, execution_id: str, file: str | os.PathLike[str], *, overwrite: bool = False, move: bool = False
    ) -> int:
        """Write an execution to a file of JSON lines; return how many events it has.

        With `move` it ends here, as moved, and goes on where the file is imported.
        """
        path = as_path(file, "the file of a log")
        whole_id = self.store.resolve(execution_id)
        if not move:
            return transfer.export(self.store, whole_id, path, overwrite=overwrite)
        return move_out(self.store, whole_id, path, self._clock, Ids(self._clock, self._chance), overwrite=overwrite)

    def import_log(self, file: str | os.PathLike[str], *, rename: bool = False, as_fork: bool = False) -> Execution:
        """Take in the execution of such a file; see `divebook.store.transfer.import_`.

        One that had not ended is a picture, which cannot go on, unless it moved here or becomes one of its own. The
        file may also be a history of messages of pydantic-ai, or a trace: see `divebook.agents.imports.read`.
        """
        log = imports.read(as_path(file, "the file of a log"))
        execution_id = transfer.import_(log, self.store, rename=rename, as_fork=as_fork)
        for caveat in transfer.caveats(log, as_fork=as_fork):
            _log.warning("execution %s from %s: %s", execution_id, file, caveat)
        return self.execution(execution_id)

    def compare(self, *runs: FramedLog | str) -> Comparison:
        """Lay two or more runs side by side: runs, executions, or ids of those that the store has.

        The first one is compared with each of the others.

        Raises
        ------
        UnrelatedError
            They are of different workflows, and none was made of the other.
        ExecutionNotFoundError
            The store has no such execution.
        """
        given: tuple[Any, ...] = runs
        found = [run if hasattr(run, "_log") and not isinstance(run, type) else self.execution(run) for run in given]
        return Comparison([log_of(run) for run in found])

    def open(self, file: str | os.PathLike[str]) -> Execution:
        """Return the run that a file holds, ``run.html``, ``run.ipynb`` or ``run.jsonl``; the store stays as it is.

        It stands in a store in memory; one that had not ended is a picture. `import_log` takes it into this store.

        Raises
        ------
        StoreError, InvalidEventError
            The file cannot be read, was damaged, or holds no log; its text names the part.
        """
        return self.beside(MemoryStore()).import_log(file)

    @abstractmethod
    def beside(self, store: EventStore) -> Executions:
        """Return an environment over another store that has what this one has."""

    def cancel(self, execution_id: str) -> Execution:
        """Cancel an execution: one of this process is stopped, any other is marked as cancelled.

        A process that drives it finds with its next step that it may no longer write, and stops there. What it started
        is cancelled next, level by level: when `Execution.wait` returns, nothing of it runs or waits any more. Should
        this process die before that, `recover` cancels the rest.
        """
        return self._handle(self._control.cancel(execution_id))

    def tag(self, execution_id: str, *tags: str) -> tuple[str, ...]:
        """Give an execution tags, whatever its status; return all that it has now, as far as the log has them.

        That is an event of its log, also after its end: see `annotate`.

        Raises
        ------
        SetupError
            A tag is no word.
        ExecutionNotFoundError
            The store has no such execution.
        """
        return self.annotate(execution_id, tags=tags).tags if tags else self.store.record(execution_id).tags

    def untag(self, execution_id: str, *tags: str) -> tuple[str, ...]:
        """Take tags away from an execution, as `tag` gives them; return those that it still has."""
        return self.annotate(execution_id, untag=tags).tags if tags else self.store.record(execution_id).tags

    def note(self, execution_id: str, text: str) -> None:
        """Give an execution a note in place of the one that it has; an empty one takes it away. See `annotate`."""
        self.annotate(execution_id, note=text)

    def label(self, execution_id: str, **labels: Any) -> None:
        """Give an execution labels: ``label(id, quality="good")``; None takes one away. See `annotate`."""
        self.annotate(execution_id, labels=labels)

    def annotate(
        self,
        execution_id: str,
        *,
        tags: Iterable[str] = (),
        untag: Iterable[str] = (),
        note: str | None = None,
        labels: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> ExecutionRecord:
        """Say something of an execution, whatever its status, in one event of its log; return what lists show of it.

        The execution goes on as if nothing had been said, and one that has ended stays so. Where another process
        drives it, that process takes it into the log.

        Parameters
        ----------
        by
            Who says it; by default the user of this process.

        Raises
        ------
        SetupError
            A tag, the note or the name of a label is no text, or nothing is said.
        UnstorableValueError
            The value of a label cannot be recorded.
        ExecutionNotFoundError
            The store has no such execution.
        """
        said = annotation(tags=tags, untagged=untag, note=note, labels=labels, by=by or this_person())
        control = self._control
        ids = Ids(self._clock, self._chance)
        annotating = Annotating(self.store, self._clock, ids, lambda name: control.deliver(control.find(name)))
        whole_id = self.store.resolve(execution_id)
        annotating.annotate(whole_id, said)
        return self.store.record(whole_id)

    def recover(self, execution_id: str) -> Execution:
        """Resume an interrupted execution automatically; see `divebook.runtime.queueing`.

        One whose parent has ended is cancelled instead, and so is what it started: no call of it is made.

        Raises
        ------
        NeedsPersonError
            It was resumed automatically several times, and interrupted each time before it made progress.

        Examples
        --------
        ::

            for record in environment.recoverable():
                environment.recover(record.execution_id)
        """
        driver = self._control.find(execution_id)
        if self._control.cancel_with_parent(driver) or (driver.state.parent is not None and driver.state.is_over):
            return self._handle(driver)  # it has ended, or ends, with an execution above it that was recovered before
        attempt = next_attempt(self.store, execution_id, self._clock.now())
        return self._handle(self._control.resume(execution_id, recovery=attempt))

    def recoverable(self) -> list[ExecutionRecord]:
        """Return the executions that have something to do and that no living process drives, newest first.

        One that waits has something to do once its time has come, there is a message for it, or its parent has ended.
        """
        return self._control.recoverable()

    def executions(
        self,
        status: str | None = None,
        workflow: str | None = None,
        limit: int = 0,
        offset: int = 0,
        **filters: Any,
    ) -> list[ExecutionRecord]:
        """Return what the store knows of executions, newest first; `limit` 0 returns all.

        The `filters` are those of `EventStore.records`: ``tag``, ``origin``, ``parent``, ``notebook``, ``cell``.
        """
        require_options(filters, _FILTERS, "executions cannot be filtered by")
        return self.store.records(status=status, workflow=workflow, limit=limit, offset=offset, **filters)


DEFAULT_QUEUE = "default"
MOST_PRIORITY = 1_000_000


class Queueing(Executions):
    """Executions that wait for a worker."""

    @abstractmethod
    def create(  # noqa: D102 - as documented where it is promised
        self, workflow: Workflow | str, inputs: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> Execution: ...

    def enqueue(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        at: datetime | None = None,
        **options: Unpack[StartOptions],
    ) -> Execution:
        """Put an execution into a queue and return once it is in the store; a worker of that queue drives it.

        It has the status ``enqueued`` until one begins. `Execution.wait` waits for its end, whoever drives it. Its
        answers and signals reach its workers; `resume` takes it up in this process.

        Parameters
        ----------
        inputs
            Plain data by name.
        queue
            A name; queues need not be made.
        priority
            A whole number: of those in a queue, higher ones are begun first.
        at
            When it may begin at the earliest; a time without a zone is local.
        options
            As for `Environment.start`. With a `key` it is enqueued once: a second call with that key returns the
            execution that exists, as it stands; `on_conflict` says what to do if that has other inputs.

        Raises
        ------
        SetupError
            The queue, the priority or the time is none.
        StartKeyTakenError
            An execution of another workflow has the key.
        """
        place = _place(queue, priority, at)
        created = self.create(workflow, inputs, **options)
        try:
            return self._handle(self._control.queues.enqueue(created._driver, place))  # noqa: SLF001 - it is ours
        except StartKeyTakenError as taken:
            return self._started_before(taken, created, options.get("on_conflict", WARN))

    def _started_before(self, taken: StartKeyTakenError, created: Execution, on_conflict: str) -> Execution:
        """Return the execution that has the key with which another one was to be started."""
        opening = created._driver.opening  # noqa: SLF001 - it is ours
        inputs = None if opening is None else opening.inputs
        return self.execution(started_before(taken, created.workflow.name, self.store, inputs, on_conflict))

    def queued(self, *, withheld: bool = False) -> list[QueuedExecution]:
        """Return what the queues have that has not ended, queue by queue, in the order in which it is taken.

        With `withheld` what workers leave alone of it, in place of that: a person has paused it, or it was interrupted
        too often. `resume` goes on with it.
        """
        return self.store.queued(withheld=withheld)

    def workers(self) -> list[WorkerRecord]:
        """Return the workers that are there, with what each can run."""
        return self.store.workers()


def time_named(text: str | None) -> datetime | None:
    """Return the time that a person has written; InputError if it is none."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--at {text!r} is no time; write --at 2026-05-01T08:00") from error


def _place(queue: Any, priority: Any, at: Any) -> catalog.ExecutionEnqueued:
    if not isinstance(queue, str) or not queue.strip():
        raise SetupError(f"a queue has a name, not {queue!r}; write queue='labels'")
    if type(priority) is not int or abs(priority) > MOST_PRIORITY:
        most = f"{MOST_PRIORITY:,}"
        raise SetupError(
            f"a priority is a whole number from -{most} to {most}, not {shown_number(priority)}; write priority=0"
        )
    if at is not None and not isinstance(at, datetime):
        raise SetupError(f"at is a datetime, not {at!r}; write at=datetime.now() + timedelta(hours=1)")
    return catalog.ExecutionEnqueued(queue, priority, None if at is None else _moment(at))


def _moment(at: datetime) -> int:
    try:
        return to_microseconds(at.astimezone())
    except (ValueError, OverflowError) as error:  # with its zone it lies before the year 1, or after 9999
        raise SetupError(f"at is a time that clocks can show, not {at.isoformat()}; write a nearer one") from error

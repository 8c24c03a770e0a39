"""The executions of an environment: found, listed, resumed, answered, ended, moved."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from divebook.agents import imported
from divebook.agents.cache import ResponseCache, cache_of
from divebook.bounds import Bounds
from divebook.engine.rules import StandingRule
from divebook.errors import NotFoundError
from divebook.execution.annotating import Annotating, annotation
from divebook.execution.answering import this_person
from divebook.execution.clock import Chance, Clock, Ids
from divebook.execution.control import Control
from divebook.execution.driver import Driver
from divebook.execution.execution import Execution
from divebook.execution.moving import move_out
from divebook.execution.recovery import next_attempt
from divebook.history.comparison import Comparison
from divebook.history.framed import FramedLog, log_of
from divebook.history.requests import RequestView, requests_of
from divebook.questions import Question
from divebook.replay.inspection import Inspection
from divebook.replay.kept_files import KeptFiles
from divebook.replay.provenance import Provenance
from divebook.replay.replayer import Replayer, replayer_of
from divebook.replay.why import why
from divebook.starting import as_bounds, require_options
from divebook.steps.rules import StandingPolicy
from divebook.steps.threads import Thread, ThreadBooks
from divebook.store import EventStore, ExecutionRecord, MemoryStore, jsonl
from divebook.text.arguments import id_of, require
from divebook.text.logs import logger
from divebook.text.paths import as_path

_log = logger(__name__)
_FILTERS = ("tag", "origin", "parent", "notebook", "cell", "key")


class Executions(ABC):
    """What can be done with executions that exist; `divebook.Environment` starts new ones."""

    store: EventStore
    _control: Control
    _clock: Clock
    _chance: Chance
    _policy: StandingPolicy
    threads: ThreadBooks

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
        KeptError
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
        question is answered at once. Parameters and errors are those of `divebook.replay.why.why`.
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
        path, whole_id = as_path(file, "the file of a log"), self.store.resolve(execution_id)
        if not move:
            return jsonl.export(self.store, whole_id, path, overwrite=overwrite)
        return move_out(self.store, whole_id, path, self._clock, Ids(self._clock, self._chance), overwrite=overwrite)

    def import_log(self, file: str | os.PathLike[str], *, rename: bool = False, as_fork: bool = False) -> Execution:
        """Take in the execution of such a file; see `divebook.store.jsonl.import_`.

        One that had not ended is a picture, which cannot go on, unless it moved here or becomes one of its own. The
        file may also be a history of messages of pydantic-ai, or a trace: see `divebook.agents.imported.read`.
        """
        log = imported.read(as_path(file, "the file of a log"))
        execution_id = jsonl.import_(log, self.store, rename=rename, as_fork=as_fork)
        for caveat in jsonl.caveats(log, as_fork=as_fork):
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
        control, ids = self._control, Ids(self._clock, self._chance)
        annotating = Annotating(self.store, self._clock, ids, lambda name: control.delivered(control.find(name)))
        whole_id = self.store.resolve(execution_id)
        annotating.annotate(whole_id, said)
        return self.store.record(whole_id)

    def recover(self, execution_id: str) -> Execution:
        """Resume an interrupted execution automatically; see `divebook.execution.recovery`.

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
        if self._control.ends_with_parent(driver) or (driver.state.parent is not None and driver.state.is_over):
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

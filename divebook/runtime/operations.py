"""The one look-up: what the log knows of an operation, and what follows from it.

Every operation (a call, a timer, a wait for a signal, a child, a question) is known by its place. What it is is
compared whenever its place is met again, and then one rule holds for each thing that the log may say:

- finished: its recorded result is returned;
- failed: its recorded error is raised, also where it would succeed by now;
- begun: it goes on as its kind says (a timer waits for what is left, a call that may have taken effect is asked about);
- not there: it is carried out, or what `divebook.runtime.operations` says.

`tests/execution/test_once.py` tries each of these with every kind of operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeAlias

from divebook.engine.decide import only_settles
from divebook.engine.operations import (
    EVENT_EMITTED,
    SIGNAL_WAIT,
    Place,
    Reserved,
    Setting,
    operation_kind,
    operation_name,
)
from divebook.engine.state import OperationRecord
from divebook.errors import DivergenceError, ExecutionError, OperationError
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, PENDING, RUNNING
from divebook.events.codec import canonical_hash, checked, encode_shown, short_hash
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.runtime.clock import StepLog
from divebook.runtime.concurrency import Suspended
from divebook.runtime.errors import error_from, facts_of, links_of, trace_of

if TYPE_CHECKING:
    from divebook.engine.state import ExecutionState
    from divebook.runtime.commit import StoreCalls


# Errors for code that asks for something else than the log has at the same place, in words.


MOST_CHANGES = 6
MOST_CHARACTERS = 120
NOTHING = object()


def call_diverged(
    place: Place, recorded: tuple[str, Mapping[str, Any]], wanted: tuple[str, Mapping[str, Any]]
) -> DivergenceError:
    """Return the error for an operation, type and parameters, that differs from the recorded one."""
    changes = list(changes_between(recorded[1], wanted[1])) if recorded[0] == wanted[0] else []
    return DivergenceError(str(place), operation_text(*recorded), operation_text(*wanted), _at_most(changes))


def question_diverged(place: Place, recorded: Question, wanted: Question) -> DivergenceError:
    """Return the error for a question that differs from the one that was shown."""
    changes = list(changes_between(recorded.content, wanted.content))
    return DivergenceError(str(place), question_text(recorded), question_text(wanted), _at_most(changes))


def kind_diverged(place: Place, recorded: str, wanted: str) -> DivergenceError:
    """Return the error for a question where the log has a call, or the other way round."""
    return DivergenceError(str(place), recorded, wanted)


def operation_text(operation_type: str, parameters: Mapping[str, Any]) -> str:
    """Return an operation in a few words: ``action 'pay' with {"amount":5}``."""
    name = operation_name(operation_type, parameters)
    shown = in_short(parameters.get("arguments", parameters.get("params", parameters)))
    return f"{operation_kind(operation_type)}{f' {name!r}' if name else ''} with {shown}"


def question_text(question: Question) -> str:
    """Return a question in a few words."""
    data = f" about {in_short(question.data)}" if question.data else ""
    return f"the {question.kind} {in_short(question.question)}{data}"


def changes_between(before: Any, now: Any) -> Iterator[str]:
    """Yield what differs between two values, in words."""
    return _changes("", before, now)


def _changes(where: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in (*before, *(key for key in now if key not in before)):
            yield from _changes(
                f"{where}.{key}" if where else str(key), before.get(key, NOTHING), now.get(key, NOTHING)
            )
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _changes(f"{where}[{index}]", old, new)
    elif in_short(before, None) != in_short(now, None):
        yield f"{where} was {in_short(before)}, is {in_short(now)}"


def _at_most(changes: Sequence[str]) -> Sequence[str]:
    more = len(changes) - MOST_CHANGES
    return changes if more <= 0 else [*changes[:MOST_CHANGES], f"and {more} more"]


def in_short(value: Any, limit: int | None = MOST_CHARACTERS) -> str:
    """Return a value as people read it, cut off at a limit."""
    if value is NOTHING:
        return "not there"
    text = encode_shown(value).decode(errors="replace")
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


# What code asks for at a place of an execution: an operation, in the form in which it is compared with the log.


class OperationRequest(NamedTuple):
    """The operation that code wants at a place: what is compared with the log."""

    place: Place
    operation_id: str
    """That of the place."""
    operation_type: str
    parameters: Any
    """In the form in which the log holds them."""
    digest: str

    @staticmethod
    def of(
        place: Place, operation_type: str, parameters: Mapping[str, Any], known: Collection[int] = ()
    ) -> OperationRequest:
        """Return an operation by its type and parameters, of which some are `known`; raises `UnstorableValueError`."""
        plain = normalize(parameters, "parameters", known)
        digest = short_hash(plain, "parameters")
        return tuple.__new__(OperationRequest, (place, place.operation_id, operation_type, plain, digest))

    def __str__(self) -> str:
        return operation_text(self.operation_type, self.parameters)


# What happens to an operation of which the log has nothing: it is carried out, unless a policy says otherwise.
#
# A policy answers without the world: with what another log has, with nothing at all, or not yet. It is asked by
# `divebook.runtime.operations` alone, and only where the log ends; an execution without one pays nothing for it.


FileEvents: TypeAlias = Sequence[catalog.FilesChanged]
"""What a log says of files that a call has changed."""
BringFiles: TypeAlias = "Callable[[FileEvents], AbstractAsyncContextManager[Callable[[], None]]]"
"""Surrounds the answer, and gives what records that here, right behind the end of the call."""


class WorkspaceRef(NamedTuple):
    """The workspace that a call works in: what it comes to depends on the files there."""

    name: str
    tree: Callable[[], str | None]
    """Returns the digest of its files; None where nothing is known of them."""
    bring: BringFiles


class CallOptions(NamedTuple):
    """What is said of an operation besides what it asks for."""

    setting: Setting | None = None
    """What it is made with that is only kept."""
    within: str | None = None
    """Id of the operation that holds it."""
    noted: Callable[[Any], catalog.Payload] | None = None
    """What the log is to say besides, once it has a result."""
    done: Callable[[Any], Any] | None = None
    """Makes of what is said in place of a result what the call would have returned."""
    repeatable: bool = False
    """Whether making it twice does no harm."""
    inside: WorkspaceRef | None = None
    """The workspace that it works in, if it does in one."""


PLAIN = CallOptions()


class NoAnswer(Enum):
    """What is done with an operation that is not answered."""

    LIVE = "live"
    """It is carried out."""
    REST = "rest"
    """Its code rests here: what comes after it is not known."""


class PolicyAnswer(NamedTuple):
    """The end of an operation that is recorded in place of carrying it out."""

    end: catalog.OperationCompleted | catalog.OperationFailed
    """Its result or error."""
    told: Mapping[str, Any] | None = None
    """Where that is from, as the field `served` of the event says it."""
    files: FileEvents = ()
    """What it has changed in workspaces."""


Settled: TypeAlias = catalog.InterruptResolved | catalog.InterruptExpired


class WhatIfSource(NamedTuple):
    """An execution from whose log another one is answered."""

    source: str
    tools: str
    """Which actions and tools may be executed, as `divebook.events.catalog.ExecutionForked` says it."""


class MissPolicy(Protocol):
    """Answers what the log of one execution does not have; called on the engine's loop, and not to wait there."""

    @property
    def writes(self) -> bool:
        """Whether what is said in books outside its log, of talks and of rules, is written."""

    @property
    def asks_models(self) -> bool:
        """Whether a request that has no answer may go to its model, which needs its key and library then."""

    def answer(self, wanted: OperationRequest, beside: CallOptions) -> PolicyAnswer | NoAnswer:
        """Return what becomes of an operation."""

    def opened(self, workspace: str) -> catalog.WorkspaceOpened | None:
        """Return with which files another log has begun a workspace, if it has; else it begins as it is now."""

    def settled(self, asked: Question) -> Settled | None:
        """Return the answer to a question, under its id; None if a person is to be asked."""

    def child_like(self, wanted: OperationRequest) -> WhatIfSource | None:
        """Return the execution from which that of another workflow is answered; None if it is to run by itself."""

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return what an operation that is to begin was made with elsewhere; nothing if that is not known."""


FindBeyond: TypeAlias = Callable[["ExecutionState", "StoreCalls"], "Awaitable[MissPolicy | None]"]
"""Returns what answers an execution that is a what-if."""


async def nothing_beyond(state: ExecutionState, calls: StoreCalls) -> NoReturn:
    """Refuse to go on: who drives an execution here knows no other log to answer it from.

    Raises
    ------
    ExecutionError
        Always: without that its calls would be made.
    """
    del calls
    raise ExecutionError(f"execution {state.execution_id} is a what-if, which only an environment can go on with")


CarryOut = Callable[[OperationRecord | None], Coroutine[Any, Any, Any]]
"""Carries out an operation that is not in the log (None), or has begun there."""


class OperationLog:
    """The operations of one execution in its log: looked up, begun, ended."""

    only_settles = staticmethod(only_settles)

    def __init__(self, journal: StepLog, beyond: MissPolicy | None = None) -> None:
        self.journal, self.beyond = journal, beyond
        self._met: set[str] = set()
        """Ids of the operations and questions that code has asked for in this process."""
        self.diverged: dict[str, DivergenceError] = {}
        """By path: where its step's code left what the log has. Whatever that code does about it, it does nothing more:
        a later attempt would make the call that the log has otherwise (test_divergence.py)."""

        self.begins_nothing = False
        """Whether the execution is to rest: what has begun goes on, and nothing else begins."""
        self.fresh: set[str] = set()
        """Paths whose step began in this process, runs for the first time, and used nothing yet.

        The log has nothing of such a step but what was asked for since, so that there is no need to look."""
        self._latest: dict[str, str] = {}
        """By path: the id of the operation that failed, until its step's code asks for anything else."""

    def enter(self, path: str, *, is_new: bool) -> None:
        """Note that a path's step runs: one that begins, or one that the log has something of."""
        if is_new:
            self.fresh.add(path)
        else:
            self.fresh.discard(path)

    # --- looking up ------------------------------------------------------------------------------------------------

    def run(
        self, wanted: OperationRequest, carry_out: CarryOut, beside: CallOptions = PLAIN
    ) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of an operation, or carries it out.

        Raises
        ------
        OperationError
            The log says that it failed.
        DivergenceError
            The log has something else at this place.
        """
        # A recorded failure is raised and nothing carried out, though it might succeed by now: code that caught it
        # went on from there (test_a_recorded_failure_is_a_failure_on_replay).
        record = self._known(wanted)
        if record is not None and record.status == PENDING:
            return carry_out(record)  # its result was lost: what it is compared with, a person is asked
        if record is None:
            return carry_out(None) if self.beyond is None else self._answered(self.beyond, wanted, carry_out, beside)
        if _differs(record, wanted):
            return self._diverge(record, wanted)
        return carry_out(record) if record.status == RUNNING else self._recorded(wanted.place, record)

    async def _answered(
        self, beyond: MissPolicy, wanted: OperationRequest, carry_out: CarryOut, beside: CallOptions
    ) -> Any:
        """Do with an operation that the log does not have what a policy says; return its result."""
        match beyond.answer(wanted, beside):
            case NoAnswer.REST:
                raise Suspended
            case PolicyAnswer(end, told, files):
                async with nullcontext(_nothing) if beside.inside is None else beside.inside.bring(files) as bring:
                    return self._serve(wanted, beside, end, told, bring)
        return await carry_out(None)

    def _serve(
        self,
        wanted: OperationRequest,
        beside: CallOptions,
        end: catalog.OperationCompleted | catalog.OperationFailed,
        told: Mapping[str, Any] | None,
        bring: Callable[[], None],
    ) -> Any:
        """Record an operation with an end that it did not come to here; nothing is awaited between the two."""
        place, operation_id, operation_type, parameters, _ = wanted
        begun = self.begin(wanted, None, beside.setting, beside.within)
        if isinstance(end, catalog.OperationFailed):
            failed = replace(end, operation_id=operation_id, operation_type=operation_type, duration=0, usage=None)
            self.record(place, replace(failed, held=None, served=told))
            bring()
            names = tuple(end.error_names or ())
            raise self.failing(place, begun._replace(error=end.error, error_names=names, raised=end.raised))
        if operation_type == SIGNAL_WAIT and parameters["signal"] not in self.journal.state.signals:
            self.record(
                place, catalog.SignalReceived(parameters["signal"], end.result)
            )  # else none is there to be taken
        self.record(place, catalog.OperationCompleted(operation_id, operation_type, 0, end.result, served=told))
        if beside.noted is not None:
            self.record(place, beside.noted(end.result))
        bring()
        return end.result

    async def _recorded(self, place: Place, record: OperationRecord) -> Any:
        if record.status == FAILED:
            raise self.failing(place, record)
        return record.result

    async def _diverge(self, record: OperationRecord, wanted: OperationRequest) -> NoReturn:
        asked = wanted.operation_type, wanted.parameters
        self._refuse(wanted.place, call_diverged(wanted.place, await self._begun(record), asked))

    def _known(self, wanted: OperationRequest) -> OperationRecord | None:
        """Return what the log knows of an operation at the place of `wanted`, perhaps of another one."""
        place, operation_id = wanted.place, wanted.operation_id
        is_new = place.path in self.fresh and operation_id not in self._met
        self._meet(place.path, operation_id)
        if is_new:
            return None
        record = self.record_of(place, operation_id)
        if record is None or record.status == PENDING:
            if self.journal.present.interrupts:
                self._refuse_where_asked(wanted)
            return None if record is None or record.lost is None else record
        return record

    async def look_up_question(self, place: Place, wanted: Question) -> Question | None:
        """Return the question at `place` with its answer, or None if it was not asked yet.

        Raises
        ------
        DivergenceError
            The log has something else at this place: an answer belongs to the question that was shown, and no other.
        """
        operation_id = place.operation_id
        self._meet(place.path, wanted.id)
        self._met.add(operation_id)  # a call at this place would be another thing
        known = self.journal.state.interrupts.get(wanted.id)
        if known is None:
            record = self.record_of(place, operation_id)
            if record is not None:
                recorded = operation_text(*await self._begun(record))
                self._refuse(place, kind_diverged(place, recorded, question_text(wanted)))
        elif _digest(known) != _digest(wanted):
            self._refuse(place, question_diverged(place, known, wanted))
        return known

    def _refuse_where_asked(self, wanted: OperationRequest) -> None:
        known = self.journal.state.interrupts.get(self.question_id(wanted.place))
        if known is not None:
            self._refuse(wanted.place, kind_diverged(wanted.place, question_text(known), str(wanted)))

    def _meet(self, path: str, key: str) -> None:
        self._met.add(key)
        if self._latest or self.diverged:
            self._latest.pop(path, None)
            self.require_agreement(path)

    def pass_over(self, operation_id: str) -> None:
        """Note that code asks no more for an operation, which the log may have."""
        self._met.add(operation_id)

    def require_agreement(self, path: str) -> None:
        """Raise DivergenceError if the code of the path's step has left what the log has."""
        if path in self.diverged:
            raise self.diverged[path]

    def _refuse(self, place: Place, error: DivergenceError) -> NoReturn:
        self.diverged[place.path] = error
        raise error

    def question_id(self, place: Place) -> str:
        """Return the id of the question at a place, the same for every attempt of its step."""
        return self.journal.state.question_id("question", place._replace(attempt=0).operation_id)

    def question_at(self, place: Place) -> Question | None:
        """Return the question at a place, with its answer if it has one."""
        return self.journal.state.interrupts.get(self.question_id(place))

    def record_of(self, place: Place, operation_id: str) -> OperationRecord | None:
        """Return the record of an operation of the step that is open on the path of `place`."""
        opened = self.journal.present.paths[place.path].open
        return None if opened is None else opened.operations.get(operation_id)

    def known_at(self, place: Place) -> OperationRecord | None:
        """Return what the log has of the operation at a place, for code that does otherwise where it has something."""
        return self.record_of(place, place.operation_id)

    async def _begun(self, record: OperationRecord) -> tuple[str, Mapping[str, Any]]:
        """Return the type and the parameters with which an operation began."""
        data = (await self.journal.event(record.started_sequence)).data
        if isinstance(data, catalog.EventEmitted):
            return EVENT_EMITTED, {"name": data.name, "data": data.data}
        assert isinstance(data, catalog.OperationStarted)  # noqa: S101 - that is what `started_sequence` counts
        return data.operation_type, data.parameters or {}

    async def start_of(self, place: Place) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the parameters of an operation that the log has, and what it was made with, as it began."""
        record = self.known_at(place)
        assert record is not None  # noqa: S101 - whoever asks has found it
        data = (await self.journal.event(record.started_sequence)).data
        return getattr(data, "parameters", None) or {}, getattr(data, "setting", None) or {}

    def has_history_ahead(self, place: Place) -> bool:
        """Whether the log holds operations or questions of this step that its code has not asked for again yet."""
        opened = (state := self.journal.state).paths[place.path].open
        records: Mapping[str, OperationRecord] = {} if opened is None else opened.operations
        if any(key not in self._met and not _is_over(records, found.within) for key, found in records.items()):
            return True
        if place.visit > 1:  # the questions of earlier visits cannot be told from those of this one
            return False
        asked = ((key, found) for key, found in state.interrupts.items() if (found.path, found.step) == place[:2])
        return any(key not in self._met and not _is_over(records, found.operation_id) for key, found in asked)

    def failures_behind(self, path: str, error: BaseException) -> list[str]:
        """Return the ids of the operations whose failure became an error that has ended a step.

        Failures that its code has caught before, and gone on, are not among them: they hold for good.
        """
        behind = (link for link in links_of(error) if isinstance(link, OperationError))
        found, latest = {link.operation_id for link in behind if link.operation_id}, self._latest.get(path)
        return sorted(found) or ([] if latest is None else [latest])

    # --- recording -------------------------------------------------------------------------------------------------

    def begin(
        self,
        wanted: OperationRequest,
        reserved: Reserved | None = None,
        setting: Setting | None = None,
        within: str | None = None,
        undone: str | None = None,
    ) -> OperationRecord:
        """Record that the operation begins; what it may consume counts as spent until it has ended.

        Raises
        ------
        Suspended
            The execution is to rest, or is being rolled back.
        """
        if self.begins_nothing or self.only_settles(self.journal.present, wanted.place):
            raise Suspended
        place, operation_id, operation_type, parameters, digest = wanted
        started = catalog.OperationStarted(
            operation_id,
            operation_type,
            parameters,
            digest,
            place.iteration_index,
            place.key,
            None if reserved is None else reserved.to_dict() or None,
            operation_name(operation_type, parameters),
            None if setting is None else normalize(setting.told, "setting"),
            None if setting is None else setting.digest,
            None if within is None else self._beginning(place, within),
            undone,
        )
        self.journal.record(started, place.path, place.step)
        return OperationRecord.begun(operation_id, operation_type, digest, self.journal.moment, self.journal.recorded)

    def _beginning(self, place: Place, holder: str) -> int:
        """Return the number of the event with which the operation began that holds one at `place`."""
        record = self.record_of(place, holder)
        assert record is not None  # noqa: S101 - it is under way
        return record.started_sequence

    def emit(self, place: Place, name: str, data: Any, *, is_once: bool) -> None:
        """Record an event of a person's own, unless the log has it at this place."""
        wanted = OperationRequest.of(place, EVENT_EMITTED, {"name": name, "data": data})
        if is_once and (known := self._known(wanted)) is not None:
            if _differs(known, wanted):  # what it began with cannot be read here, where nothing is awaited
                self._refuse(
                    place, kind_diverged(place, f"another {operation_kind(known.operation_type)}", str(wanted))
                )
            return
        emitted = catalog.EventEmitted(
            name, wanted.parameters["data"], *((wanted.operation_id, wanted.digest) if is_once else ())
        )
        self.record(place, checked(emitted))

    def complete(
        self,
        place: Place,
        record: OperationRecord,
        result: Any = None,
        usage: Mapping[str, int] | None = None,
        *,
        since: int | None = None,
        may_wait: bool = False,
        held: Mapping[str, int] | None = None,
    ) -> None:
        """Record what the operation came to; it counts as made from `since` on, or from its beginning.

        `held` is what counts as spent all the same: of an execution that has ended, and others go on with it.
        """
        if usage:
            self.fresh.discard(place.path)
        completed = catalog.OperationCompleted(
            record.operation_id, record.operation_type, self._duration(record, since), result, usage or None, held
        )
        self.journal.record(completed, place.path, place.step, may_wait=may_wait)

    def fail(
        self,
        place: Place,
        record: OperationRecord,
        error: str,
        names: Sequence[str] = (),
        usage: Mapping[str, int] | None = None,
        *,
        since: int | None = None,
        raised: Exception | None = None,
        held: Mapping[str, int] | None = None,
        final: bool | None = None,
        lost: Mapping[str, str] | None = None,
    ) -> OperationError:
        """Record that the operation failed; return the error that is raised whenever it is met again.

        `held` is as for `complete`, `final` and `lost` as for the event.
        `raised` is what a person's code raised, whose class and place the log keeps as well, without secrets
        (test_a_secret_that_was_looked_up_is_not_in_what_a_call_raised).
        """
        if usage:
            self.fresh.discard(place.path)
        operation_id, operation_type = record.operation_id, record.operation_type
        duration = self._duration(record, since)
        told = names or None, usage or None
        failed = catalog.OperationFailed(operation_id, operation_type, duration, error, *told, held=held, final=final)
        if lost is not None:
            failed = replace(failed, lost=lost)
        if raised is not None:
            failed = replace(failed, raised=facts_of(raised), trace=trace_of(raised))
        self.record(place, failed)
        return self.failing(place, record._replace(error=failed.error, error_names=tuple(names), raised=failed.raised))

    def failing(self, place: Place, record: OperationRecord) -> OperationError:
        """Return the error of a recorded failure, and note that it was raised; see `failures_behind`."""
        self._latest[place.path] = record.operation_id
        return error_from(record)

    def record(self, place: Place, data: catalog.Payload) -> None:
        """Append a fact about a place."""
        self.journal.record(data, place.path, place.step)

    def _duration(self, record: OperationRecord, since: int | None) -> int:
        """Return how long it took, in nanoseconds."""
        return max(0, self.journal.clock.now() - (record.started_at if since is None else since)) * 1000


def _nothing() -> None:
    """Record nothing of files."""


def _differs(record: OperationRecord, wanted: OperationRequest) -> bool:
    return record.operation_type != wanted.operation_type or record.parameters_hash not in (None, wanted.digest)


def _is_over(records: Mapping[str, OperationRecord], holder: str | None) -> bool:
    """Return whether what holds an operation or question has ended: its code does not ask for that again."""
    return holder is not None and (holder not in records or records[holder].status in (COMPLETED, FAILED))


def _digest(question: Question) -> str:
    return canonical_hash(question.content)

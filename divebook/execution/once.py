"""The one look-up: what the log knows of an operation, and what follows from it.

Every operation (a call, a timer, a wait for a signal, a child, a question) is known by its place. What it is is
compared whenever its place is met again, and then one rule holds for each thing that the log may say:

- finished: its recorded result is returned;
- failed: its recorded error is raised, also where it would succeed by now;
- begun: it goes on as its kind says (a timer waits for what is left, a call that may have taken effect is asked about);
- not there: it is carried out, or what `divebook.execution.beyond` says.

`tests/execution/test_once.py` tries each of these with every kind of operation.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn

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
from divebook.engine.records import OperationRecord
from divebook.engine.state import COMPLETED, FAILED, PENDING, RUNNING
from divebook.errors import DivergenceError, OperationError
from divebook.events import catalog
from divebook.events.codec import canonical_hash, checked
from divebook.events.values import normalize
from divebook.execution.beyond import PLAIN, Beside, Beyond, Served, Unserved
from divebook.execution.divergence import (
    call_diverged,
    kind_diverged,
    operation_text,
    question_diverged,
    question_text,
)
from divebook.execution.log import StepLog
from divebook.execution.raised import error_from, facts_of, links_of
from divebook.execution.strands import Suspended
from divebook.execution.tracing import trace_of
from divebook.execution.wanted import Wanted
from divebook.questions import Question

CarryOut = Callable[[OperationRecord | None], Coroutine[Any, Any, Any]]
"""Carries out an operation that is not in the log (None), or has begun there."""


class Once:
    """The operations of one execution in its log: looked up, begun, ended."""

    only_settles = staticmethod(only_settles)

    def __init__(self, journal: StepLog, beyond: Beyond | None = None) -> None:
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

    def run(self, wanted: Wanted, carry_out: CarryOut, beside: Beside = PLAIN) -> Coroutine[Any, Any, Any]:
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

    async def _answered(self, beyond: Beyond, wanted: Wanted, carry_out: CarryOut, beside: Beside) -> Any:
        """Do with an operation that the log does not have what a policy says; return its result."""
        match beyond.answer(wanted, beside):
            case Unserved.REST:
                raise Suspended
            case Served(end, told, files):
                async with nullcontext(_nothing) if beside.inside is None else beside.inside.bring(files) as bring:
                    return self._serve(wanted, beside, end, told, bring)
        return await carry_out(None)

    def _serve(
        self,
        wanted: Wanted,
        beside: Beside,
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

    async def _diverge(self, record: OperationRecord, wanted: Wanted) -> NoReturn:
        asked = wanted.operation_type, wanted.parameters
        self._refuse(wanted.place, call_diverged(wanted.place, await self._begun(record), asked))

    def _known(self, wanted: Wanted) -> OperationRecord | None:
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

    def _refuse_where_asked(self, wanted: Wanted) -> None:
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
        wanted: Wanted,
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
        wanted = Wanted.of(place, EVENT_EMITTED, {"name": name, "data": data})
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


def _differs(record: OperationRecord, wanted: Wanted) -> bool:
    return record.operation_type != wanted.operation_type or record.parameters_hash not in (None, wanted.digest)


def _is_over(records: Mapping[str, OperationRecord], holder: str | None) -> bool:
    """Return whether what holds an operation or question has ended: its code does not ask for that again."""
    return holder is not None and (holder not in records or records[holder].status in (COMPLETED, FAILED))


def _digest(question: Question) -> str:
    return canonical_hash(question.content)

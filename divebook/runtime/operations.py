"""`OperationLog`: the recorded operations of an execution. For a recorded operation its result is replayed. An
operation without a record is run and recorded.

Every operation (a call, a timer, a wait for a signal, a child execution, a question) is identified by its place. When
code reaches a place, `OperationLog` compares the requested operation with the recorded one. If they differ, it raises
`DivergenceError`. If they match, the status in the log decides:

- completed: return the recorded result;
- failed: raise the recorded error, even if the operation would succeed by now;
- started: continue it according to its kind (a timer waits for the remaining time, a call that may have taken effect
  asks a person);
- absent: run it, unless the `MissPolicy` of the execution answers it.

Example: step ``pay`` calls ``charge(5)`` and the process dies after the result is written. On resume the code of
``pay`` runs again, requests ``charge(5)`` at the same place, and gets the recorded result without a second call. If the
code now requests ``charge(7)`` there, it gets a `DivergenceError`.

The process can die at four points of a call:

- before the start is durable: the log has nothing, and the call was not made. It is made on resume.
- after the start is durable, before or during the call: the log has ``started``. A repeatable call is made again; for
  any other call a person decides (`divebook.runtime.recorder.UnknownOutcomes`).
- after the call, before its end is written: the same, because the log cannot distinguish the two.
- after the end is written: the recorded result is returned.

`tests/runtime/test_unknown_outcomes.py` shows calls without a recorded end, `tests/runtime/test_once.py` the replay of
recorded results and failures for every kind of operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeAlias

from divebook.engine.decide import only_settles
from divebook.engine.operations import (
    EVENT_EMITTED,
    SIGNAL_WAIT,
    WAITS,
    Place,
    Reserved,
    Setting,
    may_continue_as,
    operation_id_of,
    operation_kind,
    operation_name,
)
from divebook.engine.state import ABANDONED, OperationRecord, PathState, unknown
from divebook.errors import DivergenceError, ExecutionError, InterruptExpiredError, OperationError
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, PENDING, RUNNING
from divebook.events.codec import canonical_hash, checked, encode_shown, short_hash
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.questions.question import is_expired_unanswered
from divebook.runtime.clock import StepLog
from divebook.runtime.concurrency import STRAND, Suspended, Waits
from divebook.runtime.errors import error_from, facts_of, links_of, trace_of

if TYPE_CHECKING:
    from divebook.engine.state import ExecutionState
    from divebook.runtime.commit import StoreCalls


# --- errors for operations that differ from the log ------------------------------------------------------------------


# Limits of the error texts: number of listed differences, and characters of one value.
MOST_CHANGES = 6
MOST_CHARACTERS = 120
NOTHING = object()


def call_diverged(
    place: Place, recorded: tuple[str, Mapping[str, Any]], requested: tuple[str, Mapping[str, Any]]
) -> DivergenceError:
    """Return the error for an operation that differs from the operation that the log has at its place. `recorded` and
    `requested` are pairs of operation type and parameters.
    """
    # Parameters of different types of operations have different keys, so a list of differences would only confuse.
    changes = list(changes_between(recorded[1], requested[1])) if recorded[0] == requested[0] else []
    return DivergenceError(str(place), operation_text(*recorded), operation_text(*requested), _at_most(changes))


def question_diverged(place: Place, recorded: Question, requested: Question) -> DivergenceError:
    """Return the error for a question that code asks at a place where the log has a different question."""
    changes = list(changes_between(recorded.content, requested.content))
    return DivergenceError(str(place), question_text(recorded), question_text(requested), _at_most(changes))


def kind_diverged(place: Place, recorded: str, requested: str) -> DivergenceError:
    """Return the error for a question at a place where the log has a call, or for a call where the log has a question.
    `recorded` and `requested` are texts about the two.
    """
    return DivergenceError(str(place), recorded, requested)


def operation_text(operation_type: str, parameters: Mapping[str, Any]) -> str:
    """Return a short text about an operation, for error messages: ``action 'pay' with {"amount":5}``."""
    name = operation_name(operation_type, parameters)
    arguments = in_short(parameters.get("arguments", parameters.get("params", parameters)))
    return f"{operation_kind(operation_type)}{f' {name!r}' if name else ''} with {arguments}"


def question_text(question: Question) -> str:
    """Return a short text about a question, for error messages: its kind, the beginning of its text, and its data."""
    data = f" about {in_short(question.data)}" if question.data else ""
    return f"the {question.kind} {in_short(question.question)}{data}"


def changes_between(before: Any, now: Any) -> Iterator[str]:
    """Yield a text for each difference between an earlier value and a value now: ``amount was 5, is 7``."""
    return _changes("", before, now)


def _changes(where: str, before: Any, now: Any) -> Iterator[str]:
    """Yield a text for each difference between two values. `where` is their path inside the two outermost values, such
    as ``a[1]``.

    Mappings are compared by key, and lists of equal length by index, recursively. Other values are compared as text.
    ``{"a": [1, 2]}`` and ``{"a": [1, 3]}`` give ``a[1] was 2, is 3``.
    """
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
    """Return a value as text for error messages, cut to `limit` characters. With None, the text is not cut."""
    if value is NOTHING:
        return "missing"
    text = encode_shown(value).decode(errors="replace")
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


# --- operation requests ----------------------------------------------------------------------------------------------


class OperationRequest(NamedTuple):
    """Request of code to run an operation: its place, type, parameters and their hash. Replay compares the request with
    the recorded operation.
    """

    place: Place
    operation_id: str
    """The operation id of the place."""
    operation_type: str
    parameters: Any
    """Parameters in the form in which the log stores them."""
    digest: str

    @staticmethod
    def of(
        place: Place,
        operation_type: str,
        parameters: Mapping[str, Any],
        checked_ids: Collection[int] = (),
        digest: str | None = None,
    ) -> OperationRequest:
        """Create a request from a place, a type and parameters. The parameters are normalized and hashed. With a
        `digest`, their hash, they are normalized already.

        `checked_ids` is passed on to `divebook.events.values.normalize`. Raises `UnstorableValueError`.
        """
        plain: Any = parameters
        if digest is None:
            plain = normalize(parameters, "parameters", checked_ids)
            digest = short_hash(plain, "parameters")
        # Skips the generated `__new__` of the class, since a request is made for every operation.
        return tuple.__new__(OperationRequest, (place, operation_id_of(place), operation_type, plain, digest))

    def __str__(self) -> str:
        return operation_text(self.operation_type, self.parameters)


# --- policies for operations that the log does not have --------------------------------------------------------------
#
# By default such an operation runs. A miss policy can answer it instead: with the result in another log, with a
# replacement, or by parking the code. Only `OperationLog` asks the policy, and only where the log ends, so an execution
# without a policy has no extra cost.


FileEvents: TypeAlias = Sequence[catalog.FilesChanged]
"""Recorded file changes of one call."""
WithFiles: TypeAlias = "Callable[[FileEvents], AbstractAsyncContextManager[Callable[[], None]]]"
"""Return a context manager around an answer. It yields a function that records the file changes in this log, directly
after the end of the call."""


class WorkspaceRef(NamedTuple):
    """Reference to the workspace in which a call runs. A what-if that answers the call from another log needs it,
    because the result of the call depends on the files in the workspace.
    """

    name: str
    tree: Callable[[], str | None]
    """Return the digest of the files, or None if it is unknown."""
    with_files: WithFiles


class CallOptions(NamedTuple):
    """Options of an operation that are not part of its identity: how to record it, or how a what-if answers it from
    another log. Replay does not compare them with the log.
    """

    setting: Setting | None = None
    """Settings that are recorded with the operation but not compared."""
    within: str | None = None
    """Id of the enclosing operation."""
    extra_event: Callable[[Any], catalog.Payload] | None = None
    """Return an additional event to record once the operation has a result."""
    done: Callable[[Any], Any] | None = None
    """Convert a substituted result to the value that the call would have returned."""
    repeatable: bool = False
    """True if running the operation twice does no harm."""
    workspace: WorkspaceRef | None = None
    """The workspace in which it runs, if any."""


PLAIN = CallOptions()


class RecordedOperations(Protocol):
    """Recorded operations and questions against which a verification runs the code again. They include those whose
    events the code has not reached yet.
    """

    def run(self, request: OperationRequest, carry_out: CarryOut, options: CallOptions) -> Coroutine[Any, Any, Any]:
        """Return an awaitable for the recorded result of an operation; see `OperationLog.run`. It must call
        `OperationLog.note_request`, on which `has_history_ahead` relies.
        """

    def known_at(self, place: Place, record: OperationRecord | None) -> OperationRecord | None:
        """Return the recorded data of the operation at a place, or None if the log does not contain the operation.
        `record` is the operation in the present state, if it has it.
        """

    def question_ahead(self, question_id: str) -> Question | None:
        """Return a recorded question that the code has not reached yet, or None if there is none."""

    def has_events_ahead(self, place: Place) -> bool:
        """Return True if the log has further events of the path of a place."""

    def difference(self, place: Place, error: DivergenceError) -> BaseException:
        """Return the error for code that makes another operation or question at a place than the recorded one."""

    def abandon(self, path: str, prefix: str) -> None:
        """Note that the code has abandoned its calls whose position (`STRAND`) begins with `prefix`."""


class OperationLog:
    """Recorded operations of one execution. It looks up the operations that code requests, and records their starts,
    results and failures.
    """

    def __init__(self, journal: StepLog, waits: Waits, miss_policy: MissPolicy | None = None) -> None:
        self.journal = journal
        self._waits = waits
        self.miss_policy = miss_policy
        self.verification: RecordedOperations | None = None
        """Only in a verification: the operations of the log against which the code runs again."""
        self._requested: set[str] = set()
        """Ids of the operations and questions that code has requested in this process."""
        self.diverged: dict[str, DivergenceError] = {}
        """By path: the error raised when the code of its step diverged from the log.

        Every further request of that step raises it again, even if the code caught it. Otherwise a later attempt would
        run the call that the log records differently (test_divergence.py)."""

        self.is_stopping = False
        """True while the execution is being parked: started operations continue, new ones do not start."""
        self.fresh: set[str] = set()
        """Paths whose step started in this process, runs for the first time, and has used no resources yet.

        The log has no operations of such a step except those requested since, so a lookup is unnecessary."""
        self._open_waits: dict[str, tuple[str, str]] = {}
        """Path and position (`STRAND`) of the timers and waits for signals that run in this process, by operation
        id."""
        self._abandoned: dict[str, list[str]] = {}
        """By path: ids of the waits that the code has abandoned, and that are not recorded as such yet."""
        self._latest: dict[str, str] = {}
        """By path: the id of the operation that failed last. Cleared when the step's code requests something else."""

    def enter(self, path: str, *, is_new: bool) -> None:
        """Note that a step starts to run on a path. `is_new` is False if the log may already have operations of this
        visit of the step.
        """
        # In a verification also a step that starts may have operations, since the log may contain them.
        if is_new and self.verification is None:
            self.fresh.add(path)
        else:
            self.fresh.discard(path)
        self._abandoned.pop(path, None)
        if self._open_waits:
            self._open_waits = {name: wait for name, wait in self._open_waits.items() if wait[0] != path}

    # --- lookup ------------------------------------------------------------------------------------------------------

    def is_unrecorded(self, request: OperationRequest) -> bool:
        """Return whether an operation certainly has no record, so that it can be carried out without a lookup, and note
        that it was requested. This is so for each new operation of a step that runs for the first time.
        """
        path = request.place.path
        operation_id = request.operation_id
        if path not in self.fresh or operation_id in self._requested or self.miss_policy is not None:
            return False
        self._requested.add(operation_id)
        if self._latest or self.diverged or self._abandoned:
            self.note_request(path, operation_id)
        return True

    def run(
        self, request: OperationRequest, carry_out: CarryOut, options: CallOptions = PLAIN
    ) -> Coroutine[Any, Any, Any]:
        """Return an awaitable that replays the recorded result of an operation, or runs the operation with `carry_out`.

        Raises
        ------
        OperationError
            The log records a failure.
        DivergenceError
            The log has a different operation at this place.
        Suspended
            The execution is being rolled back, and the operation must not run or continue.
        """
        if self.verification is not None:
            return self.verification.run(request, carry_out, options)
        # A recorded failure is raised again even if the call would succeed by now: code that caught it continued from
        # there (test_a_recorded_failure_is_a_failure_on_replay).
        record = self._find(request)
        has_ended = record is not None and record.status in (COMPLETED, FAILED)
        # A fresh step has no calls to be settled: a rollback that begins meanwhile ends it, and runs on other paths.
        is_fresh = request.place.path in self.fresh
        if not has_ended and not is_fresh and only_settles(self.journal.present, request.place):
            return self.never_return(request.place)
        if record is not None and record.status == PENDING:
            return carry_out(record)  # its result was lost: a person is asked, without a comparison
        # The log ends here for this code: either the execution is new, or replay has caught up.
        if record is None:
            if self.miss_policy is None:
                return carry_out(None)
            return self._ask_policy(self.miss_policy, request, carry_out, options)
        if differs(record, request):
            return self._diverge(record, request)
        if record.status == ABANDONED:
            # The code abandons it again. Until then, it must not take a signal that a later wait gets.
            return self.never_return(request.place)
        return carry_out(record) if record.status == RUNNING else self._recorded(request.place, record)

    def only_settles(self, place: Place) -> bool:
        """Return True if the execution is being rolled back, and the path of `place` may only find out whether
        interrupted calls took effect. A verification makes no calls, so that none has to be held back.
        """
        return self.verification is None and only_settles(self.journal.present, place)

    async def never_return(self, place: Place) -> NoReturn:
        """Wait until no task of the path has anything left to do, and then raise `Suspended`. The other calls of the
        path continue meanwhile.
        """
        # Raising at once would end the other calls, if the code has gathered them with `asyncio.gather`
        # (test_only_what_is_to_be_settled_continues).
        await self._waits.until(place.path, lambda: False)
        raise Suspended

    async def unsettled_error(self, path: PathState) -> DivergenceError:
        """Return the error for a path that only has to find out whether an interrupted call took effect, and whose code
        does not request this call: it waits for something else first, which does not continue during a rollback.
        """
        record, *_ = unknown(path.open)
        started = (await self.journal.event(record.started_sequence)).data
        key = getattr(started, "key", None)
        visit = path.visits[path.current_step]
        place = Place(path.id, path.current_step, visit, record.item, 0 if key is None else key)
        recorded = operation_text(*await self._recorded_start(record))
        return kind_diverged(place, recorded, "another call first, which a rollback does not wait for")

    async def _ask_policy(
        self, miss_policy: MissPolicy, request: OperationRequest, carry_out: CarryOut, options: CallOptions
    ) -> Any:
        """Return the result of an operation that is not in the log of a what-if. The policy of the what-if answers it
        from another log. Without an answer, run the operation or raise `Suspended`.
        """
        match miss_policy.answer_to(request, options):
            case NoAnswer.REST:
                raise Suspended
            case PolicyAnswer(end, origin, files):
                workspace = options.workspace
                async with nullcontext(_nothing) if workspace is None else workspace.with_files(files) as record_files:
                    return self._record_answer(request, options, end, origin, record_files)
        return await carry_out(None)

    def _record_answer(
        self,
        request: OperationRequest,
        options: CallOptions,
        end: catalog.OperationCompleted | catalog.OperationFailed,
        origin: Mapping[str, Any] | None,
        record_files: Callable[[], None],
    ) -> Any:
        """Record an operation of a what-if with the result or error that its policy has found in another log. Return
        the result, or raise the error.

        Nothing is awaited between its start and its end.
        """
        place, operation_id, operation_type, parameters, _ = request
        record = self.begin(request, None, options.setting, options.within)
        # Duration and usage are those of the other log: nothing was spent here, and totals must not count it twice.
        if isinstance(end, catalog.OperationFailed):
            failed = replace(end, operation_id=operation_id, operation_type=operation_type, duration=0, usage=None)
            self.record(place, replace(failed, held=None, served=origin))
            record_files()
            names = tuple(end.error_names or ())
            raise self.failing(place, record._replace(error=end.error, error_names=names, raised=end.raised))
        if operation_type == SIGNAL_WAIT and parameters["signal"] not in self.journal.state.signals:
            self.record(
                place, catalog.SignalReceived(parameters["signal"], end.result)
            )  # else the log lacks the signal
        self.record(place, catalog.OperationCompleted(operation_id, operation_type, 0, end.result, served=origin))
        if options.extra_event is not None:
            self.record(place, options.extra_event(end.result))
        record_files()
        return end.result

    async def _recorded(self, place: Place, record: OperationRecord) -> Any:
        if record.status == FAILED:
            raise self.failing(place, record)
        return record.result

    async def _diverge(self, record: OperationRecord, request: OperationRequest) -> NoReturn:
        requested = request.operation_type, request.parameters
        self._refuse(request.place, call_diverged(request.place, await self._recorded_start(record), requested))

    def _find(self, request: OperationRequest) -> OperationRecord | None:
        """Return the record that the log has at the place of a request. It may be of a different operation, which the
        caller must refuse.

        Return None if the log has no record there, or a pending one whose result was not lost. Raise DivergenceError if
        the log has a question at this place.
        """
        place = request.place
        operation_id = request.operation_id
        # Decided before `note_request`, which adds the id to the requested ones.
        is_new = place.path in self.fresh and operation_id not in self._requested
        self.note_request(place.path, operation_id)
        if is_new:
            return None
        record = self.record_of(place, operation_id)
        # PENDING: the failure of this operation ended the step, and the execution was resumed since. `lost` is set
        # for a call that had returned a result which the log cannot store.
        if record is None or record.status == PENDING:
            if self.journal.present.interrupts:
                self._refuse_if_question(request)
            return None if record is None or record.lost is None else record
        return record

    async def look_up_question(self, place: Place, question: Question) -> Question | None:
        """Return the recorded question at a place, with its answer if there is one. Return None if the question was not
        asked yet.

        Raises
        ------
        DivergenceError
            The log has something else at this place. An answer is valid only for the question that was shown.
        """
        operation_id = place.operation_id
        self.note_request(place.path, question.id)
        self._requested.add(operation_id)  # a call at this place would diverge
        recorded_question = self.journal.state.interrupts.get(question.id)
        if recorded_question is None:
            record = self.record_of(place, operation_id)
            if record is not None:
                recorded = operation_text(*await self._recorded_start(record))
                self._refuse(place, kind_diverged(place, recorded, question_text(question)))
        elif _digest(recorded_question) != _digest(question):
            self._refuse(place, question_diverged(place, recorded_question, question))
        return recorded_question

    def _refuse_if_question(self, request: OperationRequest) -> None:
        question = self.journal.state.interrupts.get(self.question_id(request.place))
        if question is not None:
            self._refuse(request.place, kind_diverged(request.place, question_text(question), str(request)))

    def note_request(self, path: str, key: str) -> None:
        """Note that code on a path has requested the operation or question with the id `key`. Raise the path's
        `DivergenceError` again if its code has diverged.
        """
        self._requested.add(key)
        # Both are empty in the usual run. A further request means that the code has handled its last failure and
        # continued.
        if self._latest or self.diverged or self._abandoned:
            self._latest.pop(path, None)
            self.require_agreement(path)
            self._record_abandoned(path)

    @contextmanager
    def open_wait(self, place: Place) -> Iterator[None]:
        """Note that the operation at a place waits for a time or a signal, until the `with` block has ended without an
        exception of the kind that leaves the code, such as a cancellation.
        """
        # Not the key: a call that is made before a `gather` has its key from outside of it, as the pauses between its
        # attempts have.
        self._open_waits[place.operation_id] = place.path, STRAND.get()
        yield
        del self._open_waits[place.operation_id]

    def abandon(self, path: str, prefix: str) -> None:
        """Note that the code on a path has abandoned the waits whose position begins with `prefix`. They are recorded
        as abandoned when the code requests something else: before that, the step may fail, so that it does not matter.

        Without the record, a process would always have to drive the execution, so that it would continue at the end of
        the wait (test_workers_leave_a_run_alone_that_has_abandoned_a_wait).
        """
        if self.verification is not None:
            self.verification.abandon(path, prefix)
            return
        for operation_id, (path_of_wait, strand) in list(self._open_waits.items()):
            if path_of_wait == path and strand.startswith(prefix):
                del self._open_waits[operation_id]
                self._abandoned.setdefault(path, []).append(operation_id)

    def _record_abandoned(self, path: str) -> None:
        state = self.journal.state
        opened = state.paths[path].open
        if path not in self._abandoned or opened is None or self.is_stopping or state.rolling_back is not None:
            return
        records = [opened.operations.get(operation_id) for operation_id in self._abandoned.pop(path)]
        ids = [record.operation_id for record in records if record is not None and record.status == RUNNING]
        if ids:
            self.journal.record(catalog.OperationsAbandoned(ids), path, state.paths[path].current_step)

    def skip(self, operation_id: str) -> None:
        """Note that code will not request a recorded operation (or question) again, so that `has_history_ahead` does
        not count it.
        """
        self._requested.add(operation_id)

    def require_agreement(self, path: str) -> None:
        """Raise the path's `DivergenceError` again if the code of its step has requested other operations than the log
        has. Otherwise do nothing.
        """
        if path in self.diverged:
            raise self.diverged[path]

    def _refuse(self, place: Place, error: DivergenceError) -> NoReturn:
        if self.verification is not None:
            raise self.verification.difference(place, error) from error
        self.diverged[place.path] = error
        raise error

    def question_id(self, place: Place) -> str:
        """Return the id of the question at a place. The id is the same for every attempt of the step. If the question
        expired without an answer and made the step fail, the question after a resumption has another id.
        """
        state = self.journal.state
        # A person who has answered once is not asked again by the next attempt.
        about = place._replace(attempt=0).operation_id
        question_id = state.question_id("question", about)
        for number in itertools.count(1):
            question = state.interrupts.get(question_id)
            if question is None or not is_expired_unanswered(question) or question.waiting:
                break
            self.skip(question_id)
            question_id = state.question_id("question", about, number)
        return question_id

    def question_at(self, place: Place) -> Question | None:
        """Return the recorded question at a place, with its answer if there is one. Return None if the log has no
        question there.
        """
        question_id = self.question_id(place)
        ahead = None if self.verification is None else self.verification.question_ahead(question_id)
        return self.journal.state.interrupts.get(question_id) if ahead is None else ahead

    def record_of(self, place: Place, operation_id: str) -> OperationRecord | None:
        """Return the record of an operation in the step that is open on the path of `place`. Return None if that step
        has no such operation.
        """
        opened = self.journal.present.paths[place.path].open
        return None if opened is None else opened.operations.get(operation_id)

    def known_at(self, place: Place) -> OperationRecord | None:
        """Return the record of the operation that the log has at a place in the code, of any type. Return None if it
        has none there.
        """
        record = self.record_of(place, place.operation_id)
        return record if self.verification is None else self.verification.known_at(place, record)

    async def _recorded_start(self, record: OperationRecord) -> tuple[str, Mapping[str, Any]]:
        """Return the type and parameters of a recorded operation, which are read from its start event."""
        data = (await self.journal.event(record.started_sequence)).data
        # An emitted event is a single fact, so it is start and end at once.
        if isinstance(data, catalog.EventEmitted):
            return EVENT_EMITTED, {"name": data.name, "data": data.data}
        assert isinstance(data, catalog.OperationStarted)  # noqa: S101 - `started_sequence` is the number of this event
        return data.operation_type, data.parameters or {}

    async def start_of(self, place: Place) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return parameters and settings from the recorded start event of the operation at a place, which the log must
        have.
        """
        record = self.known_at(place)
        assert record is not None  # noqa: S101 - the caller has looked it up
        data = (await self.journal.event(record.started_sequence)).data
        return getattr(data, "parameters", None) or {}, getattr(data, "setting", None) or {}

    def has_history_ahead(self, place: Place) -> bool:
        """Return whether the log has operations or questions of the step at a place that the replayed code has not
        requested yet.
        """
        if self.verification is not None and self.verification.has_events_ahead(place):
            return True
        state = self.journal.state
        opened = state.paths[place.path].open
        records: Mapping[str, OperationRecord] = {} if opened is None else opened.operations
        # Operations inside an ended enclosing operation do not count: replay returns the result of the outer one.
        for operation_id, record in records.items():
            if operation_id not in self._requested and not _is_over(records, record.within):
                return True
        if place.visit > 1:  # questions of earlier visits cannot be distinguished from those of this one
            return False
        for question_id, question in state.interrupts.items():
            is_of_step = question.path == place.path and question.step == place.step
            if is_of_step and question_id not in self._requested and not _is_over(records, question.operation_id):
                return True
        return False

    async def require_requested(self, place: Place, is_abandoned: Callable[[str], bool]) -> None:
        """Refuse the end of the step at a place if the log has a call of it that has started and not ended, and that
        the code has not requested. Whether the call took effect would stay unknown, and its rollback would be lost.

        `is_abandoned` returns whether the code has made the call with this key and abandoned it.

        Raises
        ------
        DivergenceError
            The code leaves out a call.
        """
        opened = None if place.path in self.fresh else self.journal.present.paths[place.path].open
        records: Mapping[str, OperationRecord] = {} if opened is None else opened.operations
        for operation_id, record in records.items():
            # A timer or a wait for a signal has no effect. The operations inside an ended one are not requested again.
            is_open = record.status == RUNNING and record.operation_type not in WAITS
            if not is_open or operation_id in self._requested or _is_over(records, record.within):
                continue
            started = (await self.journal.event(record.started_sequence)).data
            key = getattr(started, "key", None)
            # Logs of old versions have no keys, by which an abandoned call could be recognized.
            if key is not None and not is_abandoned(str(key)):
                recorded = operation_text(*await self._recorded_start(record))
                place_of_call = place._replace(key=key)
                self._refuse(place_of_call, kind_diverged(place_of_call, recorded, "nothing"))

    def failures_behind(self, path: str, error: BaseException) -> list[str]:
        """Return the ids of the failed operations that caused the error with which a step has ended, and of the expired
        question that it wraps. If the error does not name them, return the last failed operation, unless the code has
        requested another one since.

        Failures that the step's code caught before it continued are not included: they are final.
        """
        links = list(links_of(error))
        failures = {link.operation_id for link in links if isinstance(link, OperationError) and link.operation_id}
        # The error of the question itself is recognized by its recorded class. Further causes were caught before it.
        expired = next((link for link in links if isinstance(link, InterruptExpiredError)), None)
        if expired is not None and expired is not error:
            failures.add(expired.question_id)
        latest = self._latest.get(path)
        return sorted(failures) or ([] if latest is None else [latest])

    # --- recording ---------------------------------------------------------------------------------------------------

    def begin(
        self,
        request: OperationRequest,
        reserved: Reserved | None = None,
        setting: Setting | None = None,
        within: str | None = None,
        rollback_ref: str | None = None,
    ) -> OperationRecord:
        """Record the start of an operation, and return its record. Until the operation ends, the amounts in `reserved`
        count as spent.

        Raises
        ------
        Suspended
            The execution is being parked.
        """
        if self.is_stopping:
            raise Suspended
        place, operation_id, operation_type, parameters, digest = request
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
            None if within is None else self._start_number(place, within),
            rollback_ref,
        )
        self.journal.record(started, place.path, place.step)
        return OperationRecord.begun(operation_id, operation_type, digest, self.journal.moment, self.journal.recorded)

    def _start_number(self, place: Place, enclosing_id: str) -> int:
        """Return the sequence number of the start event of the operation `enclosing_id`, which encloses `place`."""
        record = self.record_of(place, enclosing_id)
        assert record is not None  # noqa: S101 - it is running
        return record.started_sequence

    def emit(self, place: Place, name: str, data: Any, *, is_once: bool) -> None:
        """Record an event that user code emits. With `is_once`, do nothing if the log already has the event at this
        place.
        """
        request = OperationRequest.of(place, EVENT_EMITTED, {"name": name, "data": data})
        if is_once and (record := self._find(request)) is not None:
            if differs(record, request):  # this method does not await, so it cannot read the recorded parameters
                self._refuse(
                    place, kind_diverged(place, f"another {operation_kind(record.operation_type)}", str(request))
                )
            return
        event = catalog.EventEmitted(
            name, request.parameters["data"], *((request.operation_id, request.digest) if is_once else ())
        )
        self.record(place, checked(event))

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
        """Record the end of an operation with its result. Its duration counts from the time `since`, or else from its
        start.

        `held` is the part of the reservation that stays counted: that of an ended child, which needs it if it is
        resumed.
        """
        # A step that has used resources must record its usage at its end; see `PathRunner._complete`.
        if usage:
            self.fresh.discard(place.path)
        now = self.journal.clock.now()
        duration = duration_until(now, record.started_at if since is None else since)
        completed = catalog.OperationCompleted(
            record.operation_id, record.operation_type, duration, result, usage or None, held
        )
        self.journal.record(completed, place.path, place.step, may_wait=may_wait, now=now)

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
        """Record the failure of an operation. Return the exception that represents it, which every replay raises as
        well.

        `held` is as for `complete`; `final` and `lost` are as in the event. `raised` is the exception of user code. The
        log keeps its class and place without secrets (test_a_secret_that_was_looked_up_is_not_in_what_a_call_raised).
        """
        if usage:
            self.fresh.discard(place.path)
        operation_id = record.operation_id
        operation_type = record.operation_type
        duration = duration_until(self.journal.clock.now(), record.started_at if since is None else since)
        details = names or None, usage or None
        failed = catalog.OperationFailed(
            operation_id, operation_type, duration, error, *details, held=held, final=final
        )
        if lost is not None:
            failed = replace(failed, lost=lost)
        if raised is not None:
            failed = replace(failed, raised=facts_of(raised), trace=trace_of(raised))
        self.record(place, failed)
        return self.failing(place, record._replace(error=failed.error, error_names=tuple(names), raised=failed.raised))

    def failing(self, place: Place, record: OperationRecord) -> OperationError:
        """Return the exception for a failed operation. The operation is remembered as the latest failure on its path,
        for `failures_behind`.
        """
        self._latest[place.path] = record.operation_id
        return error_from(record)

    def record(self, place: Place, data: catalog.Payload) -> None:
        """Append an event to the log, with the path and step of a place."""
        self.journal.record(data, place.path, place.step)


class NoAnswer(Enum):
    """Instruction for the case that a what-if finds no result for an operation in the log of its source: run the
    operation, or suspend the code that requested it.
    """

    LIVE = "live"
    """Run the operation."""
    REST = "rest"
    """Suspend the code that requested the operation, because the results of later operations are unknown."""


class PolicyAnswer(NamedTuple):
    """Recorded result or error of an operation, taken from another log. A what-if uses it instead of running the
    operation.
    """

    end: catalog.OperationCompleted | catalog.OperationFailed
    """Its result or error."""
    origin: Mapping[str, Any] | None = None
    """Origin of the end, as recorded in the field `served` of the event."""
    files: FileEvents = ()
    """File changes that the operation made in workspaces."""


Settled: TypeAlias = catalog.InterruptResolved | catalog.InterruptExpired


class WhatIfSource(NamedTuple):
    """Source of the results of a what-if: the execution whose log answers its operations. Also lists the kinds of tools
    that the what-if may run.
    """

    source: str
    tools: str
    """The actions and tools that may run, with the values of `divebook.events.catalog.ExecutionForked`."""


class MissPolicy(Protocol):
    """Protocol of the policy of a what-if. For an operation that is missing in the what-if's own log, it provides the
    answer from the log of another execution. Executions other than what-ifs have no such policy.

    All methods are called on the engine's event loop and must not block.
    """

    @property
    def writes(self) -> bool:
        """True if the what-if may change conversations and approval rules, which are kept outside its log."""

    @property
    def asks_models(self) -> bool:
        """True if the what-if may send a request to a model when its policy has no answer for it. The model then needs
        its key and library.
        """

    def answer_to(self, request: OperationRequest, options: CallOptions) -> PolicyAnswer | NoAnswer:
        """Return the result or error that the what-if records for an operation instead of running it. Return a
        `NoAnswer` if the policy finds none.
        """

    def opened(self, workspace: str) -> catalog.WorkspaceOpened | None:
        """Return the event with which the source execution of the what-if opened a workspace. The event lists the files
        in the workspace.

        Return None if the source did not open it. The workspace then starts from its present files.
        """

    def settled(self, question: Question) -> Settled | None:
        """Return the event (answer or expiry) that settles a question of the what-if, as in its source. Return None if
        a person has to answer the question.
        """

    def child_like(self, request: OperationRequest) -> WhatIfSource | None:
        """Return the execution whose log answers the operations of a child execution that the what-if requests. Return
        None if the child runs normally.
        """

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return the settings (such as model and instructions) with which the source execution ran an operation. Return
        an empty mapping if it did not run the operation.
        """


FindMissPolicy: TypeAlias = Callable[["ExecutionState", "StoreCalls"], "Awaitable[MissPolicy | None]"]
"""Return the miss policy of an execution that is a what-if."""


async def refuse_what_if(state: ExecutionState, calls: StoreCalls) -> NoReturn:
    """Raise `ExecutionError` for an execution that is a what-if. Only an environment can drive it, because the
    environment provides the policy that answers its operations.

    Raises
    ------
    ExecutionError
        Always: without a miss policy the calls would really run.
    """
    del calls
    raise ExecutionError(f"execution {state.execution_id} is a what-if; only an environment can continue it")


CarryOut = Callable[[OperationRecord | None], Coroutine[Any, Any, Any]]
"""Run an operation that is not in the log (None), or that is recorded as started."""


def duration_until(now: int, since: int) -> int:
    """Return the time from `since` to `now` in nanoseconds. Both are in microseconds since 1970."""
    # At least 0, because the clock of the process that recorded the start may be ahead.
    return max(0, now - since) * 1000


def _nothing() -> None:
    """Record nothing. Stands for the function that records file changes, if a call has no workspace."""


def differs(record: OperationRecord, request: OperationRequest) -> bool:
    """Return whether a requested operation is another one than the recorded one."""
    # Without a recorded hash (None), only the types are compared.
    if record.parameters_hash not in (None, request.digest):
        return True
    if record.status == RUNNING:
        return not may_continue_as(record.operation_type, request.operation_type)
    return record.operation_type != request.operation_type


def _is_over(records: Mapping[str, OperationRecord], enclosing_id: str | None) -> bool:
    """Return whether the operation with id `enclosing_id` has ended, so that replayed code does not request the
    operations inside it again. It is False for None.
    """
    return enclosing_id is not None and (
        enclosing_id not in records or records[enclosing_id].status in (COMPLETED, FAILED)
    )


def _digest(question: Question) -> str:
    return canonical_hash(question.content)

"""Runs an operation once: looked up in the log first, carried out and recorded only if it is not there.

An operation that was begun and has no outcome in the log (the process died, or the call broke off) is carried out again
only if it is repeatable. Otherwise nobody can know whether it took effect, and a person is asked.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from divebook.engine.bounds import call_bound, facts_about, fails_at_bounds, left_of, question_about
from divebook.engine.operations import CHILD_WORKFLOW, SIGNAL_WAIT, TIMER, Place, Reserved, StreamedCall
from divebook.engine.retries import names_of, text_of
from divebook.engine.state import COMPLETED, FAILED, RUNNING, ExecutionState, OperationRecord
from divebook.errors import BoundExceededError, DivergenceError, ExecutionError, InterruptExpiredError, OperationError
from divebook.events import catalog
from divebook.events.codec import canonical_hash, storable
from divebook.events.values import normalize
from divebook.execution.breaking_off import leaves_outcome_unknown
from divebook.execution.children import Child, DriveChild, child_id
from divebook.execution.clock import Chance
from divebook.execution.containment import contained
from divebook.execution.journal import Journal
from divebook.execution.strands import Strands, Suspended
from divebook.execution.streaming import TextStreams
from divebook.questions import Question
from divebook.questions.kinds import DONE, EXPIRED, FAIL, OUTCOME_UNKNOWN, RETRY

HASH_DIGITS = 16
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is not deterministic."""

    operation_type: str
    parameters: Mapping[str, Any]
    make: Callable[[], Awaitable[Any]]
    usage: Callable[[Any], Mapping[str, int]] | None = None
    """Reads what was consumed from the result."""
    repeatable: bool = False
    """Whether making it twice does no harm."""
    reserved: Reserved | None = None
    """What a model call may consume at most; None for any other call."""
    streamed: StreamedCall | None = None
    """Makes the call while somebody listens to its text."""


def _is_more(count: Callable[[], int], than: int) -> bool:
    return count() > than


class Recorder:
    """The operations of one execution."""

    def __init__(self, journal: Journal, chance: Chance, texts: TextStreams) -> None:
        self.journal, self.chance = journal, chance
        self._texts = texts
        self.strands: dict[str, Strands] = {}
        """Of the step that each path is in."""
        self.deadlines: Callable[[str, int], None] | None = None
        """Told of a path that is to be looked at again at some time (microseconds)."""
        self._at_rest: Callable[[], None] | None = None
        """Set once nothing more is to begin."""
        self._under_way = 0
        """Calls that run and may not be made twice."""
        self._met: set[str] = set()
        """Operations that code has asked for in this process."""

    def pause(self, at_rest: Callable[[], None]) -> None:
        """Begin no further call, and call `at_rest` as soon as none is under way that may not be made twice."""
        self._at_rest = at_rest
        if not self._under_way:
            at_rest()

    def has_history_ahead(self, place: Place) -> bool:
        """Whether the log holds operations of this step that its code has not asked for again yet."""
        return any(operation_id not in self._met for operation_id in self._records(place))

    async def run(self, place: Place, call: Call) -> Any:
        """Return the recorded result of the operation at `place`, or carry it out; see `StepContext.operation`."""
        operation_id = place.operation_id
        self._met.add(operation_id)
        plain = normalize(call.parameters, "parameters")
        digest = canonical_hash(plain, "parameters")[:HASH_DIGITS]
        known = self._known(place, operation_id, call.operation_type, digest)
        if known is not None and known.status == COMPLETED:
            return known.result
        if known is not None and known.status == FAILED:
            raise OperationError(known.error or "failed", operation_id, call.operation_type, known.error_names)
        if known is not None and not call.repeatable:
            answer = await self._settled(place, call, known)
            if answer != RETRY:
                return answer["result"]
        if call.reserved is not None:
            await self._within_bounds(place, call.reserved)
        if self._is_pausing():
            raise Suspended
        if call.repeatable:
            return await self._begin_and_make(place, operation_id, call, plain, digest)
        self._under_way += 1
        try:
            return await self._begin_and_make(place, operation_id, call, plain, digest)
        finally:
            self._under_way -= 1
            if self._at_rest is not None and not self._under_way:
                self._at_rest()

    def _is_pausing(self) -> bool:
        return self._at_rest is not None

    async def _begin_and_make(self, place: Place, operation_id: str, call: Call, plain: Any, digest: str) -> Any:
        self._begin(place, operation_id, call.operation_type, plain, digest, reserved=call.reserved)
        await self.journal.durable()
        return await self._make(place, operation_id, call)

    async def sleep(self, place: Place, seconds: float) -> None:
        """Let time pass, counted from when the timer was first set."""
        operation_id, parameters = place.operation_id, {"seconds": seconds}
        self._met.add(operation_id)
        digest = canonical_hash(parameters)[:HASH_DIGITS]
        known = self._known(place, operation_id, TIMER, digest)
        if known is not None and known.status == COMPLETED:
            return
        if known is None or known.status != RUNNING:
            self._begin(place, operation_id, TIMER, parameters, digest)
        started_at = self._records(place)[operation_id].started_at
        await self.journal.durable()
        await self._let_pass(started_at, seconds)
        duration = max(0, self.journal.clock.now() - started_at) * 1000
        self._record(place, catalog.OperationCompleted(operation_id, TIMER, duration))

    async def _let_pass(self, started_at: int, seconds: float) -> None:
        left = seconds - (self.journal.clock.now() - started_at) / MICROSECONDS
        if left > 0:
            await self.journal.clock.sleep(min(left, seconds))

    # --- what the log knows ----------------------------------------------------------------------------------------

    def _records(self, place: Place) -> Mapping[str, OperationRecord]:
        opened = self.journal.state.paths[place.path].open
        return opened.operations if opened is not None else {}

    def _known(self, place: Place, operation_id: str, operation_type: str, digest: str) -> OperationRecord | None:
        record = self._records(place).get(operation_id)
        if record is None:
            return None
        if record.operation_type != operation_type or record.parameters_hash not in (None, digest):
            recorded = f"{record.operation_type} with parameters {record.parameters_hash}"
            raise DivergenceError(str(place), recorded, f"{operation_type} with parameters {digest}")
        return record

    # --- calls whose outcome nobody knows --------------------------------------------------------------------------

    async def _settled(self, place: Place, call: Call, record: OperationRecord) -> Any:
        """Return `RETRY`, or ``{"result": ...}`` where a person gave it; raise if the answer is that it failed.

        Raises
        ------
        Suspended
            The question has no answer yet.
        """
        question_id = self._question_id(record)
        if question_id not in self.journal.state.interrupts:
            self._ask(place, call, record)
        return self._answered(place, record, await self._answer_to(place.path, question_id))

    def _answered(self, place: Place, record: OperationRecord, question: Question) -> Any:
        response = question.response
        if response["choice"] == RETRY:
            return RETRY
        operation_id, operation_type = record.operation_id, record.operation_type
        if response["choice"] == FAIL:
            error = response.get("error") or "its outcome is unknown, and a person called it failed"
            self._record(place, catalog.OperationFailed(operation_id, operation_type, 0, error))
            raise OperationError(error, operation_id, operation_type)
        self._record(place, catalog.OperationCompleted(operation_id, operation_type, 0, response.get("result")))
        return {"result": response.get("result")}

    def _ask(self, place: Place, call: Call, record: OperationRecord) -> None:
        question = (
            f"Nobody knows whether {call.operation_type} of step {place.step!r} took effect: it began and has no "
            "recorded outcome. Look, then say retry, done (with its result) or fail"
        )
        data = {"parameters": normalize(call.parameters, "parameters"), "choices": [RETRY, DONE, FAIL]}
        raised = catalog.InterruptRaised(
            self._question_id(record), OUTCOME_UNKNOWN, question, data=data, operation_id=record.operation_id
        )
        self._record(place, raised)

    def _question_id(self, record: OperationRecord) -> str:
        """Return the id of the question about this beginning of the operation."""
        return self._id_of(record.operation_id, record.started_sequence)

    def _id_of(self, *told: object) -> str:
        text = "/".join(map(str, (self.journal.execution_id, *told)))
        return f"ask_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    # --- questions of code, bounds and signals ---------------------------------------------------------------------

    async def ask(self, place: Place, asked: Question, expires_in: float | None = None) -> Question:
        """Return the question that belongs to `place` with its answer; ask it if that has not been done.

        Raises
        ------
        Suspended
            There is no answer yet.
        InterruptExpiredError
            There never will be, and the question has no default.
        DivergenceError
            The log has a question of another kind at this place.
        """
        interrupt_id = self._id_of("question", place._replace(attempt=0).operation_id)
        known = self.journal.state.interrupts.get(interrupt_id)
        if known is None:
            self._raise_question(place, asked._replace(id=interrupt_id), expires_in)
        elif known.kind != asked.kind:
            raise DivergenceError(str(place), f"a question of kind {known.kind}", f"one of kind {asked.kind}")
        answered = await self._answer_to(place.path, interrupt_id)
        if answered.status == EXPIRED and answered.response is None:
            raise InterruptExpiredError(interrupt_id, answered.question)
        return answered

    def _raise_question(self, place: Place, asked: Question, expires_in: float | None) -> None:
        now = self.journal.clock.now()
        expires_at = None if expires_in is None else now + int(expires_in * MICROSECONDS)
        raised = catalog.InterruptRaised(
            asked.id,
            asked.kind,
            asked.question,
            asked.message,
            normalize(asked.data, "data"),
            normalize(asked.schema, "schema"),
            expires_at=expires_at,
            default=asked.default,
            optional=asked.optional or None,
        )
        self._record(place, raised)
        if expires_at is not None and self.deadlines is not None:
            self.deadlines(place.path, expires_at)

    async def _answer_to(self, path: str, interrupt_id: str) -> Question:
        """Return a question once it is settled; a strand that cannot wait for that is suspended."""
        await self.strands[path].park(lambda: self.journal.state.interrupts[interrupt_id].is_open is False)
        return self.journal.state.interrupts[interrupt_id]

    async def _within_bounds(self, place: Place, reserved: Reserved) -> None:
        """Return when the bounds of the execution allow a model call that may consume so much.

        Raises
        ------
        BoundExceededError
            They do not, and a person said stop, or nobody is to be asked.
        """
        if self.journal.state.bounds.max_cost is not None and not reserved.is_priced:
            raise BoundExceededError(
                "max_cost cannot be kept, since no price is known for this model; bound its tokens with max_tokens",
                "max_cost",
                "max_cost_exceeded",
            )
        while (found := call_bound(self.journal.state, reserved)) is not None:
            if fails_at_bounds(self.journal.state):
                raise BoundExceededError(str(found), found.bound, found.reason)
            if self.journal.state.stopped is not None:
                raise BoundExceededError(self.journal.state.stopped[0], found.bound, self.journal.state.stopped[1])
            interrupt_id = question_about(self.journal.state, found)
            self.journal.record_all(facts_about(self.journal.state, found, place.path, place.step))
            await self._answer_to(place.path, interrupt_id)

    async def signal(self, place: Place, name: str, within: float | None) -> Any:
        """Return the payload of the next signal of that name that nobody has taken yet.

        Raises
        ------
        OperationError
            None came in time.
        """
        operation_id, parameters = place.operation_id, {"signal": name, "seconds": within}
        self._met.add(operation_id)
        digest = canonical_hash(parameters)[:HASH_DIGITS]
        known = self._known(place, operation_id, SIGNAL_WAIT, digest)
        if known is not None and known.status == COMPLETED:
            return known.result
        if known is None or known.status != RUNNING:
            self._begin(place, operation_id, SIGNAL_WAIT, parameters, digest)
        record = self._records(place)[operation_id]
        until = None if within is None else record.started_at + int(within * MICROSECONDS)
        if until is not None and self.deadlines is not None:
            self.deadlines(place.path, until)
        await self._arrived(place.path, name, until)
        duration = self._since(record.started_at)
        if name not in self.journal.state.signals:
            error = TimeoutError(f"no signal {name!r} came within {within:g} seconds")
            self._record(
                place,
                catalog.OperationFailed(operation_id, SIGNAL_WAIT, duration, str(error), names_of(error)),
            )
            raise OperationError(str(error), operation_id, SIGNAL_WAIT, names_of(error))
        payload = self.journal.state.signals[name][0]
        self._record(place, catalog.OperationCompleted(operation_id, SIGNAL_WAIT, duration, payload))
        return payload

    async def _arrived(self, path: str, name: str, until: int | None) -> None:
        def is_ready() -> bool:
            return name in self.journal.state.signals or (until is not None and self.journal.clock.now() >= until)

        while not is_ready():  # another strand may have taken what this one was woken for
            await self.strands[path].park(is_ready)

    # --- executions that this one starts -----------------------------------------------------------------------------

    async def child(self, place: Place, workflow: str, inputs: Mapping[str, Any], drive: DriveChild) -> Any:
        """Return the outputs of another workflow, run as an execution of its own that is started once.

        Raises
        ------
        OperationError
            It did not complete.
        Suspended
            It waits for something from outside, and nothing else can happen here.
        """
        operation_id = place.operation_id
        asked = Child(
            child_id(self.journal.state, operation_id),
            self.journal.execution_id,
            workflow,
            inputs,
            left_of(self.journal.state),
        )
        parameters = {"workflow": workflow, "inputs": inputs, "signal": asked.id}
        self._met.add(operation_id)
        digest = canonical_hash(parameters)[:HASH_DIGITS]
        known = self._known(place, operation_id, CHILD_WORKFLOW, digest)
        if known is not None and known.status == COMPLETED:
            return known.result
        if known is not None and known.status == FAILED:
            raise OperationError(known.error or "failed", operation_id, CHILD_WORKFLOW, known.error_names)
        if known is None:
            self._begin(place, operation_id, CHILD_WORKFLOW, parameters, digest)
        await self.journal.durable()
        ended = await self._ended(place.path, asked, drive, is_new=known is None)
        return self._taken(place, self._records(place)[operation_id], ended)

    async def _ended(self, path: str, asked: Child, drive: DriveChild, *, is_new: bool) -> ExecutionState:
        """Return the last state of a child; whoever drives it to its end sends a signal."""

        def heard() -> int:
            return len(self.journal.state.signals.get(asked.id, ()))

        seen = heard()
        child = await drive(asked, again=is_new or not seen)
        while not child.is_over:
            await self.strands[path].park(functools.partial(_is_more, heard, seen))
            seen = heard()
            child = await drive(asked, again=False)
        return child

    def _taken(self, place: Place, record: OperationRecord, child: ExecutionState) -> Any:
        """Record how a child ended, and count what it has consumed since that was last counted."""
        duration, used = self._since(record.started_at), self._not_counted(child)
        if child.lifecycle == COMPLETED:
            result = {"execution_id": child.execution_id, "status": child.lifecycle, "outputs": child.outputs}
            completed = catalog.OperationCompleted(record.operation_id, CHILD_WORKFLOW, duration, result, used)
            self._record(place, completed)
            return result
        error = ExecutionError(
            f"child execution {child.execution_id} of {child.workflow_name!r} is {child.lifecycle}: {child.error}"
        )
        names = names_of(error)
        self._record(
            place,
            catalog.OperationFailed(record.operation_id, CHILD_WORKFLOW, duration, str(error), names, usage=used),
        )
        raise OperationError(str(error), record.operation_id, CHILD_WORKFLOW, names)

    def _not_counted(self, child: ExecutionState) -> dict[str, int] | None:
        counted = self.journal.state.ledger.children.get(child.execution_id)
        used = child.usage.to_dict() | {"requests": child.ledger.llm_calls}
        if counted is None:
            return {name: value for name, value in used.items() if value} or None
        return {"requests": used["requests"] - counted} if used["requests"] > counted else None

    # --- making the call -------------------------------------------------------------------------------------------

    def _begin(
        self,
        place: Place,
        operation_id: str,
        operation_type: str,
        parameters: Any,
        digest: str,
        *,
        reserved: Reserved | None = None,
    ) -> None:
        held = None if reserved is None else reserved.to_dict() or None
        started = catalog.OperationStarted(
            operation_id, operation_type, parameters, digest, place.iteration_index, place.key, held
        )
        self._record(place, started)

    async def _broken_off(self, place: Place, call: Call, operation_id: str) -> Any:
        """Ask what became of a call that broke off; return its result, or make it again."""
        answer = await self._settled(place, call, self._records(place)[operation_id])
        return await self.run(place, call) if answer == RETRY else answer["result"]

    async def _make(self, place: Place, operation_id: str, call: Call) -> Any:
        started_at = self.journal.clock.now()
        try:
            result = storable(await contained(self._call(operation_id, call)), "result")
        except Exception as error:  # whatever the call raises is the operation's recorded outcome
            if not call.repeatable and leaves_outcome_unknown(error):
                return await self._broken_off(place, call, operation_id)
            self._fail(place, operation_id, call, started_at, error)
            raise
        used = call.usage(result) if call.usage is not None else None
        duration = self._since(started_at)
        self._record(
            place, catalog.OperationCompleted(operation_id, call.operation_type, duration, result, used or None)
        )
        return result

    def _call(self, operation_id: str, call: Call) -> Awaitable[Any]:
        if call.streamed is None or not self._texts.is_heard(self.journal.execution_id):
            return call.make()
        return self._texts.hand_on(self.journal.execution_id, operation_id, call.streamed)

    def _fail(self, place: Place, operation_id: str, call: Call, started_at: int, error: Exception) -> None:
        text = text_of(error)
        duration, names = self._since(started_at), names_of(error)
        failed = catalog.OperationFailed(operation_id, call.operation_type, duration, text, names)
        self._record(place, failed)

    def _since(self, started_at: int) -> int:
        return max(0, self.journal.clock.now() - started_at) * 1000

    def _record(self, place: Place, data: catalog.Payload) -> None:
        self.journal.record(data, place.path, place.step)

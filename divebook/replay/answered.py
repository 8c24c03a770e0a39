"""What the code of steps is given where its log is driven again: operations answered from that log, and none made.

Only what has no effect outside is done again: scripts, over their recorded clock and chance, and what a turn of an
agent does between its calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import anyio

from divebook.engine.instructions import Fact
from divebook.engine.operations import ENCLOSING, SCRIPT_EXECUTION, VERSION_DECISION, Place
from divebook.engine.records import OperationRecord
from divebook.engine.state import COMPLETED, FAILED, PENDING, RUNNING, ExecutionState
from divebook.errors import DivergenceError
from divebook.events import Event, catalog
from divebook.events.catalog import Payload
from divebook.execution.beyond import PLAIN, Beside, Unserved
from divebook.execution.once import CarryOut, Once
from divebook.execution.recorder import Call, Recorder
from divebook.execution.strands import Suspended
from divebook.execution.waits import Waits
from divebook.execution.wanted import Wanted
from divebook.questions import Question
from divebook.replay.tape import ASK, BEGIN, END, Diverged, Tape

DONE_AGAIN = ENCLOSING | {SCRIPT_EXECUTION}
_OUT_OF_TIME = "TimeoutError"
"""Class of the error of a script that took too long, which is not tried again."""


class TapeClock:
    """Stands still at the event that was met last: what asks for time outside an operation takes what is recorded."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def now(self) -> int:
        """Return microseconds since 1970, UTC."""
        return self._tape.latest.recorded_at

    async def sleep(self, seconds: float) -> None:
        """Let no time limit ring: the log says what took too long."""
        del seconds
        await anyio.sleep_forever()


class NoChance:
    """Chance that nothing depends on: where it counts, it is an operation."""

    def bits(self, count: int) -> int:
        """Return no bits."""
        del count
        return 0


class TapeLog:
    """Stands in for the log of code that is driven again: what it records is compared."""

    error: Exception | None = None

    def __init__(self, tape: Tape) -> None:
        self._tape, self.clock = tape, TapeClock(tape)
        self.execution_id = tape.execution_id

    @property
    def recorded(self) -> int:
        """Number of the event that was met last."""
        return self._tape.latest.sequence

    @property
    def state(self) -> ExecutionState:
        """How things stand for the code that is driven."""
        return self._tape.state

    @property
    def present(self) -> ExecutionState:
        """The same."""
        return self._tape.state

    @property
    def moment(self) -> int:
        """When the event that was met last was recorded."""
        return self._tape.latest.recorded_at

    def record(self, data: Payload, path: str = "", step: str = "", *, may_wait: bool = False) -> None:
        """Compare a fact with the log; raises `Diverged`."""
        del may_wait
        self._tape.claim(data, path, step)

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Compare several."""
        for fact in facts:
            self.record(fact.data, fact.path, fact.step)

    async def durable(self) -> None:
        """Return: it is written."""

    async def event(self, sequence: int) -> Event:
        """Return one event."""
        return self._tape.event(sequence)

    def seconds_since(self, moment: int) -> float:
        """Return no time: what took too long is recorded."""
        del moment
        return 0.0


class NothingBeyond:
    """What the log of an execution does not have is not made, and no book or rule outside it is written to."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    @property
    def writes(self) -> bool:
        """Return False."""
        return False

    @property
    def asks_models(self) -> bool:
        """Return False."""
        return False

    def answer(self, wanted: Wanted, beside: Beside) -> Unserved:
        """Let code rest there."""
        del wanted, beside
        return Unserved.REST

    def opened(self, workspace: str) -> None:
        """Return nothing: the log has the workspaces that it has."""

    def settled(self, asked: Question) -> None:
        """Answer no question in place of its own recorded answer."""

    def child_like(self, wanted: Wanted) -> None:
        """Return nothing: no other workflow runs."""

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return what an operation was made with."""
        begun = self._tape.peek((BEGIN, operation_id))
        data = None if begun is None else self._tape.event(begun).data
        return getattr(data, "setting", None) or {}


class AnsweredOnce(Once):
    """The one look-up of operations, over a log that is only compared with.

    Attributes
    ----------
    answered
        How many operations the log has answered, by type.
    """

    def __init__(self, journal: TapeLog, tape: Tape, waits: Waits) -> None:
        super().__init__(journal, NothingBeyond(tape))
        self.tape, self._waits = tape, waits
        self.answered: Counter[str] = Counter()

    @staticmethod
    def only_settles(state: ExecutionState, place: Place) -> bool:
        """Return False: what began, and what nobody began, the log says."""
        del state, place
        return False

    def enter(self, path: str, *, is_new: bool) -> None:
        """Look everything up, also of a step that begins: the log may have it."""
        del is_new
        super().enter(path, is_new=False)

    # --- operations --------------------------------------------------------------------------------------------------

    def run(self, wanted: Wanted, carry_out: CarryOut, beside: Beside = PLAIN) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of an operation; see `Once.run`."""
        return self._from_log(wanted, carry_out, beside)

    async def _from_log(self, wanted: Wanted, carry_out: CarryOut, beside: Beside) -> Any:
        place, operation_id = wanted.place, wanted.operation_id
        self.tape.require_agreement(place.path)
        self._meet(place.path, operation_id)
        known = self.record_of(place, operation_id)
        if known is not None and known.status != PENDING:
            if known.operation_type != wanted.operation_type or known.parameters_hash not in (None, wanted.digest):
                raise self._otherwise(known.started_sequence, wanted, beside)
            if known.status == COMPLETED:
                return known.result
            if known.status == FAILED:
                raise self.failing(place, known)
        if wanted.operation_type in DONE_AGAIN and not self._ran_out_of_time(operation_id):
            return await carry_out(known if known is not None and known.status == RUNNING else None)
        return await self._answer(wanted, beside, has_begun=known is not None and known.status == RUNNING)

    def _otherwise(self, sequence: int, wanted: Wanted, beside: Beside) -> Diverged:
        place, setting = wanted.place, beside.setting
        begun = catalog.OperationStarted(
            wanted.operation_id,
            wanted.operation_type,
            wanted.parameters,
            wanted.digest,
            setting=None if setting is None else setting.told,
        )
        return self.tape.differ(sequence, place.path, place.step, begun)

    async def _answer(self, wanted: Wanted, beside: Beside, *, has_begun: bool) -> Any:
        """Go through all that the stretch has of an operation; return what it came to, or raise that."""
        place, operation_id = wanted.place, wanted.operation_id
        while (found := self.tape.next_of(operation_id)) is not None:
            what, sequence = found
            if what == BEGIN:
                self.begin(wanted, None, beside.setting, beside.within)
                has_begun = True
            elif what == END:
                await self.tape.in_turn(place.path, sequence)
                return self._ended(wanted, beside, sequence)
            else:
                self.tape.take(sequence)  # what became of it was asked, and after that it may have been made again
        if not has_begun:
            self.tape.want(place.path, place.step, str(wanted))
        return await self._never(place)

    def _ended(self, wanted: Wanted, beside: Beside, sequence: int) -> Any:
        data = self.tape.take(sequence).data
        self.answered[wanted.operation_type] += 1
        record = self.record_of(wanted.place, wanted.operation_id)
        assert record is not None  # noqa: S101 - its end was met just now
        if not isinstance(data, catalog.OperationCompleted):
            raise self.failing(wanted.place, record)
        if beside.noted is not None:
            self.record(wanted.place, beside.noted(data.result))
        return data.result

    async def _never(self, place: Place) -> NoReturn:
        """Wait as a call does that did not return before the log ended: others go on, and may have it unwound."""
        await self._waits.until(place.path, lambda: False)
        raise Suspended

    def _ran_out_of_time(self, operation_id: str) -> bool:
        ended = self.tape.peek((END, operation_id))
        data = None if ended is None else self.tape.event(ended).data
        return isinstance(data, catalog.OperationFailed) and _OUT_OF_TIME in (data.error_names or ())

    # --- what code asks of the log ---------------------------------------------------------------------------------

    def known_at(self, place: Place) -> OperationRecord | None:
        """Return what the log has of the operation at a place, also where the code has still to come to it.

        So code that does otherwise where the log has something does as after a restart: no policy is asked again.
        """
        known, operation_id = self.record_of(place, place.operation_id), place.operation_id
        if known is not None and known.status != PENDING:
            return known
        ahead = self.tape.ahead(place.path, operation_id)
        return known if ahead is None else ahead._replace(setting_hash=None)

    def question_at(self, place: Place) -> Question | None:
        """Return the question at a place, also where the code has still to come to it."""
        asked = self.tape.peek((ASK, self.question_id(place)))
        if asked is None:
            return super().question_at(place)
        return self.tape.state_at(asked).interrupts.get(self.question_id(place))

    def has_history_ahead(self, place: Place) -> bool:
        """Whether the log goes on in this step."""
        return self.tape.has_left(place.path) or super().has_history_ahead(place)

    def is_known(self, wanted: Wanted) -> bool:
        """Whether the log has an operation in the stretch, or before it."""
        return self.known_at(wanted.place) is not None

    def _refuse(self, place: Place, error: DivergenceError) -> NoReturn:
        """Note that a question, or a call in its place, is not that of the log."""
        record = self.record_of(place, place.operation_id)
        asked = self.tape.asked_at(self.question_id(place)) if record is None else record.started_sequence
        sequence = asked or self.tape.next_of_path(place.path) or self.tape.high
        changes = f" ({'; '.join(error.changes)})" if error.changes else ""
        raise self.tape.differ(sequence, place.path, place.step, f"{error.requested}{changes}") from error


class AnsweredWaits(Waits):
    """Waits for what the log says: recorded answers are there at once."""

    def __init__(self, journal: TapeLog, tape: Tape) -> None:
        super().__init__(journal)
        self._tape = tape
        self.answered = 0
        """How many questions the log has answered."""

    async def answer(self, path: str, interrupt_id: str) -> Question:
        """Return a question with its recorded answer; without one its code waits, and what comes after it is cut."""
        settled = self._tape.settled_at(interrupt_id)
        if settled is not None:
            self.answered += settled >= self._tape.low
            self._tape.advance(path, settled)
        return await super().answer(path, interrupt_id)


class AnsweredRecorder(Recorder):
    """What a step asks for that is not deterministic, answered from its log."""

    once: AnsweredOnce

    def run(self, wanted: Wanted, call: Call) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of a call; see `Recorder.run`."""
        if wanted.operation_type == VERSION_DECISION and not self.once.is_known(wanted):
            return self._decided(call)
        if wanted.operation_type == SCRIPT_EXECUTION:
            call = call._replace(make=partial(self._compute, wanted, call.make))
        if call.reserved is not None and not self.once.is_known(wanted):
            return self._within_bounds(wanted, call)
        return super().run(wanted, call)

    async def _compute(self, wanted: Wanted, make: Callable[[], Awaitable[Any]]) -> Any:
        """Run a script again; its end waits for its turn, as recorded ends do.

        Of items in parallel, the first to fail ends the step, so a script that is faster now would end it too early
        (test_items_that_fail_in_parallel_are_verified_in_their_order).
        """
        tape = self.once.tape
        tape.computing += 1
        try:
            return await make()
        finally:
            tape.computing -= 1
            ended = tape.peek((END, wanted.operation_id))
            if ended is not None:
                await tape.in_turn(wanted.place.path, ended)

    async def _decided(self, call: Call) -> Any:
        """Return which version is followed where the log was past that place before there was a choice."""
        return await call.make()

    async def _within_bounds(self, wanted: Wanted, call: Call) -> Any:
        """Let a bound refuse the call that it has refused: the log has nothing else of it."""
        assert call.reserved is not None  # noqa: S101 - that is what was asked
        await self.asking.within_bounds(wanted.place, call.reserved)
        return await super().run(wanted, call)

"""What a step asks for that is not deterministic, carried out once: calls here, the rest in modules of their own.

`once` looks an operation up and records it, `signals` waits, `children` runs other workflows, `asking` asks people,
`outcomes` asks what became of a call that began and has no end in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from divebook.engine.operations import CONSUMED, Reserved, Setting, Slot, StreamedCall, consumption_of
from divebook.engine.records import OperationRecord
from divebook.engine.retries import names_of
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.execution.approving import ApprovalPolicy, Approving
from divebook.execution.asking import Asking
from divebook.execution.beyond import Beside
from divebook.execution.breaking_off import leaves_outcome_unknown
from divebook.execution.children import Children
from divebook.execution.clock import Chance
from divebook.execution.containment import contained
from divebook.execution.enclosing import Body, entered
from divebook.execution.error_texts import clean_failure, clean_text
from divebook.execution.lost_results import add_advice, described, lost_in, told_of
from divebook.execution.once import Once
from divebook.execution.open_workspaces import Lender, Stay
from divebook.execution.outcomes import UnknownOutcomes
from divebook.execution.seen_through import seen_through
from divebook.execution.signals import Signals
from divebook.execution.streaming import TextStreams
from divebook.execution.surrounded import SurroundedCalls
from divebook.execution.waits import Waits
from divebook.execution.wanted import Wanted
from divebook.execution.workspaces import KEEP, RESTORE, Workspaces


class Call(NamedTuple):
    """A call that is not deterministic."""

    make: Callable[[], Awaitable[Any]]
    usage: Callable[[Any], Mapping[str, int]] | None = None
    """Reads what was consumed from the result."""
    repeatable: bool = False
    """Whether making it twice does no harm."""
    reserved: Reserved | None = None
    """What a model call may consume at most; None for any other call."""
    streamed: StreamedCall | None = None
    """Makes the call while somebody listens to its text."""
    noted: Callable[[Any], catalog.Payload] | None = None
    """What the log is to say besides, in the words of the catalogue, once the call has returned."""
    slot: Slot | None = None
    """What it must hold before it begins."""
    setting: Setting | None = None
    """What it is made with that is only kept."""
    within: str | None = None
    """Id of the operation that holds it."""
    done: Callable[[Any], Any] | None = None
    """Makes of what a person says it has returned what it would have returned."""
    workspace: str | None = None
    """The workspace that it works in."""
    seen: Callable[[], str] | None = None
    """Says what can be seen of it where a person is asked whether it went through."""
    undone: str | None = None
    """What has its undoing, where it has one, as `divebook.events.catalog.OperationStarted` says it."""


class Unknown(NamedTuple):
    """What comes of a call of which nobody knows whether it took effect."""

    cause: str


class Recorder:
    """The operations of one execution; made on the loop on which they run."""

    def __init__(  # noqa: PLR0917 - each is what one of its parts is made of
        self,
        once: Once,
        waits: Waits,
        chance: Chance,
        texts: TextStreams,
        policy: ApprovalPolicy,
        lender: Lender | None = None,
        surrounded: SurroundedCalls | None = None,
    ) -> None:
        self.journal, self.chance, self.loop = once.journal, chance, asyncio.get_running_loop()
        self.once, self.waits = once, waits
        self.signals = Signals(self.once, self.waits)
        self.children = Children(self.once, self.waits, chance)
        self.asking = Asking(self.once, self.waits)
        self.approving = Approving(self.once, policy)
        self._unknown = UnknownOutcomes(self.once, self.waits)
        self.workspaces = Workspaces(self.once, self.waits, lender)
        self._texts, self._surrounded = texts, surrounded or SurroundedCalls()
        self._at_rest: Callable[[], None] | None = None
        """Set once nothing more is to begin."""
        self._under_way = 0
        """Calls that run and may not be made twice."""
        self._unwritten: list[Callable[[], None]] = []
        self.is_given_up = False
        """Whether the execution was cancelled: nobody wants to know what its calls come to, unless they are undone."""
        self.is_broken_off = False
        """Whether it is left as if the process had ended."""

    def pause(self, at_rest: Callable[[], None]) -> None:
        """Begin no further call, and call `at_rest` as soon as none is under way that may not be made twice."""
        self._at_rest, self.once.begins_nothing = at_rest, True
        if not self._under_way:
            at_rest()

    @contextmanager
    def writing(self, write: Callable[[], None]) -> Iterator[None]:
        """Have what a call keeps for a while written before all paths are left: what it has done so far counts."""
        self._unwritten.append(write)
        try:
            yield
        finally:
            self._unwritten.remove(write)

    def leave(self) -> None:
        """Write what calls keep, before their paths are left."""
        for write in self._unwritten:
            write()

    def run(self, wanted: Wanted, call: Call) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of a call, or makes it; see `StepContext.operation`."""

        def carry_out(record: OperationRecord | None) -> Coroutine[Any, Any, Any]:
            if record is not None and not call.repeatable:
                cause = None if record.lost is None else told_of(record.lost)
                return self._settled(wanted, call, record, cause)
            if record is not None and call.workspace is not None:
                self.workspaces.expect(call.workspace, RESTORE)  # it is made again, from the files that it found
            return self._begun(wanted, call)

        if self.once.beyond is None:
            return self.once.run(wanted, carry_out)
        inside = None
        if call.workspace is not None:
            inside = self.workspaces.inside(call.workspace, wanted.place, wanted.operation_id)
        beside = Beside(call.setting, call.within, call.noted, call.done, call.repeatable, inside)
        return self.once.run(wanted, carry_out, beside)

    async def _settled(self, wanted: Wanted, call: Call, record: OperationRecord, cause: str | None = None) -> Any:
        """Return the result that a person gave for a call that may have taken effect, or make it again."""
        seen = "" if call.seen is None else call.seen()
        if call.workspace is not None:
            seen += await self.workspaces.difference(call.workspace, wanted.place)
        settled = await self._unknown.settle(wanted.place, record, wanted.parameters, cause, done=call.done, seen=seen)
        if call.workspace is not None:
            self.workspaces.expect(call.workspace, RESTORE if settled.again else KEEP)
        if settled.again:
            return await self._begun(wanted, call)
        if call.noted is not None:
            self.once.record(wanted.place, call.noted(settled.result))
        return settled.result

    def _begun(self, wanted: Wanted, call: Call) -> Coroutine[Any, Any, Any]:
        return self._begin(wanted, call) if call.slot is None else self._in_slot(wanted, call, call.slot)

    async def _in_slot(self, wanted: Wanted, call: Call, slot: Slot) -> Any:
        while True:
            if call.reserved is not None:  # who waits for a person holds no slot meanwhile
                await self.asking.within_bounds(wanted.place, call.reserved)
            async with slot:
                if call.reserved is None or self.asking.is_within_bounds(call.reserved):
                    return await self._begin(wanted, call)

    async def _begin(self, wanted: Wanted, call: Call) -> Any:
        if call.reserved is not None:
            await self.asking.within_bounds(wanted.place, call.reserved)
            with self.asking.model_call():
                return await self._make(wanted, call)
        if call.workspace is not None:
            return await self._begin_inside(wanted, call, call.workspace)
        return await self._make(wanted, call)

    async def _begin_inside(self, wanted: Wanted, call: Call, workspace: str) -> Any:
        """Make a call that works in a workspace, and record what it has done to the files there."""
        entered = await self.workspaces.enter(workspace, wanted.place)
        with entered.staying(wanted.operation_id, wanted.place):
            inside = call._replace(make=entered.around(call.make), streamed=entered.heard(call.make))
            return await self._make(wanted, inside, entered)

    async def _make(self, wanted: Wanted, call: Call, entered: Stay | None = None) -> Any:
        self._under_way += not call.repeatable
        try:
            record = self.once.begin(wanted, call.reserved, call.setting, call.within, call.undone)
            await self.journal.durable()
            carried_out = self._carried_out(wanted, call, record, entered)
            if call.undone is not None:
                carried_out = seen_through(carried_out, lambda: self.is_broken_off)
            result = await carried_out
            if isinstance(result, Unknown):
                return await self._settled(wanted, call, record, result.cause)
        finally:
            if not call.repeatable:
                self._end()
        return result

    async def _carried_out(self, wanted: Wanted, call: Call, record: OperationRecord, entered: Stay | None) -> Any:
        """Return what comes of a call, recorded: its result, or `Unknown`."""
        started_at = self.journal.clock.now()
        result, has_returned = None, False
        try:
            made = call.make() if call.streamed is None else self._streamed(record, call.make, call.streamed)
            surround = self._surrounded.surround
            if surround is None:
                result = await contained(made, self.loop)
            else:
                with surround(self.journal.execution_id, record.started_sequence):
                    result = await contained(made, self.loop)
            has_returned = True
            result = storable(result, "result")
        except Exception as error:  # whatever the call raises is the operation's recorded outcome
            changed = () if entered is None else await entered.left(wanted.operation_id)
            # What has taken effect is undone with its result, which a person has where the log cannot hold it.
            is_unheld = has_returned and call.undone is not None
            if is_unheld or (not call.repeatable and leaves_outcome_unknown(error)):
                self.workspaces.note(wanted.place, changed)
                return Unknown(clean_failure(error))
            lost = described(result) if has_returned else lost_in(error)
            if call.repeatable:
                lost = None  # it is made again anyway
            if lost is not None:
                add_advice(error)
            used = None
            if call.usage is not None:
                # A reply that was cut off, or that the log cannot hold, was paid.
                used = call.usage(result) if has_returned else consumption_of(vars(error))
                if used:
                    setattr(error, CONSUMED, dict(used))
            told = clean_text(error), names_of(error), used
            failed = self.once.fail(wanted.place, record, *told, since=started_at, raised=error, lost=lost)
            self.workspaces.note(wanted.place, changed)
            raise failed from error
        changed = () if entered is None else await entered.left(wanted.operation_id)
        used = None if call.usage is None else call.usage(result)
        # A turn of an agent goes on at once with what comes next, whose beginning then takes the same commit.
        self.once.complete(wanted.place, record, result, used, since=started_at, may_wait=call.within is not None)
        if call.noted is not None:
            self.once.record(wanted.place, call.noted(result))
        self.workspaces.note(wanted.place, changed)
        return result

    def enclosing(
        self, wanted: Wanted, body: Body, setting: Setting | None = None, within: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return what awaits the recorded result of an operation that holds others; see `StepContext.enclosing`."""

        async def carry_out(record: OperationRecord | None) -> Any:
            if record is None:
                record = self.once.begin(wanted, None, setting, within)
            return await entered(self.once, self.loop, wanted, record, body)

        return self.once.run(wanted, carry_out, Beside(setting, within))

    def _streamed(
        self, record: OperationRecord, make: Callable[[], Awaitable[Any]], streamed: StreamedCall
    ) -> Awaitable[Any]:
        execution_id = self.journal.execution_id
        is_heard = self._texts.is_heard(execution_id)
        return self._texts.hand_on(execution_id, record.operation_id, streamed) if is_heard else make()

    def _end(self) -> None:
        """Note that a call that may not be made twice is under way no more."""
        self._under_way -= 1
        if self._at_rest is not None and not self._under_way:
            self._at_rest()

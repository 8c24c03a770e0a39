"""How an execution that goes on with another definition answers what its log does not have: with what was done before.

It is no what-if: what its source has no result for is carried out, timers run, and clock and chance are the real ones.
But nothing is done twice that was done before and is asked for again, wherever it stands now: a step was inserted or
renamed, or another path had come further (`tests/replay/test_going_on.py`). Failures that ended the source are no
results, and nor are questions that expired. Nor are, where it is to go on only with what its functions would do again,
the results of edited functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from divebook.engine.operations import RANDOM_GENERATION, TIME_ACCESS, TIMER
from divebook.engine.undone import undone_in
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.beyond import Beside, Likeness, Served, Unserved
from divebook.execution.clock import Clock
from divebook.execution.forks import made_again
from divebook.execution.wanted import Wanted
from divebook.replay.recorded_answers import COMPUTED, ReadsOnly, RecordedAnswers

EditedCalls = Callable[[str, Sequence[Event]], Collection[str]]
"""Returns the operations of a log, of a workflow of that name, whose functions were edited since."""


class Grounds(NamedTuple):
    """What of an environment says what is answered, and how."""

    reads_only: ReadsOnly
    clock: Clock
    edited: EditedCalls


class ReusedAnswers(RecordedAnswers):
    """Answers the operations of an execution that goes on; see `RecordedAnswers`.

    Parameters
    ----------
    left_out
        Ids of operations of the source whose results do not count.
    """

    def __init__(
        self,
        source: Sequence[Event],
        own: Iterable[Event],
        forked: Event,
        reads_only: ReadsOnly,
        clock: Clock,
        *,
        left_out: Collection[str] = (),
        rests: bool = False,
    ) -> None:
        super().__init__(source, own, forked, reads_only, clock, rests=rests)
        undone = undone_in(source, is_left=True)
        refused = made_again(source).union(left_out, () if undone is None else undone.operations)
        for end in self.pool.left():
            if end.place in refused or isinstance(end.data, catalog.InterruptExpired):
                self.pool.use(end.sequence)

    @property
    def writes(self) -> bool:
        """Whether what is said in books outside its log is written: it is, but in a rehearsal."""
        return not self._rests

    def child_like(self, wanted: Wanted) -> Likeness | None:
        """Return the execution of another workflow that did not complete at a place of the source.

        What that had done is not done again either (`tests/replay/test_gone_on.py`).
        """
        found = self._children.get(wanted.parameters["workflow"], {}).get(wanted.operation_id)
        return None if found is None else Likeness(found, self._tools)

    def answer(self, wanted: Wanted, beside: Beside) -> Served | Unserved:
        """Return what becomes of an operation."""
        kind = wanted.operation_type
        if kind in COMPUTED:
            return Unserved.LIVE
        if kind in (TIME_ACCESS, RANDOM_GENERATION):
            found = self.recorded_at(wanted)
            if found is None and not self._rests:
                return Unserved.LIVE
            return self._continued(wanted) if found is None else self._served(found)
        found = self._found(wanted, beside)
        if found is not None:
            return self._served(found)
        if kind == TIMER and self._rests:
            return super().answer(wanted, beside)
        return self._live(wanted)


def answering(
    source: Sequence[Event], own: Sequence[Event], forked: Event, grounds: Grounds, *, rests: bool = False
) -> RecordedAnswers:
    """Return what answers an execution as its beginning says: a what-if, or one that goes on."""
    begun = forked.data
    assert isinstance(begun, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
    reads_only, clock, edited = grounds
    if begun.tools not in catalog.GOING_ON:
        return RecordedAnswers(source, own, forked, reads_only, clock, rests=rests)
    left_out = edited(begun.workflow_name, source) if begun.tools == catalog.UNEDITED else ()
    return ReusedAnswers(source, own, forked, reads_only, clock, left_out=left_out, rests=rests)

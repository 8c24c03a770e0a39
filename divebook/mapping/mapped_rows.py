"""What a map has given so far, as a frame, and how what failed is called again."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import suppress
from typing import Any, NamedTuple

from divebook.environment import Environment
from divebook.errors import LeaseHeldError, SetupError
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, WAITING
from divebook.events.recorded import opened
from divebook.events.tally import ColumnTally
from divebook.execution.definitions import recorded_opening
from divebook.execution.execution import Execution
from divebook.history.spread import Spread, given_by, spreads_of
from divebook.mapping.rounds import FRAME, GIVEN, inputs_of, known_by
from divebook.steps.actions import REGISTERED
from divebook.steps.rows import Ended
from divebook.text.cuts import one_line
from divebook.text.redaction import shared
from divebook.workflow.definition import Workflow

MOST_WORDS = 120
"""Characters in which a repr says what the rows gave."""


class MappedRows:
    """What a function gave for the rows of a frame.

    Attributes
    ----------
    execution
        The execution that makes the calls, or has made them; of those that were called again the latest one.
    environment, key, workflow
        Where it runs, the start key of the first one, and what all of them run.
    """

    def __init__(self, environment: Environment, execution: Execution, key: str, workflow: Workflow) -> None:
        self.execution, self.environment, self.key, self.workflow = execution, environment, key, workflow

    def wait(self, timeout: float | None = None) -> MappedRows:
        """Wait until all calls have been made, and return itself.

        Where rows are left that wait for an answer, and nothing else can happen, a warning says so. Raises as
        `Execution.wait` with `check` does.
        """
        self.execution.wait(timeout)
        return self._looked_at()

    def __await__(self) -> Generator[Any, None, MappedRows]:
        """Do what `wait` does, without holding up the loop."""
        yield from self.execution.__await__()
        return self._looked_at()

    def _looked_at(self) -> MappedRows:
        """Say what has become of it, or what it waits for; waits for nothing, on whatever loop."""
        if self.execution.checked().status == WAITING:
            warnings.warn(f"{self!r}. Answer that; wait() then goes on waiting", stacklevel=3)
        return self

    @property
    def frame(self) -> Any:
        """The frame with the columns of the results beside it, by its index; ``error`` says why a row failed.

        Rows that have not been called yet have nothing. The calls of those that had failed and were called again hold.
        """
        from divebook.events.arrow.rows import joined

        return joined(self._given, self._outcome())

    @property
    def failed(self) -> Any:
        """The rows of `frame` that failed."""
        found = self.frame
        return found[found["error"].notna()]

    @property
    def done(self) -> int:
        """How many rows have ended."""
        return len(self._outcome())

    @property
    def spread(self) -> tuple[Spread, ...]:
        """What the first columns of the results hold: the most frequent values, or bins of numbers, with their counts.

        Of those columns that have few different values, or numbers; ``words`` is a line for one of them.
        """
        return _spread_of(self._outcome())

    def retry_failed(self, *, unknown: bool = False) -> MappedRows:
        """Call the function again for the rows that failed, with its code of now; the others keep what they have.

        Where the calls broke off, so that rows are left which no call was made for, they go on.

        Parameters
        ----------
        unknown
            Also for rows of which nobody knows what they gave, since a person said that their calls, which a process
            had left, are not to be made again.

        Raises
        ------
        SetupError
            Not all rows have ended.
        """
        from divebook.events.arrow.rows import failed_in, part_of, settled_in

        rounds = self._rounds()
        if rounds[-1].status == FAILED:  # the calls themselves broke off, and rows are left
            return self.resumed()
        if not all(each.state.is_over for each in rounds):
            raise SetupError(f"{self.workflow.name} has not ended: wait for it, and then call what failed again")
        outcome = self._outcome()
        positions = failed_in(outcome) if unknown else settled_in(outcome)
        if positions:
            begun = recorded_opening(rounds[0].id, self.environment.store)
            inputs = inputs_of(self.workflow, part_of(self._given, positions), begun.inputs.get(GIVEN))
            key = self._round_key(len(rounds))
            self.execution = self.environment.start(self.workflow, inputs, key=key, bounds=begun.bounds)
        return self

    def resumed(self) -> MappedRows:
        """Have the calls go on that a process has left, or that broke off with an error, and return it."""
        self.execution = self._rounds()[-1]
        made, status = REGISTERED.get(self.workflow.steps[0].action or ""), self.execution.status
        # A person may have said of calls that may not be made twice that they failed.
        if status == CANCELLED or (status == FAILED and made is not None and not made.is_repeatable):
            way_on = f"environment.resume({self.execution.id!r}) goes on with it, again=True begins anew"
            warnings.warn(f"{self.workflow.name} has ended as {status}, and stays so: {way_on}", stacklevel=4)
        elif (status == FAILED or not self.execution.state.is_over) and not self.execution.is_live:
            with suppress(LeaseHeldError):  # another process makes them
                self.execution = self.environment.resume(self.execution.id)
        return self

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        from divebook.events.arrow.rows import failed_in, settled_in

        outcome = self._outcome()
        failed, settled = len(failed_in(outcome)), len(settled_in(outcome))
        told = f", {failed:,} of which failed" if failed else ""
        told += ": .retry_failed() calls those again" if settled else ""
        if failed > settled:
            told += f" ({failed - settled:,} of unknown outcome only with unknown=True)"
        told += "" if self.execution.status == COMPLETED else f"; {self.execution.standing}"
        gave = "".join(f"; {shared().text(spread.words)}" for spread in _spread_of(outcome))
        return f"<{self.workflow.name}: {len(outcome):,} of {len(self):,} rows{told}{one_line(gave, MOST_WORDS)}>"

    @property
    def _given(self) -> Any:
        return opened(self._rounds()[0].state.inputs[FRAME])

    def _rounds(self) -> list[Execution]:
        """Return the executions: the first one, and one for each time that what had failed was called again."""
        found: list[Execution] = []
        while (known := known_by(self.environment, self._round_key(len(found)))) is not None:
            found.append(known)
        return found

    def _round_key(self, number: int) -> str:
        return f"{number} after {self.key}" if number else self.key

    def _outcome(self) -> Any:
        from divebook.events.arrow.rows import outcome_of

        rounds = [(len(opened(each.state.inputs[FRAME])), _parts(each)) for each in self._rounds()]
        return outcome_of(len(self), rounds)


def _spread_of(outcome: Any) -> tuple[Spread, ...]:
    from divebook.events.arrow.counted import count_frame

    tallies: dict[str, ColumnTally] = {}
    count_frame(outcome, tallies)
    return spreads_of(tallies)


def _parts(execution: Execution) -> list[Any]:
    """Return what the rows of an execution have given, in parts: those of a function, or one of all others."""
    facts = [event.data for event in execution.history()]
    ended: dict[int, Ended] = {}
    for fact in facts:
        if isinstance(fact, catalog.IterationCompleted):
            ended[fact.iteration_index] = fact.iteration_index, opened(given_by(fact.result)), None
        elif isinstance(fact, catalog.IterationFailed):
            ended[fact.iteration_index] = fact.iteration_index, None, fact.error
    parts = [fact.result for fact in facts if isinstance(fact, catalog.RowsCompleted)]
    return [*parts, *([_ItemsPart([*ended.values()])] if ended else [])]


class _ItemsPart(NamedTuple):
    """Rows that were items of a step."""

    ended: list[Ended]

    def open(self) -> Any:
        """Return what they gave as a frame."""
        from divebook.events.arrow.rows import frame_of

        return frame_of(self.ended)

"""How an execution stood after each event of its log, backwards as cheap as forwards.

A state is kept every 256 events (they share their structure, so that this costs little), and events are read from the
store a block at a time, when somebody asks. A list of all events and states would make each full search for garbage
take longer than all the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from divebook.engine.evolve import evolve, fold
from divebook.engine.state import ExecutionState
from divebook.errors import DivebookError
from divebook.events import Event
from divebook.events.bulk import collector_resting

KEPT_EVERY = 256
"""Events between two states that are kept, and of a block."""
BLOCKS = 4
"""Blocks that are held, those used last: a step over the border of two of them costs nothing the second time."""
READ_ON = 4096
"""Events that are read at once where many follow one another."""

Read: TypeAlias = Callable[[int, int], Sequence[Event]]
"""Returns the events after a sequence number, at most so many."""


@dataclass(slots=True)
class _Block:
    """Events that follow one another, and the states before and after them as far as somebody asked."""

    events: Sequence[Event]
    states: list[ExecutionState]


class Positions:
    """The states and events of one log, by position: 0 is before the first event, n is after event n.

    Parameters
    ----------
    read
        Reads events of the log; called from any thread.
    total
        Returns how many events there are by now.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> positions = Positions.of([Event("event_1", "exec_1", 1, 1, catalog.ExecutionStarted("demo", {"x": 1}))])
    >>> positions.state_at(0).status, positions.state_at(1).status
    ('pending', 'running')
    """

    def __init__(
        self, execution_id: str, read: Read, total: Callable[[], int], *, kept_every: int = KEPT_EVERY
    ) -> None:
        self.execution_id = execution_id
        self._read, self._total, self._every = read, total, kept_every
        self._kept = [ExecutionState(execution_id)]
        """States after events 0, `kept_every`, 2 `kept_every` ... as far as anybody asked."""
        self._front = self._kept[0]
        """The state as far as the log was folded."""
        self._blocks: dict[int, _Block] = {}
        self._lock = threading.RLock()

    @classmethod
    def of(cls, events: Sequence[Event], *, kept_every: int = KEPT_EVERY) -> Positions:
        """Return the positions of events that are at hand, which may become more."""
        execution_id = events[0].execution_id if events else ""
        return cls(
            execution_id,
            lambda after, limit: events[after : after + limit],
            lambda: len(events),
            kept_every=kept_every,
        )

    @property
    def total(self) -> int:
        """How many events there are by now."""
        return self._total()

    def state_at(self, sequence: int) -> ExecutionState:
        """Return how the execution stood after an event; 0 is before the first.

        Raises
        ------
        IndexError
            There is no such event.
        CorruptStoreError
            An event up to there does not fit those before it.
        """
        if not 0 <= sequence <= self.total:
            raise IndexError(f"there is no position {sequence}: the log has {self.total} events; take one from 0 on")
        number, place = divmod(sequence, self._every)
        with self._lock:
            self._fold_to(number * self._every)
            block = self._block(number, place)
            states = block.states
            for event in block.events[len(states) - 1 : place]:
                states.append(evolve(states[-1], event))
            return states[place]

    def event_at(self, sequence: int) -> Event:
        """Return one event. Raises `IndexError`."""
        if not 1 <= sequence <= self.total:
            raise IndexError(f"there is no event {sequence}: the log has {self.total} events; take one from 1 on")
        number, place = divmod(sequence - 1, self._every)
        with self._lock:
            return self._block(number, place + 1).events[place]

    def events(self, after: int = 0, stop: int | None = None) -> Sequence[Event]:
        """Return the events that follow `after`, up to and with `stop`.

        Where they follow those that were folded, they are folded in passing, so that a state is near to each of them;
        what does not fit the log is told where a state is asked for.
        """
        last = self.total if stop is None else stop
        events = self._read(after, max(0, last - after))
        with self._lock, suppress(DivebookError):
            self._fold(events)
        return events

    def onwards(self, after: int) -> Iterator[Event]:
        """Yield the events that follow `after`, as many as there are by now."""
        for begins in range(after, self.total, READ_ON):
            yield from self._read(begins, READ_ON)

    def backwards(self, before: int) -> Iterator[Event]:
        """Yield the events before event `before`, the newest first."""
        stop, size = min(before - 1, self.total), self._every
        while stop > 0:
            begins = max(0, stop - size)
            yield from reversed(self._read(begins, stop - begins))
            stop, size = begins, READ_ON

    def _block(self, number: int, events: int) -> _Block:
        """Return a block with at least so many events; its states begin with the one before, where that is kept."""
        block = self._blocks.pop(number, None)
        if block is None or len(block.events) < events:
            states = block.states if block is not None else []
            block = _Block(self._read(number * self._every, self._every), states)
        if not block.states and number < len(self._kept):
            block.states.append(self._kept[number])
        self._blocks[number] = block
        while len(self._blocks) > BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        return block

    def _fold_to(self, sequence: int) -> None:
        with collector_resting():
            while (known := self._front.last_sequence) < sequence:  # no further: what follows may be damaged
                self._fold(self._read(known, min(READ_ON, sequence - known)))

    def _fold(self, events: Sequence[Event]) -> None:
        """Go on folding with events, where they follow what was folded; the state of each border is kept."""
        begins = self._front.last_sequence - (events[0].sequence - 1 if events else 0)
        while 0 <= begins < len(events):
            ends = begins + self._every - self._front.last_sequence % self._every
            self._front = fold(self.execution_id, events[begins:ends], self._front)
            if self._front.last_sequence == len(self._kept) * self._every:
                self._kept.append(self._front)
            begins = ends

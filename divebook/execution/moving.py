"""An execution that leaves its store in a file, to go on where that is imported.

Whatever happens in between, it can go on in one place at most: the log is on disk, without its end line, before the
store is told that the execution has moved, and the end line, without which no import takes the file, is written after
that. A process that dies in between leaves either an execution that has not moved, or one that has moved and whose file
is written by moving it once more (tests/execution/test_moving.py dies at each point).
"""

from __future__ import annotations

from pathlib import Path

from divebook.engine.evolve import fold
from divebook.engine.inbox import facts_of
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionError
from divebook.events.catalog import MOVED, ExecutionMoved
from divebook.events.event import Event
from divebook.events.record import Record
from divebook.execution.children import running_children
from divebook.execution.clock import Clock, Ids
from divebook.execution.leases import HANDS
from divebook.store.base import EventStore
from divebook.store.batches import Batch
from divebook.store.durability import FULL
from divebook.store.jsonl import flush, writing


def move_out(
    store: EventStore, execution_id: str, file: str | Path, clock: Clock, ids: Ids, *, overwrite: bool = False
) -> int:
    """Write an execution to a file, and end it here as moved; return how many events the file has.

    One that has moved already is written once more: import one of the two files only.

    Raises
    ------
    ExecutionError
        It has ended otherwise, or holds what cannot move: a message that it has not taken in, a child under way.
    LeaseHeldError
        Somebody drives it.
    """
    with writing(file, overwrite=overwrite) as lines:
        if store.record(execution_id).status == MOVED:
            lines.events(store.read(execution_id))
        else:
            with HANDS.taking(store, execution_id) as lease:
                events = store.read(execution_id)
                _check_movable(store, fold(execution_id, events))
                now, last = clock.now(), len(events)
                moved = Event(ids.event(now), execution_id, last + 1, now, ExecutionMoved(str(file)))
                lines.events([*events, moved])
                flush(lines.stream)
                batch = Batch(execution_id, last, [Record.of(moved)], lease.token, durability=FULL)
                (refusal,) = store.append_all([batch])
                if refusal is not None:
                    raise refusal
        lines.end(MOVED, moved=True)
    return lines.count


def _check_movable(store: EventStore, state: ExecutionState) -> None:
    name = f"execution {state.execution_id}"
    if state.is_over:
        raise ExecutionError(f"{name} is {state.status}; export it without --move")
    if facts_of(state, store.inbox(state.execution_id, state.taken)):
        raise ExecutionError(
            f"{name} has an answer or a signal that its log has not taken in; resume it, and move it when it rests"
        )
    for child in running_children(state):
        raise ExecutionError(f"{name} waits for {child}, which it started; move it when that has ended")

"""What a waiting execution waits for: answers, signals, a time; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from divebook.engine.operations import CHILD_WORKFLOW, SIGNAL_WAIT
from divebook.engine.records import OperationRecord
from divebook.engine.state import RUNNING, WAITING, ExecutionState
from divebook.errors import did_you_mean
from divebook.events.event import to_datetime
from divebook.questions import Question
from divebook.text.shown import visible
from divebook.text.times import local_time


class AwaitedSignal(NamedTuple):
    """A signal that a step waits for."""

    name: str
    step: str
    until_us: int | None = None
    """When it stops waiting, microseconds since 1970; None for never."""

    def __str__(self) -> str:
        until = "" if self.until_us is None else f" until {local_time(to_datetime(self.until_us))}"
        return f"the signal {visible(self.name)!r}{until}"


def awaited_signals(state: ExecutionState) -> list[AwaitedSignal]:
    """Return the signals that an execution waits for and that have not come, each name once."""
    found = {
        record.signal: AwaitedSignal(record.signal, step, record.until)
        for step, record in _open_records(state, SIGNAL_WAIT)
        if record.signal is not None and record.signal not in state.signals
    }
    return list(found.values())


def kept_until_taken(state: ExecutionState, name: str) -> str | None:
    """Return in words that no step waits for a signal of that name, which may be misspelled; None if one does."""
    awaited = {signal.name for signal in awaited_signals(state)}
    if name in awaited or state.is_over:
        return None
    waits = f"it waits for {', '.join(map(repr, sorted(awaited)))}" if awaited else "it waits for no signal at present"
    hint = did_you_mean(name, awaited)
    return f"no step waits for the signal {name!r}, which is kept until one does; {waits}{f': {hint}' if hint else ''}"


def waits_for(state: ExecutionState, questions: Iterable[Question]) -> list[str]:
    """Return in words what an execution waits for, if it does: answers to these open questions, signals, children."""
    if state.status != WAITING or state.paused is not None:
        return []
    return [
        *(f"an answer to {asked.id}: {asked.question}" for asked in questions if asked.is_open),
        *map(str, awaited_signals(state)),
        *(f"execution {record.signal}" for _, record in _open_records(state, CHILD_WORKFLOW) if record.signal),
    ]


def _open_records(state: ExecutionState, operation_type: str) -> Iterator[tuple[str, OperationRecord]]:
    for path in state.active_paths():
        for record in path.open.operations.values() if path.open is not None else ():
            if record.operation_type == operation_type and record.status == RUNNING:
                yield path.current_step, record

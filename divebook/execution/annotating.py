"""What people say of executions: tags, notes and labels, each an event of the log, also after the end.

Nothing wakes for it. Who says it takes the lease for a moment and appends; where somebody drives the execution, it is
sent as a message that the driver takes into the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from divebook.engine.inbox import ANNOTATION, Message
from divebook.errors import LeaseHeldError, SetupError
from divebook.events.catalog import ExecutionAnnotated
from divebook.events.codec import checked, storable
from divebook.events.event import Event, to_microseconds
from divebook.events.record import Record
from divebook.execution.clock import Clock, Ids
from divebook.execution.leases import HANDS
from divebook.store.base import EventStore
from divebook.store.batches import Batch


def annotation(
    *,
    tags: Iterable[str] = (),
    untagged: Iterable[str] = (),
    note: str | None = None,
    labels: Mapping[str, Any] | None = None,
    by: str | None = None,
) -> ExecutionAnnotated:
    """Return what a person says, once it is sure that it can be recorded.

    Raises
    ------
    SetupError
        A tag, the note or the name of a label is no text, or nothing is said.
    UnstorableValueError
        The value of a label cannot be recorded.
    """
    if note is not None and not isinstance(note, str):
        raise SetupError(f"a note must be a text, not {note!r}")
    added, removed = [_tag(tag) for tag in tags], [_tag(tag) for tag in untagged]
    told = {name: storable(value, f"label {name}") for name, value in (labels or {}).items() if _is_name(name)}
    if not (added or removed or told) and note is None:
        raise SetupError("nothing is said: give a tag, a note or a label, such as label(quality='good')")
    return checked(ExecutionAnnotated(added or None, removed or None, note, told or None, by))


class Annotating:
    """Adds what people say to the logs of one store.

    Parameters
    ----------
    deliver
        Hands an execution that this process drives what lies in its inbox.
    """

    def __init__(self, store: EventStore, clock: Clock, ids: Ids, deliver: Callable[[str], object]) -> None:
        self._store, self._clock, self._ids, self._deliver = store, clock, ids, deliver

    def annotate(self, execution_id: str, said: ExecutionAnnotated) -> None:
        """Append it, or send it to who drives the execution.

        Raises
        ------
        ExecutionNotFoundError
            There is no such execution.
        """
        if self._append(execution_id, said):
            return
        kept = self._store.post(self._message(execution_id, said))
        self._deliver(execution_id)
        record = self._store.record(execution_id)
        if record.ended_at is not None and record.taken < kept.number:
            self._append(execution_id, said)  # it ended meanwhile, and takes no more messages

    def _append(self, execution_id: str, said: ExecutionAnnotated) -> bool:
        """Append it under a lease of its own; return whether nobody else has one."""
        try:
            with HANDS.taking(self._store, execution_id) as lease:
                record, now = self._store.record(execution_id), self._clock.now()
                event = Event(self._ids.event(now), execution_id, record.last_sequence + 1, now, said)
                wake_at = None if record.wake_at is None else to_microseconds(record.wake_at)
                batch = Batch(execution_id, record.last_sequence, [Record.of(event)], lease.token, wake_at=wake_at)
                (refusal,) = self._store.append_all([batch])
                if refusal is not None:
                    raise refusal
                self._store.release(lease)
        except LeaseHeldError:
            return False
        return True

    def _message(self, execution_id: str, said: ExecutionAnnotated) -> Message:
        now = self._clock.now()
        return Message(execution_id, ANNOTATION, self._ids.event(now), said.to_data(), said.by or "", now)


def _tag(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise SetupError(f"a tag must be a word, not {given!r}; give it a text such as 'baseline'")
    return given.strip()


def _is_name(given: object) -> bool:
    if not isinstance(given, str) or not given.strip():
        raise SetupError(f"a label needs a name, not {given!r}; write it as label(quality='good')")
    return True

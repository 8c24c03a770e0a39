"""What people say of executions: tags, notes and labels, each an event of the log, also after the end.

Nothing wakes for it. Who says it takes the lease for a moment and appends; where somebody drives the execution, it is
sent as a message that the driver takes into the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any

from divebook.engine.inbox import ANNOTATION, Message, annotated
from divebook.errors import LeaseHeldError, SetupError
from divebook.events.catalog import ExecutionAnnotated
from divebook.events.codec import checked, storable
from divebook.events.event import Event, to_microseconds
from divebook.events.record import Record
from divebook.execution.clock import Clock, Ids
from divebook.execution.leases import HANDS
from divebook.store.base import EventStore
from divebook.store.batches import Batch
from divebook.store.leases import Lease
from divebook.store.records import ExecutionRecord

PATIENCE, TICK = 10.0, 0.01
"""Seconds in which an execution that has ended is let go, and between two looks."""
_ONE_AT_A_TIME = threading.Lock()


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
        LeaseHeldError
            It has ended, and somebody holds it all the same: nothing was written.
        """
        held = self._append(execution_id, said)
        if held is not None and self._store.record(execution_id).ended_at is None:
            kept = self._store.post(self._message(execution_id, said))
            self._deliver(execution_id)
            record = self._store.record(execution_id)
            if record.ended_at is not None and record.taken < kept.number:
                self._append_soon(execution_id, None)  # it ended meanwhile, and takes no more messages
        elif held is not None:
            self._append_soon(execution_id, said)

    def _append_soon(self, execution_id: str, said: ExecutionAnnotated | None) -> None:
        """Append it as soon as nobody holds the execution; raise LeaseHeldError if somebody goes on to do so."""
        until = time.monotonic() + PATIENCE
        while (held := self._append(execution_id, said)) is not None:
            if time.monotonic() > until:
                raise held
            time.sleep(TICK)  # for who annotates it as well, or looks whether it is to go on

    def _append(self, execution_id: str, said: ExecutionAnnotated | None) -> LeaseHeldError | None:
        """Append it, and before it what is kept for the execution; return who holds that, if somebody does.

        What is kept comes first, or a later resumption would say it again, and undo what was said since
        (test_what_is_kept_for_a_driver_comes_before_what_is_said_later).
        """
        with _ONE_AT_A_TIME:  # a lease is held by a process, not by a thread
            try:
                with HANDS.taking(self._store, execution_id) as lease:
                    self._write(self._store.record(execution_id), said, lease)
                    self._store.release(lease)
            except LeaseHeldError as error:
                return error
        return None

    def _write(self, record: ExecutionRecord, said: ExecutionAnnotated | None, lease: Lease) -> None:
        kept = list(takewhile(_is_annotation, self._store.inbox(record.execution_id, record.taken)))
        told = [annotated(message) for message in kept]
        facts = [*told, *([] if said is None else [said])]
        now, first = self._clock.now(), record.last_sequence + 1
        events = [
            Event(self._ids.event(now), record.execution_id, number, now, fact)
            for number, fact in enumerate(facts, first)
        ]
        if not events:
            return
        batch = Batch(
            record.execution_id,
            record.last_sequence,
            [Record.of(event) for event in events],
            lease.token,
            wake_at=None if record.wake_at is None else to_microseconds(record.wake_at),
            taken=kept[-1].number if kept else record.taken,
        )
        (refusal,) = self._store.append_all([batch])
        if refusal is not None:
            raise refusal

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


def _is_annotation(message: Message) -> bool:
    return message.kind == ANNOTATION

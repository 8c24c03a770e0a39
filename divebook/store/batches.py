"""What every store does to a batch before writing it: check each event, encode each payload once, note what changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divebook.errors import FencedError, InvalidEventError, UnstorableValueError
from divebook.events.catalog import (
    CANCELLED,
    COMPLETED,
    FAILED,
    RUNNING,
    TERMINAL,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionStarted,
    Payload,
)
from divebook.events.codec import encode
from divebook.events.event import Event, validate
from divebook.store.blobs import BLOB_BYTES, REPEATED_BYTES, outsource, share
from divebook.store.checksums import chain, covered
from divebook.store.leases import Lease

STATUS_AFTER: dict[type[Payload], str] = {
    ExecutionStarted: RUNNING,
    ExecutionResumed: RUNNING,
    ExecutionCompleted: COMPLETED,
    ExecutionFailed: FAILED,
    ExecutionCancelled: CANCELLED,
}
"""The events that change an execution's status, and to what."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What an execution's row says after its latest change of status; times in microseconds."""

    status: str
    ended_at: int | None
    error: str | None


@dataclass(slots=True)  # made for every append: to be frozen would double what that costs
class PreparedBatch:
    """A batch that is well formed in itself; whether it fits the log is for the store to find out."""

    execution_id: str
    expected_sequence: int
    events: tuple[Event, ...]
    payloads: Sequence[bytes]
    """With references in place of `blobs`."""
    covered: Sequence[bytes]
    """What the checksums are made of."""
    size: int
    started: ExecutionStarted | None
    """What a new log begins with; None if the log exists already."""
    turn: Turn | None
    """None if the status stays as it is."""
    blobs: dict[bytes, bytes]
    """The large values among the payloads, by their hash."""
    token: int
    """The writer's fencing token; 0 if it has none."""
    lease: Lease | None
    """The first lease of a new log, to be had together with it."""

    @property
    def last_sequence(self) -> int:
        """Where the log stands once the batch is written."""
        return self.expected_sequence + len(self.events)

    @property
    def ends(self) -> bool:
        """Whether the execution has ended once the batch is written."""
        return self.turn is not None and self.turn.status in TERMINAL

    def checksums(self, previous: int) -> list[int]:
        """Return those of the events, after an event with checksum `previous`."""
        return chain(previous, self.covered)

    def fenced(self, current: int) -> FencedError:
        """Return the error for a log whose latest lease is another."""
        return FencedError(self.execution_id, self.token or None, current)


def prepare(
    execution_id: str, events: Sequence[Event], expected_sequence: int, token: int = 0, lease: Lease | None = None
) -> PreparedBatch:
    """Check and encode a batch.

    Raises
    ------
    InvalidEventError
        ``invalid event at index i: ...``, for the first event that is wrong.
    """
    payloads: list[bytes] = []
    started: ExecutionStarted | None = None
    turn: Turn | None = None
    for index, event in enumerate(events):
        try:
            _check(event, execution_id, expected_sequence + index + 1)
            payloads.append(encode(event.data.to_data()))
        except (InvalidEventError, UnstorableValueError) as error:
            raise _invalid(index, error) from error
        if type(event.data) in STATUS_AFTER:
            turn = turn_after(event)
            if isinstance(event.data, ExecutionStarted):
                started = event.data
    _check_distinct(events)
    blobs = _outsource(events, payloads)
    covers, size = _covers(events, payloads), sum(map(len, payloads))
    return PreparedBatch(
        execution_id, expected_sequence, tuple(events), payloads, covers, size, started, turn, blobs, token, lease
    )


def _invalid(index: int, error: Exception) -> InvalidEventError:
    return InvalidEventError(f"invalid event at index {index}: {error}")


def _outsource(events: Sequence[Event], payloads: list[bytes]) -> dict[bytes, bytes]:
    """Put references in place of large values, and of middling ones that the batch holds several times; return them."""
    blobs: dict[bytes, bytes] = {}
    middling = [index for index, payload in enumerate(payloads) if len(payload) > REPEATED_BYTES]
    if not middling:
        return blobs
    bodies = [events[index].data.to_data() for index in middling]
    if len(middling) > 1:
        bodies = share(bodies, blobs)
    for index, body in zip(middling, bodies, strict=True):
        if blobs:
            payloads[index] = encode(body)
        if len(payloads[index]) > BLOB_BYTES:
            payloads[index], found = outsource(body)
            blobs |= found
    return blobs


def _covers(events: Sequence[Event], payloads: Sequence[bytes]) -> list[bytes]:
    covers: list[bytes] = []
    for event, payload in zip(events, payloads, strict=True):
        try:
            covers.append(covered(event, payload))
        except UnicodeEncodeError as error:
            raise _invalid(len(covers), error) from error
    return covers


def _check(event: Event, execution_id: str, sequence: int) -> None:
    if not isinstance(event, Event):
        raise InvalidEventError(f"expected an Event, got {type(event).__name__}")
    validate(event)
    if event.execution_id != execution_id:
        raise InvalidEventError(f"it belongs to execution {event.execution_id}, not to {execution_id}")
    if event.sequence != sequence:
        raise InvalidEventError(f"its sequence must be {sequence}, got {event.sequence}")
    if (sequence == 1) is not (type(event.data) is ExecutionStarted):
        raise InvalidEventError(f"an execution_started event, and nothing else, begins a log; got {event.event_type}")


def _check_distinct(events: Sequence[Event]) -> None:
    if len({event.id for event in events}) < len(events):
        ids = [event.id for event in events]
        index = next(index for index, event_id in enumerate(ids) if event_id in ids[:index])
        raise duplicate_id(index, ids[index])


def duplicate_id(index: int, event_id: str) -> InvalidEventError:
    """Return the error for an event whose id the log holds already."""
    return InvalidEventError(f"invalid event at index {index}: event id {event_id} is already in the log")


def turn_after(event: Event) -> Turn | None:
    """Return what an event makes of the status of its execution; None if it leaves it as it is."""
    status = STATUS_AFTER.get(type(event.data))
    if status is None:
        return None
    error = event.data.error if isinstance(event.data, ExecutionFailed) else None
    return Turn(status, event.recorded_at if status in TERMINAL else None, error)

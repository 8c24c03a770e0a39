"""Small logs to write: the same events every time, with ids that differ wherever they should."""

import zlib

from divebook.events.catalog import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionStarted,
    StepCompleted,
    StepStarted,
)
from divebook.events.event import Event, to_datetime, type_id
from divebook.stores import Batch, SqliteStore
from divebook.stores.append import records_of

START = 1_750_000_000_000_000  # microseconds: June 2025
SECOND = 1_000_000


def execution_id(number=1):
    return type_id("exec", START // 1000 + number, number)


ONE, TWO, THREE = (execution_id(number) for number in (1, 2, 3))


def event(sequence, data, execution=ONE, *, at=None, path="main", step="", event_id=None):
    """Return an event; a second a sequence number unless `at` says when."""
    at = START + sequence * SECOND if at is None else at
    event_id = event_id or type_id("event", at // 1000, zlib.crc32(execution.encode()) << 32 | sequence)
    return Event(event_id, execution, sequence, at, data, path, step)


def started(execution=ONE, *, workflow="greet", at=None, fingerprint="f" * 64):
    data = ExecutionStarted(workflow_name=workflow, inputs={"name": "Ada"}, fingerprint=fingerprint)
    return event(1, data, execution, at=at, path="")


def step(sequence, execution=ONE, output="done"):
    data = StepCompleted(output=output) if sequence % 2 else StepStarted(step_type="script")
    return event(sequence, data, execution, step=f"step-{sequence // 2}")


def steps(first, last, execution=ONE):
    return [step(sequence, execution) for sequence in range(first, last + 1)]


def log(length=3, execution=ONE, **how):
    """Return a log that is still running."""
    return [started(execution, **how), *steps(2, length, execution)]


def completed(sequence, execution=ONE, at=None):
    return event(sequence, ExecutionCompleted(outputs={"greeting": "hi"}), execution, at=at, path="")


def failed(sequence, execution=ONE, error="no such file", at=None):
    return event(sequence, ExecutionFailed(error=error), execution, at=at, path="")


def cancelled(sequence, execution=ONE, at=None):
    return event(sequence, ExecutionCancelled(reason="enough"), execution, at=at, path="")


def resumed(sequence, execution=ONE):
    return event(sequence, ExecutionResumed(previous_status="failed"), execution, path="")


def moment(sequence):
    """Return when an event of that sequence number was recorded."""
    return to_datetime(START + sequence * SECOND)


def batch(execution, expected_sequence, events, *given, **said):
    """Return a batch of records of one event each."""
    return Batch(execution, expected_sequence, records_of(events), *given, **said)


def write(path, *logs):
    with SqliteStore(path, durability="relaxed") as store:
        store.append_all([batch(events[0].execution_id, 0, events) for events in logs])

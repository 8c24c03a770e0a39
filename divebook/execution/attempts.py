"""Attempts: the one loop that tries something again, as a policy says, for steps, their items and single calls.

What failed, and how long to wait before the next attempt, stands in the log: a restart waits only for what is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from divebook.engine.operations import Place, pause_key
from divebook.engine.records import NO_FAILURE, OpenStep
from divebook.engine.retries import retry_delay
from divebook.events import catalog
from divebook.execution.raised import fault_of
from divebook.execution.recorder import Recorder
from divebook.workflow.policies import Retry

T = TypeVar("T")
JITTER_BITS = 32


def has_one_attempt(recorder: Recorder, path: str, policy: Retry | None) -> bool:
    """Return whether `retried` would make one attempt: no policy has another, and none has failed so far.

    For what is called for every step: to ask first costs less than `retried` and what it is given.
    """
    if policy is not None:
        return False
    if path in recorder.once.fresh:
        return True
    opened = recorder.journal.present.paths[path].open
    return opened is None or not opened.failures


async def retried(
    recorder: Recorder,
    place: Place,
    policy: Retry | None,
    make: Callable[[int], Awaitable[T]],
    *,
    key: str | None = None,
    within: str | None = None,
    place_of: Callable[[int], Place] | None = None,
) -> T:
    """Make attempts until one succeeds, or the policy has no further one; return what it gave.

    Parameters
    ----------
    place
        Of the step or item, or of the call; the timers between the attempts belong there.
    policy
        None for a single attempt.
    make
        Makes one attempt; receives how many have failed before it.
    key
        Name of the call within the step, where a single call is tried again and not the step or item.
    within
        Id of the operation that holds the timers between the attempts, if one does.
    place_of
        Returns the place of the operation of an attempt, where each is one.

    Raises
    ------
    Exception
        Whatever the last attempt raised.
    """
    item = place.iteration_index if key is None else key
    if place_of is not None:
        _pass_over(recorder, place, key, _failures(recorder, place, item)[0], place_of)
    while True:
        failures, delay = _failures(recorder, place, item)
        if failures:
            with recorder.waits.strands(place.path).before_attempt():
                if delay > 0:
                    await recorder.signals.sleep(place._replace(key=pause_key(key, failures)), delay, within)
        try:
            return await make(failures)
        except Exception as error:
            if not _will_try_again(recorder, place, policy, error, key):
                raise


def _pass_over(
    recorder: Recorder, place: Place, key: str | None, failures: int, place_of: Callable[[int], Place]
) -> None:
    """Note that nobody asks again for the attempts that had failed, nor for the pauses between them.

    What the log has of them is not ahead of the code (test_attempts_that_failed_are_not_history_ahead).
    """
    for failed in range(failures):
        recorder.once.pass_over(place_of(failed).operation_id)
        recorder.once.pass_over(place._replace(key=pause_key(key, failed)).operation_id)


def _failures(recorder: Recorder, place: Place, item: int | str | None) -> tuple[int, float]:
    opened: OpenStep | None = recorder.journal.present.paths[place.path].open
    return NO_FAILURE if opened is None else opened.failures.get(item, NO_FAILURE)


def _will_try_again(recorder: Recorder, place: Place, policy: Retry | None, error: Exception, key: str | None) -> bool:
    """Record that there is to be another attempt, if the policy says so and the log can still be written."""
    journal, index = recorder.journal, place.iteration_index
    if policy is None or journal.error is not None or place.path in recorder.once.diverged:
        return False
    failures = _failures(recorder, place, index if key is None else key)[0] + 1
    failure = fault_of(error)
    delay = retry_delay(policy, failures, failure, recorder.chance.bits(JITTER_BITS) / 2**JITTER_BITS)
    if delay is not None:
        retried_at = catalog.StepRetried(failures, failure.message, delay, None if key else index, key)
        journal.record(retried_at, place.path, place.step)
    return delay is not None

"""Waiting for an execution that another process, or another environment, drives: its log tells when it rests."""

from __future__ import annotations

import threading
import time

from divebook.engine.state import WAITING, ExecutionState
from divebook.errors import ExecutionError, ExecutionNotFoundError
from divebook.execution.children import running_children
from divebook.execution.driver import Driver
from divebook.execution.leases import HANDS
from divebook.execution.register import folded
from divebook.keyboard import interruptible_wait
from divebook.store.base import EventStore
from divebook.store.leases import Lease
from divebook.store.owner import Owner

LONGEST = 1.0
"""Seconds after which to look again without news."""


def is_elsewhere(driver: Driver) -> bool:
    """Return whether an execution is for others to drive: a queue's workers, or who does so now."""
    if driver.opening is not None or driver.is_live or driver.was_forked:
        return False
    state = driver.refresh().state
    return not state.is_over and (state.queue is not None or _is_driven(driver))


def _is_driven(driver: Driver) -> bool:
    """Return whether another process, or another environment of this one, drives an execution."""
    held = driver.store.live_lease_of(driver.id)
    return held is not None and not HANDS.is_left(held)


def lease_elsewhere(driver: Driver) -> Lease | None:
    """Return the lease under which another process drives an execution; None if none does."""
    held = driver.store.live_lease_of(driver.id)
    return None if held is None or held.owner.is_same_process(Owner.current()) else held


def wait_elsewhere(driver: Driver, timeout: float | None = None) -> None:
    """Block until an execution has ended, or stands still; TimeoutError after so many seconds.

    Raises
    ------
    ExecutionError
        It is in no queue, and who has driven it is gone.
    """
    news = threading.Event()
    until = None if timeout is None else time.monotonic() + timeout
    ends = [
        driver.store.on_news(news.set, driver.id),
        driver.store.subscribe(lambda name, _: news.set() if name == driver.id else None),
    ]
    try:
        while not driver.refresh().state.is_over and not _rests(driver) and not _is_left(driver):
            left = LONGEST if until is None else min(LONGEST, until - time.monotonic())
            if left <= 0:
                raise TimeoutError
            interruptible_wait(news, left)
            news.clear()
    finally:
        for end in ends:
            end()


def _rests(driver: Driver) -> bool:
    return not driver.is_live and stands_still(driver.state, driver.store)


def stands_still(state: ExecutionState, store: EventStore) -> bool:
    """Return whether nothing happens in an execution before somebody answers, sends a signal, or resumes it.

    That is so of what waits for others that stand still; what sleeps, or pauses before it tries again, goes on by
    itself.
    """
    if state.is_shown_paused:
        return True
    if state.status != WAITING or state.is_asleep or has_news(state, store):
        return False
    return all(_child_stands_still(name, store) for name in running_children(state))


def has_news(state: ExecutionState, store: EventStore) -> bool:
    """Return whether the store has what a state lacks: messages that are not taken in, or what was written since.

    In this order: a message that is taken in between the two questions is in what was written. Without the second one,
    an execution that was just answered seemed to wait on (tests/execution/test_elsewhere).
    """
    name = state.execution_id
    return store.has_untaken(name) or store.record(name).last_sequence > state.last_sequence


def _child_stands_still(name: str, store: EventStore) -> bool:
    try:
        return stands_still(folded(store, name), store)
    except ExecutionNotFoundError:  # it is about to be begun
        return False


def _is_left(driver: Driver) -> bool:
    """Return whether nobody drives an execution any more that is in no queue, from which workers would take it."""
    if driver.state.queue is not None or driver.is_live or _is_driven(driver):
        return False
    state = driver.refresh().state  # what it came to before it was given back
    if not state.is_over and state.status != WAITING:
        raise ExecutionError(f"execution {driver.id} is {state.status}, and who has driven it is gone; resume it")
    return True

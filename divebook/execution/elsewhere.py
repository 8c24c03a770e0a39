"""Waiting for an execution that other processes drive: its log tells when it rests."""

from __future__ import annotations

import threading
import time

from divebook.engine.state import WAITING, ExecutionState
from divebook.errors import ExecutionNotFoundError
from divebook.execution.children import running_children
from divebook.execution.driver import Driver
from divebook.execution.register import folded
from divebook.store.base import EventStore

LONGEST = 1.0
"""Seconds after which to look again without news."""


def is_elsewhere(driver: Driver) -> bool:
    """Return whether an execution is for the workers of a queue to drive, and this process does not."""
    if driver.opening is not None or driver.is_live:
        return False
    state = driver.refresh().state
    return state.queue is not None and not state.is_over


def wait_elsewhere(driver: Driver, timeout: float | None = None) -> None:
    """Block until an execution has ended, or stands still; TimeoutError after so many seconds."""
    news = threading.Event()
    until = None if timeout is None else time.monotonic() + timeout
    ends = [
        driver.store.on_news(news.set, driver.id),
        driver.store.subscribe(lambda name, _: news.set() if name == driver.id else None),
    ]
    try:
        while not driver.refresh().state.is_over and not _rests(driver):
            left = LONGEST if until is None else min(LONGEST, until - time.monotonic())
            if left <= 0:
                raise TimeoutError
            news.wait(left)
            news.clear()
    finally:
        for end in ends:
            end()


def _rests(driver: Driver) -> bool:
    return not driver.is_live and _stands_still(driver.state, driver.store)


def _stands_still(state: ExecutionState, store: EventStore) -> bool:
    """Return whether nothing happens in an execution before somebody answers, sends a signal, or resumes it.

    That is so of what waits for others that stand still; what sleeps, or pauses before it tries again, goes on by
    itself.
    """
    if state.is_shown_paused:
        return True
    if state.status != WAITING or state.is_asleep or store.has_untaken(state.execution_id):
        return False
    return all(_child_stands_still(name, store) for name in running_children(state))


def _child_stands_still(name: str, store: EventStore) -> bool:
    try:
        return _stands_still(folded(store, name), store)
    except ExecutionNotFoundError:  # it is about to be begun
        return False

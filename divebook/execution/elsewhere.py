"""Waiting for an execution that other processes drive: its log tells when it rests."""

from __future__ import annotations

import threading
import time

from divebook.engine.state import WAITING
from divebook.execution.driver import Driver

LONGEST = 1.0
"""Seconds after which to look again without news."""


def is_elsewhere(driver: Driver) -> bool:
    """Return whether an execution is for the workers of a queue to drive, and this process does not."""
    if driver.opening is not None or driver.is_live:
        return False
    state = driver.refresh().state
    return state.queue is not None and not state.is_over


def wait_elsewhere(driver: Driver, timeout: float | None = None) -> None:
    """Block until an execution has ended, or waits and nothing has come for it; TimeoutError after so many seconds."""
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
    return driver.state.status == WAITING and not driver.is_live and not driver.store.has_untaken(driver.id)

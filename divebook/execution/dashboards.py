"""The dashboards of the clusters to which the calls of executions go: what this process knows, and no log."""

from __future__ import annotations

import threading

MOST = 1_000
"""Executions of which it is known: the latest ones that sent calls."""


class Dashboards:
    """Addresses by execution, from any thread.

    Examples
    --------
    >>> dashboards = Dashboards()
    >>> dashboards.note("exec_1", "http://localhost:8787/status")
    >>> dashboards.of("exec_1"), dashboards.of("exec_2")
    (['http://localhost:8787/status'], [])
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def note(self, execution_id: str, address: str) -> None:
        """Take note that calls of an execution go to the cluster with this dashboard."""
        with self._lock:
            known = self._known.pop(execution_id, ())  # so that the latest are last
            self._known[execution_id] = known if address in known else (*known, address)
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]

    def forget(self, address: str) -> None:
        """Forget a dashboard: nothing goes to its cluster any more."""
        with self._lock:
            for execution_id, known in [*self._known.items()]:
                left = tuple(one for one in known if one != address)
                if left != known:
                    self._known[execution_id] = left

    def of(self, execution_id: str) -> list[str]:
        """Return the dashboards of the clusters that calls of an execution have gone to."""
        with self._lock:
            return [*self._known.get(execution_id, ())]


DASHBOARDS = Dashboards()

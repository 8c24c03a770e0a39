"""Simulations whose logs are in a real Postgres database; all else is simulated as ever."""

from __future__ import annotations

from collections.abc import Callable

from divebook.stores.base import EventStore
from divebook.stores.listeners import NewsListener
from divebook.stores.postgres import PostgresStore
from tests.postgres.emptying import emptied
from tests.simulation.disk import FaultyStore


class SimulatedServer(FaultyStore, PostgresStore):
    """A database that goes wrong by plan; others who write to it are part of the plan, so nobody listens for them."""

    def on_news(self, listener: NewsListener, execution_id: str | None = None) -> Callable[[], None]:
        """Call a listener at news of this process."""
        return EventStore.on_news(self, listener, execution_id)


class Servers:
    """Gives the one database, emptied, to one computer after the other."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._last: SimulatedServer | None = None

    def __call__(self) -> SimulatedServer:
        """Empty it, and open it for the next one."""
        self.close()
        self._last = SimulatedServer(emptied(self._url))
        return self._last

    def close(self) -> None:
        """Close what is open."""
        if self._last is not None:
            self._last.close()
            self._last = None

from contextlib import contextmanager
from typing import ClassVar

import pytest

from divebook.stores.postgres import PostgresStore, store
from divebook.stores.postgres.connections import Connections, _is_idle
from tests.store.conformance import StorePromises


class KeptConnections(Connections):
    """Connections that go from one test's store to the next one's: a server prepares itself anew for each new one."""

    kept: ClassVar = []

    def connect(self):
        while self.kept:
            if _is_idle(link := self.kept.pop()):
                return link
        return super().connect()

    @contextmanager
    def opened(self):
        link = self.connect()
        yield link
        self.kept.append(link)

    def close(self):
        self.kept += self._idle_readers
        if self._writer is not None:
            self.kept.append(self._writer)
        self._idle_readers, self._writer = {}, None
        super().close()


@pytest.fixture(scope="module", autouse=True)
def connections():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "Connections", KeptConnections)
        yield
    for link in KeptConnections.kept:
        link.close()


class PostgresPromises(StorePromises):
    def count_without_news(self, store):
        count = store.wait_for_news(-1, 20)
        # The thread that listens to the server counts two events of its start as news.
        while count < 2:
            count = store.wait_for_news(count, 20)
        # A connection of an earlier test may still have notifications.
        while (later := store.wait_for_news(count, 0.3)) != count:
            count = later
        return count


class TestPostgresStore(PostgresPromises):
    @pytest.fixture
    def store(self, address):
        with PostgresStore(address) as opened:
            yield opened


class InAMoment(PostgresStore):
    """A store that appends as the engine does for a path without company.

    Every other time it does not wait for the answer, which comes when somebody else writes, or asks for it.
    """

    seconds = 20.0
    is_inside = False

    def append_all(self, batches):
        if self.is_inside:
            return super().append_all(batches)
        self.is_inside, self.seconds = True, 20.0 - self.seconds
        try:
            appending = self.append_in_a_moment(batches, self.seconds)
            return appending.finish() if appending.answers is None else appending.answers
        finally:
            self.is_inside = False


class TestInAMoment(PostgresPromises):
    @pytest.fixture
    def store(self, address):
        with InAMoment(address) as opened:
            yield opened

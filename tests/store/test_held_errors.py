"""An error that is held, as a notebook holds the last one with its traceback, keeps nobody at the moment it came in."""

import sqlite3
from contextlib import closing

import pytest

from divebook.errors import CorruptStoreError
from divebook.stores import SqliteStore
from tests.store.large_promises import done, text
from tests.store.logs import ONE, TWO, log


def test_what_is_written_after_a_read_that_failed_is_seen(tmp_path):
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.append(ONE, [*log(1), *(done(number, text(200_000, number)) for number in range(2, 9))], 0)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM blobs")
            connection.commit()
        with pytest.raises(CorruptStoreError) as held:
            store.read(ONE)
        store.append(TWO, log(2, TWO), 0)
        assert store.record(TWO).last_sequence == 2
        assert held.tb is not None

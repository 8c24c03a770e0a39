"""A store on a server in which read-only snapshots have their former status ``picture`` is migrated on opening."""

from pathlib import Path

import psycopg
import pytest

from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import ExecutionEndedError
from divebook.stores.maintenance import check
from divebook.stores.postgres import PostgresStore
from divebook.stores.postgres.connections import DatabaseAddress
from tests.store.former_snapshots import FORK, PLAIN, check_checkpoints, check_snapshots

RECORDED = Path(__file__).parent / "recorded" / "snapshots_6.sql"


@pytest.fixture
def former(server):
    """Return the URL of a schema as that version left it."""
    url = server.url("former")
    statements = RECORDED.read_text().replace("divebook.", "former.").replace("SCHEMA divebook;", "SCHEMA former;")
    with psycopg.connect(DatabaseAddress.of(url).conninfo, autocommit=True) as link:
        link.execute("DROP SCHEMA IF EXISTS former CASCADE")
        link.execute(statements.encode())
    return url


def rows(url, query):
    with psycopg.connect(DatabaseAddress.of(url).conninfo) as link:
        return link.execute(query).fetchall()


def test_a_store_of_that_version_has_its_snapshots_under_the_present_name(former):
    everything = "SELECT * FROM former.events ORDER BY place"
    before = rows(former, everything)
    with PostgresStore(former) as store:
        assert rows(former, everything) == before
        assert rows(former, "SELECT number FROM former.format") == [(7,)]
        with pytest.raises(ExecutionEndedError):  # the server knows the present status
            store.post(Message(PLAIN, SIGNAL, "go", signal_payload("go", 1), "test", 1))
        check_checkpoints(store)
        check_snapshots(store)


def test_a_damaged_row_stays_damaged(former):
    with psycopg.connect(DatabaseAddress.of(former).conninfo, autocommit=True) as link:
        link.execute("UPDATE former.executions SET note = 'forged' WHERE id = %s", (PLAIN,))
    with PostgresStore(former) as store:
        assert not check(store).ok
        assert [record.execution_id for record in store.records("snapshot")] == [FORK]

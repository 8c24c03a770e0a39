"""Rows of executions that were forged together with their checksums: what the events betray, and what nothing does."""

import pytest

from divebook.events.catalog import StepCompleted
from divebook.stores import Owner, SqliteStore
from divebook.stores.append import Line
from divebook.stores.maintenance import check
from tests.store.logs import ONE, TWO, batch, completed, event, execution_id, log
from tests.store.tampering import put_right, tamper


@pytest.fixture
def written(path):
    """Return a file with two executions: the first has ended."""
    with SqliteStore(path, durability="relaxed") as store:
        one = [*log(4, ONE), event(5, StepCompleted(output="done"), ONE), completed(6, ONE)]
        store.append_all([batch(ONE, 0, one, acquire=Owner.current()), batch(TWO, 0, log(4, TWO))])
    return path


FORGED = {
    "id": f"'{execution_id(9)}'",
    "status": "'failed'",
    "created_at": "created_at + 1",
    "ended_at": "ended_at + 1",
    "last_sequence": "last_sequence - 1",
    "error": "'x'",
    "size": "size + 1",
    "wake_at": "1",
    "taken": "1",
    "durability": "'relaxed'",
    "workflow_name": "'x'",
    "fingerprint": "'x'",
    "start_key": "'x'",
    "origin": "'child'",
    "parent": "'x'",
    "tags": """'["x"]'""",
    "note": "'x'",
    "notebook": "'x'",
    "cell": "'x'",
    "opened": "2",
    "token": "token + 1",
}
"""Each column of an execution's row with another value, whose checksum is made to fit."""
NOT_FOUND = {"id", "wake_at", "taken", "durability", "token"}
"""What no event says by itself: the execution's name (its checkpoint, if it has one, does), when it is to be woken, the
last message it has taken, how it was to be written, and how many leases it had."""


@pytest.mark.parametrize("column", FORGED)
def test_a_row_that_was_forged_with_its_checksum_is_found_where_the_events_say_otherwise(written, column):
    tamper(written, f"UPDATE executions SET {column} = {FORGED[column]} WHERE id = '{ONE}'")
    put_right(written)
    with SqliteStore(written) as store:
        assert check(store).ok == (column in NOT_FOUND)


def test_every_column_of_a_row_is_forged():
    assert {*FORGED} == {*Line._fields, "token"}

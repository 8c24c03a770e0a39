"""Columns as the server reads them, beside what the library makes of the same lists."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divebook.stores.postgres.connections import BIGINT, BOOLEAN, BYTEA, INTEGER, TEXT, Connections, array_of

VALUES = {
    BOOLEAN: ("boolean", st.booleans()),
    INTEGER: ("integer", st.integers(-(2**31), 2**31 - 1)),
    BIGINT: ("bigint", st.integers(-(2**63), 2**63 - 1)),
    TEXT: ("text", st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
    BYTEA: ("bytea", st.binary()),
}


@pytest.fixture
def connections(store):
    return store._connections


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: VALUES[kind][0])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_server_reads_what_was_given(connections: Connections, kind, data):
    name, values = VALUES[kind]
    column = data.draw(st.lists(values, max_size=30))
    ((found, length),) = connections.read(
        f"SELECT given, cardinality(given) FROM (SELECT %b::{name}[] AS given) AS one", (array_of(kind, column),)
    )
    assert (list(found), length) == (column, len(column))


def test_a_text_of_a_megabyte_is_sent(connections):
    text = "ä" * 500_000
    assert connections.read("SELECT %b::text[]", (array_of(TEXT, [text, ""]),)) == [([text, ""],)]

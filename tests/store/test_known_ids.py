"""An id that is given twice is found, whatever ids look like; others are taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.errors import InvalidEventError
from divebook.events import Event, catalog
from divebook.events.record import Record
from divebook.store.known_ids import refuse_twice

IDS = st.lists(st.text("_01z", min_size=1, max_size=4), min_size=1, max_size=30, unique=True)


def records(ids):
    return [Record.of(Event(name, "exec_1", 1, 1, catalog.PathStarted("a"), "main")) for name in ids]


@given(IDS)
def test_different_ids_are_all_taken(ids):
    refuse_twice(records(ids))


@given(IDS, st.data())
def test_an_id_given_twice_is_named(ids, data):
    double = data.draw(st.sampled_from(ids))
    with pytest.raises(InvalidEventError, match=f"index {len(ids)}: event id {double} is already"):
        refuse_twice(records([*ids, double]))

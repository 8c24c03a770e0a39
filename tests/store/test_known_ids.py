"""An id that is given twice is found, whatever ids look like; others are taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.errors import InvalidEventError
from divebook.events import Event, catalog
from divebook.events.event import Record
from divebook.stores.append import KnownIds, bounds_of

IDS = st.lists(st.text("_01z", min_size=1, max_size=4), min_size=1, max_size=30, unique=True)


def records(ids):
    return [Record.of(Event(name, "exec_1", 1, 1, catalog.PathStarted("a"), "main")) for name in ids]


def bounds(ids):
    return bounds_of(records(ids))


@given(IDS)
def test_different_ids_are_all_taken(ids):
    assert bounds(ids) == (min(ids), max(ids))


@given(IDS, st.data())
def test_an_id_given_twice_is_named(ids, data):
    double = data.draw(st.sampled_from(ids))
    with pytest.raises(InvalidEventError, match=f"index {len(ids)}: event id {double} is already"):
        bounds([*ids, double])


@given(IDS, st.data(), st.booleans())
def test_an_id_that_an_earlier_batch_has_is_named_and_no_other(ids, data, is_known):
    cut, double = data.draw(st.integers(0, len(ids))), data.draw(st.sampled_from(ids))
    before, batch = ids[:cut], ids[cut:]
    known = KnownIds("" if is_known else None)
    for one in before:
        known.refuse(records([one]), bounds([one]), lambda: [(name, 1) for name in before[: before.index(one)]])  # noqa: B023
        known.add(records([one]), bounds([one]))
    if batch:
        known.refuse(records(batch), bounds(batch), lambda: [(name, 1) for name in before])
    if double in before:
        with pytest.raises(InvalidEventError, match=f"event id {double} is already in the log"):
            known.refuse(records([double]), bounds([double]), lambda: [(name, 1) for name in before])

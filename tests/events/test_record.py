"""Records are read as events: one for each fact, with numbers and ids that follow each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.events import Event, catalog
from divebook.events.event import PAIRS, Record, successor, type_id

FIRST = type_id("event", 1_700_000_000_000, 5 << 10)


def record(*facts, step="review"):
    return Record(FIRST, "exec_1", 7, 1_700_000_000_000_000, facts, "main", step)


def test_a_record_of_one_event_gives_that_event():
    event = Event(FIRST, "exec_1", 7, 1, catalog.PathStarted("review"), "main", "a step all the same")
    assert Record.of(event).events() == [event]


def test_the_events_of_a_record_follow_each_other():
    facts = catalog.StepStarted("action"), catalog.OperationStarted("op_1", "action_execution")
    began = record(*facts)
    first, second = began.events()
    assert [(event.sequence, event.data, event.path, event.step) for event in (first, second)] == [
        (7, facts[0], "main", "review"),
        (8, facts[1], "main", "review"),
    ]
    assert first.id == FIRST < second.id == successor(FIRST, 1)
    assert first.recorded_at == second.recorded_at == began.recorded_at
    assert began.last_sequence == second.sequence


def test_what_is_said_of_a_path_has_no_step():
    ended = record(catalog.StepCompleted("done"), catalog.PathCompleted("review"))
    assert [event.step for event in ended.events()] == ["review", ""]


@given(st.integers(0, 2**74 - 1), st.integers(0, len(PAIRS) - 1))
def test_successors_sort_as_they_were_made(chance, places):
    identifier = type_id("event", 1_700_000_000_000, chance)
    room = len(PAIRS) - 1 - PAIRS.index(identifier[-2:])
    if places > room:
        with pytest.raises(ValueError, match="no identifier"):
            successor(identifier, places)
    else:
        assert successor(identifier, places) == type_id("event", 1_700_000_000_000, chance + places)


def test_an_id_of_another_form_has_no_successor():
    with pytest.raises(ValueError, match="no identifier"):
        successor("event-17!", 1)

"""The states of a log by position: each is the engine's fold, whatever was asked before, and none is far."""

import random

import pytest

from divebook.engine.evolve import evolve, fold
from divebook.errors import CorruptStoreError
from divebook.events import catalog
from divebook.replay import replayer as module
from divebook.replay.replayer import BLOCKS, KEPT_EVERY, Positions
from tests.engine.history import begun, events, step


def a_log(visits):
    inside = [
        step("a", catalog.StateMutated((catalog.Mutation("set", f"v{visit % 7}", visit),)), visit=visit)
        for visit in range(1, visits + 1)
    ]
    return events(*begun(), *(fact for part in inside for fact in part))


def test_each_position_is_the_fold_of_the_events_before_it():
    log = a_log(40)
    positions = Positions.of(log, kept_every=10)
    order = list(range(len(log) + 1)) * 2
    random.Random(1).shuffle(order)
    for sequence in order:
        assert positions.state_at(sequence) == fold("exec_1", log[:sequence])
        assert sequence == 0 or positions.event_at(sequence) is log[sequence - 1]


def test_no_position_is_farther_from_a_kept_state_than_the_interval(monkeypatch):
    log = a_log(1000)
    positions = Positions.of(log)
    positions.state_at(len(log))
    counted = []

    def counting(state, event):
        counted.append(event)
        return evolve(state, event)

    monkeypatch.setattr(module, "evolve", counting)
    for sequence in (1, 2900, 17, 1501):
        counted.clear()
        positions.state_at(sequence)
        assert len(counted) < KEPT_EVERY
    for sequence in (1500, 1499, 1501, 1502):  # backwards within a block costs nothing, and forwards one event
        counted.clear()
        positions.state_at(sequence)
        assert len(counted) == (sequence == 1502)


def test_wherever_a_page_can_go_to_a_state_is_near_and_the_log_was_read_once(monkeypatch):
    log, read = a_log(100), []
    positions = Positions(
        "exec_1",
        lambda after, limit: read.append((after, limit)) or log[after : after + limit],
        lambda: len(log),
        kept_every=10,
    )
    positions.events(0, 150)
    positions.events(150, 300)
    monkeypatch.setattr(module, "fold", lambda *_: pytest.fail("it was folded already"))
    for sequence in (300, 3, 149, 75):
        assert positions.state_at(sequence).last_sequence == sequence
    assert read == [(0, 150), (150, 150), (300, 10), (0, 10), (140, 10), (70, 10)]


def test_blocks_are_held_and_no_list_of_all_events_and_states():
    """Trap 23: a search for garbage through a million objects takes longer than all the rest."""
    log = a_log(1000)
    positions = Positions.of(log)
    for sequence in range(len(log) + 1):
        positions.state_at(sequence)
    held = sum(len(block.states) for block in positions._blocks.values())
    assert len(positions._blocks) == BLOCKS
    assert held <= BLOCKS * (KEPT_EVERY + 1)
    assert len(positions._kept) == len(log) // KEPT_EVERY + 1


def test_a_log_that_grows_goes_on():
    whole = a_log(300)
    log = whole[:5]
    positions = Positions.of(log)
    assert positions.state_at(5) == fold("exec_1", whole[:5])
    for length in (8, 300, len(whole)):
        log[:] = whole[:length]
        assert positions.total == length
        assert positions.state_at(length) == fold("exec_1", whole[:length])
        assert positions.event_at(length) is whole[length - 1]


def test_a_gap_is_told_where_a_state_behind_it_is_asked_for_and_the_events_are_there():
    log = a_log(10)
    del log[20]
    positions = Positions.of(log, kept_every=8)
    assert [event.sequence for event in positions.events(18, 23)] == [19, 20, 22, 23, 24]
    assert positions.state_at(20) == fold("exec_1", log[:20])
    with pytest.raises(CorruptStoreError):
        positions.state_at(30)


@pytest.mark.parametrize("after", [0, 3, 10, 300, 1202])
def test_events_are_gone_through_both_ways(after):
    log = a_log(400)
    positions = Positions.of(log)
    assert [*positions.onwards(after)] == log[after:]
    assert [*positions.backwards(after + 1)] == log[:after][::-1]


@pytest.mark.parametrize("sequence", [-1, 6])
def test_a_position_outside_of_the_log_is_refused(sequence):
    positions = Positions.of(a_log(1))
    for ask in (positions.state_at, positions.event_at):
        with pytest.raises(IndexError, match=f"{sequence}: the log has 5 events; choose"):
            ask(sequence)

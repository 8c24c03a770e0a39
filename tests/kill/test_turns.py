"""Deaths by SIGKILL while an agent is at work: no call that completed is made again, and it comes to the same.

`python -m benchmarks.kill --turns 100` tries many more.
"""

import sys

import pytest

from tests.kill import turn
from tests.kill.deaths import KINDS, Uninterrupted, die_at, events_of, lives_at_once, points
from tests.kill.victim import Place

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")

POINTS = 10


@pytest.fixture(scope="module")
def lives():
    with lives_at_once(turn.WORKFLOW.name) as runners:
        yield runners


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("uninterrupted")


@pytest.fixture(scope="module")
def uninterrupted(lives, folder):
    return Uninterrupted(lives[0], folder)


def test_a_killed_agent_comes_to_the_same_and_repeats_nothing(lives, uninterrupted, tmp_path):
    assert die_at(points(uninterrupted, POINTS), uninterrupted, lives, tmp_path) == []


def test_the_turn_is_worth_killing(uninterrupted, folder):
    assert uninterrupted.result["execution"][0] == "completed"
    assert (len(uninterrupted.counts), uninterrupted.counts.total()) == (19, 19)  # and one that is the clerk's turn
    told = [event.data for event in events_of(Place(folder))]
    kinds = [getattr(data, "operation_type", None) for data in told if event_type(data) == "operation_started"]
    assert (kinds.count("agent_turn"), kinds.count("tool_call")) == (2, 19)
    assert sum(event_type(data) == "interrupt_raised" for data in told) == 2
    assert {kind for kind, _ in points(uninterrupted, POINTS)} == set(KINDS)


def event_type(data):
    return data.event_type

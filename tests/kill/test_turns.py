"""Deaths by SIGKILL while an agent is at work: no call that completed is made again, and it comes to the same.

Nothing is left running of its MCP server either, which does all that it can to stay.

`python -m benchmarks.kill --turns 100` tries many more.
"""

import sys

import pytest

from tests.kill import turn
from tests.kill.deaths import KINDS, Uninterrupted, die_at, events_of, label_of, lives_at_once, points
from tests.kill.victim import AFTER, BEFORE, CALLED, WRITTEN, Place

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


@pytest.mark.timeout(400)  # thirty lives of an agent, each of which loads its libraries, beside two other tests
def test_a_killed_agent_comes_to_the_same_and_repeats_nothing(lives, uninterrupted, folder, tmp_path):
    begun = 1 + [is_begun(data) and label_of(data) for data in told_in(folder)].index("file-1")
    as_the_server_works = [(CALLED, 6), (WRITTEN, begun + 1), (BEFORE, begun + 3), (AFTER, begun + 4)]
    assert die_at([*as_the_server_works, *points(uninterrupted, POINTS)], uninterrupted, lives, tmp_path) == []
    told = told_in(tmp_path / "0")
    labels = {data.operation_id: label_of(data) for data in told if is_begun(data)}
    asked = [labels.get(data.operation_id) for data in told if data.event_type == "interrupt_raised"]
    assert asked.count("file-1") == 1  # it was under way


def test_the_turn_is_worth_killing(uninterrupted, folder):
    assert uninterrupted.result["execution"][0] == "completed"
    assert (len(uninterrupted.counts), uninterrupted.counts.total()) == (19, 19)  # and one that is the clerk's turn
    told = told_in(folder)
    kinds = [data.operation_type for data in told if is_begun(data)]
    assert (kinds.count("agent_turn"), kinds.count("tool_call")) == (2, 19)
    assert kinds.count("tool_discovery") == 1
    assert sum(data.event_type == "interrupt_raised" for data in told) == 2
    assert {kind for kind, _ in points(uninterrupted, POINTS)} == set(KINDS)


def told_in(folder):
    return [event.data for event in events_of(Place(folder))]


def is_begun(data):
    return data.event_type == "operation_started"

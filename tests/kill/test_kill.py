"""Deaths by SIGKILL around the writes of a real process: nothing is lost, nothing that completed is repeated.

`python -m benchmarks.kill` tries many more.
"""

import sys

import pytest

from tests.kill.deaths import KINDS, Uninterrupted, die_at, lives_at_once, points

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")

POINTS = 2 * len(KINDS)


@pytest.fixture(scope="module")
def lives():
    with lives_at_once() as runners:
        yield runners


@pytest.fixture(scope="module")
def uninterrupted(lives, tmp_path_factory):
    return Uninterrupted(lives[0], tmp_path_factory.mktemp("uninterrupted"))


def test_a_killed_execution_comes_to_the_same_and_repeats_nothing(lives, uninterrupted, tmp_path):
    assert die_at(points(uninterrupted, POINTS), uninterrupted, lives, tmp_path) == []


@pytest.mark.parametrize("count", [POINTS, 150])
def test_the_workflow_is_worth_killing(uninterrupted, count):
    assert uninterrupted.result["execution"][0] == "completed"
    assert uninterrupted.operations >= 25
    killed = points(uninterrupted, count)
    assert len(set(killed)) == count
    assert {kind for kind, _ in killed} == set(KINDS)

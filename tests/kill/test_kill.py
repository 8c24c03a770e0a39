"""150 deaths by SIGKILL around the writes of a real process: nothing is lost, nothing that completed is repeated."""

import json
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from divebook.engine.evolve import fold
from divebook.store import SqliteStore
from divebook.store.check import check
from tests.kill.victim import AFTER, BEFORE, CALL, CALLED, REPEATABLE, WRITTEN, Place

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")

ROOT = Path(__file__).parent.parent.parent
POINTS, GROUP, AT_ONCE = 150, 15, 2


class Lives:
    """Processes that make the victim live in a folder, up to a point."""

    def __init__(self):
        command = [sys.executable, "-m", "tests.kill.runner"]
        self._runner = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1
        )

    def live(self, place, point=None):
        """Run one life; return its exit code and the operations in flight when it ended."""
        self._runner.stdin.write(json.dumps([str(place.folder), point]) + "\n")
        answer = self._runner.stdout.readline()
        assert answer, f"the process that forks has ended with {self._runner.poll()}"
        exitcode = int(answer)
        assert exitcode != -signal.SIGALRM, f"the process hangs after {point}"
        return exitcode, in_flight(place)

    def close(self):
        self._runner.stdin.close()
        assert self._runner.wait(30) == 0
        self._runner.stdout.close()


@pytest.fixture(scope="module")
def lives():
    runners = [Lives() for _ in range(AT_ONCE)]
    yield runners
    for runner in runners:
        runner.close()


class Uninterrupted:
    """The run that all others are compared with."""

    def __init__(self, lives, folder):
        place = Place(folder)
        exitcode, _ = lives.live(place)
        assert exitcode == 0
        self.result = json.loads(place.result.read_text())
        self.counts = Counter(place.counts())
        events = events_of(place)
        self.events = len(events)
        self.operations = sum(event.event_type == "operation_started" for event in events)


@pytest.fixture(scope="module")
def uninterrupted(lives, tmp_path_factory):
    return Uninterrupted(lives[0], tmp_path_factory.mktemp("uninterrupted"))


def events_of(place):
    if not place.database.exists():
        return []
    with SqliteStore(place.database) as store:
        known = store.records()
        return store.read(known[0].execution_id) if known else []


def label_of(data):
    parameters = data.parameters or {}
    if "step" in parameters:
        return "-".join([parameters["step"], *map(str, parameters["arguments"].values())])
    return parameters.get("params", {}).get("label", data.operation_type)


def in_flight(place):
    """Return the labels of the operations whose intent is on disk and whose outcome is not."""
    begun = {}
    for event in events_of(place):
        if event.event_type == "operation_started":
            begun[event.data.operation_id] = label_of(event.data)
        elif event.event_type in ("operation_completed", "operation_failed"):
            begun.pop(event.data.operation_id, None)
    return begun.values()


def points(uninterrupted):
    """Return where to kill: around the append of every event, and of calls, spread evenly over the whole run."""
    every = [(kind, number) for number in range(1, uninterrupted.events + 1) for kind in (BEFORE, WRITTEN, AFTER)]
    every += [(kind, number) for number in range(1, uninterrupted.counts.total() + 1) for kind in (CALL, CALLED)]
    return [every[number * len(every) // POINTS] for number in range(POINTS)]


def second_point(index):
    """Return where to kill the process that comes after the first, for every fifth."""
    return ((CALLED, 1), (BEFORE, 8), (WRITTEN, 4), (AFTER, 6))[index // 5 % 4] if index % 5 == 0 else None


def deaths(lives, folder, index, point):
    """Kill, take up, and return what it came to and what was in doubt."""
    folder.mkdir()
    place, doubtful = Place(folder), Counter()
    exitcode, left = lives.live(place, point)
    assert exitcode == -signal.SIGKILL, f"nothing died {point}: exit code {exitcode}"
    doubtful.update(left)
    again = second_point(index)
    if again is not None:
        exitcode, left = lives.live(place, again)
        assert exitcode in (-signal.SIGKILL, 0), f"{point}, then {again}: exit code {exitcode}"  # it may end earlier
        doubtful.update(left)
    exitcode, _ = lives.live(place)
    assert exitcode == 0, f"after {point} the execution could not be taken up"
    return place, doubtful


def check_deaths(place, doubtful, point, uninterrupted):
    assert json.loads(place.result.read_text()) == uninterrupted.result, f"another result after {point}"
    with SqliteStore(place.database) as store:
        report = check(store, fold=lambda events: fold(events[0].execution_id, events))
        assert report.ok, (point, report.all_damages())
    counts = Counter(place.counts())
    for label, expected in uninterrupted.counts.items():
        assert expected <= counts[label] <= expected + doubtful[label], f"{label} ran {counts[label]} times: {point}"
    assert counts.keys() == uninterrupted.counts.keys()
    check_questions(place, counts, uninterrupted, point)


def check_questions(place, counts, uninterrupted, point):
    """Every call that was made again was either asked about before, or may be repeated."""
    events = events_of(place)
    labels = {e.data.operation_id: label_of(e.data) for e in events if e.event_type == "operation_started"}
    asked = Counter(labels[e.data.operation_id] for e in events if e.event_type == "interrupt_raised")
    assert not REPEATABLE & asked.keys(), f"asked about a call that may be repeated: {point}"
    for label, count in counts.items():
        again = count - uninterrupted.counts[label]
        assert label in REPEATABLE or again <= asked[label], f"{label} was made again without asking: {point}"


@pytest.mark.parametrize("group", range(POINTS // GROUP))
def test_a_killed_execution_comes_to_the_same_and_repeats_nothing(group, lives, uninterrupted, tmp_path):
    mine = list(enumerate(points(uninterrupted)))[group :: POINTS // GROUP]

    def die_one_after_another(number):
        for index, point in mine[number::AT_ONCE]:
            place, doubtful = deaths(lives[number], tmp_path / str(index), index, point)
            check_deaths(place, doubtful, point, uninterrupted)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(die_one_after_another, range(AT_ONCE))) == [None] * AT_ONCE


def test_the_workflow_is_worth_killing(uninterrupted):
    assert uninterrupted.result["execution"][0] == "completed"
    assert uninterrupted.operations >= 25
    killed = points(uninterrupted)
    assert len(set(killed)) == POINTS
    assert {kind for kind, _ in killed} == {BEFORE, WRITTEN, AFTER, CALL, CALLED}

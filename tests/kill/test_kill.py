"""150 deaths by SIGKILL around the writes of a real process: nothing is lost, nothing that completed is repeated."""

import json
import multiprocessing
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from divebook.store import SqliteStore
from divebook.store.check import check
from tests.kill import victim
from tests.kill.victim import AFTER, BEFORE, CALL, CALLED, REPEATABLE, Place

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows"),
]

POINTS, GROUP, AT_ONCE = 150, 15, 2
FROM_OUTSIDE = "from outside"
SECONDS = 60


@pytest.fixture(scope="module")
def processes():
    """Make processes from one that has the imports behind it and runs nothing: the sandbox and threads start later."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.kill.victim", "divebook.environment"])
    return context


UNTOLD = 255
"""What multiprocessing says of a process whose end its server was too late to see."""


class Uninterrupted:
    """The run that all others are compared with."""

    def __init__(self, processes, folder):
        place = Place(folder)
        exitcode, _ = live(processes, place)
        assert exitcode == 0
        self.result = json.loads(place.result.read_text())
        self.counts = Counter(place.counts())
        with SqliteStore(place.database) as store:
            events = store.read(store.records()[0].execution_id)
        self.operations = sum(event.event_type == "operation_started" for event in events)
        self.appends = count_appends(folder)


def count_appends(folder):
    """Return how many transactions a run of the workflow takes, counted in a run of its own."""
    place = Place(folder / "counted")
    place.folder.mkdir()
    killer = victim.Killer(place, None)
    victim.register_function(killer)
    with victim.KillingStore(place.database, killer) as store:
        world = victim.Environment(store=store, workflows=[victim.WORKFLOW], actions=victim.actions(killer))
        world.start(victim.WORKFLOW).wait(SECONDS)
    return killer._passed[BEFORE]


@pytest.fixture(scope="module")
def uninterrupted(processes, tmp_path_factory):
    known = dict(victim.WORKFLOW_FUNCTIONS)
    yield Uninterrupted(processes, tmp_path_factory.mktemp("uninterrupted"))
    victim.WORKFLOW_FUNCTIONS.clear()
    victim.WORKFLOW_FUNCTIONS.update(known)


def live(processes, place, point=None):
    """Run one life of the process; return its exit code and the operations in flight when it ended."""
    from_outside = point is not None and point[0] == FROM_OUTSIDE
    process = processes.Process(target=victim.take_up, args=(place.folder, None if from_outside else point))
    process.start()
    if from_outside:
        kill_after_calls(process, place, point[1])
    process.join(SECONDS)
    assert process.exitcode is not None, f"the process hangs after {point}"
    return process.exitcode, in_flight(place)


def kill_after_calls(process, place, calls):
    while process.is_alive() and len(place.counts()) < calls:
        time.sleep(0.0005)
    process.kill()


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
    """Return where to kill: every append, before and after, inside calls, and from outside; some are killed twice."""
    # How many transactions there are depends a little on what falls into one: the last ones may not be reached.
    appends, calls = uninterrupted.appends, uninterrupted.counts.total()
    every = [(kind, number) for number in range(1, appends - 1) for kind in (BEFORE, AFTER)]
    every += [(kind, number) for number in range(1, calls + 1) for kind in (CALL, CALLED)]
    from_outside = max(10, POINTS - len(every))
    every += [(FROM_OUTSIDE, 1 + number % (calls - 5)) for number in range(from_outside)]
    return [every[number * len(every) // POINTS] for number in range(POINTS)]


def second_point(index):
    """Return where to kill the process that comes after the first, for every fifth."""
    return ((CALLED, 1), (BEFORE, 3), (AFTER, 2))[index // 5 % 3] if index % 5 == 0 else None


def deaths(processes, folder, index, point):
    """Kill, take up, and return what it came to, what was in doubt, and how often it died."""
    folder.mkdir()
    place = Place(folder)
    doubtful, died = Counter(), 0
    for death in (point, second_point(index)):
        if death is not None:
            exitcode, left = live(processes, place, death)
            assert exitcode in (-signal.SIGKILL, UNTOLD, 0), f"{death}: exit code {exitcode}"
            doubtful.update(left)
            died += exitcode != 0
    if not place.result.exists():
        exitcode, _ = live(processes, place)
        assert exitcode in (UNTOLD, 0), f"after {point} the execution could not be taken up"
    return place, doubtful, died


def check_deaths(place, doubtful, point, uninterrupted):
    assert json.loads(place.result.read_text()) == uninterrupted.result, f"another result after {point}"
    with SqliteStore(place.database) as store:
        assert check(store).ok, check(store).all_damages()
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
def test_a_killed_execution_comes_to_the_same_and_repeats_nothing(group, processes, uninterrupted, tmp_path):
    mine = list(enumerate(points(uninterrupted)))[group :: POINTS // GROUP]

    def die(entry):
        index, point = entry
        return deaths(processes, tmp_path / str(index), index, point)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(die, mine))
    for (_, point), (place, doubtful, died) in zip(mine, outcomes, strict=True):
        assert died, f"nothing died {point}"
        check_deaths(place, doubtful, point, uninterrupted)


def test_the_workflow_is_worth_killing(uninterrupted):
    assert uninterrupted.result["execution"][0] == "completed"
    assert uninterrupted.operations >= 25
    assert len(points(uninterrupted)) == POINTS

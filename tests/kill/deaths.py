"""Deaths of a real process, one after the other, and what must hold after each; `benchmarks/kill.py` is a command."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from random import Random
from typing import TypeAlias

from divebook.engine.checkpoint import load_state
from divebook.engine.evolve import fold
from divebook.engine.operations import TOOL_CALL
from divebook.events import Event, catalog
from divebook.stores import EventStore
from divebook.stores.maintenance import check
from tests.kill.turn import SERVED
from tests.kill.victim import (
    AFTER,
    AMID,
    BEFORE,
    CALL,
    CALLED,
    CHECKPOINT,
    CHECKPOINT_EVENTS,
    CHECKPOINT_WRITTEN,
    CHECKPOINTED,
    REPEATABLE,
    TIME,
    WORKFLOW,
    WRITTEN,
    Place,
)
from tests.tools.processes import commands_with

ROOT = Path(__file__).parent.parent.parent
AT_ONCE = 2
PATIENCE = 30.0
"""Seconds that what ran beside a process has to end, of which it needs three."""
OF_EVENTS, OF_CALLS = (BEFORE, AMID, WRITTEN, AFTER), (CALL, CALLED)
OF_CHECKPOINTS = (CHECKPOINT, CHECKPOINT_WRITTEN, CHECKPOINTED)
KINDS = (*OF_EVENTS, *OF_CALLS, *OF_CHECKPOINTS)
AGAIN = ((CALLED, 1), (BEFORE, 8), (WRITTEN, 4), (AFTER, 6))
"""Where the process that comes after the first is killed, for every fifth."""

Point: TypeAlias = tuple[str, float]
"""A kind and a number: of an event or a call, or milliseconds of processor time."""


class Lives:
    """Processes that make the victim live in a folder, up to a point.

    Parameters
    ----------
    subject
        The name of the workflow that is carried out.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        command = [sys.executable, "-m", "tests.kill.runner"]
        self._runner = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1
        )

    def live(self, place: Place, point: Point | None = None) -> tuple[int, Sequence[str]]:
        """Run one life; return its exit code and the operations in flight when it ended."""
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        self._runner.stdin.write(json.dumps([str(place.folder), point, self._subject]) + "\n")
        answer = self._runner.stdout.readline()
        assert answer, f"the process that forks has ended with {self._runner.poll()}"
        exitcode = int(answer)
        assert exitcode != -signal.SIGALRM, f"the process hangs after {point}"
        return exitcode, in_flight(place)

    def close(self) -> None:
        """End the process that forks."""
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        self._runner.stdin.close()
        assert self._runner.wait(30) == 0
        self._runner.stdout.close()


@contextmanager
def lives_at_once(subject: str = WORKFLOW.name) -> Iterator[list[Lives]]:
    """Give those that may be used side by side."""
    runners = [Lives(subject) for _ in range(AT_ONCE)]
    try:
        yield runners
    finally:
        for runner in runners:
            runner.close()


class Uninterrupted:
    """The run that all others are compared with."""

    def __init__(self, lives: Lives, folder: Path) -> None:
        place = Place(folder)
        exitcode, _ = lives.live(place)
        assert exitcode == 0
        self.result = json.loads(place.result.read_text())
        self.milliseconds = float(place.worked.read_text())
        self.counts = Counter(place.counts())
        self.calls = sum(count for label, count in self.counts.items() if label not in SERVED)
        events = events_of(place)
        self.events = len(events)
        self.operations = sum(event.event_type == "operation_started" for event in events)


def events_of(place: Place) -> list[Event]:
    """Return what the log of a folder says."""
    if not place.folder.exists():
        return []
    with place.opened() as store:
        known = store.records()
        return store.read(known[0].execution_id) if known else []


def label_of(data: catalog.OperationStarted) -> str:
    """Return what the calls of an operation are counted as."""
    parameters = data.parameters or {}
    if data.operation_type == TOOL_CALL:
        return str(parameters["arguments"]["label"])
    if "step" in parameters:
        return "-".join([parameters["step"], *map(str, parameters["arguments"].values())])
    return str(parameters.get("params", {}).get("label", data.operation_type))


def in_flight(place: Place) -> Sequence[str]:
    """Return the labels of the operations whose intent is on disk and whose outcome is not."""
    begun: dict[str, str] = {}
    for event in events_of(place):
        if isinstance(event.data, catalog.OperationStarted):
            begun[event.data.operation_id] = label_of(event.data)
        elif isinstance(event.data, catalog.OperationCompleted | catalog.OperationFailed):
            begun.pop(event.data.operation_id, None)
    return list(begun.values())


def points(whole: Uninterrupted, count: int) -> list[Point]:
    """Return so many points to kill at, of every kind, each kind spread over the whole run."""
    numbers: dict[str, Sequence[int]] = dict.fromkeys(OF_EVENTS, range(1, whole.events + 1))
    numbers |= dict.fromkeys(OF_CALLS, range(1, whole.calls + 1))
    # None near the end: when commits are made differs a little, and so do checkpoints.
    numbers |= dict.fromkeys(OF_CHECKPOINTS, range(1, whole.events - 3 * CHECKPOINT_EVENTS, CHECKPOINT_EVENTS))
    shares = Counter[str]()
    for kind in cycle(numbers):
        if shares.total() == min(count, sum(map(len, numbers.values()))):
            break
        shares[kind] += shares[kind] < len(numbers[kind])
    return [
        (kind, numbers[kind][number * len(numbers[kind]) // share])
        for kind, share in shares.items()
        for number in range(share)
    ]


def moments(whole: Uninterrupted, count: int, random: Random) -> list[Point]:
    """Return points in time, wherever the process is then: inside SQLite, a checkpoint, an import."""
    return [(TIME, round(random.uniform(1, whole.milliseconds), 1)) for _ in range(count)]


def die_at(chosen: Iterable[Point], whole: Uninterrupted, lives: Sequence[Lives], folder: Path) -> list[str]:
    """Kill at every point, take up what is left, and return what is wrong afterwards.

    What ran beside those that were killed ends meanwhile; only then it is known what it has done.
    """
    numbered = list(enumerate(chosen))
    found, died = list[str](), list[tuple[Place, Counter[str], Point]]()

    def die_one_after_another(number: int) -> None:
        for index, point in numbered[number :: len(lives)]:
            try:
                died.append((*deaths(lives[number], folder / str(index), index, point), point))
            except AssertionError as error:
                found.append(str(error))

    with ThreadPoolExecutor(len(lives)) as pool:
        list(pool.map(die_one_after_another, range(len(lives))))
    found += [f"is left running: {command}" for command in left_running(str(folder))]
    for place, doubtful, point in died:
        try:
            check_deaths(place, doubtful, point, whole)
        except AssertionError as error:
            found.append(str(error))
    return found


def left_running(text: str) -> list[str]:
    """Return the commands with a text in them that go on running, though they had time to end."""
    until = time.monotonic() + PATIENCE
    while (found := commands_with(text)) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def deaths(lives: Lives, folder: Path, index: int, point: Point) -> tuple[Place, Counter[str]]:
    """Kill, take up, and return what it came to and what was in doubt."""
    folder.mkdir()
    place, doubtful = Place(folder), Counter[str]()
    exitcode, left = lives.live(place, point)
    expected = (-signal.SIGPROF, 0) if point[0] == TIME else (-signal.SIGKILL,)  # in time it may have ended
    assert exitcode in expected, f"nothing died {point}: exit code {exitcode}"
    doubtful.update(left)
    if index % 5 == 0:
        again = AGAIN[index // 5 % len(AGAIN)]
        exitcode, left = lives.live(place, again)
        assert exitcode in (-signal.SIGKILL, 0), f"{point}, then {again}: exit code {exitcode}"  # it may end earlier
        doubtful.update(left)
    exitcode, _ = lives.live(place)
    assert exitcode == 0, f"after {point} the execution could not be taken up"
    return place, doubtful


def check_deaths(place: Place, doubtful: Counter[str], point: Point, whole: Uninterrupted) -> None:
    """Compare what it came to with the uninterrupted run: result, log, checkpoint, and how often each call was made."""
    assert json.loads(place.result.read_text()) == whole.result, f"another result after {point}"
    with place.opened() as store:
        report = check(store, fold=lambda events: fold(events[0].execution_id, events))
        assert report.ok, f"{point}: {report.all_damages()}"
        check_checkpoint(store, point)
    counts = Counter(place.counts())
    for label, expected in whole.counts.items():
        assert expected <= counts[label] <= expected + doubtful[label], f"{label} ran {counts[label]} times: {point}"
    assert counts.keys() == whole.counts.keys()
    check_questions(place, counts, whole, point)


def check_checkpoint(store: EventStore, point: Point) -> None:
    """The state that is kept is that of the log up to there."""
    (execution_id,) = store.ids()
    kept = store.checkpoint(execution_id)
    assert kept is not None, f"no checkpoint is left after {point}"
    sequence, data = kept
    state = load_state(data, functools.partial(store.facts, execution_id))
    assert state == fold(execution_id, store.read(execution_id, 0, sequence)), f"another checkpoint after {point}"


def check_questions(place: Place, counts: Counter[str], whole: Uninterrupted, point: Point) -> None:
    """Every call that was made again was either asked about before, or may be repeated."""
    said = [event.data for event in events_of(place)]
    labels = {data.operation_id: label_of(data) for data in said if isinstance(data, catalog.OperationStarted)}
    asked = Counter(labels[data.operation_id or ""] for data in said if isinstance(data, catalog.InterruptRaised))
    assert not REPEATABLE & asked.keys(), f"asked about a call that may be repeated: {point}"
    for label, count in counts.items():
        again = count - whole.counts[label]
        assert label in REPEATABLE or again <= asked[label], f"{label} was made again without asking: {point}"

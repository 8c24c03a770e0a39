"""A hundred questions of one execution, answered from three processes in random order, while processes are killed."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from divebook.stores import SqliteStore
from tests.kill.asking import ANSWERERS, ITEMS, NEVER, PATHS, environment

HOME = Path(__file__).parents[2]
KILLED = -9
ALL = PATHS * ITEMS


@pytest.fixture
def process():
    """Return a function that starts a process; what still runs at the end is killed."""
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "tests.kill.asking", *map(str, arguments)]
        started.append(subprocess.Popen(command, cwd=HOME, env={**os.environ, "PYTHONPATH": str(HOME)}))
        return started[-1]

    yield start
    for running in started:
        if running.poll() is None:
            running.kill()
        running.wait()


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def events(folder):
    store = SqliteStore(str(folder / "store.db"))
    (record,) = store.records()
    found = store.read(record.execution_id)
    store.close()
    return found


def count(folder, event_type):
    return sum(event.event_type == event_type for event in events(folder))


def test_each_of_a_hundred_questions_is_answered_once_and_nothing_runs_twice(process, tmp_path):
    assert process("drive", tmp_path, 30, NEVER).wait() == KILLED  # while it asks
    asking = process("drive", tmp_path, NEVER, 20)
    until(lambda: count(tmp_path, "interrupt_raised") == ALL)
    answering = [process("answer", tmp_path, name, seed, 10 + 5 * seed) for seed, name in enumerate(ANSWERERS)]
    assert [found.wait() for found in answering] == [KILLED] * 3  # between their answers
    assert asking.wait() == KILLED  # while it takes the answers in
    again = [process("answer", tmp_path, name, 10 + seed, NEVER) for seed, name in enumerate(ANSWERERS)]
    assert process("drive", tmp_path, NEVER, 30).wait() == KILLED
    assert process("drive", tmp_path, NEVER, NEVER).wait() == 0
    assert [found.wait() for found in again] == [0] * 3

    log = events(tmp_path)
    resolved = [event.data for event in log if event.event_type == "interrupt_resolved"]
    assert len({found.interrupt_id for found in resolved}) == len(resolved) == ALL
    assert count(tmp_path, "interrupt_raised") == ALL
    assert log[-1].event_type == "execution_completed"
    accepted = {tuple(path.name.split("-", 2)[1:]) for path in tmp_path.glob("accepted-*")}
    assert accepted == {(found.answered_by, found.interrupt_id) for found in resolved}
    calls = Counter((tmp_path / "calls").read_text().splitlines())
    assert set(calls.values()) == {1}
    assert len(calls) == PATHS + ALL
    world = environment(tmp_path)
    (record,) = world.store.records()
    said = {value for number in range(PATHS) for value in world.run_of(record.execution_id).variables[f"a{number}"]}
    assert said == {found.response["text"] for found in resolved}
    world.store.close()

"""Leases on one file: two stores, two processes, and clocks that jump."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from divebook.errors import FencedError, LeaseHeldError
from divebook.stores import Owner, SqliteStore
from divebook.stores.maintenance import check
from tests.store.logs import ONE, SECOND, batch, execution_id, log, step, steps

ROOT = Path(__file__).parent.parent.parent
RACES = 200


def test_a_lease_keeps_out_another_store(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append_all([batch(ONE, 0, log(1), acquire=Owner.current("first"))])
        with pytest.raises(LeaseHeldError, match="is driven by first"):
            there.acquire(ONE, Owner.current("second"))
        here.release(here.leases()[0])
        assert there.acquire(ONE, Owner.current("second")).token == 2


def test_a_writer_learns_at_its_next_append_that_it_was_fenced(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append_all([batch(ONE, 0, log(1), acquire=Owner.current())])
        here.append(ONE, steps(2, 3), 1, 1)
        there.release(there.leases()[0])
        lease = there.acquire(ONE, Owner.current())
        with pytest.raises(FencedError):
            here.append(ONE, [step(4)], 3, 1)
        there.append(ONE, [step(4)], 3, lease.token)
        with pytest.raises(FencedError):
            here.append(ONE, [step(5)], 4, 1)
        assert here.read(ONE) == log(4)


def test_leases_survive_reopening(path):
    with SqliteStore(path) as store:
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, Owner("there", 1, 2, "worker", "boot ns"), 30, now=SECOND)
    with SqliteStore(path) as store:
        assert store.leases() == [lease]
        assert store.acquire(ONE, Owner.current(), now=31 * SECOND).token == 2


@pytest.mark.skipif(not Owner.current().boot, reason="the machine does not tell when it was started")
@pytest.mark.parametrize("hours", [-1, 1])
def test_on_one_machine_a_clock_that_is_set_changes_no_lease(path, monkeypatch, hours):
    with SqliteStore(path) as store:
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, Owner.current())
        present = time.time_ns()
        monkeypatch.setattr("time.time_ns", lambda: present + hours * 3600 * 10**9)
        assert store.live_leases() == [lease]
        with pytest.raises(LeaseHeldError):
            store.acquire(ONE, Owner.current())
        assert store.renew([lease]) == [True]
        uptime = time.monotonic_ns()
        monkeypatch.setattr("time.monotonic_ns", lambda: uptime + 31 * 10**9)
        assert store.acquire(ONE, Owner.current()).token == 2


RACER = """
import sys, time
from divebook.errors import FencedError, LeaseHeldError
from divebook.stores import Owner, SqliteStore
from tests.store.logs import event, execution_id, steps
from divebook.events.catalog import StepCompleted

path, name = sys.argv[1:]

def write(store, execution, first, lease):
    mine = [event(n, StepCompleted(output=name), execution, event_id=f"{name}-{n}") for n in (first, first + 1)]
    store.append(execution, mine, first - 1, lease.token)

with SqliteStore(path, durability="relaxed") as store:
    lease = None
    for line in sys.stdin:  # the word to go
        order, number, moment = line.split()
        while time.monotonic() < float(moment):
            pass
        execution = execution_id(int(number))
        try:
            if order == "race":
                lease = store.acquire(execution, Owner.current(name))
                write(store, execution, 2, lease)
            elif order == "take":
                lease = store.acquire(execution, Owner.current(name), now=2**60)
                write(store, execution, 4, lease)
            elif order == "late":
                write(store, execution, 6, lease)
            answer = "done"
        except (LeaseHeldError, FencedError) as error:
            answer = type(error).__name__
        print(answer, flush=True)
"""


def told(processes, order):
    """Tell all processes to act at one moment, then hear them."""
    moment = time.monotonic() + 0.002 * (len(processes) - 1)
    for process in processes:
        process.stdin.write(f"{order} {moment}\n")
        process.stdin.flush()
    return [process.stdout.readline().strip() for process in processes]


def test_of_two_processes_that_race_for_an_execution_one_drives_it(path):
    names = [execution_id(number) for number in range(RACES)]
    with SqliteStore(path, durability="relaxed") as store:
        store.append_all([batch(name, 0, log(1, name)) for name in names])
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACER, str(path), name],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for name in "ab"
        ]
        try:
            winners = [race(racers, number) for number in range(RACES)]
        finally:
            for racer in racers:
                racer.communicate(timeout=30)
        assert {winner for winner, _ in winners} == {"a", "b"}  # a race that one side always wins would prove nothing
        for name, (winner, loser) in zip(names, winners, strict=True):
            assert [entry.data.output for entry in store.read(name)[1:]] == [winner, winner, loser, loser]
        assert {lease.token for lease in store.leases()} == {2}
        assert check(store).ok


def race(racers, number):
    """Let two processes race, let the loser take over, and let the winner come too late; return the winner first."""
    answers = told(racers, f"race {number}")
    assert sorted(answers) == ["LeaseHeldError", "done"]
    first = answers.index("done")
    winner, loser = racers[first], racers[1 - first]
    assert told([loser], f"take {number}") == ["done"]
    assert told([winner], f"late {number}") == ["FencedError"]
    return "ab"[first], "ab"[1 - first]

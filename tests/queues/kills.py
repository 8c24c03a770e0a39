"""``python -m tests.queues.kills [EXECUTIONS] [WORKERS] [--postgres]``: workers are killed and drained while they work.

In the end every execution has completed, each of its steps once, and no process has made a call of an execution that
another one had taken over; so have those that it has started, and those as which it goes on. Without kills the shares
of the workers are within two times of each other.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from random import Random

from divebook import Environment
from divebook.config.loader import import_actions
from divebook.errors import StoreBusyError
from divebook.events.catalog import OperationCompleted

JOBS = Path(__file__).parent / "jobs.py"
MARKS = {"s0", "s1", "s2", "mark"}
"""The steps that make the calls."""
DONE = {"completed", "continued_as_new"}


class Crew:
    """Worker processes, each of which is begun anew when it has ended."""

    def __init__(self, place, trace, count, pause):
        self._command = [sys.executable, "-m", "divebook", "worker", str(JOBS), "--store", str(place)]
        self._command += ["--parallel", "4", "--patience", "20"]
        self._settings = {**os.environ, "TRACE": str(trace), "PAUSE": str(pause)}
        self.processes = [self._begun() for _ in range(count)]

    def _begun(self):
        return subprocess.Popen(self._command, env=self._settings, stderr=subprocess.DEVNULL)

    def end(self, number, how):
        """Send one a signal; begin another one in its place."""
        self.processes[number].send_signal(how)
        code = self.processes[number].wait(60)
        assert code in (0, -signal.SIGKILL, -signal.SIGTERM), code  # the last: before it had begun
        self.processes[number] = self._begun()

    def close(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        assert {process.wait(60) for process in self.processes} <= {0, -signal.SIGTERM}


def worked(folder, place, executions, workers, endings, random):
    """Have executions driven by a crew that is killed and drained so many times; return what was found.

    That is: statuses, steps that completed twice, executions that two processes drove at once, and the share of each
    process.
    """
    trace = folder / "trace"
    trace.touch()
    with ExitStack() as stack:
        environment = stack.enter_context(Environment(store=place))
        jobs = import_actions(str(JOBS))
        for name in jobs.FAMILIES:
            environment.add_workflow(getattr(jobs, name))
        crew = Crew(place, trace, workers, 0.1 if endings else 0)
        stack.callback(crew.close)
        while len(environment.queues.workers()) < workers:
            time.sleep(0.01)
        begun = time.monotonic()
        ids = [_enqueued(environment, number, jobs.FAMILIES) for number in range(executions)]
        for ending in range(endings):
            wanted = (ending + 1) * 3 * executions // (endings + 1) * 0.9
            while len(trace.read_bytes().splitlines()) < wanted:
                time.sleep(0.01)
            number = random.randrange(workers)
            while crew.processes[number].pid not in {known.owner.pid for known in environment.queues.workers()}:
                time.sleep(0.01)
            crew.end(number, random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        while environment.queues.queued():
            time.sleep(0.1)
            assert time.monotonic() - begun < 900, environment.queues.queued()[:3]
        took = time.monotonic() - begun
        families = [_family(environment.store, name) for name in ids]
        ends = [{environment.store.record(name).status for name in family} for family in families]
        statuses = Counter("completed" if end <= DONE else "/".join(sorted(end)) for end in ends)
        twice = sum(_completed_twice(environment, family) for family in families)
    lines = [line.split() for line in trace.read_text().splitlines()]
    drivers = {run: [pid for pid, _ in groupby(found[2] for found in lines if found[0] == run)] for run in _runs(lines)}
    shared = [run for run, pids in drivers.items() if len(pids) != len(set(pids))]
    shares = Counter(pid for *_, pid in lines)
    return {"statuses": dict(statuses), "twice": twice, "shared": shared, "shares": sorted(shares.values())}, took


def _runs(lines):
    return {run for run, *_ in lines}


def _enqueued(environment, number, names):
    name = names[number % len(names)]
    inputs = {"run": f"r{number}"} | ({"n": 0} if name == "chain" else {})
    while True:
        try:
            return environment.enqueue(name, inputs, key=f"r{number}").id
        except StoreBusyError:
            time.sleep(0.01)


def _family(store, name):
    """Return an execution, those that it has started, and those as which it went on."""
    later = [record.execution_id for record in store.records(parent=name)]
    return [name, *(one for child in later for one in _family(store, child))]


def _completed_twice(environment, family):
    done = Counter(
        (name if event.step == "mark" else "", event.step)
        for name in family
        for event in environment.store.read(name)
        if isinstance(event.data, OperationCompleted) and event.step in MARKS
    )
    return sum(times > 1 for times in done.values()) + (len(done) != 3)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.queues.kills", description=__doc__)
    parser.add_argument("executions", nargs="?", type=int, default=2000)
    parser.add_argument("workers", nargs="?", type=int, default=4)
    parser.add_argument("--endings", type=int, default=40)
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="divebook-queues-") as folder, ExitStack() as stack:
        for endings in (0, asked.endings):
            place = Path(folder) / f"store-{endings}.db"
            if asked.postgres:
                from tests.postgres.emptying import emptied
                from tests.postgres.server import postgres_server

                place = emptied(stack.enter_context(postgres_server()).url())
            within = Path(folder) / str(endings)
            within.mkdir()
            found, took = worked(within, place, asked.executions, asked.workers, endings, Random(1))
            sys.stdout.write(f"{asked.executions} executions, {endings} ends of workers: {found}, {took:.1f} s\n")
            assert found["statuses"] == {"completed": asked.executions}
            assert (found["twice"], found["shared"]) == (0, [])
            if not endings:
                assert len(found["shares"]) == asked.workers
                assert found["shares"][-1] <= 2 * found["shares"][0]


if __name__ == "__main__":
    main()

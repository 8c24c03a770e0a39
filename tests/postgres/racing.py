"""Processes that all want to write the next events of one execution."""

import subprocess
import sys
from pathlib import Path

from divebook.stores.maintenance import check
from divebook.stores.postgres import PostgresStore
from tests.store.logs import ONE

ROOT = Path(__file__).parent.parent.parent
RACER = """
import sys
from divebook.errors import ConcurrentAppendError
from divebook.events.catalog import StepCompleted
from divebook.stores.postgres import PostgresStore
from tests.store.logs import ONE, event, log
url, name, wins = sys.argv[1:]
won = 0
with PostgresStore(url, durability="relaxed") as store:
    try:
        store.append(ONE, log(1), 0)
    except ConcurrentAppendError:
        pass
    while won < int(wins):
        last = store.record(ONE).last_sequence
        mine = [event(last + n, StepCompleted(output=name), event_id=f"{name}-{last + n}") for n in (1, 2)]
        try:
            store.append(ONE, mine, last)
            won += 1
        except ConcurrentAppendError:
            pass
"""


def race(url, wins):
    """Have three processes win so often each, and check that the log is sound; it is deleted then."""
    racers = [subprocess.Popen([sys.executable, "-c", RACER, url, name, str(wins)], cwd=ROOT) for name in "abc"]
    assert [racer.wait(120) for racer in racers] == [0, 0, 0]
    with PostgresStore(url) as store:
        outputs = [entry.data.output for entry in store.read(ONE)[1:]]
        assert [outputs.count(name) for name in "abc"] == [2 * wins] * 3
        assert outputs[::2] == outputs[1::2]
        assert check(store).ok
        store.delete(ONE)

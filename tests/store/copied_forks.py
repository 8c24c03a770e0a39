"""Stores with forks at every event, forks of forks, what-ifs and trials, copied into stores of other kinds.

``python -m tests.store.copied_forks 50`` tries the stores of 50 seeds.
"""

import random
import sys
import tempfile
from pathlib import Path

from divebook import Agent, Environment, ScriptedModel
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.maintenance import check
from divebook.stores.transfer import copy
from tests.store.test_copying import told

STEPS = ("start", "last")
"""Steps of every random workflow, which a trial can run again."""


def fill(store, seed, every=1):
    """Run a workflow, fork it at every event and fork some of the forks again; return the number of executions."""
    # Not above: the module defines workflow functions, which the command line would offer in all other tests.
    from tests.replay.random_worlds import ACTIONS, ran, random_workflow

    rng = random.Random(seed)
    agent = Agent("model", model=ScriptedModel(["a number"]))
    with Environment(store=store, actions=ACTIONS, agents=[agent]) as environment:
        run = ran(environment, random_workflow(seed))
        names = [run.id]
        for at in range(1, len(run.history()) + 1, every):
            fork = environment.run_of(run.id).fork(at=at).wait(90)
            names.append(fork.id)
            while rng.random() < 0.4:
                source = rng.choice(names)
                fork = environment.run_of(source).fork(at=rng.randint(1, len(environment.run_of(source).history())))
                names.append(fork.wait(90).id)
        for name in rng.sample(names, 2):
            environment.run_of(name).what_if({"variables": {"v0": 2}})
        environment.run_of(run.id).try_step(rng.choice(STEPS))
        return len(environment.store.records())


def check_copy(source, target, count):
    """Copy a store; assert that the copy equals it, is sound, and shares as many events between its logs."""
    report = copy(source, target)
    assert (report.executions, report.already) == (count, 0)
    assert told(target) == told(source)
    assert check(target).ok, check(target).all_damages()
    for record in source.records():
        name = record.execution_id
        assert target.stored_log(name).shared == source.stored_log(name).shared, name
    assert copy(source, target).already == count


def check_copies(path, seed, every=1):
    """Copy the store of one seed from a file into a file, from there into memory, and back into a file."""
    source_path = path / "source.db"
    count = fill(source_path, seed, every)
    with (
        SqliteStore(source_path) as source,
        SqliteStore(path / "target.db") as target,
        MemoryStore() as memory,
        SqliteStore(path / "back.db") as back,
    ):
        check_copy(source, target, count)
        check_copy(target, memory, count)
        check_copy(memory, back, count)
    return count


if __name__ == "__main__":
    total = 0
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        with tempfile.TemporaryDirectory() as folder:
            total += check_copies(Path(folder), seed)
    sys.stdout.write(f"{total} executions copied three times each\n")

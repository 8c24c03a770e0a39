"""Copies of stores with forks: `divebook copy` shares the events that the source shares."""

import subprocess
import sys

import pytest

from divebook import Environment, Step, Workflow
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.transfer import copy
from tests.store.copied_forks import check_copies, fill
from tests.store.test_copying import copies

ROW = Workflow("row", [Step(f"s{number}", script="1", store=f"v{number}") for number in range(5)])


@pytest.mark.parametrize("seed", [1, 4])
def test_a_store_with_forks_of_forks_what_ifs_and_trials_is_copied(seed, tmp_path):
    check_copies(tmp_path, seed, every=9)


def test_a_copy_that_broke_off_between_forks_is_continued(path):
    with SqliteStore(path) as source, MemoryStore() as target:
        count = fill(source, 2, every=9)
        copied = []

        def break_off(name):
            copied.append(name)
            if len(copied) == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy(source, target, break_off)
        assert copies(source, target).already == 5
        assert copies(source, target).already == count


def test_forks_of_deleted_executions_are_copied(path):
    with SqliteStore(path) as source, MemoryStore() as target:
        with Environment(store=source) as environment:
            run = environment.start(ROW).wait(90)
            for at in range(1, len(run.history())):
                environment.run_of(environment.run_of(run.id).fork(at=at).wait(90).id).fork(at=at).wait(90)
        for record in source.records()[::3]:
            source.delete(record.execution_id)
        copies(source, target)


def test_the_command_copies_what_comes_after_a_fork_inside_a_record(tmp_path):
    with Environment(store=tmp_path / "source.db") as environment:
        run = environment.start(ROW).wait(90)
        environment.run_of(run.id).fork(at=10).wait(90)
        environment.start(ROW).wait(90)
    command = [sys.executable, "-m", "divebook", "copy", tmp_path / "source.db", tmp_path / "target.db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert ": 3 executions, " in done.stdout

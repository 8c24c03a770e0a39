"""A trial whose process was killed: nothing takes it up by itself, and it goes on by name."""

import os
import subprocess
import sys
from pathlib import Path

from tests.replay.dying import FATAL, environment

HOME = Path(__file__).parents[2]
KILLED = -9


def test_a_trial_whose_process_was_killed_goes_on_by_name_alone(tmp_path):
    store = str(tmp_path / "store.db")
    command = [sys.executable, "-m", "tests.replay.dying", store]
    ended = subprocess.run(command, cwd=HOME, env={**os.environ, "PYTHONPATH": str(HOME)}, check=False, timeout=60)
    assert ended.returncode == KILLED
    with environment(store) as world:
        (left,) = world.store.records(origin="trial")
        assert (left.status, world.queues.recoverable()) == ("running", [])
        before = world.run_of(left.parent).history()
        again = world.run_of(left.execution_id).resume().wait(20)
        (question,) = again.open_questions  # it may have been paid
        again = world.answer(question.id, "retry", run=again.id).wait(20)
        assert (again.status, again.variables["two"]) == ("completed", FATAL)
        assert world.run_of(left.parent).history() == before
        assert world.run_of(again.id).verify().divergence is None

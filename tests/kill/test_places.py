"""A process is killed; the one that goes on tells of a failure where a person finds it: in the file, or the cell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from divebook.definitions import read_definitions
from divebook.environments.environment import Environment
from divebook.steps.actions import Action
from divebook.stores import SqliteStore

HOME = Path(__file__).parents[2]
KILLED = -9
YAML = """Workflows:
- Name: survey
  Steps:
  - Name: first
    Action: act
    Parameters: {n: 3}
    Store: n
  - Name: second
    Script: |
      x = 1
      state.n // (x - 1)
"""
VICTIM = f"""
import os, signal, sys
from divebook import Environment
from divebook.steps import Action
from divebook.stores import SqliteStore
from divebook.definitions import read_definitions

def act(n):
    os.kill(os.getpid(), signal.SIGKILL)

world = Environment(store=SqliteStore(sys.argv[1]), actions=[Action("act", act, idempotent=True)])
world.define(read_definitions({YAML!r}, source_name="survey.yaml"))
world.start("survey").wait(30)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Return a folder with the store of a run whose process was killed in its first call."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", VICTIM, str(folder / "store.db")]
    victim = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(HOME)}, timeout=120, check=False)
    assert victim.returncode == KILLED
    return folder


@pytest.fixture
def store(killed, tmp_path):
    store = SqliteStore(str(shutil.copytree(killed, tmp_path / "copy") / "store.db"))
    yield store
    store.close()


def failure_after(store, *texts):
    """Go on with the run, in this process, where these texts were read before."""
    (record,) = store.records()
    world = Environment(store=store, actions=[Action("act", lambda n: n, idempotent=True)])
    for text in texts:
        world.define(read_definitions(text, source_name="survey.yaml"))
    return world.run_of(record.execution_id).resume().wait(30).failure


def test_whoever_has_read_the_same_file_names_its_line(store):
    failure = failure_after(store, YAML)
    assert (failure.headline, failure.place) == ("ZeroDivisionError: division by zero (line 2)", "survey.yaml:11:7")
    assert dict(failure.source)[failure.line] == "      state.n // (x - 1)"


@pytest.mark.parametrize("texts", [(), (YAML.replace("first", "begin"),)])
def test_whoever_has_not_or_another_one_names_the_line_of_the_script(store, texts):
    failure = failure_after(store, *texts)
    assert (failure.step, failure.place) == ("second", "line 2 of the script")
    assert dict(failure.source)[failure.line] == "state.n // (x - 1)"

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.steps.actions import REGISTERED

HELLO = """
Name: demo
Workflows:
  - Name: hello
    Inputs:
      - {Name: who, Type: string}
      - {Name: times, Type: int, Default: 2}
    Outputs:
      - {Name: greeting}
    Steps:
      - Name: greet
        Script: ("hello " + inputs.who + " ") * inputs.times
        Store: greeting
"""

SLOW = """
Workflows:
  - Name: slow
    Steps:
      - {Name: first, Script: 1 + 1, Store: n}
      - {Name: rest, Type: wait, Seconds: 600}
      - {Name: last, Script: state.n + 1, Store: m}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, without the functions of other tests, and leave no action or import path behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVEBOOK_STORE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("divebook.environments.registry.WORKFLOW_FUNCTIONS", {})
    actions = dict(REGISTERED)
    yield tmp_path
    REGISTERED.clear()
    REGISTERED.update(actions)


@pytest.fixture
def divebook():
    """Return a function that runs one command in this process."""
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def hello(folder):
    return write(folder / "hello.yaml", HELLO)


@pytest.fixture
def slow(folder):
    return write(folder / "slow.yaml", SLOW)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def process():
    """Return a function that starts a command as a process of its own; what still runs at the end is killed."""
    started = []

    def start(*arguments, **environ):
        home = str(Path(__file__).parents[2])
        running = subprocess.Popen(
            [sys.executable, "-m", "divebook", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": home, **environ},
        )
        started.append(running)
        return running

    yield start
    for running in started:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()

"""Completion of values in a shell, asked as the completion script of bash asks."""

import os
import subprocess
import sys

import pytest

from divebook import Environment
from divebook.definitions.reader import read_definitions

FLOWS = """\
Workflows:
  - Name: hello
    Steps: [{Name: greet, Script: 1 + 1, Store: n}]
  - Name: release
    Steps: [{Name: review, Ask: "Release?", Store: answer}]
"""


@pytest.fixture
def store(tmp_path):
    """Return the path of a store, with the ids of a completed run and of an open question."""
    path = tmp_path / "runs.db"
    with Environment(store=str(path)) as environment:
        environment.define(read_definitions(FLOWS))
        run = environment.start("hello", tags=["baseline"]).wait()
        asking = environment.start("release").wait()
        environment.enqueue("hello", queue="slow")
        return str(path), run.id, asking.open_questions[0].id


def completed(line, **variables):
    """Return what the completion of bash suggests at the end of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "from divebook.cli.main import main; main()"],
        env={
            **os.environ,
            "_DIVEBOOK_COMPLETE": "complete_bash",
            "COMP_WORDS": line.replace(" ", "\n"),
            "COMP_CWORD": str(len(words) - 1),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.split("\n") if line]


def test_values_of_the_store_are_suggested(store):
    path, run, question = store
    assert run in completed("divebook show exec", DIVEBOOK_STORE=path)
    assert completed("divebook runs --workflow h", DIVEBOOK_STORE=path) == ["hello"]
    assert completed("divebook runs --tag b", DIVEBOOK_STORE=path) == ["baseline"]
    assert completed(f"divebook answer --store {path} ask") == [question]


def test_queues_are_suggested_and_a_missing_store_suggests_nothing(store, tmp_path):
    path, _, _ = store
    assert completed("divebook enqueue flows.yaml --queue s", DIVEBOOK_STORE=path) == ["slow"]
    assert completed("divebook show exec", DIVEBOOK_STORE=str(tmp_path / "none.db")) == []

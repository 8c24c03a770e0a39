"""A folder with definitions and a store of runs in many states, which tests of commands copy."""

from pathlib import Path

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.reader import read_definitions
from divebook.definitions.resources import WorkspaceDefinition
from divebook.definitions.step import Step
from divebook.environments.environment import Environment

FLOWS = """\
Agents:
  - {Name: critic, Model: scripted, Instructions: Judge.}
Schedules:
  - {Name: daily, Cron: "0 8 * * *", Workflow: judge, Zone: UTC}
Workflows:
  - Name: hello
    Inputs: [{Name: who}, {Name: n, Type: int, Default: 2}]
    Outputs: [{Name: greeting}]
    Steps: [{Name: greet, Script: (inputs.who + " ") * inputs.n, Store: greeting}]
  - Name: release
    Steps: [{Name: review, Ask: {Question: Release?, Kind: confirmation}, Store: answer}]
  - Name: launch
    Steps:
      - Name: review
        Ask: {Question: Launch?, Kind: confirmation, Message: "It is ready.", ExpiresIn: 1000000, Default: no}
        Store: answer
  - Name: doorway
    Steps: [{Name: wait, Type: wait, Signal: go, Store: payload}]
  - Name: judge
    Steps: [{Name: ask, Agent: critic, Prompt: Is it good?, Store: verdict}]
  - Name: echo
    Inputs: [{Name: value}]
    Steps: [{Name: keep, Script: inputs.value, Store: value}]
"""
EDIT = Step("write", action="Workspace.Shell", parameters={"Command": "echo new > a.txt; echo x > b"})


@pytest.fixture(scope="package")
def template(tmp_path_factory):
    """Return a folder with definitions, a store ``runs.db`` and an exported run, and the ids of the runs by name."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("flows.yaml").write_text(FLOWS, encoding="utf-8")
        for name in ("project", "elsewhere"):
            Path(name).mkdir()
            Path(name, "a.txt").write_text("old\n", encoding="utf-8")
        with Environment(store="runs.db") as environment:
            environment.define(read_definitions(FLOWS))
            environment.add_workspace(WorkspaceDefinition("app", folder="project"))
            one = environment.start("hello", {"who": "Ann"}, tags=["first"], note="a note").wait()
            runs = {
                "ONE": one,
                "TWO": environment.start("hello", {"who": "Bob"}).wait(),
                "FAILED": environment.start("hello", {"who": 3, "n": 2}).wait(),
                "ASKS": environment.start("release").wait(),
                "EXPIRES": environment.start("launch").wait(),
                "STOPPED": environment.start("release").wait().cancel().wait(),
                "WAITS": environment.start("doorway").wait(),
                "FORK": one.fork(change={"inputs": {"n": 3}}).wait(),
                "EDITED": environment.start(Workflow("edit", [EDIT], workspace="app")).wait(),
                "AGAIN": environment.start("hello", {"who": "Eve", "n": 3}, key="again").wait(),
            }
            assert runs["EDITED"].status == "completed", runs["EDITED"].error
            one.what_if({"inputs": {"n": 1}})
            one.try_step("greet")
            environment.enqueue("hello", {"who": "Eve"}, queue="slow", key="later")
            one.export("one.jsonl")
            names = {name: run.id for name, run in runs.items()}
            return folder, {**names, "QUESTION": runs["ASKS"].open_questions[0].id}

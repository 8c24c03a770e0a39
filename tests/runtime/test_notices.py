"""Who is told of new questions."""

import json
import sys
import threading

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.step import Ask
from divebook.environments.settings import Notices
from divebook.errors import SetupError
from divebook.stores import SqliteStore

ASKING = Workflow("asking", [Step("ask", ask="Which one?", store="it"), Step("sure", ask="Sure?", store="sure")])


class AtOnce:
    """Runs what is submitted at once."""

    def submit(self, function, *arguments):
        function(*arguments)


def told_of(store):
    told = []
    store.subscribe(Notices(told.append, AtOnce()))
    return told


def test_every_new_question_is_told_once(tmp_path):
    with SqliteStore(tmp_path / "log.db") as store:
        told = told_of(store)
        execution = Environment(store=store).start(ASKING).wait(20)
        assert [(entry["question"], entry["step"], entry["execution_id"]) for entry in told] == [
            ("Which one?", "ask", execution.id)
        ]
        execution.answer(told[0]["interrupt_id"], "this").wait(20)
        Environment(store=store).run_of(execution.id).resume().wait(20)
        assert [entry["question"] for entry in told] == ["Which one?", "Sure?"]


def test_who_is_told_is_told_no_secret():
    told, given = [], {"password": "tulips in the window box"}
    ask = Step(
        "ask", type="interrupt", ask=Ask("Use ${inputs.password}?", data={"api_key": "${inputs.password}", "n": 1})
    )
    environment = Environment(store="memory:")
    environment.store.subscribe(Notices(told.append, AtOnce()))
    environment.start(Workflow("asking", [ask], inputs=["password"]), given).wait(20)
    (entry,) = told
    assert entry["question"] == "Use [redacted]?"
    assert entry["data"] == {"api_key": "[redacted]", "n": 1}


def test_a_hook_runs_beside_the_execution_and_cannot_break_it(caplog):
    heard = threading.Event()

    def hook(told):
        heard.set()
        raise RuntimeError(told["question"])

    execution = Environment(store="memory:", notify=hook).start(ASKING).wait(20)
    assert heard.wait(20)
    assert execution.status == "waiting"


def test_a_command_reads_the_question_as_json(tmp_path, monkeypatch):
    copy = f"import sys, pathlib; pathlib.Path({str(tmp_path / 'told.json')!r}).write_text(sys.stdin.read())"
    hook = Notices([sys.executable, "-c", copy], AtOnce())
    environment = Environment(store="memory:")
    environment.store.subscribe(hook)
    environment.start(ASKING).wait(20)
    assert json.loads((tmp_path / "told.json").read_text())["question"] == "Which one?"


def test_the_variable_names_a_command(monkeypatch):
    monkeypatch.setenv("DIVEBOOK_NOTIFY", "  ")
    with pytest.raises(SetupError, match="empty command"):
        Environment(store="memory:")

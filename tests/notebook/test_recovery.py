"""What a notebook says and does about executions that a dead process left."""

import json
import os
import subprocess
import sys

import pytest
from IPython.core.error import UsageError

from divebook import Environment, Step, Workflow
from divebook.config import answers as settings
from divebook.engine.inbox import Message
from divebook.errors import ExecutionError, NotFoundError
from divebook.notebook import recovery
from divebook.notebook.session import current_session, open_session, reset_session
from divebook.steps.actions import REGISTERED, Action
from divebook.stores import MemoryStore, open_store, registry
from tests.left_behind import HELLO, PAID, leave, pay


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, with its usual store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(recovery.STORE_VARIABLE, raising=False)
    monkeypatch.delenv(recovery.RECOVER_VARIABLE, raising=False)
    reset_session()
    yield tmp_path
    reset_session()


@pytest.fixture
def usual(folder, shell):
    """Have the shell use the usual store of the folder."""
    reset_session()
    yield open_store()
    reset_session()


def told(capsys):
    recovery.print_interrupted()
    return capsys.readouterr().out


def test_nothing_is_said_and_no_store_is_made_where_there_is_none(folder, capsys):
    assert told(capsys) == ""
    assert list(folder.iterdir()) == []


def test_nothing_is_said_where_nothing_was_interrupted(folder, capsys):
    open_session().start_run(HELLO).wait(20)
    assert told(capsys) == ""


@pytest.mark.usefixtures("notebook_words")
def test_interrupted_executions_are_counted(folder, capsys):
    leave(open_store())
    assert told(capsys) == "1 run was interrupted: %dive recover\n"
    leave(open_store())
    assert told(capsys) == "2 runs were interrupted: %dive recover\n"


def test_the_store_may_be_named_by_the_environment(folder, capsys, monkeypatch):
    monkeypatch.setenv(recovery.STORE_VARIABLE, str(folder / "elsewhere.db"))
    leave(open_store())
    assert "1 run was interrupted" in told(capsys)


def test_nothing_is_looked_for_if_that_is_not_wished(folder, capsys, monkeypatch):
    leave(open_store())
    monkeypatch.setenv(recovery.RECOVER_VARIABLE, "off")
    assert told(capsys) == ""


def test_a_file_that_is_no_store_does_not_stop_the_loading(folder, capsys):
    (folder / ".divebook").mkdir()
    (folder / recovery.STORE_FILE).write_text("my diary " * 200)
    printed = told(capsys)
    assert printed.startswith("the search for interrupted runs failed")
    assert "is not a divebook store" in printed


@pytest.mark.usefixtures("notebook_words")
def test_what_can_go_on_goes_on_by_itself(folder, capsys, monkeypatch):
    monkeypatch.setenv(recovery.RECOVER_VARIABLE, "auto")
    sound, lacking = leave(open_store()), leave(open_store(), PAID)
    assert told(capsys).splitlines() == [
        f"resumed {sound} of hello: %dive show {sound}",
        "1 run was interrupted: %dive recover",
    ]
    assert current_session().run_of(sound).wait(20).variables == {"n": 1, "m": 2}
    assert open_store().record(lacking).status == "running"


def test_a_wrong_setting_is_named(folder, capsys, monkeypatch):
    leave(open_store())
    monkeypatch.setenv(recovery.RECOVER_VARIABLE, "autoo")
    assert "DIVEBOOK_RECOVER cannot be 'autoo' (did you mean 'auto'?)" in told(capsys)


def test_the_names_are_those_of_the_modules_that_own_them():
    assert recovery.STORE_VARIABLE == registry.VARIABLE
    assert str(registry.DEFAULT) == recovery.STORE_FILE
    assert recovery.RECOVER_VARIABLE == settings.RECOVER_VARIABLE


def test_the_magic_lists_and_takes_up(usual, cell):
    assert cell("%dive recover")[1] == "nothing to recover\n"
    execution_id = leave(usual)
    listed = cell("%dive recover")[1]
    assert f"  {execution_id}  hello  interrupted" in listed
    assert "to resume one run: %dive recover ID; to resume all: %dive recover --all" in listed
    assert cell(f"%dive recover {execution_id[:-3]}")[1].startswith(f"resumed {execution_id} of hello")
    assert current_session().run_of(execution_id).wait(20).status == "completed"
    assert cell("%dive recover --all")[1] == "nothing to recover\n"


def test_the_magic_shows_a_page_at_a_time(usual, cell):
    for _ in range(3):
        leave(usual)
    assert "page" not in cell("%dive recover --page 1")[1]
    assert cell("%dive recover --page 2")[1] == "there is no page 2\n"
    with pytest.raises(UsageError, match="--page must be an integer from 1 to "):
        cell("%dive recover --page 0")


def test_the_magic_says_what_an_execution_lacks(usual, cell):
    lacking, sound = leave(usual, PAID), leave(usual)
    printed = cell("%dive recover --all")[1]
    assert f"resumed {sound}" in printed
    assert f'{lacking} was not resumed: action "pay" of step "pay" not found' in printed


def test_what_was_not_interrupted_is_not_recovered(usual, cell):
    execution_id = leave(usual)
    cell("%dive recover --all")
    current_session().run_of(execution_id).wait(20)
    with pytest.raises(ExecutionError, match="is completed, but not interrupted"):
        cell(f"%dive recover {execution_id}")
    with pytest.raises(NotFoundError):
        cell("%dive recover exec_nobody")


def test_a_definition_may_ask_for_recovery_by_itself(usual, cell, monkeypatch):
    monkeypatch.setitem(REGISTERED, "pay", Action("pay", pay))
    execution_id = leave(usual, PAID)
    assert "resumed" not in cell("%%dive agent a\nGoal: write\n")[1]
    assert f"resumed {execution_id} of paid" in cell("%%dive\nConfig: {Recover: auto}\n")[1]
    assert current_session().run_of(execution_id).wait(20).variables == {"n": 1, "receipt": "receipt"}


PROGRAM = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "divebook")
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_telling_loads_no_heavy_library(folder):
    leave(open_store())
    environ = {**os.environ, "IPYTHONDIR": str(folder), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ, cwd=folder)
    line, loaded = done.stdout.splitlines()
    assert line == "1 run was interrupted: %dive recover"
    assert not {"pandas", "pydantic", "pydantic_ai", "pydantic_monty", "ruamel"} & set(json.loads(loaded))


def test_a_shell_without_cells_says_that_it_starts_an_interrupted_run_anew(usual, cell):
    """Typed again after the death of its process, a line would repeat all calls without a word."""
    execution_id = leave(usual)
    current_session().define(HELLO)
    run, printed = cell("%dive run hello")
    assert run.id != execution_id
    assert f"run {execution_id} with the same inputs was interrupted" in printed
    assert f"%dive resume {execution_id}" in printed
    assert "interrupted" not in cell("%dive run hello --new")[1]
    assert cell(f"%dive resume {execution_id}")[0].status == "completed"
    assert "interrupted" not in cell("%dive run hello")[1]


def test_a_shell_without_cells_names_a_run_that_can_continue_by_its_status(usual, cell):
    asks = Workflow("asks", [Step("ask", ask="Who?", store="who")])
    current_session().define(asks)
    run = current_session().start_run(asks).wait(20)
    assert "with the same inputs" not in cell("%dive run asks")[1]  # it needs an answer
    run.store.post(Message(run.id, "signal", "go", None, "ann@work:1", 1))
    printed = cell("%dive run asks")[1]
    assert f"run {run.id} with the same inputs is waiting and can continue" in printed
    assert "interrupted" not in printed


def test_a_shell_without_cells_names_no_child_of_another_run(usual, cell):
    world = Environment(store=MemoryStore(), workflows=[HELLO, Workflow("above", [Step("below", workflow="hello")])])
    world.start("above").wait(20)
    for record in reversed(world.store.records()):
        events = world.store.read(record.execution_id)
        usual.append(record.execution_id, [event for event in events if "completed" not in event.event_type][:4], 0)
    current_session().define(HELLO)
    assert {record.workflow_name for record in usual.orphans()} == {"above", "hello"}
    assert "with the same inputs" not in cell("%dive run hello")[1]


def test_a_run_that_waited_and_can_continue_was_not_interrupted(folder, capsys):
    asks = Workflow("asks", [Step("ask", ask="Who?", store="who")])
    with Environment(store=open_store(), workflows=[asks]) as world:
        run = world.start(asks).wait(20)
        run.store.post(Message(run.id, "signal", "go", None, "ann@work:1", 1))
        assert told(capsys).startswith("1 run can continue: ")

"""The environment behind a notebook, and the functions for where there are no magics."""

import pytest

import divebook
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.notebook.session import current_session, open_session, print_visibly, reset_session
from divebook.notebook.session_functions import define
from divebook.steps.actions import REGISTERED

SUM = "Workflows: [{Name: sum, Inputs: [{Name: a, Default: 1}], Steps: [{Name: add, Script: inputs.a + 1, Store: n}]}]"
TWO = """
Workflows:
  - {Name: one, Steps: [{Name: s, Script: '1', Store: n}]}
  - {Name: two, Steps: [{Name: s, Script: '2', Store: n}]}
"""


def test_a_workflow_is_run_by_name(session):
    assert define(SUM).defined == ("workflow 'sum' (1 step)",)
    assert divebook.run("sum", {"a": 41}).wait().variables == {"n": 42}


def test_a_workflow_object_is_run(session):
    workflow = divebook.Workflow("w", [divebook.Step("s", script="7", store="n")])
    assert divebook.run(workflow).wait().variables == {"n": 7}
    assert "w" not in session.environment.definitions.workflows


def test_a_text_is_run_and_stays_defined(session):
    assert divebook.run(SUM).wait().variables == {"n": 2}
    assert divebook.run("sum").wait().status == "completed"


def test_a_file_and_a_folder_are_run(session, tmp_path):
    path = tmp_path / "flows.yaml"
    path.write_text(SUM)
    assert divebook.run(str(path)).wait().variables == {"n": 2}
    assert divebook.run(path, {"a": 2}).wait().variables == {"n": 3}
    assert divebook.run(str(tmp_path)).wait().variables == {"n": 2}


def test_content_that_a_file_names_is_looked_up_beside_it(session, tmp_path):
    (tmp_path / "note.txt").write_text("beside the file")
    path = tmp_path / "flow.yaml"
    path.write_text(
        "Agents: [{Name: a}]\n"
        "Workflows: [{Name: w, Steps: [{Name: ask, Prompt: hello, Content: [{Path: note.txt}]}]}]\n"
    )
    run = divebook.run(path).wait()
    assert run.status == "completed"
    assert "beside the file" in str(run.operations.parameters[0])


def test_one_of_several_workflows_must_be_named(session):
    with pytest.raises(SetupError, match=r"run\(\.\.\., name=\.\.\.\); workflows in these definitions: one, two"):
        divebook.run(TWO)
    assert divebook.run(TWO, name="two").wait().variables == {"n": 2}


def test_the_default_workflow_needs_no_name(session):
    assert divebook.run(f"Config: {{DefaultWorkflow: two}}\n{TWO}").wait().variables == {"n": 2}


def test_an_unknown_name_suggests_the_nearest(session):
    session.define(SUM)
    with pytest.raises(NotFoundError, match="did you mean 'sum'"):
        divebook.run("summ")
    with pytest.raises(DefinitionError, match="failed to read file missing"):
        divebook.run("missing.yaml")


def test_a_definition_is_replaced_and_a_run_keeps_its_own(session):
    first = session.define(SUM)
    run = divebook.run("sum").wait()
    second = session.define(SUM.replace("inputs.a + 1", "inputs.a + 100"))
    assert first.defined == second.replaced == ("workflow 'sum' (1 step)",)
    assert divebook.run("sum").wait().variables == {"n": 101}
    assert session.run_of(run.id).workflow.step("add").script == "inputs.a + 1"


def test_nothing_is_defined_by_a_text_with_problems(session):
    with pytest.raises(DefinitionError, match="Promt"):
        session.define(SUM + "\nAgents: [{Name: a, Promt: x}]")
    assert session.environment.definitions.workflows == {}


def test_runs_are_a_frame_newest_first(session):
    divebook.run(SUM).wait()
    latest = divebook.run("sum").wait()
    assert divebook.runs().frame().execution_id.iloc[0] == latest.id
    assert len(divebook.runs(limit=1)) == 1
    assert len(divebook.runs(status="failed")) == 0


def test_another_store_has_the_same_definitions(session, tmp_path):
    session.define(SUM)
    place = str(tmp_path / "other.db")
    run = divebook.run("sum", store=place).wait()
    assert list(divebook.runs(store=place).frame().execution_id) == [run.id]
    assert len(divebook.runs()) == 0
    session.define(SUM.replace("+ 1", "+ 5"))
    assert divebook.run("sum", store=place).wait().variables == {"n": 6}


def test_the_session_is_made_when_first_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVEBOOK_STORE", raising=False)
    reset_session()
    try:
        session = current_session()
        assert current_session() is session
        assert not (tmp_path / ".divebook").exists()
        assert session.environment.store.location.endswith("executions.db")
        session.environment.store.close()
    finally:
        reset_session()


def test_a_new_session_forgets_definitions(session):
    session.define(SUM)
    assert open_session("memory:").environment.definitions.workflows == {}


def test_what_a_workflow_prints_cannot_act_on_the_terminal(capsys):
    print_visibly("a\x1b[2Jb\n")
    print_visibly("c")
    assert capsys.readouterr().out == "a\\x1b[2Jb\nc\n"


def test_print_steps_reach_stdout(session, capsys):
    divebook.run("Workflows: [{Name: w, Steps: [{Name: p, Action: Print, Parameters: {Message: hello}}]}]").wait()
    assert capsys.readouterr().out == "hello\n"


def test_actions_of_the_process_are_available(session):
    @divebook.action("Test.Seven")
    def seven():
        return 7

    try:
        text = "Workflows: [{Name: w, Steps: [{Name: s, Action: Test.Seven, Store: n}]}]"
        assert divebook.run(text).wait().variables == {"n": 7}
    finally:
        del REGISTERED["Test.Seven"]

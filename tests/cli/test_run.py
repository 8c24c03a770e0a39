import json

import pytest

from divebook import Environment
from divebook.stores import open_store
from tests.cli.conftest import HELLO, write


def test_run_prints_the_outputs_the_status_and_the_id(divebook, hello):
    result = divebook("run", hello, "-v", "who=you")
    execution_id = open_store().records()[0].execution_id
    assert result.exit_code == 0
    assert result.stdout.startswith(f"hello: ✓ completed\n  {execution_id}\n")
    assert "1 output:\n  greeting = hello you hello you" in result.stdout


def test_run_shows_each_step_as_a_line_on_stderr_when_that_is_no_terminal(divebook, hello):
    lines = divebook("run", hello, "-v", "who=you").stderr.splitlines()
    assert lines[0] == "running  main  greet"
    assert lines[1].startswith("completed  main  greet  ")


def test_quiet_shows_no_progress(divebook, hello):
    assert divebook("run", hello, "-v", "who=you", "--quiet").stderr == ""


def test_json_is_all_that_goes_to_stdout(divebook, hello):
    result = json.loads(divebook("run", hello, "-v", "who=you", "-v", "times=1", "--json").stdout)
    assert result["status"] == "completed"
    assert result["inputs"] == {"who": "you", "times": 1}
    assert result["outputs"] == {"greeting": "hello you "}


def test_what_a_workflow_prints_goes_to_stderr(divebook, folder):
    path = write(
        folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: s, Action: Print, Parameters: {Message: printed}}]}]"
    )
    result = divebook("run", path, "--quiet")
    assert result.stderr == "printed\n"
    assert "printed" not in result.stdout


def test_variables_are_printed_where_no_outputs_are_declared(divebook, folder):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: s, Script: '[1, 2]', Store: found}]}]")
    assert "1 variable:\n  found = [1, 2]\n" in divebook("run", path).stdout


def test_a_run_that_goes_on_as_a_new_one_is_waited_for_until_the_last_has_ended(divebook, folder):
    again = "{Name: again, Type: continue_as_new, Inputs: {until: '$(inputs.until)'}}"
    count = (
        "{Name: count, Script: 'state.get(\"n\", 0) + 1', Store: n, Next: [{Step: again, Condition: '$(state.n < 3)'}]}"
    )
    inputs = "[{Name: until, Type: int}]"
    path = write(folder / "a.yaml", f"Workflows: [{{Name: a, Inputs: {inputs}, Steps: [{count}, {again}]}}]")
    result = divebook("run", path, "-v", "until=3", "--quiet")
    last, *before = open_store().records()
    assert result.exit_code == 0
    assert result.stdout.startswith(f"a: ✓ completed\n  {last.execution_id}\n")
    assert "n = 3" in result.stdout
    assert [record.status for record in before] == ["continued_as_new"] * 2


def test_a_failed_run_says_why_and_how_to_go_on(divebook, folder):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: s, Script: 1 / 0}]}]")
    result = divebook("run", path)
    assert result.exit_code == 1
    assert "error: ZeroDivisionError: division by zero" in result.stdout
    assert f"to continue: divebook resume {open_store().records()[0].execution_id} -d {path}" in result.stdout


def test_a_store_in_memory_leaves_nothing_to_go_on_with(divebook, folder):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: s, Script: 1 / 0}]}]")
    assert "to continue" not in divebook("run", path, "--store", "memory:").output


# --- inputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), 'input "who" is required by workflow '),
        (("-v", "who=a", "-v", "times=two"), "input \"times\" must be of type int, got str: 'two'; write times=5"),
        (("-v", "who=a", "-v", "tmies=2"), "did you mean 'times'?"),
        (("-v", "who"), "-v 'who' is not an input; write -v name=value"),
        (("-v", "=x"), "is not an input"),
        (("-v", "who=a", "-v", "who=b"), "input 'who' is given twice"),
        (("-v", "times:=[1"), "input 'times': [1 is not JSON"),
        (("-w", "helo"), "did you mean 'hello'?"),
        (("--actions", "nowhere.py"), "actions 'nowhere.py' cannot be imported: there is no such file"),
        (("--actions", "no_such_module"), "ModuleNotFoundError"),
    ],
)
def test_bad_input_is_refused_with_one_line(divebook, hello, arguments, message):
    result = divebook("run", hello, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_nothing_is_recorded_of_a_refused_run(divebook, hello):
    divebook("run", hello)
    assert open_store().records() == []


def test_lists_and_maps_are_given_as_json(divebook, folder):
    text = (
        "Workflows: [{Name: a, Inputs: [{Name: xs, Type: list}], Steps: [{Name: s, Script: sum(inputs.xs), Store: n}]}]"
    )
    path = write(folder / "a.yaml", text)
    assert "n = 6" in divebook("run", path, "-v", "xs:=[1, 2, 3]").stdout


def test_a_value_may_hold_equals_signs(divebook, hello):
    assert "hello a=b" in divebook("run", hello, "-v", "who=a=b").stdout


# --- definitions ---------------------------------------------------------------------------------------------------

TWO = "Workflows: [{Name: a, Steps: [{Name: s, Script: '1'}]}, {Name: b, Steps: [{Name: s, Script: '2', Store: n}]}]"


def test_of_several_workflows_one_must_be_chosen(divebook, folder):
    path = write(folder / "two.yaml", TWO)
    refused = divebook("run", path)
    assert refused.exit_code == 2
    assert "two.yaml: a, b. Choose one with -w NAME" in refused.stderr
    assert divebook("run", path, "-w", "b").exit_code == 0


def test_the_default_workflow_needs_no_choice(divebook, folder):
    path = write(folder / "two.yaml", f"Config: {{DefaultWorkflow: b}}\n{TWO}")
    assert divebook("run", path).stdout.startswith("b: ✓ completed")


def test_a_file_without_workflows_is_refused(divebook, folder):
    result = divebook("run", write(folder / "a.yaml", "Name: empty"))
    assert result.exit_code == 2
    assert "there is no workflow in " in result.stderr


def test_a_folder_is_merged(divebook, folder):
    (folder / "all").mkdir()
    write(folder / "all" / "1.yaml", TWO)
    write(folder / "all" / "2.yaml", "Config: {DefaultWorkflow: a}")
    assert divebook("run", folder / "all").stdout.startswith("a: ✓ completed")


def test_every_problem_of_a_file_is_a_line_with_its_place(divebook, folder):
    path = write(folder / "bad.yaml", HELLO.replace("Script:", "Scirpt:").replace("Store:", "Stroe:"))
    result = divebook("run", path)
    lines = result.stderr.splitlines()
    assert result.exit_code == 2
    assert len(lines) >= 2
    assert all(line.startswith(f"error: {path}:") for line in lines)
    assert "'Scirpt'" in result.stderr
    assert "did you mean 'Store'?" in result.stderr


def test_warnings_of_a_file_are_shown_and_do_not_stop_the_run(divebook, folder):
    text = """
Workflows:
  - Name: a
    Steps:
      - {Name: fork, Script: '1', Next: [{Step: left}, {Step: right}]}
      - {Name: left, Script: '2'}
      - {Name: right, Script: '3'}
"""
    result = divebook("run", write(folder / "a.yaml", text))
    assert "warning: " in result.stderr.splitlines()[0]
    assert result.exit_code == 0


def test_a_file_of_the_old_system_is_read_in_its_dialect(divebook, folder):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: s, Type: dance}]}]")
    assert divebook("run", path).exit_code == 2
    assert divebook("run", path, "--dialect", "dive").exit_code == 1


def test_content_is_read_from_beside_the_file(divebook, folder):
    (folder / "deep").mkdir()
    write(folder / "deep" / "notes.md", "remember the milk")
    text = """
Agents: [{Name: helper}]
Workflows:
  - Name: a
    Steps:
      - {Name: s, Agent: helper, Prompt: what, Content: [{Path: notes.md}], Store: answer}
"""
    result = divebook("run", write(folder / "deep" / "a.yaml", text))
    assert result.exit_code == 0, result.stderr
    recorded = " ".join(str(event.data) for event in open_store().read(open_store().records()[0].execution_id))
    assert "remember the milk" in recorded


# --- actions -------------------------------------------------------------------------------------------------------

SHOUT = "from divebook import action\n\n@action('Text.Shout')\ndef shout(Text):\n    return Text.upper()\n"
SHOUTING = "Workflows: [{Name: a, Steps: [{Name: s, Action: Text.Shout, Parameters: {Text: hi}, Store: loud}]}]"


@pytest.mark.parametrize("source", ["shouting.py", "shouting"])
def test_actions_come_from_a_file_or_a_module(divebook, folder, source, monkeypatch):
    monkeypatch.delitem(__import__("sys").modules, "shouting", raising=False)
    write(folder / "shouting.py", SHOUT)
    result = divebook("run", write(folder / "a.yaml", SHOUTING), "--actions", source)
    assert "loud = HI" in result.stdout


def test_without_its_actions_a_workflow_is_refused(divebook, folder):
    result = divebook("run", write(folder / "a.yaml", SHOUTING))
    assert result.exit_code == 2
    assert 'action "Text.Shout" of step "s" not found' in result.stderr


def test_actions_that_cannot_be_imported_are_refused(divebook, folder, hello):
    write(folder / "broken.py", "1 / 0")
    result = divebook("run", hello, "--actions", "broken.py")
    assert result.exit_code == 2
    assert "actions 'broken.py' cannot be imported: ZeroDivisionError: division by zero" in result.stderr


# --- errors and text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_shows_the_traceback_wherever_it_stands(divebook, place):
    arguments = ["run", "nowhere.yaml"]
    arguments.insert(place, "--debug")
    result = divebook(*arguments)
    assert type(result.exception).__name__ == "DefinitionError"


def test_hostile_text_cannot_steer_the_terminal(divebook, folder):
    evil = "\x1b[2J[red]x[/red]\u202eabc\x9b31m\r:smile:"
    text = (
        "Workflows: [{Name: a, Inputs: [{Name: t}], Steps: ["
        "{Name: say, Action: Print, Parameters: {Message: '${inputs.t}'}}, {Name: s, Script: inputs.t, Store: out}]}]"
    )
    path = write(folder / "a.yaml", text)
    for arguments in ((), ("--json",)):
        result = divebook("run", path, "-v", f"t={evil}", *arguments)
        assert not set("\x1b\u202e\x9b\r") & set(result.stdout + result.stderr)
        assert "[red]x[/red]" in result.stdout
        assert ":smile:" in result.stdout
    assert json.loads(result.stdout)["variables"]["out"] == evil
    shown = divebook("show", open_store().records()[0].execution_id, "--events")
    assert not set("\x1b\u202e\x9b\r") & set(shown.stdout)


NO_MODEL = """
Config: {DefaultProvider: anthropic}
Agents: [{Name: a}]
Workflows: [{Name: w, Steps: [{Name: s, Prompt: hi, Store: r}]}]
"""


def test_an_old_file_that_leaves_the_model_to_a_provider_runs_where_that_cannot_be_asked(
    divebook, folder, lacking, caplog
):
    lacking("anthropic")
    file = write(folder / "old.yaml", NO_MODEL)
    ran = divebook("run", file, "--dialect", "dive", "--json", "-q")
    assert ran.exit_code == 0
    assert "[scripted model: no model configured] Prompt" in ran.stdout
    assert "a scripted model replaces it: this run has no real model responses, also after a resume" in caplog.text
    assert "For real responses: pip install 'pydantic-ai-slim[anthropic]', and start a new run" in caplog.text
    assert divebook("run", file, "-q").exit_code == 1


@pytest.mark.parametrize(
    ("word", "value"),
    [("n=2", 2), ('n="2"', "2"), ('n="true"', "true"), ('n="[1]"', "[1]"), ('n:="2"', "2"), ("n=[1]", [1])],
)
def test_a_value_in_quotes_is_a_text(divebook, folder, word, value):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Inputs: [{Name: n}], Steps: [{Name: s, Script: inputs.n}]}]")
    assert divebook("run", path, "-v", word).exit_code == 0
    assert Environment(store=open_store()).run_of(open_store().records()[0].execution_id).inputs == {"n": value}

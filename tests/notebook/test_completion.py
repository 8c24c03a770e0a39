"""Completion in a real shell, and through the messages of a real kernel."""

import pytest

from divebook.agents.models import usable_models
from divebook.definitions import schema
from divebook.definitions.step import STEP_TYPES

SUM = """\
%%dive workflow sum
Inputs: [{Name: a, Type: int, Default: 1}, {Name: fast, Type: bool, Default: true}]
Steps:
  - {Name: add, Script: inputs.a + 1, Store: n}
"""
ASKING = "%%dive workflow 'ask me'\nSteps:\n  - {Name: q, Ask: {Question: ok?, Kind: confirmation}}\n"
CURSOR = "‸"


@pytest.fixture
def completed(shell):
    """Return ``completed(text)``: the completions at the cursor as ``{text: type}``, and the cell with the first."""
    shell.Completer.use_jedi = False

    def complete(text):
        before, _, behind = text.partition(CURSOR)
        with pytest.warns(FutureWarning):
            found = list(shell.Completer.completions(before + behind, len(before)))
        complete.first = before[: found[0].start] + found[0].text if found else None
        return {entry.text: entry.type for entry in found if entry._origin == "divebook"}

    return complete


# --- lines ---------------------------------------------------------------------------------------------------------


def test_sub_commands_are_offered(completed):
    assert completed("%dive ru") == {"run": "command", "runs": "command", "rules": "command"}
    assert list(completed("r = %dive "))[:3] == ["run", "ask", "resume"]
    assert completed("for i in range(3):\n    r[i] = %dive resu") == {"resume": "command"}
    assert completed("%dive help canc") == {"cancel": "command"}
    assert completed("%dive help Catc") == {"Catch": "key"}


def test_workflows_and_their_inputs_are_offered(completed, cell):
    cell(SUM)
    cell(ASKING)
    assert completed("%dive run ") == {"sum": "workflow", "'ask me'": "workflow"}
    assert completed("r = %dive run sum ") == {"a=": "int", "fast=": "bool"}
    assert completed("%dive run sum a=1 ") == {"fast=": "bool"}
    assert completed("%dive run sum fast=f") == {"false": "value"}
    assert completed.first == "%dive run sum fast=false"
    assert completed("%dive runs --workflow s") == {"sum": "workflow"}


def test_agents_are_offered_to_be_asked(completed, cell):
    cell("%%dive agent critic\nGoal: judge\n")
    cell("question = 'why?'")
    assert completed("%dive ask ") == {"critic": "agent"}
    assert completed("%dive ask cr") == {"critic": "agent"}
    assert completed("%dive ask critic $q") == {"$question": "variable"}
    cell("import dataclasses\n@dataclasses.dataclass\nclass Verdict:\n    fair: bool\nclass Other: ...")
    assert completed("%dive ask critic x --output ") == {"Verdict": "output"}


def test_steps_that_ask_are_offered_for_answers_up_front(completed, cell):
    cell("%%dive workflow w\nSteps:\n- {Name: sure, Ask: ok?}\n- {Name: add, Script: '1'}\n")
    assert completed("%dive run w --answer ") == {"sure=": "answer"}
    assert "--answer" in completed("%dive run w --answer sure=yes --")


def test_variables_of_the_user_are_offered_for_inputs(completed, cell):
    cell(SUM)
    cell("rows = [1]")
    assert completed("%dive run sum a=$") == {"$rows": "variable"}


def test_options_and_their_values_are_offered(completed, cell):
    cell(SUM)
    assert {"--background", "--store", "--help"} <= set(completed("%dive run sum --"))
    assert "--background" not in completed("%dive run sum --background --")
    assert completed("%dive run sum --durability r") == {"relaxed": "durability"}
    assert completed("%dive runs --status fa") == {"failed": "status"}
    assert completed("%dive runs --status=fa") == {"failed": "status"}
    assert completed.first == "%dive runs --status=failed"


def test_executions_are_offered_newest_first_with_their_status(completed, cell):
    cell(SUM)
    cell(ASKING)
    done, _ = cell("%dive run sum")
    waiting, _ = cell("%dive run 'ask me'")
    assert list(completed("%dive show ").items()) == [(waiting.id, "waiting"), (done.id, "completed")]
    assert completed("%dive resume ") == {waiting.id: "waiting"}
    assert completed(f"x = %dive cancel {waiting.id[:-2]}") == {waiting.id: "waiting"}


def test_questions_are_offered(completed, cell):
    cell(ASKING)
    run, _ = cell("%dive run 'ask me'")
    assert completed("%dive answer ") == {f"{run.open_questions[0].id}@{run.id}": "confirmation"}


@pytest.mark.parametrize("text", ["%dive run sum 'a", "%dive zebra a", "%dive list x", "dive run s", "%other run s"])
def test_elsewhere_nothing_is_offered(completed, cell, text):
    cell(SUM)
    assert completed(text) == {}


# --- cells ---------------------------------------------------------------------------------------------------------


def test_the_first_line_of_a_cell_is_completed(completed, cell):
    cell(SUM)
    assert completed("%%dive wor") == {"workflow": "command"}
    assert completed("\n%%dive workflow s") == {"sum": "workflow"}
    assert completed("%%dive workflow sum --di") == {"--dialect": "option"}
    cell("%%dive agent writer\nGoal: write\n")
    assert completed("%%dive scr") == {"script": "command"}
    assert completed("%%dive script w") == {"writer": "agent"}
    assert completed("%%dive agent x --dialect ") == {"divebook": "dialect", "dive": "dialect"}


@pytest.mark.parametrize(
    ("cell_text", "table"),
    [
        ("%%dive\n‸", schema.DEFINITIONS),
        ("%%dive agent a\n‸", schema.AGENT),
        ("%%dive workflow w\n‸", schema.WORKFLOW),
        ("%%dive\nWorkflows:\n  - Steps:\n      - ‸", schema.STEP),
        ("%%dive workflow w\nSteps:\n  - Each: {‸", schema.EACH),
        ("%%dive workflow w\nSteps:\n  - Ask:\n      ‸", schema.ASK),
        ("%%dive workflow w\nSteps:\n  - Retry:\n      ‸", schema.RETRY),
        ("%%dive workflow w\nSteps:\n  - Catch: [{‸", schema.CATCH),
        ("%%dive workflow w\nSteps:\n  - Next:\n      - ‸", schema.EDGE),
        ("%%dive\nConfig:\n  ‸", schema.CONFIG),
        ("%%dive\nAgents:\n  - ModelSettings: {‸", schema.MODEL_SETTINGS),
    ],
)
def test_every_place_has_the_keys_of_its_table(completed, cell_text, table):
    assert completed(cell_text) == {f"{key.name}: ": "key" for key in table.keys if not key.ignored}


def test_keys_that_are_there_are_not_offered_again(completed):
    text = "%%dive workflow w\nSteps:\n  - Name: a\n    S‸\n    Script: x\n"
    assert completed(text) == {"Store: ": "key", "Seconds: ": "key", "Signal: ": "key"}


def test_an_unknown_case_and_a_written_colon_are_understood(completed):
    assert completed("%%dive workflow w\nste‸: []") == {"Steps": "key"}


def test_lists_begin_with_a_dash(completed):
    assert completed("%%dive workflow w\nSteps:\n  ") == {"- Name: ": "item"}


def test_bounds_are_offered(completed):
    assert completed("%%dive workflow w\nBounds: {MaxL") == {"MaxLLMCalls: ": "key"}


def test_extensions_are_not_offered_in_the_old_dialect(completed):
    assert "Retry: " not in completed("%%dive workflow w --dialect dive\nSteps:\n  - ")
    assert "Retry: " in completed("%%dive workflow w\nSteps:\n  - ")


def test_values_are_offered(completed, cell):
    cell("%%dive agent critic\nGoal: x\n")
    step = "%%dive workflow w\nSteps:\n  - Name: one\n  - Name: two\n    "
    assert set(completed(f"{step}Type: ")) == {*STEP_TYPES} - {"function"}
    assert completed(f"{step}Agent: ") == {"critic": "agent"}
    assert completed(f"{step}Join: t") == {"true": "value"}
    assert completed(f"{step}Next: [{{Step: ‸\n  - Name: three\n") == dict.fromkeys(("one", "two", "three"), "step")
    assert completed(f"{step}Action: Document.W") == {"Document.Write": "action"}
    assert completed(f"{step}Ask: {{Kind: conf") == {"confirmation": "kind"}
    assert completed("%%dive\nConfig:\n  Durability:") == {" full": "value", " relaxed": "value"}
    agents = "%%dive\nAgents:\n  - Name: boss\n  - Name: clerk\n    Subordinates: ["
    assert completed(agents) == {"boss": "agent", "critic": "agent"}


def test_texts_are_left_alone(completed):
    assert completed("%%dive workflow w\nSteps:\n  - Script: |\n      St") == {}
    assert completed("%%dive workflow w\nSteps:\n  - Prompt: St") == {}
    assert completed("%%dive workflow w\nUnknown:\n  St") == {}


def test_variables_inputs_and_items_are_offered_in_code(completed):
    top = "%%dive workflow w\nInputs: [{Name: topic}]\nSteps:\n- {Name: a, Script: '1', Store: total}\n"
    loop = f"{top}- Name: b\n  Each: {{Items: [1], As: row}}\n"
    both = {"inputs.topic": "input", "state.total": "variable"}
    assert completed(f"{loop}  Prompt: On ${{") == {**both, "row": "item"}
    assert completed(f"{loop}  Prompt: |\n    On ${{state.to‸}}, and more\n") == {"state.total": "variable"}
    assert completed.first.endswith("On ${state.total")
    assert completed(f"{top}- {{Name: b, Action: Print, Parameters: {{x: '${{inp") == {"inputs.topic": "input"}
    assert completed(f"{top}- {{Name: b, Next: [{{Step: a, Condition: sta") == {"state.total": "variable"}
    assert completed(f"{top}- Name: b\n  Script: |\n    1 + st") == {"state.total": "variable"}
    assert completed(f"{top}- Name: b\n  Each: {{Items: $(st") == {"state.total": "variable"}
    assert completed(f"{loop}  Prompt: ${{state.total}} st") == {}


def test_variables_of_other_workflows_are_not_offered(completed):
    text = "%%dive\nWorkflows:\n- Name: v\n  Steps: [{Name: a, Script: '1', Store: x}]\n- Name: w\n  Steps:\n"
    assert completed(f"{text}  - Name: b\n    Store: y\n  - Name: c\n    Prompt: ${{s") == {"state.y": "variable"}
    assert completed(f"{text}  - Name: b\n    Workflow: ") == {"v": "workflow"}


def test_models_of_installed_providers_are_offered(completed, monkeypatch):
    monkeypatch.setattr("divebook.agents.models._missing_library", lambda name: "" if name == "openai" else "no")
    usable_models.cache_clear()
    found = completed("%%dive agent a\nModel: openai:gpt-6-l")
    usable_models.cache_clear()
    assert found == {"openai:gpt-6-luna": "model"}
    assert completed("%%dive agent a\nModel: scr") == {"scripted": "model"}
    assert "anthropic" in completed("%%dive agent a\nProvider: ")


# --- through a kernel ----------------------------------------------------------------------------------------------


def test_a_kernel_completes_behind_an_assignment(kernel):
    kernel.text(SUM)
    code = "x = 1\nr = %dive run sum fa"
    reply = kernel.client.complete(code, reply=True, timeout=20)["content"]
    assert reply["matches"] == ["fast="]
    assert code[reply["cursor_start"] : reply["cursor_end"]] == "fa"
    assert [found["type"] for found in reply["metadata"]["_jupyter_types_experimental"]] == ["bool"]


def test_a_kernel_completes_keys_of_a_cell(kernel):
    reply = kernel.client.complete("%%dive workflow w\nSteps:\n  - {Name: a, Scr", reply=True, timeout=20)["content"]
    assert reply["matches"] == ["Script: "]

"""``divebook convert``: a definition of the legacy Dive dialect becomes one of divebook's own."""

import json

import pytest

from divebook.config import load
from tests.cli.conftest import write

OLD = """
Name: Old
Agents: [{Name: A, Goal: Help, ModelSettings: {MaxTokens: 100}}]
Workflows:
  - Name: main
    Inputs: [{Name: n, Default: 3}]
    Steps:
      - Name: count
        Script: |
          x := inputs.n > 2 && true ? "many" : "few"
          x
        Store: amount
        Next: [{Step: show, Condition: "$(state.amount != nil && !(state.amount == \\"few\\"))"}]
      - Name: show
        Action: Print
        Parameters:
          Message: "${state.amount == \\"many\\" ? 1 : 0} for $${inputs.n}"
          Raw: $(inputs.n)
          Nested: {deep: ["${inputs.n}", $(inputs.n)]}
        End: true
"""


@pytest.fixture
def old(folder):
    return write(folder / "old.yaml", OLD.replace("\\\\", "\\"))


def test_scripts_conditions_and_templates_are_written_in_python(divebook, old, folder):
    converted = divebook("convert", old, "--dialect", "dive")
    assert converted.exit_code == 0, converted.stderr
    assert ":=" not in converted.stdout
    assert "stored as values and not as text" in converted.stderr
    new = write(folder / "new.yaml", converted.stdout)
    count, show = load(new).workflows[0].steps
    assert count.script.splitlines() == ['x = ("many" if inputs.n > 2  and  True else "few")', "x"]
    assert show.parameters == {
        "Message": '${(1 if state.amount == "many" else 0)} for ${"$"}${inputs.n}',
        "Raw": "$$(inputs.n)",
        "Nested": {"deep": ["$${inputs.n}", "$$(inputs.n)"]},
    }
    before, after = (divebook("run", path, "--json", *more) for path, more in ((old, ["--dialect", "dive"]), (new, ())))
    assert (before.exit_code, after.exit_code) == (0, 0), after.stderr
    assert "1 for $3" in before.stdout + before.stderr
    assert "1 for $3" in after.stdout + after.stderr


def test_the_result_is_written_into_a_new_file_only(divebook, old, folder):
    new = folder / "new.json"
    assert divebook("convert", old, "-o", new, "--format", "json").exit_code == 0
    assert json.loads(new.read_text())["Workflows"][0]["Name"] == "main"
    assert load(new) is not None
    again = divebook("convert", old, "-o", new)
    assert again.exit_code == 2
    assert "exists" in again.stderr


def test_what_must_be_corrected_by_hand_is_named(divebook, folder):
    text = "Workflows: [{Name: w, Steps: [{Name: s, Action: Print, Parameters: {Message: '${state.never}'}}]}]"
    converted = divebook("convert", write(folder / "old.yaml", text))
    assert converted.exit_code == 1
    assert "no step sets state.never" in converted.stderr
    assert "Workflows:" in converted.stdout

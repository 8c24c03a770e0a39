"""No command shows a secret, wherever a workflow or a person has put it; ``--show-secrets`` does."""

import json

import pytest

from divebook.stores import open_store
from tests.cli.conftest import write

MARKED = "sk" + "-proj-" + "Ab3" * 16
PLAIN = "tulips in the window box"
"""No form tells that this is one: only its name does, which an input has."""

LEAKY = f"""
Workflows:
- Name: leaky
  Inputs: [{{Name: api_key}}, {{Name: password}}]
  Outputs: [{{Name: found}}]
  Steps:
  - {{Name: tell, Action: Print, Parameters: {{Message: "using ${{inputs.api_key}} and ${{inputs.password}}"}}}}
  - {{Name: keep, Script: '"it was " + inputs.password + " with {MARKED}"', Store: found}}
  - Name: question
    Ask:
      Question: "Use ${{inputs.api_key}}?"
      Message: "or ${{inputs.password}}"
      Data: {{password: "${{inputs.password}}"}}
  - {{Name: fail, Script: '{{}}[inputs.password + inputs.api_key]'}}
"""


@pytest.fixture
def leaky(folder, divebook):
    path = write(folder / "leaky.yaml", LEAKY)
    waiting = divebook("run", path, "-v", f"api_key={MARKED}", "-v", f"password={PLAIN}")
    assert waiting.exit_code == 3
    (record,) = open_store().records()
    return path, record.execution_id, waiting


DOORS = ["show {id}", "show {id} --events", "show {id} --json", "show {id} --events --json", "inbox", "inbox --json"]
DOORS += ["runs", "runs --json", "check", "check --json", "recover", "recover --json", "resume {id} {file} -q"]
DOORS += [
    "resume {id} {file} --json",
    "cancel {id}",
    "answer {question} yes {file}",
    "answer {question} yes {file} --json",
]
DOORS += [
    "answer {question} {marked} {file} --by {marked}",
    "run {file} -v {marked}",
    "run {marked}",
    "run {file} --dialect {marked}",
]
DOORS += ["signal {id} {marked} {marked} {file}", "export {id} {marked}/x", "gc --older-than {marked}", "show {marked}"]


@pytest.mark.parametrize("door", DOORS)
def test_no_command_shows_a_secret(leaky, divebook, door):
    path, execution_id, _ = leaky
    (question,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    named = {"id": execution_id, "file": str(path), "question": question["question_id"], "marked": MARKED}
    result = divebook(*[word.format(**named) for word in door.split()])
    assert result.stdout + result.stderr, "this door says nothing; the test needs another one"
    assert MARKED not in result.output + result.stderr
    assert PLAIN not in result.output + result.stderr


@pytest.mark.parametrize("door", ["runs", "runs --json", "show {id}", "recover --all"])
def test_an_error_that_repeats_an_input_shows_no_secret(leaky, divebook, door):
    (question,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    failed = divebook("answer", question["question_id"], "yes", "-d", leaky[0])
    assert failed.exit_code == 1
    result = divebook(*door.format(id=leaky[1]).split())
    assert PLAIN not in failed.output + failed.stderr + result.output + result.stderr


def test_progress_and_prints_of_a_run_show_no_secret(leaky):
    result = leaky[2]
    assert "using [redacted] and [redacted]" in result.stderr
    assert MARKED not in result.output + result.stderr
    assert PLAIN not in result.output + result.stderr


def test_secrets_are_shown_to_whom_asks_for_them(leaky, divebook):
    shown = divebook("show", leaky[1], "--json", "--show-secrets")
    assert json.loads(shown.stdout)["inputs"] == {"api_key": MARKED, "password": PLAIN}


def test_an_exported_log_is_whole(leaky, divebook):
    assert PLAIN in divebook("export", leaky[1]).stdout

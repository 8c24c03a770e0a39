"""Questions that expire under ``divebook run``, and questions of servers during a call: who waits, and who answers."""

import json
import re
import shlex

import pytest

from tests.tools.conftest import SERVERS

EXPIRES = """
Workflows:
  - Name: ask
    Outputs: [{{Name: said}}]
    Steps:
      - {{Name: who, Ask: {{Question: Who?, {ask}}}, Store: who}}
      - {{Name: end, Script: '"hello " + state.who', Store: said}}
"""
SOON = "ExpiresIn: 0.3, Default: ann"
CHILD = """
  - Name: outer
    Outputs: [{Name: child}]
    Steps:
      - {Name: child, Workflow: ask, Store: child}
"""
BOTH = """
Workflows:
  - Name: both
    Steps:
      - {Name: begin, Script: '1', Next: [{Step: first}, {Step: second}]}
      - {Name: first, Ask: {Question: First?, ExpiresIn: 0.3, Default: ann}, Store: first}
      - {Name: second, Ask: {Question: Second?}, Store: second}
"""
CLERK = """
import sys
from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import ApprovalRule, MCPServerDefinition

FORM = {{"type": "object", "properties": {{"date": {{"type": "string"}}}}, "required": ["date"]}}
ASKS = [["elicitation/create", {{"message": "Which date?", "requestedSchema": FORM}}]]
server = MCPServerDefinition("booking", "stdio", command=sys.executable, args=({program!r},){more})
model = ScriptedModel([{{"call": {{"ask": {{"asks": ASKS}}}}}}, "Done."])
clerk = Agent("clerk", model=model, servers=["booking"])
environment = Environment(
    store="memory:",
    agents=[clerk],
    servers=[server],
    approvals=[ApprovalRule()],
    workflows=[Workflow("book", [Step("book", agent="clerk", prompt="Book", store="said")], outputs=["said"])],
)
"""


@pytest.fixture
def ask(folder):
    """Write a workflow that asks a question with these keys; return its file."""

    def written(keys, more=""):
        (folder / "ask.yaml").write_text(EXPIRES.format(ask=keys) + more)
        return folder / "ask.yaml"

    return written


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr("divebook.cli.run.has_terminal", lambda: True)


@pytest.fixture
def clerk(folder):
    """Write an agent whose server asks for a date; return its file."""

    def written(more=""):
        (folder / "clerk.py").write_text(CLERK.format(program=str(SERVERS / "asking.py"), more=more))
        return folder / "clerk.py"

    return written


def result(ran):
    return json.loads(ran.stdout)


def test_without_a_terminal_a_run_waits_until_the_default_answers(ask, divebook):
    ran = divebook("run", ask(SOON), "--json", "-q")
    assert (ran.exit_code, result(ran)["outputs"]) == (0, {"said": "hello ann"}), ran.stderr


@pytest.mark.parametrize("way", ["run", "resume"])
def test_a_run_returns_at_once_if_asked_to_and_its_default_answers_when_it_is_resumed(ask, divebook, way):
    file = ask("ExpiresIn: 2, Default: ann")
    ran = divebook("run", file, "--no-wait", "--json")
    assert (ran.exit_code, "to answer: divebook answer" in ran.output) == (3, True)
    if way == "resume":
        again = divebook("resume", result(ran)["id"], "-d", file, "--json", "-q")
        assert (again.exit_code, result(again)["outputs"]) == (0, {"said": "hello ann"}), again.stderr


@pytest.mark.parametrize(
    "keys",
    [
        "ExpiresIn: 2h",  # nothing answers then: the step would fail
        "Kind: confirmation",
        "Kind: checkpoint",
    ],
)
def test_a_run_does_not_wait_for_a_question_without_a_default(ask, divebook, keys):
    assert divebook("run", ask(keys), "-q").exit_code == 3


def test_where_a_person_can_answer_a_run_returns_and_names_the_command(ask, divebook, terminal):
    ran = divebook("run", ask("ExpiresIn: 2h, Default: ann"), "-q")
    assert (ran.exit_code, "to answer: divebook answer" in ran.output) == (3, True)
    assert divebook("run", ask(SOON), "-q", "--wait").exit_code == 0


def test_a_run_that_need_not_wait_for_a_person_is_no_error_under_strict(ask, divebook):
    assert divebook("run", ask(SOON), "-q", "--strict").exit_code == 0
    assert divebook("run", ask(SOON), "-q", "--strict", "--no-wait").exit_code == 1


@pytest.mark.parametrize(("given", "said"), [("who=bob", "hello bob"), ("other=bob", "hello ann")])
def test_an_answer_up_front_comes_before_the_default(ask, divebook, given, said):
    ran = divebook("run", ask(SOON), "--json", "--answer", given)
    assert (ran.exit_code, result(ran)["outputs"]) == (0, {"said": said})
    assert ran.stderr.count("was not used") == given.startswith("other")


def test_a_run_waits_for_the_question_of_a_child(ask, divebook):
    ran = divebook("run", ask(SOON, CHILD), "-w", "outer", "--json", "-q")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "hello ann" in ran.stdout


def test_a_run_names_the_command_that_answers_a_child(ask, divebook):
    file = ask("Kind: clarification", CHILD)
    ran = divebook("run", file, "-w", "outer", "-q")
    command = re.search(r"to answer: divebook (.*)", ran.stdout)[1]
    assert (ran.exit_code, divebook(*shlex.split(command), "-q").exit_code) == (3, 0)


def test_a_run_ends_where_a_question_without_a_default_is_left(folder, divebook):
    (folder / "both.yaml").write_text(BOTH)
    ran = divebook("run", "both.yaml", "-q", "--json")
    assert (ran.exit_code, result(ran)["variables"].get("first")) == (3, "ann")
    assert set(result(ran)["questions"].values()) == {"Second?"}


# --- questions of servers during a call ------------------------------------------------------------------------------


def test_a_run_ends_where_a_call_asks_and_its_answer_is_used_when_the_call_is_made_again(clerk, process):
    file = clerk()
    ran = process("run", file, "-q")
    stdout, stderr = ran.communicate(timeout=120)
    assert ran.returncode == 3, stderr
    assert "the tool call that asked the question is interrupted" in stderr
    assert "the process ends while" not in stderr
    words = [re.sub(r'"date": "[^"]*"', '"date": "2026-12-01"', word) for word in answers(stdout)]
    answered = process(*words, "-q")
    stdout, stderr = answered.communicate(timeout=120)
    assert answered.returncode == 3, stderr
    assert "retry" in stdout
    words = ["retry" if word == "CHOICE" else word for word in answers(stdout)]
    again = process(*words, "-q", "--json")
    stdout, stderr = again.communicate(timeout=120)
    assert (again.returncode, json.loads(stdout)["outputs"]) == (0, {"said": "Done."}), stderr


def answers(stdout):
    return shlex.split(re.search(r"to answer: divebook (.*)", stdout)[1])


def test_an_answer_up_front_is_used_during_the_call(clerk, divebook):
    ran = divebook("run", clerk(), "-q", "--json", "--answer", 'book:={"date": "2026-12-01"}')
    assert (ran.exit_code, result(ran)["outputs"]) == (0, {"said": "Done."}), ran.stderr


def test_a_run_waits_for_a_call_where_it_is_told_to(clerk, divebook):
    ran = divebook("run", clerk(", timeout=4"), "-q", "--json", "--wait")
    assert (ran.exit_code, result(ran)["outputs"]) == (0, {"said": "Done."}), ran.stderr

"""Runs that ask, on the command line: answered up front or later, by command; bounds and signals."""

import json
import re
import shlex

import pytest

from divebook.steps.actions import REGISTERED
from divebook.stores import Owner, open_store

DEPLOY = """
Workflows:
  - Name: deploy
    Outputs: [{Name: note}]
    Steps:
      - Name: version
        Ask: {Question: Which version?, Schema: {type: object, properties: {n: {type: integer}}, required: [n]}}
        Store: version
      - Name: sure
        Ask: {Question: "Deploy ${state.version}?", Kind: confirmation, ExpiresIn: 2h}
        Store: sure
      - {Name: note, Script: '[state.version["n"], state.sure]', Store: note}
"""

WAIT = """
Workflows:
  - Name: wait
    Steps:
      - {Name: wait, Type: wait, Signal: go, Store: payload}
"""

TALK = """
Agents: [{Name: ann}]
Workflows:
  - Name: talk
    Steps:
      - {Name: one, Prompt: a}
      - {Name: two, Prompt: b}
"""


@pytest.fixture
def deploy(folder):
    (folder / "deploy.yaml").write_text(DEPLOY)
    return folder / "deploy.yaml"


def result(ran):
    return json.loads(ran.stdout)


def test_a_run_that_has_to_wait_names_the_command_that_answers(deploy, divebook):
    ran = divebook("run", deploy, "-q")
    assert ran.exit_code == 3
    assert "Which version?" in ran.stdout
    command = re.search(r"to answer: divebook (.*)", ran.stdout)[1]
    words = shlex.split(command.replace('{"n": 1}', '{"n": 3}'))
    answered = divebook(*words, "-q")
    assert (answered.exit_code, "Deploy" in answered.stdout) == (3, True)
    command = re.search(r"to answer: divebook (.*)", answered.stdout)[1]
    done = divebook(*shlex.split(command), "--json", "-q")
    assert (done.exit_code, result(done)["outputs"]) == (0, {"note": [3, True]})


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_strict_makes_waiting_an_error(deploy, divebook, strict):
    ran = divebook("run", deploy, "-q", *strict)
    assert ran.exit_code == (1 if strict else 3)
    assert ("which --strict does not allow" in ran.stderr) == bool(strict)


def test_answers_given_up_front_by_step_and_number(deploy, divebook):
    ran = divebook("run", deploy, "--answer", 'version:={"n": 3}', "--answer", "sure:1=no", "--json", "-q")
    assert (ran.exit_code, result(ran)["outputs"]) == (0, {"note": [3, False]})


def test_answers_from_a_file_and_the_environment(deploy, divebook, folder, monkeypatch):
    (folder / "answers.yaml").write_text("version: {n: 4}\nsure: false\n")
    monkeypatch.setenv("DIVEBOOK_ANSWERS", "{version: {n: 1}, sure: true}")
    ran = divebook("run", deploy, "--json", "-q")
    assert result(ran)["outputs"] == {"note": [1, True]}
    ran = divebook("run", deploy, "--answers", "answers.yaml", "--answer", "sure=yes", "--json", "-q")
    assert result(ran)["outputs"] == {"note": [4, True]}
    monkeypatch.setenv("DIVEBOOK_ANSWERS", "answers.yaml")
    assert result(divebook("run", deploy, "--json", "-q"))["outputs"] == {"note": [4, False]}


def test_one_answer_does_for_all_questions_that_a_step_asks_alike(deploy, divebook):
    first, second = (result(divebook("run", deploy, "-q", "--json")) for _ in range(2))
    ((asked, _),) = first["questions"].items()
    answered = divebook("answer", f"{asked}@{first['id']}", "{n: 3}", "--alike", "-q")
    assert (answered.exit_code, "continues 1 other run" in answered.stderr) == (3, True)
    assert divebook("inbox").stdout.count("Deploy") == 2
    assert second["id"] in divebook("inbox").stdout


def test_an_answer_by_id_when_resuming(deploy, divebook):
    ran = divebook("run", deploy, "-q", "--json")
    ((asked, _),) = result(ran)["questions"].items()
    resumed = divebook(
        "resume", result(ran)["id"], "--answer", f'{asked}:={{"n": 9}}', "--answer", "sure=y", "--json", "-q"
    )
    assert (resumed.exit_code, result(resumed)["outputs"]) == (0, {"note": [9, True]})


def test_an_answer_up_front_that_does_not_fit_leaves_the_question_open(deploy, divebook):
    ran = divebook("run", deploy, "--answer", "version=three", "--answer", "sure=yes", "-q")
    assert (ran.exit_code, "does not fit" in ran.stderr, "is not used yet" in ran.stderr) == (3, True, True)
    assert "Which version?" in divebook("inbox").stdout
    # The run is shown with the command that answers, and continues with a wrong answer in between.
    run_id = re.search(r"exec_\w+", ran.stdout)[0]
    assert f"@{run_id}" in re.search(r"to answer: divebook answer (\S+)", ran.stdout)[1]
    again = divebook("resume", run_id, "--answer", "version=4", "--json", "-q")
    assert (again.exit_code, result(again)["id"], "does not fit" in again.stderr) == (3, run_id, True)
    done = divebook("resume", run_id, "--answer", 'version:={"n": 3}', "--answer", "sure=y", "--json", "-q")
    assert (done.exit_code, result(done)["outputs"]) == (0, {"note": [3, True]})


def test_an_answer_for_a_misspelt_step_names_the_step_that_was_meant(deploy, divebook):
    ran = divebook("run", deploy, "--answer", 'version:={"n": 3}', "--answer", "suer:1=yes", "-q")
    assert (ran.exit_code, "the answer for 'suer:1' is not used yet" in ran.stderr) == (3, True)
    assert "(did you mean 'sure'?)" in ran.stderr
    ran = divebook("run", deploy, "--answer", 'version:={"n": 3}', "--answer", "publish=yes", "-q")
    assert (
        "the answer for 'publish' is not used yet: no question with this id or step was asked (open questions: sure)"
        in ran.stderr
    )


def test_an_answer_that_nobody_asked_for_is_told(hello, divebook):
    ran = divebook("run", hello, "-v", "who=Ann", "--answer", "sure=yes")
    assert (ran.exit_code, "the answer for 'sure' was not used" in ran.stderr) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--answer", "sure"), "--answer 'sure' is not valid"),
        (("--answer", "sure:={"), "is not JSON"),
        (("--answer", "sure=yes", "--answer", "sure:=false"), "--answer sure=... is given twice; keep one"),
        (("--answers", "nothing.yaml"), "no answers file"),
        (("--bounds", "max_cost"), "write max_cost=2.50"),
        (("--bounds", "max_cots=3"), "did you mean max_cost"),
        (("--bounds", "max_llm_calls=many"), "give an integer"),
    ],
)
def test_what_is_not_understood_is_refused_before_anything_runs(deploy, divebook, arguments, message):
    ran = divebook("run", deploy, *arguments)
    assert (ran.exit_code, message in ran.stderr) == (2, True), ran.stderr
    assert divebook("runs").exit_code == 2


def test_the_inbox_tells_kind_data_expiry_and_the_command(deploy, divebook):
    divebook("run", deploy, "-q")
    listed = divebook("inbox")
    assert "clarification" in listed.stdout
    assert "expects: n (integer)" in listed.stdout
    divebook("run", deploy, "--answer", 'version:={"n": 3}', "-q")
    listed = divebook("inbox")
    assert "confirmation" in listed.stdout
    assert "expires 2" in listed.stdout
    assert "divebook answer ask_" in listed.stderr


def test_who_answers_is_kept(deploy, divebook):
    divebook("run", deploy, "-q")
    (asked,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    answered = divebook("answer", asked["question_id"], '{"n": 1}', "--by", "ann", "--as", "json", "-q")
    assert answered.exit_code == 3
    again = divebook("answer", asked["question_id"], '{"n": 2}', "-q")
    assert (again.exit_code, "already answered by ann" in again.stderr) == (2, True)


def test_a_signal_carries_a_run_on(folder, divebook):
    (folder / "wait.yaml").write_text(WAIT)
    ran = divebook("run", "wait.yaml", "-q", "--json")
    assert ran.exit_code == 3
    sent = divebook("signal", result(ran)["id"], "go", '{"by": "ann"}', "--json", "-q")
    assert (sent.exit_code, result(sent)["variables"]) == (0, {"payload": {"by": "ann"}})


def test_a_signal_that_no_step_waits_for_is_kept_and_said_to_be(folder, divebook):
    (folder / "wait.yaml").write_text(WAIT)
    ran = divebook("run", "wait.yaml", "-q", "--json")
    sent = divebook("signal", result(ran)["id"], "goo")
    assert sent.exit_code == 3
    assert (
        "no step waits for the signal 'goo'. It is kept until a step waits for it; it waits for 'go': did you mean "
        "'go'?" in (sent.stderr)
    )
    assert "no step waits" not in divebook("signal", result(ran)["id"], "go").stderr


def test_a_run_that_waits_for_a_signal_names_it_and_the_command_that_sends_it(folder, divebook):
    (folder / "wait.yaml").write_text(WAIT.replace("Signal: go", "Signal: it's on"))
    ran = divebook("run", "wait.yaml", "-q")
    identity = json.loads(divebook("runs", "--json").stdout)["runs"][0]["id"]
    for shown in (ran, divebook("show", identity), divebook("inbox")):
        assert 'the signal "it\'s on"' in shown.stdout
    assert "divebook resume" not in ran.stdout
    command = re.search(r"to send it: divebook (.*)", ran.stdout)[1]
    assert divebook(*shlex.split(command), "-q").exit_code == 0


def test_an_answer_that_cannot_take_effect_here_is_kept_and_the_message_says_how_to_go_on(folder, divebook):
    (folder / "acts.py").write_text("from divebook import action\n@action\ndef call(x=1):\n    return x\n")
    steps = "[{Name: b, Ask: Go on?, Store: c}, {Name: a, Action: call, Store: d}]"
    (folder / "flow.yaml").write_text(f"Workflows: [{{Name: flow, Steps: {steps}}}]")
    divebook("run", "flow.yaml", "-a", "acts.py", "-q")
    del REGISTERED["call"]  # as in the next process
    (asked,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    assert f"divebook answer {asked['address']} TEXT -d FILE" in divebook("inbox").stderr
    answered = divebook("answer", asked["question_id"], "yes", "-q")
    assert (answered.exit_code, "is stored" in answered.stderr) == (3, True)
    assert "Go on?" not in divebook("inbox").stdout
    again = divebook("answer", asked["address"], "no", "-q")
    assert (again.exit_code, "already answered by" in again.stderr, "'yes'" in again.stderr) == (2, True, True)
    command = re.search(r"to continue: divebook (.* -d FILE)$", answered.stderr, re.MULTILINE)[1]
    resumed = divebook(*shlex.split(command.replace("FILE", "acts.py")), "--json", "-q")
    assert (resumed.exit_code, result(resumed)["variables"]) == (0, {"c": "yes", "d": 1})


def test_an_answer_needs_no_action_of_a_finished_step(folder, divebook):
    (folder / "acts.py").write_text("from divebook import action\n@action\ndef call(x=1):\n    return x\n")
    steps = "[{Name: a, Action: call}, {Name: b, Ask: Go on?, Store: c}]"
    (folder / "flow.yaml").write_text(f"Workflows: [{{Name: flow, Steps: {steps}}}]")
    divebook("run", "flow.yaml", "-a", "acts.py", "-q")
    del REGISTERED["call"]  # as in the next process
    (asked,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    assert divebook("answer", asked["question_id"], "yes", "-q").exit_code == 0
    again = divebook("answer", asked["question_id"], "no", "-q")
    assert (again.exit_code, "already answered by" in again.stderr) == (2, True)


def test_the_answer_of_the_last_step_is_printed_though_nothing_stores_it(folder, divebook):
    (folder / "talk.yaml").write_text(TALK)
    ran = divebook("run", "talk.yaml", "-q")
    assert "two = " in ran.stdout
    assert "one = " not in ran.stdout
    assert list(result(divebook("run", "talk.yaml", "-q", "--json"))["last_output"]) == ["two"]


def test_bounds_are_kept_and_can_be_raised_by_answer_or_resume(folder, divebook):
    (folder / "talk.yaml").write_text(TALK)
    ran = divebook("run", "talk.yaml", "--bounds", "max_llm_calls=1", "-q")
    assert (ran.exit_code, "raise, the new bound as a number, or stop" in ran.stdout) == (3, True)
    raised = divebook("run", "talk.yaml", "--bounds", "max_llm_calls=1", "--answer", "two=5", "-q")
    assert raised.exit_code == 0
    (asked,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    assert divebook("resume", asked["run_id"], "-d", "talk.yaml", "--bounds", "max_llm_calls=2", "-q").exit_code == 0


SEND = """
from divebook import Agent, ScriptedModel, Step, Workflow, tool


@tool(approval=True)
def send(host: str) -> str:
    "Send it."
    return f"sent to {host}"


replies = [{"call": {"send": {"host": "h2"}}}, "done"]
sender = Agent("sender", model=ScriptedModel(replies), tools=[send])
flow = Workflow("flow", [Step("s", agent="sender", prompt="go", store="r")])
"""


@pytest.fixture
def sending(folder, divebook):
    """Return the address of the question that asks whether a tool may be called, in a run of ``ap.py``."""
    (folder / "ap.py").write_text(SEND)
    assert divebook("run", "ap.py", "-q").exit_code == 3
    (asked,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    return asked["address"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("no: not h2", "User denied tool call: not h2"),
        ("{approved: true, data: {parameters: {host: h9}}}", "sent to h9"),
        ("{approved: true, data: {rule: {scope: run}}}", "sent to h2"),
    ],
)
def test_a_call_is_denied_with_a_reason_or_approved_with_other_arguments(sending, divebook, given, told):
    answered = divebook("answer", sending, given, "-d", "ap.py", "-q")
    assert answered.exit_code == 0, answered.stderr
    assert told in divebook("show", sending.partition("@")[2], "--events", "--json").stdout


def test_the_full_form_is_shown_by_inbox_help_and_a_refusal_and_the_command_says_that_a_file_is_needed(
    sending, divebook
):
    listed = divebook("inbox")
    example, rule = re.findall(r"example: (.*)", listed.stdout)
    assert json.loads(example) == {"approved": True, "data": {"parameters": {"host": "TEXT"}}}
    assert json.loads(rule) == {"approved": True, "data": {"rule": {"scope": "run"}}}
    assert "optional data: parameters (object; optional), rule (object" in listed.stdout
    assert f"divebook answer {sending} yes -d FILE" in listed.stderr
    refused = divebook("answer", sending, "{approved: true, parameters: {host: h9}}", "-d", "ap.py", "-q")
    assert (refused.exit_code, example in refused.stderr) == (2, True)
    assert "{approved: true, data: {parameters: {host: h9}}}" in " ".join(divebook("answer", "--help").stdout.split())
    assert divebook("answer", sending, example, "-d", "ap.py", "-q").exit_code == 0


def test_an_answer_to_what_another_process_drives_says_who_goes_on_and_nothing_else(sending, divebook):
    execution_id = sending.partition("@")[2]
    with open_store(".divebook/executions.db") as store:
        store.acquire(execution_id, Owner("elsewhere", 11, 1, "kernel"), 600)
    answered = divebook("answer", sending, "yes", "-d", "ap.py", "-q")
    assert answered.exit_code == 3
    assert "another process runs this execution and continues it" in answered.stderr
    assert f"to show it again: divebook show {execution_id}" in answered.stdout
    assert "to continue" not in answered.output
    assert "to answer" not in answered.output

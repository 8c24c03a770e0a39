"""Answers up front, and runs that nobody can be asked about: as programs run notebooks, without a front end."""

import pytest
from IPython.core.error import UsageError

import divebook
from divebook.errors import ExecutionWaitingError, InputError, InterruptError, NotFoundError
from divebook.notebook.session import open_session
from divebook.steps.actions import REGISTERED, Action
from divebook.widgets.views import HOSTED_VIEW

DEPLOY = """%%dive workflow deploy
Outputs: [{Name: version}, {Name: sure}]
Steps:
- Name: version
  Ask: {Question: "Which version?", Schema: {type: object, properties: {n: {type: integer}}, required: [n]}}
  Store: version
- {Name: sure, Ask: {Question: "Deploy?", Kind: confirmation}, Store: sure}
"""
ASK = "Workflows: [{Name: ask, Steps: [{Name: name, Ask: Which name?, Store: name}]}]"
WAIT = "%%dive workflow wait\nSteps:\n- {Name: wait, Type: wait, Signal: go}\n"


@pytest.fixture
def deploy(cell):
    cell(DEPLOY)
    return cell


def test_answers_on_the_line_of_a_magic(deploy):
    run, _ = deploy("%dive run deploy --answer version={n: 3} --answer sure:1=no")
    assert (run.status, run.outputs) == ("completed", {"version": {"n": 3}, "sure": False})


def test_answers_from_a_file_and_the_environment(deploy, tmp_path, monkeypatch):
    (tmp_path / "answers.yaml").write_text("version: {n: 4}\nsure: false\n")
    run, _ = deploy("%dive run deploy --answers answers.yaml --answer sure=yes")
    assert run.outputs == {"version": {"n": 4}, "sure": True}
    monkeypatch.setenv("DIVEBOOK_ANSWERS", "answers.yaml")
    assert deploy("%dive run deploy --new")[0].outputs == {"version": {"n": 4}, "sure": False}
    with pytest.raises(InputError, match=r"no answers file at nothing\.yaml"):
        deploy("%dive run deploy --new --answers nothing.yaml")


def test_the_same_for_a_run_that_is_taken_up_again(deploy):
    waiting, printed = deploy('%dive run deploy --answer version:={"n": 3}')
    assert waiting.status == "waiting"
    assert "Deploy?" in printed
    run, _ = deploy(f"%dive resume {waiting.id} --answer sure=yes")
    assert run.outputs["sure"] is True


def test_the_same_in_a_cell_that_gets_its_run_back(deploy, monkeypatch):
    deploy("r = %dive run deploy --answer version={n: 3}")
    monkeypatch.setenv("DIVEBOOK_ANSWERS", "{version: {n: 5}, sure: true}")
    assert deploy("r = %dive run deploy\nr.outputs")[0] == {"version": {"n": 5}, "sure": True}


def test_a_run_that_waits_is_shown_with_the_commands_that_answer(cell, tmp_path):
    open_session(str(tmp_path / "runs.db"))
    cell(DEPLOY)
    _, printed = cell("r = %dive run deploy")
    run = cell("r")[0]
    asked = run.open_questions[0].id
    assert "asks: Which version? (clarification: a value that fits the schema of the question: n (integer))" in printed
    assert f"to answer: %dive answer {asked}@{run.id} '{{\"n\": 1}}'" in printed
    with pytest.raises(ExecutionWaitingError) as caught:
        cell(f"%dive resume {run.id} --strict")
    shell = f"  or in a shell: divebook answer {asked}@{run.id} '{{\"n\": 1}}' --store {tmp_path / 'runs.db'}"
    assert shell in caught.value._render_traceback_()
    assert cell(f"%dive answer {asked} {{n: 7}}")[0].open_questions[0].question == "Deploy?"


def test_strict_makes_waiting_an_error(deploy):
    with pytest.raises(ExecutionWaitingError, match="waits for an answer: Deploy") as caught:
        deploy("%dive run deploy --strict --answer version={n: 3}")
    lines = caught.value._render_traceback_()
    assert lines[0].startswith("ExecutionWaitingError: execution exec_")
    assert any(line.strip().startswith("to answer: %dive answer ask_") for line in lines)
    deploy(WAIT)
    with pytest.raises(ExecutionWaitingError, match="waits for the signal 'go'") as caught:
        deploy("%dive run wait --strict")
    assert any(line.startswith("  to send it: %dive signal exec_") for line in caught.value._render_traceback_())


def test_a_run_that_waits_for_a_signal_says_so_in_one_line(cell):
    cell(WAIT)
    _, printed = cell("r = %dive run wait")
    (line,) = printed.splitlines()
    run = cell("r")[0]
    assert line == f"{run.id} waits for the signal 'go': %dive signal {run.id} go"
    assert cell(line.partition(": ")[2])[0].status == "completed"


def test_an_answer_that_does_not_fit_fails_the_cell_and_leaves_the_question_open(deploy):
    with pytest.raises(InterruptError, match=r"question ask_\w+@exec_\w+: .* does not fit"):
        deploy("%dive run deploy --answer version=three")
    assert [row["step"] for row in divebook.inbox().frame().to_dict("records")] == ["version"]


def test_an_answer_that_nobody_asked_for_is_told(deploy, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_ANSWERS", "{often: 1}")
    _, printed = deploy("%dive run deploy --answer version={n: 3} --answer sure=y --answer sur=y")
    assert (
        "the answer for 'sur' was not used: no question with this id or step was asked (did you mean 'sure'?)"
        in printed
    )
    assert "often" not in printed


def test_as_a_function(session, tmp_path):
    assert divebook.run(ASK, answers={"name": "1.10"}).wait().variables == {"name": "1.10"}
    (tmp_path / "answers.yaml").write_text("name: Ann\n")
    assert divebook.run(ASK, answers=tmp_path / "answers.yaml").wait().variables == {"name": "Ann"}
    assert divebook.run(ASK, answers=str(tmp_path / "answers.yaml"), strict=True).wait().variables == {"name": "Ann"}
    with pytest.raises(ExecutionWaitingError, match="waits for an answer: Which name"):
        divebook.run(ASK, strict=True).wait()


async def _awaited(run):
    return await run


def test_whoever_awaits_a_strict_run_gets_the_error_as_well(session):
    import asyncio

    with pytest.raises(ExecutionWaitingError):
        asyncio.run(_awaited(divebook.run(ASK, strict=True)))


def test_programs_that_run_notebooks_are_not_kept_waiting(kernel):
    kernel.run(DEPLOY)
    status, outputs = kernel.run("r = %dive run deploy", allow_stdin=False)
    (shown,) = outputs
    assert status == "ok"
    assert "to answer: %dive answer ask_" in shown["data"]["text/plain"]
    (shown,) = kernel.run("r = %dive run deploy\nr", allow_stdin=False)[1]
    assert "to answer: <code>%dive answer ask_" in shown["data"]["text/html"]
    status, outputs = kernel.run("r = %dive run deploy --strict --new", allow_stdin=False)
    (error,) = [output for output in outputs if "traceback" in output]
    assert (status, error["ename"]) == ("error", "ExecutionWaitingError")
    code = "r = %dive run deploy --strict --new --answer version={n: 1} --answer sure=no\nr.outputs"
    status, outputs = kernel.run(code, allow_stdin=False)
    assert outputs[-1]["data"]["text/plain"] == "{'version': {'n': 1}, 'sure': False}"


def test_an_inbox_shows_widgets_to_people_and_text_to_programs(kernel):
    kernel.run(DEPLOY)
    kernel.run("r = %dive run deploy --new", allow_stdin=False)
    (told,) = kernel.run("%dive inbox", allow_stdin=False)[1]
    assert "Which version?" in told["text"]
    live, *_, below = kernel.run("%dive inbox")[1]
    widget = "application/vnd.jupyter.widget-view+json"
    assert set(live["data"]) >= {widget, HOSTED_VIEW}
    assert "%dive answer ask_" in below["data"]["text/html"]


PAY = """\
%%dive workflow shop
Steps:
  - {Name: pay, Action: Test.Pay, Retry: {Attempts: 2, Seconds: 0}, Store: receipt}
"""


def test_questions_are_listed_and_answered_in_place(cell):
    calls = []

    async def pay():
        calls.append("call")
        if len(calls) == 1:
            raise TimeoutError("no answer")
        return "receipt"

    REGISTERED["Test.Pay"] = Action("Test.Pay", pay)
    try:
        cell(PAY)
        run, _ = cell("%dive run shop")
        assert run.status == "waiting"
        (question,) = run.open_questions
        listed = cell("%dive inbox")[1]
        assert question.id in listed
        assert f"%dive answer {question.id}@{run.id} CHOICE" in listed
        answered, _ = cell(f"%dive answer {question.id} retry")
        assert (answered.status, answered.variables) == ("completed", {"receipt": "receipt"})
        assert "no open questions" in cell("%dive inbox")[1]
    finally:
        del REGISTERED["Test.Pay"]


def test_an_answer_needs_a_question(cell):
    with pytest.raises(UsageError, match="%dive answer needs ANSWER, for example: %dive answer ask_1f0c"):
        cell("%dive answer ask_1")
    with pytest.raises(NotFoundError, match="question not found: ask_1"):
        cell("%dive answer ask_1 retry")

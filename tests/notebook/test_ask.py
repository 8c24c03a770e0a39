"""``%dive ask``: an agent is asked in a cell, and what it did can be looked at."""

import itertools

import pytest
from IPython.core.error import UsageError

from divebook import Agent, ScriptedModel
from divebook.errors import NotFoundError
from divebook.notebook import magics
from divebook.notebook.shell_state import FrontEnd

FOUND = [{"call": {"search": {"query": "owls"}}}]


@pytest.fixture
def asked(cell, session):
    """Return what the agent's tool was asked so far; the agent is called `reader`."""
    heard = []

    def search(query: str) -> str:
        "Find passages."
        heard.append(query)
        return f"{query} hunt by night"

    session.environment.add_agent(Agent("reader", model=ScriptedModel([FOUND, "They hunt by night."]), tools=[search]))
    return heard


def test_a_question_to_an_agent_is_a_run(cell, asked):
    run, printed = cell("%dive ask reader 'When do owls hunt?'")
    assert (run.status, run.variables) == ("completed", {"answer": "They hunt by night."})
    assert run.workflow.name == "ask reader"
    assert run.inputs == {"prompt": "When do owls hunt?"}
    assert "They hunt by night." in printed
    assert run.tool_calls.result.tolist() == ["owls hunt by night"]
    assert [message.role for message in run.conversation][-3:] == ["assistant", "tool", "assistant"]
    assert run.requests[1].messages[-1]["parts"][0]["content"] == "owls hunt by night"


def test_what_is_asked_is_a_text_and_no_template(cell, asked):
    question = "Is ${inputs.prompt} the same as $(1 + 1), or {n}?"
    cell(f"text = {question!r}")
    run, _ = cell("%dive ask reader $text")
    assert run.inputs == {"prompt": question}
    assert run.conversation[1].text == question


def test_the_same_cell_asks_nothing_twice(cell, asked, monkeypatch):
    place = {"notebook": "n.ipynb", "cell": "c1", "source": "s", "kernel": "k"}
    counts = itertools.count()
    monkeypatch.setattr(magics, "present_front_end", lambda _: FrontEnd(cell=place, count=next(counts)))
    first, _ = cell("%dive ask reader 'When do owls hunt?'")
    again, printed = cell("%dive ask reader 'When do owls hunt?'")
    assert (again.id, asked) == (first.id, ["owls"])
    assert "was not run again" in printed
    anew, _ = cell("%dive ask reader 'When do owls hunt?' --new")
    assert (anew.id != first.id, asked) == (True, ["owls", "owls"])


def test_an_agent_is_asked_in_the_background(cell, asked):
    run, _ = cell("%dive ask reader 'When do owls hunt?' --background --tag birds")
    assert run.wait().outputs == {"answer": "They hunt by night."}
    assert len(cell("%dive runs --tag birds")[0]) == 1


def test_another_model_may_be_asked(cell, asked):
    run, _ = cell("%dive ask reader 'When do owls hunt?' --model scripted")
    assert run.requests[0].model == "scripted"


def test_a_thread_goes_on_in_the_next_run(cell, session):
    def search(query: str) -> str:
        "Find passages."
        return f"{query} hunt by night"

    model = ScriptedModel(turns=[[FOUND, "At night."], ["Owls."]])
    session.environment.add_agent(Agent("reader", model=model, tools=[search]))
    cell("%dive ask reader 'When do owls hunt?' --thread birds")
    run, _ = cell("%dive ask reader 'Whom did I ask about?' --thread birds")
    assert run.variables == {"answer": "Owls."}
    asked = [message.text for message in run.requests[0].said if message.role == "user"]
    assert asked == ["When do owls hunt?", "Whom did I ask about?"]
    assert [message.text for message in run.conversation if message.role == "user"][-1] == "Whom did I ask about?"


CLASS = """
from dataclasses import dataclass
@dataclass
class Bird:
    name: str
    nocturnal: bool
"""


def test_the_answer_may_be_of_a_class_of_the_kernel(cell, session):
    model = ScriptedModel([{"output": {"name": "owl", "nocturnal": True}}])
    session.environment.add_agent(Agent("reader", model=model))
    cell(CLASS)
    run, _ = cell("%dive ask reader 'What hunts by night?' --output Bird")
    assert (run.variables["answer"].name, run.variables["answer"].nocturnal) == ("owl", True)
    with pytest.raises(NotFoundError, match="Fish"):
        cell("%dive ask reader 'What swims?' --output Fish")


def test_an_agent_without_tools_is_asked_in_the_same_way(cell):
    cell("%%dive agent poet\nGoal: write\n")
    run, _ = cell("%dive ask poet 'Write.' --no-data")
    assert run.status == "completed"
    assert run.conversation[-1].role == "assistant"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ask", "%dive ask needs AGENT, for example: %dive ask critic"),
        ("ask reader", "%dive ask needs PROMPT, for example: %dive ask critic"),
        ("ask reader When do owls hunt", "put strings with spaces in quotes"),
        ("ask reader 'x' --moodel y", "did you mean --model"),
    ],
)
def test_a_line_that_cannot_be_meant_says_what_to_write(cell, asked, line, message):
    with pytest.raises(UsageError, match=message):
        cell(f"%dive {line}")


def test_an_agent_that_is_not_there_is_named_with_those_that_are(cell, asked):
    with pytest.raises(NotFoundError, match="reader"):
        cell("%dive ask raeder 'x'")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('"no: not now"', "User denied tool call: not now"),
        ("{approved: true, data: {parameters: {query: larks}}}", "larks hunt by night"),
        ("$answer", "User denied tool call: not now"),
    ],
)
def test_a_call_is_denied_with_a_reason_or_approved_with_other_arguments(cell, session, asked, given, told):
    reader = session.environment.definitions.agents["reader"]
    approval = [{"tool": "search", "outcome": "ask"}]
    model = ScriptedModel([FOUND, "They hunt by night."])
    session.environment.add_agent(Agent("reader", model=model, tools=reader.tools, approvals=approval), replace=True)
    run, printed = cell("%dive ask reader 'When do owls hunt?'")
    assert "no: REASON adds a reason" in printed
    assert '{"approved": true, "data": {"parameters": {"query": "TEXT"}}} or {"approved": true, "data": {"ru' in printed
    cell(f"q, answer = {run.open_questions[0].id!r}, 'no: not now'")
    answered, _ = cell(f"%dive answer $q {given}")
    assert answered.tool_calls.result.tolist() == [told]

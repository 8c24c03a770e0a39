"""What agents asked and called, in the tables of a run that need neither kernel nor widget."""

from pathlib import Path

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.analysis.run_report import MAX_ROWS, report_of, turn_rows
from divebook.events.codec import decode_line
from divebook.projections.spans import spans_of
from divebook.text.redaction import Redactor

LOG = Path(__file__).parents[1] / "projections" / "turn.jsonl"
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


def asked(*script, tools, prompt="go"):
    environment = Environment(store="memory:", agents=[Agent("a", model=ScriptedModel([*script]), tools=tools)])
    return environment.start(Workflow("w", [Step("ask", agent="a", prompt=prompt)])).wait()


def search(query: str) -> str:
    "Find passages."
    return f"<b>{query}</b> hunt by night"


@pytest.fixture(scope="module")
def report():
    execution = asked([{"say": "I look.", "call": {"search": {"query": "owls"}}}], "At night.", tools=[search])
    return report_of(execution, [*execution.history()])


def test_requests_and_their_calls_stand_below_the_steps(report):
    assert [(row[0], row[1], row[2], row[4]) for row in report.turns] == [
        ("a", "1", "✓ completed", "I look."),
        ("", "", "✓ completed", "search(query=owls) → returned: <b>owls</b> hunt by night"),
        ("a", "2", "✓ completed", "At night."),
    ]
    assert "2 requests and 1 call of agents:" in str(report)


def test_an_answer_of_words_and_data_has_a_space_between_them():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = ScriptedModel([{"say": "So many:", "output": {"n": 2}}])
    environment = Environment(store="memory:", agents=[Agent("a", model=model, output=schema)])
    execution = environment.start(Workflow("w", [Step("ask", agent="a", prompt="go")])).wait(check=True)
    assert [row[4] for row in turn_rows(spans_of(execution.history()), Redactor())] == ['So many: {"n": 2}']


def test_the_page_has_them_as_a_table_that_holds_no_markup_of_theirs(report):
    page = report._repr_html_()
    assert page.count("<table") == 2
    assert "&lt;b&gt;owls" in page
    assert "<b>" not in page


def test_runs_without_such_agents_have_no_table_of_them():
    execution = Environment(store="memory:").start(Workflow("w", [Step("s", script="1")])).wait()
    report = report_of(execution, [*execution.history()])
    assert report.turns == ()
    assert report._repr_html_().count("<table") == 1


def test_work_of_others_and_what_was_denied_is_told():
    rows = turn_rows(spans_of(map(decode_line, LOG.read_bytes().splitlines())), Redactor())
    assert [row[0] for row in rows if row[1]] == ["critic", "critic", "counter", "critic"]
    whats = [row[4] for row in rows]
    assert "delete(path=draft.txt) → denied: User denied tool call: keep the draft" in whats
    assert 'from the cache {"count": 12}' in whats
    assert whats[0] == "$0.00090"


def test_secrets_in_arguments_and_results_are_not_shown():
    def tell(key: str) -> str:
        "Tell."
        return f"the key is {key}"

    execution = asked([{"call": {"tell": {"key": SECRET}}}], "done", tools=[tell])
    report = report_of(execution, [*execution.history()])
    assert SECRET not in str(report) + report._repr_html_()


def test_of_very_many_the_last_are_shown():
    script = [[{"call": {"search": {"query": str(number)}}}] for number in range(14)]
    agent = Agent("a", model=ScriptedModel(turns=[[*script, "done"]] * 8), tools=[search])
    environment = Environment(store="memory:", agents=[agent])
    steps = [Step(f"s{number}", agent="a", prompt="go") for number in range(8)]
    execution = environment.start(Workflow("w", steps)).wait(check=True)
    rows = turn_rows(spans_of(execution.history()), Redactor())
    assert len(rows) == MAX_ROWS + 1
    assert rows[0][4].endswith("rows not shown here; run.model_calls and run.tool_calls list all")

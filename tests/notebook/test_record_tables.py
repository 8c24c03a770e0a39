"""Lists of records are shown as tables."""

from dataclasses import dataclass

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.analysis.run_report import MAX_RECORDS, as_table, records_of, report_of


@dataclass
class Sighting:
    bird: str
    seen: int


def report(said, output):
    agent = Agent("a", model=ScriptedModel([{"output": said}]), output=output)
    workflow = Workflow("ask", [Step("ask", prompt="Which?", agent="a", store="said")])
    execution = Environment(store="memory:", agents=[agent]).start(workflow).wait(check=True)
    return report_of(execution, execution.history())


def test_an_answer_that_is_a_list_of_records_is_shown_as_a_table():
    said = [{"bird": "owl", "seen": 2}, {"bird": "wren", "seen": 10}]
    shown = report({"response": said}, list[Sighting])
    table = ["bird  seen", "owl   2", "wren  10"]
    assert all(f"    {line}" in str(shown).splitlines() for line in table)
    assert all(line in shown._repr_html_() for line in table)


def test_secrets_in_a_table_are_hidden():
    said = [{"bird": "owl", "password": "correct horse battery"}]
    schema = {"type": "array", "items": {"type": "object"}}
    assert "correct horse" not in str(report({"response": said}, schema))


@pytest.mark.parametrize("value", [[], {}, "text", [1], [{"a": 1}, 2], [{}], [dict.fromkeys("abcdefghi")], None])
def test_what_is_no_list_of_records_is_shown_as_before(value):
    assert records_of(value) is None


def test_a_long_table_says_how_much_is_left_out():
    lines = as_table([{"n": number, "text": "x" * 100} for number in range(MAX_RECORDS + 3)]).splitlines()
    assert lines[-1] == "... 3 more"
    assert max(map(len, lines)) < 60
    said = [{"bird": f"owl {number}"} for number in range(MAX_RECORDS + 3)]
    schema = {"type": "array", "items": {"type": "object"}}
    assert "    ... 3 more" in str(report({"response": said}, schema)).splitlines()

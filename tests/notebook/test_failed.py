"""What a report says of a run that has failed: in a cell, in a terminal, and in a saved notebook."""

import re

import pytest

from divebook import Bounds
from divebook.analysis.run_report import report_of
from divebook.analysis.timeline import layout, svg
from divebook.notebook.session import current_session
from divebook.projections import summary
from divebook.projections.spans import spans_of

CELL = """

from divebook.definitions import step, workflow
@step
def boom(x):
    return {"a": 1}["b"]
@workflow
async def flow(ctx, n: int = 1):
    return await boom(n)
"""


@pytest.fixture
def execution(shell):
    shell.run_cell(CELL, store_history=True)
    return current_session().start_run("flow").wait(20)


def report(execution):
    return report_of(execution, [*execution.history()])


def test_the_place_is_a_line_of_the_cell_as_a_person_sees_it(execution, shell):
    place = f"Cell [{shell.execution_count - 1}], line 6"
    assert (execution.failure.place, execution.error) == (place, f"KeyError: 'b' (step boom, {place})")
    assert dict(execution.failure.source)[6] == '    return {"a": 1}["b"]'
    assert f"  {place}, in boom\n" in execution.failure.traceback


def test_a_text_says_what_where_with_which_arguments_and_from_where(execution):
    text = str(report(execution))
    place = execution.failure.place
    assert f"error: KeyError: 'b' (step boom, {place})" in text
    assert "  arguments:\n    x = 1\n" in text
    assert re.search(r'  >    6      return \{"a": 1\}\["b"\]', text)
    assert f"  traceback:\n    {place}, in boom" in text


def test_a_saved_page_begins_with_a_card_whose_traceback_is_folded(execution):
    page = report(execution)._repr_html_()
    assert page.index("error: </strong>KeyError: &#x27;b&#x27;") < page.index("<table")
    assert "x = 1" in page
    folded = r"<details style=[^>]*><summary[^>]*><strong>Traceback</strong></summary><div[^>]*><pre[^>]*>"
    assert re.search(rf"{folded}Cell \[\d+\], line 6", page)
    assert page.count("To continue</strong>") == 1


def test_of_a_run_that_went_on_the_failures_are_counted_and_named(session):
    session.define(
        "Workflows: [{Name: w, Inputs: [{Name: rows}], Steps: [{Name: s, Script: 1 // row, "
        "Each: {Items: $(inputs.rows), As: row, OnItemError: skip}}]}]"
    )
    execution = session.start_run("w", {"rows": [0, 1, 0]}).wait(20)
    assert "2 failed: rows[0], rows[2]" in str(report(execution))
    assert "✕ 2 failed: rows[0], rows[2]" in report(execution)._repr_html_()


BRANCHED = """
Workflows:
- Name: w
  Steps:
  - {Name: a, Script: "1", Next: [{Step: b}, {Step: c}]}
  - {Name: c, Script: 1 // 0}
  - {Name: b, Script: "2"}
"""


def test_rows_name_the_error_as_the_card_does_and_their_branch_if_there_are_several(session):
    session.define(BRANCHED)
    execution = session.start_run("w", bounds=Bounds(max_seconds=3600)).wait(20)
    text, page = str(report(execution)), report(execution)._repr_html_()
    assert re.search(r"c +branch 2  ✕ failed +\S+ ms +ZeroDivisionError: division by zero\n", text)
    assert re.search(r" ms of 1 h\n", text)
    assert "where: step c, branch 2" in text
    for shown in (text, page, svg(layout(spans_of(execution.history())), "")):
        assert "operation failed" not in shown
        assert "main-" not in shown
    assert page.count("<table") == 1


def test_a_run_without_branches_has_no_column_of_them(execution):
    assert "branch" not in str(report(execution))


def test_what_is_shown_and_saved_of_a_failed_run_is_read_off_its_log_once(execution, monkeypatch):
    def counted(name):
        fold = getattr(summary, name)
        monkeypatch.setattr(summary, name, lambda events: counts.append(name) or fold(events))

    def read(*place, **options):
        counts.append("read")
        return reading(*place, **options)

    counts, reading = [], execution.store.read
    for name in ("spans_of", "activity_of"):
        counted(name)
    monkeypatch.setattr(execution.store, "read", read)
    bundle = execution.internals.static_bundle()
    assert "KeyError" in bundle["text/html"]
    assert sorted(counts) == ["activity_of", "read", "spans_of"]


REVIEW = """%%dive
Agents:
- {{Name: writer, Script: ['{{"text": "first"}}']}}
- {{Name: critic, Script: {script}}}
Pipelines:
- Name: review
  Stages: [{{Name: draft, Agent: writer, Next: check}}, {{Name: check, Agent: critic}}]
"""


def test_the_failed_stage_of_a_pipeline_is_asked_again(cell, session):
    cell(REVIEW.format(script="[Certainly!]"))
    run = session.start_run("review").wait(20)
    assert run.status == "failed"
    cell(REVIEW.format(script="""['{"verdict": "proceed"}']"""))
    resumed, _ = cell(f"%dive resume {run.id}")
    assert resumed.wait(20).outputs == {"outputs": {"draft": {"text": "first"}, "check": {"verdict": "proceed"}}}
    assert len(resumed.requests) == 3

"""Results of items in the table of a report: each item once, by its name."""

from divebook import Each, Step, Workflow
from divebook.analysis.run_report import report_of
from tests.export.shared_runs import ended

TICKETS = [{"id": f"T-{number}", "text": "A parcel is late"} for number in range(3)]


def test_the_cell_of_a_step_has_the_results_and_names_of_its_items():
    each = Each(TICKETS, as_="ticket")
    run = ended(Workflow("label", [Step("classify", each=each, script="'late'"), Step("end", script="1")]))
    row, _ = report_of(run, run.history()).rows
    assert row[0] == "classify"
    assert row[-1] == "3 items: T-0: late · T-1: late · T-2: late"


def test_the_results_of_items_are_redacted():
    each = Each(TICKETS[:1], as_="ticket")
    step = Step("classify", each=each, script='\'{"password": "hunter2hunter2"}\'')
    run = ended(Workflow("label", [step]))
    (row,) = report_of(run, run.history()).rows
    assert "hunter2" not in row[-1]

"""The seventh notebook runs as a new user would run it: a failure, a dead process, a pause, and nothing done twice."""

import csv

import nbformat
import pytest

from tests.notebook.books import NOTEBOOKS, executed_in, shown

NOTEBOOK = NOTEBOOKS / "07_when_it_breaks_off.ipynb"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    return executed_in(folder, NOTEBOOK.name)


def test_the_card_names_the_item_its_arguments_and_the_line(executed):
    card = shown(executed, "run = %dive run read-invoices")
    assert "ValueError: could not convert string to float: '1.204,50'" in card
    assert "invoice = {'number': 2124, 'amount': '1.204,50'}" in card
    assert "Cell [2], line 14, invoices[23]" in shown(executed, "failure = run.failure")


def test_after_the_mending_only_what_failed_is_called_again(executed):
    assert "completed, total 17,293.00; 41 calls for 40 invoices" in shown(executed, 'if run.status == "failed"')
    assert "1204.5" in shown(executed, "calls = run.operations")


def test_what_is_tried_again_says_how_often(executed):
    tried = shown(executed, "scans.items").splitlines()[1:]
    assert [line.split()[1:4] for line in tried] == [
        [str(number), "completed", "2"] for number in (2110, 2120, 2130, 2140)
    ]


def test_what_nobody_can_know_of_a_process_that_died_is_asked_and_nothing_is_paid_twice(executed):
    _, folder = executed
    assert "exit code 1; the bank has made 6 payments" in shown(executed, "import json")
    assert "Interrupted: its process ended" in shown(executed, "divebook.runs(")
    assert "asks: Did the call to pay go through?" in shown(executed, "import payments")
    assert "number = 2106, amount = 225.5" in shown(executed, "for question in payment.open_questions")
    numbers = [line.split()[0] for line in (folder / "statement.txt").read_text().splitlines()]
    assert numbers == [str(number) for number in range(2101, 2111)]


def test_what_was_paused_goes_on_and_calls_nothing_twice(executed):
    assert shown(executed, "bill.clear()").startswith("paused, ")
    assert "completed; 40 calls for 40 invoices" in shown(executed, "tomorrow = ")


def test_the_result_is_in_files_to_share(executed):
    _, folder = executed
    with (folder / "invoices.csv").open(encoding="utf-8", newline="") as file:
        assert len([*csv.DictReader(file)]) == 40
    assert "execution_completed" in (folder / "invoices.jsonl").read_text()


def test_the_committed_notebook_was_run_and_tells_nothing_of_its_author():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert not [place for place in ("/home/", "/root/", "/Users/", "/tmp/") if place in NOTEBOOK.read_text()]
    assert "widget-view" not in NOTEBOOK.read_text()  # which trusted pages prefer, and cannot show without a kernel

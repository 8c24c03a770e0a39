"""The third and the fourth notebook run as a new user would run them: a fault is found, and nothing is paid twice."""

import subprocess
import sys

import nbformat
import pytest

from tests.notebook.books import NOTEBOOKS, executed_in, shown

FAULT, WHAT_IF = "03_find_the_fault.ipynb", "04_compare_and_what_if.ipynb"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return both, run in one kernel: starting another one takes longer than either."""
    return executed_in(tmp_path_factory.mktemp("fault"), FAULT, WHAT_IF)


# --- find the fault --------------------------------------------------------------------------------------------------


def test_the_total_is_absurd_and_its_changes_are_found_one_by_one(executed):
    assert shown(executed, "names = list(receipts)") == "Pay back 26401.3 euros?\n"
    assert shown(executed, "replay.seek").splitlines() == [
        "event 96, step advance: 26601.3 -> 26401.3",
        "event 91, step allowance: 26461.3 -> 26601.3",
        "event 86, step add: None -> 26461.3",
    ]


def test_why_leads_to_the_rates_and_clears_the_clerk(executed):
    lines = [line.strip() for line in shown(executed, "%dive why total").splitlines()]
    assert [line.partition(" ")[0] for line in lines[:5]] == ["total", "total", "total", "euros", "rates"]
    assert '3 nights JPY 38,400"' in shown(executed, "%dive why read --row 1")
    assert "'JPY': {'units': 100, 'euros': 0.61}" in shown(executed, 'run.variables["rates"]')


def test_the_mended_definition_departs_where_it_was_mended_and_makes_no_call(executed):
    assert shown(executed, "fixed = ").split() == ["True", "False", "event", "79,", "step", "convert"]
    plan = shown(executed, "%dive resume $run.id --definition new --plan")
    assert "25 operations reused, 0 live, 1 question asked in approve, then unknown: pay" in plan


def test_what_goes_on_looks_at_no_receipt_again_and_pays_once(executed):
    assert "Pay back 373.21 euros?" in shown(executed, "fixed_run = ")
    calls = shown(executed, "fixed_run.answer(")
    assert (calls.count("look at"), calls.count("rates"), calls.count("pay 373.21")) == (6, 1, 1)
    assert "add / script: [-26461.3-]{+433.21+}" in shown(executed, "run.refresh()")


def test_what_came_out_right_becomes_a_test_that_passes_anywhere(executed):
    note, _, value = shown(executed, "%dive to-test").partition("\n")
    assert note == "wrote test_pay_back.py and its log; to run the test: python -m pytest test_pay_back.py"
    assert value.strip() == "PosixPath('test_pay_back.py')"
    file = executed[1] / "test_pay_back.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", file.name]
    told = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert "1 passed" in told.stdout, told.stdout


def test_a_line_that_would_come_to_something_else_is_told(executed):
    told = "date.today() returns a different value each time the function runs"
    assert told in shown(executed, "from datetime import date")
    assert told in shown(executed, "divebook.definitions.lint")


# --- compare, and what if --------------------------------------------------------------------------------------------


def test_two_models_differ_in_one_label_and_what_follows_from_it(executed):
    assert "label[2] / model call reader, answer: [-pleased-]{+angry+}" in shown(executed, "comparison = ")
    assert "[0, 2, 4]" in shown(executed, "both = ")
    assert "0.0012" in shown(executed, "both.model_calls")


def test_bigger_vouchers_are_blocked_and_told_so(executed):
    (plan,) = shown(executed, 'print(small.what_if({"inputs"').splitlines()
    assert plan.startswith("plan of a what-if of exec_")
    assert plan.endswith(", from event 2 on: 9 operations reused, 0 live, 2 blocked")
    assert "9 replayed, 0 live, 2 blocked" in shown(executed, "bigger = ")
    assert "third of our customers is angry. partly" in shown(executed, "bigger = ")


def test_another_model_another_prompt_and_another_answer_come_to_something_else(executed):
    assert "[0, 2, 4] ['Send it? Every second" in shown(executed, "read_by_large = ")
    assert "[-pleased-]{+angry+}" in shown(executed, "%%dive try label")
    assert "$0.0022" in shown(executed, "better = ")
    assert "not approved: Send it?" in shown(executed, "(question,) = ")


def test_nothing_has_left_the_shop_but_by_the_two_runs_and_totals_are_theirs(executed):
    sent = shown(executed, "sent").splitlines()
    assert len(sent) == 7
    assert "'what-if': " in shown(executed, "every = ")


def test_the_file_to_share_is_a_run_again(executed):
    _, folder = executed
    assert (folder / "reviews.html").stat().st_size > 10_000
    assert "['angry', 'pleased', 'angry'" in shown(executed, "large.note")


@pytest.mark.parametrize("name", [FAULT, WHAT_IF])
def test_the_committed_notebook_was_run_and_tells_nothing_of_its_author(name):
    text = (NOTEBOOKS / name).read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert not [place for place in ("/home/", "/root/", "/Users/", "/tmp/") if place in text]
    assert "widget-view" not in text  # which trusted pages prefer, and cannot show without a kernel

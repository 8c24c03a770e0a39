"""Magics that look into a run."""

import re
import runpy

import pytest
from IPython.core.error import UsageError

from divebook.errors import NotFoundError, StoreError

SUM = """\
%%dive workflow sum
Inputs: [{Name: a, Type: int, Default: 1}]
Steps:
  - {Name: add, Script: inputs.a + 1, Store: n}
  - {Name: double, Script: state.n * 2, Store: m}
"""


def test_why_asks_the_newest_run_or_the_one_that_is_named(cell):
    cell(SUM)
    first, _ = cell("%dive run sum a=5 --new")
    cell("%dive run sum a=7 --new")
    newest, _ = cell("%dive why m")
    assert str(newest).startswith("m = 16: step double at event 11 (script)\n  n = 8: step add")
    named, _ = cell(f"%dive why m {first.id}")
    assert str(named).startswith("m = 12: ")
    assert str(first.why("inputs.a")) == "inputs.a = 5: passed at the start"


def test_why_as_it_was_at_an_event(cell):
    cell(SUM)
    run, _ = cell("%dive run sum")
    with pytest.raises(NotFoundError, match="m was not set yet at event 8: step double sets it"):
        cell("%dive why m --at 8")
    assert cell("%dive why n --at 8")[0].value(run.why("n").root) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "%dive why needs NAME, for example: %dive why total exec_01k8"),
        ("n --at soon", "--at must be an integer, not 'soon'"),
    ],
)
def test_why_says_what_is_missing(cell, line, said):
    cell(SUM)
    cell("%dive run sum")
    with pytest.raises(UsageError, match=said):
        cell(f"%dive why {line}")


def test_why_without_any_run_says_how_to_start_one(cell):
    with pytest.raises(NotFoundError, match="there are no runs yet; start a run with %dive run NAME"):
        cell("%dive why x")


@pytest.mark.parametrize("line", ["why m", "inspect", "compare {0.id} {0.id}", "show {0.id}", "runs"])
def test_what_lies_between_two_amounts_in_dollars_is_no_formula(cell, line):
    """JupyterLab typesets what HTML has between two dollar signs, unless it is told to leave that alone."""
    cell(SUM)
    run, _ = cell("%dive run sum")
    shown, _ = cell(f"shown = %dive {line.format(run)}\nshown")
    tag = shown._repr_html_().partition(">")[0]
    assert {"mathjax_ignore", "tex2jax_ignore"} <= {*re.findall(r"\w+", tag)}


def test_inspect_says_what_the_newest_run_waited_for(cell):
    cell(SUM)
    run, _ = cell("%dive run sum")
    found, _ = cell("%dive inspect")
    assert str(found).startswith("sum took ")
    assert "scripts" in found.spent
    assert cell(f"%dive inspect {run.id}")[0].duration == found.duration


def test_verify_compares_a_run_with_its_definition_as_it_was_and_as_it_is_now(cell):
    cell(SUM)
    run, _ = cell("%dive run sum")
    found, _ = cell("%dive verify")
    assert (found.equal, found.calls, found.run_id) == (True, 0, run.id)
    assert run.verify().equal
    cell(SUM.replace("state.n * 2", "state.n * 3"))
    assert cell(f"%dive verify {run.id}")[0].equal
    changed, _ = cell(f"%dive verify {run.id} --definition new")
    assert (changed.divergence.step, changed.divergence.event_type) == ("double", "operation_started")
    assert changed.divergence.place.startswith("Cell [")
    with pytest.raises(UsageError, match="--definition must be new, not"):
        cell("%dive verify --definition old")


def test_a_run_becomes_a_test_which_fails_once_its_definition_does_otherwise(cell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell(SUM)
    cell("%dive run sum a=5")
    file, _ = cell("%dive to-test")
    assert (str(file), file.with_suffix(".jsonl").exists()) == ("test_sum.py", True)
    check = runpy.run_path(str(file))["test_sum_does_what_its_log_says"]
    check()
    definition = file.with_suffix(".yaml")
    definition.write_text(definition.read_text().replace("state.n * 2", "state.n * 3"))
    with pytest.raises(AssertionError, match=r"step 'double', .*test_sum.yaml:"):
        check()
    with pytest.raises(StoreError, match="exists already"):
        cell("%dive to-test")
    again, _ = cell("%dive to-test --to test_again.py")
    assert cell("%dive to-test --to test_again.py --force")[0] == again

"""`%dive resume ID --definition new`: what it says first, what it then does, and what it refuses."""

import pytest
from IPython.core.error import UsageError

from divebook.errors import ExecutionFailedError, SetupError

SUMS = """\
%%dive workflow sums
Steps:
  - {Name: first, Script: "[1, 2]", Store: found}
  - {Name: total, Script: "sum(state.found) / (len(state.found) - 2)", Store: total}
"""
CORRECTED = SUMS.replace(" - 2", "")


@pytest.fixture
def failed(cell):
    cell(SUMS)
    run, _ = cell("r = %dive run sums --no-check --new\nr")
    assert run.status == "failed"
    return run


def test_a_corrected_cell_is_gone_on_with_after_the_plan_is_said(cell, failed):
    cell(CORRECTED)
    plan, _ = cell(f"%dive resume {failed.id} --definition new --plan")
    assert (plan.summary, str(plan).splitlines()[0]) == (
        "1 operation reused, 0 live",
        f"plan to continue {failed.id} of 'sums': 1 operation reused, 0 live",
    )
    assert len(cell("%dive runs")[0]) == 1
    run, shown = cell(f"r = %dive resume {failed.id} --definition new\nr")
    assert (run.status, run.variables["total"]) == ("completed", 1.5)
    assert "1 operation reused, 0 live" in shown
    assert run.environment.store.record(run.id).parent == failed.id


def test_a_run_is_held_and_goes_on_in_python(cell, failed):
    cell(CORRECTED)
    assert failed.resume(definition="new", plan=True).reused == 1
    continued = failed.resume(definition="new").wait(20)
    assert (continued.status, failed.status, continued == failed) == ("completed", "failed", False)


def test_a_strategy_by_its_name(cell, failed):
    run, _ = cell(f"%dive resume {failed.id} --strategy skip_failed")
    assert (run.status, run.id != failed.id) == ("completed", True)
    assert failed.retry("from_start").wait(20).status == "failed"


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("--definition new", SetupError, "makes the same calls as execution"),
        ("--definition old", UsageError, "--definition must be new, not 'old'"),
        ("--plan", SetupError, "--plan shows the effect of --definition new"),
        ("--strategy from_start --definition new", SetupError, "--strategy cannot be combined with"),
        ("--strategy skip", UsageError, "--strategy must be one of from_start, from_failure, skip_failed, not 'skip'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_begins_nothing(cell, failed, line, error, message):
    with pytest.raises(error) as caught:
        cell(f"%dive resume {failed.id} {line}")
    assert message in str(caught.value)
    assert len(cell("%dive runs")[0]) == 1


def test_a_run_that_is_resumed_with_its_old_definition_names_the_option_for_the_new_one(cell, failed):
    with pytest.raises(ExecutionFailedError) as unchanged:
        cell(f"%dive resume {failed.id}")
    assert "--definition new" not in unchanged.value.shown
    cell(CORRECTED)
    with pytest.raises(ExecutionFailedError) as caught:
        cell(f"%dive resume {failed.id}")
    assert "workflow 'sums' has changed since" in caught.value.shown
    assert "To continue with the new definition: --definition new" in caught.value.shown

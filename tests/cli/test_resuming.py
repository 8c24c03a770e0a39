"""`divebook resume` with a corrected definition: the plan first, then what is left to do; and other ways to retry."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.stores import open_store
from tests.cli.conftest import write

TEXT = """
Workflows:
  - Name: sums
    Steps:
      - {Name: first, Script: "[1, 2]", Store: found}
      - {Name: total, Script: %s, Store: total}
    Outputs: [{Name: total}]
"""


@pytest.fixture
def failed(divebook, folder):
    """Return the file of a workflow that has failed, and the id of that execution."""
    file = write(folder / "sums.yaml", TEXT % '"sum(state.found) / (len(state.found) - 2)"')
    assert divebook("run", file, "--quiet").exit_code == 1
    return file, open_store().records()[0].execution_id


def test_a_corrected_definition_goes_on_after_the_plan_is_said(divebook, failed):
    file, source = failed
    write(file, TEXT % '"sum(state.found)"')
    planned = divebook("resume", source, "-d", file, "--definition", "new", "--plan")
    assert planned.exit_code == 0, planned.output
    assert "1 operation reused, 0 live" in planned.stdout
    assert len(open_store().records()) == 1
    resumed = divebook("resume", source, "-d", file, "--definition", "new", "--quiet")
    assert resumed.exit_code == 0, resumed.output
    assert "1 operation reused, 0 live" in resumed.stderr
    assert "total = 3" in resumed.stdout
    newest, old = open_store().records()
    assert (newest.origin, newest.parent, old.status) == ("resume", source, "failed")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--plan"], "--plan shows the effect of --definition new"),
        (["--definition", "new"], "makes the same calls as execution"),
        (["--definition", "new", "--strategy", "from_start"], "--strategy cannot be combined with"),
    ],
    ids=["plan", "same", "both"],
)
def test_what_makes_no_sense_is_refused_and_begins_nothing(divebook, failed, options, told):
    file, source = failed
    refused = divebook("resume", source, "-d", file, *options)
    assert refused.exit_code == 2
    assert told in refused.stderr.replace("\n", " ")
    assert len(open_store().records()) == 1


@pytest.mark.parametrize(("strategy", "origin"), [("from_start", "run"), ("skip_failed", "fork")])
def test_a_strategy_by_its_name(divebook, failed, strategy, origin):
    _, source = failed
    again = divebook("resume", source, "--strategy", strategy, "--quiet")
    newest = open_store().records()[0]
    assert (newest.origin, newest.execution_id != source) == (origin, True)
    assert newest.status == ("completed" if strategy == "skip_failed" else "failed"), again.output


@pytest.mark.parametrize(("said", "begun"), [("n\n", 1), ("y\n", 2), ("", 1)], ids=["no", "yes", "end"])
def test_in_a_terminal_nothing_begins_before_somebody_agrees(failed, monkeypatch, said, begun):
    file, source = failed
    write(file, TEXT % '"sum(state.found)"')
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("divebook.cli.run.sys", terminal)
    command = ["resume", source, "-d", str(file), "--definition", "new", "--quiet"]
    ended = CliRunner().invoke(app, command, input=said)
    assert "1 operation reused, 0 live" in ended.stderr
    assert "Continue? [y/N]" in ended.stderr
    assert (len(open_store().records()), ended.exit_code) == (begun, 0 if begun == 2 else 1)
    if begun == 1:
        assert CliRunner().invoke(app, [*command, "--yes"]).exit_code == 0


REVIEW = """
Agents:
- {Name: writer, Script: ['{"text": "first"}']}
- {Name: critic, Script: %s}
Pipelines:
- Name: review
  Stages: [{Name: draft, Agent: writer, Next: check}, {Name: check, Agent: critic}]
"""


@pytest.mark.parametrize("failing", ["[{error: overloaded, status: 400}]", "[Certainly!]"])
def test_the_failed_stage_of_a_pipeline_is_asked_again(divebook, folder, failing):
    file = write(folder / "review.yaml", REVIEW % failing)
    failed = divebook("run", file, "--quiet")
    assert (failed.exit_code, "stage 'check' failed: " in failed.stdout) == (1, True)
    write(file, REVIEW % """['{"verdict": "proceed"}']""")
    (record,) = open_store().records()
    resumed = divebook("resume", record.execution_id, "-d", file, "--quiet")
    assert (resumed.exit_code, resumed.stderr) == (0, "")
    assert '"check": {"verdict": "proceed"}' in resumed.stdout
    begun = [event.data for event in open_store().read(record.execution_id) if event.step == "draft"]
    assert sum(getattr(data, "operation_type", "") == "agent_response" for data in begun) == 2  # began and ended once


def test_the_exit_code_of_several_resumed_runs_is_that_of_the_worst(divebook, folder, failed):
    _, source = failed
    asks = write(folder / "asks.yaml", "Workflows: [{Name: asks, Steps: [{Name: ask, Ask: 'Which one?'}]}]")
    assert divebook("run", asks, "--quiet").exit_code == 3
    waiting = open_store().records("waiting")[0].execution_id
    assert divebook("resume", waiting, waiting, "--quiet").exit_code == 3
    assert divebook("resume", waiting, waiting, "--quiet", "--strict").exit_code == 1
    both = divebook("resume", source, waiting, "--quiet")
    assert both.exit_code == 1
    assert "divi" in both.stdout
    rows = json.loads(divebook("resume", source, waiting, "--quiet", "--json").stdout)["runs"]
    assert ["divi" in (row["error"] or "") for row in rows] == [True, False]

"""The list of runs has its columns from one place, whoever shows it."""

from typing import get_args

from typer.testing import CliRunner

from divebook import Environment, Step, Workflow
from divebook.cli.main import app
from divebook.notebook.run_list import Runs
from divebook.projections import run_columns
from divebook.projections.run_columns import RUN_COLUMNS, Place, RunColumn
from divebook.widgets.runs_and_questions import EVERYTHING, RunsFeed


def test_a_new_column_is_one_entry_and_is_seen_everywhere(tmp_path, monkeypatch):
    owner = RunColumn("owner", lambda line: f"owner of {line.record.workflow_name}", places=get_args(Place))
    monkeypatch.setattr(run_columns, "RUN_COLUMNS", (*RUN_COLUMNS, owner))
    store = str(tmp_path / "runs.db")
    with Environment(store=store) as environment:
        environment.start(Workflow("sum", [Step("s", script="1 + 1")])).wait(20)
        runs = Runs(environment)
        (shown,) = RunsFeed(environment, {**EVERYTHING}).frame()["runs"]
        texts = {
            "text": str(runs),
            "HTML": runs._repr_html_(),
            "frame": runs.frame().to_string(),
            "run browser and side panel": str(shown["cells"]),
        }
    texts["shell"] = CliRunner().invoke(app, ["runs", "--store", store]).stdout
    for place, text in texts.items():
        assert "owner" in text, place
        assert "owner of sum" in text, place


def test_the_run_browser_draws_the_present_columns_itself(tmp_path):
    assert run_columns.columns_in("browser") == ()

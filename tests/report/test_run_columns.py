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
        page = RunsFeed(environment, {**EVERYTHING}).frame()
        (shown,) = page["runs"]
        texts = {
            "text": str(runs),
            "HTML": runs._repr_html_(),
            "frame": runs.frame().to_string(),
            "run browser and side panel": f"{page['columns']} {shown['cells']}",
        }
    texts["shell"] = CliRunner().invoke(app, ["runs", "--store", store]).stdout
    for place, text in texts.items():
        assert "owner" in text, place
        assert "owner of sum" in text, place


def test_the_run_browser_has_titles_order_and_texts_of_the_same_columns(tmp_path):
    with Environment(store=str(tmp_path / "runs.db")) as environment:
        environment.start(Workflow("sum", [Step("s", script="1 + 1")])).wait(20)
        page = RunsFeed(environment, {**EVERYTHING}).frame()
        text = str(Runs(environment))
    titles = [column["title"] for column in page["columns"]]
    assert titles == [column.title for column in RUN_COLUMNS if column.title in titles]
    # The browser has the id and what the run is about in the cell of the workflow.
    shown = [title for title in text.splitlines()[0].split() if title not in ("id", "about")]
    assert titles == shown == ["workflow", "status", "started", "worked", "cost"]
    assert all(cell in text for cell in page["runs"][0]["cells"])
    assert [column["by"] for column in page["columns"] if column["by"]] == ["started", "worked", "cost"]

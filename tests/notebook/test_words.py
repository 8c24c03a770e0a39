"""Runs that go well, wrong and not on, in every form: no names of the engine, no paths, no machine's times."""

import html
import re
from base64 import b64decode

import pytest
from typer.testing import CliRunner

import divebook
from divebook import Bounds, ScriptedModel, action
from divebook.agents import Agent
from divebook.analysis.run_report import report_of
from divebook.analysis.timeline import layout, svg
from divebook.cli.main import app
from divebook.definitions import step, workflow
from divebook.notebook.report import ways_on
from divebook.notebook.run_list import static_bundle
from divebook.notebook.session import open_session, reset_session
from divebook.projections.spans import spans_of
from tests.text.test_words import BANNED

MACHINE = re.compile(r"\d{4}-\d\d-\d\dT\d|\b\d{13,}\b|\b\d+ ns\b|nano")
RAISED = "refused"

FLOWS = """
Workflows:
- Name: branched
  Steps:
  - {Name: a, Script: "1", Next: [{Step: b}, {Step: c}]}
  - {Name: c, Script: 1 // 0, End: true}
  - {Name: b, Script: "2", Store: two}
- Name: rows
  Inputs: [{Name: rows}]
  Steps: [{Name: each, Script: 1 // row, Each: {Items: $(inputs.rows), As: row, OnItemError: skip}}]
- {Name: calls, Steps: [{Name: pay, Action: Pay, Parameters: {amount: 5}}]}
- {Name: asks, Steps: [{Name: which, Ask: {Question: Keep it?, Kind: confirmation, ExpiresIn: 2h}}]}
- {Name: talks, Steps: [{Name: say, Prompt: Hello}]}
"""


@action
def Pay(amount: int) -> None:  # noqa: N802 - as steps name it
    raise ConnectionError(RAISED)


@step
def fetch(x):
    return {"a": x}["b"]


@workflow
async def written(ctx, n: int = 1):
    await ctx.sleep(0.001)
    return await fetch(n)


@workflow
async def held(ctx):
    return await ctx.wait_signal("approved", within=7200)


@pytest.fixture
def runs(tmp_path):
    """Return runs of every kind, and where their store is."""
    session = open_session(str(tmp_path / "runs.db"))
    usage = {"input_tokens": 60, "output_tokens": 4}
    session.environment.add_agent(Agent("talker", model=ScriptedModel(["hi"], usage=usage, price=0.0041)))
    session.define(FLOWS)
    given = {"rows": {"rows": [0, 1, 0]}}
    names = ("branched", "calls", "asks", "talks", "held", "written", "rows")
    found = [session.start_run(name, given.get(name)) for name in names]
    found += [session.start_run("talks", bounds=Bounds(max_seconds=3600, max_tokens=1)), session.start_run("held")]
    for run in found:
        run.wait(20)
    found[-1].cancel()
    found[-1].wait(20)
    yield found
    reset_session()


def read(page):
    """Return what a person reads of HTML, pictures included: without tags and what only programs see."""
    pictures = [b64decode(data).decode() for data in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", page)]
    return "\n".join(html.unescape(re.sub(r"<[^>]*>", " ", part)) for part in [page, *pictures])


def forms(run):
    """Return the texts that show a run, by what shows it."""
    execution = run
    report = report_of(execution, [*execution.history()])
    ways = "\n".join(ways_on(execution))
    failure = execution.failure
    return {
        "repr": repr(run),
        "error": execution.error or "",
        "failure": "" if failure is None else f"{failure.headline}\n{failure.details}",
        "text": str(report),
        "page": read(report._repr_html_()),
        "picture": read(svg(layout(spans_of(execution.history())), run.id)),
        "ways on": ways,
    }


def wrong(texts):
    lines = [(form, line) for form, text in texts.items() for line in text.splitlines()]
    return [(form, line) for form, line in lines if BANNED.search(line) or MACHINE.search(line)]


def test_whatever_shows_a_run_speaks_of_steps_calls_branches_and_local_times(runs):
    assert [run.status for run in runs] == [
        *("failed", "waiting", "waiting", "completed", "waiting", "failed", "completed", "waiting", "cancelled")
    ]
    for run in runs:
        assert wrong(forms(run)) == []


def test_so_do_lists_and_the_shell(runs, tmp_path):
    store = ["--store", str(tmp_path / "runs.db")]
    listed = divebook.runs()
    bundle = static_bundle(runs[0].environment)
    texts = {"runs": repr(listed), "page of runs": read(listed._repr_html_())}
    texts |= {"inbox": bundle["text/plain"], "page of inbox": read(bundle["text/html"])}
    for words in (["runs"], ["inbox"], *(["show", run.id] for run in runs)):
        result = CliRunner().invoke(app, [*words, *store])
        assert result.exit_code == 0, result.output
        texts[" ".join(words)] = result.output
    assert "Keep it?" in texts["inbox"]
    assert "$0.0041" in texts[f"show {runs[3].id}"]
    assert wrong(texts) == []

"""The steps of pipelines that people see: views, tables and progress leave out those that nobody has written."""

import pytest

from divebook.analysis.log import steps_frame
from divebook.analysis.run_report import report_of
from divebook.definitions.definition import Workflow, hidden_in
from divebook.definitions.step import Step
from divebook.events import Event, catalog
from divebook.notebook.saved_notebook import SavedRun
from divebook.projections.spans import Formatter, Formatting, spans_of
from divebook.projections.summary import ReadLog
from divebook.text.redaction import shared
from divebook.widgets.feed import Feed
from divebook.widgets.recording import CleanRun, read_saved, saved_run
from divebook.widgets.source import graph_of, source_of
from tests.pipeline.test_resuming_failed import BESIDE, REFUSED, REVIEW, Models, world

ASKING = """
  Stages:
  - {Name: draft, Agent: writer, Next: clarification}
"""


class Steps(Formatter):
    """The names of the steps of which progress is told."""

    def __init__(self):
        self.begun, self.ended = [], []

    def step_started(self, step):
        self.begun.append(step.step)

    def step_output(self, step, output):
        self.ended.append(step.step)

    def step_error(self, step, error):
        self.ended.append(step.step)


def in_block(block):
    kinds, names = ([block["names"][place] for place in block[column]] for column in ("kind", "step"))
    return [name for kind, name in zip(kinds, names, strict=True) if kind == "step"]


@pytest.mark.parametrize(
    ("pipeline", "failing", "status", "expected"),
    [
        (REVIEW, (), "completed", ["draft", "check", "draft", "check", "publish"]),
        (REVIEW, (2,), "failed", ["draft", "check"]),
        (BESIDE, (), "completed", ["batch", "merge", "batch", "merge"]),
        (BESIDE, (1,), "failed", ["batch"]),
        (ASKING, (), "waiting", ["draft"]),
    ],
    ids=["loop", "failed", "beside", "failed beside", "asking"],
)
def test_every_view_shows_the_steps_that_the_graph_has(pipeline, failing, status, expected):
    environment, progress = world(Models(failing, REFUSED), pipeline), Steps()
    environment.store.subscribe(Formatting(progress))
    run = environment.start("review", {"request": "Mode" if pipeline == BESIDE else ""}).wait(20)
    assert run.status == status
    graph = {step["name"] for step in graph_of(run.workflow)["steps"]}
    assert set(expected) <= graph
    assert hidden_in(run.workflow).isdisjoint(graph)

    feed = Feed(source_of(run))
    feed.frame()
    welcome = feed.welcome("", 0)
    assert in_block(welcome["spans"]) == expected
    assert welcome["spans"]["id"] == list(range(welcome["total"]))
    recording = CleanRun(run, run.history(), shared()).recording(events=10_000, texts=10_000)
    assert in_block(recording["spans"]) == expected
    for report in (report_of(run, run.history()), SavedRun(*read_saved(saved_run(run))).run_report()):
        assert [row[0].partition(" ")[0] for row in report.rows] == expected
        assert {span.step for span in report.spans} <= graph
    assert progress.begun == progress.ended == expected
    assert {question["step"] for question in (*welcome["questions"], *recording["questions"])} <= {""}
    assert {row["source"] for row in feed.variables("", 0)["variables"]} <= {*graph, "input", ""}
    assert "route" in set(steps_frame(run.history())["step"])  # frames have all that the log has


def test_a_hidden_step_that_fails_is_shown():
    workflow = world(Models(), REVIEW).start("review").workflow
    facts = [
        (catalog.ExecutionStarted("review", {}, workflow.stored), None, None),
        (catalog.PathStarted("route"), "main", None),
        (catalog.StepStarted("stage", {"part": "route"}), "main", "route"),
        (catalog.StepCompleted(""), "main", "route"),
        (catalog.StepStarted("stage", {"part": "run", "stage": "draft"}), "main", "draft"),
        (catalog.StepCompleted("{}"), "main", "draft"),
        (catalog.StepStarted("stage", {"part": "route"}, 2), "main", "route"),
        (catalog.OperationStarted("op_1", "time_access", {}), "main", "route"),
        (catalog.StepFailed("stage 'draft' failed: overloaded"), "main", "route"),
        (catalog.ExecutionFailed("stage 'draft' failed: overloaded"), None, None),
        (catalog.ExecutionResumed("failed"), None, None),
        (catalog.StepCompleted(""), "main", "route"),
    ]
    log = [
        Event(f"event_{number}", "exec_1", number, number, data, path or "", step or "")
        for number, (data, path, step) in enumerate(facts, 1)
    ]
    told = [[(span.step, span.visit, span.status) for span in ReadLog.of(log[:end]).shown_spans] for end in (8, 10, 12)]
    draft = ("draft", 1, "completed")
    assert told == [[draft], [draft, ("route", 2, "failed")], [draft, ("route", 2, "completed")]]


def test_a_step_of_another_workflow_is_shown_whatever_it_is_called():
    environment = world(Models(), REVIEW)
    run = environment.start(Workflow("w", [Step("route", script="1"), Step("outputs", script="2")])).wait(20)
    assert spans_of(run.history(), for_people=True) == spans_of(run.history())

"""What views are told of an execution besides its spans."""

from decimal import Decimal

import pytest

from divebook import Agent, ScriptedModel
from divebook.agents.clients import REQUEST_LIMITERS, RequestLimiter
from divebook.definitions.definition import Workflow
from divebook.definitions.step import Catch, Each, Step
from divebook.questions import InterruptKind, Question
from divebook.questions.bounds import Bounds
from divebook.questions.question import ANSWERED_ALONE, sort_of
from divebook.runtime.compute.dask import DASHBOARDS, MOST, Dashboards
from divebook.runtime.messages import this_person
from divebook.stores import MemoryStore
from divebook.stores.sqlite.store import SqliteStore
from divebook.widgets import source
from divebook.widgets.source import durability_of, graph_of, header_of, question_of, source_of
from tests.runtime.worlds import Gate, environment, held_up

SUM = Workflow("sum", [Step("add", script="1 + 1", store="n")])


def test_the_header_of_an_execution_that_ended():
    header = header_of(environment().start(SUM).wait(30))
    assert (header["workflow"], header["status"], header["live"], header["commands"]) == ("sum", "completed", False, [])
    assert header["ended_us"] >= header["started_us"]


def test_the_header_of_an_execution_that_somebody_paused_says_so():
    gate = Gate()
    steps = [Step("first", action="gate"), Step("second", script="1")]
    execution = environment(actions=[gate.action()]).start(Workflow("w", steps))
    assert gate.reached.wait(20)
    execution.pause()
    gate.opened.set()
    header = header_of(execution.wait(20))
    assert (header["status"], header["commands"]) == ("paused", ["resume", "cancel"])
    assert execution.state.paused == f"paused by {this_person()}"


@pytest.mark.usefixtures("notebook_words")
def test_the_header_names_the_signal_that_is_waited_for_and_what_sends_it():
    execution = environment().start(Workflow("w", [Step("s", type="wait", signal="it's on")])).wait(20)
    told = f"waits for the signal \"it's on\": %dive signal {execution.id} 'it''s on'"
    assert header_of(execution)["waits"] == told.replace("'it''s on'", "'it''s on'")


def test_the_header_says_what_holds_an_execution_up():
    with held_up() as execution:
        assert header_of(execution)["waits"].startswith("waiting for the disk since 0 s: the disk is full")
    assert header_of(execution)["waits"] == ""


def test_the_header_of_a_live_execution_says_how_many_requests_a_provider_takes(monkeypatch):
    limiter = RequestLimiter("openai:gpt-6")
    limiter.under_way = 14
    monkeypatch.setattr(REQUEST_LIMITERS, "_limiters", {(0, "openai", "http://there", "", "gpt-6"): limiter})
    gate = Gate()
    world = environment(actions=[gate.action()], agents=[Agent("a", model=ScriptedModel(["well"]))])
    execution = world.start(Workflow("w", [Step("ask", prompt="Go"), Step("wait", action="gate")]))
    assert gate.reached.wait(20)
    assert header_of(execution)["waits"] == "openai:gpt-6: 14 of at most 20 concurrent requests"
    gate.opened.set()
    assert header_of(execution.wait(20))["waits"] == ""


def test_how_durable_a_store_is(tmp_path):
    def durability(store):
        with store:
            return durability_of(environment(store=store).create(SUM))

    assert durability(MemoryStore()) == "memory"
    assert durability(SqliteStore(tmp_path / "full.db")) == "durable"
    assert durability(SqliteStore(tmp_path / "fast.db", durability="relaxed")) == "relaxed"


def test_an_execution_that_has_not_begun_has_no_events():
    assert source_of(environment().create(SUM)).read(0, 10) == []


def test_the_graph_names_steps_ways_and_ways_out():
    steps = [
        Step("a", script="1", next=[("b", "$(state.x > 1)"), "c"], catch=[Catch("c")]),
        Step("b", script="2", each=Each([1]), end=True),
        Step("c", script="3"),
    ]
    graph = graph_of(Workflow("w", steps))
    assert [(step["name"], step["type"], step["each"]) for step in graph["steps"]][1] == ("b", "script", True)
    assert [(edge["source"], edge["target"], edge["kind"]) for edge in graph["edges"]] == [
        ("a", "b", "next"),
        ("a", "c", "next"),
        ("a", "c", "catch"),
    ]
    assert graph["edges"][0]["condition"] == "$(state.x > 1)"


def test_a_question_has_every_field_a_view_needs():
    data = {"choices": ["retry"], "big": 2**60}
    asked = question_of(
        Question("ask_1", "outcome_unknown", "Again?\ud800", "main", "s", data=data, optional=True), "w"
    )
    assert (asked["status"], asked["required"], asked["schema"]) == ("pending", False, None)
    assert asked["data"] == {"choices": ["retry"], "big": str(2**60)}
    assert asked["question"] == "Again??"
    assert question_of(Question("ask_1", "checkpoint", "On?", settled_us=7), "w")["answered_us"] == 7


def test_what_checks_answers_is_loaded_while_a_person_reads(monkeypatch):
    loaded = []
    monkeypatch.setattr(source, "load_soon", lambda: loaded.append("jsonschema"))
    question_of(Question("ask_1", "clarification", "Which?"), "w")
    question_of(Question("ask_1", "clarification", "Which?", schema={"type": "object"}, status="resolved"), "w")
    assert loaded == []
    question_of(Question("ask_1", "clarification", "Which?", schema={"type": "object"}), "w")
    assert loaded == ["jsonschema"]


def test_the_gauges_are_the_bounds_that_there_are():
    execution = environment().start(SUM, bounds=Bounds(max_tokens=100, max_cost=Decimal("0.5"))).wait(30)
    told = [(gauge["name"], gauge["spent"], gauge["limit"], gauge["unit"]) for gauge in header_of(execution)["gauges"]]
    assert told == [("tokens", 0, 100, ""), ("cost", 0, 0.5, "$")]


def test_the_dashboards_of_clusters_are_told_while_calls_go_there():
    gate = Gate()
    execution = environment(actions=[gate.action()]).start(Workflow("w", [Step("s", action="gate")]))
    assert gate.reached.wait(20)
    for address in ("http://one.example", "http://two.example", "http://one.example"):
        DASHBOARDS.add_address(execution.id, address)
    assert header_of(execution)["dashboards"] == ["http://one.example", "http://two.example"]
    DASHBOARDS.forget("http://two.example")
    assert header_of(execution)["dashboards"] == ["http://one.example"]
    gate.opened.set()
    execution.wait(20)
    assert header_of(execution)["dashboards"] == []


def test_of_many_executions_the_latest_have_dashboards():
    known = Dashboards()
    for number in range(MOST + 1):
        known.add_address(f"exec_{number}", "http://one.example")
    assert [known.of("exec_0"), known.of("exec_1")] == [[], ["http://one.example"]]


def test_views_group_questions_as_the_kernel_answers_them():
    """Two questions have the same key for views if, and only if, one answer may settle both."""
    step = {"id": "ask_1", "question": "Go on?"}
    questions = [
        ("w", Question(kind="confirmation", step="a", data={"tool": "delete", "parameters": {"n": 1}}, **step)),
        ("w", Question(kind="confirmation", step="a", data={"tool": "delete", "parameters": {"n": 2}}, **step)),
        ("w", Question(kind="confirmation", step="a", data={"tool": "fetch"}, **step)),
        ("w", Question(kind="confirmation", step="b", data={"tool": "delete"}, **step)),
        ("other", Question(kind="confirmation", step="a", data={"tool": "delete"}, **step)),
        ("w", Question(kind="clarification", step="a", schema={"type": "integer"}, **step)),
        ("w", Question(kind="clarification", step="a", schema={"type": "string"}, **step)),
        *(("w", Question(kind=kind.value, step="a", **step)) for kind in InterruptKind),
    ]
    # The name of a hidden step is not shown. Its questions are still those of one step.
    keys = [question_of(question, workflow, hidden={"a", "b"})["alike"] for workflow, question in questions]
    sorts = [sort_of(workflow, question) for workflow, question in questions]
    assert [[one == other for other in keys] for one in keys] == [[one == other for other in sorts] for one in sorts]
    assert {question.kind for (_, question), key in zip(questions, keys, strict=True) if not key} == ANSWERED_ALONE


def test_a_question_that_is_closed_has_no_key():
    question = Question("ask_1", "clarification", "Which?")
    assert question_of(question, "w")["alike"]
    assert question_of(question.expired(), "w")["alike"] == ""

"""Turns of agents with tools: what the log has of them, and what is done again after a process has ended."""

import threading

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.agents import signatures
from divebook.analysis.run_report import report_of
from divebook.definitions.functions import workflow
from divebook.definitions.step import Retry
from divebook.events import catalog
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment, event_types

ASK = Workflow("ask", [Step("ask", prompt="Which birds?", agent="a", store="birds")])
SCRIPT = [
    [{"call": {"look": {"name": "owl"}}}, {"call": {"look": {"name": "lark"}}}],
    {"call": {"look": {"name": "wren"}}},
    "an owl, a lark and a wren",
]
KEYS = ["turn", "model-1", "tool-1-call-1-1", "tool-1-call-1-2", "model-2", "tool-2-call-2-1", "model-3"]


class Book:
    """A tool that looks up birds, and knows which."""

    def __init__(self):
        self.looked = []

    def look(self, name: str) -> str:
        """Look a bird up."""
        self.looked.append(name)
        return f"{name}: seen"


def world(tool, script=SCRIPT, store=None, **settings):
    model = ScriptedModel(script, usage={"input_tokens": 10, "output_tokens": 5})
    given = {} if store is None else {"store": store}
    return environment(ASK, agents=[Agent("a", model=model, tools=[tool])], **given, **settings), model


def started(execution):
    return [event.data for event in execution.history() if isinstance(event.data, catalog.OperationStarted)]


def began(execution, data):
    """Return the number of an event."""
    return next(event.sequence for event in execution.history() if event.data == data)


def test_each_request_and_each_call_is_an_operation_within_the_turn():
    book = Book()
    execution = world(book.look)[0].start("ask").wait(20)
    assert execution.variables == {"birds": "an owl, a lark and a wren"}
    assert sorted(book.looked) == ["lark", "owl", "wren"]  # two of them at once
    turn, *inner = started(execution)
    assert [operation.key for operation in (turn, *inner)] == KEYS
    assert {operation.within for operation in inner} == {began(execution, turn)}
    assert [(o.operation_type, o.name) for o in (turn, *inner)][:3] == [
        ("agent_turn", "a"),
        ("agent_response", "a"),
        ("tool_call", "look"),
    ]
    assert inner[1].parameters == {"agent": "a", "tool": "look", "arguments": {"name": "owl"}}
    assert execution.state.own_usage.to_dict() == {"requests": 3, "input_tokens": 30, "output_tokens": 15}


def test_a_turn_that_is_cut_anywhere_makes_no_finished_request_or_call_again():
    book = Book()
    execution = world(book.look)[0].start("ask").wait(20)
    ends = [e for e in execution.history() if e.event_type == "operation_completed"]
    for done, end in enumerate(ends, 1):
        again = Book()
        other, model = world(again.look, store=cut(execution.store, execution, end.sequence))
        resumed = other.run_of(execution.id).resume().wait(20)
        for question in resumed.open_questions:  # a call that was under way: nobody knows whether it took effect
            resumed.answer(question.id, {"choice": "retry"}).wait(20)
        assert resumed.variables == execution.variables
        left = max(0, 7 - done - 1)
        assert model.calls + len(again.looked) == left, f"after {done} of {len(ends)}"


def test_a_finished_turn_is_taken_whole_and_runs_no_loop(monkeypatch):
    from divebook.agents import agent_loop

    book = Book()
    execution = world(book.look)[0].start("ask").wait(20)
    at = next(e.sequence for e in execution.history() if e.event_type == "step_completed") - 2
    monkeypatch.setattr(agent_loop.AgentLoop, "turn", lambda *_: pytest.fail("the loop runs again"))
    other, _ = world(book.look, store=cut(execution.store, execution, at))
    assert other.run_of(execution.id).resume().wait(20).variables == execution.variables


def test_a_workflow_function_has_as_many_turns_as_it_asks_for():
    book = Book()

    @workflow
    async def both(ctx):
        first = await ctx.agent("a").run("Which birds?")
        return [first, await ctx.agent("a").run("And then?")]

    agent = Agent(
        "a", model=ScriptedModel(turns=[SCRIPT, [{"call": {"look": {"name": "tit"}}}, "a tit"]]), tools=[book.look]
    )
    execution = environment(agents=[agent]).start("both").wait(20)
    assert execution.outputs["result"] == ["an owl, a lark and a wren", "a tit"]
    keys = [operation.key for operation in started(execution)]
    assert keys == [f"agent-1/{key}" for key in KEYS] + [
        f"agent-2/{key}" for key in ("turn", "model-1", "tool-1-call-1-1", "model-2")
    ]


def test_a_steps_retry_makes_no_finished_call_again():
    looked, failures = [], [1]

    def look(name: str) -> str:
        """Look a bird up."""
        looked.append(name)
        if name == "wren" and failures:
            failures.pop()
            raise ValueError("no such page")
        return f"{name}: seen"

    step = Step("ask", prompt="Which birds?", agent="a", store="birds", retry=Retry(attempts=3, seconds=0))
    model = ScriptedModel(SCRIPT)
    execution = environment(agents=[Agent("a", model=model, tools=[look])]).start(Workflow("w", [step])).wait(20)
    assert execution.variables == {"birds": "an owl, a lark and a wren"}
    assert sorted(looked) == ["lark", "owl", "wren", "wren"]
    assert model.calls == 3
    assert event_types(execution).count("step_retried") == 1


def test_plain_agents_are_asked_as_before():
    execution = environment(ASK, agents=[Agent("a", model=ScriptedModel(["an owl"]))]).start("ask").wait(20)
    (operation,) = started(execution)
    assert (operation.key, operation.within, operation.setting) == (1, None, None)
    assert operation.parameters.keys() == {"agent", "prompt", "model", "instructions"}


def test_calls_of_one_response_run_side_by_side():
    both = threading.Barrier(2)

    def look(name: str) -> str:
        """Look a bird up."""
        if name != "wren":
            both.wait(20)
        return f"{name}: seen"

    assert world(look)[0].start("ask").wait(30).status == "completed"


def test_what_a_model_sees_of_a_tool_is_made_once(monkeypatch):
    from pydantic_ai import _function_schema

    made, make = [], _function_schema.function_schema
    monkeypatch.setattr(signatures, "_SCHEMAS", {})
    monkeypatch.setattr(
        _function_schema,
        "function_schema",
        lambda *given, **more: made.append(more["tool_name"]) or make(*given, **more),
    )
    world_, _ = world(Book().look)
    for _ in range(2):
        assert world_.start("ask").wait(20).status == "completed"
    assert made == ["look"]


@pytest.mark.parametrize(
    ("answer", "status", "outcome"),
    [
        ("retry", "completed", "returned"),
        ({"choice": "done", "result": "seen"}, "completed", "returned"),
        ("fail", "failed", "failed"),
    ],
)
def test_a_call_whose_process_died_waits_with_an_unknown_outcome_until_a_person_says_what_became_of_it(
    answer, status, outcome
):
    script = [{"call": {"look": {"name": "owl"}}}, "an owl"]
    first = world(Book().look, script)[0].start("ask").wait(20)
    began = next(e.sequence for e in first.history() if getattr(e.data, "operation_type", "") == "tool_call")
    there = world(Book().look, script, store=cut(first.store, first, began))[0]
    execution = there.run_of(first.id).resume().wait(20)
    assert stands(execution) == [["waiting", "unknown"]]
    (row,) = [row for row in report_of(execution, [*execution.history()]).turns if not row[0]]
    assert (row[2], row[4]) == ("… waiting", "look(name=owl) → unknown whether it took effect")
    execution.cancel()
    execution.wait(20)
    assert stands(execution) == [["cancelled", ""]]
    again = there.run_of(first.id).resume().wait(20)
    assert stands(again) == [["waiting", "unknown"]]
    assert stands(again.answer(again.open_questions[0].id, answer).wait(20)) == [[status, outcome]]


def stands(execution):
    return execution.tool_calls[["status", "outcome"]].fillna("").to_numpy().tolist()


def test_requests_and_threads_are_shown_on_a_line_however_long_they_are():
    agent = Agent("a", model=ScriptedModel(["word " * 10_000]))
    world = environment(Workflow("w", [Step("ask", prompt="text " * 10_000, agent="a", thread="t")]), agents=[agent])
    (request,) = world.start("w").wait(20).requests
    assert repr(request) == f"<request 1 of a to {request.model}: 1 message, 0 tools, completed>"
    thread = world.threads["t"]
    (turn,) = thread.turns
    assert (repr(thread), repr(turn)) == ("Thread(id='t')", f"<turn {turn.key}: 2 messages>")

"""What agents asked, said, called and cost, as DataFrames of one log and of many."""

from pathlib import Path

import pandas as pd
import pytest
from pydantic import TypeAdapter
from pydantic_ai import ModelRetry

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.analysis import agents, store
from divebook.errors import SetupError
from divebook.events import catalog
from divebook.events.codec import decode_line
from tests.engine.history import begun, events

TURN = [
    decode_line(line) for line in (Path(__file__).parents[1] / "projections" / "turn.jsonl").read_bytes().splitlines()
]


def test_messages_stand_request_by_request_as_they_were_sent():
    frame = agents.messages_frame(TURN)
    second = frame[(frame.agent == "critic") & (frame.request == 2)]
    assert second.role.tolist() == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert second.tool.dropna().tolist() == ["search", "delete"]
    assert "n = 12" in second.text.iloc[3]
    assert second.content.iloc[2][0] == {"type": "thinking", "text": "Two things to look at."}


def test_requests_have_a_row_each_with_numbers_and_answer():
    frame = agents.model_calls_frame(TURN)
    assert frame.agent.tolist() == ["critic", "critic", "counter", "critic"]
    assert frame.cached.tolist() == [False, False, True, False]
    assert frame.answered_by.iloc[0] == "gpt-6-2026-10-01"
    assert frame.cost.sum() == pytest.approx(0.0018)
    assert frame.tools.iloc[0] == ["search", "delete", "assign_work"]
    assert (frame.messages.iloc[1], frame.text.iloc[3]) == (3, "It is sound, with 12 samples.")


def test_calls_have_a_row_each_with_arguments_and_outcome():
    frame = agents.tool_calls_frame(TURN).set_index("tool")
    assert frame.outcome.to_dict() == {"search": "returned", "delete": "denied", "assign_work": "returned"}
    assert frame.loc["search", "arguments"] == {"query": "method"}
    assert frame.loc["assign_work", "result"] == {"count": 12}
    assert frame.loc["delete", "result"] == "User denied tool call: keep the draft"
    assert frame.request.tolist() == [1, 1, 2]


def nested(cost):
    """Return a log in which an agent gives work to another one, which gives some of it to a third."""
    given = {"part_kind": "tool-call", "tool_name": "assign_work", "args": {"agent": "x"}, "tool_call_id": "a"}
    asked = {"kind": "response", "parts": [given]}
    usage = {"requests": 1, "input_tokens": 10, "output_tokens": 1, "cost": cost}

    def turn(agent, key, within=None):
        return [catalog.OperationStarted(f"turn {agent}", "agent_turn", {"agent": agent}, key=key, within=within)]

    def request(agent, prefix, within):
        told = {"agent": agent, "request": 1, "kept": 0, "new": []}
        begin = catalog.OperationStarted(f"model {agent}", "agent_response", told, key=f"{prefix}model-1",
                                         setting={"model": f"m-{agent}"}, within=within)  # fmt: skip
        return [begin, catalog.OperationCompleted(f"model {agent}", "agent_response", 1, asked, usage)]

    head = len(begun()) + 2
    clerk, boy = head + 3, head + 6
    facts = [
        *turn("head", "turn"), *request("head", "", head),
        *turn("clerk", "tool-1-a/turn", head), *request("clerk", "tool-1-a/", clerk),
        *turn("boy", "tool-1-a/tool-1-a/turn", clerk), *request("boy", "tool-1-a/tool-1-a/", boy),
        catalog.OperationCompleted("turn boy", "agent_turn", 1, {"output": "done", "text": "done"}),
    ]  # fmt: skip
    return events(*begun(), (catalog.StepStarted("prompt"), "main", "s"), *((fact, "main", "s") for fact in facts))


def test_work_that_was_given_is_a_call_with_the_turn_in_place_of_an_operation():
    calls = agents.tool_calls_frame(nested(1)).set_index("agent")
    assert calls.tool.tolist() == ["assign_work"] * 3
    assert calls.status.to_dict() == {"head": "running", "clerk": "completed", "boy": "waiting"}
    assert calls.loc["clerk", ["outcome", "result"]].tolist() == ["returned", "done"]
    assert calls.operation_id.tolist()[:2] == ["turn clerk", "turn boy"]
    assert pd.isna(calls.loc["boy", "started"])


def test_the_cost_of_a_call_is_that_of_all_who_worked_below_it():
    log = nested(1_000_000_000)
    calls = agents.tool_calls_frame(log).set_index("agent")
    assert calls.cost.dropna().to_dict() == {"head": 2.0, "clerk": 1.0}
    by_tool = agents.costs_frame(log, "tool").set_index("name")
    assert (by_tool.loc["assign_work", "calls"], by_tool.loc["assign_work", "input_tokens"]) == (3, 30)


def test_costs_add_up_to_the_same_by_agent_and_by_model():
    log = nested(250_000_000)
    by_agent, by_model = (agents.costs_frame(log, by).set_index("name") for by in ("agent", "model"))
    assert by_agent.cost.sum() == by_model.cost.sum() == 0.75
    assert by_agent.loc["head", ["requests", "cached", "calls"]].tolist() == [1, 0, 1]
    assert set(by_model.index) == {"m-head", "m-clerk", "m-boy"}


def test_answers_from_a_cache_are_counted_and_cost_nothing():
    row = agents.costs_frame(TURN).set_index("name").loc["counter"]
    assert (row.requests, row.cached) == (0, 1)
    assert (row.cost, row.input_tokens, row.output_tokens) == (0, 0, 0)
    calls = agents.model_calls_frame(TURN)
    assert calls[calls.cached][["cost", "input_tokens", "output_tokens"]].to_numpy().tolist() == [[0, 0, 0]]


def test_a_price_that_is_not_known_stays_missing_beside_answers_from_a_cache():
    turn = len(begun()) + 2

    def request(number, kind, usage):
        told = {"agent": "a", "request": number, "kept": 0, "new": []}
        begin = catalog.OperationStarted(f"op {number}", kind, told, key=f"model-{number}", within=turn)
        return begin, catalog.OperationCompleted(f"op {number}", kind, 1, {"kind": "response", "parts": []}, usage)

    facts = [
        catalog.OperationStarted("turn", "agent_turn", {"agent": "a"}, key="turn"),
        *request(1, "agent_response", {"requests": 1, "input_tokens": 10}),
        *request(2, "cached_response", None),
    ]
    log = events(*begun(), (catalog.StepStarted("prompt"), "main", "s"), *((fact, "main", "s") for fact in facts))
    (row,) = agents.costs_frame(log).itertuples()
    assert (row.requests, row.cached, row.input_tokens, pd.isna(row.cost)) == (1, 1, 10, True)


def test_the_frames_of_an_execution_whose_agent_has_called_a_tool():
    def search(query: str) -> str:
        "Find passages."
        return f"found {query}"

    model = ScriptedModel([[{"call": {"search": {"query": "owls"}}}], "done"])
    agent = Agent("a", model=model, tools=[search])
    environment = Environment(store="memory:", agents=[agent])
    execution = environment.start(Workflow("w", [Step("ask", agent="a", prompt="Look.")])).wait(check=True)
    assert execution.tool_calls[["tool", "result", "outcome"]].to_numpy().tolist() == [
        ["search", "found owls", "returned"]
    ]
    assert execution.model_calls.request.tolist() == [1, 2]
    assert [message.role for message in execution.conversation] == ["system", "user", "assistant", "tool", "assistant"]
    assert execution.costs("tool").calls.tolist() == [1]
    every = store.Frames(environment.store, environment.store.records())
    assert every.tool_calls.execution_id.tolist() == [execution.id]
    assert every.costs("model").requests.tolist() == [2]
    with pytest.raises(SetupError, match="by agent, model, tool or step, not by 'day'"):
        execution.costs("day")


@pytest.mark.parametrize(
    "call",
    [
        {"search": {"query": ["owls"]}},
        {"search": {"words": "owls"}},
        {"search": '{"query": '},
        {"look_up": {"query": "owls"}},
        {"assign_work": {"agent": "wrkr", "name": "n", "description": "d", "expected_output": "e"}},
        {"asks_back": {}},
        {"checks": {}},
    ],
)
def test_a_call_that_the_model_is_told_to_make_otherwise_has_not_returned(call):
    def search(query: str) -> str:
        "Find passages."
        return f"found {query}"

    def asks_back() -> str:
        "Ask for something else."
        raise ModelRetry("ask for something else")

    def checks() -> int:
        "Check a number."
        return TypeAdapter(int).validate_python("many")

    tools = [search, asks_back, checks]
    boss = Agent("a", model=ScriptedModel([{"call": call}, "done"]), tools=tools, subordinates=["worker"])
    environment = Environment(store="memory:", agents=[boss, Agent("worker")])
    execution = environment.start(Workflow("w", [Step("ask", agent="a", prompt="Look.")])).wait(check=True)
    assert execution.tool_calls.outcome.tolist() == ["retry"]
    assert execution.tool_calls.status.tolist() == ["completed"]

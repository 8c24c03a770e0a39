"""What MCP servers ask of a model: an agent that their definition names answers, in the turn and within its bounds."""

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.agents import server_tools
from divebook.definitions.resources import ApprovalRule
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment
from tests.tools.conftest import defined
from tests.tools.test_mcp_turns import results, started

ASK = Workflow("ask", [Step("ask", prompt="Go", agent="a", store="said")])


def world(tool, *, thinker=None, store=None, **more):
    """Return an environment with an agent that calls one tool, and one that answers what its server asks."""
    server = defined("good.py", name="good", **{"sampling": "thinker", **more})
    agents = [
        Agent("a", model=ScriptedModel([{"call": {tool: {}}}, "done"]), servers=["good"]),
        thinker or Agent("thinker", model=ScriptedModel(["because", "so what"])),
    ]
    given = {} if store is None else {"store": store}
    return environment(ASK, agents=agents, servers=[server], approvals=[ApprovalRule()], **given)


@pytest.mark.parametrize(
    ("tool", "within", "said", "requests"),
    [("ponder", False, "scripted: because", 1), ("ponder_as_before", True, "because, so what", 2)],
)
def test_an_agent_answers_what_a_server_asks_and_each_answer_is_recorded_and_counted(tool, within, said, requests):
    with world(tool, asks_within_calls=within) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "done"}, execution.error
        assert said in str(results(execution))
        samples = [operation for operation in started(execution) if operation.key.startswith("sample-1-call-1-1-")]
        assert [operation.parameters["agent"] for operation in samples] == ["thinker"] * requests
        assert samples[0].parameters["prompt"] == "Why?"
        assert execution.usage.requests == 2 + requests
        assert [view.agent for view in execution.requests].count("thinker") == requests


def test_what_a_model_has_answered_is_not_asked_again_by_a_resume():
    with world("ponder") as here:
        execution = here.start("ask").wait(60)
    answered = next(
        event.sequence
        for event in execution.history()
        if event.event_type == "operation_completed" and "because" in str(event.data.result)
    )
    silent = Agent("thinker", model=ScriptedModel([{"error": "asked again", "status": 500}]))
    with world("ponder", thinker=silent, store=cut(execution.store, execution, answered)) as other:
        assert other.run_of(execution.id).resume().wait(60).variables == {"said": "done"}


def test_it_counts_for_the_bounds_of_the_agent_that_called():
    with world("ponder", thinker=Agent("thinker", model=ScriptedModel(["because"]))) as here:
        here.add_agent(
            Agent(
                "a",
                model=ScriptedModel([{"call": {"ponder": {}}}, "done"]),
                servers=["good"],
                bounds={"max_llm_calls": 2},
            ),
            replace=True,
        )
        execution = here.start("ask").wait(60)
        assert [question.kind for question in execution.open_questions] == ["resource_exhausted"]


@pytest.mark.parametrize(("tool", "within"), [("ponder", False), ("ponder_as_before", True)])
@pytest.mark.parametrize("is_of_agent", [True, False])
def test_a_bound_that_is_met_during_a_call_is_asked_about_while_the_call_waits(tool, within, is_of_agent):
    """The call still counted as running, so that nobody who waited for the run got the question."""
    bounds = {"max_llm_calls": 1}
    with world(tool, asks_within_calls=within) as here:
        script = ScriptedModel([{"call": {tool: {}}}, "done"])
        agent = Agent("a", model=script, servers=["good"], bounds=bounds if is_of_agent else None)
        here.add_agent(agent, replace=True)
        execution = here.create("ask", bounds={} if is_of_agent else bounds).start().wait(20)
        (question,) = execution.open_questions
        assert (question.kind, execution.internals.is_blocked) == ("resource_exhausted", within)
        done = execution.answer(question.id, 9).wait(20)
        assert done.variables == {"said": "done"}, done.error
        assert "because" in str(results(done))


@pytest.mark.parametrize(("tool", "within", "most"), [("ponder", False, 2), ("ponder_as_before", True, 3)])
def test_it_counts_for_those_bounds_whatever_process_goes_on(tool, within, most):
    def bounded(store=None):
        here = world(tool, asks_within_calls=within, store=store)
        script = ScriptedModel([{"call": {tool: {}}}, "done"])
        bounds = {"max_llm_calls": most}
        here.add_agent(Agent("a", model=script, servers=["good"], bounds=bounds), replace=True)
        return here

    with bounded() as here:
        execution = here.start("ask").wait(60)
        (question,) = execution.open_questions
        log = execution.history()
    returned = max(event.sequence for event in log if event.event_type == "operation_completed")
    with bounded(cut(execution.store, execution, returned)) as other:
        resumed = other.run_of(execution.id).resume().wait(60)
        assert [asked.question for asked in resumed.open_questions] == [question.question]
        assert resumed.answer(question.id, 9).wait(60).variables == {"said": "done"}


@pytest.mark.parametrize(("tool", "within"), [("ponder", False), ("ponder_as_before", True)])
def test_without_such_an_agent_it_is_refused(tool, within):
    with world(tool, asks_within_calls=within, sampling=None) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "done"}
        assert results(execution)["tool-1-call-1-1"]["kind"] == "tool_failed"
        assert [view.agent for view in execution.requests] == ["a", "a"]


def test_a_call_asks_only_so_much(monkeypatch):
    monkeypatch.setattr(server_tools, "MOST_ASKED", 1)
    with world("ponder_as_before", asks_within_calls=True) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "done"}, execution.error
        # The first question is answered. The second is answered with an error of the protocol, which the tool raises.
        message = "MCP call_tool failed for server good: more than 1 questions in one call"
        assert results(execution) == {"tool-1-call-1-1": {"message": message, "kind": "tool_failed"}}
        samples = [operation for operation in started(execution) if operation.key.startswith("sample-")]
        assert [operation.parameters["prompt"] for operation in samples] == ["Why?"]
        assert [view.agent for view in execution.requests].count("thinker") == 1


def test_an_agent_with_tools_is_refused_before_a_server_is_asked():
    with world("ponder", thinker=Agent("thinker", model=ScriptedModel(["x"]), tools=["read_document"])) as here:
        failed = here.start("ask").wait(60)
        assert "agent thinker answers the model requests of MCP server good, but has tools" in failed.error
    with world("ponder", sampling="nobody") as here:
        assert "nobody" in here.start("ask").wait(60).error

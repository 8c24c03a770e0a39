"""The last round of a turn, and turns that end without an answer."""

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Step, Workflow
from divebook.agents.rounds import ANSWER_NOW
from divebook.errors import AgentError, StepError
from divebook.workflow.definition import AgentDefinition
from divebook.workflow.functions import workflow
from tests.execution.test_resuming import cut
from tests.execution.worlds import environment

ASK = Workflow("ask", [Step("ask", prompt="Which birds?", agent="a", store="birds")])


class Eager:
    """A model that calls its tool as long as it may, or beyond."""

    def __init__(self, *, is_stubborn=False, output=None):
        self.requests, self.looked, self.is_stubborn, self.output = [], [], is_stubborn, output

    def look(self, name: str) -> str:
        """Look a bird up."""
        self.looked.append(name)
        return name

    def answer(self, messages, info):
        self.requests.append((info.model_settings or {}, info.instructions or ""))
        if self.is_stubborn or (info.model_settings or {}).get("tool_choice") != "none":
            return ModelResponse([ToolCallPart("look", {"name": f"bird {len(self.requests)}"})])
        if self.output is not None:
            return ModelResponse([ToolCallPart(info.output_tools[0].name, {"response": self.output})])
        return ModelResponse([TextPart("many")])

    def world(self, limit=2, **options):
        definition = AgentDefinition("a", tool_iteration_limit=limit)
        output = None if self.output is None else dict[str, int]
        agent = Agent(definition, model=FunctionModel(self.answer), tools=[self.look], output=output)
        return environment(ASK, agents=[agent], **options)


def test_after_its_rounds_a_model_is_told_to_answer():
    model = Eager()
    execution = model.world().start("ask").wait(20)
    assert execution.variables == {"birds": "many"}
    assert model.looked == ["bird 1", "bird 2"]
    assert [settings.get("tool_choice") for settings, _ in model.requests] == [None, None, "none"]
    assert [ANSWER_NOW in told for _, told in model.requests] == [False, False, True]


def test_an_agent_has_sixteen_rounds_and_one_request_more():
    model = Eager()
    model.world(AgentDefinition("a").tool_iteration_limit).start("ask").wait(20)
    assert (len(model.looked), len(model.requests)) == (16, 17)


def test_data_may_be_given_in_the_last_round():
    model = Eager(output={"owls": 2})
    assert model.world().start("ask").wait(20).variables == {"birds": {"owls": 2}}
    assert len(model.requests) == 3


def test_calls_after_the_last_round_are_not_carried_out():
    model = Eager(is_stubborn=True)
    execution = model.world().start("ask").wait(20)
    assert model.looked == ["bird 1", "bird 2"]
    assert execution.error == (
        "agent a gave no answer after 3 requests: its model called look again after 2 rounds of calls, which was not "
        "carried out; raise its ToolIterationLimit (step ask)"
    )
    again = Eager(is_stubborn=True)
    resumed = again.world(5, store=cut(execution.store, execution, 1000)).resume(execution.id).wait(20)
    assert again.looked == ["bird 3", "bird 1", "bird 2"]  # the first of the request that the log has
    assert "after 5 rounds" in resumed.error


def test_a_workflow_function_catches_a_turn_without_an_answer():
    @workflow
    async def asking(ctx):
        try:
            return await ctx.agent("a").run("Which birds?")
        except StepError as error:
            cause = error.__cause__
            return [isinstance(cause, AgentError), cause.agent, cause.request]

    assert Eager(is_stubborn=True).world().start("asking").wait(20).outputs["result"] == [True, "a", 3]


@pytest.mark.parametrize("reply", [ModelResponse([ToolCallPart("nope", {})]), ModelResponse([TextPart("")])])
def test_a_model_that_gives_nothing_usable_is_named(reply):
    agent = Agent("a", model=FunctionModel(lambda _messages, _info: reply), tools=[Eager().look])
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert execution.error.startswith("agent a gave no answer after ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, 'the model of agent a called unknown tool "nope": the agent has no tools'),
        ({"tools": [Eager().look]}, 'its model called unknown tool "nope", was told so, and called it again'),
        ({"output": dict[str, int]}, 'its model called unknown tool "nope", was told so, and called it again'),
    ],
)
def test_a_model_that_calls_a_tool_that_is_not_there_again_and_again_ends_its_turn_in_words(given, said):
    model = FunctionModel(lambda *_: ModelResponse([ToolCallPart("nope", {})]))
    execution = environment(ASK, agents=[Agent("a", model=model, **given)]).start("ask").wait(20)
    assert said in execution.error
    assert "raising the retry limit" not in execution.error

"""Agents whose model may be another one where it fails: which one answered is the same live and from the log."""

import importlib.util

import pytest
from pydantic_ai.capabilities import ModelFallback
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Retry, Step, Workflow
from divebook.agents.limits import Turnstiles
from divebook.workflow.definition import AgentDefinition
from tests.execution.test_resuming import cut
from tests.execution.worlds import environment

ASK = Workflow("w", [Step("ask", prompt="Ask", agent="a", store="r")])


class Pair:
    """A model that is always overloaded, and one that calls a tool and answers; both count their requests."""

    def __init__(self):
        self.failed = self.answered = 0

    def fail(self, *_):
        self.failed += 1
        raise ModelHTTPError(503, "first", "overloaded")

    def answer(self, messages, _):
        self.answered += 1
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("look", {"name": "owl"}, "call-1")])
        return ModelResponse([TextPart("an owl")])

    def agent(self, kind):
        first, second = FunctionModel(self.fail, model_name="first"), FunctionModel(self.answer, model_name="second")
        definition = AgentDefinition("a", retry=Retry(attempts=1))
        if kind == "model":
            return Agent(definition, model=FallbackModel(first, second), tools=[look])
        return Agent(definition, model=first, tools=[look], capabilities=[ModelFallback(second)])


def look(name: str) -> str:
    """Look a bird up."""
    return f"{name}: seen"


@pytest.mark.parametrize("kind", ["model", "capability"])
def test_what_answered_in_place_of_another_answers_on_replay(kind):
    live = Pair()
    execution = environment(ASK, agents=[live.agent(kind)]).start("w").wait(20)
    assert (execution.variables, live.failed, live.answered) == ({"r": "an owl"}, 2, 2), execution.error
    for end in [e.sequence for e in execution.history() if e.event_type == "operation_completed"][:-1]:
        again = Pair()
        resumed = environment(ASK, store=cut(execution.store, execution, end), agents=[again.agent(kind)])
        assert resumed.resume(execution.id).wait(20).variables == {"r": "an owl"}
        assert again.answered <= live.answered
    assert (again.failed, again.answered) == (0, 0)


def test_a_model_with_others_behind_it_waits_as_the_first_one_does(require):
    require("the library openai", importlib.util.find_spec("openai") is not None)
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="none")
    first, second = (OpenAIChatModel(name, provider=provider) for name in ("gpt-4o", "gpt-4o-mini"))
    known = Turnstiles()
    slots = [known.slot(model) for model in (first, FallbackModel(first, second), second)]
    assert slots[0]._turnstile is slots[1]._turnstile
    assert slots[0]._turnstile is not slots[2]._turnstile

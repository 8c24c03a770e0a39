"""Agents whose model may be another one where it fails: which one answered is the same live and from the log."""

import asyncio
import importlib.util
from contextlib import asynccontextmanager

import pytest
from pydantic_ai.capabilities import ModelFallback
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Environment, Retry, ScriptedModel, Step, Workflow
from divebook.agents.clients import FIRST, REQUEST_LIMITERS, RequestLimiters
from divebook.agents.requests import reporting_model
from divebook.definitions.resources import AgentDefinition
from divebook.engine.operations import Reserved
from tests.agents.payable import MOST, OK, REFUSED, Payable
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

ASKED = [ModelRequest([UserPromptPart("hello")])]
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
        assert resumed.run_of(execution.id).resume().wait(20).variables == {"r": "an owl"}
        assert again.answered <= live.answered
    assert (again.failed, again.answered) == (0, 0)


@pytest.mark.parametrize("names", [["test"], ["function:gone", "test"]])
def test_a_fallback_may_be_a_name_and_is_recorded_under_it(names):
    def world(pair, store=None):
        first = FunctionModel(pair.fail, model_name="first")
        definition = AgentDefinition("a", retry=Retry(attempts=1))
        gone = FunctionModel(pair.fail, model_name="gone")
        models = [gone if name == "function:gone" else name for name in names]
        agent = Agent(definition, model=first, tools=[look], capabilities=[ModelFallback(*models)])
        return environment(ASK, agents=[agent], **({} if store is None else {"store": store}))

    execution = world(Pair()).start("w").wait(20)
    assert (execution.status, execution.variables) == ("completed", {"r": '{"look":"a: seen"}'}), execution.error
    models = [view.model for view in execution.requests]
    assert models == ["function:first", *names] * 2
    ends = [e.sequence for e in execution.history() if e.event_type in ("operation_completed", "operation_failed")]
    for end in ends[:-1]:
        again = Pair()
        resumed = world(again, cut(execution.store, execution, end)).run_of(execution.id).resume().wait(20)
        assert (resumed.variables, [view.model for view in resumed.requests]) == (execution.variables, models)
    assert again.failed == 0


def test_a_name_of_a_fallback_that_is_no_model_is_an_error_where_it_is_needed():
    pair = Pair()
    agents = [
        Agent(AgentDefinition("a", retry=Retry(attempts=1)), model=model, capabilities=[ModelFallback("opnai:gpt")])
        for model in (FunctionModel(pair.answer), FunctionModel(pair.fail))
    ]
    agents[0] = Agent("a", model=FunctionModel(pair.answer), tools=[look], capabilities=[ModelFallback("opnai:gpt")])
    done, failed = (environment(ASK, agents=[agent]).start("w").wait(20) for agent in agents)
    assert done.status == "completed"
    assert "model 'opnai:gpt' cannot be used" in failed.error
    assert "did you mean openai?" in failed.error


# --- the cache -------------------------------------------------------------------------------------------------------


def served_at(address, state, name="m", settings=None):
    """Return a model that answers with its address, unless the state says that its service is down."""

    class Served(FunctionModel):
        @property
        def base_url(self):
            return address

        @property
        def settings(self):
            return settings

    def answer(*_):
        state.asked.append((address, name, settings))
        if address in state.down:
            raise ModelHTTPError(503, name, "overloaded")
        return ModelResponse([TextPart(f"{name} at {address}, {settings}")])

    return Served(answer, model_name=name)


class State:
    def __init__(self):
        self.asked, self.down = [], set()


MODELS = {
    "primary and fallback of one name": lambda m: (m("x"), [ModelFallback(m("y"))]),
    "two fallbacks of one name": lambda m: (m("x"), [ModelFallback(m("y"), m("z"))]),
    "a model of several": lambda m: (FallbackModel(m("x"), m("y")), []),
    "a fallback that is a group": lambda m: (m("x"), [ModelFallback(FallbackModel(m("y"), m("z")))]),
    "other settings": lambda m: (m("x", settings={"temperature": 0.5}), [ModelFallback(m("y"))]),
    "another name": lambda m: (m("x", "n"), [ModelFallback(m("y", "n"))]),
    "swapped": lambda m: (m("y"), [ModelFallback(m("x"))]),
    "other addresses behind": lambda m: (FallbackModel(m("x"), m("z")), []),
}


@pytest.mark.parametrize("down", ["", "x", "y", "xy", "xz"])
def test_no_model_is_answered_for_by_the_cached_reply_of_another_one(down):
    """Agents with different models ask the same in one environment, while some services are down. With all services up
    again, each agent gets the reply of its first model; a group of models may give the reply that it gave before.
    """
    world = environment(ASK)
    state = State()

    def answer_of(kind):
        first, capabilities = MODELS[kind](lambda *given, **named: served_at(given[0], state, *given[1:], **named))
        definition = AgentDefinition("a", retry=Retry(attempts=1))
        agent = Agent(definition, model=first, capabilities=capabilities, cache="1d", tools=[look])
        world.add_agent(agent, replace=True)
        execution = world.start("w").wait(20)
        return execution.variables["r"] if execution.status == "completed" else None

    state.down = set(down)
    for kind in MODELS:
        assert answer_of(kind) in {None, *answers_of(kind, state)}, kind
    state.down = set()
    for kind in MODELS:
        said = answers_of(kind, state)
        assert answer_of(kind) in (said if "several" in kind or "behind" in kind else said[:1]), kind


def answers_of(kind, state):
    """Return what the models of an agent say, the first model first."""
    said = []

    def noted(address, name="m", settings=None):
        said.append(f"{name} at {address}, {settings}")
        return served_at(address, state, name, settings)

    MODELS[kind](noted)
    return said


def test_a_service_that_is_up_again_answers_itself():
    """The reply of the fallback, which has the same name, was taken for a reply of the first model."""
    state = State()
    agent = Agent(
        AgentDefinition("a", retry=Retry(attempts=1)),
        model=served_at("x", state),
        capabilities=[ModelFallback(served_at("y", state))],
        cache="1d",
        tools=[look],
    )
    world = environment(ASK, agents=[agent])
    state.down = {"x"}
    assert world.start("w").wait(20).variables == {"r": "m at y, None"}
    state.down = set()
    assert world.start("w").wait(20).variables == {"r": "m at x, None"}


def test_a_model_with_others_behind_it_waits_as_the_first_one_does(require):
    require("the library openai", importlib.util.find_spec("openai") is not None)
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="none")
    first, second = (OpenAIChatModel(name, provider=provider) for name in ("gpt-4o", "gpt-4o-mini"))
    known = RequestLimiters()
    slots = [known.slot(model) for model in (first, FallbackModel(first, second), second)]
    assert slots[0]._limiter is slots[1]._limiter
    assert slots[0]._limiter is not slots[2]._limiter


def test_each_model_behind_another_one_is_limited_by_what_its_own_provider_says(require):
    """Only the first was limited, and since the other answered, its 429 was never heard of."""
    require("the library openai", importlib.util.find_spec("openai") is not None)
    known, served, refused = RequestLimiters(), provided("served"), provided("refused")
    for models in ((refused, served), (refused, served), (served, refused)):
        ask(reporting_model(FallbackModel(*models), known))
    with pytest.raises(FallbackExceptionGroup):
        ask(reporting_model(FallbackModel(provided("refused-too"), FallbackModel(refused)), known))
    stands = [known.slot(model)._limiter for model in (refused, served)]
    assert [(found.limit < FIRST, found.under_way) for found in stands] == [(True, 0), (False, 0)]


def test_a_stream_that_does_not_begin_tells_its_limiter_as_well(require):
    require("the library openai", importlib.util.find_spec("openai") is not None)
    known, models = RequestLimiters(), (provided("refused"), provided("refused-too"))
    with pytest.raises(FallbackExceptionGroup):
        ask(reporting_model(FallbackModel(*models), known), streams=True)
    assert [known.slot(model)._limiter.limit for model in models] == [FIRST // 2] * 2


def ask(model, *, streams=False):
    async def asked():
        if not streams:
            return await model.request(ASKED, None, ModelRequestParameters())
        async with model.request_stream(ASKED, None, ModelRequestParameters()) as stream:
            return stream

    return asyncio.run(asked())


def test_an_agent_whose_model_has_others_behind_it_tells_of_them(require):
    require("the library openai", importlib.util.find_spec("openai") is not None)
    refused, served = provided("refused-for-agents"), provided("served-for-agents")
    agent = Agent(AgentDefinition("a", retry=Retry(attempts=1)), model=FallbackModel(refused, served))
    execution = environment(ASK, agents=[agent]).start("w").wait(20)
    assert execution.variables == {"r": "served-for-agents"}, execution.error
    assert [REQUEST_LIMITERS.slot(model)._limiter.limit for model in (refused, served)] == [FIRST // 2, FIRST]


def provided(name):
    """Return a model of a provider, which answers with its name, or refuses if it is called so."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Served(OpenAIChatModel):
        async def request(self, *_):
            if "refused" in self.model_name:
                raise ModelHTTPError(429, self.model_name, "too many")
            return ModelResponse([TextPart(self.model_name)])

        @asynccontextmanager
        async def request_stream(self, *_):
            yield await self.request()

    return Served(name, provider=OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="none"))


def test_a_fallback_is_reserved_and_limited_as_itself(monkeypatch):
    """Both were those of the model of the agent, whose pause after a refusal the other one waited for."""

    class Other(Payable):
        model_id = "function:other"

        @property
        def reserved(self):
            return Reserved(7, 7)

    limited = []
    monkeypatch.setattr(RequestLimiters, "slot", lambda _, model: limited.append(model))
    first, other = Payable([(REFUSED, 3)]), Other([(OK, 5)])
    definition = AgentDefinition("a", retry=Retry(attempts=1))
    agent = Agent(definition, model=first, tools=[look], capabilities=[ModelFallback(other)])
    done = environment(ASK, agents=[agent]).start("w").wait(20)
    assert (done.status, done.usage.input_tokens) == ("completed", 8)
    started = [event.data for event in done.history() if event.event_type == "operation_started"]
    assert [data.reserved for data in started[1:]] == [{"tokens": MOST, "cost": MOST}, {"tokens": 7, "cost": 7}]
    assert limited == [first, other]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_scripted_model_can_be_a_fallback(by_name):
    overloaded = ScriptedModel([{"error": "overloaded", "status": 503}])
    # Two fallbacks, because the scripted models have one name.
    last = "scripted" if by_name else ScriptedModel(["answered"])
    agent = Agent(
        AgentDefinition("a", retry=Retry(attempts=1)),
        model=overloaded,
        capabilities=[ModelFallback(ScriptedModel([{"error": "overloaded", "status": 503}]), last)],
    )
    with Environment(store="memory:", agents=[agent]) as world:
        run = world.start(Workflow("w", [Step("s", agent="a", prompt="hi", store="x")])).wait(20)
        assert run.status == "completed", run.error
        assert ("[scripted model" if by_name else "answered") in run.variables["x"]
        assert run.verify().equal

"""One client per provider, and what a request may take."""

import asyncio
import importlib.util
import threading
from dataclasses import replace
from weakref import WeakSet

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.agents.agent import MODEL_RETRY
from divebook.agents.clients import CLIENTS, FIRST, REQUEST_LIMITERS, RequestLimiter
from divebook.analysis.log import operations_frame
from divebook.definitions.resources import AgentDefinition
from divebook.errors import SetupError
from divebook.runtime.loop import ENGINE
from tests.agents.model_server import PIECES, ModelServer, Mood

PATIENCE = 60
SOON = replace(MODEL_RETRY, seconds=0.0)
NAMED = "openai-chat:gpt-4o-mini"


@pytest.fixture
def serve(require, monkeypatch):
    """Return ``serve(moods)``: a server to which a model named ``openai-chat:...`` goes."""
    require("the library openai", importlib.util.find_spec("openai") is not None)
    servers = []

    def start(moods=None):
        server = ModelServer(moods=moods).__enter__()
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        return server

    yield start
    ENGINE.submit(CLIENTS.close()).result(PATIENCE)
    for server in servers:
        server.__exit__()


def labelling(rows, parallel, *, step=None, **agent):
    """Return an environment whose workflow asks a model once for each row."""
    each = Each(list(range(rows)), as_="row", parallel=parallel)
    ask = Step("label", agent="labeller", prompt="Label ${row}", each=each, store="labels", **(step or {}))
    definition = AgentDefinition("labeller", **{"retry": SOON, **agent})
    return Environment(store="memory:", agents=[Agent(definition, model=NAMED)], workflows=[Workflow("label", [ask])])


def requests_in(execution):
    """Return how the log says that each request to the model ended."""
    ends = ("operation_completed", "operation_failed")
    found = [event for event in execution.history() if event.event_type in ends]
    return [event.event_type for event in found if event.data.operation_type == "agent_response"]


def test_requests_of_one_provider_share_their_connections(serve):
    server = serve()
    environment = labelling(40, parallel=4)
    assert environment.start("label").wait(PATIENCE).variables == {"labels": ["".join(PIECES)] * 40}
    assert environment.start("label").wait(PATIENCE).status == "completed"
    assert len(server.prompts) == 80
    assert server.connections <= 4


def test_agents_of_one_provider_share_its_client_also_with_other_models(serve):
    serve()

    async def clients():
        found = [await CLIENTS.model(name) for name in (NAMED, "openai-chat:gpt-4o", NAMED)]
        return [model.client._client for model in found], found

    (one, other, again), models = ENGINE.submit(clients()).result(PATIENCE)
    assert one is other is again
    assert models[0] is models[2] is not models[1]


def test_a_key_that_is_set_later_is_used_without_a_restart(serve, monkeypatch):
    serve()
    first = ENGINE.submit(CLIENTS.model(NAMED)).result(PATIENCE)
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    second = ENGINE.submit(CLIENTS.model(NAMED)).result(PATIENCE)
    assert (first.client.api_key, second.client.api_key) == ("none", "another")


def test_clients_are_closed_with_the_last_environment(serve, monkeypatch):
    monkeypatch.setattr(CLIENTS, "_users", WeakSet())  # environments of other tests may still be there
    server = serve()
    other = Environment(store="memory:")
    environment = labelling(8, parallel=8)
    environment.start("label").wait(PATIENCE)
    environment.close()
    assert server.open
    other.close()
    assert server.left_alone.wait(PATIENCE)


def test_what_a_provider_says_to_one_execution_holds_for_all(serve):
    server = serve({0: Mood(429, after=0.01)})
    first, second = labelling(1, parallel=1), labelling(40, parallel=40)
    assert first.start("label").wait(PATIENCE).status == "completed"
    assert second.start("label").wait(PATIENCE).status == "completed"
    (limiter,) = [limiter for place, limiter in REQUEST_LIMITERS._limiters.items() if place[2].startswith(server.url)]
    assert server.most_open <= limiter.limit < FIRST
    assert str(limiter.state).startswith(f"openai:gpt-4o-mini: 0 of at most {limiter.limit} concurrent requests")


def test_a_request_that_waits_for_a_person_keeps_no_other_one_waiting(monkeypatch):
    limiter = RequestLimiter("m")
    limiter.limit = 1
    monkeypatch.setattr(REQUEST_LIMITERS, "slot", lambda _: limiter.slot())
    ask = Workflow("ask", [Step("ask", prompt="Go", store="r")])
    environment = Environment(store="memory:", agents=[Agent("a", model=ScriptedModel(["well"]))])
    bounded = environment.start(ask, bounds={"max_llm_calls": 0})
    (question,) = bounded.wait(PATIENCE).open_questions
    assert limiter.under_way == 0
    assert environment.start(ask).wait(PATIENCE).variables == {"r": "well"}
    bounded.answer(question.id, 1)
    assert bounded.wait(PATIENCE).variables == {"r": "well"}


def test_a_request_that_a_bound_stops_at_its_slot_is_no_success_of_its_provider(monkeypatch):
    limiter = RequestLimiter("m")
    limiter.limit = 1
    monkeypatch.setattr(REQUEST_LIMITERS, "slot", lambda _: limiter.slot())

    async def answer(*_):
        for _ in range(50):  # the other requests get as far as the slot
            await asyncio.sleep(0)
        return ModelResponse(parts=[TextPart("well")])

    ask = Workflow("ask", [Step("ask", prompt="Go", each=Each([1, 2, 3], parallel=3))])
    environment = Environment(store="memory:", agents=[Agent("a", model=FunctionModel(answer))])
    bounded = environment.start(ask, bounds={"max_llm_calls": 2}).wait(PATIENCE)
    assert (len(bounded.open_questions), bounded.usage.requests) == (1, 2)
    # The first success has raised the limit to 2, and another one would raise it to 3.
    assert (limiter.under_way, limiter.limit, limiter._successes) == (0, 2, 1)


def test_a_hanging_server_costs_one_response_timeout(serve):
    server = serve({0: Mood(hang=2)})
    execution = labelling(1, parallel=1, response_timeout=0.2).start("label").wait(PATIENCE)
    assert execution.status == "failed"
    assert "the response was not complete after 0.2 seconds; to allow more, raise ResponseTimeout" in execution.error
    assert len(server.prompts) == 1


def test_a_missing_library_is_named_with_the_command_that_installs_it(lacking):
    lacking("anthropic")
    step = Step("ask", prompt="hi")
    environment = Environment(store="memory:", agents=[Agent("a", model="anthropic:x")])
    execution = environment.start(Workflow("w", [step])).wait(PATIENCE)
    assert "pip install 'pydantic-ai-slim[anthropic]'" in execution.error


def test_a_misspelled_provider_is_named_with_the_one_that_is_meant():
    environment = Environment(store="memory:", agents=[Agent("a", model="opnai:gpt-5-mini")])
    with pytest.raises(
        SetupError,
        match=r"agent a: there is no model provider .* used in 'opnai:gpt-5-mini'; did you mean openai:gpt-5",
    ):
        environment.start(Workflow("w", [Step("ask", prompt="hi")]))


# --- requests that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mood", [Mood(429), Mood(500), Mood(503), Mood(529), Mood(cut=True)], ids=lambda mood: str(mood.status)
)
def test_what_may_pass_is_tried_again_and_every_request_is_in_the_log(serve, mood):
    server = serve({0: mood, 1: mood})
    execution = labelling(1, parallel=1).start("label").wait(PATIENCE)
    assert execution.variables == {"labels": ["".join(PIECES)]}
    assert requests_in(execution) == ["operation_failed", "operation_failed", "operation_completed"]
    assert len(server.prompts) == len(operations_frame(execution.history())) == 3


@pytest.mark.parametrize("status", [400, 401, 402, 404, 422])
def test_what_will_not_pass_is_asked_once(serve, status):
    server = serve({0: Mood(status)})
    execution = labelling(1, parallel=1).start("label").wait(PATIENCE)
    assert (execution.status, len(server.prompts)) == ("failed", 1)
    assert str(status) in execution.error


def test_attempts_end_where_the_policy_does(serve):
    server = serve(dict.fromkeys(range(9), Mood(500)))
    assert labelling(1, parallel=1).start("label").wait(PATIENCE).status == "failed"
    assert len(server.prompts) == MODEL_RETRY.attempts == 3
    assert labelling(1, parallel=1, retry=replace(SOON, attempts=1)).start("label").wait(PATIENCE).status == "failed"
    assert len(server.prompts) == 4


def test_a_step_with_a_retry_of_its_own_does_not_multiply_the_requests(serve):
    server = serve(dict.fromkeys(range(9), Mood(500)))
    own = {"retry": replace(SOON, attempts=2, errors=())}
    assert labelling(1, parallel=1, step=own).start("label").wait(PATIENCE).status == "failed"
    assert len(server.prompts) == 2


def test_a_provider_is_not_asked_again_before_it_wants_to(serve):
    serve({0: Mood(429, after=7)})
    execution = labelling(1, parallel=1).start("label")
    (asked,) = [event for event in waited_for(execution, "step_retried") if event.event_type == "step_retried"]
    assert asked.data.delay == 7
    execution.cancel().wait(PATIENCE)


def waited_for(execution, event_type):
    """Return the log as soon as it has an event of that type."""
    come = threading.Event()
    stop = execution.subscribe(lambda events: event_type in [event.event_type for event in events] and come.set())
    found = [event.event_type for event in execution.history()]
    assert event_type in found or come.wait(PATIENCE)
    stop()
    return execution.history()


def test_every_attempt_counts_against_the_bounds(serve):
    server = serve(dict.fromkeys(range(9), Mood(500)))
    bounds = {"max_llm_calls": 2, "on_exhausted": "fail"}
    execution = labelling(1, parallel=1).start("label", bounds=bounds).wait(PATIENCE)
    assert "max_llm_calls" in execution.error
    assert len(server.prompts) == 2


# --- a job of many rows --------------------------------------------------------------------------------------------


def test_every_row_is_labelled_or_named_with_its_error_and_each_request_is_in_the_log_once(serve):
    moods = {number: Mood(429, after=0.01) for number in range(3, 60, 10)}
    moods |= {number: Mood(500) for number in range(5, 60, 14)} | {8: Mood(cut=True), 20: Mood(hang=30)}
    server = serve(moods)
    each = Each(list(range(60)), as_="row", parallel=8, on_item_error="keep")
    ask = Step("label", agent="labeller", prompt="Label ${row}", each=each, store="labels")
    definition = AgentDefinition("labeller", retry=replace(SOON, attempts=12), response_timeout=3.0)
    agents = [Agent(definition, model=NAMED)]
    environment = Environment(store="memory:", agents=agents, workflows=[Workflow("label", [ask])])
    execution = environment.start("label").wait(PATIENCE)
    labels = execution.variables["labels"]
    named = [label for label in labels if isinstance(label, dict)]
    assert execution.status == "completed"
    assert (len(labels), labels.count("".join(PIECES)), len(named)) == (60, 59, 1)
    assert "was not complete after 3 seconds" in str(named[0]["error"])
    assert len(server.prompts) == len(requests_in(execution))
    assert server.most_open <= 8
    assert sorted({prompt.removeprefix("Label ") for prompt in server.prompts}, key=int) == [str(n) for n in range(60)]

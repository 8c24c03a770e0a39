"""The clients of OpenAI and Anthropic against servers on loopback: what comes over the wire becomes the same log."""

import importlib.util
import json
import re

import pytest

from divebook import Agent, Environment, Step, Workflow, tool
from divebook.agents.agent import MODEL_RETRY
from divebook.agents.clients import CLIENTS
from divebook.agents.scripted import ScriptedReply
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import Retry
from divebook.runtime.loop import ENGINE
from tests.agents import anthropic_form, openai_form
from tests.agents.model_server import PATIENCE, PIECES, TEXT, ModelServer, Mood
from tests.agents.test_streaming import facts

PROVIDERS = {"openai": "openai-chat:gpt-4o-mini", "anthropic": "anthropic:claude-sonnet-5-5"}
ASK = Workflow("w", [Step("ask", prompt="Write a poem", store="r")])
SOON = Retry(MODEL_RETRY.attempts, seconds=0, errors=MODEL_RETRY.errors)
LOOK_UP = [
    [{"call": {"look_up": {"word": "owl"}}}, {"call": {"look_up": {"word": "lark"}}}],
    {"say": "Once more.", "call": {"look_up": {"word": "wren"}}},
    TEXT,
]


@pytest.fixture(params=PROVIDERS)
def provider(request, require):
    """Return the name of a provider whose library is there."""
    require(f"the library {request.param}", importlib.util.find_spec(request.param) is not None)
    return request.param


@pytest.fixture
def serve(provider, monkeypatch):
    """Return ``serve(**how)``: a server to which the provider's models go."""
    servers = []

    def start(**how):
        server = ModelServer(**how).__enter__()
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.address)
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, "a-key")
        return server

    yield start
    ENGINE.submit(CLIENTS.close()).result(PATIENCE)
    for server in servers:
        server.__exit__()


@pytest.fixture
def looked_up():
    """Return the words that the tool was asked for."""
    return []


@pytest.fixture
def world(provider, looked_up):
    """Return ``world(with_tool)``: an environment with an agent of the provider."""

    @tool
    async def look_up(word: str) -> str:
        """Look a word up."""
        looked_up.append(word)
        return word.upper()

    def make(*, tools=True, **definition):
        agent = AgentDefinition("a", retry=SOON, **definition)
        return Environment(
            store="memory:", agents=[Agent(agent, model=PROVIDERS[provider], tools=[look_up] if tools else ())]
        )

    return make


def heard(environment):
    """Run a workflow whose text is listened to; return the execution and what was heard, part by part."""
    execution, parts = environment.create(ASK), {}
    execution.subscribe_text(lambda delta: parts.setdefault(delta.part, []).append(delta.text), parts=True)
    return execution.start().wait(PATIENCE), {part: "".join(texts) for part, texts in parts.items()}


@pytest.mark.parametrize("tools", [False, True])
def test_a_streamed_answer_is_recorded_like_a_whole_one(serve, world, tools):
    server = serve()
    environment = world(tools=tools)
    streamed, parts = heard(environment)
    whole = environment.start(ASK).wait(PATIENCE)
    assert (streamed.variables, parts) == ({"r": TEXT}, {"text": TEXT})
    assert server.streamed[0]
    assert facts(streamed) == facts(whole)
    used = streamed.usage
    assert (used.requests, used.input_tokens, used.output_tokens) == (1, 11, 6)
    assert used.cost > 0


@pytest.mark.parametrize(("tools", "model"), [(False, None), (True, None), (True, "at the start")])
def test_a_run_is_verified_without_the_key_of_its_model(serve, world, provider, monkeypatch, tools, model):
    server = serve(replies=LOOK_UP if tools else [TEXT])
    environment = world(tools=tools)
    given = {} if model is None else {"model": PROVIDERS[provider].replace("mini", "nano").replace("sonnet", "opus")}
    execution = environment.start(ASK, **given).wait(PATIENCE)
    assert execution.variables == {"r": TEXT}, execution.error
    asked = len(server.bodies)
    ENGINE.submit(CLIENTS.close()).result(PATIENCE)  # no client of before is left that has it
    with monkeypatch.context() as without:
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            without.delenv(name)
        found = environment.run_of(execution.id).verify()
    assert found.equal, str(found)
    assert len(server.bodies) == asked


def test_calls_side_by_side_and_one_after_the_other(serve, world, looked_up):
    server = serve(replies=LOOK_UP)
    execution, parts = heard(world())
    assert execution.variables == {"r": TEXT}
    assert sorted(looked_up[:2]) == ["lark", "owl"]
    assert looked_up[2] == "wren"
    arguments = [json.loads(text) for part, text in parts.items() if part.startswith("arguments:look_up:")]
    assert arguments == [{"word": "owl"}, {"word": "lark"}, {"word": "wren"}]
    assert len(server.bodies) == 3
    assert "OWL" in json.dumps(server.bodies[1])
    assert [len(view.tools) for view in execution.requests] == [1, 1, 1]


def test_a_whole_answer_with_calls_is_recorded_like_a_streamed_one(serve, world):
    serve(replies=LOOK_UP)
    environment = world()
    assert facts(heard(environment)[0]) == facts(environment.start(ASK).wait(PATIENCE))


def test_a_stream_that_comes_byte_by_byte_is_the_same(serve, world):
    serve(replies=LOOK_UP, moods={number: Mood(crumbs=True) for number in range(3)})
    assert facts(heard(world())[0]) == facts(heard(world())[0])


def test_only_the_request_that_failed_is_made_again(serve, world, looked_up):
    busy, down = Mood(429, after=0.01), Mood(503)
    server = serve(replies=LOOK_UP, moods={1: busy, 2: down, 4: Mood(cut=True)})
    execution = world().start(ASK).wait(PATIENCE)
    assert execution.variables == {"r": TEXT}
    assert (len(server.prompts), sorted(looked_up)) == (6, ["lark", "owl", "wren"])
    assert execution.usage.requests == 3


def test_a_stream_that_is_cut_is_made_again_and_its_text_begins_anew(serve, world):
    server = serve(moods={0: Mood(cut_after=3)})
    execution, _ = heard(world())
    assert (execution.variables, len(server.prompts)) == ({"r": TEXT}, 2)


@pytest.mark.parametrize(
    ("mood", "said"),
    [
        (Mood(401), "status_code: 401"),
        (Mood(404), "status_code: 404"),
        (Mood(garbage=True), ""),
    ],
)
def test_what_cannot_be_mended_by_asking_again_is_said_and_after_the_mending_it_goes_on(
    serve, world, looked_up, mood, said
):
    server = serve(replies=LOOK_UP, moods={1: mood})
    environment = world()
    execution = environment.start(ASK).wait(PATIENCE)
    assert execution.status == "failed"
    assert said in execution.error
    assert "(step ask" in execution.error
    assert len(server.prompts) == 2
    assert environment.run_of(execution.id).resume().wait(PATIENCE).variables == {"r": TEXT}
    assert sorted(looked_up) == ["lark", "owl", "wren"]
    assert len(server.prompts) == 4


@pytest.mark.parametrize("after", ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "nan", "-5", ""])
def test_a_provider_that_says_in_its_own_way_when_to_ask_again_is_asked_again(serve, world, after):
    server = serve(replies=LOOK_UP, moods={1: Mood(429, after=after)})
    assert world().start(ASK).wait(PATIENCE).variables == {"r": TEXT}
    assert len(server.prompts) == 4


def with_one_id(answer):
    return re.sub(r"(call|toolu)_0_\d", "same", answer)


@pytest.mark.parametrize("listened", [False, True])
def test_calls_to_which_a_model_gives_one_id_are_told_apart(serve, world, looked_up, listened):
    server = serve(replies=LOOK_UP, moods={0: Mood(edit=with_one_id)})
    execution = heard(world())[0] if listened else world().start(ASK).wait(PATIENCE)
    assert (execution.error, execution.variables) == (None, {"r": TEXT})
    assert sorted(looked_up) == ["lark", "owl", "wren"]
    assert list(execution.tool_calls.result) == ["OWL", "LARK", "WREN"]
    sent = json.dumps(server.bodies[1])
    assert (sent.count('"same"'), sent.count('"same-2"')) == (2, 2)  # in what the model said, and in what it is told


def test_text_that_is_no_unicode_is_escaped(serve, world):
    serve(moods={0: Mood(edit=lambda answer: answer.replace("Roses", "\\ud800"))})
    execution = world().start(ASK).wait(PATIENCE)
    assert execution.variables["r"].encode().startswith(b"\\ud800 ")


@pytest.mark.parametrize("provider", ["openai"], indirect=True)  # answers of Anthropic come as streams, whole or not
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda answer: answer[:-20], "APIResponseValidationError|JSONDecodeError|Failed to decode response as JSON"),
        (lambda _: "", "Failed to decode response as JSON"),
        (lambda _: "null", "agent a gave no answer after 2 requests: Invalid response from openai"),
        (
            lambda answer: re.sub(r'"choices": \[.*\]', '"choices": []', answer),
            "agent a gave no answer after 2 requests: the reply of openai-chat:gpt-4o-mini cannot be read",
        ),
        (lambda answer: answer.replace('"choices"', '"chosen"'), "agent a gave no answer after 2 requests: .*choices"),
    ],
)
def test_an_answer_that_is_none_is_said_with_what_was_raised_and_only_that_is_asked_for_again(
    serve, world, looked_up, edit, said
):
    server = serve(replies=LOOK_UP, moods={1: Mood(edit=edit)})
    environment = world()
    execution = environment.start(ASK).wait(PATIENCE)
    assert re.search(rf"({said}).* \(step ask", execution.error, re.DOTALL)
    assert environment.run_of(execution.id).resume().wait(PATIENCE).variables == {"r": TEXT}
    assert (len(server.prompts), sorted(looked_up)) == (4, ["lark", "owl", "wren"])


def test_a_wrong_key_is_said_without_the_key_and_the_right_one_goes_on(serve, world, monkeypatch):
    serve(key="the-right-key-of-17")
    monkeypatch.setenv("OPENAI_API_KEY", "a-wrong-key-of-17")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-wrong-key-of-17")
    environment = world()
    execution = environment.start(ASK).wait(PATIENCE)
    assert "status_code: 401" in execution.error
    assert "a-wrong-key" not in execution.error
    monkeypatch.setenv("OPENAI_API_KEY", "the-right-key-of-17")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-right-key-of-17")
    resumed = environment.run_of(execution.id).resume().wait(PATIENCE)
    assert (resumed.error, resumed.variables) == (None, {"r": TEXT})


@pytest.mark.parametrize("provider", ["anthropic"], indirect=True)  # chat completions of OpenAI have no thoughts
def test_thoughts_come_as_a_part_of_their_own(serve, world):
    serve(replies=[{"think": "Hm, owls.", "say": TEXT}])
    execution, parts = heard(world())
    assert parts == {"thinking": "Hm, owls.", "text": TEXT}
    assert execution.variables == {"r": TEXT}


# --- replies that are cut off --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", range(1, 5))
@pytest.mark.parametrize("listened", [True, False])
@pytest.mark.parametrize("tools", [True, False])
def test_a_stream_without_a_finish_reason_is_asked_for_again(serve, world, provider, sent, listened, tools):
    """A proxy that gives up ends the body in good order: nothing but the missing reason says that a part is missing."""
    server = serve(moods={0: Mood(ends_after=sent)})
    environment = world(tools=tools)
    execution = heard(environment)[0] if listened else environment.start(ASK).wait(PATIENCE)
    assert execution.variables == {"r": TEXT}
    is_cut = server.streamed[0] and sent < _events_before_the_reason(provider)
    assert len(server.prompts) == (2 if is_cut else 1)
    assert list(execution.model_calls.finish_reason.dropna()) == ["stop"]
    assert execution.usage.requests == 1


def _events_before_the_reason(provider):
    """Return how many events of a stream belong to it until its finish reason is sent."""
    form = openai_form if provider == "openai" else anthropic_form
    reasons = ('"finish_reason": "stop"', '"stop_reason": "end_turn"')
    events = list(form.events(ScriptedReply.read(TEXT), 0, PIECES, {}))
    return next(number for number, event in enumerate(events, 1) if any(reason in event for reason in reasons))


@pytest.mark.parametrize("provider", ["openai"], indirect=True)
def test_a_server_that_never_sends_a_finish_reason_is_asked_plainly_from_then_on(serve, world):
    def without_reason(sent):
        return sent.replace('"finish_reason": "stop"', '"finish_reason": null')

    server = serve(moods={number: Mood(edit=without_reason) for number in range(9)})
    environment = world()
    executions = [heard(environment)[0] for _ in range(2)]
    assert [execution.variables for execution in executions] == [{"r": TEXT}] * 2
    assert server.streamed == [True, False, False]
    assert all(execution.model_calls.finish_reason.isna().all() for execution in executions)


@pytest.mark.parametrize("listened", [True, False])
@pytest.mark.parametrize("tools", [True, False])
def test_a_reply_at_the_limit_of_tokens_is_warned_of(serve, world, caplog, listened, tools):
    def cut(sent):
        return sent.replace('"stop"', '"length"').replace('"end_turn"', '"max_tokens"')

    serve(moods={0: Mood(edit=cut)})
    environment = world(tools=tools)
    execution = heard(environment)[0] if listened else environment.start(ASK).wait(PATIENCE)
    assert (execution.variables, list(execution.model_calls.finish_reason)) == ({"r": TEXT}, ["length"])
    assert "agent a: the response of the model was cut off at the token limit; raise MaxTokens" in caplog.text

"""Answers that no model is asked for: from a cache, in any run, or from a run that is played again."""

import asyncio
import os
import stat
from dataclasses import replace

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool
from divebook.agents.cache import ENDING, MOST_BYTES, PRUNED_EVERY, Cached, ResponseCache
from divebook.definitions.resources import AgentDefinition, ModelSettings
from divebook.definitions.step import Retry
from divebook.definitions.tools import tool_of
from divebook.errors import SetupError
from divebook.runtime.run import RunUsage
from divebook.stores.codec import FernetCodec, Sealing
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment, event_types

ASK = Workflow("w", [Step("ask", prompt="Ask", agent="a", store="r")])
SCRIPT = [{"call": {"note": {"text": "owls"}}}, "done"]
SPENT = {"usage": {"input_tokens": 6, "output_tokens": 4}, "price": 0.25}


class Noted(BaseModel):
    """What is noted."""

    text: str


@pytest.fixture
def script():
    return ScriptedModel(SCRIPT, **SPENT)


def kinds(execution):
    """Return how the requests of a run were answered."""
    return [view.span.type for view in execution.requests]


# --- cache -----------------------------------------------------------------------------------------------------------


def test_a_second_run_takes_the_responses_of_the_first_and_calls_its_tools(note, noted, script, tmp_path):
    store = str(tmp_path / "runs.db")
    ends = []
    for name in ("a", "another"):
        agent = Agent(AgentDefinition(name, system_prompt="Look."), model=script, tools=[note], cache="7d")
        with Environment(store=store, agents=[agent]) as world:
            ask = Workflow("w", [Step("ask", prompt="Ask", store="r")])
            execution = world.start(ask).wait(20)
            ends.append((kinds(execution), execution.variables, execution.state.own_usage.to_dict()))
    asked, again = ends
    assert asked[0] == ["agent_response"] * 2
    assert again == (["cached_response"] * 2, {"r": "done"}, {})
    assert (script.calls, noted) == (2, ["owls", "owls"])


def test_a_request_that_differs_is_made(note, script):
    world = environment(agents=[Agent("a", model=script, tools=[note], cache="7d")])
    world.start(ASK).wait(20)
    other = Workflow("w", [Step("ask", prompt="Ask again", agent="a", store="r")])
    assert kinds(world.start(other).wait(20)) == ["agent_response"] * 2


@tool
async def note_more(text: str) -> str:
    """Note more of a text."""
    return text


HEADERS = ({"X-Tenant": ["one"]}, {"X-Tenant": ["env://OTHER"]})


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ({}, {"instructions": "Be brief."}),
        ({}, {"tools": [note_more]}),
        ({}, {"output": Noted}),
        ({}, {"model_settings": ModelSettings(temperature=0.5)}),
        *[({"model_settings": ModelSettings(request_headers=given)}, {}) for given in HEADERS],
        ({"model_settings": ModelSettings(request_headers=HEADERS[0])}, {"model_settings": HEADERS[1]}),
        ({}, {"name": "another model"}),
    ],
)
def test_another_agent_model_setting_or_header_is_another_request(monkeypatch, was, now):
    monkeypatch.setenv("OTHER", "of-another-tenant")
    asked = []

    def world_with(name="a model", model_settings=None, **options):
        async def answer(_, info):
            asked.append(name)
            text = TextPart("well")
            return ModelResponse(
                parts=[ToolCallPart(info.output_tools[0].name, {"text": "well"}) if info.output_tools else text]
            )

        if isinstance(model_settings, dict):
            model_settings = ModelSettings(request_headers=model_settings)
        definition = AgentDefinition("a", model_settings=model_settings)
        return Agent(definition, model=FunctionModel(answer, model_name=name), cache="7d", **options)

    world = environment(agents=[world_with(**was)])
    world.start(ASK).wait(20)
    world.start(ASK).wait(20)
    assert len(asked) == 1
    world.add_agent(world_with(**now), replace=True)
    assert world.start(ASK).wait(20).status == "completed"
    assert len(asked) == 2


def test_an_agent_without_tools_has_a_cache_as_well():
    script = ScriptedModel(["first", "second"])
    world = environment(agents=[Agent("a", model=script, cache=3600)])
    assert [world.start(ASK).wait(20).variables["r"] for _ in range(2)] == ["first", "first"]


def test_a_resumed_run_does_not_ask_the_cache(note, script, monkeypatch):
    world = environment(agents=[Agent("a", model=script, tools=[note], cache="7d")])
    world.start(ASK).wait(20)
    execution = world.start(ASK).wait(20)
    length = next(e.sequence for e in reversed(execution.history()) if e.event_type == "operation_completed") - 1
    agent = Agent("a", model=ScriptedModel(error="nobody is to be asked"), tools=[note], cache="7d")
    again = environment(store=cut(execution.store, execution, length), agents=[agent])
    asked = []
    monkeypatch.setattr(ResponseCache, "find", lambda *_: asked.append(1))
    assert again.run_of(execution.id).resume().wait(20).variables == {"r": "done"}
    assert asked == []


def test_what_was_taken_and_is_gone_before_it_was_recorded_is_asked_for(note, script):
    world = environment(agents=[Agent("a", model=script, tools=[note], cache="7d")])
    world.start(ASK).wait(20)
    execution = world.start(ASK).wait(20)
    begun = [e.sequence for e in execution.history() if e.event_type == "operation_started"]
    again = environment(
        store=cut(execution.store, execution, begun[1]), agents=[Agent("a", model=script, tools=[note], cache="7d")]
    )
    assert event_types(again.run_of(execution.id))[-1] == "operation_started"
    resumed = again.run_of(execution.id).resume().wait(20)
    assert (resumed.variables, kinds(resumed)) == ({"r": "done"}, ["agent_response"] * 2)


def test_a_cached_response_that_is_gone_after_a_crash_is_asked_for_within_the_budget(note, script):
    def world(store=None):
        bounds = {"max_tokens": 15}
        agent = Agent("a", model=script, tools=[note], cache="7d", bounds=bounds)
        return environment(agents=[agent], **({} if store is None else {"store": store}))

    first = world()
    execution = first.start(ASK).wait(20)
    first.answer(execution.open_questions[0].id, 99).wait(20)
    taken = first.start(ASK).wait(20)
    begun = [e.sequence for e in taken.history() if e.event_type == "operation_started"]
    asked = world(cut(taken.store, taken, begun[1])).run_of(taken.id).resume().wait(20)
    (question,) = asked.open_questions
    assert "10 of 15 tokens used" in question.question
    ledger = asked.state.ledger
    assert (kinds(asked), asked.usage.requests, ledger.llm_calls) == (["agent_response"], 1, 1)
    assert (ledger.reserved_tokens, ledger.reserved_cost) == (0, 0)
    # The consumption also counts if yet another process resumes the turn.
    again = world(cut(asked.store, asked, len(asked.history()))).run_of(asked.id).resume().wait(20)
    assert [waiting.question for waiting in again.open_questions] == [question.question]
    done = again.answer(question.id, 99).wait(20)
    assert done.variables == {"r": "done"}
    assert done.verify().equal, done.verify()


def test_a_cached_response_that_is_gone_is_retried_like_any_request(note, script):
    world = environment(agents=[Agent("a", model=script, tools=[note], cache="7d")])
    world.start(ASK).wait(20)
    execution = world.start(ASK).wait(20)
    begun = [e.sequence for e in execution.history() if e.event_type == "operation_started"]
    failing = ScriptedModel([{"error": "busy", "status": 503}, *SCRIPT])
    agent = Agent(AgentDefinition("a", retry=Retry(2, seconds=0)), model=failing, tools=[note], cache="7d")
    again = environment(store=cut(execution.store, execution, begun[1]), agents=[agent])
    resumed = again.run_of(execution.id).resume().wait(20)
    assert (resumed.status, resumed.usage.requests) == ("completed", 2)


@pytest.fixture
def clock():
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_response_is_used_for_as_long_as_is_said(tmp_path, clock):
    cache = ResponseCache(tmp_path / "c", Sealing(), clock)
    cache.keep("d", {"parts": []}, 60)
    clock.now += 59
    assert cache.find("d", 60) == {"parts": []}
    assert cache.find("d", 10) is None
    clock.now += 1
    assert cache.find("d", 60) is None
    assert cache.find("unknown", 60) is None


def test_its_files_are_for_their_owner_and_sealed_as_the_store_is(tmp_path, clock):
    sealing = Sealing(FernetCodec(FernetCodec.new_key()))
    cache = ResponseCache(tmp_path / "c", sealing, clock)
    cache.keep("d", {"text": "a secret plan"}, 60)
    (file,) = (tmp_path / "c").iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert b"secret plan" not in file.read_bytes()
    assert cache.find("d", 60) == {"text": "a secret plan"}


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b'{"at": 1}', b'{"at": "x", "response": {}}'])
def test_a_file_that_cannot_be_read_is_as_if_it_were_not_there(tmp_path, clock, written, logs):
    cache = ResponseCache(tmp_path, Sealing(), clock)
    (tmp_path / f"d{ENDING}").write_bytes(written)
    assert cache.find("d", 1e9) is None
    assert ["so the request is sent to the model" in message for message in logs()] == [True]


def test_a_folder_that_cannot_be_written_to_keeps_nobody_from_answering(tmp_path, clock, logs):
    (tmp_path / "c").write_text("a file")
    ResponseCache(tmp_path / "c", Sealing(), clock).keep("d", {}, 60)
    assert ["the next run sends the request again" in message for message in logs()] == [True]


def test_what_is_of_no_use_any_more_is_deleted(tmp_path, clock):
    cache = ResponseCache(tmp_path, Sealing(), clock)
    cache.keep("old", {}, 60)
    clock.now += 61
    for number in range(PRUNED_EVERY - 2):
        cache.keep(str(number), {}, 60)
    assert (tmp_path / f"old{ENDING}").exists()
    cache.keep("last", {}, 60)
    assert not (tmp_path / f"old{ENDING}").exists()
    assert len(list(tmp_path.iterdir())) == PRUNED_EVERY - 1


def test_the_oldest_are_deleted_when_all_are_too_large(tmp_path, clock):
    for number in range(3):
        path = tmp_path / f"{number}{ENDING}"
        with path.open("wb") as file:
            file.truncate(MOST_BYTES // 2)
        os.utime(path, (clock.now + 60 + number,) * 2)
    assert ResponseCache(tmp_path, Sealing(), clock).prune() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"1{ENDING}", f"2{ENDING}"]


@pytest.mark.parametrize(
    ("reason", "kept"), [("stop", True), (None, True), ("length", False), ("content_filter", False)]
)
def test_a_response_that_was_cut_off_is_not_kept(clock, reason, kept):
    class Sent:
        digest = "d"

    async def found():
        cached = Cached(ResponseCache(None, Sealing(), clock), 60)
        await cached.keep(Sent(), {"parts": [], **({"finish_reason": reason} if reason else {})})
        return await cached.find(Sent())

    assert (asyncio.run(found()) is not None) is kept


@pytest.mark.parametrize("written", ["soon", -1, 0, "-3d"])
def test_a_time_that_is_none_is_refused(written):
    with pytest.raises(SetupError, match="Cache must be a duration"):
        Agent("a", cache=written)


# --- a run that is played again --------------------------------------------------------------------------------------


def test_any_run_is_played_again_with_its_tools_really_called(note, noted, script):
    world = environment(agents=[Agent("a", model=script, tools=[note])])
    first = world.start(ASK).wait(20)
    again = world.start(ASK, model=f"recorded:{first.id}").wait(20)
    assert (again.variables, kinds(again)) == ({"r": "done"}, ["cached_response"] * 2)
    assert again.usage == RunUsage()
    assert (script.calls, noted) == (2, ["owls", "owls"])
    third = world.start(ASK, model=f"recorded:{again.id}").wait(20)
    assert third.variables == {"r": "done"}


def test_an_agent_without_tools_is_played_again_too():
    script = ScriptedModel(["first", "second"])
    world = environment(agents=[Agent("a", model=script)])
    first = world.start(ASK).wait(20)
    named = environment(store=world.store, agents=[Agent("a", model=f"recorded:{first.id}")])
    assert named.start(ASK).wait(20).variables == {"r": "first"}
    assert script.calls == 1


def test_a_turn_that_is_begun_anew_is_answered_from_the_same_run(note, noted, script):
    def agent(instructions=""):
        tools = [replace(tool_of(note), approval=True)]
        return Agent("a", model=script, tools=tools, instructions=instructions)

    world = environment(agents=[agent()])
    first = world.start(ASK).wait(20)
    first.answer(first.open_questions[0].id, "yes").wait(20)
    again = world.start(ASK, model=f"recorded:{first.id}").wait(20)
    world.add_agent(agent("Be brief."), replace=True)
    for answer in ("yes", "anew", "yes"):
        again = world.answer(again.open_questions[0].id, answer, again.id).wait(20)
    assert (again.variables, noted) == ({"r": "done"}, ["owls"] * 2)
    assert script.calls == 2


def test_what_was_asked_differently_is_said_with_both(note, script):
    world = environment(agents=[Agent("a", model=script, tools=[note])])
    first = world.start(ASK).wait(20)
    other = Workflow("w", [Step("ask", prompt="Another question", agent="a", store="r")])
    error = world.start(other, model=f"recorded:{first.id}").wait(20).error
    assert f"the recorded run {first.id} has a different request 1 of agent a" in error
    assert "'content': 'Ask'" in error
    assert "'content': 'Another question'" in error


def test_a_tool_that_answers_otherwise_is_noticed(note, script):
    world = environment(agents=[Agent("a", model=script, tools=[note])])
    first = world.start(ASK).wait(20)

    @tool(name="note")
    async def other(text: str) -> str:
        """Note a text."""
        return f"lost {text}"

    changed = environment(store=world.store, agents=[Agent("a", model=script, tools=[other])])
    error = changed.start(ASK, model=f"recorded:{first.id}").wait(20).error
    assert "a different request 2 of agent a" in error
    assert "noted owls" in error
    assert "lost owls" in error


def test_a_step_that_the_run_does_not_have_is_said(note, script):
    world = environment(agents=[Agent("a", model=script, tools=[note])])
    first = world.start(ASK).wait(20)
    other = Workflow("w", [Step("another", prompt="Ask", agent="a", store="r")])
    error = world.start(other, model=f"recorded:{first.id}").wait(20).error
    assert "has no response to request 1 of agent a at this point, because that run took another path" in error


def test_a_run_that_is_not_there_is_said(note, script):
    world = environment(agents=[Agent("a", model=script, tools=[note])])
    with pytest.raises(
        SetupError, match="workflow w: recorded:exec_01m7zzzzzzzzzzzzzzzzzzzzzz names a run that does not"
    ):
        world.start(ASK, model="recorded:exec_01m7zzzzzzzzzzzzzzzzzzzzzz")
    assert world.store.records() == []

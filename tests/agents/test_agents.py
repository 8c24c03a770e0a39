"""Agents: model names, instructions, and model requests as operations."""

import inspect
import sys
import threading
from types import ModuleType

import anyio
import pytest

from divebook import Agent, Context, Environment, ScriptedModel, Step, Workflow, workflow
from divebook.agents.agent import AgentOptions, loaded
from divebook.agents.models import DEFAULT_MODELS, is_known_provider, known_models, model_name
from divebook.definitions.resources import AgentDefinition, ModelSettings
from divebook.definitions.step import ContentEntry
from divebook.errors import ExecutionFailedError, SetupError
from tests.runtime.worlds import environment, event_types, run

ASK = Workflow("w", [Step("ask", prompt="Say hello to ${inputs.who}", store="r")], inputs=["who"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None), "scripted"),
        ((None, "scripted"), "scripted"),
        (("anthropic", "claude-x"), "anthropic:claude-x"),
        ((None, "openai:gpt-x"), "openai:gpt-x"),
        (("openai-completions", "gpt-x"), "openai-chat:gpt-x"),
        ((None, None, "groq", "llama"), "groq:llama"),
        (("ollama", None, "groq", "llama"), "ollama:llama"),
        (("anthropic", None), "anthropic:claude-sonnet-5-5"),
        (("openai-completions", None), "openai-chat:gpt-6-luna"),
    ],
)
def test_model_names(given, expected):
    assert model_name(*given) == expected


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (("ollama", None), 'provider "ollama" has no default model.* a model that you have'),
        (("zai", None), "has no default model; add `Model: <name>`, such as glm-"),
        ((None, "gpt-x"), 'model "gpt-x" has no provider; write `Model: <provider>:gpt-x`'),
    ],
)
def test_half_a_model_name_is_an_error_that_says_what_is_missing(given, missing):
    with pytest.raises(SetupError, match=missing):
        model_name(*given)


@pytest.mark.parametrize(("provider", "model"), DEFAULT_MODELS.items())
def test_a_provider_with_a_default_model_is_known_and_so_is_the_model(provider, model):
    assert is_known_provider(provider)
    assert not (known := known_models(provider)) or model in known


def test_known_providers():
    assert all(map(is_known_provider, ["anthropic", "openai", "openai-completions", "groq", "ollama", "google"]))
    assert not is_known_provider("acme")


def test_one_model_request_is_one_recorded_operation_with_its_usage():
    agent = Agent("a", model=ScriptedModel(["hello"], usage={"input_tokens": 10, "output_tokens": 5}))
    execution = run(ASK, {"who": "world"}, agents=[agent])
    started = next(e.data for e in execution.history() if e.event_type == "operation_started")
    completed = next(e.data for e in execution.history() if e.event_type == "operation_completed")
    assert (started.operation_type, started.parameters["prompt"]) == ("agent_response", "Say hello to world")
    assert completed.usage == {"requests": 1, "input_tokens": 10, "output_tokens": 5}
    assert execution.variables == {"r": "hello"}
    assert execution.state.own_usage.to_dict() == completed.usage


def test_without_a_model_the_answer_says_that_it_is_scripted():
    execution = run(ASK, {"who": "world"}, agents=[Agent("a")])
    assert execution.variables["r"].startswith("[scripted model: no model configured] Prompt")


def test_a_resumed_execution_does_not_ask_the_model_again():
    from tests.runtime.test_resuming import cut

    model = ScriptedModel(["first", "second"])
    execution = run(ASK, {"who": "x"}, agents=[Agent("a", model=model)])
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_completed")
    again = environment(store=cut(execution.store, execution, length), agents=[Agent("a", model=model)])
    assert again.run_of(execution.id).resume().wait(20).variables == {"r": "first"}
    assert model.calls == 1


def test_a_failing_model_fails_the_step():
    execution = run(ASK, {"who": "x"}, agents=[Agent("a", model=ScriptedModel(error="overloaded"))])
    assert execution.error == "RuntimeError: overloaded (step ask)"
    assert event_types(execution)[-4:] == ["operation_failed", "step_failed", "path_failed", "execution_failed"]


def test_a_model_that_cannot_be_had_says_so(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    execution = run(ASK, {"who": "x"}, agents=[Agent("a", model="openai:model")])
    assert (
        "model 'openai:model' cannot be used: openai needs an API key in the environment variable OPENAI_API_KEY"
        in (execution.error)
    )
    assert "then resume the run" in execution.error
    assert "Agent('test')" not in execution.error


def test_a_model_whose_library_is_missing_names_the_command_that_installs_it(monkeypatch):
    def fail(_provider):
        raise ImportError('Please install the `groq` package, you can use `pip install "pydantic-ai-slim[groq]"`')

    monkeypatch.setattr("pydantic_ai.models.infer_model", lambda name, _provider: fail(name))
    execution = run(ASK, {"who": "x"}, agents=[Agent("a", model="groq:model")])
    assert "the library of groq is not installed. Run `pip install 'pydantic-ai-slim[groq]'`" in execution.error


def test_instructions_hold_role_goal_and_the_day_the_execution_began():
    agent = Agent(AgentDefinition("poet", goal="Rhyme", instructions="Be brief."))
    execution = run(ASK, {"who": "x"}, agents=[agent])
    started = next(e.data for e in execution.history() if e.event_type == "operation_started")
    assert started.parameters["instructions"] == (
        f"You are poet.\n\nYour goal: Rhyme\n\nBe brief.\n\nToday is {execution.started_at:%A, %d %B %Y}."
    )


def test_a_system_prompt_of_ones_own_is_a_template():
    agent = Agent(
        AgentDefinition("a", goal="g", system_prompt="I am ${agent.name}: ${agent.goal}", date_awareness=False)
    )
    assert agent.instructions(None) == "I am a: g"
    with pytest.raises(SetupError, match="invalid system prompt template"):
        Agent(AgentDefinition("a", system_prompt="${nope}")).instructions(None)


def test_content_comes_before_the_prompt_and_context_before_everything():
    blocks = ({"type": "text", "text": "from a file"},)
    content = [ContentEntry(text=" inline "), ContentEntry(path="x", blocks=blocks)]
    agent = Agent(AgentDefinition("a", context=(ContentEntry(text="background"),)), model=ScriptedModel(["ok"]))
    execution = run(Workflow("w", [Step("s", prompt="go", content=content)]), agents=[agent])
    parameters = next(e.data for e in execution.history() if e.event_type == "operation_started").parameters
    assert [block["text"] for block in parameters["content"]] == ["inline", "from a file"]
    assert [block["text"] for block in parameters["context"]] == ["background"]


def test_dynamic_content_is_an_operation_that_sees_inputs_and_names():
    script = '[{"type": "text", "text": inputs.who + " in " + workflow + "/" + step + "/" + agent}]'
    workflow = Workflow("w", [Step("s", prompt="go", content=[ContentEntry(dynamic=script)])], inputs=["who"])
    execution = run(workflow, {"who": "Ada"}, agents=[Agent("a", model=ScriptedModel(["ok"]))])
    operations = [e.data for e in execution.history() if e.event_type == "operation_started"]
    assert [data.operation_type for data in operations] == ["dynamic_content", "agent_response"]
    assert operations[1].parameters["content"] == [{"type": "text", "text": "Ada in w/s/a"}]


def test_dynamic_content_of_another_type_is_refused():
    workflow = Workflow("w", [Step("s", prompt="go", content=[ContentEntry(dynamic="42")])])
    assert "unsupported script result type" in run(workflow, agents=[Agent("a")]).error


def test_a_program_gives_content_and_knows_the_state(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_ALLOW", "programs")
    program = tmp_path / "content.py"
    program.write_text(
        "#!/usr/bin/env python3\nimport json, os\n"
        'print(json.dumps([{"type": "text", "text": json.loads(os.environ["DIVE_GLOBALS"])["inputs"]["who"]}]))\n'
    )
    program.chmod(0o755)
    workflow = Workflow(
        "w", [Step("s", prompt="go", content=[ContentEntry(dynamic_from=str(program))])], inputs=["who"]
    )
    execution = run(workflow, {"who": "Ada"}, agents=[Agent("a", model=ScriptedModel(["ok"]))])
    assert next(e for e in execution.history() if e.event_type == "operation_completed").data.result[0]["text"] == "Ada"


def test_a_program_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("DIVEBOOK_ALLOW", "programs")
    workflow = Workflow("w", [Step("s", prompt="go", content=[ContentEntry(dynamic_from="/non/existent/script.sh")])])
    assert "script file not found: /non/existent/script.sh" in run(workflow, agents=[Agent("a")]).error


def test_a_program_is_not_started_unless_that_is_allowed(tmp_path, monkeypatch):
    monkeypatch.delenv("DIVEBOOK_ALLOW", raising=False)
    program = tmp_path / "content.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started; echo '[]'\n")
    program.chmod(0o755)
    workflow = Workflow("w", [Step("s", prompt="go", content=[ContentEntry(dynamic_from=str(program))])])
    assert "programs are not allowed; to allow it: DIVEBOOK_ALLOW=programs" in run(workflow, agents=[Agent("a")]).error
    assert not (tmp_path / "started").exists()


def test_model_settings_reach_the_model():
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    seen = []

    async def answer(messages, info):
        seen.append(info.model_settings)
        return ModelResponse(parts=[TextPart("ok")])

    settings = ModelSettings(temperature=0.5, max_tokens=7, request_headers={"X": ["1", "2"]})
    agent = Agent(AgentDefinition("a", model_settings=settings, response_timeout=30.0), model=FunctionModel(answer))
    assert run(ASK, {"who": "x"}, agents=[agent]).status == "completed"
    assert seen[0]["temperature"] == 0.5
    assert (seen[0]["max_tokens"], seen[0]["timeout"], seen[0]["extra_headers"]) == (7, 30.0, {"X": "1, 2"})


# --- the model of a whole run ----------------------------------------------------------------------------------------


def test_a_run_may_have_another_model_for_all_its_agents():
    world = environment(agents=[Agent("a", model="acme:model")])
    execution = world.start(ASK, {"who": "x"}, model="scripted").wait(20)
    assert execution.variables["r"].startswith("[scripted model:")
    started = next(e.data for e in execution.history() if e.event_type == "operation_started")
    assert started.parameters["model"] == "scripted"


def test_a_resumed_run_keeps_the_model_it_was_started_with():
    from tests.runtime.test_resuming import cut

    world = environment(agents=[Agent("a", model="acme:model")])
    execution = world.start(ASK, {"who": "x"}, model="scripted").wait(20)
    length = next(e.sequence for e in execution.history() if e.event_type == "step_started")
    again = environment(store=cut(execution.store, execution, length), agents=[Agent("a", model="acme:model")])
    assert again.run_of(execution.id).resume().wait(20).variables == execution.variables


def test_a_model_that_names_no_provider_is_refused_before_anything_begins():
    world = environment(agents=[Agent("a")])
    with pytest.raises(SetupError, match="has no provider"):
        world.start(ASK, {"who": "x"}, model="gpt-x")
    assert world.store.records() == []


def test_workflows_that_a_run_starts_have_its_model_as_well():
    outer = Workflow("outer", [Step("call", type="workflow", workflow="w", inputs={"who": "y"}, store="r")])
    world = environment(agents=[Agent("a", model="acme:model")])
    world.add_workflow(ASK)
    assert world.start(outer, model="scripted").wait(20).status == "completed"


def test_tags_and_a_note_are_kept_with_what_a_run_began_with():
    world = environment(agents=[Agent("a")])
    tagged = world.start(ASK, {"who": "x"}, tags=["nightly"], note="a try").wait(20)
    world.start(ASK, {"who": "x"}).wait(20)
    assert [record.execution_id for record in world.store.records(tag="nightly")] == [tagged.id]
    assert tagged.history()[0].data.note == "a try"
    with pytest.raises(SetupError, match="tags must be a list of words"):
        world.start(ASK, {"who": "x"}, tags="nightly")


@pytest.mark.parametrize("option", [{"note": 5}, {"key": 7}, {"cell": ["a"]}, {"tags": [3]}])
def test_what_is_said_of_a_start_must_be_text(option):
    world = environment(agents=[Agent("a")])
    with pytest.raises(SetupError, match="must be a"):
        world.start(ASK, {"who": "x"}, **option)
    assert world.store.records() == []


def test_a_module_that_another_thread_loads_is_waited_for(tmp_path, monkeypatch):
    """Agents that began side by side as the first of a process failed: the module that all need was half there."""
    monkeypatch.setattr("divebook.agents.agent._LOADED", {})
    reached, opened = threading.Event(), threading.Event()
    gate = ModuleType("gate_of_this_test")
    gate.wait = lambda: (reached.set(), opened.wait(20))
    monkeypatch.setitem(sys.modules, gate.__name__, gate)
    (tmp_path / "slow_to_load.py").write_text(f"import {gate.__name__} as gate\ngate.wait()\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = []

    async def load():
        found.append((await loaded("slow_to_load")).whole)

    async def load_both():
        async with anyio.create_task_group() as group:
            group.start_soon(load)
            await anyio.to_thread.run_sync(reached.wait, 20)
            group.start_soon(load)
            await anyio.wait_all_tasks_blocked()
            opened.set()

    try:
        anyio.run(load_both)
    finally:
        sys.modules.pop("slow_to_load", None)
    assert found == [True, True]


def test_the_typed_options_of_an_agent_are_those_of_its_constructor():
    assert {*inspect.signature(Agent).parameters} == {"definition", "output", *AgentOptions.__annotations__}


def test_an_agent_is_asked_by_name_or_as_an_object():
    critic = Agent("critic", model=ScriptedModel(["good", "fine"]))

    @workflow
    async def asking(ctx: Context) -> list[str]:
        return [await ctx.agent(critic).run("Is it?"), await ctx.agent("critic").run("Is it?")]

    with Environment(store="memory:", agents=[critic]) as world:
        assert world.start(asking).result() == ["good", "fine"]
    with Environment(store="memory:") as world, pytest.raises(ExecutionFailedError, match="agent not found: critic"):
        world.start(asking).result()

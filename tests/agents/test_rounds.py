"""The last round of a turn, and turns that end without an answer."""

import asyncio
import re

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec import BaseDurabilityCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import RunContext

from divebook import Agent, Step, Workflow
from divebook.agents.agent_loop import ANSWER_NOW, HOOKS
from divebook.agents.durability import Backend, DivebookDurability
from divebook.definitions.functions import workflow
from divebook.definitions.reader import definitions_from
from divebook.definitions.resources import AgentDefinition
from divebook.errors import AgentError, DefinitionError, StepError
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

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
        "agent a gave no answer after 3 requests: its model called look again after 2 rounds of calls. That call was "
        "not made; raise its ToolIterationLimit (step ask)"
    )
    again = Eager(is_stubborn=True)
    resumed = again.world(5, store=cut(execution.store, execution, 1000)).run_of(execution.id).resume().wait(20)
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
        ({"tools": [Eager().look]}, 'its model called unknown tool "nope", got an error for it, and called it again'),
        ({"output": dict[str, int]}, 'its model called unknown tool "nope", got an error for it, and called it again'),
    ],
)
def test_a_model_that_calls_a_tool_that_is_not_there_again_and_again_ends_its_turn_in_words(given, said):
    model = FunctionModel(lambda *_: ModelResponse([ToolCallPart("nope", {})]))
    execution = environment(ASK, agents=[Agent("a", model=model, **given)]).start("ask").wait(20)
    assert said in execution.error
    assert "raising the retry limit" not in execution.error


# --- corrections ---------------------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def correcting(faults, *, output=None, **given):
    """Return an agent whose model calls a tool, or answers, in a wrong form `faults` times before it is right."""

    requests = []

    def answer(messages, info):
        requests.append(messages)
        is_wrong = len(requests) <= faults
        if output is not None:
            return ModelResponse([ToolCallPart(info.output_tools[0].name, {"sum": "three" if is_wrong else 3})])
        if is_wrong:
            return ModelResponse([ToolCallPart("add", '{"a": 1, "b":' if len(requests) % 2 else {"a": 1})])
        returned = any(part.part_kind == "tool-return" for part in messages[-1].parts)
        return ModelResponse([TextPart("3") if returned else ToolCallPart("add", {"a": 1, "b": 2})])

    return Agent("a", model=FunctionModel(answer), tools=[add], output=output, **given)


class Sum(BaseModel):
    sum: int


@pytest.mark.parametrize("output", [None, Sum])
@pytest.mark.parametrize("corrections", [0, 1, 2, 5])
def test_a_model_corrects_itself_as_often_as_its_agent_says(corrections, output):
    done = environment(ASK, agents=[correcting(corrections, output=output, corrections=corrections)]).start("ask")
    assert done.wait(20).status == "completed"
    failed = environment(ASK, agents=[correcting(corrections + 1, output=output, corrections=corrections)]).start("ask")
    assert failed.wait(20).status == "failed"


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        (None, r"its call of tool add did not have the expected form \(b: Field required\), even after 1 correction"),
        (
            Sum,
            r"its answer did not have the expected form \(sum: Input should be a valid integer.*\), even after 1",
        ),
    ],
)
def test_a_model_that_has_used_up_its_corrections_is_told_which_key_allows_more(output, fault):
    execution = environment(ASK, agents=[correcting(2, output=output)]).start("ask").wait(20)
    assert re.search(rf"agent a gave no answer after 2 requests: {fault}.*; raise its Corrections", execution.error)
    assert "pydantic.dev" not in execution.error


@pytest.mark.parametrize(("faults", "corrections"), [(2, 2), (0, 1)])
@pytest.mark.parametrize("output", [None, Sum])
def test_the_advice_after_too_many_corrections_works_and_resuming_alone_does_not(output, faults, corrections):
    world = environment(ASK, agents=[correcting(2, output=output)])
    failed = world.start("ask").wait(20)
    advice = (
        "raise its Corrections and resume the run, or use another Model, and fork the run before this step. "
        "A resumed run keeps"
    )
    assert advice in failed.error
    resumed = world.run_of(failed.id).resume().wait(20)
    assert (resumed.status, resumed.error, resumed.usage.requests) == ("failed", failed.error, 2)
    before = next(event.sequence for event in failed.history() if event.event_type == "step_started") - 1
    world.add_agent(correcting(faults, output=output, corrections=corrections), replace=True)
    assert world.run_of(failed.id).fork(before).wait(20).status == "completed"


@pytest.mark.parametrize(("faults", "requests"), [(0, 3), (1, 4)])
@pytest.mark.parametrize("output", [None, Sum])
def test_a_run_is_resumed_with_more_corrections(output, faults, requests):
    world = environment(ASK, agents=[correcting(2, output=output)])
    failed = world.start("ask").wait(20)
    # Its model has answered twice in a wrong form. A new one begins with `faults` more of them.
    world.add_agent(correcting(faults, output=output, corrections=4), replace=True)
    run = world.run_of(failed.id).resume().wait(20)
    assert (run.status, run.usage.requests) == ("completed", requests), run.error


def test_an_agent_of_pydantic_ai_names_its_own_limit():
    taken = pydantic_ai.Agent(
        FunctionModel(lambda *_: ModelResponse([ToolCallPart("nothing", {})])), name="a", retries=2
    )

    @taken.tool_plain
    def nothing(value: int) -> None:
        """Do nothing."""

    execution = environment(ASK, agents=[Agent.of(taken)]).start("ask").wait(20)
    assert "even after 2 corrections; raise `retries` of its pydantic_ai.Agent" in execution.error


def test_corrections_in_a_definition():
    (agent,) = definitions_from({"Agents": [{"Name": "a", "Corrections": 4}]}).agents
    assert agent.corrections == 4
    with pytest.raises(DefinitionError, match=r"Corrections must be an integer from 0 to .*, not -1"):
        definitions_from({"Agents": [{"Name": "a", "Corrections": -1}]})


def schemas_sent(capabilities):
    """Return the schema of the only tool in each request of a turn of three requests."""
    sent = []

    def answer(messages, info):
        sent.append(info.function_tools[0].parameters_json_schema)
        return ModelResponse([ToolCallPart("look", {"name": "owl"})] if len(sent) < 3 else [TextPart("many")])

    agent = Agent("a", model=FunctionModel(answer), tools=[Eager().look], capabilities=capabilities)
    assert environment(ASK, agents=[agent]).start("ask").wait(20).variables == {"birds": "many"}
    return sent


def test_a_request_of_an_agent_without_capabilities_does_not_copy_its_tools():
    """pydantic-ai copies all schemas for each request unless `_has_prepare_model_request`, a private name, is False."""
    first, *later_schemas = schemas_sent([])
    assert [schema is first for schema in later_schemas] == [True, True]


def test_a_capability_that_edits_a_request_in_place_changes_no_other_request():
    class Edits(AbstractCapability):
        async def prepare_model_request(self, ctx, request_context):
            schema = request_context.model_request_parameters.function_tools[0].parameters_json_schema
            schema["edits"] = schema.get("edits", 0) + 1
            return request_context

    assert [schema["edits"] for schema in schemas_sent([Edits()])] == [1, 1, 1]


def test_the_operations_of_requests_are_bound_once(monkeypatch):
    """pydantic-ai binds them for each request by `_bind_model_operations`, a private name."""
    bound = []
    bind = Backend.bind

    def noted(self, operation):
        bound.append(type(operation.operation_id).__name__)
        return bind(self, operation)

    monkeypatch.setattr(Backend, "bind", noted)
    schemas_sent([])
    assert bound.count("ModelRequestId") == 2  # one for plain requests, one for streamed ones


def test_the_private_parts_of_pydantic_ai_that_are_replaced_still_exist():
    replaced = {name for name in vars(DivebookDurability) if name.startswith("_") and not name.startswith("__")}
    own = {"_turn_of_run", "_warn_unrecorded", "_abc_impl"}
    assert {name for name in replaced - own if not hasattr(BaseDurabilityCapability, name)} == set()


def test_a_tool_can_neither_enqueue_messages_nor_cancel_its_run():
    """A replay, which does not call the tool, would have neither."""
    refused = []

    def look(ctx: RunContext[None], name: str) -> str:
        for refuse in (lambda: ctx.enqueue("more"), ctx.cancel):
            with pytest.raises(UserError) as error:
                refuse()
            refused.append(str(error.value).partition("`")[2].partition("`")[0])
        return name

    def answer(messages, info):
        is_early = len(messages) < 5
        return ModelResponse([ToolCallPart("look", {"name": "owl"})] if is_early else [TextPart("many")])

    library = pydantic_ai.Agent(FunctionModel(answer), name="a", tools=[look])
    assert environment(ASK, agents=[Agent.of(library)]).start("ask").wait(20).variables == {"birds": "many"}
    assert refused == ["ctx.enqueue()", "cancel"] * 2


class EveryHook(AbstractCapability):
    """A capability that notes each hook with which it is called."""

    def __init__(self):
        self.called = []


def noted(hook):
    inherited = getattr(AbstractCapability, hook)

    async def run(self, ctx, *arguments, **options):
        self.called.append((hook, ctx.run_step, ctx.capability_active))
        return await inherited(self, ctx, *arguments, **options)

    return run


for _hook in HOOKS:
    setattr(EveryHook, _hook, noted(_hook))


def test_capabilities_get_the_hooks_that_they_define_as_without_divebook():
    def answer(messages, info):
        is_first = len(messages) == 1
        output = ToolCallPart(info.output_tools[0].name, {"response": {"owl": 1}})
        return ModelResponse([ToolCallPart("look", {"name": "owl"}) if is_first else output])

    noting, plain = EveryHook(), EveryHook()
    options = {"model": FunctionModel(answer), "tools": [Eager().look]}
    agent = Agent("a", output=dict[str, int], capabilities=[noting], **options)
    assert environment(ASK, agents=[agent]).start("ask").wait(20).variables == {"birds": {"owl": 1}}
    library = pydantic_ai.Agent(name="a", output_type=dict[str, int], capabilities=[plain], **options)
    assert asyncio.run(library.run("Which birds?")).output == {"owl": 1}
    assert noting.called == plain.called
    assert {hook for hook, *_ in plain.called} == set(HOOKS)


def test_a_hook_that_no_capability_defines_costs_no_copy_of_the_run_context(monkeypatch):
    """pydantic-ai copies it for each capability in `_dispatch`, a private name that `DefinedHooks` narrows."""
    called = []
    for hook in HOOKS:
        monkeypatch.setattr(AbstractCapability, hook, noted(hook))
    monkeypatch.setattr(AbstractCapability, "called", called, raising=False)
    schemas_sent([])
    assert called == []

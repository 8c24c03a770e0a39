"""Workflows as steps, agents from workflow functions, and events of a person's own."""

import pytest

from divebook import Agent, Environment, Step, Workflow
from divebook.agents.scripted import ScriptedModel
from divebook.config import Sources, build_content, load
from divebook.definitions import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.definitions.reader import read_definitions
from divebook.definitions.step import ContentEntry
from divebook.errors import DefinitionError, NotFoundError
from divebook.runtime.run import _ELSEWHERE
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

FAMILY = """
Workflows:
- Name: whole
  Inputs: [{Name: words}]
  Steps:
  - Name: each
    Each: {Items: $(inputs.words), As: word, Parallel: 2}
    Workflow: part
    Inputs: {text: $(word), note: "from ${word}"}
    Store: parts
- Name: part
  Inputs: [{Name: text}, {Name: note}]
  Outputs: [{Name: upper}, {Name: note}]
  Steps:
  - {Name: shout, Script: inputs.text.upper(), Store: upper}
  - {Name: keep, Script: inputs.note, Store: note}
"""


@pytest.fixture(autouse=True)
def forget():
    known = dict(WORKFLOW_FUNCTIONS)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)


def test_a_step_runs_another_workflow_with_inputs_and_keeps_its_outputs():
    world = environment(*read_definitions(FAMILY).workflows)
    execution = world.start("whole", {"words": ["a", "b"]}).wait(20)
    assert execution.variables["parts"] == [{"upper": "A", "note": "from a"}, {"upper": "B", "note": "from b"}]
    assert len(world.store.records(workflow="part")) == 2


def test_a_workflow_step_survives_a_restart_and_starts_its_child_once():
    world = environment(*read_definitions(FAMILY).workflows)
    execution = world.start("whole", {"words": ["a"]}).wait(20)
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_started")
    store = cut(execution.store, execution, length)
    again = environment(*read_definitions(FAMILY).workflows, store=store)
    assert again.run_of(execution.id).resume().wait(20).variables == execution.variables


def test_mistakes_of_workflow_steps_are_found_before_anything_runs():
    with pytest.raises(NotFoundError, match="did you mean 'whole'"):
        environment(*read_definitions(FAMILY.replace("Workflow: part", "Workflow: whol")).workflows).start("whole")
    with pytest.raises(DefinitionError, match="no workflow specified"):
        Workflow("w", [Step("s", type="workflow")])
    with pytest.raises(DefinitionError, match="Inputs has no effect on a step of type script"):
        Workflow("w", [Step("s", script="1", inputs={"a": 1})])


def critic():
    return Agent("critic", model=ScriptedModel(["fine", "poor"]))


def test_a_workflow_function_asks_agents_and_their_requests_count():
    @workflow
    async def judged(ctx):
        return [await ctx.agent("critic").run("Is it good?"), await ctx.agent("critic").run("And now?")]

    world = Environment(store=MemoryStore(), agents=[critic()])
    execution = world.start("judged").wait(20)
    assert execution.outputs == {"result": ["fine", "poor"]}
    assert [e.data.operation_type for e in execution.history() if e.event_type == "operation_started"] == [
        "agent_response",
        "agent_response",
    ]
    bounded = world.start("judged", bounds={"max_llm_calls": 1}).wait(20)
    assert [question.kind for question in bounded.open_questions] == ["resource_exhausted"]


def test_an_agent_that_is_not_there_is_named():
    @workflow
    async def judged(ctx):
        return await ctx.agent("critc").run("Is it good?")

    error = Environment(store=MemoryStore(), agents=[critic()]).start("judged").wait(20).error
    assert "did you mean 'critic'" in error


def emitted(execution):
    return [(e.data.name, e.data.data) for e in execution.history() if e.event_type == "event_emitted"]


def test_events_of_a_workflow_function_are_recorded_once_also_over_a_restart():
    @step(idempotent=True)
    def one():
        return 1

    @workflow
    async def telling(ctx):
        ctx.emit("began", {"rows": 3})
        await one()
        ctx.emit("ended")
        return await one()

    heard = []
    world = Environment(store=MemoryStore())
    execution = world.create("telling")
    execution.subscribe(heard.extend)
    execution.start().wait(20)
    assert emitted(execution) == [("began", {"rows": 3}), ("ended", None)]
    assert sum(event.event_type == "event_emitted" for event in heard) == 2
    for length in range(2, execution.state.last_sequence):
        again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
        assert (again.status, emitted(again)) == ("completed", emitted(execution))


def test_a_changed_event_of_a_workflow_function_diverges():
    def telling(text):
        @workflow
        async def telling(ctx):
            ctx.emit("began", text)
            return await ctx.random()

        return telling

    telling("a")
    execution = Environment(store=MemoryStore()).start("telling").wait(20)
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_started")
    telling("b")
    again = Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert "began" in again.error
    assert "diverge" in again.error.lower() or "recorded" in again.error.lower()


@pytest.mark.parametrize("is_async", [False, True])
def test_an_action_with_a_context_emits_events_of_its_own(is_async):
    def tell(n, context):
        for row in range(n):
            context.emit("row", row)
        return context.run_id

    async def tell_async(n, context):
        return tell(n, context)

    made = Workflow("w", [Step("s", action="tell", parameters={"n": 2}, store="id")])
    world = environment(made, actions=[Action("tell", tell_async if is_async else tell)])
    execution = world.start("w").wait(20)
    assert emitted(execution) == [("row", 0), ("row", 1)]
    assert execution.variables["id"] == execution.id


def test_a_mistake_in_a_script_names_its_file_in_a_folder(tmp_path):
    (tmp_path / "one.yaml").write_text('Workflows:\n- Name: one\n  Steps:\n  - {Name: a, Script: "1"}\n')
    (tmp_path / "two.yaml").write_text('Workflows:\n- Name: two\n  Steps:\n  - {Name: b, Script: "sum([1)"}\n')
    with pytest.raises(DefinitionError, match=r"two\.yaml:4:\d+: Script of step 'b'"):
        load(tmp_path)


def test_a_jpg_is_a_jpeg(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"x")
    (block,) = build_content([ContentEntry(path="photo.jpg")], Sources(tmp_path))
    assert block["source"]["media_type"] == "image/jpeg"


@pytest.mark.parametrize("name", sorted(_ELSEWHERE))
def test_a_name_that_people_look_for_in_a_run_leads_to_its_place(name):
    run = environment(Workflow("w", [Step("s", script="1")])).start("w").wait(20)
    with pytest.raises(AttributeError, match=f"Run has no attribute '{name}'; write run") as raised:
        getattr(run, name)
    place = str(raised.value).partition("write ")[2]
    assert eval(place, {"run": run}) is not None

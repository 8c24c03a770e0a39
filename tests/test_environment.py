"""What an environment holds and who answers by default."""

import sqlite3
from contextlib import closing

import pytest

from divebook import Agent, Environment, Step, Workflow, action
from divebook.definitions import definitions_from, read_definitions
from divebook.definitions.resources import AgentDefinition, TriggerDefinition
from divebook.definitions.servers import MCPServerDefinition
from divebook.documents import FileDocuments
from divebook.environments.environment import REMOVED
from divebook.errors import AlreadyRegisteredError, CorruptStoreError, NotFoundError, SetupError
from divebook.runtime.run import REMOVED as RUN_REMOVED
from divebook.runtime.step import Outcome
from divebook.steps.actions import REGISTERED, Action
from divebook.stores import MemoryStore, SqliteStore
from tests.left_behind import leave


def environment(**settings):
    return Environment(store=MemoryStore(), **settings)


def workflow(name, **settings):
    return Workflow(name, [Step("a", script="1")], **settings)


def test_a_store_may_be_named_by_a_path(tmp_path):
    with Environment(store=tmp_path / "e.db") as world:
        assert world.store.location == str(tmp_path / "e.db")


def test_duplicate_agents_are_refused():
    with pytest.raises(AlreadyRegisteredError, match="agent already registered: test-agent"):
        environment(agents=[Agent("test-agent"), Agent("test-agent")])


def test_duplicate_workflows_are_refused():
    with pytest.raises(AlreadyRegisteredError, match="workflow already registered: w"):
        environment(workflows=[workflow("w"), workflow("w")])


@pytest.mark.parametrize(
    ("agents", "expected"),
    [
        ([], None),
        (["solo-agent"], "solo-agent"),
        (["first", "second"], "first"),
        (["regular-agent", "supervisor-agent"], "supervisor-agent"),
    ],
)
def test_the_default_agent_is_the_first_supervisor_else_the_first(agents, expected):
    found = environment(
        agents=[Agent(AgentDefinition(a, is_supervisor="supervisor" in a)) for a in agents]
    ).internals.registry.default_agent
    assert (found.name if found else None) == expected


def test_agents_are_added_and_found():
    world = environment()
    world.add_agent(Agent("new-agent"))
    assert world.internals.registry.agent("new-agent").name == "new-agent"
    with pytest.raises(NotFoundError, match="agent not found: missing-agent"):
        world.internals.registry.agent("missing-agent")
    with pytest.raises(AlreadyRegisteredError):
        world.add_agent(Agent("new-agent"))


def test_actions_are_found_the_environments_own_first():
    world = Environment(store=MemoryStore(), actions=[Action("Print", len)])
    assert world.internals.registry.action("Print").function is len
    assert world.internals.registry.action("Time.Now") is world.definitions.actions["Time.Now"]
    with pytest.raises(NotFoundError, match=r'action "Print1" not found .did you mean'):
        world.internals.registry.action("Print1")


def test_workflows_are_added_and_found():
    world = environment()
    world.add_workflow(workflow("test-workflow"))
    assert world.internals.registry.workflow("test-workflow").name == "test-workflow"
    with pytest.raises(NotFoundError, match=r"workflow not found: test-workflov .did you mean 'test-workflow'"):
        world.internals.registry.workflow("test-workflov")
    with pytest.raises(AlreadyRegisteredError):
        world.add_workflow(workflow("test-workflow"))


def test_the_default_workflow_must_exist():
    world = environment()
    world.define(definitions_from({"Config": {"DefaultWorkflow": "ghost"}}))
    with pytest.raises(SetupError, match="default workflow not found: ghost"):
        _ = world.internals.registry.default_workflow
    world.add_workflow(workflow("ghost"))
    assert world.internals.registry.default_workflow.name == "ghost"


def test_built_in_actions_are_there_and_own_ones_win():
    async def shout(**_):
        return "mine"

    world = environment(actions=[Action("Print", shout)])
    assert {"Document.Read", "Document.Write", "Print", "Time.Now"} <= set(world.definitions.actions)
    assert world.definitions.actions["Print"].function is shout


def test_a_missing_parameter_of_a_built_in_action_is_named_as_it_is_written():
    reading = Workflow("reading", [Step("read", action="Document.Read", parameters={"path": "notes.md"})])
    error = environment().start(reading).wait().error
    assert "unknown parameters: path; write Parameters: {Path: ...}" in error


def test_a_decorated_function_is_an_action_everywhere_and_still_a_function(monkeypatch):
    monkeypatch.setattr("divebook.steps.actions.REGISTERED", REGISTERED)

    @action("Test.Double")
    def double(n: int) -> int:
        return 2 * n

    try:
        world = environment()
        steps = [Step("a", action="Test.Double", parameters={"n": 4}, store="r")]
        assert world.start(Workflow("w", steps)).wait(20).variables == {"r": 8}
        assert double(2) == 4
    finally:
        del REGISTERED["Test.Double"]


def test_documents_come_from_one_place(tmp_path):
    with pytest.raises(SetupError, match="documents dir and repo cannot both be set"):
        environment(documents=FileDocuments(tmp_path), documents_dir=tmp_path)


def test_definitions_name_their_environment():
    with Environment(store="memory:") as world:
        world.define(definitions_from({"Name": "e"}))
        assert world.name == "e"


@pytest.mark.parametrize(
    "config", [{"Agents": [{"Name": "a", "Provider": "acme"}]}, {"Config": {"DefaultProvider": "acme"}}]
)
def test_unknown_providers_are_refused(config):
    with pytest.raises(SetupError, match='unsupported provider: "acme"'):
        environment().define(definitions_from({"Name": "e", **config}))


def test_defining_again_replaces():
    world = environment()
    for script in ("'old'", "'new'"):
        world.define(
            read_definitions(f'Workflows:\n- Name: w\n  Steps:\n  - Name: s\n    Script: "{script}"\n    Store: v\n')
        )
    assert world.start("w").wait(20).variables == {"v": "new"}


def test_provider_settings_reach_the_agents():
    config = {
        "Config": {"Providers": [{"Name": "anthropic", "RequestHeaders": {"X": ["1"]}}]},
        "Agents": [{"Name": "a", "Provider": "anthropic", "Model": "m"}],
    }
    world = environment()
    world.define(definitions_from(config))
    assert world.internals.registry.agent("a").definition.model_settings.request_headers == {"X": ["1"]}


def test_a_trigger_creates_pending_executions_of_its_workflows():
    triggers = (TriggerDefinition("nightly"),)
    world = environment(
        workflows=[workflow("w1", triggers=triggers), workflow("w2", triggers=triggers), workflow("w3")]
    )
    executions = world.schedules.fire("nightly")
    assert [(e.workflow.name, e.status) for e in executions] == [("w1", "pending"), ("w2", "pending")]
    assert world.store.records() == []
    assert executions[0].start().wait(20).status == "completed"
    with pytest.raises(NotFoundError, match="trigger not found: nightlx"):
        world.schedules.fire("nightlx")


def test_a_created_execution_goes_from_pending_to_completed():
    execution = environment().create(workflow("w"))
    assert (execution.status, execution.id[:5]) == ("pending", "exec_")
    assert execution.start().wait(20).status == "completed"


def test_executions_are_listed_newest_first_and_filtered():
    world = environment(workflows=[workflow("w1"), workflow("w2")])
    first, second = world.start("w1").wait(20), world.start("w2").wait(20)
    assert [record.execution_id for record in world.store.records()] == [second.id, first.id]
    assert [record.execution_id for record in world.store.records(workflow="w1")] == [first.id]
    assert world.store.records(status="failed") == []


def test_a_damaged_execution_is_looked_up_as_far_as_it_is_sound_and_not_carried_on(tmp_path):
    path = tmp_path / "x.db"
    with SqliteStore(path) as store:
        execution_id = leave(store)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET data = '{oops' WHERE place & 4294967295 = 3")
    with SqliteStore(path) as store:
        world = Environment(store=store)
        execution = world.run_of(execution_id)
        assert "event 3 of execution" in str(execution.internals.damage)
        assert [event.sequence for event in execution.history()] == [1, 2]
        assert "error: the log is damaged; this is what its first 2 events say. event 3" in str(execution)
        assert world.inbox() == []
        for use in (execution.resume, execution.cancel):
            with pytest.raises(CorruptStoreError, match="event 3"):
                use()


def test_a_type_of_step_is_carried_out_by_whoever_adds_it_and_checked_before_anything_is_recorded():
    checked = []

    async def echo(context):
        return Outcome(f"echo of {context.step.name}", None)

    world = environment()
    world.add_step_type("script", echo, check=lambda found: checked.append(found.name))
    assert world.start(workflow("w")).wait().state.paths["main"].status == "completed"
    assert set(checked) == {"w"}
    assert world.internals.registry.step_handler("script") is echo

    def refuse(found):
        raise SetupError(f"{found.name} lacks something")

    world.add_step_type("script", echo, check=refuse)
    with pytest.raises(SetupError, match="w lacks something"):
        world.start(workflow("w"))
    assert len(world.store.records()) == 1


def test_only_types_that_definitions_know_can_be_added():
    with pytest.raises(NotFoundError, match=r"step type not found: scirpt .*script"):
        environment().add_step_type("scirpt", None)
    with pytest.raises(NotFoundError, match="step type not found: teleport"):
        environment().internals.registry.step_handler("teleport")


def test_an_agent_whose_server_has_a_taken_name_is_not_taken_in():
    world = environment(servers=[MCPServerDefinition("files", "stdio", command="one")])
    with pytest.raises(AlreadyRegisteredError, match="mcp server already registered: files"):
        world.add_agent(Agent("reader", servers=[MCPServerDefinition("files", "stdio", command="other")]))
    assert world.definitions.agents == {}


def test_an_environment_lists_its_runs_and_gives_frames_and_workers():
    with Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1", store="n")])]) as world:
        first, second = world.start("w", tags=["a"]).wait(), world.start("w").wait()
        assert (world.runs(), world.runs(tag="a"), world.runs(limit=1)) == ([second, first], [first], [second])
        assert [*world.frames({"tag": "a"}).executions["execution_id"]] == [first.id]
        with world.worker(["labels"]) as worker:
            enqueued = world.enqueue("w", queue="labels")
            assert (enqueued.wait(20).status, worker.queues) == ("completed", ("labels",))
        assert (world.queues.queued(), world.queues.workers(), world.queues.recoverable()) == ([], [], [])


def test_members_that_moved_are_named_by_the_error():
    with Environment(store="memory:") as world:
        for name, place in REMOVED.items():
            with pytest.raises(AttributeError) as error:
                getattr(world, name)
            assert place in str(error.value)


def test_an_environment_has_few_members():
    # Plumbing belongs to `internals`, what concerns one run to `Run`, lists of a kind to the part objects.
    assert len([name for name in dir(Environment) if not name.startswith("_")]) <= 26
    with Environment(store="memory:") as world:
        assert {name for name in vars(world) if name[0] != "_"} == {"description", "internals", "name", "store"}


def test_members_of_a_run_that_moved_are_named_by_the_error_and_exist():
    with Environment(store="memory:") as world:
        run = world.start(Workflow("w", [Step("s", script="1")])).wait()
        for name, place in RUN_REMOVED.items():
            with pytest.raises(AttributeError) as error:
                getattr(run, name)
            assert place in str(error.value)
            found = run
            for part in place.removeprefix("run").strip(".").removesuffix("()").split("."):
                found = getattr(found, part) if part and found is not None else found
        names = {name for name in dir(run) if not name.startswith("_")}
        assert not names & RUN_REMOVED.keys()
        # What is not for users belongs to `RunInternals`.
        assert len(names) <= 72, sorted(names)

"""What one environment has of another that it takes in: files, cells and other stores run it as its own process would.

All that an environment can be given is here, each with what shows that it is there: a new field fails the first test.
"""

import inspect
from concurrent.futures import ThreadPoolExecutor
from threading import current_thread
from typing import NamedTuple

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from divebook import Agent, Environment, Step, Workflow
from divebook.definitions import ApprovalRule, read_definitions
from divebook.definitions.resources import WorkspaceDefinition
from divebook.definitions.servers import MCPServerDefinition
from divebook.definitions.step import Ask
from divebook.documents import MemoryDocuments, Policy
from divebook.environments import Formatter
from divebook.errors import NotFoundError
from divebook.notebook.session import Session
from divebook.runtime.step import Outcome
from divebook.scripting import Interpreter
from divebook.steps.actions import Action
from divebook.stores.codec import FernetCodec
from divebook.telemetry import Telemetry

KEPT = {
    "store": "the command line, or who else runs it, says where the log is",
    "printer": "the one that runs it has the terminal, or the cell",
    "clock": "time is that of the process",
    "chance": "so is chance",
}
HELD = Workflow("held", [Step("s", script="1 + 1", store="n")])


class Heard(Formatter):
    def __init__(self):
        self.steps = []

    def step_started(self, step):
        self.steps.append(step.step)


class Counted(Interpreter):
    uses = 0

    def run_script(self, *args, **kwargs):
        self.uses += 1
        return super().run_script(*args, **kwargs)


class Field(NamedTuple):
    make: object
    """What to give; is given a folder."""
    shown: object
    """What shows it in an environment that has it, and shows something else in one that has not."""


def run(world, *steps):
    return world.start(Workflow("w", list(steps))).wait(20)


def is_told(world):
    execution = run(world, Step("a", ask=Ask("Which?")))
    world.close()  # which waits for the hook
    return execution.id in [entry["execution_id"] for entry in TOLD]


def is_counted(world):
    before = COUNTED.uses
    run(world, *HELD.steps)
    return COUNTED.uses > before


def is_heard(world):
    HEARD.steps.clear()
    run(world, *HELD.steps)
    return HEARD.steps == ["s"]


def traced(world):
    SPANS.clear()
    run(world, *HELD.steps)
    world.close()  # which waits for what is to be told
    return [span.name for span in SPANS.get_finished_spans()]


def thread_of(world, **named):
    world.internals.take_in(Environment(store="memory:", actions=[WHERE]))
    try:
        return run(world, Step("a", action="Where", store="it", **named)).variables.get("it")
    except NotFoundError:  # there is no executor of that name
        return None


def threads(_):
    return ThreadPoolExecutor(1, "own")


def looked_up(name: str) -> str:
    """Look something up."""
    return name


WHERE = Action("Where", lambda: current_thread().name.partition("_")[0], "")
TOLD, HEARD, COUNTED = [], Heard(), Counted()
SPANS = InMemorySpanExporter()
TRACED = Telemetry([SimpleSpanProcessor(SPANS)])
RULE = ApprovalRule("looked_up", outcome="deny")
SERVER = MCPServerDefinition("git", command="git-server")
TAKEN = {
    "name": Field(lambda _: "research", lambda world: world.name),
    "agents": Field(
        lambda _: [Agent("critic", model="scripted")], lambda world: world.internals.registry.default_agent
    ),
    "workflows": Field(lambda _: [HELD], lambda world: tuple(world.internals.registry.registered_workflows.values())),
    "actions": Field(lambda _: [WHERE], lambda world: world.definitions.actions.get("Where")),
    "tools": Field(lambda _: [looked_up], lambda world: world.definitions.tools.get("looked_up")),
    "servers": Field(
        lambda _: [SERVER],
        lambda world: [
            (server.definition, server.policy.allowed) for server in world.internals.registry.servers.values()
        ],
    ),
    "workspaces": Field(lambda _: [WorkspaceDefinition("app")], lambda world: world.definitions.workspaces),
    "documents": Field(
        lambda _: MemoryDocuments({"notes.md": "kept"}), lambda world: world.definitions.documents.list()
    ),
    "documents_dir": Field(lambda folder: folder, lambda world: world.definitions.documents.root),
    "durability": Field(lambda _: "relaxed", lambda world: run(world, *HELD.steps).internals.durability),
    "notify": Field(lambda _: TOLD.append, is_told),
    "interpreter": Field(lambda _: COUNTED, is_counted),
    "executor": Field(threads, thread_of),
    "executors": Field(lambda folder: {"own": threads(folder)}, lambda world: thread_of(world, executor="own")),
    "approvals": Field(lambda _: [RULE], lambda world: world.internals.registry.approvals_for("").rules),
    "formatter": Field(lambda _: HEARD, is_heard),
    "telemetry": Field(lambda _: TRACED, traced),
    "policy": Field(lambda _: Policy("programs"), lambda world: world.internals.registry.policy.allowed),
    "codec": Field(lambda _: FernetCodec(FernetCodec.new_key()), lambda world: world.store.sealing.codec),
}
"""Each field with what is given, and what shows whether it is there."""


def test_of_each_field_it_is_said_whether_it_is_taken():
    fields = set(inspect.signature(Environment.__init__).parameters) - {"self"}
    assert fields == {*TAKEN, *KEPT}
    assert not KEPT.keys() & TAKEN.keys()


@pytest.mark.parametrize("name", [*TAKEN])
def test_what_an_environment_was_given_holds_in_one_that_takes_it_in(name, tmp_path):
    given, shown = TAKEN[name]
    other, bare, taking = Environment(store="memory:", **{name: given(tmp_path)}), environment(), environment()
    taking.internals.take_in(other)
    found = shown(taking)
    assert found == shown(other)
    assert found != shown(bare)


@pytest.mark.parametrize("name", [*TAKEN])
def test_taking_in_twice_is_once(name, tmp_path):
    given, shown = TAKEN[name]
    other, taking = Environment(store="memory:", **{name: given(tmp_path)}), environment()
    for _ in range(3):
        taking.internals.take_in(other)
    assert shown(taking) == shown(other)


def environment():
    return Environment(store="memory:")


def test_definitions_are_taken_in_with_their_settings():
    other, taking = environment(), environment()
    other.define(
        read_definitions("""
Config:
  {DefaultProvider: openai, DefaultModel: gpt-6, ConfirmationMode: always, Approvals: [{Tool: erase, Outcome: deny}]}
Tools: [{Name: fetch, Limit: 2}]
Documents: [{Name: guide, Path: docs/guide.md}]
Agents: [{Name: critic}]
""")
    )
    for _ in range(2):
        taking.internals.take_in(other)
    assert taking.internals.registry.agent("critic") is other.internals.registry.agent("critic")
    assert taking.internals.registry.approvals_for("critic") == other.internals.registry.approvals_for("critic")
    assert taking.definitions.documents.resolve("guide") == "docs/guide.md"
    taking.define(read_definitions("Agents: [{Name: writer}]"))
    assert taking.internals.registry.agent("writer").model_name == "openai:gpt-6"


def test_what_an_environment_takes_in_wins_also_over_a_definition_that_is_read_again():
    taking = environment()
    taking.define(read_definitions("Agents: [{Name: critic, Model: openai:gpt-6}]"))
    taking.internals.take_in(Environment(store="memory:", agents=[Agent("critic", model="scripted")]))
    taking.define(read_definitions("Agents: [{Name: writer}]"))
    assert taking.internals.registry.agent("critic").model_name == "scripted"


def test_of_two_policies_what_both_allow_is_allowed():
    taking = environment()
    for policy in (Policy("programs", "files"), Policy("files")):
        taking.internals.take_in(Environment(store="memory:", policy=policy))
    assert taking.internals.registry.policy.allowed == {"files"}


def test_rules_that_look_alike_all_hold():
    """`1` and `True` are equal for Python, and no rule may go for that."""
    taking = environment()
    for value in (1, True):
        taking.internals.take_in(Environment(store="memory:", approvals=[ApprovalRule("t", arguments={"n": value})]))
    assert [type(rule.arguments["n"]) for rule in taking.internals.registry.approvals_for("").rules] == [int, bool]


def test_a_type_of_step_that_was_given_is_taken_in():
    async def echo(context):
        return Outcome("echoed", value="echoed")

    other, taking = environment(), environment()
    other.add_step_type("script", echo)
    taking.internals.take_in(other)
    assert run(taking, *HELD.steps).variables == {"n": "echoed"}


def test_a_notebook_has_all_of_its_environment_on_another_store(tmp_path):
    session = Session("memory:")
    session.environment.add_tool(looked_up)
    session.environment.internals.take_in(Environment(store="memory:", approvals=[RULE], policy=Policy("programs")))
    over = session.over(str(tmp_path / "other.db"))
    assert (over.definitions.tools["looked_up"].function, over.internals.registry.approvals_for("").rules) == (
        looked_up,
        (RULE,),
    )
    assert over.internals.registry.policy.allowed == {"programs"}
    session.close()

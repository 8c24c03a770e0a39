"""Objects of the wrong shape at the entry points of the public API: refused at once, with an error of ours.

Each entry point is called with every wrong object and must raise a `DivebookError`, which says what was expected. An
AttributeError about an attribute of the library, or a run that fails later, is a fault.
"""

from types import SimpleNamespace

import pandas as pd
import pytest

import divebook
from divebook import Agent, Bounds, DivebookError, Environment, Step, Workflow
from divebook.definitions import step, workflow
from divebook.errors import SetupError
from divebook.notebook.session import open_session
from divebook.pipeline import Pipeline
from divebook.queues import Worker

FLOW = Workflow("w", [Step("a", script="1", store="x")])


class Stranger:
    """An object of a user's own class."""

    name, description, id = "Mine", "", 7

    def execute(self, context, **parameters):
        return 1


WRONG = {
    "a number": 5,
    "an object": Stranger(),
    "a class": Stranger,
    "a list of numbers": [1, 2],
    "bytes": b"x",
    "a namespace": SimpleNamespace(name="x"),
}


def of(**settings):
    return Environment(**{"store": "memory:", **settings})


@pytest.fixture
def environment():
    with Environment(store="memory:", workflows=[FLOW]) as made:
        made.start(FLOW).wait(10)
        yield made


@pytest.fixture(autouse=True)
def _session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_session("memory:")


SETTINGS = [
    *("store", "documents", "documents_dir", "printer", "durability", "notify", "clock", "chance", "interpreter"),
    *("executor", "executors", "approvals", "formatter", "policy", "codec", "telemetry"),
]
MANY = ["agents", "workflows", "actions", "tools", "servers", "workspaces"]
ACCEPTED = {
    ("printer", "a class"),
    ("notify", "a class"),
    ("executor", "a class"),
    ("executor", "a list of numbers"),
    ("tools", "a class"),
}
"""A class can be called; what it is called with is checked where it is called."""


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_of_an_environment(setting, wrong):
    if (setting, wrong) in ACCEPTED:
        return
    with pytest.raises(DivebookError) as raised:
        of(**{setting: WRONG[wrong]})
    assert setting.rstrip("s") in str(raised.value).lower()


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("setting", MANY)
def test_what_an_environment_begins_with(setting, wrong):
    if (setting, wrong) in ACCEPTED:
        return
    with pytest.raises(DivebookError):
        of(**{setting: [WRONG[wrong]]})
    with pytest.raises(DivebookError, match=setting):
        of(**{setting: 5})


ENVIRONMENT = {
    "define": lambda environment, wrong: environment.define(wrong),
    "add_agent": lambda environment, wrong: environment.add_agent(wrong),
    "add_workflow": lambda environment, wrong: environment.add_workflow(wrong),
    "add_tool": lambda environment, wrong: environment.add_tool(wrong),
    "add_server": lambda environment, wrong: environment.add_server(wrong),
    "add_workspace": lambda environment, wrong: environment.add_workspace(wrong),
    "start": lambda environment, wrong: environment.start(wrong),
    "start with inputs": lambda environment, wrong: environment.start("w", wrong),
    "start with bounds": lambda environment, wrong: environment.start("w", bounds=wrong),
    "start with identity": lambda environment, wrong: environment.start("w", identity=wrong),
    "start with tags": lambda environment, wrong: environment.start("w", tags=wrong),
    "start with a key": lambda environment, wrong: environment.start("w", key=wrong),
    "start with durability": lambda environment, wrong: environment.start("w", durability=wrong),
    "start with a model": lambda environment, wrong: environment.start("w", model=wrong),
    "fire": lambda environment, wrong: environment.schedules.fire(wrong),
    "executions": lambda environment, wrong: environment.store.records(status=wrong),
    "executions of a workflow": lambda environment, wrong: environment.store.records(workflow=wrong),
    "executions with a tag": lambda environment, wrong: environment.store.records(tag=wrong),
    "answer": lambda environment, wrong: environment.answer(wrong, "x"),
    "take_in": lambda environment, wrong: environment.internals.take_in(wrong),
    "open and keep": lambda environment, wrong: environment.open(wrong, keep=True),
    "enqueue": lambda environment, wrong: environment.enqueue(wrong),
    "stored": lambda environment, wrong: environment.internals.beside(wrong),
    "run_of": lambda environment, wrong: environment.run_of(wrong),
    "recover": lambda environment, wrong: environment.queues.recover(wrong),
    "signal": lambda environment, wrong: environment.run_of(wrong).signal("name"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", ENVIRONMENT)
def test_a_method_of_an_environment(environment, call, wrong):
    if (call, wrong) == ("add_tool", "a class"):
        return
    with pytest.raises(DivebookError):
        ENVIRONMENT[call](environment, WRONG[wrong])


FUNCTIONS = {
    "define": divebook.define,
    "run": divebook.run,
    "runs": divebook.runs,
    "runs of": lambda wrong: divebook.runs(of=wrong),
    "show": divebook.show,
    "resume": divebook.resume,
    "compare": lambda wrong: divebook.compare(wrong, wrong),
    "frames": divebook.frames,
    "load": divebook.config.load,
    "lint": divebook.definitions.lint,
    "open_store": divebook.stores.open_store,
    "Workflow": Workflow,
    "Workflow of steps": lambda wrong: Workflow("w", wrong),
    "Workflow with inputs": lambda wrong: Workflow("w", [Step("a", script="1")], inputs=wrong),
    "Workflow with outputs": lambda wrong: Workflow("w", [Step("a", script="1")], outputs=wrong),
    "Workflow with bounds": lambda wrong: Workflow("w", [Step("a", script="1")], bounds=wrong),
    "Workflow with triggers": lambda wrong: Workflow("w", [Step("a", script="1")], triggers=wrong),
    "Step": lambda wrong: Step(wrong, script="1"),
    "Step with each": lambda wrong: Step("a", script="1", each=wrong),
    "Step with retry": lambda wrong: Step("a", script="1", retry=wrong),
    "Step with parameters": lambda wrong: Step("a", action="Print", parameters=wrong),
    "Agent": Agent,
    "Agent with a model": lambda wrong: Agent("a", model=wrong),
    "Agent with tools": lambda wrong: Agent("a", model="scripted", tools=[wrong]),
    "Agent with tools as such": lambda wrong: Agent("a", model="scripted", tools=wrong),
    "Bounds": Bounds.read,
    "Worker": Worker,
    "step": step,
    "action": divebook.action,
    "tool": divebook.tool,
    "workflow": workflow,
    "rollback": lambda wrong: step(rollback=wrong),
    "executor": lambda wrong: step("t", executor=wrong)(lambda: 1),
    "retry": lambda wrong: step(retry=wrong),
    "timeout": lambda wrong: step("t", timeout=wrong)(lambda: 1),
    "allow": divebook.allow,
    "Pipeline": Pipeline,
    "map": lambda wrong: divebook.map(pd.DataFrame({"a": [1]}), wrong),
    "map of": lambda wrong: divebook.map(wrong, len),
}
CALLABLE = {(name, "a class") for name in ("step", "action", "tool", "rollback", "executor", "map", "lint")}
NOT_WRONG = CALLABLE | {
    ("Agent with tools", "a class"),
    ("Step with each", "a number"),
    ("Step with each", "a list of numbers"),
    *((name, "a number") for name in ("Step with retry", "retry", "timeout")),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", FUNCTIONS)
def test_a_function_or_class(call, wrong):
    if (call, wrong) in NOT_WRONG:
        return
    with pytest.raises(DivebookError):
        FUNCTIONS[call](WRONG[wrong])


def test_an_execution_and_a_run_stand_for_their_id():
    environment = open_session("memory:").environment
    waits = Workflow("waits", [Step("a", type="wait", signal="go")])
    for flow in (FLOW, waits):
        environment.add_workflow(flow)
    execution = environment.start(FLOW).wait(10)
    for stand_in in (lambda one: one, lambda one: one.id):
        given = stand_in(execution)
        assert environment.run_of(given).id == execution.id
        assert str(environment.run_of(given).why("x")) == str(environment.run_of(execution.id).why("x"))
        assert environment.run_of(given).fork(1).wait(10).variables == {"x": 1}
        assert environment.run_of(given).tag("seen").tags == ("seen",)
        assert [run.id for run in divebook.runs(of=[given])] == [execution.id]
        assert environment.run_of(given).verify().equal
        waiting = environment.start(waits).wait(10)
        assert environment.run_of(stand_in(waiting)).cancel().wait(10).id == waiting.id
        assert waiting.status == "cancelled"


def test_what_action_returned_is_an_action_of_an_environment():
    @divebook.action("Own")
    def own() -> int:
        return 1

    run = of(actions=[own], workflows=[Workflow("v", [Step("a", action="Own", store="x")])]).start("v").wait(10)
    assert run.variables == {"x": 1}


def test_a_filter_that_there_is_not_is_named():
    with pytest.raises(SetupError, match=r"filtered by 'tagg' .*tag"):
        divebook.runs(tagg="x")

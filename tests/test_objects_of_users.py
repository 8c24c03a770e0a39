"""Objects that users pass are refused where they are passed, by an error in Python's words, or they work."""

import functools
import inspect
import time
from typing import get_origin
from unittest.mock import Mock

import pytest

from divebook import Agent, Environment, Retry, Run, ScriptedModel, Step, Workflow, action
from divebook.documents import MemoryDocuments
from divebook.environments import Formatter
from divebook.environments.environment import _EXPECTED, _PROTOCOLS
from divebook.errors import DefinitionError, DivebookError, SetupError
from divebook.queues import Worker
from divebook.steps import Action
from divebook.steps.actions import REGISTERED, action_of
from divebook.stores import MemoryStore
from divebook.stores.registry import register_store
from divebook.workspaces import ResourceRegistry


class Silent(MemoryDocuments):
    def __init__(self):
        pass


class SilentStore(MemoryStore):
    def __init__(self):
        pass


class OwnRepository:
    def read(self, name):
        return "text"


class SyncClock:
    def now(self):
        return 1

    def sleep(self, seconds): ...


class Half(SyncClock):
    sleep = None


class Deaf(Formatter):
    def step_started(self): ...


class OwnAction:
    name = "Mine"

    def execute(self, context, **parameters):
        return 1


class Hook:
    def __call__(self, question): ...


class LateHook:
    async def __call__(self, question): ...


async def late(question): ...


ENVIRONMENT = [
    ("store", OwnRepository(), "it has no method append, ids; read takes (name)"),
    ("store", MemoryStore, "write MemoryStore() to pass an instance"),
    ("store", SilentStore(), "call super().__init__()"),
    ("store", Mock(), "an attribute for every name"),
    ("documents", OwnRepository(), "its class is not derived from DocumentRepository"),
    ("documents", Silent(), "it has no attribute _names, _libraries; let Silent.__init__ call super().__init__()"),
    ("documents", Silent, "write Silent() to pass an instance"),
    ("documents", "texts", "must be FileDocuments('texts'), MemoryDocuments(), or"),
    ("formatter", Deaf(), "step_started takes (), but is called with (step)"),
    ("formatter", Deaf, "write Deaf() to pass an instance"),
    ("clock", SyncClock(), "sleep is not a coroutine function; write `async def`"),
    ("clock", Half(), "sleep is None, not a method"),
    ("clock", time, "the module time: it has no method now"),
    ("clock", Mock(), "write Mock(spec=...)"),
    ("chance", object(), "divebook.runtime.clock.Chance (bits(count))"),
    ("codec", object(), "it has no method encrypt, decrypt"),
    ("interpreter", "1", "an instance of divebook.scripting.interpreter.Interpreter"),
    ("policy", "files", "must be Policy('files')"),
    ("printer", lambda: None, "it takes (), but is called with (argument1)"),
    ("printer", late, "is called without `await`"),
    ("notify", Hook, "write Hook() to pass an instance"),
    ("notify", LateHook(), "is called without `await`"),
    ("notify", functools.partial(late), "is called without `await`"),
    ("notify", 5, "a command as a string or a list of strings"),
    ("telemetry", object(), "telemetry must be True, False"),
    ("executor", 3, "an executor must be a name"),
    ("executor", lambda size: size, "without arguments"),
    ("executors", {"gpu": object()}, "an executor must be a name"),
    ("actions", [OwnAction()], "actions=[Action('name', object.execute)]"),
    ("actions", [OwnAction], "not the class OwnAction"),
    ("actions", [lambda: 1], "needs a name"),
    ("tools", [OwnAction()], "a tool must be a function"),
    ("agents", [OwnAction()], "an agent must be a divebook.Agent or a pydantic_ai.Agent, not a OwnAction"),
    ("agents", [Agent], "not the class Agent"),
    ("agents", [Mock()], "not a Mock"),
    ("workflows", [late], "a Workflow is expected, not a function; write @workflow above"),
    ("servers", ["files"], "a MCPServerDefinition is expected, not 'files'"),
    ("workspaces", ["src"], "a WorkspaceDefinition is expected, not 'src'"),
]


@pytest.mark.parametrize(("name", "value", "expected"), ENVIRONMENT)
def test_an_environment_refuses_a_wrong_object_before_it_opens_its_store(tmp_path, name, value, expected):
    store = tmp_path / "runs.db"
    with pytest.raises((SetupError, DefinitionError)) as refused:
        Environment(**{"store": store, name: value})
    assert expected in str(refused.value)
    assert not store.exists()


AGENT = [
    ({"definition": None}, "definition must be the name of the agent"),
    ({"model": object()}, "divebook.agents.agent.RequestsModel (request("),
    ({"model": ScriptedModel}, "write ScriptedModel() to pass an instance"),
    ({"model": Mock()}, "an attribute for every name"),
    ({"tools": [5]}, "a tool must be a function, not 5"),
    ({"tools": None}, "tools must be a list"),
    ({"subordinates": "critic"}, "write subordinates=['critic']"),
    ({"subordinates": [Agent("critic")]}, "write 'critic'"),
    ({"capabilities": 5}, "capabilities must be a list"),
    ({"capabilities": [5]}, "capabilities must be pydantic-ai capabilities, not 5"),
]


@pytest.mark.parametrize(("arguments", "expected"), AGENT)
def test_an_agent_refuses_a_wrong_object(arguments, expected):
    with pytest.raises((SetupError, DefinitionError)) as refused:
        Agent(**{"definition": "clerk", **arguments})
    assert expected in str(refused.value)


OTHER = {
    "Agent.of": lambda: Agent.of(OwnAction()),
    "script": lambda: ScriptedModel(5),
    "handler": lambda: Environment(store="memory:").add_step_type("script", lambda context: None),
    "check": lambda: Environment(store="memory:").add_step_type("script", late, lambda: None),
    "schedule": lambda: Environment(store="memory:").schedules.add("daily"),
    "definitions": lambda: Environment(store="memory:").define(None),
    "closer": lambda: Environment(store="memory:").internals.on_close(late),
    "listener": lambda: MemoryStore().subscribe(lambda events: None),
    "news": lambda: MemoryStore().on_news(None),
    "factory": lambda: register_store("own", MemoryStore),
    "resource": lambda: ResourceRegistry().register_factory("page", lambda workspace: None),
    "library": lambda: MemoryDocuments().include("own://", OwnRepository()),
}


@pytest.mark.parametrize("make", OTHER.values(), ids=OTHER)
def test_other_entry_points_refuse_a_wrong_object(make):
    with pytest.raises(SetupError):
        make()


@pytest.fixture(scope="module")
def run():
    with Environment(store="memory:") as environment:
        yield environment.start(Workflow("w", [Step("a", script="1", store="x")])).wait(10)


OF_A_RUN = {
    "try_step": lambda run, wrong: run.try_step(wrong),
    "files": lambda run, wrong: run.files(wrong),
    "why": lambda run, wrong: run.why(wrong),
    "verify": lambda run, wrong: run.verify(wrong),
    "answer": lambda run, wrong: run.answer(wrong, 1),
    "signal": lambda run, wrong: run.signal(wrong),
    "fork": lambda run, wrong: run.fork(change=wrong),
    "what_if": lambda run, wrong: run.what_if(wrong),
    "tag": lambda run, wrong: run.tag(wrong),
    "note": lambda run, wrong: run.note(wrong),
    "compare": lambda run, wrong: run.compare(wrong),
    "Run": Run,
    "Worker": lambda run, wrong: Worker(wrong),
    "queues": lambda run, wrong: Worker(Environment(store="memory:"), wrong),
    "schedules": lambda run, wrong: Worker(Environment(store="memory:"), schedules=wrong),
    "edges": lambda run, wrong: Step("a", script="1", edges=wrong),
    "content": lambda run, wrong: Step("a", content=wrong),
    "catch": lambda run, wrong: Step("a", script="1", catch=wrong),
    "errors": lambda run, wrong: Retry(errors=wrong),
    "steps": lambda run, wrong: Workflow("w", wrong),
    "approvals": lambda run, wrong: Agent("a", approvals=wrong),
}


@pytest.mark.parametrize("wrong", [5, OwnAction(), late], ids=["number", "object", "function"])
@pytest.mark.parametrize("call", OF_A_RUN.values(), ids=OF_A_RUN)
def test_runs_workers_and_definitions_refuse_a_wrong_argument_in_words(run, call, wrong):
    with pytest.raises(DivebookError) as refused:
        call(run, wrong)
    assert "object has no attribute" not in str(refused.value)


def test_objects_of_the_right_shape_work():
    class Steady:
        def now(self):
            return 1_700_000_000_000_000

        async def sleep(self, seconds): ...

    with Environment(store="memory:", clock=Steady(), notify=Hook(), printer=[].append) as environment:
        execution = environment.start(Workflow("w", [Step("a", script="1 + 1", store="n")])).wait(10)
    assert execution.variables == {"n": 2}


# --- callables as actions ---


class Client:
    @action("Client.Send", approval=True)
    def send(self, text: str = "") -> str:
        return text

    def read(self, name: str = "") -> str:
        """Read a name."""
        return name

    def __call__(self, name: str = "x") -> str:
        return name * 2


@pytest.fixture
def client():
    yield Client()
    REGISTERED.pop("Top", None)


@pytest.mark.parametrize(
    ("make", "name", "approval"),
    [
        (lambda client: client.read, "read", False),
        (lambda client: client, "Client", False),
        (lambda client: functools.partial(client.read, name="a"), "read", False),
        (lambda client: client.send, "Client.Send", True),
        (lambda client: functools.partial(client.send, text="a"), "Client.Send", True),
        (lambda client: Action("Own", client.read), "Own", False),
    ],
)
def test_every_callable_with_a_name_is_an_action_and_keeps_the_options_of_its_decorator(client, make, name, approval):
    made = action_of(make(client))
    assert (made.name, made.approval) == (name, approval)


def test_a_step_calls_a_method_a_partial_and_an_object(client):
    actions = [client.read, client, functools.partial(time.strftime, "%Y")]
    steps = [
        Step("a", action="read", parameters={"name": "n"}, store="a"),
        Step("b", action="Client", store="b"),
    ]
    with pytest.raises(DivebookError):  # C code: a parameter of it has no name
        Environment(store="memory:", actions=actions)
    with Environment(store="memory:", actions=actions[:2]) as environment:
        assert environment.start(Workflow("w", steps)).wait(10).variables == {"a": "n", "b": "xx"}


# --- one mechanism ---

LISTS = {"agents", "workflows", "actions", "tools", "servers", "workspaces", "approvals"}
PARSED = {"store", "notify", "executor", "telemetry"}
"""Arguments that may be text as well, and are checked one by one."""


def test_each_argument_of_an_environment_is_checked():
    arguments = {*inspect.signature(Environment).parameters}
    unchecked = arguments - {*_EXPECTED, *_PROTOCOLS} - LISTS - PARSED
    assert unchecked == set(), "an object is refused where it is passed: add its protocol to `_PROTOCOLS`"
    assert all(isinstance(protocol, type) or get_origin(protocol) for protocol, _ in _PROTOCOLS.values())

"""Callables that are not plain functions, as steps, actions and tools: they work, or the error says what to write."""

import dataclasses
import functools
from typing import Any

import pytest

from divebook import Agent, Context, Environment, ScriptedModel, Step, Workflow, action, tool
from divebook.definitions import WorkflowFunction, step, workflow
from divebook.definitions.tools import tool_of
from divebook.errors import DefinitionError
from divebook.steps.actions import REGISTERED


@dataclasses.dataclass
class Client:
    """A client, which has no hash."""

    mark: str = "!"

    def search(self, word: str) -> str:
        """Search."""
        return word + self.mark

    async def search_slowly(self, word: str) -> str:
        """Search."""
        return word + self.mark

    def __call__(self, word: str) -> str:
        """Search."""
        return word + self.mark

    @classmethod
    def of_class(cls, word: str) -> str:
        """Search."""
        return word + cls().mark

    @staticmethod
    def of_none(word: str) -> str:
        """Search."""
        return word + "!"


class Slow:
    async def __call__(self, word: str) -> str:
        """Search."""
        return word + "!"


def search(mark: str, word: str) -> str:
    """Search."""
    return word + mark


async def search_slowly(word: str, mark: str) -> str:
    """Search."""
    return word + mark


def logged(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


@logged
def wrapped(word: str) -> str:
    """Search."""
    return word + "!"


CALLABLES = {
    "search": Client().search,
    "search_slowly": Client().search_slowly,
    "Client": Client(),
    "Slow": Slow(),
    "of_class": Client.of_class,
    "of_none": Client.of_none,
    "wrapped": wrapped,
}
PARTIALS = {
    "search": functools.partial(search, "!"),
    "search_slowly": functools.partial(search_slowly, mark="!"),
    "Client": functools.partial(Client()),
}
ALL = [*CALLABLES.items(), *PARTIALS.items(), ("of_none", Client.__dict__["of_none"])]
IDS = [*CALLABLES, *(f"partial {name}" for name in PARTIALS), "staticmethod"]


@pytest.fixture(autouse=True)
def _no_actions_left(monkeypatch):
    monkeypatch.setattr("divebook.steps.actions.REGISTERED", REGISTERED)
    known = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(known)


@pytest.mark.parametrize(
    ("name", "given"), ALL, ids=[*CALLABLES, *(f"partial {name}" for name in PARTIALS), "staticmethod"]
)
@pytest.mark.parametrize("decorator", [step, step("named"), step(name="named"), step(retry=2)], ids="abcd")
def test_a_step(name, given, decorator):
    made = decorator(given)

    @workflow
    async def calling(ctx):
        return await made("a")

    run = Environment(store="memory:").start(calling).wait(10)
    assert (run.status, run.outputs) == ("completed", {"result": "a!"})


@pytest.mark.parametrize(
    ("name", "given"), ALL, ids=[*CALLABLES, *(f"partial {name}" for name in PARTIALS), "staticmethod"]
)
def test_an_action(name, given):
    action(given)
    flow = Workflow("w", [Step("a", action=name, parameters={"word": "a"}, store="x")])
    run = Environment(store="memory:", workflows=[flow]).start(flow).wait(10)
    assert (run.status, run.variables) == ("completed", {"x": "a!"})


@pytest.mark.parametrize(
    ("name", "given"), ALL, ids=[*CALLABLES, *(f"partial {name}" for name in PARTIALS), "staticmethod"]
)
def test_a_tool_of_an_agent(name, given):
    for made in (given, tool(given), tool(read_only=True)(given)):
        known = tool_of(made)
        assert (known.name, known.description) == (name, "Search.")
        agent = Agent("clerk", model=ScriptedModel([{"call": {name: {"word": "a"}}}, "done"]), tools=[made])
        flow = Workflow("w", [Step("ask", agent="clerk", prompt="go", store="x")])
        run = Environment(store="memory:", agents=[agent], workflows=[flow]).start(flow).wait(20)
        assert (run.status, run.error) == ("completed", None)
        assert "a!" in str([getattr(event.data, "result", None) for event in run.store.read(run.id)])


@pytest.mark.parametrize("decorator", [step, action, tool], ids=["step", "action", "tool"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: 1, r"needs a name: <function .*<lambda>.*name="),
        (functools.partial(lambda: 1), r"needs a name.*name="),
        (max, r"cannot use <built-in function max>: no signature found .*wrap it in a function"),
        (classmethod(lambda cls: 1), r"cannot be written above @classmethod .*write @classmethod above"),
        (5, r"the name in @\w+\(\.\.\.\) must be a string, not 5"),
    ],
    ids=["lambda", "partial", "builtin", "classmethod", "number"],
)
def test_what_cannot_be_one_is_refused_with_what_to_write(decorator, given, message):
    with pytest.raises(DefinitionError, match=message):
        decorator(given)


def test_what_is_no_function_at_all_is_refused():
    with pytest.raises(DefinitionError, match="@step expects a function, not 'a text'"):
        step("name")("a text")


def test_a_method_undoes_calls():
    undone = []

    class Hotel:
        def cancel(self, result):
            undone.append(result)

    @step(rollback=Hotel().cancel)
    def book():
        return "room"

    @workflow
    async def booking(ctx):
        await book()
        raise ValueError("no")

    run = Environment(store="memory:").start(booking).wait(10)
    assert (run.status, undone) == ("failed", ["room"])


def test_a_partial_cannot_undo_calls_since_no_process_finds_it_again():
    with pytest.raises(DefinitionError, match="it has no name by which a later process could find it"):
        step(rollback=functools.partial(search, "!"))


@pytest.mark.parametrize("changed", [dataclasses.replace, Workflow.like], ids=["replace", "like"])
def test_a_changed_copy_of_a_workflow_function_keeps_the_function(changed):
    @workflow
    async def double(ctx, n: int):
        return 2 * n

    copy = changed(double, description="Doubles a number")
    assert (type(copy), copy.function) == (type(double), double.function)
    assert (copy.description, copy.steps, copy.to_dict() == double.to_dict()) == (
        "Doubles a number",
        double.steps,
        False,
    )
    assert Workflow.from_dict(double.to_dict()) == double


def test_a_workflow_function_is_generic_also_at_run_time():
    assert WorkflowFunction[[int], str] == WorkflowFunction[[int], str, Any]
    assert WorkflowFunction[..., str, Context].__args__[1:] == (str, Context)


def counted(n: int):
    yield n


async def counted_later(n: int):
    yield n


class Counting:
    def __call__(self, n: int):
        yield n

    def counted(self, n: int):
        yield n


GENERATORS = {
    "function": counted,
    "async function": counted_later,
    "object": Counting(),
    "method": Counting().counted,
    "partial": functools.partial(counted, n=1),
}


@pytest.mark.parametrize("decorator", [step, action, tool])
@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_is_refused_before_it_is_called(kind, decorator):
    with pytest.raises(DefinitionError, match="is a generator, but a call must return a single result"):
        decorator("numbers")(GENERATORS[kind])


def test_a_decorator_may_make_a_list_of_what_a_generator_yields():
    @functools.wraps(counted)
    def listed(n):
        return list(counted(n))

    assert step(listed).fn(3) == [3]


@functools.singledispatch
def doubled(n: int) -> int:
    return 2 * n


def by_position(n: int, /, by: int = 1) -> int:
    return n + by


class Point:
    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.parametrize(("function", "expected"), [(doubled, 6), (by_position, 4)])
def test_functions_whose_arguments_go_by_position_are_called_so(function, expected):
    called = action("By.Position", idempotent=True)(function)
    try:
        flow = Workflow("w", [Step("s", action="By.Position", parameters={"n": 3}, store="result")], outputs=["result"])
        with Environment(store="memory:", workflows=[flow], actions=[called]) as world:
            assert world.start("w").result() == expected
            world.add_workflow(Workflow("wrong", [Step("s", action="By.Position", parameters={"m": 3})]))
            assert "By.Position" in world.start("wrong").wait().error
    finally:
        REGISTERED.pop("By.Position")


def test_a_class_as_a_tool_has_the_parameters_of_its_constructor():
    made = tool("point")(Point)
    agent = Agent("a", model=ScriptedModel(["done"]), tools=[made])
    flow = Workflow("w", [Step("s", agent="a", prompt="Go", store="result")], outputs=["result"])
    with Environment(store="memory:", agents=[agent], workflows=[flow]) as world:
        assert world.start("w").result() == "done"

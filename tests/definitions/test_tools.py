"""What can be a tool, and what is known of it."""

import functools

import pytest

from divebook import Environment, tool
from divebook.definitions.step import Retry
from divebook.definitions.tools import REGISTERED_TOOLS, ToolHints, tool_of
from divebook.errors import AlreadyRegisteredError, DefinitionError
from divebook.stores import MemoryStore
from divebook.tools import ToolFunction


def double(n: int) -> int:
    """Return twice a number."""
    return 2 * n


def test_a_tool_stays_the_function_that_it_was_and_is_known_by_its_name():
    made = tool(double)
    assert (made is double, double(2)) == (True, 4)
    known = REGISTERED_TOOLS["double"]
    assert (known.function, known.description, known.kind_and_name) == (
        double,
        "Return twice a number.",
        'tool "double"',
    )


def test_what_is_said_of_a_tool_is_kept():
    @tool("twice", description="Two of it.", destructive=True, retry=3, timeout=2.5, most=500, limit=4, concurrency=2)
    def other(n: int) -> int:
        return 2 * n

    known = tool_of(other)
    assert (known.name, known.description) == ("twice", "Two of it.")
    assert (known.hints, known.retry, known.timeout) == (ToolHints(destructive=True), Retry(3), 2.5)
    assert (known.most, known.limit, known.concurrency) == (500, 4, 2)


@pytest.mark.parametrize(
    ("said", "repeatable"),
    [({}, False), ({"read_only": True}, True), ({"idempotent": True}, True), ({"destructive": True}, False)],
)
def test_a_tool_may_be_called_again_if_that_does_no_more(said, repeatable):
    @tool(**said)
    def act() -> None: ...

    assert tool_of(act).is_repeatable is repeatable


class Shelf:
    """Books."""

    @tool(limit=2)
    def find(self, title: str) -> str:
        return f"{title} of {self!r}"

    def __call__(self, title: str) -> str:
        return title

    def __repr__(self):
        return "shelf"


def test_a_method_is_called_on_its_own_object():
    found = tool_of(Shelf().find)
    assert (found.function("it"), found.limit) == ("it of shelf", 2)


def test_an_object_that_can_be_called_has_the_name_of_its_class():
    found = tool_of(Shelf())
    assert (found.name, found.description, found.function("it")) == ("Shelf", "Books.", "it")


def rest(*things): ...


def only(a, /): ...


def one_by_one():
    yield 1


async def one_by_one_soon():
    yield 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda n: n, r"@tool needs a name: <function .*<lambda>.*name="),
        (functools.partial(lambda n: n, 1), r"@tool needs a name: functools\.partial.*name="),
        (len, "parameter 'obj' of tool \"len\" has no name"),
        (max, "@tool cannot use <built-in function max>: no signature found .*wrap it in a function"),
        (classmethod(double), "@tool cannot be written above @classmethod .*write @classmethod above @tool"),
        (rest, "parameter 'things' of tool \"rest\" has no name by which a model can pass it"),
        (only, "parameter 'a' of tool \"only\" has no name"),
        (3, "a tool must be a function, not 3"),
        (one_by_one, 'tool "one_by_one" is a generator.*return a list'),
        (one_by_one_soon, 'tool "one_by_one_soon" is a generator.*return a list'),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_what_to_do(given, says):
    with pytest.raises(DefinitionError, match=says):
        tool_of(given)


@pytest.mark.parametrize(
    "wrong", [{"most": 5}, {"limit": 0}, {"concurrency": True}, {"limit": 1.5}, {"timeout": -1}, {"name": "a b"}]
)
def test_wrong_options_are_refused_and_named(wrong):
    with pytest.raises(DefinitionError, match=rf"{'a b' if 'name' in wrong else next(iter(wrong))}"):
        tool(**wrong)(double)


def test_an_environment_knows_its_own_tools_and_those_of_the_process():
    tool(double)
    own = ToolFunction("double", lambda n: 3 * n, schema={"type": "object"})
    environment = Environment(store=MemoryStore(), tools=[rest_free])
    assert set(environment.definitions.tools) == {"double", "rest_free"}
    environment.add_tool(own)
    assert environment.definitions.tools["double"] is own
    with pytest.raises(AlreadyRegisteredError, match="tool already registered: double"):
        environment.add_tool(double)
    environment.add_tool(double, replace=True)
    assert environment.definitions.tools["double"].function is double


def rest_free(text: str) -> str:
    """Return a text."""
    return text

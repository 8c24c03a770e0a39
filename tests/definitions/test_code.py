"""What the functions of an execution do is recorded, and what differs later is named with what it reaches."""

import enum
import linecache
import sys
import textwrap
import types
from dataclasses import dataclass, replace
from typing import NamedTuple

import pydantic
import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions import code
from divebook.definitions.code import code_of
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.steps.function import changed_functions
from divebook.stores import MemoryStore

CELL = """
from divebook.definitions import step, workflow

LIMIT = 3
UNUSED = 1

class Order:
    def total(self):
        return rate()

def rate():
    return 0.2

def clean(text):
    # a comment
    return text.strip()[:LIMIT]

@step(idempotent=True)
def parse(text):
    return clean(text)

@step(idempotent=True)
def price(text):
    return Order().total()

@workflow
async def job(ctx, text: str):
    return [await parse(text), await price(text)]
"""


@pytest.fixture(autouse=True)
def forget():
    known = dict(WORKFLOW_FUNCTIONS)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)
    sys.modules.pop("cell_of_test", None)


def run_cell(text, number=0):
    """Run a cell as a notebook does: its source is found by a name of its own."""
    name = f"<cell of test {number} {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = sys.modules.setdefault("cell_of_test", types.ModuleType("cell_of_test"))
    exec(compile(text, name, "exec"), module.__dict__)


def started(text=CELL):
    run_cell(text)
    world = Environment(store=MemoryStore())
    return world, world.start("job", {"text": " abcdef"}).wait(20)


def changes(old, new):
    world, execution = started()
    assert old in CELL
    run_cell(CELL.replace(old, new), 1)
    return {
        found.label: (found.change, found.reaches) for found in changed_functions(execution.state, world.definitions)
    }


def test_the_log_names_every_function_that_a_workflow_reaches():
    _, execution = started()
    assert execution.outputs["result"] == ["abc", 0.2]
    recorded = execution.history()[0].data.code
    assert list(recorded) == [
        "class Order",
        "function clean",
        "function rate",
        "step parse",
        "step price",
        "workflow job",
    ]


def test_the_same_cell_run_again_has_changed_nothing():
    world, execution = started()
    run_cell(CELL, 1)
    assert changed_functions(execution.state, world.definitions) == []


@pytest.mark.parametrize(
    ("old", "new"), [("# a comment", "# another"), ("UNUSED = 1", "UNUSED = 2"), ("\n\n", "\n\n\n")]
)
def test_comments_layout_and_what_is_not_used_do_not_count(old, new):
    assert changes(old, new) == {}


@pytest.mark.parametrize(
    ("constant", "label"),
    [
        ("LIMIT = 3", "function clean"),
        ("LIMIT = (1, 3)", "function clean"),
        ("class Order:\n    RATE = 3", "class Order"),
    ],
)
def test_integers_of_more_digits_than_python_writes_are_compared(constant, label):
    def cell(number):
        text = CELL.replace("[:LIMIT]", "[:LIMIT and 3]")
        return text.replace(constant.splitlines()[0].replace("(1, 3)", "3"), constant.replace("3", number))

    world, execution = started(cell("10**5000"))
    assert execution.status == "completed"
    assert changed_functions(execution.state, world.definitions) == []
    run_cell(cell("10**5000 + 1"), 1)
    assert [found.label for found in changed_functions(execution.state, world.definitions)] == [label]


@pytest.mark.parametrize(
    ("old", "new", "label", "reaches"),
    [
        ("return clean(text)", "return clean(text) + '!'", "step parse", ("step parse", "workflow job")),
        ("text.strip()[:LIMIT]", "text[:LIMIT]", "function clean", ("step parse", "workflow job")),
        ("LIMIT = 3", "LIMIT = 4", "function clean", ("step parse", "workflow job")),
        ("return 0.2", "return 0.3", "function rate", ("step price", "workflow job")),
        ("return rate()", "return 2 * rate()", "class Order", ("step price", "workflow job")),
        ("await parse(text), ", "", "workflow job", ("workflow job",)),
    ],
)
def test_a_change_is_named_with_the_calls_that_it_reaches(old, new, label, reaches):
    assert changes(old, new)[label] == ("changed", reaches)


MEMBERS = """
class Order:
    def total(self):
        return 1

    @property
    def price(self):
        return "property"

    @price.setter
    def price(self, value):
        self.values = ["setter", value]

    @price.deleter
    def price(self):
        self.values = ["deleter"]

    @functools.cached_property
    def label(self):
        return "cached"

    @classmethod
    def of(cls, text):
        return "class method"

    @classmethod
    @functools.lru_cache
    def once(cls):
        return "wrapped"

    @staticmethod
    def rounded(value):
        return "static"

    part = functools.partialmethod(lambda self, text: "partial", "a")

    @functools.singledispatchmethod
    def add(self, value):
        return "dispatch"

    @add.register
    def _(self, value: int):
        return "registered"

    class Line:
        RATE = "constant"

        def total(self):
            return "nested method"

        @property
        def price(self):
            return "nested property"
"""
BODIES = [
    *("property", "setter", "deleter", "cached", "class method", "wrapped", "static", "partial", "dispatch"),
    *("registered", "constant", "nested method", "nested property"),
]
WITH_MEMBERS = CELL.replace(CELL[CELL.index("class Order") : CELL.index("def rate")], f"import functools\n{MEMBERS}\n")


@pytest.mark.parametrize("body", BODIES)
def test_a_change_of_any_member_of_a_class_is_named(body):
    world, execution = started(WITH_MEMBERS)
    assert execution.outputs["result"] == ["abc", 1]
    assert changed_functions(execution.state, world.definitions) == []
    assert WITH_MEMBERS.count(f'"{body}"') == 1
    run_cell(WITH_MEMBERS.replace(f'"{body}"', '"changed"'), 1)
    changed = {
        found.label: (found.change, found.reaches) for found in changed_functions(execution.state, world.definitions)
    }
    assert changed["class Order"] == ("changed", ("step price", "workflow job"))


@pytest.mark.parametrize("body", BODIES)
def test_what_any_member_of_a_class_uses_counts(body):
    text = WITH_MEMBERS.replace(f'"{body}"', '"name"' if body == "constant" else "rate()")
    world, execution = started(text.replace('"nested method"', "rate()"))
    assert "function rate" in execution.state.code
    run_cell(text.replace('"nested method"', "rate()").replace("return 0.2", "return 0.3"), 1)
    changed = {found.label: found.reaches for found in changed_functions(execution.state, world.definitions)}
    assert changed["function rate"] == ("step price", "workflow job")


class Plain:
    RATE = 3
    unit: str = "kg"


class Order:
    RATE = 3

    def total(self):
        return self.RATE

    @staticmethod
    def rounded(value):
        return round(value)


class Colour(enum.Enum):
    RED = "red"

    def shade(self):
        return self.value


class Point(NamedTuple):
    x: int = 1


@dataclass(frozen=True, slots=True)
class Line:
    length: int = 1


class Model(pydantic.BaseModel):
    x: int = 1


class WithProperty:
    @property
    def total(self):
        return 1


@pytest.mark.parametrize("cls", [Plain, Order, Colour, Point, Line, Model, WithProperty])
def test_members_that_a_library_adds_to_a_class_change_no_digest(cls, monkeypatch):
    digest = code_of({"class": cls})["class"]
    # Earlier versions counted callable members alone, and logs hold their digests.
    monkeypatch.setattr(code, "_accessors", lambda _cls: [])
    monkeypatch.setattr(code, "_nested", lambda _cls: [])
    assert (code_of({"class": cls})["class"] == digest) == (cls is not WithProperty)


def test_a_recorded_digest_stays():
    # It has no syntax trees, which differ between versions of Python.
    assert code_of({"class": Plain}) == {"class": "434988c048547a9c"}


def test_functions_that_came_or_went_are_named():
    found = changes("return clean(text)", "return text")
    assert found["function clean"] == ("gone", ())
    assert changes("return text.strip()", "return rate() and text.strip()")["function clean"][0] == "changed"


def test_logs_that_do_not_say_what_it_was_have_no_changes():
    world, execution = started()
    assert changed_functions(replace(execution.state, code={}), world.definitions) == []


def test_actions_count_and_those_of_divebook_do_not():
    text = textwrap.dedent("""
        from divebook import action

        @action("note.it")
        def note(value):
            return value
    """)
    run_cell(text)
    world = Environment(store=MemoryStore())
    steps = [Step("a", action="note.it", parameters={"value": 1}), Step("b", action="Time.Now")]
    execution = world.start(Workflow("w", steps)).wait(20)
    assert list(execution.history()[0].data.code) == ["action note.it"]
    run_cell(text.replace("return value", "return 2"), 1)
    world.add_workflow(Workflow("w", steps))
    assert [found.label for found in changed_functions(execution.state, world.definitions)] == ["action note.it"]

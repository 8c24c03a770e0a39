"""Dataclasses, pydantic models and enums in logs: only of allowed classes, and back without running their code."""

import dataclasses
import enum
import functools
import importlib
import sys
import types
from datetime import datetime, timedelta, timezone
from http import HTTPStatus
from typing import Generic, NamedTuple, TypeVar

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, field_validator

from divebook import allow
from divebook.errors import SetupError, UnopenableValueError, UnstorableValueError
from divebook.events import classes
from divebook.events.codec import decode, encode, storable
from divebook.events.recorded import opened
from divebook.events.values import normalize

T = TypeVar("T")


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(classes, "_ALLOWED", dict(classes._ALLOWED))


def written(value):
    return encode(normalize([value]))


def back(value):
    return opened(decode(written(value)))[0]


class Colour(enum.Enum):
    RED = "r"
    ODD = object()


class Size(enum.IntEnum):
    SMALL = 1


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float = 0.5
    length: int = dataclasses.field(init=False, default=3)


@dataclasses.dataclass
class Shape:
    points: tuple[Point, ...]
    colour: Colour = Colour.RED
    labels: set[str] = dataclasses.field(default_factory=set)
    by_place: dict[tuple[int, int], Point] = dataclasses.field(default_factory=dict)
    frame: pd.DataFrame | None = None

    def __post_init__(self):
        LOUD.append(self)


LOUD = []


class Customer(BaseModel):
    name: str = Field(alias="customerName")

    @field_validator("name")
    @classmethod
    def shout(cls, name):
        return f"{name}!"


class Order(BaseModel):
    model_config = {"extra": "allow", "arbitrary_types_allowed": True, "frozen": True}
    customer: Customer
    sizes: list[Size] = []
    tags: frozenset[str] = frozenset()
    frame: pd.DataFrame | None = None
    _seen: int = 7


class Box(BaseModel, Generic[T]):
    item: T


class Names(RootModel[list[str]]):
    pass


def test_a_dataclass_keeps_every_field_and_runs_no_code():
    allow(Point, Shape, Colour)
    shape = Shape((Point(1), Point(2, 1.5)), labels={"b", "a"}, by_place={(0, 1): Point(3)})
    object.__setattr__(shape.points[0], "length", 9)
    LOUD.clear()
    again = back(shape)
    assert again == shape
    assert again.points[0].length == 9
    assert type(again.points) is tuple
    assert LOUD == []


def test_a_model_keeps_fields_extras_and_what_was_set():
    allow(Order, Customer, Size)
    order = Order(customer=Customer(customerName="Ada"), sizes=[Size.SMALL], tags={"b", "a"}, note=["x"])
    again = back(order)
    assert again == order
    assert (again.customer.name, again.note, again._seen) == ("Ada!", ["x"], 7)
    assert again.model_fields_set == order.model_fields_set == {"customer", "sizes", "tags", "note"}
    assert again.sizes[0] is Size.SMALL


def test_fields_may_hold_frames():
    allow(Order, Customer, Shape, Colour)
    frame = pd.DataFrame({"a": [1, 2]})
    pd.testing.assert_frame_equal(back(Order(customer=Customer(customerName="A"), frame=frame)).frame, frame)
    pd.testing.assert_frame_equal(back({"in": [Shape((), frame=frame)]})["in"][0].frame, frame)


def test_generic_and_root_models_come_back():
    allow(Box[int], Names)
    assert back(Box[int](item=3)) == Box[int](item=3)
    assert back(Names(["a"])).root == ["a"]


def test_enums_come_back_as_the_member_itself():
    allow(Colour, Rights, Size)
    assert back([Colour.RED, Colour.ODD, Size.SMALL]) == [Colour.RED, Colour.ODD, Size.SMALL]
    assert back(Colour.ODD) is Colour.ODD
    assert back(Rights.READ | Rights.WRITE) == Rights.READ | Rights.WRITE
    assert normalize(Size.SMALL).plain() == 1


class Place(NamedTuple):
    name: str
    spots: tuple[int, ...] = ()


def test_a_named_tuple_keeps_its_class_and_takes_new_defaults():
    allow(Place)
    again = back([Place("a", (1, 2))])[0]
    assert (type(again), again) == (Place, Place("a", (1, 2)))
    recorded = decode(
        b'{"$type":"namedtuple","value":{"class":"tests.events.test_classes.Place","fields":{"name":"b"}}}'
    )
    assert recorded.to_python() == Place("b")
    assert recorded.plain() == {"name": "b"}


def test_equal_instances_have_equal_bytes():
    allow(Shape, Colour)
    assert written(Shape((), labels={"a", "b", "c"})) == written(Shape((), labels={"c", "b", "a"}))


# --- the allow-list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Point(1), r"result\.a: tests\.events\.test_classes\.Point is not allowed .* divebook\.allow\(Point\)"),
        (Customer(customerName="A"), r"result\.a: .*Customer is not allowed .* divebook\.allow\(Customer\)"),
        (Box[int](item=1), r"divebook\.allow\(Box\[int\]\)"),
        (Colour.RED, r"divebook\.allow\(Colour\)"),
        (HTTPStatus.OK, r"http\.HTTPStatus is not allowed"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_instance_of_another_class_is_refused_with_path_class_and_advice(value, message):
    with pytest.raises(UnstorableValueError, match=message):
        storable({"a": value}, "result")


def test_a_nested_class_has_to_be_allowed_as_well():
    allow(Order)
    with pytest.raises(UnstorableValueError, match=r"result\.customer: .*Customer is not allowed"):
        storable(Order(customer=Customer(customerName="A")), "result")


def test_other_classes_cannot_be_allowed():
    with pytest.raises(SetupError, match=r"only dataclasses, pydantic models, named tuples and enums"):
        allow(Point, object)
    with pytest.raises(SetupError, match="only dataclasses"):
        allow(Point(1))
    with pytest.raises(SetupError, match="at least one Python class"):
        allow()
    assert "tests.events.test_classes.object" not in classes._ALLOWED


def test_a_class_that_is_not_allowed_is_named_and_never_looked_up(monkeypatch):
    allow(Point)
    raw = written({"p": Point(1), "n": 2})
    classes._ALLOWED.clear()
    recorded = decode(raw)
    with pytest.raises(UnopenableValueError, match=r"test_classes\.Point: .* call divebook\.allow\(Point\)"):
        opened(recorded)
    kept = opened(recorded, lenient=True)[0]
    assert (str(kept["p"]), kept["n"]) == ("<Point: not allowed in this process>", 2)
    with pytest.raises(AttributeError, match="not allowed in this process"):
        _ = kept["p"].x
    assert encode([kept]) == raw


def test_a_log_cannot_name_a_class_that_nobody_allowed():
    raw = b'{"$type":"dataclass","value":{"class":"subprocess.Popen","fields":{"args":["true"]}}}'
    with pytest.raises(UnopenableValueError, match=r"subprocess\.Popen: its class is not allowed"):
        opened(decode(raw))


# --- classes that change -------------------------------------------------------------------------------------------


@pytest.fixture
def cell(monkeypatch):
    """Run the text of a cell in a module of its own, as a notebook does in ``__main__``."""
    module = types.ModuleType("a_notebook")
    monkeypatch.setitem(sys.modules, "a_notebook", module)

    def run(code):
        exec("import divebook, dataclasses, enum\nfrom pydantic import BaseModel\n" + code, module.__dict__)
        return module

    return run


def test_a_cell_that_is_run_again_gives_the_newest_class(cell):
    first = cell("class Order(BaseModel):\n    n: int\ndivebook.allow(Order)").Order
    recorded = normalize(first(n=1))
    second = cell("class Order(BaseModel):\n    n: int").Order
    assert second is not first
    assert type(recorded.to_python()) is second
    assert type(back(first(n=1))) is second


GAINED = {
    "model": ("class A(BaseModel):\n    n: int\ndivebook.allow(A)", "class A(BaseModel):\n    n: int\n    more: {0}"),
    "dataclass": (
        "@divebook.allow\n@dataclasses.dataclass\nclass A:\n    n: int",
        "@divebook.allow\n@dataclasses.dataclass\nclass A:\n    n: int\n    more: {0}",
    ),
}


@pytest.mark.parametrize("kind", GAINED)
def test_a_field_that_was_added_takes_its_default(cell, kind):
    before, after = GAINED[kind]
    recorded = normalize(cell(before).A(n=1))
    cell(after.format("int = 5"))
    assert (recorded.to_python().n, recorded.to_python().more) == (1, 5)


@pytest.mark.parametrize("kind", GAINED)
def test_a_field_that_was_added_without_a_default_is_named(cell, kind):
    before, after = GAINED[kind]
    recorded = normalize(cell(before).A(n=1))
    cell(after.format("int"))
    with pytest.raises(
        UnopenableValueError, match=r"a_notebook\.A: .* has the new field 'more'.* give the field a def"
    ):
        recorded.to_python()


@pytest.mark.parametrize("kind", GAINED)
def test_a_field_that_was_removed_is_named(cell, kind):
    before, after = GAINED[kind]
    recorded = normalize(cell(before + "\n" + after.format("int = 5")).A(n=1))
    cell(before)
    with pytest.raises(UnopenableValueError, match=r"a_notebook\.A: .* no longer has the field 'more'"):
        recorded.to_python()


def test_a_class_that_became_another_kind_or_lost_a_member_is_named(cell):
    model = normalize(cell("class A(BaseModel):\n    n: int\ndivebook.allow(A)").A(n=1))
    member = normalize(cell("class E(enum.Enum):\n    A = 1\n    B = 2\ndivebook.allow(E)").E.B)
    cell("class A(enum.Enum):\n    N = 1\nclass E(enum.Enum):\n    A = 1")
    with pytest.raises(UnopenableValueError, match="the class was a model when the value was recorded"):
        model.to_python()
    with pytest.raises(UnopenableValueError, match="no longer has the member 'B'"):
        member.to_python()


# --- any instance --------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Node:
    value: object
    children: list["Node"] = dataclasses.field(default_factory=list)


ANY_KEY = st.integers() | st.text("ab", max_size=2) | st.tuples(st.integers(0, 3), st.booleans())
ANY_FIELD = st.recursive(
    st.none() | st.integers() | st.text("ab", max_size=2) | st.sampled_from(Size),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(ANY_KEY, inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$type", "a"]), inner, max_size=2)
        | st.frozensets(st.integers() | st.text("ab", max_size=2), max_size=3)
    ),
    max_leaves=8,
)


@given(st.recursive(st.builds(Node, ANY_FIELD), lambda inner: st.builds(Node, ANY_FIELD, st.lists(inner, max_size=2))))
def test_any_tree_of_instances_comes_back(node):
    allow(Node, Size)
    again = back(node)
    assert again == node
    assert repr(again).replace(" ", "").count("Size") == repr(node).replace(" ", "").count("Size")
    assert written(again) == written(node)


def test_instances_that_hold_themselves_or_go_too_deep_are_refused():
    allow(Node)
    loop = Node(1)
    loop.children.append(loop)
    with pytest.raises(UnstorableValueError, match="does it contain itself"):
        normalize(loop)
    chain = Node(0)
    for value in range(200):
        chain = Node(value, [chain])
    with pytest.raises(UnstorableValueError, match="nested deeper than"):
        normalize(chain)


def test_what_is_not_too_deep_to_be_recorded_can_be_opened():
    allow(Node)
    chain = Node(0)
    for value in range(45):
        chain = Node(value, [chain])
    assert back(chain) == chain


@pytest.mark.parametrize("path", classes._STORED_NAMES)
def test_classes_that_have_moved_keep_their_name_in_logs(path):
    module, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    assert f"{cls.__module__}.{cls.__qualname__}" == path
    assert classes.name_of(cls) == classes._STORED_NAMES[path]
    try:
        assert classes.find(classes.name_of(allow(cls))) is cls
    finally:
        classes._ALLOWED.pop(classes._STORED_NAMES[path])


@dataclasses.dataclass
class Loose:
    number: int

    @functools.cached_property
    def double(self):
        return 2 * self.number


@dataclasses.dataclass
class Listed(list):
    number: int = 1


@dataclasses.dataclass
class Mapped(dict):
    number: int = 1


class Corner(NamedTuple):
    x: int


class Marked(Corner):
    """Has attributes of its own."""


def test_an_instance_with_more_than_its_fields_is_refused():
    allow(Loose, Listed, Mapped, Marked)
    loose, marked = Loose(1), Marked(1)
    loose.note = marked.note = "lost"
    for value, text in [
        (loose, r"value.note: it is not a field of Loose and would be lost"),
        (marked, r"value.note: it is not a field of Marked"),
        (Listed(2), "is also a list, whose content is not in a field"),
        (Mapped(2), "is also a dict, whose content is not in a field"),
    ]:
        with pytest.raises(UnstorableValueError, match=text):
            normalize(value)


def test_cached_properties_and_private_attributes_of_an_instance_need_not_be_recorded():
    allow(Loose)
    loose = Loose(3)
    assert loose.double == 6
    loose._memo = object()
    assert vars(back(loose)) == {"number": 3}


def test_an_offset_that_iso_text_cannot_tell_is_refused():
    zone = timezone(timedelta(microseconds=1))
    with pytest.raises(UnstorableValueError, match="an offset with fractions of a second"):
        normalize(datetime(2026, 1, 1, tzinfo=zone))

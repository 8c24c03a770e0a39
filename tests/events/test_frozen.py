"""Records that are made quickly are the same frozen dataclasses as any."""

import copy
import inspect
import pickle
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace

import pytest

from divebook.events.catalog import PAYLOADS
from divebook.events.event import Event, Record
from divebook.events.payload import compile_init, fast_init

QUICK = [kind for kind in (*PAYLOADS.values(), Event, Record) if "__post_init__" not in vars(kind)]
"""Those that take whatever they are given."""


@fast_init
@dataclass(frozen=True, slots=True)
class Part:
    name: str
    tags: list[str] = field(default_factory=list)
    size: int = 1

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a name is required")


@pytest.mark.parametrize("kind", QUICK)
def test_every_field_is_where_it_belongs_and_stays(kind):
    given = {entry.name: f"of {entry.name}" for entry in fields(kind)}
    made = kind(**given)
    assert type(made) is kind
    assert {name: getattr(made, name) for name in given} == given
    assert made == kind(*given.values()) == copy.copy(made) == replace(made)
    for name in given:
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, "another")
    with pytest.raises((AttributeError, TypeError)):
        made.unknown = 1


@pytest.mark.parametrize("kind", QUICK)
def test_defaults_are_those_of_the_fields(kind):
    needed = [entry.name for entry in fields(kind) if entry.default is entry.default_factory is MISSING]
    given = dict.fromkeys([*needed, *getattr(kind, "required", ())], "x")
    made = kind(**given)
    for entry in fields(kind):
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        assert getattr(made, entry.name) == given.get(entry.name, default)


def test_a_default_is_made_anew_each_time_and_checks_are_made():
    assert Part("a").tags is not Part("b").tags
    assert Part("a", size=2) == Part("a", [], 2) == pickle.loads(pickle.dumps(Part("a", size=2)))
    with pytest.raises(ValueError, match="a name is required"):
        Part("")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        Part()


def test_its_signature_is_that_of_the_class():
    assert list(inspect.signature(Part).parameters) == ["name", "tags", "size"]


@dataclass(frozen=True, slots=True, init=False)
class Pair:
    left: int
    right: int = 2
    total: int = field(init=False, compare=False)

    def __init__(self, given: str) -> None:
        compile_init(Pair)(self, *map(int, given.split()))


def test_what_has_an_init_of_its_own_is_filled_in_order_or_by_name_and_frozen():
    filled = object.__new__(Pair)
    compile_init(Pair)(filled, right=4, left=3, total=7)
    assert (filled, filled.total) == (Pair("3 4"), 7)
    assert (Pair("1").right, Pair("1").total) == (2, None)
    with pytest.raises(FrozenInstanceError):
        filled.left = 5

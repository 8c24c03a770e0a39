"""Results that no log holds as they are: the call that returned one took effect, whatever the result does.

One table serves all who take results: calls of steps and actions (`tests/runtime/test_lost_results.py`) and calls of
tools (`tests/agents/test_results.py`).
"""

import asyncio
import dataclasses
import weakref
from contextlib import ExitStack
from functools import partial, reduce
from pathlib import Path
from typing import Generic, TypeVar

import pydantic

from divebook.events.codec import MAX_PAYLOAD_BYTES

T = TypeVar("T")
SECRET = "Bearer abcdefghijklmnopqrstuvwxyz0123456789"
OPENED = ExitStack()
"""Files that the results opened; a fixture closes them."""


class Page(pydantic.BaseModel, Generic[T]):
    """A generic model."""

    items: list[T]


@dataclasses.dataclass
class Receipt:
    """A class that was not given to `divebook.allow`."""

    number: int


class Mute:
    """A value whose repr raises."""

    def __repr__(self):
        raise RuntimeError("no repr")


class Bomb(dict):
    """A mapping that raises when it is stored."""

    def items(self):
        raise RuntimeError("no items")


class Unbound:
    """A value whose attributes raise, as those of a proxy outside of its request."""

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


class Unreadable(int):
    """A number that raises when it is read."""

    def __int__(self):
        raise RuntimeError("no number")


class Nameless:
    """A value of a module whose name is not valid Unicode."""

    __module__ = "module\ud800"


class Unplaced:
    """A value of a module that has a number as its name."""

    __module__ = 5


class Surrogate:
    """A value whose display as HTML cannot be encoded."""

    def _repr_html_(self):
        return "\ud800"


def dead():
    return weakref.proxy({object()})


def circular():
    found = []
    found.append(found)
    return found


class Stop(BaseException):
    """What a library may raise that is not an `Exception`."""


BEYOND = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, Stop)
METHODS = ("__repr__", "__str__", "__eq__", "__hash__", "__iter__", "__len__", "__bool__", "__getattr__", "__reduce__")


def raising(error, *methods, base=object):
    """Return an instance whose methods raise something that is not an `Exception`."""

    def fail(*_):
        raise error("from a method of the result")

    return type(f"Raising{error.__name__}", (base,), dict.fromkeys(methods, fail))()


class AtItsClass:
    """A value that raises when it is asked for its class."""

    @property
    def __class__(self):
        raise SystemExit("no class")


def odd_model(error):
    """Return a model that raises when its fields are read."""

    def fail(*_):
        raise error("no field")

    class Odd(pydantic.BaseModel):
        number: int = 1
        __repr__ = __str__ = __iter__ = fail

    return Odd()


UNSTORABLE = {
    "object": lambda: {"receipt": object()},
    "set of objects": lambda: {object()},
    "function": lambda: [print],
    "generator": lambda: (number for number in range(3)),
    "file": lambda: OPENED.enter_context(Path(__file__).open(encoding="utf-8")),  # noqa: SIM115 - closed by the fixture
    "generic model": lambda: Page[Receipt](items=[Receipt(1)]),
    "dataclass": lambda: Receipt(3),
    "repr that raises": Mute,
    "circular list": circular,
    "deep list": lambda: reduce(lambda inner, _: [inner], range(100_000), 1),
    "too large": lambda: "x" * (MAX_PAYLOAD_BYTES + 1),
    "class": lambda: Receipt,
    "error": lambda: ValueError("as a value"),
    "mapping that raises": lambda: Bomb(a=1),
    "attributes that raise": Unbound,
    "attributes that raise inside": lambda: {"a": [Unbound()]},
    "number that raises": lambda: Unreadable(3),
    "name that is not valid Unicode": Nameless,
    "module without a name": Unplaced,
    "reference to what is gone": dead,
    "secret": lambda: {"token": SECRET, "object": object()},
    **{f"all methods raise {error.__name__}": partial(raising, error, *METHODS) for error in BEYOND},
    **{f"{method} raises SystemExit": partial(raising, SystemExit, method) for method in METHODS},
    "mapping that raises SystemExit": lambda: raising(SystemExit, "items", "__iter__", "keys", "__repr__", base=dict),
    "list that raises KeyboardInterrupt inside": lambda: {
        "a": [raising(KeyboardInterrupt, "__iter__", "__repr__", "__str__", base=list), object()]
    },
    "display that raises SystemExit": lambda: raising(SystemExit, "_repr_png_", "_repr_html_"),
    "display that is not valid Unicode": Surrogate,
    "class that raises": AtItsClass,
    "reference to what is gone inside": lambda: {"a": [dead()]},
    **{f"model that raises {error.__name__}": partial(odd_model, error) for error in BEYOND},
}
"""By description, what makes a result that cannot be stored."""

"""The check of objects that users pass reads the protocol, so that a new protocol needs no check of its own."""

import functools
import re
import types
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol
from unittest.mock import AsyncMock, Mock, create_autospec

import pytest

from divebook.errors import SetupError
from divebook.text.protocols import PAGE, protocol_problems, require_protocol


class Shelf(Protocol):
    size: int

    def put(self, key: str, value: bytes, *, wait: bool = False) -> None: ...

    def keys(self) -> Iterable[str]: ...

    async def sleep(self, seconds: float) -> None: ...


class Base(ABC):
    entries: list[int]

    def __init__(self):
        self.entries = []

    @abstractmethod
    def _read(self, path): ...

    def get(self, path, default=None):
        return self._read(path) or default


class Good:
    size = 1

    def put(self, k, v, *, wait=False): ...

    def keys(self):
        yield "a"

    async def sleep(self, s): ...


class Derived(Base):
    def _read(self, path):
        return path


def with_members(**members):
    return type("Changed", (Good,), members)()


def instance_of_slots():
    class Slots:
        __slots__ = ("keys", "put", "size", "sleep")

    slots = Slots()
    good = Good()
    for name in Slots.__slots__:
        setattr(slots, name, getattr(good, name))
    return slots


class Everything:
    def __getattr__(self, name):
        return print


class Raising(Good):
    @property
    def put(self):
        raise RuntimeError("no")


class Strange(Good):
    def __getattribute__(self, name):
        if name == "put":
            raise RuntimeError("not now")
        return super().__getattribute__(name)


async def a_sleep(seconds): ...


def without_self():
    return []


def sleeps_later(self, seconds) -> Awaitable[None]:
    return a_sleep(seconds)


@pytest.mark.parametrize(
    "value",
    [
        Good(),
        instance_of_slots(),
        with_members(put=lambda self, *arguments, **options: None),
        with_members(put=lambda self, key, value, wait=True, more=1: None),
        with_members(put=staticmethod(lambda key, value, wait=False: None)),
        with_members(put=functools.partialmethod(lambda self, a, b, c, wait=False: None, 1)),
        with_members(keys=lambda self: []),
        with_members(sleep=sleeps_later),
        with_members(sleep=staticmethod(functools.partial(a_sleep))),
        types.SimpleNamespace(size=0, put=Good().put, keys=dict, sleep=a_sleep),
        create_autospec(Good, instance=True),
        Mock(spec=Good),
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_with_the_methods_of_a_protocol_are_accepted(value):
    assert protocol_problems(value, Shelf) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Good, "it is a class; write Good() to pass an instance"),
        (None, "it has no method put, keys, sleep"),
        (5, "it has no method put, keys, sleep"),
        (types, "it has no method put, keys, sleep"),
        (Mock(), "it returns an attribute for every name"),
        (AsyncMock(), "it returns an attribute for every name"),
        (Everything(), "it returns an attribute for every name"),
        (with_members(keys=None), "keys is None, not a method"),
        (with_members(keys="ab"), "keys is 'ab', not a method"),
        (with_members(keys=property(lambda self: [])), "keys is a property, not a method"),
        (Raising(), "put is a property, not a method"),
        (Strange(), "put cannot be read: RuntimeError: not now"),
        (with_members(keys=without_self), "keys has no parameter `self`"),
        (with_members(keys=lambda self, prefix: []), "keys takes (prefix), but is called with ()"),
        (with_members(put=lambda self, key: None), "put takes (key), but is called with (key, value, wait=...)"),
        (with_members(put=lambda self, key, value: None), "put takes (key, value), but is called with"),
        (with_members(put=lambda self, k, v, wait, *, more: None), "put takes (k, v, wait, more)"),
        (with_members(put=lambda self, *, key, value, wait: None), "put takes (key, value, wait)"),
        (with_members(sleep=lambda self, seconds: None), "sleep is not a coroutine function; write `async def`"),
        (with_members(keys=a_sleep.__get__(1)), "keys is a coroutine function, but it is called without `await`"),
        (with_members(put=AsyncMock()), "put is a coroutine function, but it is called without `await`"),
        (types.SimpleNamespace(put=Good().put, keys=dict, sleep=a_sleep), "it has no attribute size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_object_is_refused_with_the_member_that_is_wrong(value, problem):
    assert problem in "; ".join(protocol_problems(value, Shelf))


def test_a_generator_does_not_pass_for_a_function_that_acts():
    (problem,) = protocol_problems(with_members(put=lambda self, k, v, wait=0: (yield)), Shelf)
    assert problem == "put is a generator function, whose body does not run when it is called; remove `yield`"


def test_an_object_of_a_base_class_is_checked_where_it_overrides_it():
    class Silent(Derived):
        def __init__(self):
            pass

    class Narrow(Derived):
        def get(self, path): ...

    class Wide(Derived):
        def _read(self, path, mode): ...

    assert protocol_problems(Derived(), Base) == []
    assert protocol_problems(Good(), Base) == ["its class is not derived from Base"]
    (problem,) = protocol_problems(Silent(), Base)
    assert problem.startswith("it has no attribute entries; let ")
    assert problem.endswith("Silent.__init__ call super().__init__()")
    assert protocol_problems(Narrow(), Base) == ["get takes (path), but is called with (path, default)"]
    assert protocol_problems(Wide(), Base) == ["_read takes (path, mode), but is called with (path)"]


class Called:
    def __call__(self, text):
        return text


class CalledLater:
    async def __call__(self, text):
        return text


Sync = Callable[[str], None]
Async = Callable[[str], Awaitable[None]]


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (print, Sync, None),
        ([].append, Sync, None),
        (Called(), Sync, None),
        (Called().__call__, Sync, None),
        (functools.partial(Called(), "a"), Sync, "it takes (), but is called with (argument1)"),
        (lambda: None, Sync, "it takes (), but is called with (argument1)"),
        (Called, Sync, "it is a class whose instances can be called; write Called()"),
        (CalledLater(), Sync, "it is a coroutine function, but it is called without `await`"),
        (functools.partial(CalledLater()), Sync, "it is a coroutine function, but it is called without `await`"),
        (a_sleep, Sync, "it is a coroutine function, but it is called without `await`"),
        (lambda text: (yield), Sync, "it is a generator function"),
        ("text", Sync, "it cannot be called"),
        (None, Sync, "it cannot be called"),
        (a_sleep, Async, None),
        (CalledLater(), Async, None),
        (functools.partial(a_sleep), Async, None),
        (Called(), Async, "it is not a coroutine function"),
        (lambda text: None, Async, "it is not a coroutine function"),
    ],
)
def test_functions_are_checked_by_the_type_of_a_callable(value, kind, problem):
    problems = protocol_problems(value, kind)
    assert problems == [] if problem is None else problems[0].startswith(problem)


def test_the_error_names_the_argument_the_object_the_protocol_and_a_page():
    with pytest.raises(SetupError) as refused:
        require_protocol(with_members(keys=1), Shelf, "shelf", or_else="a path", page="stores")
    assert str(refused.value) == (
        "shelf must be a path, or an object that implements "
        f"{__name__}.Shelf (put(key, value, wait=...), keys(), sleep(seconds)), not a Changed: keys is 1, not a "
        "method. The page 'stores' of the reference describes it"
    )


def test_no_method_of_the_object_is_called():
    calls = []
    value = with_members(put=lambda self, *a, **k: calls.append(1), keys=lambda self: calls.append(1))
    require_protocol(value, Shelf, "shelf")
    assert calls == []


def test_each_page_that_an_error_names_exists():
    root = Path(__file__).parents[2]
    code = "\n".join(path.read_text(encoding="utf-8") for path in (root / "divebook").rglob("*.py"))
    named = {PAGE, *re.findall(r'page="(\w+)"', code)}
    pages = {path.stem for path in (root / "notebooks" / "reference").glob("*.md")}
    assert len(named) > 3
    assert named <= pages

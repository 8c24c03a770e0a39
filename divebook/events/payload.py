"""Frozen records that are made as quickly as others: several of them stand for every call that is recorded.

What a frozen dataclass does to set a field takes several times as long as an assignment. A record is therefore filled
while it is of a class that may be changed, and is frozen from then on (tests/events/test_frozen.py).
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from divebook.events.recorded import BigInt

T = TypeVar("T")

_become = object.__dict__["__class__"].__set__


def quickly_made(cls: type[T], needed: Sequence[str] | None = None) -> type[T]:
    """Give a dataclass that is frozen and has slots an ``__init__`` that takes a third of the time.

    For classes without subclasses.

    Parameters
    ----------
    needed
        The fields of which ``__post_init__`` says which is empty: it is not asked where none is.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @quickly_made
    ... @dataclass(frozen=True, slots=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1)
    Point(x=1, y=0)
    """
    made: Any = filling(cls, _ending(needed) if hasattr(cls, "__post_init__") else ())
    made.__qualname__ = cls.__init__.__qualname__
    made.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls


def _ending(needed: Sequence[str] | None) -> list[str]:
    """Return the lines that ask ``__post_init__``."""
    if needed is None:
        return ["self.__post_init__()"]
    return [f"if not ({' and '.join(needed)}): self.__post_init__()"] if needed else []


def filling(cls: type[Any], ending: Sequence[str] = ()) -> Callable[..., None]:
    """Return what sets every field of a new record, in their order or by name, and freezes it.

    For dataclasses with an ``__init__`` of their own, which looks at what it is given first.
    """
    body = {name: getattr(object, name) for name in ("__setattr__", "__delattr__")}
    body["__slots__"] = cls.__dict__["__slots__"]
    names: dict[str, Any] = {"cls": cls, "open_class": type(cls.__name__, cls.__bases__, body), "become": _become}
    exec(_source(fields(cls), names, ending), names)  # noqa: S102 - as dataclasses do
    filled: Callable[..., None] = names["__init__"]
    return filled


def _source(known: tuple[Field[Any], ...], names: dict[str, Any], ending: Sequence[str]) -> str:
    """Return the text of ``__init__``, and put what it refers to among the names."""
    parameters = ["self"]
    lines = ["become(self, open_class)"]
    for entry in known:
        name = entry.name
        value = entry.name
        if entry.default is not MISSING:
            names[f"default_{name}"] = entry.default
            parameters.append(f"{name}=default_{name}")
        elif entry.default_factory is not MISSING:
            names[f"make_{name}"] = entry.default_factory
            names["not_given"] = MISSING
            parameters.append(f"{name}=not_given")
            value = f"make_{name}() if {name} is not_given else {name}"
        else:
            parameters.append(name if entry.init else f"{name}=None")  # what is not given at first is worked out later
        lines.append(f"self.{name} = {value}")
    lines += ["self.__class__ = cls", *ending]
    return f"def __init__({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in lines)


# Whether the fields of an event hold what its class declares.
#
# Asked of every event that is read, whatever it comes from (a store, an export, a notebook), and of every event before
# it is written: a checksum finds accidents, not what somebody wrote so. The checks are made of the declared types, once
# a class; what has just the right type costs one look into a set (tests/events/test_shapes.py).


Fault: TypeAlias = Callable[[Any, str], str | None]
"""A value and its place to what is wrong with it; None if nothing is."""

WHOLE = 2**63
"""Whole numbers of ours are smaller than this, so that stores and frames can hold them."""
HOLDS = "holds"
"""In the metadata of a field: what it may hold, where its type does not tell."""


class _Check(NamedTuple):
    """What one field may hold."""

    exact: frozenset[type]
    """A value of one of these very types needs no further look."""
    fault: Fault


_Checks: TypeAlias = tuple[dict[str, frozenset[type]], dict[str, Fault]]
_CHECKS: dict[type, _Checks] = {}
"""By class, the parts of a `_Check` by field; fields that may hold anything have none."""

_PRESENT: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
"""By class, what gives the values of the fields that must not be None."""


def wrong_field(kind: type, data: Mapping[str, Any]) -> str | None:
    """Return which field of plain data holds something else than its class declares, and what; None if all is well.

    Keys that are no fields are passed over.

    Examples
    --------
    >>> from divebook.events.catalog import ExecutionStarted, StepFailed
    >>> wrong_field(ExecutionStarted, {"workflow_name": "greet", "inputs": ["Ada"]})
    'inputs must be a mapping, got a list'
    >>> wrong_field(StepFailed, {"error": "no", "operations": ["op_1", None]})
    'operations[1] must be text, got null'
    """
    exact, faults = _CHECKS.get(kind) or _compiled(kind)
    for name, value in data.items():
        if name in exact and type(value) not in exact[name] and (found := faults[name](value, name)):
            return found
    return None


def missing_field(payload: Any) -> str | None:
    """Return which field of a payload is None and must not be; None if all is well.

    A None is left out of what is written: who reads it would find the field's default in its place.
    """
    kind = type(payload)
    present = _PRESENT.get(kind) or _present(kind)
    if None not in present(payload):
        return None
    return next(
        f"{name} must be {_described(hint)}, got null" for name, hint in _firm(kind) if getattr(payload, name) is None
    )


def _firm(kind: type) -> list[tuple[str, Any]]:
    """Return the fields that must not be None, with what they hold."""
    return [
        (name, hint)
        for name, hint in declared(kind).items()
        if hint is not Any and types.NoneType not in get_args(hint)
    ]


def _present(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    # With two names that are there always, it gives a tuple for any number of fields.
    _PRESENT[kind] = attrgetter("event_type", "form", *(name for name, _ in _firm(kind)))
    return _PRESENT[kind]


def _compiled(kind: type) -> _Checks:
    checks = {name: _check_of(hint) for name, hint in declared(kind).items() if hint is not Any}
    exact = {name: check.exact for name, check in checks.items()}
    _CHECKS[kind] = exact, {name: check.fault for name, check in checks.items()}
    return _CHECKS[kind]


def declared(kind: Any) -> dict[str, Any]:
    """Return what the fields of a class may hold, by their names."""
    hints = get_type_hints(kind)
    return {entry.name: entry.metadata.get(HOLDS, hints[entry.name]) for entry in fields(kind)}


def _check_of(hint: Any) -> _Check:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, types.UnionType):
        return _any_of([_check_of(choice) for choice in arguments], hint)
    if origin is Mapping:
        return _of_class(hint, Mapping, dict) if arguments[1] is Any else _mapping_of(hint, _check_of(arguments[1]))
    if origin is Sequence:
        return _of_class(hint, (list, tuple), list, tuple) if arguments[0] is Any else _sequence_of(hint, arguments[0])
    return _Check(frozenset(), _NUMBERS[hint]) if hint in _NUMBERS else _of_class(hint, hint, hint)


def _refusal(hint: Any, value: Any, place: str) -> str:
    return f"{place} must be {_described(hint)}, got {_kind(value)}"


def _of_class(hint: Any, wanted: Any, *exact: type) -> _Check:
    return _Check(
        frozenset(exact), lambda value, place: None if isinstance(value, wanted) else _refusal(hint, value, place)
    )


def _any_of(choices: Sequence[_Check], hint: Any) -> _Check:
    # Where the type alone does not tell, as of numbers: asked first, for the others would say at length what is wrong.
    inexact = [choice for choice in choices if not choice.exact]

    def fault(value: Any, place: str) -> str | None:
        if any(choice.fault(value, place) is None for choice in inexact):
            return None
        found: list[str] = []
        for choice in choices:  # the first that fits is enough: to say what is wrong takes longer than all else
            text = choice.fault(value, place)
            if text is None:
                return None
            found.append(text)
        # What is wrong further in says more than that none of the choices fits.
        inner = (text for text in found if not text.startswith(f"{place} "))
        return next(inner, _refusal(hint, value, place))

    return _Check(frozenset().union(*(choice.exact for choice in choices)), fault)


def _mapping_of(hint: Any, inner: _Check) -> _Check:
    def fault(value: Any, place: str) -> str | None:
        if not isinstance(value, Mapping):
            return _refusal(hint, value, place)
        for key, item in value.items():
            if type(item) not in inner.exact and (found := inner.fault(item, f"{place}.{key}")):
                return found
        return None

    return _Check(frozenset(), fault)


def _sequence_of(hint: Any, content: Any) -> _Check:
    inner = _check_of(content)

    def fault(value: Any, place: str) -> str | None:
        if type(value) is not list and type(value) is not tuple:
            return _refusal(hint, value, place)
        for index, item in enumerate(value):
            if type(item) not in inner.exact and (found := inner.fault(item, f"{place}[{index}]")):
                return found
        return None

    return _Check(frozenset(), fault)


def _not_whole(value: Any, place: str) -> str | None:
    return None if type(value) is int and -WHOLE <= value < WHOLE else _refusal(int, value, place)


def _no_number(value: Any, place: str) -> str | None:
    fits = math.isfinite(value) if isinstance(value, float) else _not_whole(value, place) is None
    return None if fits else _refusal(float, value, place)


_NUMBERS: Mapping[Any, Fault] = {int: _not_whole, float: _no_number}
_NAMES = {
    str: "text",
    int: "a whole number of 64 bits",
    BigInt: "a larger one",
    float: "a number",
    bool: "true or false",
    types.NoneType: "null",
}


def _described(hint: Any) -> str:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_described(choice) for choice in arguments)
    return "a list" if origin is Sequence else _NAMES.get(hint, "a mapping")


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, int) and not isinstance(value, bool):
        return "a whole number" if -WHOLE <= value < WHOLE else "a larger number"
    if isinstance(value, float):
        return "a number" if math.isfinite(value) else repr(float(value))
    names = {dict: "a mapping", list: "a list", tuple: "a list", bool: "true or false"}
    return "null" if value is None else names.get(type(value), type(value).__name__)

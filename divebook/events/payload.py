"""Fast constructors for frozen dataclasses, and type checks of the fields of events.

Each recorded call creates several frozen objects. A frozen dataclass sets a field with ``object.__setattr__``, which
takes several times as long as an assignment. The compiled ``__init__`` of this module therefore gives a new object a
mutable class with the same slots, assigns the fields, and then gives it its own, frozen class. For ``Point`` with the
fields ``x`` and ``y=0`` it is::

    def __init__(self, x, y=default_y):
        set_class(self, open_class)
        self.x = x
        self.y = y
        self.__class__ = cls

`tests/events/test_frozen.py` checks that the objects behave like those of ordinary frozen dataclasses.

Measured with ``python -m benchmarks --quick --against`` a checkout in which `fast_init` changes nothing: processor time
rises by 3 to 7 % for a step, by 13 to 19 % for a call of a function, and by 5 to 16 % for an item of a loop. An object
with five fields takes 1.4 us as an ordinary frozen dataclass, 0.6 us here, and 0.1 to 0.2 us as a frozen struct of the
library msgspec. But a struct is not a dataclass: `dataclasses.fields`, `dataclasses.replace`, the metadata of fields
(`HOLDS`) and `FrozenInstanceError` are used here and by code of users.
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

# The setter of `__class__` from `object`, because a frozen class refuses ``self.__class__ = ...``.
_set_class = object.__dict__["__class__"].__set__


def fast_init(cls: type[T], needed: Sequence[str] | None = None) -> type[T]:
    """Replace the ``__init__`` of a frozen dataclass with slots by a compiled one, which takes a third of the time.

    The class must not have subclasses.

    Parameters
    ----------
    needed
        The fields that ``__post_init__`` requires to be non-empty: it is called only if one of them is empty. None
        calls it always.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @fast_init
    ... @dataclass(frozen=True, slots=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1)
    Point(x=1, y=0)
    """
    init: Any = compile_init(cls, _post_init_lines(needed) if hasattr(cls, "__post_init__") else ())
    init.__qualname__ = cls.__init__.__qualname__
    init.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = init  # type: ignore[method-assign]
    return cls


def _post_init_lines(needed: Sequence[str] | None) -> list[str]:
    """Return the source lines that call ``__post_init__`` in a compiled ``__init__``. The call may be conditional, or
    left out if it is never necessary.
    """
    if needed is None:
        return ["self.__post_init__()"]
    return [f"if not ({' and '.join(needed)}): self.__post_init__()"] if needed else []


def compile_init(cls: type[Any], ending: Sequence[str] = ()) -> Callable[..., None]:
    """Return a compiled ``__init__`` for a frozen dataclass, which sets all fields, by position or name, and then
    freezes the object.

    A dataclass whose hand-written ``__init__`` checks its arguments first calls the result afterwards. `ending` has
    source lines that run after the object is frozen.
    """
    # The twin of the class has the same slots and bases, so that Python allows an object to change between both. It has
    # the plain setters of `object` again.
    body = {name: getattr(object, name) for name in ("__setattr__", "__delattr__")}
    body["__slots__"] = cls.__dict__["__slots__"]
    # `typing.Generic` refuses subclasses of a generic class without its type parameters.
    if "__orig_bases__" in cls.__dict__:
        body["__orig_bases__"] = cls.__dict__["__orig_bases__"]
    names: dict[str, Any] = {"cls": cls, "open_class": type(cls.__name__, cls.__bases__, body), "set_class": _set_class}
    exec(_source(fields(cls), names, ending), names)  # noqa: S102 - as dataclasses do
    init: Callable[..., None] = names["__init__"]
    return init


def _source(entries: tuple[Field[Any], ...], names: dict[str, Any], ending: Sequence[str]) -> str:
    """Return the Python source of the ``__init__`` that `compile_init` compiles. The objects that this source uses,
    such as default values, are added to `names`, which becomes the global variables of the compiled function.
    """
    parameters = ["self"]
    lines = ["set_class(self, open_class)"]
    for entry in entries:
        name = entry.name
        value = entry.name
        if entry.default is not MISSING:
            names[f"default_{name}"] = entry.default
            parameters.append(f"{name}=default_{name}")
        elif entry.default_factory is not MISSING:
            names[f"make_{name}"] = entry.default_factory
            names["MISSING"] = MISSING
            parameters.append(f"{name}=MISSING")
            value = f"make_{name}() if {name} is MISSING else {name}"
        else:
            # A field with init=False is computed later. A field passed by name may follow fields with a default.
            parameters.append(name if entry.init and not entry.kw_only else f"{name}=None")
        lines.append(f"self.{name} = {value}")
    lines += ["self.__class__ = cls", *ending]
    return f"def __init__({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in lines)


# --- type checks of the fields of events ---
#
# Every event is checked when it is read, from a store, an export or a notebook, and before it is written. A checksum
# finds damage, but not wrong data that were written on purpose. The checks are derived from the declared types, once
# per class. A value of exactly the declared type costs one lookup in a set (tests/events/test_shapes.py).


Fault: TypeAlias = Callable[[Any, str], str | None]
"""Function that describes what is wrong with a value at a place; returns None if the value is valid."""

WHOLE = 2**63
"""Exclusive upper limit of integers in fields (2**63), so that stores and frames can contain them."""
HOLDS = "holds"
"""Key in a field's metadata for the type of the field's plain data, if it differs from the declared type."""


class _Check(NamedTuple):
    """Type check of one field of a payload: a set of classes whose instances are valid, and a function that checks all
    other values.
    """

    exact: frozenset[type]
    """Classes whose instances are valid without a further check."""
    fault: Fault


_Checks: TypeAlias = tuple[dict[str, frozenset[type]], dict[str, Fault]]
_CHECKS: dict[type, _Checks] = {}
"""Cached checks of each payload class: exact classes and fault functions by field. Fields of type `Any` have none. A
field that may be an integer has `int` among its exact classes, and only the range of the integer is to be checked.
"""

_REQUIRED_VALUES: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
"""Cached function of each payload class that returns the values of the fields that must not be None."""


def wrong_field(kind: type, data: Mapping[str, Any]) -> str | None:
    """Return a description of the first field whose value has a wrong type; None if all fields are valid.

    Keys that are not fields are ignored.

    Examples
    --------
    >>> from divebook.events.catalog import ExecutionStarted, StepFailed
    >>> wrong_field(ExecutionStarted, {"workflow_name": "greet", "inputs": ["Ada"]})
    'inputs must be a mapping, got a list'
    >>> wrong_field(StepFailed, {"error": "no", "operations": ["op_1", None]})
    'operations[1] must be text, got null'
    """
    exact, faults = _CHECKS.get(kind) or _build_checks(kind)
    for name, value in data.items():
        # Fields of type `Any` are not in `exact`. A value of an exact class needs no call, unless it is a long integer.
        value_kind = type(value)
        if name in exact and (value_kind not in exact[name] or (value_kind is int and not -WHOLE <= value < WHOLE)):
            description = faults[name](value, name)
            if description:
                return description
    return None


def missing_field(payload: Any) -> str | None:
    """Return a description of the first field that is None although its type does not allow None. Return None if no
    field is missing.

    None is not written, so a reader would get the default of the field instead.
    """
    kind = type(payload)
    required_values = _REQUIRED_VALUES.get(kind) or _required_values_of(kind)
    if None not in required_values(payload):
        return None
    # Slow, and only for a payload that is refused.
    return next(
        f"{name} must be {_hint_in_words(hint)}, got null"
        for name, hint in _required_fields(kind)
        if getattr(payload, name) is None
    )


def _required_fields(kind: type) -> list[tuple[str, Any]]:
    """Return the names and types of the fields of a payload class that must not be None."""
    return [
        (name, hint)
        for name, hint in declared(kind).items()
        if hint is not Any and types.NoneType not in get_args(hint)
    ]


def _required_values_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    # attrgetter returns a tuple only for two or more names, so two names that every payload has come first.
    _REQUIRED_VALUES[kind] = attrgetter("event_type", "form", *(name for name, _ in _required_fields(kind)))
    return _REQUIRED_VALUES[kind]


def _build_checks(kind: type) -> _Checks:
    hints = declared(kind)
    checks = {name: _check_of(hint) for name, hint in hints.items() if hint is not Any}
    exact = {
        name: check.exact | {int} if int in choices_of(hints[name]) else check.exact for name, check in checks.items()
    }
    _CHECKS[kind] = exact, {name: check.fault for name, check in checks.items()}
    return _CHECKS[kind]


def declared(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass, by field name: the type that the field has as plain data if its
    metadata state one (`HOLDS`), otherwise the annotated type.
    """
    hints = get_type_hints(kind)
    return {entry.name: entry.metadata.get(HOLDS, hints[entry.name]) for entry in fields(kind)}


def choices_of(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _check_of(hint: Any) -> _Check:
    # Contents of type Any need no check, so that a mapping or sequence of them is checked by its class alone.
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, types.UnionType):
        return _any_of([_check_of(choice) for choice in arguments], hint)
    if origin is Mapping:
        return _of_class(hint, Mapping, dict) if arguments[1] is Any else _mapping_of(hint, _check_of(arguments[1]))
    if origin is Sequence:
        return _of_class(hint, (list, tuple), list, tuple) if arguments[0] is Any else _sequence_of(hint, arguments[0])
    # Integers and floats have no exact class: 2**70 and NaN are refused, although their class is right.
    return _Check(frozenset(), _NUMBERS[hint]) if hint in _NUMBERS else _of_class(hint, hint, hint)


def _refusal(hint: Any, value: Any, place: str) -> str:
    return f"{place} must be {_hint_in_words(hint)}, got {_type_in_words(value)}"


def _of_class(hint: Any, allowed: Any, *exact: type) -> _Check:
    return _Check(
        frozenset(exact), lambda value, place: None if isinstance(value, allowed) else _refusal(hint, value, place)
    )


def _any_of(choices: Sequence[_Check], hint: Any) -> _Check:
    # Choices that the type alone does not decide, such as numbers. They are tried first because the other choices would
    # build a description of the fault, which is slow.
    inexact = [choice for choice in choices if not choice.exact]

    def fault(value: Any, place: str) -> str | None:
        if any(choice.fault(value, place) is None for choice in inexact):
            return None
        faults: list[str] = []
        for choice in choices:  # stop at the first valid choice: descriptions of faults are slow
            text = choice.fault(value, place)
            if text is None:
                return None
            faults.append(text)
        # A fault inside the value is more precise than the list of choices.
        inner = (text for text in faults if not text.startswith(f"{place} "))
        return next(inner, _refusal(hint, value, place))

    return _Check(frozenset().union(*(choice.exact for choice in choices)), fault)


def _mapping_of(hint: Any, inner: _Check) -> _Check:
    def fault(value: Any, place: str) -> str | None:
        if not isinstance(value, Mapping):
            return _refusal(hint, value, place)
        for key, item in value.items():
            if type(item) not in inner.exact:
                description = inner.fault(item, f"{place}.{key}")
                if description:
                    return description
        return None

    return _Check(frozenset(), fault)


def _sequence_of(hint: Any, content: Any) -> _Check:
    inner = _check_of(content)

    def fault(value: Any, place: str) -> str | None:
        if type(value) is not list and type(value) is not tuple:
            return _refusal(hint, value, place)
        for index, item in enumerate(value):
            if type(item) not in inner.exact:
                description = inner.fault(item, f"{place}[{index}]")
                if description:
                    return description
        return None

    return _Check(frozenset(), fault)


def _not_whole(value: Any, place: str) -> str | None:
    return None if type(value) is int and -WHOLE <= value < WHOLE else _refusal(int, value, place)


def _not_finite(value: Any, place: str) -> str | None:
    fits = math.isfinite(value) if isinstance(value, float) else _not_whole(value, place) is None
    return None if fits else _refusal(float, value, place)


_NUMBERS: Mapping[Any, Fault] = {int: _not_whole, float: _not_finite}
_NAMES = {
    str: "text",
    int: "an integer of 64 bits",
    BigInt: "a larger one",
    float: "a number",
    bool: "true or false",
    types.NoneType: "null",
}


def _hint_in_words(hint: Any) -> str:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_hint_in_words(choice) for choice in arguments)
    return "a list" if origin is Sequence else _NAMES.get(hint, "a mapping")


def _type_in_words(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    # bool is a subclass of int.
    if isinstance(value, int) and not isinstance(value, bool):
        return "an integer" if -WHOLE <= value < WHOLE else "a larger number"
    if isinstance(value, float):
        return "a number" if math.isfinite(value) else repr(float(value))
    names = {dict: "a mapping", list: "a list", tuple: "a list", bool: "true or false"}
    return "null" if value is None else names.get(type(value), type(value).__name__)

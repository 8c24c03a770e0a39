"""What every definition dataclass can do: become plain JSON and come back unchanged.

Which fields hold other definitions, or several, their types say; everything else is plain JSON already.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from divebook.errors import DefinitionError, Problem, UnstorableValueError, did_you_mean
from divebook.events.codec import encode, locate_surrogate, storable
from divebook.events.payload import filling
from divebook.events.recorded import BigInt
from divebook.events.values import MAX_DEPTH, normalize
from divebook.text.names import normal_name
from divebook.text.syntax import each_text, literal, with_escapes, with_literal_depths
from divebook.workflow.dialect import MANNERS, OWN

Reader: TypeAlias = Callable[[Any], Any]

_ATOMS = frozenset({str, int, float, bool, type(None)})
_LISTS = (tuple, list)


def json_value(value: Any, name: str) -> Any:
    """Return `value` as plain JSON; raises `DefinitionError` with the path to the first part that is not."""
    if not value and type(value) is dict:
        return {}
    try:
        plain_value = _json(value, name, 0)
        encode(plain_value, name)
    except (UnstorableValueError, RecursionError) as error:
        raise DefinitionError([Problem(f"{error}", key=name, hint="definitions hold JSON values only")]) from error
    return plain_value


def _json(value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise UnstorableValueError(path, f"nested deeper than {MAX_DEPTH} levels; is it part of itself?")
    if type(value) in _ATOMS:
        if type(value) is float and not math.isfinite(value):
            raise UnstorableValueError(path, f"{value} is not a JSON number; write it as a string, in quotes")
        return normalize(value, path) if type(value) is int else value  # marks one beyond 64 bits
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UnstorableValueError(f"{path}[{key!r:.60}]", "keys must be strings; put it in quotes")
        return {str(key): _json(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, _LISTS):
        return [_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    normal = normalize(value, path)  # a scalar of numpy, or an instance of a subclass of str
    if type(normal) is BigInt:
        return normal
    if type(normal) not in _ATOMS:
        raise UnstorableValueError(path, f"a {type(value).__name__} is not JSON; write it as a string")
    return _json(normal, path, depth)


def require_whole_characters(made: Definition) -> None:
    """Raise `DefinitionError` if a string of a definition holds a lone surrogate, which no store and no model takes."""
    for name, value in made.to_dict().items():
        if place := locate_surrogate(value, name):
            message = f"{place} holds half a character (a lone surrogate), which cannot be stored or sent"
            hint = "decode the text with the encoding that it was written in"
            raise DefinitionError([Problem(message, key=name, hint=hint)], f"{type(made).__name__}")


def recorded_default(value: Any, name: str) -> Any:
    """Return a default as the log holds it, of any kind that an input may have; `DefinitionError` if it holds none."""
    try:
        return storable(value, name)
    except UnstorableValueError as error:
        raise DefinitionError([Problem(f"{error}", key="default")]) from error


def require_text(value: Any, what: str, hint: str) -> None:
    """Raise `DefinitionError` unless `value` is a text."""
    if not isinstance(value, str):
        raise DefinitionError([Problem(f"{what} must be a text, got {value!r}", hint=hint)])


def plain(value: Any) -> Any:
    """Return `value` with definitions as dicts and tuples as lists."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, Definition):
        return value.to_dict()
    if isinstance(value, _LISTS):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


class Definition:
    """Base of the definition dataclasses."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    names: ClassVar[tuple[str, ...]] = ()
    """Fields that hold names, which are stored in their normal form (`divebook.text.arguments`)."""
    short: ClassVar[tuple[type, ...]] = ()
    """Types of which a value stands for a definition with that as its first field."""

    def __init_subclass__(cls) -> None:
        # What definitions know of a field is no help in a signature (test_signatures_show_types_alone).
        hints = getattr(vars(cls).get("__init__"), "__annotations__", {})
        annotated = {name: hint for name, hint in hints.items() if str(hint).startswith("Annotated[")}
        hints |= {name: hint.partition(", Key(")[0].removeprefix("Annotated[") for name, hint in annotated.items()}

    def __post_init__(self) -> None:
        for name in self.names:
            value = getattr(self, name)
            if isinstance(value, str) and not value.isascii():
                self._put(**{name: normal_name(value)})

    def _put(self, **values: Any) -> None:
        """Set fields of a definition that is being made; afterwards nothing changes it."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def like(self, **changes: Any) -> Self:
        """Return a definition that differs from this one in fields that are as its constructor would make them."""
        values, fill = _form(type(self)).whole
        made = object.__new__(type(self))
        fill(made, *values(self))
        for name, value in changes.items():
            object.__setattr__(made, name, value)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON from which `from_dict` makes an equal definition; fields at their default are left out."""
        stored = {}
        for name, default, keeps_equals in _form(type(self)).defaults:
            value = getattr(self, name)
            if value is default or (not keeps_equals and type(value) is type(default) and value == default):
                continue
            stored[name] = plain(value)
        return stored

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return what a person wrote as a definition: a mapping of its fields, or what is `short` for one."""
        return as_definition(cls, value)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a definition of what `to_dict` returned; an unknown key is a `DefinitionError`."""
        return cls(**arguments(cls, data))


R = TypeVar("R", bound=Definition)


def _default(entry: Field[Any]) -> Any:
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


def arguments(cls: type[Definition], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored fields of `cls` as its constructor takes them."""
    readers = _form(cls).readers
    if not data.keys() <= readers.keys():
        raise _unknown_field(cls, next(key for key in data if key not in readers))
    return {key: value if (read := readers[key]) is None else read(value) for key, value in data.items()}


def _unknown_field(cls: type[Definition], name: str) -> DefinitionError:
    return DefinitionError(
        [Problem(f"stored {cls.__name__} has the unknown field {name!r}: a newer divebook wrote it")],
        "<stored definition>",
    )


def restored(cls: type[R], data: Mapping[str, Any]) -> R:
    """Make a definition of what `to_dict` returned, without what its constructor asks: it was asked before storing.

    A definition may have thousands of steps; their constructors took half the time of a resumption.
    """
    definition = object.__new__(cls)
    count = len(data)
    for name, put, read, default in _form(cls).puts:
        if name in data:
            count -= 1
            put(definition, data[name] if read is None else read(data[name]))
        elif default is MISSING:
            raise DefinitionError([Problem(f"stored {cls.__name__} has no {name}", key=name)], "<stored definition>")
        else:
            put(definition, default)
    if count:
        raise _unknown_field(cls, next(key for key in data if key not in _form(cls).readers))
    return definition


class _Form:
    """What is stored of a kind of definition, and how."""

    def __init__(self, cls: type[Definition]) -> None:
        stored = [entry for entry in fields(cls) if entry.init and not entry.metadata.get("transient")]
        hints = get_type_hints(cls)
        self.defaults = [(entry.name, _default(entry), bool(entry.metadata.get("always"))) for entry in stored]
        """Names and defaults of the fields, and whether a value that only equals the default is stored."""
        self.readers = {entry.name: _reader(without_none(hints[entry.name])) for entry in stored}
        """What brings the plain form of each field back; None where that is the value itself."""
        self._cls = cls

    @functools.cached_property
    def whole(self) -> tuple[Callable[[Any], tuple[Any, ...]], Callable[..., None]]:
        """What gives all fields of a definition, stored or not, and what fills a new one with them."""
        first, *others = (entry.name for entry in fields(self._cls))
        values = attrgetter(first, *others) if others else lambda made: (getattr(made, first),)
        return values, filling(self._cls)

    @functools.cached_property
    def puts(self) -> list[tuple[str, Callable[[Any, Any], None], Reader | None, Any]]:
        """Of each field its name, what sets it in a new definition, its reader and its default."""
        return [
            (name, getattr(self._cls, name).__set__, self.readers[name], default) for name, default, _ in self.defaults
        ]


_FORMS: dict[type[Definition], _Form] = {}


def _form(cls: type[Definition]) -> _Form:
    if cls not in _FORMS:
        _FORMS[cls] = _Form(cls)
    return _FORMS[cls]


def as_definition(cls: type[R], value: Any) -> R:
    """Return what a person wrote as a definition; see `Definition.of`."""
    if isinstance(value, cls):
        return value
    if isinstance(value, cls.short):
        return cls(value)  # type: ignore[call-arg]
    if not isinstance(value, Mapping):
        raise DefinitionError([Problem(f"{cls.__name__} must be a mapping, not {value!r:.60}")])
    return cls(**_written(cls, value))


def defaults(cls: type[Definition]) -> dict[str, Any]:
    """Return the stored fields that have a default."""
    return {name: default for name, default, _ in _form(cls).defaults if default is not MISSING}


def _written(cls: type[Definition], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a person gave by name; raises `DefinitionError` for one that is unknown or missing."""
    mandatory = {name: default is MISSING for name, default, _ in _form(cls).defaults}
    for key in data.keys() - mandatory.keys():
        hint = did_you_mean(str(key), mandatory) or f"known are {', '.join(mandatory)}"
        raise DefinitionError([Problem(f"{cls.__name__} has no key {key!r}", key=str(key), hint=hint)])
    given = {key: value for key, value in data.items() if value is not None or mandatory[key]}
    missing = [name for name, is_mandatory in mandatory.items() if is_mandatory and name not in given]
    if missing:
        raise DefinitionError([Problem(f"{missing[0]} is required in {cls.__name__}", key=missing[0])])
    return given


def without_none(hint: Any) -> Any:
    """Return the type in ``Type | None``; any other as it is."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    choices = [choice for choice in get_args(hint) if choice is not NoneType]
    return choices[0] if len(choices) == 1 else hint


def _reader(hint: Any) -> Reader | None:
    if isinstance(hint, type) and issubclass(hint, Definition):
        return lambda value: None if value is None else hint.from_dict(value)
    if get_origin(hint) not in (tuple, Sequence):
        return None
    read = _reader(get_args(hint)[0])
    return _as_tuple if read is None else lambda value: tuple([read(item) for item in value])


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# Definitions stored before templates had escapes and before nested texts were templates, in the present form.
#
# Then ``$${x}`` was a dollar sign and a value, and texts inside lists and mappings were passed as they were written.
# The texts of such a definition are rewritten, so that a recorded execution keeps its meaning when it resumes.


Data = dict[str, Any]


def with_present_templates(workflow: Data) -> Data:
    """Return the stored form 1 of a workflow that was stored in form 0."""
    has_values = MANNERS[workflow.get("dialect", OWN)].has_extensions
    steps = workflow.get("steps") or []
    return {**workflow, "steps": [_step(step, has_values=has_values) for step in steps]}


def _step(step: Data, *, has_values: bool) -> Data:
    changed = dict(step)
    for name in ("prompt", "thread", "signal", "workflow", "seconds"):
        if isinstance(step.get(name), str):
            changed[name] = with_escapes(step[name])
    for name, step_types in _FILLED.items():
        if step.get(name) and step.get("type") in step_types:
            changed[name] = with_literal_depths(step[name], has_values=has_values)
    if isinstance(step.get("ask"), Mapping):
        changed["ask"] = _ask(step["ask"])
    if isinstance(step.get("rollback"), Mapping):
        parameters = with_literal_depths(step["rollback"].get("parameters") or {})
        changed["rollback"] = {**step["rollback"], **({"parameters": parameters} if parameters else {})}
    each = step.get("each")
    if isinstance(each, Mapping) and isinstance(each.get("items"), list):
        changed["each"] = {**each, "items": each_text(each["items"], literal)}
    return changed


def _ask(ask: Mapping[str, Any]) -> Data:
    changed = {name: with_escapes(ask[name]) for name in ("question", "message") if isinstance(ask.get(name), str)}
    data = {"data": with_literal_depths(ask["data"])} if ask.get("data") else {}
    return {**ask, **changed, **data}


_FILLED = {"parameters": ("action",), "inputs": ("workflow", "continue_as_new")}
"""By field of a step, the types of step that fill it in."""

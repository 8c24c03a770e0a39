"""Base class of definition dataclasses, with conversion to plain JSON and back.

The types of the fields determine how they are converted: a field of another definition class, or of a tuple of
definitions, is converted recursively. All other fields are plain JSON. Fields with their default value are not stored.
For example ``Retry(attempts=5).to_dict()`` is ``{"attempts": 5}``.

`_Form` computes once per class how its fields are read and which defaults they have. The end of the module upgrades
stored definitions of older versions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from divebook.definitions.dialect import DIALECT_RULES, OWN
from divebook.errors import DefinitionError, Problem, UnstorableValueError, did_you_mean
from divebook.events.codec import encode, locate_surrogate, storable
from divebook.events.payload import compile_init
from divebook.events.recorded import BigInt
from divebook.events.values import MAX_DEPTH, normalize
from divebook.text.arguments import normal_name
from divebook.text.syntax import each_text, literal, with_escapes, with_literal_depths

Reader: TypeAlias = Callable[[Any], Any]

_ATOMS = frozenset({str, int, float, bool, type(None)})
_LISTS = (tuple, list)


def json_value(value: Any, name: str) -> Any:
    """Convert a value to plain JSON data. Raise `DefinitionError` with the path of the first part that is not JSON.

    `name` is the first part of this path.
    """
    # Most steps have empty mappings, which need no copy.
    if not value and type(value) is dict:
        return {}
    try:
        plain_value = _json(value, name, 0)
        # Values are plain now. Encoding finds what only a store refuses, such as half a character.
        encode(plain_value, name)
    except (UnstorableValueError, RecursionError) as error:
        raise DefinitionError(
            [Problem(f"{error}", key=name, hint="definitions can contain only JSON values")]
        ) from error
    return plain_value


def _json(value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise UnstorableValueError(
            path, f"it is nested deeper than {MAX_DEPTH} levels; check whether it contains itself"
        )
    # Exact types only: an instance of a subclass, such as an enum member, is normalized below.
    if type(value) in _ATOMS:
        if type(value) is float and not math.isfinite(value):
            raise UnstorableValueError(path, f"{value} is not a JSON number; write it as a string, in quotes")
        return normalize(value, path) if type(value) is int else value  # integers beyond 64 bits become `BigInt`
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UnstorableValueError(f"{path}[{key!r:.60}]", "keys must be strings; put the key in quotes")
        return {str(key): _json(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, _LISTS):
        return [_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    normal = normalize(value, path)  # a scalar of numpy, or an instance of a subclass of str
    if type(normal) is BigInt:
        return normal
    if type(normal) not in _ATOMS:
        raise UnstorableValueError(path, f"a {type(value).__name__} is not JSON; write it as a string")
    # The normalized value may be a string or a number that needs a check itself.
    return _json(normal, path, depth)


def require_whole_characters(definition: Definition) -> None:
    """Raise `DefinitionError` if a string of a definition contains an unpaired surrogate (half a character).

    Stores and models refuse such strings.
    """
    for name, value in definition.to_dict().items():
        if place := locate_surrogate(value, name):
            message = f"{place} contains a lone surrogate (half a character), which cannot be stored or sent"
            hint = "decode the text with the encoding in which it was written"
            raise DefinitionError([Problem(message, key=name, hint=hint)], f"{type(definition).__name__}")


def recorded_default(value: Any, name: str) -> Any:
    """Convert the default of an input to its recorded form. Raise `DefinitionError` if a log cannot hold the value."""
    try:
        return storable(value, name)
    except UnstorableValueError as error:
        raise DefinitionError([Problem(f"{error}", key="default")]) from error


def require_text(value: Any, what: str, hint: str, key: str | None = None) -> None:
    """Raise `DefinitionError` unless `value` is a string. `what` describes the value in the error message, `key` is the
    field with the value.
    """
    if not isinstance(value, str):
        raise DefinitionError([Problem(f"{what} must be a string, got {value!r}", key=key, hint=hint)])


def plain(value: Any) -> Any:
    """Convert a value with definitions inside it to plain data: definitions become dicts, tuples become lists."""
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
    """Base class of definition dataclasses, such as `Step` and `Workflow`: conversion to plain JSON and back, and
    copies.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    names: ClassVar[tuple[str, ...]] = ()
    """Fields of the definition whose values are names. Their values are normalized (`divebook.text.arguments`)."""
    short: ClassVar[tuple[type, ...]] = ()
    """Types of values that are accepted in place of a definition. The value becomes the first field of the definition:
    ``"topic"`` in place of an input is an input with this name.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Remove `Key` annotations from the signature, which should show types only (test_signatures_show_types_alone).
        hints = getattr(vars(cls).get("__init__"), "__annotations__", {})
        annotated = {name: hint for name, hint in hints.items() if str(hint).startswith("Annotated[")}
        # "Annotated[int, Key(...)]" -> "int". The hints are strings, because annotations are postponed.
        hints |= {name: hint.partition(", Key(")[0].removeprefix("Annotated[") for name, hint in annotated.items()}

    def __post_init__(self) -> None:
        # Python code may pass any value. Definitions in YAML were checked before (`divebook.definitions.reader`).
        for name in _form(type(self)).required_texts:
            kind = type(self).__name__
            require_text(getattr(self, name), f"{name} of {kind}", f'write {kind}({name}="...")', name)
        for name in self.names:
            value = getattr(self, name)
            if isinstance(value, str) and not value.isascii():
                self._put(**{name: normal_name(value)})

    def _put(self, **values: Any) -> None:
        """Set fields of this definition although it is frozen. Used by its constructor and for cached values."""
        for name, value in values.items():
            # The class is frozen, and its own ``__setattr__`` raises.
            object.__setattr__(self, name, value)

    def like(self, **changes: Any) -> Self:
        """Return a copy of this definition with changed fields.

        The constructor does not run, so the values must have the form in which the fields store them.
        """
        # All fields are copied, also those that are not arguments of the constructor.
        values, fill = _form(type(self)).whole
        copy = object.__new__(type(self))
        fill(copy, *values(self))
        for name, value in changes.items():
            object.__setattr__(copy, name, value)
        if changes:
            copy._reset_caches()
        return copy

    def _reset_caches(self) -> None:
        """Set the fields that are computed from other fields to their first values. Called after fields have changed. A
        class with such fields overrides it.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON from which `from_dict` creates an equal definition. Fields with their default value are
        omitted.
        """
        stored = {}
        for name, default, keeps_equals in _form(type(self)).defaults:
            value = getattr(self, name)
            # An identical value is the default in any case. An equal one is not for a field marked ``always``: the
            # empty edges ``()`` equal `UNDECIDED`, but end a path.
            if value is default or (not keeps_equals and type(value) is type(default) and value == default):
                continue
            stored[name] = plain(value)
        return stored

    @classmethod
    def of(cls, value: Any) -> Self:
        """Convert a value to an instance of this definition class. The value may be an instance, a mapping of fields,
        or a short form such as a string (`short`).
        """
        return as_definition(cls, value)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Create a definition from the output of `to_dict`. An unknown key raises `DefinitionError`."""
        return cls(**arguments(cls, data))


R = TypeVar("R", bound=Definition)


def _default(entry: Field[Any]) -> Any:
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


def arguments(cls: type[Definition], data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the JSON form of a definition to keyword arguments for the constructor of its class `cls`. Raise
    `DefinitionError` for an unknown field.
    """
    readers = _form(cls).readers
    # A newer version has stored a field that this one does not know. Ignoring it could change the meaning.
    if not data.keys() <= readers.keys():
        raise _unknown_field(cls, next(key for key in data if key not in readers))
    return {key: value if (read := readers[key]) is None else read(value) for key, value in data.items()}


def _unknown_field(cls: type[Definition], name: str) -> DefinitionError:
    return DefinitionError(
        [Problem(f"stored {cls.__name__} has the unknown field {name!r}; a newer version of divebook wrote it")],
        "<stored definition>",
    )


def restored(cls: type[R], data: Mapping[str, Any]) -> R:
    """Create an instance of the definition class `cls` from the output of `to_dict`, without running the constructor
    and its checks.
    """
    # The checks passed before the definition was stored. A workflow may have thousands of steps, and their constructors
    # took half the time of a resumption.
    definition = object.__new__(cls)
    # After the loop `count` is 0 if each stored field belongs to the class.
    count = len(data)
    for name, put, read, default in _form(cls).puts:
        if name in data:
            count -= 1
            # The field is set by the descriptor of its slot, without the check of a frozen class.
            put(definition, data[name] if read is None else read(data[name]))
        elif default is MISSING:
            raise DefinitionError([Problem(f"stored {cls.__name__} has no {name}", key=name)], "<stored definition>")
        else:
            put(definition, default)
    if count:
        raise _unknown_field(cls, next(key for key in data if key not in _form(cls).readers))
    return definition


class _Form:
    """The JSON form of one definition class: for each field its name, its default, and the function that converts the
    JSON form of its value back.
    """

    def __init__(self, cls: type[Definition]) -> None:
        # Fields outside the constructor are caches. Transient fields hold positions in a text.
        stored = [entry for entry in fields(cls) if entry.init and not entry.metadata.get("transient")]
        hints = get_type_hints(cls)
        self.defaults = [(entry.name, _default(entry), bool(entry.metadata.get("always"))) for entry in stored]
        """Name and default of each field, and whether a value that is equal but not identical to the default is
        stored."""
        self.required_texts = [
            entry.name for entry in stored if _default(entry) is MISSING and hints[entry.name] is str
        ]
        """Fields that need a string and have no default."""
        self.readers = {entry.name: _reader(without_none(hints[entry.name])) for entry in stored}
        """Function that converts the plain form of each field back; None if the plain form is the value."""
        self._cls = cls

    @functools.cached_property
    def whole(self) -> tuple[Callable[[Any], tuple[Any, ...]], Callable[..., None]]:
        """Pair of functions that copy a definition quickly: the first returns the values of all fields as a tuple, the
        second sets the fields of a new instance to such values.
        """
        first, *rest = (entry.name for entry in fields(self._cls))
        # `attrgetter` with one name returns the value and not a tuple.
        values = attrgetter(first, *rest) if rest else lambda definition: (getattr(definition, first),)
        return values, compile_init(self._cls)

    @functools.cached_property
    def puts(self) -> list[tuple[str, Callable[[Any, Any], None], Reader | None, Any]]:
        """A tuple for each stored field of the class: its name, the function that sets the field in an instance, the
        function that converts the JSON form of its value, and its default.
        """
        return [
            (name, getattr(self._cls, name).__set__, self.readers[name], default) for name, default, _ in self.defaults
        ]


_FORMS: dict[type[Definition], _Form] = {}


def _form(cls: type[Definition]) -> _Form:
    # Computed at the first use: annotations may name classes that are defined later in the module.
    if cls not in _FORMS:
        _FORMS[cls] = _Form(cls)
    return _FORMS[cls]


def as_definition(cls: type[R], value: Any) -> R:
    """Convert a value to an instance of the definition class `cls`. The value may be an instance, a mapping of fields
    or a short form; see `Definition.of`.
    """
    if isinstance(value, cls):
        return value
    if isinstance(value, cls.short):
        return cls(value)  # type: ignore[call-arg]
    if not isinstance(value, Mapping):
        raise DefinitionError([Problem(f"{cls.__name__} must be a mapping, not {value!r:.60}")])
    return cls(**_written(cls, value))


def defaults(cls: type[Definition]) -> dict[str, Any]:
    """Return the default values of a definition class by field name. Fields that are not stored or have no default are
    left out.
    """
    return {name: default for name, default, _ in _form(cls).defaults if default is not MISSING}


def _written(cls: type[Definition], data: Mapping[str, Any]) -> dict[str, Any]:
    """Check the field names of a mapping that a person wrote in place of a definition. Return the mapping without the
    optional fields that are None.

    Raise `DefinitionError` for an unknown or missing field.
    """
    mandatory = {name: default is MISSING for name, default, _ in _form(cls).defaults}
    for key in data.keys() - mandatory.keys():
        hint = did_you_mean(str(key), mandatory) or f"known keys: {', '.join(mandatory)}"
        raise DefinitionError([Problem(f"{cls.__name__} has no key {key!r}", key=str(key), hint=hint)])
    # None means an omitted key if the field has a default.
    values = {key: value for key, value in data.items() if value is not None or mandatory[key]}
    missing = [name for name, is_mandatory in mandatory.items() if is_mandatory and name not in values]
    if missing:
        raise DefinitionError([Problem(f"{missing[0]} is required in {cls.__name__}", key=missing[0])])
    return values


def without_none(hint: Any) -> Any:
    """Return the type ``T`` for the annotation ``T | None`` of a field. Return any other annotation unchanged."""
    # ``Optional[T]`` and ``T | None`` have different types at run time.
    if get_origin(hint) not in (Union, UnionType):
        return hint
    choices = [choice for choice in get_args(hint) if choice is not NoneType]
    return choices[0] if len(choices) == 1 else hint


def _reader(hint: Any) -> Reader | None:
    # Definitions are read recursively, and tuples of them item by item. All other values are stored as they are.
    if isinstance(hint, type) and issubclass(hint, Definition):
        return lambda value: None if value is None else hint.from_dict(value)
    if get_origin(hint) not in (tuple, Sequence):
        return None
    read = _reader(get_args(hint)[0])
    return _as_tuple if read is None else lambda value: tuple([read(item) for item in value])


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# --- upgrade of stored definitions from form 0 to form 1 --------------------------------------------------------------
#
# In form 0 templates had no escapes: ``$${x}`` was a dollar sign and a value. Strings inside lists and mappings were no
# templates. The strings are converted, so that a recorded execution keeps its meaning when it resumes.


Data = dict[str, Any]


def with_present_templates(workflow: Data) -> Data:
    """Convert a stored workflow from an early version (form 0) to form 1: escapes are added to its templates, because
    the syntax of form 0 had none.
    """
    # In the dialect ``dive`` a whole string ``$(...)`` was text.
    has_values = DIALECT_RULES[workflow.get("dialect", OWN)].has_extensions
    steps = workflow.get("steps") or []
    return {**workflow, "steps": [_step(step, has_values=has_values) for step in steps]}


def _step(step: Data, *, has_values: bool) -> Data:
    """Convert one step of a stored workflow from form 0, the form of an early version, to form 1.

    Fields that were templates get escapes (``with_escapes``). Strings inside parameters and inputs, and items of a
    list, were no templates, and are escaped as a whole (``literal``).
    """
    changed = dict(step)
    for name in ("prompt", "thread", "signal", "workflow", "seconds"):
        if isinstance(step.get(name), str):
            changed[name] = with_escapes(step[name])
    for name, step_types in _FILLED.items():
        # Other types of steps ignore these fields.
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
"""Fields that contain templates in form 1, with the step types that use them."""

"""How a mapping with known keys becomes a definition: the keys are those of its fields that are annotated with one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from divebook.errors import DefinitionError, Place, Problem, did_you_mean, shown_number
from divebook.text.ranges import INTEGER, NumberRange
from divebook.workflow import kinds, located
from divebook.workflow.kinds import INVALID, Kind, mismatch
from divebook.workflow.located import Node, Scalar, Sequence
from divebook.workflow.reading import Reading
from divebook.workflow.stored_form import Definition, defaults, without_none

_CAPITALS = {"id": "ID", "mcp": "MCP", "oauth": "OAuth", "pkce": "PKCE", "uri": "URI", "url": "URL"}
FOLLOWS: Any = None
"""Stands for a kind that follows from the type of the field."""


def snake_case(key: str) -> str:
    """Return the other spelling of a key: ``ResponseTimeout`` is ``response_timeout``."""
    if key == "OAuth":
        return "oauth"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


def _written(name: str) -> str:
    """Return the key of a field: ``response_timeout`` is written ``ResponseTimeout``."""
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it means and holds, and which field it fills.

    A field that definitions write is annotated with its key, of which only `means` must be said:
    ``parallel: Annotated[int, Key("How many items run at the same time.", extension=True)] = 1``.
    """

    means: str
    """One line of the reference, for people."""
    name: str = ""
    """How it is written; by default as the field is called, in capitals."""
    field: str = ""
    kind: Kind = FOLLOWS
    required: str = ""
    """Complaint if it is missing or empty."""
    ignored: str = ""
    """Why it has no effect: an error, in the dialect ``dive`` a warning."""
    extension: bool = False
    """Unknown to the dialect ``dive``."""
    example: str = ""
    """A value as it may be written, where its kind does not give one."""
    formerly: tuple[str, ...] = ()
    """Names that it had once: still read, with a warning that says what to write."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a table read from one mapping, for the function that makes the definition."""

    values: dict[str, Any]
    node: located.Mapping
    place: Place
    failed: frozenset[str]
    """Fields whose value is wrong, or missing though required."""
    is_sound: bool
    """Whether nothing was wrong anywhere in it."""


Maker = Callable[[Made, Reading], Any]


_TABLES: dict[type[Definition], Table] = {}
"""The table of each kind of definition."""


@dataclass(frozen=True)
class Table:
    """The keys of one kind of mapping: those of the fields of a definition.

    `advice` answers keys that people write but that do not exist: ``{"Backstory": "write it into Instructions"}``.
    """

    label: str
    definition: type[Definition]
    make: Maker | None = None
    """What makes the definition; by default it is handed the values."""
    example: str = ""
    """What such a mapping may look like."""
    text_key: str = ""
    """The key for which a text stands that is written in place of a mapping."""
    advice: Mapping[str, str] = field(default_factory=dict)
    more: tuple[Key, ...] = ()
    """Keys that fill no field of the definition."""

    def __post_init__(self) -> None:
        _TABLES[self.definition] = self

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys, in the order of the fields."""
        hints = get_type_hints(self.definition, include_extras=True)
        return (*(_key(name, *get_args(hint)) for name, hint in hints.items() if _has_key(hint)), *self.more)

    @cached_property
    def _spellings(self) -> dict[str, Key]:
        former = {name: key for key in self.keys for name in key.formerly}
        former |= {snake_case(name): key for name, key in former.items()}
        present = {key.name: key for key in self.keys}
        return {**former, **present, **{snake_case(name): key for name, key in present.items()}}

    @cached_property
    def _folded(self) -> dict[str, Key]:
        return {spelling.casefold(): key for spelling, key in self._spellings.items()}

    def read(self, node: located.Mapping, place: Place, reading: Reading) -> Any:
        """Return the definition that the mapping describes, or `INVALID`."""
        before = len(reading.errors)
        values: dict[str, Any] = {}
        given: dict[str, Scalar] = {}
        for key_node, item in node.entries:
            key = self._find(key_node, place, reading)
            if key is None or not self._is_new(key, key_node, given, place, reading):
                continue
            where = (*place, key.name)
            reading.locate(where, key_node.start, item.start)
            if not (isinstance(item, Scalar) and item.value is None):
                self._note_effect(key, key_node, where, reading)
                values[key.field] = key.kind.read(item, where, reading)
        failed = {key.field for key in self.keys if values.get(key.field) is INVALID}
        failed |= self._missing(values, node, place, reading)
        values = {name: value for name, value in values.items() if name not in failed}
        make = self.make or self._made
        made = Made(values, node, place, frozenset(failed), len(reading.errors) == before)
        try:
            return make(made, reading)
        except DefinitionError as error:  # a definition that refuses its values
            reading.refused.add(place)
            for problem in error.problems:
                if problem.place:
                    reading.add_found([problem.below(*place)])
                else:
                    where = (*place, problem.key or "")
                    reading.add(problem.message, node.start, where, key=problem.key, hint=problem.hint)
            return INVALID

    def _made(self, made: Made, _reading: Reading) -> Any:
        """Return the definition of what was read soundly; one that lacks something is `INVALID`."""
        return INVALID if made.failed - defaults(self.definition).keys() else self.definition(**made.values)

    def key(self, spelling: str) -> Key | None:
        """Return the key that is written so, in either of its spellings."""
        return self._spellings.get(spelling)

    def write(self, value: Any) -> dict[str, Any]:
        """Return the definition as a mapping of written keys, without what is at its default."""
        data = value.to_dict()
        return {key.name: key.kind.write(getattr(value, key.field)) for key in self.keys if key.field in data}

    def _find(self, node: Scalar, place: Place, reading: Reading) -> Key | None:
        by_spelling = self._folded if reading.format == "json" else self._spellings
        key = by_spelling.get(node.text.casefold() if reading.format == "json" else node.text)
        if key is None or (key.extension and not reading.strict):
            self._unknown(node, place, reading, key)
            return None
        return key

    def _unknown(self, node: Scalar, place: Place, reading: Reading, key: Key | None) -> None:
        if reading.lax:
            return
        hint = 'only in the dialect "divebook"' if key else self._suggestion(node.text)
        message = f"unknown key {node.text!r}"
        reading.add(message, node.start, (*place, node.text), key=node.text, hint=hint)

    def _suggestion(self, text: str) -> str:
        """Return what to write instead of an unknown key."""
        names = [key.name for key in self.keys]
        if text in self.advice:
            return self.advice[text]
        near = did_you_mean(text, names) or did_you_mean(text.replace("_", ""), names)
        return near or f"{self.label} has {', '.join(names)}"

    def _is_new(self, key: Key, node: Scalar, given: dict[str, Scalar], place: Place, reading: Reading) -> bool:
        earlier = given.setdefault(key.name, node)
        if earlier is node or reading.lax:
            return True
        if earlier.text != node.text:
            message = f"key {node.text!r} is given twice, also as {earlier.text!r}"
            reading.add(message, node.start, (*place, key.name), key=node.text, hint="keep one of the two")
        return False

    def _note_effect(self, key: Key, node: Scalar, place: Place, reading: Reading) -> None:
        if snake_case(node.text) in map(snake_case, key.formerly):
            message = f"{node.text} is called {key.name} now"
            hint = f"write {key.name}; the former name is still read"
            reading.add(message, node.start, place, key=node.text, hint=hint, severity="warning")
        if key.ignored:
            message = f"{key.name} has no effect"
            reading.add(message, node.start, place, key=key.name, hint=key.ignored, severity=reading.severity)

    def _missing(self, values: dict[str, Any], node: located.Mapping, place: Place, reading: Reading) -> set[str]:
        missing = [key for key in self.keys if key.required and not values.get(key.field)]
        for key in missing:
            reading.add(key.required, node.start, (*place, key.name), key=key.name, hint=f"add {key.name}")
        return {key.field for key in missing}


# --- numbers ---------------------------------------------------------------------------------------------------------


def ranges(definition: type[Definition]) -> Mapping[str, tuple[str, NumberRange, bool]]:
    """Return the numeric fields of a definition: the key and the range of each, and whether it may be a template."""
    if definition not in _RANGES:
        hints = get_type_hints(definition, include_extras=True)
        keys = [_key(name, *get_args(hint)) for name, hint in hints.items() if _has_key(hint) and _is_number(hint)]
        _RANGES[definition] = {
            key.field: (key.name, key.kind.range, isinstance(key.kind, kinds.Seconds))
            for key in keys
            if isinstance(key.kind, kinds.Number | kinds.Seconds | kinds.ResponseTimeout)
        }
    return _RANGES[definition]


def number_problems(made: Definition) -> Iterator[Problem]:
    """Return a problem for each number that is out of the range of its key; None stands for no number."""
    for field_name, (key, allowed, is_template) in ranges(type(made)).items():
        value = getattr(made, field_name)
        if value is None or (is_template and isinstance(value, str)):
            continue
        if not allowed.fits(value):
            name = key if key.casefold() == field_name else f"{key} ({field_name})"
            yield Problem(f"{name} must be {allowed}, not {shown_number(value)}", key=key, place=(key,))


def require_numbers(made: Definition) -> None:
    """Raise `DefinitionError` for numbers of a definition that Python code made with a value out of range."""
    problems = [replace(problem, place=()) for problem in number_problems(made)]
    if problems:
        raise DefinitionError(problems)


_RANGES: dict[type[Definition], dict[str, tuple[str, NumberRange, bool]]] = {}


# --- what a field's type says about its key --------------------------------------------------------------------------


def _has_key(hint: Any) -> bool:
    return get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], Key)


def _is_number(hint: Any) -> bool:
    declared, key = get_args(hint)
    return hasattr(_kind_of(declared) if key.kind is FOLLOWS else key.kind, "range")


def _key(name: str, hint: Any, key: Key) -> Key:
    """Return the key of a field with what was not said of it."""
    return replace(
        key, name=key.name or _written(name), field=name, kind=_kind_of(hint) if key.kind is FOLLOWS else key.kind
    )


def _kind_of(hint: Any) -> Kind:
    """Return the kind of a type."""
    hint = without_none(hint)
    if hint in _KINDS:
        return _KINDS[hint]
    return Many(get_args(hint)[0]) if get_origin(hint) is tuple else One(hint)


_KINDS: Mapping[Any, Kind] = {
    str: kinds.Text(),
    bool: kinds.Flag(),
    int: kinds.Number(INTEGER),
    float: kinds.Number(),
    Any: kinds.Anything(),
    tuple[str, ...]: kinds.Texts(),
    Mapping[str, Any]: kinds.MappingOf(kinds.Anything(), "a mapping"),
    Mapping[str, str]: kinds.MappingOf(kinds.Text(), "a mapping of texts"),
    Mapping[str, AnySequence[str]]: kinds.MappingOf(kinds.OneOrMore(), "a mapping of texts"),
}


@dataclass(frozen=True, slots=True)
class _OfRecords:
    """What a key holds whose value has keys of its own."""

    definition: type[Definition]

    @property
    def table(self) -> Table:
        """The keys."""
        return _TABLES[self.definition]


@dataclass(frozen=True, slots=True)
class One(_OfRecords):
    """A mapping with keys of its own, or the text that stands for one of them."""

    besides: str = ""
    """What else may have been meant, for the hint."""

    @property
    def holds(self) -> str:
        """What kind of value it is."""
        return f"a mapping, see {self.table.label}"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the definition, or `INVALID` after noting what is wrong."""
        key, example = self.table.text_key, self.table.example
        if key and isinstance(node, Scalar) and isinstance(node.value, str):
            node = located.Mapping(((Scalar(key, key, node.start), node),), node.start, node.start)
        if not isinstance(node, located.Mapping):
            hint = f"write {place[-1]}: {example}{self.besides}" if example else None
            return mismatch("a mapping", node, place, reading, hint)
        return self.table.read(node, place, reading)

    def write(self, value: Any) -> Any:
        """Return the value as it would stand in a definition."""
        return self.table.write(value)


@dataclass(frozen=True, slots=True)
class Many(_OfRecords):
    """A list of mappings with keys of their own."""

    @property
    def holds(self) -> str:
        """What kind of value it is."""
        return f"a list, see {self.table.label}"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the definitions, or `INVALID` after noting what is wrong."""
        if not isinstance(node, Sequence):
            return mismatch("a list", node, place, reading, self._hint(place))
        items = [self._item(item, (*place, index), reading) for index, item in enumerate(node.items)]
        if not all(isinstance(item, located.Mapping) for item in node.items):
            return INVALID
        return tuple(item for item in items if item is not INVALID)

    def _item(self, node: Node, place: Place, reading: Reading) -> Any:
        reading.locate(place, node.start, node.start)
        if not isinstance(node, located.Mapping):
            return mismatch("a list of mappings", node, place, reading, self._hint(place[:-1]))
        return self.table.read(node, place, reading)

    def _hint(self, place: Place) -> str | None:
        return f"write {place[-1]}: [{self.table.example}]" if self.table.example else None

    def write(self, value: Any) -> Any:
        """Return the value as it would stand in a definition."""
        return [self.table.write(item) for item in value]

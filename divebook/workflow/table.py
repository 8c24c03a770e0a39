"""How a mapping with known keys becomes a definition: the keys are those of its fields that are annotated with one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as AbcMapping
from collections.abc import Sequence as AnySequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NoReturn, Protocol, TypeAlias, get_args, get_origin, get_type_hints

from divebook.errors import DefinitionError, Place, Problem, Severity, did_you_mean, shown_number
from divebook.text.format import parse_duration
from divebook.text.ranges import INTEGER, NUMBER, SECONDS, NumberRange
from divebook.workflow.dialect import MANNERS, OWN, Dialect, DialectRules
from divebook.workflow.stored_form import Definition, defaults, without_none

# A definition before it is understood: scalars, lists and mappings that know where they stand in their text.


MAX_DEPTH = 64
MAX_NODES = 200_000
MAX_TEXT = 2_000_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the text: line and column from 1 (0: no text), and the index of the character."""

    line: int = 0
    column: int = 0
    index: int = 0


NOWHERE = Mark()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, truth value or null; `text` is how it was written."""

    value: str | int | float | bool | None
    text: str
    start: Mark = NOWHERE


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple[Node, ...]
    start: Mark = NOWHERE
    size: int = 1


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with values in written order; a key may be there twice."""

    entries: tuple[tuple[Scalar, Node], ...]
    start: Mark = NOWHERE
    end: Mark = NOWHERE
    size: int = 1


Node: TypeAlias = Scalar | Sequence | Mapping


def size_of(node: Node) -> int:
    """Return how many nodes there are in and below `node`, repeated ones counted each time."""
    return 1 if isinstance(node, Scalar) else node.size


def kind_of(node: Node) -> str:
    """Return what a node is, in words for an error."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.value is None:
        return "nothing"
    shown = node.text if len(node.text) <= 40 else f"{node.text[:37]}..."
    return f"the text {shown!r}" if isinstance(node.value, str) else shown


def located(value: Any, depth: int = 0) -> Node:
    """Return plain Python data as nodes without positions.

    Raises
    ------
    TypeError
        A value is not plain JSON-like data.
    ValueError
        The data is nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, AbcMapping):
        return Mapping(tuple((_scalar_key(key), located(item, depth + 1)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return Sequence(tuple(located(item, depth + 1) for item in value))
    return _scalar(value)


def _scalar_key(key: Any) -> Scalar:
    if not isinstance(key, str):
        raise TypeError(f"keys must be text, not {key!r}")
    return Scalar(key, key)


def _scalar(value: Any) -> Scalar:
    if value is None or isinstance(value, bool):
        return Scalar(value, {None: "null", True: "true", False: "false"}[value])
    if isinstance(value, str | int | float):
        return Scalar(value, str(value))
    raise TypeError(f"{type(value).__name__} is not plain data: use text, numbers, lists and mappings")


def nearest_position(place: Place, positions: AbcMapping[Place, tuple[int, int]]) -> tuple[int, int]:
    """Return line and column of a place, or of the nearest one above it that is known; (0, 0) if none is."""
    for length in range(len(place), -1, -1):
        if place[:length] in positions:
            return positions[place[:length]]
    return (0, 0)


# One pass over one definition text: what was found wrong, and where everything stands.


Format = Literal["yaml", "json"]


@dataclass(slots=True)
class Reading:
    """Collects problems and positions while a text is read.

    `format` says how keys are matched; a Python mapping is read as if it were YAML.
    """

    text: str = ""
    source_name: str = "<cell>"
    dialect: Dialect = OWN
    format: Format = "yaml"
    line_offset: int = 0
    problems: list[Problem] = field(default_factory=list)
    positions: dict[Place, tuple[int, int]] = field(default_factory=dict)
    broken: set[Place] = field(default_factory=set)
    """Steps with something wrong in them, whose other rules are not worth checking."""
    refused: set[Place] = field(default_factory=set)
    """Definitions that could not be made, and are left out of their lists."""

    @property
    def manner(self) -> DialectRules:
        """What differs between the dialects."""
        return MANNERS[self.dialect]

    @property
    def strict(self) -> bool:
        """Whether what would be ignored is an error."""
        return self.manner.is_strict

    @property
    def severity(self) -> Severity:
        """How bad it is that something would be ignored."""
        return "error" if self.strict else "warning"

    @property
    def lax(self) -> bool:
        """Whether unknown and repeated keys are let through, as the old system did in JSON."""
        return self.format == "json" and not self.strict

    @property
    def errors(self) -> list[Problem]:
        """The problems that forbid the use of the text."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that do not."""
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    def add(
        self,
        message: str,
        mark: Mark,
        place: Place = (),
        *,
        key: str | None = None,
        hint: str | None = None,
        severity: Severity = "error",
    ) -> None:
        """Note a problem at `mark`."""
        line, column = self.position(mark)
        self.problems.append(Problem(message, line, column, key, severity, hint, place))

    def add_found(self, found: Iterable[Problem]) -> None:
        """Note problems that know only their place; the nearest known position above it is filled in."""
        for problem in found:
            located = problem.at(*nearest_position(problem.place, self.positions))
            twin = nearest_position(problem.twin, self.positions)[0] if problem.twin else 0
            self.problems.append(located.beside(twin))

    def find_duplicates(self, entries: AnySequence[tuple[Scalar, Node]]) -> None:
        """Note every key that its mapping has already; lax JSON lets the last one win."""
        first: dict[str, Mark] = {}
        for key, _ in [] if self.lax else entries:
            if key.text in first:
                hint = f"first on line {self.position(first[key.text])[0]}"
                self.add(f"key {key.text!r} is given twice", key.start, key=key.text, hint=hint)
            first.setdefault(key.text, key.start)

    def locate(self, place: Place, key: Mark, value: Mark) -> None:
        """Remember where `place` stands: at its value, or at its key if the value begins on another line."""
        if key.line:
            self.positions[place] = self.position(value if value.line == key.line else key)

    def position(self, mark: Mark) -> tuple[int, int]:
        """Return line and column in the whole cell or file."""
        return (mark.line + self.line_offset, mark.column) if mark.line else (0, 0)

    def fail(self, message: str, mark: Mark, hint: str | None = None) -> NoReturn:
        """Give up: note the problem and raise everything found so far."""
        self.add(message, mark, hint=hint)
        raise self._error()

    def raise_errors(self) -> None:
        """Raise `DefinitionError` if there are errors, in the order of the text."""
        if self.errors:
            raise self._error()

    def source_of(self, node: Node) -> str:
        """Return the text that `node` was read from, moved to the left margin."""
        if not isinstance(node, Mapping) or not node.start.line:
            return ""
        lines = self.text[node.start.index : node.end.index].rstrip().split("\n")
        margin = " " * (node.start.column - 1)
        return "\n".join([lines[0], *(line.removeprefix(margin) for line in lines[1:])]) + "\n"

    def _error(self) -> DefinitionError:
        ordered = sorted(self.errors, key=lambda problem: (problem.line, problem.column))
        return DefinitionError(ordered, self.source_name)


# The kinds of value a key can hold: how each is read from nodes, checked, and written back.
#
# A kind reads a node that is not null; it returns `INVALID` after it has noted a problem.


class _Invalid:
    def __repr__(self) -> str:
        return "INVALID"


INVALID: Any = _Invalid()

INPUT_TYPES = {
    **dict.fromkeys(("string", "text", "str"), (str,)),
    **dict.fromkeys(("int", "integer"), (int,)),
    **dict.fromkeys(("float", "number"), (int, float)),
    **dict.fromkeys(("bool", "boolean"), (bool,)),
    **dict.fromkeys(("list", "array"), (list, tuple)),
    **dict.fromkeys(("map", "dict", "object"), (dict,)),
}
"""What `Type` of an input may say, in any case of letters, and the Python types that fit it."""


class Kind(Protocol):
    """Reads one kind of value."""

    @property
    def holds(self) -> str:
        """What kind of value it is, for the reference."""

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the value, or `INVALID` after noting what is wrong."""

    def write(self, value: Any) -> Any:
        """Return `value` as it would stand in a definition."""


def _key_of(place: Place) -> str:
    return next((part for part in reversed(place) if isinstance(part, str)), "the definition")


def mismatch(expected: str, node: Node, place: Place, reading: Reading, hint: str | None = None) -> Any:
    """Note that `node` is not what its key needs; return `INVALID`."""
    key = _key_of(place)
    reading.add(f"{key} must be {expected}, not {kind_of(node)}", node.start, place, key=key, hint=hint)
    return INVALID


class Plain:
    """Base of the kinds whose values are written as they are."""

    def write(self, value: Any) -> Any:
        """Return the value itself."""
        return value


@dataclass(frozen=True, slots=True)
class Text(Plain):
    """A text; numbers and truth values are taken as they are written (``Version: 1.0``).

    `choices` and `complaint` restrict it: ``"invalid log level: {}"``.
    """

    trimmed: bool = False
    choices: tuple[str, ...] = ()
    complaint: str = ""
    hint: str | None = None

    @property
    def holds(self) -> str:
        """What kind of value it is."""
        return f"one of {', '.join(self.choices)}" if self.choices else "a text"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the text, or `INVALID` after noting what is wrong."""
        if not isinstance(node, Scalar):
            return mismatch("a text", node, place, reading, self.hint)
        text = node.text.strip() if self.trimmed else node.text
        if self.choices and text and text not in self.choices:
            hint = did_you_mean(text, self.choices) or f"one of {', '.join(self.choices)}"
            reading.add(self.complaint.format(text), node.start, place, key=_key_of(place), hint=hint)
            return INVALID
        return text


class InputType(Plain):
    """What an input must be, in any case of letters; the dialect ``dive`` takes any word, and checks nothing then."""

    holds = f"one of {', '.join(INPUT_TYPES)}"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the type as written, or `INVALID` after noting what is wrong."""
        text = Text().read(node, place, reading)
        if text is INVALID or not reading.strict or not text or text.lower() in INPUT_TYPES:
            return text
        hint = did_you_mean(text, INPUT_TYPES) or f"one of {', '.join(INPUT_TYPES)}; without Type everything fits"
        reading.add(f"unknown type of input: {text!r}", node.start, place, key="Type", hint=hint)
        return INVALID


class Flag(Plain):
    """``true`` or ``false``."""

    holds = "true or false"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the truth value, or `INVALID` after noting what is wrong."""
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        return mismatch("true or false", node, place, reading)


@dataclass(frozen=True, slots=True)
class Number(Plain):
    """A number of a range.

    The dialect ``dive`` has no lower limits: only what no clock or database holds is refused there.
    """

    range: NumberRange = NUMBER

    @property
    def holds(self) -> str:
        """What kind of value it is."""
        return "a whole number" if self.range.is_whole else "a number"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the number, or `INVALID` after noting what is wrong."""
        value = node.value if isinstance(node, Scalar) else None
        allowed = self.range if reading.strict else replace(self.range, least=None, excludes_least=False)
        if not allowed.fits(value):
            return mismatch(str(allowed), node, place, reading)
        return value if self.range.is_whole else float(value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Seconds(Plain):
    """A number of seconds or a template that gives one."""

    range: NumberRange = SECONDS
    holds = "seconds, or a template"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the number or template, or `INVALID` after noting what is wrong."""
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.text
        return Number(self.range).read(node, place, reading)

    def write(self, value: Any) -> Any:
        """Return a whole number as one."""
        return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, slots=True)
class ResponseTimeout:
    """A duration: ``30s``, ``1m30s`` or a number of seconds."""

    range: NumberRange = SECONDS
    holds = "a duration: 30s, 1m30s, or seconds"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return seconds, or `INVALID` after noting what is wrong."""
        value = node.value if isinstance(node, Scalar) else None
        seconds = None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            with suppress(ValueError, OverflowError):
                seconds = parse_duration(value)
        if self.range.fits(seconds):
            return seconds
        hint = f"write 30s, 1m30s or {self.range}"
        message = f"{_key_of(place)}: invalid response timeout: {kind_of(node)}"
        reading.add(message, node.start, place, key=_key_of(place), hint=hint)
        return INVALID

    def write(self, value: Any) -> Any:
        """Return the value as it would stand in a definition."""
        return int(value) if value == int(value) else f"{value}s"


class Anything(Plain):
    """Plain JSON of any shape."""

    holds = "anything"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the value, or `INVALID` after noting what is wrong."""
        if isinstance(node, Sequence):
            return [self.read(item, (*place, index), reading) for index, item in enumerate(node.items)]
        if isinstance(node, Mapping):
            return {key.text: self.read(item, (*place, key.text), reading) for key, item in node.entries}
        if isinstance(node.value, float) and not math.isfinite(node.value):
            mismatch("a finite number", node, place, reading)
            return None  # the value may sit deep inside others, which are to be plain JSON
        return node.value


@dataclass(frozen=True, slots=True)
class MappingOf(Plain):
    """A mapping of texts to values of one kind."""

    kind: Kind
    holds: str

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the mapping, or `INVALID` after noting what is wrong."""
        if not isinstance(node, Mapping):
            return mismatch("a mapping", node, place, reading)
        return {key.text: self.kind.read(item, (*place, key.text), reading) for key, item in node.entries}


class OneOrMore(Plain):
    """A text, or several."""

    holds = "a text, or a list of texts"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return a list of texts."""
        items = node.items if isinstance(node, Sequence) else (node,)
        return [Text().read(item, place, reading) for item in items]


class Texts:
    """A list of texts."""

    holds = "a list of texts"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the texts, or `INVALID` after noting what is wrong."""
        if not isinstance(node, Sequence):
            hint = f"write [{node.text}]" if isinstance(node, Scalar) and re.fullmatch(r"[\w.-]+", node.text) else None
            return mismatch("a list of texts", node, place, reading, hint)
        return tuple(self._item(item, (*place, index), reading) for index, item in enumerate(node.items))

    def _item(self, node: Node, place: Place, reading: Reading) -> Any:
        reading.locate(place, node.start, node.start)
        if isinstance(node, Scalar) and node.value is None:
            return mismatch("a text", node, place, reading)
        return Text().read(node, place, reading)

    def write(self, value: Any) -> Any:
        """Return the value as it would stand in a definition."""
        return list(value)


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
    node: Mapping
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
    advice: AbcMapping[str, str] = field(default_factory=dict)
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

    def read(self, node: Mapping, place: Place, reading: Reading) -> Any:
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

    def _missing(self, values: dict[str, Any], node: Mapping, place: Place, reading: Reading) -> set[str]:
        missing = [key for key in self.keys if key.required and not values.get(key.field)]
        for key in missing:
            reading.add(key.required, node.start, (*place, key.name), key=key.name, hint=f"add {key.name}")
        return {key.field for key in missing}


# --- numbers ---------------------------------------------------------------------------------------------------------


def ranges(definition: type[Definition]) -> AbcMapping[str, tuple[str, NumberRange, bool]]:
    """Return the numeric fields of a definition: the key and the range of each, and whether it may be a template."""
    if definition not in _RANGES:
        hints = get_type_hints(definition, include_extras=True)
        keys = [_key(name, *get_args(hint)) for name, hint in hints.items() if _has_key(hint) and _is_number(hint)]
        _RANGES[definition] = {
            key.field: (key.name, key.kind.range, isinstance(key.kind, Seconds))
            for key in keys
            if isinstance(key.kind, Number | Seconds | ResponseTimeout)
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


_KINDS: AbcMapping[Any, Kind] = {
    str: Text(),
    bool: Flag(),
    int: Number(INTEGER),
    float: Number(),
    Any: Anything(),
    tuple[str, ...]: Texts(),
    AbcMapping[str, Any]: MappingOf(Anything(), "a mapping"),
    AbcMapping[str, str]: MappingOf(Text(), "a mapping of texts"),
    AbcMapping[str, AnySequence[str]]: MappingOf(OneOrMore(), "a mapping of texts"),
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
        key = self.table.text_key
        example = self.table.example
        if key and isinstance(node, Scalar) and isinstance(node.value, str):
            node = Mapping(((Scalar(key, key, node.start), node),), node.start, node.start)
        if not isinstance(node, Mapping):
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
        if not all(isinstance(item, Mapping) for item in node.items):
            return INVALID
        return tuple(item for item in items if item is not INVALID)

    def _item(self, node: Node, place: Place, reading: Reading) -> Any:
        reading.locate(place, node.start, node.start)
        if not isinstance(node, Mapping):
            return mismatch("a list of mappings", node, place, reading, self._hint(place[:-1]))
        return self.table.read(node, place, reading)

    def _hint(self, place: Place) -> str | None:
        return f"write {place[-1]}: [{self.table.example}]" if self.table.example else None

    def write(self, value: Any) -> Any:
        """Return the value as it would stand in a definition."""
        return [self.table.write(item) for item in value]

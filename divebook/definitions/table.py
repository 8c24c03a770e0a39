"""Tables of keys, one for each definition class, derived from the annotations of the class's fields. A table converts
the nodes of a definition text to a definition, and a definition to a mapping.

A field of a definition class that can be written in a file is annotated with a `Key`:

    parallel: Annotated[int, Key("Maximum number of items that run at the same time.", extension=True)] = 1

`Table` collects the keys of a class. `Table.read` goes through the entries of a mapping node and finds the key of each
entry by its spelling. The *kind* of the key (`Text`, `Number`, `One` for a nested definition ...) reads the value.
Problems are collected in a `Reading` with their positions. For the text ``Parallel: many`` the kind `Number` reports
"Parallel must be an integer ..., not the text 'many'" at line and column of ``many``, and returns `INVALID`. The other
keys are still read, so that one pass reports all errors.

The writer (`Table.write`), the reference of keys and completion are derived from the same annotations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, NoReturn, Protocol, TypeAlias, get_args, get_origin, get_type_hints

from divebook import plugins
from divebook.definitions.dialect import OWN, Dialect, DialectRules, rules_of
from divebook.definitions.stored_form import Definition, defaults, without_none
from divebook.errors import DefinitionError, Place, Problem, Severity, did_you_mean, shown_number
from divebook.text.arguments import expected_seconds, plain_seconds
from divebook.text.format import GO_PART, parse_duration
from divebook.text.format import PART as DURATION_PART
from divebook.text.ranges import INTEGER, NUMBER, SECONDS, NumberRange


@dataclass(frozen=True)
class Table:
    """Table of the keys that a definition of one class may have in a file. With it, a definition is read from a mapping
    node and written as a mapping.

    `advice` has hints for keys that people write but that do not exist: ``{"Backstory": "write it into
    Instructions"}``.
    """

    label: str
    definition: type[Definition]
    make: Maker | None = None
    """Function that creates the definition from the read values; by default the constructor."""
    example: str = ""
    """Example of a mapping with these keys."""
    text_key: str = ""
    """Key to which a plain string in place of the mapping is assigned; empty if a string is an error."""
    advice: Mapping[str, str] = field(default_factory=dict)
    more: tuple[Key, ...] = ()
    """Additional keys that do not fill a field of the definition."""
    optional: frozenset[str] = frozenset()
    """Fields without a default for which `make` has a value, so that their keys may be absent."""

    def __post_init__(self) -> None:
        # The class is known before its keys are: `One` and `Many` find the table of a nested definition here.
        _TABLES[self.definition] = self

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """Keys of the table's definition class, in the order of its fields."""
        # On first use, since annotations may name classes that are defined later.
        hints = get_type_hints(self.definition, include_extras=True)
        return (*(_key(name, *get_args(hint)) for name, hint in hints.items() if _has_key(hint)), *self.more)

    @cached_property
    def _spellings(self) -> dict[str, Key]:
        # Former names come first, so that a present name has priority over an equal former one.
        former = {name: key for key in self.keys for name in key.formerly}
        former |= {snake_case(name): key for name, key in former.items()}
        present = {key.name: key for key in self.keys}
        return {**former, **present, **{snake_case(name): key for name, key in present.items()}}

    @cached_property
    def _folded(self) -> dict[str, Key]:
        return {spelling.casefold(): key for spelling, key in self._spellings.items()}

    def read(self, node: MappingNode, place: Place, reading: Reading) -> Any:
        """Create the definition that a mapping node describes. If that is impossible, add problems to `reading` and
        return `INVALID`.

        All keys are read even if some fail. The definition is then created from the valid values. If its constructor
        refuses them, its problems get the positions of their keys.
        """
        # Errors of this mapping, including those of nested definitions, are the ones that are added from here on.
        before = len(reading.errors)
        values: dict[str, Any] = {}
        key_nodes: dict[str, Scalar] = {}
        for key_node, item in node.entries:
            # An unknown key is reported by `_find`, a repeated one by `_is_new`.
            key = self._find(key_node, place, reading)
            if key is None or not self._is_new(key, key_node, key_nodes, place, reading):
                continue
            where = (*place, key.name)
            reading.locate(where, key_node.start, item.start)
            # A key without a value counts as omitted.
            if not (isinstance(item, Scalar) and item.value is None):
                self._note_effect(key, key_node, where, reading)
                values[key.field] = key.kind.read(item, where, reading)
        # The definition is created even if keys have failed, so that its constructor can report further problems.
        failed = {key.field for key in self.keys if values.get(key.field) is INVALID}
        failed |= self._missing(values, node, place, reading)
        values = {name: value for name, value in values.items() if name not in failed}
        make = self.make or self._construct
        parsed = ParsedMapping(values, node, place, frozenset(failed), len(reading.errors) == before)
        try:
            return make(parsed, reading)
        except DefinitionError as error:  # the constructor refuses the values
            reading.refused.add(place)
            for problem in error.problems:
                # The position is that of the place or key of the problem, or else that of the mapping.
                where = (*place, problem.key or "")
                if problem.place:
                    reading.add_located([problem.below(*place)])
                elif where in reading.positions:
                    reading.add_located([replace(problem, place=where)])
                else:
                    reading.add(problem.message, node.start, where, key=problem.key, hint=problem.hint)
            return INVALID

    def _construct(self, parsed: ParsedMapping, reading: Reading) -> Any:
        """Create the definition by calling its class with the valid values. Return `INVALID` if a field without a
        default has no valid value. Add a problem to `reading` for a key of such a field that is missing.
        """
        optional = defaults(self.definition).keys()
        for key in self.keys:
            # ``required`` cannot find these keys, because for them 0, false and empty values are valid.
            if not (key.required or key.field in optional or key.field in parsed.values or key.field in parsed.failed):
                message = f"a {self.label} needs a {key.name}"
                place = (*parsed.place, key.name)
                reading.add(message, parsed.node.start, place, key=key.name, hint=f"add {key.name}")
        is_complete = optional | parsed.values.keys() >= {key.field for key in self.keys}
        return self.definition(**parsed.values) if is_complete else INVALID

    def key(self, spelling: str) -> Key | None:
        """Return the key of this table that has a spelling such as ``ResponseTimeout`` or ``response_timeout``; None if
        no key has this spelling.
        """
        return self._spellings.get(spelling)

    def write(self, value: Any) -> dict[str, Any]:
        """Convert a definition to a mapping with the keys of definition files. Keys with their default value are
        omitted.
        """
        # `to_dict` omits fields with their default value.
        data = value.to_dict()
        return {key.name: key.kind.write(getattr(value, key.field)) for key in self.keys if key.field in data}

    @property
    def reference(self) -> str:
        """Reference to the JSON schema of this table within the one of all definitions."""
        return f"#/definitions/{self.label.replace(' ', '_')}"

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of a mapping with the keys of this table. Each spelling of a key is accepted; an
        editor offers the one in Pascal case.

        Parameters
        ----------
        strict
            False for the dialect ``dive``.
        """
        properties: dict[str, Any] = {}
        patterns: dict[str, Any] = {}
        required = []
        for key in self.keys:
            if key.extension and not strict:
                continue
            schema = self._schema_of(key, strict=strict)
            properties[key.name] = schema
            spellings = [spelling for spelling, target in self._spellings.items() if target == key]
            # Patterns are checked like properties, and not offered.
            same = {"$ref": f"{self.reference}/properties/{key.name}"}
            patterns |= {f"^{spelling}$": same for spelling in spellings if spelling != key.name}
            if self._is_required(key, strict=strict):
                required.append({"anyOf": [{"required": [spelling]} for spelling in sorted(spellings)]})
        return {
            "type": "object",
            "properties": properties,
            "patternProperties": patterns,
            "additionalProperties": False,
            **({"allOf": required} if required else {}),
        }

    def spellings_of(self, name: str) -> list[str]:
        """Return all spellings of the key `name`, such as ``MaxTokens`` and ``max_tokens``."""
        return sorted(spelling for spelling, key in self._spellings.items() if key.name == name)

    def _is_required(self, key: Key, *, strict: bool) -> bool:
        # The dialect ``dive`` replaces some missing names.
        is_needed = strict and key.field not in defaults(self.definition) and key not in self.more
        return bool(key.required) or (is_needed and key.field not in self.optional)

    def _schema_of(self, key: Key, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of the values of one key, with its description, default and example."""
        if key.ignored and strict:
            return {"type": "null", "description": f"{key.means} An error: {key.ignored}"}
        schema = key.kind.json_schema(strict=strict)
        if not self._is_required(key, strict=strict):
            schema = or_null(schema)
        elif key.required:
            # An empty value counts as missing.
            schema = {**schema, "minItems": 1} if schema.get("type") == "array" else {**schema, "minLength": 1}
        default = defaults(self.definition).get(key.field)
        written = None if default is None else key.kind.write(default)
        facts = {"description": key.means, **({"deprecated": True} if key.ignored else {})}
        return {**facts, **schema, **({} if written in (None, "", [], {}) else {"default": written})}

    def _find(self, node: Scalar, place: Place, reading: Reading) -> Key | None:
        # Keys of JSON files are matched without regard to case.
        by_spelling = self._folded if reading.format == "json" else self._spellings
        key = by_spelling.get(node.text.casefold() if reading.format == "json" else node.text)
        # A key that only the strict dialect has is unknown in the legacy one.
        if key is None or (key.extension and not reading.strict):
            self._unknown(node, place, reading, key)
            return None
        return key

    def _unknown(self, node: Scalar, place: Place, reading: Reading, key: Key | None) -> None:
        if reading.lax:
            return
        hint = 'this key exists only in the dialect "divebook"' if key else self._suggestion(node.text)
        message = f"unknown key {node.text!r}"
        reading.add(message, node.start, (*place, node.text), key=node.text, hint=hint)

    def _suggestion(self, text: str) -> str:
        """Return a hint for a key that this table does not have: the advice for this key if there is any, or else the
        key with the most similar name, or else the names of all keys.
        """
        names = [key.name for key in self.keys]
        if text in self.advice:
            return self.advice[text]
        # "tool_config" is compared as "toolconfig" too, because keys are written in Pascal case.
        near = did_you_mean(text, names) or did_you_mean(text.replace("_", ""), names)
        return near or f"keys of {self.label}: {', '.join(names)}"

    def _is_new(self, key: Key, node: Scalar, key_nodes: dict[str, Scalar], place: Place, reading: Reading) -> bool:
        """Return True if a key has not occurred before in the same mapping, False if it has. If it has occurred in
        another spelling, add a problem to `reading`. If `reading.lax` is True, all repetitions are accepted.

        Two equal spellings were already reported by the parser.
        """
        # The node that has this key first. It is the present one if the key is new.
        earlier = key_nodes.setdefault(key.name, node)
        if earlier is node or reading.lax:
            return True
        if earlier.text != node.text:
            message = f"key {node.text!r} is given twice, also as {earlier.text!r}"
            reading.add(message, node.start, (*place, key.name), key=node.text, hint="keep one of the two")
        return False

    def _note_effect(self, key: Key, node: Scalar, place: Place, reading: Reading) -> None:
        """Check a key that was found in a definition text. Add a warning to `reading` if it is written with a former
        name, and a problem if it has no effect.
        """
        if snake_case(node.text) in map(snake_case, key.formerly):
            message = f"{node.text} was renamed to {key.name}"
            hint = f"write {key.name}; the old name still works"
            reading.add(message, node.start, place, key=node.text, hint=hint, severity="warning")
        if key.ignored:
            message = f"{key.name} has no effect"
            reading.add(message, node.start, place, key=key.name, hint=key.ignored, severity=reading.severity)

    def _missing(self, values: dict[str, Any], node: MappingNode, place: Place, reading: Reading) -> set[str]:
        # An empty value counts as missing: ``Name: ""``.
        missing = [key for key in self.keys if key.required and not values.get(key.field)]
        for key in missing:
            reading.add(key.required, node.start, (*place, key.name), key=key.name, hint=f"add {key.name}")
        return {key.field for key in missing}


# --- nodes: scalars, lists and mappings with their positions in a text ------------------------------------------------


# Limits of untrusted texts. The number of nodes counts aliases with everything below them.
MAX_DEPTH = 64
MAX_NODES = 200_000
MAX_TEXT = 2_000_000


@dataclass(frozen=True, slots=True)
class Mark:
    """Position in a definition text: line and column from 1 (0 without a text), and index of the character from 0."""

    line: int = 0
    column: int = 0
    index: int = 0


NOWHERE = Mark()


@dataclass(frozen=True, slots=True)
class Scalar:
    """Syntax node of a string, number, boolean or null. `text` is the original spelling."""

    value: str | int | float | bool | None
    text: str
    start: Mark = NOWHERE


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """Syntax node of a list. `size` is the number of nodes in the list, including the node itself."""

    items: tuple[Node, ...]
    start: Mark = NOWHERE
    size: int = 1


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Syntax node of a mapping: keys and values in written order. A key may occur twice."""

    entries: tuple[tuple[Scalar, Node], ...]
    start: Mark = NOWHERE
    end: Mark = NOWHERE
    size: int = 1


Node: TypeAlias = Scalar | SequenceNode | MappingNode


def size_of(node: Node) -> int:
    """Return the number of nodes in the tree below `node`, including `node`. A shared node counts each time it
    occurs.
    """
    return 1 if isinstance(node, Scalar) else node.size


def kind_of(node: Node) -> str:
    """Return a short description of a node's value for an error message, such as "a list" or "the text 'many'"."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if node.value is None:
        return "nothing"
    shown = node.text if len(node.text) <= 40 else f"{node.text[:37]}..."
    return f"the string {shown!r}" if isinstance(node.value, str) else shown


def nodes_of(value: Any, depth: int = 0) -> Node:
    """Convert plain Python data to syntax nodes without positions.

    Raises
    ------
    TypeError
        A value is not plain JSON-like data.
    ValueError
        The data is nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return MappingNode(tuple((_scalar_key(key), nodes_of(item, depth + 1)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return SequenceNode(tuple(nodes_of(item, depth + 1) for item in value))
    return _scalar(value)


def _scalar_key(key: Any) -> Scalar:
    if not isinstance(key, str):
        raise TypeError(f"keys must be strings, not {key!r}")
    return Scalar(key, key)


def _scalar(value: Any) -> Scalar:
    if value is None or isinstance(value, bool):
        return Scalar(value, {None: "null", True: "true", False: "false"}[value])
    if isinstance(value, str | int | float):
        return Scalar(value, str(value))
    raise TypeError(f"{type(value).__name__} is not plain data; use strings, numbers, lists and mappings")


def nearest_position(place: Place, positions: Mapping[Place, tuple[int, int]]) -> tuple[int, int]:
    """Return line and column of a part of a definition in its text. If the position of the part is unknown, return the
    position of the smallest enclosing part whose position is known.

    The result is (0, 0) if no position is recorded.
    """
    # From the place itself to the root, which has the empty place.
    for length in range(len(place), -1, -1):
        if place[:length] in positions:
            return positions[place[:length]]
    return (0, 0)


# --- state of one reading ---------------------------------------------------------------------------------------------


Format = Literal["yaml", "json"]


@dataclass(slots=True)
class Reading:
    """State while one definition text is read: the text, the problems found so far, and the positions of the parts that
    were read so far.

    `format` determines how keys are matched. A Python mapping is read like YAML.
    """

    text: str = ""
    source_name: str = "<cell>"
    dialect: Dialect = OWN
    format: Format = "yaml"
    line_offset: int = 0
    problems: list[Problem] = field(default_factory=list)
    positions: dict[Place, tuple[int, int]] = field(default_factory=dict)
    broken: set[Place] = field(default_factory=set)
    """Places of steps with errors, for which further rules are not checked."""
    refused: set[Place] = field(default_factory=set)
    """Places of definitions that could not be created and are missing in their lists."""

    @property
    def rules(self) -> DialectRules:
        """Rules of execution of the dialect in which the definition text is written."""
        return rules_of(self.dialect)

    @property
    def strict(self) -> bool:
        """True if a key without effect is an error, as in the dialect ``divebook``; False if it is a warning."""
        return self.rules.is_strict

    @property
    def severity(self) -> Severity:
        """Severity of problems about keys without effect, which depends on the dialect of the text: ``error`` or
        ``warning``.
        """
        return "error" if self.strict else "warning"

    @property
    def lax(self) -> bool:
        """True if unknown and repeated keys are accepted without a problem, as in JSON files of the legacy system."""
        return self.format == "json" and not self.strict

    @property
    def errors(self) -> list[Problem]:
        """Problems found in the text so far that make its definitions unusable."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems found in the text so far that do not prevent the use of its definitions."""
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
        """Add a problem at a position of the text to the collected problems."""
        line, column = self.position(mark)
        self.problems.append(Problem(message, line, column, key, severity, hint, place))

    def add_located(self, problems: Iterable[Problem]) -> None:
        """Add problems to this reading. Their line and column are looked up from `Problem.place`, the path of the
        faulty part, such as ``Steps``, 2. If the position of the part is unknown, that of the nearest enclosing part is
        used.
        """
        for problem in problems:
            located = problem.at(*nearest_position(problem.place, self.positions))
            twin = nearest_position(problem.twin, self.positions)[0] if problem.twin else 0
            self.problems.append(located.beside(twin))

    def find_duplicates(self, entries: Sequence[tuple[Scalar, Node]]) -> None:
        """Add a problem to this reading for each key that occurs twice in a mapping. In JSON of the legacy dialect the
        last value is used without a problem.
        """
        first: dict[str, Mark] = {}
        for key, _ in [] if self.lax else entries:
            if key.text in first:
                hint = f"first on line {self.position(first[key.text])[0]}"
                self.add(f"key {key.text!r} is given twice", key.start, key=key.text, hint=hint)
            first.setdefault(key.text, key.start)

    def locate(self, place: Place, key: Mark, value: Mark) -> None:
        """Record line and column of a part of a definition. If its value begins on the line of its key, the position of
        the value is recorded; otherwise that of the key.
        """
        # Data from Python has no positions.
        if key.line:
            self.positions[place] = self.position(value if value.line == key.line else key)

    def position(self, mark: Mark) -> tuple[int, int]:
        """Convert a position within the definition text to line and column within the cell or file that contains the
        text. A position without a line becomes ``(0, 0)``.
        """
        return (mark.line + self.line_offset, mark.column) if mark.line else (0, 0)

    def fail(self, message: str, mark: Mark, hint: str | None = None) -> NoReturn:
        """Add a problem at a position of the text, and raise `DefinitionError` with all errors that were found so
        far.
        """
        self.add(message, mark, hint=hint)
        raise self._error()

    def raise_errors(self) -> None:
        """Raise `DefinitionError` with all errors that were found so far, in the order of the text. Do nothing if there
        are none.
        """
        if self.errors:
            raise self._error()

    def source_of(self, node: Node) -> str:
        """Return the text of a mapping node without its indentation. Return an empty string for other nodes, and for
        data that was not read from text.
        """
        if not isinstance(node, MappingNode) or not node.start.line:
            return ""
        # The mapping ends before the next key, so that space and line ends behind it are cut off.
        lines = self.text[node.start.index : node.end.index].rstrip().split("\n")
        # Each line below the first has the indentation of the mapping.
        margin = " " * (node.start.column - 1)
        return "\n".join([lines[0], *(line.removeprefix(margin) for line in lines[1:])]) + "\n"

    def _error(self) -> DefinitionError:
        # Nested definitions report their problems before the mapping that contains them.
        ordered = sorted(self.errors, key=lambda problem: (problem.line, problem.column))
        return DefinitionError(ordered, self.source_name)


# --- kinds of values --------------------------------------------------------------------------------------------------
#
# A kind reads and checks a node that is not null, and writes a value back. It returns `INVALID` after it has added a
# problem.


class _Invalid:
    """Type of the constant `INVALID`, which is returned in place of a value that could not be read."""

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
"""Accepted spellings of the `Type` of an input, in lower case, with the Python types of their values."""


class Kind(Protocol):
    """Interface for the kinds of values that keys can have, such as strings or numbers. A kind reads a value from a
    node of a definition text, and writes a value back.
    """

    @property
    def holds(self) -> str:
        """Description of the valid values of this kind, such as "list of strings". It is shown in the column "type" on
        the page of all keys (``notebooks/KEYS.md``).
        """

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the Python value of a node. If the node does not have this kind of value, add a problem to `reading`
        and return `INVALID`.
        """

    def write(self, value: Any) -> Any:
        """Convert a value to the form that it has in a definition file."""

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of the values that this kind reads, without null. `strict` is False for the dialect
        ``dive``.
        """


SCALAR_TYPES = ["string", "number", "boolean"]
"""JSON types of nodes that are read as a string in their original spelling."""


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema that accepts null as well, because a key without a value counts as omitted."""
    types = schema.get("type")
    if types is None:
        return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]} if schema else {}
    return {**schema, "type": [*([types] if isinstance(types, str) else types), "null"]}


def _key_of(place: Place) -> str:
    return next((part for part in reversed(place) if isinstance(part, str)), "the definition")


def mismatch(expected: str, node: Node, place: Place, reading: Reading, hint: str | None = None) -> Any:
    """Add a problem to `reading` about a node with a value of the wrong kind, and return `INVALID`. `expected`
    describes the right kind, such as "a number".
    """
    key = _key_of(place)
    reading.add(f"{key} must be {expected}, not {kind_of(node)}", node.start, place, key=key, hint=hint)
    return INVALID


class Plain:
    """Base class of the kinds of values that look the same in Python and in a definition file, such as strings."""

    def write(self, value: Any) -> Any:
        """Return the value unchanged, because it has the same form in a definition file."""
        return value


@dataclass(frozen=True, slots=True)
class Text(Plain):
    """Kind of values: a string. Numbers and booleans are read in their original spelling (``Version: 1.0``).

    `choices` restricts the values, to which those of the plugins of a group are added. `complaint` is the message for
    other values: ``"invalid log level: {}"``.
    """

    trimmed: bool = False
    choices: tuple[str, ...] = ()
    complaint: str = ""
    hint: str | None = None
    plugins: str | None = None

    @property
    def holds(self) -> str:
        """Description of the valid strings for the page of all keys: "string", or the choices such as "one of a, b"."""
        return f"one of {', '.join(self.choices)}" if self.choices else "string"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the string that a node contains. If it is not a valid string, add a problem to `reading` and return
        `INVALID`.
        """
        if not isinstance(node, Scalar):
            return mismatch("a string", node, place, reading, self.hint)
        text = node.text.strip() if self.trimmed else node.text
        # An empty string means that the key is not set.
        is_wrong = bool(self.choices and text) and text not in self.choices
        # Installed packages are scanned only for a name that is unknown otherwise.
        if is_wrong and (self.plugins is None or text not in plugins.names(self.plugins)):
            hint = did_you_mean(text, self.choices) or f"use one of {', '.join(self.choices)}"
            reading.add(self.complaint.format(text), node.start, place, key=_key_of(place), hint=hint)
            return INVALID
        return text

    def json_schema(self, *, strict: bool) -> dict[str, Any]:  # noqa: ARG002 - the choices hold in both dialects
        """Return the JSON schema of the valid strings."""
        # An empty string means that the key is not set.
        return {"enum": [*self.choices, ""]} if self.choices else {"type": SCALAR_TYPES}


class InputType(Plain):
    """Kind of values: the name of a type for an input of a workflow, in upper or lower case.

    The dialect ``dive`` accepts any word. The values of an input with an unknown type are not checked.
    """

    holds = f"one of {', '.join(INPUT_TYPES)}"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the name of an input type as a node spells it. If the name is not valid, add a problem to `reading`
        and return `INVALID`.
        """
        text = Text().read(node, place, reading)
        if text is INVALID or not reading.strict or not text or text.lower() in INPUT_TYPES:
            return text
        hint = (
            did_you_mean(text, INPUT_TYPES)
            or f"use one of {', '.join(INPUT_TYPES)}; without Type, any value is accepted"
        )
        reading.add(f"unknown type of input: {text!r}", node.start, place, key="Type", hint=hint)
        return INVALID

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of the names of types, in any case."""
        if not strict:
            return {"type": SCALAR_TYPES}
        # JSON schema has no patterns without regard to case.
        letters = ("".join(f"[{letter}{letter.upper()}]" for letter in name) for name in INPUT_TYPES)
        return {"anyOf": [{"enum": [*INPUT_TYPES]}, {"type": "string", "pattern": f"^({'|'.join(letters)}|)$"}]}


class Flag(Plain):
    """Kind of values: a boolean, ``true`` or ``false``."""

    holds = "boolean"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the boolean that a node contains. If it is not a boolean, add a problem to `reading` and return
        `INVALID`.
        """
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        return mismatch("true or false", node, place, reading)

    def json_schema(self, *, strict: bool) -> dict[str, Any]:  # noqa: ARG002 - it is the same in both dialects
        """Return the JSON schema of a boolean."""
        return {"type": "boolean"}


_A_DURATION = "duration such as 30s or 1m30s, or number of seconds"


@dataclass(frozen=True, slots=True)
class Number(Plain):
    """Kind of values: a number in a range. A number of seconds may also be written as a duration, such as ``5 min``.

    The dialect ``dive`` has no such durations and no lower limits. It refuses only numbers that clocks and databases
    cannot store.
    """

    range: NumberRange = NUMBER

    @property
    def holds(self) -> str:
        """Description of the valid values for the page of all keys, such as "integer"."""
        if self.range.unit:
            return _A_DURATION
        return "integer" if self.range.is_whole else "number"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the number that a node contains. If it is not a number in the range, add a problem to `reading` and
        return `INVALID`.
        """
        value = node.value if isinstance(node, Scalar) else None
        allowed = self._allowed(strict=reading.strict)
        is_duration = reading.strict and bool(self.range.unit)
        if is_duration:
            value = plain_seconds(value)
        if not allowed.fits(value):
            return mismatch(expected_seconds(allowed, value) if is_duration else str(allowed), node, place, reading)
        # Whole numbers of a float field become floats, so that equal definitions are stored alike.
        return value if self.range.is_whole else float(value)  # type: ignore[arg-type]

    def _allowed(self, *, strict: bool) -> NumberRange:
        # Only the limits that clocks and databases need remain in the dialect ``dive``.
        return self.range if strict else replace(self.range, least=None, excludes_least=False)

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of the numbers in the range, and of durations."""
        number = self._allowed(strict=strict).json_schema()
        return {"anyOf": [number, _duration_schema(strict=strict)]} if strict and self.range.unit else number


@dataclass(frozen=True, slots=True)
class Seconds(Plain):
    """Kind of values: a duration, or a template that results in a number of seconds."""

    range: NumberRange = SECONDS
    holds = f"{_A_DURATION}, or template"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the number of seconds, or the template, that a node contains. If it is neither, add a problem to
        `reading` and return `INVALID`.
        """
        if not (isinstance(node, Scalar) and isinstance(node.value, str)):
            return Number(self.range).read(node, place, reading)
        # Any other string than a duration is a template here. Its value is checked when the step runs.
        seconds = plain_seconds(node.text)
        # The dialect ``dive`` has no durations here. A step in Python would accept one.
        if not reading.strict and seconds != node.text:
            message = f"{_key_of(place)} must be a number or a template, not {node.text!r}"
            reading.add(message, node.start, place, key=_key_of(place), hint="write 2.5 or ${state.delay}")
            return INVALID
        return seconds

    def write(self, value: Any) -> Any:
        """Convert a number of seconds to its form in a definition file: whole numbers are written as integers."""
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of a number of seconds or a template."""
        # A number in quotes and a duration such as 30s are accepted for some keys.
        text = {"type": "string", "pattern": rf"\$\{{|^\s*(({DURATION_PART.pattern})+|[0-9.]*)\s*$"}
        number = replace(self.range, unit="")
        return {"anyOf": [Number(number).json_schema(strict=strict), text if strict else {"type": "string"}]}


def _part(*, strict: bool) -> re.Pattern[str]:
    return DURATION_PART if strict else GO_PART


def _duration_schema(*, strict: bool) -> dict[str, Any]:
    return {"type": "string", "pattern": rf"^\s*({_part(strict=strict).pattern})+\s*$"}


@dataclass(frozen=True, slots=True)
class Duration:
    """Kind of values: a duration such as ``30s`` or ``1m30s``, or a number of seconds."""

    range: NumberRange = SECONDS
    holds = _A_DURATION

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the duration that a node contains, in seconds. If it is not a valid duration, add a problem to
        `reading` and return `INVALID`.
        """
        value = node.value if isinstance(node, Scalar) else None
        seconds = None
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            with suppress(ValueError, OverflowError):
                # A float that is too large for an integer raises OverflowError. The fraction of a number counts, except
                # in the dialect ``dive``: 0.5 would become 0, which stands for the default.
                is_number = reading.strict and not isinstance(value, str)
                seconds = float(value) if is_number else parse_duration(value, _part(strict=reading.strict))
        if self._allowed(strict=reading.strict).fits(seconds):
            return seconds
        if reading.strict:
            return mismatch(expected_seconds(self.range, value), node, place, reading)
        hint = f"write 30s, 1m30s or {self.range}"
        message = f"{_key_of(place)}: invalid response timeout: {kind_of(node)}"
        reading.add(message, node.start, place, key=_key_of(place), hint=hint)
        return INVALID

    def write(self, value: Any) -> Any:
        """Convert a number of seconds to its form in a definition file."""
        # An integer is read as seconds. A fraction needs the unit, because the dialect ``dive`` cuts off the fraction
        # of a number.
        return int(value) if value == int(value) else f"{value}s"

    def _allowed(self, *, strict: bool) -> NumberRange:
        # In the dialect ``dive``, 0 stands for the default.
        return self.range if strict else replace(self.range, excludes_least=False)

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of a duration."""
        return {"anyOf": [self._allowed(strict=strict).json_schema(), _duration_schema(strict=strict)]}


class Anything(Plain):
    """Kind of values: plain JSON of any form."""

    holds = "any value"

    def json_schema(self, *, strict: bool) -> dict[str, Any]:  # noqa: ARG002 - it is the same in both dialects
        """Return the JSON schema that every value fits."""
        return {}

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the plain data that a node contains. A number that is not finite is replaced by None, and a problem is
        added to `reading`.
        """
        if isinstance(node, SequenceNode):
            return [self.read(item, (*place, index), reading) for index, item in enumerate(node.items)]
        if isinstance(node, MappingNode):
            return {key.text: self.read(item, (*place, key.text), reading) for key, item in node.entries}
        if isinstance(node.value, float) and not math.isfinite(node.value):
            mismatch("a finite number", node, place, reading)
            return None  # not `INVALID`: the value may be inside another one, which must be plain JSON
        return node.value


@dataclass(frozen=True, slots=True)
class MappingOf(Plain):
    """Kind of values: a mapping whose keys are strings and whose values are all of one other kind."""

    kind: Kind
    holds: str

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the mapping that a node contains, with all its values read. If it is not a mapping, add a problem to
        `reading` and return `INVALID`.
        """
        if not isinstance(node, MappingNode):
            return mismatch("a mapping", node, place, reading)
        return {key.text: self.kind.read(item, (*place, key.text), reading) for key, item in node.entries}

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of the mapping."""
        values = self.kind.json_schema(strict=strict)
        return {"type": "object", "additionalProperties": or_null(values)}


class OneOrMore(Plain):
    """Kind of values: a list of strings, or a single string in place of a list with one item."""

    holds = "string or list of strings"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the strings that a node contains as a list, also if the node is a single string."""
        items = node.items if isinstance(node, SequenceNode) else (node,)
        return [Text().read(item, place, reading) for item in items]

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of a string or a list of strings."""
        text = or_null(Text().json_schema(strict=strict))
        return {"anyOf": [text, {"type": "array", "items": text}]}


class Texts:
    """Kind of values: a list of strings."""

    holds = "list of strings"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the strings of a list node as a tuple. If it is not a list, add a problem to `reading` and return
        `INVALID`.
        """
        if not isinstance(node, SequenceNode):
            # The hint is right only for a single word: "Tools: fetch" -> "write [fetch]".
            hint = f"write [{node.text}]" if isinstance(node, Scalar) and re.fullmatch(r"[\w.-]+", node.text) else None
            return mismatch("a list of strings", node, place, reading, hint)
        return tuple(self._item(item, (*place, index), reading) for index, item in enumerate(node.items))

    def _item(self, node: Node, place: Place, reading: Reading) -> Any:
        reading.locate(place, node.start, node.start)
        if isinstance(node, Scalar) and node.value is None:
            return mismatch("a string", node, place, reading)
        return Text().read(node, place, reading)

    def write(self, value: Any) -> Any:
        """Convert strings to their form in a definition file: a list."""
        return list(value)

    def json_schema(self, *, strict: bool) -> dict[str, Any]:
        """Return the JSON schema of a list of strings."""
        return {"type": "array", "items": Text().json_schema(strict=strict)}


class OptionalTexts(Texts):
    """Kind of values: a list of strings that restricts what holds without it. An empty list allows nothing.

    In the legacy Dive dialect an empty list counts as an absent one.
    """

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the strings of a list node as a tuple, like `Texts`; None for an empty list of the legacy dialect."""
        texts = super().read(node, place, reading)
        return None if texts == () and not reading.strict else texts


_CAPITALS = {"id": "ID", "mcp": "MCP", "oauth": "OAuth", "pkce": "PKCE", "uri": "URI", "url": "URL"}
DERIVED: Any = None
"""Default for the kind of a key: the kind follows from the type annotation of the field."""


def snake_case(key: str) -> str:
    """Convert the spelling of a key to snake case: ``ResponseTimeout`` to ``response_timeout``."""
    # The rule below would separate "O" from "Auth".
    if key == "OAuth":
        return "oauth"
    # Two boundaries: "responseTimeout" between a small and a capital letter, "MCPServers" before the last capital of a
    # run.
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


def _written(name: str) -> str:
    """Convert the name of a field to the spelling of its key in files: ``response_timeout`` to ``ResponseTimeout``."""
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))


@dataclass(frozen=True, slots=True)
class Key:
    """Description of one key of a definition file: its meaning, the kind of its values, and the field of the definition
    class that it sets.

    A field that can be written in a file is annotated with its key. Only `means` is required:
    ``parallel: Annotated[int, Key("Maximum number of items that run at the same time.", extension=True)] = 1``.
    """

    means: str
    """Description for the reference, in one line."""
    name: str = ""
    """Spelling of the key in files; by default the name of the field in Pascal case."""
    field: str = ""
    kind: Kind = DERIVED
    required: str = ""
    """Error message for a missing or empty key; empty if the key is optional."""
    ignored: str = ""
    """Reason why the key has no effect. A use of the key is an error, in the dialect ``dive`` a warning."""
    extension: bool = False
    """True if the key does not exist in the dialect ``dive``."""
    example: str = ""
    """Example of a value, if the kind does not provide one."""
    formerly: tuple[str, ...] = ()
    """Former names of the key, which are still read, with a warning."""


@dataclass(frozen=True, slots=True)
class ParsedMapping:
    """Values that were read from the keys of one mapping node with a `Table`. The table passes them to the function
    that creates the definition.
    """

    values: dict[str, Any]
    node: MappingNode
    place: Place
    failed: frozenset[str]
    """Names of fields with an invalid value, and of required fields without a value."""
    is_sound: bool
    """True if no part of the mapping has an error."""


Maker = Callable[[ParsedMapping, Reading], Any]


_TABLES: dict[type[Definition], Table] = {}
"""The tables of all definition classes, by class."""


# --- numbers ---------------------------------------------------------------------------------------------------------


def ranges(definition: type[Definition]) -> Mapping[str, tuple[str, NumberRange, bool]]:
    """Return for each numeric field of a definition class a tuple: the name of its key, the allowed range, and True if
    a template is allowed as its value.
    """
    # Cached: the annotations of a class are expensive to evaluate, and each step is checked.
    if definition not in _RANGES:
        hints = get_type_hints(definition, include_extras=True)
        keys = [_key(name, *get_args(hint)) for name, hint in hints.items() if _has_key(hint) and _is_number(hint)]
        _RANGES[definition] = {
            key.field: (key.name, key.kind.range, isinstance(key.kind, Seconds))
            for key in keys
            if isinstance(key.kind, Number | Seconds | Duration)
        }
    return _RANGES[definition]


def number_problems(definition: Definition) -> Iterator[Problem]:
    """Yield a problem for each number in a definition that is outside the range of its key. The value None is
    accepted.
    """
    for field_name, (key, allowed, is_template) in ranges(type(definition)).items():
        value = getattr(definition, field_name)
        # A template is checked when its value is known.
        if value is None or (is_template and isinstance(value, str)):
            continue
        if not allowed.fits(value):
            # Python uses the name of the field, files that of the key. The error shows both if they differ.
            name = key if key.casefold() == field_name else f"{key} ({field_name})"
            expected = expected_seconds(allowed, value) if allowed.unit else str(allowed)
            yield Problem(f"{name} must be {expected}, not {shown_number(value)}", key=key, place=(key,))


def require_numbers(definition: Definition) -> None:
    """Raise `DefinitionError` if a number in a definition is outside the range of its key. Called for definitions that
    are created in Python, in which a duration may be a timedelta or a text: they are converted to seconds.
    """
    for field_name, (_, allowed, _) in ranges(type(definition)).items():
        value = getattr(definition, field_name)
        if allowed.unit and isinstance(value, str | timedelta):
            definition._put(**{field_name: plain_seconds(value)})  # noqa: SLF001 - a definition that is being made
    # A definition in Python has no place in a text.
    problems = [replace(problem, place=()) for problem in number_problems(definition)]
    if problems:
        raise DefinitionError(problems)


_RANGES: dict[type[Definition], dict[str, tuple[str, NumberRange, bool]]] = {}


# --- kinds derived from the types of fields ---------------------------------------------------------------------------


def _has_key(hint: Any) -> bool:
    # The annotation may have other metadata, whose first entry is then not a key.
    return get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], Key)


def _is_number(hint: Any) -> bool:
    declared, key = get_args(hint)
    return hasattr(_kind_of(declared) if key.kind is DERIVED else key.kind, "range")


def _key(name: str, hint: Any, key: Key) -> Key:
    """Return a copy of a field's `Key` in which a missing name and kind are derived from the name and annotation of the
    field.
    """
    # The kind follows from the annotation unless the key names one.
    kind = _kind_of(hint) if key.kind is DERIVED else key.kind
    return replace(key, name=key.name or _written(name), field=name, kind=kind)


def _kind_of(hint: Any) -> Kind:
    """Return the kind of values for a field's type annotation: `One` for a definition class, `Many` for a tuple of
    definitions.
    """
    hint = without_none(hint)
    if hint in _KINDS:
        return _KINDS[hint]
    # A tuple of definitions. A tuple of strings is in the table of kinds.
    return Many(get_args(hint)[0]) if get_origin(hint) is tuple else One(hint)


_KINDS: Mapping[Any, Kind] = {
    str: Text(),
    bool: Flag(),
    int: Number(INTEGER),
    float: Number(),
    Any: Anything(),
    tuple[str, ...]: Texts(),
    Mapping[str, Any]: MappingOf(Anything(), "mapping"),
    Mapping[str, str]: MappingOf(Text(), "mapping of strings"),
    Mapping[str, Sequence[str]]: MappingOf(OneOrMore(), "mapping of strings or lists of strings"),
}


@dataclass(frozen=True, slots=True)
class _OfRecords:
    """Base class of the kinds of values `One` and `Many`: nested definitions, each with its own table of keys."""

    definition: type[Definition]

    @property
    def table(self) -> Table:
        """Table with the keys of the nested definition."""
        return _TABLES[self.definition]


@dataclass(frozen=True, slots=True)
class One(_OfRecords):
    """Kind of values: a nested definition, written as a mapping. If its table has a key for plain strings, a string may
    be written instead of the mapping.
    """

    besides: str = ""
    """Alternative that the hint mentions after the example."""

    @property
    def holds(self) -> str:
        """Description of the valid values for the page of all keys. It refers to the table of the nested definition,
        for example "mapping, see Each".
        """
        return f"mapping, see {self.table.label}"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the nested definition that a mapping node describes. If it is not valid, add a problem to `reading`
        and return `INVALID`.
        """
        key = self.table.text_key
        example = self.table.example
        if key and isinstance(node, Scalar) and isinstance(node.value, str):
            # A string is the value of one key: ``Ask: Go on?`` -> ``Ask: {Question: Go on?}``.
            node = MappingNode(((Scalar(key, key, node.start), node),), node.start, node.start)
        if not isinstance(node, MappingNode):
            hint = f"write {place[-1]}: {example}{self.besides}" if example else None
            return mismatch("a mapping", node, place, reading, hint)
        return self.table.read(node, place, reading)

    def write(self, value: Any) -> Any:
        """Convert a nested definition to its form in a definition file: a mapping."""
        return self.table.write(value)

    def json_schema(self, *, strict: bool) -> dict[str, Any]:  # noqa: ARG002 - the definition itself differs
        """Return a reference to the JSON schema of the nested definition."""
        mapping = {"$ref": self.table.reference}
        return {"anyOf": [mapping, {"type": "string"}]} if self.table.text_key else mapping


@dataclass(frozen=True, slots=True)
class Many(_OfRecords):
    """Kind of values: a list of nested definitions, each written as a mapping."""

    @property
    def holds(self) -> str:
        """Description of the valid values for the page of all keys. It refers to the table of the nested definitions,
        for example "list, see agent".
        """
        return f"list, see {self.table.label}"

    def read(self, node: Node, place: Place, reading: Reading) -> Any:
        """Return the nested definitions of a list node as a tuple, without invalid items. If the node is not a list of
        mappings, add a problem to `reading` and return `INVALID`.
        """
        if not isinstance(node, SequenceNode):
            return mismatch("a list", node, place, reading, self._hint(place))
        # All items are read, so that each reports its errors.
        items = [self._item(item, (*place, index), reading) for index, item in enumerate(node.items)]
        if not all(isinstance(item, MappingNode) for item in node.items):
            return INVALID
        return tuple(item for item in items if item is not INVALID)

    def _item(self, node: Node, place: Place, reading: Reading) -> Any:
        reading.locate(place, node.start, node.start)
        if not isinstance(node, MappingNode):
            return mismatch("a list of mappings", node, place, reading, self._hint(place[:-1]))
        return self.table.read(node, place, reading)

    def _hint(self, place: Place) -> str | None:
        return f"write {place[-1]}: [{self.table.example}]" if self.table.example else None

    def write(self, value: Any) -> Any:
        """Convert a list of definitions, such as the steps of a workflow, to the list of mappings that a definition
        file has for them.
        """
        return [self.table.write(item) for item in value]

    def json_schema(self, *, strict: bool) -> dict[str, Any]:  # noqa: ARG002 - the definition itself differs
        """Return the JSON schema of a list of references to the nested definition."""
        return {"type": "array", "items": {"$ref": self.table.reference}}

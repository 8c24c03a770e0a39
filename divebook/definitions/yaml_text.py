r"""Parsers of YAML and JSON text to nodes with positions, and a writer of YAML.

This is the only module that imports ruamel.yaml, on first use. ruamel's own loaders return plain data without
positions, while errors must state line and column of each key. The parser therefore takes ruamel's *events* (start of a
mapping, scalar, end ...) and composes nodes from them (`_Composer`). Scalars follow the YAML 1.2 core schema: ``yes``
and dates are strings. Aliases and ``<<`` merges work, with a limit on the number of nodes to which they expand.

JSON has a scanner of its own (`_Scanner`), because a YAML parser splits ``\ud83d\ude00`` into two surrogates and
fails at tabs, and the parser of the standard library does not report positions.
"""

from __future__ import annotations

import io
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NoReturn

from divebook.definitions.table import (
    MAX_DEPTH,
    MAX_NODES,
    Anything,
    MappingNode,
    Mark,
    Node,
    Reading,
    Scalar,
    SequenceNode,
    size_of,
)
from divebook.errors import DefinitionError

INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
BASES = {"0o": 8, "0x": 16}
MAX_DIGITS = 400
CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}
TEXT_TAGS = {"!", "tag:yaml.org,2002:str"}


def parse_yaml(reading: Reading) -> Node | None:
    """Parse the definition text of `reading` as YAML. Return its root node; None for an empty text. Raise
    `DefinitionError` if it is not valid YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _Composer(reading, YAML(typ="safe", pure=True).parse(reading.text)).document()
    except MarkedYAMLError as error:
        # The mark of the problem, or of the context in which it occurred.
        mark = error.problem_mark or error.context_mark
        reading.fail(f"not valid YAML: {error.problem or error.context}", _mark(mark), _advice(str(error.problem)))
    except YAMLError as error:
        reading.fail(f"not valid YAML: {str(error).splitlines()[0]}", _mark_of_character(reading.text, error))
    except (ValueError, IndexError, TypeError, AttributeError, AssertionError) as error:
        # ruamel's scanner raises these for some malformed texts (test_reader_fuzz.py)
        reading.fail(f"not valid YAML: {str(error) or type(error).__name__}", Mark(1, 1))


def dump_yaml(value: Any) -> str:
    """Return plain data as YAML text with an indentation of two. Strings of several lines become block scalars."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def with_blocks(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: with_blocks(inner) for key, inner in item.items()}
        if isinstance(item, list):
            return [with_blocks(inner) for inner in item]
        # A block scalar has no escapes, so that only printable characters fit. Leading space would change its
        # indentation, and space at the end of a line is invisible.
        is_block = isinstance(item, str) and "\n" in item and re.fullmatch(r"[\n\x20-\x7e\xa0-\ud7ff]*", item)
        return LiteralScalarString(item) if is_block and not re.search(r"^\s|[ \t]\n", item) else item

    yaml = YAML(typ="rt", pure=True)
    yaml.indent(mapping=2, sequence=4, offset=2)
    # Long lines are not folded, which would add line breaks to the text.
    yaml.width = 10_000
    stream = io.StringIO()
    yaml.dump(with_blocks(value), stream)
    return stream.getvalue()


def _mark(mark: Any) -> Mark:
    # Marks of ruamel count from 0, those of divebook from 1.
    return Mark(mark.line + 1, mark.column + 1, mark.index) if mark is not None else Mark(1, 1)


def _mark_of_character(text: str, error: Any) -> Mark:
    index = min(getattr(error, "position", None) or 0, len(text))
    line = text.count("\n", 0, index)
    return Mark(line + 1, index - (text.rfind("\n", 0, index) + 1) + 1, index)


def _advice(problem: str) -> str | None:
    if "'\\t'" in problem:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in problem:
        return "put a value that contains a colon in quotes, or check the indentation"
    if "cannot start any token" in problem:
        return "put the value in quotes"
    return None


class _Composer:
    """Builder of a tree of syntax nodes from the parser events of ruamel.yaml. The depth and the number of nodes are
    limited.

    The events of ``a: [1]`` are: mapping start, scalar ``a``, sequence start, scalar ``1``, sequence end, mapping end.
    `_node` consumes the events of one node and calls itself for the nodes inside. An alias refers to a node that is
    already composed, and counts with its whole size, so that nested aliases cannot expand without limit.
    """

    def __init__(self, reading: Reading, events: Iterator[Any]) -> None:
        self._reading = reading
        self._events = events
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def document(self) -> Node | None:
        root: Node | None = None
        # Events of the stream and of the end of a document are skipped.
        for event in self._events:
            name = type(event).__name__
            if name == "DocumentStartEvent":
                if root is not None:
                    self._reading.fail("only one YAML document is allowed", _mark(event.start_mark), "remove the ---")
                root = self._node(next(self._events), 0)
        # A document that is only a comment, or null, is empty.
        return None if isinstance(root, Scalar) and root.value is None else root

    def _node(self, event: Any, depth: int) -> Node:
        mark = _mark(event.start_mark)
        if depth > MAX_DEPTH:
            self._reading.fail(f"values are nested deeper than {MAX_DEPTH} levels", mark)
        kind = type(event).__name__
        node = self._alias(event, mark) if kind == "AliasEvent" else self._made(event, kind, mark, depth)
        # An alias counts with all nodes below it. Otherwise a short file with nested aliases could expand to any size.
        if kind == "AliasEvent" or isinstance(node, Scalar):
            self._count += size_of(node)
        if self._count > MAX_NODES:
            self._reading.fail(f"more than {MAX_NODES} values after the expansion of all aliases", mark)
        # The anchor is added when its node is complete, so that a node cannot contain itself through an alias.
        if kind != "AliasEvent" and event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _made(self, event: Any, kind: str, mark: Mark, depth: int) -> Node:
        # An unknown tag is reported, and its value is read as if it had none.
        if event.tag is not None and str(event.tag) not in CORE_TAGS | TEXT_TAGS:
            self._reading.add(f"unknown YAML tag {str(event.tag)!r}", mark, hint="remove it")
        if kind == "ScalarEvent":
            return self._scalar(event, mark)
        return self._sequence(mark, depth) if kind == "SequenceStartEvent" else self._mapping(mark, depth)

    def _alias(self, event: Any, mark: Mark) -> Node:
        if event.anchor not in self._anchors:
            self._reading.fail(f"alias *{event.anchor} has no complete anchor &{event.anchor} before it", mark)
        return self._anchors[event.anchor]

    def _scalar(self, event: Any, mark: Mark) -> Scalar:
        text = self._whole_characters(event.value, mark)
        # A style is a quoted or block scalar, which is always a string.
        if event.style or str(event.tag) in TEXT_TAGS:
            return Scalar(text, text, mark)
        # As a string it would be another value than the one that is written.
        if len(text) > MAX_DIGITS and (INTEGER.fullmatch(text) or FLOAT.fullmatch(text)):
            self._reading.add(
                f"the number has more than {MAX_DIGITS} digits", mark, hint="write it as a string in quotes"
            )
        return Scalar(_resolved(text), text, mark)

    def _whole_characters(self, text: str, mark: Mark) -> str:
        try:
            # Two escaped halves of a surrogate pair become one character; a single half raises the error.
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._reading.fail("the text contains a lone surrogate (half a character)", mark)

    def _sequence(self, mark: Mark, depth: int) -> SequenceNode:
        items = []
        for event in self._events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            items.append(self._node(event, depth + 1))
        return SequenceNode(tuple(items), mark, 1 + sum(map(size_of, items)))

    def _mapping(self, mark: Mark, depth: int) -> MappingNode:
        entries: list[tuple[Scalar, Node]] = []
        merged: list[tuple[Scalar, Node]] = []
        end = mark
        for event in self._events:
            if type(event).__name__ == "MappingEndEvent":
                end = _mark(event.end_mark)
                break
            key = self._key(self._node(event, depth + 1), _mark(event.start_mark))
            value = self._node(next(self._events), depth + 1)
            # Merged entries are collected first, since entries of the mapping have priority wherever ``<<`` is written.
            if key.value == "<<":
                merged += self._merged(value)
            else:
                entries.append((key, value))
        # Only written keys can be duplicates. Merged ones are overridden silently.
        self._reading.find_duplicates(entries)
        entries = _with_merged(entries, merged)
        return MappingNode(tuple(entries), mark, end, 1 + sum(1 + size_of(value) for _, value in entries))

    def _key(self, node: Node, mark: Mark) -> Scalar:
        if not isinstance(node, Scalar):
            self._reading.fail("keys must be strings, not a list or mapping", mark)
        if not isinstance(node.value, str):
            # The key is used by its text all the same, so that the rest is checked.
            self._reading.add(f"keys must be strings, not {node.text or 'null'}", mark, hint=f"write {node.text!r}:")
        return Scalar(node.text, node.text, mark)

    def _merged(self, value: Node) -> list[tuple[Scalar, Node]]:
        sources = value.items if isinstance(value, SequenceNode) else (value,)
        entries: list[tuple[Scalar, Node]] = []
        for source in sources:
            if not isinstance(source, MappingNode):
                self._reading.fail("the value of << must be a mapping or a list of mappings", value.start)
            # Of several sources, the earlier ones have priority.
            entries = _with_merged(entries, list(source.entries))
        return entries


def _resolved(text: str) -> str | int | float | bool | None:
    if text in WORDS:
        return WORDS[text]
    if len(text) > MAX_DIGITS:
        return text
    if INTEGER.fullmatch(text):
        # "0o17" -> 15, "0xff" -> 255.
        return int(text, BASES.get(text[:2], 10))
    return float(text) if FLOAT.fullmatch(text) else text


def _with_merged(entries: list[tuple[Scalar, Node]], merged: list[tuple[Scalar, Node]]) -> list[tuple[Scalar, Node]]:
    """Return the entries of a mapping together with those that its YAML merge key ``<<`` adds. Entries of the mapping
    itself have priority.
    """
    keys = {key.value for key, _ in entries}
    return [*entries, *(entry for entry in merged if entry[0].value not in keys)]


# --- single values typed by people: an input, an answer, a bound ------------------------------------------------------


BRACKETS = {"[": "]", "{": "}"}
QUOTES = "\"'"


def yaml_of(text: str, source: str, line_offset: int = 0) -> Any:
    """Parse YAML text to plain data. Raise `DefinitionError` if the text is not valid; `source` names the text in the
    error.

    Parameters
    ----------
    line_offset
        Number of lines above the text where people see it.
    """
    reading = Reading(text, source, line_offset=line_offset)
    node = parse_yaml(reading)
    reading.raise_errors()
    value = None if node is None else Anything().read(node, (source,), reading)
    reading.raise_errors()
    return value


def value_typed(text: str) -> Any:
    """Parse a value that a person typed, as YAML. Words that have another meaning in YAML or are not valid there, such
    as ``*.py`` and ``#1``, are returned as strings.
    """
    # Brackets or quotes show that the person means YAML, so that an error is reported and not taken for text.
    is_written_out = text[:1] in {*QUOTES, *BRACKETS}
    reading = Reading(text, "value")
    try:
        node: Node | None = parse_yaml(reading)
        reading.raise_errors()
    except DefinitionError:
        if is_written_out:
            raise
        return text
    if not is_written_out and not isinstance(node, Scalar):
        # ``a: b`` without brackets is text. An empty document has no node and means None only in its usual spellings.
        return None if text in ("", "~") or text.lower() == "null" else text
    value = Anything().read(node, ("value",), reading) if node is not None else None
    reading.raise_errors()
    return value


# --- JSON -----------------------------------------------------------------------------------------------------------


SPACE = re.compile(r"[ \t\n\r]*")
STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
JSON_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
SCALAR = re.compile("|".join((STRING, NUMBER, *JSON_WORDS)))


def parse_json(reading: Reading) -> Node | None:
    """Parse the definition text of `reading` as JSON. Return its root node; None for an empty text. Raise
    `DefinitionError` if it is not valid JSON.
    """
    scanner = _Scanner(reading)
    return scanner.document() if reading.text.strip() else None


class _Scanner:
    """Recursive descent parser of JSON that records the position of each node."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._text = reading.text
        self._at = 0
        # Positions at which lines begin. `_mark` finds the line of a position by bisection.
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", reading.text))]

    def document(self) -> Node:
        node = self._value(0)
        if self._peek():
            self._fail("unexpected text after the JSON value")
        return node

    def _mark(self) -> Mark:
        # The number of line starts up to the position is the number of the line.
        line = bisect_right(self._line_starts, self._at)
        return Mark(line, self._at - self._line_starts[line - 1] + 1, self._at)

    def _fail(self, message: str) -> NoReturn:
        self._reading.fail(f"not valid JSON: {message}", self._mark())

    def _peek(self) -> str:
        match = SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self._fail(f"values are nested deeper than {MAX_DEPTH} levels")
        first = self._peek()
        if first == "{":
            return self._mapping(depth)
        return self._sequence(depth) if first == "[" else self._scalar()

    def _scalar(self) -> Scalar:
        mark = self._mark()
        match = SCALAR.match(self._text, self._at)
        if match is None:
            character = self._text[self._at : self._at + 1]
            if character:
                self._fail(f"expected a value, not {character!r}")
            self._fail("expected a value at the end of the text")
        self._at = match.end()
        return self._converted(match.group(), mark)

    def _converted(self, text: str, mark: Mark) -> Scalar:
        if text in JSON_WORDS:
            return Scalar(JSON_WORDS[text], text, mark)
        # Python refuses to parse integers of thousands of digits.
        if text[0] != '"' and len(text) > MAX_DIGITS:
            self._reading.fail(f"not valid JSON: the number has more than {MAX_DIGITS} digits", mark)
        # The text is one token of JSON, whose escapes the standard library decodes.
        value = json.loads(text)
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            self._reading.fail("the text contains a lone surrogate (half a character)", mark)
        return Scalar(value, value if isinstance(value, str) else text, mark)

    def _sequence(self, depth: int) -> SequenceNode:
        mark = self._mark()
        self._at += 1
        items: list[Node] = []
        while not self._take("]"):
            if items and not self._take(","):
                self._fail("',' or ']' expected")
            items.append(self._value(depth + 1))
        return SequenceNode(tuple(items), mark, 1 + sum(map(size_of, items)))

    def _mapping(self, depth: int) -> MappingNode:
        mark = self._mark()
        self._at += 1
        entries: list[tuple[Scalar, Node]] = []
        while not self._take("}"):
            if entries and not self._take(","):
                self._fail("',' or '}' expected")
            entries.append((self._key(), self._value(depth + 1)))
        self._reading.find_duplicates(entries)
        return MappingNode(tuple(entries), mark, self._mark(), 1 + sum(1 + size_of(value) for _, value in entries))

    def _key(self) -> Scalar:
        if self._peek() != '"':
            self._fail("expected a key in double quotes")
        key = self._scalar()
        if not self._take(":"):
            self._fail("expected ':' after the key")
        return key

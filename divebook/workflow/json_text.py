r"""JSON text to located nodes.

A scanner of its own, because a YAML parser splits ``\ud83d\ude00`` into two halves and stumbles over tabs, and the
standard library's gives no positions.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import NoReturn

from divebook.workflow.located import MAX_DEPTH, Mapping, Mark, Node, Scalar, Sequence, size_of
from divebook.workflow.reading import Reading

SPACE = re.compile(r"[ \t\n\r]*")
STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
SCALAR = re.compile("|".join((STRING, NUMBER, *WORDS)))
MAX_DIGITS = 400


def parse_json(reading: Reading) -> Node | None:
    """Return the text of `reading` as nodes, None if it is empty; raises `DefinitionError` if it is not JSON."""
    scanner = _Scanner(reading)
    return scanner.document() if reading.text.strip() else None


class _Scanner:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._text = reading.text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", reading.text))]

    def document(self) -> Node:
        node = self._value(0)
        if self._peek():
            self._fail("nothing may follow the JSON value")
        return node

    def _mark(self) -> Mark:
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
            self._fail(f"nested deeper than {MAX_DEPTH} levels")
        first = self._peek()
        if first == "{":
            return self._mapping(depth)
        return self._sequence(depth) if first == "[" else self._scalar()

    def _scalar(self) -> Scalar:
        mark = self._mark()
        match = SCALAR.match(self._text, self._at)
        if match is None:
            found = self._text[self._at : self._at + 1]
            self._fail(f"a value was expected, not {found!r}" if found else "the text ends where a value was expected")
        self._at = match.end()
        return self._converted(match.group(), mark)

    def _converted(self, text: str, mark: Mark) -> Scalar:
        if text in WORDS:
            return Scalar(WORDS[text], text, mark)
        if text[0] != '"' and len(text) > MAX_DIGITS:
            self._reading.fail(f"not valid JSON: a number of more than {MAX_DIGITS} digits", mark)
        value = json.loads(text)
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            self._reading.fail("the text holds half a character (a lone surrogate)", mark)
        return Scalar(value, value if isinstance(value, str) else text, mark)

    def _sequence(self, depth: int) -> Sequence:
        mark = self._mark()
        self._at += 1
        items: list[Node] = []
        while not self._take("]"):
            if items and not self._take(","):
                self._fail("',' or ']' expected")
            items.append(self._value(depth + 1))
        return Sequence(tuple(items), mark, 1 + sum(map(size_of, items)))

    def _mapping(self, depth: int) -> Mapping:
        mark = self._mark()
        self._at += 1
        entries: list[tuple[Scalar, Node]] = []
        while not self._take("}"):
            if entries and not self._take(","):
                self._fail("',' or '}' expected")
            entries.append((self._key(), self._value(depth + 1)))
        self._reading.find_duplicates(entries)
        return Mapping(tuple(entries), mark, self._mark(), 1 + sum(1 + size_of(value) for _, value in entries))

    def _key(self) -> Scalar:
        if self._peek() != '"':
            self._fail("a key in double quotes was expected")
        key = self._scalar()
        if not self._take(":"):
            self._fail("':' expected after the key")
        return key

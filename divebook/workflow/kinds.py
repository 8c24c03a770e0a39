"""The kinds of value a key can hold: how each is read from nodes, checked, and written back.

A kind reads a node that is not null; it returns `INVALID` after it has noted a problem.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from divebook.errors import Place, did_you_mean
from divebook.text.durations import parse_duration
from divebook.text.ranges import NUMBER, SECONDS, NumberRange
from divebook.workflow.located import Mapping, Node, Scalar, Sequence, kind_of
from divebook.workflow.reading import Reading


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

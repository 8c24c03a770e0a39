"""How a mapping with known keys becomes a record, driven by a table of keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from divebook.errors import Place, nearest
from divebook.workflow import located
from divebook.workflow.kinds import INVALID, Kind
from divebook.workflow.located import Scalar
from divebook.workflow.reading import Reading


def snake_case(key: str) -> str:
    """Return the other spelling of a key: ``ResponseTimeout`` is ``response_timeout``."""
    if key == "OAuth":
        return "oauth"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


@dataclass(frozen=True, slots=True)
class Key:
    """One key: how it is written, which field it fills, what it means and holds."""

    name: str
    field: str
    means: str
    """One line of the reference, for people."""
    kind: Kind
    required: str = ""
    """Complaint if it is missing or empty."""
    ignored: str = ""
    """Why it has no effect: an error, in the dialect ``dive`` a warning."""
    extension: bool = False
    """Unknown to the dialect ``dive``."""
    formerly: tuple[str, ...] = ()
    """Names that it had once: still read, with a warning that says what to write."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a table read from one mapping, for the function that makes the record."""

    values: dict[str, Any]
    node: located.Mapping
    place: Place
    failed: frozenset[str]
    """Fields whose value is wrong, or missing though required."""
    is_sound: bool
    """Whether nothing was wrong anywhere in it."""


Maker = Callable[[Made, Reading], Any]


@dataclass(frozen=True)
class Table:
    """The keys of one kind of mapping.

    `advice` answers keys that people write but that do not exist: ``{"Backstory": "write it into Instructions"}``.
    """

    label: str
    keys: tuple[Key, ...]
    make: Maker
    advice: Mapping[str, str] = field(default_factory=dict)

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
        """Return the record that the mapping describes, or `INVALID`."""
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
        return self.make(Made(values, node, place, frozenset(failed), len(reading.errors) == before), reading)

    def key(self, spelling: str) -> Key | None:
        """Return the key that is written so, in either of its spellings."""
        return self._spellings.get(spelling)

    def write(self, value: Any) -> dict[str, Any]:
        """Return the record as a mapping of written keys, without what is at its default."""
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
        match = nearest(text, names) or nearest(text.replace("_", ""), names)
        return f"did you mean {match!r}?" if match else f"{self.label} has {', '.join(names)}"

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


def record(cls: type) -> Maker:
    """Return a maker that hands the values to `cls`."""

    def make(made: Made, _reading: Reading) -> Any:
        return INVALID if made.failed else cls(**made.values)

    return make

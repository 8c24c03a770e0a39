"""Columns that a person adds to frames, by path: ``outputs.label``, ``variables.rows.*.score``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import pandas as pd

from divebook.errors import SetupError
from divebook.events.classes import Instance
from divebook.events.recorded import opened
from divebook.scripting.reference import NOTHING, Attribute, Item

ALL = "*"
Part: TypeAlias = Attribute | Item | str
_PART = re.compile(r"\.?(?:(?P<all>\*)|\[(?P<index>-?\d+)\]|\[\"(?P<key>[^\"]*)\"\]|(?P<name>[^.\[\]*]+))")
_TYPES: Sequence[tuple[tuple[type, ...], str]] = (
    ((bool,), "boolean"),
    ((int,), "Int64"),
    ((int, float), "Float64"),
    ((str,), "str"),
)
_INT64 = range(-(2**63), 2**63)


class OwnColumn(NamedTuple):
    """A column and the way to its values.

    Examples
    --------
    >>> column = OwnColumn.of("scores", "variables.rows.*.score")
    >>> column.root, column.found({"rows": [{"score": 1}, {}, {"score": 3}]})
    ('variables', [1, None, 3])
    """

    name: str
    root: str
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, name: str, path: str) -> Self:
        """Return the column of a path: names, ``[0]``, ``["a key"]`` and ``*`` for every entry of a list or mapping.

        Raises
        ------
        SetupError
            It is no path.
        """
        parts: list[Part] = []
        place = 0
        text = str(path)
        while match := _PART.match(text, place):
            parts.append(_part(match))
            place = match.end()
        if not parts or place < len(text) or not isinstance(parts[0], Attribute):
            raise SetupError(
                f"columns: {name} must be a path such as 'outputs.label' or 'variables.rows.*.score', not {path!r}"
            )
        return cls(name, parts[0].name, tuple(parts[1:]))

    def found(self, value: Any) -> Any:
        """Return what is at the end of the way from a value; None where there is nothing.

        With ``*`` it is a list, flat where there are several, in which None stands for what an entry lacks.
        """
        values = [value]
        for part in self.parts:
            values = [below for each in values for below in _below(each, part)]
        shown = [None if each is NOTHING else opened(each, lenient=True) for each in values]
        return shown if ALL in self.parts else shown[0]


def _part(match: re.Match[str]) -> Part:
    if match["all"]:
        return ALL
    if match["index"]:
        return Item(int(match["index"]))
    return Attribute(match["name"] if match["key"] is None else match["key"])


def _below(value: Any, part: Part) -> Iterable[Any]:
    if isinstance(part, Attribute | Item):
        return [part.of(value)]
    if isinstance(value, Instance):
        value = value.plain()
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def settled(values: Sequence[Any]) -> pd.Series:
    """Return values as a column: truth values, whole numbers, numbers or texts if they all are, else as they are."""
    known = [value for value in values if value is not None]
    for kinds, dtype in _TYPES:
        if known and all(type(value) in kinds and _fits(value) for value in known):
            return pd.Series(list(values), dtype=dtype)
    return pd.Series(list(values), dtype="object")


def _fits(value: Any) -> bool:
    return type(value) is not int or value in _INT64

"""A definition before it is understood: scalars, lists and mappings that know where they stand in their text."""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from divebook.errors import Place

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
    if isinstance(value, AnyMapping):
        return Mapping(tuple((_key(key), located(item, depth + 1)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return Sequence(tuple(located(item, depth + 1) for item in value))
    return _scalar(value)


def _key(key: Any) -> Scalar:
    if not isinstance(key, str):
        raise TypeError(f"keys must be text, not {key!r}")
    return Scalar(key, key)


def _scalar(value: Any) -> Scalar:
    if value is None or isinstance(value, bool):
        return Scalar(value, {None: "null", True: "true", False: "false"}[value])
    if isinstance(value, str | int | float):
        return Scalar(value, str(value))
    raise TypeError(f"{type(value).__name__} is not plain data: use text, numbers, lists and mappings")


def nearest_position(place: Place, positions: AnyMapping[Place, tuple[int, int]]) -> tuple[int, int]:
    """Return line and column of a place, or of the nearest one above it that is known; (0, 0) if none is."""
    for length in range(len(place), -1, -1):
        if place[:length] in positions:
            return positions[place[:length]]
    return (0, 0)

"""What differs between two texts, word by word, and between two values, part by part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from difflib import SequenceMatcher
from marshal import dumps
from typing import Any, Literal, NamedTuple, TypeAlias

Sign: TypeAlias = Literal["same", "removed", "added"]
SAME: Sign = "same"
REMOVED: Sign = "removed"
ADDED: Sign = "added"
MOST_WORDS = 1_500
"""Words of a text up to which it is searched for what stayed; of a longer one only its two ends are."""
_WITHOUT_REFERENCES = 2
"""The version of `marshal` in which equal data are written alike."""
_WORDS = re.compile(r"\d+(?:[.,]\d+)+(?!\w)|\w+|\s+|[^\w\s]")
"""A number is one word, with its points and commas."""


class Piece(NamedTuple):
    """Words that follow one another and share a fate."""

    sign: Sign
    text: str


class Differing(NamedTuple):
    """A part of two values in which they differ."""

    place: str
    """``params.n`` or ``parts[0].content``; empty for the values as a whole."""
    before: Any
    after: Any
    """`NOTHING` where a value has no such part."""


class _Nothing:
    """Stands where a value has no such part."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def pieces(before: str, after: str) -> list[Piece]:
    """Return what became of the words of a text.

    >>> [tuple(piece) for piece in pieces("a red rose", "a white rose")]
    [('same', 'a '), ('removed', 'red'), ('added', 'white'), ('same', ' rose')]
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    found = [Piece(SAME, "".join(old[:head]))]
    found += _between(old[head : len(old) - tail], new[head : len(new) - tail])
    found.append(Piece(SAME, "".join(old[len(old) - tail :])))
    return [piece for piece in found if piece.text]


def _shared(one: list[str], other: list[str]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _between(old: list[str], new: list[str]) -> Iterator[Piece]:
    if max(len(old), len(new)) > MOST_WORDS:
        yield from (Piece(REMOVED, "".join(old)), Piece(ADDED, "".join(new)))
        return
    for kind, begins, ends, new_begins, new_ends in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield Piece(SAME, "".join(old[begins:ends]))
        else:
            yield Piece(REMOVED, "".join(old[begins:ends]))
            yield Piece(ADDED, "".join(new[new_begins:new_ends]))


def marked(before: str, after: str) -> str:
    """Return both texts in one, where signs say what only one of them has.

    >>> marked("a red rose", "a white rose")
    'a [-red-]{+white+} rose'
    >>> marked("pay 25,210.80", "pay 330.12")
    'pay [-25,210.80-]{+330.12+}'
    """
    signs = {SAME: "{}", REMOVED: "[-{}-]", ADDED: "{{+{}+}}"}
    return "".join(signs[piece.sign].format(piece.text) for piece in pieces(before, after))


def alike(one: Any, other: Any) -> bool:
    """Return whether two values of a log are the same there: 1, 1.0 and true are three, the order of keys is none.

    >>> alike({"a": 1, "b": [2]}, {"b": [2], "a": 1}), alike(1, 1.0), alike(1, True)
    (True, False, False)
    """
    kind = one.__class__
    if kind is not other.__class__:
        return False
    if kind is str:
        return bool(one == other)
    if kind is Decimal and (one.is_nan() or other.is_nan()):  # to compare a signaling NaN raises
        return bool(one.compare_total(other) == 0)
    if (kind is dict or kind is list) and _are_written_alike(one, other):
        return True
    if kind is dict:
        if one.keys() != other.keys():
            return False
        return all(alike(value, other[name]) for name, value in one.items())
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - that is how a number that is none is known


def _are_written_alike(one: Any, other: Any) -> bool:
    """Return whether plain data are the same to the byte: a fifth of a walk through them."""
    try:
        return dumps(one, _WITHOUT_REFERENCES) == dumps(other, _WITHOUT_REFERENCES)
    except ValueError:  # values that are no plain data
        return False


def parts(before: Any, after: Any, place: str = "") -> Iterator[Differing]:
    """Give the smallest parts in which two values differ, in the order of the first.

    >>> [tuple(part) for part in parts({"a": [1, 2], "b": 3}, {"a": [1, 5], "c": 4})]
    [('a[1]', 2, 5), ('b', 3, nothing), ('c', nothing, 4)]
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            under = f"{place}.{name}" if place else str(name)
            yield from parts(before.get(name, NOTHING), after.get(name, NOTHING), under)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from parts(old, new, f"{place}[{number}]")
    elif not alike(before, after):
        yield Differing(place, before, after)

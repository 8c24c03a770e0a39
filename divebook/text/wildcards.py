"""Matching of wildcards in one pass over a text, however many wildcards there are.

A pattern is a sequence of items, each of which takes one character, or any number of characters of a kind. The matcher
follows all ways of taking a text at once: an integer has one bit for each item that may come next. For ``a*b`` and the
text ``axb`` the bits are ``{a}``, then ``{*, b}``, ``{*, b}``, ``{end}``. Expressions of `re` would try one way after
another, and ``a**/a**/a**/b`` would take minutes on a path of some hundred characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

Test: TypeAlias = Callable[[str], bool]
"""Tells whether an item takes a character."""


class Repeated(NamedTuple):
    """An item that takes any number of characters of a kind, also none."""

    test: Test


OPTIONAL_PAIR: Final = None
"""An item that takes nothing; the two items behind it may be left out together."""
Item: TypeAlias = str | Test | Repeated | None


def character_test(expression: str) -> Test:
    """Return a function that tells whether one character matches a regular expression, such as ``[a-z]``."""
    match = re.compile(expression, re.DOTALL).fullmatch
    return lambda character: match(character) is not None


def is_any_character(_character: str) -> bool:
    """Return True: the test of a wildcard that crosses folders."""
    return True


def is_not_slash(character: str) -> bool:
    """Return whether a wildcard that stays within one folder matches a character."""
    return character != "/"


class WildcardMatcher:
    """A compiled sequence of wildcards and characters.

    Parameters
    ----------
    items
        A character, which takes itself; a test, which takes one character; `Repeated`; or `OPTIONAL_PAIR`.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._characters: dict[str, int] = {}
        self._tests: dict[Test, int] = {}
        self._loops: dict[Test, int] = {}
        self._pairs = self._empty = 0
        at = 1
        before: Item = OPTIONAL_PAIR
        for item in items:
            if isinstance(item, Repeated) and item == before:
                continue  # a run of equal wildcards is one, or each character would pass through all of them
            if item is OPTIONAL_PAIR:
                self._pairs |= at
            elif isinstance(item, Repeated):
                self._loops[item.test] = self._loops.get(item.test, 0) | at
            elif isinstance(item, str):
                self._characters[item] = self._characters.get(item, 0) | at
            else:
                self._tests[item] = self._tests.get(item, 0) | at
            self._empty |= at if item is OPTIONAL_PAIR or isinstance(item, Repeated) else 0
            at, before = at << 1, item
        self._end = at
        self._masks: dict[str, tuple[int, int]] = {}

    def matches(self, text: str) -> bool:
        """Return whether the items take the whole text."""
        reached = self._with_skipped(1)
        for character in text:
            once, looping = self._masks.get(character) or self._mask(character)
            reached = self._with_skipped((reached & once) << 1 | (reached & looping))
            if not reached:
                return False
        return bool(reached & self._end)

    def _mask(self, character: str) -> tuple[int, int]:
        """Return the items that take a character once, and those that take it any number of times."""
        once, looping = self._characters.get(character, 0), 0
        for test, bits in self._tests.items():
            once |= bits if test(character) else 0
        for test, bits in self._loops.items():
            looping |= bits if test(character) else 0
        self._masks[character] = once, looping
        return once, looping

    def _with_skipped(self, reached: int) -> int:
        """Add the items behind those that may take nothing."""
        while True:
            more = reached | (reached & self._empty) << 1 | (reached & self._pairs) << 3
            if more == reached:
                return reached
            reached = more

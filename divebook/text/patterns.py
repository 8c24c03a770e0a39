"""Regular expressions of other people: compiled within a size limit, matched within a time limit.

Definitions, agents, MCP servers and their JSON schemas bring patterns. Python's `re` tries ``^(a|aa)+$`` on a text of a
hundred letters for years, and holds the interpreter's lock meanwhile, so that no interrupt helps. Everything here uses
the library `regex`, which stops after a time and releases the lock. Matching is the only step with a time limit: it
cannot bound the memory of compiling, so that a pattern is measured before it is compiled.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from divebook.errors import PatternError

if TYPE_CHECKING:
    import regex


MATCH_SECONDS = 1.0
"""Seconds that one search, or one check of a value, may spend on matching patterns."""
MAX_LENGTH = 5_000
"""Characters of a pattern."""
MAX_PARTS = 100_000
"""Parts of a pattern in which each counted repetition is written out: ``(ab){50}`` has 100."""
_TOKEN = re.compile(
    r"""(?P<comment>\(\?\#[^)]*\))
    | (?P<recursion>\(\?(?:R|&|P>|[+-]?\d)[^)]*\))
    | (?P<flags>\(\?[a-zA-Z0-9]*(?:x|V1))
    | (?P<count>\{\s*(?P<least>\d+)\s*(?:,\s*\d*\s*)?\})
    | (?P<open>\() | (?P<close>\))
    | \\. | \[\^?\]?(?:\\.|[^\]\\])*\] | .""",
    re.DOTALL | re.VERBOSE,
)


@functools.lru_cache(maxsize=512)
def compiled(pattern: str) -> regex.Pattern[str]:
    """Return a compiled pattern.

    Raises
    ------
    PatternError
        It is not a regular expression, or too large to be compiled.
    """
    import regex

    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"{pattern[:60]!r}... has {len(pattern):,} characters; a pattern may have {MAX_LENGTH:,}")
    _require_small(pattern)
    try:
        return regex.compile(pattern)
    except (regex.error, ValueError, OverflowError) as error:
        raise PatternError(f"{_shown(pattern)} is not a regular expression: {error}") from None
    except RecursionError:
        raise PatternError(f"{_shown(pattern)} is nested too deeply; use fewer groups within groups") from None


def _require_small(pattern: str) -> None:
    """Raise PatternError for what the library would write out in full, or match recursively, whatever that takes.

    ``((a{1000}){1000}){1000}`` takes gigabytes to compile (test_a_pattern_that_is_too_large_is_not_compiled).
    """
    # of the open groups, and of what a count behind it repeats
    sizes = [0]
    last = 0
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind in ("recursion", "flags"):
            raise PatternError(f"{_shown(pattern)} uses {token[0]!r}, which patterns may not have here; remove it")
        if kind == "comment":
            continue
        if kind == "open":
            sizes.append(0)
        elif kind == "close" and len(sizes) > 1:
            last = max(1, sizes.pop())
            sizes[-1] += last
        elif kind == "count":
            least = min(int(token["least"][:10]), MAX_PARTS + 1)
            sizes[-1] += last * max(0, least - 1)
            last *= max(1, least)
        else:
            last = 1
            sizes[-1] += 1
        if sizes[-1] > MAX_PARTS:
            raise PatternError(
                f"{_shown(pattern)} repeats more than {MAX_PARTS:,} parts; lower its counts, such as {{1000}}"
            )


def _shown(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= 200 else f"{pattern[:200]!r}..."


class MatchTime:
    """Time that several searches share.

    Parameters
    ----------
    seconds
        Time spent within searches; what happens between them does not count. `MATCH_SECONDS` by default.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = self._left = MATCH_SECONDS if seconds is None else seconds

    def contains(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches somewhere in a text.

        Blocks for at most the time that is left, without the interpreter's lock.

        Raises
        ------
        PatternError
            The pattern is not valid, or the time is over.
        """
        search = compiled(pattern).search
        began = time.monotonic()
        try:
            # The library takes 0 for no limit.
            return search(text, timeout=max(0.001, self._left), concurrent=True) is not None
        except TimeoutError:
            raise PatternError(
                f"{_shown(pattern)} took longer than {self.seconds:g} seconds to match; "
                "put no repetition into another one, such as (a+)+"
            ) from None
        except MemoryError:
            raise PatternError(f"{_shown(pattern)} takes too much memory to match; simplify it") from None
        finally:
            self._left -= time.monotonic() - began


# Matching of wildcards in one pass over a text, however many wildcards there are.
#
# A pattern is a sequence of items, each of which takes one character, or any number of characters of a kind. The
# matcher follows all ways of taking a text at once: an integer has one bit for each item that may come next. For
# ``a*b`` and the text ``axb`` the bits are ``{a}``, then ``{*, b}``, ``{*, b}``, ``{end}``. Expressions of `re` would
# try one way after another, and ``a**/a**/a**/b`` would take minutes on a path of some hundred characters.


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
            at = at << 1
            before = item
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
        once = self._characters.get(character, 0)
        looping = 0
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

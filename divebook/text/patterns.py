"""Matching of untrusted patterns: regular expressions with limits of size and time, and wildcards in linear time.

Definitions, agents, MCP servers and their JSON schemas contain patterns. Python's `re` needs years for ``^(a|aa)+$`` on
a text of a hundred letters, and holds the interpreter's lock meanwhile, so that an interrupt has no effect. This module
uses the library `regex`, which has a timeout and releases the lock. The timeout limits matching only, not the memory
that compilation needs. A pattern is therefore measured before it is compiled.
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
"""Default limit in seconds for matching patterns in one search, or in one check of a value."""
MAX_LENGTH = 5_000
"""Largest number of characters of a pattern."""
MAX_PARTS = 100_000
"""Largest number of parts of a pattern, with each counted repetition expanded: ``(ab){50}`` has 100."""
# The pattern needs to recognize only what changes the expanded size. A set (``[a-z]``) and an escape (``\d``) count as
# one part, and a parenthesis in them opens no group. Recursion and flags are recognized because they are refused: the
# first has no bounded size, the second change the syntax that this pattern assumes.
_TOKEN = re.compile(
    r"""(?P<comment>\(\?\#[^)]*\))
    | (?P<recursion>\(\?(?:R|&|P>|[+-]?\d)[^)]*\))
    | (?P<flags>\(\?[a-zA-Z0-9]*(?:x|V1))
    | (?P<count>\{\s*(?P<least>\d+)\s*(?:,\s*\d*\s*)?\})
    | (?P<open>\() | (?P<close>\))
    | \\. | \[\^?\]?(?:\\.|[^\]\\])*\] | .""",
    re.DOTALL | re.VERBOSE,
)


class WildcardMatcher:
    """Matcher that tests whether texts match a wildcard pattern. The pattern is a list of items: characters, and
    wildcards that match one or many characters.

    Parameters
    ----------
    items
        A character, which matches itself; a test, which matches one character; `Repeated`; or `OPTIONAL_PAIR`.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        # Bit `i` of each number below belongs to item `i`: `_characters["a"]` has the bits of all items that match
        # ``a``.
        self._characters: dict[str, int] = {}
        self._tests: dict[Test, int] = {}
        self._loops: dict[Test, int] = {}
        self._pairs = self._empty = 0
        bit = 1
        previous: Item = OPTIONAL_PAIR
        for item in items:
            if isinstance(item, Repeated) and item == previous:
                continue  # a run of equal wildcards is one item; else each character would pass through all of them
            if item is OPTIONAL_PAIR:
                self._pairs |= bit
            elif isinstance(item, Repeated):
                self._loops[item.test] = self._loops.get(item.test, 0) | bit
            elif isinstance(item, str):
                self._characters[item] = self._characters.get(item, 0) | bit
            else:
                self._tests[item] = self._tests.get(item, 0) | bit
            # Items that may be skipped: a wildcard matches no character as well, and a pair is optional.
            self._empty |= bit if item is OPTIONAL_PAIR or isinstance(item, Repeated) else 0
            bit = bit << 1
            previous = item
        self._end = bit
        # {character: (bits of items that match it once, bits of items that match it repeatedly)}
        self._masks: dict[str, tuple[int, int]] = {}

    def matches(self, text: str) -> bool:
        """Return True if the wildcard pattern matches a text from its beginning to its end."""
        # Bit `i` of `states` is set if part `i` of the pattern may match the next character.
        states = self._with_skipped(1)
        for character in text:
            # A match of a single item moves its bit to the next item. A match of a repeated item leaves the bit where
            # it is.
            once, looping = self._masks.get(character) or self._mask(character)
            states = self._with_skipped((states & once) << 1 | (states & looping))
            if not states:
                return False
        return bool(states & self._end)

    def _mask(self, character: str) -> tuple[int, int]:
        """Return the parts of the wildcard pattern that match a character, as two bit sets: parts that match exactly
        one character, and parts that may match many characters (`Repeated`).

        The result is cached.
        """
        once = self._characters.get(character, 0)
        looping = 0
        for test, bits in self._tests.items():
            once |= bits if test(character) else 0
        for test, bits in self._loops.items():
            looping |= bits if test(character) else 0
        self._masks[character] = once, looping
        return once, looping

    def _with_skipped(self, states: int) -> int:
        """Return `states` with more bits set. Each bit stands for a part of the pattern that may match next. If such a
        part is optional, it may be skipped, so that the part after it may match next as well.
        """
        while True:
            # From a pair the match continues behind it (bit + 1, since it is itself empty), or behind its two parts
            # (bit + 3).
            more = states | (states & self._empty) << 1 | (states & self._pairs) << 3
            if more == states:
                return states
            states = more


@functools.lru_cache(maxsize=512)
def compiled(pattern: str) -> regex.Pattern[str]:
    """Return the compiled form of a regular expression, in the syntax of the library `regex`. The result is cached.

    Raises
    ------
    PatternError
        The pattern is not a regular expression, or is too large to be compiled.
    """
    import regex

    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"{pattern[:60]!r}... has {len(pattern):,} characters; a pattern may have {MAX_LENGTH:,}")
    # The size is measured before the library sees the pattern: compilation itself takes the memory, and has no timeout.
    _require_small(pattern)
    try:
        return regex.compile(pattern)
    except (regex.error, ValueError, OverflowError) as error:
        raise PatternError(f"{_shown(pattern)} is not a regular expression: {error}") from None
    except RecursionError:
        raise PatternError(f"{_shown(pattern)} is nested too deeply; use fewer nested groups") from None


def _require_small(pattern: str) -> None:
    """Raise PatternError for a regular expression that becomes too large when its repetitions are expanded, or that
    refers to itself recursively.

    The library expands counted repetitions: ``((a{1000}){1000}){1000}`` takes gigabytes to compile
    (test_a_pattern_that_is_too_large_is_not_compiled). The loop computes the expanded size without expanding. For
    ``(ab){50}`` the stack of sizes is ``[0]``, ``[0, 0]`` after the parenthesis, ``[0, 2]`` after ``ab``, ``[2]`` after
    the group, and ``[100]`` after the count.
    """
    sizes = [0]  # expanded sizes of the open groups, the innermost last
    last = 0  # expanded size of the last part, which a following count repeats
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind in ("recursion", "flags"):
            # ``(?R)`` repeats the whole pattern. ``(?x)`` ignores spaces, and ``(?V1)`` nests sets, which `_TOKEN` does
            # not know.
            raise PatternError(
                f"{_shown(pattern)} uses {token[0]!r}, which divebook does not support in patterns; remove it"
            )
        if kind == "comment":
            continue
        if kind == "open":
            sizes.append(0)
        # A closing parenthesis without an opening one is a character. The library refuses it later.
        elif kind == "close" and len(sizes) > 1:
            # An empty group counts as one part, because a count would repeat it as well.
            last = max(1, sizes.pop())
            sizes[-1] += last
        # The last part is counted once already, so that a count of 3 adds two more. The count is cut to ten digits,
        # since Python refuses to parse integers of thousands of digits.
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
    """Time limit for matching regular expressions: one total time that several searches share.

    Parameters
    ----------
    seconds
        Total time of all searches; time between them does not count. `MATCH_SECONDS` by default.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = self._remaining = MATCH_SECONDS if seconds is None else seconds

    def contains(self, pattern: str, text: str) -> bool:
        """Return True if a regular expression matches somewhere in a text.

        Blocks for at most the remaining time, without holding the interpreter's lock.

        Raises
        ------
        PatternError
            The pattern is not valid, or the time limit is reached.
        """
        # The pattern is compiled outside of the measured time: its cost is limited by its size.
        search = compiled(pattern).search
        began = time.monotonic()
        try:
            # The library interprets 0 as "no limit".
            return search(text, timeout=max(0.001, self._remaining), concurrent=True) is not None
        except TimeoutError:
            raise PatternError(
                f"{_shown(pattern)} took longer than {self.seconds:g} seconds to match; avoid nested repetitions "
                "such as (a+)+"
            ) from None
        except MemoryError:
            raise PatternError(f"{_shown(pattern)} takes too much memory to match; simplify it") from None
        finally:
            self._remaining -= time.monotonic() - began


# --- wildcards ------------------------------------------------------------------------------------------------------
#
# Wildcards are matched in one pass over a text, independent of the number of wildcards.
#
# A pattern is a sequence of items. Each item matches one character, or any number of characters of a kind. The matcher
# follows all possible matches at once, as a non-deterministic automaton whose set of states is the bits of an integer:
# one bit for each item that may match next. For ``a*b`` and the text ``axb`` the sets are ``{a}``, then ``{*, b}``,
# ``{*, b}``, ``{*, b, end}``. The text matches because the last set contains the end. `re` would try one possibility
# after another, and ``a**/a**/a**/b`` would take minutes on a path of some hundred characters.


Test: TypeAlias = Callable[[str], bool]
"""Function that returns True if a wildcard matches a character."""


class Repeated(NamedTuple):
    """Wildcard in a pattern, such as ``*``: matches any number of characters, including none, if the function `test`
    returns True for each of them.
    """

    test: Test


OPTIONAL_PAIR: Final = None
"""Part of a wildcard pattern that matches the empty text and makes the next two parts optional, together."""
Item: TypeAlias = str | Test | Repeated | None


def character_test(expression: str) -> Test:
    """Return a function that returns True for characters which match a regular expression, such as ``[a-z]``."""
    match = re.compile(expression, re.DOTALL).fullmatch
    return lambda character: match(character) is not None


def is_any_character(_character: str) -> bool:
    """Return True. This is the test of a wildcard that matches any character, also across folders."""
    return True


def is_not_slash(character: str) -> bool:
    """Return True if a character is not a slash. This is the test of a wildcard that matches within one folder."""
    return character != "/"

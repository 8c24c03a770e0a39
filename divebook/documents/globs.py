"""Patterns of paths: ``*`` and ``?`` within a part, ``**`` over folders, ``[abc]``, and ``{a,b}`` for alternatives."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TypeAlias

from divebook.errors import PatternError
from divebook.text.wildcards import (
    OPTIONAL_PAIR,
    Item,
    Repeated,
    WildcardMatcher,
    character_test,
    is_any_character,
    is_not_slash,
)

WILDCARDS = frozenset("*?[{")
MAX_ALTERNATIVES = 1000
MAX_LENGTH = 4096
"""Characters of a pattern."""
MAX_STEPS = 10_000
"""Wildcards and characters of all alternatives that the slower of the two matchers takes."""
_TOKEN = re.compile(
    r"(?P<folders>(?:\*\*/)+)|(?P<all>\*\*+)|(?P<some>\*)|(?P<one>\?)|\[(?P<not>[!^]?)(?P<of>\]?[^\]]*)\]"
)
Match: TypeAlias = Callable[[str], object]


def has_wildcards(path: str) -> bool:
    """Whether `path` is a pattern."""
    return not WILDCARDS.isdisjoint(path)


def alternatives(pattern: str) -> list[str]:
    """Return the patterns that ``{a,b}`` groups stand for, innermost groups first.

    Raises
    ------
    PatternError
        It is too long, or stands for too many.
    """
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"pattern {pattern[:60]!r}... is too long: it may have {MAX_LENGTH} characters")
    waiting, done = [pattern], []
    while waiting:
        text = waiting.pop()
        group = re.search(r"\{([^{}]*)\}", text)
        if group is None:
            done.append(text)
        else:
            waiting += [text[: group.start()] + choice + text[group.end() :] for choice in group[1].split(",")]
        if len(waiting) + len(done) > MAX_ALTERNATIVES:
            raise PatternError(
                f"pattern {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns; name fewer alternatives"
            )
    return done


def matches(pattern: str, path: str) -> bool:
    """Return whether a whole path, written with ``/``, is what a pattern stands for; capitals count.

    >>> matches("/a/**/*.txt", "/a/b/c.txt"), matches("/a/*.txt", "/a/b/c.txt")
    (True, False)
    """
    return any(match(path) for match in _compiled(pattern))


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> list[Match]:
    """Return what matches each alternative; PatternError for one that is not valid."""
    found: list[Match] = []
    steps = 0
    for alternative in alternatives(pattern):
        parts = _parts(alternative)
        try:
            if _has_one_way(parts):
                found.append(re.compile(_settled(parts), re.DOTALL).fullmatch)
                continue
            steps += len(parts)
            if steps > MAX_STEPS:
                raise PatternError(f"pattern {pattern!r} has too many alternatives with ** in them; name fewer")
            found.append(_matcher(parts).matches)
        except re.error as error:
            raise PatternError(f"pattern {pattern!r} is not valid: {error}") from error
    return found


_Part: TypeAlias = tuple[str, str]
"""The kind of a part, and the expression of one that is text."""


def _parts(pattern: str) -> list[_Part]:
    parts, done = [], 0
    for token in _TOKEN.finditer(pattern):
        parts += [*_characters(pattern[done : token.start()]), _expression(token)]
        done = token.end()
    return [*parts, *_characters(pattern[done:])]


def _characters(text: str) -> list[_Part]:
    return [("text", re.escape(character)) for character in text]


def _expression(token: re.Match[str]) -> _Part:
    kind = token.lastgroup or ""
    if kind in ("folders", "all", "some"):
        return kind, ""
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", token["of"] or "")
    return "text", "[^/]" if kind == "one" else rf"(?!/)[{'^' if token['not'] else ''}{inside}]"


def _matcher(parts: list[_Part]) -> WildcardMatcher:
    """Return the matcher of any pattern; for one that `re` matches in one way, that takes a hundredth of the time."""
    items: list[Item] = []
    for kind, expression in parts:
        if kind == "folders":
            items += [OPTIONAL_PAIR, Repeated(is_any_character), "/"]
        elif kind == "text":
            items.append(character_test(expression))
        else:
            items.append(Repeated(is_any_character if kind == "all" else is_not_slash))
    return WildcardMatcher(items)


def _has_one_way(parts: list[_Part]) -> bool:
    """Return whether an expression with at most one wildcard that is tried again stands for the parts.

    ``**/`` behind anything but a whole folder (``a**/``) may be nothing, or end later than it could.
    """
    return all(parts[at - 1][1].endswith("/") for at in range(1, len(parts)) if parts[at][0] == "folders")


_FREE = {"folders": "(?:.*/)?", "all": ".*"}
_FIRST = {"folders": "(?:.*?/)??", "all": ".*?"}


def _settled(parts: list[_Part]) -> str:
    """Return an expression that never tries again what it has found: else a few wildcards take for ever.

    What stands before a wildcard may be matched where it ends first: the wildcard takes whatever is left. What comes
    behind the last one has to end where the text does, and ``**/`` takes whole folders only
    (``test_many_wildcards_take_no_time``).
    """
    chunks: list[tuple[str, list[_Part]]] = [("", [])]
    for part in parts:
        if part[0] in _FREE:
            chunks.append((part[0], []))
        else:
            chunks[-1][1].append(part)
    whole = []
    for place, (before, chunk) in enumerate(chunks):
        after = chunks[place + 1][0] if place + 1 < len(chunks) else ""
        takes_all = after == "all" or (after == "folders" and chunk[-1:] and chunk[-1][1].endswith("/"))
        told = _within(chunk, is_anchored=not takes_all)
        whole.append(f"(?>{_FIRST.get(before, '')}{told})" if takes_all else _FREE.get(before, "") + told)
    return "".join(whole)


def _within(parts: list[_Part], *, is_anchored: bool) -> str:
    """Return the expression of what has no wildcard over folders; with `is_anchored` the text ends behind it."""
    pieces = [""]  # texts, between them a ``*`` each
    for kind, text in parts:
        if kind == "some":
            pieces.append("")
        else:
            pieces[-1] += text
    told = pieces[0]
    for place, piece in enumerate(pieces[1:], 1):
        is_last = place == len(pieces) - 1
        told += f"[^/]*{piece}" if is_last and is_anchored else f"(?>[^/]*?{piece})"
    return told

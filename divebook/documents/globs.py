"""Patterns of paths: ``*`` and ``?`` within a part, ``**`` over folders, ``[abc]``, and ``{a,b}`` for alternatives."""

from __future__ import annotations

import functools
import re

from divebook.errors import SetupError

WILDCARDS = frozenset("*?[{")
MAX_ALTERNATIVES = 1000
_TOKEN = re.compile(
    r"(?P<folders>(?:\*\*/)+)|(?P<all>\*\*+)|(?P<some>\*)|(?P<one>\?)|\[(?P<not>[!^]?)(?P<of>\]?[^\]]*)\]"
)


def has_wildcards(path: str) -> bool:
    """Whether `path` is a pattern."""
    return not WILDCARDS.isdisjoint(path)


def alternatives(pattern: str) -> list[str]:
    """Return the patterns that ``{a,b}`` groups stand for, innermost groups first."""
    waiting, done = [pattern], []
    while waiting:
        text = waiting.pop()
        group = re.search(r"\{([^{}]*)\}", text)
        if group is None:
            done.append(text)
        else:
            waiting += [text[: group.start()] + choice + text[group.end() :] for choice in group[1].split(",")]
        if len(waiting) + len(done) > MAX_ALTERNATIVES:
            raise SetupError(
                f"pattern {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns; name fewer alternatives"
            )
    return done


def matches(pattern: str, path: str) -> bool:
    """Return whether a whole path, written with ``/``, is what a pattern stands for; capitals count.

    >>> matches("/a/**/*.txt", "/a/b/c.txt"), matches("/a/*.txt", "/a/b/c.txt")
    (True, False)
    """
    return any(_compiled(alternative).fullmatch(path) for alternative in alternatives(pattern))


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts, done = [], 0
    for found in _TOKEN.finditer(pattern):
        parts += [re.escape(pattern[done : found.start()]), _expression(found)]
        done = found.end()
    try:
        return re.compile("".join([*parts, re.escape(pattern[done:])]), re.DOTALL)
    except re.error as error:
        raise SetupError(f"pattern {pattern!r} is not valid: {error}") from error


def _expression(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    if kind != "of":
        return {"folders": "(?:.*/)?", "all": ".*", "some": "[^/]*", "one": "[^/]"}[kind]
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", found["of"])
    return rf"(?!/)[{'^' if found['not'] else ''}{inside}]"

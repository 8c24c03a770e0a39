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
        parts += [("text", re.escape(pattern[done : found.start()])), _expression(found)]
        done = found.end()
    parts.append(("text", re.escape(pattern[done:])))
    try:
        return re.compile(_settled(parts), re.DOTALL)
    except re.error as error:
        raise SetupError(f"pattern {pattern!r} is not valid: {error}") from error


def _expression(found: re.Match[str]) -> tuple[str, str]:
    """Return what kind of token it is, and the expression of one that is a character."""
    kind = found.lastgroup or ""
    if kind in ("folders", "all", "some"):
        return kind, ""
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", found["of"] or "")
    return "text", "[^/]" if kind == "one" else rf"(?!/)[{'^' if found['not'] else ''}{inside}]"


_FREE = {"folders": "(?:.*/)?", "all": ".*"}
_FIRST = {"folders": "(?:.*?/)??", "all": ".*?"}


def _settled(parts: list[tuple[str, str]]) -> str:
    """Return an expression that never tries again what it has found: else a few wildcards take for ever.

    What stands before a wildcard may be matched where it ends first: the wildcard takes whatever is left. What comes
    behind the last one has to end where the text does, and ``**/`` takes whole folders only
    (``test_many_wildcards_take_no_time``).
    """
    chunks: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
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


def _within(parts: list[tuple[str, str]], *, is_anchored: bool) -> str:
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

"""Files that content entries name, alone or by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from divebook.errors import SetupError

WILDCARDS = frozenset("*?[{")
MAX_ALTERNATIVES = 1000


def has_wildcards(path: str) -> bool:
    """Whether `path` is a pattern."""
    return not WILDCARDS.isdisjoint(path)


def named_files(path: str, base_path: Path) -> list[Path]:
    """Return the file that `path` names, or those that match if it is a pattern: sorted, maybe none."""
    if not has_wildcards(path):
        return [base_path / path]
    found = {file for pattern in alternatives(path) for file in _matching(pattern, base_path) if file.is_file()}
    return sorted(found)


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
            raise SetupError(f"pattern {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns")
    return done


def _matching(pattern: str, base_path: Path) -> Iterator[Path]:
    anchor = Path(pattern).anchor
    folder = Path(anchor) if anchor else base_path
    try:
        yield from folder.glob(pattern[len(anchor) :])
    except (ValueError, NotImplementedError, re.error) as error:
        raise SetupError(f"pattern {pattern!r} is not valid: {error}") from error

"""Files that content entries name, alone or by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from divebook.documents.globs import alternatives, has_wildcards, matches
from divebook.documents.policy import Policy
from divebook.errors import PatternError, SetupError

_FOLDERS = "**"
"""The part of a pattern that stands for any number of folders."""


def named_files(path: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the file that `path` names, or those that match if it is a pattern: sorted, maybe none.

    Raises
    ------
    SetupError
        One of them is not where the policy allows it, or cannot be looked for.
    """
    if not has_wildcards(path):
        policy.file(path, base_path)
        return [base_path / path]
    found = {file for pattern in alternatives(path) for file in _matching(pattern, base_path, policy)}
    root = base_path.resolve()
    visible = {file for file in found if not policy.why_protected(file.resolve(), root)}  # as a shell's ``*``
    for file in visible:
        policy.file(file, base_path)
    return sorted(visible)


def _matching(pattern: str, base_path: Path, policy: Policy) -> list[Path]:
    """Return the files that match; what a pattern begins with is checked before anything is looked for."""
    plain = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    policy.file(plain or ".", base_path)
    anchor = Path(pattern).anchor
    try:
        return list(_files_below(Path(anchor) if anchor else base_path, _segments(pattern[len(anchor) :])))
    except PatternError as error:
        raise SetupError(f"pattern {pattern!r} is not valid: {error}") from error
    except (OSError, RecursionError) as error:  # a folder that may not be read, or vanishes meanwhile
        raise SetupError(f"pattern {pattern!r} cannot be looked for: {error}; name a narrower one") from error


def _segments(pattern: str) -> list[str]:
    """Return the parts of a pattern, with one ``**`` for several in a row."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts:
        raise PatternError("it is empty")
    if any("**" in part != "**" for part in parts):
        raise PatternError("'**' can only be an entire path component")
    return [part for at, part in enumerate(parts) if part != _FOLDERS or parts[at - 1 : at] != [_FOLDERS]]


def _files_below(start: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files that match, each once.

    `Path.glob` visits a folder once for each way in which several ``**`` lead to it. This visits it once, with all the
    parts that may come next (test_many_wildcards_over_folders_visit_each_folder_once).
    """
    waiting = [(start, frozenset({0}))] if start.is_dir() else []
    while waiting:
        folder, reached = waiting.pop()
        reached |= {at + 1 for at in reached if parts[at : at + 1] == [_FOLDERS]}
        next_parts = [at for at in reached if at < len(parts)]
        plain = {parts[at] for at in next_parts if not has_wildcards(parts[at])}
        names = plain if len(plain) == len(next_parts) else plain | _names_in(folder)
        for name in sorted(names):
            path = folder / name
            passed = frozenset(at + 1 for at in next_parts if parts[at] != _FOLDERS and matches(parts[at], name))
            if len(parts) in passed and path.is_file():
                yield path
            if path.is_dir():
                stays = () if path.is_symlink() else (at for at in next_parts if parts[at] == _FOLDERS)
                below = (passed | frozenset(stays)) - {len(parts)}
                waiting += [(path, below)] if below else []


def _names_in(folder: Path) -> set[str]:
    """Return the names in a folder; none in one that this user may not list, as a shell does."""
    try:
        return {path.name for path in folder.iterdir()}
    except (PermissionError, NotADirectoryError):
        return set()

"""Rules of ``.gitignore`` files, as git applies them: which paths of a folder are ignored.

Of the rules that match a path the last one decides, and a file nearer to the path overrides one further up. Nothing in
an ignored folder can be included again. `tests/workspace/test_ignored.py` compares the answers with those of git.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

GITIGNORE, EXCLUDE, OWN = ".gitignore", ".git/info/exclude", ".git"
"""Files with rules, and the folder of git itself, which is always ignored."""
_CLASSES = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "blank": " \t",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "A-Fa-f0-9",
}


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    is_negated: bool
    is_of_folders: bool
    is_of_names: bool
    """Whether it is held against the last name of a path, and not against the path below the file."""


class IgnoreRules:
    r"""The rules of one folder and the folders below it.

    Examples
    --------
    >>> rules = IgnoreRules()
    >>> rules.add("", "*.log\n!keep.log\nbuild/\n")
    >>> [rules.is_ignored(path) for path in ("a/x.log", "keep.log", "build/out.txt", "build")]
    [True, False, True, False]
    """

    def __init__(self) -> None:
        self._files: dict[str, list[_Rule]] = {}
        self._excluded: dict[str, list[_Rule]] = {}

    def add(self, folder: str, text: str, *, is_exclude: bool = False) -> None:
        """Add the rules of a file.

        Parameters
        ----------
        folder
            The path of the folder that the rules are relative to; '' is the folder of all.
        is_exclude
            Whether they are of ``.git/info/exclude``, which every ``.gitignore`` overrides.
        """
        (self._excluded if is_exclude else self._files)[folder] = list(_rules_in(text))

    def is_ignored(self, path: str, *, is_folder: bool = False) -> bool:
        """Return whether a path is ignored, or a folder around it is."""
        return any(
            self._decides(around, is_folder=is_folder or around != path) for around in (*_folders_around(path), path)
        )

    def _decides(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the rules ignore a path itself."""
        name = path.rpartition("/")[2]
        if name == OWN:
            return True
        folders = ["", *_folders_around(path)][::-1]
        for files in (self._files, self._excluded):
            for folder in folders:
                below = path[len(folder) :].lstrip("/") if folder else path
                for rule in reversed(files.get(folder, ())):
                    if rule.is_of_folders and not is_folder:
                        continue
                    if rule.pattern.fullmatch(name if rule.is_of_names else below):
                        return not rule.is_negated
        return False


def _folders_around(path: str) -> Iterator[str]:
    """Give the folders around a path, the outermost first."""
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _rules_in(text: str) -> Iterator[_Rule]:
    for whole in text.removeprefix("\ufeff").split("\n"):
        line = _without_trailing_spaces(whole.removesuffix("\r"))
        if line.startswith("#"):
            continue
        is_negated = line.startswith("!")
        line = line[is_negated:]
        is_of_folders = line.endswith("/")
        line = line[:-1] if is_of_folders else line
        is_of_names = "/" not in line
        expression = _expression(line.removeprefix("/"))
        if line and expression is not None:
            yield _Rule(re.compile(expression, re.DOTALL), is_negated, is_of_folders, is_of_names)


def _without_trailing_spaces(line: str) -> str:
    """Return a line without the spaces at its end, but for one after a backslash."""
    end = len(line.rstrip(" "))
    backslashes = end - len(line[:end].rstrip("\\"))
    return line[: end + 1] if backslashes % 2 and end < len(line) else line[:end]


def _expression(pattern: str) -> str | None:
    """Return the regular expression of a pattern; None for one that git lets match nothing."""
    parts, at = list[str](), 0
    while at < len(pattern):
        letter, is_first = pattern[at], at == 0 or pattern[at - 1] == "/"
        if is_first and pattern.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif is_first and at + 2 == len(pattern) and pattern.endswith("**"):
            parts.append(".+")
            at += 2
        elif letter == "*":
            parts.append("[^/]*")
            at = len(pattern) - len(pattern[at:].lstrip("*"))
        elif letter == "?":
            parts.append("[^/]")
            at += 1
        elif letter == "[":
            letters = _letters(pattern, at + 1)
            if letters is None:
                return None
            parts.append(letters[0])
            at = letters[1]
        elif letter == "\\":
            if at + 1 == len(pattern):
                return None
            parts.append(re.escape(pattern[at + 1]))
            at += 2
        else:
            parts.append(re.escape(letter))
            at += 1
    return "".join(parts)


def _letters(pattern: str, at: int) -> tuple[str, int] | None:
    """Return the expression of a set of letters such as ``[a-z]``, and where it ends; None for one without an end."""
    is_negated = pattern[at : at + 1] in ("!", "^")
    at += is_negated
    parts, start = list[str](), at
    while at < len(pattern) and (pattern[at] != "]" or at == start):
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at + 2)
            if end < 0 or pattern[at + 2 : end] not in _CLASSES:
                return None
            parts.append(_CLASSES[pattern[at + 2 : end]])
            at = end + 2
            continue
        first, at = _letter(pattern, at)
        last = first
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            last, at = _letter(pattern, at + 1)
        if first <= last:
            parts.append(f"{re.escape(first)}-{re.escape(last)}")
    if at >= len(pattern):
        return None
    letters = "".join(parts)
    if is_negated:
        return f"[^/{letters}]", at + 1
    return (f"(?!/)[{letters}]" if letters else "(?!)"), at + 1


def _letter(pattern: str, at: int) -> tuple[str, int]:
    """Return the letter at a place of a set, and where the next one is."""
    at += pattern[at] == "\\" and at + 1 < len(pattern)
    return pattern[at], at + 1

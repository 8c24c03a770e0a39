"""Rules of ``.gitignore`` files, as git applies them: which paths of a folder are ignored.

Of the rules that match a path the last one decides, and a file nearer to the path overrides one further up. Nothing in
an ignored folder can be included again. `tests/workspace/test_ignored.py` compares the answers with those of git.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from divebook.text.wildcards import (
    OPTIONAL_PAIR,
    Item,
    Repeated,
    WildcardMatcher,
    character_test,
    is_any_character,
    is_not_slash,
)

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


_SPECIAL = "*?[\\"
_MOST_REPEATED = 2
"""Wildcards for any number of characters in a pattern that `re` matches: the time grows with their number's power."""
_Match: TypeAlias = Callable[[str], object]


class _Rule(NamedTuple):
    match: _Match
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
                    if rule.match(name if rule.is_of_names else below):
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
        match = _match_of(line.removeprefix("/"))
        if line and match is not None:
            yield _Rule(match, is_negated, is_of_folders, is_of_names)


def _without_trailing_spaces(line: str) -> str:
    """Return a line without the spaces at its end, but for one after a backslash."""
    end = len(line.rstrip(" "))
    backslashes = end - len(line[:end].rstrip("\\"))
    return line[: end + 1] if backslashes % 2 and end < len(line) else line[:end]


def _match_of(pattern: str) -> _Match | None:
    """Return what tells whether a pattern stands for a whole text; None for a pattern that git lets match nothing."""
    parts = _parts(pattern)
    if parts is None:
        return None
    if sum(kind != "text" for kind, _ in parts) <= _MOST_REPEATED:
        return re.compile("".join(expression for _, expression in parts), re.DOTALL).fullmatch
    items: list[Item] = []
    for kind, expression in parts:
        items += (
            [OPTIONAL_PAIR, Repeated(is_any_character), "/"]
            if kind == "folders"
            else [_ITEMS.get(kind) or character_test(expression)]
        )
    return WildcardMatcher(items).matches


_ITEMS = {"all": Repeated(is_any_character), "some": Repeated(is_not_slash)}
_Part: TypeAlias = tuple[str, str]
"""A kind (``text`` for one character, ``folders``, ``all`` or ``some``), and its expression."""


def _parts(pattern: str) -> list[_Part] | None:
    """Return the parts of a pattern; None for one that git lets match nothing."""
    parts, at = list[_Part](), 0
    special = next((at for at, letter in enumerate(pattern) if letter in _SPECIAL), None)
    while at < len(pattern):
        letter = pattern[at]
        if letter == "*":
            end = len(pattern) - len(pattern[at:].lstrip("*"))
            # git compares the text before the first special letter by itself, so that two stars there begin a folder.
            is_first = at in (0, special) or pattern[at - 1] == "/"
            is_double = end - at > 1 and is_first and (end == len(pattern) or pattern.startswith(("/", "\\/"), end))
            if is_double and pattern.startswith("/", end):
                parts.append(("folders", "(?:.*/)?"))
                end += 1
            else:
                parts.append(("all", ".*") if is_double else ("some", "[^/]*"))
            at = end
        elif letter == "?":
            parts.append(("text", "[^/]"))
            at += 1
        elif letter == "[":
            letters = _letters(pattern, at + 1)
            if letters is None:
                return None
            parts.append(("text", letters[0]))
            at = letters[1]
        elif letter == "\\":
            if at + 1 == len(pattern):
                return None
            parts.append(("text", re.escape(pattern[at + 1])))
            at += 2
        else:
            parts.append(("text", re.escape(letter)))
            at += 1
    return parts


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
        # The first letter belongs to the set, also where the range from it is empty: [b-a] is [b].
        parts.append(f"{re.escape(first)}-{re.escape(max(first, last))}")
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

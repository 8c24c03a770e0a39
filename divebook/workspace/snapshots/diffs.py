"""Differences of trees as people and programs read them: a unified difference of each file, as git writes it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from divebook.text.lines import lines_in
from divebook.workspace.snapshots.summary import text_of
from divebook.workspace.snapshots.trees import FILE, FOLDER, LINK, FileChange, TreeEntry, shown_path

NO_FILE = "/dev/null"
_NO_NEWLINE = "\\ No newline at end of file\n"
_QUOTED = {ord('"'): '\\"', ord("\\"): "\\\\"}
_KINDS = {FILE: 0o100000, LINK: 0o120000, FOLDER: 0o040000}


@dataclass(frozen=True, slots=True)
class FileDiff:
    """How one file differs."""

    path: str
    kind: str
    """``added``, ``changed``, ``deleted`` or ``renamed``."""
    was: str | None
    added: int | None
    removed: int | None
    """Lines that came and went; None for what is no text."""
    text: str
    """The difference, as git writes it."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        told = {"path": self.path, "kind": self.kind, "added": self.added, "removed": self.removed, "diff": self.text}
        return told if self.was is None else {**told, "was": self.was}

    def __str__(self) -> str:
        return self.text


def diffs_of(changes: Sequence[FileChange], get: Callable[[str], bytes]) -> list[FileDiff]:
    """Return the difference of each file that has changed; folders are told by what is in them.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    """
    return [_diff(change, get) for change in changes if not _is_folder(change)]


def _is_folder(change: FileChange) -> bool:
    return all(entry is None or entry.kind == FOLDER for entry in (change.before, change.after))


def _diff(change: FileChange, get: Callable[[str], bytes]) -> FileDiff:
    if change.before is not None and change.after is not None and change.before.kind != change.after.kind:
        return _of_another_kind(change, get)
    path, was = shown_path(change.path), None if change.was is None else shown_path(change.was)
    before, after = (_named(*each) for each in (("a/", change.was or change.path), ("b/", change.path)))
    old, new = _text(change.before, get), _text(change.after, get)
    head = [f"diff --git {before} {after}\n", *_modes(change)]
    if change.was is not None:
        head += [f"rename from {_named('', change.was)}\n", f"rename to {_named('', change.path)}\n"]
    if old is None or new is None:
        body = [f"Binary files {before} and {after} differ\n"]
        return FileDiff(path, change.kind, was, None, None, "".join([*head, *body]))
    lines = list(
        difflib.unified_diff(
            lines_in(old),
            lines_in(new),
            NO_FILE if change.before is None else before,
            NO_FILE if change.after is None else after,
        )
    )
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return FileDiff(path, change.kind, was, added, removed, "".join([*head, *_ended(lines)]))


def _of_another_kind(change: FileChange, get: Callable[[str], bytes]) -> FileDiff:
    """Return how a file became a link or folder, or the other way round: git has one go, and the other come."""
    parts = (change._replace(after=None), change._replace(before=None))
    told = diffs_of(parts, get)
    counted = [(one.added, one.removed) for one in told]
    added, removed = (None if None in counts else sum(map(int, counts)) for counts in zip(*counted, strict=True))
    return FileDiff(shown_path(change.path), change.kind, None, added, removed, "".join(one.text for one in told))


def _named(side: str, path: str) -> str:
    """Return a path as git writes it: in quotes where a letter of it could be taken for something else."""
    text = side + path
    if text.isprintable() and not set('"\\') & set(text):
        return text
    return f'"{"".join(_QUOTED.get(byte) or _letter(byte) for byte in os.fsencode(text))}"'


def _letter(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def _text(entry: TreeEntry | None, get: Callable[[str], bytes]) -> str | None:
    return entry.content if entry is not None and entry.kind == LINK else text_of(entry, get)


def _modes(change: FileChange) -> Iterator[str]:
    before, after = change.before, change.after
    if before is None and after is not None:
        yield f"new file mode {_mode(after):o}\n"
    elif after is None and before is not None:
        yield f"deleted file mode {_mode(before):o}\n"
    elif before is not None and after is not None and _mode(before) != _mode(after):
        yield f"old mode {_mode(before):o}\n"
        yield f"new mode {_mode(after):o}\n"


def _mode(entry: TreeEntry) -> int:
    """Return the mode as git knows it: whether a file can be run."""
    return _KINDS[entry.kind] | (0 if entry.kind == LINK else 0o755 if entry.mode & 0o100 else 0o644)


def _ended(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}"

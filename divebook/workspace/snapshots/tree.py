"""A tree: all files of a folder at one moment, under one digest. Pure."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from divebook.text.format import lines_in

FILE = "f"
FOLDER = "d"
LINK = "l"


class TreeEntry(NamedTuple):
    """A file, folder or link."""

    kind: str
    """`FILE`, `FOLDER` or `LINK`."""
    mode: int = 0
    """Permission bits; 0 of a link."""
    content: str = ""
    """Of a file its SHA-256, hexadecimal; of a link where it leads."""
    size: int = 0
    """Bytes, of a file."""
    mtime: int = 0
    """Nanoseconds, of a file; it is put back, and changes no digest."""

    def is_like(self, other: TreeEntry | None) -> bool:
        """Return whether another one is the same but for its mtime."""
        return other is not None and self[:3] == other[:3]


TreeEntries: TypeAlias = Mapping[str, TreeEntry]
"""By path below the folder; names that are no UTF-8 are written as `os.fsdecode` does."""
NO_ENTRIES: TreeEntries = {}


class LeftOut(NamedTuple):
    """A file that a tree leaves out, or of which it has what was there for a moment."""

    path: str
    reason: str


class Tree(NamedTuple):
    """All files of a folder at one moment."""

    digest: str
    """SHA-256 over names, kinds, modes and contents, hexadecimal."""
    entries: TreeEntries
    problems: tuple[LeftOut, ...] = ()


class FileChange(NamedTuple):
    """How one path differs between two trees."""

    path: str
    kind: str
    """``added``, ``changed``, ``deleted`` or ``renamed``."""
    before: TreeEntry | None
    after: TreeEntry | None
    was: str | None = None
    """The former path of what was renamed."""


ADDED = "added"
CHANGED = "changed"
DELETED = "deleted"
RENAMED = "renamed"


def changes_between(before: Mapping[str, TreeEntry], after: Mapping[str, TreeEntry]) -> list[FileChange]:
    """Return how two trees differ, by path; a file that stands elsewhere unchanged was renamed.

    Examples
    --------
    >>> old, new = {"a": TreeEntry("f", 0o644, "11", 9)}, {"b": TreeEntry("f", 0o644, "11", 9), "c": TreeEntry("l")}
    >>> [(change.kind, change.was, change.path) for change in changes_between(old, new)]
    [('renamed', 'a', 'b'), ('added', None, 'c')]
    """
    found = {path: (old, new) for path, old, new in _differing(before, after)}
    gone: dict[tuple[str, int], list[str]] = {}
    for path, (old, new) in found.items():
        if new is None and old is not None and old.kind == FILE:
            gone.setdefault((old.content, old.mode), []).append(path)
    changes: list[FileChange] = []
    moved: set[str] = set()
    for path, (old, new) in sorted(found.items()):
        if old is None and new is not None:
            former = gone.get((new.content, new.mode)) if new.kind == FILE and new.size else None
            was = former.pop(0) if former else None
            if was is not None:
                moved.add(was)
            changes.append(
                FileChange(path, ADDED if was is None else RENAMED, found[was][0] if was else None, new, was)
            )
        else:
            changes.append(FileChange(path, DELETED if new is None else CHANGED, old, new))
    return [change for change in changes if change.kind != DELETED or change.path not in moved]


def _differing(
    before: Mapping[str, TreeEntry], after: Mapping[str, TreeEntry]
) -> Iterator[tuple[str, TreeEntry | None, TreeEntry | None]]:
    for path, old in before.items():
        new = after.get(path)
        if not old.is_like(new):
            yield path, old, new
    for path, new in after.items():
        if path not in before:
            yield path, None, new


def shown_path(path: str) -> str:
    """Return a path as people and logs can have it: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# What has changed between two trees, for readers: paths, kinds, and how many lines came and went.


MOST_BYTES = 200_000
"""Of a file whose lines are counted."""
MOST_COUNTED = 200
_NAMED = 5


def summary_of(changes: Sequence[FileChange], get: Callable[[str], bytes]) -> list[dict[str, Any]]:
    """Return ``path``, ``kind``, ``was``, and ``added`` and ``removed`` lines of texts that are not too long.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    """
    return [_told(change, get if at < MOST_COUNTED else None) for at, change in enumerate(changes)]


def _told(change: FileChange, get: Callable[[str], bytes] | None) -> dict[str, Any]:
    told: dict[str, Any] = {"path": shown_path(change.path), "kind": change.kind}
    if change.was is not None:
        told["was"] = shown_path(change.was)
    lines = None if get is None else lines_changed(change.before, change.after, get)
    return told if lines is None else {**told, "added": lines[0], "removed": lines[1]}


def lines_changed(
    before: TreeEntry | None, after: TreeEntry | None, get: Callable[[str], bytes]
) -> tuple[int, int] | None:
    """Return how many lines came and went; None where one of the two is no text, or too long."""
    old = text_of(before, get)
    new = text_of(after, get)
    if old is None or new is None:
        return None
    matcher = difflib.SequenceMatcher(None, lines_in(old), lines_in(new), autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    return sum(code[4] - code[3] for code in codes), sum(code[2] - code[1] for code in codes)


def text_of(entry: TreeEntry | None, get: Callable[[str], bytes]) -> str | None:
    """Return the text of a file, '' for none; None for what is no text, no file, or too long."""
    if entry is None:
        return ""
    if entry.kind != FILE or entry.size > MOST_BYTES:
        return None
    content = get(entry.content)
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def told_in_short(changes: Sequence[FileChange]) -> str:
    """Return a few words: how many files, and which of them first.

    >>> told_in_short([FileChange("a.py", "changed", None, None), FileChange("b.py", "added", None, None)])
    '1 changed, 1 added: a.py, b.py'
    """
    counts = Counter(change.kind for change in changes)
    named = ", ".join(shown_path(change.path) for change in changes[:_NAMED])
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    return f"{', '.join(f'{count} {kind}' for kind, count in counts.items())}: {named}{more}"


# Differences of trees as people and programs read them: a unified difference of each file, as git writes it.


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
    path = shown_path(change.path)
    was = None if change.was is None else shown_path(change.was)
    before, after = (_named(*each) for each in (("a/", change.was or change.path), ("b/", change.path)))
    old = _text(change.before, get)
    new = _text(change.after, get)
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
    before = change.before
    after = change.after
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

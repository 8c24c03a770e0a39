"""Trees (all entries of a folder at one moment, with a digest) and the differences between two trees. All functions are
pure.
"""

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
    """One entry of a tree (the files of a folder at one moment): a file, folder or link, with its mode and content."""

    kind: str
    """Kind of the entry: `FILE`, `FOLDER` or `LINK`."""
    mode: int = 0
    """Permission bits; 0 for a link."""
    content: str = ""
    """SHA-256 of a file (hexadecimal), or target of a link."""
    size: int = 0
    """Size of a file in bytes; 0 for other kinds."""
    mtime: int = 0
    """Modification time of a file in nanoseconds. It is restored, but is not part of a digest."""

    def is_like(self, other: TreeEntry | None) -> bool:
        """Return True if another tree entry has the same kind, mode and content. Return False for None."""
        # The size follows from the content, and a new modification time alone is not a change.
        return other is not None and self[:3] == other[:3]


TreeEntries: TypeAlias = Mapping[str, TreeEntry]
"""Entries of a tree by path relative to the folder. Names that are not UTF-8 are decoded with `os.fsdecode`."""
NO_ENTRIES: TreeEntries = {}


class TreeProblem(NamedTuple):
    """A path that a tree leaves out, or whose content changed while it was read, with the reason."""

    path: str
    reason: str


class Tree(NamedTuple):
    """All entries of a folder at one moment, and their digest."""

    digest: str
    """SHA-256 over the names, kinds, modes and contents of all entries, in hexadecimal."""
    entries: TreeEntries
    problems: tuple[TreeProblem, ...] = ()


class FileChange(NamedTuple):
    """The difference of one path between two trees, with its entry in each of them."""

    path: str
    kind: str
    """Kind of the change: ``added``, ``changed``, ``deleted`` or ``renamed``."""
    before: TreeEntry | None
    after: TreeEntry | None
    was: str | None = None
    """Path of a renamed file in the earlier tree; None for other kinds."""


ADDED = "added"
CHANGED = "changed"
DELETED = "deleted"
RENAMED = "renamed"


def changes_between(before: Mapping[str, TreeEntry], after: Mapping[str, TreeEntry]) -> list[FileChange]:
    """Compare two trees of files. Return a `FileChange` for each path that differs.

    A deleted file whose content appears at a new path counts as renamed.

    Examples
    --------
    >>> old, new = {"a": TreeEntry("f", 0o644, "11", 9)}, {"b": TreeEntry("f", 0o644, "11", 9), "c": TreeEntry("l")}
    >>> [(change.kind, change.was, change.path) for change in changes_between(old, new)]
    [('renamed', 'a', 'b'), ('added', None, 'c')]
    """
    differences = {path: (old, new) for path, old, new in _differing(before, after)}
    # Deleted files by content and mode. An added file with the same content and mode takes one of them as its old path.
    deleted_paths: dict[tuple[str, int], list[str]] = {}
    for path, (old, new) in differences.items():
        if new is None and old is not None and old.kind == FILE:
            deleted_paths.setdefault((old.content, old.mode), []).append(path)
    changes: list[FileChange] = []
    renamed_paths: set[str] = set()
    for path, (old, new) in sorted(differences.items()):
        if old is None and new is not None:
            # Empty files are never matched: any two of them have the same content.
            candidates = deleted_paths.get((new.content, new.mode)) if new.kind == FILE and new.size else None
            old_path = candidates.pop(0) if candidates else None
            if old_path is None:
                changes.append(FileChange(path, ADDED, None, new))
            else:
                renamed_paths.add(old_path)
                changes.append(FileChange(path, RENAMED, differences[old_path][0], new, old_path))
        else:
            changes.append(FileChange(path, DELETED if new is None else CHANGED, old, new))
    # The old path of a rename was first listed as deleted.
    return [change for change in changes if change.kind != DELETED or change.path not in renamed_paths]


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
    """Return a path as text for people and logs, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# --- summaries of changes: paths, kinds, and numbers of added and removed lines ---


MOST_BYTES = 200_000
"""Maximum size in bytes of a file whose changed lines are counted."""
MOST_COUNTED = 200
_MOST_NAMED = 5


def summary_of(changes: Sequence[FileChange], get: Callable[[str], bytes]) -> list[dict[str, Any]]:
    """Return a dict of plain data for each change, with its ``path``, ``kind`` and old path ``was``. For a text file,
    it also has the numbers of ``added`` and ``removed`` lines.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    """
    # Only the first changes get numbers of lines, since these need the old and the new content.
    return [_summary(change, get if at < MOST_COUNTED else None) for at, change in enumerate(changes)]


def _summary(change: FileChange, get: Callable[[str], bytes] | None) -> dict[str, Any]:
    summary: dict[str, Any] = {"path": shown_path(change.path), "kind": change.kind}
    if change.was is not None:
        summary["was"] = shown_path(change.was)
    lines = None if get is None else lines_changed(change.before, change.after, get)
    return summary if lines is None else {**summary, "added": lines[0], "removed": lines[1]}


def lines_changed(
    before: TreeEntry | None, after: TreeEntry | None, get: Callable[[str], bytes]
) -> tuple[int, int] | None:
    """Return the numbers of added and of removed lines between two versions of a file. Return None if one of them is
    binary or too long.
    """
    old = text_of(before, get)
    new = text_of(after, get)
    if old is None or new is None:
        return None
    # Without `autojunk=False`, lines that are frequent in a long text would not be matched, and so count as changed.
    matcher = difflib.SequenceMatcher(None, lines_in(old), lines_in(new), autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    # An opcode is (tag, i1, i2, j1, j2): lines i1 to i2 of the old text became lines j1 to j2 of the new one.
    return sum(code[4] - code[3] for code in codes), sum(code[2] - code[1] for code in codes)


def text_of(entry: TreeEntry | None, get: Callable[[str], bytes]) -> str | None:
    """Return the text of a file in a tree. Return '' for the entry None (no file). Return None for a binary or long
    file, and for entries of other kinds.
    """
    if entry is None:
        return ""
    if entry.kind != FILE or entry.size > MOST_BYTES:
        return None
    content = get(entry.content)
    try:
        # Like in git, a file that contains NUL is binary.
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def short_summary(changes: Sequence[FileChange]) -> str:
    """Return a short text for people about changes: the number of files of each kind of change (added, changed, ...),
    and the first paths.

    >>> short_summary([FileChange("a.py", "changed", None, None), FileChange("b.py", "added", None, None)])
    '1 changed, 1 added: a.py, b.py'
    """
    counts = Counter(change.kind for change in changes)
    paths = ", ".join(shown_path(change.path) for change in changes[:_MOST_NAMED])
    more = f" and {len(changes) - _MOST_NAMED} more" if len(changes) > _MOST_NAMED else ""
    return f"{', '.join(f'{count} {kind}' for kind, count in counts.items())}: {paths}{more}"


# --- unified differences of files, as git writes them ---


NO_FILE = "/dev/null"
_NO_NEWLINE = "\\ No newline at end of file\n"
_QUOTED = {ord('"'): '\\"', ord("\\"): "\\\\"}
# Type bits of the modes in a diff of git.
_KINDS = {FILE: 0o100000, LINK: 0o120000, FOLDER: 0o040000}


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The difference of one file between two trees, with its text as a unified diff in the format of git."""

    path: str
    kind: str
    """Kind of the change: ``added``, ``changed``, ``deleted`` or ``renamed``."""
    was: str | None
    added: int | None
    removed: int | None
    """Number of added and of removed lines; None for binary content."""
    text: str
    """The difference as a unified diff in the format of git."""

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as a dict of plain data."""
        data = {"path": self.path, "kind": self.kind, "added": self.added, "removed": self.removed, "diff": self.text}
        return data if self.was is None else {**data, "was": self.was}

    def __str__(self) -> str:
        return self.text


def diffs_of(changes: Sequence[FileChange], get: Callable[[str], bytes]) -> list[FileDiff]:
    """Return the difference of each changed file. Changes of folders are left out.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    """
    return [_diff(change, get) for change in changes if not _is_folder(change)]


def _is_folder(change: FileChange) -> bool:
    return all(entry is None or entry.kind == FOLDER for entry in (change.before, change.after))


def _diff(change: FileChange, get: Callable[[str], bytes]) -> FileDiff:
    # The text has the format of `git diff`. The first two lines of the lines in it are their header, which is not
    # counted as added or removed.
    if change.before is not None and change.after is not None and change.before.kind != change.after.kind:
        return _of_another_kind(change, get)
    path = shown_path(change.path)
    was = None if change.was is None else shown_path(change.was)
    before, after = (_git_path(*each) for each in (("a/", change.was or change.path), ("b/", change.path)))
    old = _text(change.before, get)
    new = _text(change.after, get)
    head = [f"diff --git {before} {after}\n", *_modes(change)]
    if change.was is not None:
        head += [f"rename from {_git_path('', change.was)}\n", f"rename to {_git_path('', change.path)}\n"]
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
    """Return the difference of a path that has changed its kind, for example from a file to a link. Like in git, its
    text is a deletion followed by an addition.
    """
    parts = (change._replace(after=None), change._replace(before=None))
    diffs = diffs_of(parts, get)
    line_counts = [(diff.added, diff.removed) for diff in diffs]
    # [(added, removed), (added, removed)] -> one sum for each column. None (binary content) makes a sum unknown.
    added, removed = (None if None in counts else sum(map(int, counts)) for counts in zip(*line_counts, strict=True))
    return FileDiff(shown_path(change.path), change.kind, None, added, removed, "".join(diff.text for diff in diffs))


def _git_path(side: str, path: str) -> str:
    """Return a path as git writes it in a diff, after the prefix `side`, such as ``a/``. A path with special characters
    is quoted and escaped.
    """
    text = side + path
    # 'a/ä.txt' stays; 'a/x\ty' -> '"a/x\011y"'; 'a/x"y' -> '"a/x\"y"'.
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
    """Return the mode that git records for a tree entry, such as 0o100755 for an executable file."""
    if entry.kind == LINK:
        return _KINDS[LINK]
    # git stores only whether the owner may execute a file.
    return _KINDS[entry.kind] | (0o755 if entry.mode & 0o100 else 0o644)


def _ended(lines: Iterable[str]) -> Iterator[str]:
    # Without the mark, ``patch`` would join a last line without a line break to the next one.
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}"

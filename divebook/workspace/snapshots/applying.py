"""Taking changes over into a folder of a person's: file by file, all that are asked for or none.

A file is taken over where the folder has what the change began with, what it comes to already, or what the workspace
had meanwhile, which was taken over before. Whatever else is there is a conflict, and nothing is written. Only files are
touched: of a git working tree neither index nor history.
"""

from __future__ import annotations

import functools
import os
import secrets
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Self, TypeAlias

from divebook.errors import NotFoundError, SnapshotError
from divebook.workspace.paths import Root
from divebook.workspace.snapshots.trees import FILE, FOLDER, LINK, RENAMED, FileChange, TreeEntry, shown_path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE = 0o777


@dataclass
class Applied:
    """What became of changes that were to be taken over."""

    written: list[str] = field(default_factory=list)
    """Paths of the files that are otherwise now."""
    there: list[str] = field(default_factory=list)
    """Paths of those that were that way already."""

    def told(self, folder: object) -> str:
        """Say what became of them in a folder."""
        there = f"; so already: {', '.join(self.there)}" if self.there else ""
        return f"taken over into {folder}: {', '.join(self.written) or 'nothing'}{there}"


Meanwhile: TypeAlias = Mapping[str, Collection[TreeEntry | None]]
"""By path: what a workspace had there at some time."""


def applied(
    root: Root, changes: Sequence[FileChange], get: Callable[[str], bytes], meanwhile: Meanwhile | None = None
) -> Applied:
    """Take changes over into a folder.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    meanwhile
        What may be written over as well, since it is kept.

    Raises
    ------
    SnapshotError
        The folder has something else than the changes began with; nothing was written.
    """
    done, work, conflicts = Applied(), list[FileChange](), list[str]()
    for change in changes:
        if _is_there(root, change):
            done.there.append(shown_path(change.path))
        elif _fits(root, change, meanwhile or {}):
            work.append(change)
        else:
            conflicts.append(shown_path(change.path))
    if conflicts:
        raise SnapshotError(
            f"{root.path} has changed meanwhile: {', '.join(conflicts)}; nothing was written. Leave those files out, "
            "or put back what they were"
        )
    with _Work(root, get) as under_way:
        for change in sorted(work, key=_order):
            under_way.carry_out(change)
    done.written += [shown_path(change.path) for change in work]
    return done


def chosen(changes: Sequence[FileChange], paths: Sequence[str] | None) -> list[FileChange]:
    """Return the changes of some files, each by its path, or of all; `NotFoundError` for one that has not changed."""
    if paths is None:
        return list(changes)
    if isinstance(paths, str):
        paths = [paths]
    known = {shown_path(change.path): change for change in changes}
    for path in paths:
        if path not in known:
            raise NotFoundError("changed file", path, known)
    return [known[path] for path in paths]


def _order(change: FileChange) -> tuple[bool, str]:
    """Folders come before what is in them, and go after it."""
    is_gone = change.after is None
    return is_gone, change.path if not is_gone else "".join(chr(0x10FFFF - ord(letter)) for letter in change.path)


def _present(root: Root, path: str) -> TreeEntry | None:
    """Return what is at a path."""
    try:
        with root.parent(path) as (folder, name):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                return TreeEntry(LINK, content=os.readlink(name, dir_fd=folder))
        if stat.S_ISDIR(found.st_mode):
            return TreeEntry(FOLDER, found.st_mode & 0o7777)
        with open(root.open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return TreeEntry(FILE, found.st_mode & 0o7777, sha256(content).hexdigest(), len(content))


def _has(found: TreeEntry | None, wanted: TreeEntry | None) -> bool:
    """Return whether what is there is what a tree has; a folder is one whatever its mode."""
    if found is None or wanted is None:
        return found is None and wanted is None
    return found.kind == wanted.kind and found.content == wanted.content


def _is_there(root: Root, change: FileChange) -> bool:
    is_gone = change.was is None or _present(root, change.was) is None
    found = _present(root, change.path)
    is_mode = found is None or change.after is None or (found.mode ^ change.after.mode) & 0o100 == 0
    return is_gone and is_mode and _has(found, change.after)


def _fits(root: Root, change: FileChange, meanwhile: Meanwhile) -> bool:
    def is_ours(path: str, wanted: TreeEntry | None) -> bool:
        found = _present(root, path)
        return _has(found, wanted) or any(_has(found, had) for had in meanwhile.get(path, ()))

    if change.kind == RENAMED and change.was is not None:
        return is_ours(change.was, change.before) and is_ours(change.path, None)
    return is_ours(change.path, change.before)


class _Work:
    """Changes of a folder on their way: all of them are made, or none."""

    def __init__(self, root: Root, get: Callable[[str], bytes]) -> None:
        self._root, self._get = root, get
        self._undo: list[Callable[[], None]] = []
        self._aside: list[tuple[int, str]] = []
        """What was there before: the folder, and the name that it has meanwhile."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for step in reversed(self._undo) if kind is not None else ():
            with suppress(OSError):
                step()
        for folder, name in self._aside:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            os.close(folder)

    def carry_out(self, change: FileChange) -> None:
        """Make one change."""
        before, after = change.before, change.after
        if before is not None and after is not None and before.kind == after.kind == FOLDER:
            return
        old = change.was if change.was is not None else change.path
        for path in dict.fromkeys((old, change.path)):
            self._put_aside(path)
        if after is None:
            return
        self._make_parents(change.path)
        with self._root.parent(change.path) as (folder, name):
            if after.kind == FOLDER:
                os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
            elif after.kind == LINK:
                os.symlink(after.content, name, dir_fd=folder)
            else:
                self._write(os.open(name, _NEW, 0o666, dir_fd=folder), after)
        self._undo.append(functools.partial(_remove, self._root, change.path))

    def _write(self, opened: int, entry: TreeEntry) -> None:
        with open(opened, "wb") as file:
            file.write(self._get(entry.content))
            if entry.mode & 0o100:
                os.fchmod(opened, os.fstat(opened).st_mode | 0o111)

    def _put_aside(self, path: str) -> None:
        found = _present(self._root, path)
        if found is None:
            return
        if found.kind == FOLDER:
            with suppress(OSError), self._root.parent(path) as (folder, name):  # it holds what no tree knows
                os.rmdir(name, dir_fd=folder)
                self._undo.append(functools.partial(_make_folder, self._root, path))
            return
        aside = f".{secrets.token_hex(8)}.aside"
        with self._root.parent(path) as (folder, name):
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            kept = os.dup(folder)
        self._aside.append((kept, aside))
        self._undo.append(lambda: os.rename(aside, name, src_dir_fd=kept, dst_dir_fd=kept))

    def _make_parents(self, path: str) -> None:
        around = path.rpartition("/")[0]
        if around and _present(self._root, around) is None:
            self._make_parents(around)
            _make_folder(self._root, around)
            self._undo.append(functools.partial(_remove, self._root, around))


def _make_folder(root: Root, path: str) -> None:
    with root.parent(path) as (folder, name):
        os.mkdir(name, _FOLDER_MODE, dir_fd=folder)


def _remove(root: Root, path: str) -> None:
    with root.parent(path) as (folder, name):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)

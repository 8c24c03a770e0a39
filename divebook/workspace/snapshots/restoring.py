"""Putting a tree back: what is not in it goes, what differs is replaced in one step, what is the same stays."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from divebook.workspace.paths import Root
from divebook.workspace.snapshots.trees import FOLDER, LINK, TreeEntry

GetContent: TypeAlias = Callable[[str], bytes]
"""Returns the content of a file by its SHA-256, hexadecimal."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER = 0o700


def put_back(root: Root, present: Mapping[str, TreeEntry], wanted: Mapping[str, TreeEntry], get: GetContent) -> None:
    """Make a folder that holds one tree hold another one.

    Raises
    ------
    OSError, PathNotAllowedError
        A file cannot be written, or a path leads out by now; what was put back until then stays.
    """
    opened = _unlocked(root, present, wanted)
    for path in sorted(
        (path for path in present if path not in wanted), reverse=True
    ):  # what is inside a folder comes before it
        _remove(root, path, present[path].kind)
    for path in sorted(wanted):
        entry, old = wanted[path], present.get(path)
        if entry == old:
            continue
        if old is not None and old.kind != entry.kind:
            _remove(root, path, old.kind)
            old = None
        if entry.kind == FOLDER:
            _make_folder(root, path, is_new=old is None)
            opened.append(path)
        else:
            _write(root, path, entry, get)
    for path in sorted(opened, reverse=True):  # each gets its mode when all is in it
        if path in wanted:
            _set_mode(root, path, wanted[path].mode)


def _unlocked(root: Root, present: Mapping[str, TreeEntry], wanted: Mapping[str, TreeEntry]) -> list[str]:
    """Let folders be written that may not be, and in which something changes; return them."""
    changed = {path for path in {*present, *wanted} if present.get(path) != wanted.get(path)}
    around = {path.rpartition("/")[0] for path in changed}
    locked = [path for path in sorted(around) if path in present and not _is_open(present[path])]
    for path in locked:
        _set_mode(root, path, _OPEN_FOLDER)
    return locked


def _is_open(entry: TreeEntry) -> bool:
    return entry.kind != FOLDER or entry.mode & _OPEN_FOLDER == _OPEN_FOLDER


def _set_mode(root: Root, path: str, mode: int) -> None:
    opened = root.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(opened, mode)
    finally:
        os.close(opened)


def _remove(root: Root, path: str, kind: str) -> None:
    with suppress(FileNotFoundError), root.parent(path) as (folder, name):
        if kind != FOLDER:
            os.unlink(name, dir_fd=folder)
            return
        with suppress(OSError):  # it holds what is left out of snapshots
            os.rmdir(name, dir_fd=folder)


def _make_folder(root: Root, path: str, *, is_new: bool) -> None:
    if is_new:
        with suppress(FileExistsError), root.parent(path) as (folder, name):
            os.mkdir(name, _OPEN_FOLDER, dir_fd=folder)
    _set_mode(root, path, _OPEN_FOLDER)


def _write(root: Root, path: str, entry: TreeEntry, get: GetContent) -> None:
    """Put a file or link in place of what is there; a file with several names is not written through."""
    temporary = f".{secrets.token_hex(8)}.restored"
    with root.parent(path) as (folder, name):
        try:
            if entry.kind == LINK:
                os.symlink(entry.content, temporary, dir_fd=folder)
            else:
                _write_file(os.open(temporary, _NEW, 0o600, dir_fd=folder), entry, get(entry.content))
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def _write_file(opened: int, entry: TreeEntry, content: bytes) -> None:
    with open(opened, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(opened, entry.mode)
        os.utime(opened, ns=(entry.mtime, entry.mtime))

"""Protected files: hidden files, version control, and the stores of this process.

A definition needs permission to use them, and what a run has changed in them reaches a user's folder only if a person
names them (`divebook.workspace.snapshots.protected`).

A file is judged by its real path, with links followed. Only the names below the folder that was granted count: a
project in ``~/.cache/project`` is not hidden from a definition that lies in it.
"""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

VERSION_CONTROL = frozenset({"cvs", "rcs", "sccs", "_darcs", "_fossil_", "_mtn", "_svn", "{arch}"})
"""Folders of version control whose names do not begin with a dot, in the form of `canonical_name`."""
BARE_REPOSITORY = frozenset({"HEAD", "objects", "refs"})
"""Entries by which git recognizes a folder as a repository, whatever the folder's name is."""
LINKED_REPOSITORY = frozenset({"HEAD", "commondir"})
"""Entries by which git recognizes a folder as a part of another repository, which the file ``commondir`` names."""
REPOSITORY_MARKS = BARE_REPOSITORY | LINKED_REPOSITORY
_SHORT_NAME = re.compile(r"[^.]{1,6}~\d+(\..{0,3})?")
"""The second name that Windows gives to a file: ``GIT~1`` is ``.git``."""
_IGNORED_CATEGORIES = frozenset({"Cf", "Cc", "Mn"})
_IGNORED_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
_EXECUTION = "exec_"
_WORKSPACES = "workspaces"
_stores: dict[Path, set[str]] = {}
"""Names of the stores of this process by their folder, so that judging a file does not cost more with every store."""


def protect_store(path: Path) -> None:
    """Protect the file of a store, and the files beside it that belong to it, for the life of this process."""
    store = path.resolve()
    _stores.setdefault(store.parent, set()).add(store.name)


def patterns_of_stores(folder: Path) -> list[str]:
    """Return patterns of what belongs to stores of this process below a folder, relative to the folder."""
    real = folder.resolve()
    stores = [
        (parent.relative_to(real).as_posix(), glob.escape(name))
        for parent, names in _stores.items()
        if parent.is_relative_to(real)
        for name in names
    ]
    return [
        f"/{parent}/{pattern}".replace("/./", "/")
        for parent, name in stores
        for pattern in (name, f"{name}-*", f"{name}.*", f"{_WORKSPACES}/{_EXECUTION}*")
    ]


def canonical_name(name: str) -> str:
    r"""Return a name as the most lenient file system compares it: case, ignorable characters and look-alikes removed.

    Examples
    --------
    >>> [canonical_name(name) for name in (".GIT", "\uff0egit", ".g\u200cit", ".git. ")]
    ['.git', '.git', '.git', '.git']
    """
    text = "".join(
        letter
        for letter in unicodedata.normalize("NFKC", name)
        if unicodedata.category(letter) not in _IGNORED_CATEGORIES and letter not in _IGNORED_LETTERS
    )
    text = unicodedata.normalize("NFKC", text).casefold()
    return text.rstrip(". ") or text


def why_protected_name(name: str) -> str:
    """Return why a name of a file or folder is protected, as the end of a sentence; empty if it is not."""
    text = canonical_name(name)
    if text.startswith("."):
        return f"{name} is hidden"
    if text.partition(":")[0] in VERSION_CONTROL:
        return f"{name} belongs to version control"
    return f"{name} may be another name of a hidden file" if _SHORT_NAME.fullmatch(text) else ""


def why_protected(path: Path, base: Path) -> str:
    """Return why a file needs permission, as the end of a sentence; empty if it needs none.

    Parameters
    ----------
    path
        Real path of the file, which need not exist.
    base
        Real path of the folder that was granted. For a file outside it, the names below their common folder count.
    """
    common = base
    while not path.is_relative_to(common) and common != common.parent:
        common = common.parent
    place = common
    for name in path.parts[len(common.parts) if path.is_relative_to(common) else 1 :]:
        if why := why_protected_name(name):
            return why
        if _completes_repository(place, name):
            return f"with {name}, {place.name or place} would be a repository of git"
        place /= name
        if _is_bare_repository(place):
            return f"{name} is a repository of git"
    return _why_protected_as_store(path, base)


def unprotected_files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder that need no permission, without a look into folders that are protected.

    Parameters
    ----------
    root
        Real path of the folder that was granted.
    """
    for place, folders, files in os.walk(root):
        folder = Path(place)
        folders[:] = [name for name in folders if not _why_protected_entry(folder / name, root)]
        for name in files:
            path = folder / name
            if path.is_file() and not _why_protected_entry(path, root):
                yield path


def _why_protected_entry(path: Path, root: Path) -> str:
    """Return why a file or folder is protected whose own folder is not."""
    if why := why_protected_name(path.name):
        return why
    if _is_bare_repository(path):
        return f"{path.name} is a repository of git"
    return _why_protected_as_store(path, root)


def marks_named(name: str) -> set[str]:
    """Return the entries of a repository of git that a name is, as the most lenient file system compares names."""
    text = canonical_name(name)
    return {mark for mark in REPOSITORY_MARKS if text == mark.casefold()}


def is_repository(marks: Collection[str]) -> bool:
    """Return whether git recognizes a folder with these of the `REPOSITORY_MARKS` as a repository."""
    return BARE_REPOSITORY.issubset(marks) or LINKED_REPOSITORY.issubset(marks)


def marks_in(folder: str | Path) -> set[str]:
    """Return the entries of a repository of git that a folder on disk has."""
    # `Path.exists` raises for a name that is too long, and in a folder that this user may not search.
    return {mark for mark in REPOSITORY_MARKS if os.path.lexists(os.path.join(folder, mark))}  # noqa: PTH118


def _is_bare_repository(folder: Path) -> bool:
    # Most folders have no HEAD: one look is enough for them.
    return os.path.lexists(folder / "HEAD") and is_repository(marks_in(folder))


def _completes_repository(folder: Path, name: str) -> bool:
    """Return whether a new entry makes a folder a repository of git.

    Git runs programs that the file ``config`` of a repository names. A definition could write that file first.
    """
    mark = marks_named(name)
    if not mark:
        return False
    marks = marks_in(folder)
    return not is_repository(marks) and is_repository(marks | mark)


def _why_protected_as_store(path: Path, base: Path) -> str:
    stores = (store for store in _stores_of(path) if store not in _stores_of(base))
    store = next(stores, None)
    return "" if store is None else f"it belongs to the store {store.name}"


def _stores_of(path: Path) -> list[Path]:
    """Return the stores whose file a path is, one beside it (``-wal``, ``.cache``), or in a folder of an execution."""
    return [
        folder / name
        for folder in path.parents
        if folder in _stores
        for name in _stores[folder]
        if _belongs_to(name, path.relative_to(folder))
    ]


def _belongs_to(store: str, path: Path) -> bool:
    """Return whether a path, relative to the folder of a store, belongs to the store of that name."""
    first, *below = (name.casefold() for name in path.parts)  # some disks ignore capitals
    own = store.casefold()
    is_beside = first == own or first.startswith((f"{own}-", f"{own}."))
    return is_beside or (first == _WORKSPACES and bool(below) and below[0].startswith(_EXECUTION))

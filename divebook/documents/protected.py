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

VERSION_CONTROL = frozenset({"cvs", "rcs", "sccs", "_darcs", "_fossil_", "_mtn", "_svn", "{arch}"})
"""Folders of version control whose names do not begin with a dot, in the form of `canonical_name`."""
BARE_REPOSITORY = ("HEAD", "objects", "refs")
"""Entries by which git recognizes a folder as a repository, whatever the folder's name is."""
_SHORT_NAME = re.compile(r"[^.]{1,6}~\d+(\..{0,3})?")
"""The second name that Windows gives to a file: ``GIT~1`` is ``.git``."""
_IGNORED_CATEGORIES = frozenset({"Cf", "Cc", "Mn"})
_IGNORED_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
_EXECUTION = "exec_"
_WORKSPACES = "workspaces"
_stores: set[Path] = set()


def protect_store(path: Path) -> None:
    """Protect the file of a store, and the files beside it that belong to it, for the life of this process."""
    _stores.add(path.resolve())


def patterns_of_stores(folder: Path) -> list[str]:
    """Return patterns of what belongs to stores of this process below a folder, relative to the folder."""
    below = [store.relative_to(folder.resolve()) for store in _stores if store.is_relative_to(folder.resolve())]
    names = ((store.parent.as_posix(), glob.escape(store.name)) for store in below)
    return [
        f"/{parent}/{pattern}".replace("/./", "/")
        for parent, name in names
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
        place /= name
        if _is_bare_repository(place):
            return f"{name} is a repository of git"
    store = next((store for store in _stores if _belongs_to(store, path) and not _belongs_to(store, base)), None)
    return "" if store is None else f"it belongs to the store {store.name}"


def _is_bare_repository(folder: Path) -> bool:
    # `Path.exists` raises for a name that is too long, and in a folder that this user may not search.
    return all(os.path.exists(folder / name) for name in BARE_REPOSITORY)  # noqa: PTH110


def _belongs_to(store: Path, path: Path) -> bool:
    """Return whether a path is the store's file, one beside it (``-wal``, ``.cache``), or a folder of an execution."""
    if not path.is_relative_to(store.parent):
        return False
    names = [name.casefold() for name in path.relative_to(store.parent).parts]  # some disks ignore capitals
    own = store.name.casefold()
    if not names:
        return False
    is_beside = names[0] == own or names[0].startswith((f"{own}-", f"{own}."))
    return is_beside or (names[0] == _WORKSPACES and len(names) > 1 and names[1].startswith(_EXECUTION))

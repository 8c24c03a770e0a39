"""Protected paths: hidden names and version-control metadata, which reach a user's folder only if a person names them.

Many programs run what such files say: git runs hooks and the commands in ``.git/config``, direnv ``.envrc``, editors
``.vscode/tasks.json``. A command in a workspace can write all of them, so a person must ask for each by its name. One
rule holds for all of them: a path is protected if any of its names is hidden, or is the metadata of a version control
system under another kind of name (``CVS``, ``_darcs``, a bare git repository).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from divebook.documents.protected import canonical_name, is_repository, marks_in, marks_named, why_protected_name
from divebook.text.shown import plural
from divebook.workspace.snapshots.trees import shown_path

JOURNAL_FOLDER = ".divebook-apply"
"""Folder in which a write into a user's folder keeps its journal. It is never taken over, even by name."""
MOST_NAMED = 20
"""Paths that a report lists."""


def is_protected(path: str) -> bool:
    """Return whether a path has a hidden name, or one of version-control metadata, by its text alone."""
    return any(map(why_protected_name, _names(path)))


def is_reserved(path: str) -> bool:
    """Return whether a path lies in a folder that only divebook itself writes."""
    return any(canonical_name(name).partition(":")[0] == JOURNAL_FOLDER for name in _names(path))


def _names(path: str) -> list[str]:
    # A file name may hold a backslash here, which separates folders where the project is checked out on Windows.
    return [name for name in re.split(r"[/\\]", path) if name]


def protected_paths(paths: Collection[str], folder: str | os.PathLike[str] | None) -> set[str]:
    """Return those of some changed paths that are protected in a folder.

    Besides the names it looks at the folder on disk: a link in it may lead into a hidden folder, and a changed file may
    belong to, or complete, a bare git repository, which has no hidden name.

    Parameters
    ----------
    paths
        Paths below the folder that are to change.
    folder
        The folder; None where it does not exist, so that names alone decide.
    """
    base = None if folder is None else os.path.realpath(folder)
    repositories = _repositories(paths, base)
    around_real: dict[str, str] = {}
    protected = set()
    for path in paths:
        around = path.rpartition("/")[0]
        if around not in around_real:
            around_real[around] = _real_below(base, around)
        if (
            is_protected(path)
            or is_protected(around_real[around])
            or any(is_beneath(path, place) for place in repositories)
        ):
            protected.add(path)
    return protected


def _real_below(base: str | None, around: str) -> str:
    """Return a folder's path below the base with links followed; a link that leads out is refused when it is opened."""
    if base is None or not around:
        return around
    real = os.path.realpath(os.path.join(base, around))
    return os.path.relpath(real, base) if real.startswith(f"{base}/") else around


def _repositories(paths: Iterable[str], base: str | None) -> set[str]:
    """Return the folders that are bare git repositories once the paths are written; '' is the folder itself."""
    by_folder: dict[str, set[str]] = {"": set()}
    for path in paths:
        names = path.split("/")
        for depth, name in enumerate(names):
            found = by_folder.setdefault("/".join(names[:depth]), set())
            found |= marks_named(name)
    repositories = set()
    for place, marks in by_folder.items():
        on_disk = set() if base is None else marks_in(os.path.join(base, place))
        if is_repository(marks | on_disk):
            repositories.add(place)
    return repositories


def is_beneath(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or lies in it; '' is the folder of all."""
    return not folder or path == folder or path.startswith(f"{folder}/")


def left_out_text(paths: Collection[str], how: str) -> str:
    """Return the sentence of a report that names protected paths which were left out; empty if there are none.

    Parameters
    ----------
    how
        How a person names one, with ``{}`` for the name, such as ``apply RUN {}``.
    """
    if not paths:
        return ""
    names = list(dict.fromkeys(map(_protected_part, paths)))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"{plural(len(paths), 'protected file')} left out (hidden names and version-control metadata): "
        f"{', '.join(names[:MOST_NAMED])}{more}. To take one over, name it or its folder: {how.format(names[0])}"
    )


def _protected_part(path: str) -> str:
    """Return a path up to its first protected name, with a slash if that is a folder."""
    names = path.split("/")
    for depth, name in enumerate(names[:-1], 1):
        if why_protected_name(name):
            return shown_path("/".join(names[:depth])) + "/"
    return shown_path(path)

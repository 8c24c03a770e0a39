"""A copy of a store file while others write to it, by SQLite's online backup."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from contextlib import closing
from pathlib import Path

from divebook.errors import CorruptStoreError, StoreError
from divebook.store.sqlite.connections import open_reader, why_read_only
from divebook.store.sqlite.faults import translated
from divebook.store.sqlite.schema import check_version

_ALL_AT_ONCE = -1
_PORTION = 1000  # pages, 4 MB: as much as a writer may be kept waiting for where there is no write-ahead log
_PAUSE_SECONDS = 0.01


def back_up(path: Path, destination: Path) -> Path:
    """Copy a store into a new file and return that; writers are not held up, and no write is copied in part.

    The copy has every event acknowledged before it began, needs no other file beside it, and appears under its name
    only when all of it is on disk. Nothing in it is verified: that is for `divebook check`.

    Parameters
    ----------
    path
        The store; its format may be an older one, and is kept.
    destination
        A new file, or a folder for a file of the same name.

    Raises
    ------
    StoreError
        There is no such store, or the destination exists already, or cannot be written.
    CorruptStoreError
        The file is not a store, or too damaged to be copied.
    """
    if not path.exists():
        raise StoreError(f"there is no store at {path}; nothing to back up")
    target = destination / path.name if destination.is_dir() else destination
    _check_free(target)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            partial = Path(folder, target.name)
            _copy(path, partial)
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
            partial.rename(target)
            _keep_name(target.parent)
    except OSError as error:
        raise StoreError(f"the backup {target} cannot be written: {error}. Choose another place for it") from error
    return target


def _check_free(target: Path) -> None:
    if not target.parent.is_dir():
        raise StoreError(
            f"the folder {target.parent} does not exist; create it, or choose another place for the backup"
        )
    # A journal that lies there would be taken for the new file's own, and played into it.
    for name in (target.name, f"{target.name}-wal", f"{target.name}-journal"):
        if target.with_name(name).exists():
            raise StoreError(f"{target.with_name(name)} exists already; choose another name for the backup")


def _copy(path: Path, partial: Path) -> None:
    with (
        translated(str(path)),
        closing(open_reader(path, read_only=why_read_only(path) is not None)) as source,
        closing(sqlite3.connect(partial)) as target,
    ):
        if not check_version(source, str(path)):
            raise CorruptStoreError(f"{path} is empty, and not a divebook store. Name another file")
        (mode,) = source.execute("PRAGMA journal_mode").fetchone()
        source.backup(target, pages=_ALL_AT_ONCE if mode == "wal" else _PORTION, sleep=_PAUSE_SECONDS)


def _keep_name(folder: Path) -> None:
    """Have a new name in a folder survive a power failure, as the content does already."""
    if hasattr(os, "O_DIRECTORY"):  # Windows has no handles of folders
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

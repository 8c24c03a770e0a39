"""Tools of files in a folder: ``read_file``, ``write_file`` and ``list_directory``; see `editor` for the fourth."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from divebook.tools.folder import Folder
from divebook.tools.reach import READS, WRITES, ToolReach, coming, failed, in_utf8
from divebook.workflow.tools import ToolFunction


def file_reader(reach: ToolReach, *, max_size: int = 102_400) -> ToolFunction:
    """Return the tool that reads a file of at most `max_size` bytes."""
    folder = Folder(reach)

    def read_file(path: str) -> str:
        """Read a text file and return what it holds.

        Parameters
        ----------
        path
            Path of the file, relative to the working folder.
        """
        return folder.text(_file(folder, path), path, max_size)

    return coming(read_file, READS, files=folder.files)


def file_writer(reach: ToolReach, *, allow_list: Sequence[str] = (), deny_list: Sequence[str] = ()) -> ToolFunction:
    """Return the tool that writes files, of those that the lists leave it; `deny_list` comes first."""
    folder = Folder(reach, allow_list, deny_list)

    def write_file(path: str, content: str) -> str:
        """Write a text file whole, replacing what was there; folders are made.

        Parameters
        ----------
        path
            Path of the file, relative to the working folder.
        content
            All that the file is to hold.
        """
        found = folder.find(path)
        if folder.kind(found) not in ("file", "nothing"):
            raise failed(f"{path} is not a file")
        folder.write(found, content, path)
        return f"Successfully wrote {len(content.encode())} bytes to {path}"

    return coming(write_file, WRITES, files=folder.files)


def directory_lister(
    reach: ToolReach,
    *,
    default_path: str = ".",
    max_entries: int = 100,
    root_directory: str = "",
    allow_list: Sequence[str] = (),
    deny_list: Sequence[str] = (),
) -> ToolFunction:
    """Return the tool that lists folders, of those that the lists leave it; `deny_list` comes first."""
    folder = Folder(reach, allow_list, deny_list, root_directory)

    def list_directory(path: str = default_path) -> dict[str, Any]:
        """List what a folder holds.

        Parameters
        ----------
        path
            Path of the folder, relative to the working folder.
        """
        found = folder.find(path)
        if folder.kind(found) != "folder":
            raise failed(f"Directory not found: {path}")
        visible = [found / name for name in folder.names(found, path) if not folder.is_denied(found / name)]
        looked = [(entry, folder.look(entry, path)) for entry in visible[:max_entries]]
        entries = [_entry(folder, entry, seen) for entry, seen in looked if seen is not None]
        listed: dict[str, Any] = {"entries": entries}
        if len(visible) > max_entries:
            listed["note"] = f"limited to {max_entries} entries of {len(visible)}"
        return listed

    return coming(list_directory, READS, files=folder.files)


def _file(folder: Folder, path: str) -> Path:
    found = folder.find(path)
    kind = folder.kind(found)
    if kind == "nothing":
        raise failed(f"File not found: {path}")
    if kind != "file":
        raise failed(f"{path} is not a file")
    return found


def _entry(folder: Folder, path: Path, found: os.stat_result) -> dict[str, Any]:
    return {
        "name": in_utf8(path.name),
        "path": folder.shown(path),
        "size": found.st_size,
        "is_dir": folder.is_folder(path),
        "mode": stat.filemode(found.st_mode),
        "mod_time": _time(found.st_mtime),
        "extension": in_utf8(path.suffix),
    }


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a disk may hold times that no calendar has
        return ""

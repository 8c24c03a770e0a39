"""The folder that tools of files work in: what of it they may reach, and how they read and write there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from divebook.documents.globs import has_wildcards, matches
from divebook.documents.whole_files import FILE, make_folders, replace_whole
from divebook.errors import SetupError
from divebook.tools.reach import ToolReach, failed, in_utf8

MOST_BYTES = 10_000_000
"""Of a file that any tool reads."""
_SHOWN = 100


class Folder:
    """A folder within which a tool finds files, links followed.

    Parameters
    ----------
    allow, deny
        Patterns of absolute paths (``**`` over folders); others are relative to the folder. Without `allow` everything
        is allowed that `deny` does not name; what both name is denied.
    """

    def __init__(self, reach: ToolReach, allow: Sequence[str] = (), deny: Sequence[str] = (), root: str = "") -> None:
        self._policy = reach.policy
        self.root = reach.policy.file(root, reach.folder) if root else reach.folder.resolve()
        self._allow = [self._anchored(pattern) for pattern in allow]
        self._deny = [self._anchored(pattern).casefold() for pattern in deny]

    def _anchored(self, pattern: str) -> str:
        """Return a pattern of whole paths, links in what it begins with followed as in the paths it is held against."""
        if pattern.startswith("**"):
            return f"/{pattern}"
        parts = Path(pattern).parts
        plain = next((at for at, part in enumerate(parts) if has_wildcards(part)), len(parts))
        begin = self.root.joinpath(*parts[:plain]).resolve().as_posix().rstrip("/")
        return "/".join([begin, *parts[plain:]])

    def is_denied(self, path: Path) -> bool:
        """Return whether a file is on the list of those denied; capitals do not count, as on some disks."""
        return any(matches(pattern, path.as_posix().casefold()) for pattern in self._deny)

    def find(self, path: str) -> Path:
        """Return where a file really is; raises what the model is told if it may not be reached."""
        try:
            found = self._policy.file(path, self.root)
        except SetupError as error:
            raise failed(f"Access denied: {error}") from error
        is_allowed = not self._allow or any(matches(pattern, found.as_posix()) for pattern in self._allow)
        if self.is_denied(found) or not is_allowed:
            raise failed(f"Access denied: {path} is not among the files that this tool may reach")
        return found

    def shown(self, path: Path) -> str:
        """Return a path as it is shown: relative to the folder, if it is within."""
        return in_utf8((path.relative_to(self.root) if path.is_relative_to(self.root) else path).as_posix())


def text_of(path: Path, shown: str) -> str:
    """Return what a file holds; raises what the model is told if it is no text."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise failed(f"File {shown} is too large ({size} bytes): at most {MOST_BYTES} bytes can be read")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise failed(f"File {shown} is no UTF-8 text (at byte {error.start}), so it cannot be shown") from error
    except OSError as error:
        raise failed(f"File {shown} cannot be read: {error.strerror}") from error


def write_text(path: Path, text: str, shown: str) -> None:
    """Replace a file in one step, so that a reader never finds half of it; its permissions stay."""
    try:
        make_folders(path.parent, 0o777)
        is_new = not path.exists()
        replace_whole(path, text, FILE if is_new else path.stat().st_mode & 0o7777)
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it holds half of a character"
        raise failed(f"File {shown} cannot be written: {reason}") from error


def kind_of(path: Path) -> str:
    """Return what stands at a path: ``file``, ``folder``, ``nothing``, or ``other`` (a pipe would be waited for)."""
    try:
        if path.is_file():
            return "file"
        if path.is_dir():
            return "folder"
        return "other" if os.path.lexists(path) else "nothing"
    except OSError as error:  # its name is too long, a folder may not be entered
        raise failed(f"{path.name[:_SHOWN]!r} cannot be looked at: {error.strerror}") from error

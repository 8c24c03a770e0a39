"""The folder that tools of files work in: what of it they may reach, and how they read and write there.

A path is looked at twice: as it is named, against what the tool may reach, and when it is opened, by
`divebook.workspace.paths.Root`, so that a link that is made in between leads nowhere else (test_near_calls has the
names, tests/tools/test_races_of_tools.py the links).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from divebook.documents.file_arguments import FileArguments
from divebook.documents.globs import has_wildcards, matches
from divebook.documents.policy import FILES, HIDDEN
from divebook.documents.whole_files import MOST_FOLDERS
from divebook.errors import PathNotAllowedError, SetupError
from divebook.tools.reach import ToolReach, failed, in_utf8
from divebook.workspace.disk import Disk
from divebook.workspace.paths import Root
from divebook.workspace.policy import PathPolicy

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
        self._policy, self._base = reach.policy, reach.folder
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

    @property
    def files(self) -> FileArguments:
        """The argument that names a file of the folder, for approval rules."""
        return FileArguments(("path",), self._base, start=self.root)

    def shown(self, path: Path) -> str:
        """Return a path as it is shown: relative to the folder, if it is within."""
        return in_utf8((path.relative_to(self.root) if path.is_relative_to(self.root) else path).as_posix())

    @contextmanager
    def _reached(self, shown: str, deed: str) -> Iterator[Disk]:
        """Give the files below the folder; raises what the model is told of what goes wrong there."""
        policy: PathPolicy | None = None
        allowed = self._policy.allowed
        try:
            others = [Root("/")] if FILES in allowed else []
            policy = PathPolicy(Root(self.root), others, None if HIDDEN in allowed else self._policy.why_protected)
            yield Disk(policy)
        except PathNotAllowedError as error:
            raise failed(f"Access denied: {error}") from error
        except UnicodeDecodeError as error:
            raise failed(f"File {shown} is no UTF-8 text (at byte {error.start}), so it cannot be shown") from error
        except UnicodeEncodeError as error:
            raise failed(f"File {shown} cannot be {deed}: it holds half of a character") from error
        except OSError as error:
            raise failed(f"{shown[:_SHOWN]!r} cannot be {deed}: {error.strerror}") from error
        finally:
            if policy is not None:
                policy.close()

    def kind(self, path: Path) -> str:
        """Return what is at a path: ``file``, ``folder``, ``nothing``, or ``other`` (a pipe would be waited for)."""
        with self._reached(path.name, "looked at") as disk:
            try:
                found = disk.look(str(path))
            except (FileNotFoundError, NotADirectoryError):
                return "nothing"
            return "file" if found.is_file else "folder" if found.is_dir else "other"

    def text(self, path: Path, shown: str, most: int = MOST_BYTES) -> str:
        """Return what a file holds; raises what the model is told if it is no text, or too long."""
        with self._reached(shown, "read") as disk:
            if (size := disk.look(str(path)).size) > most:
                raise failed(f"File {shown} is too large ({size} bytes): at most {most} bytes can be read")
            return disk.read(str(path), length=most).decode("utf-8-sig")

    def write(self, path: Path, text: str, shown: str) -> None:
        """Replace a file in one step, so that a reader never finds half of it; folders are made, permissions stay."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self._reached(shown, "written") as disk:
            content = text.encode()
            disk.make_folder(str(path.parent), parents=True, most=MOST_FOLDERS)
            disk.write(str(path), content)

    def names(self, path: Path, shown: str) -> list[str]:
        """Return the names in a folder, sorted."""
        with self._reached(shown, "listed") as disk:
            return disk.names(str(path))

    def look(self, path: Path, shown: str) -> os.stat_result | None:
        """Return what is said of a name in a folder, links not followed; None if it is gone."""
        with self._reached(shown, "looked at") as disk, disk.policy.parent(str(path)) as (folder, name):
            try:
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def is_folder(self, path: Path) -> bool:
        """Return whether a folder is at a path, or a link to one inside."""
        with self._reached(path.name, "looked at") as disk:
            return disk.is_folder(str(path))

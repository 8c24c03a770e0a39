"""Files of a workspace on this machine's disk: each operation below the folders that its policy allows, at once.

What acts on a name (delete, move) acts on the name itself, also where that is a link. Files are written in one step:
a reader finds the old content or the new one.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from divebook.documents.globs import has_wildcards, matches
from divebook.errors import FileOperationError, PathNotAllowedError
from divebook.workspace.policy import PathPolicy

_LIST = os.O_RDONLY | os.O_DIRECTORY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE, _FOLDER_MODE = 0o666, 0o777


class FoundFile(NamedTuple):
    """What is at a path."""

    size: int
    mtime: float
    is_file: bool
    is_dir: bool


class Disk:
    """The files that a policy allows to reach; every method raises `PathNotAllowedError` for others, and OSError."""

    def __init__(self, policy: PathPolicy) -> None:
        self.policy = policy

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or some of them."""
        with open(self.policy.open_regular(path), "rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Give the bytes of a file piece by piece."""
        with open(self.policy.open_regular(path), "rb") as file:
            while piece := file.read(size):
                yield piece

    def write(self, path: str, content: bytes) -> None:
        """Replace the content of a file in one step, through a link to where that leads; its mode stays."""
        real = self.policy.real(path)
        mode = self._mode_of(real)
        temporary = f".{secrets.token_hex(8)}.new"
        with self.policy.parent(real) as (folder, name):
            if mode is not None and not os.access(name, os.W_OK, dir_fd=folder, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)  # nor is it replaced
            try:
                with open(os.open(temporary, _NEW, _FILE_MODE, dir_fd=folder), "wb") as file:
                    file.write(content)
                    if mode is not None:
                        os.fchmod(file.fileno(), mode)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def _mode_of(self, path: str) -> int | None:
        """Return the mode of a file that is to be replaced; raises for what is no file."""
        try:
            opened = self.policy.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_PATH", 0))
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(opened).st_mode
        finally:
            os.close(opened)
        if stat.S_ISDIR(found):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(found):
            raise PathNotAllowedError(path, "not a regular file")
        return found & 0o7777

    def append(self, path: str, content: bytes) -> None:
        """Add to the end of a file, which is made if it is not there."""
        with self.policy.parent(self.policy.real(path)):
            pass  # raises for a file that is refused before it is made
        with open(self.policy.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            file.write(content)

    def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        with self.policy.parent(path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def delete_tree(self, path: str) -> None:
        """Remove a folder with all in it, or a file or link."""
        self._require_unprotected(path)
        with self.policy.parent(path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        opened = self.policy.open(path, _LIST)
        try:
            return sorted(self.policy.visible(opened, os.listdir(opened)))
        finally:
            os.close(opened)

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, sorted, and whether each is a folder; a link that leads out is none."""
        base = self.policy.absolute(path).rstrip("/")
        return [(name, self.is_folder(f"{base}/{name}")) for name in self.names(path)]

    def is_folder(self, path: str) -> bool:
        """Return whether a folder is at a path, or a link to one inside."""
        try:
            return self.look(path).is_dir
        except (OSError, PathNotAllowedError):
            return False

    def exists(self, path: str) -> bool:
        """Return whether something is at a path, and not only a link that leads nowhere."""
        try:
            self.look(path)
        except PathNotAllowedError:
            raise
        except OSError:
            return False
        return True

    def look(self, path: str) -> FoundFile:
        """Return what is at a path, links followed."""
        opened = self.policy.open(path, getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK))
        try:
            found = os.fstat(opened)
        finally:
            os.close(opened)
        return FoundFile(found.st_size, found.st_mtime, stat.S_ISREG(found.st_mode), stat.S_ISDIR(found.st_mode))

    def make_folder(self, path: str, *, parents: bool, most: float = math.inf) -> None:
        """Make a folder, with those around it if asked for, `most` in all; one that is there is fine."""
        left = [self.policy.absolute(path).rstrip("/")]
        with suppress(FileNotFoundError):
            if self.look(left[0]).is_dir:
                return
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        while parents and not self.is_folder(around := os.path.dirname(left[-1])):
            left.append(around)
        if len(left) > most:
            raise OSError(errno.ENAMETOOLONG, f"it needs {len(left)} new folders, more than {most}", path)
        for text in reversed(left):
            with self.policy.parent(text) as (folder, name), suppress(FileExistsError):
                os.mkdir(name, _FOLDER_MODE, dir_fd=folder)

    def move(self, source: str, target: str) -> None:
        """Move a file, link or folder: in place of a file, or into a folder."""
        target = self._into(source, target)
        self._require_unprotected(source)
        with (
            self._going("move", source, target),
            self.policy.parent(source) as (old, was),
            self.policy.parent(target) as (new, name),
        ):
            try:
                os.rename(was, name, src_dir_fd=old, dst_dir_fd=new)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
        self.copy(source, target)
        self.delete_tree(source)

    def _require_unprotected(self, source: str) -> None:
        """Raise for a folder that holds what the guard refuses: what is done to the folder is done to that, too."""
        if not self.policy.is_guarded:
            return
        left: list[str] = []
        with suppress(FileNotFoundError), self.policy.parent(source) as (holder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=holder, follow_symlinks=False).st_mode):
                left = [source]
        while left:
            place = left.pop()
            opened = self.policy.open(place, _LIST | os.O_NOFOLLOW)
            try:
                names = os.listdir(opened)
                hidden = set(names) - set(self.policy.visible(opened, names))
                if hidden:
                    raise PathNotAllowedError(source, f"it holds {min(hidden)}, which is refused")
                modes = {name: os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode for name in names}
            finally:
                os.close(opened)
            left += [f"{place}/{name}" for name, mode in modes.items() if stat.S_ISDIR(mode)]

    def copy(self, source: str, target: str) -> None:
        """Copy a file with its mode and times, or a folder with all in it to where nothing is."""
        if not self.look(source).is_dir:
            with self._going("copy", source, target):
                self._copy_file(source, self._into(source, target))
            return
        inside, around = self.policy.real(target), self.policy.real(source)
        if inside == around or inside.startswith(f"{around}/"):
            raise FileOperationError("copy", source, "a folder cannot be copied into itself")
        left = [(self.policy.absolute(source).rstrip("/"), self.policy.absolute(target).rstrip("/"))]
        while left:
            old, new = left.pop()
            with self._going("copy", source, target):
                is_folder = self._copy_entry(old, new)
            if is_folder:
                left += [(f"{old}/{name}", f"{new}/{name}") for name in self.names(old)]

    @contextmanager
    def _going(self, operation: str, source: str, target: str) -> Iterator[None]:
        """Say which of the two is not there."""
        try:
            yield
        except FileNotFoundError:
            with suppress(FileNotFoundError), self.policy.parent(source) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                told = f"the parent directory of {target!r} was not found: make it first"
                raise FileOperationError(operation, source, told) from None
            raise

    def _copy_entry(self, source: str, target: str) -> bool:
        """Copy what is at a path, of a folder the folder alone; return whether it is one."""
        with self.policy.parent(source) as (folder, name):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            leads = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(mode) else None
        if leads is None and not stat.S_ISDIR(mode):
            self._copy_file(source, target)
            return False
        with self.policy.parent(target) as (folder, name):
            if leads is None:
                os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
            else:
                os.symlink(leads, name, dir_fd=folder)
        return leads is None

    def _into(self, source: str, target: str) -> str:
        """Return where a source goes: into a folder that is at the target, or in place of the target."""
        if not self.is_folder(target):
            return target
        name = os.path.basename(self.policy.absolute(source).rstrip("/"))
        return f"{self.policy.absolute(target).rstrip('/')}/{name}"

    def _copy_file(self, source: str, target: str) -> None:
        with open(self.policy.open_regular(source), "rb") as file:
            found = os.fstat(file.fileno())
            self.write(target, file.read())
        opened = self.policy.open_regular(target)
        try:
            os.fchmod(opened, found.st_mode & 0o7777)
            os.utime(opened, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(opened)

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that a pattern means, the newest first; what leads out is none of them.

        Those of a relative pattern are relative.
        """
        if not pattern:
            raise FileOperationError("glob", pattern, "the pattern is empty")
        if "\0" in pattern:
            raise PathNotAllowedError(pattern.replace("\0", "\\0"), "a path cannot hold NUL")
        is_absolute = pattern.startswith("/")
        whole = os.path.normpath(self.policy.absolute(pattern))
        parts = whole.split("/")
        plain = next((at for at, part in enumerate(parts) if has_wildcards(part)), len(parts) - 1)
        start, prefix = "/".join(parts[:plain]) or "/", f"{self.policy.default.name.rstrip('/')}/"
        found = [(mtime, path) for path, mtime in self._below(start) if matches(whole, path)]
        paths = [path for _, path in sorted(found, key=lambda each: (-each[0], each[1]))]
        return paths if is_absolute else [path.removeprefix(prefix) for path in paths]

    def _below(self, folder: str) -> Iterator[tuple[str, float]]:
        """Give all that is below a folder, with its time; links are not gone through."""
        left = [folder]
        while left:
            place = left.pop()
            try:
                opened = self.policy.open(place, _LIST | os.O_NOFOLLOW)
            except (OSError, PathNotAllowedError):
                continue
            try:
                for name in sorted(self.policy.visible(opened, os.listdir(opened))):
                    with suppress(OSError):
                        found = os.stat(name, dir_fd=opened, follow_symlinks=False)
                        path = f"{place.rstrip('/')}/{name}"
                        left += [path] if stat.S_ISDIR(found.st_mode) else []
                        yield path, found.st_mtime
            finally:
                os.close(opened)

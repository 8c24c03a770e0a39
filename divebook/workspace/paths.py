"""The one rule of paths: what is opened below a folder cannot lead out of it, and check and use are one step.

There are two ways with the same answers: the kernel's (`divebook.workspace.openat2`), and a walk over descriptors of
folders that follows links itself. A link may lead anywhere inside, also by an absolute target. Hard links, and what is
mounted inside, are not seen. `tests/workspace/test_paths.py` has the races.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from divebook.errors import PathNotAllowedError
from divebook.workspace.openat2 import PATH_ONLY, has_openat2, open_beneath

MOST_LINKS = 40
"""On the way to one file, as the kernel."""
LONGEST_PATH, LONGEST_NAME = 4095, 255
"""Bytes."""
_PLAIN = os.O_CLOEXEC | os.O_NOCTTY
NOT_A_FILE = "not a regular file"
ABOVE = "leads above the root by .."


def path_of(descriptor: int) -> str:
    """Return the real path of an open file or folder, however it was reached."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(LONGEST_PATH)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


class Root:
    """A folder that nothing opened through it can leave.

    Parameters
    ----------
    path
        The folder; links on the way to it are followed once.
    name
        What the folder is called where its links are made, such as its mount point in a container.
    openat2
        Whether the kernel opens; by default if it can.
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None, openat2: bool | None = None) -> None:
        real = os.path.realpath(path)
        self.path = real
        """Where it is on this machine."""
        self.name = name or real
        """What absolute paths below it begin with."""
        self.fd = os.open(real, PATH_ONLY | os.O_DIRECTORY | _PLAIN)
        self._by_kernel = has_openat2() if openat2 is None else openat2

    def close(self) -> None:
        """Let go of the folder; twice is once."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def is_there(self) -> bool:
        """Return whether its path still leads to the folder that is held: one deleted and made anew is another."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.fd))

    def holds(self, path: str) -> bool:
        """Return whether an absolute path begins with the folder, by its text alone."""
        return path == self.name or path.startswith(f"{self.name.rstrip('/')}/")

    def relative(self, path: str) -> str:
        """Return a path as it is below the folder, by its text alone: links are followed when it is opened.

        Raises
        ------
        PathNotAllowedError
            It is elsewhere, holds NUL, or is too long.
        """
        if "\0" in path:
            raise PathNotAllowedError(path.replace("\0", "\\0"), "a path cannot hold NUL")
        try:
            parts = [os.fsencode(part) for part in path.split("/")]
        except UnicodeEncodeError:
            raise PathNotAllowedError(ascii(path)[1:-1], "no name of a file can be written so") from None
        if sum(map(len, parts)) + len(parts) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in parts):
            raise PathNotAllowedError(path, "name too long")
        if path.startswith("/"):
            if not self.holds(path):
                raise PathNotAllowedError(path, allowed=[self.name])
            path = path[len(self.name) :].lstrip("/")
        return path or "."

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Return a descriptor of what is at a path; a link there is followed unless `flags` hold O_NOFOLLOW.

        Raises
        ------
        PathNotAllowedError
            It leads out.
        OSError
            As `os.open`.
        """
        relative = self.relative(path)
        if self._by_kernel:
            try:
                return open_beneath(self.fd, relative, flags | _PLAIN, mode)
            except OSError as error:
                if error.errno != errno.EXDEV:  # so it is said of an absolute link to inside as well: the walk knows
                    raise
        return _Walk(self, path, flags | _PLAIN, mode).opened(relative)

    def open_regular(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Return a descriptor of a plain file: no device, pipe or socket is opened for longer than it takes to see.

        Raises
        ------
        PathNotAllowedError
            It is something else, or leads out.
        """
        try:
            found = self.open(path, flags | os.O_NONBLOCK, mode)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
                raise PathNotAllowedError(path, NOT_A_FILE) from error
            raise
        kind = os.fstat(found).st_mode
        if stat.S_ISREG(kind):
            return found
        os.close(found)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise PathNotAllowedError(path, NOT_A_FILE)

    def real(self, path: str) -> str:
        """Return a path without links, as `os.path.realpath` does; what is missing stays as it is written.

        It is a text: whoever opens it is held to the rule again.
        """
        todo = _parts(self.relative(path))
        found: list[str] = []
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                if not found:
                    raise PathNotAllowedError(path, ABOVE)
                found.pop()
                continue
            found.append(name)
            target = self._link_at("/".join(found))
            if target is None:
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            found.pop()
            if target.startswith("/"):
                target, found = self.inside(target, path), []
            todo += _parts(target)
        return "/".join([self.name, *found])

    def _link_at(self, path: str) -> str | None:
        """Return where a link leads; None for what is no link."""
        try:
            found = self.open(path, PATH_ONLY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return os.readlink("", dir_fd=found) if stat.S_ISLNK(os.fstat(found).st_mode) else None
        finally:
            os.close(found)

    def inside(self, target: str, path: str) -> str:
        """Return the absolute target of a link on a path as it is below the folder; raises `PathNotAllowedError`."""
        try:
            return self.relative(target)
        except PathNotAllowedError:
            raise PathNotAllowedError(path, f"a link leads out, to {target}") from None

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Give the descriptor of the folder that holds a path, and its last name: for what acts on a name itself."""
        head, _, name = self.relative(path).rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise PathNotAllowedError(path, "names no entry of a folder")
        found = self.open(head or ".", PATH_ONLY | os.O_DIRECTORY)
        try:
            yield found, name
        finally:
            os.close(found)


class _Walk:
    """One opening, folder by folder: each name is opened without following, and links are followed here."""

    def __init__(self, root: Root, path: str, flags: int, mode: int) -> None:
        self._root, self._path, self._flags, self._mode = root, path, flags, mode
        self._folders = [os.dup(root.fd)]
        self._links, self._is_new = 0, False

    def opened(self, relative: str) -> int:
        """Return the descriptor."""
        try:
            return self._open(relative)
        finally:
            for folder in self._folders:
                os.close(folder)

    def _open(self, relative: str) -> int:
        todo, has_slash = _parts(relative), relative.endswith("/")
        while todo:
            name = todo.pop()
            if name == "..":
                self._up()
                continue
            found = self._step(name, is_last=not todo)
            if self._is_new:
                return found
            kind = os.fstat(found).st_mode
            if stat.S_ISDIR(kind):
                self._folders.append(found)
            elif stat.S_ISLNK(kind):
                if not todo and self._flags & os.O_NOFOLLOW:
                    return self._link(found)
                todo += _parts(self._followed(found))
            else:
                os.close(found)
                if todo or has_slash:
                    self._fail(errno.ENOTDIR)
                # By its name again, without following: a link that was put there since is refused.
                return self._at(name, (self._flags | os.O_NOFOLLOW) & ~os.O_CREAT)
        if self._flags & os.O_CREAT and self._flags & os.O_EXCL:
            self._fail(errno.EEXIST)
        return self._at(".", self._flags & ~(os.O_CREAT | os.O_NOFOLLOW))

    def _step(self, name: str, *, is_last: bool) -> int:
        """Return what stands at a name of the present folder, not followed; a file that is to be made is made."""
        makes = is_last and self._flags & os.O_CREAT
        if not (makes and self._flags & os.O_EXCL):
            try:
                return self._at(name, PATH_ONLY | os.O_NOFOLLOW | _PLAIN)
            except FileNotFoundError:
                if not makes:
                    raise
        made = self._at(name, self._flags | os.O_NOFOLLOW | os.O_EXCL)
        self._is_new = True
        return made

    def _link(self, found: int) -> int:
        """Return a link that is not to be followed, if it may be opened as one."""
        if self._flags & PATH_ONLY != PATH_ONLY:
            os.close(found)
            self._fail(errno.ELOOP)
        return found

    def _at(self, name: str, flags: int) -> int:
        return os.open(name, flags, self._mode, dir_fd=self._folders[-1])

    def _up(self) -> None:
        if len(self._folders) == 1:
            raise PathNotAllowedError(self._path, ABOVE)
        os.close(self._folders.pop())

    def _followed(self, link: int) -> str:
        """Return where an open link leads, from the folder that it is in or, if it is absolute, from the root."""
        try:
            target = os.readlink("", dir_fd=link)
        finally:
            os.close(link)
        self._links += 1
        if self._links > MOST_LINKS:
            self._fail(errno.ELOOP)
        if target.startswith("/"):
            target = self._root.inside(target, self._path)
            while len(self._folders) > 1:
                os.close(self._folders.pop())
        return target

    def _fail(self, code: int) -> NoReturn:
        raise OSError(code, os.strerror(code), self._path)


def _parts(path: str) -> list[str]:
    """Return the names in a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]

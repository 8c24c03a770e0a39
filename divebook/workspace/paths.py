"""The one rule of paths: what is opened below a folder cannot lead out of it, and check and use are one step.

There are two ways with the same answers: the kernel's (`divebook.workspace.paths`), and a walk over descriptors of
folders that follows links itself. A link may lead anywhere inside, also by an absolute target. Hard links, and what is
mounted inside, are not seen. `tests/workspace/test_paths.py` has the races.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeVar

from divebook.errors import PathNotAllowedError, WorkspaceNotEnteredError

# The kernel's own way to open below a folder: ``openat2`` (Linux 5.6), by ctypes since Python has none.


_NUMBER = 437
"""Of the system call, the same on every architecture."""
_NO_MAGICLINKS = 0x02
_BENEATH = 0x08
_TRIES = 64
AT_FDCWD = -100
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
"""Opens a name without what is behind it."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _syscall() -> ctypes._NamedFuncPointer:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t]
    return call


def open_beneath(folder: int, path: str, flags: int, mode: int) -> int:
    """Return a descriptor of what is at a path below an open folder, which no link on the way leads out of.

    Raises
    ------
    OSError
        With EXDEV where the path leads out, and also where an absolute link leads to inside.
    """
    if flags & PATH_ONLY == PATH_ONLY:  # openat2 refuses what openat ignores beside O_PATH
        flags &= PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    how = _How(flags, mode if flags & os.O_CREAT else 0, _NO_MAGICLINKS | _BENEATH)
    code = 0
    for _ in range(_TRIES):
        found = _syscall()(_NUMBER, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename has come between two steps of ".."
            break
    raise OSError(code, os.strerror(code), path)


@functools.cache
def has_openat2() -> bool:
    """Whether the kernel has it; the rules of old container engines say EPERM or ENOSYS."""
    try:
        os.close(open_beneath(AT_FDCWD, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0))
    except (OSError, AttributeError):  # no such call, no such library
        return False
    return True


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
                target = self.inside(target, path)
                found = []
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
        self._root = root
        self._path = path
        self._flags = flags
        self._mode = mode
        self._folders = [os.dup(root.fd)]
        self._links = 0
        self._is_new = False

    def opened(self, relative: str) -> int:
        """Return the descriptor."""
        try:
            return self._open(relative)
        finally:
            for folder in self._folders:
                os.close(folder)

    def _open(self, relative: str) -> int:
        todo = _parts(relative)
        has_slash = relative.endswith("/")
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


# Which folders may be reached: one rule for files, scratch, the folders of commands, and tools.


T = TypeVar("T")
Guard: TypeAlias = Callable[[Path, Path], str]


class PathPolicy:
    """Folders that may be reached, and nothing else.

    A path is held against each of them as it is written, then without ``..``, then without links: what is opened is
    always below one of them, whatever changes meanwhile (`divebook.workspace.paths.Root`).

    Parameters
    ----------
    default
        The folder that relative paths are of.
    allowed
        The others.
    guard
        Returns why a file below a folder is refused all the same, from the real paths of both; empty if it is not. It
        is asked about what was opened, so that no link and no spelling gets past it.
    """

    def __init__(self, default: Root, allowed: Sequence[Root] = (), guard: Guard | None = None) -> None:
        self.default = default
        self._roots = [default, *allowed]
        self._is_closed = False
        self._guard = guard

    @property
    def roots(self) -> list[Root]:
        """The folders that may be reached, the default one first."""
        return list(self._roots)

    def add(self, root: Root) -> None:
        """Let one more folder be reached."""
        self._roots.append(root)

    def absolute(self, path: str | os.PathLike[str]) -> str:
        """Return a path as it is from the root of all, by its text."""
        text = os.fspath(path)
        return text if text.startswith("/") else f"{self.default.name.rstrip('/')}/{text}"

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Return a descriptor of what is at a path; see `Root.open`."""
        return self._admitted(path, self._tried(path, lambda root, text: root.open(text, flags, mode)))

    def open_regular(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Return a descriptor of a plain file; see `Root.open_regular`."""
        return self._admitted(path, self._tried(path, lambda root, text: root.open_regular(text, flags, mode)))

    def _admitted(self, path: str, descriptor: int, name: str = "") -> int:
        """Return the descriptor of what was opened, or of the folder with a name, unless the guard refuses it."""
        if self._guard is not None and (reason := self._refusal(f"{path_of(descriptor)}/{name}")):
            os.close(descriptor)
            raise PathNotAllowedError(path, reason)
        return descriptor

    def _refusal(self, real: str) -> str:
        """Return why the guard refuses a real path, judged from the deepest folder that holds it."""
        folders = (root.path for root in self._roots if real.startswith(f"{root.path.rstrip('/')}/"))
        return "" if self._guard is None else self._guard(Path(real), Path(max(folders, key=len, default="/")))

    @property
    def is_guarded(self) -> bool:
        """Whether some files below its folders may be refused."""
        return self._guard is not None

    def visible(self, descriptor: int, names: Iterable[str]) -> list[str]:
        """Return those of the names in an open folder that the guard does not refuse."""
        if self._guard is None:
            return [*names]
        folder = path_of(descriptor)
        return [name for name in names if not self._refusal(f"{folder}/{name}")]

    def real(self, path: str) -> str:
        """Return a path without links."""
        return self._tried(path, lambda root, text: root.real(text))

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Give the descriptor of the folder that holds a path, and its last name."""
        entered = self._tried(path, _entered)
        self._admitted(path, *entered)
        try:
            yield entered
        finally:
            os.close(entered[0])

    def folder(self, path: str | None) -> str:
        """Return the path of a folder in which a command may start."""
        return self.real(self.default.name if path is None else path)

    def _tried(self, path: str, act: Callable[[Root, str], T]) -> T:
        """Return what comes of a path under the first folder that lets it be reached."""
        if self._is_closed:
            raise WorkspaceNotEnteredError(
                f"the workspace of {self.default.name} was left: enter it again, and take its files and shell anew"
            )
        text = self.absolute(path)
        rule = ""
        for written in self._ways(text):
            for root in self._holding(written):
                try:
                    return act(root, written)
                except PathNotAllowedError as error:
                    rule = rule or error.rule
                except (FileNotFoundError, NotADirectoryError):  # what leads out is refused, whatever is missing there
                    if self._holding(os.path.normpath(text)):
                        raise
        raise PathNotAllowedError(os.fspath(path).replace("\0", "\\0"), rule, [root.name for root in self._roots])

    def _ways(self, text: str) -> Iterator[str]:
        yield text
        yield os.path.normpath(text)
        with suppress(ValueError, OSError):  # NUL; links in a circle
            yield os.path.realpath(text)

    def _holding(self, text: str) -> list[Root]:
        """Return the folders that a path is below by its text, the deepest first."""
        return sorted((root for root in self._roots if root.holds(text)), key=lambda root: -len(root.name))

    def close(self) -> None:
        """Let go of all folders; twice is once."""
        self._is_closed = True
        for root in self._roots:
            root.close()


def _entered(root: Root, text: str) -> tuple[int, str]:
    with root.parent(text) as (folder, name):
        return os.dup(folder), name

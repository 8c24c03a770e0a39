"""Path resolution that other processes cannot race: checking a path and opening it are one step, so that no opened path
leads out of its folder.

A check of a path's text ("does it start with the folder?") is not enough. A command can replace a folder by a link
between the check and the use::

    check   /work/a/file            is below /work
            a command replaces /work/a by a link to /etc
    use     open("/work/a/file")    opens /etc/file

Therefore nothing is opened by its whole path. There are two ways to open, with the same results:

- The kernel resolves the whole path and refuses to leave the folder: ``openat2`` with ``RESOLVE_BENEATH`` (Linux 5.6).
- Where the kernel lacks it, `_Walk` opens one folder after the other, each relative to the descriptor of the one before
and without following links. It reads a link and continues with its target itself. A folder that is replaced meanwhile
is of no effect: its descriptor still refers to the old one.

A link may lead anywhere inside the folder, also by an absolute target. Hard links, and file systems mounted inside, are
not detected. `tests/workspace/test_paths.py` has the races.
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
from ctypes import Structure as CStructure
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeVar

from divebook.errors import PathNotAllowedError, SetupError, WorkspaceNotEnteredError

_OPENAT2 = 437
"""Number of the system call ``openat2``, the same on every architecture. Python has no function for it."""
# Flags of `open_how.resolve`: refuse links such as ``/proc/self/fd/3``, and all paths that leave the folder.
_NO_MAGICLINKS = 0x02
_BENEATH = 0x08
_TRIES = 64
"""Attempts of ``openat2`` while other processes rename folders on the path."""
AT_FDCWD = -100
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
"""Flag of `os.open` for a descriptor that only stands for a path: its file cannot be read or written."""
# Windows has none of these. The modules can be imported there; `Root` raises an error when a folder is opened.
CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
NOCTTY: int = getattr(os, "O_NOCTTY", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)


class _OpenHow(CStructure):
    """The C structure ``open_how``, an argument of the Linux system call ``openat2``."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _syscall() -> ctypes._NamedFuncPointer:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t]
    return call


def open_beneath(folder: int, path: str, flags: int, mode: int) -> int:
    """Open a path below the open folder `folder` with the Linux system call ``openat2``, which refuses paths that lead
    out of the folder. Return the descriptor.

    Raises
    ------
    OSError
        With EXDEV if the path leads out of the folder, or passes an absolute link, even to a place inside.
    """
    if flags & PATH_ONLY == PATH_ONLY:  # openat2 refuses what openat ignores beside O_PATH
        flags &= PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    # The system call fails with EINVAL if a mode is given without O_CREAT.
    open_how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, _NO_MAGICLINKS | _BENEATH)
    code = 0
    for _ in range(_TRIES):
        descriptor = _syscall()(_OPENAT2, folder, os.fsencode(path), ctypes.byref(open_how), ctypes.sizeof(open_how))
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a folder was renamed while ".." was resolved
            break
    raise OSError(code, os.strerror(code), path)


@functools.cache
def has_openat2() -> bool:
    """Return True if the system call ``openat2`` works here. Old kernels lack it, and the filters of old container
    engines refuse it.
    """
    try:
        os.close(open_beneath(AT_FDCWD, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0))
    except (OSError, AttributeError):  # no such call, no such library
        return False
    return True


MOST_LINKS = 40
"""Maximum number of links that are followed to open one file, as in the kernel."""
LONGEST_PATH = 4095
"""Maximum length of a path in bytes."""
LONGEST_NAME = 255
"""Maximum length of a file name in bytes."""
# Flags of every open: commands do not inherit the descriptor, and a terminal does not become that of this process.
_PLAIN = CLOEXEC | NOCTTY
NOT_A_FILE = "not a regular file"
ABOVE = "'..' leads out of the folder"


def path_of(descriptor: int) -> str:
    """Return the real path of an open file or folder, by its descriptor."""
    # macOS has no /proc.
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(LONGEST_PATH)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


class Root:
    """A folder, opened once, for opening files below it. No path that is opened through this object leads out of the
    folder.

    Parameters
    ----------
    path
        The folder. Links on its path are followed once, now.
    name
        Path of the folder for the programs that create links in it, such as its mount point in a container.
    openat2
        True if the system call `openat2` of the Linux kernel resolves paths; by default if the kernel supports it.
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str | None = None, openat2: bool | None = None) -> None:
        if not DIRECTORY:
            raise SetupError(
                "workspaces need Linux or macOS, because Windows cannot open a path relative to an open folder"
            )
        real = os.path.realpath(path)
        self.path = real
        """Real path of the folder on this machine."""
        self.name = name or real
        """The folder's path in absolute paths that callers pass, such as its mount point in a container."""
        self.fd = os.open(real, PATH_ONLY | os.O_DIRECTORY | _PLAIN)
        self._by_kernel = has_openat2() if openat2 is None else openat2

    def close(self) -> None:
        """Close the descriptor of the folder. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def is_there(self) -> bool:
        """Return True if the path of the folder still leads to the folder that was opened. Return False if the folder
        was deleted or replaced.

        A folder that was deleted and created again is a different folder.
        """
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return os.path.samestat(status, os.fstat(self.fd))

    def holds(self, path: str) -> bool:
        """Return True if an absolute path is the path of the folder or begins with it, compared as text. Links are not
        followed.
        """
        return path == self.name or path.startswith(f"{self.name.rstrip('/')}/")

    def relative(self, path: str) -> str:
        """Convert a path to one that is relative to the folder, so that it can be opened below the folder. Links are
        not followed yet.

        Raises
        ------
        PathNotAllowedError
            The path is outside the folder, contains NUL, or is too long.
        """
        if "\0" in path:
            raise PathNotAllowedError(path.replace("\0", "\\0"), "a path cannot contain NUL characters")
        try:
            parts = [os.fsencode(part) for part in path.split("/")]
        except UnicodeEncodeError:
            raise PathNotAllowedError(ascii(path)[1:-1], "it contains characters that file names cannot have") from None
        # Checked here, so that both ways to open refuse such names with the same error.
        if sum(map(len, parts)) + len(parts) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in parts):
            raise PathNotAllowedError(path, "name too long")
        # Only text is compared here. ``/work/../etc`` passes, and is refused when it is opened, because of its "..".
        if path.startswith("/"):
            if not self.holds(path):
                raise PathNotAllowedError(path, allowed=[self.name])
            path = path[len(self.name) :].lstrip("/")
        return path or "."

    def open_file(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Open a path below the folder and return the descriptor. Raise an error if the path leads out of the folder.

        A link at the end of the path is followed, unless `flags` contain O_NOFOLLOW.

        Raises
        ------
        PathNotAllowedError
            The path leads out of the folder.
        OSError
            As for `os.open`.
        """
        relative = self.relative(path)
        if self._by_kernel:
            try:
                return open_beneath(self.fd, relative, flags | _PLAIN, mode)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # EXDEV means that the path leads out, or passes an absolute link to a place inside. The walk tells
                # the two apart.
        return _Walk(self, path, flags | _PLAIN, mode).resolve(relative)

    def open_regular(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Open a regular file below the folder and return the descriptor. Raise an error for any other kind of file, or
        if the path leads out of the folder.

        Devices, pipes and sockets are opened without blocking and closed again.

        Raises
        ------
        PathNotAllowedError
            The path is not a regular file, or leads out of the folder.
        """
        try:
            # The kind is only certain after the open. O_NONBLOCK keeps the open of a pipe from waiting for its other
            # end.
            descriptor = self.open_file(path, flags | os.O_NONBLOCK, mode)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket, or a pipe without a reader
                raise PathNotAllowedError(path, NOT_A_FILE) from error
            raise
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISREG(kind):
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise PathNotAllowedError(path, NOT_A_FILE)

    def real(self, path: str) -> str:
        """Return the real path for a path below the folder: all links are resolved, like by `os.path.realpath`. Parts
        that do not exist are appended unchanged.

        The result is only a string: the path is checked again when it is opened.
        """
        # The names of the path are a stack. Each name is appended to the result. If the result then is a link, the name
        # is removed again and the names of the link's target are put on the stack. `_Walk` has an example.
        rest = _parts(self.relative(path))
        parts: list[str] = []
        links = 0
        while rest:
            name = rest.pop()
            if name == "..":
                if not parts:
                    raise PathNotAllowedError(path, ABOVE)
                parts.pop()
                continue
            parts.append(name)
            target = self._link_at("/".join(parts))
            if target is None:
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            parts.pop()
            # An absolute target starts again at the root folder.
            if target.startswith("/"):
                target = self.inside(target, path)
                parts = []
            rest += _parts(target)
        return "/".join([self.name, *parts])

    def _link_at(self, path: str) -> str | None:
        """Return the target of the link at a path. Return None if the path does not exist or is not a link."""
        try:
            descriptor = self.open_file(path, PATH_ONLY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            # The empty path stands for the open link itself.
            return os.readlink("", dir_fd=descriptor) if stat.S_ISLNK(os.fstat(descriptor).st_mode) else None
        finally:
            os.close(descriptor)

    def inside(self, target: str, path: str) -> str:
        """Return the target of an absolute link as a path relative to the folder, so that it can be opened below the
        folder.

        Raises `PathNotAllowedError` if the target is outside the folder. The error names `path`.
        """
        try:
            return self.relative(target)
        except PathNotAllowedError:
            raise PathNotAllowedError(path, f"a symbolic link leads out of the folder, to {target}") from None

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder that contains a path. Yield the folder's descriptor and the last name of the path.

        Use this for operations on the name itself, such as rename and delete. They then act on this folder even if it
        is moved in the meantime.
        """
        head, _, name = self.relative(path).rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise PathNotAllowedError(path, "a path must end with the name of a file or folder")
        descriptor = self.open_file(head or ".", PATH_ONLY | os.O_DIRECTORY)
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)


class _Walk:
    """Algorithm in Python that opens one path, folder by folder, without ever leaving the root folder. Used for kernels
    without ``openat2``.

    Each name is opened without following links, relative to the last open folder. Example: ``a/link/b`` where ``link``
    leads to ``../c``. The rest of the path is a stack of names::

        folders on the way    rest of the path    step
        root                  a link b            a is a folder: open it
        root, a               link b              link is a link: read its target, put its names on the stack
        root, a               .. c b              ..: close a. At the root, ".." is refused
        root                  c b                 c is a folder: open it
        root, c               b                   b is the last name: open it with the flags of the caller

    All decisions use open descriptors, so that renames by other processes cannot lead out of the root.
    """

    def __init__(self, root: Root, path: str, flags: int, mode: int) -> None:
        self._root = root
        self._path = path
        self._flags = flags
        self._mode = mode
        # A copy of the root's descriptor, since `resolve` closes all of these.
        self._folders = [os.dup(root.fd)]
        self._links = 0
        # True once the walk has created the file itself.
        self._is_new = False

    def resolve(self, relative: str) -> int:
        """Open a relative path and return its descriptor. The parent folders that were opened for this are closed."""
        try:
            return self._open(relative)
        finally:
            for folder in self._folders:
                os.close(folder)

    def _open(self, relative: str) -> int:
        """Open a relative path, one name after the other, and return its descriptor. The parent folders stay open, for
        `resolve` to close them.
        """
        rest = _parts(relative)
        has_slash = relative.endswith("/")
        while rest:
            name = rest.pop()
            if name == "..":
                self._up()
                continue
            # The entry is open without following a link, so its kind cannot change any more.
            entry = self._step(name, is_last=not rest)
            if self._is_new:
                return entry
            kind = os.fstat(entry).st_mode
            if stat.S_ISDIR(kind):
                self._folders.append(entry)
            elif stat.S_ISLNK(kind):
                if not rest and self._flags & os.O_NOFOLLOW:
                    return self._link(entry)
                rest += _parts(self._target_of(entry))
            else:
                os.close(entry)
                if rest or has_slash:
                    self._fail(errno.ENOTDIR)
                # By its name again, without following: a link that was put there since is refused.
                return self._at(name, (self._flags | os.O_NOFOLLOW) & ~os.O_CREAT)
        # All names were folders, and the last one is open with PATH_ONLY. It is opened again with the flags of the
        # caller.
        if self._flags & os.O_CREAT and self._flags & os.O_EXCL:
            self._fail(errno.EEXIST)
        return self._at(".", self._flags & ~(os.O_CREAT | os.O_NOFOLLOW))

    def _step(self, name: str, *, is_last: bool) -> int:
        """Open the entry with this name in the current folder without following a link. If it is missing and the
        caller's flags say so, create a file.

        A creation uses O_EXCL, so that a link that another process puts there is never followed.
        """
        creates = is_last and self._flags & os.O_CREAT
        # With O_EXCL an existing entry is an error, which the creation below raises itself.
        if not (creates and self._flags & os.O_EXCL):
            try:
                return self._at(name, PATH_ONLY | os.O_NOFOLLOW | _PLAIN)
            except FileNotFoundError:
                if not creates:
                    raise
        descriptor = self._at(name, self._flags | os.O_NOFOLLOW | os.O_EXCL)
        self._is_new = True
        return descriptor

    def _link(self, link: int) -> int:
        """Return the descriptor of a link at the end of the path, if the caller's flags ask for the link itself.
        Otherwise close it and raise OSError with ELOOP.
        """
        if self._flags & PATH_ONLY != PATH_ONLY:
            os.close(link)
            self._fail(errno.ELOOP)
        return link

    def _at(self, name: str, flags: int) -> int:
        return os.open(name, flags, self._mode, dir_fd=self._folders[-1])

    def _up(self) -> None:
        if len(self._folders) == 1:
            raise PathNotAllowedError(self._path, ABOVE)
        os.close(self._folders.pop())

    def _target_of(self, link: int) -> str:
        """Return the target of an open link, and close the link. If the target is absolute, close all open folders
        except the root folder, because the target is opened from there.
        """
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
    """Return the names in a path in reverse order, so that the first name is popped first. Empty names and ``.`` are
    left out.
    """
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


# --- several folders: one rule for files, scratch files, working folders of commands, and tools ---


T = TypeVar("T")
Guard: TypeAlias = Callable[[Path, Path], str]
"""Callback that returns why access is refused, or an empty string. Arguments: real paths of file and folder."""


class PathPolicy:
    """Access rule for the files of a workspace. Only files below the allowed folders can be opened; all other paths are
    refused.

    A path is compared with each folder in three forms: as it is written, without ``..``, and without links. The first
    form that can be opened is used. The opened file is always below one of the folders, even if the path is changed in
    the meantime (`Root`).

    Parameters
    ----------
    default
        Folder of relative paths.
    allowed
        The other folders.
    guard
        Function that returns the reason why a file below a folder is refused, or an empty string if it is allowed. It
        receives the real paths of the opened file and of the folder, so that neither links nor other spellings of a
        path bypass it.
    """

    def __init__(self, default: Root, allowed: Sequence[Root] = (), guard: Guard | None = None) -> None:
        self.default = default
        self._roots = [default, *allowed]
        self._is_closed = False
        self._guard = guard

    @property
    def roots(self) -> list[Root]:
        """The allowed folders, the default folder first."""
        return list(self._roots)

    def add(self, root: Root) -> None:
        """Allow the files below another folder, too."""
        self._roots.append(root)

    def absolute(self, path: str | os.PathLike[str]) -> str:
        """Return the absolute form of a path. A relative path is taken as below the default folder. Links are not
        followed.
        """
        text = os.fspath(path)
        return text if text.startswith("/") else f"{self.default.name.rstrip('/')}/{text}"

    def open_file(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Open a path below one of the allowed folders and return the descriptor. See `Root.open_file`."""
        return self._require_allowed(
            path, self._first_allowed(path, lambda root, text: root.open_file(text, flags, mode))
        )

    def open_regular(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Open a regular file below one of the allowed folders and return the descriptor. See `Root.open_regular`."""
        return self._require_allowed(
            path, self._first_allowed(path, lambda root, text: root.open_regular(text, flags, mode))
        )

    def _require_allowed(self, path: str, descriptor: int, name: str = "") -> int:
        """Ask the guard callback whether an opened file may be used; with `name`, whether the entry of that name in the
        opened folder may. Return the file descriptor. If the guard refuses, close the descriptor and raise
        `PathNotAllowedError`.
        """
        if self._guard is None:
            return descriptor
        reason = self._refusal(f"{path_of(descriptor)}/{name}")
        if reason:
            os.close(descriptor)
            raise PathNotAllowedError(path, reason)
        return descriptor

    def _refusal(self, real: str) -> str:
        """Return the reason why the guard callback refuses a real path. Return an empty string if it allows the path,
        or if the policy has no guard callback.

        The guard gets the innermost allowed folder that contains the path.
        """
        folders = (root.path for root in self._roots if real.startswith(f"{root.path.rstrip('/')}/"))
        return "" if self._guard is None else self._guard(Path(real), Path(max(folders, key=len, default="/")))

    @property
    def is_guarded(self) -> bool:
        """True if the policy has a guard callback, which can refuse files below the allowed folders."""
        return self._guard is not None

    def visible(self, descriptor: int, names: Iterable[str]) -> list[str]:
        """Return those of the names in an open folder that the guard callback does not refuse."""
        if self._guard is None:
            return [*names]
        folder = path_of(descriptor)
        return [name for name in names if not self._refusal(f"{folder}/{name}")]

    def real(self, path: str) -> str:
        """Return a path with all links resolved. Raise `PathNotAllowedError` if the path is outside the allowed
        folders.
        """
        return self._first_allowed(path, lambda root, text: root.real(text))

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder that contains a path, in one of the allowed folders. Yield its descriptor and the last name
        of the path. See `Root.parent`.
        """
        parent_and_name = self._first_allowed(path, _open_parent)
        self._require_allowed(path, *parent_and_name)
        try:
            yield parent_and_name
        finally:
            os.close(parent_and_name[0])

    def folder(self, path: str | None) -> str:
        """Return the real path of the folder `path`, in which a command will start. If `path` is None, return that of
        the default folder.
        """
        return self.real(self.default.name if path is None else path)

    def _first_allowed(self, path: str, act: Callable[[Root, str], T]) -> T:
        """Call `act` with each allowed folder that contains the path, for each form of the path (see `_forms`). Return
        the result of the first call that is not refused. Raise `PathNotAllowedError` if all are refused.
        """
        if self._is_closed:
            raise WorkspaceNotEnteredError(
                f"the workspace of {self.default.name} was left: enter it again, and get its files and shell from it "
                "again"
            )
        text = self.absolute(path)
        rule = ""
        for form in self._forms(text):
            for root in self._roots_containing(form):
                try:
                    return act(root, form)
                except PathNotAllowedError as error:
                    # The first refusal is reported: it is about the path as the caller wrote it.
                    rule = rule or error.rule
                except (FileNotFoundError, NotADirectoryError):
                    # "Not found" is reported only for a path inside: the error must not reveal what exists outside.
                    if self._roots_containing(os.path.normpath(text)):
                        raise
        raise PathNotAllowedError(os.fspath(path).replace("\0", "\\0"), rule, [root.name for root in self._roots])

    def _forms(self, text: str) -> Iterator[str]:
        """Yield up to three spellings of an absolute path: as written, with ``..`` removed without looking at the disk,
        and with links resolved.
        """
        # "/x/../work/a" lies in "/work" only without its "..", and "/link/a" only with its link resolved.
        yield text
        yield os.path.normpath(text)
        with suppress(ValueError, OSError):  # NUL; links in a circle
            yield os.path.realpath(text)

    def _roots_containing(self, text: str) -> list[Root]:
        """Return the allowed folders that contain a path, compared as text. A folder inside another allowed folder
        comes before it.
        """
        return sorted((root for root in self._roots if root.holds(text)), key=lambda root: -len(root.name))

    def close(self) -> None:
        """Close the open descriptors of all allowed folders. A second call has no effect."""
        self._is_closed = True
        for root in self._roots:
            root.close()


def _open_parent(root: Root, text: str) -> tuple[int, str]:
    # A copy of the descriptor, since `Root.parent` closes its own at the end of the block.
    with root.parent(text) as (folder, name):
        return os.dup(folder), name

"""Asynchronous operations on the files of a workspace, whose errors name operation and path; ignore rules of git."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import re
import secrets
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from divebook.documents.repository import has_wildcards, matches
from divebook.errors import FileOperationError, PathNotAllowedError
from divebook.text.patterns import (
    OPTIONAL_PAIR,
    Item,
    Repeated,
    WildcardMatcher,
    character_test,
    is_any_character,
    is_not_slash,
)
from divebook.workspaces.paths import CLOEXEC, DIRECTORY, NOFOLLOW, PathPolicy, Root

_LIST = os.O_RDONLY | DIRECTORY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
_FILE_MODE = 0o666
_FOLDER_MODE = 0o777


class FileStatus(NamedTuple):
    """Size, modification time and type (file or folder) of a path."""

    size: int
    mtime: float
    is_file: bool
    is_dir: bool


class Disk:
    """Blocking operations on files of this machine. Each path must be allowed by a `PathPolicy`.

    All operations raise `PathNotAllowedError` for other paths, and OSError.

    Operations on a name (delete, move) act on a link itself, not on its target. Files are written in one step: a reader
    sees the old content or the new one.
    """

    def __init__(self, policy: PathPolicy) -> None:
        self.policy = policy

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file in bytes; with `offset` and `length`, only that part of it."""
        with open(self.policy.open_regular(path), "rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the content of a file in pieces of at most `size` bytes."""
        with open(self.policy.open_regular(path), "rb") as file:
            while piece := file.read(size):
                yield piece

    def write(self, path: str, content: bytes) -> None:
        """Replace the content of a file in one step, so that no reader sees half of it. The file keeps its mode. If the
        path is a link, the file that it leads to is replaced.
        """
        # A rename would replace a link itself, so the link is followed first.
        real = self.policy.real(path)
        mode = self._mode_of(real)
        temporary = f".{secrets.token_hex(8)}.new"
        with self.policy.parent(real) as (folder, name):
            if mode is not None and not os.access(name, os.W_OK, dir_fd=folder, effective_ids=True):
                # A rename would replace a file that may not be written.
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
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
        """Return the permission bits of a regular file. Return None if the path does not exist; raise an error if it is
        a folder, device or other special file.
        """
        try:
            # O_PATH needs no permission to read. Where it is missing, O_NONBLOCK keeps the open of a pipe from waiting.
            descriptor = self.policy.open_file(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_PATH", 0))
        except FileNotFoundError:
            return None
        try:
            mode = os.fstat(descriptor).st_mode
        finally:
            os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise PathNotAllowedError(path, "not a regular file")
        return mode & 0o7777

    def append(self, path: str, content: bytes) -> None:
        """Append bytes to a file, which is created if it is missing."""
        with self.policy.parent(self.policy.real(path)):
            pass  # raises for a path that is refused, before the file is created
        with open(self.policy.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            file.write(content)

    def delete(self, path: str) -> None:
        """Delete a file, a link or an empty folder."""
        with self.policy.parent(path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def delete_tree(self, path: str) -> None:
        """Delete a file, a link, or a folder with all its content."""
        self._require_unprotected(path)
        with self.policy.parent(path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def names(self, path: str) -> list[str]:
        """Return the names of the entries of a folder, sorted."""
        descriptor = self.policy.open_file(path, _LIST)
        try:
            return sorted(self.policy.visible(descriptor, os.listdir(descriptor)))
        finally:
            os.close(descriptor)

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """Return a pair for each entry of a folder, sorted by name: the name, and True if the entry is a folder.

        A link that leads out does not count as a folder.
        """
        base = self.policy.absolute(path).rstrip("/")
        return [(name, self.is_folder(f"{base}/{name}")) for name in self.names(path)]

    def is_folder(self, path: str) -> bool:
        """Return True if a path is a folder, or a link to a folder. Return False for any other path, and for a path
        that the policy refuses.
        """
        try:
            return self.status(path).is_dir
        except (OSError, PathNotAllowedError):
            return False

    def exists(self, path: str) -> bool:
        """Return True if a path exists. A link with a missing target does not count as existing."""
        try:
            self.status(path)
        # A subclass of OSError: a refused path must not look like a missing one.
        except PathNotAllowedError:
            raise
        except OSError:
            return False
        return True

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind of a path. Links are followed."""
        descriptor = self.policy.open_file(path, getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK))
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return FileStatus(status.st_size, status.st_mtime, stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode))

    def make_folder(self, path: str, *, parents: bool, most: float = math.inf) -> None:
        """Create a folder; raise an error if its parent is missing. With `parents`, also create missing parent folders;
        raise an error if more than `most` folders would be created.

        Nothing happens if the folder exists.
        """
        # All missing folders are counted before the first is created: a refused request creates none.
        missing = [self.policy.absolute(path).rstrip("/")]
        with suppress(FileNotFoundError):
            if self.status(missing[0]).is_dir:
                return
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        parent = os.path.dirname(missing[0])
        while parents and not self.is_folder(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        if len(missing) > most:
            raise OSError(errno.ENAMETOOLONG, f"it needs {len(missing)} new folders, more than {most}", path)
        for text in reversed(missing):
            # Another process may create the same folder meanwhile.
            with self.policy.parent(text) as (folder, name), suppress(FileExistsError):
                os.mkdir(name, _FOLDER_MODE, dir_fd=folder)

    def move(self, source: str, target: str) -> None:
        """Move a file, link or folder. If `target` is a folder, the source is moved into it. If `target` is a file, it
        is replaced.

        Between two file systems the source is copied and then deleted.
        """
        target = self._into(source, target)
        self._require_unprotected(source)
        with (
            self._named_failures("move", source, target),
            self.policy.parent(source) as (old, old_name),
            self.policy.parent(target) as (new, name),
        ):
            try:
                os.rename(old_name, name, src_dir_fd=old, dst_dir_fd=new)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
        # The two paths are on different file systems, between which nothing can be renamed.
        self.copy(source, target)
        self.delete_tree(source)

    def _require_unprotected(self, source: str) -> None:
        """Raise an error if a folder that is to be moved contains files that the policy's guard callback refuses.

        The operation on the folder would affect these files, too.
        """
        if not self.policy.is_guarded:
            return
        queue: list[str] = []
        with suppress(FileNotFoundError), self.policy.parent(source) as (holder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=holder, follow_symlinks=False).st_mode):
                queue = [source]
        while queue:
            folder = queue.pop()
            descriptor = self.policy.open_file(folder, _LIST | os.O_NOFOLLOW)
            try:
                names = os.listdir(descriptor)
                hidden = set(names) - set(self.policy.visible(descriptor, names))
                if hidden:
                    raise PathNotAllowedError(source, f"it contains {min(hidden)}, which is not allowed")
                modes = {name: os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode for name in names}
            finally:
                os.close(descriptor)
            queue += [f"{folder}/{name}" for name, mode in modes.items() if stat.S_ISDIR(mode)]

    def copy(self, source: str, target: str) -> None:
        """Copy a file with its mode and times, or copy a folder with all its content. The target of a folder must not
        exist.
        """
        if not self.status(source).is_dir:
            with self._named_failures("copy", source, target):
                self._copy_file(source, self._into(source, target))
            return
        # Otherwise the copy would find its own result in the source, and never end.
        inside = self.policy.real(target)
        around = self.policy.real(source)
        if inside == around or inside.startswith(f"{around}/"):
            raise FileOperationError("copy", source, "a folder cannot be copied into itself")
        # (source, target) of each entry still to be copied. A folder is created before its content is added.
        queue = [(self.policy.absolute(source).rstrip("/"), self.policy.absolute(target).rstrip("/"))]
        while queue:
            old, new = queue.pop()
            with self._named_failures("copy", source, target):
                is_folder = self._copy_entry(old, new)
            if is_folder:
                queue += [(f"{old}/{name}", f"{new}/{name}") for name in self.names(old)]

    @contextmanager
    def _named_failures(self, operation: str, source: str, target: str) -> Iterator[None]:
        """Convert a "not found" error of a move or copy inside the ``with`` block. If the source exists, the new error
        says that the parent folder of the target is missing.
        """
        try:
            yield
        except FileNotFoundError:
            # If the source exists, only the folder around the target can be missing.
            with suppress(FileNotFoundError), self.policy.parent(source) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                reason = f"the parent directory of {target!r} was not found: make it first"
                raise FileOperationError(operation, source, reason) from None
            raise

    def _copy_entry(self, source: str, target: str) -> bool:
        """Copy one file, link or folder; of a folder, only the folder without its content. Return True if it is a
        folder, so that the caller copies the content.
        """
        with self.policy.parent(source) as (folder, name):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            link_target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(mode) else None
        if link_target is None and not stat.S_ISDIR(mode):
            self._copy_file(source, target)
            return False
        with self.policy.parent(target) as (folder, name):
            if link_target is None:
                os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
            else:
                os.symlink(link_target, name, dir_fd=folder)
        return link_target is None

    def _into(self, source: str, target: str) -> str:
        """Return the new path of a moved or copied file. If `target` is an existing folder, it is a path in that folder
        with the name of the source; otherwise it is `target`.
        """
        if not self.is_folder(target):
            return target
        name = os.path.basename(self.policy.absolute(source).rstrip("/"))
        return f"{self.policy.absolute(target).rstrip('/')}/{name}"

    def _copy_file(self, source: str, target: str) -> None:
        with open(self.policy.open_regular(source), "rb") as file:
            status = os.fstat(file.fileno())
            self.write(target, file.read())
        descriptor = self.policy.open_regular(target)
        try:
            os.fchmod(descriptor, status.st_mode & 0o7777)
            os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(descriptor)

    def glob(self, pattern: str) -> list[str]:
        """Return the allowed paths that match a glob pattern, newest first. A link is returned like a file, but the
        folder that it leads to is not searched.

        The paths are relative if the pattern is relative.
        """
        if not pattern:
            raise FileOperationError("glob", pattern, "the pattern is empty")
        if "\0" in pattern:
            raise PathNotAllowedError(pattern.replace("\0", "\\0"), "a path cannot contain NUL characters")
        is_absolute = pattern.startswith("/")
        whole = os.path.normpath(self.policy.absolute(pattern))
        parts = whole.split("/")
        # The search starts at the last folder before the first wildcard: ``/work/src/*.py`` -> ``/work/src``. Without a
        # wildcard it starts at the folder of the path.
        plain = next((at for at, part in enumerate(parts) if has_wildcards(part)), len(parts) - 1)
        start = "/".join(parts[:plain]) or "/"
        prefix = f"{self.policy.default.name.rstrip('/')}/"
        matching = [(mtime, path) for path, mtime in self._below(start) if matches(whole, path)]
        paths = [path for _, path in sorted(matching, key=lambda each: (-each[0], each[1]))]
        return paths if is_absolute else [path.removeprefix(prefix) for path in paths]

    def _below(self, folder: str) -> Iterator[tuple[str, float]]:
        """Yield the paths of everything below a folder, each with its modification time. Links are not followed.
        Folders that cannot be read are skipped.
        """
        queue = [folder]
        while queue:
            parent = queue.pop()
            try:
                descriptor = self.policy.open_file(parent, _LIST | os.O_NOFOLLOW)
            except (OSError, PathNotAllowedError):
                continue
            try:
                for name in sorted(self.policy.visible(descriptor, os.listdir(descriptor))):
                    # The entry may be removed after the listing.
                    with suppress(OSError):
                        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                        path = f"{parent.rstrip('/')}/{name}"
                        queue += [path] if stat.S_ISDIR(status.st_mode) else []
                        yield path, status.st_mtime
            finally:
                os.close(descriptor)


T = TypeVar("T")
CHUNK = 65_536
MOST_CHARACTERS = 60_000
_WHOLE_LINES = 0.8
"""Share of the maximum length. If the last line break lies beyond this share, a long text is cut there."""
_AROUND = "parent directory"
NO_SCRATCH = "no tmp directory is configured for this workspace"


class FileOperator(ABC):
    """Base class for the access to the files of a workspace. All operations are asynchronous. A subclass implements the
    operations on bytes, which the operations on text use.

    Relative paths are below the default folder. All operations, also tests such as `exists`, raise
    `PathNotAllowedError` for a path that is not allowed. Other failures raise `FileOperationError`.
    """

    tmp_dir: str | None = None
    """Path of the folder of temporary files; None without such a folder."""

    @abstractmethod
    async def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file, or the part that starts at byte `offset` and has at most `length` bytes."""

    @abstractmethod
    async def write_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Replace the content of a file in one step. Its parent folder must exist."""

    @abstractmethod
    async def append_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Append to a file, which is created if it is missing."""

    @abstractmethod
    async def delete(self, path: str) -> None:
        """Delete a file, a link or an empty folder."""

    @abstractmethod
    async def list_dir_with_types(self, path: str) -> list[tuple[str, bool]]:
        """Return a pair for each entry of a folder, sorted by name: the name, and True if the entry is a folder."""

    @abstractmethod
    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Create a folder. Does nothing if the folder exists."""

    @abstractmethod
    async def move(self, src: str, dst: str) -> None:
        """Move a file or folder. If `dst` is a folder, the source is moved into this folder. If `dst` is a file, that
        file is replaced.
        """

    @abstractmethod
    async def copy(self, src: str, dst: str) -> None:
        """Copy a file with its mode and times, or a whole folder to a path that does not exist."""

    @abstractmethod
    async def stat(self, path: str) -> dict[str, Any]:
        """Return ``size``, ``mtime``, ``is_file`` and ``is_dir`` of a path. A value is None if the workspace does not
        provide it.
        """

    @abstractmethod
    async def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a glob pattern, newest first."""

    @abstractmethod
    def read_bytes_stream(self, path: str, *, chunk_size: int = CHUNK) -> AsyncIterator[bytes]:
        """Yield the content of a file in pieces of bytes."""

    async def read_file(
        self, path: str, *, encoding: str = "utf-8", errors: str = "strict", offset: int = 0, length: int | None = None
    ) -> str:
        """Return the text of a file, or the part that starts at character `offset` and has at most `length`
        characters.
        """
        require_slice(offset, length)
        # Offset and length are in characters, so that the whole file must be decoded.
        content = await self.read_bytes(path)
        try:
            text = content.decode(encoding, errors)
        except (UnicodeDecodeError, LookupError) as error:
            raise FileOperationError("read", path, f"it is not text in {encoding}: {error}") from error
        return text[offset:] if length is None else text[offset : offset + length]

    async def list_dir(self, path: str) -> list[str]:
        """Return the names of the entries of a folder, sorted."""
        return [name for name, _ in await self.list_dir_with_types(path)]

    async def exists(self, path: str) -> bool:
        """Return True if a path exists."""
        return await self._found(path) is not None

    async def is_file(self, path: str) -> bool:
        """Return True if a path is a file."""
        return bool((await self._found(path) or {}).get("is_file"))

    async def is_dir(self, path: str) -> bool:
        """Return True if a path is a folder."""
        return bool((await self._found(path) or {}).get("is_dir"))

    async def _found(self, path: str) -> dict[str, Any] | None:
        try:
            return await self.stat(path)
        except FileOperationError:
            return None

    async def write_bytes_stream(self, path: str, stream: AsyncIterator[bytes]) -> None:
        """Replace the content of a file by the pieces of bytes that an asynchronous iterator yields."""
        await self.write_file(path, b"".join([piece async for piece in stream]))

    # --- temporary files -------------------------------------------------------------------------------------------

    def _scratch(self, name: str) -> str:
        if self.tmp_dir is None:
            raise RuntimeError(NO_SCRATCH)
        parts = name.split("/")
        if name.startswith("/") or ".." in parts:
            raise PathNotAllowedError(name, "leads out of the tmp directory", [self.tmp_dir])
        return f"{self.tmp_dir}/{name}"

    async def write_tmp_file(self, name: str, content: str | bytes) -> str:
        """Write a file in the folder of temporary files; return its path."""
        path = self._scratch(name)
        await self.write_file(path, content)
        return path

    async def read_tmp_file(self, name: str) -> str:
        """Return the text of a file in the folder of temporary files."""
        return await self.read_file(self._scratch(name))

    async def tmp_exists(self, name: str) -> bool:
        """Return True if a file exists in the folder of temporary files."""
        return await self.exists(self._scratch(name))

    async def delete_tmp_file(self, name: str) -> None:
        """Delete a file in the folder of temporary files."""
        await self.delete(self._scratch(name))

    async def truncate_to_tmp(
        self, content: str, filename: str, max_length: int = MOST_CHARACTERS
    ) -> str | dict[str, Any]:
        """Return a string unchanged if it has at most `max_length` characters. Otherwise write it to a temporary file,
        and return its beginning with the path of that file.

        Without a folder of temporary files, the text is only cut.
        """
        if len(content) <= max_length:
            return content
        cut = content[:max_length]
        line = cut.rfind("\n")
        if line > _WHOLE_LINES * max_length:
            cut = cut[:line]
        if self.tmp_dir is None:
            return f"{cut}\n... (truncated)"
        path = await self.write_tmp_file(filename, content)
        message = f"Output truncated: {len(cut)} of {len(content)} characters. The whole is in {path}"
        return {"content": cut, "file_path": path, "message": message}

    async def get_context_instructions(self) -> str | None:
        """Return a description of the workspace's files for agents, None for no description."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Close the folders of the workspace. Idempotent."""


class LocalFileOperator(FileOperator):
    """Files on the disk of this machine, below the folders that a `PathPolicy` allows.

    Parameters
    ----------
    policy
        The allowed folders, or one folder.
    tmp_dir
        Folder of temporary files, which the policy must allow too.

    Attributes
    ----------
    describe
        Function that returns a description of the files for agents; None for no description. It is called in a thread.
    """

    def __init__(self, policy: PathPolicy | str | Path, tmp_dir: str | None = None) -> None:
        allowed = policy if isinstance(policy, PathPolicy) else PathPolicy(Root(policy))
        self.disk = Disk(allowed)
        self.tmp_dir = tmp_dir
        self.describe: Callable[[], str] | None = None

    async def get_context_instructions(self) -> str | None:
        """Return the description of the workspace's files for agents: each folder with a tree of its content."""
        return None if self.describe is None else await asyncio.to_thread(self.describe)

    @property
    def policy(self) -> PathPolicy:
        """Access rule with the folders in which files may be accessed."""
        return self.disk.policy

    async def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file, or the part that starts at byte `offset` and has at most `length` bytes."""
        require_slice(offset, length)
        return await _in_thread("read", path, lambda: self.disk.read(path, offset, length))

    async def write_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Replace the content of a file in one step."""
        await _in_thread("write", path, lambda: self.disk.write(path, _bytes(content, encoding)), _AROUND)

    async def append_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Append bytes to a file, which is created if it is missing."""
        await _in_thread("append", path, lambda: self.disk.append(path, _bytes(content, encoding)), _AROUND)

    async def delete(self, path: str) -> None:
        """Delete a file, a link or an empty folder."""
        await _in_thread("delete", path, lambda: self.disk.delete(path))

    async def list_dir_with_types(self, path: str) -> list[tuple[str, bool]]:
        """Return a pair for each entry of a folder, sorted by name: the name, and True if the entry is a folder."""
        return await _in_thread("list", path, lambda: self.disk.entries(path), "directory")

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Create a folder. Does nothing if the folder exists."""
        await _in_thread("mkdir", path, lambda: self.disk.make_folder(path, parents=parents), _AROUND)

    async def move(self, src: str, dst: str) -> None:
        """Move a file or folder. If `dst` is a folder, the source is moved into this folder. If `dst` is a file, that
        file is replaced.
        """
        await _in_thread("move", src, lambda: self.disk.move(src, dst), "source")

    async def copy(self, src: str, dst: str) -> None:
        """Copy a file, or a folder with its content."""
        await _in_thread("copy", src, lambda: self.disk.copy(src, dst), "source")

    async def stat(self, path: str) -> dict[str, Any]:
        """Return ``size``, ``mtime``, ``is_file`` and ``is_dir`` of a path."""
        return (await _in_thread("stat", path, lambda: self.disk.status(path)))._asdict()

    async def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a glob pattern, newest first."""
        return await _in_thread("glob", pattern, lambda: self.disk.glob(pattern))

    async def read_bytes_stream(self, path: str, *, chunk_size: int = CHUNK) -> AsyncIterator[bytes]:
        """Yield the content of a file in pieces of bytes."""
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1 byte, not {chunk_size}")
        pieces = self.disk.pieces(path, chunk_size)
        # The default b"" ends the loop: StopIteration cannot be passed from a thread to a coroutine.
        while piece := await _in_thread("read", path, lambda: next(pieces, b"")):
            yield piece

    async def close(self) -> None:
        """Close the open descriptors of the allowed folders."""
        self.policy.close()


def require_slice(offset: int, length: int | None) -> None:
    """Raise ValueError if the offset or the length of a requested part of a file is negative."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError(f"offset and length must be 0 or more, not {offset} and {length}")


def _bytes(content: str | bytes, encoding: str) -> bytes:
    return content.encode(encoding) if isinstance(content, str) else content


async def _in_thread(operation: str, path: str | Path, act: Callable[[], T], kind: str = "file") -> T:
    """Run a blocking file operation in a thread, and return its result. Errors are converted to errors that name the
    operation and the path.
    """

    def operate() -> T:
        with failures(operation, os.fspath(path), kind):
            return act()

    return await asyncio.to_thread(operate)


@contextmanager
def failures(operation: str, path: str, kind: str = "file") -> Iterator[None]:
    """Convert errors of a file operation inside the ``with`` block to `FileOperationError`, which names the operation
    and the path.
    """
    try:
        yield
    except (PathNotAllowedError, FileOperationError):
        raise
    # The order matters: the first three are subclasses of OSError, with texts of their own.
    except FileNotFoundError as error:
        raise FileOperationError(operation, path, f"{kind} not found") from error
    except NotADirectoryError as error:
        raise FileOperationError(operation, path, "not a directory") from error
    except PermissionError as error:
        raise FileOperationError(operation, path, "permission denied") from error
    except (OSError, UnicodeError, LookupError) as error:
        raise FileOperationError(operation, path, getattr(error, "strerror", None) or str(error)) from error


# --- rules of ``.gitignore`` files, as git applies them ---
#
# The last rule that matches a path decides, and a file nearer to the path overrides one further up. Nothing in an
# ignored folder can be included again. Example: with the rules ``*.log``, ``!keep.log`` and ``build/``, the file
# ``keep.log`` is included, and ``build/keep.log`` is ignored, because its folder is.
# `tests/workspace/test_ignored.py` compares the results with those of git.


GITIGNORE = ".gitignore"
EXCLUDE = ".git/info/exclude"
GIT_FOLDER = ".git"
"""Name of the folder in which git stores its data. It is always ignored."""
# POSIX character classes, such as ``[[:digit:]]``, as parts of a character set of `re`.
_CLASSES = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "blank": " \t",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "A-Fa-f0-9",
}


_SPECIAL = "*?[\\"
_MOST_REPEATED = 2
"""Maximum number of ``*`` wildcards in a pattern for `re`, whose time grows with the power of their number."""
_Match: TypeAlias = Callable[[str], object]


class _Rule(NamedTuple):
    match: _Match
    is_negated: bool
    is_of_folders: bool
    is_of_names: bool
    """True if the pattern is compared with the last name of a path, and not with the path below the rules' folder."""


class IgnoreRules:
    r"""Rules of the ``.gitignore`` files in a folder and its subfolders, which decide whether git ignores a path.

    Examples
    --------
    >>> rules = IgnoreRules()
    >>> rules.add("", "*.log\n!keep.log\nbuild/\n")
    >>> [rules.is_ignored(path) for path in ("a/x.log", "keep.log", "build/out.txt", "build")]
    [True, False, True, False]
    """

    def __init__(self) -> None:
        # Rules by the folder in which their file lies, in the order of the file.
        self._files: dict[str, list[_Rule]] = {}
        self._excluded: dict[str, list[_Rule]] = {}

    def add(self, folder: str, text: str, *, is_exclude: bool = False) -> None:
        """Add the rules of one ``.gitignore`` file, or of the file ``.git/info/exclude``.

        Parameters
        ----------
        folder
            Path of the folder that the rules are relative to; '' is the top folder.
        is_exclude
            True for the rules of ``.git/info/exclude``, which every ``.gitignore`` overrides.
        """
        (self._excluded if is_exclude else self._files)[folder] = list(_rules_in(text))

    def is_ignored(self, path: str, *, is_folder: bool = False) -> bool:
        """Return True if the rules ignore a path or one of the folders that contain it."""
        for each in (*_folders_around(path), path):
            if self._is_ignored_itself(each, is_folder=is_folder or each != path):
                return True
        return False

    def _is_ignored_itself(self, path: str, *, is_folder: bool) -> bool:
        """Return True if the rules ignore exactly this path. The folders that contain the path are not considered.

        The files with rules are read from the folder of the path outwards, and in each file from the last rule on. The
        first rule that matches decides.
        """
        name = path.rpartition("/")[2]
        if name == GIT_FOLDER:
            return True
        folders = ["", *_folders_around(path)][::-1]
        # Any rule of a .gitignore overrides the rules of .git/info/exclude.
        for files in (self._files, self._excluded):
            for folder in folders:
                below = path[len(folder) :].lstrip("/") if folder else path
                for rule in reversed(files.get(folder, ())):
                    if rule.is_of_folders and not is_folder:
                        continue
                    if rule.match(name if rule.is_of_names else below):
                        return not rule.is_negated
        return False


def _folders_around(path: str) -> Iterator[str]:
    """Yield the paths of the folders that contain a path, the outermost first."""
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _rules_in(text: str) -> Iterator[_Rule]:
    """Parse the text of a ``.gitignore`` file and yield its rules. Comments and patterns that never match are left out.

    A rule is a pattern, optionally with ``!`` at the beginning (include again) or ``/`` at the end (folders only).
    """
    # The parts of a line are removed from the outside: byte order mark, spaces, "!", and the "/" at the end.
    for text_line in text.removeprefix("\ufeff").split("\n"):
        line = _without_trailing_spaces(text_line.removesuffix("\r"))
        if line.startswith("#"):
            continue
        is_negated = line.startswith("!")
        line = line[is_negated:]
        is_of_folders = line.endswith("/")
        line = line[:-1] if is_of_folders else line
        # A slash elsewhere binds the pattern to the folder of the file: ``/a``, ``a/b``. Without one, ``a`` matches
        # this name at any depth.
        is_of_names = "/" not in line
        match = _match_of(line.removeprefix("/"))
        if line and match is not None:
            yield _Rule(match, is_negated, is_of_folders, is_of_names)


def _without_trailing_spaces(line: str) -> str:
    """Return a line of a ``.gitignore`` file without the spaces at its end. A space that is escaped by a backslash
    stays.
    """
    # An odd number of backslashes escapes the first of the spaces: ``a\  `` -> ``a\ ``.
    end = len(line.rstrip(" "))
    backslashes = end - len(line[:end].rstrip("\\"))
    return line[: end + 1] if backslashes % 2 and end < len(line) else line[:end]


def _match_of(pattern: str) -> _Match | None:
    """Return a function that tests whether a whole text matches a pattern of a ``.gitignore`` file. Return None for an
    invalid pattern, which git never matches.
    """
    parts = _parts(pattern)
    if parts is None:
        return None
    # `re` is fast for few wildcards. For many, the matcher takes time in proportion to the length of the text.
    if sum(kind != "text" for kind, _ in parts) <= _MOST_REPEATED:
        return re.compile("".join(expression for _, expression in parts), re.DOTALL).fullmatch
    items: list[Item] = []
    for kind, expression in parts:
        if kind == "folders":
            # As ``(?:.*/)?``: any text and a slash, both or neither.
            items += [OPTIONAL_PAIR, Repeated(is_any_character), "/"]
        else:
            items.append(_ITEMS.get(kind) or character_test(expression))
    return WildcardMatcher(items).matches


_ITEMS = {"all": Repeated(is_any_character), "some": Repeated(is_not_slash)}
_Part: TypeAlias = tuple[str, str]
"""Part of a pattern: a kind (``text`` for one character, ``folders``, ``all``, ``some``) and a regular expression."""


def _parts(pattern: str) -> list[_Part] | None:
    """Split a pattern of a ``.gitignore`` file into parts. Each part has its kind and the regular expression that it
    stands for. Return None for an invalid pattern, which git never matches.

    Each branch reads one token: ``*`` or ``**``, ``?``, a set of letters, an escaped letter, or a letter.
    """
    # "**/a*" -> [("folders", "(?:.*/)?"), ("text", "a"), ("some", "[^/]*")]
    parts = list[_Part]()
    at = 0
    special = next((at for at, letter in enumerate(pattern) if letter in _SPECIAL), None)
    while at < len(pattern):
        letter = pattern[at]
        if letter == "*":
            end = len(pattern) - len(pattern[at:].lstrip("*"))
            # git compares the text before the first special letter by itself, so that two stars there begin a folder.
            is_first = at in (0, special) or pattern[at - 1] == "/"
            is_double = end - at > 1 and is_first and (end == len(pattern) or pattern.startswith(("/", "\\/"), end))
            if is_double and pattern.startswith("/", end):
                parts.append(("folders", "(?:.*/)?"))
                end += 1
            else:
                parts.append(("all", ".*") if is_double else ("some", "[^/]*"))
            at = end
        elif letter == "?":
            parts.append(("text", "[^/]"))
            at += 1
        elif letter == "[":
            letters = _letters(pattern, at + 1)
            if letters is None:
                return None
            parts.append(("text", letters[0]))
            at = letters[1]
        elif letter == "\\":
            if at + 1 == len(pattern):
                return None
            parts.append(("text", re.escape(pattern[at + 1])))
            at += 2
        else:
            parts.append(("text", re.escape(letter)))
            at += 1
    return parts


def _letters(pattern: str, at: int) -> tuple[str, int] | None:
    """Parse a character set such as ``[a-z]`` in a pattern of a ``.gitignore`` file. Return the regular expression of
    the set, and the position after the set.

    Return None for a set without an end.
    """
    is_negated = pattern[at : at + 1] in ("!", "^")
    at += is_negated
    parts = list[str]()
    start = at
    # A "]" that comes first is a letter of the set: ``[]a]``. Each step reads a class, a range or a letter.
    while at < len(pattern) and (pattern[at] != "]" or at == start):
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at + 2)
            if end < 0 or pattern[at + 2 : end] not in _CLASSES:
                return None
            parts.append(_CLASSES[pattern[at + 2 : end]])
            at = end + 2
            continue
        first, at = _letter(pattern, at)
        last = first
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            last, at = _letter(pattern, at + 1)
        # The first letter belongs to the set, also where the range from it is empty: [b-a] is [b].
        parts.append(f"{re.escape(first)}-{re.escape(max(first, last))}")
    if at >= len(pattern):
        return None
    letters = "".join(parts)
    # A set never matches a slash, whatever its letters are.
    if is_negated:
        return f"[^/{letters}]", at + 1
    return (f"(?!/)[{letters}]" if letters else "(?!)"), at + 1


def _letter(pattern: str, at: int) -> tuple[str, int]:
    """Return the character at a position inside a character set, and the position after it. A backslash before the
    character is skipped.
    """
    at += pattern[at] == "\\" and at + 1 < len(pattern)
    return pattern[at], at + 1

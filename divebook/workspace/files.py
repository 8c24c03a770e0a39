"""Files of a workspace, as code and tools reach them: by path, asynchronously, with errors that say what failed."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from divebook.errors import FileOperationError, PathNotAllowedError
from divebook.workspace.disk import Disk
from divebook.workspace.paths import Root
from divebook.workspace.policy import PathPolicy

T = TypeVar("T")
CHUNK = 65_536
MOST_CHARACTERS = 60_000
_WHOLE_LINES = 0.8
"""A text is cut at the end of a line if that lies beyond this part of it."""
_AROUND = "parent directory"
NO_SCRATCH = "no tmp directory is configured for this workspace"


class FileOperator(ABC):
    """Reads and writes the files of a workspace.

    Relative paths are of its default folder. A path that may not be reached is a `PathNotAllowedError`, also where it
    is only asked about; what fails otherwise a `FileOperationError`.
    """

    tmp_dir: str | None = None
    """The folder for what is passing, if there is one."""

    @abstractmethod
    async def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or `length` of them from `offset` on."""

    @abstractmethod
    async def write_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Replace the content of a file in one step; its folder must be there."""

    @abstractmethod
    async def append_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Add to the end of a file, which is made if it is not there."""

    @abstractmethod
    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""

    @abstractmethod
    async def list_dir_with_types(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, sorted, and whether each is a folder."""

    @abstractmethod
    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Make a folder; one that is there is fine."""

    @abstractmethod
    async def move(self, src: str, dst: str) -> None:
        """Move a file or folder: in place of a file, or into a folder."""

    @abstractmethod
    async def copy(self, src: str, dst: str) -> None:
        """Copy a file with its mode and times, or a whole folder to where nothing is."""

    @abstractmethod
    async def stat(self, path: str) -> dict[str, Any]:
        """Return ``size``, ``mtime``, ``is_file`` and ``is_dir`` of what is at a path; None for what is not known."""

    @abstractmethod
    async def glob(self, pattern: str) -> list[str]:
        """Return the paths that a pattern means, the newest first."""

    @abstractmethod
    def read_bytes_stream(self, path: str, *, chunk_size: int = CHUNK) -> AsyncIterator[bytes]:
        """Give the bytes of a file piece by piece."""

    async def read_file(
        self, path: str, *, encoding: str = "utf-8", errors: str = "strict", offset: int = 0, length: int | None = None
    ) -> str:
        """Return the text of a file, or `length` characters of it from `offset` on."""
        require_slice(offset, length)
        content = await self.read_bytes(path)
        try:
            text = content.decode(encoding, errors)
        except (UnicodeDecodeError, LookupError) as error:
            raise FileOperationError("read", path, f"it is no text in {encoding}: {error}") from error
        return text[offset:] if length is None else text[offset : offset + length]

    async def list_dir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return [name for name, _ in await self.list_dir_with_types(path)]

    async def exists(self, path: str) -> bool:
        """Return whether something is at a path."""
        return await self._found(path) is not None

    async def is_file(self, path: str) -> bool:
        """Return whether a file is at a path."""
        return bool((await self._found(path) or {}).get("is_file"))

    async def is_dir(self, path: str) -> bool:
        """Return whether a folder is at a path."""
        return bool((await self._found(path) or {}).get("is_dir"))

    async def _found(self, path: str) -> dict[str, Any] | None:
        try:
            return await self.stat(path)
        except FileOperationError:
            return None

    async def write_bytes_stream(self, path: str, stream: AsyncIterator[bytes]) -> None:
        """Replace the content of a file with what comes."""
        await self.write_file(path, b"".join([piece async for piece in stream]))

    # --- what is passing -------------------------------------------------------------------------------------------

    def _scratch(self, name: str) -> str:
        if self.tmp_dir is None:
            raise RuntimeError(NO_SCRATCH)
        parts = name.split("/")
        if name.startswith("/") or ".." in parts:
            raise PathNotAllowedError(name, "leads out of the tmp directory", [self.tmp_dir])
        return f"{self.tmp_dir}/{name}"

    async def write_tmp_file(self, name: str, content: str | bytes) -> str:
        """Write a file into the folder for what is passing; return its path."""
        path = self._scratch(name)
        await self.write_file(path, content)
        return path

    async def read_tmp_file(self, name: str) -> str:
        """Return the text of such a file."""
        return await self.read_file(self._scratch(name))

    async def tmp_exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return await self.exists(self._scratch(name))

    async def delete_tmp_file(self, name: str) -> None:
        """Remove such a file."""
        await self.delete(self._scratch(name))

    async def truncate_to_tmp(
        self, content: str, filename: str, max_length: int = MOST_CHARACTERS
    ) -> str | dict[str, Any]:
        """Return a text that is short enough; else its beginning, and the path of a file with the whole.

        Without a folder for what is passing, the text is only cut.
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
        """Return what an agent is told of the files; None for nothing."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Let go of what files are reached by; twice is once."""


class LocalFileOperator(FileOperator):
    """Reaches files on this machine's disk, below the folders that a policy allows.

    Parameters
    ----------
    policy
        The folders that may be reached, or the one folder.
    tmp_dir
        The folder for what is passing, which the policy allows too.
    """

    def __init__(self, policy: PathPolicy | str | Path, tmp_dir: str | None = None) -> None:
        allowed = policy if isinstance(policy, PathPolicy) else PathPolicy(Root(policy))
        self.disk, self.tmp_dir = Disk(allowed), tmp_dir

    @property
    def policy(self) -> PathPolicy:
        """Which folders may be reached."""
        return self.disk.policy

    async def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or some of them."""
        require_slice(offset, length)
        return await _done("read", path, lambda: self.disk.read(path, offset, length))

    async def write_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Replace the content of a file in one step."""
        await _done("write", path, lambda: self.disk.write(path, _bytes(content, encoding)), _AROUND)

    async def append_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Add to the end of a file."""
        await _done("append", path, lambda: self.disk.append(path, _bytes(content, encoding)), _AROUND)

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        await _done("delete", path, lambda: self.disk.delete(path))

    async def list_dir_with_types(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, and whether each is a folder."""
        return await _done("list", path, lambda: self.disk.entries(path), "directory")

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Make a folder."""
        await _done("mkdir", path, lambda: self.disk.make_folder(path, parents=parents), _AROUND)

    async def move(self, src: str, dst: str) -> None:
        """Move a file or folder."""
        await _done("move", src, lambda: self.disk.move(src, dst), "source")

    async def copy(self, src: str, dst: str) -> None:
        """Copy a file or folder."""
        await _done("copy", src, lambda: self.disk.copy(src, dst), "source")

    async def stat(self, path: str) -> dict[str, Any]:
        """Return what is at a path."""
        return (await _done("stat", path, lambda: self.disk.look(path)))._asdict()

    async def glob(self, pattern: str) -> list[str]:
        """Return the paths that a pattern means."""
        return await _done("glob", pattern, lambda: self.disk.glob(pattern))

    async def read_bytes_stream(self, path: str, *, chunk_size: int = CHUNK) -> AsyncIterator[bytes]:
        """Give the bytes of a file piece by piece."""
        if chunk_size < 1:
            raise ValueError(f"a chunk must have 1 byte or more, not {chunk_size}")
        pieces = self.disk.pieces(path, chunk_size)
        while piece := await _done("read", path, lambda: next(pieces, b"")):
            yield piece

    async def close(self) -> None:
        """Let go of the folders."""
        self.policy.close()


def require_slice(offset: int, length: int | None) -> None:
    """Raise ValueError unless a part of a file is meant."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError(f"offset and length must be 0 or more, not {offset} and {length}")


def _bytes(content: str | bytes, encoding: str) -> bytes:
    return content.encode(encoding) if isinstance(content, str) else content


async def _done(operation: str, path: str | Path, act: Callable[[], T], kind: str = "file") -> T:
    """Return what an operation comes to, carried out in a thread."""

    def carried_out() -> T:
        with failures(operation, os.fspath(path), kind):
            return act()

    return await asyncio.to_thread(carried_out)


@contextmanager
def failures(operation: str, path: str, kind: str = "file") -> Iterator[None]:
    """Say of what fails which operation it was, and on which path."""
    try:
        yield
    except (PathNotAllowedError, FileOperationError):
        raise
    except FileNotFoundError as error:
        raise FileOperationError(operation, path, f"{kind} not found") from error
    except NotADirectoryError as error:
        raise FileOperationError(operation, path, "not a directory") from error
    except PermissionError as error:
        raise FileOperationError(operation, path, "permission denied") from error
    except (OSError, UnicodeError, LookupError) as error:
        raise FileOperationError(operation, path, getattr(error, "strerror", None) or str(error)) from error

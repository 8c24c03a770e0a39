"""Documents that workflows read and write: a folder on disk, or a dict in memory.

Paths are always relative to the repository's root, with forward slashes; an absolute path is read below the root.
A name registered for a path can be used in its place.
"""

from __future__ import annotations

import mimetypes
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import anyio.to_thread

from divebook.documents.protected import unprotected_files, why_protected
from divebook.documents.whole_files import make_folders, replace_whole
from divebook.errors import NotFoundError, SetupError

_CONTENT_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


@dataclass(frozen=True, slots=True)
class Document:
    """A text with a path."""

    path: str
    content: str

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def content_type(self) -> str:
        """Media type, judged by the extension."""
        extension = PurePosixPath(self.path).suffix.lower()
        return _CONTENT_TYPES.get(extension) or mimetypes.guess_type(self.path)[0] or "text/plain"


class Library(Protocol):
    """Documents that are elsewhere, and that nobody writes."""

    def get(self, path: str) -> Document:
        """Return a document."""

    def list(self, prefix: str) -> list[str]:
        """Return the paths that begin so."""


class DocumentRepository(ABC):
    """Where documents are kept; two implementations, one set of promises."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._libraries: dict[str, Library] = {}

    def include(self, scheme: str, library: Library) -> None:
        """Have what begins with a scheme, such as ``mcp://``, read from elsewhere."""
        self._libraries[scheme] = library

    def register(self, name: str, path: str) -> None:
        """Let `name` stand for `path`."""
        self._names[name] = path if self._elsewhere(path) else relative_path(path)

    def path_named(self, name: str) -> str | None:
        """Return the path that a registered name stands for, any other path as it is, and None for one elsewhere."""
        meant = self._names.get(name, name)
        return None if self._elsewhere(meant) else meant.lstrip("/")

    def resolve(self, path: str) -> str:
        """Return the path inside the repository that a path or registered name means.

        Raises
        ------
        SetupError
            It is elsewhere, where nothing is written.
        """
        meant = self._names.get(path, path)
        if self._elsewhere(meant):
            raise SetupError(f"document {path!r} can only be read: write to a path of a folder")
        return self._names.get(path) or relative_path(path)

    def _elsewhere(self, path: str) -> Library | None:
        return next((found for scheme, found in self._libraries.items() if path.startswith(scheme)), None)

    def get(self, path: str) -> Document:
        """Return a document.

        Raises
        ------
        NotFoundError
            There is none; the nearest existing path is suggested.
        """
        meant = self._names.get(path, path)
        if (library := self._elsewhere(meant)) is not None:
            return library.get(meant)
        where = self.resolve(path)
        content = self._read(where)
        if content is None:
            raise NotFoundError("document", path, self._paths(), f"document does not exist: {path}")
        return Document(where, content)

    async def read(self, path: str) -> Document:
        """Return a document as `get` does; one that is elsewhere is read in a thread, since that may take long."""
        is_elsewhere = self._elsewhere(self._names.get(path, path)) is not None
        return await anyio.to_thread.run_sync(self.get, path) if is_elsewhere else self.get(path)

    def put(self, path: str, content: str) -> Document:
        """Write a document whole, replacing what was there."""
        where = self.resolve(path)
        self._write(where, content)
        return Document(where, content)

    def exists(self, path: str) -> bool:
        """Whether there is such a document."""
        return self._read(self.resolve(path)) is not None

    def size(self, path: str) -> int:
        """Return how many bytes a document has, 0 if there is none; a large one is not read for it where it can be."""
        if self._elsewhere(self._names.get(path, path)) is not None:
            return 0  # its size is bounded where it is read
        return self._size(self.resolve(path))

    def delete(self, path: str) -> None:
        """Remove a document; one that is not there is fine."""
        self._remove(self.resolve(path))

    def list(self, prefix: str = "", *, recursive: bool = True) -> list[str]:
        """Return the paths below a folder, sorted."""
        if (library := self._elsewhere(prefix)) is not None:
            return library.list(prefix)
        folder = relative_path(prefix) if prefix.strip("/") else ""
        start = f"{folder}/" if folder else ""
        below = [path for path in self._paths() if path.startswith(start)]
        return sorted(path for path in below if recursive or "/" not in path.removeprefix(start))

    def _size(self, path: str) -> int:
        return len((self._read(path) or "").encode())

    @abstractmethod
    def _read(self, path: str) -> str | None: ...

    @abstractmethod
    def _write(self, path: str, content: str) -> None: ...

    @abstractmethod
    def _remove(self, path: str) -> None: ...

    @abstractmethod
    def _paths(self) -> Iterable[str]: ...


class MemoryDocuments(DocumentRepository):
    """Documents in a dict, by full path."""

    def __init__(self, contents: dict[str, str] | None = None) -> None:
        super().__init__()
        self._contents = {relative_path(path): content for path, content in (contents or {}).items()}

    def _read(self, path: str) -> str | None:
        return self._contents.get(path)

    def _write(self, path: str, content: str) -> None:
        self._contents[path] = content

    def _remove(self, path: str) -> None:
        self._contents.pop(path, None)

    def _paths(self) -> Iterable[str]:
        return list(self._contents)


class FileDocuments(DocumentRepository):
    """Documents in a folder; nothing outside it can be reached, also not through links, and nothing protected:
    see `divebook.documents.protected`.

    What it writes is for this user alone (0600, new folders 0700).
    """

    def __init__(self, root: str | os.PathLike[str] = ".") -> None:
        super().__init__()
        self.root = Path(root).resolve()

    def _locate(self, path: str) -> Path:
        try:
            located = (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; links in a circle
            raise SetupError(f"document path {path!r} cannot be the path of a file: {error}") from error
        if not located.is_relative_to(self.root):
            raise SetupError(f"document path {path!r} attempts to escape root directory {self.root}")
        if reason := why_protected(located, self.root):
            raise SetupError(f"document path {path!r} cannot be a document: {reason}; choose another name")
        return located

    def _read(self, path: str) -> str | None:
        located = self._locate(path)
        return located.read_bytes().decode("utf-8") if located.is_file() else None

    def _size(self, path: str) -> int:
        located = self._locate(path)
        return located.stat().st_size if located.is_file() else 0

    def _write(self, path: str, content: str) -> None:
        """Replace the file in one step, so that a reader never finds half of it."""
        located = self._locate(path)
        make_folders(located.parent)
        replace_whole(located, content)

    def _remove(self, path: str) -> None:
        self._locate(path).unlink(missing_ok=True)

    def _paths(self) -> Iterable[str]:
        paths = (path.relative_to(self.root).as_posix() for path in unprotected_files(self.root))
        return filter(_is_text, paths)


def _is_text(path: str) -> bool:
    """Tell whether a path can be written down: names of files may be any bytes."""
    return path == path.encode("utf-8", "replace").decode()


def relative_path(path: str) -> str:
    """Return a document path in its one form: relative, forward slashes, no dots.

    Raises
    ------
    SetupError
        Empty, or it leads out of the repository.
    """
    if not path or not path.strip("/"):
        raise SetupError("document path is required")
    parts: list[str] = []
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            if not parts:
                raise SetupError(f"document path {path!r} attempts to escape root directory")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        raise SetupError("document path is required")
    return "/".join(parts)

"""Documents that workflows read and write: a folder on disk, or a dict in memory.

Paths are always relative to the repository's root, with forward slashes; an absolute path is read below the root.
A name registered for a path can be used in its place.
"""

from __future__ import annotations

import errno
import functools
import itertools
import mimetypes
import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeAlias

import anyio.to_thread

from divebook.documents.policy import unprotected_files, why_protected
from divebook.errors import NotFoundError, PatternError, SetupError
from divebook.text.patterns import (
    OPTIONAL_PAIR,
    Item,
    Repeated,
    WildcardMatcher,
    character_test,
    is_any_character,
    is_not_slash,
)

# Patterns of paths: ``*`` and ``?`` within a part, ``**`` over folders, ``[abc]``, and ``{a,b}`` for alternatives.


WILDCARDS = frozenset("*?[{")
MAX_ALTERNATIVES = 1000
MAX_LENGTH = 4096
"""Characters of a pattern."""
MAX_STEPS = 10_000
"""Wildcards and characters of all alternatives that the slower of the two matchers takes."""
_TOKEN = re.compile(
    r"(?P<folders>(?:\*\*/)+)|(?P<all>\*\*+)|(?P<some>\*)|(?P<one>\?)|\[(?P<not>[!^]?)(?P<of>\]?[^\]]*)\]"
)
Match: TypeAlias = Callable[[str], object]


def has_wildcards(path: str) -> bool:
    """Whether `path` is a pattern."""
    return not WILDCARDS.isdisjoint(path)


def alternatives(pattern: str) -> list[str]:
    """Return the patterns that ``{a,b}`` groups stand for, innermost groups first.

    Raises
    ------
    PatternError
        It is too long, or stands for too many.
    """
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"pattern {pattern[:60]!r}... is too long: it may have {MAX_LENGTH} characters")
    waiting = [pattern]
    done = []
    while waiting:
        text = waiting.pop()
        group = re.search(r"\{([^{}]*)\}", text)
        if group is None:
            done.append(text)
        else:
            waiting += [text[: group.start()] + choice + text[group.end() :] for choice in group[1].split(",")]
        if len(waiting) + len(done) > MAX_ALTERNATIVES:
            raise PatternError(
                f"pattern {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns; name fewer alternatives"
            )
    return done


def matches(pattern: str, path: str) -> bool:
    """Return whether a whole path, written with ``/``, is what a pattern stands for; capitals count.

    >>> matches("/a/**/*.txt", "/a/b/c.txt"), matches("/a/*.txt", "/a/b/c.txt")
    (True, False)
    """
    return any(match(path) for match in _compiled(pattern))


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> list[Match]:
    """Return what matches each alternative; PatternError for one that is not valid."""
    found: list[Match] = []
    steps = 0
    for alternative in alternatives(pattern):
        parts = _parts(alternative)
        try:
            if _has_one_way(parts):
                found.append(re.compile(_settled(parts), re.DOTALL).fullmatch)
                continue
            steps += len(parts)
            if steps > MAX_STEPS:
                raise PatternError(f"pattern {pattern!r} has too many alternatives with ** in them; name fewer")
            found.append(_matcher(parts).matches)
        except re.error as error:
            raise PatternError(f"pattern {pattern!r} is not valid: {error}") from error
    return found


_Part: TypeAlias = tuple[str, str]
"""The kind of a part, and the expression of one that is text."""


def _parts(pattern: str) -> list[_Part]:
    parts = []
    done = 0
    for token in _TOKEN.finditer(pattern):
        parts += [*_characters(pattern[done : token.start()]), _expression(token)]
        done = token.end()
    return [*parts, *_characters(pattern[done:])]


def _characters(text: str) -> list[_Part]:
    return [("text", re.escape(character)) for character in text]


def _expression(token: re.Match[str]) -> _Part:
    kind = token.lastgroup or ""
    if kind in ("folders", "all", "some"):
        return kind, ""
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", token["of"] or "")
    return "text", "[^/]" if kind == "one" else rf"(?!/)[{'^' if token['not'] else ''}{inside}]"


def _matcher(parts: list[_Part]) -> WildcardMatcher:
    """Return the matcher of any pattern; for one that `re` matches in one way, that takes a hundredth of the time."""
    items: list[Item] = []
    for kind, expression in parts:
        if kind == "folders":
            items += [OPTIONAL_PAIR, Repeated(is_any_character), "/"]
        elif kind == "text":
            items.append(character_test(expression))
        else:
            items.append(Repeated(is_any_character if kind == "all" else is_not_slash))
    return WildcardMatcher(items)


def _has_one_way(parts: list[_Part]) -> bool:
    """Return whether an expression with at most one wildcard that is tried again stands for the parts.

    ``**/`` behind anything but a whole folder (``a**/``) may be nothing, or end later than it could.
    """
    return all(parts[at - 1][1].endswith("/") for at in range(1, len(parts)) if parts[at][0] == "folders")


_FREE = {"folders": "(?:.*/)?", "all": ".*"}
_FIRST = {"folders": "(?:.*?/)??", "all": ".*?"}


def _settled(parts: list[_Part]) -> str:
    """Return an expression that never tries again what it has found: else a few wildcards take for ever.

    What stands before a wildcard may be matched where it ends first: the wildcard takes whatever is left. What comes
    behind the last one has to end where the text does, and ``**/`` takes whole folders only
    (``test_many_wildcards_take_no_time``).
    """
    chunks: list[tuple[str, list[_Part]]] = [("", [])]
    for part in parts:
        if part[0] in _FREE:
            chunks.append((part[0], []))
        else:
            chunks[-1][1].append(part)
    whole = []
    for place, (before, chunk) in enumerate(chunks):
        after = chunks[place + 1][0] if place + 1 < len(chunks) else ""
        takes_all = after == "all" or (after == "folders" and chunk[-1:] and chunk[-1][1].endswith("/"))
        told = _within(chunk, is_anchored=not takes_all)
        whole.append(f"(?>{_FIRST.get(before, '')}{told})" if takes_all else _FREE.get(before, "") + told)
    return "".join(whole)


def _within(parts: list[_Part], *, is_anchored: bool) -> str:
    """Return the expression of what has no wildcard over folders; with `is_anchored` the text ends behind it."""
    pieces = [""]  # texts, between them a ``*`` each
    for kind, text in parts:
        if kind == "some":
            pieces.append("")
        else:
            pieces[-1] += text
    told = pieces[0]
    for place, piece in enumerate(pieces[1:], 1):
        is_last = place == len(pieces) - 1
        told += f"[^/]*{piece}" if is_last and is_anchored else f"(?>[^/]*?{piece})"
    return told


# Files that are replaced in one step: a reader finds the old one or the new one, and never half of it.


FILE = 0o600
FOLDER = 0o700
MOST_FOLDERS = 100
"""That are made for one file."""
_LONGEST = 100
"""Characters of a name that its draft has as well."""


def replace_whole(path: Path, text: str) -> None:
    """Write a file, for this user alone; what cannot be written leaves nothing behind."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name[:_LONGEST]}.", delete=False, encoding="utf-8", newline=""
    ) as file:
        draft = Path(file.name)
        try:
            file.write(text)
            file.flush()
            draft.chmod(FILE)
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise


def make_folders(folder: Path) -> None:
    """Make a folder, and those it is in, for this user alone; those that exist stay as they are."""
    missing = list(itertools.takewhile(lambda one: not one.is_dir(), (folder, *folder.parents)))
    if len(missing) > MOST_FOLDERS:
        raise OSError(errno.ENAMETOOLONG, f"it needs {len(missing)} new folders, more than {MOST_FOLDERS}")
    for one in reversed(missing):
        one.mkdir(FOLDER, exist_ok=True)


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
    see `divebook.documents.policy`.

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

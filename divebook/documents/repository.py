"""Document repositories on disk and in memory, and path patterns.

Paths are relative to the root of a repository, with forward slashes. An absolute path is read below the root. A name
that is registered for a path can be used in its place.
"""

from __future__ import annotations

import functools
import mimetypes
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeAlias

import anyio.to_thread

from divebook.documents.policy import unprotected_files, why_protected
from divebook.documents.private_files import make_folders, replace_whole
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
from divebook.text.protocols import require_protocol

# Types that `mimetypes` does not know on all systems.
_CONTENT_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


@dataclass(frozen=True, slots=True)
class Document:
    """Text document with a path."""

    path: str
    content: str
    media_type: str | None = None
    """Media type that the source of the document declares; None if only the file extension indicates it."""
    id: str = ""
    """Id by which divebook finds a document of an MCP server, ``mcp://server/address``; empty for other documents."""

    @property
    def name(self) -> str:
        """File name of the document: the last part of its path."""
        return PurePosixPath(self.path).name

    @property
    def content_type(self) -> str:
        """Media type of the document: the declared one, or that of its file extension."""
        if self.media_type is not None:
            return self.media_type
        extension = PurePosixPath(self.path).suffix.lower()
        return _CONTENT_TYPES.get(extension) or mimetypes.guess_type(self.path)[0] or "text/plain"


class Library(Protocol):
    """Protocol of a library: a read-only source of documents, such as an MCP server, which a document repository
    includes.
    """

    def get(self, path: str) -> Document:
        """Return the document at a path in this source of documents."""

    def list(self, prefix: str) -> list[str]:
        """Return the paths of all documents in this source that start with a prefix."""


class DocumentRepository(ABC):
    """Base class of document repositories (`FileDocuments`, `MemoryDocuments`)."""

    _names: dict[str, str]
    _libraries: dict[str, Library]

    def __init__(self) -> None:
        self._names = {}
        self._libraries = {}

    def include(self, scheme: str, library: Library) -> None:
        """Add a library (a read-only source of documents, such as an MCP server). All paths that start with the scheme,
        such as ``mcp://``, are then read from it.
        """
        require_protocol(library, Library, "library")
        self._libraries[scheme] = library

    def register(self, name: str, path: str) -> None:
        """Register a name by which definitions can refer to the document at a path."""
        # A path in a library, such as ``mcp://server/a``, has no normalized form.
        self._names[name] = path if self._library_of(path) else relative_path(path)

    def path_named(self, name: str) -> str | None:
        """Return the path under which this repository stores the document with a registered name; any other path is
        returned unchanged. Return None if the document is not in the repository but in a library.
        """
        path = self._names.get(name, name)
        # A name keeps its registered path, which is normalized. Any other path may still be absolute.
        return None if self._library_of(path) else path.lstrip("/")

    def resolve(self, path: str) -> str:
        """Return the normalized path of a document for a path or a registered name.

        Raises
        ------
        SetupError
            The document is in a library, which is read-only.
        """
        target = self._names.get(path, path)
        if self._library_of(target):
            raise SetupError(f"document {path!r} is read-only: write to a path of a document folder")
        # Registered paths are normalized when they are registered.
        return self._names.get(path) or relative_path(path)

    def _library_of(self, path: str) -> Library | None:
        return next((library for scheme, library in self._libraries.items() if path.startswith(scheme)), None)

    def get(self, path: str) -> Document:
        """Return the document at a path or with a registered name, from the repository or from a library.

        Raises
        ------
        NotFoundError
            The document does not exist. The error suggests the most similar existing path.
        """
        # A name may stand for a document of a library, so it is replaced before the library is chosen.
        target = self._names.get(path, path)
        library = self._library_of(target)
        if library is not None:
            return library.get(target)
        resolved_path = self.resolve(path)
        content = self._read(resolved_path)
        if content is None:
            raise NotFoundError("document", path, self._paths(), f"document does not exist: {path}")
        return Document(resolved_path, content)

    async def read(self, path: str) -> Document:
        """Return a document as `get` does, without blocking the event loop. A library may be slow, so it is read in a
        thread.
        """
        is_in_library = self._library_of(self._names.get(path, path)) is not None
        return await anyio.to_thread.run_sync(self.get, path) if is_in_library else self.get(path)

    def put(self, path: str, content: str) -> Document:
        """Write a document. An existing document at the path is replaced."""
        resolved_path = self.resolve(path)
        self._write(resolved_path, content)
        return Document(resolved_path, content)

    def exists(self, path: str) -> bool:
        """Return whether a document exists at a path."""
        return self._read(self.resolve(path)) is not None

    def size(self, path: str) -> int:
        """Return the size of a document in bytes, without reading a file; 0 if it does not exist or is in a library."""
        if self._library_of(self._names.get(path, path)) is not None:
            return 0  # the library limits the size when it is read
        return self._size(self.resolve(path))

    def delete(self, path: str) -> None:
        """Delete a document. Deleting a document that does not exist is not an error."""
        self._remove(self.resolve(path))

    def list(self, prefix: str = "", *, recursive: bool = True) -> list[str]:
        """Return the paths of the documents in the folder `prefix`, sorted, and with `recursive` in its subfolders."""
        library = self._library_of(prefix)
        if library is not None:
            return library.list(prefix)
        # ``/`` is the root, for which `relative_path` would raise.
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
    """Document repository in memory."""

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
    """Document repository in a folder. Files outside the folder and protected files cannot be accessed, even through
    links.

    See `divebook.documents.policy` for protected files. Only this user can access written files (mode 0600) and new
    folders (mode 0700).
    """

    def __init__(self, root: str | os.PathLike[str] = ".") -> None:
        super().__init__()
        self.root = Path(root).resolve()

    def _locate(self, path: str) -> Path:
        try:
            # The links are resolved first. A path is then inside the folder, or it is not, whatever it looked like.
            located = (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; links in a circle
            raise SetupError(f"document path {path!r} cannot be the path of a file: {error}") from error
        if not located.is_relative_to(self.root):
            raise SetupError(f"document path {path!r} attempts to escape root directory {self.root}")
        # `resolve` decides by the target: a link ``notes.txt`` -> ``.git/config`` is protected.
        reason = why_protected(located, self.root)
        if reason:
            raise SetupError(f"document path {path!r} cannot be a document: {reason}; choose another name")
        return located

    def _read(self, path: str) -> str | None:
        located = self._locate(path)
        # Bytes are decoded here, since text mode would change line ends.
        return located.read_bytes().decode("utf-8") if located.is_file() else None

    def _size(self, path: str) -> int:
        located = self._locate(path)
        return located.stat().st_size if located.is_file() else 0

    def _write(self, path: str, content: str) -> None:
        """Write a document by replacing its file in one step, so that no reader sees a part of it."""
        located = self._locate(path)
        make_folders(located.parent)
        replace_whole(located, content)

    def _remove(self, path: str) -> None:
        self._locate(path).unlink(missing_ok=True)

    def _paths(self) -> Iterable[str]:
        paths = (path.relative_to(self.root).as_posix() for path in unprotected_files(self.root))
        # A document has a path that a definition can contain. Names of other bytes have none.
        return filter(_is_text, paths)


def _is_text(path: str) -> bool:
    """Return whether a path is valid Unicode text, since file names on some systems may contain any bytes."""
    return path == path.encode("utf-8", "replace").decode()


def relative_path(path: str) -> str:
    """Return the normalized form of the path of a document: relative, with forward slashes, without ``.`` and ``..``.

    Raises
    ------
    SetupError
        It is empty, or leads out of the repository.
    """
    if not path or not path.strip("/"):
        raise SetupError("document path is required")
    parts: list[str] = []
    # Backslashes separate on Windows. A path means the same file on each system.
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            # Without a part to remove, ``..`` leads out of the repository. ``a/../b`` stays inside.
            if not parts:
                raise SetupError(f"document path {path!r} attempts to escape root directory")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        raise SetupError("document path is required")
    return "/".join(parts)


# --- patterns: ``*`` and ``?`` within a name, ``**`` over folders, ``[abc]``, and ``{a,b}`` for alternatives ---


WILDCARDS = frozenset("*?[{")
MAX_ALTERNATIVES = 1000
MAX_LENGTH = 4096
"""Maximum number of characters of a pattern."""
MAX_STEPS = 10_000
"""Maximum number of wildcards and characters, over all alternatives of a pattern, that the slower matcher accepts."""
_TOKEN = re.compile(
    # Groups are matched in this order: whole folders, anything, anything without a slash, one character, a set. A ``]``
    # directly behind the opening of a set belongs to the set.
    r"(?P<folders>(?:\*\*/)+)|(?P<all>\*\*+)|(?P<some>\*)|(?P<one>\?)|\[(?P<not>[!^]?)(?P<of>\]?[^\]]*)\]"
)
Match: TypeAlias = Callable[[str], object]


def has_wildcards(path: str) -> bool:
    """Return whether a path contains wildcards and is therefore a pattern."""
    return not WILDCARDS.isdisjoint(path)


def alternatives(pattern: str) -> list[str]:
    """Expand the ``{a,b}`` groups of a path pattern, the innermost first, and return the resulting patterns; a pattern
    without groups is returned alone.

    Raises
    ------
    PatternError
        The pattern is too long, or stands for too many patterns.
    """
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"pattern {pattern[:60]!r}... is too long: it may have {MAX_LENGTH} characters")
    # Groups that may still be expanded, the last first, and patterns without groups.
    queue = [pattern]
    patterns = []
    while queue:
        text = queue.pop()
        # A group without braces inside is an innermost one: "{a,{b,c}}" -> "{a,b}" and "{a,c}".
        group = re.search(r"\{([^{}]*)\}", text)
        if group is None:
            patterns.append(text)
        else:
            queue += [text[: group.start()] + choice + text[group.end() :] for choice in group[1].split(",")]
        # The limit is checked at each expansion, because ``{a,b}`` repeated 40 times would stand for 2**40 patterns.
        if len(queue) + len(patterns) > MAX_ALTERNATIVES:
            raise PatternError(
                f"pattern {pattern!r} expands to more than {MAX_ALTERNATIVES} patterns; use fewer alternatives"
            )
    return patterns


def matches(pattern: str, path: str) -> bool:
    """Return whether a path pattern matches a whole path. Upper and lower case are distinguished.

    >>> matches("/a/**/*.txt", "/a/b/c.txt"), matches("/a/*.txt", "/a/b/c.txt")
    (True, False)
    """
    return any(match(path) for match in _compiled(pattern))


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> list[Match]:
    """Return the match functions for a path pattern, one for each of the patterns into which its ``{a,b}`` groups
    expand. Raise PatternError if the pattern is not valid.
    """
    matchers: list[Match] = []
    steps = 0
    for alternative in alternatives(pattern):
        parts = _parts(alternative)
        try:
            if _is_linear(parts):
                matchers.append(re.compile(_linear_expression(parts), re.DOTALL).fullmatch)
                continue
            # The slower matcher takes a step for each part and each character of a path. The sum over all alternatives
            # counts, because all of them are tried.
            steps += len(parts)
            if steps > MAX_STEPS:
                raise PatternError(
                    f"pattern {pattern!r} has too many alternatives that contain **; use fewer alternatives"
                )
            matchers.append(_matcher(parts).matches)
        except re.error as error:
            raise PatternError(f"pattern {pattern!r} is not valid: {error}") from error
    return matchers


_Part: TypeAlias = tuple[str, str]
"""Kind of a pattern part, and its regular expression if it is a text part."""


def _parts(pattern: str) -> list[_Part]:
    parts = []
    position = 0
    for token in _TOKEN.finditer(pattern):
        parts += [*_characters(pattern[position : token.start()]), _expression(token)]
        position = token.end()
    return [*parts, *_characters(pattern[position:])]


def _characters(text: str) -> list[_Part]:
    return [("text", re.escape(character)) for character in text]


def _expression(token: re.Match[str]) -> _Part:
    kind = token.lastgroup or ""
    if kind in ("folders", "all", "some"):
        return kind, ""
    # Characters with a meaning in a set of `re` are escaped. A minus keeps its meaning: ``[a-z]``. The look-ahead keeps
    # the set within one folder, also if it is negated.
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", token["of"] or "")
    return "text", "[^/]" if kind == "one" else rf"(?!/)[{'^' if token['not'] else ''}{inside}]"


def _matcher(parts: list[_Part]) -> WildcardMatcher:
    """Return a matcher for a path pattern, given as its `parts` (texts and wildcards). It works for every pattern, but
    is slower than the regular expression of `_linear_expression`.

    It is used for patterns that `re` could only match with backtracking. For all others, `re` is 100 times faster.
    """
    items: list[Item] = []
    for kind, expression in parts:
        if kind == "folders":
            # ``**/`` stands for any text that ends with a slash, or for nothing: the pair is optional.
            items += [OPTIONAL_PAIR, Repeated(is_any_character), "/"]
        elif kind == "text":
            items.append(character_test(expression))
        else:
            items.append(Repeated(is_any_character if kind == "all" else is_not_slash))
    return WildcardMatcher(items)


def _is_linear(parts: list[_Part]) -> bool:
    """Return whether a path pattern, given as its `parts` (texts and wildcards), can be matched in linear time by a
    regular expression, as `_linear_expression` builds it.

    It cannot if ``**/`` stands behind anything but a whole folder (``a**/``): then it may be empty, or end at several
    places.
    """
    # A leading ``**/`` (part 0) always begins at a folder.
    return all(parts[at - 1][1].endswith("/") for at in range(1, len(parts)) if parts[at][0] == "folders")


# Forms of wildcards that cross folders: greedy if they may backtrack, lazy before a text that is taken at its first
# place.
_FREE = {"folders": "(?:.*/)?", "all": ".*"}
_FIRST = {"folders": "(?:.*?/)??", "all": ".*?"}


def _linear_expression(parts: list[_Part]) -> str:
    """Return a regular expression for the parts (texts and wildcards) of a path pattern, in which at most one wildcard
    backtracks.

    If more wildcards backtracked, a few of them would take exponential time.

    Idea: text before a wildcard can be matched at the first place where it fits, since the wildcard matches all the
    rest. So each such text is an atomic group ``(?>...)`` with a lazy wildcard in front. Only the text behind the last
    wildcard must end at the end of the path, and ``**/`` matches whole folders only. Example: ``a*b**c`` becomes
    ``(?>a(?>[^/]*?b)).*c`` (``test_many_wildcards_take_no_time``).
    """
    # Texts between the wildcards that cross folders: [(wildcard before, its parts), ...].
    # For ``a*b**c`` these are ("", [a, *, b]) and ("all", [c]).
    chunks: list[tuple[str, list[_Part]]] = [("", [])]
    for part in parts:
        if part[0] in _FREE:
            chunks.append((part[0], []))
        else:
            chunks[-1][1].append(part)
    whole = []
    for place, (before, chunk) in enumerate(chunks):
        # A chunk is atomic if a wildcard follows that absorbs the rest. ``**/`` does so only behind a slash.
        after = chunks[place + 1][0] if place + 1 < len(chunks) else ""
        is_before_wildcard = after == "all" or (after == "folders" and chunk[-1:] and chunk[-1][1].endswith("/"))
        text = _chunk_expression(chunk, is_anchored=not is_before_wildcard)
        whole.append(f"(?>{_FIRST.get(before, '')}{text})" if is_before_wildcard else _FREE.get(before, "") + text)
    return "".join(whole)


def _chunk_expression(parts: list[_Part], *, is_anchored: bool) -> str:
    """Return the regular expression for a part of a path pattern, in which ``*`` matches any characters except a slash.
    With `is_anchored`, the text after the last ``*`` must end the path.
    """
    pieces = [""]  # texts, between them a ``*`` each
    for kind, text in parts:
        if kind == "some":
            pieces.append("")
        else:
            pieces[-1] += text
    expression = pieces[0]
    for place, piece in enumerate(pieces[1:], 1):
        is_last = place == len(pieces) - 1
        # Only the last ``*`` before the end may backtrack. The others take the first place that fits.
        expression += f"[^/]*{piece}" if is_last and is_anchored else f"(?>[^/]*?{piece})"
    return expression

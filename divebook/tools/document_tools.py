"""Tools for the environment's documents: read, list, search and write."""

from __future__ import annotations

from typing import Any

from divebook.documents.policy import FileArguments
from divebook.errors import DivebookError
from divebook.text.format import lines_in
from divebook.tools.file_tools import (
    READS,
    WRITES,
    ToolReach,
    coming,
    failed,
)
from divebook.workflow.tools import ToolFunction

_LONGEST = 1_000_000
"""Maximum size in bytes of a document that is searched."""


_SHOWN = 300
"""Maximum number of characters of a matching line."""


def document_reader(reach: ToolReach, *, max_size: int = 10_000_000) -> ToolFunction:
    """Return the tool that reads documents of at most `max_size` bytes."""

    def read_document(path: str, first_line: int = 1, lines: int | None = None) -> str:
        """Read a document.

        Parameters
        ----------
        path
            Its path, or the name that it is known by.
        first_line
            The line to begin at.
        lines
            How many lines to read; by default all.
        """
        text = _text(reach, path, max_size)
        if first_line <= 1 and lines is None:
            return text
        text_lines = lines_in(text)[max(0, first_line - 1) :]
        return "".join(text_lines if lines is None else text_lines[: max(0, lines)])

    return coming(read_document, READS, files=_files(reach))


def document_lister(reach: ToolReach, *, max_entries: int = 200) -> ToolFunction:
    """Return the tool that lists documents."""

    def list_documents(folder: str = "", recursive: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a model gives it by name
        """List the paths of documents.

        Parameters
        ----------
        folder
            Only those below this one.
        recursive
            Whether those in folders inside it are listed as well.
        """
        paths = _paths(reach, folder, recursive=recursive)
        more = {"note": f"limited to {max_entries} of {len(paths)}"} if len(paths) > max_entries else {}
        return {"paths": paths[:max_entries], **more}

    return coming(list_documents, READS, files=_files(reach))


def document_searcher(reach: ToolReach, *, max_matches: int = 50) -> ToolFunction:
    """Return the tool that searches documents for lines."""

    def search_documents(words: str, folder: str = "") -> dict[str, Any]:
        """Find the lines of documents in which all of some words occur, in any order and capitals.

        Parameters
        ----------
        words
            The words, with spaces between them.
        folder
            Only documents below this one.
        """
        needles = words.casefold().split()
        if not needles:
            raise failed("no words were given: name at least one")
        matches: list[dict[str, Any]] = []
        for path in _paths(reach, folder, recursive=True):
            matches += _lines_with(needles, path, reach)
            if len(matches) > max_matches:
                return {"matches": matches[:max_matches], "note": f"limited to {max_matches}: use more words"}
        return {"matches": matches}

    return coming(search_documents, READS, files=_files(reach))


def document_writer(reach: ToolReach) -> ToolFunction:
    """Return the tool that writes documents."""

    def write_document(path: str, content: str) -> str:
        """Write a document whole, replacing what was there.

        Parameters
        ----------
        path
            Its path, or the name that it is known by.
        content
            All that the document is to hold.
        """
        try:
            written = reach.documents.put(path, content)
        except (DivebookError, OSError, UnicodeError) as error:
            raise failed(f"document {path} cannot be written: {error}") from error
        return f"Successfully wrote {len(content)} characters to {written.path}"

    return coming(write_document, WRITES, files=_files(reach))


def _files(reach: ToolReach) -> FileArguments:
    return FileArguments(("path", "folder"), reach.folder, path_of_name=reach.documents.path_named)


def _text(reach: ToolReach, path: str, most: int) -> str:
    try:
        if (size := reach.documents.size(path)) > most:
            raise failed(f"document {path} is too large ({size} bytes): at most {most} bytes can be read")
        return reach.documents.get(path).content
    except (DivebookError, OSError, UnicodeError) as error:
        raise failed(f"document {path} cannot be read: {error}") from error


def _paths(reach: ToolReach, folder: str, *, recursive: bool) -> list[str]:
    try:
        return [path for path in reach.documents.list(folder, recursive=recursive) if not _is_hidden(path)]
    except (DivebookError, OSError) as error:
        raise failed(f"documents of {folder!r} cannot be listed: {error}") from error


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _lines_with(needles: list[str], path: str, reach: ToolReach) -> list[dict[str, Any]]:
    """Return the lines of a document that contain all words. A document that is very long, or not text, has none."""
    try:
        if reach.documents.size(path) > _LONGEST:
            return []
        text = reach.documents.get(path).content
    except (DivebookError, OSError, UnicodeError):
        return []
    folded = ((number, line, line.casefold()) for number, line in enumerate(lines_in(text), start=1))
    return [
        {"path": path, "line": number, "text": line.strip()[:_SHOWN]}
        for number, line, low in folded
        if all(word in low for word in needles)
    ]

"""Looking: ``view``, ``ls``, ``glob`` and ``grep``. Nothing here raises for what an agent asked wrongly: it is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from divebook.errors import PatternError, WorkspaceError
from divebook.text.lines import lines_in
from divebook.text.patterns import MatchTime, compiled
from divebook.text.shown import plural
from divebook.workspace.files import FileOperator
from divebook.workspace.ignored import EXCLUDE, GITIGNORE, IgnoreRules

MOST_CHARACTERS = 60_000
LINES, LINE_LENGTH = 300, 2000
_TOO_LONG = "... (truncated)"
LIMITED = "..."
"""The key under which a search says that it has not shown everything."""
IGNORED = "gitignore"
"""The key under which a search says that it has left files out that git ignores."""
_EXAMPLES = 5
_SEARCHED = ("**/*", "*")


async def view(
    files: FileOperator, path: str, line_offset: int = 0, line_limit: int = LINES, max_line_length: int = LINE_LENGTH
) -> str | dict[str, Any]:
    """Return the text of a file, or of what is too long a part, with how much there is."""
    try:
        text = await files.read_file(path, errors="replace")
    except (WorkspaceError, ValueError) as error:
        return f"Error: {error}"
    lines, first = lines_in(text), max(0, line_offset)
    kept: list[str] = []
    is_cut, left = False, MOST_CHARACTERS
    for line in lines[first : first + max(1, line_limit)]:
        body = line.rstrip("\n")
        is_long = len(body) > max_line_length
        told = f"{body[:max_line_length]}{_TOO_LONG}\n" if is_long else line
        is_cut |= is_long or len(told) > left
        if len(told) > left and kept:
            break  # the next look begins with this line
        kept.append(told[:left])
        left -= len(told)
    if not is_cut and len(kept) == len(lines):
        return text
    metadata = {
        "file_path": path,
        "total_lines": len(lines),
        "total_characters": len(text),
        "first_line": first + 1,
        "lines": len(kept),
    }
    return {"content": "".join(kept), "metadata": metadata}


async def ls(files: FileOperator, path: str = ".", ignore: list[str] | None = None) -> dict[str, Any]:
    """Return what is in a folder."""
    from divebook.documents.globs import matches

    try:
        listed = await files.list_dir_with_types(path)
    except WorkspaceError as error:
        return {"success": False, "error": str(error), "entries": [], "count": 0}
    entries = []
    for name, is_folder in listed:
        try:
            if any(matches(pattern, name) for pattern in ignore or ()):
                continue
        except PatternError as error:
            return {"success": False, "error": str(error), "entries": [], "count": 0}
        entry: dict[str, Any] = {"name": name, "path": name if path in (".", "") else f"{path.rstrip('/')}/{name}"}
        entry["type"] = "directory" if is_folder else "file"
        try:
            found = await files.stat(entry["path"])
        except WorkspaceError:  # a link that leads nowhere, or out
            entry |= {"type": "link", "size": 0}
        else:
            entry["size"] = found["size"]
            if found["mtime"] is not None:
                entry["modified"] = datetime.fromtimestamp(found["mtime"], UTC).isoformat(timespec="seconds")
        entries.append(entry)
    return {"success": True, "entries": entries, "count": len(entries)}


async def glob(files: FileOperator, pattern: str, *, include_ignored: bool = False) -> list[str] | dict[str, Any]:
    """Return the paths that a pattern means, the newest first; without those that git ignores, which are counted."""
    try:
        paths = await files.glob(pattern)
    except (PatternError, WorkspaceError, ValueError) as error:
        return {"error": str(error), "files": []}
    kept, left_out = (paths, []) if include_ignored else await _without_ignored(files, paths)
    if not left_out:
        return kept
    return {
        "files": kept,
        "gitignore_excluded": {"count": len(left_out), "examples": left_out[:_EXAMPLES]},
        "note": "paths that .gitignore excludes are left out: pass include_ignored to see them",
    }


async def _without_ignored(files: FileOperator, paths: list[str]) -> tuple[list[str], list[str]]:
    """Return the paths that git does not ignore, and those that it does.

    Rules are read of each folder around a path, from the outermost on; in an ignored folder none are read.
    """
    rules, known = IgnoreRules(), dict[str, bool]()

    async def is_ignored(folder: str) -> bool:
        """Return whether a folder is ignored; read its rules if not."""
        if folder not in known:
            around, is_absolute = folder.rpartition("/")[0], folder.startswith("/")
            # The rules of the working folder, '', hold for relative paths only.
            is_below = bool(folder) and not (is_absolute and not around) and await is_ignored(around)
            known[folder] = is_below or (bool(folder) and rules.is_ignored(folder, is_folder=True))
            if not known[folder]:
                for name in (GITIGNORE, EXCLUDE):
                    if (text := await _text_of(files, f"{folder}/{name}" if folder else name)) is not None:
                        rules.add(folder, text, is_exclude=name == EXCLUDE)
        return known[folder]

    kept, left_out = list[str](), list[str]()
    for path in paths:
        is_out = await is_ignored(path.rpartition("/")[0]) or rules.is_ignored(path)
        # Only a folder is asked about, and only where a rule of folders would leave it out.
        if not is_out and rules.is_ignored(path, is_folder=True):
            is_out = await files.is_dir(path)
        (left_out if is_out else kept).append(path)
    return kept, left_out


async def _text_of(files: FileOperator, path: str) -> str | None:
    try:
        return await files.read_file(path, errors="replace")
    except WorkspaceError:  # it is not there, or lies outside
        return None


async def grep(  # noqa: PLR0917 - a model gives them by name
    files: FileOperator,
    pattern: str,
    include: str | None = None,
    context_lines: int = 2,
    max_results: int = 100,
    max_matches_per_file: int = 20,
    max_files: int = 50,
    *,
    include_ignored: bool = False,
) -> dict[str, Any]:
    """Return the lines that a regular expression finds, by ``file:line``; files that git ignores are not searched."""
    try:
        compiled(pattern)
        paths, left_out = await files.glob(include or _SEARCHED[0]), list[str]()
    except (PatternError, WorkspaceError, ValueError) as error:
        return {"error": str(error)}
    if not include_ignored:
        paths, left_out = await _without_ignored(files, paths)
    found = await _search(files, pattern, paths, context_lines, max_results, max_matches_per_file, max_files)
    if left_out:
        found[IGNORED] = f"{plural(len(left_out), 'path')} that .gitignore excludes not searched: pass include_ignored"
    return found


async def _search(  # noqa: PLR0917 - as `grep`
    files: FileOperator,
    pattern: str,
    paths: list[str],
    context_lines: int,
    max_results: int,
    max_matches_per_file: int,
    max_files: int,
) -> dict[str, Any]:
    """Return the lines of some files that an expression finds."""
    found: dict[str, Any] = {}
    with_matches, time = 0, MatchTime()
    for path in paths:
        try:
            lines = lines_in(await files.read_file(path))
        except WorkspaceError:  # a folder, or no text
            continue
        try:
            hits = await asyncio.to_thread(_matching, pattern, lines, time)
        except PatternError as error:
            found[LIMITED] = f"stopped at {path}: {error}"
            break
        if not hits:
            continue
        if 0 <= max_files <= with_matches:
            found[LIMITED] = f"stopped after {max_files} files with matches, the newest first: narrow the search"
            break
        with_matches += 1
        for at in hits if max_matches_per_file < 0 else hits[:max_matches_per_file]:
            if len(found) >= max_results:
                found[LIMITED] = f"stopped after {max_results} matches: narrow the search"
                return found
            found[f"{path}:{at + 1}"] = _match(path, lines, at, context_lines)
    return found


def _matching(pattern: str, lines: list[str], time: MatchTime) -> list[int]:
    """Return the indexes of the lines that match; PatternError once the time is over."""
    return [at for at, line in enumerate(lines) if time.contains(pattern, line.rstrip("\r\n"))]


def _match(path: str, lines: list[str], at: int, around: int) -> dict[str, Any]:
    first = max(0, at - around)
    return {
        "line_number": at + 1,
        "matching_line": lines[at].rstrip("\r\n"),
        "context": "".join(lines[first : at + around + 1]),
        "context_start_line": first + 1,
        "file_path": path,
    }

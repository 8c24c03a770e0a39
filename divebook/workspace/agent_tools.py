"""Changing: ``edit``, ``multi_edit``, ``replace``, ``mkdir``, ``move``, ``copy`` and ``delete``."""

from __future__ import annotations

import asyncio
import difflib
import functools
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from divebook.errors import PatternError, ProcessIdError, ShellExecutionError, ShellTimeoutError, WorkspaceError
from divebook.text.format import lines_in, plural
from divebook.text.patterns import MatchTime, compiled
from divebook.workspace.background import BackgroundProcess, OutputLine, ProcessManager
from divebook.workspace.files import EXCLUDE, GITIGNORE, FileOperator, IgnoreRules
from divebook.workspace.shell import Shell

MOST_OF_DIFF = 4_000
"""Characters of a difference that an agent is shown."""


class _RefusedError(Exception):
    """An edit makes no sense; the text says why."""


async def edit(files: FileOperator, path: str, old_string: str, new_string: str, *, replace_all: bool = False) -> str:
    """Replace a text that occurs once, or wherever it occurs; with no old text, create the file."""
    return await multi_edit(
        files, path, [{"old_string": old_string, "new_string": new_string, "replace_all": replace_all}]
    )


async def multi_edit(files: FileOperator, path: str, edits: Sequence[Mapping[str, Any]]) -> str:
    """Make several edits of a file, each of what the one before it left; all of them or none."""
    try:
        return await _edited(files, path, edits)
    except _RefusedError as error:
        return f"Error: {error}"
    except (WorkspaceError, ValueError) as error:
        return f"Error: {error}"


async def _edited(files: FileOperator, path: str, edits: Sequence[Mapping[str, Any]]) -> str:
    if not edits:
        raise _RefusedError("there is no edit")
    creates = not edits[0].get("old_string")
    if creates and await files.exists(path):
        raise _RefusedError(f"File already exists: {path}. Give the text to replace, or use replace")
    before = "" if creates else await files.read_file(path)
    after = before
    for number, one in enumerate(edits, 1):
        where = f" (edit {number} of {len(edits)})" if len(edits) > 1 else ""
        old = str(one.get("old_string") or "")
        new = str(one.get("new_string") or "")
        if not old:
            if number > 1:
                raise _RefusedError(f"old_string is empty{where}: only the first edit can create a file")
            after = new
            continue
        count = after.count(old)
        if count == 0:
            raise _RefusedError(f"old_string not found in {path}{where}")
        if count > 1 and not one.get("replace_all"):
            raise _RefusedError(
                f"old_string occurs {count} times in {path}{where}: give more around it, or replace_all"
            )
        after = after.replace(old, new)
    await files.write_file(path, after)
    if creates:
        return f"File created: {path}"
    return f"{path} was changed:\n{difference(path, before, after)}"


def difference(path: str, before: str, after: str) -> str:
    """Return what has changed in a text, as a unified difference, cut if it is long."""
    lines = difflib.unified_diff(lines_in(before), lines_in(after), path, path, n=2)
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return text if len(text) <= MOST_OF_DIFF else f"{text[:MOST_OF_DIFF]}\n... and more"


async def replace(files: FileOperator, path: str, content: str, mode: str = "w") -> str:
    """Write a file whole, or add to its end with the mode ``a``."""
    if mode not in ("w", "a"):
        return f"Error: mode must be w (write) or a (append), not {mode!r}"
    try:
        await (files.write_file if mode == "w" else files.append_file)(path, content)
    except WorkspaceError as error:
        return f"Error: {error}"
    return f"{'Wrote' if mode == 'w' else 'Added'} {len(content)} characters {'to' if mode == 'a' else 'into'} {path}"


async def mkdir(files: FileOperator, paths: Sequence[str], *, parents: bool = False) -> dict[str, Any]:
    """Make folders; what became of each is told."""
    make = functools.partial(files.mkdir, parents=parents)
    results = [await _one(path, make) for path in paths]
    good = sum(each["success"] for each in results)
    summary = {"total": len(results), "successful": good, "failed": len(results) - good}
    return {"success": good == len(results), "results": results, "summary": summary}


async def _one(path: str, act: Callable[[str], Awaitable[None]]) -> dict[str, Any]:
    try:
        await act(path)
    except WorkspaceError as error:
        return {"path": path, "success": False, "message": str(error)}
    return {"path": path, "success": True, "message": "done"}


async def move(
    files: FileOperator, pairs: Sequence[Mapping[str, str]], *, overwrite: bool = False
) -> list[dict[str, Any]]:
    """Move files and folders; what became of each is told."""
    return [await _carried(files, pair, files.move, overwrite=overwrite, only_files=False) for pair in pairs]


async def copy(
    files: FileOperator, pairs: Sequence[Mapping[str, str]], *, overwrite: bool = False
) -> list[dict[str, Any]]:
    """Copy files; what became of each is told."""
    return [await _carried(files, pair, files.copy, overwrite=overwrite, only_files=True) for pair in pairs]


async def _carried(
    files: FileOperator,
    pair: Mapping[str, str],
    act: Callable[[str, str], Awaitable[None]],
    *,
    overwrite: bool,
    only_files: bool,
) -> dict[str, Any]:
    source = str(pair.get("src", ""))
    target = str(pair.get("dst", ""))
    told: dict[str, Any] = {"src": source, "dst": target}
    if not (source and target):
        return {**told, "success": False, "message": "a pair needs both src and dst"}
    try:
        if only_files and not await files.is_file(source):
            return {**told, "success": False, "message": f"{source} is not a file"}
        if await files.is_dir(target):  # it goes into that, under its name
            target = f"{target.rstrip('/')}/{source.rstrip('/').rpartition('/')[2]}"
        if not overwrite and await files.is_file(target):
            return {**told, "success": False, "message": f"{target} already exists: set overwrite to replace it"}
        await act(source, target)
    except (WorkspaceError, ValueError) as error:
        return {**told, "success": False, "message": str(error)}
    return {**told, "success": True, "message": "done"}


async def delete(files: FileOperator, path: str) -> str:
    """Remove a file or an empty folder."""
    try:
        await files.delete(path)
    except WorkspaceError as error:
        return f"Error: {error}"
    return f"{path} was deleted"


# Processes that go on beside others: ``spawn_process``, ``read_process_output`` and what else is done with them.


MOST_LINES = 100
LONGEST_WAIT = 60.0
"""Seconds that one call may wait for output."""
_INTERRUPTED = "; processes end when the run rests or is interrupted: start it again if it is needed"


async def spawn(
    manager: ProcessManager,
    command: str,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    *,
    takes_input: bool = False,
) -> dict[str, Any]:
    """Start a command that goes on; what it is called is told."""
    if not command.strip():
        return _failed("the command is empty")
    try:
        argv = ["-c", command]
        process = await manager.spawn("/bin/sh", argv, env=environment, cwd=cwd, takes_input=takes_input)
    except (WorkspaceError, ValueError) as error:
        return _failed(str(error))
    return _told(process)


async def read(
    manager: ProcessManager, process_id: str, wait_seconds: float = 0.0, max_lines: int = MOST_LINES
) -> dict[str, Any]:
    """Return what a process has printed since the last call; wait for it a while where there is nothing."""
    if not (math.isfinite(wait_seconds) and max_lines > 0):
        return _failed("wait_seconds must be a number of seconds, and max_lines 1 or more")
    try:
        process = manager.require(process_id)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    lines = await process.next_output(min(wait_seconds, LONGEST_WAIT), max_lines)
    told = {**_told(process), "stdout": _text(lines, is_error=False), "stderr": _text(lines, is_error=True)}
    return {**told, "dropped_lines": process.dropped_lines} if process.dropped_lines else told


def write(manager: ProcessManager, process_id: str, text: str, *, is_last: bool = False) -> dict[str, Any]:
    """Give a process something to read."""
    try:
        process = manager.require(process_id)
        process.write_input(text, is_last=is_last)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    except WorkspaceError as error:
        return _failed(str(error))
    return _told(process)


async def kill(manager: ProcessManager, process_id: str) -> dict[str, Any]:
    """End a process with all that it has started."""
    try:
        process = manager.require(process_id)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    was_running = await process.kill()
    return {**_told(process), "was_running": was_running}


def listed(manager: ProcessManager) -> list[dict[str, Any]]:
    """Return all processes that are known, and how each is."""
    return [_told(process) for process in manager.list()]


def _told(process: BackgroundProcess) -> dict[str, Any]:
    command = process.command[-1] if process.command[:2] == ("/bin/sh", "-c") else " ".join(process.command)
    told: dict[str, Any] = {"process_id": process.process_id, "command": command, "status": process.status}
    return told | ({} if process.exit_code is None else {"return_code": process.exit_code})


def _text(lines: Sequence[OutputLine], *, is_error: bool) -> str:
    return "".join(f"{line.text}\n" for line in lines if line.is_error is is_error)


def _failed(why: str) -> dict[str, Any]:
    return {"error": why}


# Running: ``shell``, with output that an agent can take in.


MOST_CHARACTERS = 20_000
TIMEOUT = 180.0


async def shell(  # noqa: PLR0917 - a model gives them by name
    runs: Shell,
    files: FileOperator | None,
    command: str,
    timeout_seconds: float = TIMEOUT,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    """Run a command; what it printed and how it ended is told, and where the whole is of what is too long."""
    if not command.strip():
        return _failed_run("the command is empty")
    try:
        found = await runs.execute(command, timeout=timeout_seconds, env=environment, cwd=cwd)
    except ShellTimeoutError as error:
        said = {"stdout": error.stdout, "stderr": error.stderr}
        return _failed_run(str(error)) | await _cut(files, said)
    except (ShellExecutionError, WorkspaceError, ValueError) as error:
        return _failed_run(str(error))
    said = {"stdout": found.stdout, "stderr": found.stderr}
    wholes = {"stdout": found.stdout_file, "stderr": found.stderr_file}
    told = await _cut(files, said, wholes)
    return {**told, "return_code": found.exit_code}


def _failed_run(why: str) -> dict[str, Any]:
    return {"stdout": "", "stderr": "", "return_code": 1, "error": why}


async def _cut(
    files: FileOperator | None, said: Mapping[str, str], wholes: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """Return what was said, cut where it is long, with the paths of files that have it whole."""
    told: dict[str, Any] = {}
    for name, text in said.items():
        path = (wholes or {}).get(name)
        is_long = len(text) > MOST_CHARACTERS
        if is_long and path is None and files is not None and files.tmp_dir is not None:  # no shell has kept it
            path = await files.write_tmp_file(f"{name}-{uuid.uuid4().hex[:8]}.log", text)
        told[name] = text if not is_long else f"{text[:MOST_CHARACTERS]}\n... (truncated)"
        if path is not None:
            told[f"{name}_file_path"] = path
    return told


# Looking: ``view``, ``ls``, ``glob`` and ``grep``. Nothing here raises for what an agent asked wrongly: it is told.


MOST_VIEWED_CHARACTERS = 60_000
LINES = 300
LINE_LENGTH = 2000
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
    lines = lines_in(text)
    first = max(0, line_offset)
    kept: list[str] = []
    is_cut = False
    left = MOST_VIEWED_CHARACTERS
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
    from divebook.documents.repository import matches

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
    rules = IgnoreRules()
    known = dict[str, bool]()

    async def is_ignored(folder: str) -> bool:
        """Return whether a folder is ignored; read its rules if not."""
        if folder not in known:
            around = folder.rpartition("/")[0]
            is_absolute = folder.startswith("/")
            # The rules of the working folder, '', hold for relative paths only.
            is_below = bool(folder) and not (is_absolute and not around) and await is_ignored(around)
            known[folder] = is_below or (bool(folder) and rules.is_ignored(folder, is_folder=True))
            if not known[folder]:
                for name in (GITIGNORE, EXCLUDE):
                    if (text := await _text_of(files, f"{folder}/{name}" if folder else name)) is not None:
                        rules.add(folder, text, is_exclude=name == EXCLUDE)
        return known[folder]

    kept = list[str]()
    left_out = list[str]()
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
        paths = await files.glob(include or _SEARCHED[0])
        left_out = list[str]()
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
    with_matches = 0
    time = MatchTime()
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

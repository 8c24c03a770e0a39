"""Implementation of the workspace tools of agents. Errors are returned as results, so that the agent's model can react.

Changes: ``edit``, ``multi_edit``, ``replace``, ``mkdir``, ``move``, ``copy``, ``delete``. Commands: ``shell`` and
background processes. Reading: ``view``, ``ls``, ``glob``, ``grep``.
"""

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
from divebook.workspaces.background import BackgroundProcess, OutputLine, ProcessManager
from divebook.workspaces.files import EXCLUDE, GITIGNORE, FileOperator, IgnoreRules
from divebook.workspaces.shell import Shell

MOST_OF_DIFF = 4_000
"""Maximum number of characters of a diff that an agent gets."""


class _RefusedError(Exception):
    """Error for an edit of a file that cannot be made. Its text is the reason."""


async def edit(files: FileOperator, path: str, old_string: str, new_string: str, *, replace_all: bool = False) -> str:
    """Replace a text in a file: its only occurrence, or with `replace_all` every occurrence. With an empty old text,
    create the file. Return a message for the agent's model.
    """
    return await multi_edit(
        files, path, [{"old_string": old_string, "new_string": new_string, "replace_all": replace_all}]
    )


async def multi_edit(files: FileOperator, path: str, edits: Sequence[Mapping[str, Any]]) -> str:
    """Make several edits of a file one after the other. If one of them is invalid, none is made. Return a message for
    the agent's model, in both cases.
    """
    try:
        return await _apply_edits(files, path, edits)
    except _RefusedError as error:
        return f"Error: {error}"
    except (WorkspaceError, ValueError) as error:
        return f"Error: {error}"


async def _apply_edits(files: FileOperator, path: str, edits: Sequence[Mapping[str, Any]]) -> str:
    """Make all edits of a file in memory, then write the file once. Return a message with the changes. Raise
    `_RefusedError` for the first invalid edit, without writing.
    """
    if not edits:
        raise _RefusedError("there is no edit")
    # Each edit sees the result of those before it. An empty old text means "create the file", which only the first edit
    # can do.
    creates = not edits[0].get("old_string")
    if creates and await files.exists(path):
        raise _RefusedError(f"File already exists: {path}. Give the text to replace, or use replace")
    before = "" if creates else await files.read_file(path)
    after = before
    for number, item in enumerate(edits, 1):
        position = f" (edit {number} of {len(edits)})" if len(edits) > 1 else ""
        old = str(item.get("old_string") or "")
        new = str(item.get("new_string") or "")
        if not old:
            if number > 1:
                raise _RefusedError(f"old_string is empty{position}: only the first edit can create a file")
            after = new
            continue
        count = after.count(old)
        if count == 0:
            raise _RefusedError(f"old_string not found in {path}{position}")
        if count > 1 and not item.get("replace_all"):
            raise _RefusedError(
                f"old_string occurs {count} times in {path}{position}: give more around it, or replace_all"
            )
        after = after.replace(old, new)
    await files.write_file(path, after)
    if creates:
        return f"File created: {path}"
    return f"{path} was changed:\n{difference(path, before, after)}"


def difference(path: str, before: str, after: str) -> str:
    """Return the difference between the old and the new text of a file as a unified diff, cut at a maximum length."""
    lines = difflib.unified_diff(lines_in(before), lines_in(after), path, path, n=2)
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return text if len(text) <= MOST_OF_DIFF else f"{text[:MOST_OF_DIFF]}\n... and more"


async def replace(files: FileOperator, path: str, content: str, mode: str = "w") -> str:
    """Replace the whole content of a file, or append to the file with the mode ``a``. Return a message for the agent's
    model.
    """
    if mode not in ("w", "a"):
        return f"Error: mode must be w (write) or a (append), not {mode!r}"
    try:
        await (files.write_file if mode == "w" else files.append_file)(path, content)
    except WorkspaceError as error:
        return f"Error: {error}"
    return f"{'Wrote' if mode == 'w' else 'Added'} {len(content)} characters {'to' if mode == 'a' else 'into'} {path}"


async def mkdir(files: FileOperator, paths: Sequence[str], *, parents: bool = False) -> dict[str, Any]:
    """Create folders. Return success or error of each folder, and a summary."""
    make = functools.partial(files.mkdir, parents=parents)
    results = [await _one(path, make) for path in paths]
    successful = sum(each["success"] for each in results)
    summary = {"total": len(results), "successful": successful, "failed": len(results) - successful}
    return {"success": successful == len(results), "results": results, "summary": summary}


async def _one(path: str, act: Callable[[str], Awaitable[None]]) -> dict[str, Any]:
    try:
        await act(path)
    except WorkspaceError as error:
        return {"path": path, "success": False, "message": str(error)}
    return {"path": path, "success": True, "message": "done"}


async def move(
    files: FileOperator, pairs: Sequence[Mapping[str, str]], *, overwrite: bool = False
) -> list[dict[str, Any]]:
    """Move files and folders. Each pair has a source and a target; return success or error of each pair."""
    return [await _transfer(files, pair, files.move, overwrite=overwrite, only_files=False) for pair in pairs]


async def copy(
    files: FileOperator, pairs: Sequence[Mapping[str, str]], *, overwrite: bool = False
) -> list[dict[str, Any]]:
    """Copy files. Each pair has a source and a target; return success or error of each pair."""
    return [await _transfer(files, pair, files.copy, overwrite=overwrite, only_files=True) for pair in pairs]


async def _transfer(
    files: FileOperator,
    pair: Mapping[str, str],
    act: Callable[[str, str], Awaitable[None]],
    *,
    overwrite: bool,
    only_files: bool,
) -> dict[str, Any]:
    """Move or copy one source to its target. Return success or error, as the tool reports it to the model."""
    source = str(pair.get("src", ""))
    target = str(pair.get("dst", ""))
    result: dict[str, Any] = {"src": source, "dst": target}
    if not (source and target):
        return {**result, "success": False, "message": "a pair needs both src and dst"}
    try:
        if only_files and not await files.is_file(source):
            return {**result, "success": False, "message": f"{source} is not a file"}
        # The final path is computed here, because `overwrite` must be checked for the file that would be replaced.
        if await files.is_dir(target):  # the source goes into this folder, with its name
            target = f"{target.rstrip('/')}/{source.rstrip('/').rpartition('/')[2]}"
        if not overwrite and await files.is_file(target):
            return {**result, "success": False, "message": f"{target} already exists: set overwrite to replace it"}
        await act(source, target)
    except (WorkspaceError, ValueError) as error:
        return {**result, "success": False, "message": str(error)}
    return {**result, "success": True, "message": "done"}


async def delete(files: FileOperator, path: str) -> str:
    """Delete a file or an empty folder. Return a message for the agent's model."""
    try:
        await files.delete(path)
    except WorkspaceError as error:
        return f"Error: {error}"
    return f"{path} was deleted"


# --- background processes ---


MOST_LINES = 100
LONGEST_WAIT = 60.0
"""Maximum number of seconds that a tool call waits for output of a process."""
_INTERRUPTED = "; processes end when the run rests or is interrupted: start it again if it is needed"


async def spawn(
    manager: ProcessManager,
    command: str,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    *,
    takes_input: bool = False,
) -> dict[str, Any]:
    """Start a command in the background of the workspace. Return its process id and status."""
    if not command.strip():
        return _failed("the command is empty")
    try:
        # A shell runs the line, so that it may contain pipes and variables. `_summary` shows the line without the
        # shell.
        argv = ["-c", command]
        process = await manager.spawn("/bin/sh", argv, env=environment, cwd=cwd, takes_input=takes_input)
    except (WorkspaceError, ValueError) as error:
        return _failed(str(error))
    return _summary(process)


async def read(
    manager: ProcessManager, process_id: str, wait_seconds: float = 0.0, max_lines: int = MOST_LINES
) -> dict[str, Any]:
    """Return the unread output of a background process, with the status of the process. Without unread output, wait for
    some for up to `wait_seconds`.
    """
    if not (math.isfinite(wait_seconds) and max_lines > 0):
        return _failed("wait_seconds must be a number of seconds, and max_lines 1 or more")
    try:
        process = manager.require(process_id)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    lines = await process.next_output(min(wait_seconds, LONGEST_WAIT), max_lines)
    result = {**_summary(process), "stdout": _text(lines, is_error=False), "stderr": _text(lines, is_error=True)}
    return {**result, "dropped_lines": process.dropped_lines} if process.dropped_lines else result


def write(manager: ProcessManager, process_id: str, text: str, *, is_last: bool = False) -> dict[str, Any]:
    """Write text to the input of a background process. Return the status of the process, or an error."""
    try:
        process = manager.require(process_id)
        process.write_input(text, is_last=is_last)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    except WorkspaceError as error:
        return _failed(str(error))
    return _summary(process)


async def kill(manager: ProcessManager, process_id: str) -> dict[str, Any]:
    """End a background process with all its descendants. Return the status of the process, or an error."""
    try:
        process = manager.require(process_id)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    was_running = await process.kill()
    return {**_summary(process), "was_running": was_running}


def list_processes(manager: ProcessManager) -> list[dict[str, Any]]:
    """Return id, command and status of each background process of the workspace."""
    return [_summary(process) for process in manager.list()]


def _summary(process: BackgroundProcess) -> dict[str, Any]:
    command = process.command[-1] if process.command[:2] == ("/bin/sh", "-c") else " ".join(process.command)
    result: dict[str, Any] = {"process_id": process.process_id, "command": command, "status": process.status}
    return result | ({} if process.exit_code is None else {"return_code": process.exit_code})


def _text(lines: Sequence[OutputLine], *, is_error: bool) -> str:
    return "".join(f"{line.text}\n" for line in lines if line.is_error is is_error)


def _failed(reason: str) -> dict[str, Any]:
    return {"error": reason}


# --- commands ---


MOST_CHARACTERS = 20_000
TIMEOUT = 180.0


async def shell(  # noqa: PLR0917 - a model gives them by name
    command_shell: Shell,
    files: FileOperator | None,
    command: str,
    timeout_seconds: float = TIMEOUT,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    """Run a command and return its exit code and output. Output that is too long is cut, and the result names a file
    with the whole output.
    """
    if not command.strip():
        return _failed_run("the command is empty")
    try:
        result = await command_shell.execute(command, timeout=timeout_seconds, env=environment, cwd=cwd)
    except ShellTimeoutError as error:
        streams = {"stdout": error.stdout, "stderr": error.stderr}
        # The right side wins: the output until the time limit replaces the empty streams.
        return _failed_run(str(error)) | await _cut(files, streams)
    except (ShellExecutionError, WorkspaceError, ValueError) as error:
        return _failed_run(str(error))
    streams = {"stdout": result.stdout, "stderr": result.stderr}
    wholes = {"stdout": result.stdout_file, "stderr": result.stderr_file}
    output = await _cut(files, streams, wholes)
    return {**output, "return_code": result.exit_code}


def _failed_run(reason: str) -> dict[str, Any]:
    return {"stdout": "", "stderr": "", "return_code": 1, "error": reason}


async def _cut(
    files: FileOperator | None, streams: Mapping[str, str], wholes: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """Return a dict of a command's stdout and stderr, each cut at a maximum length. For a stream that was cut, it also
    has the path of a file with the whole stream, if there is a folder for temporary files.
    """
    result: dict[str, Any] = {}
    for name, text in streams.items():
        path = (wholes or {}).get(name)
        is_long = len(text) > MOST_CHARACTERS
        if (
            is_long and path is None and files is not None and files.tmp_dir is not None
        ):  # the shell has not written it into a file
            path = await files.write_tmp_file(f"{name}-{uuid.uuid4().hex[:8]}.log", text)
        result[name] = text if not is_long else f"{text[:MOST_CHARACTERS]}\n... (truncated)"
        if path is not None:
            result[f"{name}_file_path"] = path
    return result


# --- reading: wrong arguments of an agent result in an error text, not an exception ---


MOST_VIEWED_CHARACTERS = 60_000
LINES = 300
LINE_LENGTH = 2000
_TOO_LONG = "... (truncated)"
LIMITED = "..."
"""Key of a search result that explains why the result is incomplete."""
IGNORED = "gitignore"
"""Key of a search result that states how many ignored files were not searched."""
_EXAMPLES = 5
_SEARCHED = ("**/*", "*")


async def view(
    files: FileOperator, path: str, line_offset: int = 0, line_limit: int = LINES, max_line_length: int = LINE_LENGTH
) -> str | dict[str, Any]:
    """Return the text of a file. Of a long file, return only a part of the lines, and the size of the whole file."""
    try:
        text = await files.read_file(path, errors="replace")
    except (WorkspaceError, ValueError) as error:
        return f"Error: {error}"
    lines = lines_in(text)
    first = max(0, line_offset)
    shown: list[str] = []
    is_cut = False
    # Characters that still fit into the answer.
    room = MOST_VIEWED_CHARACTERS
    for line in lines[first : first + max(1, line_limit)]:
        body = line.rstrip("\n")
        is_long = len(body) > max_line_length
        cut_line = f"{body[:max_line_length]}{_TOO_LONG}\n" if is_long else line
        is_cut |= is_long or len(cut_line) > room
        # Whole lines only, except for a first line that alone is too long.
        if len(cut_line) > room and shown:
            break  # the next call starts with this line
        shown.append(cut_line[:room])
        room -= len(cut_line)
    if not is_cut and len(shown) == len(lines):
        return text
    metadata = {
        "file_path": path,
        "total_lines": len(lines),
        "total_characters": len(text),
        "first_line": first + 1,
        "lines": len(shown),
    }
    return {"content": "".join(shown), "metadata": metadata}


async def ls(files: FileOperator, path: str = ".", ignore: list[str] | None = None) -> dict[str, Any]:
    """Return the entries of a folder with kind, size and modification time."""
    from divebook.documents.repository import matches

    try:
        names = await files.list_dir_with_types(path)
    except WorkspaceError as error:
        return {"success": False, "error": str(error), "entries": [], "count": 0}
    entries = []
    for name, is_folder in names:
        try:
            if any(matches(pattern, name) for pattern in ignore or ()):
                continue
        except PatternError as error:
            return {"success": False, "error": str(error), "entries": [], "count": 0}
        # The path must be usable in the next call of a tool, so it is relative like the argument.
        entry: dict[str, Any] = {"name": name, "path": name if path in (".", "") else f"{path.rstrip('/')}/{name}"}
        entry["type"] = "directory" if is_folder else "file"
        try:
            status = await files.stat(entry["path"])
        except WorkspaceError:  # a link that leads nowhere, or out
            entry |= {"type": "link", "size": 0}
        else:
            entry["size"] = status["size"]
            if status["mtime"] is not None:
                entry["modified"] = datetime.fromtimestamp(status["mtime"], UTC).isoformat(timespec="seconds")
        entries.append(entry)
    return {"success": True, "entries": entries, "count": len(entries)}


async def glob(files: FileOperator, pattern: str, *, include_ignored: bool = False) -> list[str] | dict[str, Any]:
    """Return the paths of the workspace that match a glob pattern, newest first. Paths that git ignores are only
    counted.
    """
    try:
        paths = await files.glob(pattern)
    except (PatternError, WorkspaceError, ValueError) as error:
        return {"error": str(error), "files": []}
    paths_shown, left_out = (paths, []) if include_ignored else await _without_ignored(files, paths)
    if not left_out:
        return paths_shown
    return {
        "files": paths_shown,
        "gitignore_excluded": {"count": len(left_out), "examples": left_out[:_EXAMPLES]},
        "note": "paths that .gitignore excludes are left out: pass include_ignored to see them",
    }


async def _without_ignored(files: FileOperator, paths: list[str]) -> tuple[list[str], list[str]]:
    """Split paths into two lists: paths that git does not ignore, and paths that git ignores.

    Rules are read from each folder around a path, the outermost first. In an ignored folder no rules are read.
    """
    rules = IgnoreRules()
    # The rules of a folder are read once, when the first path below it is examined.
    is_ignored_by_folder = dict[str, bool]()

    async def is_ignored(folder: str) -> bool:
        """Return True if git ignores a folder. If git does not ignore it, read the ignore rules in the folder, for the
        paths below it.
        """
        if folder not in is_ignored_by_folder:
            parent = folder.rpartition("/")[0]
            is_absolute = folder.startswith("/")
            # The rules of the working folder, '', hold for relative paths only.
            is_below = bool(folder) and not (is_absolute and not parent) and await is_ignored(parent)
            is_ignored_by_folder[folder] = is_below or (bool(folder) and rules.is_ignored(folder, is_folder=True))
            if not is_ignored_by_folder[folder]:
                for name in (GITIGNORE, EXCLUDE):
                    text = await _text_of(files, f"{folder}/{name}" if folder else name)
                    if text is not None:
                        rules.add(folder, text, is_exclude=name == EXCLUDE)
        return is_ignored_by_folder[folder]

    included = list[str]()
    left_out = list[str]()
    for path in paths:
        is_out = await is_ignored(path.rpartition("/")[0]) or rules.is_ignored(path)
        # The kind of a path is looked up only if a rule for folders would ignore it.
        if not is_out and rules.is_ignored(path, is_folder=True):
            is_out = await files.is_dir(path)
        (left_out if is_out else included).append(path)
    return included, left_out


async def _text_of(files: FileOperator, path: str) -> str | None:
    try:
        return await files.read_file(path, errors="replace")
    except WorkspaceError:  # it does not exist, or lies outside
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
    """Search the files of a workspace for a regular expression. Return the matching lines by ``file:line``. Files that
    git ignores are skipped.
    """
    try:
        # A wrong pattern is reported before any file is read.
        compiled(pattern)
        paths = await files.glob(include or _SEARCHED[0])
        left_out = list[str]()
    except (PatternError, WorkspaceError, ValueError) as error:
        return {"error": str(error)}
    if not include_ignored:
        paths, left_out = await _without_ignored(files, paths)
    result = await _search(files, pattern, paths, context_lines, max_results, max_matches_per_file, max_files)
    if left_out:
        result[IGNORED] = f"{plural(len(left_out), 'path')} that .gitignore excludes not searched: pass include_ignored"
    return result


async def _search(  # noqa: PLR0917 - as `grep`
    files: FileOperator,
    pattern: str,
    paths: list[str],
    context_lines: int,
    max_results: int,
    max_matches_per_file: int,
    max_files: int,
) -> dict[str, Any]:
    """Search files for a pattern, in the order of `paths`. Return the matching lines with their context. Stop at the
    maximum number of matches or of files.
    """
    result: dict[str, Any] = {}
    with_matches = 0
    # One limit for the whole search. In a thread, since a pattern with nested repetitions may use all of it.
    time = MatchTime()
    for path in paths:
        try:
            lines = lines_in(await files.read_file(path))
        except WorkspaceError:  # a folder, or no text
            continue
        try:
            hits = await asyncio.to_thread(_matching, pattern, lines, time)
        except PatternError as error:
            result[LIMITED] = f"stopped at {path}: {error}"
            break
        if not hits:
            continue
        # A negative maximum means no limit, here and for the matches per file.
        if 0 <= max_files <= with_matches:
            result[LIMITED] = f"stopped after {max_files} files with matches, the newest first: narrow the search"
            break
        with_matches += 1
        for at in hits if max_matches_per_file < 0 else hits[:max_matches_per_file]:
            if len(result) >= max_results:
                result[LIMITED] = f"stopped after {max_results} matches: narrow the search"
                return result
            result[f"{path}:{at + 1}"] = _match(path, lines, at, context_lines)
    return result


def _matching(pattern: str, lines: list[str], time: MatchTime) -> list[int]:
    """Return the indexes of the lines of a file that match a regular expression. Raise `PatternError` if the matching
    takes too long.
    """
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

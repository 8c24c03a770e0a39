"""Changing: ``edit``, ``multi_edit``, ``replace``, ``mkdir``, ``move``, ``copy`` and ``delete``."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from divebook.errors import WorkspaceError
from divebook.text.lines import lines_in
from divebook.workspace.files import FileOperator

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
        old, new = str(one.get("old_string") or ""), str(one.get("new_string") or "")
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
    source, target = str(pair.get("src", "")), str(pair.get("dst", ""))
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

"""Tools of agents that have a workspace: view, change and search its files, and run commands.

The tools work in the workspace of the current call of an execution (`divebook.workspaces.workspace`). Changes in a copy
of a folder need no approval, because nothing is lost: a person sees them before they are applied to the folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from divebook.definitions.resources import CONTAINED, IF_DESTRUCTIVE, WorkspaceDefinition
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.workspaces import agent_tools
from divebook.workspaces.background import process_manager
from divebook.workspaces.workspace import present_workspace

SHELL = "shell"


# The docstrings of the following functions are the descriptions of the tools, which models read.
async def view(file_path: str, line_offset: int = 0, line_limit: int = agent_tools.LINES) -> Any:
    """Read a text file, or some lines of it.

    Parameters
    ----------
    file_path
        Path of the file.
    line_offset
        Number of lines to skip.
    line_limit
        Maximum number of lines to show.
    """
    return await agent_tools.view(present_workspace().file_operator, file_path, line_offset, line_limit)


async def ls(path: str = ".", ignore: list[str] | None = None) -> dict[str, Any]:
    """List the entries of a folder.

    Parameters
    ----------
    path
        Path of the folder.
    ignore
        Patterns of names to leave out.
    """
    return await agent_tools.ls(present_workspace().file_operator, path, ignore)


async def glob(pattern: str, include_ignored: bool = False) -> Any:  # noqa: FBT001, FBT002 - a model gives it by name
    """Find files by a pattern such as ``src/**/*.py``, the newest first.

    Parameters
    ----------
    pattern
        The pattern: * within a name, ** over folders.
    include_ignored
        Whether to find files that .gitignore excludes too.
    """
    return await agent_tools.glob(present_workspace().file_operator, pattern, include_ignored=include_ignored)


async def grep(
    pattern: str,
    include: str | None = None,
    context_lines: int = 2,
    include_ignored: bool = False,  # noqa: FBT001, FBT002 - a model gives it by name
) -> dict[str, Any]:
    """Find lines by a regular expression.

    Parameters
    ----------
    pattern
        The regular expression.
    include
        A pattern of files to search, such as ``**/*.py``; by default all.
    context_lines
        Lines to show before and after each match.
    include_ignored
        Whether to search files that .gitignore excludes too.
    """
    files = present_workspace().file_operator
    return await agent_tools.grep(files, pattern, include, context_lines, include_ignored=include_ignored)


async def edit(file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:  # noqa: FBT001, FBT002 - a model gives it by name
    """Replace a text in a file, which must occur exactly once; with an empty old text, create the file.

    Parameters
    ----------
    file_path
        Path of the file.
    old_string
        The text to replace, with enough context to occur exactly once.
    new_string
        The new text.
    replace_all
        Whether to replace all occurrences.
    """
    files = present_workspace().file_operator
    return await agent_tools.edit(files, file_path, old_string, new_string, replace_all=replace_all)


async def multi_edit(file_path: str, edits: list[dict[str, Any]]) -> str:
    """Make several replacements in a file: all of them, or none.

    Parameters
    ----------
    file_path
        Path of the file.
    edits
        Edits with `old_string`, `new_string` and optionally `replace_all`, applied one after the other.
    """
    return await agent_tools.multi_edit(present_workspace().file_operator, file_path, edits)


async def replace(file_path: str, content: str, mode: str = "w") -> str:
    """Replace the whole content of a file, or append to it.

    Parameters
    ----------
    file_path
        Path of the file.
    content
        The new content, or the text to append.
    mode
        w to replace the content, a to append.
    """
    return await agent_tools.replace(present_workspace().file_operator, file_path, content, mode)


async def mkdir(paths: list[str], parents: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Create folders.

    Parameters
    ----------
    paths
        Paths of the folders.
    parents
        Whether to create missing parent folders, too.
    """
    return await agent_tools.mkdir(present_workspace().file_operator, paths, parents=parents)


async def move(pairs: list[dict[str, str]], overwrite: bool = False) -> list[dict[str, Any]]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Move files or folders.

    Parameters
    ----------
    pairs
        Pairs of paths, each with `src` and `dst`.
    overwrite
        Whether to replace existing files.
    """
    return await agent_tools.move(present_workspace().file_operator, pairs, overwrite=overwrite)


async def copy(pairs: list[dict[str, str]], overwrite: bool = False) -> list[dict[str, Any]]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Copy files.

    Parameters
    ----------
    pairs
        Pairs of paths, each with `src` and `dst`.
    overwrite
        Whether to replace existing files.
    """
    return await agent_tools.copy(present_workspace().file_operator, pairs, overwrite=overwrite)


async def delete(path: str) -> str:
    """Remove a file or an empty folder.

    Parameters
    ----------
    path
        Path of the file or folder.
    """
    return await agent_tools.delete(present_workspace().file_operator, path)


async def shell(
    command: str,
    timeout_seconds: float | None = None,
    environment: dict[str, str] | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    """Run a command in a shell, and return its output and exit code.

    Parameters
    ----------
    command
        The command.
    timeout_seconds
        Time limit in seconds.
    environment
        Environment variables to add.
    cwd
        Working folder of the command.
    """
    workspace = present_workspace()
    seconds = workspace.shell.default_timeout if timeout_seconds is None else timeout_seconds
    return await agent_tools.shell(workspace.shell, workspace.file_operator, command, seconds, environment, cwd)


async def spawn_process(
    command: str,
    environment: dict[str, str] | None = None,
    cwd: str | None = None,
    takes_input: bool = False,  # noqa: FBT001, FBT002 - a model gives it by name
) -> dict[str, Any]:
    """Start a command in the background, such as a server, and return its id. The command ends with this run.

    Parameters
    ----------
    command
        The command.
    environment
        Environment variables to add.
    cwd
        Working folder of the command.
    takes_input
        Whether you will write to the input of the process.
    """
    manager = process_manager(present_workspace())
    return await agent_tools.spawn(manager, command, environment, cwd, takes_input=takes_input)


async def read_process_output(
    process_id: str, wait_seconds: float = 0.0, max_lines: int = agent_tools.MOST_LINES
) -> dict[str, Any]:
    """Return the new output of a background process, and whether the process still runs.

    Parameters
    ----------
    process_id
        Id of the process.
    wait_seconds
        Seconds to wait for output if there is none, at most 60.
    max_lines
        Maximum number of lines to return. The next call returns the following lines.
    """
    return await agent_tools.read(process_manager(present_workspace()), process_id, wait_seconds, max_lines)


async def write_process_input(process_id: str, text: str, is_last: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Write to the input of a background process that was started with takes_input.

    Parameters
    ----------
    process_id
        Id of the process.
    text
        Text to write. End each line with a line feed.
    is_last
        Whether this is the end of the input.
    """
    return agent_tools.write(process_manager(present_workspace()), process_id, text, is_last=is_last)


async def kill_process(process_id: str) -> dict[str, Any]:
    """End a background process and all processes that it has started.

    Parameters
    ----------
    process_id
        Id of the process.
    """
    return await agent_tools.kill(process_manager(present_workspace()), process_id)


async def list_processes() -> list[dict[str, Any]]:
    """List the background processes that you have started, with their status."""
    return agent_tools.list_processes(process_manager(present_workspace()))


_PATHS = ("file_path", "path", "paths", "src", "dst", "cwd")
"""Argument names that denote files, over all workspace tools. Approval rules compare the files."""
_READS: Mapping[str, Callable[..., Any]] = {each.__name__: each for each in (view, ls, glob, grep)}
_CHANGES: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (edit, multi_edit, replace, mkdir, move, copy, delete)
}
_RUNS: Mapping[str, Callable[..., Any]] = {each.__name__: each for each in (shell, spawn_process, write_process_input)}
_WATCHES: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (read_process_output, list_processes, kill_process)
}
WORKSPACE_TOOLS = (*_READS, *_CHANGES, SHELL)
"""Names of the tools that an agent with a workspace gets if its definition does not list tools."""
PROCESS_TOOLS = tuple(name for name in (*_RUNS, *_WATCHES) if name != SHELL)
"""Names of the tools for background processes. An agent has them only if its definition lists them."""


def workspace_tool(name: str, definition: WorkspaceDefinition | None) -> ToolFunction:
    """Return the workspace tool with this name, for an agent that works in the workspace `definition`. If that is None,
    the tool works in the workspace that the workflow names.

    Changes in a copy can be reverted, and a fenced workspace contains its commands: neither needs approval.
    """
    # The hints decide which calls a person must approve: those of destructive tools. A tool without a definition is
    # treated as one in the folder itself, where nothing can be reverted.
    is_copy = definition is not None and not definition.in_place
    is_contained = definition is not None and definition.kind in CONTAINED
    function = {**_READS, **_CHANGES, **_RUNS, **_WATCHES}[name]
    if name in _READS:
        hints = ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False)
    elif name in _WATCHES:  # what is read is read once, and what is ended was started by the agent
        hints = ToolHints(read_only=False, destructive=False, idempotent=False, open_world=False)
    # Commands can reach more than the copy, for example the network or other folders, unless the workspace contains
    # them.
    elif name in _RUNS:
        hints = ToolHints(read_only=False, destructive=not (is_copy and is_contained), idempotent=False)
    else:
        hints = ToolHints(read_only=False, destructive=not is_copy, idempotent=True, open_world=False)
    # The empty name stands for the workspace of the agent or step that calls the tool.
    return ToolFunction(
        name,
        function,
        inspect.getdoc(function) or "",
        hints=hints,
        confirmation=IF_DESTRUCTIVE,
        workspace="" if definition is None else definition.name,
        paths=_PATHS,
    )

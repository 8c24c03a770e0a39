"""Tools of agents that have a workspace: view, change and search its files, and run commands.

They work in the workspace of the current call (`divebook.workspace.workspace`). Changes in a copy of a folder need no
approval, because nothing is lost: a person sees them before they are applied to the folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from divebook.workflow.resources import CONTAINED, IF_DESTRUCTIVE, WorkspaceDefinition
from divebook.workflow.tools import ToolFunction, ToolHints
from divebook.workspace import agent_tools
from divebook.workspace.background import process_manager
from divebook.workspace.workspace import present_workspace

SHELL = "shell"


async def view(file_path: str, line_offset: int = 0, line_limit: int = agent_tools.LINES) -> Any:
    """Read a text file, or some lines of it.

    Parameters
    ----------
    file_path
        Path of the file.
    line_offset
        How many lines to skip.
    line_limit
        How many lines to show.
    """
    return await agent_tools.view(present_workspace().file_operator, file_path, line_offset, line_limit)


async def ls(path: str = ".", ignore: list[str] | None = None) -> dict[str, Any]:
    """List what is in a folder.

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
        The text to replace, with enough around it to occur once.
    new_string
        The text to put there.
    replace_all
        Whether to replace it wherever it occurs.
    """
    files = present_workspace().file_operator
    return await agent_tools.edit(files, file_path, old_string, new_string, replace_all=replace_all)


async def multi_edit(file_path: str, edits: list[dict[str, Any]]) -> str:
    """Make several replacements in a file, all or none.

    Parameters
    ----------
    file_path
        Path of the file.
    edits
        Each with `old_string`, `new_string` and perhaps `replace_all`; each is made in what the one before it left.
    """
    return await agent_tools.multi_edit(present_workspace().file_operator, file_path, edits)


async def replace(file_path: str, content: str, mode: str = "w") -> str:
    """Write a file whole, or add to its end.

    Parameters
    ----------
    file_path
        Path of the file.
    content
        What it is to hold, or what to add.
    mode
        w to write it whole, a to add.
    """
    return await agent_tools.replace(present_workspace().file_operator, file_path, content, mode)


async def mkdir(paths: list[str], parents: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Make folders.

    Parameters
    ----------
    paths
        Their paths.
    parents
        Whether to make the folders around them too.
    """
    return await agent_tools.mkdir(present_workspace().file_operator, paths, parents=parents)


async def move(pairs: list[dict[str, str]], overwrite: bool = False) -> list[dict[str, Any]]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Move files or folders.

    Parameters
    ----------
    pairs
        Each with `src` and `dst`.
    overwrite
        Whether to replace files that are there.
    """
    return await agent_tools.move(present_workspace().file_operator, pairs, overwrite=overwrite)


async def copy(pairs: list[dict[str, str]], overwrite: bool = False) -> list[dict[str, Any]]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Copy files.

    Parameters
    ----------
    pairs
        Each with `src` and `dst`.
    overwrite
        Whether to replace files that are there.
    """
    return await agent_tools.copy(present_workspace().file_operator, pairs, overwrite=overwrite)


async def delete(path: str) -> str:
    """Remove a file or an empty folder.

    Parameters
    ----------
    path
        Its path.
    """
    return await agent_tools.delete(present_workspace().file_operator, path)


async def shell(
    command: str,
    timeout_seconds: float | None = None,
    environment: dict[str, str] | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    """Run a command in a shell, and return what it printed and how it ended.

    Parameters
    ----------
    command
        The command.
    timeout_seconds
        How long it may take.
    environment
        Variables to add.
    cwd
        The folder to run it in.
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
    """Start a command that goes on beside others, such as a server, and return its id; it ends with this run.

    Parameters
    ----------
    command
        The command.
    environment
        Variables to add.
    cwd
        The folder to run it in.
    takes_input
        Whether you will give it something to read.
    """
    manager = process_manager(present_workspace())
    return await agent_tools.spawn(manager, command, environment, cwd, takes_input=takes_input)


async def read_process_output(
    process_id: str, wait_seconds: float = 0.0, max_lines: int = agent_tools.MOST_LINES
) -> dict[str, Any]:
    """Return what a process has printed since you last asked, and whether it still runs.

    Parameters
    ----------
    process_id
        Its id.
    wait_seconds
        How long to wait for a line where there is none, at most 60.
    max_lines
        How many lines to return; the next call returns those that follow.
    """
    return await agent_tools.read(process_manager(present_workspace()), process_id, wait_seconds, max_lines)


async def write_process_input(process_id: str, text: str, is_last: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a model gives it by name
    """Give a process that was started with takes_input something to read.

    Parameters
    ----------
    process_id
        Its id.
    text
        What it is to read; end a line with a line feed.
    is_last
        Whether nothing will follow.
    """
    return agent_tools.write(process_manager(present_workspace()), process_id, text, is_last=is_last)


async def kill_process(process_id: str) -> dict[str, Any]:
    """End a process with all that it has started.

    Parameters
    ----------
    process_id
        Its id.
    """
    return await agent_tools.kill(process_manager(present_workspace()), process_id)


async def list_processes() -> list[dict[str, Any]]:
    """List the processes that you have started, and how each is."""
    return agent_tools.list_processes(process_manager(present_workspace()))


_PATHS = ("file_path", "path", "paths", "src", "dst", "cwd")
"""Names of arguments that name files, in any of these tools."""
_READS: Mapping[str, Callable[..., Any]] = {each.__name__: each for each in (view, ls, glob, grep)}
_CHANGES: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (edit, multi_edit, replace, mkdir, move, copy, delete)
}
_RUNS: Mapping[str, Callable[..., Any]] = {each.__name__: each for each in (shell, spawn_process, write_process_input)}
_WATCHES: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (read_process_output, list_processes, kill_process)
}
WORKSPACE_TOOLS = (*_READS, *_CHANGES, SHELL)
"""Tools of an agent that has a workspace and names none of them."""
PROCESS_TOOLS = tuple(name for name in (*_RUNS, *_WATCHES) if name != SHELL)
"""Tools for background processes. An agent has them only if it names them."""


def workspace_tool(name: str, definition: WorkspaceDefinition | None) -> ToolFunction:
    """Return a tool of a workspace. None stands for the workspace that the workflow names.

    Changes in a copy can be reverted, and a fenced workspace contains its commands: neither needs approval.
    """
    is_copy = definition is not None and not definition.in_place
    is_contained = definition is not None and definition.kind in CONTAINED
    function = {**_READS, **_CHANGES, **_RUNS, **_WATCHES}[name]
    if name in _READS:
        hints = ToolHints(read_only=True, destructive=False, idempotent=True, open_world=False)
    elif name in _WATCHES:  # what is read is read once, and what is ended was started by the agent
        hints = ToolHints(read_only=False, destructive=False, idempotent=False, open_world=False)
    elif name in _RUNS:
        hints = ToolHints(read_only=False, destructive=not (is_copy and is_contained), idempotent=False)
    else:
        hints = ToolHints(read_only=False, destructive=not is_copy, idempotent=True, open_world=False)
    return ToolFunction(
        name,
        function,
        inspect.getdoc(function) or "",
        hints=hints,
        confirmation=IF_DESTRUCTIVE,
        workspace="" if definition is None else definition.name,
        paths=_PATHS,
    )

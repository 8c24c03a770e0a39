"""Actions of workspaces, for steps: run a command, read and write files. They work in the workspace that is named.

Their results are plain data, their failures those of any action: ``Retry`` and ``Catch`` hold for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from divebook.errors import StepError
from divebook.steps.actions import Action, StepAction
from divebook.steps.taking_over import TAKE_OVER, take_over
from divebook.workspace.present import present_workspace


# The parameters are capitalised because definitions spell them so.
async def _shell(Command: str, Timeout: float | None = None, Cwd: str | None = None, Check: bool = True) -> Any:  # noqa: FBT001, FBT002, N803
    """Run a command; return its exit code and what it printed. One that fails fails the step, unless Check is false."""
    found = await present_workspace().shell.execute(Command, timeout=Timeout, cwd=Cwd)
    if Check and found.exit_code:
        said = (found.stderr or found.stdout).strip()[-2000:]
        raise StepError(f"the command ended with exit code {found.exit_code}{f': {said}' if said else ''}")
    return {"exit_code": found.exit_code, "stdout": found.stdout, "stderr": found.stderr}


async def _read(Path: str) -> str:  # noqa: N803
    """Return the text of a file."""
    return await present_workspace().file_operator.read_file(Path)


async def _write(Path: str, Content: str) -> None:  # noqa: N803
    """Write a file whole; folders are made."""
    files, folder = present_workspace().file_operator, Path.rpartition("/")[0]
    if folder:
        await files.mkdir(folder, parents=True)
    await files.write_file(Path, Content)


async def _list(Path: str = ".") -> list[str]:  # noqa: N803
    """Return the names in a folder."""
    return await present_workspace().file_operator.list_dir(Path)


async def _glob(Pattern: str) -> list[str]:  # noqa: N803
    """Return the paths that a pattern means, the newest first."""
    return await present_workspace().file_operator.glob(Pattern)


async def _delete(Path: str) -> None:  # noqa: N803
    """Remove a file or an empty folder."""
    await present_workspace().file_operator.delete(Path)


_FUNCTIONS: Mapping[str, tuple[Callable[..., Any], bool]] = {
    "Workspace.Shell": (_shell, False),
    "Workspace.Read": (_read, True),
    "Workspace.Write": (_write, True),
    "Workspace.List": (_list, True),
    "Workspace.Glob": (_glob, True),
    "Workspace.Delete": (_delete, False),
}
"""Each with whether it may simply be made again: from the files that it found, which are put back before that."""


WORKSPACE_ACTIONS: Mapping[str, Action] = {
    TAKE_OVER: StepAction(
        TAKE_OVER,
        take_over,
        "Take changed files over into the folder that the workspace is a copy of; a person chooses which.",
        workspace="",
    ),
    **{
        name: Action(name, function, (function.__doc__ or "").partition("\n")[0], idempotent=again, workspace="")
        for name, (function, again) in _FUNCTIONS.items()
    },
}
"""The actions, by name."""

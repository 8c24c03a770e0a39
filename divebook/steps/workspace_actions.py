"""Workspace actions: run a command, read and write files, and copy changed files to the original folder.

Results are plain data. ``Retry`` and ``Catch`` apply to failures, as for any action. `apply_changes` copies changed
files to the folder that the workspace was copied from. Its question shows the diff of each file, and the answer is a
list of paths. Only the recorded call that follows writes to the folder. It writes the files as they were shown, even if
the workspace has changed since. If one of the files was changed in the folder meanwhile, no file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from divebook.definitions.functions import FUNCTION
from divebook.engine.operations import ACTION_EXECUTION
from divebook.errors import StepError
from divebook.questions.answer import value_of
from divebook.questions.question import CLARIFICATION
from divebook.questions.wording import Wording, files_to_take_over
from divebook.runtime.context import StepContext
from divebook.runtime.workspaces import OwnChanges
from divebook.steps.actions import Action, StepAction
from divebook.text.format import plural
from divebook.text.redaction import shared
from divebook.workspaces.snapshots.restore import left_out_text
from divebook.workspaces.snapshots.tree import FileDiff
from divebook.workspaces.workspace import present_workspace

APPLY = "Workspace.Apply"


MOST_SHOWN = 100_000
"""Maximum number of characters of all diffs in a question."""


_PATHS = "Paths"


_ASK = "Ask"


async def apply_changes(
    context: StepContext, workspace: str, parameters: Mapping[str, Any], key: str | int
) -> dict[str, Any]:
    """Copy changed files from a workspace to the folder that the workspace was copied from. Return three lists of
    paths: ``written`` (copied now), ``there`` (already equal in the folder) and ``left`` (not copied).

    Protected paths (hidden names, version-control metadata) are left unless ``Paths`` or the person names them. If no
    person was asked about them, ``left_out`` is a text that explains how to apply them.

    Parameters
    ----------
    parameters
        ``Paths``: files to copy; by default all. ``Ask``: True to let a person choose among them. This is the default,
        and always so in a workspace of a definition that may not skip the question (`divebook.documents.policy`).
    key
        Name of the call within the step.

    Raises
    ------
    StepError
        A parameter has the wrong type or is unknown.
    OperationError
        The folder has changed since the copy was made.
    """
    paths, asks = _read_parameters(parameters)
    if not asks and context.step.type != FUNCTION:  # a step of a definition; code of a person decides by itself
        asks = not context.workspaces.may_go_unasked(workspace)
    tree: str | None = None
    # A call in the log needs no new question, but a recorded question must be replayed.
    if (asks and context.record_of(key) is None) or context.question_of(f"{key}-files") is not None:
        paths, tree = await _ask_for_paths(context, workspace, paths, f"{key}-files")

    async def carry_out() -> dict[str, Any]:
        # A snapshot of the workspace as the person saw it (`tree`), or as it is now.
        changes = await context.workspaces.own_changes(workspace, context.place(f"{key}-now"), tree)
        changed_paths = [diff.path for diff in changes.diffs()]
        protected = changes.protected()
        requested_paths = set(paths or ())
        # With all of the visible files go the folders, which no question lists.
        is_all = paths is None or requested_paths | protected >= set(changed_paths)
        applied = changes.take_over(None if is_all else paths, by_name=requested_paths & protected)
        present_paths = {*applied.written, *applied.there}
        result = {
            "written": applied.written,
            "there": applied.there,
            "left": [path for path in changed_paths if path not in present_paths],
        }
        left_out = left_out_text(applied.left_out, f"{_PATHS}: [{{}}]") if paths is None else ""
        return {**result, "left_out": left_out} if left_out else result

    recorded_parameters = {**({} if paths is None else {_PATHS: list(paths)}), "workspace": workspace}
    operation_parameters = {"action_name": APPLY, "params": recorded_parameters}
    # Repeatable: a file that was written before is found in the folder, and is reported as `there`.
    result: dict[str, Any] = await context.operation(
        ACTION_EXECUTION, operation_parameters, carry_out, key=key, repeatable=True
    )
    return result


def _read_parameters(parameters: Mapping[str, Any]) -> tuple[Sequence[str] | None, bool]:
    paths = parameters.get(_PATHS)
    asks = parameters.get(_ASK, True)
    if paths is not None and not (isinstance(paths, list | tuple) and all(isinstance(path, str) for path in paths)):
        raise StepError(f"{_PATHS} of {APPLY} must be a list of paths, not {paths!r}")
    if not isinstance(asks, bool):
        raise StepError(f"{_ASK} of {APPLY} must be true or false, not {asks!r}")
    unknown = parameters.keys() - {_PATHS, _ASK}
    if unknown:
        raise StepError(f"{APPLY} has no parameter {min(unknown)}: it has {_PATHS} and {_ASK}")
    return paths, asks


async def _ask_for_paths(
    context: StepContext, workspace: str, paths: Sequence[str] | None, key: str
) -> tuple[Sequence[str] | None, str]:
    """Ask a person which changed files of a workspace to copy to the original folder. Return the paths that the person
    chose, and the digest of the file tree that the person saw. If no file has changed, return `paths` without a
    question.

    The tree is identified by its digest: the workspace may have changed while the person decided.
    """
    # The recorded question is shown again, although the workspace may have changed.
    question_before = context.question_of(key)
    if question_before is not None:
        wording = Wording.of(question_before)
    else:
        changes = await context.workspaces.own_changes(workspace, context.place(key))
        diffs = [diff for diff in changes.diffs() if paths is None or diff.path in paths]
        # Nothing has changed, so no question is needed.
        if not diffs:
            return paths, changes.tree
        wording = _question(workspace, changes, diffs, paths or ())
    answer = await context.interrupt(CLARIFICATION, wording.question, key=key, **wording.details)
    return list(value_of(answer)), (wording.data or {})["tree"]


def _question(workspace: str, changes: OwnChanges, diffs: Sequence[FileDiff], by_name: Sequence[str]) -> Wording:
    names = [diff.path for diff in diffs]
    # A path that the definition names needs no selection by a person.
    protected = changes.protected() - set(by_name)
    # None for a binary file, which has no lines.
    added, removed = (sum(getattr(diff, field) or 0 for diff in diffs) for field in ("added", "removed"))
    message = f"{plural(len(diffs), 'file')} changed in workspace {workspace} (+{added} -{removed})"
    if unselected := [name for name in names if name in protected]:
        message += f". {left_out_text(unselected, 'select {}')}"
    data = {"workspace": workspace, "folder": str(changes.folder), "tree": changes.tree, "files": _rows_of_diffs(diffs)}
    # All visible files are preselected. Protected ones must be selected by hand.
    preselected = [name for name in names if name not in protected]
    return files_to_take_over(message, data, names, preselected)


def _rows_of_diffs(diffs: Sequence[FileDiff]) -> list[dict[str, Any]]:
    """Convert the diffs of files to rows for a question to a person: with secrets hidden, and without the text of diffs
    that exceed the size limit.
    """
    # The diffs share one limit. A smaller one after a diff that is too long may still fit.
    remaining = MOST_SHOWN
    rows = []
    for diff in diffs:
        row: dict[str, Any] = shared().value(diff.to_dict())
        if len(row["diff"]) > remaining:
            row["diff"] = None  # `divebook diff` has it
        else:
            remaining -= len(row["diff"])
        rows.append(row)
    return rows


# The parameters are capitalised because definitions spell them so. A parameter with another type than `Any` would be
# converted (`divebook.definitions.functions.typed_arguments`), which would change the meaning of older definitions:
# any text for `Check` is true, and a command may be a list.
async def _shell(Command: Any, Timeout: Any = None, Cwd: Any = None, Check: Any = True) -> Any:  # noqa: FBT002, N803
    """Run a command; return its exit code and output. A failed command fails the step, unless Check is false."""
    result = await present_workspace().shell.execute(Command, timeout=Timeout, cwd=Cwd)
    if Check and result.exit_code:
        # The end of the output explains a failure best.
        output = (result.stderr or result.stdout).strip()[-2000:]
        raise StepError(f"the command ended with exit code {result.exit_code}{f': {output}' if output else ''}")
    return {"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}


async def _read(Path: Any) -> str:  # noqa: N803
    """Return the text of a file."""
    return await present_workspace().file_operator.read_file(Path)


async def _write(Path: Any, Content: Any) -> None:  # noqa: N803
    """Write a file as a whole. Folders are created."""
    files = present_workspace().file_operator
    folder = Path.rpartition("/")[0]
    if folder:
        await files.mkdir(folder, parents=True)
    await files.write_file(Path, Content)


async def _list(Path: Any = ".") -> list[str]:  # noqa: N803
    """Return the names in a folder."""
    return await present_workspace().file_operator.list_dir(Path)


async def _glob(Pattern: Any) -> list[str]:  # noqa: N803
    """Return the paths that match a pattern, newest first."""
    return await present_workspace().file_operator.glob(Pattern)


async def _delete(Path: Any) -> None:  # noqa: N803
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
"""Functions, each with True if it may be repeated: the files it found are restored before that."""


WORKSPACE_ACTIONS: Mapping[str, Action] = {
    APPLY: StepAction(
        APPLY,
        apply_changes,
        "Apply changed files to the folder that the workspace is a copy of; a person chooses the files.",
        workspace="",
    ),
    **{
        name: Action(name, function, (function.__doc__ or "").partition("\n")[0], idempotent=again, workspace="")
        for name, (function, again) in _FUNCTIONS.items()
    },
}
"""Workspace actions, by name."""

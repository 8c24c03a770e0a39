"""What a workspace has changed is taken over into the folder that it is a copy of: of the files that a person chooses.

The question has the difference of each file, and its answer the paths. The folder is touched only by the recorded call
that follows: it writes what was shown, whatever the workspace has by then, of all of them, or of none where one was
changed there meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divebook.engine.operations import ACTION_EXECUTION
from divebook.errors import StepError
from divebook.execution.context import StepContext
from divebook.execution.file_records import OwnChanges
from divebook.questions.answer import value_of
from divebook.questions.kinds import CLARIFICATION
from divebook.text.redaction import shared
from divebook.text.shown import plural
from divebook.workflow.functions import FUNCTION
from divebook.workspace.snapshots.diffs import FileDiff
from divebook.workspace.snapshots.protected import left_out_text

TAKE_OVER = "Workspace.Apply"
MOST_SHOWN = 100_000
"""Characters of all differences that a question has."""
_PATHS, _ASK = "Paths", "Ask"


async def take_over(
    context: StepContext, workspace: str, parameters: Mapping[str, Any], key: str | int
) -> dict[str, Any]:
    """Return the paths that were ``written``, were ``there`` already, and were ``left`` as they are.

    Protected paths (hidden names, version-control metadata) are left unless ``Paths`` or the person names them; if
    nobody was asked about them, ``left_out`` is a text that says how to take them over.

    Parameters
    ----------
    parameters
        ``Paths``: of which files; by default of all. ``Ask``: whether a person chooses among them; by default yes, and
        always in a workspace of a definition that may not ask less (`divebook.documents.policy`).
    key
        Name of the call within the step.

    Raises
    ------
    StepError
        There is nothing to take over, or a parameter is not what it should be.
    OperationError
        The folder has something else than the changes began with.
    """
    paths, asks = _read(parameters)
    if not asks and context.step.type != FUNCTION:  # a step of a definition; code of a person decides by itself
        asks = not context.workspaces.may_go_unasked(workspace)
    tree: str | None = None
    if (asks and context.record_of(key) is None) or context.question_of(f"{key}-files") is not None:
        paths, tree = await _asked(context, workspace, paths, f"{key}-files")

    async def carry_out() -> dict[str, Any]:
        own = await context.workspaces.own_changes(workspace, context.place(f"{key}-now"), tree)
        known, protected, named = [diff.path for diff in own.diffs()], own.protected(), set(paths or ())
        # With all of the visible files go the folders, which no question lists.
        is_all = paths is None or named | protected >= set(known)
        done = own.take_over(None if is_all else paths, by_name=named & protected)
        taken = {*done.written, *done.there}
        result = {"written": done.written, "there": done.there, "left": [path for path in known if path not in taken]}
        left_out = left_out_text(done.left_out, f"{_PATHS}: [{{}}]") if paths is None else ""
        return {**result, "left_out": left_out} if left_out else result

    given = {**({} if paths is None else {_PATHS: list(paths)}), "workspace": workspace}
    asked = {"action_name": TAKE_OVER, "params": given}
    found: dict[str, Any] = await context.operation(ACTION_EXECUTION, asked, carry_out, key=key, repeatable=True)
    return found


def _read(parameters: Mapping[str, Any]) -> tuple[Sequence[str] | None, bool]:
    paths, asks = parameters.get(_PATHS), parameters.get(_ASK, True)
    if paths is not None and not (isinstance(paths, list | tuple) and all(isinstance(path, str) for path in paths)):
        raise StepError(f"{_PATHS} of {TAKE_OVER} are a list of paths, not {paths!r}")
    if not isinstance(asks, bool):
        raise StepError(f"{_ASK} of {TAKE_OVER} is true or false, not {asks!r}")
    unknown = parameters.keys() - {_PATHS, _ASK}
    if unknown:
        raise StepError(f"{TAKE_OVER} has no parameter {min(unknown)}: it has {_PATHS} and {_ASK}")
    return paths, asks


async def _asked(
    context: StepContext, workspace: str, paths: Sequence[str] | None, key: str
) -> tuple[Sequence[str] | None, str]:
    """Return the paths that a person has chosen, or all that are asked for where nothing has changed; of which files.

    The files are those that were shown, by the digest of their tree: others may have come while the person thought.
    """
    asked = context.question_of(key)
    if asked is not None:
        options: dict[str, Any] = {"message": asked.message, "data": asked.data, "schema": asked.schema}
        question = asked.question
    else:
        own = await context.workspaces.own_changes(workspace, context.place(key))
        diffs = [diff for diff in own.diffs() if paths is None or diff.path in paths]
        if not diffs:
            return paths, own.tree
        question, options = _question(workspace, own, diffs, paths or ())
    answered = await context.interrupt(CLARIFICATION, question, key=key, **options)
    return list(value_of(answered)), options["data"]["tree"]


def _question(
    workspace: str, own: OwnChanges, diffs: Sequence[FileDiff], by_name: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    names, protected = [diff.path for diff in diffs], own.protected() - set(by_name)
    added, removed = (sum(getattr(diff, way) or 0 for diff in diffs) for way in ("added", "removed"))
    told = f"{plural(len(diffs), 'file')} changed in workspace {workspace} (+{added} -{removed})"
    if unselected := [name for name in names if name in protected]:
        told += f". {left_out_text(unselected, 'select {}')}"
    choice = {
        "type": "array",
        "title": "Files",
        "items": {"type": "string", "enum": names},
        "uniqueItems": True,
        "default": [name for name in names if name not in protected],
    }
    data = {"workspace": workspace, "folder": str(own.folder), "tree": own.tree, "files": _shown(diffs)}
    return "Which of these files are to be taken over?", {"message": told, "data": data, "schema": choice}


def _shown(diffs: Sequence[FileDiff]) -> list[dict[str, Any]]:
    """Return the differences as a question has them: without secrets, and without those that are too long."""
    left, told = MOST_SHOWN, []
    for diff in diffs:
        row: dict[str, Any] = shared().value(diff.to_dict())
        if len(row["diff"]) > left:
            row["diff"] = None  # `divebook diff` has it
        else:
            left -= len(row["diff"])
        told.append(row)
    return told
